"""Loading: one query that turns the relation of any input into sessions, whole or in chunks of whole sessions."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .._shapes import Array, Bool, Float, Integer, Shaped
from ..checks import COUNT, OneOf, check_fields, optional
from ..errors import InvalidArgument, InvalidData, LmabWarning
from . import log_files, relations
from .columns import FEATURE, Columns, Labels, arm_numbers, of_session, roles_of_sessions, some
from .engine import NAN, Engine, is_engine_error, temporary_engine
from .features import (
    ENDED,
    LEFT,
    WENT_ON,
    Features,
    ending_codes,
    limit_codes,
    person_numbers,
    person_values,
    session_values,
    typed_values,
)
from .log_files import Note, Paths
from .relations import WHOLE, Relation

MISSING = ("error", "drop", "zero")
COPIES = ("keep", "drop", "error")
UNORDERED = -1  # position of every session of a log whose order in time is unknown
_ROWS = 1 << 20  # steps fetched together
_CUT_BY_THE_END = 0.01  # share of sessions of events that may continue after the log; above it, no end is known
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_EPOCHS = ((1e17, 1e-9, "nanoseconds"), (1e14, 1e-6, "microseconds"), (1e11, 1e-3, "milliseconds"))


class LogArrays(NamedTuple):
    """Columns of `Sessions`, in the same order; `Sessions` describes them."""

    arms: Integer[Array, "S"]
    rewards: Float[Array, "S"]
    offsets: Integer[Array, "N1"]
    n_arms: int
    propensities: Float[Array, "S"] | None
    arm_labels: Labels | None
    features: Features | None = None
    persons: Shaped[Array, "N"] | None = None
    endings: Integer[Array, "N"] | None = None
    positions: Integer[Array, "N"] | None = None
    times: Float[Array, "N"] | None = None


class Gap(NamedTuple):
    """Pause that ends a session."""

    size: float
    in_seconds: bool  # False: in the units of a column of numbers


def gap_of(gap: str | float) -> Gap:
    """Return the pause that `gap` describes: `30m`, `90s`, `2h`, `1d`, or a number in the units of the column.

    Examples:
        >>> gap_of("30m")
        Gap(size=1800.0, in_seconds=True)
        >>> gap_of(50)
        Gap(size=50.0, in_seconds=False)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([smhd]?)\s*", str(gap))
    size = 0.0 if match is None or isinstance(gap, bool) else float(match[1]) * _SECONDS.get(match[2], 1.0)
    if match is None or not 0 < size < np.inf:
        raise InvalidArgument(
            f"gap must be a time such as '30m', '90s', '2h' or '1d', or a positive number, got {gap!r}"
        )
    return Gap(size, bool(match[2]))


@dataclass(frozen=True)
class ReadOptions:
    """Options of how rows become sessions."""

    arm_labels: Labels | None = None  # the table of labels, if it is known
    missing: str = "error"  # treatment of steps without reward or arm: error, drop, zero
    at_most: int | None = None  # first steps of each session that are kept
    gap: str | float | None = None  # pause between two sessions of a person; None: a column names the sessions
    encoding: str = "utf-8"  # of text files
    limit: int | None = (
        None  # maximum length of a session in the log: shorter sessions left, ends of others are unknown
    )
    copies: str = "keep"  # treatment of identical rows: keep, drop, error

    def __post_init__(self) -> None:
        constraints = {"missing": OneOf(MISSING), "copies": OneOf(COPIES)}
        check_fields(self, constraints | {"at_most": optional(COUNT), "limit": optional(COUNT)})
        if self.gap is not None:
            gap_of(self.gap)


def columns_of_sessions(features: Any, person: str | None, ended: str | None) -> dict[str, str | None]:
    """Return the columns with one value per session, by role."""
    if isinstance(features, str):
        raise InvalidArgument(f"features must be several names, such as [{features!r}], got {features!r}")
    return {"person": person, "ended": ended} | {FEATURE + name: name for name in features}


def named_columns(
    *,
    session: str | None,
    arm: str,
    reward: str,
    step: str | None,
    propensity: str | None,
    features: Any,
    person: str | None,
    ended: str | None,
    time: str | None,
    gap: str | float,
    limit: int | None,
) -> tuple[dict[str, str | None], str | float | None]:
    """Return the columns by role, and the pause that ends a session if sessions are made of events."""  # fmt: skip
    named: dict[str, str | None] = {"arm": arm, "reward": reward}
    known = {"propensity": propensity} | columns_of_sessions(features, person, ended)
    if session is None and person is not None and time is not None and step is None:
        if ended is not None or limit is not None:
            raise InvalidArgument("ended and limit must be None if sessions are made of events: a pause ends them")
        return {"person": person, "time": time} | named | {role: known[role] for role in known if role != "person"}, gap
    if session is None and time is not None:
        raise InvalidArgument("time must be given with person: sessions are made of both; or with session")
    return {"session": session or "session"} | named | {"step": step, "time": time} | known, None


def warn(message: str) -> None:
    """Warn about a log."""
    warnings.warn(message, LmabWarning, stacklevel=2)


@contextmanager
def messages() -> Iterator[None]:
    """Raise an error of the engine as one of this package."""
    try:
        yield
    except Exception as error:
        if not is_engine_error(error):
            raise
        if type(error).__name__ == "OutOfMemoryException":
            raise InvalidArgument("memory must be larger for this log: raise memory= or --memory") from None
        if type(error).__name__ == "IOException":
            raise OSError(log_files.described(str(error))) from None
        raise InvalidData(f"the log cannot be read: {log_files.described(str(error))}") from None


