"""Checks of the paper's sentences about its figures, and of our claims; None while rows are missing.

The paper's methods are judged as printed or published, ED+MLE from the first two steps and L-UCRL with posteriors taken
once, and with Q-MDP, the paper's planner. If such a form was not run, ours stands for it, and the finding names it;
only the order of ED+MLE and L-UCRL, which hangs on the form, is then not judged.

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

from ..._shapes import Array, Float
from .. import theory
from .analysis import Check, Evidence, Finding, Mean, mean_and_error, measured, sessions_needed
from .methods import (
    DIRECT_MLE,
    DIRECT_MLE_FIT,
    DIRECT_MLE_FIXED,
    ED_MLE,
    ED_MLE_FIT,
    ED_MLE_LITERAL,
    ED_MOMENTS,
    EM_BLIND,
    EM_SEGMENTS,
    GENIE,
    HISTORY,
    L_UCRL,
    L_UCRL_PASSES,
    L_UCRL_PUBLISHED,
    L_UCRL_TENSOR,
    PLAN_CERTIFIED,
    PLAN_QMDP,
    TENSOR,
    TENSOR_PAIRS,
    UCB1,
    Contender,
    Line,
    generator,
)
from .store import Row

TENSORS = (TENSOR, TENSOR_PAIRS)


def at_least(measure: str, limits: Mapping[Contender, float], **where: Any) -> Check:
    """Check that every method has at least its limit."""

    def check(evidence: Evidence) -> Finding | None:
        texts, holds = [], []
        for method, limit in limits.items():
            mean = evidence.mean(measure, method, **where)
            if mean is None:
                return None
            holds.append(mean.mean >= limit)
            texts.append(f"{method.label} {mean} (asked: {limit:g})")
        return Finding(all(holds), "; ".join(texts))

    return check


def ed_beats_tensor(evidence: Evidence) -> Finding | None:
    """Check the margin over the paper's baseline, and report that over the stronger form."""
    leads = {tensor: evidence.difference("fraction", ED_MLE, tensor, horizon=7) for tensor in TENSORS}
    asked = leads[TENSOR]
    if asked is None:
        return None
    return Finding(
        asked.mean > 0.05, "; ".join(f"ED+MLE minus {tensor.label}: {mean}" for tensor, mean in leads.items())
    )


def lucrl_is_near(evidence: Evidence) -> Finding | None:
    lead = evidence.difference("fraction", DIRECT_MLE, L_UCRL, horizon=7)
    return None if lead is None else Finding(lead.mean < 0.03, f"DirectMLE minus L-UCRL: {lead}")


def fewer_sessions(evidence: Evidence) -> Finding | None:
    literal, direct = (sessions_needed(evidence.rows, method.name, 0.97) for method in (ED_MLE_LITERAL, DIRECT_MLE))
    if literal is None or direct is None or direct.n_sessions == float("inf"):
        return None
    budgets = evidence.places("n_sessions", ED_MLE_LITERAL)
    reached, at_once = literal.n_sessions < float("inf"), direct.n_sessions <= min(budgets)
    ratio = (literal.n_sessions if reached else max(budgets)) / direct.n_sessions
    text = (
        f"{'' if reached and not at_once else 'at least '}{ratio:.0f} times: the literal recipe needs "
        f"{literal.n_sessions if reached else max(budgets):,.0f}{'' if reached else ' or more'}, "
        f"DirectMLE {direct.n_sessions:,.0f}{' or fewer' if at_once else ''}"
    )
    return Finding(ratio >= 15, text)


def greedy_does_not_probe(evidence: Evidence) -> Finding | None:
    texts, holds = [], []
    for kind, least_loss in (("ordinary", None), ("spread", None), ("hard", 0.25), ("deep", None)):
        qmdp, certified = (evidence.mean("of_optimum", planner, kind=kind) for planner in (PLAN_QMDP, PLAN_CERTIFIED))
        if qmdp is None or certified is None:
            return None
        holds.append(certified.mean >= 0.985 and (least_loss is None or qmdp.mean <= 1 - least_loss))
        texts.append(f"{kind}: Q-MDP {qmdp}, certified {certified}")
    return Finding(all(holds), "; ".join(texts))


