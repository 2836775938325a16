"""A log of normal rewards, encoded: rewards less the mean of their arm, so that large means cost no precision."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from ..._shapes import Array, Bool, Float, Integer, Shaped
from ...data import Packed, Sessions
from ..passes import Arrays
from ..steps import Steps
from .steps import HeldSteps, centred

_LEAST_SCALE = 1e-6  # of the rewards' own deviation: below it the likelihood has no maximum
_SESSIONS = 1 << 16  # added up together, in memory too, so that a packed log has the same bits


@dataclass(frozen=True, eq=False)
class GaussianLog:
    """A log with rewards centred arm by arm."""

    sessions: Sessions | Packed  # as they were given
    known_scale: float | None  # None: estimated
    centres: Float[Array, "A"]  # mean reward of each arm; an arm never played gets that of all arms
    steps: Steps

    @classmethod
    def encode(
        cls, sessions: Sessions | Packed, known_scale: float | None, centres: Float[Array, "A"] | None = None
    ) -> GaussianLog:
        """The log, centred at each arm's mean where no other centres are given."""
        centres = _means(sessions) if centres is None else centres
        return cls(sessions, known_scale, centres, centred(sessions, centres))

    def __getstate__(self) -> dict[str, Any]:
        """What a pickle holds: nothing that is computed again as easily."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @cached_property
    def held(self) -> HeldSteps:
        """All steps in memory."""
        return self.steps.held

    @property
    def arms(self) -> Shaped[Array, "S"]:
        """Unsigned, of the smallest size."""
        return self.held.arms

    @property
    def residuals(self) -> Float[Array, "S"]:
        """Rewards less the centre of their arm."""
        return self.held.residuals

    @property
    def offsets(self) -> Integer[Array, "N1"]:
        return self.held.offsets

    @property
    def n_steps(self) -> int:
        return self.steps.n_steps

    @property
    def n_arms(self) -> int:
        return self.sessions.n_arms

    @property
    def n_sums(self) -> int:
        return 1 + 2 * self.n_arms

    @cached_property
    def largest(self) -> float:
        return max(float(np.abs(residuals).max()) for residuals in self._pieces()) or 1.0

    def partitions(self) -> Iterable[Arrays]:
        """(arms, lengths, no counts, residuals) of parts of the log."""
        return self.steps.stretches()

    @property
    def n_distinct(self) -> int:
        return self.steps.n_distinct

    @cached_property
    def plays(self) -> Integer[Array, "A"]:
        return self.sessions.plays

    @property
    def played(self) -> Bool[Array, "A"]:
        return self.plays > 0

    @cached_property
    def squares(self) -> float:
        """Sum of the squared residuals."""
        return float(sum((residuals**2).sum() for residuals in self._pieces()))

    def _pieces(self) -> Iterator[Float[Array, "_"]]:
        """The residuals, some sessions at a time."""
        n = self.steps.n_all
        for low in range(0, n, _SESSIONS):
            yield self.steps.window(low, min(low + _SESSIONS, n)).own.residuals

    @cached_property
    def spread(self) -> float:
        """Standard deviation of the rewards around their arm's mean."""
        return float(np.sqrt(self.squares / self.n_steps))

    @property
    def least_scale(self) -> float:
        return _LEAST_SCALE * max(self.spread, np.finfo(float).tiny ** 0.25)


def _means(sessions: Sessions | Packed) -> Float[Array, "A"]:
    """The mean reward of each arm, that of all arms for an arm that was never played."""
    plays, sums = np.zeros(sessions.n_arms), np.zeros(sessions.n_arms)
    for chunk in sessions.chunks(_SESSIONS):
        plays += np.bincount(chunk.arms, minlength=sessions.n_arms)
        sums += np.bincount(chunk.arms, chunk.rewards, minlength=sessions.n_arms)
    return np.where(plays > 0, sums / np.maximum(plays, 1), sums.sum() / plays.sum())