def read(paths: Paths, columns: Columns, options: ReadOptions) -> list[LogArrays]:
    """Return the logs of one or more files: one log, but each of our own files is a log of its own.

    In other files the same id is the same session, which may begin in one file and end in another; our own files
    number their sessions from 0.
    """
    files = log_files.listed(paths)
    with temporary_engine(files) as engine:
        notes = notes_of(engine, files, columns, options)
    logs = []
    for part, note in (
        [(files, None)] if notes is None else [([file], note) for file, note in zip(files, notes, strict=True)]
    ):
        with temporary_engine(part) as engine:
            logs.append(query_files(engine, part, columns, options, note).whole())
    return logs


def explained(paths: Paths, *, encoding: str = "utf-8", **named: Any) -> str:
    """Return the query that turns files into sessions, with the options of `Sessions.read`."""
    files = log_files.listed(paths)
    names = ("arm_labels", "missing", "at_most", "copies")
    options = {name: named.pop(name) for name in names if name in named}
    defaults: dict[str, Any] = dict.fromkeys(("session", "step", "propensity", "person", "ended", "time", "limit"))
    defaults |= {"features": (), "gap": "30m", "arm": "arm", "reward": "reward"}
    columns, pause = named_columns(**(defaults | named))
    read_options = ReadOptions(gap=pause, encoding=encoding, limit=named.get("limit"), **options)
    with temporary_engine(files) as engine:
        query_files(engine, files, columns, read_options, None)
        text = ";\n\n".join([*engine.statements, "SELECT * FROM steps"]) + ";"
        for path in files:
            text = text.replace(str(engine.name_of(path)), str(path))
    return text


def is_path(given: Any) -> bool:
    """Return whether a log is given by one path or several."""
    if isinstance(given, list | tuple):
        return all(isinstance(one, str | os.PathLike) for one in given)
    return isinstance(given, str | os.PathLike)


def read_frame(frame: Any, columns: Columns, options: ReadOptions) -> LogArrays:
    """Return the log of a data frame."""
    with temporary_engine() as engine, messages():
        return LogQuery(relations.of_frame(engine, frame, columns), columns, options).whole()


def notes_of(engine: Engine, files: list[Path], columns: Columns, options: ReadOptions) -> list[Note] | None:
    """Return the notes of our own files; None unless all files have one."""
    notes = [None if options.gap is not None else log_files.note_of(engine, path, columns) for path in files]
    return None if any(note is None for note in notes) else [note for note in notes if note is not None]


def merged_labels(first: Labels | None, second: Labels | None) -> Labels | None:
    """Return the labels of two logs, those of the first in front; raise if only one has labels."""
    if first is None and second is None:
        return None
    if first is None or second is None:
        raise InvalidArgument("both logs must have arm labels, or none; got one with and one without")
    return tuple(dict.fromkeys((*first, *second)))


def query_files(
    engine: Engine, files: list[Path], columns: Columns, options: ReadOptions, note: Note | None
) -> LogQuery:
    """Return the query of files, with the columns of the note of one of our own files."""
    if note is not None:
        columns = {**columns, **note.columns}
    with log_files.reading(files[0]), messages():
        relation = relations.of_files(engine, files, columns, options.encoding)
        return LogQuery(relation, columns, options, note)


@dataclass
class Tally:
    """Counts over the chunks of a log, of which the reader is told once."""

    ties: int = 0  # rows with the same step as the row before
    no_reward: int = 0
    no_arm: int = 0
    left_out: int = 0  # steps without reward or arm, and steps after them if propensities need every step
    ends: set[tuple[int, int]] = field(default_factory=set)  # (length, code of the end) of sessions


def _out_of_range(role: str, value: str) -> str:
    """Return the condition that a reward is infinite, or a propensity not in (0, 1]."""
    return f"isinf({value})" if role == "reward" else f"NOT ({value} > 0 AND {value} <= 1)"


def whole_numbers(texts: list[str]) -> list[int] | None:
    """Return the integers of 64 bits for which texts stand; None unless all do.

    Examples:
        >>> whole_numbers(["07", "-1"]), whole_numbers(["7", "1.5"])
        ([7, -1], None)
    """
    if not all(re.fullmatch(r"\s*[+-]?[0-9]+\s*", text, re.ASCII) for text in texts):
        return None
    numbers = [int(text) for text in texts]
    return numbers if all(-(1 << 63) <= number < 1 << 63 for number in numbers) else None


