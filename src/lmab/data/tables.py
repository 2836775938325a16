"""Parquet tables that are replaced as a whole and carry a note on their content."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .engine import is_engine_error, literal, temporary_engine
from .log_files import parquet_note, parquet_options, write_columns

_NOTE = "lmab.day"  # key of the note in the metadata of a file
Table = dict[str, list[Any]]  # values by column; None is a missing value


def read_note(path: Path) -> dict[str, Any] | None:
    """Return the note of a file; None if there is no file that can be read."""
    found = _read(path, notes=True)
    try:
        return None if found is None else dict(json.loads(found))
    except (TypeError, ValueError):
        return None


def read_table(path: Path) -> Table | None:
    """Return the columns of a file; None if there is no file that can be read."""
    found: Table | None = _read(path, notes=False)
    return found


def _read(path: Path, *, notes: bool) -> Any:
    """Return the note or the columns of a file; None if it cannot be read."""
    if not path.is_file():
        return None
    try:
        with temporary_engine([path]) as engine:
            name = engine.name_of(path)
            if notes:
                return parquet_note(engine, name, _NOTE)
            found = engine.run(f"SELECT * FROM read_parquet({literal(str(name))})")
            names = [column[0] for column in found.description]
            rows = found.fetchall()
            return {column: [row[place] for row in rows] for place, column in enumerate(names)}
    except Exception as error:
        if not (is_engine_error(error) or isinstance(error, OSError)):
            raise
        return None


def write_table(path: Path, table: Mapping[str, list[Any]], kinds: Mapping[str, str], note: dict[str, Any]) -> None:
    """Write a table beside its place, then put it there: the file is whole, or the old one is there.

    Args:
        path: the file.
        table: values by column.
        kinds: the type of each column: "int", "float" or "text".
        note: the note that the file carries.
    """
    temporary = path.with_suffix(".tmp")
    temporary.touch(0o600)
    with temporary_engine() as engine:
        columns = {name: _array(values, kinds[name]) for name, values in table.items()}
        write_columns(engine, columns, temporary, parquet_options(_NOTE, note))
    sync(temporary)
    temporary.replace(path)


def _array(values: list[Any], kind: str) -> Any:
    """Return an array of one type."""
    if kind == "text":
        return np.array([None if value is None else str(value) for value in values], object)
    if kind == "float":
        return np.array([np.nan if value is None else value for value in values], np.float64)
    missing = [value is None for value in values]
    return (
        np.ma.masked_array([value or 0 for value in values], missing, np.int64)
        if any(missing)
        else np.array(values, np.int64)
    )


def stacked(first: Table, second: Table, kinds: dict[str, str]) -> Table:
    """Return the rows of two tables; a column that a table lacks has no values there.

    Args:
        first: a table with columns of `kinds`.
        second: another table; its text makes a column text, and its further columns get kinds.
        kinds: the type of each column, which is changed in place.
    """
    sizes = [len(next(iter(table.values()), [])) for table in (first, second)]
    found: Table = {}
    for name in dict.fromkeys((*first, *second)):
        values = [value for value in second.get(name, []) if value is not None]
        own = "text" if any(isinstance(value, str) for value in values) else "float"
        if name not in kinds or (own == "text" and values):
            kinds[name] = own
        parts = [table.get(name, [None] * size) for table, size in zip((first, second), sizes, strict=True)]
        found[name] = [*parts[0], *parts[1]]
    return found


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
