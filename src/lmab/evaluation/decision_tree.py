"""A policy as a tree of decisions, what every branch earns on any model, and the plan improved for another model.

A plan is improved by one step of policy iteration: at every step the arm is played that is best if afterwards a branch
of the plan is followed, or a fixed choice (one arm, or without repeats the best list of the arms left). Normal rewards
are cut into a few outcomes, so that the tree can be written out. Seeing a rounded reward instead of the reward is a
garbling: what is written out is the policy for rounded rewards. The means stay exact.

Where histories are too many, those of one step that follow the same vector of the plan are one decision (`merged`), and
the plan is improved at the mean belief of each decision (`improved_at_decisions`): such a plan is a smaller one, and
what it earns on any model is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from .._kernel import kernel
from .._shapes import Array, Bool, Float, Integer
from ..model import belief
from ..model.bandit import LatentBandit
from ..model.categorical import Categorical
from ..model.rewards import Rewards
from ..planning.lookahead import NoRepeatLookaheadPolicy
from ..planning.no_repeats.backups import NoRepeatVectors, at_children
from ..planning.policies import VectorPolicy
from ..planning.problem import Problem
from ..policies.histories import NONE, Decisions, InitialStates, enumerate_histories
from ..policies.policy import State, best_allowed

NODE_LIMIT = 200_000  # decisions of one step
_BRANCHES = 64  # branches of the plan, the likeliest of each step, that a model may continue with
_POOL = 32  # arms with the best means at a belief, and as many that tell most, that are tried without repeats
_CHUNK = 1 << 21  # numbers computed at once
_HISTORIES = 5_000  # About as many histories of one step; outcomes are made few enough for that.
_OUTCOMES = (3, 9)  # fewest and most
_COARSE = 500  # the same for plans that ignore rewards: 28 arms and 8 steps take 3 s for 200 models, 5,000 took 8 s


@dataclass(frozen=True, eq=False)
class TreeLevel:
    """The decisions of one step."""

    arms: Integer[Array, "n"]
    children: Integer[Array, "n Z"]  # row of the next level after each value, or NONE
    probabilities: Float[Array, "n"]  # Probability of each history under the model that the tree was made with.


@dataclass(frozen=True, eq=False)
class DecisionTree:
    """The decisions of a policy, step by step."""

    levels: tuple[TreeLevel, ...]

    def branches(
        self,
        rewards: Categorical,
        means: Float[Array, "M A"] | None = None,
        stays: Float[Array, "*MA Z"] | None = None,
    ) -> list[Float[Array, "n M"]]:
        """What every branch earns from its decision to the end, in each type of `rewards`, as one array per step.

        Rewards are counted as `means`, where these are given. A session goes on with chance `stays`, where these are
        given, for each value, or for each type, arm and value.
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
                    after = found[-1][child[there]]
                    if stays is not None:
                        after = (stays[value] if stays.ndim == 1 else stays[:, level.arms[there], value].T) * after
                    earned[there] += rewards.table[codes] * after
            found.append(earned)
        return found[::-1]

    def value(
        self,
        weights: Float[Array, "*G M"],
        rewards: Categorical,
        means: Float[Array, "M A"] | None = None,
        stays: Float[Array, "*MA Z"] | None = None,
    ) -> float:
        """What the policy earns in a session, with `means` and `stays` as for `branches`.

        Where sessions have several roots, `weights` are those of each, times its share.
        """
        return weighed(weights, self.branches(rewards, means, stays)[0])

    def renamed(self, arms: Integer[Array, "A"]) -> DecisionTree:
        """The same decisions, where arm number i is `arms[i]`."""
        return DecisionTree(tuple(replace(level, arms=arms[level.arms]) for level in self.levels))

    def plays(self, n_arms: int) -> Float[Array, "A"]:
        """How often a session plays each arm, under the model that the tree was made with."""
        levels = [np.bincount(level.arms, level.probabilities, minlength=n_arms) for level in self.levels]
        return np.sum(levels, axis=0)


def weighed(weights: Float[Array, "*G M"], earned: Float[Array, "G M"]) -> float:
    """What is earned on average, from what is earned at each root in each type."""
    return float(weights.ravel() @ earned.ravel())


def unroll(
    policy: Decisions,
    bandit: LatentBandit,
    horizon: int,
    *,
    limit: int | None = None,
    roots: InitialStates | None = None,
) -> DecisionTree:
    """The tree of a policy: all histories that can happen under `bandit`, whose rewards take finitely many values."""
    remedy = "plan for a shorter horizon"
    levels = enumerate_histories(policy, bandit, horizon, limit=limit or NODE_LIMIT, remedy=remedy, roots=roots)
    return DecisionTree(tuple(TreeLevel(level.arms, level.children, level.mass.sum(axis=1)) for level in levels))


