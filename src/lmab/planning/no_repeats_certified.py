"""Certified without repeats: plans that know their arms below, prices on arms above, until the bounds are close."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..errors import Status
from .arm_prices import ArmPrices, arm_prices, priced
from .clock import Clock
from .no_repeats import WITHOUT_BINS, upper_without_bins
from .no_repeats_exact import n_sets
from .no_repeats_points import OncePlans, rounds_of
from .no_repeats_vectors import once_policy
from .problem import Problem
from .result import Plan
from .search import Search

_BATCHES = 40  # of trials on the priced problem in the first cycle, then twice as many in each
_STALLED = 0.1  # a cycle that takes less than this share of the gap away is the last


class OnceSearch:
    """Both bounds for sessions without repeats, and how to bring them together."""

    def __init__(self, problem: Problem, n_beliefs: int, seed: int, memory_limit: float, clock: Clock) -> None:
        self.problem, self.clock = problem, clock
        self.plans = OncePlans(problem, seed, clock)
        self.upper_bound = upper_without_bins(problem)
        self._n_beliefs, self._seed, self._memory_limit = n_beliefs, seed, memory_limit
        self._greedy_start = (self.plans.lower_bound, 0)
        self._prices: ArmPrices | None = None
        self._search: Search | None = None

    @property
    def lower_bound(self) -> float:
        return max(self.plans.lower_bound, self._greedy_start[0])

    @property
    def greedy_steps(self) -> int:
        """Greedy steps before the plans take over, where that earns more."""
        return self._greedy_start[1] if self._greedy_start[0] > self.plans.lower_bound else 0

    def run(self, tolerance: Callable[[float], float]) -> Status:
        """Until the bounds are as close as `tolerance` says, time is up, or more work would change little."""
        self.plans.look_ahead()
        for n in rounds_of(self._n_beliefs):
            if (end := self._ended(tolerance)) is not None:
                return end
            self.plans.back_up(n)
        self._greedy_start = self.plans.greedy_start()
        if self.problem.binned:  # what prices prove would hold for the bins only
            return self._ended(tolerance) or Status.HEURISTIC
        self._charge()
        cycle, before = 0, np.inf
        while (end := self._ended(tolerance)) is None:
            gap = self.upper_bound - self.lower_bound
            if gap > (1 - _STALLED) * before:
                return Status.HEURISTIC
            before = gap
            self._cycle(cycle, tolerance)
            cycle += 1
        return end

    def finish(self) -> None:
        """Being greedy first may earn more than the plans, also where they were stopped early."""
        self._greedy_start = max(self._greedy_start, self.plans.greedy_start())
        self.clock.record(self.lower_bound, self.upper_bound)

    def _ended(self, tolerance: Callable[[float], float]) -> Status | None:
        lower, upper = self.lower_bound, self.upper_bound
        self.clock.record(lower, upper)
        if upper - lower <= tolerance(lower):
            return Status.CERTIFIED
        return Status.TIME_LIMIT if self.clock.expired else None

    def _charge(self) -> None:
        """Prices on arms and on information, together."""
        if not self.clock.expired:
            self._prices = arm_prices(self.problem, stop=lambda: self.clock.expired)
            self._lower_upper(self._prices.at_start * float(self.problem.weights.sum()))

    def _cycle(self, cycle: int, tolerance: Callable[[float], float]) -> None:
        """Trials on the problem in which the prices are paid; then more sessions for the plans."""
        assert self._prices is not None
        if self._search is None:
            self._search = Search(priced(self.problem, self._prices.prices), self._seed, self._memory_limit)
            self._search.look_ahead(self.clock)
            self._search.back_up(self._n_beliefs // 3 + 1)
            self._search.use(self._prices.information)
        refund = float(self._prices.refund @ self.problem.weights)
        for _ in range(_BATCHES << cycle):
            if self.clock.expired or self._search.full:
                break
            closed = self._search.advance(0.1 * tolerance(self.lower_bound))
            self._lower_upper(self._search.upper_bound + refund)
            if closed or self.upper_bound - self.lower_bound <= tolerance(self.lower_bound):
                break
        self.plans.back_up(self._n_beliefs << (cycle + 1))
        self._greedy_start = max(self._greedy_start, self.plans.greedy_start())

    def _lower_upper(self, bound: float) -> None:
        self.upper_bound = min(self.upper_bound, bound)
        self.clock.record(self.lower_bound, self.upper_bound)


def plan_certified_without_repeats(
    problem: Problem,
    clock: Clock,
    *,
    tolerance: Callable[[float], float],
    n_beliefs: int,
    seed: int,
    memory_limit: float,
) -> Plan:
    """A plan without repeats whose gap means what it means with repeats."""
    search = OnceSearch(problem, n_beliefs, seed, memory_limit, clock)
    clock.record(search.lower_bound, search.upper_bound)
    try:
        reason = search.run(tolerance)
    except KeyboardInterrupt:
        reason = Status.INTERRUPTED
    search.finish()
    lower, upper = clock.trace[-1][1:]
    upper = max(lower, upper)
    message = f"without repeats no policy earns more than {upper:.6g}, this one at least {lower:.6g}"
    if problem.binned:
        message += f"; rewards were put into {problem.n_values} bins per arm, {WITHOUT_BINS}"
    elif reason != Status.CERTIFIED:
        message += f" (the asked gap was not reached: {_why(problem, reason)})"
    policy = once_policy(problem, search.plans.plans, search.greedy_steps)
    return Plan(policy, problem.horizon, lower, upper, reason, message, tuple(clock.trace))


def _why(problem: Problem, reason: Status) -> str:
    if reason != Status.HEURISTIC:
        return f"{reason}"
    needed = sum(n_sets(problem, step) for step in range(problem.horizon))
    return f"prices on arms prove no more here, and Exact would need {needed:.3g} states; ask for fewer arms or steps"
