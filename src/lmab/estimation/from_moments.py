"""From what the method of moments finds, which need not be valid, to a bandit and an Estimate."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._shapes import Array, Float
from ..model import Categorical, Gaussian, LatentBandit
from .categorical import CategoricalObservations
from .gaussian import GaussianObservations
from .observations import Observations
from .result import Estimate, Starts

LEAST = 1e-3  # probability of a reward that a moment estimate calls impossible: a belief must survive it
_LEAST_SCALE = 1e-6  # of the rewards' own deviation


def recover(observations: Observations, weights: Float[Array, "M"], vectors: Float[Array, "M D"]) -> LatentBandit:
    """The bandit with contexts near `vectors`, one entry per pair (or arm): equation (clipping_mu).

    Probabilities are clipped and normalised over the values, and kept off 0; means of normal rewards are taken as they
    are. An arm that was never played gets the rewards of all arms together.
    """
    labels = observations.episodes.arm_labels
    if isinstance(observations, CategoricalObservations):
        return LatentBandit(weights, _categorical(observations, vectors), labels)
    assert isinstance(observations, GaussianObservations)
    means = np.where(observations.plays > 0, vectors, observations.centres)
    return LatentBandit(weights, Gaussian(means, _scale(observations, weights, means)), labels)


def _categorical(observations: CategoricalObservations, vectors: Float[Array, "M D"]) -> Categorical:
    cells = np.clip(vectors, 0, 1).reshape(len(vectors), *observations.cells.shape)
    total = cells.sum(axis=2, keepdims=True)
    known = (total > LEAST) & (observations.cells.sum(axis=1) > 0)[:, None]
    cells = np.where(known, cells / np.maximum(total, LEAST), observations.marginals)
    cells = np.maximum(cells, LEAST)
    return Categorical(cells / cells.sum(axis=2, keepdims=True), observations.values)


def _scale(observations: GaussianObservations, weights: Float[Array, "M"], means: Float[Array, "M A"]) -> float:
    """What is left of the rewards' variance once the contexts have explained their part."""
    if observations.known_scale is not None:
        return observations.known_scale
    between = weights @ (means - observations.centres) ** 2
    share = observations.plays / observations.plays.sum()
    left = observations.spread**2 - float(share @ between)
    return float(np.sqrt(max(left, (_LEAST_SCALE * observations.spread) ** 2, np.finfo(float).tiny)))


def finish(
    observations: Observations,
    bandit: LatentBandit,
    *,
    status: str,
    message: str,
    starts: Starts,
    kind: type[Estimate] = Estimate,
    **facts: Any,
) -> Estimate:
    """The Estimate of a method whose objective is not the likelihood: that is only reported."""
    log_likelihood = observations.log_likelihood(bandit)
    return kind(
        bandit=bandit,
        log_likelihood=log_likelihood,
        n_parameters=observations.n_parameters(bandit.n_contexts),
        status=status,
        message=message,
        trace=np.array([log_likelihood]),
        starts=starts,
        prior=0.0,
        observations=observations,
        **facts,
    )
