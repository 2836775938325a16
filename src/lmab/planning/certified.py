"""Certified: heuristic search until a lower and an upper bound on the optimum meet within the asked gap."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from ..checks import COUNT, NOT_NEGATIVE, Count, check_fields
from ..status import Status
from .clock import Clock
from .no_repeats import plan_without_repeats
from .no_repeats_exact import fits, plan_exactly_without_repeats
from .point_based import fixed_arms
from .problem import Problem
from .result import Plan
from .search import Search
from .vectors import vector_policy

_OPEN = 16  # batches of trials after which the search counts as open, and linear programs look for superfluous arms
_ROUNDING = 1e-13  # bounds are computed with relative errors well below this


@dataclass(frozen=True)
class Certified:
    """Search until upper - lower <= gap * |lower| (or <= `absolute`): a proof that nothing is better by more.

    A relative gap says little when values are near 0 (rewards of both signs): give `absolute` then.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> plan = lmab.plan(bandit, horizon=5, method=lmab.Certified(gap=1e-6))
        >>> plan.lower <= 3.357711 <= plan.upper + 1e-5
        True
        >>> plan.status
        'certified'
    """

    gap: float = 0.01
    absolute: float = 0.0
    n_beliefs: int = 300
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self, {"gap": NOT_NEGATIVE, "absolute": NOT_NEGATIVE, "n_beliefs": COUNT, "seed": Count(0)})

    def solve(self, problem: Problem, clock: Clock) -> Plan:
        if problem.best_everywhere() is not None or problem.horizon == 1:
            return _one_arm(problem, clock)
        search = Search(problem, self.seed)
        clock.record(search.lower_bound, search.upper_bound)
        try:
            search.warm_start(self.n_beliefs, clock)
            reason = self._run(search, clock)
        except KeyboardInterrupt:
            reason = Status.INTERRUPTED
        clock.record(search.lower_bound, search.upper_bound)
        return self._plan(search, clock, reason)

    def solve_without_repeats(self, problem: Problem, clock: Clock) -> Plan:
        if fits(problem):
            return plan_exactly_without_repeats(problem, clock)
        return plan_without_repeats(problem, clock, 1, "lookahead of depth 1")

    def _run(self, search: Search, clock: Clock) -> Status:
        for batch in itertools.count(1):
            clock.record(search.lower_bound, search.upper_bound)
            tolerance = self._tolerance(search)
            if search.upper_bound - search.lower_bound <= tolerance:
                return Status.CERTIFIED
            if clock.expired:
                return Status.TIME_LIMIT
            if batch == max(_OPEN, search.problem.n_arms**2 // 100):  # about as long as the programs take
                search.drop_dominated_arms(clock)
            search.advance(tolerance)
        raise AssertionError

    def _tolerance(self, search: Search) -> float:
        return max(self.gap * abs(search.lower_bound), self.absolute, _ROUNDING * search.problem.scale)

    def _plan(self, search: Search, clock: Clock, reason: Status) -> Plan:
        problem = search.problem
        lower, upper = clock.trace[-1][1:]
        upper = max(lower, upper)  # they may cross by rounding
        message = f"no policy earns more than {upper:.6g}, this one at least {lower:.6g}"
        if reason != Status.CERTIFIED:
            message += f" (stopped: {reason}, before the asked gap of {self.gap:g})"
        if problem.binned:
            message = (
                f"with rewards seen in {problem.n_values} bins per arm, {message}; the lower bound holds for the "
                "rewards themselves, the upper one does not: the plan's upper bound is that of knowing the context"
            )
            upper = problem.full_information
            if reason == Status.CERTIFIED:
                reason = Status.HEURISTIC  # the asked gap is proved for the bins only
        policy = vector_policy(problem, search.sets())
        return Plan(policy, problem.horizon, lower, upper, reason, message, tuple(clock.trace))


def _one_arm(problem: Problem, clock: Clock) -> Plan:
    """One arm is best whatever the context, or only one step is left: nothing is worth learning."""
    value = problem.bandit.best_fixed(problem.horizon)
    clock.record(value, value)
    message = "one arm is best in every context" if problem.horizon > 1 else "one step: the arm with the highest mean"
    policy = vector_policy(problem, fixed_arms(problem))
    return Plan(policy, problem.horizon, value, value, Status.OPTIMAL, message, tuple(clock.trace))
