"""Normal rewards whose means are linear in the factors: a factor model with one noise for all arms.

Intercepts are measured from the mean of all rewards, so that large means cost no precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..._shapes import Array, Bool, Float, Integer
from ...model import LatentBandit
from ..arrays import padded
from ..points import Points
from ..prior import Prior
from ..surface import Arms, Surface
from .em_map import GaussianMap
from .log import GaussianLog
from .models import GaussianModels


@dataclass(frozen=True, eq=False)
class GaussianSurface(Surface):
    log: GaussianLog

    @property
    def n_intercepts(self) -> int:
        return 1

    @property
    def slopes(self) -> Float[Array, "q"]:
        return np.ones(1)

    @property
    def unit(self) -> float:
        return max(self.log.spread, self.log.least_scale)

    @property
    def played(self) -> Bool[Array, "A"]:
        return self.log.played

    def scale(self) -> float:
        return self.unit if self.log.known_scale is None else self.log.known_scale

    @cached_property
    def _middles(self) -> Float[Array, "A"]:
        """Centres of the arms, from the mean of all rewards."""
        plays = self.log.plays
        return self.log.centres - float(plays @ self.log.centres / plays.sum())

    def intercepts(self) -> Float[Array, "A q"]:
        plays = self.log.plays
        return (self._middles * plays / (plays + 1))[:, None]

    def popularity(self) -> Float[Array, "A"]:
        return self.intercepts()[:, 0]

    def deviations(self) -> tuple[Any, Any, Float[Array, "A"]]:
        from scipy.sparse import csr_array

        log, arms = self.log, self.log.arms.astype(np.int64)
        shape = (log.n_distinct, log.n_arms)
        sums = csr_array((np.array(log.residuals), arms, log.offsets), shape=shape)
        return sums, csr_array((np.ones(len(arms)), arms, log.offsets), shape=shape), np.ones(log.n_arms)

    def model(self, parameters: Float[Array, "A p"], scale: float, points: Points) -> Float[Array, "1 K P"]:
        result = np.zeros((1, self.log.n_arms + 2, padded(len(points))))
        result[0, 0, : len(points)] = points.weights
        result[0, 1:-1, : len(points)] = self._means(parameters, points)
        result[0, -1] = scale
        return result

    def _means(self, parameters: Float[Array, "A p"], points: Points) -> Float[Array, "A K"]:
        """From each arm's own centre, as models hold them."""
        return (parameters[:, 0] - self._middles)[:, None] + parameters[:, 1:] @ points.places.T

    def derivatives(
        self, statistics: Float[Array, "Q P"], parameters: Float[Array, "A p"], scale: float, points: Points
    ) -> tuple[Float[Array, "A p"], Float[Array, "A p p"]]:
        n_arms, p = parameters.shape
        plays, sums = statistics[1 : 1 + n_arms, : len(points)], statistics[1 + n_arms :, : len(points)]
        rows = np.column_stack([np.ones(len(points)), points.places])
        gradient = (sums - plays * self._means(parameters, points)) @ rows
        information = (plays @ np.einsum("ki,kj->kij", rows, rows).reshape(len(rows), -1)).reshape(n_arms, p, p)
        return gradient / scale**2, information / scale**2

    def scores(
        self, played: Integer[Array, "S"], rewards: Float[Array, "S"], arms: Arms, points: Points
    ) -> Float[Array, "S p K"]:
        rest = (rewards - self.log.centres[played])[:, None] - self._means(arms.parameters, points)[played]
        rows = np.column_stack([np.ones(len(points)), points.places])
        return rest[:, None] * rows.T / arms.scale**2

    def mean_slopes(self, parameters: Float[Array, "A p"], points: Points) -> Float[Array, "K A p"]:
        rows = np.column_stack([np.ones(len(points)), points.places])
        return np.repeat(rows[:, None], len(parameters), axis=1)

    def best_scale(
        self, statistics: Float[Array, "Q P"], parameters: Float[Array, "A p"], scale: float, points: Points
    ) -> float:
        n_arms, model = len(parameters), self.model(parameters, scale, points)
        plays, sums = statistics[None, 1 : 1 + n_arms], statistics[None, 1 + n_arms :]
        without = GaussianMap(self.log, Prior.equal(self.log.centres, 0.0))
        return float(without.best_scales(model, plays, sums)[0])

    def averaged(self, arms: Arms, points: Points) -> LatentBandit:
        """Means are linear in the parameters, so that averaging changes nothing."""
        return GaussianModels(self.log).bandit(self.model(arms.parameters, arms.scale, points)[0], len(points))
