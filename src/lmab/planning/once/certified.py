"""Certified without repeats: plans that know their arms below, prices on arms above, until the bounds are close."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ..._shapes import Array, Float
from ...errors import Status
from ..information_bound import BoundParameters, InformationBound, evaluate_bound, optimize_parameters
from ..problem import Clock, Plan, PriorBounds, Problem
from ..search import Search
from .exact import MOST_STATES, n_states, seconds_of_exact, solved_once
from .lookahead import WITHOUT_BINS, upper_without_bins
from .point_based import OncePlans, rounds_of
from .policy import once_policy

_BATCHES = 40  # Batches of trials on the priced problem in the first cycle; every later cycle has twice as many.
_WIDE_DOUBLINGS = 2  # of the sessions of a round at most, where nodes of many arms take the memory
_STALLED = 0.1  # a cycle that takes less than this share of the gap away is the last


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
    return replace(problem, means=np.ascontiguousarray(problem.means - multipliers))


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
    best = -np.partition(-problem.means, problem.horizon - 1, axis=0)[problem.horizon - 1]
    return np.maximum(problem.means - best, 0)


def _first_increment(problem: Problem) -> float:
    """Return the value of knowing the type without repeats, per step and unit of entropy."""
    horizon, means, prior = problem.horizon, problem.means, problem.weights / problem.weights.sum()
    entropy = max(-float(prior @ np.log(prior)), 1e-6)
    known = float(prior @ -np.sort(-means, axis=0)[:horizon].sum(axis=0))
    fixed = float(np.sort(means @ prior)[-horizon:].sum())
    return max((known - fixed) / horizon / entropy, 1e-3 * float(np.ptp(means)), 1e-12)


class OnceSearch:
    """Both bounds for sessions without repeats, and how to bring them together."""

    def __init__(self, problem: Problem, n_beliefs: int, seed: int, memory_limit: float, clock: Clock) -> None:
        self.problem, self.clock = problem, clock
        self.plans = OncePlans(problem, seed, clock)
        self.upper_bound = upper_without_bins(problem)
        self._n_beliefs, self._seed, self._memory_limit = n_beliefs, seed, memory_limit
        self._greedy_start = (self.plans.lower_bound, 0)
        self._prices: ArmMultipliers | None = None
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
        self._relax()
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

    def by_prior(self) -> PriorBounds | None:
        """What is proved at any prior; None where all sessions begin at one."""
        problem, horizon = self.problem, self.problem.horizon
        if problem.priors is None:
            return None
        best, worst, arms = problem.known.best[-1], problem.known.worst[-1], problem.means
        plans = [worst[None], self.plans.plans[-1].vectors]
        if not problem.people_leave:  # the order of arms does not matter: the best at every prior, and in every type
            first = np.argsort(-(problem.priors @ arms.T), axis=1, kind="stable")[:, :horizon]
            plans, best = [*plans, arms[first].sum(axis=1)], np.sort(arms, axis=0)[-horizon:].sum(axis=0)
        planes, rate, reference = np.zeros(len(best)), 0.0, problem.weights
        upper = problem.priors @ best
        if self._prices is not None:
            information, refund = self._prices.information, self._prices.constant_term
            planes, rate, reference = (
                information.linear_terms[-1] + refund,
                float(information.entropy_weights[-1]),
                information.prior,
            )
            upper = np.minimum(upper, information.bound(problem.priors, horizon) + problem.priors @ refund)
            if self._search is not None:
                upper = np.minimum(upper, self._search.upper_bounds + problem.priors @ refund)
        return PriorBounds.over(
            problem, np.concatenate(plans), problem.priors, upper, (best, worst),
            planes[None], np.array([rate]), reference[None],
        )  # fmt: skip

    def _ended(self, tolerance: Callable[[float], float]) -> Status | None:
        lower, upper = self.lower_bound, self.upper_bound
        self.clock.record(lower, upper)
        if upper - lower <= tolerance(lower):
            return Status.CERTIFIED
        return Status.TIME_LIMIT if self.clock.expired else None

    def _relax(self) -> None:
        """Prices on arms and on information, together."""
        if not self.clock.expired:
            self._prices = optimize_multipliers(self.problem, stop=lambda: self.clock.expired)
            self._lower_upper(self._at_start(self._prices))

    def _at_start(self, prices: ArmMultipliers) -> float:
        """What the prices prove at the start, on average over the priors."""
        problem = self.problem
        if problem.priors is None or problem.shares is None:
            return prices.at_start * float(problem.weights.sum())
        each = prices.information.bound(problem.priors, problem.horizon) + problem.priors @ prices.constant_term
        return float(problem.shares @ each)

    def _cycle(self, cycle: int, tolerance: Callable[[float], float]) -> None:
        """Trials on the problem in which the prices are paid; then more sessions for the plans."""
        assert self._prices is not None
        if self._search is None:
            self._search = Search(
                relaxed_problem(self.problem, self._prices.multipliers), self._seed, self._memory_limit
            )
            self._search.look_ahead(self.clock)
            self._search.back_up(self._n_beliefs // 3 + 1)
            self._search.set_information_bounds([self._prices.information] * len(self._search.starts))
        refund = float(self._prices.constant_term @ self.problem.weights)
        for _ in range(_BATCHES << cycle):
            if self.clock.expired or self._search.full:
                break
            closed = self._search.advance(0.1 * tolerance(self.lower_bound))
            self._lower_upper(self._search.upper_bound + refund)
            if closed or self.upper_bound - self.lower_bound <= tolerance(self.lower_bound):
                break
        doublings = min(cycle + 1, _WIDE_DOUBLINGS) if self._search.wide else cycle + 1
        self.plans.back_up(self._n_beliefs << doublings)
        self._greedy_start = max(self._greedy_start, self.plans.greedy_start())

    def _lower_upper(self, bound: float) -> None:
        self.upper_bound = min(self.upper_bound, bound)
        self.clock.record(self.lower_bound, self.upper_bound)


def plan_once_certified(
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
    exact, advice = None, ""
    if reason == Status.HEURISTIC and not problem.binned:
        try:
            exact, advice = _solved_in_the_time_left(problem, clock)
        except KeyboardInterrupt:
            reason = Status.INTERRUPTED
    if exact is not None:
        return exact
    lower, upper = clock.trace[-1][1:]
    upper = max(lower, upper)
    message = f"without repeats no policy earns more than {upper:.6g}, this one at least {lower:.6g}"
    if problem.binned:
        message += f"; rewards were put into {problem.n_values} bins per arm, {WITHOUT_BINS}"
    elif reason != Status.CERTIFIED:
        message += f" (the asked gap was not reached: {advice or reason})"
    policy = once_policy(problem, search.plans.of_all_arms, search.greedy_steps)
    plan = Plan(policy, problem.horizon, lower, upper, reason, message, tuple(clock.trace))
    return replace(plan, by_prior=None if problem.binned else search.by_prior())


def _solved_in_the_time_left(problem: Problem, clock: Clock) -> tuple[Plan | None, str]:
    """Return the optimal plan where the search has stalled, or why there is none, with advice that can help."""
    stalled = "prices on arms prove no more here"
    if problem.priors is not None:
        return None, f"{stalled}, and Exact needs sessions that start at one prior"
    needed = n_states(problem)
    if needed > MOST_STATES:
        size = f"{needed:.3g} states, more than {MOST_STATES:.0e}"
        return None, f"{stalled}, and Exact would need {size}; plan fewer arms or steps"
    seconds = seconds_of_exact(problem)
    exact = None if seconds > clock.time_limit - clock.seconds else solved_once(problem, clock)
    return exact, (
        f"{stalled}, and Exact over {needed:.3g} states would take about {seconds:.0f} s more; raise the time limit"
    )
