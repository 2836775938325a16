"""Rows of a log, batch by batch: ids, arms and rewards of a batch as numbers of dictionaries that grow.

Logs that are sorted by session are read in one pass into arrays that grow in place (`read_logs`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from .._shapes import Array, Bool, Float, Integer, Shaped
from ..errors import InvalidData, LmabError
from . import ingest, log_files
from .columns import FEATURE, Column, Columns, arm_numbers, as_numpy, by_place, of_session
from .features import coded_values, ending_codes, person_ids, person_values
from .ingest import ParsedLog, ReadOptions
from .log_files import Paths


def mixed(words: Shaped[Array, "*n"]) -> Shaped[Array, "*n"]:
    """Each word of 64 bits, mixed so that every bit depends on all bits (the mixer of SplitMix64)."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


MISSING = 0xFFFF  # the place of a reward that is missing
MAX_VALUES = 4096  # distinct rewards that are still listed; more are kept as numbers
_SMALL = 1 << 16  # arms that are integers below this are their own places
_FEW = 6  # values that are compared one by one
_MAX_FEATURE_ROWS = 1 << 20  # distinct rows of features of a packed log
_STEP_BYTES = 48  # Bytes of a text that orders the rows of a session, at most.


class Change(LmabError):
    """What was assumed about the log does not hold, and packing begins again with another `Way`; never seen outside."""

    def __init__(self, **changes: Any) -> None:
        super().__init__(str(changes))
        self.changes = changes


class Several(LmabError):
    """The rows of a session disagree in a column that has one value in a session; never seen outside."""

    def __init__(self, feature: int | None, place: int | Integer[Array, "two"] = 0) -> None:
        super().__init__(f"feature {feature}")
        self.feature = feature  # Its number among the features; None: the person.
        self.place = place  # Of the session among those looked at; outside, its row, or two words of a hash.


@dataclass(frozen=True)
class Way:
    """How a log is packed; it begins with the cheapest way, and a log that is not so changes it."""

    split: bool = False  # sessions are put together by a hash of their ids, because rows are not sorted by them
    small_arms: bool = True  # arms are small integers
    listed: bool = True  # distinct rewards are few
    integers: bool = True  # ids in files without types are integers
    whole_steps: bool = True  # what orders the rows of a session is integers
    text_steps: bool = False  # it is text, in the order of its bytes; only where `split`


@dataclass(frozen=True, eq=False)
class Rows:
    """Some consecutive rows."""

    first: int  # number of the first row in the log
    ids: Shaped[Array, "i *two"]  # numbers, or two words of a hash in columns where `Way.split`
    steps: Shaped[Array, "n"] | None  # what orders the rows of a session
    arms: Integer[Array, "n"]  # places in `Dictionaries.arms`
    rewards: Shaped[Array, "n"]  # places in `Dictionaries.values`; numbers where these are not listed
    propensities: Float[Array, "n"] | None
    known: dict[str, Array] = field(default_factory=dict)  # What each row says of its session.
    file: int = 0  # The number of the file, where each file numbers its sessions.