class LogQuery:
    """The log of a relation: its arms, and its steps in the order of sessions and steps as a table of the engine."""

    def __init__(self, relation: Relation, columns: Columns, options: ReadOptions, note: Note | None = None) -> None:
        self.relation, self.columns, self.options, self.note = relation, columns, options, note
        self.engine, self.places, self.tally = relation.engine, relation.places, Tally()
        self.by_events = options.gap is not None
        self.key = "person" if self.by_events else "session"
        typed = relation.columns
        self.within = "time" if "time" in typed and "step" not in typed else "step" if "step" in typed else None
        self.clock = "time" if "time" in typed else "step" if "step" in typed and typed["step"].kind == "time" else None
        self.whole_roles = roles_of_sessions(columns)
        if options.limit is not None and "ended" in typed and not self.by_events:
            raise InvalidArgument("ended and limit must not be given together: both say how sessions ended")
        if not self.engine.rows("SELECT count(*) FROM raw")[0][0]:
            raise InvalidData("the log must have at least one row, got none")
        self._require_kinds()
        self._require_values()
        self.seconds = self._seconds()
        self._number_arms()
        self._rank_ids()
        self.values = {role: self._distinct(role) for role in self.whole_roles}
        self._order()

    # columns and their values

    def _require_kinds(self) -> None:
        """Raise unless each column holds values of a kind that its role allows."""
        allowed = {
            "reward": ("int", "float", "bool", "null"), "propensity": ("int", "float", "bool", "null"),
            "arm": ("int", "text", "null"), "time": ("int", "float", "time", "null"),
        }  # fmt: skip
        words = {"arm": "integers or text", "time": "times such as '2024-05-01 10:30:00', or numbers"}
        for role, column in self.relation.columns.items():
            kinds = allowed.get(role, ("int", "float", "bool", "text", "time", "null"))
            if column.kind in kinds or (role == "arm" and column.kind == "float" and self._whole_arms()):
                continue
            numbers = role in ("reward", "propensity")
            preferred = "true"
            if numbers and column.untyped:
                preferred = "TRY_CAST(x AS DOUBLE) IS NULL"
            elif role == "time" and column.kind == "text":
                preferred = "TRY_CAST(x AS TIMESTAMP) IS NULL"
            row, value = self.relation.first(role, "x IS NOT NULL", preferred)
            if column.said == "string" or role == "time":
                said = f"{'text' if role == 'time' else column.said} ({value!r} in {self.places(row)})"
            else:
                said = f"{column.said} ({value!r} in {self.places(row)})" if role == "arm" else column.said
            word = words.get(
                role, "numbers" if numbers else "text or numbers" if of_session(role) else "integers, text or times"
            )
            remedy = (
                ": write yes as 1 and no as 0, and decimals with a point" if numbers and column.kind == "text" else ""
            )
            raise InvalidData(f"column {column.name!r} must hold {word}, got {said}{remedy}")

    def _whole_arms(self) -> bool:
        """Return whether arms are integers that a column with missing values holds as floats."""
        sql = self.relation.columns["arm"].sql
        missing, wrong = self.engine.rows(
            f"SELECT count(*) FILTER (WHERE {sql} IS NULL OR isnan({sql})), "
            f"count(*) FILTER (WHERE {sql} <> trunc({sql})) FROM raw"
        )[0]
        return bool(missing and not wrong)

    def _value(self, role: str) -> str:
        """Return the expression of a column in the table `raw`; NaN is a missing value."""
        column = self.relation.columns[role]
        if role in ("reward", "propensity"):
            return f"coalesce({column.sql}::DOUBLE, {NAN})"
        value = f"nullif({column.sql}, {NAN})" if column.kind == "float" else column.sql
        return f"{value}::BIGINT" if role == "arm" and column.kind == "float" else value

    def _require_values(self) -> None:
        """Raise at the first row whose value is missing or out of range."""
        roles = [role for role in (self.key, "arm", self.within, self.clock) if role is not None]
        counts = {role: f"count(*) - count({self._value(role)})" for role in dict.fromkeys(roles)}
        measured = [role for role in ("reward", "propensity") if role in self.relation.columns]
        for role in measured:
            value = self._value(role)
            counts[f"{role} missing"] = f"count(*) FILTER (WHERE isnan({value}))"
            counts[role] = f"count(*) FILTER (WHERE {_out_of_range(role, value)})"
        listed = ["count(*)", *counts.values()]
        found = dict(zip(["rows", *counts], self.engine.rows(f"SELECT {', '.join(listed)} FROM raw")[0], strict=True))
        self.n_rows, self.tally.no_arm = int(found["rows"]), int(found["arm"])
        for name in roles:
            if found[name] and not (name == "arm" and self.options.missing == "drop"):
                raise self._missing(name, found[name])
        for role in measured:
            if found[f"{role} missing"] and (role != "reward" or self.options.missing == "error"):
                raise self._missing(role, found[f"{role} missing"])
            if found[role]:
                row, value = self.relation.first(role, _out_of_range(role, "x"))
                name, text = self.relation.columns[role].name, "in (0, 1]" if role == "propensity" else "finite"
                raise InvalidData(f"column {name!r} must be {text}, got {float(value)} in {self.places(row)}")

    def _missing(self, role: str, count: int) -> InvalidData:
        column = self.relation.columns[role]
        row, _ = self.relation.first(role, "x IS NULL" + (" OR isnan(x)" if column.kind == "float" else ""))
        remedy, others = "", f" ({count:,} in all)" if count > 1 else ""
        if role in ("reward", "arm"):
            remedy = ": leave such steps out (missing='drop', --missing drop)"
        if role == "reward":
            remedy += " or count them as 0 (missing='zero')"
        return InvalidData(f"column {column.name!r} has a missing value in {self.places(row)}{others}{remedy}")

    def _seconds(self) -> float:
        """Return the seconds per unit of the column of times."""
        if self.clock is None:
            return 1.0
        column = self.relation.columns[self.clock]
        if column.kind == "time":
            return column.seconds
        gap = gap_of(self.options.gap) if self.options.gap is not None else Gap(1.0, True)
        if gap.in_seconds:
            top = self.engine.rows(f"SELECT max(abs({self._value(self.clock)})) FROM raw")[0][0]
            for least, seconds, name in _EPOCHS:
                if float(top) > least:
                    warn(f"the numbers in column {column.name!r} are taken as {name}, because they are so large")
                    return seconds
        return 1.0

    # arms and values of sessions

    def _number_arms(self) -> None:
        """Number the arms in ascending order, or as in the table of labels."""
        column, value = self.relation.columns["arm"], self._value("arm")
        self.engine.run(
            "CREATE TEMP TABLE arms AS SELECT arm, (row_number() OVER (ORDER BY arm) - 1)::INTEGER AS code "
            f"FROM (SELECT DISTINCT {value} AS arm FROM raw) WHERE arm IS NOT NULL"
        )
        found = [arm for (arm,) in self.engine.rows("SELECT arm FROM arms ORDER BY code")]
        if not found:
            raise InvalidData(f"column {self.columns['reward']!r} must hold a reward that can be used, got none")
        labels = self.options.arm_labels or (None if self.note is None else self.note.arm_labels)
        if column.untyped and (labels is None or isinstance(labels[0], int)):
            found = whole_numbers(found) or found
        seen = sorted(set(found))
        numbers, self.n_arms, self.labels = arm_numbers(seen, labels, 0 if self.note is None else self.note.n_arms)
        if (numbers < 0).any():
            label = seen[int(numbers.argmin())]
            row = self.engine.rows(
                f"SELECT min(rn) FROM raw WHERE {value} IN (SELECT arm FROM arms WHERE code = ?)", [found.index(label)]
            )[0][0]
            raise InvalidData(
                f"column {self.columns['arm']!r} names an unknown arm, {label!r}, in {self.places(row)}; "
                f"{self.n_arms} are known: {some(self.labels or ())}"
            )
        place = dict(zip(seen, numbers.tolist(), strict=True))
        self.arms = np.array([place[arm] for arm in found], np.int32)
        self.plain = column.kind == "int" and self.labels is None and not self.tally.no_arm

    def _rank_ids(self) -> None:
        """Rank the ids of sessions, or of the persons of events, that are text."""
        column = self.relation.columns[self.key]
        self.text_ids, self.has_ranks = column.kind == "text", column.kind == "text"
        if not self.has_ranks:
            return
        self.engine.run(f"CREATE TEMP TABLE names AS SELECT DISTINCT {column.sql} AS id FROM raw")
        whole = f"regexp_full_match(id, {WHOLE}) AND TRY_CAST(id AS BIGINT) IS NOT NULL"
        if column.untyped and self.engine.rows(f"SELECT bool_and({whole}) FROM names")[0][0]:
            self.text_ids = False
        rank = f"(dense_rank() OVER (ORDER BY {'id' if self.text_ids else 'id::BIGINT'}) - 1)::INTEGER"
        self.engine.run(f"CREATE TEMP TABLE ids AS SELECT id, {rank} AS rank FROM names")
        self.engine.run("DROP TABLE names")

    def _distinct(self, role: str) -> Shaped[Array, "v"]:
        """Number the values of a column with one value per session; the last value is the missing one."""
        place, column = self.whole_roles.index(role), self.relation.columns[role]
        table = f"values{place}"
        self.engine.run(
            f"CREATE TEMP TABLE {table} AS SELECT v, row_number() OVER (ORDER BY v) - 1 AS code "
            f"FROM (SELECT DISTINCT {self._value(role)} AS v FROM raw) WHERE v IS NOT NULL"
        )
        listed = [value for (value,) in self.engine.rows(f"SELECT v FROM {table} ORDER BY code")]
        if column.kind not in ("int", "float", "bool", "text", "null"):
            raise InvalidData(
                f"column {column.name!r} must hold text or numbers: it holds values of type {column.said}"
            )
        return typed_values(column.name, listed, ids=role == "person", untyped=column.untyped, words=role == "ended")

    # steps

    def _coded_sql(self) -> str:
        """Return the query of the rows as numbers: of sessions, steps, arms and values of sessions."""
        joins = "" if self.plain else f" LEFT JOIN arms ON {self._value('arm')} = arms.arm"
        joins += f" JOIN ids ON {self.relation.columns[self.key].sql} = ids.id" if self.has_ranks else ""
        joins += "".join(
            f" LEFT JOIN values{place} ON {self._value(role)} = values{place}.v"
            for place, role in enumerate(self.whole_roles)
        )
        key = "ids.rank" if self.has_ranks else self._value(self.key)
        within = "NULL" if self.within is None else self._value(self.within)
        listed = ", ".join(f"{sql} AS {name}" for name, sql in self.columns_of_steps.items())
        return f"SELECT {key} AS key, {within} AS within, {listed}, raw.rn AS rn FROM raw{joins}"

    def _steps_sql(self, source: str) -> str:
        """Return the query of the steps, in order, with the beginning of each session."""
        same = "key IS NOT DISTINCT FROM lag(key) OVER ()"
        fresh, tie = f"NOT ({same})", "false"
        if self.within is not None:
            tie = f"{same} AND within IS NOT DISTINCT FROM lag(within) OVER ()"
        if self.options.gap is not None:
            size = gap_of(self.options.gap).size
            pause = f"(within - lag(within) OVER ())::DOUBLE * {self.seconds!r}::DOUBLE"
            fresh += f" OR {pause} >= {size!r}::DOUBLE"
        known = [*self.columns_of_steps, *(["rn"] if self.needs_rows else []), *(["key"] if self.needs_keys else [])]
        ordered = f"SELECT * FROM {source} ORDER BY key, within, rn"
        return f"SELECT {', '.join(known)}, {fresh} AS fresh, {tie} AS tie\nFROM ({ordered})"

    @property
    def needs_rows(self) -> bool:
        """Whether the number of the first row of each session is needed."""
        return bool(self.whole_roles) or (self.clock is None and self.text_ids)

    @property
    def needs_keys(self) -> bool:
        """Whether the id of each session is needed: of the persons of events, or for messages."""
        return self.by_events or bool(self.whole_roles)

    @property
    def columns_of_steps(self) -> dict[str, str]:
        """The expressions of the columns of the table of steps."""
        arm, reward = "coalesce(arms.code, 0)", self._value("reward")
        if self.plain:
            arm = f"{self._value('arm')}::INTEGER"
        if self.tally.no_arm:
            reward = f"CASE WHEN arms.code IS NULL THEN {NAN} ELSE {reward} END"
        known = {"arm": arm, "reward": reward}
        if "propensity" in self.relation.columns:
            known["propensity"] = self._value("propensity")
        if self.clock is not None:
            known["clock"] = self._value(self.clock)
        for place, role in enumerate(self.whole_roles):
            known[f"w{place}"] = f"coalesce(values{place}.code, {len(self.values[role]) - 1})::INTEGER"
        return known

    def _order(self) -> None:
        """Create the table of steps; rows of text are replaced by their numbers first, which need less memory."""
        temporary = "" if self.engine.on_disk else "TEMP "
        if self.relation.table is None:
            self.engine.run(f"CREATE TEMP VIEW coded AS {self._coded_sql()}")
        else:
            self.engine.run(f"CREATE {temporary}TABLE coded AS {self._coded_sql()}")
            self.engine.run("DROP VIEW raw")
            self.engine.run(f"DROP TABLE {self.relation.table}")
        self.engine.run(f"CREATE {temporary}TABLE steps AS {self._steps_sql('coded')}")
        self.tally.ties = self.engine.rows("SELECT count(*) FROM steps WHERE tie")[0][0] if self.within else 0
        if self.tally.ties:
            self._check_copies(temporary)
        if self.relation.table is not None:
            self.engine.run("DROP TABLE coded")

    def _check_copies(self, temporary: str) -> None:
        """Count the rows that repeat an earlier row in all columns, and treat them as the option `copies` says."""
        names = ", ".join(("key", "within", *self.columns_of_steps))
        firsts = f"SELECT {names}, min(rn) AS rn FROM coded GROUP BY {names}"
        copies = self.n_rows - self.engine.rows(f"SELECT count(*) FROM ({firsts})")[0][0]
        if not copies:
            return
        rows = "1 row is an exact copy" if copies == 1 else f"{copies:,} rows are exact copies"
        if self.options.copies == "error":
            remedy = "drop them (copies='drop', --copies drop)"
            raise InvalidData(f"the log must not repeat rows, {rows} of an earlier row: {remedy}")
        if self.options.copies == "keep":
            warn(
                f"{rows} of an earlier row, as after a request that was sent twice: they count as evidence; drop them "
                f"with copies='drop' (--copies drop)"
            )
            return
        self.engine.run("DROP TABLE steps")
        self.engine.run(f"CREATE {temporary}TABLE steps AS {self._steps_sql(f'({firsts})')}")
        self.n_rows -= copies
        self.tally.ties -= copies
        warn(f"{rows} of an earlier row: left out")

    def whole(self) -> LogArrays:
        """Return the whole log."""
        with messages():
            return self._whole()

    def _whole(self) -> LogArrays:
        n_steps = self.n_rows
        found: dict[str, Shaped[Array, "n"]] = {}
        names = [*self.columns_of_steps, "fresh"]
        for low in range(0, n_steps, _ROWS):
            part = self.engine.arrays(self._range(names, low, low + _ROWS))
            for name, values in part.items():
                if name not in found:
                    found[name] = np.empty(n_steps, values.dtype)
                elif values.dtype != found[name].dtype:
                    found[name] = found[name].astype(np.result_type(values, found[name]))
                found[name][low : low + len(values)] = values
        first_rows, keys = self._beginnings()
        log, starts, ends = self._arrays(found, keys)
        log = log._replace(positions=self._positions(log, first_rows, starts))
        if log.persons is not None and starts is not None:
            log = self._in_time(log, starts, ends)
        elif log.persons is not None and first_rows is not None:
            _warn_about_disorder(log.persons, first_rows)
        log = self.finished(log)
        self.report()
        return log

    def chunks(self) -> Iterator[LogArrays]:
        """Yield the log in chunks of whole sessions, in ascending order of the sessions."""
        names, low, size = [*self.columns_of_steps, "fresh", *(["key"] if self.needs_keys else [])], 0, _ROWS
        while low < self.n_rows:
            with messages():
                found = self.engine.arrays(self._range(names, low, low + size))
                n = len(found["fresh"])
                end = n if low + n >= self.n_rows else n - 1 - int(found["fresh"][::-1].argmax())
                if end == 0:  # one session longer than a chunk
                    size *= 2
                    continue
                part = {name: values[:end] for name, values in found.items()}
                keys = part.pop("key", None)
                log, *_ = self._arrays(part, None if keys is None else keys[part["fresh"].astype(bool)])
            low += end
            log = self.finished(log)
            if len(log.arms):
                yield log
        self._check_order()
        self.report()

    @property
    def ordered(self) -> bool:
        """Whether the ascending order of the sessions is that of numbers, which may rise with time."""
        return not self.by_events and not self.text_ids

    def _check_order(self) -> None:
        """Warn if the sessions of a person are not in the order of time in a packed log."""
        if "person" not in self.whole_roles or self.clock == "time":
            return
        owner = f"w{self.whole_roles.index('person')}"
        firsts = f"FROM steps WHERE fresh AND {owner} < {len(self.values['person']) - 1}"
        if not self.ordered and self.engine.rows(f"SELECT count(*) > count(DISTINCT {owner}) {firsts}")[0][0]:
            warn(
                "the packed log has the sessions of a person in no order, because they are named by text: name a "
                "column of times, or give sessions numbers that rise with time before they are packed"
            )
        if self.ordered and self.clock is not None:
            before = f"lag(clock) OVER (PARTITION BY {owner} ORDER BY rowid)"
            late = f"SELECT coalesce(bool_or(late), false) FROM (SELECT clock < {before} AS late {firsts})"
            if self.engine.rows(late)[0][0]:
                warn(
                    "the packed log has the sessions of a person in the order of their numbers, which is not that of "
                    "their steps: give sessions numbers that rise with time before they are packed"
                )

    def _range(self, names: list[str], low: int, high: int) -> str:
        return f"SELECT {', '.join(names)} FROM steps WHERE rowid >= {low} AND rowid < {high}"

    def _beginnings(self) -> tuple[Any, Any]:
        """Return the first row of each session, and its id, if they are needed."""
        names = [*(["rn"] if self.needs_rows else []), *(["key"] if self.needs_keys else [])]
        found = self.engine.arrays(f"SELECT {', '.join(names)} FROM steps WHERE fresh") if names else {}
        return found.get("rn"), found.get("key")

    def _named(self, keys: Shaped[Array, "n"]) -> Shaped[Array, "n"]:
        """Return the ids of sessions, or of the persons of events."""
        if not self.has_ranks:
            return keys
        ids = self._ids[keys]
        return ids if self.text_ids else ids.astype(np.int64)

    @cached_property
    def _ids(self) -> Shaped[Array, "n"]:
        return self.engine.arrays("SELECT first(id) AS id FROM ids GROUP BY rank ORDER BY rank")["id"]

    def _arrays(self, found: Mapping[str, Any], keys: Shaped[Array, "N"] | None) -> tuple[LogArrays, Any, Any]:
        """Return steps as a log, and the times of the first and last step of each session."""
        fresh = found["fresh"].astype(bool)
        offsets = np.append(np.flatnonzero(fresh), len(fresh))
        arms = found["arm"].astype(np.int32, copy=False)
        if not self.plain:
            arms = self.arms[arms]
        own = found.get("propensity")
        starts = ends = times = None
        if "clock" in found:
            starts, ends = found["clock"][offsets[:-1]], found["clock"][offsets[1:] - 1]
            times = starts.astype(np.float64) * self.seconds if self.clock == "time" else None
        known = self._of_sessions(found, offsets, keys)
        log = LogArrays(arms, found["reward"], offsets, self.n_arms, own, self.labels, *known, None, times)
        return log, starts, ends

    def _of_sessions(
        self, found: Mapping[str, Any], offsets: Integer[Array, "N1"], keys: Shaped[Array, "N"] | None
    ) -> tuple[Features | None, Shaped[Array, "N"] | None, Integer[Array, "N"] | None]:
        """Return features, persons and ends of sessions."""
        n_sessions, values = len(offsets) - 1, {}
        for place, role in enumerate(self.whole_roles):
            codes, listed = found[f"w{place}"], self.values[role]
            values[role], differs = session_values(codes, listed, offsets, last=role == "ended")
            if differs.any():
                assert keys is not None
                name = self._named(keys[[int(differs.argmax())]]).tolist()[0]
                raise several_values(self.relation.columns[role].name, name, by_events=self.by_events)
        features = {role.removeprefix(FEATURE): column for role, column in values.items() if role.startswith(FEATURE)}
        persons, endings = values.get("person"), values.get("ended")
        if self.by_events:
            assert keys is not None
            persons = self._named(keys)
            if self.cut_by_the_end <= _CUT_BY_THE_END:
                endings = np.full(n_sessions, ENDED[LEFT])
        return (
            Features.of(features, n_sessions) if features else None,
            None if persons is None else person_values(persons, n_sessions),
            None if endings is None else ending_codes(endings, n_sessions),
        )

    @cached_property
    def cut_by_the_end(self) -> float:
        """The share of sessions of events whose last event is less than the gap before the end of the log."""
        pause = f"((SELECT max(clock) FROM steps) - clock)::DOUBLE * {self.seconds!r}::DOUBLE"
        return float(
            self.engine.rows(
                f"SELECT avg(({pause} < {gap_of(self.options.gap or 1).size!r}::DOUBLE)::INTEGER) "
                "FROM (SELECT clock, lead(fresh, 1, true) OVER () AS last FROM steps) WHERE last"
            )[0][0]
        )

    # the order of sessions in time

    def _positions(self, log: LogArrays, rows: Any, starts: Any) -> Integer[Array, "N"] | None:
        """Return the position of each session in time; None if sessions are in this order, UNORDERED if it is unknown.

        Sessions are in the order of their ids. Times of their first steps decide; without times, numbers are assumed
        to rise with time, also as the only difference between texts ("v9" before "v10"). Sessions with other texts
        are in the order in which they begin in the log, unless the log is sorted by these texts.
        """
        if starts is not None:
            return ranks(starts)
        if not self.text_ids:
            return None
        digits = "regexp_replace(id, '[0-9]+', '#', 'g')"
        numbered = self.engine.rows(
            f"SELECT count(DISTINCT {digits}) = 1 AND bool_and(contains({digits}, '#')) FROM ids"
        )[0][0]
        if numbered:
            numbers = "list_transform(regexp_extract_all(id, '[0-9]+'), lambda x: x::DOUBLE)"
            place = self.engine.arrays(
                "SELECT row_number() OVER (ORDER BY numbers, rank) - 1 AS position, rank "
                f"FROM (SELECT {numbers} AS numbers, rank FROM ids) ORDER BY rank"
            )["position"]
            return None if bool((place[1:] > place[:-1]).all()) else place
        rising = bool((rows[1:] > rows[:-1]).all())
        return np.full(len(rows), UNORDERED) if rising and len(rows) > 1 else ranks(rows)

    def _in_time(self, log: LogArrays, starts: Shaped[Array, "N"], ends: Shaped[Array, "N"]) -> LogArrays:
        """Return the log with sessions in the order of time, for returning persons."""
        assert log.persons is not None
        persons = person_numbers(log.persons)
        order = np.arange(len(starts)) if self.by_events else np.argsort(starts, kind="stable")
        by_person = order[np.argsort(persons[order], kind="stable")]
        same = persons[by_person][1:] == persons[by_person][:-1]
        overlaps = int((same & (starts[by_person][1:] < ends[by_person][:-1])).sum())
        if overlaps:
            sessions = "1 session begins" if overlaps == 1 else f"{overlaps:,} sessions begin"
            warn(
                f"{sessions} before the person's last one has ended: sessions of a person are in the order of "
                f"their start"
            )
        if self.by_events:
            return log
        return (log if np.array_equal(order, np.arange(len(order))) else picked(log, order))._replace(positions=None)

    # options

    def finished(self, log: LogArrays) -> LogArrays:
        """Return the log with the first steps of sessions and without missing rewards, as the options say."""
        options = self.options
        if options.limit is not None:
            log = log._replace(endings=limit_codes(np.diff(log.offsets), options.limit))
        if options.at_most is not None:
            if log.endings is not None:
                cut = np.diff(log.offsets) > options.at_most
                log = log._replace(endings=np.where(cut, WENT_ON, log.endings).astype(np.uint8))
            log = _kept(log, step_numbers(log.offsets) < options.at_most)
        if options.missing != "error":
            log = self._without_missing(log)
        if log.endings is not None and len(log.endings):
            pairs = np.unique(np.stack([np.diff(log.offsets), log.endings], axis=1), axis=0)
            self.tally.ends |= {(int(length), int(end)) for length, end in pairs}
        return log

    def _without_missing(self, log: LogArrays) -> LogArrays:
        """Drop steps without a reward, which is NaN until here, or set it to 0.

        A step without a reward still is a step: if the log has propensities, its session ends before it, because the
        weights of later steps need every step before them.
        """
        gone = np.isnan(log.rewards)
        n_gone = int(gone.sum())
        self.tally.no_reward += n_gone
        if n_gone == 0:
            return log
        if self.options.missing == "zero":
            return log._replace(rewards=np.where(gone, 0.0, log.rewards))
        gone = _dropped(gone, log.offsets, ends_session=log.propensities is not None)
        self.tally.left_out += int(gone.sum())
        return _kept(log, ~gone)

    def report(self) -> None:
        """Warn about ties and missing values, once for all chunks."""
        tally = self.tally
        name = self.columns.get(str(self.within))
        if self.note is not None and self.within in self.note.columns:
            name = self.note.columns[str(self.within)]
        if tally.ties:
            rows = "1 row has" if tally.ties == 1 else f"{tally.ties:,} rows have"
            warn(
                f"{rows} the same {name!r} as the row before in the same session: such rows keep their order in the log"
            )
        if not tally.no_reward:
            return
        if tally.left_out == self.n_rows:
            raise InvalidData(f"column {self.columns['reward']!r} must hold a reward that can be used, got none")
        n_rewards = max(tally.no_reward - tally.no_arm, 0)
        steps = "1 step has" if n_rewards == 1 else f"{n_rewards:,} steps have"
        what = (
            "a reward of 0 is assumed" if self.options.missing == "zero" else f"{tally.left_out:,} steps are left out"
        )
        reasons = [f"{steps} no reward in column {self.columns['reward']!r}"] if n_rewards else []
        if tally.no_arm:
            steps = "1 step has" if tally.no_arm == 1 else f"{tally.no_arm:,} steps have"
            reasons.append(f"{steps} no arm in column {self.columns['arm']!r}")
        warn(f"{' and '.join(reasons)}: {what}")


