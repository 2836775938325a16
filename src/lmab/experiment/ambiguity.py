"""How wrong parameters can be when sessions are shorter than 2M - 1 steps: the width of the ambiguity set on a line.

Sessions of H steps on a line show the first H moments of the positions. Three points with weights have five free
numbers, so for H < 5 other points with the same moments exist. They are found from the moments: with one point t
given, the other two are the roots of the quadratic that is orthogonal to 1 and x under (x - t) dmu.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from .._shapes import Array, Float
from .setting import Line, generator

_FREE = np.linspace(-1.3, 1.3, 53)  # where the given point may lie
_CHANGES = np.linspace(-0.15, 0.15, 7)  # of the moments that sessions do not show


@cache
def width(n_arms: int, horizon: int, instance: int) -> float:
    """The largest distance from bandit `instance` (M = 3, on a line) to one with the same H moments; 0 from H = 5."""
    if horizon >= 5:
        return 0.0
    line = Line.draw(3, n_arms, generator(instance, "bandit"))
    moments = np.array([line.weights @ line.positions**order for order in range(5)])
    steep = float(np.abs(line.slopes).max())
    largest = 0.0
    for change in _changes(horizon):
        for given in _FREE:
            found = three_points(moments + change, given)
            if found is not None and np.abs(found[0]).max() * steep <= 0.5:  # means are probabilities
                largest = max(largest, _moved(line.positions, line.weights, *found))
    return 2 * steep * largest  # the distance of two types is that of their rewards on the steepest arm


def three_points(moments: Float[Array, "5"], given: float) -> tuple[Float[Array, "3"], Float[Array, "3"]] | None:
    """Three positions, `given` among them, and weights with these moments (from order 0 to 4); None: there are none."""
    shifted = moments[1:] - given * moments[:-1]
    system = np.array([[shifted[1], shifted[0]], [shifted[2], shifted[1]]])
    if abs(np.linalg.det(system)) < 1e-12:
        return None
    slope, constant = np.linalg.solve(system, -shifted[2:])
    under_root = slope**2 / 4 - constant
    if under_root <= 1e-12:
        return None
    points = np.array([given, -slope / 2 - np.sqrt(under_root), -slope / 2 + np.sqrt(under_root)])
    if np.abs(np.subtract.outer(points, points))[np.triu_indices(3, 1)].min() < 1e-6:
        return None
    weights = np.linalg.solve(np.vander(points, 3, increasing=True).T, moments[:3])
    return (points, weights) if weights.min() >= 0 else None


def _changes(horizon: int) -> Float[Array, "n 5"]:
    """Changes of the moments above the horizon: none of order 4 or less is free at H = 4, one at 3, two at 2."""
    free = [_CHANGES if order > horizon else np.zeros(1) for order in range(5)]
    return np.stack(np.meshgrid(*free, indexing="ij"), axis=-1).reshape(-1, 5)


def _moved(
    points: Float[Array, "a"], weights: Float[Array, "a"], others: Float[Array, "b"], shares: Float[Array, "b"]
) -> float:
    """The Wasserstein distance on a line: the area between the two distribution functions."""
    cuts = np.sort(np.concatenate([points, others]))
    below = [(mass[:, None] * (place[:, None] <= cuts[:-1])).sum(axis=0)
             for place, mass in ((points, weights), (others, shares))]  # fmt: skip
    return float(np.abs(below[0] - below[1]) @ np.diff(cuts))
