"""Regimes: what can be learned with so many contexts and steps (Figure 1, section 3)."""

from __future__ import annotations

from enum import StrEnum


class Regime(StrEnum):
    """What kind of problem a number of contexts and a horizon make (Figure 1)."""

    BANDIT = "one bandit: H = 1 or M = 1"
    CLUSTERS = "sessions show their context: H >= A / gamma^2"
    SEPARATED = "polynomial by separation: H >= M^2 / gamma^2"
    PARAMETERS = "contexts can be learned: H >= 2M - 1"
    VALUES = "only values can be learned: H < 2M - 1"


def regime(n_contexts: int, horizon: int, *, n_arms: int | None = None, gamma: float | None = None) -> Regime:
    """The regime of Figure 1; constants and logarithms are left out, as they are there.

    With `gamma`, a separation of the contexts, sessions of M^2 / gamma^2 steps make the number of sessions polynomial
    (appendix C); with `n_arms` too, sessions of A / gamma^2 steps can be clustered one by one (section 1.2).
    """
    if n_contexts == 1 or horizon == 1:
        return Regime.BANDIT
    if gamma is not None:
        if n_arms is not None and horizon >= n_arms / gamma**2:
            return Regime.CLUSTERS
        if horizon >= n_contexts**2 / gamma**2:
            return Regime.SEPARATED
    return Regime.PARAMETERS if identifiable(n_contexts, horizon) else Regime.VALUES


def identifiable(n_contexts: int, horizon: int) -> bool:
    """Whether sessions are long enough to identify parameters: H >= 2M - 1 (section 3.2)."""
    return horizon >= 2 * n_contexts - 1
