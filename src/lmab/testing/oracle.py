"""Brute force on small cases: every history is enumerated, and of the package only the inputs are used."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._shapes import Array
from ..model.bandit import LatentBandit

History = tuple[tuple[int, float], ...]
Shares = Callable[[History], Sequence[float]]  # the probability of each arm after a history


def likelihood(weights: Any, probabilities: Any, values: Sequence[float], history: History) -> Array:
    """Return w_m * prod_t P(r_t | m, a_t), for every type m."""
    joint = []
    for weight, type_ in zip(weights, probabilities, strict=True):
        product = float(weight)
        for arm, reward in history:
            product *= type_[arm][list(values).index(reward)]
        joint.append(product)
    return np.array(joint)


def histories(decide: Callable[[History], int], values: Sequence[float], horizon: int) -> list[History]:
    """Return every history of `horizon` steps that the deterministic rule `decide` can produce."""
    found = []
    for rewards in itertools.product(values, repeat=horizon):
        history: History = ()
        for reward in rewards:
            history = (*history, (decide(history), reward))
        found.append(history)
    return found


def policy_value(
    weights: Any, probabilities: Any, values: Sequence[float], decide: Callable[[History], int], horizon: int
) -> float:
    """Return the expected total reward of `decide`, as the sum over all histories of probability times reward."""
    return sum(
        float(likelihood(weights, probabilities, values, history).sum()) * sum(reward for _, reward in history)
        for history in histories(decide, values, horizon)
    )


def mixed_value(weights: Any, probabilities: Any, values: Sequence[float], shares: Shares, horizon: int) -> float:
    """Return the expected total reward of a rule that draws arms with the probabilities of `shares`."""

    def value(mass: Sequence[float], history: History) -> float:
        if len(history) == horizon or sum(mass) <= 0:
            return 0.0
        total = 0.0
        for arm, share in enumerate(shares(history)):
            if share > 0:
                for z, reward in enumerate(values):
                    after = _after(mass, probabilities, arm, z)
                    total += share * (sum(after) * reward + value(after, (*history, (arm, reward))))
        return total

    return value([float(weight) for weight in weights], ())


def optimal_value(
    weights: Any, probabilities: Any, values: Sequence[float], horizon: int, *, repeats: bool = True
) -> float:
    """Return the best expected total reward over all history-dependent policies, by plain recursion.

    With `repeats=False` it is the best over policies that play no arm twice.
    """

    def best(mass: Sequence[float], left: int, arms: frozenset[int]) -> float:
        if left == 0 or sum(mass) <= 0:
            return 0.0
        choices = []
        for arm in arms:
            total = 0.0
            for z, value in enumerate(values):
                after = _after(mass, probabilities, arm, z)
                total += sum(after) * value + best(after, left - 1, arms if repeats else arms - {arm})
            choices.append(total)
        return max(choices)

    return best([float(weight) for weight in weights], horizon, frozenset(range(len(probabilities[0]))))


def _after(mass: Sequence[float], probabilities: Any, arm: int, z: int) -> list[float]:
    return [float(m * type_[arm][z]) for m, type_ in zip(mass, probabilities, strict=True)]


def gaussian_grid(means: Any, scale: float, n: int = 20_001) -> Array:
    """Return evenly spaced rewards that cover nearly all normal rewards with these means."""
    means = np.asarray(means)
    return np.linspace(means.min() - 8 * scale, means.max() + 8 * scale, n)


def gaussian_two_steps(weights: Any, means: Any, scale: float, first: int, second: Callable[[Array], Array]) -> float:
    """Return the value of two steps with normal rewards: arm `first`, then `second(rewards)`, an arm per reward.

    The value is an integral over the first reward, by the trapezoidal rule on `gaussian_grid`.
    """
    weights, means = np.asarray(weights), np.asarray(means)
    grid = gaussian_grid(means, scale)
    joint = _joint(weights, means, scale, first, grid)
    arms = np.asarray(second(grid))
    return float(weights @ means[:, first] + _integral((joint * means[:, arms]).sum(axis=0), grid))


def gaussian_optimum(weights: Any, means: Any, scale: float, *, repeats: bool = True) -> float:
    """Return the optimal value of two steps with normal rewards, by the same integral."""
    weights, means = np.asarray(weights), np.asarray(means)
    grid, n_arms = gaussian_grid(means, scale), means.shape[1]
    choices = []
    for first in range(n_arms):
        arms = [arm for arm in range(n_arms) if repeats or arm != first]
        joint = _joint(weights, means, scale, first, grid)
        best = (means[:, arms].T @ joint).max(axis=0)
        choices.append(float(weights @ means[:, first] + _integral(best, grid)))
    return max(choices)


def _joint(weights: Array, means: Array, scale: float, arm: int, grid: Array) -> Array:
    """Weight times density of every reward of the grid, one row per type."""
    distance = (grid[None] - means[:, arm, None]) / scale
    return weights[:, None] * np.exp(-(distance**2) / 2) / (scale * math.sqrt(2 * math.pi))


def _integral(heights: Array, grid: Array) -> float:
    return float(((heights[1:] + heights[:-1]) / 2 * np.diff(grid)).sum())


Case = tuple[LatentBandit, int]  # and a horizon


def small_bandit(seed: int) -> Case:
    """Return a random bandit with 2 or 3 values of both signs, and a horizon for which all histories can be listed.

    Examples:
        >>> import lmab
        >>> bandit, horizon = lmab.testing.small_bandit(0)
        >>> bandit.n_types, bandit.n_arms, horizon
        (4, 3, 1)
    """
    rng = np.random.default_rng(seed)
    n_types, n_arms, n_values = (int(n) for n in rng.integers([1, 2, 2], [5, 4, 4]))
    probabilities = rng.dirichlet(np.full(n_values, 0.5), (n_types, n_arms))
    values = np.round(rng.normal(size=n_values), 3)
    horizon = int(rng.integers(1, 5 if n_arms * n_values < 9 else 4))
    return LatentBandit.categorical(rng.dirichlet(np.ones(n_types)), probabilities, values), horizon


def discrete_cases(n_random: int) -> dict[str, Case]:
    """Return bandits with finitely many values, named by their special property, and `n_random` random ones."""
    rng = np.random.default_rng(20221012)
    three = LatentBandit.categorical([0.2, 0.5, 0.3], rng.dirichlet(np.ones(3), (3, 2)), [0.0, 0.5, 1.0])
    signs = LatentBandit.categorical([0.4, 0.6], rng.dirichlet(np.full(3, 0.5), (2, 3)), [-1.0, 0.25, 1.0])
    losses = LatentBandit.categorical([0.5, 0.5], [[[0.1, 0.9], [0.6, 0.4]], [[0.8, 0.2], [0.5, 0.5]]], [-3.0, -1.0])
    probe = LatentBandit.bernoulli([0.4, 0.35, 0.25], [[0.8, 0.1, 0.0], [0.1, 0.8, 0.0], [0.3, 0.3, 0.9]])
    ghost = LatentBandit.bernoulli([0.5, 0.0, 0.5], [[0.9, 0.5], [0.99, 0.99], [0.1, 0.6]])
    dominated = LatentBandit.bernoulli([0.5, 0.5], [[0.8, 0.3, 0.7, 0.2], [0.2, 0.6, 0.1, 0.5]])
    everywhere = LatentBandit.bernoulli([0.3, 0.7], [[0.9, 0.5, 0.1], [0.6, 0.5, 0.2]])
    equal = LatentBandit.bernoulli([0.5, 0.5], [[0.4, 0.4], [0.4, 0.4]])
    named = {
        "two types, two arms": (LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]]), 4),
        "three values": (three, 3),
        "values of both signs": (signs, 3),
        "losses only": (losses, 4),
        "an arm that pays little and tells much": (probe, 3),
        "a type of weight 0": (ghost, 4),
        "dominated arms": (dominated, 3),
        "one arm best in every type": (everywhere, 3),
        "all arms equal": (equal, 3),
        "rewards that reveal the type": (LatentBandit.bernoulli(np.full(3, 1 / 3), np.eye(3)), 3),
        "one type": (LatentBandit.bernoulli([1.0], [[0.3, 0.6, 0.5]]), 3),
        "one arm": (LatentBandit.bernoulli([0.5, 0.5], [[0.3], [0.8]]), 3),
        "one step": (three, 1),
    }
    return named | {f"small_bandit({seed})": small_bandit(seed) for seed in range(n_random)}


def normal_bandit() -> LatentBandit:
    """Return a bandit with normal rewards, for two steps: brute force is then an integral."""
    return LatentBandit.gaussian([0.6, 0.4], [[1.0, 0.2, 0.5], [0.0, 0.9, 0.5]], scale=0.6)
