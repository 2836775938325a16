"""The work of packing: rows become units of whole sessions, and units become partitions of the packed log.

The folder of the work lies inside the folder of the packed log. Its state is replaced as a whole after each unit of
work, and what a unit writes counts only once the state says so; a run that was killed goes on where it was.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from .._shapes import Array, Bool, Float, Integer, Shaped
from ..errors import InvalidFile, first_line
from .features import STRANGER, WENT_ON, Features, limit_codes
from .fingerprint import known_words, word_sums
from .ingest import ReadOptions, breaks, dropped, step_numbers, unit_of
from .packed import CODES, LENGTHS, OF_SESSIONS, PROPENSITIES, REWARDS, Entry
from .rows import MISSING, Dictionaries, Rows, Several, Way, beginnings

WORK = ".packing"
_STATE = "state.json"


@dataclass
class PackState:
    """How far the work has come."""

    signature: str  # which files, read how
    way: Way = field(default_factory=Way)
    row: int = 0  # rows that are taken care of
    gathered: bool = False  # all rows are
    units: list[dict[str, Any]] = field(default_factory=list)  # Units of rows: sorted sessions, or buckets to sort.
    sealed: list[dict[str, Any]] = field(default_factory=list)  # partitions that are written
    unused: list[float] = field(default_factory=list)  # values that no step is left with
    last: list[Any] = field(default_factory=list)  # id, step and file of the last row
    ties: int = 0  # rows with the same step as the row before
    disorder: bool = False  # whether somebody's next session begins at an earlier step, which is a time then
    known: Dictionaries = field(default_factory=Dictionaries)


@dataclass(frozen=True)
class Work:
    """The folder of the work."""

    target: Path

    @property
    def folder(self) -> Path:
        return self.target / WORK

    def begin(self, signature: str) -> PackState:
        """The state that an earlier run of the same work left, or a fresh one."""
        try:
            found = json.loads((self.folder / _STATE).read_text())
            if found["signature"] == signature:
                way, known = Way(**found.pop("way")), Dictionaries(**found.pop("known"))
                return PackState(**found, way=way, known=known)
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return self.restart(PackState(signature))

    def restart(self, state: PackState) -> PackState:
        """A fresh beginning with the same signature and way."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        fresh = PackState(state.signature, state.way)
        self.save(fresh)
        return fresh

    def save(self, state: PackState) -> None:
        replace_text(self.folder / _STATE, json.dumps(asdict(state)))

    def end(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def replace_text(path: Path, text: str) -> None:
    """Write a file as a whole: a reader sees the old file or the new one."""
    temporary = path.with_name(path.name + ".partial")
    with open(temporary, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn an error of the disk into a message that says what to do."""
    try:
        yield
    except OSError as error:
        raise InvalidFile(
            f"{folder}: cannot write here: {first_line(error)}; nothing half-written is ever read, and packing the "
            f"same log again goes on where it was"
        ) from None


PARTITION = 1 << 24  # steps of a partition
_SPILL = 1 << 20  # rows that are sorted into buckets together
_BUCKET = 1 << 22  # rows of a bucket, about
_MAX_BUCKETS = 1024


class Gatherer(Protocol):
    """Takes rows in their order."""

    def add(self, rows: Rows) -> None: ...

    def finish(self) -> None:
        """No more rows follow."""


@dataclass
class Stream:
    """Rows sorted by session go straight into units, which end where a session ends."""

    work: Work
    state: PackState
    _rows: list[Rows] = field(default_factory=list)
    _fresh: list[Bool[Array, "n"]] = field(default_factory=list)
    _tied: list[Bool[Array, "n"]] = field(default_factory=list)
    _starts: list[Shaped[Array, "k"]] = field(default_factory=list)  # Steps that sessions of known persons begin with.
    _size: int = 0

    def add(self, rows: Rows) -> None:
        fresh, tied, row = beginnings(rows, tuple(self.state.last) or None)
        if rows.steps is not None and "persons" in rows.known:
            self._starts.append(rows.steps[fresh])
        self.state.last = list(row)
        self._fresh.append(fresh)
        self._tied.append(tied)
        self._rows.append(replace(rows, ids=rows.ids[:0], steps=None))  # only the order of rows needed them
        self._size += len(rows.arms)
        if self._size >= PARTITION:
            fresh = np.concatenate(self._fresh)
            last = len(fresh) - 1 - int(fresh[::-1].argmax())
            if last > 0:
                self._emit(fresh, last)

    def finish(self) -> None:
        if self._size:
            fresh = np.concatenate(self._fresh)
            self._emit(fresh, len(fresh))

    def _emit(self, fresh: Bool[Array, "n"], end: int) -> None:
        """Write the first `end` rows as a unit; the others wait for their session's end."""
        kept = [self._tail(end)] if end < len(fresh) else []
        unit: dict[str, str] = {}
        name = f"{len(self.state.units):05d}"
        starts = np.append(np.flatnonzero(fresh[:end]), end)
        self._write(unit, name, "lengths", np.diff(starts), narrow=True)
        self._write(unit, name, "arms", self._column("arms", end), narrow=True)
        self._write(unit, name, "rewards", self._column("rewards", end), narrow=self.state.way.listed)
        if self._rows[0].propensities is not None:
            self._write(unit, name, "propensities", self._column("propensities", end))
        for column in self._rows[0].known:
            values = np.concatenate([rows.known[column] for rows in self._rows])[:end]
            try:
                values = of_sessions(column, values, starts, self.state.known)
            except Several as several:
                raise Several(several.feature, self._rows[0].first + int(starts[several.place])) from None
            self._write(unit, name, column, values)
            if column == "persons" and self._starts:
                began = np.concatenate(self._starts)
                self.state.disorder |= _disordered(values, began[: len(values)])
                self._starts = [began[len(values) :]]
        self.state.units.append(unit)
        self.state.row = self._rows[0].first + end
        tied = np.concatenate(self._tied)
        self.state.ties += int(tied[:end].sum())
        waiting = len(fresh) - end
        self._rows, self._size = kept, waiting
        self._fresh, self._tied = ([fresh[end:]], [tied[end:]]) if waiting else ([], [])
        before, self.state.last = self.state.last, self.state.last if not waiting else []
        self.work.save(self.state)  # a run that goes on reads the waiting rows again
        self.state.last = before

    def _column(self, name: str, end: int | None = None) -> Shaped[Array, "n"]:
        return np.concatenate([getattr(rows, name) for rows in self._rows])[:end]

    def _tail(self, end: int) -> Rows:
        """The rows from number `end` on."""
        first = self._rows[0]
        own = None if first.propensities is None else self._column("propensities")[end:].copy()
        arms, rewards = (self._column(name)[end:].copy() for name in ("arms", "rewards"))
        known = {name: np.concatenate([rows.known[name] for rows in self._rows])[end:].copy() for name in first.known}
        start = first.first + end
        return replace(self._rows[-1], first=start, arms=arms, rewards=rewards, propensities=own, known=known)

    def _write(
        self, unit: dict[str, str], name: str, column: str, array: Shaped[Array, "n"], *, narrow: bool = False
    ) -> None:
        if narrow:
            array = array.astype(np.min_scalar_type(int(array.max())))
        array.tofile(self.work.folder / f"{name}.{column}")
        unit[column] = array.dtype.str


@dataclass
class SplitGatherer:
    """Rows of any order go into buckets by the hash of their session; each bucket is sorted later."""

    work: Work
    state: PackState
    bits: int  # Bits of the hash that choose the bucket.
    _rows: list[Rows] = field(default_factory=list)
    _size: int = 0

    @classmethod
    def of(cls, work: Work, state: PackState, n_rows: int) -> SplitGatherer:
        """As many buckets as keep each small, for about `n_rows` rows; what a killed run left over is cut off."""
        n_buckets = min(max(n_rows // _BUCKET, 1), _MAX_BUCKETS)
        bits = int(n_buckets - 1).bit_length()
        if not state.units:
            state.units = [{"bytes": 0} for _ in range(1 << bits)]
        bits = (len(state.units) - 1).bit_length()
        for number, unit in enumerate(state.units):
            with open(bucket(work.folder, number), "ab") as file:
                file.truncate(unit["bytes"])
        return cls(work, state, bits)

    def add(self, rows: Rows) -> None:
        self._rows.append(rows)
        self._size += len(rows.arms)
        if self._size >= _SPILL:
            self.finish()

    def finish(self) -> None:
        if not self._size:
            return
        records = np.concatenate([_records(rows) for rows in self._rows])
        place = _top_bits(records["high"], self.bits)
        order = np.argsort(place, kind="stable")
        ends = np.searchsorted(place[order], np.arange(len(self.state.units) + 1))
        for number, unit in enumerate(self.state.units):
            own = records[order[ends[number] : ends[number + 1]]]
            with open(bucket(self.work.folder, number), "ab") as file:
                own.tofile(file)
            unit["bytes"] += own.nbytes
            unit["record"] = [list(entry) for entry in own.dtype.descr]
        self.state.row = self._rows[-1].first + len(self._rows[-1].arms)
        self._rows, self._size = [], 0
        self.work.save(self.state)


def of_sessions(
    column: str, values: Shaped[Array, "n"], starts: Integer[Array, "k1"], known: Dictionaries
) -> Shaped[Array, "k"]:
    """The value of each session, whose rows must agree; how a session ended stands in its last row.

    Rows where the value is missing say nothing.
    """
    if column == "endings":
        return values[starts[1:] - 1]
    while True:
        low, high = (one.reduceat(values, starts[:-1]) for one in (np.minimum, np.maximum))
        differ = np.flatnonzero(low != high)
        if not len(differ):
            return low
        pairs, first, back = np.unique(
            np.stack([low[differ], high[differ]], axis=1), axis=0, return_index=True, return_inverse=True
        )
        joined = low.copy()
        found = [
            _joined(column, one, other, int(differ[at]), known)
            for (one, other), at in zip(pairs.tolist(), first, strict=True)
        ]
        joined[differ] = np.array(found, low.dtype)[back.ravel()]
        lengths = np.diff(starts)
        either = (values == np.repeat(low, lengths)) | (values == np.repeat(high, lengths))
        values = np.where(either, np.repeat(joined, lengths), values)


def _joined(column: str, low: int, high: int, session: int, known: Dictionaries) -> int:
    """What two values say together that rows of a session have."""
    if column == "persons" and low != STRANGER:
        raise Several(None, session)
    try:
        return high if column == "persons" else known.joined(low, high)
    except Several as several:
        raise Several(several.feature, session) from None


def _disordered(persons: Integer[Array, "k"], began: Shaped[Array, "k"]) -> bool:
    """Whether somebody's next session begins earlier."""
    known = persons != STRANGER
    order = np.argsort(persons[known], kind="stable")
    own, at = persons[known][order], began[known][order]
    return bool(((own[1:] == own[:-1]) & (at[1:] < at[:-1])).any())


def bucket(folder: Path, number: int) -> Path:
    """The file of a bucket."""
    return folder / f"{number:05d}.bucket"


def _top_bits(words: Shaped[Array, "n"], bits: int) -> Integer[Array, "n"]:
    return (words >> np.uint64(64 - bits)).astype(np.int64) if bits else np.zeros(len(words), np.int64)


def _records(rows: Rows) -> Shaped[Array, "n"]:
    """One record a row, without gaps between fields."""
    rewards = (
        rows.rewards if rows.rewards.dtype.kind == "f" else rows.rewards.astype(np.uint16)
    )  # The same type in all batches.
    columns = {"high": rows.ids[:, 0], "low": rows.ids[:, 1], "arm": rows.arms, "reward": rewards}
    if rows.steps is not None:
        columns["step"] = rows.steps
    if rows.propensities is not None:
        columns["propensity"] = rows.propensities
    columns |= rows.known
    records = np.empty(len(rows.arms), [(name, column.dtype) for name, column in columns.items()])
    for name, column in columns.items():
        records[name] = column
    return records


@dataclass(frozen=True, eq=False)
class Tables:
    """What places of the dictionaries become."""

    arms: Integer[Array, "a"]  # the number of the arm at each place
    n_arms: int
    values: Float[Array, "Z"] | None  # rising; None: rewards stay numbers
    places: Integer[Array, "v"]  # the number of the value at each place of the dictionary
    features: Features | None = None  # the distinct rows

    @property
    def n_codes(self) -> int:
        return self.n_arms * (1 if self.values is None else len(self.values))

    @property
    def code_type(self) -> np.dtype[Any]:
        wanted = np.min_scalar_type(max(self.n_codes - 1, 0))
        return np.dtype(wanted)

    @cached_property
    def codes(self) -> Shaped[Array, "a w"]:
        """The code of each pair of places."""
        if self.values is None:
            return self.arms[:, None].astype(self.code_type)
        return (self.arms[:, None] * len(self.values) + self.places).astype(self.code_type)


@dataclass
class Unit:
    """Whole sessions, with arms and rewards by their places."""

    lengths: Integer[Array, "n"]
    arms: Integer[Array, "s"]
    rewards: Shaped[Array, "s"]
    propensities: Float[Array, "s"] | None
    ties: int = 0  # rows with the same step as the row before
    known: dict[str, Shaped[Array, "n"]] = field(default_factory=dict)  # columns with one entry a session

    def keep(self, kept: Bool[Array, "s"]) -> None:
        """Some of the steps; sessions that keep none are gone."""
        starts = np.cumsum(self.lengths) - self.lengths
        lengths = np.add.reduceat(kept.astype(np.int64), starts)
        self.lengths = lengths[lengths > 0]
        self.known = {name: column[lengths > 0] for name, column in self.known.items()}
        self.arms, self.rewards = self.arms[kept], self.rewards[kept]
        self.propensities = None if self.propensities is None else self.propensities[kept]


def read_unit(folder: Path, state: PackState, number: int, options: ReadOptions) -> Unit:
    """The sessions of a unit: as they were written, or those of a bucket, sorted."""
    unit = state.units[number]
    if not state.way.split:
        columns = {name: np.fromfile(folder / f"{number:05d}.{name}", np.dtype(kind)) for name, kind in unit.items()}
        lengths, own = columns["lengths"].astype(np.int64), columns.get("propensities")
        known = {name: column for name, column in columns.items() if name in OF_SESSIONS}
        return Unit(lengths, columns["arms"], columns["rewards"], own, known=known)
    if not unit["bytes"]:
        return Unit(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), None)
    rows = np.fromfile(bucket(folder, number), np.dtype([tuple(entry) for entry in unit["record"]]))
    names = rows.dtype.names or ()
    high, low = rows["high"], rows["low"]
    keys = (rows["step"], low, high) if "step" in names else (low, high)
    order = np.lexsort(keys)
    high, low = high[order], low[order]
    fresh = np.ones(len(rows), bool)
    fresh[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    ties = 0
    if "step" in names:
        steps = rows["step"][order]
        ties = int(((steps[1:] == steps[:-1]) & ~fresh[1:]).sum())
        if options.pause is not None:
            fresh = breaks(np.cumsum(fresh), steps, options.pause, _seconds(state, options))
    lengths = np.diff(np.append(np.flatnonzero(fresh), len(rows)))
    propensities = rows["propensity"][order] if "propensity" in names else None
    starts = np.append(np.flatnonzero(fresh), len(rows))
    try:
        known = {
            name: of_sessions(name, rows[name][order], starts, state.known) for name in names if name in OF_SESSIONS
        }
    except Several as several:
        row = int(starts[several.place])
        raise Several(several.feature, np.array([high[row], low[row]])) from None
    return Unit(lengths, rows["arm"][order], rows["reward"][order], propensities, ties, known)


def _seconds(state: PackState, options: ReadOptions) -> float:
    if state.known.seconds is not None:
        return state.known.seconds
    assert options.pause is not None
    return unit_of(np.array([state.known.latest]), options.pause)[0]


def remove_unit(folder: Path, state: PackState, number: int) -> None:
    """Give the space of a unit back."""
    names = [bucket(folder, number)]
    if not state.way.split:
        names = [folder / f"{number:05d}.{name}" for name in state.units[number]]
    for path in names:
        path.unlink(missing_ok=True)


def seal(target: Path, name: str, unit: Unit, tables: Tables, options: ReadOptions) -> dict[str, Any]:
    """Write the partition, and say what it holds."""
    if options.limit is not None and len(unit.lengths):
        unit.known["endings"] = limit_codes(unit.lengths, options.limit)
    if options.at_most is not None and "endings" in unit.known:
        cut = unit.lengths > options.at_most
        unit.known["endings"] = np.where(cut, WENT_ON, unit.known["endings"]).astype(np.uint8)
    if options.at_most is not None and len(unit.lengths):
        offsets = np.concatenate([[0], np.cumsum(unit.lengths)])
        unit.keep(step_numbers(offsets) < options.at_most)
    missing, n_missing = np.zeros(0, bool), 0
    if options.missing != "error":
        missing = unit.rewards == MISSING if tables.values is not None else np.isnan(unit.rewards)
        n_missing = int(missing.sum())
    before = len(unit.arms)
    if n_missing and options.missing == "zero":
        unit.rewards = np.where(missing, _place_of_zero(tables), unit.rewards)
    elif n_missing:
        starts = np.concatenate([[0], np.cumsum(unit.lengths)])
        unit.keep(~dropped(missing, starts, ends_session=unit.propensities is not None))
    told = {"ties": unit.ties, "missing": n_missing, "left_out": before - len(unit.arms), "returns": _returns(unit)}
    if not len(unit.lengths):
        return {"entry": None, **told}
    return _write(target, name, unit, tables) | told


def _returns(unit: Unit) -> bool:
    """Whether somebody has several of the sessions."""
    persons = unit.known.get("persons", np.zeros(0, np.int64))
    known = persons[persons != STRANGER]
    return len(np.unique(known)) < len(known)


def _place_of_zero(tables: Tables) -> float | int:
    if tables.values is None:
        return 0.0
    return int(np.flatnonzero(tables.places == np.searchsorted(tables.values, 0.0))[0])


def _write(target: Path, name: str, unit: Unit, tables: Tables) -> dict[str, Any]:
    codes = _codes(unit, tables)
    lengths = unit.lengths.astype(np.min_scalar_type(int(unit.lengths.max())))
    columns: dict[str, Shaped[Array, "..."]] = {LENGTHS: lengths, CODES: codes}
    if tables.values is None:
        columns[REWARDS] = unit.rewards.astype(np.float64)
    if unit.propensities is not None:
        columns[PROPENSITIES] = unit.propensities
    columns |= {name: unit.known[name].astype(dtype) for name, dtype in OF_SESSIONS.items() if name in unit.known}
    files = {column: _write_file(target / f"{name}.{column}", array) for column, array in columns.items()}
    entry = Entry(name, len(lengths), len(codes), lengths.itemsize, files)
    found, counts = np.unique(lengths, return_counts=True)
    return {
        "entry": asdict(entry),
        "lengths": list(zip(found.tolist(), counts.tolist(), strict=True)),
        "checksum": f"{_checksum(unit, codes, tables):016x}",
        "cells": _tallied(target / WORK / f"{name}.cells", codes, tables.n_codes),
        "ends": _ends(unit),
    }


def _ends(unit: Unit) -> list[list[int]]:
    """(length, how it ended) of the sessions, each pair once."""
    if "endings" not in unit.known:
        return []
    pairs = np.stack([unit.lengths, unit.known["endings"]], axis=1)
    return np.unique(pairs, axis=0).tolist()


def _codes(unit: Unit, tables: Tables) -> Shaped[Array, "s"]:
    """Arithmetic where places are numbers already, and a table elsewhere."""
    if tables.values is None:
        return tables.codes[:, 0][unit.arms]
    if not all(np.array_equal(table, np.arange(len(table))) for table in (tables.arms, tables.places)):
        return tables.codes[unit.arms, unit.rewards]
    codes = unit.arms.astype(tables.code_type)
    codes *= tables.code_type.type(len(tables.values) % 2 ** (8 * codes.itemsize))  # The product of the only arm is 0.
    codes += unit.rewards.astype(tables.code_type)
    return codes


def _tallied(path: Path, codes: Shaped[Array, "s"], n_codes: int) -> str:
    """Write how often each code occurs."""
    cells = np.zeros(n_codes, np.int64)
    for start in range(0, len(codes), 1 << 20):
        cells += np.bincount(codes[start : start + (1 << 20)], minlength=n_codes)
    cells.tofile(path)
    return path.name


def _checksum(unit: Unit, codes: Shaped[Array, "s"], tables: Tables) -> int:
    """The sum over sessions that `Fingerprint` makes of the same log in memory."""
    rewards = unit.rewards if tables.values is None else None
    features = None
    if "features" in unit.known and tables.features is not None:
        features = replace(tables.features, rows=unit.known["features"].astype(np.int32))
    more = known_words(features, unit.known.get("persons"), unit.known.get("endings"))
    return word_sums(codes, unit.lengths, tables.values, rewards, more)


def _write_file(path: Path, array: Shaped[Array, "..."]) -> tuple[int, int]:
    """Write a file as a whole; its bytes and checksum."""
    array = np.ascontiguousarray(array)
    temporary = path.with_name(path.name + ".partial")
    with open(temporary, "wb") as file:
        array.tofile(file)
    if os.path.getsize(temporary) != array.nbytes:
        raise OSError(f"{temporary} was not written as a whole")
    os.replace(temporary, path)
    return array.nbytes, zlib.crc32(array.data)
