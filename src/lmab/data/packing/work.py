"""Work: what a run of packing has done so far, so that a run that was killed goes on where it was.

The folder of the work lies inside the folder of the packed log. Its state is replaced as a whole after each unit of
work, and what a unit writes counts only once the state says so.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ...errors import InvalidFile, first_line
from ..rows import Dictionaries, Way

WORK = ".packing"
_STATE = "state.json"


@dataclass
class State:
    """How far the work has come."""

    signature: str  # which files, read how
    way: Way = field(default_factory=Way)
    row: int = 0  # rows that are taken care of
    gathered: bool = False  # all rows are
    units: list[dict[str, Any]] = field(default_factory=list)  # of rows: sorted sessions, or buckets to be sorted
    sealed: list[dict[str, Any]] = field(default_factory=list)  # partitions that are written
    unused: list[float] = field(default_factory=list)  # values that no step is left with
    last: list[Any] = field(default_factory=list)  # id, step and file of the last row
    ties: int = 0  # rows with the same step as the row before
    known: Dictionaries = field(default_factory=Dictionaries)


@dataclass(frozen=True)
class Work:
    """The folder of the work."""

    target: Path

    @property
    def folder(self) -> Path:
        return self.target / WORK

    def begin(self, signature: str) -> State:
        """The state that an earlier run of the same work left, or a fresh one."""
        try:
            found = json.loads((self.folder / _STATE).read_text())
            if found["signature"] == signature:
                way, known = Way(**found.pop("way")), Dictionaries(**found.pop("known"))
                return State(**found, way=way, known=known)
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return self.restart(State(signature))

    def restart(self, state: State) -> State:
        """A fresh beginning with the same signature and way."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        fresh = State(state.signature, state.way)
        self.save(fresh)
        return fresh

    def save(self, state: State) -> None:
        replace_text(self.folder / _STATE, json.dumps(asdict(state)))

    def end(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def replace_text(path: Path, text: str) -> None:
    """Write a file as a whole: a reader sees the old file or the new one."""
    temporary = path.with_name(path.name + ".partial")
    with open(temporary, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """An error of the disk says what to do."""
    try:
        yield
    except OSError as error:
        raise InvalidFile(
            f"{folder}: cannot write here: {first_line(error)}; nothing half-written is ever read, and packing the "
            f"same log again goes on where it was"
        ) from None
