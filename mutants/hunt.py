"""Put each fault of `mutants/*.toml` into a copy of the package and see whether its tests fail.

A fault is killed when its tests fail or run out of time, and survives when they pass. A fault whose text is no longer
in the package, or whose tests no longer exist, is an error: mend the list. The working tree is only ever read.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).parent.parent
LISTS = Path(__file__).parent
FLOOR = 0.95  # share of the faults that must be killed
KILLED, SURVIVED, ERROR = "killed", "survived", "error"
_PYTEST_FAILED = (1, 2)  # tests failed; a test module could not even be imported
_FORKS = multiprocessing.get_context("forkserver")
_PRELOAD = ["hypothesis", "jaxtyping", "numba", "pytest", "scipy.optimize", "scipy.sparse.linalg", "scipy.stats"]
_OPTIONS = (
    *("-x", "-q", "-n", "0", "-m", "not slow", "-p", "no:cacheprovider", "--no-header", "--tb=line"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # plugins that are imported before pytest looks at them
)


@dataclass(frozen=True)
class Mutant:
    """One fault: `old`, which stands once in `file`, becomes `new`."""

    id: str
    file: str  # within src/lmab
    old: str
    new: str
    tests: tuple[str, ...]  # files or single tests, within tests/

    @property
    def module(self) -> str:
        """The package or module of the library that it is in."""
        return self.file.split("/")[0].removesuffix(".py")


@dataclass(frozen=True)
class Outcome:
    """What became of a fault."""

    mutant: Mutant
    verdict: str  # KILLED, SURVIVED or ERROR
    seconds: float
    why: str  # the first test that failed, or what is wrong


def read(folder: Path = LISTS) -> list[Mutant]:
    """Every fault of every list, in the order of the files; an id stands for one fault only."""
    rows = [row for path in sorted(folder.glob("*.toml")) for row in tomllib.loads(path.read_text())["mutant"]]
    found = [Mutant(row["id"], row["file"], row["old"], row["new"], tuple(row["tests"])) for row in rows]
    ids = [mutant.id for mutant in found]
    twice = sorted({one for one in ids if ids.count(one) > 1})
    if twice:
        raise SystemExit(f"ids must be unique, got twice: {', '.join(twice)}")
    return found


def stale(mutant: Mutant, source: Path) -> str | None:
    """Why the fault cannot be put into the package; None where it can."""
    path = source / mutant.file
    if not path.is_file():
        return f"no file {mutant.file}"
    count = path.read_text().count(mutant.old)
    if count != 1:
        return f"its text stands {count} times in {mutant.file}, not once"
    return "the fault changes nothing" if mutant.old == mutant.new else None


def run_tests(copy: Path, tests: Iterable[str], limit: float) -> tuple[int, str]:
    """Run tests of the working tree on a copy of the package: pytest's exit status (-1: out of time), and its words.

    In a process forked from one that has imported NumPy, pytest and the like, but nothing of the package.
    """
    paths = [str(ROOT / "tests" / test) for test in tests]
    with tempfile.NamedTemporaryFile("r") as words:
        process = _FORKS.Process(target=_run, args=(str(copy), paths, words.name))
        process.start()
        process.join(limit)
        if process.is_alive():
            process.kill()
            process.join()
            return -1, ""
        return process.exitcode or 0, words.read()


def _run(copy: str, paths: list[str], words: str) -> None:
    """In the forked process: pytest, with the copy of the package before any other."""
    import pytest

    output = os.open(words, os.O_WRONLY)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(ROOT)
    sys.path.insert(0, copy)
    sys.dont_write_bytecode = True
    status = pytest.main([*_OPTIONS, *paths])
    sys.stdout.flush()
    os._exit(int(status))


def attempt(mutant: Mutant, copy: Path, limit: float) -> Outcome:
    """Put the fault into the copy, run its tests, take it out again."""
    path, begin = copy / "lmab" / mutant.file, time.perf_counter()
    original, times = path.read_text(), path.stat()
    path.write_text(original.replace(mutant.old, mutant.new))
    try:
        status, text = run_tests(copy, mutant.tests, limit)
    finally:
        path.write_text(original)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # compiled files next to it stay valid
    seconds = time.perf_counter() - begin
    if status == 0:
        return Outcome(mutant, SURVIVED, seconds, "all of its tests passed")
    if status == -1:
        return Outcome(mutant, KILLED, seconds, f"no end within {limit:g} s")
    if status in _PYTEST_FAILED:
        failed = [line for line in text.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return Outcome(mutant, KILLED, seconds, failed[0] if failed else "pytest failed")
    return Outcome(mutant, ERROR, seconds, f"pytest ended with status {status}: {text.strip()[-300:]}")


def check_tests(mutants: Sequence[Mutant], copy: Path, processes: int) -> list[str]:
    """What is wrong with the tests themselves: on the package as it is, all of them must pass."""
    by_file: dict[str, set[str]] = defaultdict(set)
    for test in {test for mutant in mutants for test in mutant.tests}:
        by_file[test.split("::")[0]].add(test)
    wanted = [[name] if name in tests else sorted(tests) for name, tests in sorted(by_file.items())]
    with ThreadPoolExecutor(processes) as pool:
        results = pool.map(lambda tests: (tests, *run_tests(copy, tests, 600)), wanted)
        return [f"{' '.join(tests)}: status {status}\n{text[-2000:]}" for tests, status, text in results if status]


def hunt(mutants: Sequence[Mutant], processes: int, limit: float) -> list[Outcome]:
    """Try all faults, several at a time, each process in a copy of its own."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        base = Path(folder) / "0"
        shutil.copytree(ROOT / "src", base)
        wrong = check_tests(mutants, base, processes)  # also compiles the kernels, once for all copies
        if wrong:
            raise SystemExit("the tests must pass without any fault:\n" + "\n".join(wrong))
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(1, processes + 1):
            copies.put(Path(shutil.copytree(base, Path(folder) / str(number))))

        def one(mutant: Mutant) -> Outcome:
            copy = copies.get()
            try:
                return attempt(mutant, copy, limit)
            finally:
                copies.put(copy)

        outcomes = []
        with ThreadPoolExecutor(processes) as pool:
            for job in as_completed([pool.submit(one, mutant) for mutant in mutants]):
                outcome = job.result()
                outcomes.append(outcome)
                _say(outcome, len(outcomes), len(mutants))
    return outcomes


