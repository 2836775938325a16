"""Exploration floors: the distribution of a service's exploration over its arms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

YOUNG = 100  # plays per type from which an arm has enough data to rely on
_SPREAD = 0.2  # part of the floor that all arms share; the rest goes to arms with little data
_FOR_YOUNG = 0.5  # part of the floor that arms with little data share


def floors(counts: Sequence[int], total: float, n_types: int = 1) -> Any:
    """Return the exploration floor of each arm: a small equal part, and more for arms with few plays.

    Arms with fewer than 100 plays for each type share half of the floor, as long as there are any.

    Examples:
        >>> from lmab.policies.exploration import floors
        >>> floors([90, 30], 0.1, n_types=0).round(3)
        array([0.032, 0.068])
        >>> floors([4000, 2000, 7], 0.1, n_types=3).round(3)
        array([0.019, 0.031, 0.05 ])
    """
    plays = np.asarray(counts, float)
    young = plays < YOUNG * n_types
    if not young.any() or young.all():
        return _by_need(plays, total)
    result = np.empty(len(plays))
    result[young] = _by_need(plays[young], _FOR_YOUNG * total)
    result[~young] = _by_need(plays[~young], (1 - _FOR_YOUNG) * total)
    return result


def _by_need(plays: Any, total: float) -> Any:
    wanted = 1 / (plays + max(float(plays.mean()) / 10, 1e-3))
    return total * (_SPREAD / len(plays) + (1 - _SPREAD) * wanted / wanted.sum())
