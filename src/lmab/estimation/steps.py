"""The steps of a log, in memory or in files, and how passes are cut into parts of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from .._shapes import Array, Float, Integer
from ..data import Partitions
from .passes import PARTITION, Arrays, count_parts, edges_at


@dataclass(frozen=True, eq=False)
class Steps(ABC):
    """Distinct sessions by number."""

    every: int = field(default=1, kw_only=True)  # 16: every 16th part counts, the others are left out
    travels = False  # whether a pickle is small

    @property
    @abstractmethod
    def n_all(self) -> int:
        """Distinct sessions, those that are left out included."""

    @property
    @abstractmethod
    def n_steps(self) -> int:
        """Their steps."""

    @property
    @abstractmethod
    def n_bytes(self) -> int:
        """Bytes of what is summed up."""

    @abstractmethod
    def cuts(self, targets: Float[Array, "n"]) -> Integer[Array, "n"]:
        """For each number of steps, above 0, the first session with at least as many steps before it."""

    @abstractmethod
    def window(self, low: int, high: int, room: Integer[Array, "m"] | None = None) -> Any:
        """A window on the sessions low to high - 1; offsets that are made for it lie in `room`, if given.

        It has three arrays for the kernel, `low` and `high` in their numbers, and itself alone as `own`.
        """

    @property
    @abstractmethod
    def held(self) -> Any:
        """The same in memory."""

    @property
    def n_distinct(self) -> int:
        return -(-self.n_all // self.every)

    def parts(self, result_bytes: int) -> Integer[Array, "B 2"]:
        """The first session of each part and the one after its last, for results of `result_bytes` a part.

        They depend on the log and the size of a part's result only, never on where the log lies or passes run.
        """
        n_parts = count_parts(self.n_steps, self.n_bytes, result_bytes if self.every == 1 else 0)
        edges = edges_at(self.cuts(np.arange(1, n_parts) * (self.n_steps / n_parts)), self.n_all)
        return np.stack([edges[:-1], edges[1:]], axis=1)[self.every // 2 :: self.every]

    def stretches(self) -> Iterator[Arrays]:
        """Parts as long as a device wants them, as `CodedLog` gives them."""
        n_parts = -(-self.n_steps // PARTITION)
        edges = edges_at(self.cuts(np.arange(1, n_parts) * (self.n_steps / n_parts)), self.n_all)
        for low, high in pairwise(edges.tolist()) if self.every == 1 else self.parts(0).tolist():
            yield self.window(low, high).own.arrays

    def level(self, every: int) -> Steps | None:
        """One of `every` parts; None where that is not a small part of the log."""
        n_parts = count_parts(self.n_steps, self.n_bytes, 0)
        return None if n_parts < every else replace(self, every=every)


@dataclass(frozen=True, eq=False)
class InMemory(Steps):
    """Steps in memory."""

    offsets: Integer[Array, "K1"]

    @property
    def n_all(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_steps(self) -> int:
        return int(self.offsets[-1])

    @property
    def held(self) -> Any:
        return self

    def cuts(self, targets: Float[Array, "n"]) -> Integer[Array, "n"]:
        return np.searchsorted(self.offsets, targets)


@dataclass(frozen=True, eq=False)
class InFiles(Steps):
    """Steps in the files of a packed log; a process that gets this object opens the files itself."""

    partitions: Partitions
    travels = True
    _cuts: dict[int, Integer[Array, "..."]] = field(default_factory=dict, repr=False, kw_only=True)  # by their number

    @property
    def n_all(self) -> int:
        return self.partitions.n_sessions

    @property
    def n_steps(self) -> int:
        return self.partitions.n_steps

    def cuts(self, targets: Float[Array, "n"]) -> Integer[Array, "n"]:
        if len(targets) not in self._cuts:
            self._cuts[len(targets)] = self.partitions.cuts(targets)
        return self._cuts[len(targets)]
