"""Put faults one at a time into a copy of the package and see whether tests fail: `python -m mutants --help`.

A fault is killed if a test fails or does not end, and survives if its tests pass. A fault that survives and is listed
in `equivalent.toml`, with the reason why no test can notice it, counts as equivalent. The working tree is only read.
"""

from __future__ import annotations

import argparse
import datetime
import multiprocessing
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from . import covering, faults
from .faults import ROOT, SOURCE, Fault

LEAST_KILLED = 0.85  # share of the faults that must be killed
KILLED, SURVIVED, EQUIVALENT, ERROR = "killed", "survived", "equivalent", "error"
VERDICTS = (KILLED, SURVIVED, EQUIVALENT, ERROR)
_PYTEST_FAILED = (1, 2)  # tests failed; a test module could not even be imported
_NOTHING_RAN = 5
_FORKS = multiprocessing.get_context("forkserver")
_PRELOAD = [
    *("beartype.door", "hypothesis.stateful", "hypothesis.extra.numpy", "jaxtyping", "numba", "pytest"),
    *("scipy.optimize", "scipy.sparse.linalg", "scipy.special", "scipy.stats", "pandas", "pyarrow.parquet"),
    *("typer.testing", "rich.console", "starlette.applications", "httpx", "msgspec", "uvicorn"),
]
_KERNELS = "_kernel/compiled/"
KEPT = ROOT / "build" / "mutants"  # the outcomes of each seed
FIRST = 4  # test files that a fault meets before all the others
LONG = 10.0  # seconds of a test function (tests/times.tsv), from which on it runs only where it is named
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
    """Run tests of the working tree on a copy of the package: pytest's exit status (negative: out of time), its words.

    In a process forked from one that has imported NumPy, pytest and the like, but nothing of the package. The limit is
    of processor time, because a busy machine must not kill; tests that wait without end have ten times as long.
    """
    tests = list(tests)
    if not tests:
        return _NOTHING_RAN, "it has no tests"
    with tempfile.NamedTemporaryFile("r") as words:
        process = _FORKS.Process(target=_run, args=(str(copy), tests, words.name, limit))
        process.start()
        process.join(10 * limit)
        if process.is_alive():
            process.kill()
            process.join()
        return process.exitcode or 0, words.read()


class Chosen:
    """A plugin that keeps the wanted tests of the files, in the order in which they are wanted."""

    def __init__(self, tests: Iterable[str], seconds: Mapping[str, float] | None = None) -> None:
        self._place = {test: place for place, test in reversed(list(enumerate(tests)))}
        self._seconds = seconds or {}

    def files(self) -> list[str]:
        """The files of the tests, in order."""
        return list(dict.fromkeys(test.split("::")[0] for test in sorted(self._place, key=self._place.__getitem__)))

    def place(self, name: str) -> int | None:
        """Where a test stands: by itself, by its function, or, where it is not long, by its file."""
        function = name.partition("[")[0]
        names = [name, function, name.partition("::")[0]]
        if self._seconds.get(function.rpartition("::")[2], 0.0) >= LONG:
            names.pop()
        return min((self._place[one] for one in names if one in self._place), default=None)

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        places = {item: self.place(item.nodeid.removeprefix("tests/")) for item in items}
        kept = {item: place for item, place in places.items() if place is not None}
        items[:] = sorted(kept, key=kept.__getitem__)


def _run(copy: str, tests: list[str], words: str, limit: float) -> None:
    """In the forked process: pytest, with the copy of the package before any other."""
    import pytest

    resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 1, int(limit) + 2))
    output = os.open(words, os.O_WRONLY)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(ROOT)
    sys.path.insert(0, copy)
    os.environ["PYTHONPATH"] = copy  # for programs that tests start
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # for those programs: a file with a fault may have the time of the old
    sys.path.insert(0, str(ROOT / "tests"))
    import times

    chosen = Chosen(tests, times.read())
    status = pytest.main([*_OPTIONS, *(str(ROOT / "tests" / file) for file in chosen.files())], plugins=[chosen])
    sys.stdout.flush()
    os._exit(int(status))


