"""Parquet tables that are replaced as a whole and carry a note on what they hold."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

_NOTE = b"lmab.day"  # the key of the file's metadata


def read_note(path: Path) -> dict[str, Any] | None:
    """Return the note of a file; None if there is no file that can be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return dict(json.loads((pq.read_schema(path).metadata or {})[_NOTE]))
    except (OSError, KeyError, ValueError, pa.ArrowException):
        return None


def read_table(path: Path) -> Any:
    """Return the table of a file; None if there is no file that can be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowException):
        return None


def write_table(path: Path, table: Any, note: dict[str, Any]) -> None:
    """Write a table beside its place, then put it there: the file is whole, or the old one is there."""
    import pyarrow.parquet as pq

    temporary = path.with_suffix(".tmp")
    temporary.touch(0o600)
    pq.write_table(table.replace_schema_metadata({_NOTE: json.dumps(note)}), temporary)
    sync(temporary)
    temporary.replace(path)


def stacked(first: Any, second: Any) -> Any:
    """Return the rows of two tables; a column of two types is text, and one that a table lacks has no values there."""
    import pyarrow as pa

    both = [first.replace_schema_metadata(), second.replace_schema_metadata()]
    for name in {*first.column_names} & {*second.column_names}:
        if first[name].type != second[name].type:
            places = [table.schema.get_field_index(name) for table in both]
            both = [
                table.set_column(place, name, table[name].cast(pa.string()))
                for table, place in zip(both, places, strict=True)
            ]
    return pa.concat_tables(both, promote_options="default")


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
