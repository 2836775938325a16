"""Bins for continuous rewards: each arm's reward cut at quantiles of its mixture over the contexts.

Seeing the bin instead of the reward is a garbling, so what a plan earns from bins it also earns from rewards.
"""

from __future__ import annotations

import numpy as np

from .._shapes import Array, Float
from ..model import LatentBandit


def bin_edges(bandit: LatentBandit, bins: int) -> Float[Array, "A edges"]:
    """The inner edges of every arm's bins: `bins` - 1 quantiles of its rewards over all contexts."""
    from scipy.stats import norm

    means, scale = bandit.means, bandit.rewards.scale  # type: ignore[union-attr]
    targets = np.arange(1, bins) / bins
    low = np.tile(means.min(axis=0)[:, None] - 10 * scale, (1, bins - 1))
    high = np.tile(means.max(axis=0)[:, None] + 10 * scale, (1, bins - 1))
    for _ in range(60):  # bisection: 20 scales / 2^60 is below rounding
        middle = (low + high) / 2
        below = norm.cdf((middle[:, :, None] - means.T[:, None, :]) / scale) @ bandit.weights < targets
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return (low + high) / 2


def bin_probabilities(bandit: LatentBandit, edges: Float[Array, "A edges"]) -> Float[Array, "D M"]:
    """Row a*Z + z: probability of bin z of arm a in every context."""
    from scipy.stats import norm

    below = norm.cdf((edges[:, :, None] - bandit.means.T[:, None, :]) / bandit.rewards.scale)  # type: ignore[union-attr]
    shape = (len(below), 1, below.shape[2])
    cumulative = np.concatenate([np.zeros(shape), below, np.ones(shape)], axis=1)
    return np.ascontiguousarray(np.diff(cumulative, axis=1).reshape(-1, bandit.n_contexts))
