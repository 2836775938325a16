"""Log files: which files a path stands for, their columns in batches, and writing, which replaces a file as a whole.

A file is never in memory as a whole: one batch is, for a file of any size.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from ..checks import check_writable
from ..errors import InvalidArgument, InvalidFile, LmabError, LmabWarning, first_line
from .columns import Columns, of_session, require_columns

CSV_BLOCK = 1 << 22  # bytes of text parsed at once
_HEADER = 1 << 16  # bytes in which the header is looked for
_DELIMITERS = (",", ";", "\t", "|")
_OPENERS = {".gz": gzip.open, ".bz2": bz2.open}


@contextmanager
def csv_batches(path: Path, columns: Columns, encoding: str) -> Iterator[Iterator[Any]]:
    """Types are guessed from the first block, except for ids and arms (text) and measured columns (numbers)."""
    import pyarrow as pa
    import pyarrow.csv

    reading = pa.csv.ReadOptions(block_size=CSV_BLOCK, encoding=known_encoding(encoding))
    delimiter = delimiter_of(path, columns, encoding)
    parsing = pa.csv.ParseOptions(newlines_in_values=True, delimiter=delimiter)
    points = (".", ",") if delimiter == ";" else (".",)  # where semicolons separate, commas may stand for points
    for point in points:
        guess = pa.csv.ConvertOptions(decimal_point=point)
        with pa.csv.open_csv(path, read_options=reading, parse_options=parsing, convert_options=guess) as reader:
            schema = reader.schema
        names = require_columns(schema.names, columns)
        if not pa.types.is_string(schema.field(columns["reward"]).type):
            break
    named = {role for role in columns if role in ("session", "arm") or of_session(role)}
    types = {columns[role]: pa.string() for role in named if columns[role]}
    for role in ("reward", "propensity"):
        name = columns.get(role)
        if name is not None and (
            pa.types.is_integer(schema.field(name).type) or pa.types.is_null(schema.field(name).type)
        ):
            types[name] = pa.float64()  # later rows may have decimals
    converting = pa.csv.ConvertOptions(
        include_columns=names, column_types=types, strings_can_be_null=True, decimal_point=point
    )
    with pa.csv.open_csv(path, read_options=reading, parse_options=parsing, convert_options=converting) as reader:
        yield iter(reader)


def known_encoding(encoding: str) -> str:
    """The name of an encoding that Python knows; another raises."""
    import codecs

    try:
        return codecs.lookup(encoding).name
    except (LookupError, TypeError):
        raise InvalidArgument(
            f"encoding must be the name of a text encoding, such as 'utf-8' or 'latin-1', got {encoding!r}"
        ) from None


def delimiter_of(path: Path, columns: Columns, encoding: str) -> str:
    """The separator under which the header has the wanted columns, or most columns."""
    with opened(path) as file:
        lines = file.read(_HEADER).decode(encoding, errors="replace").lstrip("\ufeff\r\n").splitlines()
    wanted = {name for name in columns.values() if name is not None}

    def merit(delimiter: str) -> tuple[int, int]:
        try:
            names = next(csv.reader(lines[:1], delimiter=delimiter), [])
        except csv.Error:
            names = []
        return len(wanted.intersection(names)), len(names)

    return max(_DELIMITERS, key=merit)  # the first of equals


@contextmanager
def json_batches(path: Path, columns: Columns, encoding: str) -> Iterator[Iterator[Any]]:
    """One JSON object a line; the types are those of the first block."""
    with opened(path) as file:
        yield _json_blocks(file, columns, known_encoding(encoding))


def _json_blocks(file: BinaryIO, columns: Columns, encoding: str) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.json

    schema = None
    while lines := file.readlines(CSV_BLOCK):
        block = b"".join(lines)
        if encoding != "utf-8":
            block = block.decode(encoding).encode()
        block = block.removeprefix(b"\xef\xbb\xbf")
        if not block.strip():
            continue
        how = pa.json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="infer" if schema is None else "ignore"
        )
        reading = pa.json.ReadOptions(use_threads=False, block_size=len(block) + 1)
        table = pa.json.read_json(io.BytesIO(block), parse_options=how, read_options=reading)
        if schema is None:
            names = require_columns(table.schema.names, columns)
            schema = pa.schema([_json_field(table.schema.field(name), columns) for name in names])
            table = table.select(names).cast(schema)
        yield from table.to_batches()


def _json_field(field: Any, columns: Columns) -> Any:
    """The type of a column in all blocks: integers of measured columns may have decimals in later blocks."""
    import pyarrow as pa

    if pa.types.is_null(field.type) and any(of_session(role) for role, name in columns.items() if name == field.name):
        return pa.field(field.name, pa.string())
    measured = field.name in (columns["reward"], columns.get("propensity"))
    wide = measured and (pa.types.is_integer(field.type) or pa.types.is_null(field.type))
    return pa.field(field.name, pa.float64() if wide else field.type)


def opened(path: Path) -> BinaryIO:
    opener: Any = _OPENERS.get(path.suffix.lower(), open)
    return cast(BinaryIO, opener(path, "rb"))


Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
BATCH = 1 << 17  # rows decoded at once
_METADATA = b"lmab"  # the key of our note in the schema of a Parquet file
_COMPRESSED = (".gz", ".bz2")
_KINDS = {
    ".parquet": "Parquet", ".pq": "Parquet", ".csv": "CSV", ".tsv": "CSV", ".jsonl": "JSON lines",
    ".ndjson": "JSON lines",
}  # fmt: skip
_ENDINGS = "must end in .parquet, .pq, .csv, .tsv, .jsonl or .ndjson (text also in .gz or .bz2)"
_FIRST_LINE = {"CSV": 2, "JSON lines": 1}  # The line of the first row in an editor.


class Note(NamedTuple):
    """What our own Parquet files say about themselves."""

    columns: dict[str, str]  # more columns, by role: step, propensity, and those that say something of sessions
    n_arms: int
    arm_labels: tuple[str | int, ...] | None


def listed(paths: Paths) -> list[Path]:
    """The files that one path or several stand for; a folder stands for the logs in it, in the order of their names."""
    if hasattr(paths, "columns"):
        raise InvalidArgument("path must be a file, a folder or several; a data frame is read by Sessions.from_frame")
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    found: list[Path] = []
    for path in map(Path, given):
        if path.is_dir():
            inside = sorted(file for file in path.rglob("*") if file.is_file() and _kind(file) and file.name[0] != ".")
            if not inside:
                raise InvalidFile(f"{path}: this folder holds no log: the name of a log {_ENDINGS}")
            found += inside
        elif _kind(path) is None and not path.exists():
            raise InvalidFile(f"{path}: no such file")
        else:
            kind_of(path)
            found.append(path)
    if not found:
        raise InvalidFile("paths must name at least one log, got none")
    return found


def kind_of(path: str | os.PathLike[str]) -> str:
    """Parquet, CSV or JSON lines, by the ending of the name; another ending raises."""
    kind = _kind(path)
    if kind is None:
        raise InvalidFile(f"{os.fspath(path)}: the name of a log {_ENDINGS}")
    return kind


def is_log(path: str | os.PathLike[str]) -> bool:
    """Whether the name ends as that of a log does."""
    return _kind(path) is not None


def _kind(path: str | os.PathLike[str]) -> str | None:
    stem, suffix = os.path.splitext(os.fspath(path).lower())
    if suffix in _COMPRESSED:
        inner = _KINDS.get(os.path.splitext(stem)[1])
        return None if inner == "Parquet" else inner
    return _KINDS.get(suffix)


def is_text(path: str | os.PathLike[str]) -> bool:
    """Whether the file is untyped (CSV, JSON lines): numbers must be parsed."""
    return kind_of(path) == "CSV"


def is_csv(path: str | os.PathLike[str]) -> bool:
    """Whether a log is written as CSV; a name that ends in neither .csv nor a Parquet suffix raises."""
    suffix = os.path.splitext(os.fspath(path))[1].lower()
    if suffix not in (".csv", ".parquet", ".pq"):
        raise InvalidFile(f"{os.fspath(path)}: a log that is written must end in .parquet, .pq or .csv")
    return suffix == ".csv"


class Places:
    """Where the rows of a log come from, for messages: rows of a frame or of Parquet, lines of a text file."""

    def __init__(self) -> None:
        self._starts: list[tuple[int, Path]] = []

    def add(self, first: int, path: Path) -> None:
        """The rows from number `first` on are those of `path`."""
        self._starts.append((first, path))

    def __call__(self, row: int) -> str:
        if not self._starts:
            return f"row {row}"
        first, path = next(start for start in reversed(self._starts) if start[0] <= row)
        line = _FIRST_LINE.get(kind_of(path))
        text = f"row {row - first}" if line is None else f"line {row - first + line}"
        return text if len(self._starts) == 1 else f"{text} of {path.name}"


def batches(files: Sequence[Path], columns: Columns, encoding: str, places: Places, *, skip: int = 0) -> Iterator[Any]:
    """The record batches of all files, one after the other; Parquet files that end before row `skip` are left out."""
    n_rows = 0
    for path in files:
        places.add(n_rows, path)
        if n_rows < skip and kind_of(path) == "Parquet" and n_rows + rows_of(path) <= skip:
            n_rows += rows_of(path)
            continue
        with reading(path), _OPEN[kind_of(path)](path, columns, encoding) as found:
            for batch in found:
                yield batch
                n_rows += batch.num_rows


def rows_of(path: Path) -> int:
    """The number of rows of a Parquet file."""
    import pyarrow.parquet

    with reading(path):
        return int(pyarrow.parquet.read_metadata(path).num_rows)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Any error while `path` is read becomes one that names the file."""
    try:
        yield
    except FileNotFoundError:
        raise InvalidFile(f"{path}: no such file") from None
    except (LmabError, LmabWarning):
        raise
    except Exception as error:  # any file may come in, and its parser may raise any error
        if path.stat().st_size == 0:
            raise InvalidFile(f"{path}: empty: a log has the names of its columns and one row per step") from None
        text = first_line(error)
        remedy = ""
        if kind_of(path) != "Parquet" and ("utf" in text.lower() or isinstance(error, UnicodeError)):
            remedy = ": if it is not in UTF-8, name its encoding, such as latin-1"
        raise InvalidFile(f"{path}: cannot be read as {kind_of(path)}: {text}{remedy}") from None


