"""A policy written out as a tree of decisions, and what its branches are worth in any context of any model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from .._shapes import Array, Float, Integer
from ..errors import TooLarge
from ..model import Categorical, LatentBandit
from ..policies import State

NODE_LIMIT = 200_000  # decisions of one step
NONE = -1  # no such branch
_NEGLIGIBLE = 1e-12  # histories less likely than this are left out


class Decisions(Protocol):
    """What a deterministic policy does for n sessions at once; every `Policy` can."""

    @property
    def order_free(self) -> bool: ...
    def start(self, n: int) -> State: ...
    def act(self, state: State) -> Any: ...
    def observe(self, state: State, arm: Any, reward: Any) -> State: ...


@dataclass(frozen=True, eq=False)
class Level:
    """The decisions of one step. Histories with equal counts are one, where the policy does not care for order."""

    arms: Integer[Array, "n"]
    children: Integer[Array, "n Z"]  # row of the next level after each value, or NONE
    probabilities: Float[Array, "n"]  # of the histories, under the model that the tree was made with


@dataclass(frozen=True, eq=False)
class Tree:
    """The decisions of a policy, step by step."""

    levels: tuple[Level, ...]

    def branches(self, rewards: Categorical) -> list[Float[Array, "n M"]]:
        """What every branch earns from its decision to the end, in each context of `rewards`; one array per step."""
        found: list[Float[Array, "n M"]] = []
        for level in reversed(self.levels):
            earned = rewards.means.T[level.arms]
            for value in range(rewards.n_values):
                child = level.children[:, value]
                there = np.flatnonzero(child != NONE)
                if len(there):
                    codes = level.arms[there] * rewards.n_values + value
                    earned[there] += rewards.table[codes] * found[-1][child[there]]
            found.append(earned)
        return found[::-1]

    def value(self, weights: Float[Array, "M"], rewards: Categorical) -> float:
        """What the policy earns in a session."""
        return float(weights @ self.branches(rewards)[0][0])


def unroll(policy: Decisions, bandit: LatentBandit, rewards: Categorical, horizon: int) -> Tree:
    """The tree of a policy: all histories that can happen under `bandit`, whose rewards are `rewards`."""
    state, mass = policy.start(1), bandit.weights[None]
    history: Integer[Array, "n t"] = np.empty((1, 0), np.int32)
    levels = []
    for step in range(horizon):
        arms: Any = policy.act(state)
        children = np.full((len(arms), rewards.n_values), NONE)
        levels.append(Level(arms, children, mass.sum(axis=1)))
        if step + 1 == horizon:
            break
        codes = arms[:, None] * rewards.n_values + np.arange(rewards.n_values)
        grown = mass[:, None, :] * rewards.table[codes]
        row, value = np.nonzero(grown.sum(axis=2) > _NEGLIGIBLE)
        longer = np.column_stack([history[row], codes[row, value]]).astype(np.int32)
        first, group = _merged(longer) if policy.order_free else (np.arange(len(row)),) * 2
        _check_size(len(first), step + 1)
        children[row, value] = group
        mass = np.zeros((len(first), grown.shape[2]))
        np.add.at(mass, group, grown[row, value])
        row, value, history = row[first], value[first], longer[first]
        picked = State(state.step, state.memory[row], single=False)
        state = policy.observe(picked, arms[row], rewards.values[value])
    return Tree(tuple(levels))


def _check_size(n_nodes: int, step: int) -> None:
    if n_nodes > NODE_LIMIT:
        raise TooLarge(
            f"the policy would have to be written out for {n_nodes} different histories of {step} steps, "
            f"more than {NODE_LIMIT}: plan for a shorter horizon"
        )


def _merged(histories: Integer[Array, "n t"]) -> tuple[Integer[Array, "k"], Integer[Array, "n"]]:
    """First of each set of histories with equal counts, and for every history which set it is in."""
    rows = np.sort(histories, axis=1)
    keys = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    return first, group
