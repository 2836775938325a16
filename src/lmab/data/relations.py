"""Relations: every input of a log (files, data frames, dictionaries) as one table of the engine with typed columns."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InvalidData, LmabError
from . import log_files
from .columns import Columns, require_columns, roles_of_sessions
from .engine import Engine, literal, quoted
from .log_files import Places

_EXACT = float(1 << 53)  # integers below it are exact as floats
_SAMPLE = 100  # rows of a CSV file whose values decide whether a column is read as numbers
_NULLS = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "N/A", "NA", "NULL",
    "NaN", "n/a", "nan", "null",
)  # fmt: skip
WHOLE = r"'\s*[+-]?[0-9]+\s*'"
_ISO = (
    r"'\s*[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]+)?)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)?)?\s*'"
)
_NAMES = {
    "VARCHAR": "string", "DOUBLE": "double", "FLOAT": "float", "BOOLEAN": "bool", "TINYINT": "int8",
    "SMALLINT": "int16", "INTEGER": "int32", "BIGINT": "int64", "BLOB": "binary",
}  # fmt: skip
_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
_JSON_KINDS = {
    "BIGINT": "int",
    "UBIGINT": "int",
    "HUGEINT": "int",
    "DOUBLE": "float",
    "BOOLEAN": "bool",
    "VARCHAR": "text",
}


@dataclass(frozen=True)
class Typed:
    """Kind of a column, and the expression of its values in the table `raw`."""

    name: str
    kind: str  # int, float, bool, text, time, null, or the engine's type of values that no column of a log has
    sql: str
    said: str  # type in messages
    untyped: bool = False  # text of a file without types, which may stand for numbers
    seconds: float = 1e-6  # per unit of a column of times


@dataclass(frozen=True)
class Relation:
    """The table `raw` of an engine, with the number of each row as `rn` and one typed column per role."""

    engine: Engine
    columns: dict[str, Typed]  # by role
    places: Places
    table: str | None = None  # the table of rows that were read from text files

    def first(self, role: str, condition: str, preferred: str = "true") -> tuple[int, Any]:
        """Return number and value of the first row with a condition on the value `x`, a preferred one if any."""
        sql = self.columns[role].sql
        where = f"WHERE {condition} ORDER BY coalesce({preferred}, false) DESC, rn LIMIT 1"
        row, value = self.engine.rows(f"SELECT rn, x FROM (SELECT rn, {sql} AS x FROM raw) {where}")[0]
        return row, value


def type_kind(name: str) -> str:
    """Return the kind of a type of the engine.

    Examples:
        >>> [type_kind(name) for name in ("UBIGINT", "DECIMAL(4,2)", "TIMESTAMP_NS", "ENUM('a')", "STRUCT(a INTEGER)")]
        ['int', 'float', 'time', 'text', 'struct']
    """
    if name.removeprefix("U") in _INTEGERS:
        return "int"
    if name in ("FLOAT", "DOUBLE") or name.startswith("DECIMAL"):
        return "float"
    if name == "BOOLEAN":
        return "bool"
    if name in ("VARCHAR", "BLOB", "UUID", "JSON") or name.startswith("ENUM"):
        return "text"
    if name.startswith(("TIMESTAMP", "DATE", "TIME")):
        return "time"
    if name == '"NULL"':
        return "null"
    return "list" if name.endswith("]") else re.split(r"[( ]", name)[0].lower()


def _value(sql: str, type_name: str, kind: str, clock: str) -> str:
    """Return the expression of a typed column in the form of its kind; the function `clock` makes times integers."""
    if kind == "float":
        return f"{sql}::DOUBLE"
    if kind == "bool":
        return f"{sql}::TINYINT"
    if kind == "text":
        return f"decode({sql})" if type_name == "BLOB" else f"{sql}::VARCHAR"
    if kind == "time":
        return f"{clock}({sql})"
    return sql


def of_files(engine: Engine, files: Sequence[Path], columns: Columns, encoding: str) -> Relation:
    """Return the relation of files, one after the other."""
    encoding, places = log_files.known_encoding(encoding), Places()
    kinds = {log_files.kind_of(path) for path in files}
    if kinds == {"Parquet"}:
        return _of_parquet(engine, files, columns, places)
    named = {role: name for role, name in columns.items() if name is not None}
    only_csv = kinds == {"CSV"}
    numeric = _numeric_roles(files, named, encoding) if only_csv else set()
    while True:
        try:
            _text_table(engine, files, named, encoding, places, numeric)
            break
        except _Reread:  # a column that began with numbers holds others as well
            numeric, places = set(), Places()
    if kinds == {"JSON lines"}:
        typed = {role: _of_json(engine, f"c{place}", role, named[role]) for place, role in enumerate(named)}
    else:
        commas = only_csv and any(log_files.delimiter_of(path, columns, encoding) == ";" for path in files)
        typed = {
            role: Typed(named[role], "float", f"c{place}", "double", True)
            if role in numeric
            else _of_text(engine, f"c{place}", role, named[role], whole=role in roles_of_sessions(named), commas=commas)
            for place, role in enumerate(named)
        }
    return Relation(engine, typed, places, "lines")


class _Reread(LmabError):
    """A column that was taken for numbers holds other values."""


def _numeric_roles(files: Sequence[Path], named: Mapping[str, str], encoding: str) -> set[str]:
    """Return the roles whose columns are numbers in the first rows of all CSV files."""
    roles = {role for role in named if role in ("reward", "propensity", "step", "time")}
    for path in files:
        with log_files.reading(path):
            _, names, rows = log_files.head(path, named, encoding)
        for role in tuple(roles):
            place = names.index(named[role]) if named[role] in names else -1
            values = [row[place] for row in rows[:_SAMPLE] if 0 <= place < len(row)]
            if not all(_is_number(value) for value in values if value not in _NULLS):
                roles.discard(role)
    return roles


def _is_number(text: str) -> bool:
    try:
        return abs(float(text)) < _EXACT and "_" not in text
    except ValueError:
        return False


def _text_table(
    engine: Engine, files: Sequence[Path], named: Mapping[str, str], encoding: str, places: Places, numeric: set[str]
) -> None:
    """Create the table `raw` of files without types; the numbers of rows are those of the engine."""
    types = ", ".join(f"c{place} {'DOUBLE' if role in numeric else 'VARCHAR'}" for place, role in enumerate(named))
    engine.run("DROP VIEW IF EXISTS raw")
    engine.run("DROP TABLE IF EXISTS lines")
    engine.run(f"CREATE TEMP TABLE lines ({types})" if not engine.on_disk else f"CREATE TABLE lines ({types})")
    n_rows = 0
    only_json = {log_files.kind_of(path) for path in files} == {"JSON lines"}
    for path in files:
        places.add(n_rows, path)
        with log_files.reading(path):
            kind = log_files.kind_of(path)
            name = log_files.visible(engine, path, encoding)
            if kind == "CSV":
                source, wanted = _csv(path, name, named, encoding, numeric)
            elif kind == "JSON lines":
                names = require_columns(log_files.json_names(path, encoding), named)
                listed = ", ".join(f"{quoted(one)}: 'JSON'" for one in names)
                source = f"read_json({literal(str(name))}, format='newline_delimited', columns={{{listed}}}"
                source += f", compression={_compression(name)})"
                wanted = [quoted(one) if only_json else f"{quoted(one)}->>'$'" for one in named.values()]
            else:
                source = f"read_parquet({literal(str(name))})"
                require_columns([row[0] for row in engine.rows(f"DESCRIBE SELECT * FROM {source}")], named)
                wanted = [f"{quoted(one)}::VARCHAR" for one in named.values()]
            try:
                engine.run(f"INSERT INTO lines SELECT {', '.join(wanted)} FROM {source}")
            except Exception as error:
                if numeric and type(error).__name__ == "ConversionException":
                    raise _Reread from None
                raise
        n_rows = engine.rows("SELECT count(*) FROM lines")[0][0]
    large = [f"c{place}" for place, role in enumerate(named) if role in numeric and role in ("step", "time")]
    if (
        large
        and engine.rows(
            f"SELECT {' OR '.join(f'coalesce(max(abs({c})) >= {_EXACT}, false)' for c in large)} FROM lines"
        )[0][0]
    ):
        raise _Reread
    engine.run("CREATE TEMP VIEW raw AS SELECT rowid AS rn, * FROM lines")


def _compression(name: Path) -> str:
    return "'gzip'" if name.suffix == ".gz" else "'none'"


def _csv(path: Path, name: Path, named: Mapping[str, str], encoding: str, numeric: set[str]) -> tuple[str, list[str]]:
    """Return the relation of a CSV file, and the expressions of the wanted columns."""
    if path.stat().st_size == 0:
        raise EOFError
    delimiter, header, _ = log_files.head(path, named, encoding)
    require_columns(header, named)
    place = {one: number for number, one in enumerate(header)}
    numbers = {place[one] for role, one in named.items() if role in numeric}
    types = ", ".join(f"'n{k}': '{'DOUBLE' if k in numbers else 'VARCHAR'}'" for k in range(len(header)))
    nulls = ", ".join(map(literal, _NULLS))
    source = (
        f"read_csv({literal(str(name))}, delim={literal(delimiter)}, header=true, quote='\"', escape='\"', "
        f"auto_detect=false, columns={{{types}}}, nullstr=[{nulls}], compression={_compression(name)})"
    )
    return source, [f"n{place[one]}" for one in named.values()]


def _of_text(engine: Engine, sql: str, role: str, name: str, *, whole: bool, commas: bool) -> Typed:
    """Return the kind of a column of text, whose values may all stand for integers, numbers or times."""
    text = Typed(name, "text", sql, "string", True)
    if whole or role in ("session", "person", "arm"):
        return text  # whose distinct values decide
    is_time = f"regexp_full_match({sql}, {_ISO}) AND TRY_CAST({sql} AS TIMESTAMP) IS NOT NULL"
    counted = {
        "any": f"count({sql})",
        "whole": f"count(*) FILTER (WHERE regexp_full_match({sql}, {WHOLE}) AND TRY_CAST({sql} AS BIGINT) IS NOT NULL)",
        "number": f"count(*) FILTER (WHERE TRY_CAST({sql} AS DOUBLE) IS NOT NULL AND NOT contains({sql}, '_'))",
        "comma": f"count(TRY_CAST({_with_point(sql)} AS DOUBLE))",
        "bool": f"count(*) FILTER (WHERE lower({sql}) IN ('true', 'false', '1', '0'))",
        "time": f"count(*) FILTER (WHERE {is_time})",
    }
    found = dict(zip(counted, engine.rows(f"SELECT {', '.join(counted.values())} FROM raw")[0], strict=True))
    if found["any"] == 0:
        return Typed(name, "null", "NULL::BIGINT", "null", True)
    agrees = {kind for kind, count in found.items() if count == found["any"]}
    if "whole" in agrees:
        return Typed(name, "int", f"{sql}::BIGINT", "int64", True)
    if "number" in agrees:
        return Typed(name, "float", f"{sql}::DOUBLE", "double", True)
    if "comma" in agrees and commas:
        return Typed(name, "float", f"{_with_point(sql)}::DOUBLE", "double", True)
    if "bool" in agrees and role in ("reward", "propensity"):
        return Typed(name, "bool", f"(lower({sql}) IN ('true', '1'))::TINYINT", "bool", True)
    if "time" in agrees and role in ("step", "time"):
        return Typed(name, "time", _parsed_time(sql), "timestamp", True)
    return text


def _parsed_time(sql: str) -> str:
    """Return the microseconds since 1970 of times in ISO form; times without a zone are taken as they are."""
    zone = f"length(trim({sql})) > 10 AND regexp_matches({sql}, '(Z|[+-][0-9]{{2}}(:?[0-9]{{2}})?)\\s*$')"
    return f"CASE WHEN {zone} THEN epoch_us({sql}::TIMESTAMPTZ) ELSE epoch_us({sql}::TIMESTAMP) END"


def _with_point(sql: str) -> str:
    """Return the expression of numbers whose decimals follow a comma."""
    return f"replace(replace({sql}, '.', '!'), ',', '.')"


def _of_json(engine: Engine, sql: str, role: str, name: str) -> Typed:
    """Return the kind of a column of JSON values."""
    kinds = {
        _JSON_KINDS.get(found, found.lower())
        for (found,) in engine.rows(f"SELECT DISTINCT json_type({sql}) FROM raw WHERE {sql} IS NOT NULL")
        if found != "NULL"
    }
    text = f"({sql}->>'$')"
    kind = _one_kind(kinds, name)
    if kind == "text" and role in ("step", "time"):
        return _iso(engine, text, name)
    types = {"int": "BIGINT", "float": "DOUBLE", "bool": "BOOLEAN", "null": "BIGINT"}
    if kind == "int" and engine.rows(f"SELECT count({text}) > count(TRY_CAST({text} AS BIGINT)) FROM raw")[0][0]:
        types["int"] = "HUGEINT"
    value = f"{text}::{types[kind]}" if kind in types else text
    return Typed(
        name, kind, f"{value}::TINYINT" if kind == "bool" else value, _NAMES.get(types.get(kind, "VARCHAR"), kind)
    )


def _one_kind(kinds: set[str], name: str) -> str:
    """Return the kind of values of several kinds."""
    kinds = kinds - {"null"}
    if not kinds:
        return "null"
    if len(kinds) == 1:
        return kinds.pop()
    if kinds <= {"int", "float", "bool"}:
        return "float"
    raise InvalidData(f"column {name!r} must hold text or numbers in all files, got text in some only")


def _iso(engine: Engine, sql: str, name: str) -> Typed:
    """Return a column of text as times if all of it is in ISO form."""
    test = f"regexp_full_match(x, {_ISO}) AND TRY_CAST(x AS TIMESTAMP) IS NOT NULL"
    wrong = engine.rows(f"SELECT count(*) FILTER (WHERE NOT ({test})) FROM (SELECT {sql} AS x FROM raw)")[0][0]
    if wrong:
        return Typed(name, "text", sql, "string")
    return Typed(name, "time", _parsed_time(sql), "timestamp")


def _of_parquet(engine: Engine, files: Sequence[Path], columns: Columns, places: Places) -> Relation:
    """Return the relation of Parquet files, which are read when they are queried."""
    named = {role: name for role, name in columns.items() if name is not None}
    parts, types = [], list[dict[str, str]]()
    start = 0
    for path in files:
        places.add(start, path)
        with log_files.reading(path):
            source = f"read_parquet({literal(str(log_files.visible(engine, path, 'utf-8')))}, file_row_number=true)"
            found = {
                row[0]: row[1] for row in engine.rows(f"DESCRIBE SELECT * EXCLUDE (file_row_number) FROM {source}")
            }
            require_columns(list(found), named)
            parts.append((source, start))
            types.append({role: found[name] for role, name in named.items()})
            start += engine.rows(f"SELECT count(*) FROM {source}")[0][0]
    return _typed(engine, named, [(source, f"file_row_number + {first}") for source, first in parts], types, places)


def _typed(
    engine: Engine,
    named: Mapping[str, str],
    sources: list[tuple[str, str]],
    types: list[dict[str, str]],
    places: Places,
    *,
    text_times: bool = False,
) -> Relation:
    """Return the relation of sources with types."""
    for (source, _), own in zip(sources, types, strict=True):
        for role, name in named.items():
            value = quoted(name)
            bad = f"SELECT count(*) FROM {source} WHERE {value} IS NOT NULL AND TRY(decode({value})) IS NULL"
            if own[role] == "BLOB" and engine.rows(bad)[0][0]:
                raise InvalidData(f"column {name!r} cannot be used: it holds bytes that are not UTF-8")
    kinds = {role: {type_kind(one[role]) for one in types} for role in named}
    kind = {role: _one_kind(found, named[role]) for role, found in kinds.items()}
    exact = {role for role in named if all(one[role] == "TIMESTAMP_NS" for one in types)}
    selects, whole = [], roles_of_sessions(named)
    for (source, number), own in zip(sources, types, strict=True):
        values = []
        for place, (role, name) in enumerate(named.items()):
            one = type_kind(own[role])
            value = "NULL" if one == "null" else quoted(name)
            if one != "null" and kind[role] == "time" and role in whole:
                value = f"{value}::VARCHAR"
            elif one != "null":
                value = _value(value, own[role], one, "epoch_ns" if role in exact else "epoch_us")
            values.append(f"{value} AS c{place}")
        selects.append(f"SELECT {number} AS rn, {', '.join(values)} FROM {source}")
    engine.run(f"CREATE TEMP VIEW raw AS {' UNION ALL '.join(selects)}")
    typed = {}
    for place, (role, name) in enumerate(named.items()):
        said = _NAMES.get(
            types[0][role], type_kind(types[0][role]) if kind[role] not in ("int", "float") else types[0][role].lower()
        )
        one = "text" if kind[role] == "time" and role in whole else kind[role]
        typed[role] = Typed(name, one, f"c{place}", said, seconds=1e-9 if role in exact else 1e-6)
        if text_times and role == "time" and kind[role] == "text":
            typed[role] = _iso(engine, f"c{place}", name)
    return Relation(engine, typed, places)


class _Stream:
    """A frame of which the engine sees only the stream of its columns."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._frame.__arrow_c_stream__(requested_schema)


