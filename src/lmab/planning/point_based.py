"""PointBased: value iteration on beliefs that sessions are likely to reach (PBVI)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..checks import COUNT, POSITIVE, Count, check_fields, optional
from ..errors import Status
from .backups import Rounds, VectorSet, fixed_arms, join
from .lookahead import heuristic_plan, root_bounds, tighten_upper_bound
from .no_repeats.point_based import plan_no_repeat_points
from .policies import vector_policy
from .problem import Clock, Plan, Problem

_IDLE, _NOTHING = 3, 1e-6  # rounds in a row that may raise the lower bound by less than this part
_MOST = 50_000  # sessions of a round
_FIRST = (12, 60)  # sessions of the first rounds: soon there is something to return


@dataclass(frozen=True)
class PointBased:
    """PBVI: backups at the beliefs of `n_beliefs` simulated sessions, then again at the beliefs that these plans reach.

    Without `gap` this is a heuristic without a guaranteed accuracy. With `gap` it adds beliefs, twice as many in each
    round, until upper - lower <= gap * |lower|, which makes it an approximate planning oracle (Definition 2.3 of the
    paper) with status "certified". Its upper bound does not fall with more beliefs: if rounds improve nothing and the
    bounds are still apart, it ends as "heuristic"; `Certified` closes such gaps.

    Args:
        n_beliefs: sessions that are simulated in the last rounds.
        seed: of the simulation.
        gap: the requested relative gap (without repeats it is only compared); None: no gap.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> lmab.plan(bandit, horizon=5, method=lmab.planning.PointBased()).policy.act_on([])
        0
    """

    n_beliefs: int = 300
    seed: int = 0
    gap: float | None = None

    def __post_init__(self) -> None:
        check_fields(self, {"n_beliefs": COUNT, "seed": Count(0), "gap": optional(POSITIVE)})

    def solve(self, problem: Problem, clock: Clock) -> Plan:
        sets, reason = fixed_arms(problem), Status.HEURISTIC
        clock.record(_worth(problem, sets), problem.full_information)
        try:
            if problem.horizon > 1:
                self._rounds(problem, sets, clock)
            upper = min(root_bounds(problem, 1)[1], problem.full_information)
            upper = tighten_upper_bound(problem, _worth(problem, sets), upper, clock)
            clock.record(_worth(problem, sets), upper)
            if self.gap is not None and problem.horizon > 1:
                self._more(problem, sets, clock, upper)
            reason = Status.TIME_LIMIT if clock.expired else reason
        except KeyboardInterrupt:
            reason = Status.INTERRUPTED
            clock.record(_worth(problem, sets), problem.full_information)
        policy = vector_policy(problem, sets)
        plan = heuristic_plan(problem, policy, clock, f"PBVI on {self.n_beliefs} sessions")
        return self._judged(replace(plan, status=reason))

    def solve_without_repeats(self, problem: Problem, clock: Clock) -> Plan:
        problem = replace(problem, repeats=False)
        return self._judged(plan_no_repeat_points(problem, clock, self.n_beliefs, self.seed))

    def _judged(self, plan: Plan) -> Plan:
        """Return the plan, with status certified if its bounds are within the requested gap."""
        if self.gap is None or plan.upper - plan.lower > self.gap * abs(plan.lower):
            return plan
        return replace(plan, status=Status.CERTIFIED)

    def _more(self, problem: Problem, sets: list[VectorSet], clock: Clock, upper: float) -> None:
        """Add rounds of twice as many beliefs each, until the gap or the time is over, or three find nothing."""
        assert self.gap is not None
        rounds = Rounds(problem, np.random.default_rng((self.seed, 1)), lambda: clock.expired)
        n, idle, worth = self.n_beliefs, 0, _worth(problem, sets)
        while upper - worth > self.gap * abs(worth) and idle < _IDLE and n <= _MOST and not clock.expired:
            n *= 2
            sets[:] = [join(old, new) for old, new in zip(sets, rounds.run(sets, n), strict=True)]
            idle = idle + 1 if _worth(problem, sets) <= worth + _NOTHING * abs(worth) else 0
            worth = _worth(problem, sets)
            clock.record(worth, upper)

    def _rounds(self, problem: Problem, sets: list[VectorSet], clock: Clock) -> None:
        """Add the plans of the rounds to `sets`."""
        rounds = Rounds(problem, np.random.default_rng(self.seed), lambda: clock.expired)
        sets[-1] = join(sets[-1], rounds.look_ahead(sets))
        for n in [n for n in _FIRST if n < self.n_beliefs] + [self.n_beliefs] * 2:
            clock.record(_worth(problem, sets), problem.full_information)
            if clock.expired:
                return
            sets[:] = [join(old, new) for old, new in zip(sets, rounds.run(sets, n), strict=True)]


def _worth(problem: Problem, sets: list[VectorSet]) -> float:
    return problem.best_mean(sets[-1][0])
