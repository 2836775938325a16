"""The steps of a log of normal rewards, in memory or in files: arms, and rewards less the centre of their arm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..._shapes import Array, Float, Integer, Shaped
from ...data import Packed, Sessions
from ..arrays import frozen
from ..passes import Arrays
from ..steps import InFiles, InMemory, Steps

_BYTES = 8  # of a residual


class Window(NamedTuple):
    """Arrays that hold sessions low to high - 1, perhaps among others."""

    arms: Shaped[Array, "S"]
    residuals: Float[Array, "S"]
    offsets: Integer[Array, "K1"]
    low: int
    high: int

    @property
    def own(self) -> Window:
        """The same sessions alone."""
        first, last = int(self.offsets[self.low]), int(self.offsets[self.high])
        offsets = self.offsets[self.low : self.high + 1] - first
        return Window(self.arms[first:last], self.residuals[first:last], offsets, 0, self.high - self.low)

    @property
    def arrays(self) -> Arrays:
        """(arms, lengths, no counts, residuals)."""
        return self.arms, np.diff(self.offsets), np.empty(0), self.residuals


@dataclass(frozen=True, eq=False)
class HeldSteps(InMemory):
    """Steps in memory."""

    arms: Shaped[Array, "S"]  # unsigned, of the smallest size
    residuals: Float[Array, "S"]

    @property
    def n_bytes(self) -> int:
        return _BYTES * self.n_steps

    def window(self, low: int, high: int, room: Integer[Array, "m"] | None = None) -> Window:
        return Window(self.arms, self.residuals, self.offsets, low, high)


@dataclass(frozen=True, eq=False)
class FiledSteps(InFiles):
    """Steps in the files of a packed log, whose codes are looked up, or are arms with their rewards beside them."""

    centres: Float[Array, "A"]
    arms: Shaped[Array, "c"] | None  # of each code; None: itself
    residuals: Float[Array, "c"] | None  # of each code

    @property
    def n_bytes(self) -> int:
        return _BYTES * self.n_steps

    @property
    def held(self) -> HeldSteps:
        window = self.window(0, self.n_all)
        return HeldSteps(window.offsets, window.arms, window.residuals)

    def window(self, low: int, high: int, room: Integer[Array, "m"] | None = None) -> Window:
        if self.arms is not None and self.residuals is not None:
            offsets, codes = self.partitions.part(low, high, "codes", room=room)
            arms, residuals = self.arms.take(codes), self.residuals.take(codes)
        else:
            offsets, arms, rewards = self.partitions.part(low, high, "codes", "rewards", room=room)
            residuals = rewards - self.centres.take(arms)
        return Window(frozen(arms), frozen(residuals), frozen(offsets), 0, high - low)


def centred(sessions: Sessions | Packed, centres: Float[Array, "A"]) -> Steps:
    """The steps of a log, with the rewards of each arm less its centre."""
    smallest = np.min_scalar_type(sessions.n_arms - 1)
    if isinstance(sessions, Sessions):
        residuals = sessions.rewards - centres[sessions.arms]
        return HeldSteps(frozen(sessions.offsets), frozen(sessions.arms.astype(smallest)), frozen(residuals))
    if sessions.values is None:
        return FiledSteps(sessions.partitions, centres, None, None)
    arms = np.repeat(np.arange(sessions.n_arms), len(sessions.values)).astype(smallest)
    residuals = (sessions.values - centres[:, None]).ravel()
    return FiledSteps(sessions.partitions, centres, arms, residuals)