def of_frame(engine: Engine, frame: Any, columns: Columns) -> Relation:
    """Return the relation of a data frame, a lazy frame, a relation of the engine, or a dictionary of columns."""
    names, native = columns_of_frame(frame)
    named = {role: name for role, name in columns.items() if name is not None}
    wanted = require_columns(names, columns)
    engine.register("frame", native(wanted))
    found = {row[0]: row[1] for row in engine.rows("DESCRIBE SELECT * FROM frame")}
    types = {role: found[name] for role, name in named.items()}
    return _typed(engine, named, [("frame", "row_number() OVER () - 1")], [types], Places(), text_times=True)


def columns_of_frame(frame: Any) -> tuple[list[str], Any]:
    """Return the names of the columns of a frame, and a function that gives some of them to the engine."""
    if hasattr(frame, "to_native"):
        frame = frame.to_native()
    if hasattr(frame, "collect_schema") and hasattr(frame, "collect"):
        frame = frame.collect()
    module = type(frame).__module__.partition(".")[0]
    if module == "pandas" and hasattr(frame, "columns"):
        return [str(name) for name in frame.columns], lambda wanted: _pandas(frame, wanted)
    if isinstance(frame, Mapping):
        return list(map(str, frame)), lambda wanted: {name: _array(name, frame[name]) for name in wanted}
    if hasattr(frame, "__arrow_c_stream__"):
        names = getattr(frame, "column_names", None) or frame.columns
        choose = getattr(frame, "select", None)
        return [str(name) for name in names], lambda wanted: _Stream(_chosen(frame, choose, wanted))
    remedy = "; a file is read by Sessions.read" if isinstance(frame, str | os.PathLike) else ""
    kind = type(frame).__name__
    raise InvalidData(
        f"frame must be a pandas, polars or pyarrow data frame, or a dictionary of columns, got {kind}{remedy}"
    )


