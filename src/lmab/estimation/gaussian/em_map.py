"""The EM map for normal rewards: expected plays and sums, and their means."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..._shapes import Array, Float
from ..arrays import normalised_weights
from ..expectation import expectation
from ..observations import EMMap
from ..passes import Passes
from ..prior import Prior
from .log import GaussianLog

_SHRINK = 0.02  # an extrapolation may take a weight down to this part of what it was
_SHRINK_SCALE = 0.5  # ... and the scale to this


@dataclass(frozen=True, eq=False)
class GaussianMap(EMMap):
    log: GaussianLog
    prior: Prior

    def expectation(
        self, models: Float[Array, "R K P"], passes: Passes
    ) -> tuple[Float[Array, "R Q P"], Float[Array, "R"]]:
        log = self.log
        elsewhere = passes.expectation(log, models)
        if elsewhere is not None:
            scales = models[:, -1, 0] * np.sqrt(2 * np.pi)
            return elsewhere[0], elsewhere[1] - log.n_steps * np.log(scales)
        return expectation("gaussian", log.steps, models, log.n_sums, passes)

    def maximise(self, statistics: Float[Array, "R Q P"], models: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        plays, sums = self.with_prior(statistics)
        result = models.copy()
        result[:, 0] = normalised_weights(statistics[:, 0])
        np.divide(sums, plays, out=result[:, 1:-1], where=plays > 0)
        result[:, -1] = self.best_scales(result, plays, sums)[:, None]
        return result

    def with_prior(self, statistics: Float[Array, "R Q P"]) -> tuple[Float[Array, "R A P"], Float[Array, "R A P"]]:
        """Plays, and sums of centred rewards, with those of the prior."""
        n_arms = self.log.n_arms
        plays = statistics[:, 1 : 1 + n_arms] + self.prior.strength[:, None]
        return plays, statistics[:, 1 + n_arms :] + (self.prior.strength * self._pull)[:, None]

    @property
    def _pull(self) -> Float[Array, "A"]:
        """The prior's centres as the models' means are: less the log's."""
        return self.prior.centre - self.log.centres

    def best_scales(
        self, models: Float[Array, "R K m"], plays: Float[Array, "R A m"], sums: Float[Array, "R A m"]
    ) -> Float[Array, "R"]:
        """The best scale for the models' means, given what `with_prior` gives; the known one where it is known.

        The penalty of the prior counts as squared deviation, so that the map climbs likelihood plus prior.
        """
        if self.log.known_scale is not None:
            return models[:, -1, 0]
        means = models[:, 1:-1]
        squares = self.log.squares + means.shape[2] * float(self.prior.strength @ self._pull**2)
        rest = squares - 2 * (means * sums).sum(axis=(1, 2)) + (means**2 * plays).sum(axis=(1, 2))
        return np.sqrt(np.maximum(rest / self.log.n_steps, self.log.least_scale**2))

    def log_prior(self, models: Float[Array, "R K M"]) -> Float[Array, "R"]:
        deviations = (models[:, 1:-1] - self._pull[:, None]) / models[:, -1:]
        return -0.5 * np.einsum("a,ram->r", self.prior.strength, deviations**2)

    def repair(self, trial: Float[Array, "R K P"], near: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        trial = trial.copy()
        trial[:, 0] = normalised_weights(trial[:, 0], _SHRINK * near[:, 0])
        trial[:, -1] = np.maximum(trial[:, -1], _SHRINK_SCALE * near[:, -1])
        return trial