def who_scales(evidence: Evidence) -> Finding | None:
    """Judge if DirectMLE is ahead of each other learner, in pairs, by more than two standard errors."""
    arms = evidence.places("n_arms")
    direct = evidence.mean("fraction", DIRECT_MLE, n_arms=arms[-1]) if arms else None
    if direct is None:
        return None
    texts, ahead = [f"A = {arms[-1]:,}: DirectMLE {direct} of the genie"], []
    for method in (ED_MLE, L_UCRL, TENSOR, UCB1):
        lead = evidence.difference("fraction", DIRECT_MLE, method, n_arms=arms[-1])
        if lead is None:
            return None
        ahead.append(lead.mean > 2 * lead.stderr)
        texts.append(f"minus {method.label} {lead}")
    return Finding(all(ahead), ", ".join(texts))


def segments_lift_the_limit(evidence: Evidence) -> Finding | None:
    """Judge if segments halve the distance at the most sessions, in pairs beyond doubt."""
    budgets = evidence.places("n_sessions", EM_SEGMENTS)
    if not budgets:
        return None
    means = [[evidence.mean("distance", method, n_sessions=n) for n in (budgets[0], budgets[-1])]
             for method in (EM_SEGMENTS, EM_BLIND)]  # fmt: skip
    (_, known), (_, blind) = means
    apart = evidence.difference("distance", EM_BLIND, EM_SEGMENTS, n_sessions=budgets[-1])
    if known is None or blind is None or apart is None:
        return None
    texts = [
        f"{method.label} {first} to {last}"
        for method, (first, last) in zip((EM_SEGMENTS, EM_BLIND), means, strict=True)
    ]
    text = f"distance from N = {budgets[0]:,} to {budgets[-1]:,}: " + ", ".join(texts)
    return Finding(2 * known.mean < blind.mean and apart.mean > 2 * apart.stderr, text)


_SHARE = "fraction_qmdp"
_GOOD = 0.95  # Share of the genie that is good.
_L_UCRLS = (L_UCRL_PUBLISHED, L_UCRL_TENSOR, L_UCRL)  # the paper's form first, then its replacements
_LEAST_RISE = 0.005  # A smaller part of the reward per step, or of the genie, is no change.
_RANK = 4  # Rank of the instances.


def forms(evidence: Evidence) -> tuple[Contender, Contender, str]:
    """Return ED+MLE as printed and L-UCRL as published, or ours if they were not run, and a note about it."""
    ed = ED_MLE_LITERAL if _as_much(evidence, ED_MLE_LITERAL, ED_MLE) else ED_MLE
    optimistic = next((one for one in _L_UCRLS if _as_much(evidence, one, L_UCRL)), L_UCRL)
    missing = [theirs for theirs, used in ((ED_MLE_LITERAL, ed), (L_UCRL_PUBLISHED, optimistic)) if theirs is not used]
    return ed, optimistic, "".join(f"; {one.label} was not run" for one in missing)


def _as_much(evidence: Evidence, method: Contender, other: Contender) -> bool:
    """Return whether `method` was run wherever `other` was, and third moments allow."""
    done = [{(*_key(row)[:-1], row.n_sessions) for row in evidence.rows if row.method == one.name and row.horizon > 2}
            for one in (method, other)]  # fmt: skip
    return bool(done[1]) and done[1] <= done[0]