@dataclass(frozen=True, eq=False)
class Branches:
    """The likeliest branches of a plan: for each number of steps to go from 2 on, their nodes and arms."""

    arms: Integer[Array, "A"]  # Arms of all branches.
    rows: tuple[Integer[Array, "_"], ...]  # Rows of the tree's levels.
    used: tuple[Bool[Array, "_ A"], ...]  # which of `arms` each branch may use

    @classmethod
    def of(cls, tree: DecisionTree) -> Branches:
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
        """Pick the values of the branches with `steps` to go from the values of all nodes."""
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
        fixed, types = self._problem.fixed_arms, self._problem.types
        self._later = [fixed[0][0]]  # what may follow, with 1 step to go, 2, ...
        for steps in range(2, horizon):
            self._later.append(np.concatenate([branches.worth(values, steps)[:, types], fixed[steps - 1][0]]))

    def start(self, n: int) -> State:
        return State(0, belief.prior(self._problem.bandit, n), single=False)

    def act(self, state: State) -> Integer[Array, "n"]:
        problem, remaining = self._problem, self._problem.horizon - state.step
        beliefs = problem.beliefs(state.memory)
        if remaining == 1:
            return best_allowed(beliefs @ problem.step(1).means.T, None)
        one_step, (means, table, _) = kernel("planning").one_step_values, problem.step(remaining)
        return best_allowed(one_step(beliefs, table, means, self._later[remaining - 2]), None)

    def observe(self, state: State, arm: Integer[Array, "n"], reward: Float[Array, "n"]) -> State:
        beliefs = belief.update(self._problem.bandit, state.memory, arm, reward, state.step)
        return State(state.step + 1, beliefs, single=False)


def merged(policy: VectorPolicy, bandit: LatentBandit, roots: Float[Array, "G M"]) -> DecisionTree:
    """The decisions of a policy for discrete rewards; histories of a step that follow the same vector are one decision.

    These are the decisions of the vectors alone: the policy earns at least as much where it looks ahead. `roots` are
    the weights at which sessions start, times the share of the sessions.
    """
    outcomes, beliefs = _outcomes(bandit), roots
    levels: list[TreeLevel] = []
    for left in range(policy.horizon, 0, -1):
        stage = slice(policy.starts[left - 1], policy.starts[left])
        chosen = (beliefs @ policy.vectors[stage].T).argmax(axis=1)
        if levels:
            chosen, rows = np.unique(chosen, return_inverse=True)
            beliefs = _summed(beliefs, rows, len(chosen))
            levels[-1] = replace(levels[-1], children=rows.reshape(-1, outcomes.shape[1]))
        arms = np.asarray(policy.arms[stage][chosen], np.int64)
        levels.append(TreeLevel(arms, np.full((len(arms), outcomes.shape[1]), NONE), beliefs.sum(axis=1)))
        beliefs = (beliefs[:, None] * outcomes[arms]).reshape(-1, bandit.n_types)
    return DecisionTree(tuple(levels))


def improved_at_decisions(tree: DecisionTree, model: LatentBandit, roots: Float[Array, "G M"]) -> DecisionTree:
    """The plan of a merged tree improved for a model: from the last step to the first, a backup at each decision.

    After each reward the best of the improved decisions follows, or one arm to the end: the best on average, or in a
    type.
    """
    table, means, outcomes = model.outcomes(2).table, np.ascontiguousarray(model.means.T), _outcomes(model)
    always = np.unique(np.append(model.means.argmax(axis=1), (model.weights @ model.means).argmax()))
    later: Float[Array, "K M"] = np.zeros((1, model.n_types))
    levels: list[TreeLevel] = []
    for beliefs in reversed(_reached(tree, outcomes, roots)):
        best = best_allowed(kernel("planning").one_step_values(beliefs, table, means, later), None)
        follow = (beliefs[:, None] * outcomes[best] @ later.T).argmax(axis=2)
        stay = np.arange(len(always)) + (len(later) - len(always) if levels else 0)
        children = np.concatenate([follow, np.repeat(stay[:, None], follow.shape[1], axis=1)])
        arms = np.concatenate([best, always])
        later = means[arms] + ((outcomes[arms] * later[children]).sum(axis=1) if levels else 0)
        levels.append(TreeLevel(arms, children if levels else np.full_like(children, NONE), np.zeros(len(arms))))
    first = levels.pop()
    levels.append(TreeLevel(first.arms[: len(roots)], first.children[: len(roots)], roots.sum(axis=1)))
    return DecisionTree(tuple(levels[::-1]))


def _outcomes(bandit: LatentBandit) -> Float[Array, "A Z M"]:
    """In every type, the probability of each value of an arm, and that the session goes on."""
    return bandit.outcomes(2).table.reshape(bandit.n_arms, -1, bandit.n_types)


