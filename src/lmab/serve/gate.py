"""The gate: whether a new plan surely earns more than the policy in force, by the log and by its certificate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..data import Sessions
from ..errors import InvalidArgument, LmabError
from ..estimation import Estimate
from ..evaluation import ENOUGH, Certificate, Comparison, certify, compare
from ..planning import Certified, Plan, plan
from ..policies import Policy, Relabelled, Uniform
from .export import Log
from .fitting import fit_from
from .stores import Store
from .versions import UNIFORM, Defaults, read_version
from .wishes import Wishes

_DAY = 86_400.0
_DRAWS = 50  # models behind the certificate


async def in_force(store: Store, version: str, sessions: Sessions) -> Policy:
    """The policy in force without its exploration, for the arms of the log."""
    body = None if version == UNIFORM else await store.version(version)
    if body is None:
        return Uniform(sessions.n_arms)
    compact = read_version(body, Defaults(sessions.horizon)).compact
    if compact is None:
        return Uniform(sessions.n_arms)
    labels = sessions.arm_labels or tuple(range(sessions.n_arms))
    try:
        return Relabelled(compact.policy, labels)
    except InvalidArgument:  # none of its arms was played
        return Uniform(sessions.n_arms)


def compared(
    log: Log,
    made: Plan,
    fitted: Estimate,
    last: tuple[Estimate, float] | None,
    policy_in_force: Policy,
    wishes: Wishes,
    rng: np.random.Generator,
) -> Comparison | None:
    """The new way of planning against the policy in force, on sessions that its model has not seen; None: too few.

    `last` is the last model with the time of its fit. A fit starts from this model only where the sessions kept back
    came later, so that nothing of them is in the start.
    """
    if log.whole is None or len(log.whole) < wishes.least:
        return None
    held = _held_back(log, -math.inf if last is None else last[1], wishes, rng)
    horizon = min(made.horizon, policy_in_force.horizon or made.horizon, log.whole[held].horizon)
    before = last is not None and last[1] <= log.whole_began[held].min()
    try:
        start = last[0] if last is not None and before else None
        model = fit_from(start, log.whole[~held], fitted.n_types, wishes, rng).bandit
        policy = plan(
            model, horizon=made.horizon, method=Certified(), time_limit=wishes.time_limit, repeats=made.repeats
        ).policy
        return compare(
            policy,
            policy_in_force,
            log.whole[held],
            horizon=horizon,
            model=model,
            confidence=wishes.confidence,
            rng=rng,
        )
    except LmabError:
        return None


def _held_back(log: Log, since: float, wishes: Wishes, rng: np.random.Generator) -> Any:
    """The sessions of the last day, else a random part; of those, if they are enough, the ones after the last fit.

    A day is enough where it holds `least` sessions, and it must not be most of all.
    """
    day = log.whole_began.max() - _DAY
    for began in (max(day, since), day):
        last = log.whole_began >= began
        if last.sum() >= wishes.least and last.mean() <= 0.5:
            return last
    held = np.zeros(len(log.whole_began), bool)
    held[rng.permutation(len(held))[: round(wishes.held_back * len(held))]] = True
    return held


def sentence(found: Comparison | None, active: str, wishes: Wishes) -> str:
    """What the comparison says."""
    if found is None:
        return f"Too few sessions with probabilities to compare with {active}."
    kept_back = f"On {found.n_sessions:,} sessions kept back it earns {found.value:.4f}, {active} {found.other:.4f}"
    if found.interval is None:
        return f"{kept_back}, but only {found.effective:.0f} of them count in full ({ENOUGH:.0f} needed): no verdict."
    low, high = found.interval
    return f"{kept_back}: {found.difference:+.4f} ({low:+.4f} to {high:+.4f}), gate {wishes.gate:+g}."


def certified(
    fitted: Estimate, made: Plan, sessions: Sessions, rng: np.random.Generator
) -> tuple[Certificate | None, str]:
    """The certificate, and what it says in a few words."""
    try:
        found = certify(fitted, made, sessions, n_draws=_DRAWS, rng=rng)
    except LmabError as error:
        return None, f"No certificate: {error}"
    low, high = found.value
    return found, f"Certified: in truth {low:.4f} to {high:.4f} a session, regret below {found.regret[1]:.4f}."


def earned(rows: Sequence[tuple[Any, ...]], version: str, horizon: int) -> float | None:
    """What whole sessions of a version earned on average; None where there are too few."""
    totals: dict[str, tuple[int, float]] = {}
    for session, _, _, reward, _, policy, _, _, _, _ in rows:
        if policy == version and reward is not None:
            steps, total = totals.get(session, (0, 0.0))
            totals[session] = steps + 1, total + reward
    whole = [total for steps, total in totals.values() if steps >= horizon]
    return float(np.mean(whole)) if len(whole) >= ENOUGH else None


def failed(
    found: Comparison | None, certificate: Certificate | None, earned: float | None, active: str, wishes: Wishes
) -> str:
    """Why a plan does not pass; empty where it does.

    Few logged sessions agree with a new plan to their end, so the comparison leans on a model that the plan was made
    to please. The certificate counts how much the log leaves open about that model, so both must agree. Where too few
    sessions agree for a verdict, the policy in force stays; where there is none yet, or by wish, the certificate
    decides alone.
    """
    if found is None:
        return "there is nothing to compare it with"
    alone = found.interval is None
    if found.interval is not None and found.interval[0] <= wishes.gate:
        return f"it must surely earn {wishes.gate:+g} a session more"
    if alone and not wishes.unproven and active != UNIFORM:
        return "too few sessions agree with it"
    if certificate is None:
        return "it could not be certified"
    if alone and earned is None:
        return "too few whole sessions say what they earn now"
    if earned is not None and certificate.value[0] <= earned + wishes.gate:
        return f"the certificate does not exclude the {earned:.4f} that sessions earn now"
    return ""