def rises_with_horizon(evidence: Evidence) -> Finding | None:
    """Check that every method but UCB earns more at the last horizon, and at no step significantly less; UCB stays."""
    ed, optimistic, note = forms(evidence)
    texts, holds = [], []
    for method in (ed, optimistic, TENSOR):
        curve, steps = (f("horizon", "per_step_qmdp", method) for f in (evidence.along, evidence.changes_between))
        if len(curve) < 2 or len(steps) < 1:
            return None
        falls = [place for place, step in steps.items() if step.below]
        first, last = min(curve), max(curve)
        holds.append(curve[last].mean > curve[first].mean + _LEAST_RISE and not falls)
        texts.append(_ends(method, curve) + (f", falls at H = {_places(falls)}" if falls else ""))
    flat = evidence.along("horizon", "per_step_qmdp", UCB1)
    if len(flat) < 2:
        return None
    holds.append(max(one.mean for one in flat.values()) - min(one.mean for one in flat.values()) < _LEAST_RISE)
    return Finding(all(holds), "reward per step: " + "; ".join([*texts, _ends(UCB1, flat)]) + note)


def works_well(method: Contender, column: str) -> Check:
    """Return the check that a method has at least .95 of the genie at every place, beyond two standard errors."""

    def check(evidence: Evidence) -> Finding | None:
        curve = evidence.along(column, _SHARE, method)
        if len(curve) < 2:
            return None
        worst = min(curve, key=lambda place: curve[place].mean)
        text = f"{method.label} at least {curve[worst]} of the genie, at {_name(column)} = {worst:,} (asked: {_GOOD:g})"
        return Finding(curve[worst].exceeds(_GOOD), text)

    return check


def does_not_drop(evidence: Evidence) -> Finding | None:
    """Check that the fraction of the genie, averaged over horizons, is not lower with M = 7 than with M = 4.

    The instances differ, so the standard errors of both means add up in squares. A drop that is significant contradicts
    the sentence; an interval that ends below `_LEAST_RISE` supports it; anything else is not decided.
    """
    ed, optimistic, note = forms(evidence)
    texts, outcomes = [], []
    for method in (ed, optimistic):
        few = _over_horizons(evidence, method, n_types=4, n_arms=20, n_sessions=50_000)
        many = _over_horizons(evidence, method, n_types=7, n_arms=50, n_sessions=100_000)
        if few is None or many is None:
            return None
        drop = Mean(few.mean - many.mean, math.hypot(few.stderr, many.stderr), few.n_instances + many.n_instances)
        outcomes.append(False if drop.above else True if drop.exceeds(_LEAST_RISE) is False else None)
        texts.append(f"{method.label} has {few} of the genie with M = 4 and {many} with M = 7, a drop of {drop}")
    return Finding(together(outcomes), "; ".join(texts) + note)


def _over_horizons(evidence: Evidence, method: Contender, **where: Any) -> Mean | None:
    """Return the mean over instances of the fraction of the genie, averaged over the horizons of each."""
    by_instance: dict[int, list[float]] = {}
    for (*_, instance, _), value in evidence.values(_SHARE, method, **where).items():
        by_instance.setdefault(instance, []).append(value)
    if len(by_instance) < 2:
        return None
    return Mean(*mean_and_error([float(np.mean(each)) for each in by_instance.values()]), len(by_instance))


def together(outcomes: Sequence[bool | None]) -> bool | None:
    """Return whether all parts of a claim hold; False if one does not, None if one is not decided."""
    return False if False in outcomes else None if None in outcomes else True


def tensor_falls_behind(column: str) -> Check:
    """Judge if tensor decomposition is below both others by more than two standard errors at every place."""

    def check(evidence: Evidence) -> Finding | None:
        ed, optimistic, note = forms(evidence)
        texts, holds = [], []
        for method in (ed, optimistic):
            leads = evidence.differences_along(column, _SHARE, method, TENSOR)
            if len(leads) < 2:
                return None
            holds.append(all(one.above for one in leads.values()))
            texts.append(f"{method.label} minus tensor: {_counted(leads, column)}")
        genie = evidence.genie_by_setting(_SHARE, TENSOR)
        texts.append(f"the genie minus tensor: {_tally(genie)}")
        is_met = all(one.above for one in genie.values())
        return Finding(all(holds) or (False if is_met else None), "; ".join(texts) + note)

    return check


