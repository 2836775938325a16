"""Bandits that several planning tests share."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from seeds import generator

from lmab import LatentBandit

#: Two Bernoulli arms with uniform priors: optimal expected successes in H = 1, 2, ... pulls, exact.
TWO_UNIFORM_ARMS = [
    Fraction(1, 2), Fraction(13, 12), Fraction(5, 3), Fraction(41, 18),
    Fraction(26, 9), Fraction(421, 120), Fraction(595, 144), Fraction(1999, 420),
]  # fmt: skip


def two_uniform_arms(horizon: int) -> LatentBandit:
    """Contexts are the product of two Gauss-Legendre rules with all moments up to `horizon` right."""
    nodes, weights = np.polynomial.legendre.leggauss(-(-(horizon + 1) // 2))
    nodes, weights = (nodes + 1) / 2, weights / weights.sum()
    means = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), axis=2).reshape(-1, 2)
    return LatentBandit.bernoulli(np.outer(weights, weights).ravel(), means)


def small_bandit(seed: int) -> tuple[LatentBandit, int]:
    """A bandit with 2 or 3 values, of both signs, and a horizon, small enough to enumerate every history."""
    rng = generator(seed)
    n_contexts, n_arms, n_values = (int(n) for n in rng.integers([1, 2, 2], [5, 4, 4]))
    probabilities = rng.dirichlet(np.full(n_values, 0.5), (n_contexts, n_arms))
    values = np.round(rng.normal(size=n_values), 3)
    horizon = int(rng.integers(1, 5 if n_arms * n_values < 9 else 4))
    return LatentBandit.categorical(rng.dirichlet(np.ones(n_contexts)), probabilities, values), horizon
