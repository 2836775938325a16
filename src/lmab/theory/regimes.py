"""Regimes: what can be learned with so many types and steps (Figure 1, section 3)."""

from __future__ import annotations

from enum import StrEnum


class Regime(StrEnum):
    """What kind of problem a number of types and a horizon make (Figure 1)."""

    BANDIT = "one bandit: H = 1 or M = 1"
    CLUSTERS = "sessions show their type: H >= A / gamma^2"
    SEPARATED = "polynomial by separation: H >= M^2 / gamma^2"
    PARAMETERS = "types can be learned: H >= 2M - 1"
    VALUES = "only values can be learned: H < 2M - 1"


def regime(n_types: int, horizon: int, *, n_arms: int | None = None, gamma: float | None = None) -> Regime:
    """The regime of Figure 1; constants and logarithms are left out, as they are there.

    With `gamma`, a separation of the types, sessions of M^2 / gamma^2 steps make the number of sessions polynomial
    (appendix C); with `n_arms` too, sessions of A / gamma^2 steps can be clustered one by one (section 1.2).
    """
    if n_types == 1 or horizon == 1:
        return Regime.BANDIT
    if gamma is not None:
        if n_arms is not None and horizon >= n_arms / gamma**2:
            return Regime.CLUSTERS
        if horizon >= n_types**2 / gamma**2:
            return Regime.SEPARATED
    return Regime.PARAMETERS if identifiable(n_types, horizon) else Regime.VALUES


def identifiable(n_types: int, horizon: int) -> bool:
    """Whether sessions are long enough to identify parameters: H >= 2M - 1 (section 3.2)."""
    return horizon >= 2 * n_types - 1
