"""A plan improved for another model by one step of policy iteration, with and without repeats.

At every step the arm is played that is best if afterwards a branch of the plan is followed, or a fixed choice: one arm,
or without repeats the best list of the arms left.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._kernel import kernel
from .._shapes import Array, Bool, Float, Integer
from ..model import LatentBandit, belief
from ..planning.once.backups import UsedPlans, at_children
from ..planning.once.lookahead import OnceLookaheadPolicy
from ..planning.problem import Problem
from ..policies import NONE, Decisions, State, best_allowed
from .decision_tree import Tree

_BRANCHES = 64  # branches of the plan, the likeliest of each step, that a model may continue with
_POOL = 32  # arms with the best means at a belief, and as many that tell most, that are tried without repeats
_CHUNK = 1 << 21  # numbers computed at once


@dataclass(frozen=True, eq=False)
class Branches:
    """The likeliest branches of a plan: for each number of steps to go from 2 on, their nodes and arms."""

    arms: Integer[Array, "A"]  # of all branches
    rows: tuple[Integer[Array, "_"], ...]  # of the tree's levels
    used: tuple[Bool[Array, "_ A"], ...]  # which of `arms` each branch may use

    @classmethod
    def of(cls, tree: Tree) -> Branches:
        arms = np.unique(np.concatenate([level.arms for level in tree.levels]))
        rows, used, below = [], [], np.empty((0, len(arms)), bool)
        for depth in range(len(tree.levels) - 1, 0, -1):
            level = tree.levels[depth]
            own = np.zeros((len(level.arms), len(arms)), bool)
            own[np.arange(len(own)), np.searchsorted(arms, level.arms)] = True
            for child in level.children.T:
                there = np.flatnonzero(child != NONE)
                own[there] |= below[child[there]]
            likely = np.argsort(-level.probabilities, kind="stable")[:_BRANCHES]
            below = own
            rows.append(likely)
            used.append(own[likely])
        return cls(arms, tuple(rows), tuple(used))

    def worth(self, values: list[Float[Array, "_ M"]], steps: int) -> Float[Array, "K M"]:
        """What the branches with `steps` to go earn, of what every node of every level earns."""
        return values[len(values) - steps][self.rows[steps - 1]]


def improved(
    model: LatentBandit, branches: Branches, values: list[Float[Array, "_ M"]], horizon: int, *, repeats: bool
) -> Decisions:
    """The improved plan; `values` are what every node of the plan's tree earns on the model."""
    if repeats:
        return Improved(model, branches, values, horizon)
    return ImprovedOnce(model, branches, values, horizon)


class Improved:
    """With repeats."""

    adaptive = True
    order_free = True

    def __init__(
        self, bandit: LatentBandit, branches: Branches, values: list[Float[Array, "_ M"]], horizon: int
    ) -> None:
        self._problem = Problem.of(bandit, horizon, bins=2)
        last = self._problem.means[self._problem.last_arms]
        types = self._problem.types
        self._later = [last]  # what may follow, with 1 step to go, 2, ...
        for steps in range(2, horizon):
            self._later.append(np.concatenate([branches.worth(values, steps)[:, types], steps * last]))

    def start(self, n: int) -> State:
        return State(0, belief.prior(self._problem.bandit, n), single=False)

    def act(self, state: State) -> Integer[Array, "n"]:
        problem, remaining = self._problem, self._problem.horizon - state.step
        beliefs = problem.beliefs(state.memory)
        if remaining == 1:
            return best_allowed(beliefs @ problem.means.T, None)
        one_step = kernel("planning").one_step_values
        return best_allowed(one_step(beliefs, problem.table, problem.means, self._later[remaining - 2]), None)

    def observe(self, state: State, arm: Integer[Array, "n"], reward: Float[Array, "n"]) -> State:
        return State(state.step + 1, belief.update(self._problem.bandit, state.memory, arm, reward), single=False)


class ImprovedOnce:
    """Without repeats: a branch may follow where none of its arms was played."""

    adaptive = True
    order_free = True

    def __init__(
        self, bandit: LatentBandit, branches: Branches, values: list[Float[Array, "_ M"]], horizon: int
    ) -> None:
        self._problem = Problem.of(bandit, horizon, bins=2)
        self._memory = OnceLookaheadPolicy(bandit, horizon=horizon, bins=2)
        self._later = [UsedPlans.none(self._problem)]  # with 1 step to go the best arm left follows
        for steps in range(2, horizon):
            worth = branches.worth(values, steps)[:, self._problem.types]
            used = np.zeros((len(worth), bandit.n_arms), bool)
            used[:, branches.arms] = branches.used[steps - 1]
            self._later.append(UsedPlans(worth, np.zeros(len(worth), np.int64), used))

    def start(self, n: int) -> State:
        return self._memory.start(n)

    def act(self, state: State) -> Integer[Array, "n"]:
        problem, remaining = self._problem, self._problem.horizon - state.step
        beliefs = problem.beliefs(state.memory)
        played = state.memory[:, problem.bandit.n_types :] > 0
        values = np.where(played, -np.inf, beliefs @ problem.means.T)
        if remaining > 1:
            rows, arms = np.nonzero(self._candidates(beliefs, values))
            block = max(1, _CHUNK // problem.n_arms)
            worth = np.full(values.shape, -np.inf)
            for first in range(0, len(rows), block):
                row, arm = rows[first : first + block], arms[first : first + block]
                after = at_children(problem, self._later[remaining - 2], beliefs, played, row, arm, remaining - 1)
                worth[row, arm] = values[row, arm] + sum(each.values for each in after)
            values = worth
        return np.asarray(values.argmax(axis=1))

    def _candidates(self, beliefs: Float[Array, "n M"], values: Float[Array, "n A"]) -> Bool[Array, "n A"]:
        """Arms worth trying: all that are left, or of many those with the best means and those that tell most."""
        left = np.isfinite(values)
        if values.shape[1] <= 2 * _POOL:
            return left
        mean = np.where(left, values, 0.0)
        total = beliefs.sum(axis=1, keepdims=True)
        telling = np.where(left, beliefs @ self._problem.means.T**2 - mean**2 / total, -np.inf)
        chosen = np.zeros(values.shape, bool)
        for score in (values, telling):
            best = np.argpartition(-score, _POOL, axis=1)[:, :_POOL]
            np.put_along_axis(chosen, best, values=True, axis=1)
        return chosen & left

    def observe(self, state: State, arm: Integer[Array, "n"], reward: Float[Array, "n"]) -> State:
        return self._memory.observe(state, arm, reward)
