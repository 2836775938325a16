"""A policy as a tree of decisions, and what every branch earns in any type of any model."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .._shapes import Array, Float, Integer
from ..model import Categorical, LatentBandit
from ..policies import NONE, Decisions, walk

NODE_LIMIT = 200_000  # decisions of one step


@dataclass(frozen=True, eq=False)
class Level:
    """The decisions of one step."""

    arms: Integer[Array, "n"]
    children: Integer[Array, "n Z"]  # row of the next level after each value, or NONE
    probabilities: Float[Array, "n"]  # of the histories, under the model that the tree was made with


@dataclass(frozen=True, eq=False)
class Tree:
    """The decisions of a policy, step by step."""

    levels: tuple[Level, ...]

    def branches(self, rewards: Categorical, means: Float[Array, "M A"] | None = None) -> list[Float[Array, "n M"]]:
        """What every branch earns from its decision to the end, in each type of `rewards`, as one array per step.

        Rewards are counted as `means`, where these are given.
        """
        found: list[Float[Array, "n M"]] = []
        counted = rewards.means if means is None else means
        for level in reversed(self.levels):
            earned = counted.T[level.arms]
            for value in range(rewards.n_values):
                child = level.children[:, value]
                there = np.flatnonzero(child != NONE)
                if len(there):
                    codes = level.arms[there] * rewards.n_values + value
                    earned[there] += rewards.table[codes] * found[-1][child[there]]
            found.append(earned)
        return found[::-1]

    def value(
        self, weights: Float[Array, "M"], rewards: Categorical, means: Float[Array, "M A"] | None = None
    ) -> float:
        """What the policy earns in a session, each reward counted as `means` where these are given."""
        return float(weights @ self.branches(rewards, means)[0][0])

    def renamed(self, arms: Integer[Array, "A"]) -> Tree:
        """The same decisions, where arm number i is `arms[i]`."""
        return Tree(tuple(replace(level, arms=arms[level.arms]) for level in self.levels))

    def plays(self, n_arms: int) -> Float[Array, "A"]:
        """How often a session plays each arm, under the model that the tree was made with."""
        levels = [np.bincount(level.arms, level.probabilities, minlength=n_arms) for level in self.levels]
        return np.sum(levels, axis=0)


def unroll(policy: Decisions, bandit: LatentBandit, horizon: int) -> Tree:
    """The tree of a policy: all histories that can happen under `bandit`, whose rewards take finitely many values."""
    levels = walk(policy, bandit, horizon, limit=NODE_LIMIT, remedy="plan for a shorter horizon")
    return Tree(tuple(Level(level.arms, level.children, level.mass.sum(axis=1)) for level in levels))
