"""The columns of `Sessions` from batches of rows, and back; every check that a log must pass is here.

Every input (pandas, polars, pyarrow, Parquet, CSV, JSON lines) is a stream of pyarrow record batches. Each batch is
turned into numbers at once: arms and ids given as text become codes of a growing dictionary, so that no text is kept
twice. Events without sessions become sessions where a person pauses.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .._shapes import Array, Bool, Float, Integer, Shaped
from ..checks import COUNT, OneOf, check_fields, optional
from ..errors import InvalidArgument, InvalidData, LmabWarning
from . import log_files
from .columns import FEATURE, Column, Columns, Labels, Where, of_session, require_columns
from .features import (
    ENDED,
    LEFT,
    WENT_ON,
    Features,
    SessionColumn,
    ending_codes,
    limit_codes,
    person_numbers,
    person_values,
)
from .log_files import Paths

MISSING = ("error", "drop", "zero")
UNORDERED = -1  # position of every session of a log whose order in time is unknown
_DIGITS = re.compile(r"[0-9]+")
_CUT_BY_THE_END = 0.01  # share of sessions from events that may go on after the log: of more, no end is known


class ParsedLog(NamedTuple):
    """The columns of `Sessions`, in the same order; `Sessions` describes them."""

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


@dataclass(frozen=True)
class ReadOptions:
    """How rows become sessions."""

    arm_labels: Labels | None = None  # the table of labels, where it is known
    missing: str = "error"  # what a missing reward means: error, drop, zero
    at_most: int | None = None  # steps of a session that are kept, from its first
    gap: str | float | None = None  # the pause between two sessions of a person; None: sessions are given
    encoding: str = "utf-8"  # The encoding of text files.
    limit: int | None = None  # steps at which the log stops: shorter sessions left, and of the others nobody knows

    def __post_init__(self) -> None:
        check_fields(self, {"missing": OneOf(MISSING), "at_most": optional(COUNT), "limit": optional(COUNT)})

    @property
    def plain(self) -> bool:
        """Whether every row is a step that is kept."""
        return self.missing == "error" and self.at_most is None

    @property
    def pause(self) -> Gap | None:
        """The gap, read."""
        return None if self.gap is None else gap_of(self.gap)


def table(frame: Any, columns: Columns) -> Any:
    """The named columns of any data frame, as a pyarrow table."""
    import narwhals as nw
    import pyarrow as pa

    try:
        native = nw.from_native(frame, eager_only=True)
    except TypeError:
        remedy = "; a file is read by Sessions.read" if isinstance(frame, str | os.PathLike) else ""
        kind = type(frame).__name__
        raise InvalidData(f"frame must be a pandas, polars or pyarrow data frame, got {kind}{remedy}") from None
    names = require_columns(list(native.columns), columns)
    arrays = []
    for name in names:
        try:
            arrays.append(native.select(name).to_arrow().column(0))
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InvalidData(f"column {name!r} must hold values of one type: {error}") from None
    return pa.table(arrays, names=names)


def read(paths: Paths, columns: Columns, options: ReadOptions) -> list[ParsedLog]:
    """The logs of one or more files, batch by batch: one log, but each of our own files is a log of its own.

    In other files the same id is the same session, which may begin in one file and end in another; our own files
    number their sessions from 0.
    """
    files = log_files.listed(paths)
    notes = notes_of(files, columns, options)
    if notes is None:
        return [_read(files, columns, options, None)]
    return [_read([path], columns, options, note) for path, note in zip(files, notes, strict=True)]


def notes_of(files: Sequence[Path], columns: Columns, options: ReadOptions) -> list[log_files.Note] | None:
    """The notes of our own files; None where not all files are."""
    notes = [None if options.gap is not None else log_files.note_of(path, columns) for path in files]
    return None if any(note is None for note in notes) else [note for note in notes if note is not None]


def known_labels(notes: Sequence[log_files.Note] | None, options: ReadOptions) -> tuple[Labels | None, int]:
    """The table of labels that is known before a log is read, and the least number of arms."""
    if notes is None:
        return options.arm_labels, 0
    least = max(note.n_arms for note in notes)
    labels = notes[0].arm_labels
    for note in notes[1:]:
        labels = merged_labels(labels, note.arm_labels)
    return options.arm_labels or labels, least


def _read(files: list[Path], columns: Columns, options: ReadOptions, note: log_files.Note | None) -> ParsedLog:
    n_arms = None
    if note is not None:
        columns = {**columns, **note.columns}
        options = replace(options, arm_labels=options.arm_labels or note.arm_labels)
        n_arms = note.n_arms
    untyped = any(log_files.is_text(path) for path in files)
    places = log_files.Places()
    with log_files.reading(files[0]):
        found = log_files.batches(files, columns, options.encoding, places)
        return parse(found, columns, options, n_arms=n_arms, untyped=untyped, where=places)


def parse(
    batches: Iterable[Any],
    columns: Columns,
    options: ReadOptions,
    *,
    n_arms: int | None = None,
    untyped: bool = False,
    where: Where = "row {}".format,
) -> ParsedLog:
    """The sessions of record batches with one row per step."""
    gathered, others = _gathered(batches, columns, options, untyped, where)
    named = gathered["session" if options.pause is None else "person"]
    found = _sessions(gathered, columns, options.pause)
    order, offsets = found.order, found.offsets
    arms, labels = gathered.pop("arm").arms(options.arm_labels, n_arms or 0)
    size = len(labels) if labels is not None else max(n_arms or 0, int(arms.max()) + 1)
    rewards = gathered.pop("reward").numbers()
    propensities = gathered.pop("propensity").numbers() if "propensity" in gathered else None
    if order is not None:
        arms, rewards = arms[order], rewards[order]
        propensities = None if propensities is None else propensities[order]
    known = _known(others, found, named, options)
    log = ParsedLog(arms, rewards, offsets, size, propensities, labels, *known, _positions(found, named))
    if log.persons is not None and found.starts is not None:
        log = _in_time(log, found, options)
    elif log.persons is not None:
        _tell_disorder(log.persons, found.first_rows())
    return finished(log, columns, options)


def finished(log: ParsedLog, columns: Columns, options: ReadOptions) -> ParsedLog:
    """The log as the options want it: with the first steps of sessions, and without missing rewards."""
    if options.limit is not None:
        if log.endings is not None and options.gap is None:
            raise InvalidArgument("ended and limit must not be given together: both say how sessions ended")
        log = log._replace(endings=limit_codes(np.diff(log.offsets), options.limit))
    if options.at_most is not None:
        if log.endings is not None:
            cut = np.diff(log.offsets) > options.at_most
            log = log._replace(endings=np.where(cut, WENT_ON, log.endings).astype(np.uint8))
        log = _kept(log, step_numbers(log.offsets) < options.at_most)
    return log if options.missing == "error" else _without_missing(log, columns, options.missing)


class _Found(NamedTuple):
    """The sessions of a log: which rows they are, and when they took place where the log has times."""

    order: Integer[Array, "S"] | None  # The order of the rows; None: as they are.
    offsets: Integer[Array, "N1"]
    starts: Shaped[Array, "N"] | None = None  # time of the first and the last step
    ends: Shaped[Array, "N"] | None = None
    cut_by_the_end: float = 0.0  # share of sessions whose last event is less than the gap before the end of the log

    def first_rows(self, sessions: Any = slice(None)) -> Integer[Array, "n"]:
        """The rows that some sessions begin with."""
        first = self.offsets[:-1][sessions]
        return first if self.order is None else self.order[first]


def _known(
    others: dict[str, SessionColumn], found: _Found, named: Column, options: ReadOptions
) -> tuple[Features | None, Shaped[Array, "N"] | None, Integer[Array, "N"] | None]:
    """Features, persons and ends of the sessions."""
    n_sessions = len(found.offsets) - 1
    values = {}
    for role, column in others.items():
        values[role], mixed = column.of_sessions(found.order, found.offsets, last=role == "ended")
        if mixed.any():
            row = found.first_rows([int(mixed.argmax())])
            raise several_values(column.name, named.names(row).tolist()[0], by_events=options.pause is not None)
    features = {role.removeprefix(FEATURE): values[role] for role in values if role.startswith(FEATURE)}
    persons, endings = values.get("person"), values.get("ended")
    if options.pause is not None:
        persons = named.names(found.first_rows())
        if endings is None and found.cut_by_the_end <= _CUT_BY_THE_END:
            endings = np.full(n_sessions, ENDED[LEFT])
    return (
        Features.of(features, n_sessions) if features else None,
        None if persons is None else person_values(persons, n_sessions),
        None if endings is None else ending_codes(endings, n_sessions),
    )


def several_values(column: str, session: str | int | None, *, by_events: bool) -> InvalidData:
    """What is said of a column that changes within a session; None: nobody knows the name of the session."""
    what = "a session of person" if by_events else "session"
    where = "a session" if session is None else f"{what} {session!r}"
    return InvalidData(
        f"column {column!r} must have one value in a session, got several in {where}: give it per session, or leave "
        f"it out"
    )


def _in_time(log: ParsedLog, found: _Found, options: ReadOptions) -> ParsedLog:
    """The log with sessions in the order of time, where persons come back and the log has times."""
    starts, ends = found.starts, found.ends
    assert starts is not None
    assert ends is not None
    assert log.persons is not None
    persons = person_numbers(log.persons)
    order = np.argsort(starts, kind="stable") if options.pause is None else np.arange(len(starts))
    by_person = order[np.argsort(persons[order], kind="stable")]
    same = persons[by_person][1:] == persons[by_person][:-1]
    overlaps = int((same & (starts[by_person][1:] < ends[by_person][:-1])).sum())
    if overlaps:
        sessions = "1 session begins" if overlaps == 1 else f"{overlaps:,} sessions begin"
        _tell(
            f"{sessions} before the person's last one has ended: sessions of a person are in the order of their start"
        )
    if options.pause is not None:
        return log
    return (log if np.array_equal(order, np.arange(len(order))) else picked(log, order))._replace(positions=None)


def _positions(found: _Found, named: Column) -> Integer[Array, "N"] | None:
    """Return the position of each session in time; None if sessions are in this order, UNORDERED if it is unknown.

    Sessions are in the order of their ids. Times of their first steps decide; without times, numbers are assumed to
    rise with time, also as the only difference between texts ("v9" before "v10"). Sessions with other texts are in the
    order in which they begin in the log, unless the log is sorted by these texts, which says nothing about time.
    """
    n_sessions = len(found.offsets) - 1
    if found.starts is not None:
        return ranks(found.starts)
    ids = named.names(found.first_rows())
    if not isinstance(ids[0], str):
        return None
    numbers = numbers_in(ids.tolist())
    if numbers is not None:
        return ranks(np.lexsort(np.array(numbers, np.float64).T[::-1]).argsort())
    rows = found.first_rows()
    rising = bool((rows[1:] > rows[:-1]).all())
    return np.full(n_sessions, UNORDERED) if rising and n_sessions > 1 else ranks(rows)


def numbers_in(texts: Sequence[str]) -> list[tuple[int, ...]] | None:
    """Return the numbers in each text if the texts differ in nothing else, otherwise None.

    Examples:
        >>> numbers_in(["v9", "v10"]), numbers_in(["v9", "w10"]), numbers_in(["ann", "bob"])
        ([(9,), (10,)], None, None)
    """
    if len({_DIGITS.sub("#", text) for text in texts}) > 1 or not _DIGITS.search(texts[0]):
        return None
    return [tuple(map(int, _DIGITS.findall(text))) for text in texts]


def ranks(values: Shaped[Array, "N"]) -> Integer[Array, "N"] | None:
    """Return the position of each value in rising order, equal values as they come; None if they rise already.

    Examples:
        >>> import numpy as np
        >>> ranks(np.array([3, 1, 2])), ranks(np.array([1, 2, 3]))
        (array([2, 0, 1]), None)
    """
    order = np.argsort(values, kind="stable")
    return None if np.array_equal(order, np.arange(len(order))) else np.argsort(order)


def _tell_disorder(persons: Shaped[Array, "N"], rows: Integer[Array, "N"]) -> None:
    """Warn where the order of ids, which is that of the sessions, is not that of the rows for who comes back."""
    numbers = person_numbers(persons)
    by_person = np.argsort(numbers, kind="stable")
    same = numbers[by_person][1:] == numbers[by_person][:-1]
    count = int((same & (rows[by_person][1:] < rows[by_person][:-1])).sum())
    if count:
        sessions = "1 session is" if count == 1 else f"{count:,} sessions are"
        _tell(
            f"{sessions} taken after one of the same person that begins in a later row: the sessions of a person are "
            f"in the order of their ids, because the log has no times; name a column of times as the step, or give "
            f"sessions numbers that rise with time"
        )


def picked(log: ParsedLog, rows: Integer[Array, "n"]) -> ParsedLog:
    """Some sessions of a log, in the order of `rows`."""
    lengths = np.diff(log.offsets)[rows]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    steps = np.arange(offsets[-1]) + np.repeat(log.offsets[:-1][rows] - offsets[:-1], lengths)
    own = None if log.propensities is None else log.propensities[steps]
    log = log._replace(arms=log.arms[steps], rewards=log.rewards[steps], offsets=offsets, propensities=own)
    return _of_sessions(log, rows)


def _of_sessions(log: ParsedLog, rows: Any) -> ParsedLog:
    """The log with what is known of some sessions only."""
    return log._replace(
        features=None if log.features is None else log.features.take(rows),
        persons=None if log.persons is None else log.persons[rows],
        endings=None if log.endings is None else log.endings[rows],
        positions=None if log.positions is None else log.positions[rows],
    )


def _gathered(
    batches: Iterable[Any], columns: Columns, options: ReadOptions, untyped: bool, where: Where
) -> tuple[dict[str, Column], dict[str, SessionColumn]]:
    """All rows of the columns of steps, and of those that say something of whole sessions, by role."""
    may_miss = options.missing != "error"
    named = {role: name for role, name in columns.items() if name is not None}
    whole = {role for role in named if of_session(role) and not (role == "person" and options.gap is not None)}
    gathered = {
        role: Column(name, role, where, untyped=untyped, missing=may_miss and role == "reward")
        for role, name in named.items()
        if role not in whole
    }
    others = {
        role: SessionColumn(name, untyped=untyped, ids=role == "person")
        for role, name in named.items()
        if role in whole
    }
    labels = options.arm_labels
    gathered["arm"].untyped &= labels is None or isinstance(labels[0], int)
    n_rows = 0
    for batch in batches:
        for column in gathered.values():
            column.add(batch.column(column.name), n_rows)
        for other in others.values():
            other.add(batch.column(other.name))
        n_rows += batch.num_rows
    if n_rows == 0:
        raise InvalidData("the log must have at least one row, got none")
    return gathered, others


def _sessions(gathered: dict[str, Column], columns: Columns, pause: Gap | None) -> _Found:
    """Which rows are which sessions; the columns that say so are taken out."""
    keys = gathered.pop("session" if pause is None else "person").ids()
    within = "step" if pause is None else "time"
    column = gathered.pop(within, None)
    steps = None if column is None else column.ids()
    order = _order(keys, steps)
    if order is not None:
        keys = keys[order]
        steps = None if steps is None else steps[order]
    if steps is not None:
        _tell_ties(keys, steps, columns[within])
    if pause is None:
        first, cut = np.concatenate([[True], keys[1:] != keys[:-1]]), 0.0
    else:
        assert column is not None
        assert steps is not None
        seconds, guessed = (column.seconds, None) if column.seconds is not None else unit_of(steps, pause)
        if guessed is not None:
            _tell(f"the numbers in column {column.name!r} are taken as {guessed}, because they are so large")
        first = breaks(keys, steps, pause, seconds)
        last = steps[np.append(first[1:], True)]
        cut = float(((steps.max() - last).astype(np.float64) * seconds < pause.size).mean())
    offsets = np.append(np.flatnonzero(first), len(keys))
    if steps is None or column is None or (pause is None and column.seconds is None):
        return _Found(order, offsets)
    return _Found(order, offsets, steps[offsets[:-1]], steps[offsets[1:] - 1], cut)


def _tell_ties(keys: Shaped[Array, "S"], steps: Shaped[Array, "S"], name: str | None) -> None:
    tell_ties(int(((keys[1:] == keys[:-1]) & (steps[1:] == steps[:-1])).sum()), name)


def tell_ties(ties: int, name: str | None) -> None:
    """Warn of rows with the same step, where there are some."""
    if ties:
        _tell(ties_words(ties, name))


def ties_words(ties: int, name: str | None) -> str:
    """What is said about rows with the same step."""
    rows = "1 row has" if ties == 1 else f"{ties:,} rows have"
    return f"{rows} the same {name!r} as the row before in the same session: such rows keep their order in the log"


def _tell(message: str) -> None:
    warnings.warn(message, LmabWarning, stacklevel=2)


def _without_missing(log: ParsedLog, columns: Columns, missing: str) -> ParsedLog:
    """Steps without a reward, NaN until here, are dropped or paid 0.

    A step without a reward still was a step: where weights are made from propensities, a session ends before it,
    because the weights of later steps need every step before them.
    """
    gone = np.isnan(log.rewards)
    n_gone = int(gone.sum())
    if n_gone == 0:
        return log
    if missing == "zero":
        _tell(missing_words(n_gone, 0, columns["reward"], missing))
        return log._replace(rewards=np.where(gone, 0.0, log.rewards))
    gone = dropped(gone, log.offsets, ends_session=log.propensities is not None)
    if gone.all():
        raise InvalidData(f"column {columns['reward']!r} must hold a reward that can be used, got none")
    _tell(missing_words(n_gone, int(gone.sum()), columns["reward"], missing))
    return _kept(log, ~gone)


def missing_words(n_missing: int, n_left_out: int, name: str | None, missing: str) -> str:
    """What is said about steps without a reward."""
    steps = "1 step has" if n_missing == 1 else f"{n_missing:,} steps have"
    what = "a reward of 0 is assumed" if missing == "zero" else f"{n_left_out:,} steps are left out"
    return f"{steps} no reward in column {name!r}: {what}"


def dropped(missing: Bool[Array, "S"], offsets: Integer[Array, "N1"], *, ends_session: bool) -> Bool[Array, "S"]:
    """The steps that are left out because their reward is missing, and with `ends_session` those after them."""
    if not ends_session:
        return missing
    so_far = np.cumsum(missing)
    return so_far > np.repeat(so_far[offsets[:-1]] - missing[offsets[:-1]], np.diff(offsets))


def _kept(log: ParsedLog, kept: Bool[Array, "S"]) -> ParsedLog:
    """The log with some of its steps; sessions that keep none are gone."""
    lengths = np.add.reduceat(kept.astype(np.int64), log.offsets[:-1])
    offsets = np.concatenate([[0], np.cumsum(lengths[lengths > 0])])
    propensities = None if log.propensities is None else log.propensities[kept]
    log = log._replace(arms=log.arms[kept], rewards=log.rewards[kept], offsets=offsets, propensities=propensities)
    return log if lengths.all() else _of_sessions(log, lengths > 0)


def merged_labels(first: Labels | None, second: Labels | None) -> Labels | None:
    """The labels of two logs, those of the first in front; logs of which only one has labels raise."""
    if first is None and second is None:
        return None
    if first is None or second is None:
        raise InvalidArgument("both logs must have arm labels, or none; got one with and one without")
    return tuple(dict.fromkeys((*first, *second)))


def write(path: str | os.PathLike[str], log: ParsedLog) -> None:
    """Write `log` as Parquet or CSV; a Parquet file also stores the table of labels and the number of arms."""
    import pyarrow as pa

    lengths = np.diff(log.offsets)
    arms: Any = pa.array(log.arms)
    if log.arm_labels is not None:
        arms = pa.DictionaryArray.from_arrays(arms, pa.array(log.arm_labels)).dictionary_decode()
    ordered = log.positions is None or UNORDERED in log.positions
    numbers = np.arange(len(lengths)) if ordered or log.positions is None else log.positions
    data = {
        "session": np.repeat(numbers, lengths),
        "step": step_numbers(log.offsets),
        "arm": arms,
        "reward": log.rewards,
    }
    owner = np.repeat(np.arange(len(lengths)), lengths)
    if log.propensities is not None:
        data["propensity"] = log.propensities
    roles = {"step": "step"} | ({"propensity": "propensity"} if log.propensities is not None else {})
    for role, column in _columns_of_sessions(log).items():
        roles[role] = role.removeprefix(FEATURE)
        if roles[role] in data:
            raise InvalidArgument(f"features must have other names than the columns of a log, got {roles[role]!r}")
        data[roles[role]] = pa.array(column, from_pandas=True).take(pa.array(owner))
    labels = None if log.arm_labels is None else list(log.arm_labels)
    log_files.write(path, pa.table(data), {"columns": roles, "n_arms": log.n_arms, "arm_labels": labels})


def _columns_of_sessions(log: ParsedLog) -> dict[str, Shaped[Array, "N"]]:
    """What is known of sessions, by role."""
    found: dict[str, Shaped[Array, "N"]] = {}
    if log.persons is not None:
        found["person"] = log.persons
    if log.endings is not None:
        found["ended"] = np.array(ENDED, object)[log.endings]
    return found | {FEATURE + name: column for name, column in (log.features or {}).items()}


def step_numbers(offsets: Integer[Array, "N1"]) -> Integer[Array, "S"]:
    """The number of every step within its session, from 0."""
    return np.arange(offsets[-1]) - np.repeat(offsets[:-1], np.diff(offsets))


def _order(keys: Shaped[Array, "S"], steps: Shaped[Array, "S"] | None) -> Integer[Array, "S"] | None:
    """The permutation that sorts rows by session and step, equals in their order; None where they are sorted."""
    rising = keys[1:] > keys[:-1]
    same = keys[1:] == keys[:-1]
    if steps is None:
        return None if bool((rising | same).all()) else np.argsort(keys, kind="stable")
    if bool((rising | (same & (steps[1:] >= steps[:-1]))).all()):
        return None
    return _sort_pairs(keys, steps)


def _sort_pairs(keys: Shaped[Array, "S"], steps: Shaped[Array, "S"]) -> Integer[Array, "S"]:
    """argsort by (key, step); where the pair fits into 64 bits, one integer sort, which is several times faster."""
    if keys.dtype.kind in "iu" and steps.dtype.kind in "iu":
        low_key, low_step = int(keys.min()), int(steps.min())
        width = int(steps.max()) - low_step + 1
        if (int(keys.max()) - low_key + 1) * width < 2**63:
            pairs = _above(keys, low_key)
            pairs *= width
            pairs += _above(steps, low_step)
            return np.argsort(pairs, kind="stable")
    return np.lexsort((steps, keys))


def _above(numbers: Integer[Array, "S"], low: int) -> Integer[Array, "S"]:
    """numbers - low: the difference fits into 64 bits even where the numbers do not."""
    wide = numbers if numbers.dtype.itemsize == 8 else numbers.astype(np.int64)
    return (wide - low).astype(np.int64)


_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_EPOCHS = ((1e17, 1e-9, "nanoseconds"), (1e14, 1e-6, "microseconds"), (1e11, 1e-3, "milliseconds"))


class Gap(NamedTuple):
    """The pause that ends a session."""

    size: float
    in_seconds: bool  # else in the units of a column of numbers


def gap_of(gap: str | float) -> Gap:
    """The pause that `gap` describes: `30m`, `90s`, `2h`, `1d`, or a number in the units of the column.

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


def unit_of(times: Shaped[Array, "S"], gap: Gap) -> tuple[float, str | None]:
    """Seconds per unit of a column of numbers; the unit's name where it was guessed from the size of the numbers."""
    if gap.in_seconds and len(times):
        top = float(np.abs(times.astype(np.float64)).max())
        for least, seconds, name in _EPOCHS:
            if top > least:
                return seconds, name
    return 1.0, None


def breaks(persons: Shaped[Array, "S"], times: Shaped[Array, "S"], gap: Gap, seconds: float) -> Bool[Array, "S"]:
    """Whether each event, in the order of persons and times, begins a session.

    Examples:
        >>> import numpy as np
        >>> breaks(np.array([1, 1, 1, 2]), np.array([0, 10, 40, 41]), Gap(30.0, True), 1.0)
        array([ True, False,  True,  True])
    """
    pauses = np.diff(times).astype(np.float64) * seconds
    return np.concatenate([[True], (persons[1:] != persons[:-1]) | (pauses >= gap.size)])
