"""Bandits with normal rewards as arrays: rows 1 to A of a model hold the (centred) means, row A + 1 the scale."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..._shapes import Array, Float
from ...errors import InvalidArgument
from ...model import Gaussian, LatentBandit
from ..arrays import padded
from ..observations import Models
from .log import GaussianLog


@dataclass(frozen=True, eq=False)
class GaussianModels(Models):
    log: GaussianLog

    def pack(self, bandit: LatentBandit) -> Float[Array, "1 K P"]:
        rewards = gaussian(bandit)
        model = np.zeros((1, self.log.n_arms + 2, padded(bandit.n_types)))
        model[0, 0, : bandit.n_types] = bandit.weights
        model[0, 1:-1, : bandit.n_types] = (rewards.means - self.log.centres).T
        model[0, -1] = rewards.scale
        return model

    def bandit(self, model: Float[Array, "K P"], n_types: int) -> LatentBandit:
        weights = model[0, :n_types] / model[0, :n_types].sum()
        means = model[1:-1, :n_types].T + self.log.centres
        return LatentBandit(weights, Gaussian(means, float(model[-1, 0])), self.log.sessions.arm_labels)

    def from_moments(self, weights: Float[Array, "M"], vectors: Float[Array, "M D"]) -> LatentBandit:
        """Means are taken as they are."""
        means = np.where(self.log.played, vectors, self.log.centres)
        rewards = Gaussian(means, self._scale(weights, means))
        return LatentBandit(weights, rewards, self.log.sessions.arm_labels)

    def _scale(self, weights: Float[Array, "M"], means: Float[Array, "M A"]) -> float:
        """What is left of the rewards' variance once the types have explained their part."""
        log = self.log
        if log.known_scale is not None:
            return log.known_scale
        between = weights @ (means - log.centres) ** 2
        left = log.spread**2 - float(log.plays / log.plays.sum() @ between)
        return float(np.sqrt(max(left, log.least_scale**2)))


def gaussian(bandit: LatentBandit) -> Gaussian:
    """The bandit's rewards, which must be of this family."""
    if not isinstance(bandit.rewards, Gaussian):
        raise InvalidArgument(f"bandit must have normal rewards, as this log was read, got {bandit}")
    return bandit.rewards