def several_values(column: str, session: Any, *, by_events: bool) -> InvalidData:
    """Return the error about a column that changes within a session."""
    what = "a session of person" if by_events else "session"
    return InvalidData(
        f"column {column!r} must have one value in a session, got several in {what} {session!r}: give it per session, "
        f"or leave it out"
    )


def picked(log: LogArrays, rows: Integer[Array, "n"]) -> LogArrays:
    """Return some sessions of a log, in the order of `rows`."""
    lengths = np.diff(log.offsets)[rows]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    steps = np.arange(offsets[-1]) + np.repeat(log.offsets[:-1][rows] - offsets[:-1], lengths)
    own = None if log.propensities is None else log.propensities[steps]
    log = log._replace(arms=log.arms[steps], rewards=log.rewards[steps], offsets=offsets, propensities=own)
    return _taken(log, rows)


def _taken(log: LogArrays, rows: Any) -> LogArrays:
    """Return a log with the columns of some sessions only."""
    return log._replace(
        features=None if log.features is None else log.features.take(rows),
        persons=None if log.persons is None else log.persons[rows],
        endings=None if log.endings is None else log.endings[rows],
        positions=None if log.positions is None else log.positions[rows],
        times=None if log.times is None else log.times[rows],
    )


def _kept(log: LogArrays, kept: Bool[Array, "S"]) -> LogArrays:
    """Return a log with some of its steps; sessions without any are left out."""
    lengths = np.add.reduceat(kept.astype(np.int64), log.offsets[:-1])
    offsets = np.concatenate([[0], np.cumsum(lengths[lengths > 0])])
    propensities = None if log.propensities is None else log.propensities[kept]
    log = log._replace(arms=log.arms[kept], rewards=log.rewards[kept], offsets=offsets, propensities=propensities)
    return log if lengths.all() else _taken(log, lengths > 0)


