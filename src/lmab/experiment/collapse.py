"""The collapse of appendix C: whether the rate at which distances fall with N depends on gamma^2 H alone.

A rate r means that the distance falls as N^-r. If gamma^2 H decides, cells with the same gamma^2 H have the same rate,
whatever their gamma and H are. If another power of gamma decides, the rates are a function of that product instead.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .. import theory
from .analysis import mean_and_error, measured
from .evidence import Mean
from .setting import Contender
from .store import Row

Cell = tuple[float, int]  # gamma and H
OTHER_POWERS: Mapping[float, str] = {
    0.0: "H",
    1.0: "gamma H",
    4.0: "gamma^4 H",
    math.inf: "gamma",
}  # what else it may be


def rates(rows: Sequence[Row], method: Contender) -> dict[Cell, Mean]:
    """The rate of each cell: a straight line through log distance against log N, instance by instance."""
    curves: dict[Cell, dict[int, dict[int, float]]] = {}
    for row, distance in measured(rows, "distance"):
        if row.method == method.name:
            instances = curves.setdefault((row.separation, row.horizon), {})
            instances.setdefault(row.instance, {})[row.n_sessions] = distance
    found = {}
    for cell, instances in sorted(curves.items()):
        budgets = set().union(*instances.values())
        slopes = [_rate(curve) for curve in instances.values() if len(budgets) > 1 and set(curve) == budgets]
        if len(slopes) > 1:
            found[cell] = Mean(*mean_and_error(slopes), len(slopes))
    return found


def scale(cell: Cell, power: float = 2.0) -> float:
    """gamma^power H; gamma alone for an infinite power."""
    gamma, horizon = cell
    return gamma if math.isinf(power) else gamma**power * horizon


def explained(found: Mapping[Cell, Mean], power: float) -> float:
    """The share of the rates' variance that the best rising function of gamma^power H explains, from 0 to 1."""
    from scipy.optimize import isotonic_regression

    values = np.array([mean.mean for mean in found.values()])
    spread = float(((values - values.mean()) ** 2).sum())
    if spread < 1e-12:
        return 0.0  # there is nothing to explain
    keys = np.round(np.log([scale(cell, power) for cell in found]), 6)  # equal products are one place
    places, where, counts = np.unique(keys, return_inverse=True, return_counts=True)
    means = np.bincount(where, weights=values) / counts
    fitted = isotonic_regression(means, weights=counts).x[where] if len(places) > 1 else np.full(len(values), means[0])
    return 1 - float(((values - fitted) ** 2).sum()) / spread


@dataclass(frozen=True)
class Promise:
    """What Lemma C.2 asks of sessions and promises, for a number of sessions on core plays (all constants 1)."""

    n_sessions: int
    scale: float  # the least gamma^2 H for which it speaks
    errors: theory.SeparatedErrors
    distance: float  # largest distance of the models, as rows have it, that its two bounds allow


def promise(n_types: int, n_sessions: int) -> Promise:
    """Lemma C.2 for Bernoulli rewards and equal weights, as in the study."""
    n_core, w_min = theory.core_set_size(n_types), 1 / n_types
    longest = theory.separated_errors(n_core, n_types, 2, 10**9, n_sessions, 1.0, w_min=w_min)  # N alone decides
    asked = theory.separated_horizon(n_core, n_types, 2, 1.0, longest.epsilon, w_min)
    distance = n_types * longest.weights + theory.model_distance(n_types, 2, longest.core)
    return Promise(n_sessions, asked, longest, distance)


def _rate(curve: Mapping[int, float]) -> float:
    logs = np.log([(n, max(distance, 1e-12)) for n, distance in curve.items()])
    return -float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])