def iterations_are_needed(evidence: Evidence) -> Finding | None:
    """Judge if no tensor decomposition alone reaches .95 of the genie at any horizon, and EM does at all."""
    ed, optimistic, note = forms(evidence)
    curves = {method: evidence.along("horizon", _SHARE, method) for method in (ed, optimistic, TENSOR, TENSOR_PAIRS)}
    if any(len(curve) < 2 for curve in curves.values()):
        return None
    texts, holds = [], []
    for method, curve in curves.items():
        shares = [one.mean for one in curve.values()]
        holds.append(max(shares) < _GOOD if method in TENSORS else min(shares) >= _GOOD)
        texts.append(f"{method.label} {min(shares):.3f} to {max(shares):.3f} of the genie")
    return Finding(all(holds), ", ".join(texts) + note)


def outperforms(evidence: Evidence) -> Finding | None:
    """Judge if ED+MLE is ahead of every baseline at more than half of the places of the figures, and behind at none."""
    texts, outcomes = [], []
    for other in (UCB1, TENSOR, L_UCRL_PUBLISHED):
        leads = evidence.by_setting(_SHARE, ED_MLE_LITERAL, other)
        if len(leads) < 2 or (other is L_UCRL_PUBLISHED and not _as_much(evidence, other, L_UCRL_TENSOR)):
            return None
        outcome, text = _ahead_or_undecidable(evidence, leads, _SHARE, other)
        outcomes.append(outcome)
        texts.append(f"{ED_MLE_LITERAL.label} minus {other.label}: {text}")
    return Finding(None if None in outcomes else all(outcomes), "; ".join(texts))


def _ahead_or_undecidable(
    evidence: Evidence, leads: Mapping[str, Mean], measure: str, other: Contender
) -> tuple[bool | None, str]:
    """Return whether a method leads, with the same rule applied to the genie in its place.

    If not even the true model is ahead of `other`, the planner hides differences between models: nothing is decided.
    """
    genie = {place: mean for place, mean in evidence.genie_by_setting(measure, other).items() if place in leads}
    text = f"{_tally(leads)} (the genie in its place: {_tally(genie)})"
    if _leads(leads):
        return True, text
    if _leads(genie):
        return False, text
    return None, f"{text}: not decidable with this planner"


def reads(ed: Contender, optimistic: Contender, measure: str = _SHARE, n_types: Sequence[int] | None = None) -> Check:
    """Return the check of one reading of the headline: this form of ED+MLE is ahead of this form of L-UCRL.

    The rule is that of the headline, over the places with these numbers of types, or all.
    """

    def check(evidence: Evidence) -> Finding | None:
        if n_types is not None:
            evidence = Evidence([row for row in evidence.rows if row.n_types in n_types])
        leads = evidence.by_setting(measure, ed, optimistic)
        if len(leads) < 2:
            return None
        laws = sorted({setting.split("-")[0] for setting in leads})
        by_law = "; ".join(
            f"{law}: {_tally({k: v for k, v in leads.items() if k.startswith(law + '-')})}" for law in laws
        )
        outcome, text = _ahead_or_undecidable(evidence, leads, measure, optimistic)
        return Finding(outcome, f"{ed.label} minus {optimistic.label}: {by_law}; together {text}")

    return check


def passes_explain(evidence: Evidence) -> Finding | None:
    """Judge if 75 passes over the same sessions are ahead of 0 at more than half of the places, behind at none."""
    most = L_UCRL_PASSES[-1]
    leads = evidence.by_setting("fraction", most, L_UCRL_PUBLISHED)
    if len(leads) < 2:
        return None
    return Finding(_leads(leads), f"{most.label} minus {L_UCRL_PUBLISHED.label}, certified planner: {_tally(leads)}")


