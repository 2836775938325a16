"""The baseline in which an arm tells nothing about other arms: every session draws anew what each arm pays.

Plays of one arm in one session are alike; plays of different arms are independent. If a latent bandit does not predict
held-out sessions better than this baseline, its types do not say what one arm tells about another.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._shapes import Array, Float, Integer
from ..data import Sessions
from ..model import index_among

_PRECISIONS = np.concatenate([np.geomspace(0.1, 1000, 25), [1e8]])  # pseudo-counts; the last: no variation at all
_RATIOS = np.concatenate([[0.0], np.geomspace(1e-3, 100, 25)])  # variance between sessions over that within


@dataclass(frozen=True, eq=False)
class _Groups:
    """Plays of one arm in one session, together."""

    arm: Integer[Array, "G"]
    session: Integer[Array, "G"]
    of_step: Integer[Array, "S"]  # the group of each step

    @classmethod
    def of(cls, sessions: Sessions) -> _Groups:
        owner = np.repeat(np.arange(len(sessions)), sessions.lengths)
        keys, inverse = np.unique(owner * sessions.n_arms + sessions.arms, return_inverse=True)
        return cls(keys % sessions.n_arms, keys // sessions.n_arms, inverse)

    def sums(self, weights: Float[Array, "S"] | None = None) -> Float[Array, "G"]:
        return np.bincount(self.of_step, weights, minlength=len(self.arm)).astype(np.float64)


def categorical_scores(train: Sessions, test: Sessions, values: Float[Array, "Z"]) -> Float[Array, "N"]:
    """log-likelihood of each test session where each arm's probabilities are Dirichlet, anew in every session."""
    groups, counts = _counted(train, values)
    total = counts.sum(axis=0) / counts.sum()
    plays = np.zeros((train.n_arms, len(values)))
    np.add.at(plays, groups.arm, counts)
    marginal = (plays + total) / (plays.sum(axis=1, keepdims=True) + 1)
    fits = np.stack(
        [
            np.bincount(groups.arm, _dirichlet(counts, marginal[groups.arm], np.array([precision])), train.n_arms)
            for precision in _PRECISIONS
        ]
    )
    precision = _PRECISIONS[fits.argmax(axis=0)]
    groups, counts = _counted(test, values)
    scores = _dirichlet(counts, marginal[groups.arm], precision[groups.arm])
    return np.bincount(groups.session, scores, len(test))


def _counted(sessions: Sessions, values: Float[Array, "Z"]) -> tuple[_Groups, Float[Array, "G Z"]]:
    groups = _Groups.of(sessions)
    place = index_among(values, sessions.rewards)
    return groups, np.stack([groups.sums((place == z).astype(np.float64)) for z in range(len(values))], axis=1)


def _dirichlet(
    counts: Float[Array, "G Z"], marginal: Float[Array, "G Z"], precision: Float[Array, "K"]
) -> Float[Array, "G"]:
    """log-probability of sequences with these counts, for one precision or one per group."""
    from scipy.special import gammaln

    alpha = np.maximum(marginal * precision[:, None], 1e-300)
    terms = np.where(counts > 0, gammaln(alpha + counts) - gammaln(alpha), 0.0)
    size = counts.sum(axis=1)
    return terms.sum(axis=1) + gammaln(precision) - gammaln(precision + size)


def gaussian_scores(train: Sessions, test: Sessions) -> Float[Array, "N"]:
    """log-likelihood of each test session where each arm's mean is normal, anew in every session."""
    plays = np.bincount(train.arms, minlength=train.n_arms)
    centre = train.rewards.mean()
    means = (np.bincount(train.arms, train.rewards, train.n_arms) + centre) / (plays + 1)
    fits = []
    for ratio in _RATIOS:
        variance = _profile_variance(train, means, ratio)
        fits.append((_normal(train, means, variance, ratio).sum(), variance, ratio))
    _, variance, ratio = max(fits)
    return _normal(test, means, variance, ratio)


def _profile_variance(sessions: Sessions, means: Float[Array, "A"], ratio: float) -> float:
    """The variance within sessions that fits best, given the ratio of that between them."""
    _, size, within, between = _spread(sessions, means)
    return float((within + size * between**2 / (1 + size * ratio)).sum() / sessions.n_steps)


def _normal(sessions: Sessions, means: Float[Array, "A"], variance: float, ratio: float) -> Float[Array, "N"]:
    groups, size, within, between = _spread(sessions, means)
    quadratic = within + size * between**2 / (1 + size * ratio)
    scores = -0.5 * (size * np.log(2 * np.pi * variance) + np.log1p(size * ratio) + quadratic / variance)
    return np.bincount(groups.session, scores, len(sessions))


def _spread(
    sessions: Sessions, means: Float[Array, "A"]
) -> tuple[_Groups, Float[Array, "G"], Float[Array, "G"], Float[Array, "G"]]:
    """Per group: its size, squared deviations from its own mean, and that mean's deviation from the arm's."""
    groups = _Groups.of(sessions)
    deviation = sessions.rewards - means[sessions.arms]
    size = groups.sums()
    between = groups.sums(deviation) / size
    return groups, size, np.maximum(groups.sums(deviation**2) - size * between**2, 0.0), between
