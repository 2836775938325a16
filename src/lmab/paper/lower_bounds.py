"""Lower bounds on the number of sessions that any learner needs, each proved by a pair of bandits.

If no policy is within epsilon of the optimum of both bandits of a pair, then a learner that succeeds with probability
1 - eta on each of them tells the two apart from N sessions. By the inequality of Bretagnolle and Huber and the chain
rule of the Kullback-Leibler divergence over adaptively chosen sessions, N >= log(1 / (4 eta)) / D, where D is the
largest divergence of one session over all policies. The chain rule holds for divergences; total variation does not
add up over sessions.

Rewards are Bernoulli. Both quantities are computed exactly, by dynamic programming over counts of arms and rewards,
which are sufficient because the order of the steps does not change the probability of a session.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np

from .._shapes import Array, Float, Integer
from ..checks import check_count
from ..errors import InvalidArgument

_MARGIN = 1e-6  # relative; the rounding errors of sums over at most a million terms are far smaller
_MOST_TYPES = 2  # of the search; random pairs of three types gave smaller bounds for H = 2, 3, 5, 10
_SEARCHED = 2_000  # counts after the last step up to which pairs of several types are searched for: seconds
_MOST_COUNTS = 50_000  # above this the pair of one type takes longer than a minute: 64 steps


@dataclass(frozen=True)
class Mixture:
    """Latent bandit with Bernoulli rewards."""

    weights: Float[Array, "M"]
    means: Float[Array, "M A"]

    def swapped(self) -> Mixture:
        """Return the bandit in which the first two arms have changed places."""
        order = np.r_[1, 0, 2 : self.means.shape[1]]
        return Mixture(self.weights, self.means[:, order])


class LowerBound(float):
    """Number of sessions below which no learner succeeds on both bandits of `pair`."""

    pair: tuple[Mixture, Mixture]
    horizon: int
    regret: float  # least value, over policies, of the larger of the two regrets
    divergence: float  # largest KL divergence of a session over policies; exchanged arms make both directions equal


@dataclass(frozen=True)
class _Counts:
    """Counts (plays without and with reward, for each arm) after t steps, and the successors of each step."""

    counts: tuple[Integer[Array, "S A 2"], ...]  # for t = 0..H
    following: tuple[Integer[Array, "S A 2"], ...]  # for t = 0..H-1: the state of t + 1 after an arm and a reward


@lru_cache(maxsize=16)
def _states(n_arms: int, horizon: int) -> _Counts:
    cells = 2 * n_arms
    layers = [[(0,) * cells]]
    following = []
    for _ in range(horizon):
        index: dict[tuple[int, ...], int] = {}
        rows = []
        for state in layers[-1]:
            steps = [(*state[:cell], state[cell] + 1, *state[cell + 1 :]) for cell in range(cells)]
            rows.append([index.setdefault(step, len(index)) for step in steps])
        layers.append(list(index))
        following.append(np.array(rows).reshape(-1, n_arms, 2))
    return _Counts(tuple(np.array(layer).reshape(-1, n_arms, 2) for layer in layers), tuple(following))


def _joint(mixture: Mixture, counts: Integer[Array, "S A 2"]) -> Float[Array, "S M"]:
    """Return the probability of a type and of one order of the steps, for all counts."""
    outcomes = np.stack([1 - mixture.means, mixture.means], axis=-1)  # (M, A, 2)
    powers = outcomes[None] ** counts[:, None]  # 0 ** 0 is 1
    joint: Float[Array, "S M"] = mixture.weights * powers.prod(axis=(2, 3))
    return joint


def optimal_value(mixture: Mixture, horizon: int) -> float:
    """Return the value of the best history-dependent policy."""
    states = _states(mixture.means.shape[1], horizon)
    value = np.zeros(len(states.counts[horizon]))
    for t in range(horizon - 1, -1, -1):
        reward = _joint(mixture, states.counts[t]) @ mixture.means
        value = (reward + value[states.following[t]].sum(axis=2)).max(axis=1)
    return float(value[0])


def least_regret(one: Mixture, two: Mixture, horizon: int) -> float:
    """Return a lower bound on the larger of a policy's two regrets, for the policy for which it is least.

    For equal shares of both bandits the sum of the regrets is the value of knowing the bandit in their mixture.
    """
    both = Mixture(np.concatenate([one.weights, two.weights]) / 2, np.concatenate([one.means, two.means]))
    return (optimal_value(one, horizon) + optimal_value(two, horizon)) / 2 - optimal_value(both, horizon)


def divergence(one: Mixture, two: Mixture, horizon: int) -> float:
    """Return the largest Kullback-Leibler divergence of a session, over all policies."""
    states = _states(one.means.shape[1], horizon)
    here, there = (_joint(each, states.counts[horizon]).sum(axis=1) for each in (one, two))
    value = np.zeros(len(here))
    seen = here > 0
    with np.errstate(divide="ignore"):
        value[seen] = here[seen] * (np.log(here[seen]) - np.log(there[seen]))
    for t in range(horizon - 1, -1, -1):
        value = value[states.following[t]].sum(axis=2).max(axis=1)
    return float(value[0])


def sessions_below(n_types: int, horizon: int, epsilon: float, eta: float, *, n_arms: int = 2) -> LowerBound:
    """Return a number of sessions below which no learner is within epsilon of the optimum with probability 1 - eta.

    The pair that proves it has at most `n_types` types and `n_arms` arms, and is searched for: larger bounds may exist.
    Pairs that agree in all moments up to order `horizon` are useless, because their values agree (Lemma 3.5).

    Args:
        n_types: M, the types that the learner must expect.
        horizon: H, the steps of a session.
        epsilon: allowed loss per session against the best policy.
        eta: allowed probability of a larger loss, below 1/4.
        n_arms: A, the arms that the learner must expect, at least 2.

    The search uses at most two types and three arms, and one type above 20 steps.

    Returns:
        The number of sessions as a float, with the pair in `.pair`, its least regret in `.regret` and the largest
        divergence of a session in `.divergence`. It is 0 if no pair with a regret above epsilon is found.

    Examples:
        >>> from lmab import theory
        >>> bound = theory.sessions_below(1, 2, epsilon=0.1, eta=0.05)
        >>> 35 < bound < 37
        True
    """
    for name, value, least in (("n_types", n_types, 1), ("horizon", horizon, 1), ("n_arms", n_arms, 2)):
        check_count(name, value, minimum=least)
    for name, number, most in (("epsilon", epsilon, float(horizon)), ("eta", eta, 0.25)):
        if not 0 < number < most:
            raise InvalidArgument(f"{name} must be in (0, {most:g}), got {number!r}")
    if _counts(2, horizon) > _MOST_COUNTS:
        raise InvalidArgument(f"horizon must be at most {longest_horizon()}, got {horizon}")
    pairs = [_scaled(np.array([0.0, 0.0, 1.0]), 1, 2, horizon, epsilon)]  # one type: means of 1/2 - s and 1/2 + s
    for types, arms in product(range(2, min(n_types, _MOST_TYPES) + 1), range(2, min(n_arms, 3) + 1)):
        if _counts(arms, horizon) <= _SEARCHED:
            pairs += [_improve(start, types, arms, horizon, epsilon) for start in _starts(types, arms)]
    provable = [pair for pair in pairs if pair is not None]
    return _bound(
        min(provable, key=lambda pair: divergence(pair[0], pair[1], horizon)) if provable else None, horizon, eta
    )


def longest_horizon() -> int:
    """Return the longest horizon of `sessions_below`."""
    return next(steps for steps in range(1, _MOST_COUNTS) if _counts(2, steps + 1) > _MOST_COUNTS)


def _counts(n_arms: int, horizon: int) -> int:
    """Return the number of different counts after the last step."""
    return math.comb(horizon + 2 * n_arms - 1, horizon)


def _bound(pair: tuple[Mixture, Mixture] | None, horizon: int, eta: float) -> LowerBound:
    if pair is None:  # epsilon is so large that one policy is within it on both
        one = Mixture(np.ones(1), np.full((1, 2), 0.5))
        bound, pair = LowerBound(0.0), (one, one)
    else:
        bound = LowerBound(math.log(1 / (4 * eta)) / (divergence(*pair, horizon) * (1 + _MARGIN)))
    bound.pair, bound.horizon = pair, horizon
    bound.divergence, bound.regret = divergence(*pair, horizon), least_regret(*pair, horizon)
    return bound


def _starts(n_types: int, n_arms: int) -> list[Float[Array, "P"]]:
    """Return starts: an equal difference for all types, one that changes its sign with the type, and a random one."""
    rng = np.random.default_rng(0)
    signs, others = np.resize([1.0, -1.0], n_types), n_arms - 2
    equal = [np.zeros(n_types), np.zeros(n_types), np.ones(n_types), np.zeros(n_types * others)]
    turned = [0.3 * signs, np.zeros(n_types), signs, np.tile(signs, others)]
    return [np.concatenate(equal), np.concatenate(turned), rng.normal(size=n_types * (3 + others))]


def _pair(x: Float[Array, "P"], n_types: int, n_arms: int, size: float) -> tuple[Mixture, Mixture]:
    """Return two bandits that differ by an exchange of the first two arms, with a difference scaled by `size`."""
    weights = np.exp(x[:n_types] - x[:n_types].max())
    level = 1 / (1 + np.exp(-np.clip(x[n_types : 2 * n_types], -30, 30)))
    apart = size * np.tanh(x[2 * n_types : 3 * n_types]) * np.minimum(level, 1 - level)
    others = 1 / (1 + np.exp(-np.clip(x[3 * n_types :], -30, 30))).reshape(n_types, n_arms - 2)
    one = Mixture(weights / weights.sum(), np.column_stack([level + apart, level - apart, others]))
    return one, one.swapped()


def _scaled(
    x: Float[Array, "P"], n_types: int, n_arms: int, horizon: int, epsilon: float
) -> tuple[Mixture, Mixture] | None:
    """Return the pair of least difference with a regret above epsilon; None if none has one."""
    from scipy.optimize import brentq

    asked = epsilon * (1 + _MARGIN)

    def excess(size: float) -> float:
        one, two = _pair(x, n_types, n_arms, size)
        both = Mixture(np.concatenate([one.weights, two.weights]) / 2, np.concatenate([one.means, two.means]))
        return optimal_value(one, horizon) - optimal_value(both, horizon) - asked  # both have the same optimum

    if excess(1.0) <= 0:
        return None
    size = brentq(excess, 0.0, 1.0, rtol=1e-9)
    while excess(size) <= 0:  # a root from below
        size = min(size * (1 + 1e-8), 1.0)
    return _pair(x, n_types, n_arms, size)


def _improve(
    start: Float[Array, "P"], n_types: int, n_arms: int, horizon: int, epsilon: float
) -> tuple[Mixture, Mixture] | None:
    """Return the pair of least divergence near `start`; None if its regret cannot exceed epsilon."""

    from scipy.optimize import minimize

    def objective(x: Float[Array, "P"]) -> float:
        pair = _scaled(x, n_types, n_arms, horizon, epsilon)
        return 1e3 if pair is None else math.log(max(divergence(*pair, horizon), 1e-300))

    x = minimize(objective, start, method="Nelder-Mead", options={"maxfev": 30 * len(start), "fatol": 1e-4}).x
    return _scaled(x, n_types, n_arms, horizon, epsilon)