def _chosen(frame: Any, choose: Any, wanted: list[str]) -> Any:
    if type(frame).__module__.partition(".")[0] in ("duckdb", "_duckdb"):
        return frame  # whose names need quotes to be selected
    return choose(wanted) if choose is not None else frame


def _pandas(frame: Any, wanted: list[str]) -> dict[str, Any]:
    """Return columns of a pandas frame, those of Python objects checked."""
    chosen = frame[wanted].reset_index(drop=True)
    for name in wanted:
        if str(chosen[name].dtype) == "category":
            chosen[name] = chosen[name].astype(chosen[name].cat.categories.dtype)
        if chosen[name].dtype == object:
            chosen[name] = _array(name, chosen[name].tolist())
    return chosen


def _array(name: str, values: Any) -> Any:
    """Return an array of values of one type; a missing value is None or NaN."""
    found = values if isinstance(values, np.ndarray) and values.dtype != object else None
    if found is not None:
        return found.astype(object) if found.dtype.kind in "US" else found
    listed = [None if _is_missing(one) else one for one in values]
    kinds = {type(one) for one in listed if one is not None}
    numbers = all(issubclass(kind, bool | int | float | np.number | np.bool_) for kind in kinds)
    if not numbers and len({str if issubclass(kind, str) else kind for kind in kinds}) > 1:
        said = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise InvalidData(f"column {name!r} must hold values of one type: got values of {said}")
    if kinds and numbers and None not in listed:
        array = np.array(listed)
        return array if array.dtype != object else np.array(listed, np.float64)
    if kinds and numbers:
        if all(issubclass(kind, int | np.integer) and not issubclass(kind, bool) for kind in kinds):
            return np.ma.masked_array([one or 0 for one in listed], [one is None for one in listed], dtype=np.int64)
        return np.array([np.nan if one is None else float(one) for one in listed])
    return np.array(listed, object)


def _is_missing(value: Any) -> bool:
    return (
        value is None
        or type(value).__name__ in ("NAType", "NaTType")
        or (isinstance(value, float | np.floating) and value != value)
    )
