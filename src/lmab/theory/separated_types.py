"""Separated types: the horizon and the sessions that they need, and the errors left (appendix C)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .._shapes import Array, Float
from .numbers import solve_log


def separation(distances: Float[Array, "M M"]) -> float:
    """gamma of Assumption C.1: the least distance between two types, `bandit.rewards.distances(bandit.rewards)`."""
    apart = distances[~np.eye(len(distances), dtype=bool)]
    return float(apart.min()) if len(apart) else math.inf


def core_separation(n_types: int, n_values: int, gamma: float) -> float:
    """The least distance on some core pair of two types that are separated by gamma (appendix C)."""
    return gamma / (n_values * math.sqrt(2 * n_types))


def session_shows_type(core_size: int, horizon: int, apart: float) -> float:
    """Least probability that a session's core plays are within apart / 8 of its own type everywhere (Lemma C.4).

    Types are `apart` on some core pair. An arm is played at least H / (2n) times but for exp(-H / (16 n)), and is
    then within apart / 8 but for 2 exp(-apart^2 H / (64 n)); the paper prints the second without the factor 2.
    """
    close = max(1 - 2 * math.exp(-(apart**2) * horizon / (64 * core_size)), 0.0)
    enough = 1 - math.exp(-horizon / (16 * core_size))
    return max(1 - core_size * (1 - close * enough), 0.0)


def separated_horizon(core_size: int, n_types: int, n_values: int, gamma: float, epsilon: float, w_min: float) -> float:
    """Horizon from which separation gamma makes the sample size polynomial (appendix C)."""
    return core_size * n_types * n_values**2 * math.log(1 / (epsilon * w_min)) / gamma**2


def separated_sessions(core_size: int, epsilon: float, w_min: float, eta: float) -> float:
    """Smallest N with N >= n log(N / eta) / (w_min epsilon)^2: enough under separation (appendix C)."""
    return solve_log(core_size / (w_min * epsilon) ** 2, eta)


@dataclass(frozen=True)
class SeparatedErrors:
    """What Lemma C.2 promises of the likelihood's maximum on core plays, up to the order of the types."""

    epsilon: float  # 1 or more: the sessions or the steps are too few, and nothing is promised
    weights: float  # largest |w_m - w'_m|: epsilon w_min
    core: float  # largest difference of nu_m and nu'_m on a core pair: 2 epsilon
    wasserstein: float  # largest distance of section 2.3: 3 epsilon, from the two above


def separated_errors(
    core_size: int, n_types: int, n_values: int, horizon: int, n_sessions: float, gamma: float, *, w_min: float,
    eta: float = 0.1,
) -> SeparatedErrors:  # fmt: skip
    """Both bounds of Lemma C.2, with the least epsilon for which N and H are large enough.

    N >= n log(N / eta) / (w_min epsilon)^2 and H >= n M Z^2 log(1 / (epsilon w_min)) / gamma^2 are solved for epsilon.
    """
    by_sessions = math.sqrt(core_size * math.log(n_sessions / eta) / n_sessions) / w_min
    by_steps = math.exp(-(gamma**2) * horizon / (core_size * n_types * n_values**2)) / w_min
    epsilon = max(by_sessions, by_steps)
    return SeparatedErrors(epsilon, epsilon * w_min, 2 * epsilon, 3 * epsilon)