def _dropped(missing: Bool[Array, "S"], offsets: Integer[Array, "N1"], *, ends_session: bool) -> Bool[Array, "S"]:
    """Return the steps without a reward, and with `ends_session` those after them."""
    if not ends_session:
        return missing
    so_far = np.cumsum(missing)
    return so_far > np.repeat(so_far[offsets[:-1]] - missing[offsets[:-1]], np.diff(offsets))


def ranks(values: Shaped[Array, "N"]) -> Integer[Array, "N"] | None:
    """Return the position of each value in rising order, equal values as they come; None if they rise already.

    Examples:
        >>> import numpy as np
        >>> ranks(np.array([3, 1, 2])), ranks(np.array([1, 2, 3]))
        (array([2, 0, 1]), None)
    """
    order = np.argsort(values, kind="stable")
    return None if np.array_equal(order, np.arange(len(order))) else np.argsort(order)


def _warn_about_disorder(persons: Shaped[Array, "N"], rows: Integer[Array, "N"]) -> None:
    """Warn if the order of ids, which is that of the sessions, differs from that of the rows for returning persons."""
    numbers = person_numbers(persons)
    by_person = np.argsort(numbers, kind="stable")
    same = numbers[by_person][1:] == numbers[by_person][:-1]
    count = int((same & (rows[by_person][1:] < rows[by_person][:-1])).sum())
    if count:
        sessions = "1 session is" if count == 1 else f"{count:,} sessions are"
        warn(
            f"{sessions} taken after one of the same person that begins in a later row: the sessions of a person are "
            f"in the order of their ids, because the log has no times; name a column of times as the step, or give "
            f"sessions numbers that rise with time"
        )


