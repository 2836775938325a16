"""Faults: each is one change of one file of the package, with the tests that must notice it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "lmab"
TESTS = ROOT / "tests"
EQUIVALENT = Path(__file__).parent / "equivalent.toml"


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
        """Return the package or module of the library that contains the fault."""
        return self.file.split("/")[0].removesuffix(".py")

    def apply(self, text: str) -> str:
        """The text of the file with the fault in it."""
        end = self.begin + len(self.old)
        assert text[self.begin : end] == self.old, f"{self.id} does not fit {self.file}"
        return text[: self.begin] + self.new + text[end:]


def near(file: str) -> tuple[str, ...]:
    """The test files of a module, as `make near` finds them."""
    if str(TESTS) not in sys.path:
        sys.path.insert(0, str(TESTS))
    import near as rule

    return tuple(rule.near(SOURCE / file))
