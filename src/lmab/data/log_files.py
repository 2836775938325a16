"""Log files, Parquet and CSV: the named columns are read in batches, and a written file is replaced as a whole.

A file is never in memory as a whole: one batch is, for a file of any size.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from ..checks import check_writable
from ..errors import InvalidData, InvalidFile, LmabError, first_line

Columns = Mapping[str, str | None]  # role (episode, action, reward, step, propensity) -> name of its column
BATCH = 1 << 16  # rows decoded at once
_CSV_BLOCK = 1 << 22  # bytes of CSV parsed at once
_METADATA = b"lmab"  # the key of our note in the schema of a Parquet file


class LogFile(NamedTuple):
    """An open log."""

    columns: Columns  # those asked for, and those that the note adds
    batches: Iterator[Any]  # pyarrow record batches of these columns
    note: dict[str, Any] | None  # {"columns", "n_arms", "arm_labels"} where the file is one of ours


@contextmanager
def opened(path: str | os.PathLike[str], columns: Columns) -> Iterator[LogFile]:
    """The log at `path`; an error of pyarrow, even half way through, becomes one that names the file."""
    kind = "CSV" if is_csv(path) else "Parquet"
    try:
        with (_csv if kind == "CSV" else _parquet)(path, columns) as file:
            yield file
    except FileNotFoundError:
        raise InvalidFile(f"{os.fspath(path)}: no such file") from None
    except LmabError:
        raise
    except Exception as error:  # any file may come in, and its parser may raise any error
        raise InvalidFile(f"{os.fspath(path)}: cannot be read as {kind}: {first_line(error)}") from None


def write(path: str | os.PathLike[str], data: Any, note: dict[str, Any]) -> None:
    """Write the pyarrow table `data`, atomically; a Parquet file also keeps the note."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    csv = is_csv(path)
    check_writable(path)
    temporary = f"{os.fspath(path)}.partial"
    try:
        if csv:
            pa.csv.write_csv(data, temporary)
        else:
            data = data.replace_schema_metadata({_METADATA: json.dumps(note).encode()})
            pa.parquet.write_table(data, temporary)
        os.replace(temporary, path)
    except OSError as error:
        raise InvalidFile(f"{os.fspath(path)}: cannot write here: {first_line(error)}") from None
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)


def is_csv(path: str | os.PathLike[str]) -> bool:
    """Whether the name ends in .csv; a name that ends in neither .csv nor a Parquet suffix raises."""
    suffix = os.path.splitext(os.fspath(path))[1].lower()
    if suffix not in (".csv", ".parquet", ".pq"):
        raise InvalidFile(f"{os.fspath(path)}: a log must end in .parquet, .pq or .csv")
    return suffix == ".csv"


def require_columns(found: list[str], columns: Columns) -> list[str]:
    """The names of the columns to read; where one is missing, the error lists the columns of the log."""
    names = [name for name in columns.values() if name is not None]
    missing = [name for name in names if name not in found]
    if missing:
        raise InvalidData(f"the log has no column {missing[0]!r}; its columns are {', '.join(map(repr, found))}")
    twice = [name for name in names if found.count(name) > 1]
    if twice:
        raise InvalidData(f"the log must have one column {twice[0]!r}, got {found.count(twice[0])}")
    return list(dict.fromkeys(names))


@contextmanager
def _parquet(path: str | os.PathLike[str], columns: Columns) -> Iterator[LogFile]:
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path, memory_map=True) as file:
        note = _note(file.schema_arrow.metadata, columns)
        columns = {**columns, **(note["columns"] if note else {})}
        names = require_columns(list(file.schema_arrow.names), columns)
        yield LogFile(columns, file.iter_batches(BATCH, columns=names), note)


@contextmanager
def _csv(path: str | os.PathLike[str], columns: Columns) -> Iterator[LogFile]:
    """Types are guessed from the first block, except for ids and arms (text) and measured columns (numbers)."""
    import pyarrow as pa
    import pyarrow.csv

    reading = pa.csv.ReadOptions(block_size=_CSV_BLOCK)
    parsing = pa.csv.ParseOptions(newlines_in_values=True)
    with pa.csv.open_csv(path, read_options=reading, parse_options=parsing) as reader:
        schema = reader.schema
    names = require_columns(schema.names, columns)
    types = {columns[role]: pa.string() for role in ("episode", "action")}
    for name in (columns["reward"], columns["propensity"]):
        if name is not None and pa.types.is_integer(schema.field(name).type):
            types[name] = pa.float64()  # later rows may have decimals
    converting = pa.csv.ConvertOptions(include_columns=names, column_types=types, strings_can_be_null=True)
    with pa.csv.open_csv(path, read_options=reading, parse_options=parsing, convert_options=converting) as reader:
        yield LogFile(columns, iter(reader), None)


def _note(metadata: Mapping[bytes, bytes] | None, columns: Columns) -> dict[str, Any] | None:
    """The note that `write` stored in the file; None where another program wrote it or other columns are asked for."""
    if not metadata or _METADATA not in metadata or columns["action"] != "action":
        return None
    try:
        note = json.loads(metadata[_METADATA])
        columns, n_arms, labels = dict(note["columns"]), note["n_arms"], note["arm_labels"]
    except (ValueError, TypeError, KeyError):
        return None
    valid = isinstance(n_arms, int) and set(columns) <= {"step", "propensity"}
    if labels is not None:
        valid = valid and isinstance(labels, list) and len(labels) == n_arms
        valid = valid and all(isinstance(label, str | int) for label in labels)
    return note if valid and 0 < n_arms < 2**31 else None
