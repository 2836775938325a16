"""Log files: the files that a path names, their kinds and encodings, notes in our own Parquet files, and writing."""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from ..checks import check_writable
from ..errors import InvalidArgument, InvalidFile, LmabError, LmabWarning, first_line
from .columns import Columns, of_session
from .engine import NAN, Engine, is_engine_error, literal, quoted, temporary_engine, writable

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
_HEADER = 1 << 16  # bytes in which the header and a sample of rows are read
_DELIMITERS = (",", ";", "\t", "|")
_OPENERS = {".gz": gzip.open, ".bz2": bz2.open}
_NOTE = "lmab"  # key of our note in the metadata of a Parquet file
_KINDS = {
    ".parquet": "Parquet", ".pq": "Parquet", ".csv": "CSV", ".tsv": "CSV", ".jsonl": "JSON lines",
    ".ndjson": "JSON lines",
}  # fmt: skip
_ENDINGS = "must end in .parquet, .pq, .csv, .tsv, .jsonl or .ndjson (text also in .gz or .bz2)"
FULL = re.compile(r"(write|truncate|create).*(file|block)|No space|too large", re.IGNORECASE)  # errors of writing
_FIRST_LINE = {"CSV": 2, "JSON lines": 1}  # line of the first row in an editor


class Note(NamedTuple):
    """Content of the note in a Parquet file that this package wrote."""

    columns: dict[str, str]  # further columns, by role: step, propensity, and columns of sessions
    n_arms: int
    arm_labels: tuple[str | int, ...] | None


def listed(paths: Paths) -> list[Path]:
    """Return the files that one path or several name; a folder names the logs in it, in the order of their names."""
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
    """Return Parquet, CSV or JSON lines, by the suffix of the name; raise for another suffix."""
    kind = _kind(path)
    if kind is None:
        raise InvalidFile(f"{os.fspath(path)}: the name of a log {_ENDINGS}")
    return kind


def is_log(path: str | os.PathLike[str]) -> bool:
    """Return whether the name has the suffix of a log."""
    return _kind(path) is not None


def _kind(path: str | os.PathLike[str]) -> str | None:
    stem, suffix = os.path.splitext(os.fspath(path).lower())
    if suffix in _OPENERS:
        inner = _KINDS.get(os.path.splitext(stem)[1])
        return None if inner == "Parquet" else inner
    return _KINDS.get(suffix)


def is_csv(path: str | os.PathLike[str]) -> bool:
    """Return whether a log is written as CSV; raise if the suffix is neither .csv nor that of Parquet."""
    suffix = os.path.splitext(os.fspath(path))[1].lower()
    if suffix not in (".csv", ".parquet", ".pq"):
        raise InvalidFile(f"{os.fspath(path)}: a log that is written must end in .parquet, .pq or .csv")
    return suffix == ".csv"


def known_encoding(encoding: str) -> str:
    """Return the canonical name of an encoding; raise if Python does not know it."""
    try:
        return codecs.lookup(encoding).name
    except (LookupError, TypeError):
        raise InvalidArgument(
            f"encoding must be the name of a text encoding, such as 'utf-8' or 'latin-1', got {encoding!r}"
        ) from None


def opened(path: Path) -> BinaryIO:
    """Return the decompressed content of a text file."""
    opener: Any = _OPENERS.get(path.suffix.lower(), open)
    return cast(BinaryIO, opener(path, "rb"))


def visible(engine: Engine, path: Path, encoding: str) -> Path:
    """Return the name under which the engine reads a file, decoded if the engine does not know its encoding."""
    kind, suffix = kind_of(path), path.suffix.lower()
    path.stat()
    if kind == "Parquet" or (encoding == "utf-8" and suffix != ".bz2"):
        return engine.name_of(path)
    target = engine.folder / f"text{len(os.listdir(engine.folder))}"
    with opened(path) as source, target.open("wb") as decoded:
        decoder = codecs.getincrementaldecoder(encoding)()
        while block := source.read(1 << 20):
            decoded.write(decoder.decode(block).encode())
        decoded.write(decoder.decode(b"", final=True).encode())
    return target


