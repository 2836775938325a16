"""Bandits that several planning tests share."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from lmab import LatentBandit
from lmab.testing import small_bandit as small_bandit

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
