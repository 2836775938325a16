"""Maximum likelihood on core plays: the sessions that it needs, and what it gives (Lemmas 4.1 and C.3)."""

from __future__ import annotations

import math

from .numbers import power, solve_log


def likelihood_sessions(core_size: int, n_types: int, horizon: int, delta: float, eta: float) -> float:
    """Smallest N with N >= n^min(2H+1, 4M-1) log(N / eta) / delta^2 (Lemma 4.1)."""
    factor = power(core_size, min(2 * horizon + 1, 4 * n_types - 1)) * power(delta, -2)
    return solve_log(factor, eta)


def likelihood_variation(core_size: int, n_types: int, horizon: int, n_sessions: float, eta: float) -> float:
    """How far the law of core plays at the maximum of the likelihood is from the true one (Lemma C.3).

    It is sqrt((p log(n H N) + log(1 / eta)) / N) with p = n M + M - 1 parameters, where the paper prints n + M and then
    n. Lemmas 4.1 and C.2 follow from it.
    """
    n_parameters = core_size * n_types + n_types - 1
    return math.sqrt((n_parameters * math.log(core_size * horizon * n_sessions) + math.log(1 / eta)) / n_sessions)


def moments_from_variation(core_size: int, order: int, variation: float) -> float:
    """How well moments of an order agree when laws of core plays differ by `variation`: n^l times it (Lemma 4.1)."""
    return power(core_size, order) * variation
