"""Checks of what the paper says about its figures, and of our claims; None while rows are missing.

The paper's methods are judged as printed or published, ED+MLE from the first two steps and L-UCRL with posteriors taken
once, and with Q-MDP, the paper's planner. Where such a form was not run, ours stands for it, and the finding says so;
only the order of ED+MLE and L-UCRL, which hangs on the form, is then not judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import theory
from .analysis import Check, Evidence, Finding, Mean, sessions_needed
from .methods import (
    DIRECT_MLE,
    ED_MLE,
    ED_MLE_LITERAL,
    GENIE,
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
)

TENSORS = (TENSOR, TENSOR_PAIRS)


def at_least(measure: str, limits: Mapping[Contender, float], **where: Any) -> Check:
    """Every method has at least its limit."""

    def check(evidence: Evidence) -> Finding | None:
        texts, holds = [], []
        for method, limit in limits.items():
            found = evidence.mean(measure, method, **where)
            if found is None:
                return None
            holds.append(found.mean >= limit)
            texts.append(f"{method.label} {found} (asked: {limit:g})")
        return Finding(all(holds), "; ".join(texts))

    return check


def ed_beats_tensor(evidence: Evidence) -> Finding | None:
    """The margin is asked of the paper's baseline; that over the stronger form is told."""
    found = {tensor: evidence.difference("fraction", ED_MLE, tensor, horizon=7) for tensor in TENSORS}
    asked = found[TENSOR]
    if asked is None:
        return None
    return Finding(
        asked.mean > 0.05, "; ".join(f"ED+MLE minus {tensor.label}: {mean}" for tensor, mean in found.items())
    )


def lucrl_is_near(evidence: Evidence) -> Finding | None:
    found = evidence.difference("fraction", DIRECT_MLE, L_UCRL, horizon=7)
    return None if found is None else Finding(found.mean < 0.03, f"DirectMLE minus L-UCRL: {found}")


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
    """DirectMLE is ahead of each other learner, in pairs, by more than two standard errors."""
    arms = evidence.places("n_arms")
    direct = evidence.mean("fraction", DIRECT_MLE, n_arms=arms[-1]) if arms else None
    if direct is None:
        return None
    texts, ahead = [f"A = {arms[-1]:,}: DirectMLE {direct} of the genie"], []
    for method in (ED_MLE, L_UCRL, TENSOR, UCB1):
        found = evidence.difference("fraction", DIRECT_MLE, method, n_arms=arms[-1])
        if found is None:
            return None
        ahead.append(found.mean > 2 * found.stderr)
        texts.append(f"minus {method.label} {found}")
    return Finding(all(ahead), ", ".join(texts))


_SHARE = "fraction_qmdp"
_GOOD = 0.95  # of the genie
_L_UCRLS = (L_UCRL_PUBLISHED, L_UCRL_TENSOR, L_UCRL)  # The paper's form first, then what may stand for it.
_LEAST_RISE = 0.005  # of the reward per step, or of the genie: what counts as a change
_RANK = 4  # of the instances


def forms(evidence: Evidence) -> tuple[Contender, Contender, str]:
    """ED+MLE as printed and L-UCRL as published, or ours where those were not run; and what to say about it."""
    ed = ED_MLE_LITERAL if _as_much(evidence, ED_MLE_LITERAL, ED_MLE) else ED_MLE
    optimistic = next((one for one in _L_UCRLS if _as_much(evidence, one, L_UCRL)), L_UCRL)
    missing = [theirs for theirs, used in ((ED_MLE_LITERAL, ed), (L_UCRL_PUBLISHED, optimistic)) if theirs is not used]
    return ed, optimistic, "".join(f"; {one.label} was not run" for one in missing)


def _as_much(evidence: Evidence, method: Contender, other: Contender) -> bool:
    """Whether `method` was run wherever `other` was, and third moments allow."""
    done = [{(*_key(row)[:-1], row.n_sessions) for row in evidence.rows if row.method == one.name and row.horizon > 2}
            for one in (method, other)]  # fmt: skip
    return bool(done[1]) and done[1] <= done[0]


