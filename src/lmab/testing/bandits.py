"""Small bandits on which planners are compared with brute force; each has a property that planners have got wrong."""

from __future__ import annotations

import numpy as np

from ..model import LatentBandit

Case = tuple[LatentBandit, int]  # and a horizon


def small_bandit(seed: int) -> Case:
    """A random bandit with 2 or 3 values, of both signs, and a horizon, small enough to enumerate every history.

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
    """Bandits with finitely many values, named by their special property, and `n_random` random ones."""
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
    """A bandit with normal rewards, for two steps: brute force is then an integral."""
    return LatentBandit.gaussian([0.6, 0.4], [[1.0, 0.2, 0.5], [0.0, 0.9, 0.5]], scale=0.6)
