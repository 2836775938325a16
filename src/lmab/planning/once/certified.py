"""Certified without repeats: plans that know their arms below, prices on arms above, until the bounds are close."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ..._shapes import Array, Float
from ...errors import Status
from ..information_price import Guess, InformationGain, InformationPrice, Stage, certify, improve, letters
from ..problem import Clock, Plan, PriorBounds, Problem
from ..search import Search
from .exact import MOST_STATES, n_states, seconds_of_exact, solved_once
from .lookahead import WITHOUT_BINS, upper_without_bins
from .point_based import OncePlans, rounds_of
from .policy import once_policy

_FOLLOW = 0.5  # by which prices follow how often the arms are played
_REPEATS = 2  # Blahut-Arimoto steps a round; the first round does ten times as many
_BATCHES = 40  # Batches of trials on the priced problem in the first cycle; every later cycle has twice as many.
_WIDE_DOUBLINGS = 2  # of the sessions of a round at most, where nodes of many arms take the memory
_STALLED = 0.1  # a cycle that takes less than this share of the gap away is the last


@dataclass(frozen=True, eq=False)
class ArmPrices:
    """Prices, and the information price of the problem in which they are paid."""

    prices: Float[Array, "A M"]
    information: InformationPrice
    guess: Guess  # from which neighbouring problems may start

    @property
    def refund(self) -> Float[Array, "M"]:
        """What a session gets back, whatever it plays: the sum of all prices, by type."""
        return self.prices.sum(axis=0)

    @property
    def at_start(self) -> float:
        """What no policy without repeats exceeds."""
        return self.information.at_start + float(self.refund @ self.information.prior)


def priced(problem: Problem, prices: Float[Array, "A M"]) -> Problem:
    """The problem in which every play of an arm pays its price."""
    return replace(problem, means=np.ascontiguousarray(problem.means - prices))


def arm_prices(
    problem: Problem, *, rounds: int = 150, stop: Callable[[], bool] = lambda: False, start: ArmPrices | None = None
) -> ArmPrices:
    """The best prices found in `rounds` rounds, or until `stop`; stopped at once, the bound still holds.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5, 0.3], [0.1, 0.6, 0.3]])
        >>> found = arm_prices(Problem.of(bandit, 2))
        >>> 1.1 <= found.at_start <= bandit.known_type(2, repeats=False)
        True
    """
    prior = problem.weights / problem.weights.sum()
    channels, stays = letters(problem.table, problem.n_arms, problem.people_leave)
    if start is None:
        prices, guess = _first_prices(problem), _first_guess(problem, InformationGain(channels, stays, prior), prior)
    else:
        prices, guess = start.prices, start.guess
    prices, guess = _optimise(problem, channels, stays, prior, prices, guess, rounds, stop, fresh=start is None)
    return ArmPrices(prices, certify(problem.means - prices, channels, prior, guess, stays), guess)


def _first_prices(problem: Problem) -> Float[Array, "A M"]:
    """What an arm pays beyond the best arm that a session of known type has no time for: knowing the type."""
    best = -np.partition(-problem.means, problem.horizon - 1, axis=0)[problem.horizon - 1]
    return np.maximum(problem.means - best, 0)


def _first_guess(problem: Problem, learning: InformationGain, prior: Float[Array, "M"]) -> Guess:
    horizon, means = problem.horizon, problem.means
    entropy = max(-float(prior @ np.log(prior)), 1e-6)
    known = float(prior @ -np.sort(-means, axis=0)[:horizon].sum(axis=0))
    fixed = float(np.sort(means @ prior)[-horizon:].sum())
    increment = max((known - fixed) / horizon / entropy, 1e-3 * float(np.ptp(means)), 1e-12)
    laws = np.tile(learning.first_laws(prior), (horizon + 1, 1, 1))
    mixtures = np.full((horizon + 1, len(means)), 1 / len(means))
    return Guess(mixtures, laws, np.full(horizon + 1, increment))


def _optimise(
    problem: Problem,
    channels: Float[Array, "A Z M"],
    stays: Float[Array, "A M"] | None,
    prior: Float[Array, "M"],
    prices: Float[Array, "A M"],
    guess: Guess,
    rounds: int,
    stop: Callable[[], bool],
    fresh: bool,
) -> tuple[Float[Array, "A M"], Guess]:
    """Steps on mixtures, laws, increments and prices in turn, in single precision; returns the best of the rounds."""
    single, horizon = np.float32, problem.horizon
    pay, rho = problem.means.astype(single), prior.astype(single)
    learning = InformationGain(channels.astype(single), None if stays is None else stays.astype(single), rho)
    price, floor = prices.astype(single), 1e-4 * max(float(np.ptp(problem.means)), 1e-9)
    now = Guess(guess.mixtures.astype(single), guess.laws.astype(single), guess.increments.copy())
    entropy = max(-float(prior @ np.log(prior)), 1e-6)
    best, best_value = (prices, guess), np.inf
    for round_ in range(rounds):
        rates = np.concatenate([[0.0], np.cumsum(now.increments[1:])])
        used, gained, value = np.zeros(horizon + 1), np.zeros(horizon + 1), float(price.sum(axis=0) @ rho)
        plays, weighted = np.zeros_like(pay), np.zeros_like(pay)
        refund, net = value, pay - price
        for t in range(1, horizon + 1):
            if stop():
                return best
            for _ in range(10 * _REPEATS if fresh and round_ == 0 else _REPEATS):
                improve(learning, net, rho, rates[t - 1], now.increments[t], now.mixtures[t], now.laws[t])
            divergence = learning.divergence(now.laws[t])
            payoff = net + single(rates[t - 1]) * divergence
            stage = Stage.of(payoff, now.increments[t], now.mixtures[t], rho)
            joint = stage.joint(rho)
            value = float(stage.plane @ rho) + (value if stays is None else refund)
            if stays is not None:
                net = pay - price + stays.astype(single) * stage.plane
            used[t], gained[t] = stage.used(rho), float((joint * divergence).sum())
            plays += joint
            weighted += single(now.increments[t]) * joint
        if value < best_value:
            kept = Guess(now.mixtures.astype(float), now.laws.astype(float), now.increments.copy())
            best, best_value = (price.astype(float), kept), value
        available = np.append(np.cumsum(gained[::-1])[::-1][1:], 0.0)
        slope = np.clip((available - used) / entropy, -1, 1)
        now.increments = np.maximum(floor, now.increments * np.exp(-0.3 * slope / (1 + round_ / 30)))
        often = np.clip(np.log(np.maximum(plays / rho, 1e-9)), -2, 2)
        price = np.maximum(price + single(_FOLLOW) * weighted / np.maximum(plays, 1e-30) * often, 0)
    return best


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
            information, refund = self._prices.information, self._prices.refund
            planes, rate, reference = information.planes[-1] + refund, float(information.rates[-1]), information.prior
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

    def _charge(self) -> None:
        """Prices on arms and on information, together."""
        if not self.clock.expired:
            self._prices = arm_prices(self.problem, stop=lambda: self.clock.expired)
            self._lower_upper(self._priced(self._prices))

    def _priced(self, prices: ArmPrices) -> float:
        """What the prices prove at the start, on average over the priors."""
        problem = self.problem
        if problem.priors is None or problem.shares is None:
            return prices.at_start * float(problem.weights.sum())
        each = prices.information.bound(problem.priors, problem.horizon) + problem.priors @ prices.refund
        return float(problem.shares @ each)

    def _cycle(self, cycle: int, tolerance: Callable[[float], float]) -> None:
        """Trials on the problem in which the prices are paid; then more sessions for the plans."""
        assert self._prices is not None
        if self._search is None:
            self._search = Search(priced(self.problem, self._prices.prices), self._seed, self._memory_limit)
            self._search.look_ahead(self.clock)
            self._search.back_up(self._n_beliefs // 3 + 1)
            self._search.use([self._prices.information] * len(self._search.starts))
        refund = float(self._prices.refund @ self.problem.weights)
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
