"""The EM map for rewards on finitely many values: expected counts of codes, and their frequencies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..._shapes import Array, Float
from ..arrays import normalised_weights
from ..expectation import expectation
from ..observations import EMMap
from ..passes import Passes
from ..prior import Prior
from .log import CategoricalLog

_NEGLIGIBLE = 1e-150  # a probability below this is zero: it would only slow the arithmetic down
_SHRINK = 0.02  # an extrapolation may take a probability down to this part of what it was, never to zero


@dataclass(frozen=True, eq=False)
class CategoricalMap(EMMap):
    log: CategoricalLog
    prior: Prior

    def expectation(
        self, models: Float[Array, "R K P"], passes: Passes
    ) -> tuple[Float[Array, "R Q P"], Float[Array, "R"]]:
        elsewhere = passes.expectation(self.log, models)
        if elsewhere is not None:
            return elsewhere
        return expectation("categorical", self.log.steps, models, self.log.n_sums, passes)

    def maximise(self, statistics: Float[Array, "R Q P"], models: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        cells = self.log.by_arm(statistics)
        if self.prior.active:
            cells = cells + self.prior.pseudo_counts[:, :, None]
        result = np.empty_like(models)
        result[:, 0] = normalised_weights(statistics[:, 0])
        result[:, 1:] = models[:, 1:]
        totals = np.broadcast_to(cells.sum(axis=2, keepdims=True), cells.shape)
        np.divide(cells, totals, out=self.log.by_arm(result), where=totals > 0)
        result[result < _NEGLIGIBLE] = 0.0
        return result

    def log_prior(self, models: Float[Array, "R K M"]) -> Float[Array, "R"]:
        counts = self.prior.pseudo_counts
        with np.errstate(divide="ignore"):
            logs = np.log(self.log.by_arm(models)[:, counts > 0])
        return np.einsum("c,rcp->r", counts[counts > 0], logs)

    def repair(self, trial: Float[Array, "R K P"], near: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        trial = np.maximum(trial, _SHRINK * near)
        trial[:, 0] = normalised_weights(trial[:, 0])
        tables = self.log.by_arm(trial)
        totals = tables.sum(axis=2, keepdims=True)
        np.divide(tables, totals, out=tables, where=totals > 0)
        return trial
