"""One decision of one session, in Numba. See `reference.planning_decide`."""

from __future__ import annotations

import numpy as np
from numba import njit

from ..reference.planning_decide import ROUNDING
from .planning_lookahead import FAST


@njit(cache=True, fastmath=FAST, error_model="numpy")
def updated(belief, likelihood):
    """The product, and its largest entry."""
    product, top = np.empty(len(belief)), 0.0
    for m in range(len(belief)):
        product[m] = belief[m] * likelihood[m]
        top = max(top, product[m])
    return product, top


@njit(cache=True, fastmath=FAST, error_model="numpy")
def best_plan(belief, vectors, start, stop, scores):
    """The first of the plans from `start` to `stop` whose score is the highest, up to rounding."""
    top = -1e300
    for k in range(start, stop):
        total = 0.0
        for m in range(len(belief)):
            total += vectors[k, m] * belief[m]
        scores[k - start] = total
        top = max(top, total)
    enough = top - ROUNDING * abs(top)
    k = 0
    while scores[k] < enough:
        k += 1
    return start + k