def attempt(fault: Fault, copy: Path, limit: float) -> Outcome:
    """Put the fault into the copy, run its tests, take it out again; most faults fall to the first few files."""
    path, begin = copy / "lmab" / fault.file, time.perf_counter()
    original, times = path.read_text(), path.stat()
    path.write_text(fault.apply(original))
    try:
        with _compiled_anew(copy, fault.file):
            for tests in rounds(fault.tests):
                status, text = run_tests(copy, tests, limit)
                if status:
                    break
    finally:
        path.write_text(original)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # compiled files next to it stay valid
    return _outcome(fault, status, text, time.perf_counter() - begin, limit)


def rounds(tests: Sequence[str]) -> list[tuple[str, ...]]:
    """The tests of the first few files, and then those of the others: to import a test file takes time."""
    files = list(dict.fromkeys(test.split("::")[0] for test in tests))
    first = tuple(test for test in tests if test.split("::")[0] in files[:FIRST])
    rest = tuple(test for test in tests if test.split("::")[0] not in files[:FIRST])
    return [first, rest] if rest else [first]


def _outcome(fault: Fault, status: int, text: str, seconds: float, limit: float) -> Outcome:
    if status == 0:
        return Outcome(fault, SURVIVED, seconds, f"all of its {len(fault.tests)} tests passed")
    if status in (-signal.SIGXCPU, -signal.SIGKILL):
        return Outcome(fault, KILLED, seconds, f"no end within {limit:g} s")
    if status < 0:
        return Outcome(fault, KILLED, seconds, f"the process ended by signal {-status}")
    if status in _PYTEST_FAILED:
        failed = [line for line in text.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return Outcome(fault, KILLED, seconds, failed[0] if failed else "pytest failed")
    return Outcome(fault, ERROR, seconds, f"pytest ended with status {status}: {text.strip()[-300:]}")


@contextmanager
def _compiled_anew(copy: Path, file: str) -> Iterator[None]:
    """Without Numba's files while a kernel is changed: a kernel that calls it has it compiled in."""
    if not file.startswith(_KERNELS):
        yield
        return
    folder = copy / "lmab" / _KERNELS / "__pycache__"
    aside = folder.with_name("aside")
    folder.rename(aside)
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        aside.rename(folder)


def failing(tests: Iterable[str], copy: Path, processes: int) -> dict[str, str]:
    """The tests that fail on the package as it is, with pytest's words: all at once, and where one fails, by files."""
    by_file: dict[str, set[str]] = defaultdict(set)
    for test in tests:
        by_file[test.split("::")[0]].add(test)
    if not by_file or run_tests(copy, sorted(set().union(*by_file.values())), 600)[0] == 0:
        return {}
    wanted = [[name] if name in tests else sorted(tests) for name, tests in sorted(by_file.items())]
    with ThreadPoolExecutor(processes) as pool:
        results = zip(wanted, pool.map(lambda tests: run_tests(copy, tests, 600), wanted), strict=True)
        return {test: text[-2000:] for tests, (status, text) in results if status for test in tests}


def hunt(
    chosen: Sequence[Fault], processes: int, limit: float, *, minutes: float = float("inf"), kept: Path | None = None
) -> list[Outcome]:
    """Try all faults, several at a time, each process in a copy of its own; after so many minutes no further one.

    Afterwards every test that killed runs on the package as it is. Where it fails there too, the fault is tried again
    without it. Each outcome is written into the file `kept` at once, so that a hunt that is cut off is not lost.
    """
    end = time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(processes):
            copies.put(Path(shutil.copytree(ROOT / "src", Path(folder) / str(number))))

        def one(fault: Fault) -> Outcome | None:
            if time.monotonic() > end:
                return None
            copy = copies.get()
            try:
                return judged(attempt(fault, copy, limit), equivalents())
            finally:
                copies.put(copy)

        def tried(some: Sequence[Fault]) -> list[Outcome]:
            outcomes: list[Outcome] = []
            with ThreadPoolExecutor(processes) as pool:
                for job in as_completed([pool.submit(one, fault) for fault in some]):
                    outcome = job.result()
                    if outcome is not None:
                        outcomes.append(outcome)
                        _say(outcome, len(outcomes), len(some))
                        _keep(outcome, kept)
            return outcomes

        outcomes = tried(chosen)
        end = float("inf")
        if len(outcomes) < len(chosen):
            print(f"{len(outcomes)} of {len(chosen)} faults were tried in {minutes:g} minutes")
        broken = failing({killer(o) for o in outcomes} - {""}, Path(folder) / "0", processes)
        for test in broken:
            print(f"fails without any fault: {test}")
        again = [replace(o.fault, tests=without(o.fault.tests, broken)) for o in outcomes if killer(o) in broken]
        return [o for o in outcomes if killer(o) not in broken] + (tried(again) if again else [])


def killer(outcome: Outcome) -> str:
    """The test that failed first, as tests are named; nothing where none did."""
    found = re.match(r"(?:FAILED|ERROR) tests/(\S+?\.py(?:::.*?)?)(?: - |$)", outcome.why)
    return found[1] if outcome.verdict == KILLED and found else ""


def without(tests: Iterable[str], broken: Iterable[str]) -> tuple[str, ...]:
    """The tests but for those in the files of the broken ones."""
    files = {test.split("::")[0] for test in broken}
    return tuple(test for test in tests if test.split("::")[0] not in files)


def equivalents(path: Path = faults.EQUIVALENT) -> set[tuple[str, str]]:
    """Return the changes of lines that no test can notice."""
    rows = tomllib.loads(path.read_text()).get("equivalent", [])
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
    if outcome.verdict in (SURVIVED, ERROR):
        print(_changed(outcome.fault), flush=True)


def _keep(outcome: Outcome, kept: Path | None) -> None:
    """Add a line to the file of outcomes."""
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        why = outcome.why.splitlines()[0] if outcome.why else ""
        with kept.open("a") as file:
            file.write(f"{outcome.verdict}\t{outcome.fault.id}\t{outcome.seconds:.0f}\t{why}\n")


def _changed(fault: Fault) -> str:
    marked = [("-", fault.old), ("+", fault.new)]
    return "\n".join(f"  {sign} {line}" for sign, text in marked for line in text.splitlines())


def drawn(number: int, seed: int) -> list[Fault]:
    """So many fresh faults, each with the tests that cover it."""
    from . import drawing

    recorded = covering.Records() if (covering.FOLDER / "times.xml").is_file() else None
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
            print(_changed(outcome.fault))
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
    fresh.add_argument("--minutes", type=float, default=float("inf"), help="after which no further one is tried")
    fresh.add_argument("--list", action="store_true", help="print the faults and run nothing")
    fresh.add_argument("--processes", type=int, default=2, help="faults tried at the same time")
    fresh.add_argument("--limit", type=float, default=90.0, help="seconds of processor after which tests failed")
    run = commands.add_parser("record", help="which tests run which lines: minutes, once for many hunts")
    run.add_argument("--quick", action="store_true", help="of the tests that take less than a second alone")
    run.add_argument("--more", nargs="+", help="test files that were written since the record, beside it")
    options = parser.parse_args(arguments)
    os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    if options.command == "record":
        if options.more:
            number = len(list(covering.FOLDER.glob(covering.MORE)))
            return covering.record(covering.FOLDER / covering.MORE.replace("*", str(number)), tuple(options.more))
        return covering.record(tests=("--quick",) if options.quick else ())
    print(f"seed {options.seed}")
    chosen = drawn(options.number, options.seed)
    if options.list:
        for fault in chosen:
            print(f"{fault.id}\t{fault.file}\t{' '.join(fault.tests)}")
        return 0
    _FORKS.set_forkserver_preload(_PRELOAD)
    begin, kept = time.perf_counter(), KEPT / f"{options.seed}.tsv"
    kept.unlink(missing_ok=True)
    outcomes = hunt(chosen, options.processes, options.limit, minutes=options.minutes, kept=kept)
    return report(outcomes, LEAST_KILLED, time.perf_counter() - begin)
