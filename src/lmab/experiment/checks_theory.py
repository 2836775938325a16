"""Checks of the paper's theory: identifiability, separation, the naive approach; None while rows are missing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .ambiguity import width
from .analysis import episodes_needed
from .evidence import Evidence, Finding, Mean
from .methods import DIRECT_MLE_FIT, DIRECT_MLE_FIXED, ED_MLE, ED_MLE_FIT, ED_MOMENTS, HISTORY
from .setting import Contender

_IDENTIFIABLE = 5  # 2M - 1 for the three contexts of the study
_FLOOR = 0.2  # of the width of the ambiguity set: an estimate within the set is rarely nearer to the truth


def parameters_need_the_horizon(evidence: Evidence) -> Finding | None:
    """Algorithm 1's distance has a floor at every H < 2M - 1, and falls at every other horizon."""
    budgets = evidence.places("n_episodes", ED_MOMENTS)
    texts, holds, regimes = [], [], set()
    for horizon in evidence.places("horizon", ED_MOMENTS):
        ends = [evidence.mean("distance", ED_MOMENTS, horizon=horizon, n_episodes=n) for n in (budgets[0], budgets[-1])]
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
    budgets = evidence.places("n_episodes", ED_MOMENTS)
    horizons = evidence.places("horizon", ED_MOMENTS)
    if not budgets or not horizons:
        return None
    lost: dict[Any, Mean] = {}
    for horizon in horizons:
        found = evidence.mean("value_gap", ED_MOMENTS, horizon=horizon, n_episodes=budgets[-1])
        if found is None:
            return None
        lost[horizon] = found
    text = f"Algorithm 1's loss per step at N = {budgets[-1]:,}: " + ", ".join(f"H = {h}: {m}" for h, m in lost.items())
    return Finding(all(one.mean < 0.005 for one in lost.values()), text)


def separation_gives_the_fast_rate(evidence: Evidence) -> Finding | None:
    """The rate follows gamma^2 H better than H or gamma alone, and is parametric where gamma^2 H is large."""
    there = {row.method for row in evidence.rows}
    method = ED_MLE_FIT if ED_MLE_FIT.name in there else DIRECT_MLE_FIT
    rates = _rates(evidence, method)
    if len(rates) < 4:
        return None
    values = np.array(list(rates.values()))
    columns = {"gamma^2 H": [g**2 * h for g, h in rates], "H": [h for _, h in rates], "gamma": [g for g, _ in rates]}
    follows = {name: _rank_correlation(np.array(column, float), values) for name, column in columns.items()}
    scales = np.array(columns["gamma^2 H"])
    fast, slow = values[scales >= np.quantile(scales, 0.8)], values[scales <= np.quantile(scales, 0.2)]
    collapses = follows["gamma^2 H"] > max(follows["H"], follows["gamma"])
    text = (
        f"{method.label}'s distance falls as N^-r: r = {fast.mean():.2f} in the fifth of the cells with the largest "
        f"gamma^2 H (parametric: 0.50), {slow.mean():.2f} in the fifth with the least; rank correlation of r with "
        + ", ".join(f"{name} {value:.2f}" for name, value in follows.items())
    )
    return Finding(bool(collapses and fast.min() > 0.35 and slow.mean() < 0.35), text)


def _rates(evidence: Evidence, method: Contender) -> dict[tuple[float, int], float]:
    budgets, rates = evidence.places("n_episodes", method)[:2], {}
    for gap in evidence.places("separation", method):
        for horizon in evidence.places("horizon", method):
            ends = [evidence.mean("distance", method, separation=gap, horizon=horizon, n_episodes=n) for n in budgets]
            if len(ends) == 2 and ends[0] is not None and ends[1] is not None:
                rates[gap, horizon] = math.log(ends[0].mean / ends[1].mean) / math.log(budgets[1] / budgets[0])
    return rates


def _rank_correlation(one: Any, other: Any) -> float:
    from scipy.stats import spearmanr

    return float(spearmanr(one, other).statistic) if np.ptp(one) > 0 and np.ptp(other) > 0 else 0.0


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
            found = episodes_needed(rows, method.name, 0.97)
            if found is None:
                return None
            needed.append(found.n_episodes)
        growth[method] = needed[1] / needed[0] if math.isfinite(needed[0]) else math.inf
        texts.append(f"{method.label} {_number(needed[0])} to {_number(needed[1])}")
    holds = [growth[HISTORY] > 2 * growth[method] for method in growth if method is not HISTORY]
    text = (
        f"episodes for .97 of the genie from A = {ends[0][0]}, H = {ends[0][1]} to A = {ends[1][0]}, H = {ends[1][1]}: "
    )
    return Finding(all(holds), text + ", ".join(texts))


def _number(value: float) -> str:
    return f"{value:,.0f}" if math.isfinite(value) else "more than were tried"
