"""Checks of the paper's theory: identifiability, separation, the naive approach; None while rows are missing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .ambiguity import width
from .analysis import sessions_needed
from .collapse import OTHER_POWERS, explained, rates, scale
from .evidence import Evidence, Finding, Mean
from .methods import DIRECT_MLE_FIT, DIRECT_MLE_FIXED, ED_MLE, ED_MLE_FIT, ED_MOMENTS, HISTORY

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
