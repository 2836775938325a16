"""Checks of claims: whether the rows agree with a claim, with the numbers; None while rows are missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from .analysis import episodes_needed, instance_of, mean_and_error, measured
from .methods import (
    DIRECT_MLE,
    DIRECT_MLE_FIT,
    ED_MLE,
    ED_MLE_LITERAL,
    L_UCRL,
    PLAN_CERTIFIED,
    PLAN_QMDP,
    TENSOR,
    TENSOR_PAIRS,
    UCB1,
)
from .setting import Contender
from .store import Row

TENSORS = (TENSOR, TENSOR_PAIRS)


@dataclass(frozen=True)
class Finding:
    """What the rows say about a claim."""

    holds: bool
    text: str  # with the numbers


@dataclass(frozen=True)
class Mean:
    """A mean over instances."""

    mean: float
    stderr: float
    n_instances: int

    def __str__(self) -> str:
        return f"{self.mean:.4f} ± {self.stderr:.4f}"


class Evidence:
    """The rows of one study, asked for means."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows

    def values(self, measure: str, method: Contender, **where: Any) -> dict[tuple[Any, ...], float]:
        """Value by instance (and budget), for rows whose columns are as given."""
        pairs = measured(self.rows, measure)
        return {
            (*instance_of(row), row.n_episodes): value
            for row, value in pairs
            if row.method == method.name and all(getattr(row, name) == wanted for name, wanted in where.items())
        }

    def mean(self, measure: str, method: Contender, **where: Any) -> Mean | None:
        values = list(self.values(measure, method, **where).values())
        return Mean(*mean_and_error(values), len(values)) if len(values) > 1 else None

    def difference(self, measure: str, method: Contender, other: Contender, **where: Any) -> Mean | None:
        """Paired: `method` minus `other`."""
        ours, theirs = self.values(measure, method, **where), self.values(measure, other, **where)
        values = [ours[key] - theirs[key] for key in ours if key in theirs]
        return Mean(*mean_and_error(values), len(values)) if len(values) > 1 else None

    def places(self, column: str, method: Contender | None = None) -> list[Any]:
        """The values of a column, in order, among rows that learned (by `method`)."""
        rows = [row for row in self.rows if row.n_episodes and (method is None or row.method == method.name)]
        return sorted({getattr(row, column) for row in rows})


Check = Callable[[Evidence], Finding | None]


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


def rises_with_horizon(evidence: Evidence) -> Finding | None:
    """From each method's shortest horizon to the longest."""
    texts, rises = [], []
    for method in (ED_MLE, L_UCRL, DIRECT_MLE, TENSOR, UCB1):
        horizons = evidence.places("horizon", method)
        ends = [evidence.mean("per_step_qmdp", method, horizon=horizon) for horizon in horizons[:1] + horizons[-1:]]
        if len(horizons) < 2 or ends[0] is None or ends[1] is None:
            return None
        rises.append(method is UCB1 or ends[1].mean > ends[0].mean)
        texts.append(
            f"{method.label} {ends[0].mean:.3f} at H = {horizons[0]} to {ends[1].mean:.3f} at H = {horizons[-1]}"
        )
    return Finding(all(rises), "reward per step: " + ", ".join(texts))


def tensor_is_close(evidence: Evidence) -> Finding | None:
    found = evidence.difference("fraction_qmdp", ED_MLE, TENSOR, horizon=5)
    tensor = evidence.mean("fraction_qmdp", TENSOR, horizon=5)
    if found is None or tensor is None:
        return None
    return Finding(tensor.mean >= 0.95, f"tensor at H = 5: {tensor} of the genie; ED+MLE minus tensor {found}")


def tensor_falls_behind(**where: Any) -> Check:
    def check(evidence: Evidence) -> Finding | None:
        texts, holds = [], []
        for measure, planner in (("fraction", "certified"), ("fraction_qmdp", "Q-MDP")):
            for method, tensor in product((ED_MLE, L_UCRL), TENSORS):
                found = evidence.difference(measure, method, tensor, **where)
                if found is None:
                    return None
                holds.append(found.mean > 2 * found.stderr)
                texts.append(f"{method.label} minus {tensor.label} {found} ({planner})")
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


def tensor_falls_with_contexts(evidence: Evidence) -> Finding | None:
    contexts = evidence.places("n_contexts")
    texts, falls = [], {}
    for method in (*TENSORS, ED_MLE):
        ends = [evidence.mean("fraction_qmdp", method, n_contexts=m) for m in (4, *contexts[-1:])]
        if len(ends) < 2 or ends[0] is None or ends[1] is None:
            return None
        falls[method] = ends[0].mean - ends[1].mean
        texts.append(f"{method.label} {ends[0]} at M = 4, {ends[1]} at M = {contexts[-1]}")
    return Finding(all(falls[tensor] > max(0.05, 2 * falls[ED_MLE]) for tensor in TENSORS), "; ".join(texts))