@contextmanager
def _parquet(path: Path, columns: Columns, encoding: str) -> Iterator[Iterator[Any]]:
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path, pre_buffer=False) as file:  # what is read ahead would stay until the end
        names = require_columns(list(file.schema_arrow.names), columns)
        yield file.iter_batches(BATCH, columns=names, use_threads=False)  # threads cost a third more than they give


_OPEN = {"Parquet": _parquet, "CSV": csv_batches, "JSON lines": json_batches}


def note_of(path: Path, columns: Columns) -> Note | None:
    """The note that `write` stored in the file; None where another program wrote it or other columns are asked for."""
    import pyarrow.parquet

    if kind_of(path) != "Parquet" or columns.get("arm") != "arm":
        return None
    with reading(path):
        metadata = pyarrow.parquet.read_schema(path).metadata or {}
    try:
        note = json.loads(metadata[_METADATA])
        more, n_arms, labels = dict(note["columns"]), note["n_arms"], note["arm_labels"]
    except (ValueError, TypeError, KeyError):
        return None
    valid = isinstance(n_arms, int) and all(role in ("step", "propensity") or of_session(role) for role in more)
    if labels is not None:
        valid = valid and isinstance(labels, list) and len(labels) == n_arms
        valid = valid and all(isinstance(label, str | int) for label in labels)
    if not valid or not 0 < n_arms < 2**31:
        return None
    return Note(more, n_arms, None if labels is None else tuple(labels))


def write(path: str | os.PathLike[str], data: Any, note: Mapping[str, Any]) -> None:
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