def _say(outcome: Outcome, number: int, total: int) -> None:
    why = outcome.why.removeprefix("FAILED ").split(" - ")[0]
    line = f"[{number}/{total}] {outcome.verdict:8} {outcome.mutant.id} ({outcome.seconds:.0f} s): {why}"
    print(line, flush=True)


def _chosen(mutants: Sequence[Mutant], names: Sequence[str]) -> list[Mutant]:
    """The faults of the named modules, files or ids; all where none is named."""
    unknown = [name for name in names if not any(_is(mutant, name) for mutant in mutants)]
    if unknown:
        raise SystemExit(f"no fault, file or module is called {', '.join(unknown)}; --list shows them")
    return [mutant for mutant in mutants if not names or any(_is(mutant, name) for name in names)]


def _is(mutant: Mutant, name: str) -> bool:
    return name in (mutant.id, mutant.file, mutant.module)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="ids, files or modules of the library; none: all")
    parser.add_argument("--list", action="store_true", help="print the faults and run nothing")
    parser.add_argument("--processes", type=int, default=2, help="faults tried at the same time")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds after which tests count as failed")
    arguments = parser.parse_args()
    os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    _FORKS.set_forkserver_preload(_PRELOAD)
    mutants = _chosen(read(), arguments.names)
    if arguments.list:
        for mutant in mutants:
            print(f"{mutant.id}\t{mutant.file}\t{' '.join(mutant.tests)}")
        return 0
    old = [(mutant, why) for mutant in mutants if (why := stale(mutant, ROOT / "src" / "lmab")) is not None]
    for mutant, why in old:
        print(f"stale {mutant.id}: {why}")
    if old:
        return 2
    begin = time.perf_counter()
    return _report(hunt(mutants, arguments.processes, arguments.limit), time.perf_counter() - begin)


def _report(outcomes: Sequence[Outcome], seconds: float) -> int:
    counts = {verdict: [one for one in outcomes if one.verdict == verdict] for verdict in (KILLED, SURVIVED, ERROR)}
    for outcome in [*counts[SURVIVED], *counts[ERROR]]:
        mutant = outcome.mutant
        print(f"\n{outcome.verdict}: {mutant.id} in {mutant.file} ({outcome.why})")
        print("\n".join(f"  - {line}" for line in mutant.old.splitlines()))
        print("\n".join(f"  + {line}" for line in mutant.new.splitlines()))
    share = len(counts[KILLED]) / len(outcomes)
    print(
        f"\n{len(counts[KILLED])} of {len(outcomes)} killed ({share:.1%}; at least {FLOOR:.0%} must be), "
        f"{len(counts[SURVIVED])} survived, {len(counts[ERROR])} errors, {seconds / 60:.1f} minutes"
    )
    return 0 if share >= FLOOR and not counts[ERROR] else 1
