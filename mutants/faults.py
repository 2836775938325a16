"""Faults: one change of one file of the package, with the tests that must notice it; and the lists of old ones.

A fault of a list is a text that stands once in a file. Files merge and texts move with them, so a text that no longer
stands in its file is looked for in the others, and a test that moved is looked for by its name.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "lmab"
TESTS = ROOT / "tests"
LISTS = Path(__file__).parent


@dataclass(frozen=True)
class Fault:
    """One change: `old`, which begins at character `begin` of `file`, becomes `new`."""

    id: str
    file: str  # within src/lmab
    begin: int
    old: str
    new: str
    tests: tuple[str, ...]  # files or single tests, within tests/

    @property
    def package(self) -> str:
        """The package or module of the library that it is in."""
        return package_of(self.file)

    def apply(self, text: str) -> str:
        """The text of the file with the fault in it."""
        end = self.begin + len(self.old)
        assert text[self.begin : end] == self.old, f"{self.id} does not fit {self.file}"
        return text[: self.begin] + self.new + text[end:]


@dataclass(frozen=True)
class Listed:
    """A row of a list: `old`, which stands once in `file`, becomes `new`."""

    id: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    home: str = ""  # the list that it stands in

    @property
    def package(self) -> str:
        return package_of(self.file)

    @property
    def names(self) -> set[str]:
        """By what it can be chosen."""
        return {self.id, self.file, self.package, self.home}


def package_of(file: str) -> str:
    """The package or module of the library that a file is in."""
    return file.split("/")[0].removesuffix(".py")


def read(folder: Path = LISTS) -> list[Listed]:
    """Every row of every list, in the order of the files; an id stands for one fault only."""
    tables = {path.stem: tomllib.loads(path.read_text()) for path in sorted(folder.glob("*.toml"))}
    rows = [(row, home) for home, table in tables.items() for row in table.get("mutant", ())]
    found = [Listed(row["id"], row["file"], row["old"], row["new"], tuple(row["tests"]), home) for row, home in rows]
    ids = [row.id for row in found]
    twice = sorted({one for one in ids if ids.count(one) > 1})
    if twice:
        raise SystemExit(f"ids must be unique, got twice: {', '.join(twice)}")
    return found


class Places:
    """Where texts and tests of the lists stand now."""

    def __init__(self, source: Path = SOURCE, tests: Path = TESTS) -> None:
        self._texts = {str(path.relative_to(source)): path.read_text() for path in sorted(source.rglob("*.py"))}
        self._tests = {path.name: path.read_text() for path in sorted(tests.glob("test_*.py"))}

    def fault(self, row: Listed) -> Fault | str:
        """The fault of a row, in the file that holds its text today; or why there is none."""
        if row.old == row.new:
            return "the fault changes nothing"
        if self._texts.get(row.file, "").count(row.old) == 1:
            return Fault(row.id, row.file, self._texts[row.file].index(row.old), row.old, row.new, self._follow(row))
        homes = [name for name, text in self._texts.items() if row.old in text]
        if len(homes) == 1 and self._texts[homes[0]].count(row.old) == 1:
            return self.fault(replace(row, file=homes[0]))
        times = self._texts.get(row.file, "").count(row.old)
        return f"its text stands {times} times in {row.file}, and in {len(homes)} files altogether"

    def _follow(self, row: Listed) -> tuple[str, ...]:
        """The tests of a row where they are today; the tests near its file where they cannot be found."""
        found = [self._test(test) for test in row.tests]
        kept = tuple(test for test in found if test is not None)
        return kept or near(row.file)

    def _test(self, test: str) -> str | None:
        file, _, name = test.partition("::")
        if not name:
            return file if file in self._tests else None
        wanted = re.compile(rf"^def {re.escape(name.split('[')[0])}\(", re.M)
        if wanted.search(self._tests.get(file, "")):
            return test
        homes = [home for home, text in self._tests.items() if wanted.search(text)]
        return f"{homes[0]}::{name}" if len(homes) == 1 else None


def resolve(rows: Sequence[Listed], places: Places) -> tuple[list[Fault], dict[str, str]]:
    """The faults that can be put into the package, and why the others cannot, by id."""
    found = {row.id: places.fault(row) for row in rows}
    faults = [fault for fault in found.values() if isinstance(fault, Fault)]
    return faults, {name: why for name, why in found.items() if isinstance(why, str)}


def near(file: str) -> tuple[str, ...]:
    """The test files of a module, as `make near` finds them."""
    if str(TESTS) not in sys.path:
        sys.path.insert(0, str(TESTS))
    import near as rule

    return tuple(rule.near(SOURCE / file))


def repoint(rows: Iterable[Listed], places: Places, folder: Path = LISTS) -> int:
    """Write the files where texts stand today into the lists; how many rows changed."""
    moved = {}
    for row in rows:
        fault = places.fault(row)
        if isinstance(fault, Fault) and (fault.file, fault.tests) != (row.file, row.tests):
            moved[row.id] = fault
    for path in folder.glob("*.toml"):
        blocks = re.split(r"(?=^\[\[mutant\]\]$)", path.read_text(), flags=re.M)
        path.write_text("".join(_repointed(block, moved) for block in blocks))
    return len(moved)


def _repointed(block: str, moved: dict[str, Fault]) -> str:
    name = re.search(r'^id = "(.*)"$', block, re.M)
    fault = moved.get(name[1]) if name else None
    if fault is None:
        return block
    tests = ", ".join(f'"{test}"' for test in fault.tests)
    block = re.sub(r'^file = ".*"$', f'file = "{fault.file}"', block, count=1, flags=re.M)
    return re.sub(r"^tests = \[.*?\]$", lambda _: f"tests = [{tests}]", block, count=1, flags=re.M | re.S)
