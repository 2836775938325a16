"""Put faults one at a time into a copy of the package and see whether tests fail: `python -m mutants --help`.

A fault is killed when a test fails or finds no end, and survives when its tests pass. A drawn fault that survives and
stands in `equivalent.toml`, with the reason why no test can notice it, counts as equivalent. The working tree is only
ever read.
"""

from __future__ import annotations

import argparse
import datetime
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue

import numpy as np

from . import covering, faults
from .faults import LISTS, ROOT, SOURCE, Fault, Places

LISTED, DRAWN = 0.95, 0.85  # shares of the faults that must be killed: of the old ones, and of fresh ones
KILLED, SURVIVED, EQUIVALENT, ERROR = "killed", "survived", "equivalent", "error"
VERDICTS = (KILLED, SURVIVED, EQUIVALENT, ERROR)
_PYTEST_FAILED = (1, 2)  # tests failed; a test module could not even be imported
_FORKS = multiprocessing.get_context("forkserver")
_PRELOAD = ["hypothesis", "jaxtyping", "numba", "pytest", "scipy.optimize", "scipy.sparse.linalg", "scipy.stats"]
_OPTIONS = (
    *("-x", "-q", "-n", "0", "-m", "not slow", "-p", "no:cacheprovider", "--no-header", "--tb=line"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # plugins that are imported before pytest looks at them
)


@dataclass(frozen=True)
class Outcome:
    """What became of a fault."""

    fault: Fault
    verdict: str  # one of VERDICTS
    seconds: float
    why: str  # the first test that failed, or what is wrong


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
    os.environ["PYTHONPATH"] = copy  # for programs that tests start
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # for those programs: a file with a fault may have the time of the old
    status = pytest.main([*_OPTIONS, *paths])
    sys.stdout.flush()
    os._exit(int(status))


def attempt(fault: Fault, copy: Path, limit: float) -> Outcome:
    """Put the fault into the copy, run its tests, take it out again."""
    path, begin = copy / "lmab" / fault.file, time.perf_counter()
    original, times = path.read_text(), path.stat()
    path.write_text(fault.apply(original))
    try:
        status, text = run_tests(copy, fault.tests, limit)
    finally:
        path.write_text(original)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # compiled files next to it stay valid
    seconds = time.perf_counter() - begin
    if status == 0:
        return Outcome(fault, SURVIVED, seconds, f"all of its tests passed: {' '.join(fault.tests)}")
    if status == -1:
        return Outcome(fault, KILLED, seconds, f"no end within {limit:g} s")
    if status in _PYTEST_FAILED:
        failed = [line for line in text.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return Outcome(fault, KILLED, seconds, failed[0] if failed else "pytest failed")
    return Outcome(fault, ERROR, seconds, f"pytest ended with status {status}: {text.strip()[-300:]}")


def check_tests(chosen: Sequence[Fault], copy: Path, processes: int) -> list[str]:
    """What is wrong with the tests themselves: on the package as it is, all of them must pass."""
    by_file: dict[str, set[str]] = defaultdict(set)
    for test in {test for fault in chosen for test in fault.tests}:
        by_file[test.split("::")[0]].add(test)
    wanted = [[name] if name in tests else sorted(tests) for name, tests in sorted(by_file.items())]
    with ThreadPoolExecutor(processes) as pool:
        results = pool.map(lambda tests: (tests, *run_tests(copy, tests, 600)), wanted)
        return [f"{' '.join(tests)}: status {status}\n{text[-2000:]}" for tests, status, text in results if status]


def hunt(chosen: Sequence[Fault], processes: int, limit: float) -> list[Outcome]:
    """Try all faults, several at a time, each process in a copy of its own."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        base = Path(folder) / "0"
        shutil.copytree(ROOT / "src", base)
        wrong = check_tests(chosen, base, processes)  # also compiles the kernels, once for all copies
        if wrong:
            raise SystemExit("the tests must pass without any fault:\n" + "\n".join(wrong))
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(1, processes + 1):
            copies.put(Path(shutil.copytree(base, Path(folder) / str(number))))

        def one(fault: Fault) -> Outcome:
            copy = copies.get()
            try:
                return attempt(fault, copy, limit)
            finally:
                copies.put(copy)

        outcomes: list[Outcome] = []
        with ThreadPoolExecutor(processes) as pool:
            for job in as_completed([pool.submit(one, fault) for fault in chosen]):
                outcomes.append(judged(job.result(), equivalents()))
                _say(outcomes[-1], len(outcomes), len(chosen))
    return outcomes


def equivalents(folder: Path = LISTS) -> set[tuple[str, str]]:
    """Changes of lines that no test can notice."""
    rows = tomllib.loads((folder / "equivalent.toml").read_text()).get("equivalent", [])
    return {(_line(row["old"]), _line(row["new"])) for row in rows}


def judged(outcome: Outcome, known: set[tuple[str, str]]) -> Outcome:
    """The outcome, equivalent where the fault survived and is known to change nothing that could be seen."""
    changed = _line(outcome.fault.old), _line(outcome.fault.new)
    return replace(outcome, verdict=EQUIVALENT) if outcome.verdict == SURVIVED and changed in known else outcome


def _line(text: str) -> str:
    return " ".join(text.split())


def _say(outcome: Outcome, number: int, total: int) -> None:
    why = outcome.why.removeprefix("FAILED ").split(" - ")[0]
    print(f"[{number}/{total}] {outcome.verdict:8} {outcome.fault.id} ({outcome.seconds:.0f} s): {why}", flush=True)


def listed(names: Sequence[str]) -> list[Fault]:
    """The faults of the lists with these ids, files or packages; all where none is named."""
    rows = faults.read()
    unknown = [name for name in names if not any(name in (row.id, row.file, row.package) for row in rows)]
    if unknown:
        raise SystemExit(f"no fault, file or package is called {', '.join(unknown)}; --list shows them")
    chosen = [row for row in rows if not names or {row.id, row.file, row.package} & set(names)]
    found, stale = faults.resolve(chosen, Places())
    for name, why in stale.items():
        print(f"stale {name}: {why}")
    if stale:
        raise SystemExit(2)
    return found


def drawn(number: int, seed: int) -> list[Fault]:
    """So many fresh faults, each with the tests that cover it."""
    from . import drawing

    recorded = covering.Record() if (covering.FOLDER / "times.xml").is_file() else None
    if recorded is None:
        print("no record of which tests run which lines (python -m mutants record): the tests of `make near` are run")
    found = []
    for fault in drawing.draw(number, np.random.default_rng(seed)):
        line = (SOURCE / fault.file).read_text()[: fault.begin].count("\n") + 1
        found.append(replace(fault, tests=covering.covering(fault.file, line, recorded)))
    return found


def report(outcomes: Sequence[Outcome], floor: float, seconds: float) -> int:
    """Print survivors, counts by package and the share that was killed; 0 where it is enough."""
    for outcome in outcomes:
        if outcome.verdict in (SURVIVED, ERROR):
            print(f"\n{outcome.verdict}: {outcome.fault.id} ({outcome.why})")
            print("\n".join(f"  - {line}" for line in outcome.fault.old.splitlines()))
            print("\n".join(f"  + {line}" for line in outcome.fault.new.splitlines()))
    print(f"\n{'package':14}" + "".join(f"{verdict:>12}" for verdict in VERDICTS))
    for package in sorted({outcome.fault.package for outcome in outcomes}):
        counts = Counter(outcome.verdict for outcome in outcomes if outcome.fault.package == package)
        print(f"{package:14}" + "".join(f"{counts[verdict]:12}" for verdict in VERDICTS))
    counts = Counter(outcome.verdict for outcome in outcomes)
    real = len(outcomes) - counts[EQUIVALENT]
    share = counts[KILLED] / max(real, 1)
    print(
        f"\n{counts[KILLED]} of {real} killed ({share:.1%}; at least {floor:.0%} must be), "
        f"{counts[SURVIVED]} survived, {counts[EQUIVALENT]} equivalent, {counts[ERROR]} errors, "
        f"{seconds / 60:.1f} minutes"
    )
    return 0 if share >= floor and not counts[ERROR] else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m mutants", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    fresh = commands.add_parser("drawn", help="faults drawn at random")
    fresh.add_argument("--number", type=int, default=200)
    fresh.add_argument("--seed", type=int, default=datetime.date.today().toordinal(), help="by default that of the day")
    old = commands.add_parser("listed", help="the faults of mutants/*.toml")
    old.add_argument("names", nargs="*", help="ids, files or packages of the library; none: all")
    for command in (fresh, old):
        command.add_argument("--list", action="store_true", help="print the faults and run nothing")
        command.add_argument("--processes", type=int, default=2, help="faults tried at the same time")
        command.add_argument("--limit", type=float, default=180.0, help="seconds after which tests count as failed")
    commands.add_parser("record", help="which tests run which lines: minutes, once for many hunts")
    commands.add_parser("repoint", help="write into the lists where texts and tests that moved stand now")
    options = parser.parse_args(arguments)
    os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    if options.command == "record":
        return covering.record()
    if options.command == "repoint":
        print(f"{faults.repoint(faults.read(), Places())} rows follow their texts")
        return 0
    if options.command == "drawn":
        print(f"seed {options.seed}")
        chosen, floor = drawn(options.number, options.seed), DRAWN
    else:
        chosen, floor = listed(options.names), LISTED
    if options.list:
        for fault in chosen:
            print(f"{fault.id}\t{fault.file}\t{' '.join(fault.tests)}")
        return 0
    _FORKS.set_forkserver_preload(_PRELOAD)
    begin = time.perf_counter()
    return report(hunt(chosen, options.processes, options.limit), floor, time.perf_counter() - begin)
