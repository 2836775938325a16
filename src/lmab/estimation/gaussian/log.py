"""A log of normal rewards, encoded: rewards less the mean of their arm, so that large means cost no precision."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..._shapes import Array, Bool, Float, Integer, Shaped
from ...data import Episodes
from ..arrays import frozen
from ..passes import Arrays, part_edges, partitions

_LEAST_SCALE = 1e-6  # of the rewards' own deviation: below it the likelihood has no maximum


class Window(NamedTuple):
    """Offsets of which those from `low` to `high` count."""

    offsets: Integer[Array, "N1"]
    low: int
    high: int


@dataclass(frozen=True, eq=False)
class GaussianLog:
    """A log with rewards centred arm by arm."""

    episodes: Episodes  # as they were given
    known_scale: float | None  # None: estimated
    arms: Shaped[Array, "S"]  # unsigned, of the smallest size
    centres: Float[Array, "A"]  # mean reward of each arm; an arm never played gets that of all arms
    residuals: Float[Array, "S"]  # rewards less the centre of their arm
    offsets: Integer[Array, "N1"]

    @classmethod
    def encode(
        cls, episodes: Episodes, known_scale: float | None, centres: Float[Array, "A"] | None = None
    ) -> GaussianLog:
        """The log, centred at each arm's mean where no other centres are given."""
        if centres is None:
            plays = np.bincount(episodes.actions, minlength=episodes.n_arms)
            sums = np.bincount(episodes.actions, episodes.rewards, minlength=episodes.n_arms)
            centres = np.where(plays > 0, sums / np.maximum(plays, 1), episodes.rewards.mean())
        residuals = episodes.rewards - centres[episodes.actions]
        arms = episodes.actions.astype(np.min_scalar_type(episodes.n_arms - 1))
        return cls(episodes, known_scale, frozen(arms), centres, frozen(residuals), frozen(episodes.offsets))

    @property
    def n_steps(self) -> int:
        return len(self.arms)

    def parts(self, result_bytes: int) -> Integer[Array, "B 2"]:
        """The first episode of each part of a pass, and the one after its last."""
        edges = part_edges(self.offsets, self.residuals.nbytes, result_bytes)
        return np.stack([edges[:-1], edges[1:]], axis=1)

    def window(self, low: int, high: int) -> Window:
        """The offsets of some episodes."""
        return Window(self.offsets, low, high)

    @property
    def n_arms(self) -> int:
        return self.episodes.n_arms

    @property
    def n_sums(self) -> int:
        return 1 + 2 * self.n_arms

    @cached_property
    def largest(self) -> float:
        return float(np.abs(self.residuals).max()) or 1.0

    def partitions(self) -> Iterable[Arrays]:
        """(arms, lengths, no counts, residuals) of parts of the log."""
        return partitions(self.arms, self.offsets, np.empty(0), self.residuals)

    @property
    def n_distinct(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def plays(self) -> Integer[Array, "A"]:
        return np.bincount(self.arms, minlength=self.n_arms)

    @property
    def played(self) -> Bool[Array, "A"]:
        return self.plays > 0

    @cached_property
    def squares(self) -> float:
        """Sum of the squared residuals."""
        return float(self.residuals @ self.residuals)

    @cached_property
    def spread(self) -> float:
        """Standard deviation of the rewards around their arm's mean."""
        return float(np.sqrt(self.squares / len(self.residuals)))

    @property
    def least_scale(self) -> float:
        return _LEAST_SCALE * max(self.spread, np.finfo(float).tiny ** 0.25)