def approaches_the_genie(evidence: Evidence) -> Finding | None:
    budgets = evidence.places("n_episodes")
    texts, holds = [], []
    for method in (ED_MLE, L_UCRL):
        ends = [evidence.mean("fraction_qmdp", method, n_episodes=n) for n in (budgets[:1] + budgets[-1:])]
        if len(ends) < 2 or ends[0] is None or ends[1] is None:
            return None
        holds.append(ends[1].mean > ends[0].mean and ends[1].mean >= 0.97)
        texts.append(f"{method.label} {ends[0]} at N = {budgets[0]:,}, {ends[1]} at {budgets[-1]:,}")
    return Finding(all(holds), "; ".join(texts))


def fewer_episodes(evidence: Evidence) -> Finding | None:
    literal, direct = (episodes_needed(evidence.rows, method.name, 0.97) for method in (ED_MLE_LITERAL, DIRECT_MLE))
    if literal is None or direct is None or direct.n_episodes == float("inf"):
        return None
    budgets = evidence.places("n_episodes", ED_MLE_LITERAL)
    reached, at_once = literal.n_episodes < float("inf"), direct.n_episodes <= min(budgets)
    ratio = (literal.n_episodes if reached else max(budgets)) / direct.n_episodes
    text = (
        f"{'' if reached and not at_once else 'at least '}{ratio:.0f} times: the literal recipe needs "
        f"{literal.n_episodes if reached else max(budgets):,.0f}{'' if reached else ' or more'}, "
        f"DirectMLE {direct.n_episodes:,.0f}{' or fewer' if at_once else ''}"
    )
    return Finding(ratio >= 15, text)


def parameters_need_the_horizon(evidence: Evidence) -> Finding | None:
    budgets, texts, falls = evidence.places("n_episodes"), [], {}
    for horizon in evidence.places("horizon"):
        ends = [
            evidence.mean("distance", DIRECT_MLE, horizon=horizon, n_episodes=n) for n in budgets[:1] + budgets[-1:]
        ]
        if len(ends) < 2 or ends[0] is None or ends[1] is None:
            return None
        falls[horizon] = ends[0].mean / ends[1].mean
        texts.append(f"H = {horizon}: {ends[0].mean:.3f} to {ends[1].mean:.3f}")
    below, above = [falls[h] for h in falls if h < 4], [falls[h] for h in falls if h >= 5]
    if not below or not above:
        return None
    text = f"distance from N = {budgets[0]:,} to {budgets[-1]:,}: " + ", ".join(texts)
    return Finding(max(below) < 0.5 * min(above), text)


def values_do_not(evidence: Evidence) -> Finding | None:
    budgets = evidence.places("n_episodes")
    if not budgets:
        return None
    lost = {
        h: evidence.mean("value_gap", DIRECT_MLE, horizon=h, n_episodes=budgets[-1]) for h in evidence.places("horizon")
    }
    if any(mean is None for mean in lost.values()):
        return None
    text = f"value lost per step at N = {budgets[-1]:,}: " + ", ".join(f"H = {h}: {mean}" for h, mean in lost.items())
    return Finding(all(mean.mean < 0.005 for mean in lost.values()), text)  # type: ignore[union-attr]


def separation_gives_the_fast_rate(evidence: Evidence) -> Finding | None:
    budgets, gaps, horizons = (evidence.places(column) for column in ("n_episodes", "separation", "horizon"))
    if len(budgets) < 2:
        return None
    texts, rates = [], {}
    for gap, horizon in ((gaps[-1], horizons[-1]), (gaps[0], horizons[0])):
        ends = [
            evidence.mean("distance", DIRECT_MLE_FIT, separation=gap, horizon=horizon, n_episodes=n)
            for n in budgets[:2]
        ]
        if ends[0] is None or ends[1] is None:
            return None
        rates[gap] = ends[0].mean / ends[1].mean
        texts.append(
            f"gamma = {gap:g}, H = {horizon}: {ends[0].mean:.3f} to {ends[1].mean:.3f}, a factor {rates[gap]:.2f}"
        )
    parametric = (budgets[1] / budgets[0]) ** 0.5
    text = (
        f"distance from N = {budgets[0]:,} to {budgets[1]:,} (parametric rate: a factor {parametric:.2f}): "
        + "; ".join(texts)
    )
    return Finding(rates[gaps[-1]] > 0.75 * parametric and rates[gaps[0]] < 0.75 * parametric, text)


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
