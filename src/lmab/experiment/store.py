"""The store of rows: rows are appended one line at a time, so that a killed run loses only unfinished trials."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import platform
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InvalidFile
from .setting import SEED, Measurement, Trial

DONE = "done"


@dataclass(frozen=True)
class Row:
    """One trial and what it found; flat, so that any table reader can have it."""

    id: str
    kind: str
    n_types: int
    n_arms: int
    horizon: int
    n_sessions: int
    separation: float
    instance: int
    method: str
    seed: int
    status: str  # "done", or what went wrong
    value: float | None
    value_qmdp: float | None
    stderr: float | None
    lower: float | None
    upper: float | None
    distance: float | None
    sessions_used: int | None
    seconds_learning: float | None
    seconds_planning: float | None
    note: str
    lmab: str  # versions
    numpy: str
    python: str
    finished: str  # when, UTC

    @property
    def size(self) -> str:
        """Arms and steps, where a study varies both."""
        return f"A = {self.n_arms}, H = {self.horizon}"

    @property
    def done(self) -> bool:
        return self.status == DONE


def row_of(trial: Trial, found: Measurement | None, status: str, finished: str) -> Row:
    """The row of a trial; `found` is None where it failed."""
    setting = asdict(trial.setting)
    blank = {field.name: None for field in fields(Measurement)} | {"note": ""}
    return Row(
        id=trial.id,
        instance=trial.instance,
        method=trial.method.name,
        seed=SEED,
        status=status,
        **setting,
        **(blank if found is None else asdict(found)),
        lmab=_version(),
        numpy=np.__version__,
        python=platform.python_version(),
        finished=finished,
    )


class Store:
    """The rows of a folder, in `rows.jsonl`: one JSON object per line, in the order in which trials finished.

    A `rows.csv.gz` of an earlier run in the same folder counts too, so that a study can be extended from a table. A row
    is written by a single append and flushed to the disk. A line cut short by a crash is ignored, and the next row
    starts on a line of its own. Of two rows with the same id the later one counts.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.path = self.folder / "rows.jsonl"

    def append(self, row: Row) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        line = json.dumps(asdict(row), allow_nan=False) + "\n"
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            if _cut_short(descriptor):
                line = "\n" + line
            os.write(descriptor, line.encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rows(self) -> list[Row]:
        """All rows, the latest of each id."""
        table = self.folder / "rows.csv.gz"
        found = {row.id: row for row in read_table(table)} if table.exists() else {}
        if not self.path.exists():
            return list(found.values())
        for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            row = _parse(line)
            if row is not None:
                found[row.id] = row
        return list(found.values())

    def finished(self) -> set[str]:
        """Ids that need not be run again. A method that changed has a higher revision, and so other ids."""
        return {row.id for row in self.rows() if row.done}


def _cut_short(descriptor: int) -> bool:
    """Whether the file ends in the middle of a line."""
    size = os.fstat(descriptor).st_size
    return size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"


def _parse(line: str) -> Row | None:
    try:
        return Row(**json.loads(line))
    except (ValueError, TypeError):
        return None


def write_table(rows: Iterable[Row], path: str | os.PathLike[str]) -> None:
    """Rows as compressed CSV, the same bytes for the same rows."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(Row)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in sorted(rows, key=lambda row: row.id))
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))


def read_table(path: str | os.PathLike[str]) -> list[Row]:
    """Rows written by `write_table`."""
    try:
        text = gzip.decompress(Path(path).read_bytes()).decode()
        return [_from_text(record) for record in csv.DictReader(io.StringIO(text))]
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise InvalidFile(f"{os.fspath(path)}: not a table of rows ({error})") from None


def _from_text(record: dict[str, str]) -> Row:
    """A row from the text of its cells; an empty cell is None except where text is expected."""
    cells: dict[str, Any] = {}
    for field in fields(Row):
        text, kind = record[field.name], str(field.type)
        if kind.startswith("str"):
            cells[field.name] = text
        else:
            cells[field.name] = None if text == "" else (int(text) if kind.startswith("int") else float(text))
    return Row(**cells)


def _version() -> str:
    from importlib.metadata import version

    return version("lmab")
