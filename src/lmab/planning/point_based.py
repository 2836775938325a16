"""PointBased: value iteration on beliefs that sessions are likely to reach (PBVI), the paper's planning oracle."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..checks import COUNT, Count, check_fields
from ..status import Status
from .backups import Rounds, VectorSet, fixed_arms, join
from .clock import Clock
from .lookahead import heuristic_plan, root_bounds, tightened
from .no_repeats_points import plan_points_without_repeats
from .problem import Problem
from .result import Plan
from .vectors import vector_policy

_FIRST = (12, 60)  # sessions of the first rounds: soon there is something to return


@dataclass(frozen=True)
class PointBased:
    """PBVI: simulate `n_beliefs` sessions, back up the best plans at their beliefs, last step first; then once more at
    the beliefs that these plans lead to.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> lmab.plan(bandit, horizon=5, method=lmab.PointBased()).policy.act_on([])
        0
    """

    n_beliefs: int = 300
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self, {"n_beliefs": COUNT, "seed": Count(0)})

    def solve(self, problem: Problem, clock: Clock) -> Plan:
        sets, reason = fixed_arms(problem), Status.HEURISTIC
        clock.record(_worth(problem, sets), problem.full_information)
        try:
            if problem.horizon > 1:
                self._rounds(problem, sets, clock)
            upper = min(root_bounds(problem, 1)[1], problem.full_information)
            upper = tightened(problem, _worth(problem, sets), upper, clock)
            clock.record(_worth(problem, sets), upper)
            reason = Status.TIME_LIMIT if clock.expired else reason
        except KeyboardInterrupt:
            reason = Status.INTERRUPTED
            clock.record(_worth(problem, sets), problem.full_information)
        policy = vector_policy(problem, sets)
        plan = heuristic_plan(problem, policy, clock, f"PBVI on {self.n_beliefs} sessions")
        return replace(plan, status=reason)

    def solve_without_repeats(self, problem: Problem, clock: Clock) -> Plan:
        return plan_points_without_repeats(problem, clock, self.n_beliefs, self.seed)

    def _rounds(self, problem: Problem, sets: list[VectorSet], clock: Clock) -> None:
        """Put what the rounds find into `sets`, round by round."""
        rounds = Rounds(problem, np.random.default_rng(self.seed), lambda: clock.expired)
        sets[-1] = join(sets[-1], rounds.look_ahead(sets))
        for n in [n for n in _FIRST if n < self.n_beliefs] + [self.n_beliefs] * 2:
            clock.record(_worth(problem, sets), problem.full_information)
            if clock.expired:
                return
            sets[:] = [join(old, new) for old, new in zip(sets, rounds.run(sets, n), strict=True)]


def _worth(problem: Problem, sets: list[VectorSet]) -> float:
    return float((sets[-1][0] @ problem.weights).max())