def nearer_to_the_truth(evidence: Evidence) -> Finding | None:
    """Judge if ED+MLE from all pairs is nearer to the true model than our L-UCRL; report the printed form too."""
    gains = evidence.by_setting("distance", L_UCRL_TENSOR, ED_MLE)
    printed = evidence.by_setting("distance", L_UCRL_TENSOR, ED_MLE_LITERAL)
    if len(gains) < 2 or len(printed) < 2:
        return None
    texts = []
    for method, some in ((ED_MLE, gains), (ED_MLE_LITERAL, printed)):
        nearer, farther = sum(one.above for one in some.values()), sum(one.below for one in some.values())
        texts.append(f"{method.label}: significantly nearer at {nearer} of {len(some)} places, farther at {farther}")
    return Finding(2 * sum(one.above for one in gains.values()) > len(gains), "; ".join(texts))


def falls_with_types(evidence: Evidence) -> Finding | None:
    """Judge if tensor decomposition falls with M by trend; report ED+MLE's lead above the rank too."""
    ed, _, note = forms(evidence)
    slope = evidence.slope("n_types", _SHARE, TENSOR)
    ahead = evidence.differences_along("n_types", _SHARE, ed, TENSOR)
    above = {place: mean for place, mean in ahead.items() if place > _RANK}
    if slope is None or not above:
        return None
    trend, n_falling = slope
    text = f"tensor changes by {trend} of the genie with each type, and falls on {n_falling} of {trend.n_instances} "
    text += f"instances; {ed.label} minus tensor for M > {_RANK}: {_counted(above, 'n_types')}"
    return Finding(trend.below, text + note)


def approaches_the_genie(evidence: Evidence) -> Finding | None:
    """Judge if both rise with N, fall significantly at no step, and end at .97 of the genie or more."""
    ed, optimistic, note = forms(evidence)
    texts, holds = [], []
    for method in (ed, optimistic):
        curve, steps = (f("n_sessions", _SHARE, method) for f in (evidence.along, evidence.changes_between))
        if len(curve) < 2 or not steps:
            return None
        first, last = min(curve), max(curve)
        falls = [place for place, step in steps.items() if step.below]
        holds.append(curve[last].mean > curve[first].mean and curve[last].mean >= 0.97 and not falls)
        texts.append(_ends(method, curve) + (f", falls at N = {_places(falls)}" if falls else ""))
    return Finding(all(holds), "; ".join(texts) + note)


def starts_well(evidence: Evidence) -> Finding | None:
    """Judge if L-UCRL from tensor decomposition loses less than .01 of the genie against our start everywhere."""
    column = "n_sessions" if len(evidence.places("n_sessions", L_UCRL)) > 1 else "horizon"
    losses = evidence.differences_along(column, _SHARE, L_UCRL, L_UCRL_TENSOR)
    if len(losses) < 2:
        return None
    text = f"L-UCRL, refitted, from clusters minus from tensors: {_counted(losses, column)}"
    return Finding(all(one.mean < 0.01 for one in losses.values()), text)


def beats_the_guarantee(column: str) -> Check:
    """Judge if Theorem 3.8 needs many times the sessions for the losses of ED+MLE and L-UCRL, at every place."""

    def check(evidence: Evidence) -> Finding | None:
        ed, optimistic, note = forms(evidence)
        genie = {_key(row): row for row in evidence.rows if row.method == GENIE.name}
        texts, holds = [], []
        for method in (ed, optimistic):
            factors = []
            for place in evidence.places(column, method):
                rows = [row for row in evidence.rows if row.method == method.name and getattr(row, column) == place]
                pairs = [(genie[_key(row)].value_qmdp, row.value_qmdp) for row in rows if _key(row) in genie]
                lost = [best - value for best, value in pairs if best is not None and value is not None]
                if len(lost) > 1:
                    row, loss = rows[0], max(sum(lost) / len(lost), 1e-3)
                    asked = theory.budget(row.n_types, row.n_arms, row.horizon, min(loss, 0.99 * row.horizon)).total
                    factors.append(asked / row.n_sessions)
            if len(factors) < 2:
                return None
            holds.append(min(factors) > 100)
            texts.append(f"{method.label}: the theorem asks for at least {min(factors):.1e} times the sessions")
        return Finding(all(holds), "; ".join(texts) + note)

    return check


