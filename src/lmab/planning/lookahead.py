"""Lookahead(depth): expectimax over the next steps, then the best fixed arm; QMDP: as if the type became known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._kernel import kernel
from .._shapes import Array, Bool, Float, Integer
from ..checks import Count, check_fields
from ..errors import InvalidArgument, Status
from ..policies.policy import State, best_allowed
from .information_bound import information_bound
from .once.lookahead import plan_once
from .policies import DepthPolicy, PlannedPolicy, worth_at_least
from .problem import Clock, OutOfTime, Plan, Problem

_CHUNK = 1 << 21  # beliefs times codes expanded at once
_BETWEEN_LOOKS = 1 << 27  # multiplications between two looks at the clock: a tenth of a second or less
_CLOSE = 0.01  # bounds this close, relative to the lower one, need no better ones


class LookaheadPolicy(DepthPolicy):
    """Act as if the session would see `depth` more rewards and then stay with one arm.

    Depth 0 is greedy where nobody leaves. Each deeper step costs a factor A*Z per decision. With `optimistic` the end
    is valued as if the type were known: with depth 0 this is Q-MDP.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> lmab.plan(bandit, horizon=5, method=lmab.planning.Lookahead(2)).policy.act_on([(0, 0.0)])
        1
    """

    kind = "lookahead"

    def arm_values(self, state: State) -> Float[Array, "n A"]:
        """What each arm is worth now, by the lookahead."""
        beliefs = self._problem.beliefs(state.memory)
        left = self._remaining(state)
        return lookahead_values(self._problem, beliefs, left, self.depth, optimistic=self.optimistic)

    def _choose(self, state: State, allowed: Bool[Array, "n A"] | None, rng: Any) -> Integer[Array, "n"]:
        return best_allowed(self.arm_values(state), allowed)


def lookahead_values(
    problem: Problem,
    beliefs: Float[Array, "n M"],
    remaining: int,
    depth: int,
    *,
    optimistic: bool = False,
    stop: Callable[[], bool] = lambda: False,
) -> Float[Array, "n A"]:
    """Q-values with `remaining` steps to go: expectimax for `depth` rewards, then the best fixed arm.

    With `optimistic` the end is valued as if the type were known. The first is a lower, the second an upper bound
    on the optimal Q-values, and the policy that maximises the first earns at least its maximum. When `stop` says so,
    `OutOfTime` is raised.
    """
    depth = min(depth, remaining - 1)
    if depth == 0 and problem.people_leave:
        known = problem.stays * problem.known.best[remaining - 1]
        return beliefs @ (problem.means + known if optimistic else problem.always(remaining)).T
    if depth == 0:
        later = (remaining - 1) * (problem.corner[None] if optimistic else np.zeros_like(problem.corner)[None])
        return beliefs @ (problem.means + later).T
    if depth == 1:
        return _one_step(problem, beliefs, _ends(problem, remaining - 1, optimistic), stop)
    values = beliefs @ problem.means.T
    block = max(1, _CHUNK // len(problem.table) ** depth)
    for start in range(0, len(beliefs), block):
        children = beliefs[start : start + block, None, :] * problem.table
        flat = children.reshape(-1, children.shape[2])
        deeper = lookahead_values(problem, flat, remaining - 1, depth - 1, optimistic=optimistic, stop=stop).max(axis=1)
        values[start : start + block] += deeper.reshape(len(children), problem.n_arms, -1).sum(axis=2)
    return values


def _ends(problem: Problem, steps: int, optimistic: bool) -> Float[Array, "K M"]:
    """What may follow a lookahead: any fixed arm, or with `optimistic` the best arms of a known type."""
    if not optimistic or steps == 1:  # the last step needs no optimism: its best mean is what it pays
        return problem.fixed_arms[steps - 1][0]
    return problem.known.best[steps][None] if problem.people_leave else steps * problem.corner[None]


def _one_step(
    problem: Problem, beliefs: Float[Array, "n M"], ends: Float[Array, "K M"], stop: Callable[[], bool]
) -> Float[Array, "n A"]:
    """The kernel, with a look at the clock now and then."""
    one_step = kernel("planning").one_step_values
    block = max(1, _BETWEEN_LOOKS // (len(problem.table) * ends.size))
    parts = []
    for start in range(0, len(beliefs), block):
        if stop():
            raise OutOfTime
        parts.append(one_step(beliefs[start : start + block], problem.table, problem.means, ends))
    return np.concatenate(parts) if parts else np.empty((0, problem.n_arms))


def root_bounds(problem: Problem, depth: int, stop: Callable[[], bool] = lambda: False) -> tuple[float, float]:
    """What a lookahead of `depth` proves at the start: (lower, upper), on average over the priors."""
    if problem.priors is not None:
        found = [(share, *root_bounds(one, depth, stop)) for share, one in problem.each()]
        return sum(share * lower for share, lower, _ in found), sum(share * upper for share, _, upper in found)
    start = problem.weights[None]
    if depth == 0 or problem.horizon == 1:
        # Learning never hurts: being greedy earns at least the best fixed arm. One step pays the best mean, no more.
        lower = problem.horizon * float((problem.means @ problem.weights).max())
        if problem.people_leave:
            lower = float((problem.fixed_arms[-1][0] @ problem.weights).max())
        return lower, problem.full_information if problem.horizon > 1 else lower
    lower = float(lookahead_values(problem, start, problem.horizon, depth, stop=stop).max())
    upper = lookahead_values(problem, start, problem.horizon, depth, optimistic=True, stop=stop).max()
    return lower, float(min(upper, problem.full_information))


def tightened(problem: Problem, lower: float, upper: float, clock: Clock) -> float:
    """The upper bound, by the information price where that is lower; not asked for where the bounds are close."""
    if problem.horizon == 1 or problem.binned or upper - lower <= _CLOSE * abs(lower) or clock.expired:
        return upper
    price = information_bound(problem.step_model, problem.weights, stop=lambda: clock.expired)
    if problem.priors is not None and problem.shares is not None:
        return min(upper, float(problem.shares @ price.bound(problem.priors, problem.horizon)))
    return min(upper, price.at_start * float(problem.weights.sum()))


@dataclass(frozen=True)
class Lookahead:
    """Plan `depth` rewards ahead, then one fixed arm; decide again after every reward.

    Quick, and often near the optimum; `lower` and `upper` are what the lookahead itself proves.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> lmab.plan(bandit, horizon=5, method=lmab.planning.Lookahead()).policy.act_on([])
        0
    """

    depth: int = 1

    def __post_init__(self) -> None:
        check_fields(self, {"depth": Count(0)})

    def solve(self, problem: Problem, clock: Clock) -> Plan:
        if len(problem.table) ** self.depth > 10**8:
            raise InvalidArgument(
                f"depth must keep (arms * values) ** depth below 1e8, got {len(problem.table)} ** {self.depth}"
            )
        policy = LookaheadPolicy(problem.bandit, depth=self.depth, **problem.of_policy)
        clock.record(*root_bounds(problem, 0))
        reason = Status.HEURISTIC
        try:
            for depth in sorted({min(1, self.depth), self.depth}):  # the deeper proves more, if there is time
                clock.record(*root_bounds(problem, depth, lambda: clock.expired))
            clock.record(clock.trace[-1].lower, tightened(problem, *clock.trace[-1][1:], clock))
        except OutOfTime:
            reason = Status.TIME_LIMIT
        except KeyboardInterrupt:
            reason = Status.INTERRUPTED
        return replace(heuristic_plan(problem, policy, clock, f"lookahead of depth {self.depth}"), status=reason)

    def solve_without_repeats(self, problem: Problem, clock: Clock) -> Plan:
        return plan_once(problem, clock, self.depth, f"lookahead of depth {self.depth}")


def heuristic_plan(problem: Problem, policy: PlannedPolicy, clock: Clock, name: str) -> Plan:
    """A plan whose bounds are what the method proves in passing."""
    lower, upper = clock.trace[-1][1:]
    message = f"{name}: the policy earns at least the lower bound, usually more (lmab.evaluate says how much)"
    if problem.binned:
        upper = root_bounds(problem, 0)[1]
        message += "; rewards were binned to look ahead, the upper bound is that of knowing the type"
    return Plan(policy, problem.horizon, lower, upper, Status.HEURISTIC, message, tuple(clock.trace))


@dataclass(frozen=True)
class QMDP:
    """The value of an arm is its mean now plus that of knowing the type ever after.

    Types are static, so where nobody leaves the second part is the same for every arm: Q-MDP is the greedy policy.
    Where people leave, only those who stay earn the second part, so it keeps people. It never pays for information: a
    baseline, not a planner.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> lmab.plan(bandit, horizon=5, method=lmab.QMDP()).policy.act_on([])
        1
    """

    def solve(self, problem: Problem, clock: Clock) -> Plan:
        if problem.people_leave:
            return self._keeping_people(problem, clock)
        clock.record(*root_bounds(problem, 0))
        try:
            clock.record(clock.trace[-1].lower, tightened(problem, *clock.trace[-1][1:], clock))
            reason = Status.HEURISTIC
        except KeyboardInterrupt:
            reason = Status.INTERRUPTED
        lower, upper = clock.trace[-1][1:]
        above = "that of knowing the type" if upper >= problem.full_information else "the information price's"
        above = "its value" if problem.horizon == 1 else above
        message = f"Q-MDP is greedy: it earns at least the best fixed arm; the upper bound is {above}"
        policy = LookaheadPolicy(problem.bandit, depth=0, **problem.of_policy)
        return Plan(policy, problem.horizon, lower, upper, reason, message, tuple(clock.trace))

    def _keeping_people(self, problem: Problem, clock: Clock) -> Plan:
        """Where people leave no fixed arm bounds Q-MDP from below: its own sessions do."""
        start, steps = problem.weights[None], problem.horizon
        starts = start if problem.priors is None else problem.priors
        best = lookahead_values(problem, starts, steps, 0, optimistic=True).max(axis=1)
        upper = float(best[0] if problem.shares is None else problem.shares @ best)
        policy = LookaheadPolicy(problem.bandit, depth=0, optimistic=True, **problem.of_policy)
        clock.record(worth_at_least(policy, problem), upper)
        reason = Status.HEURISTIC
        try:
            clock.record(clock.trace[-1].lower, tightened(problem, *clock.trace[-1][1:], clock))
        except KeyboardInterrupt:
            reason = Status.INTERRUPTED
        lower, upper = clock.trace[-1][1:]
        message = (
            "Q-MDP keeps people as if their type were known: the lower bound is what its first steps earn at least"
        )
        return Plan(policy, steps, lower, upper, reason, message, tuple(clock.trace))

    def solve_without_repeats(self, problem: Problem, clock: Clock) -> Plan:
        return plan_once(problem, clock, 0, "greedy", optimistic=problem.people_leave)
