"""Checks of our claims, and of the paper's on sizes and planners; None while rows are missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .analysis import sessions_needed
from .evidence import Check, Evidence, Finding
from .methods import (
    DIRECT_MLE,
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