def _key(row: Any) -> tuple[Any, ...]:
    return row.kind, row.n_types, row.n_arms, row.horizon, row.instance


def _name(column: str) -> str:
    return {"horizon": "H", "n_types": "M", "n_sessions": "N"}[column]


def _places(places: list[Any]) -> str:
    return ", ".join(f"{place:,}" for place in places)


def _ends(method: Contender, curve: dict[Any, Mean]) -> str:
    first, last = min(curve), max(curve)
    return f"{method.label} {curve[first].mean:.3f} at {first:,} to {curve[last].mean:.3f} at {last:,}"


def _counted(differences: dict[Any, Mean], column: str) -> str:
    """Return at how many places a difference is above and below 0, and its range."""
    if not differences:
        return "not run"
    places = [choose(differences, key=lambda place: differences[place].mean) for choose in (min, max)]
    low, high = (f"{differences[place].mean:+.4f} ({_name(column)} = {place:,})" for place in places)
    above, below = (sum(getattr(one, side) for one in differences.values()) for side in ("above", "below"))
    return f"{low} to {high}, significantly above at {above} of {len(differences)} places and below at {below}"


def _leads(differences: Mapping[str, Mean]) -> bool:
    """Return whether a method is significantly ahead at more than half of the places, and behind at none."""
    return 2 * sum(one.above for one in differences.values()) > len(differences) and not any(
        one.below for one in differences.values()
    )


def _tally(differences: Mapping[str, Mean]) -> str:
    """Return at how many places a difference is above and below 0, and its range."""
    low, high = min(one.mean for one in differences.values()), max(one.mean for one in differences.values())
    above, below = sum(one.above for one in differences.values()), sum(one.below for one in differences.values())
    return (
        f"{low:+.4f} to {high:+.4f}, significantly above at {above} of {len(differences)} places and below at {below}"
    )


_FREE = np.linspace(-1.3, 1.3, 53)  # candidates for the given point
_CHANGES = np.linspace(-0.15, 0.15, 7)  # Changes of the moments that sessions do not show.


@cache
def width(n_arms: int, horizon: int, instance: int) -> float:
    """Return the distance of bandit `instance` (M = 3, on a line) to the farthest one with the same H moments."""
    if horizon >= 5:
        return 0.0
    line = Line.draw(3, n_arms, generator(instance, "bandit"))
    moments = np.array([line.weights @ line.positions**order for order in range(5)])
    steep = float(np.abs(line.slopes).max())
    largest = 0.0
    for change in _changes(horizon):
        for points, weights in zip(*three_points(moments + change, _FREE), strict=True):
            if np.abs(points).max() * steep <= 0.5:  # means are probabilities
                largest = max(largest, _moved(line.positions, line.weights, points, weights))
    return 2 * steep * largest  # the distance of two types is that of their rewards on the steepest arm


def three_points(
    moments: Float[Array, "5"], given: Float[Array, "n"]
) -> tuple[Float[Array, "k 3"], Float[Array, "k 3"]]:
    """Return three positions, one of the `given` among them, and weights with these moments (from order 0 to 4).

    There are none for some of the given ones.
    """
    shifted = moments[1:] - given[:, None] * moments[:-1]
    first, second, third, last = shifted.T
    determinant = second**2 - first * third
    given, first, second, third, last, determinant = (
        each[np.abs(determinant) >= 1e-12] for each in (given, first, second, third, last, determinant)
    )
    slope = (first * last - second * third) / determinant
    constant = (third**2 - second * last) / determinant
    under_root = slope**2 / 4 - constant
    given, slope, under_root = (each[under_root > 1e-12] for each in (given, slope, under_root))
    reach = np.sqrt(under_root)
    points = np.stack([given, -slope / 2 - reach, -slope / 2 + reach], axis=1)
    points = points[np.diff(np.sort(points, axis=1), axis=1).min(axis=1, initial=np.inf) >= 1e-6]
    powers = points[:, None] ** np.arange(3)[:, None]
    weights = np.linalg.solve(powers, np.broadcast_to(moments[:3, None], (len(points), 3, 1)))[..., 0]
    possible = weights.min(axis=1, initial=np.inf) >= 0
    return points[possible], weights[possible]