def rises_with_horizon(evidence: Evidence) -> Finding | None:
    """Every method but UCB earns more at the last horizon, and at no step significantly less; UCB stays."""
    ed, optimistic, note = forms(evidence)
    texts, holds = [], []
    for method in (ed, optimistic, TENSOR):
        curve, steps = (f("horizon", "per_step_qmdp", method) for f in (evidence.along, evidence.steps))
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
    """At least .95 of the genie at every place."""

    def check(evidence: Evidence) -> Finding | None:
        curve = evidence.along(column, _SHARE, method)
        if len(curve) < 2:
            return None
        worst = min(curve, key=lambda place: curve[place].mean)
        text = f"{method.label} at least {curve[worst]} of the genie, at {_name(column)} = {worst:,} (asked: {_GOOD:g})"
        return Finding(curve[worst].mean >= _GOOD, text)

    return check


def does_not_drop(evidence: Evidence) -> Finding | None:
    """ED+MLE and L-UCRL have at least .95 of the genie at every horizon."""
    ed, optimistic, note = forms(evidence)
    found = [works_well(method, "horizon")(evidence) for method in (ed, optimistic)]
    if any(one is None for one in found):
        return None
    texts = "; ".join(one.text for one in found if one)
    return Finding(all(one.holds for one in found if one), texts + note)


def tensor_falls_behind(column: str) -> Check:
    """Tensor decomposition is below both others by more than two standard errors at every place."""

    def check(evidence: Evidence) -> Finding | None:
        ed, optimistic, note = forms(evidence)
        texts, holds = [], []
        for method in (ed, optimistic):
            found = evidence.ahead(column, _SHARE, method, TENSOR)
            if len(found) < 2:
                return None
            holds.append(all(one.above for one in found.values()))
            texts.append(f"{method.label} minus tensor: {_counted(found, column)}")
        return Finding(all(holds), "; ".join(texts) + note)

    return check


def iterations_are_needed(evidence: Evidence) -> Finding | None:
    """The paper's decomposition alone reaches .95 of the genie at no horizon, and EM at all; our form is told."""
    ed, optimistic, note = forms(evidence)
    curves = {method: evidence.along("horizon", _SHARE, method) for method in (ed, optimistic, TENSOR, TENSOR_PAIRS)}
    if any(len(curve) < 2 for curve in curves.values()):
        return None
    texts, holds = [], []
    for method, curve in curves.items():
        shares = [one.mean for one in curve.values()]
        if method is not TENSOR_PAIRS:
            holds.append(max(shares) < _GOOD if method is TENSOR else min(shares) >= _GOOD)
        beside = " (ours, beside)" if method is TENSOR_PAIRS else ""
        texts.append(f"{method.label}{beside} {min(shares):.3f} to {max(shares):.3f} of the genie")
    return Finding(all(holds), ", ".join(texts) + note)


def outperforms(evidence: Evidence) -> Finding | None:
    """ED+MLE is ahead of every baseline at more than half of the places of figures 2 and 3, and behind at none."""
    texts, holds = [], []
    for other in (UCB1, TENSOR, L_UCRL_PUBLISHED):
        found = evidence.by_setting(_SHARE, ED_MLE_LITERAL, other)
        if len(found) < 2 or (other is L_UCRL_PUBLISHED and not _as_much(evidence, other, L_UCRL_TENSOR)):
            return None
        holds.append(_leads(found))
        texts.append(f"{ED_MLE_LITERAL.label} minus {other.label}: {_tally(found)}")
    return Finding(all(holds), "; ".join(texts))


def reads(ed: Contender, optimistic: Contender, measure: str = _SHARE) -> Check:
    """One reading of the headline: this form of ED+MLE is ahead of this form of L-UCRL, by the same rule."""

    def check(evidence: Evidence) -> Finding | None:
        found = evidence.by_setting(measure, ed, optimistic)
        if len(found) < 2:
            return None
        laws = sorted({setting.split("-")[0] for setting in found})
        by_law = "; ".join(
            f"{law}: {_tally({k: v for k, v in found.items() if k.startswith(law + '-')})}" for law in laws
        )
        return Finding(_leads(found), f"{ed.label} minus {optimistic.label}: {by_law}")

    return check


def passes_explain(evidence: Evidence) -> Finding | None:
    """75 passes over the same sessions are ahead of none at more than half of the places, and behind at none."""
    most = L_UCRL_PASSES[-1]
    found = evidence.by_setting("fraction", most, L_UCRL_PUBLISHED)
    if len(found) < 2:
        return None
    return Finding(_leads(found), f"{most.label} minus {L_UCRL_PUBLISHED.label}, certified planner: {_tally(found)}")


