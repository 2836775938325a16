"""Models that EM may start from, for normal rewards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._shapes import Array, Float, Integer
from ..arrays import equal_weights, normalised_weights
from ..observations import StartModels
from ..prior import Prior
from .em_map import GaussianMap
from .log import GaussianLog

_SMOOTHING = 5.0  # pseudo-plays at the arm's mean in a model made of clusters
_DEVIATION = 0.5  # of a random mean from the arm's, in standard deviations of the rewards
_LEAST_WEIGHT = 0.02  # of a cluster


@dataclass(frozen=True, eq=False)
class GaussianStartModels(StartModels):
    log: GaussianLog

    def random(self, n_models: int, n_types: int, rng: np.random.Generator) -> Float[Array, "R K P"]:
        models = self._empty(n_models, n_types)
        shape = (n_models, self.log.n_arms, n_types)
        draws = _DEVIATION * self.log.spread * rng.standard_normal(shape)
        models[:, 1:-1, :n_types] = np.where(self.log.played[:, None], draws, 0.0)
        return models

    def clustered(self, labels: Integer[Array, "n"], n_types: int) -> Float[Array, "1 K P"]:
        log, n_arms, empty = self.log, self.log.n_arms, self._empty(1, n_types)
        statistics = np.zeros((1, 1 + 2 * n_arms, empty.shape[2]))
        np.add.at(statistics[0, 0], labels, 1.0)
        end = log.offsets[len(labels)]
        arms, owners = log.arms[:end].astype(np.int64), np.repeat(labels, np.diff(log.offsets[: len(labels) + 1]))
        np.add.at(statistics[0, 1:], (arms, owners), 1.0)
        np.add.at(statistics[0, 1 + n_arms :], (arms, owners), log.residuals[:end])
        model = GaussianMap(log, Prior.equal(log.centres, _SMOOTHING)).maximise(statistics, empty)
        model[:, -1] = empty[:, -1]
        model[:, 0, :n_types] = normalised_weights(model[:, 0, :n_types], _LEAST_WEIGHT)
        return model

    def soften(self, models: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        return models  # no normal reward is impossible

    def features(self) -> tuple[Any, Float[Array, "D"]]:
        from scipy.sparse import csr_array

        log = self.log
        steps = (log.residuals, log.arms.astype(np.int64), log.offsets)
        squares = np.bincount(log.arms, log.residuals**2, minlength=log.n_arms)
        return csr_array(steps, shape=(log.n_distinct, log.n_arms)), squares

    def centre(self, features: Float[Array, "D k"]) -> Float[Array, "D k"]:
        return features  # rewards are centred already

    def _empty(self, n_models: int, n_types: int) -> Float[Array, "R K P"]:
        log, models = self.log, equal_weights(n_models, self.log.n_arms + 2, n_types)
        models[:, -1] = max(log.spread, log.least_scale) if log.known_scale is None else log.known_scale
        return models
