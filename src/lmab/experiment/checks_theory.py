"""Checks of the paper's theory: identifiability, separation, the naive approach; None while rows are missing.

Ambiguity: sessions of H steps on a line show the first H moments of the positions. Three points with weights have five
free numbers, so for H < 5 other points with the same moments exist. They are found from the moments: with one point t
given, the other two are the roots of the quadratic that is orthogonal to 1 and x under (x - t) dmu.

Collapse: a rate r means that the distance falls as N^-r. If gamma^2 H decides, cells with the same gamma^2 H have the
same rate, whatever their gamma and H are. If another power of gamma decides, the rates are a function of that product.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from .. import theory
from .._shapes import Array, Float
from .analysis import Evidence, Finding, Mean, mean_and_error, measured, sessions_needed
from .methods import (
    DIRECT_MLE_FIT,
    DIRECT_MLE_FIXED,
    ED_MLE,
    ED_MLE_FIT,
    ED_MOMENTS,
    HISTORY,
    Contender,
    Line,
    generator,
)
from .store import Row

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


_IDENTIFIABLE = 5  # 2M - 1 for the three types of the study
_FLOOR = 0.2  # of the width of the ambiguity set: an estimate within the set is rarely nearer to the truth
_FEWEST_CELLS = 6  # of gamma and H: fewer show no curve
_COLLAPSE = 0.8  # share of the rates' variance that gamma^2 H has to explain
_FAST = 0.35  # a rate that is nearer to the parametric 1/2 than to the slow ones


def parameters_need_the_horizon(evidence: Evidence) -> Finding | None:
    """Algorithm 1's distance has a floor at every H < 2M - 1, and falls at every other horizon."""
    budgets = evidence.places("n_sessions", ED_MOMENTS)
    texts, holds, regimes = [], [], set()
    for horizon in evidence.places("horizon", ED_MOMENTS):
        ends = [evidence.mean("distance", ED_MOMENTS, horizon=horizon, n_sessions=n) for n in (budgets[0], budgets[-1])]
        if ends[0] is None or ends[1] is None:
            return None
        text = f"H = {horizon}: {ends[0].mean:.3f} to {ends[1].mean:.3f}"
        if horizon < _IDENTIFIABLE:
            floor = float(np.mean([width(row.n_arms, horizon, row.instance) for row in evidence.rows
                                   if row.method == ED_MOMENTS.name and row.horizon == horizon]))  # fmt: skip
            holds.append(ends[1].mean > _FLOOR * floor)
            text += f" (the ambiguity is {floor:.3f} wide)"
        else:
            holds.append(ends[1].mean < ends[0].mean / 3)
        regimes.add(horizon < _IDENTIFIABLE)
        texts.append(text)
    if len(regimes) < 2:
        return None
    text = f"Algorithm 1's distance from N = {budgets[0]:,} to {budgets[-1]:,}: " + ", ".join(texts)
    return Finding(all(holds), text)


def values_do_not(evidence: Evidence) -> Finding | None:
    """At the largest budget Algorithm 1 loses less than .005 per step at every horizon, short ones among them."""
    budgets = evidence.places("n_sessions", ED_MOMENTS)
    horizons = evidence.places("horizon", ED_MOMENTS)
    if not budgets or not horizons:
        return None
    lost: dict[Any, Mean] = {}
    for horizon in horizons:
        found = evidence.mean("value_gap", ED_MOMENTS, horizon=horizon, n_sessions=budgets[-1])
        if found is None:
            return None
        lost[horizon] = found
    text = f"Algorithm 1's loss per step at N = {budgets[-1]:,}: " + ", ".join(f"H = {h}: {m}" for h, m in lost.items())
    return Finding(all(one.mean < 0.005 for one in lost.values()), text)


def separation_gives_the_fast_rate(evidence: Evidence) -> Finding | None:
    """ED+MLE's rates collapse in gamma^2 H, and are parametric where gamma^2 H is large, at the last budgets too."""
    found = rates(evidence.rows, ED_MLE_FIT)
    last = evidence.places("n_sessions", ED_MLE_FIT)[-2:]
    ends = rates([row for row in evidence.rows if row.n_sessions in last], ED_MLE_FIT)
    if len(found) < _FEWEST_CELLS:
        return None
    cells = sorted(found, key=scale)
    fifth = max(len(cells) // 5, 1)
    fast = [mean.mean for part in (found, ends) for cell, mean in part.items() if cell in cells[-fifth:]]
    slow = [found[cell].mean for cell in cells[:fifth]]
    follows, others = explained(found, 2), {name: explained(found, power) for power, name in OTHER_POWERS.items()}
    text = (
        f"ED+MLE's distance falls as N^-r: r = {min(fast):.2f} to {max(fast):.2f} in the fifth of the {len(cells)} "
        f"cells with the largest gamma^2 H (parametric: 0.50), {min(slow):.2f} to {max(slow):.2f} in the fifth with "
        f"the least; a rising function of gamma^2 H explains {follows:.0%} of the variance of r "
        f"(asked: {_COLLAPSE:.0%}, and more than "
        + ", ".join(f"{name} {share:.0%}" for name, share in others.items())
        + ")"
    )
    direct = rates(evidence.rows, DIRECT_MLE_FIT)
    told = f"; DirectMLE: {explained(direct, 2):.0%}" if len(direct) >= _FEWEST_CELLS else ""
    holds = follows >= _COLLAPSE and follows > max(others.values()) and min(fast) > _FAST and np.mean(slow) < _FAST
    return Finding(bool(holds), text + told)


def histories_cost_more(evidence: Evidence) -> Finding | None:
    """What the history MDP needs for .97 of the genie grows faster with arms and steps than what the others need."""
    texts, holds = [], []
    sizes = sorted({(row.n_arms, row.horizon) for row in evidence.rows if row.method == HISTORY.name})
    if len(sizes) < 2:
        return None
    ends = (sizes[0], sizes[-1])
    growth = {}
    for method in (HISTORY, ED_MOMENTS, ED_MLE, DIRECT_MLE_FIXED):
        needed = []
        for n_arms, horizon in ends:
            rows = [row for row in evidence.rows if (row.n_arms, row.horizon) == (n_arms, horizon)]
            found = sessions_needed(rows, method.name, 0.97)
            if found is None:
                return None
            needed.append(found.n_sessions)
        growth[method] = needed[1] / needed[0] if math.isfinite(needed[0]) else math.inf
        texts.append(f"{method.label} {_number(needed[0])} to {_number(needed[1])}")
    holds = [growth[HISTORY] > 2 * growth[method] for method in growth if method is not HISTORY]
    text = (
        f"sessions for .97 of the genie from A = {ends[0][0]}, H = {ends[0][1]} to A = {ends[1][0]}, H = {ends[1][1]}: "
    )
    return Finding(all(holds), text + ", ".join(texts))


def _number(value: float) -> str:
    return f"{value:,.0f}" if math.isfinite(value) else "more than were tried"
