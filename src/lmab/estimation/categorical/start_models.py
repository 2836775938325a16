"""Models that EM may start from, for rewards on finitely many values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._shapes import Array, Float, Integer
from ..arrays import equal_weights, normalised_weights
from ..observations import StartModels
from ..prior import Prior
from .em_map import CategoricalMap
from .log import CategoricalLog

_SMOOTHING = 5.0  # pseudo-plays that keep a cluster's probabilities off 0 and 1
_SOFTENING = 0.02  # part of the marginals in a softened model
_LEAST_WEIGHT = 0.02  # of a cluster


@dataclass(frozen=True, eq=False)
class CategoricalStartModels(StartModels):
    log: CategoricalLog

    def random(self, n_models: int, n_types: int, rng: np.random.Generator) -> Float[Array, "R K P"]:
        marginals = self.log.marginals
        models = equal_weights(n_models, 1 + marginals.size, n_types)
        shapes = np.broadcast_to(marginals[:, :, None], (n_models, *marginals.shape, n_types))
        draws = rng.gamma(marginals.shape[1] * shapes) + 1e-3 * shapes
        played = self.log.played[:, None, None]
        self.log.by_arm(models)[..., :n_types] = np.where(played, draws / draws.sum(axis=2, keepdims=True), shapes)
        return models

    def clustered(self, labels: Integer[Array, "n"], n_types: int) -> Float[Array, "1 K P"]:
        log = self.log
        empty = equal_weights(1, 1 + log.n_codes, n_types)
        statistics = np.zeros_like(empty)
        scale = log.multiplicity[: len(labels)]
        np.add.at(statistics[0, 0], labels, scale)
        steps = log.codes[: log.offsets[len(labels)]].astype(np.int64)
        lengths = np.diff(log.offsets[: len(labels) + 1])
        np.add.at(statistics[0, 1:], (steps, np.repeat(labels, lengths)), np.repeat(scale, lengths))
        model = CategoricalMap(log, Prior.equal(log.marginals, _SMOOTHING)).maximise(statistics, empty)
        model[:, 0, :n_types] = normalised_weights(model[:, 0, :n_types], _LEAST_WEIGHT)
        return model

    def soften(self, models: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        softer = models.copy()
        softer[:, 1:] = (1 - _SOFTENING) * models[:, 1:] + _SOFTENING * self.log.marginals.reshape(-1, 1)
        return softer

    def features(self) -> tuple[Any, Float[Array, "D"]]:
        from scipy.sparse import csr_array

        log = self.log
        codes = (np.ones(len(log.codes)), log.codes.astype(np.int64), log.offsets)
        return csr_array(codes, shape=(log.n_distinct, log.n_codes)), log.cells.ravel()

    def centre(self, features: Float[Array, "D k"]) -> Float[Array, "D k"]:
        by_arm = features.reshape(*self.log.marginals.shape, -1)
        return (by_arm - np.einsum("az,azk->ak", self.log.marginals, by_arm)[:, None]).reshape(features.shape)
