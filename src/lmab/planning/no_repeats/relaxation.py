"""Certified planning for sessions that play each arm at most once.

Lower bound: alpha-vectors with the arms that their plans use. Upper bound: a Lagrangian relaxation of the constraint,
combined with the information bound and improved by the search with repeats.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ..._shapes import Array, Float
from ...errors import Status
from ..exact import n_states, optimal_values, plan_exactly, seconds_needed
from ..information_bound import BoundParameters, InformationBound, evaluate_bound, optimize_parameters
from ..problem import Clock, Plan, PriorBounds, Problem
from ..search import Search
from .point_based import NoRepeatPlans, rounds_of
from .vector_policy import no_repeat_policy

_BATCHES = 40  # batches of trials on the relaxed problem in the first cycle; every later cycle has twice as many
_WIDE_DOUBLINGS = 2  # of the sessions of a round at most, where nodes of many arms take the memory
MOST_STATES = 20_000_000  # 160 MB, the most that dynamic programming tries if the search has stalled
_STALLED = 0.1  # a cycle that removes less than this share of the gap is a reason to try dynamic programming
_IDLE, _NOTHING = 3, 1e-3  # cycles in a row that remove less than this share of the gap end a solved relaxation


@dataclass(frozen=True, eq=False)
class ArmMultipliers:
    """Lagrange multipliers of the constraint "each arm at most once", and the bound of the relaxed problem."""

    multipliers: Float[Array, "A M"]
    information: InformationBound
    parameters: BoundParameters  # from which neighbouring problems may start

    @property
    def constant_term(self) -> Float[Array, "M"]:
        """The sum of the multipliers over arms, for each type: what every session gets back."""
        return self.multipliers.sum(axis=0)

    @property
    def at_start(self) -> float:
        """The upper bound on the value of policies without repeats at the prior."""
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
    """Return the best multipliers found in `rounds` rounds, or until `stop`; stopped at once, the bound still holds.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5, 0.3], [0.1, 0.6, 0.3]])
        >>> found = optimize_multipliers(Problem.of(bandit, 2))
        >>> 1.1 <= found.at_start <= bandit.known_type(2, repeats=False)
        True
    """
    priors = (problem.weights / problem.weights.sum())[None]
    model = problem.step_model
    if start is None:
        parameters = BoundParameters.initial(model, priors, _first_increment(problem))
        multipliers = _first_multipliers(problem)
    else:
        parameters, multipliers = start.parameters, start.multipliers
    parameters, best = optimize_parameters(model, priors, parameters, rounds, stop, multipliers=multipliers, polish=0)
    assert best is not None
    [found] = evaluate_bound(model.with_penalties(best), priors, parameters)
    return ArmMultipliers(best, found, parameters)


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

    The upper bound is that of `problem.upper_problem`, whose observations are at least as informative.
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
        self._is_relaxation_solved = False
        self._advice = ""
        clock.record(self.lower_bound, self.upper_bound)

    @property
    def lower_bound(self) -> float:
        return max(self.plans.lower_bound, self._greedy_start[0])

    @property
    def greedy_steps(self) -> int:
        """Greedy steps before the plans take over, if the value is higher then."""
        return self._greedy_start[1] if self._greedy_start[0] > self.plans.lower_bound else 0

    def plan(self) -> Plan:
        """Search until the bounds are close enough, the time is over, or nothing would change them."""
        exact = None
        try:
            reason, exact = self._run()
        except KeyboardInterrupt:
            reason = Status.INTERRUPTED
        if exact is not None:
            return exact
        # Being greedy first may be better than the plans, also if they were stopped early.
        self._greedy_start = max(self._greedy_start, self.plans.greedy_start())
        self.clock.record(self.lower_bound, self.upper_bound)
        problem, (lower, upper) = self.problem, self.clock.trace[-1][1:]
        upper = max(lower, upper)
        message = f"without repeats no policy earns more than {upper:.6g}, this one at least {lower:.6g}"
        if problem.binned:
            message += f", which was planned with rewards in {problem.n_values} bins per arm"
        if reason != Status.CERTIFIED:
            message += f" (the requested gap was not reached: {self._advice or reason})"
        policy = no_repeat_policy(problem, self.plans.of_all_arms, self.greedy_steps)
        trace = tuple(self.clock.trace)
        return Plan(policy, problem.horizon, lower, upper, reason, message, trace, by_prior=self.by_prior())

    def _run(self) -> tuple[Status, Plan | None]:
        """Return the reason to stop, and the optimal plan if dynamic programming found it."""
        self.plans.look_ahead()
        for n in rounds_of(self._n_beliefs):
            if (end := self._ended()) is not None:
                return end, None
            self.plans.back_up(n)
        self._greedy_start = self.plans.greedy_start()
        self._relax()
        cycle, idle, before, tried = 0, 0, np.inf, False
        while (end := self._ended()) is None:
            gap = self.upper_bound - self.lower_bound
            if gap > (1 - _STALLED) * before and not tried:
                tried = True
                if (exact := self._solved_in_the_time_left()) is not None:
                    return Status.OPTIMAL, exact
            idle = idle + 1 if gap > (1 - _NOTHING) * before and self._is_relaxation_solved else 0
            if idle == _IDLE:
                return Status.HEURISTIC, None
            before = gap
            self._cycle(cycle)
            cycle += 1
        return end, None

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
            upper = np.minimum(upper, information.bound(problem.priors, horizon) + problem.priors @ constant)
            if self._search is not None:
                upper = np.minimum(upper, self._search.upper_bounds + problem.priors @ constant)
        return PriorBounds.over(
            problem, np.concatenate(plans), problem.priors, upper, (best, worst),
            linear_terms[None], np.array([weight]), reference[None],
        )  # fmt: skip

    def _ended(self) -> Status | None:
        lower, upper = self.lower_bound, self.upper_bound
        self.clock.record(lower, upper)
        if upper - lower <= self._tolerance(lower):
            return Status.CERTIFIED
        if self._search is not None and self._search.full:
            return Status.MEMORY_LIMIT
        return Status.TIME_LIMIT if self.clock.expired else None

    def _relax(self) -> None:
        """Find multipliers and the information bound of the relaxed problem together."""
        if not self.clock.expired:
            self._multipliers = optimize_multipliers(self.problem.upper_problem, stop=lambda: self.clock.expired)
            self._lower_upper(self._at_start(self._multipliers))

    def _at_start(self, found: ArmMultipliers) -> float:
        """Return the upper bound at the initial belief, averaged over the priors."""
        problem = self.problem
        if problem.priors is None or problem.shares is None:
            return found.at_start * float(problem.weights.sum())
        each = found.information.bound(problem.priors, problem.horizon) + problem.priors @ found.constant_term
        return float(problem.shares @ each)

    def _cycle(self, cycle: int) -> None:
        """Run trials on the relaxed problem, then more sessions for the plans."""
        assert self._multipliers is not None
        if self._search is None:
            relaxed = relaxed_problem(self.problem.upper_problem, self._multipliers.multipliers)
            self._search = Search(relaxed, self._seed, self._memory_limit)
            self._search.look_ahead(self.clock)
            self._search.back_up(self._n_beliefs // 3 + 1)
            self._search.set_information_bounds([self._multipliers.information] * len(self._search.starts))
        constant = float(self._multipliers.constant_term @ self.problem.weights)
        for _ in range(0 if self._is_relaxation_solved else _BATCHES << cycle):
            if self.clock.expired or self._search.full:
                break
            tolerance = self._tolerance(self.lower_bound)
            self._is_relaxation_solved = self._search.advance(0.1 * tolerance)
            self._lower_upper(self._search.upper_bound + constant)
            if self._is_relaxation_solved or self.upper_bound - self.lower_bound <= tolerance:
                break
        doublings = min(cycle + 1, _WIDE_DOUBLINGS) if self._search.wide else cycle + 1
        self.plans.back_up(self._n_beliefs << doublings)
        self._greedy_start = max(self._greedy_start, self.plans.greedy_start())

    def _lower_upper(self, bound: float) -> None:
        self.upper_bound = min(self.upper_bound, bound)
        self.clock.record(self.lower_bound, self.upper_bound)

    def _solved_in_the_time_left(self) -> Plan | None:
        """Return the optimal plan if dynamic programming fits into the time that is left; keep what would help."""
        problem = self.problem
        if problem.priors is not None:
            self._advice = "the relaxation of the constraint leaves this gap, and Exact supports one prior only"
            return None
        if problem.binned:
            self._solve_upper_problem()
            return None
        needed = n_states(problem)
        if needed > MOST_STATES:
            self._advice = (
                f"the relaxation of the constraint leaves this gap, and Exact would need {needed:.3g} states, more "
                f"than {MOST_STATES:.0e}: plan fewer arms or steps"
            )
            return None
        seconds = seconds_needed(problem)
        self._advice = f"Exact over {needed:.3g} states would take about {seconds:.0f} s more: raise the time limit"
        return None if seconds > self.clock.seconds_left else plan_exactly(problem, self.clock)

    def _solve_upper_problem(self) -> None:
        """Lower the upper bound to the exact value with more informative observations, if that takes little time."""
        above = self.problem.upper_problem
        if n_states(above) <= MOST_STATES and seconds_needed(above) <= self.clock.seconds_left:
            stages = optimal_values(above, self.clock)
            if stages is not None:
                self._lower_upper(float(stages[0][0]))
                return
        self._advice = "the relaxation of the constraint leaves this gap, and its exact solution does not fit"