def delimiter_of(path: Path, columns: Columns, encoding: str) -> str:
    """Return the separator with which the header has the wanted columns, or most columns."""
    return head(path, columns, encoding)[0]


def head(path: Path, columns: Columns, encoding: str) -> tuple[str, list[str], list[list[str]]]:
    """Return the separator of a CSV file, the names in its header, and rows among the first of the file."""
    with opened(path) as file:
        text = file.read(_HEADER).decode(encoding, errors="replace").lstrip("\ufeff\r\n")
    lines = text.splitlines(keepends=True)
    wanted = {name for name in columns.values() if name is not None}

    def merit(delimiter: str) -> tuple[int, int]:
        names = next(csv.reader(lines[:1], delimiter=delimiter), [])
        return len(wanted.intersection(names)), len(names)

    limit = csv.field_size_limit(_HEADER)
    try:
        best = max(_DELIMITERS, key=merit)  # the first of equals
        rows = list(csv.reader(lines, delimiter=best))
    except csv.Error:
        raise InvalidFile(f"{path}: cannot be read as CSV: its header cannot be parsed") from None
    finally:
        csv.field_size_limit(limit)
    return best, [name.strip("\r\n") for name in rows[0]] if rows else [], rows[1:-1] or rows[1:]


def json_names(path: Path, encoding: str) -> list[str]:
    """Return the names in the first objects of a file of JSON lines."""
    names: dict[str, None] = {}
    with opened(path) as file:
        for line in file.readlines(_HEADER):
            text = line.decode(encoding).removeprefix("\ufeff")
            if text.strip():
                row = json.loads(text)
                if not isinstance(row, dict):
                    raise ValueError(f"each line must hold one object, got {text.strip()[:40]}")
                names |= dict.fromkeys(row)
    return list(names)


class Places:
    """Names of rows in messages: rows of a frame or of Parquet, lines of a text file."""

    def __init__(self) -> None:
        self._starts: list[tuple[int, Path]] = []

    def add(self, first: int, path: Path) -> None:
        """Register the file that holds the rows from number `first` on."""
        self._starts.append((first, path))

    def __call__(self, row: int) -> str:
        if not self._starts:
            return f"row {row}"
        first, path = next(start for start in reversed(self._starts) if start[0] <= row)
        line = _FIRST_LINE.get(kind_of(path))
        text = f"row {row - first}" if line is None else f"line {row - first + line}"
        return text if len(self._starts) == 1 else f"{text} of {path.name}"


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raise every error of reading a file as one that names the file."""
    try:
        yield
    except FileNotFoundError:
        raise InvalidFile(f"{path}: no such file") from None
    except (LmabError, LmabWarning):
        raise
    except Exception as error:  # any file may come in, and its parser may raise any error
        if is_engine_error(error) and FULL.search(str(error)):
            raise OSError(described(str(error))) from None
        raise unreadable(path, error) from None


def unreadable(path: Path, error: Exception) -> InvalidFile:
    """Return the error about a file that cannot be read."""
    if path.stat().st_size == 0:
        return InvalidFile(f"{path}: empty: a log has the names of its columns and one row per step")
    text, remedy = described(str(error)), ""
    if kind_of(path) != "Parquet" and ("utf" in text.lower() or isinstance(error, UnicodeError)):
        remedy = ": if it is not in UTF-8, name its encoding, such as latin-1"
    return InvalidFile(f"{path}: cannot be read as {kind_of(path)}: {text}{remedy}")


def described(text: str) -> str:
    """Return the reason in a message of the engine, without names and advice of the engine."""
    line = re.search(r"CSV Error on Line: (\d+)", text)
    sizes = re.search(r"Expected Number of Columns: (\d+) Found: (\d+)", text)
    if sizes and line:
        return f"line {line[1]} has {sizes[2]} values, and the header names {sizes[1]} columns"
    if "nicode" in text or "utf-8" in text.lower():
        where = f" in line {line[1]}" if line else ""
        return f"invalid UTF-8{where}"
    if line and "quote" in text.lower():
        return f"line {line[1]} has a quote that is not closed"
    if "Maximum line size" in text:
        return "a line is longer than 2,097,152 bytes"
    if "GZIP" in text or "gzip" in text.lower():
        return "the compressed content is damaged or cut off"
    json_line = re.search(r"Malformed JSON.*?line (\d+)", text, re.DOTALL)
    if json_line:
        return f"line {json_line[1]} does not hold one JSON object"
    first = first_line(ValueError(re.sub(r"^(\w+ )*Error:\s*", "", text)))
    first = re.sub(r"""(in file |file )?["'][^"']*(file\d+[^"']*|text\d+)["']""", "the file", first)
    return first if not line else f"line {line[1]}: {first}"


