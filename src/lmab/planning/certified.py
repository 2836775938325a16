"""Certified: heuristic search until the gap between a lower and an upper bound on the optimum is small enough."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from ..checks import COUNT, NOT_NEGATIVE, POSITIVE, Count, check_fields, optional
from ..errors import Status
from .backups import fixed_arms
from .exact import STATE_BYTES, all_states, solved
from .once.certified import plan_once_certified
from .once.exact import fits, solved_once
from .policies import vector_policy
from .problem import Clock, Plan, Problem
from .search import MEMORY_LIMIT, Search

_OPEN = 16  # batches of trials after which the search counts as open, and linear programs look for superfluous arms
_GLANCE = 1 << 21  # multiplications spent on trials before each of them
_ROUNDS = (12, 60)  # sessions of the first rounds of backups
_MANY = 16  # times as many batches before these, with several priors or where people leave: batches are smaller then
_PRICE = 3  # batches after which the information price is asked for: easy plans are done by then
_PRICE_LEAVE = 1  # the same where people leave: there it is worth more than what trials find meanwhile
_COARSE = 0.98  # part of the gap that trials tolerate where people leave: long sessions are looked through evenly
_GRIDS = {0: 1 << 18, 1: 1 << 20, 2: 1 << 22, 16: 1 << 24}  # by batch: weights of a grid, where people leave
_AGAIN = frozenset(first << k for first in (4, 6) for k in range(20))  # batches before which many arms are backed up
_ROUNDING = 1e-13  # bounds are computed with relative errors well below this


@dataclass(frozen=True)
class Certified:
    """Search until upper - lower <= gap * |lower| (or <= `absolute`): a proof that nothing is better by more.

    Before the search takes more than `memory_limit` bytes it stops, as it does at the time limit. A search that stops
    for another reason than time before the gap is reached is followed by dynamic programming (`Exact`) if that is
    possible in the time that is left.

    A plan for people of many priors searches in `threads` threads, None for all cores; the result is the same to the
    bit for any number.

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
    memory_limit: float = MEMORY_LIMIT
    threads: int | None = None

    def __post_init__(self) -> None:
        check_fields(self, {"gap": NOT_NEGATIVE, "absolute": NOT_NEGATIVE, "memory_limit": POSITIVE})
        check_fields(self, {"n_beliefs": COUNT, "seed": Count(0), "threads": optional(COUNT)})

    def solve(self, problem: Problem, clock: Clock) -> Plan:
        if problem.priors is None and (problem.best_everywhere() is not None or problem.horizon == 1):
            return _one_arm(problem, clock)
        search = Search(problem, self.seed, self.memory_limit, self.threads)
        try:
            if problem.horizon == 1:  # Several priors: the last step is known.
                for nodes, worth in zip(search.roots, search.lower_bounds.tolist(), strict=True):
                    nodes.upper[0] = worth
                clock.record(search.lower_bound, search.upper_bound)
                return self._plan(search, clock, Status.CERTIFIED)
            search.look_ahead(clock)
            clock.record(search.lower_bound, search.upper_bound)
            reason = self._run(search, clock)
            exact = self._solved_in_the_time_left(problem, clock) if reason == Status.MEMORY_LIMIT else None
            if exact is not None:
                return exact
        except KeyboardInterrupt:
            reason = Status.INTERRUPTED
        clock.record(search.lower_bound, search.upper_bound)
        if problem.people is not None:
            search.prove_for(*problem.people, self._tolerance(problem, search.lower_bound), clock)
        return self._plan(search, clock, reason)

    def solve_without_repeats(self, problem: Problem, clock: Clock) -> Plan:
        try:
            exact = solved_once(problem, clock) if problem.priors is None and fits(problem) else None
            return self._search_once(problem, clock) if exact is None else exact
        except KeyboardInterrupt:
            clock.time_limit = 0.0
            return replace(self._search_once(problem, clock), status=Status.INTERRUPTED)

    def _solved_in_the_time_left(self, problem: Problem, clock: Clock) -> Plan | None:
        """Return the optimal plan where the search takes too much memory but a table of values does not."""
        if problem.priors is not None or problem.binned or STATE_BYTES * all_states(problem) > self.memory_limit:
            return None
        return solved(problem, clock)

    def _search_once(self, problem: Problem, clock: Clock) -> Plan:
        return plan_once_certified(
            problem,
            clock,
            tolerance=lambda lower: self._tolerance(problem, lower),
            n_beliefs=self.n_beliefs,
            seed=self.seed,
            memory_limit=self.memory_limit,
        )

    def _run(self, search: Search, clock: Clock) -> Status:
        """Small rounds of backups first, with a trial after each: easy plans close there. Then batches of trials.

        Where there are several priors, the price comes first, and one round begins with sessions of all of them.
        """
        many = len(search.roots) > 1
        rounds = [self.n_beliefs] if many else [n for n in _ROUNDS if n < self.n_beliefs] + [self.n_beliefs] * 2
        if many:
            search.add_information_bound(clock)
        for batch in itertools.count(-len(rounds)):
            clock.record(search.lower_bound, search.upper_bound)
            tolerance = self._tolerance(search.problem, search.lower_bound)
            if search.upper_bound - search.lower_bound <= tolerance:
                return Status.CERTIFIED
            if clock.expired:
                return Status.TIME_LIMIT
            if search.full:
                return Status.MEMORY_LIMIT
            if batch < 0:
                if not many:
                    search.advance(tolerance, _GLANCE)
                if search.upper_bound - search.lower_bound > tolerance:
                    search.back_up(rounds[batch])
                if many:
                    search.prove(self._tolerance(search.problem, search.lower_bound), clock)
                continue
            leave = search.problem.people_leave
            programs = max(_OPEN, search.problem.n_arms**2 // 100)  # after about as long as they take
            if batch == (_MANY * programs if many or leave else programs):
                search.drop_dominated_arms(clock)
            if leave and batch in _GRIDS:
                search.add_grid_bound(_GRIDS[batch], clock)
                if search.upper_bound - search.lower_bound <= tolerance:
                    continue
            if batch == (0 if search.wide else _PRICE_LEAVE if leave else _PRICE) and not many:
                search.add_information_bound(clock)
            if search.wide and batch in _AGAIN:  # trials found better arms than backups had tried
                search.back_up(self.n_beliefs)
            gap = search.upper_bound - search.lower_bound
            search.advance(max(tolerance, _COARSE * gap) if leave and not many else tolerance)
        raise AssertionError

    def _tolerance(self, problem: Problem, lower: float) -> float:
        return max(self.gap * abs(lower), self.absolute, _ROUNDING * problem.scale)

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
                "rewards themselves, the upper one does not: the plan's upper bound is that of knowing the type"
            )
            upper = problem.full_information
            if reason == Status.CERTIFIED:
                reason = Status.HEURISTIC  # the asked gap is proved for the bins only
        policy = vector_policy(problem, search.sets())
        plan = Plan(policy, problem.horizon, lower, upper, reason, message, tuple(clock.trace))
        return replace(plan, by_prior=None if problem.binned else search.by_prior())


def _one_arm(problem: Problem, clock: Clock) -> Plan:
    """One arm is best whatever the type, or only one step is left: nothing is worth learning."""
    value = problem.bandit.best_fixed(problem.horizon)
    clock.record(value, value)
    message = "one arm is best in every type" if problem.horizon > 1 else "one step: the arm with the highest mean"
    policy = vector_policy(problem, fixed_arms(problem))
    return Plan(policy, problem.horizon, value, value, Status.OPTIMAL, message, tuple(clock.trace))