def _changes(horizon: int) -> Float[Array, "n 5"]:
    """Return changes of the moments above the horizon: none of order 4 or less is free at H = 4, one at 3, two at 2."""
    free = [_CHANGES if order > horizon else np.zeros(1) for order in range(5)]
    return np.stack(np.meshgrid(*free, indexing="ij"), axis=-1).reshape(-1, 5)


def _moved(
    points: Float[Array, "a"], weights: Float[Array, "a"], others: Float[Array, "b"], shares: Float[Array, "b"]
) -> float:
    """Return the Wasserstein distance on a line: the area between the two distribution functions."""
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
}  # alternatives to gamma^2 H


def rates(rows: Sequence[Row], method: Contender) -> dict[Cell, Mean]:
    """Return the rate of each cell: a straight line through log distance against log N, instance by instance."""
    curves: dict[Cell, dict[int, dict[int, float]]] = {}
    for row, distance in measured(rows, "distance"):
        if row.method == method.name:
            instances = curves.setdefault((row.separation, row.horizon), {})
            instances.setdefault(row.instance, {})[row.n_sessions] = distance
    slopes_by_cell = {}
    for cell, instances in sorted(curves.items()):
        budgets = set().union(*instances.values())
        slopes = [_rate(curve) for curve in instances.values() if len(budgets) > 1 and set(curve) == budgets]
        if len(slopes) > 1:
            slopes_by_cell[cell] = Mean(*mean_and_error(slopes), len(slopes))
    return slopes_by_cell


def scale(cell: Cell, power: float = 2.0) -> float:
    """Return gamma^power H; gamma alone for an infinite power."""
    gamma, horizon = cell
    return gamma if math.isinf(power) else gamma**power * horizon


def explained(rates_by_cell: Mapping[Cell, Mean], power: float) -> float:
    """Return the share of the rates' variance that the best rising function of gamma^power H explains, from 0 to 1."""
    from scipy.optimize import isotonic_regression

    values = np.array([mean.mean for mean in rates_by_cell.values()])
    spread = float(((values - values.mean()) ** 2).sum())
    if spread < 1e-12:
        return 0.0  # there is nothing to explain
    keys = np.round(np.log([scale(cell, power) for cell in rates_by_cell]), 6)  # equal products are one place
    places, where, counts = np.unique(keys, return_inverse=True, return_counts=True)
    means = np.bincount(where, weights=values) / counts
    fitted = isotonic_regression(means, weights=counts).x[where] if len(places) > 1 else np.full(len(values), means[0])
    return 1 - float(((values - fitted) ** 2).sum()) / spread


@dataclass(frozen=True)
class Promise:
    """Requirement and guarantee of Lemma C.2 for a number of sessions on core plays, with all constants 1."""

    n_sessions: int
    scale: float  # least gamma^2 H at which the guarantee holds; not positive: N is too small for any guarantee
    errors: theory.SeparatedErrors
    distance: float  # largest distance of the models, as rows have it, that its two bounds allow


def promise(n_types: int, n_sessions: int, horizon: int) -> Promise:
    """Evaluate Lemma C.2 for Bernoulli rewards and equal weights, with types so far apart that N alone limits it."""
    n_core, w_min = theory.core_set_size(n_types), 1 / n_types
    errors = theory.separated_errors(n_core, n_types, 2, horizon, n_sessions, math.inf, w_min=w_min)
    asked = theory.separated_horizon(n_core, n_types, 2, 1.0, errors.epsilon, w_min)
    distance = n_types * errors.weights + theory.model_distance(n_types, 2, errors.core)
    return Promise(n_sessions, asked, errors, distance)


def _rate(curve: Mapping[int, float]) -> float:
    logs = np.log([(n, max(distance, 1e-12)) for n, distance in curve.items()])
    return -float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])