def _reached(
    tree: DecisionTree, outcomes: Float[Array, "A Z M"], roots: Float[Array, "G M"]
) -> list[Float[Array, "_ M"]]:
    """How likely sessions of each type reach each decision; of later steps the likeliest decisions."""
    found, beliefs = [roots], roots
    for level, below in pairwise(tree.levels):
        after = (beliefs[:, None] * outcomes[level.arms]).reshape(-1, beliefs.shape[1])
        beliefs = _summed(after, level.children.ravel(), len(below.arms))
        found.append(beliefs[np.argsort(-beliefs.sum(axis=1), kind="stable")[:_BRANCHES]])
    return found


def _summed(rows: Float[Array, "n M"], place: Integer[Array, "n"], n_places: int) -> Float[Array, "k M"]:
    """Sums of the rows that share a place."""
    sums = np.zeros((n_places, rows.shape[1]))
    np.add.at(sums, place, rows)
    return sums


class ImprovedOnce:
    """Without repeats: a branch may follow where none of its arms was played."""

    adaptive = True
    order_free = True

    def __init__(
        self, bandit: LatentBandit, branches: Branches, values: list[Float[Array, "_ M"]], horizon: int
    ) -> None:
        self._problem = Problem.of(bandit, horizon, bins=2)
        self._memory = NoRepeatLookaheadPolicy(bandit, horizon=horizon, bins=2)
        self._later = [NoRepeatVectors.none(self._problem)]  # with 1 step to go the best arm left follows
        for steps in range(2, horizon):
            worth = branches.worth(values, steps)[:, self._problem.types]
            used = np.zeros((len(worth), bandit.n_arms), bool)
            used[:, branches.arms] = branches.used[steps - 1]
            self._later.append(NoRepeatVectors(worth, np.zeros(len(worth), np.int64), used))

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


@dataclass(frozen=True, eq=False)
class CutRewards(Categorical):
    """Outcomes with their probabilities, and the exact means."""

    exact: Float[Array, "M A"] | None = None

    @property
    def means(self) -> Float[Array, "M A"]:
        assert self.exact is not None
        return self.exact


@dataclass(frozen=True, eq=False)
class Cut:
    """Where rewards are cut, for all arms alike."""

    edges: Float[Array, "E"]
    values: Float[Array, "Z"]  # that stand for the outcomes

    @classmethod
    def of(cls, bandit: LatentBandit, horizon: int) -> Cut | None:
        """Cuts at quantiles of all rewards of the bandit; None where rewards take finitely many values anyway."""
        most = _HISTORIES ** (1 / max(horizon - 1, 1))
        points = bandit.rewards.cuts(2 * int(np.clip(most, *_OUTCOMES)) - 1)
        return None if points is None else cls(points[1::2], points[::2])

    @classmethod
    def coarse(cls, bandit: LatentBandit, horizon: int) -> Cut | None:
        """Return cuts that join neighbouring values, or None if all histories of them are few enough.

        They are for replanning of plans that ignore rewards, whose trees are small whatever the rewards are. Values on
        which leaving depends are not joined.
        """
        family, n = bandit.rewards, max(int(_COARSE ** (1 / max(horizon - 1, 1))), 2)
        if not isinstance(family, Categorical) or family.n_values <= n or bandit.leaving is not None:
            return None
        shares = (bandit.weights @ family.probabilities.mean(axis=1)).cumsum()
        places = np.unique(np.searchsorted(shares, np.arange(1, n) / n) + 1)
        places = places[places < family.n_values]
        return cls((family.values[places] + family.values[places - 1]) / 2, family.values[np.append(0, places)])

    def rewards(self, family: Rewards) -> CutRewards:
        """The family as outcomes."""
        if isinstance(family, Categorical):
            below = family.probabilities.cumsum(axis=2)[:, :, np.searchsorted(family.values, self.edges) - 1]
        else:
            below = family.below(self.edges)
        ends = np.zeros((*family.means.shape, 1)), np.ones((*family.means.shape, 1))
        probabilities = np.diff(np.concatenate([ends[0], below, ends[1]], axis=2), axis=2)
        return CutRewards(probabilities, self.values, exact=family.means)


def discrete(rewards: Any, cut: Cut | None) -> Categorical:
    """Rewards on finitely many values: themselves, or cut."""
    return rewards if cut is None else cut.rewards(rewards)


def only(rewards: Categorical, arms: Integer[Array, "k"]) -> Categorical:
    """The rewards of some arms."""
    probabilities = rewards.probabilities[:, arms]
    if isinstance(rewards, CutRewards):
        return CutRewards(probabilities, rewards.values, exact=rewards.means[:, arms])
    return Categorical(probabilities, rewards.values)
