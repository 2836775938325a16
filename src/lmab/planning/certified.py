"""Certified: heuristic search until the gap between a lower and an upper bound on the optimum is small enough."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..checks import COUNT, NOT_NEGATIVE, POSITIVE, Count, check_fields, optional
from ..errors import Status
from ..policies.policy import Policy
from .backups import fixed_arms
from .exact import STATE_BYTES, n_states, plan_exactly, seconds_needed
from .no_repeats.relaxation import NoRepeatSearch
from .policies import vector_policy
from .problem import Clock, Plan, Problem
from .search import MEMORY_LIMIT, Search

_LP_BATCH = 16  # batches after which linear programs look for dominated arms, which then pay off
_LP_DELAY = 16  # times as many batches before these with several priors or attrition: batches are smaller then
_SHORT_TRIAL_WORK = 1 << 21  # multiplications spent on trials before each of the first rounds of backups
_ROUNDS = (12, 60)  # sessions of the first rounds of backups
_BOUND_BATCH, _BOUND_BATCH_WITH_ATTRITION = 3, 1  # batches before the information bound: easy plans need none
_BACKUP_BATCHES = frozenset(first << k for first in (4, 6) for k in range(20))  # before which many arms are backed up
_GRIDS = {0: 1 << 18, 1: 1 << 20, 2: 1 << 22, 16: 1 << 24}  # by batch: weights of a grid of beliefs, with attrition
_ATTRITION_TOLERANCE = 0.98  # part of the gap that trials tolerate with attrition: long sessions are explored evenly
_FEW_STATES = 1_000_000  # without repeats, dynamic programming over so many states takes less time than a search
_LOWER_TIME, _PART_OF_GAP = 0.3, 0.3  # binned rewards: share of the time for plans, and of the gap for each search
_MOST_BINS = 200  # of the observations that are more informative than continuous rewards
_ROUNDING = 1e-13  # bounds are computed with relative errors well below this
_ADVICE = {
    Status.TIME_LIMIT: "a longer time_limit would close more of the gap",
    Status.MEMORY_LIMIT: "a larger memory_limit would close more of the gap",
    Status.INTERRUPTED: "",
}


class _Run:
    """State of a search that the rules of the schedule look at."""

    def __init__(self, planner: Certified, search: Search, clock: Clock, goal: float | None) -> None:
        self.planner, self.search, self.clock, self.goal = planner, search, clock, goal
        self.many, self.has_attrition = len(search.roots) > 1, bool(search.problem.people_leave)
        n = planner.n_beliefs
        self.rounds = [n] if self.many else [few for few in _ROUNDS if few < n] + [n] * 2
        if goal is not None and not self.many:  # only the upper bound is of interest
            self.rounds = []
        self.batch = -len(self.rounds)  # below 0: rounds of backups; then batches of trials
        few = max(_LP_BATCH, search.problem.n_arms**2 // 100)  # after about as long as the linear programs take
        self.lp_batch = _LP_DELAY * few if self.many or self.has_attrition else few
        late = _BOUND_BATCH_WITH_ATTRITION if self.has_attrition else _BOUND_BATCH
        first = goal is not None or search.wide
        self.bound_batch = -1 if self.many else 0 if first else late

    @property
    def tolerance(self) -> float:
        return self.planner.tolerance(self.search.problem, self.search.lower_bound)

    @property
    def gap(self) -> float:
        return self.search.upper_bound - self.search.lower_bound

    @property
    def is_closed(self) -> bool:
        """Return whether the bounds are close enough, or the upper one has reached its goal."""
        reached = self.goal is not None and self.search.upper_bound <= self.goal
        return reached or self.gap <= self.tolerance

    @property
    def end(self) -> Status | None:
        """Return the reason to stop, or None."""
        if self.is_closed:
            return Status.CERTIFIED
        if self.clock.expired:
            return Status.TIME_LIMIT
        return Status.MEMORY_LIMIT if self.search.full else None

    def trials(self) -> None:
        coarse = self.has_attrition and not self.many
        self.search.advance(max(self.tolerance, _ATTRITION_TOLERANCE * self.gap) if coarse else self.tolerance)


class _Rule(NamedTuple):
    """One row of the schedule."""

    applies: Callable[[_Run], bool]
    act: Callable[[_Run], object]


#: In every batch the rules that apply act from the top to the bottom, until the gap is closed.
_SCHEDULE = (
    # Rounds of backups, each after a short trial: easy plans close there. Several priors: bound, backups, proofs.
    _Rule(lambda run: run.batch < 0 and run.many, lambda run: run.search.add_information_bound(run.clock)),
    _Rule(lambda run: run.batch < 0 and not run.many, lambda run: run.search.advance(run.tolerance, _SHORT_TRIAL_WORK)),
    _Rule(lambda run: run.batch < 0, lambda run: run.search.back_up(run.rounds[run.batch])),
    _Rule(lambda run: run.batch < 0 and run.many, lambda run: run.search.prove(run.tolerance, run.clock)),
    # Then trials, and the methods that pay off in searches that stay open.
    _Rule(lambda run: run.batch == run.lp_batch, lambda run: run.search.drop_dominated_arms(run.clock)),
    _Rule(
        lambda run: run.has_attrition and run.batch in _GRIDS,
        lambda run: run.search.add_grid_bound(_GRIDS[run.batch], run.clock),
    ),
    _Rule(lambda run: run.batch == run.bound_batch, lambda run: run.search.add_information_bound(run.clock)),
    _Rule(  # trials found better arms than backups had tried
        lambda run: run.search.wide and run.batch in _BACKUP_BATCHES,
        lambda run: run.search.back_up(run.planner.n_beliefs),
    ),
    _Rule(lambda run: run.batch >= 0, _Run.trials),
)


@dataclass(frozen=True)
class Certified:
    """Heuristic search until upper - lower <= gap * |lower| (or <= `absolute`): a proof of near-optimality.

    Before the search takes more than `memory_limit` bytes it stops, as it does at the time limit. A search that reaches
    the memory limit before the gap is followed by dynamic programming (`Exact`) if that is possible in the time that is
    left. For continuous rewards and counts the lower bound is that of a plan for rewards in bins, and the upper bound
    that of observations which are at least as informative as the rewards.

    A plan for persons with many priors searches in `threads` threads, None for all cores; the result is the same to the
    bit for any number.

    Use `absolute` if values are near 0 (rewards of both signs), because a relative gap is not meaningful then.

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
        if problem.binned and problem.horizon > 1:
            return self._solve_binned(problem, clock)
        search = Search(problem, self.seed, self.memory_limit, self.threads)
        try:
            if problem.horizon == 1:  # several priors: the value of the last step is known
                for nodes, value in zip(search.roots, search.lower_bounds.tolist(), strict=True):
                    nodes.upper[0] = value
                clock.record(search.lower_bound, search.upper_bound)
                return self._plan_of(search, search, clock, Status.CERTIFIED)
            reason = self._run(search, clock)
            if reason == Status.MEMORY_LIMIT and (exact := self._solved_in_the_time_left(problem, clock)) is not None:
                return exact
        except KeyboardInterrupt:
            reason = Status.INTERRUPTED
        clock.record(search.lower_bound, search.upper_bound)
        if problem.people is not None:
            search.prove_for(*problem.people, self.tolerance(problem, search.lower_bound), clock)
        return self._plan_of(search, search, clock, reason)

    def _solve_binned(self, problem: Problem, clock: Clock) -> Plan:
        """Plan for rewards in bins, which sessions can observe; bound by observations that are more informative."""
        finer = replace(self, gap=self.gap * _PART_OF_GAP, absolute=self.absolute * _PART_OF_GAP)
        lower = above = Search(problem, self.seed, self.memory_limit, self.threads)
        reason, upper, bins = Status.HEURISTIC, problem.full_information, problem.n_values
        proved = -np.inf
        try:
            reason = finer._run(lower, clock.part(_LOWER_TIME, upper=upper))
            proved = lower.lower_bound
            clock.record(proved, upper)
            while upper - proved > self.tolerance(problem, proved) and bins <= _MOST_BINS and not clock.expired:
                above = Search(problem.informative(bins), self.seed, self.memory_limit, self.threads)
                for steps, vectors in enumerate(lower.sets(), start=1):
                    above.add_vectors(steps, vectors)  # with more information the same plans earn no less
                reason = finer._run(above, clock.part(1.0, lower=proved), proved + self.tolerance(problem, proved))
                upper, bins = min(upper, above.upper_bound), 2 * bins
                clock.record(proved, upper)
        except KeyboardInterrupt:
            reason, proved = Status.INTERRUPTED, lower.lower_bound
        clock.record(proved, upper)
        tolerance = self.tolerance(problem, proved)
        if problem.people is not None and above is not lower:
            above.prove_for(*problem.people, tolerance, clock)
        if upper - proved <= tolerance:
            reason = Status.CERTIFIED
        elif reason == Status.CERTIFIED:
            reason = Status.TIME_LIMIT if clock.expired else Status.HEURISTIC
        return self._plan_of(lower, above, clock, reason)

    def solve_without_repeats(self, problem: Problem, clock: Clock) -> Plan:
        problem = replace(problem, repeats=False)
        exact, interrupted = None, False
        try:
            small = problem.priors is None and n_states(problem) <= _FEW_STATES
            exact = plan_exactly(problem, clock) if small else None
        except KeyboardInterrupt:
            interrupted, clock.time_limit = True, 0.0
        if exact is not None and (not problem.binned or exact.gap <= self.gap):
            return replace(exact, status=Status.CERTIFIED) if problem.binned else exact
        options = {"n_beliefs": self.n_beliefs, "seed": self.seed, "memory_limit": self.memory_limit}
        search = NoRepeatSearch(
            problem,
            clock,
            tolerance=lambda lower: self.tolerance(problem, lower),
            **options,  # type: ignore[arg-type]
        )
        reason, exact = search.run()
        if exact is not None:
            return exact
        plan = self._plan(problem, search.policy, clock, Status.INTERRUPTED if interrupted else reason)
        return replace(plan, by_prior=search.by_prior())

    def _solved_in_the_time_left(self, problem: Problem, clock: Clock) -> Plan | None:
        """Return the optimal plan if a table of values fits into the memory limit and the time that is left."""
        if problem.priors is not None or STATE_BYTES * n_states(problem) > self.memory_limit:
            return None
        return None if seconds_needed(problem) > clock.seconds_left else plan_exactly(problem, clock)

    def _run(self, search: Search, clock: Clock, goal: float | None = None) -> Status:
        """Follow the schedule until the gap is closed, the time is over or the memory is full.

        With a `goal` only the upper bound is of interest, and it need not fall below the goal.
        """
        search.look_ahead(clock)
        clock.record(search.lower_bound, search.upper_bound)
        run = _Run(self, search, clock, goal)
        for batch in itertools.count(run.batch):
            run.batch = batch
            clock.record(search.lower_bound, search.upper_bound)
            if (end := run.end) is not None:
                return end
            for rule in _SCHEDULE:
                if rule.applies(run):
                    rule.act(run)
                    if run.is_closed:
                        break
        raise AssertionError

    def tolerance(self, problem: Problem, lower: float) -> float:
        """Return the gap that is small enough, given the lower bound."""
        return max(self.gap * abs(lower), self.absolute, _ROUNDING * problem.scale)

    def _plan_of(self, search: Search, above: Search, clock: Clock, reason: Status) -> Plan:
        """Return the plan of a search, with the upper bounds of the search `above`."""
        problem, bounds, below = search.problem, above.by_prior(), search.by_prior()
        plan = self._plan(problem, vector_policy(problem, search.sets()), clock, reason)
        if bounds is None or below is None or (problem.binned and above is search):  # bounds for bins are not enough
            return plan
        return replace(plan, by_prior=replace(bounds, vectors=below.vectors))

    def _plan(self, problem: Problem, policy: Policy, clock: Clock, reason: Status) -> Plan:
        """Return the plan with the bounds on the clock, and the message that explains them."""
        lower, upper = clock.trace[-1][1:]
        upper = max(lower, upper)  # they may cross by rounding
        rule = "" if problem.repeats else "without repeats "
        message = f"{rule}no policy earns more than {upper:.6g}, this one at least {lower:.6g}"
        if problem.binned:
            message += f", which was planned with rewards in {problem.n_values} bins per arm"
        if reason != Status.CERTIFIED:
            advice = _ADVICE.get(reason, "more bins would close more of the gap")
            message += f" (stopped: {reason}, before the requested gap of {self.gap:g}"
            message += f"; {advice})" if advice else ")"
        return Plan(policy, problem.horizon, lower, upper, reason, message, tuple(clock.trace))


def _one_arm(problem: Problem, clock: Clock) -> Plan:
    """Return the plan of one arm, which is best in every type, or the best if only one step is left."""
    if problem.is_stationary:
        value = problem.bandit.best_fixed(problem.horizon)
    else:
        value = float((problem.always(problem.horizon) @ problem.weights).max())
    clock.record(value, value)
    message = "one arm is best in every type" if problem.horizon > 1 else "one step: the arm with the highest mean"
    policy = vector_policy(problem, fixed_arms(problem))
    return Plan(policy, problem.horizon, value, value, Status.OPTIMAL, message, tuple(clock.trace))
