"""Which arm to play: the best by its score, among those that are allowed or were not played yet."""

from __future__ import annotations

import numpy as np

from .._shapes import Array, Bool, Float, Integer

_ROUNDING = 1e-12


def best_allowed(scores: Float[Array, "n A"], allowed: Bool[Array, "n A"] | None = None) -> Integer[Array, "n"]:
    """The allowed arm with the highest score; the lowest number among equals.

    Scores within rounding of each other are equal, so that a decision does not depend on the order of a sum.

    Examples:
        >>> import numpy as np
        >>> from lmab.policies import best_allowed
        >>> best_allowed(np.array([[0.2, 0.9, 0.9]]))
        array([1])
        >>> best_allowed(np.array([[0.2, 0.9, 0.9]]), np.array([[True, False, True]]))
        array([2])
    """
    if allowed is not None:
        scores = np.where(allowed, scores, -np.inf)
    top = scores.max(axis=1, keepdims=True)
    best = scores >= top - _ROUNDING * np.abs(top)
    return (best if allowed is None else best & allowed).argmax(axis=1)


def unplayed(played: Bool[Array, "n A"], allowed: Bool[Array, "n A"] | None) -> Bool[Array, "n A"]:
    """Arms that may be played in sessions without repeats; where nothing new is allowed, whatever is."""
    if allowed is None:
        return ~played
    fresh = ~played & allowed
    return np.where(fresh.any(axis=1, keepdims=True), fresh, allowed)
