"""Text files, CSV and JSON lines, read in batches of typed columns."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from ..errors import InvalidArgument
from .naming import Columns, require_columns

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
    delimiter = _delimiter(path, columns, encoding)
    parsing = pa.csv.ParseOptions(newlines_in_values=True, delimiter=delimiter)
    points = (".", ",") if delimiter == ";" else (".",)  # where semicolons separate, commas may stand for points
    for point in points:
        guess = pa.csv.ConvertOptions(decimal_point=point)
        with pa.csv.open_csv(path, read_options=reading, parse_options=parsing, convert_options=guess) as reader:
            schema = reader.schema
        names = require_columns(schema.names, columns)
        if not pa.types.is_string(schema.field(columns["reward"]).type):
            break
    types = {columns[role]: pa.string() for role in ("session", "person", "arm") if columns.get(role)}
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


def _delimiter(path: Path, columns: Columns, encoding: str) -> str:
    """The separator under which the header has the wanted columns, or most columns."""
    with _opened(path) as file:
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
    with _opened(path) as file:
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

    measured = field.name in (columns["reward"], columns.get("propensity"))
    wide = measured and (pa.types.is_integer(field.type) or pa.types.is_null(field.type))
    return pa.field(field.name, pa.float64() if wide else field.type)


def _opened(path: Path) -> BinaryIO:
    opener: Any = _OPENERS.get(path.suffix.lower(), open)
    return cast(BinaryIO, opener(path, "rb"))
