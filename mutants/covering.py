"""Which tests run a line of the package: recorded once by coverage.py, with the name of the test as its context.

The record keeps the sources as they were, so that it serves later states too: lines that stayed keep their tests, and
a line that is new has those of the line before it. A line that runs on import alone has the tests of what makes use of
it: of the function whose default it is, or of the lines that name the constant; the tests that name it themselves; and
those near its file.
Without a record, and for the kernels that Numba compiles, which coverage does not see, the answer is that of
`make near`.
"""

from __future__ import annotations

import ast
import difflib
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as xml
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from .faults import ROOT, SOURCE, TESTS, near

FOLDER = ROOT / "build" / "contexts"
MORE = "more-*"  # folders below it, with records of tests that were written since
COMPILED = "_kernel/compiled/"  # what Numba compiles, of which coverage sees at most the doors
SECONDS = 60.0  # of the tests that one fault is run against, as they took in the record


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
        took = {_id(case): float(case.get("time", 0)) for case in cases if len(case) == 0}
        self.seconds = _as_if_quiet(took)
        self._known: dict[str, dict[int, list[str]]] = {}

    def tests(self, file: str, line: int) -> set[str]:
        """The tests of this line of the present file."""
        return {name for one, number in self._where(file, line) for name in self._ran(one, number)}

    def _where(self, file: str, line: int) -> list[tuple[str, int]]:
        """The lines whose tests count: the line itself, or what makes use of a line that runs on import alone."""
        scope, used = _scope(SOURCE / file, line)
        if scope is not None:
            return [(file, number) for number in scope]
        wanted = re.compile(rf"\b{re.escape(used)}\b") if used else None
        homes = [file] if used is None or used.startswith("_") else sorted(self._files)
        return [
            (home, number)
            for home in homes
            if wanted is not None and (SOURCE / home).is_file()
            for number, text in enumerate((SOURCE / home).read_text().splitlines(), 1)
            if wanted.search(text) and _scope(SOURCE / home, number)[0] is not None
        ]

    def _ran(self, file: str, line: int) -> set[str]:
        """The tests that ran a line and passed; all cases of a test whose fixture ran it, since they may share that."""
        contexts = [one.removeprefix("tests/").partition("|") for one in self._at(file, line)]
        functions = {name.partition("[")[0] for name, _, phase in contexts if phase == "setup"}
        cases = {name for name in self.seconds if functions and name.partition("[")[0] in functions}
        return {name for name, _, _ in contexts} & self.seconds.keys() | cases

    def _at(self, file: str, line: int) -> list[str]:
        return self._contexts(file).get(self._then(file, line), [])

    def _contexts(self, file: str) -> dict[int, list[str]]:
        if file not in self._known:
            self._known[file] = self._data.contexts_by_lineno(self._files[file]) if file in self._files else {}
        return self._known[file]

    def _then(self, file: str, line: int) -> int:
        """The line of the recorded file that this line was, or that came before it."""
        return _matches(self.folder / "src" / file, SOURCE / file)[line - 1]


class Records:
    """A record, and those of tests that were written since."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._parts = [Record(folder), *(Record(more) for more in sorted(folder.glob(MORE)))]
        self.seconds = {name: seconds for part in self._parts for name, seconds in part.seconds.items()}

    def tests(self, file: str, line: int) -> tuple[str, ...]:
        """The tests of this line of the present file, the shortest of them, as far as the time goes.

        Those of the files of `make near` run first, then those of the files with most of them.
        """
        names = set().union(*(part.tests(file, line) for part in self._parts))
        scope, used = _scope(SOURCE / file, line)
        close = near(file) if names or used is not None else ()
        if scope is None and used is not None:
            telling = _tests_that_name(used, TESTS)
            names |= {name for name in self.seconds if name.partition("[")[0] in telling}
            names |= {name for name in self.seconds if name.partition("::")[0] in close}
        files = Counter(name.split("::")[0] for name in names)

        def place(name: str) -> tuple[bool, int, str, float]:
            home = name.split("::")[0]
            return home not in close, -files[home], home, self.seconds[name]

        chosen, left = [], SECONDS
        for name in sorted(names, key=lambda name: (self.seconds[name], name)):
            left -= self.seconds[name]
            if chosen and left < 0:
                break
            chosen.append(name)
        return tuple(sorted(chosen, key=place))


@dataclass(frozen=True)
class _Stretch:
    """Lines of a file, and what tells their tests: lines that run with them, or a name that they bind on import."""

    first: int
    last: int
    lines: tuple[int, ...] | None
    name: str | None = None


@cache
def _stretches(path: Path) -> list[_Stretch]:
    """Those of a file, inner ones last."""
    found: list[_Stretch] = []

    def visit(node: ast.AST, inside: bool) -> None:
        for child in ast.iter_child_nodes(node):
            first, last = getattr(child, "lineno", 0), getattr(child, "end_lineno", 0)
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                begin, head = child.body[0].lineno, min([first, *(one.lineno for one in child.decorator_list)])
                found.append(_Stretch(head, begin - 1, tuple(range(begin, last + 1))))
                visit(child, True)
            elif inside and isinstance(child, ast.stmt | ast.ExceptHandler):
                end = child.body[0].lineno - 1 if hasattr(child, "body") else last
                found.append(_Stretch(first, max(first, end), tuple(range(first, max(first, end) + 1))))
                visit(child, True)
            elif isinstance(child, ast.Assign | ast.AnnAssign):
                target = child.targets[0] if isinstance(child, ast.Assign) else child.target
                found.append(_Stretch(first, last, None, target.id if isinstance(target, ast.Name) else None))
            else:
                visit(child, inside)

    visit(ast.parse(path.read_text()), False)
    return found


@cache
def _scope(path: Path, line: int) -> tuple[tuple[int, ...] | None, str | None]:
    """The lines that run when this one counts; None and a name where the name tells."""
    fitting = [one for one in _stretches(path) if one.first <= line <= one.last]
    return (fitting[-1].lines, fitting[-1].name) if fitting else (None, None)


@cache
def _tests_that_name(constant: str, folder: Path) -> frozenset[str]:
    """The test functions whose own text has the name of a constant, each as `file.py::function`."""
    wanted = re.compile(rf"\b{re.escape(constant)}\b")
    texts = {path: path.read_text() for path in sorted(folder.glob("test_*.py"))}
    return frozenset(
        f"{path.name}::{node.name}"
        for path, text in texts.items()
        if wanted.search(text)
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef) and wanted.search(ast.get_source_segment(text, node) or "")
    )


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


def _as_if_quiet(took: dict[str, float]) -> dict[str, float]:
    """What tests would have taken on the quiet machine of tests/times.tsv: a busy one must not leave tests out."""
    if str(TESTS) not in sys.path:
        sys.path.insert(0, str(TESTS))
    import times

    quiet, sums = times.read(), Counter[str]()
    for name, seconds in took.items():
        sums[name.rpartition("::")[2].partition("[")[0]] += seconds  # type: ignore[assignment]
    both = quiet.keys() & sums.keys()
    busy = max(sum(sums[name] for name in both) / (sum(quiet[name] for name in both) or 1.0), 1.0) if both else 1.0
    return {name: seconds / busy for name, seconds in took.items()}


def covering(file: str, line: int, recorded: Records | None) -> tuple[str, ...]:
    """The tests that a fault on this line is run against."""
    found = () if recorded is None or file.startswith(COMPILED) else recorded.tests(file, line)
    return found or near(file)
