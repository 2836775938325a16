"""Bounds from one error to the next: subspace, core set, moments, parameters, values (sections 2 and 3)."""

from __future__ import annotations

import math

from .numbers import power


def reconstruction_error(rank: int, off_subspace: float, noise: float) -> float:
    """Largest error of a vector rebuilt from its core entries (Proposition 2.5).

    The vector is within `off_subspace` of the subspace, and its core entries are known to within `noise`.
    """
    return off_subspace + (off_subspace + noise) * math.sqrt(2 * rank)


def model_distance(n_types: int, n_values: int, core_distance: float) -> float:
    """Largest L1 distance over arms of two types whose core pairs differ by `core_distance` (Corollary 3.2)."""
    return 2 * n_values * math.sqrt(2 * n_types) * core_distance


def off_subspace(moment_error: float, weight: float) -> float:
    """Distance of a type of that weight from the leading subspace of second moments with that error (Lemma 3.7)."""
    return math.sqrt(2 * moment_error / weight)


def value_gap(horizon: int, distance: float) -> float:
    """Largest difference between a policy's values on two bandits at this distance (Proposition 3.4).

    Rewards are in [-1, 1]. The distance is that of reward probabilities. For normal rewards see `gaussian_value_gap`.
    """
    return horizon**2 * distance


def gaussian_value_gap(horizon: int, distance: float, scale: float = 1.0, reach: float = 1.0) -> float:
    """Largest difference between a policy's values on two bandits with normal rewards (appendix B.3).

    `distance` is that of the means, which lie in [-reach, reach]. The paper has scale 1 and reach 1. A smaller scale
    makes sessions easier to tell apart: the histories differ by distance / scale, and the values by what that costs.
    """
    return 2 * horizon**2 * distance * max(1.0, reach / scale)


def value_gap_of_moments(horizon: int, n_values: int, delta: float) -> float:
    """Largest difference between a policy's values when moments of order H agree to delta (Lemma 3.5)."""
    return horizon * power(n_values, horizon) * delta


def moments_from_core(n_types: int, order: int, delta: float) -> float:
    """How well all moments of an order agree when those of the core set agree to delta (Proposition 3.6)."""
    return power(2 * n_types, order / 2) * delta


def distance_of_moments(n_types: int, core_size: int, delta: float) -> float:
    """How close parameters are when moments up to order 2M - 1 agree to delta (Lemma 3.3, exponent corrected)."""
    return n_types**3 * core_size * power(delta, 1 / (2 * n_types - 1))