def step_numbers(offsets: Integer[Array, "N1"]) -> Integer[Array, "S"]:
    """Return the number of every step within its session, from 0."""
    return np.arange(offsets[-1]) - np.repeat(offsets[:-1], np.diff(offsets))


def write(path: str | os.PathLike[str], log: LogArrays) -> None:
    """Write a log as Parquet or CSV; a Parquet file also stores the table of labels and the number of arms."""
    lengths = np.diff(log.offsets)
    ordered = log.positions is None or UNORDERED in log.positions
    numbers = np.arange(len(lengths)) if ordered or log.positions is None else log.positions
    arms = log.arms
    if log.arm_labels is not None:
        text = isinstance(log.arm_labels[0], str)
        arms = np.array(log.arm_labels, object if text else np.int64)[log.arms]
    data: dict[str, Any] = {
        "session": np.repeat(numbers, lengths),
        "step": step_numbers(log.offsets),
        "arm": arms,
        "reward": log.rewards,
    }
    roles = {"step": "step"}
    if log.propensities is not None:
        data["propensity"], roles["propensity"] = log.propensities, "propensity"
    owner = np.repeat(np.arange(len(lengths)), lengths)
    for role, column in _columns_of_sessions(log).items():
        roles[role] = role.removeprefix(FEATURE)
        if roles[role] in data:
            raise InvalidArgument(f"features must have other names than the columns of a log, got {roles[role]!r}")
        data[roles[role]] = column[owner]
    labels = None if log.arm_labels is None else list(log.arm_labels)
    log_files.write(path, data, {"columns": roles, "n_arms": log.n_arms, "arm_labels": labels})


def _columns_of_sessions(log: LogArrays) -> dict[str, Shaped[Array, "N"]]:
    """Return the columns with one value per session, by role."""
    found: dict[str, Shaped[Array, "N"]] = {}
    if log.persons is not None:
        found["person"] = log.persons
    if log.endings is not None:
        found["ended"] = np.array(ENDED, object)[log.endings]
    if log.times is not None:
        found["time"] = log.times
    return found | {FEATURE + name: column for name, column in (log.features or {}).items()}