@dataclass
class Dictionaries:
    """Arms and rewards in the order in which they were seen."""

    arms: list[str | int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    text_ids: bool | None = None  # whether sessions are named by text; None: not known yet
    features: list[list[Any]] = field(default_factory=list)  # distinct rows of features
    seconds: float | None = None  # per unit, of a column of times of events or steps; None: numbers
    latest: float = 0.0  # the largest number in a column of times

    def __post_init__(self) -> None:
        self._places = {label: place for place, label in enumerate(self.arms)}
        self._feature_places = {tuple(row): place for place, row in enumerate(self.features)}
        self._seen = np.zeros(_SMALL, bool)
        self._seen[[label for label in self.arms if isinstance(label, int) and 0 <= label < _SMALL]] = True
        self._full = 0  # all small integers below it were seen

    def arm_places(self, numbers: Shaped[Array, "n"], texts: Any, *, small: bool) -> Integer[Array, "n"]:
        """Places of arms, which are numbers, or texts with a code for each row.

        Where all arms are assumed to be `small` integers, they are their own places.
        """
        if small:
            if texts is not None or numbers.min() < 0 or (top := int(numbers.max())) >= _SMALL:
                raise Change(small_arms=False)
            if top >= self._full:
                self._seen[numbers] = True
                self.arms[:] = np.flatnonzero(self._seen).tolist()
                self._full = int(self._seen.argmin()) or (_SMALL if self._seen[0] else 0)
            return numbers.astype(np.uint16)
        if texts is not None:
            self._require_kind(str)
            return np.array([self._place(label) for label in texts.to_pylist()], np.int32)[numbers]
        self._require_kind(int)
        labels, back = np.unique(numbers, return_inverse=True)
        return np.array([self._place(label) for label in labels.tolist()], np.int32)[back]

    def feature_place(self, row: tuple[Any, ...]) -> int:
        """The place of a row of features among the distinct ones."""
        place = self._feature_places.setdefault(row, len(self.features))
        if place == len(self.features):
            if place >= _MAX_FEATURE_ROWS:
                raise InvalidData(
                    f"features must have at most {_MAX_FEATURE_ROWS:,} distinct rows to be packed, got more: cut "
                    f"numbers into a few values, or leave a column out"
                )
            self.features.append(list(row))
        return place

    def joined(self, first: int, second: int) -> int:
        """The place of what two rows of features say together: a missing value says nothing."""
        pairs = list(zip(self.features[first], self.features[second], strict=True))
        for feature, (one, other) in enumerate(pairs):
            if None not in (one, other) and one != other:
                raise Several(feature)
        return self.feature_place(tuple(other if one is None else one for one, other in pairs))

    def _place(self, label: str | int) -> int:
        place = self._places.setdefault(label, len(self.arms))
        if place == len(self.arms):
            self.arms.append(label)
        return place

    def _require_kind(self, kind: type) -> None:
        if self.arms and not isinstance(self.arms[0], kind):
            raise InvalidData("the column of the arm must hold text or numbers in all files, got text in some only")

    def note_ids(self, text: bool, name: str) -> None:
        """Sessions are named by text, or by numbers, in all files."""
        if self.text_ids is not None and self.text_ids != text:
            raise InvalidData(f"column {name!r} must hold text or numbers in all files, got text in some only")
        self.text_ids = text

    def value_places(self, rewards: Float[Array, "n"]) -> Integer[Array, "n"]:
        """Places of rewards; NaN, where missing ones are allowed, is `MISSING`."""
        places, known = self._known_places(rewards)
        if not known.all():
            fresh = np.unique(rewards[~known & ~np.isnan(rewards)]) + 0.0
            if len(self.values) + len(fresh) > MAX_VALUES:
                raise Change(listed=False)
            self.values += fresh.tolist()
            places, known = self._known_places(rewards)
            if not known.all():
                places = np.where(known, places, np.uint16(MISSING))
        return places

    def _known_places(self, rewards: Float[Array, "n"]) -> tuple[Integer[Array, "n"], Bool[Array, "n"]]:
        """Places of the rewards that are in the dictionary, and which are; a few comparisons are fastest."""
        if len(self.values) <= _FEW:
            here = [rewards == value for value in self.values]
            known, places = np.zeros(len(rewards), bool), np.zeros(len(rewards), np.uint8)
            for place, one in enumerate(here):
                known |= one
                if place:
                    places += one if place == 1 else one * np.uint8(place)
            return places, known
        values = np.array(self.values)
        order = np.argsort(values)
        index = order[np.minimum(np.searchsorted(values, rewards, sorter=order), len(values) - 1)]
        return index.astype(np.uint16), values[index] == rewards


Last = tuple[Any, Any, int]  # id, step and file of a row


def beginnings(rows: Rows, last: Last | None) -> tuple[Bool[Array, "n"], Bool[Array, "n"], Last]:
    """Which rows begin a session, and which have the step of the row before; and the last row.

    `last` is the row before. Rows that are not sorted by session, and within it by step, raise `Change`.
    """
    ids, steps = rows.ids, rows.steps
    fresh = np.ones(len(ids), bool)
    np.not_equal(ids[1:], ids[:-1], out=fresh[1:])
    wrong = bool((ids[1:] < ids[:-1]).any())
    if last is not None and rows.file == last[2]:
        fresh[0] = ids[0] != last[0]
        wrong |= bool(ids[0] < last[0])
    tied = np.zeros(len(ids), bool)
    if steps is not None:
        before = np.concatenate([[last[1] if last is not None else 0], steps[:-1]])
        wrong |= bool(((steps < before) & ~fresh).any())
        tied = (steps == before) & ~fresh
    if wrong:
        raise Change(split=True)
    return fresh, tied, (ids[-1].item(), None if steps is None else steps[-1].item(), rows.file)


def read_rows(
    files: Sequence[Path],
    notes: Sequence[log_files.Note] | None,
    columns: Columns,
    options: ReadOptions,
    way: Way,
    known: Dictionaries,
    skip: int,
) -> Iterator[Rows]:
    """The rows of all files from row `skip` on; `notes`: of our own files, each of which is a log of its own."""
    places = log_files.Places()
    roles = {role: name for role, name in columns.items() if name is not None}
    for note in notes or ():
        roles.update(note.columns)
    untyped = any(log_files.is_text(path) for path in files)
    may_miss = options.missing != "error"
    whole = {role: name for role, name in roles.items() if of_session(role) and not (role == "person" and options.gap)}
    found = {
        role: Column(name, role, places, untyped=untyped, missing=may_miss and role == "reward")
        for role, name in roles.items()
        if role not in whole
    }
    ends = np.cumsum([log_files.rows_of(path) for path in files]) if notes else np.empty(0)
    row = skipped = 0
    for path in files if skip else ():
        if log_files.kind_of(path) != "Parquet" or skipped + log_files.rows_of(path) > skip:
            break
        row = skipped = skipped + log_files.rows_of(path)
    with log_files.reading(files[0]):
        for batch in log_files.batches(files, roles, options.encoding, places, skip=skip):
            start, row = row, row + batch.num_rows
            if row <= skip or batch.num_rows == 0:
                continue
            if start < skip:
                batch, start = batch.slice(skip - start), skip
            for column in found.values():
                column.add(batch.column(column.name), start)
            file = int(np.searchsorted(ends, start, side="right")) if notes else 0
            of_batch = {role: batch.column(name) for role, name in whole.items()}
            rows = _rows(found, start, file, way, known, untyped)
            yield replace(rows, known=_known(of_batch, known) | rows.known)


def session_name(
    files: Sequence[Path], columns: Columns, options: ReadOptions, way: Way, place: int | Integer[Array, "two"]
) -> str | int | None:
    """What the log calls a session that has a row of that number, or these two words of a hash."""
    role = "person" if options.gap is not None else "session"
    untyped, places = any(log_files.is_text(path) for path in files), log_files.Places()
    column, row = Column(str(columns[role]), role, places, untyped=untyped), 0
    for batch in log_files.batches(files, {role: columns[role]}, options.encoding, places):
        column.add(batch.column(column.name), row)
        start, row = row, row + batch.num_rows
        if row == start:
            continue
        numbers, texts = column.take()
        ids = _ids(numbers, texts, way, untyped, 0)
        here = np.arange(start, row) == place if isinstance(place, int) else (ids == place).all(axis=1)
        if here.any():
            found = numbers[int(here.argmax())].item()
            return found if texts is None else texts[found].as_py()
    return None


def _known(of_batch: dict[str, Any], known: Dictionaries) -> dict[str, Array]:
    """What the rows of a batch say of their sessions: places of features, ids of persons, and how sessions ended."""
    result: dict[str, Array] = {}
    features = [
        coded_values(role.removeprefix(FEATURE), of_batch[role]) for role in of_batch if role.startswith(FEATURE)
    ]
    if features:
        codes = np.stack([codes for codes, _ in features], axis=1)
        distinct, back = np.unique(codes, axis=0, return_inverse=True)
        rows = [
            tuple(values[code] for code, (_, values) in zip(row, features, strict=True)) for row in distinct.tolist()
        ]
        result["features"] = np.array([known.feature_place(row) for row in rows], np.uint32)[back.ravel()]
    if "person" in of_batch:
        codes, values = coded_values("person", of_batch["person"], ids=True)
        result["persons"] = person_ids(person_values(values, len(values)))[codes]
    if "ended" in of_batch:
        codes, values = coded_values("ended", of_batch["ended"])
        result["endings"] = ending_codes(np.array(values, object), len(values))[codes]
    return result


def _rows(found: dict[str, Column], first: int, file: int, way: Way, known: Dictionaries, untyped: bool) -> Rows:
    taken = {role: column.take() for role, column in found.items()}
    by_events = "person" in taken
    within = taken.get("time" if by_events else "step")
    if within is not None:
        known.seconds = found["time" if by_events else "step"].seconds
    if by_events:
        known.latest = max(known.latest, float(np.abs(within[0].astype(np.float64)).max()))  # type: ignore[index]
    name = "person" if by_events else "session"
    known.note_ids(taken[name][1] is not None, found[name].name)
    ids = _ids(*taken[name], way, untyped, file)
    steps = None if within is None else _steps(*within, found["time" if by_events else "step"].name, way, untyped)
    rewards = taken["reward"][0]
    propensities = taken["propensity"][0] if "propensity" in taken else None
    arms = known.arm_places(*taken["arm"], small=way.small_arms)
    places = known.value_places(rewards) if way.listed else rewards
    persons = {"persons": _person_ids(*taken[name])} if by_events else {}
    return Rows(first, ids, steps, arms, places, propensities, persons, file)


def _person_ids(numbers: Shaped[Array, "n"], texts: Any) -> Integer[Array, "n"]:
    """Integers themselves, and 64 bits of a hash of texts."""
    if texts is None:
        return numbers.astype(np.int64)
    return person_ids(np.array(texts.to_pylist(), object))[numbers]


def _wide(numbers: Shaped[Array, "n"]) -> Shaped[Array, "n"]:
    return numbers.astype(np.float64 if numbers.dtype.kind == "f" else np.int64)


def _steps(numbers: Shaped[Array, "n"], texts: Any, name: str, way: Way, untyped: bool) -> Shaped[Array, "n"]:
    """What orders the rows of a session, as `ingest.read` orders them: numbers, or text by its bytes."""
    if texts is not None and untyped and not way.text_steps:
        numbers, texts = _as_integers(numbers, texts)
    if texts is None:
        if way.text_steps:
            raise InvalidData(f"column {name!r} must hold text or numbers in all files, got text in some only")
        if way.whole_steps and numbers.dtype.kind == "f":
            raise Change(whole_steps=False)
        return numbers.astype(np.int64 if way.whole_steps else np.float64)
    if not way.text_steps:
        raise Change(text_steps=True, split=True)
    words = [text.encode() for text in texts.to_pylist()]
    if max(map(len, words)) > _STEP_BYTES:
        longest = max(words, key=len).decode()
        raise InvalidData(
            f"column {name!r} must hold text of at most {_STEP_BYTES} bytes to be packed, got {longest!r}"
        )
    return np.array(words, f"S{_STEP_BYTES}")[numbers]


def _as_integers(numbers: Shaped[Array, "n"], texts: Any) -> tuple[Shaped[Array, "n"], Any]:
    """Numbers, where all texts of a file without types stand for integers; else codes and texts as they were."""
    import pyarrow as pa

    try:
        return as_numpy(texts.cast(pa.int64()))[numbers], None
    except pa.ArrowInvalid:
        return numbers, texts


def _ids(numbers: Shaped[Array, "n"], texts: Any, way: Way, untyped: bool, file: int) -> Shaped[Array, "..."]:
    """Ids as numbers; where `way.split`, as 128 bits that are the same for the same id."""
    if texts is not None and untyped and way.integers:
        numbers, texts = _as_integers(numbers, texts)
        if texts is not None:
            raise Change(integers=False)
    if not way.split:
        if texts is not None:
            raise Change(split=True)
        return numbers
    if texts is None:
        words = _wide(numbers) + 0  # -0.0 is 0.0
        first = mixed(words.view(np.uint64) ^ np.uint64(file))
        return np.stack([first, mixed(first ^ words.view(np.uint64))], axis=1)
    digests = [hashlib.blake2b(text.encode(), digest_size=16).digest() for text in texts.to_pylist()]
    return np.frombuffer(b"".join(digests), np.uint64).reshape(-1, 2)[numbers]


_ROWS = 1 << 20  # rows for which arrays grow at least


class _Growing:
    """An array that grows in place, so that it is in memory once."""

    def __init__(self, dtype: type, n_rows: int) -> None:
        self._array: Array = np.empty(n_rows, dtype)
        self._size = 0

    def add(self, values: Shaped[Array, "n"]) -> None:
        end = self._size + len(values)
        if end > len(self._array):
            self._array.resize(max(end, len(self._array) + max(len(self._array) // 8, _ROWS)), refcheck=False)
        self._array[self._size : end] = values
        self._size = end

    def end(self) -> Shaped[Array, "s"]:
        self._array.resize(self._size, refcheck=False)
        return self._array


def of_sessions(notes: Sequence[log_files.Note] | None, columns: Columns) -> dict[str, str]:
    """The columns that say something of whole sessions, by role: those asked for, and those in our own files."""
    found = {role: name for role, name in columns.items() if name is not None}
    for note in notes or ():
        found |= note.columns
    return {role: name for role, name in found.items() if of_session(role)}


def read_logs(paths: Paths, columns: Columns, options: ReadOptions) -> list[ParsedLog]:
    """What `ingest.read` gives, with less memory where the log allows it.

    Whatever is unusual about a log, errors included, is left to `ingest.read`.
    """
    files = log_files.listed(paths)
    way = Way(listed=False)
    for _ in range(2):
        try:
            return [_sorted(files, columns, options, way)]
        except Change as change:
            if change.changes != {"small_arms": False}:
                break
            way = replace(way, small_arms=False)
        except LmabError:
            break
    return ingest.read(paths, columns, options)


def _sorted(files: Sequence[Path], columns: Columns, options: ReadOptions, way: Way) -> ParsedLog:
    notes = ingest.notes_of(files, columns, options)
    if options.limit is not None or of_sessions(notes, columns):
        raise Change(split=True)  # what is known of sessions takes the usual way
    untyped = any(log_files.is_text(path) for path in files)
    expected = 0 if untyped else sum(log_files.rows_of(path) for path in files if log_files.kind_of(path) == "Parquet")
    labels, least = ingest.known_labels(notes, options)
    known, ties = Dictionaries(), 0
    last: Last | None = None
    arms, rewards, starts = _Growing(np.int32, expected), _Growing(np.float64, expected), _Growing(np.int64, 0)
    own, times = _Growing(np.float64, 0), list[Shaped[Array, "k"]]()
    has_own = False
    for rows in read_rows(files, notes, columns, options, way, known, 0):
        fresh, tied, last = beginnings(rows, last)
        ties += int(tied.sum())
        arms.add(rows.arms)
        rewards.add(rows.rewards)
        starts.add(rows.first + np.flatnonzero(fresh))
        if rows.steps is not None and known.seconds is not None:
            times.append(rows.steps[fresh])
        has_own = rows.propensities is not None
        if rows.propensities is not None:
            own.add(rows.propensities)
    if last is None:
        raise Change(split=True)  # no rows: said elsewhere
    numbers, n_arms, labels = arm_numbers(known.arms, labels, least, str(columns["arm"]), untyped=untyped)
    found = _renumbered(arms.end(), known, numbers, way)
    starts.add(np.array([len(found)]))
    step = notes[0].columns.get("step") if notes else columns.get("step")
    ingest.tell_ties(ties, step)
    positions = ingest.ranks(np.concatenate(times)) if times else None
    log = ParsedLog(
        found, rewards.end(), starts.end(), n_arms, own.end() if has_own else None, labels, positions=positions
    )
    return ingest.finished(log, columns, options)


def _renumbered(
    places: Shaped[Array, "s"], known: Dictionaries, numbers: Shaped[Array, "a"], way: Way
) -> Shaped[Array, "s"]:
    """Arms by their numbers, in place."""
    table = by_place(known.arms, numbers) if way.small_arms else numbers  # type: ignore[arg-type]
    if not np.array_equal(table, np.arange(len(table))):
        for start in range(0, len(places), _ROWS):
            chunk = places[start : start + _ROWS]
            chunk[:] = table[chunk]
    return places