def nearer_to_the_truth(evidence: Evidence) -> Finding | None:
    """ED+MLE from all pairs is nearer to the true model than our L-UCRL; the printed form is told."""
    found = evidence.by_setting("distance", L_UCRL_TENSOR, ED_MLE)
    printed = evidence.by_setting("distance", L_UCRL_TENSOR, ED_MLE_LITERAL)
    if len(found) < 2 or len(printed) < 2:
        return None
    texts = []
    for method, some in ((ED_MLE, found), (ED_MLE_LITERAL, printed)):
        nearer, farther = sum(one.above for one in some.values()), sum(one.below for one in some.values())
        texts.append(f"{method.label}: significantly nearer at {nearer} of {len(some)} places, farther at {farther}")
    return Finding(2 * sum(one.above for one in found.values()) > len(found), "; ".join(texts))


def falls_with_types(evidence: Evidence) -> Finding | None:
    """Tensor decomposition falls with M by trend, instance by instance; ED+MLE's lead above the rank is told."""
    ed, _, note = forms(evidence)
    slope = evidence.slope("n_types", _SHARE, TENSOR)
    ahead = evidence.ahead("n_types", _SHARE, ed, TENSOR)
    above = {place: mean for place, mean in ahead.items() if place > _RANK}
    if slope is None or not above:
        return None
    trend, n_falling = slope
    text = f"tensor changes by {trend} of the genie with each type, and falls on {n_falling} of {trend.n_instances} "
    text += f"instances; {ed.label} minus tensor for M > {_RANK}: {_counted(above, 'n_types')}"
    return Finding(trend.below, text + note)


def approaches_the_genie(evidence: Evidence) -> Finding | None:
    """Both rise with N, fall significantly at no step, and end at .97 of the genie or more."""
    ed, optimistic, note = forms(evidence)
    texts, holds = [], []
    for method in (ed, optimistic):
        curve, steps = (f("n_sessions", _SHARE, method) for f in (evidence.along, evidence.steps))
        if len(curve) < 2 or not steps:
            return None
        first, last = min(curve), max(curve)
        falls = [place for place, step in steps.items() if step.below]
        holds.append(curve[last].mean > curve[first].mean and curve[last].mean >= 0.97 and not falls)
        texts.append(_ends(method, curve) + (f", falls at N = {_places(falls)}" if falls else ""))
    return Finding(all(holds), "; ".join(texts) + note)


def starts_well(evidence: Evidence) -> Finding | None:
    """L-UCRL from tensor decomposition loses less than .01 of the genie against our start, at every place."""
    column = "n_sessions" if len(evidence.places("n_sessions", L_UCRL)) > 1 else "horizon"
    found = evidence.ahead(column, _SHARE, L_UCRL, L_UCRL_TENSOR)
    if len(found) < 2:
        return None
    text = f"L-UCRL, refitted, from clusters minus from tensors: {_counted(found, column)}"
    return Finding(all(one.mean < 0.01 for one in found.values()), text)


def beats_the_guarantee(column: str) -> Check:
    """What ED+MLE and L-UCRL lose is what Theorem 3.8 promises only for many times the sessions, at every place."""

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


def _counted(found: dict[Any, Mean], column: str) -> str:
    """At how many places a difference is above and below 0, and its range."""
    if not found:
        return "not run"
    low, high = (choose(found, key=lambda place: found[place].mean) for choose in (min, max))
    return (
        f"{found[low].mean:+.4f} ({_name(column)} = {low:,}) to {found[high].mean:+.4f} ({_name(column)} = {high:,}), "
        f"significantly above at {sum(one.above for one in found.values())} of {len(found)} places and below at "
        f"{sum(one.below for one in found.values())}"
    )


def _leads(found: Mapping[str, Mean]) -> bool:
    """Significantly ahead at more than half of the places, and significantly behind at none."""
    return 2 * sum(one.above for one in found.values()) > len(found) and not any(one.below for one in found.values())


def _tally(found: Mapping[str, Mean]) -> str:
    """At how many places a difference is above and below 0, and its range."""
    low, high = min(one.mean for one in found.values()), max(one.mean for one in found.values())
    above, below = sum(one.above for one in found.values()), sum(one.below for one in found.values())
    return f"{low:+.4f} to {high:+.4f}, significantly above at {above} of {len(found)} places and below at {below}"
