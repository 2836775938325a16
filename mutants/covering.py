"""Which tests run a line of the package: recorded once by coverage.py, with the name of the test as its context.

The record keeps the sources as they were, so that it serves later states too: lines that stayed keep their tests, and
a line that is new has those of the line before it. Without a record, and for the kernels that Numba compiles, which
coverage does not see, the answer is that of `make near`.
"""

from __future__ import annotations

import difflib
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as xml
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from .faults import ROOT, SOURCE, near

FOLDER = ROOT / "build" / "contexts"
SECONDS = 60.0  # of the tests that one fault is run against, the shortest first


def record(folder: Path = FOLDER, tests: tuple[str, ...] = ()) -> int:
    """Run the tests once with tracing; minutes."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(SOURCE, folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    options = ["-m", "not slow", "-q", "-n", "2", "--dist", "worksteal", f"--junitxml={folder / 'times.xml'}"]
    coverage = ["--cov=lmab", "--cov-context=test", "--cov-report="]
    command = [sys.executable, "-m", "pytest", *options, *coverage, *tests]
    environment = os.environ | {"COVERAGE_FILE": str(folder / "data")}
    return subprocess.run(command, cwd=ROOT, env=environment).returncode


@dataclass
class Record:
    """What was recorded: for every file the tests of its lines, and how long each test took."""

    folder: Path = FOLDER
    seconds: dict[str, float] = field(init=False)

    def __post_init__(self) -> None:
        from coverage import CoverageData

        self._data = CoverageData(str(self.folder / "data"))
        self._data.read()
        self._files = {_within(file): file for file in self._data.measured_files()}
        cases = xml.parse(self.folder / "times.xml").iter("testcase")
        self.seconds = {_id(case): float(case.get("time", 0)) for case in cases}
        self._known: dict[str, dict[int, list[str]]] = {}

    def tests(self, file: str, line: int) -> tuple[str, ...]:
        """The tests that ran this line of the present file, the shortest first, as far as the time goes."""
        contexts = self._contexts(file)
        then = self._then(file, line)
        names = {context.partition("|")[0].removeprefix("tests/") for context in contexts.get(then, ())}
        chosen, left = [], SECONDS
        for name in sorted(names & self.seconds.keys(), key=self.seconds.__getitem__):
            left -= self.seconds[name]
            if chosen and left < 0:
                break
            chosen.append(name)
        return tuple(chosen)

    def _contexts(self, file: str) -> dict[int, list[str]]:
        if file not in self._known:
            self._known[file] = self._data.contexts_by_lineno(self._files[file]) if file in self._files else {}
        return self._known[file]

    def _then(self, file: str, line: int) -> int:
        """The line of the recorded file that this line was, or that came before it."""
        return _matches(self.folder / "src" / file, SOURCE / file)[line - 1]


@cache
def _matches(old: Path, new: Path) -> list[int]:
    """For every line of the new file the number of its line in the old one; of the last known one where it is new."""
    before = old.read_text().splitlines() if old.is_file() else []
    after = new.read_text().splitlines()
    found = [0] * len(after)
    for block in difflib.SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks():
        for i in range(block.size):
            found[block.b + i] = block.a + i + 1
    for i in range(1, len(found)):
        found[i] = found[i] or found[i - 1]
    return found


def _within(file: str) -> str:
    return file.replace(os.sep, "/").rpartition("/lmab/")[2]


def _id(case: xml.Element) -> str:
    return f"{case.get('classname', '').removeprefix('tests.').replace('.', '/')}.py::{case.get('name')}"


def covering(file: str, line: int, recorded: Record | None) -> tuple[str, ...]:
    """The tests that a fault on this line is run against."""
    found = recorded.tests(file, line) if recorded is not None else ()
    return found or near(file)
