"""Probabilities of a given rank over the types."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..._shapes import Array, Float
from .. import low_rank
from ..arrays import normalised_weights
from ..observations import Confinement
from ..prior import Prior
from .log import CategoricalLog


@dataclass(frozen=True, eq=False)
class CategoricalConfinement(Confinement):
    log: CategoricalLog
    prior: Prior
    n_types: int
    rank: int

    def project(self, model: Float[Array, "K P"]) -> Float[Array, "K P"]:
        return self._with_table(model, low_rank.positive(self._nearest(model)))

    def maximise(self, statistics: Float[Array, "Q P"], model: Float[Array, "K P"]) -> Float[Array, "K P"]:
        cells = self.log.by_arm(statistics[None])[0, ..., : self.n_types] + self.prior.pseudo_counts[:, :, None]
        result = self._with_table(model, low_rank.improve_categorical(self._nearest(model), cells))
        result[0] = normalised_weights(statistics[None, 0])[0]
        return result

    def _nearest(self, model: Float[Array, "K P"]) -> low_rank.LowRank:
        return low_rank.project(model[1:, : self.n_types], model[0, : self.n_types], self.rank)

    def _with_table(self, model: Float[Array, "K P"], fit: low_rank.LowRank) -> Float[Array, "K P"]:
        possible = (self.log.marginals > 0) | (self.prior.pseudo_counts > 0)
        table = np.where(possible.reshape(-1, 1), np.maximum(fit.table, 0), 0.0)  # rounding errors at 0
        result = model.copy()
        result[1:, : self.n_types] = table
        by_arm = self.log.by_arm(result[None])[0, ..., : self.n_types]
        by_arm /= by_arm.sum(axis=1, keepdims=True)
        return result
