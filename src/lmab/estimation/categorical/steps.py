"""The coded steps of a log, in memory or in files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..._shapes import Array, Float, Integer, Shaped
from ...data import Packed
from ..arrays import frozen
from ..passes import Arrays
from ..steps import InFiles, InMemory

_NONE: Float[Array, "C"] = np.empty(0)


class Window(NamedTuple):
    """Arrays that hold sessions low to high - 1, perhaps among others."""

    codes: Shaped[Array, "T"]  # unsigned, of the smallest size
    offsets: Integer[Array, "K1"]
    counts: Float[Array, "C"]  # sessions that each distinct one stands for; empty: one
    low: int
    high: int

    @property
    def own(self) -> Window:
        """The same sessions alone."""
        first, last = int(self.offsets[self.low]), int(self.offsets[self.high])
        offsets = self.offsets[self.low : self.high + 1] - first
        return Window(self.codes[first:last], offsets, self.counts[self.low : self.high], 0, self.high - self.low)

    @property
    def arrays(self) -> Arrays:
        """(codes, lengths, counts, no rewards)."""
        return self.codes, np.diff(self.offsets), self.counts, _NONE


@dataclass(frozen=True, eq=False)
class HeldSteps(InMemory):
    """Steps in memory."""

    codes: Shaped[Array, "T"]
    counts: Float[Array, "C"]

    @property
    def n_bytes(self) -> int:
        return int(self.codes.nbytes)

    def window(self, low: int, high: int, room: Integer[Array, "m"] | None = None) -> Window:
        return Window(self.codes, self.offsets, self.counts, low, high)


@dataclass(frozen=True, eq=False)
class FiledSteps(InFiles):
    """Steps in the files of a packed log."""

    table: Shaped[Array, "c"] | None  # the code of each code in the files; None: itself

    @classmethod
    def of(cls, packed: Packed, table: Shaped[Array, "c"] | None) -> FiledSteps:
        return cls(packed.partitions, table)

    @property
    def n_bytes(self) -> int:
        return self.n_steps * (self.partitions.bytes_per_step if self.table is None else self.table.itemsize)

    @property
    def held(self) -> HeldSteps:
        window = self.window(0, self.n_all)
        return HeldSteps(window.offsets, window.codes, window.counts)

    def window(self, low: int, high: int, room: Integer[Array, "m"] | None = None) -> Window:
        offsets, codes = self.partitions.part(low, high, "codes", room=room)
        return Window(frozen(self._coded(codes)), frozen(offsets), frozen(_NONE), 0, high - low)

    def pick(self, rows: Integer[Array, "n"]) -> tuple[Shaped[Array, "T"], Integer[Array, "n1"]]:
        """Codes and offsets of the sessions `rows`, which rise."""
        offsets, codes = self.partitions.pick(rows, "codes")
        return self._coded(codes), offsets

    def _coded(self, codes: Shaped[Array, "T"]) -> Any:
        return codes if self.table is None else self.table.take(codes)
