"""Brute force on small cases: enumerate every history, with nothing shared with the package but the inputs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

History = tuple[tuple[int, float], ...]


def likelihood(weights, probabilities, values, history: History) -> np.ndarray:
    """w_m * prod_t P(r_t | m, a_t), for every context m."""
    joint = []
    for weight, context in zip(weights, probabilities, strict=True):
        product = float(weight)
        for arm, reward in history:
            product *= context[arm][list(values).index(reward)]
        joint.append(product)
    return np.array(joint)


def histories(decide: Callable[[History], int], values: Sequence[float], horizon: int) -> list[History]:
    """Every history of `horizon` steps that the deterministic rule `decide` can produce."""
    found = []
    for rewards in itertools.product(values, repeat=horizon):
        history: History = ()
        for reward in rewards:
            history = (*history, (decide(history), reward))
        found.append(history)
    return found


def policy_value(weights, probabilities, values, decide: Callable[[History], int], horizon: int) -> float:
    """Expected total reward of `decide`, as the sum over all histories of probability times reward."""
    return sum(
        likelihood(weights, probabilities, values, history).sum() * sum(reward for _, reward in history)
        for history in histories(decide, values, horizon)
    )


def optimal_value(weights, probabilities, values, horizon: int) -> float:
    """The best expected total reward over all history-dependent policies, by plain recursion."""
    n_arms = len(probabilities[0])

    def best(mass: Sequence[float], left: int) -> float:
        if left == 0:
            return 0.0
        choices = []
        for arm in range(n_arms):
            total = 0.0
            for z, value in enumerate(values):
                after = [m * context[arm][z] for m, context in zip(mass, probabilities, strict=True)]
                total += sum(after) * value + (best(after, left - 1) if sum(after) > 0 else 0.0)
            choices.append(total)
        return max(choices)

    return best(list(weights), horizon)
