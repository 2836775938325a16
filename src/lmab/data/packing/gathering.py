"""Gathering: rows become units of whole sessions, in order where the log is sorted, else in buckets by hash."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from ..._shapes import Array, Bool, Integer, Shaped
from ..rows import Rows, beginnings
from .work import State, Work

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
    state: State
    _rows: list[Rows] = field(default_factory=list)
    _fresh: list[Bool[Array, "n"]] = field(default_factory=list)
    _tied: list[Bool[Array, "n"]] = field(default_factory=list)
    _size: int = 0

    def add(self, rows: Rows) -> None:
        fresh, tied, row = beginnings(rows, tuple(self.state.last) or None)
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
        return replace(self._rows[-1], first=first.first + end, arms=arms, rewards=rewards, propensities=own)

    def _write(
        self, unit: dict[str, str], name: str, column: str, array: Shaped[Array, "n"], *, narrow: bool = False
    ) -> None:
        if narrow:
            array = array.astype(np.min_scalar_type(int(array.max())))
        array.tofile(self.work.folder / f"{name}.{column}")
        unit[column] = array.dtype.str


@dataclass
class Split:
    """Rows of any order go into buckets by the hash of their session; each bucket is sorted later."""

    work: Work
    state: State
    bits: int  # of the hash that choose the bucket
    _rows: list[Rows] = field(default_factory=list)
    _size: int = 0

    @classmethod
    def of(cls, work: Work, state: State, n_rows: int) -> Split:
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


def bucket(folder: Path, number: int) -> Path:
    """The file of a bucket."""
    return folder / f"{number:05d}.bucket"


def _top_bits(words: Shaped[Array, "n"], bits: int) -> Integer[Array, "n"]:
    return (words >> np.uint64(64 - bits)).astype(np.int64) if bits else np.zeros(len(words), np.int64)


def _records(rows: Rows) -> Shaped[Array, "n"]:
    """One record a row, without gaps between fields."""
    rewards = rows.rewards if rows.rewards.dtype.kind == "f" else rows.rewards.astype(np.uint16)  # in all batches
    columns = {"high": rows.ids[:, 0], "low": rows.ids[:, 1], "arm": rows.arms, "reward": rewards}
    if rows.steps is not None:
        columns["step"] = rows.steps
    if rows.propensities is not None:
        columns["propensity"] = rows.propensities
    records = np.empty(len(rows.arms), [(name, column.dtype) for name, column in columns.items()])
    for name, column in columns.items():
        records[name] = column
    return records
