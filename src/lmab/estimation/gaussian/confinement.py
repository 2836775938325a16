"""Means of a given rank over the types."""

from __future__ import annotations

from dataclasses import dataclass

from ..._shapes import Array, Float
from .. import low_rank
from ..arrays import normalised_weights
from ..observations import Confinement
from .em_map import GaussianMap


@dataclass(frozen=True, eq=False)
class GaussianConfinement(Confinement):
    em_map: GaussianMap
    n_types: int
    rank: int

    def project(self, model: Float[Array, "K P"]) -> Float[Array, "K P"]:
        result = model.copy()
        result[1:-1, : self.n_types] = self._nearest(model).table
        return result

    def maximise(self, statistics: Float[Array, "Q P"], model: Float[Array, "K P"]) -> Float[Array, "K P"]:
        plays, sums = (part[..., : self.n_types] for part in self.em_map.with_prior(statistics[None]))
        result = model.copy()
        result[0] = normalised_weights(statistics[None, 0])[0]
        fit = low_rank.improve_gaussian(self._nearest(model), plays[0], sums[0])
        result[1:-1, : self.n_types] = fit.table
        result[-1] = self.em_map.best_scales(result[None, :, : self.n_types], plays, sums)[0]
        return result

    def _nearest(self, model: Float[Array, "K P"]) -> low_rank.LowRank:
        return low_rank.project(model[1:-1, : self.n_types], model[0, : self.n_types], self.rank)
