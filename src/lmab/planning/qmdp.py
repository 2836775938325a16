"""QMDP: act as if the type became known after this step, the classical POMDP baseline."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import Status
from .clock import Clock
from .lookahead import LookaheadPolicy, root_bounds, tightened
from .no_repeats import plan_without_repeats
from .problem import Problem
from .result import Plan


@dataclass(frozen=True)
class QMDP:
    """The value of an arm is its mean now plus that of knowing the type ever after.

    Types are static, so the second part is the same for every arm: Q-MDP is the greedy policy, which never pays
    for information. A baseline, not a planner.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> lmab.plan(bandit, horizon=5, method=lmab.QMDP()).policy.act_on([])
        1
    """

    def solve(self, problem: Problem, clock: Clock) -> Plan:
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
        policy = LookaheadPolicy(problem.bandit, horizon=problem.horizon, depth=0, bins=problem.bins)
        return Plan(policy, problem.horizon, lower, upper, reason, message, tuple(clock.trace))

    def solve_without_repeats(self, problem: Problem, clock: Clock) -> Plan:
        return plan_without_repeats(problem, clock, 0, "greedy")