_IDENTIFIABLE = 5  # 2M - 1 for the three types of the study
_FLOOR = 0.2  # Part of the width of the ambiguity set: an estimate within the set is rarely nearer to the truth.
_FEWEST_CELLS = 6  # Cells of gamma and H; fewer show no curve.
_COLLAPSE = 0.8  # share of the rates' variance that gamma^2 H has to explain
_FAST = 0.35  # a rate that is nearer to the parametric 1/2 than to the slow ones


def parameters_need_the_horizon(evidence: Evidence) -> Finding | None:
    """Judge if Algorithm 1's distance has a floor at every H < 2M - 1, and falls at every other horizon."""
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
    """Judge if Algorithm 1 loses less than .005 per step at every horizon, also short ones, at the largest budget."""
    budgets = evidence.places("n_sessions", ED_MOMENTS)
    horizons = evidence.places("horizon", ED_MOMENTS)
    if not budgets or not horizons:
        return None
    lost: dict[Any, Mean] = {}
    for horizon in horizons:
        loss = evidence.mean("value_gap", ED_MOMENTS, horizon=horizon, n_sessions=budgets[-1])
        if loss is None:
            return None
        lost[horizon] = loss
    text = f"Algorithm 1's loss per step at N = {budgets[-1]:,}: " + ", ".join(f"H = {h}: {m}" for h, m in lost.items())
    return Finding(all(one.mean < 0.005 for one in lost.values()), text)


def separation_gives_the_fast_rate(evidence: Evidence) -> Finding | None:
    """Judge, for each number of types, if ED+MLE's rates depend on gamma^2 H alone and become parametric."""
    sizes = sorted({row.n_types for row in evidence.rows if row.method == ED_MLE_FIT.name})
    findings_by_size = [_fast_rate(Evidence([row for row in evidence.rows if row.n_types == size])) for size in sizes]
    if not findings_by_size or None in findings_by_size:
        return None
    findings = [one for one in findings_by_size if one is not None]
    text = "; ".join(f"M = {size}: {one.text}" for size, one in zip(sizes, findings, strict=True))
    return Finding(together([one.holds for one in findings]), text)


def _fast_rate(evidence: Evidence) -> Finding | None:
    """Judge if rates depend on gamma^2 H alone, and are parametric if it is large, at the last budgets too."""
    rates_by_cell = rates(evidence.rows, ED_MLE_FIT)
    last = evidence.places("n_sessions", ED_MLE_FIT)[-2:]
    ends = rates([row for row in evidence.rows if row.n_sessions in last], ED_MLE_FIT)
    if len(rates_by_cell) < _FEWEST_CELLS:
        return None
    cells = sorted(rates_by_cell, key=scale)
    fifth = max(len(cells) // 5, 1)
    fast = [mean.mean for part in (rates_by_cell, ends) for cell, mean in part.items() if cell in cells[-fifth:]]
    slow = [rates_by_cell[cell].mean for cell in cells[:fifth]]
    follows, others = (
        explained(rates_by_cell, 2),
        {name: explained(rates_by_cell, power) for power, name in OTHER_POWERS.items()},
    )
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
    """Judge if the sessions that the history MDP needs grow faster with arms and steps than for the others."""
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
            crossing = sessions_needed(rows, method.name, 0.97)
            if crossing is None:
                return None
            needed.append(crossing.n_sessions)
        growth[method] = needed[1] / needed[0] if math.isfinite(needed[0]) else math.inf
        texts.append(f"{method.label} {_number(needed[0])} to {_number(needed[1])}")
    holds = [growth[HISTORY] > 2 * growth[method] for method in growth if method is not HISTORY]
    text = (
        f"sessions for .97 of the genie from A = {ends[0][0]}, H = {ends[0][1]} to A = {ends[1][0]}, H = {ends[1][1]}: "
    )
    return Finding(all(holds), text + ", ".join(texts))


def _number(value: float) -> str:
    return f"{value:,.0f}" if math.isfinite(value) else "more than were tried"