def note_of(engine: Engine, path: Path, columns: Columns) -> Note | None:
    """Return our note in a file; None if another program wrote it or other columns are named."""
    if kind_of(path) != "Parquet" or columns.get("arm") != "arm":
        return None
    with reading(path):
        found = parquet_note(engine, visible(engine, path, "utf-8"), _NOTE)
    try:
        note = json.loads(found or "")
        more, n_arms, labels = dict(note["columns"]), note["n_arms"], note["arm_labels"]
    except (ValueError, TypeError, KeyError):
        return None
    valid = isinstance(n_arms, int) and all(role in ("step", "propensity", "time") or of_session(role) for role in more)
    if labels is not None:
        valid = valid and isinstance(labels, list) and len(labels) == n_arms
        valid = valid and all(isinstance(label, str | int) for label in labels)
    if not valid or not 0 < n_arms < 2**31:
        return None
    return Note(more, n_arms, None if labels is None else tuple(labels))


def parquet_note(engine: Engine, name: Path, key: str) -> str | None:
    """Return a value in the metadata of a Parquet file."""
    rows = engine.rows("SELECT value FROM parquet_kv_metadata(?) WHERE key = ?::BLOB", [str(name), key])
    return bytes(rows[0][0]).decode() if rows else None


def write(path: str | os.PathLike[str], data: Mapping[str, Any], note: Mapping[str, Any]) -> None:
    """Write columns as a file, which is replaced as a whole; a Parquet file also keeps the note."""
    options = "FORMAT csv, HEADER" if is_csv(path) else parquet_options(_NOTE, note)
    check_writable(path)
    with writable(path) as temporary, temporary_engine() as engine:
        write_columns(engine, dict(data), temporary, options)


def parquet_options(key: str, note: Mapping[str, Any]) -> str:
    """Return the options with which the engine writes Parquet with a note."""
    return f"FORMAT parquet, KV_METADATA {{{quoted(key)}: {literal(json.dumps(note))}}}"


def write_columns(engine: Engine, data: dict[str, Any], path: Path, options: str) -> None:
    """Write columns in their order; a file within the engine's folder is moved to its place."""
    engine.register("written", {f"c{place}": column for place, column in enumerate(data.values())})
    forms = {"f": f"nullif({{}}, {NAN})", "O": "{}::VARCHAR"}
    names = ", ".join(
        f"{forms.get(column.dtype.kind, '{}').format(f'c{place}')} AS {quoted(name)}"
        for place, (name, column) in enumerate(data.items())
    )
    made = engine.folder / "written"
    try:
        engine.run(f"COPY (SELECT {names} FROM written) TO {literal(str(made))} ({options})")
        move(made, path)
    except Exception as error:
        if not is_engine_error(error):
            raise
        raise InvalidFile(f"{path}: cannot write here: {described(str(error))}") from None


def move(made: Path, path: Path) -> None:
    """Move a file, also to another disk."""
    with made.open("rb") as source, path.open("wb") as target:
        while block := source.read(1 << 22):
            target.write(block)
    made.unlink()
