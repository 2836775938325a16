"""The coded steps of a log, in memory or in files, and how passes are cut into parts of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ..._shapes import Array, Float, Integer, Shaped
from ...data import Packed, Partitions
from ..arrays import frozen
from ..passes import PARTITION, Arrays, count_parts, edges_at

_NONE: Float[Array, "C"] = np.empty(0)


class Window(NamedTuple):
    """Arrays that hold sessions low to high - 1, perhaps among others."""

    codes: Shaped[Array, "T"]  # unsigned, of the smallest size
    offsets: Integer[Array, "K1"]
    counts: Float[Array, "C"]  # episodes that each distinct one stands for; empty: one
    low: int
    high: int

    @property
    def own(self) -> Window:
        """The same sessions alone."""
        first, last = int(self.offsets[self.low]), int(self.offsets[self.high])
        offsets = self.offsets[self.low : self.high + 1] - first
        return Window(self.codes[first:last], offsets, self.counts[self.low : self.high], 0, self.high - self.low)


@dataclass(frozen=True, eq=False)
class Steps(ABC):
    """Distinct episodes by number."""

    every: int = field(default=1, kw_only=True)  # 16: every 16th part counts, the others are left out
    travels = False  # whether a pickle is small

    @property
    @abstractmethod
    def n_all(self) -> int:
        """Distinct episodes, those that are left out included."""

    @property
    @abstractmethod
    def n_steps(self) -> int:
        """Their steps."""

    @property
    @abstractmethod
    def n_bytes(self) -> int:
        """Bytes of their codes."""

    @abstractmethod
    def cuts(self, targets: Float[Array, "n"]) -> Integer[Array, "n"]:
        """For each number of steps, above 0, the first episode with at least as many steps before it."""

    @abstractmethod
    def window(self, low: int, high: int, room: Integer[Array, "m"] | None = None) -> Window:
        """Arrays that hold the episodes low to high - 1; offsets that are made for it lie in `room`, if given."""

    @property
    @abstractmethod
    def held(self) -> HeldSteps:
        """The same in memory."""

    @property
    def n_distinct(self) -> int:
        return -(-self.n_all // self.every)

    def parts(self, result_bytes: int) -> Integer[Array, "B 2"]:
        """The first episode of each part and the one after its last, for results of `result_bytes` a part.

        They depend on the log and the size of a part's result only, never on where the log lies or passes run.
        """
        n_parts = count_parts(self.n_steps, self.n_bytes, result_bytes if self.every == 1 else 0)
        edges = edges_at(self.cuts(np.arange(1, n_parts) * (self.n_steps / n_parts)), self.n_all)
        return np.stack([edges[:-1], edges[1:]], axis=1)[self.every // 2 :: self.every]

    def stretches(self) -> Iterator[Arrays]:
        """(codes, lengths, counts, no rewards) of parts as long as a device wants them."""
        n_parts = -(-self.n_steps // PARTITION)
        edges = edges_at(self.cuts(np.arange(1, n_parts) * (self.n_steps / n_parts)), self.n_all)
        for low, high in pairwise(edges.tolist()) if self.every == 1 else self.parts(0).tolist():
            window = self.window(low, high).own
            yield window.codes, np.diff(window.offsets), window.counts, _NONE

    def level(self, every: int) -> Steps | None:
        """One of `every` parts; None where that is not a small part of the log."""
        n_parts = count_parts(self.n_steps, self.n_bytes, 0)
        return None if n_parts < every else replace(self, every=every)


@dataclass(frozen=True, eq=False)
class HeldSteps(Steps):
    """Steps in memory."""

    codes: Shaped[Array, "T"]
    offsets: Integer[Array, "K1"]
    counts: Float[Array, "C"]

    @property
    def n_all(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_steps(self) -> int:
        return len(self.codes)

    @property
    def n_bytes(self) -> int:
        return int(self.codes.nbytes)

    @property
    def held(self) -> HeldSteps:
        return self

    def cuts(self, targets: Float[Array, "n"]) -> Integer[Array, "n"]:
        return np.searchsorted(self.offsets, targets)

    def window(self, low: int, high: int, room: Integer[Array, "m"] | None = None) -> Window:
        return Window(self.codes, self.offsets, self.counts, low, high)


@dataclass(frozen=True, eq=False)
class FiledSteps(Steps):
    """Steps in the files of a packed log; a process that gets this object opens the files itself."""

    partitions: Partitions
    table: Shaped[Array, "c"] | None  # the code of each code in the files; None: itself
    travels = True
    _cuts: dict[int, Integer[Array, "..."]] = field(default_factory=dict, repr=False)  # by how many parts there are

    @classmethod
    def of(cls, packed: Packed, table: Shaped[Array, "c"] | None) -> FiledSteps:
        return cls(packed.partitions, table)

    @property
    def n_all(self) -> int:
        return self.partitions.n_sessions

    @property
    def n_steps(self) -> int:
        return self.partitions.n_steps

    @property
    def n_bytes(self) -> int:
        return self.n_steps * (self.partitions.bytes_per_step if self.table is None else self.table.itemsize)

    @property
    def held(self) -> HeldSteps:
        window = self.window(0, self.n_all)
        return HeldSteps(window.codes, window.offsets, window.counts)

    def cuts(self, targets: Float[Array, "n"]) -> Integer[Array, "n"]:
        if len(targets) not in self._cuts:
            self._cuts[len(targets)] = self.partitions.cuts(targets)
        return self._cuts[len(targets)]

    def window(self, low: int, high: int, room: Integer[Array, "m"] | None = None) -> Window:
        offsets, codes = self.partitions.part(low, high, "codes", room=room)
        return Window(frozen(self._coded(codes)), frozen(offsets), frozen(_NONE), 0, high - low)

    def pick(self, rows: Integer[Array, "n"]) -> tuple[Shaped[Array, "T"], Integer[Array, "n1"]]:
        """Codes and offsets of the sessions `rows`, which rise."""
        offsets, codes = self.partitions.pick(rows, "codes")
        return self._coded(codes), offsets

    def _coded(self, codes: Shaped[Array, "T"]) -> Any:
        return codes if self.table is None else self.table.take(codes)
