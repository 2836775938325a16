"""Bandits with rewards on finitely many values as arrays: row 1 + code of a model is the probability of the code."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..._shapes import Array, Float
from ...errors import InvalidArgument
from ...model import Categorical, LatentBandit
from ..arrays import padded
from ..observations import Models
from .log import CategoricalLog

LEAST = 1e-3  # probability of a reward that a moment estimate calls impossible: a belief must survive it


@dataclass(frozen=True, eq=False)
class CategoricalModels(Models):
    log: CategoricalLog

    def pack(self, bandit: LatentBandit) -> Float[Array, "1 K P"]:
        table = categorical(bandit).probabilities[:, :, categorical(bandit).encode(self.log.values)]
        model = np.zeros((1, 1 + self.log.n_codes, padded(bandit.n_types)))
        model[0, 0, : bandit.n_types] = bandit.weights
        model[0, 1:, : bandit.n_types] = table.reshape(bandit.n_types, -1).T
        return model

    def bandit(self, model: Float[Array, "K P"], n_types: int) -> LatentBandit:
        probabilities = np.moveaxis(self.log.by_arm(model[None])[0, ..., :n_types], 2, 0)
        probabilities = probabilities / probabilities.sum(axis=2, keepdims=True)
        weights = model[0, :n_types] / model[0, :n_types].sum()
        rewards = Categorical(probabilities, self.log.values, self.log.edges)
        return LatentBandit(weights, rewards, self.log.sessions.arm_labels)

    def from_moments(self, weights: Float[Array, "M"], vectors: Float[Array, "M D"]) -> LatentBandit:
        """Probabilities are clipped and normalised over the values, and kept off 0."""
        cells = np.clip(vectors, 0, 1).reshape(len(vectors), *self.log.cells.shape)
        total = cells.sum(axis=2, keepdims=True)
        known = (total > LEAST) & self.log.played[:, None]
        cells = np.where(known, cells / np.maximum(total, LEAST), self.log.marginals)
        cells = np.maximum(cells, LEAST)
        rewards = Categorical(cells / cells.sum(axis=2, keepdims=True), self.log.values, self.log.edges)
        return LatentBandit(weights, rewards, self.log.sessions.arm_labels)


def categorical(bandit: LatentBandit) -> Categorical:
    """The bandit's rewards, which must be of this family."""
    if not isinstance(bandit.rewards, Categorical):
        raise InvalidArgument(f"bandit must have categorical rewards, as this log was read, got {bandit}")
    return bandit.rewards
