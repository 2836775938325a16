"""Certified planning for sessions that play each arm at most once.

Lower bound: alpha-vectors with the arms that their plans use. Upper bound: a Lagrangian relaxation of the constraint,
combined with the information bound and improved by the search with repeats. The rest of the gap is closed by
dynamic programming if that fits, otherwise by branch and bound for as long as there is time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ..._shapes import Array, Float
from ...errors import Status
from ..exact import STATE_BYTES, n_states, optimal_values, plan_exactly, seconds_needed
from ..information_bound import BoundParameters, InformationBound, evaluate_bound, optimize_parameters
from ..problem import Clock, Plan, PriorBounds, Problem
from ..search import Search
from .branching import BranchAndBound
from .point_based import NoRepeatPlans, rounds_of
from .vector_policy import NoRepeatVectorPolicy, no_repeat_policy

_BATCHES = 40  # batches of trials on the relaxed problem in the first cycle; every later cycle has twice as many
_MOST_DOUBLINGS, _WIDE_DOUBLINGS = 4, 2  # of the sessions of a round; the second if nodes take much memory
_STALLED = 0.1  # a cycle that removes less than this share of the gap is followed by the methods for the rest of it
_EXPANSIONS = 8  # leaves that branch and bound expands between two looks at the bounds
_UPPER_BINS = (24, 16, 12, 8, 6)  # of the more informative observations, from which dynamic programming takes the most


@dataclass(frozen=True, eq=False)
class ArmMultipliers:
    """Lagrange multipliers of the constraint "each arm at most once", and the bound of the relaxed problem."""

    multipliers: Float[Array, "A M"]
    information: InformationBound
    parameters: BoundParameters  # from which neighbouring problems may start

    @property
    def constant_term(self) -> Float[Array, "M"]:
        """Return the sum of the multipliers over arms, for each type, which every session gets back."""
        return self.multipliers.sum(axis=0)

    @property
    def at_start(self) -> float:
        """Return the upper bound on the value of policies without repeats at the prior."""
        return self.information.at_start + float(self.constant_term @ self.information.prior)


def relaxed_problem(problem: Problem, multipliers: Float[Array, "A M"]) -> Problem:
    """Return the problem in which arms may be repeated and every play of an arm costs its multiplier."""
    return replace(problem, payoffs=np.ascontiguousarray(problem.payoffs - multipliers), repeats=True)


def optimize_multipliers(
    problem: Problem,
    *,
    rounds: int = 150,
    stop: Callable[[], bool] = lambda: False,
    start: ArmMultipliers | None = None,
) -> ArmMultipliers:
    """Return the best multipliers found in `rounds` rounds, or until `stop`; stopped at once, the bound still holds."""
    priors = (problem.weights / problem.weights.sum())[None]
    model = problem.step_model
    if start is None:
        parameters = BoundParameters.initial(model, priors, _first_increment(problem))
        multipliers = _first_multipliers(problem)
    else:
        parameters, multipliers = start.parameters, start.multipliers
    parameters, best = optimize_parameters(
        model, priors, parameters, rounds, stop, multipliers=multipliers[None], polish=0
    )
    assert best is not None
    [found] = evaluate_bound(model.with_penalties(best), priors, parameters)
    return ArmMultipliers(best[0], found, parameters)


def _first_multipliers(problem: Problem) -> Float[Array, "A M"]:
    """Return how much an arm pays above the best arm that a session of known type has no time for."""
    means = problem.mean_step.means
    best = -np.partition(-means, problem.horizon - 1, axis=0)[problem.horizon - 1]
    return np.maximum(means - best, 0)


def _first_increment(problem: Problem) -> float:
    """Return the value of knowing the type without repeats, per step and unit of entropy."""
    horizon, means, prior = problem.horizon, problem.mean_step.means, problem.weights / problem.weights.sum()
    entropy = max(-float(prior @ np.log(prior)), 1e-6)
    known = float(prior @ -np.sort(-means, axis=0)[:horizon].sum(axis=0))
    fixed = float(np.sort(means @ prior)[-horizon:].sum())
    return max((known - fixed) / horizon / entropy, 1e-3 * float(np.ptp(means)), 1e-12)


class NoRepeatSearch:
    """Both bounds for sessions without repeats, and how to bring them together.

    The upper bound is that of `problem.upper_problem`, which has observations that are at least as informative.
    """

    def __init__(
        self,
        problem: Problem,
        clock: Clock,
        *,
        tolerance: Callable[[float], float],
        n_beliefs: int,
        seed: int,
        memory_limit: float,
    ) -> None:
        self.problem, self.clock, self._tolerance = problem, clock, tolerance
        self.plans = NoRepeatPlans(problem, seed, clock)
        self.upper_bound = problem.full_information
        self._n_beliefs, self._seed, self._memory_limit = n_beliefs, seed, memory_limit
        self._greedy_start = (self.plans.lower_bound, 0)
        self._multipliers: ArmMultipliers | None = None
        self._search: Search | None = None
        self._trees: list[BranchAndBound] = []  # one for each prior
        self._is_relaxation_solved, self._finds_plans = False, True
        clock.record(self.lower_bound, self.upper_bound)

    @property
    def lower_bound(self) -> float:
        """Return a lower bound on the value of the policy."""
        return max(self.plans.lower_bound, self._greedy_start[0])

    @property
    def policy(self) -> NoRepeatVectorPolicy:
        """Return the policy of the plans; it begins with greedy steps if that increases the lower bound."""
        greedy_steps = self._greedy_start[1] if self._greedy_start[0] > self.plans.lower_bound else 0
        return no_repeat_policy(self.problem, self.plans.of_all_arms, greedy_steps)

    def run(self) -> tuple[Status, Plan | None]:
        """Return the reason to stop, and the optimal plan if dynamic programming found it."""
        exact = None
        try:
            reason = Status.TIME_LIMIT
            self.plans.look_ahead()
            for action in self._schedule():
                if (end := self._ended()) is not None:
                    reason = end
                    break
                if (exact := action()) is not None:
                    return Status.OPTIMAL, exact
            else:
                reason = self._ended() or Status.HEURISTIC
        except KeyboardInterrupt:
            reason = Status.INTERRUPTED
        else:
            self._greedy_start = max(self._greedy_start, self.plans.greedy_start())
        self.clock.record(self.lower_bound, self.upper_bound)
        return reason, None

    def _schedule(self) -> Iterator[Callable[[], Plan | None]]:
        """Yield the next action, until nothing would change the bounds."""
        for n in rounds_of(self._n_beliefs):
            yield partial(self._back_up, n)
        yield self._relax
        before = np.inf
        for cycle in itertools.count():
            gap = self.upper_bound - self.lower_bound
            if gap > (1 - _STALLED) * before and not self._trees:
                yield self._solved_in_the_time_left
                yield self._begin_branching
            before = gap
            yield partial(self._cycle, cycle)
            for _ in range(1 << cycle if self._trees else 0):
                if max(tree.gap for tree in self._trees) <= 0:
                    return
                yield self._branch

    def by_prior(self) -> PriorBounds | None:
        """Return the bounds at any prior; None if all sessions start at one."""
        problem, horizon = self.problem, self.problem.horizon
        if problem.priors is None:
            return None
        best, worst = problem.known.best[-1], problem.known.worst[-1]
        plans = [worst[None], self.plans.plans[-1].vectors]
        if problem.is_uniform:  # the order of arms does not matter: the best at every prior, and in every type
            arms = problem.means
            first = np.argsort(-(problem.priors @ arms.T), axis=1, kind="stable")[:, :horizon]
            plans, best = [*plans, arms[first].sum(axis=1)], np.sort(arms, axis=0)[-horizon:].sum(axis=0)
        linear_terms, weight, reference = np.zeros(len(best)), 0.0, problem.weights
        upper = problem.priors @ best
        if self._multipliers is not None:
            information, constant = self._multipliers.information, self._multipliers.constant_term
            linear_terms, weight = information.linear_terms[-1] + constant, float(information.entropy_weights[-1])
            reference = information.prior
            upper = np.minimum(upper, self._relaxed_bounds())
        return PriorBounds.over(
            problem, np.concatenate(plans), problem.priors, upper, (best, worst),
            linear_terms[None], np.array([weight]), reference[None],
        )  # fmt: skip

    def _ended(self) -> Status | None:
        lower, upper = self.lower_bound, self.upper_bound
        self.clock.record(lower, upper)
        if upper - lower <= self._tolerance(lower):
            return Status.CERTIFIED
        n_bytes = sum(tree.n_bytes for tree in self._trees)
        if n_bytes > self._memory_limit or (self._search is not None and self._search.full and not self._trees):
            return Status.MEMORY_LIMIT
        return Status.TIME_LIMIT if self.clock.expired else None

    def _back_up(self, n_sessions: int) -> None:
        """Add the plans of a round of sessions."""
        self._finds_plans = self.plans.back_up(n_sessions)

    def _relax(self) -> None:
        """Find multipliers and the information bound of the relaxed problem together."""
        self._greedy_start = self.plans.greedy_start()
        if not self.clock.expired:
            self._multipliers = optimize_multipliers(self.problem.upper_problem, stop=lambda: self.clock.expired)
            self._lower_upper()

    def _relaxed_bounds(self) -> Float[Array, "K"]:
        """Return the upper bounds at the priors: of the relaxation, its search, and branch and bound."""
        assert self._multipliers is not None
        problem, information = self.problem, self._multipliers.information
        priors = problem.weights[None] if problem.priors is None else problem.priors
        constants = priors @ self._multipliers.constant_term
        upper = information.bound(priors, problem.horizon) + constants
        if self._search is not None:
            upper = np.minimum(upper, self._search.upper_bounds + constants)
        return np.minimum(upper, [tree.root.bounds[1] for tree in self._trees]) if self._trees else upper

    def _lower_upper(self) -> None:
        shares = np.ones(1) if self.problem.shares is None else self.problem.shares
        self.upper_bound = min(self.upper_bound, float(shares @ self._relaxed_bounds()))

    def _cycle(self, cycle: int) -> None:
        """Run trials on the relaxed problem, then more sessions for the plans, as long as these change a bound."""
        assert self._multipliers is not None
        if self._search is None:
            relaxed = relaxed_problem(self.problem.upper_problem, self._multipliers.multipliers)
            self._search = Search(relaxed, self._seed, self._memory_limit)
            self._search.look_ahead(self.clock)
            self._search.back_up(self._n_beliefs // 3 + 1)
            self._search.set_information_bounds([self._multipliers.information] * len(self._search.starts))
        for _ in range(0 if self._is_relaxation_solved else _BATCHES << cycle):
            if self.clock.expired or self._search.full:
                break
            tolerance = self._tolerance(self.lower_bound)
            self._is_relaxation_solved = self._search.advance(0.1 * tolerance)
            self._lower_upper()
            if self._is_relaxation_solved or self.upper_bound - self.lower_bound <= tolerance:
                break
        if self._finds_plans:
            self._back_up(self._n_beliefs << min(cycle + 1, _WIDE_DOUBLINGS if self._search.wide else _MOST_DOUBLINGS))
            self._greedy_start = max(self._greedy_start, self.plans.greedy_start())

    def _begin_branching(self) -> None:
        """Begin a tree at every prior, from the multipliers of the relaxation."""
        assert self._multipliers is not None
        problem = self.problem.upper_problem
        starts = problem.weights[None] if problem.priors is None else problem.priors
        plans = None if self.problem.binned else self.plans
        found = self._multipliers.multipliers, self._multipliers.parameters
        self._trees = [BranchAndBound(problem, start, found, plans, lambda: self.clock.expired) for start in starts]

    def _branch(self) -> None:
        """Expand some leaves, each of the tree with the largest weighted gap."""
        shares = np.ones(1) if self.problem.shares is None else self.problem.shares
        for _ in range(_EXPANSIONS):
            if self.clock.expired:
                break
            self._trees[int(np.argmax(shares * [min(tree.gap, 1e300) for tree in self._trees]))].improve()
        self._lower_upper()

    def _solved_in_the_time_left(self) -> Plan | None:
        """Return the optimal plan if dynamic programming fits into the time that is left.

        If rewards are binned, lower the upper bound to the exact value with the most observations that fit.
        """
        problem = self.problem
        if problem.priors is not None:
            return None
        if not problem.binned:
            return plan_exactly(problem, self.clock) if self._fits(problem) else None
        for above in map(problem.informative, _UPPER_BINS):
            if self._fits(above):
                stages = optimal_values(above, self.clock)
                if stages is not None:
                    self.upper_bound = min(self.upper_bound, float(stages[0][0]))
                break
        return None

    def _fits(self, problem: Problem) -> bool:
        """Return whether dynamic programming fits into the memory limit and the time that is left."""
        fits = STATE_BYTES * n_states(problem) <= self._memory_limit
        return fits and seconds_needed(problem) <= self.clock.seconds_left
