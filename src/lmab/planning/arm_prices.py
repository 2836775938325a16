"""Prices on arms: an upper bound for sessions that play no arm twice, from one for sessions that may.

For any prices lam[a, m] >= 0,

    optimum without repeats <= sum_m w_m sum_a lam[a, m] + optimum with repeats where arm a pays mu[a, m] - lam[a, m]:

a session that plays every arm at most once pays at most what the first term gives back. The second term is bounded by
the information price, and further by the search. `arm_prices` looks for good prices and a good information price
together; any prices give a bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from .._shapes import Array, Float
from .information_price import Guess, InformationPrice, Learning, Stage, certify, distribution, improve
from .problem import Problem

_STEP = 0.5  # by which prices follow how often the arms are played
_REPEATS = 2  # Blahut-Arimoto steps a round; the first round does ten times as many


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
    channels = problem.table.reshape(problem.n_arms, -1, len(prior))
    if start is None:
        prices, guess = _first_prices(problem), _first_guess(problem, channels, prior)
    else:
        prices, guess = start.prices, start.guess
    prices, guess = _optimise(problem, channels, prior, prices, guess, rounds, stop, fresh=start is None)
    return ArmPrices(prices, certify(problem.means - prices, channels, prior, guess), guess)


def _first_prices(problem: Problem) -> Float[Array, "A M"]:
    """What an arm pays beyond the best arm that a session of known type has no time for: knowing the type."""
    best = -np.partition(-problem.means, problem.horizon - 1, axis=0)[problem.horizon - 1]
    return np.maximum(problem.means - best, 0)


def _first_guess(problem: Problem, channels: Float[Array, "A Z M"], prior: Float[Array, "M"]) -> Guess:
    horizon, means = problem.horizon, problem.means
    entropy = max(-float(prior @ np.log(prior)), 1e-6)
    known = float(prior @ -np.sort(-means, axis=0)[:horizon].sum(axis=0))
    fixed = float(np.sort(means @ prior)[-horizon:].sum())
    increment = max((known - fixed) / horizon / entropy, 1e-3 * float(np.ptp(means)), 1e-12)
    laws = np.tile(distribution(channels @ prior, 1e-12), (horizon + 1, 1, 1))
    mixtures = np.full((horizon + 1, len(means)), 1 / len(means))
    return Guess(mixtures, laws, np.full(horizon + 1, increment))


def _optimise(
    problem: Problem,
    channels: Float[Array, "A Z M"],
    prior: Float[Array, "M"],
    prices: Float[Array, "A M"],
    guess: Guess,
    rounds: int,
    stop: Callable[[], bool],
    fresh: bool,
) -> tuple[Float[Array, "A M"], Guess]:
    """Steps on mixtures, laws, increments and prices in turn, in single precision; returns the best of the rounds."""
    single, horizon = np.float32, problem.horizon
    pay, rho, learning = problem.means.astype(single), prior.astype(single), Learning(channels.astype(single))
    price, floor = prices.astype(single), 1e-4 * max(float(np.ptp(problem.means)), 1e-9)
    now = Guess(guess.mixtures.astype(single), guess.laws.astype(single), guess.increments.copy())
    entropy = max(-float(prior @ np.log(prior)), 1e-6)
    best, best_value = (prices, guess), np.inf
    for round_ in range(rounds):
        rates = np.concatenate([[0.0], np.cumsum(now.increments[1:])])
        used, gained, value = np.zeros(horizon + 1), np.zeros(horizon + 1), float(price.sum(axis=0) @ rho)
        plays, weighted = np.zeros_like(pay), np.zeros_like(pay)
        for t in range(1, horizon + 1):
            if stop():
                return best
            for _ in range(10 * _REPEATS if fresh and round_ == 0 else _REPEATS):
                improve(learning, pay - price, rho, rates[t - 1], now.increments[t], now.mixtures[t], now.laws[t])
            divergence = learning.divergence(now.laws[t])
            payoff = pay - price + single(rates[t - 1]) * divergence
            stage = Stage.of(payoff, now.increments[t], now.mixtures[t], rho)
            joint = stage.joint(rho)
            value += float(stage.plane @ rho)
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
        price = np.maximum(price + single(_STEP) * weighted / np.maximum(plays, 1e-30) * often, 0)
    return best
