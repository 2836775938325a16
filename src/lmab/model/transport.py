"""Wasserstein distances between mixtures: the cheapest way to move one set of weights onto another (section 2.3)."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._shapes import Array, Float
from ..checks import check_array
from ..errors import InvalidArgument


def wasserstein(weights: Any, points: Any, other_weights: Any, other_points: Any) -> float:
    """W(gamma, gamma') of section 2.3: the cost of moving a point onto another is their largest difference.

    Args:
        weights: (M,) of the first mixture; `points` (M, n) are its parameters nu_m, for example on a core set.
        other_weights: (K,) of the second mixture; `other_points` (K, n).

    Examples:
        >>> from lmab.model import wasserstein
        >>> round(wasserstein([0.5, 0.5], [[0.0, 1.0], [1.0, 0.0]], [1.0], [[0.5, 0.2]]), 10)
        0.65
    """
    first, second = check_array("points", points, ndim=2), check_array("other_points", other_points, ndim=2)
    if first.shape[1] != second.shape[1]:
        raise InvalidArgument(f"other_points must have {first.shape[1]} columns, got {second.shape[1]}")
    cost = np.abs(first[:, None] - second[None]).max(axis=2)
    supply, demand = (check_array("weights", one, ndim=1) for one in (weights, other_weights))
    return transport(supply, demand, cost)


def transport(supply: Float[Array, "M"], demand: Float[Array, "K"], cost: Float[Array, "M K"]) -> float:
    """Least cost of moving `supply` onto `demand`: the linear program over couplings, equation (gamma_set)."""
    from scipy.optimize import linprog
    from scipy.sparse import eye_array, kron, vstack

    m, k = cost.shape
    leave = kron(eye_array(m), np.ones((1, k)))
    arrive = kron(np.ones((1, m)), eye_array(k))
    # The masses agree up to rounding only, so the last, implied, equation is left out.
    equations = vstack([leave, arrive]).tocsr()[:-1]
    amounts = np.concatenate([supply / supply.sum(), demand / demand.sum()])[:-1]
    answer = linprog(cost.ravel(), A_eq=equations, b_eq=amounts, bounds=(0, None), method="highs")
    if answer.status != 0:
        raise ArithmeticError(f"the transport program failed: {answer.message}")
    return max(float(answer.fun), 0.0)
