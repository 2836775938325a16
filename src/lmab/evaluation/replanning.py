"""What a plan is worth on models that a log could have come from, and what replanning for each of them would earn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._shapes import Array, Bool, Float, Integer
from ..model import Categorical, LatentBandit
from ..planning import Plan
from .cutting import Cut, discrete, only
from .decision_tree import Tree, unroll
from .improving import Branches, improved

_POOL = 24  # of many arms: the best of every type and on average, and as many that tell most, are planned with
_MANY = 200  # arms


@dataclass(frozen=True, eq=False)
class Replanned:
    """One entry per drawn model."""

    optimum: Float[Array, "B"]  # the best known for the model: its own plan, the policy, or the best fixed choice
    value: Float[Array, "B"]  # of the policy on the model
    transferred: Float[Array, "B"]  # of the model's own plan on the estimate
    fixed: Float[Array, "B"]  # the best that ignores what it sees, on the model
    fixed_played: Float[Array, "B"]  # the same among the arms that the log plays, where these are enough
    unplayed: Float[Array, "B"]  # share of the optimum that is earned with arms the log never plays
    misses: float = 1.0  # that an interval over these models may have more than over others


class Replanner:
    """A plan for an estimate, written out once."""

    def __init__(self, bandit: LatentBandit, plan: Plan, played: Bool[Array, "A"]) -> None:
        self._cut = Cut.of(bandit, plan.horizon)
        self.rewards = discrete(bandit.rewards, self._cut)
        self._bandit = LatentBandit(bandit.weights, self.rewards)
        self._plan, self._played = plan, played
        self.tree = unroll(plan.policy, self._bandit, plan.horizon)
        self.own = self.tree.value(bandit.weights, self.rewards)  # value of the policy on the estimate
        self._branches = Branches.of(self.tree)

    @property
    def exact(self) -> bool:
        """Whether nothing was cut."""
        return self._cut is None

    def replan(self, weights: Float[Array, "B M"], families: Sequence[Any]) -> Replanned:
        """For each drawn model, one step of policy iteration from the plan."""
        rows = [
            self._one(own_weights, discrete(family, self._cut))
            for own_weights, family in zip(weights, families, strict=True)
        ]
        return Replanned(*np.array(rows).reshape(-1, 6).T)

    def _one(self, weights: Float[Array, "M"], family: Categorical) -> tuple[float, ...]:
        model, values = LatentBandit(weights, family), self.tree.branches(family)
        replanned = self._improved(weights, family, values)
        value, own = float(weights @ values[0][0]), replanned.value(weights, family)
        unplayed = self._unplayed(replanned if own > value else self.tree, model, family)
        transferred = replanned.value(self._bandit.weights, self.rewards)
        fixed, among_played = fixed_choices(model, self._plan, self._played)
        return max(own, value, fixed), value, transferred, fixed, among_played, unplayed

    def _improved(self, weights: Float[Array, "M"], family: Categorical, values: list[Float[Array, "_ M"]]) -> Tree:
        """The tree of the improved plan; many arms are left out that could hardly be in it."""
        arms = self._useful(weights, family.means)
        branches = replace(self._branches, arms=np.searchsorted(arms, self._branches.arms))
        model = LatentBandit(weights, only(family, arms))
        policy = improved(model, branches, values, self._plan.horizon, repeats=self._plan.repeats)
        return unroll(policy, model, self._plan.horizon).renamed(arms)

    def _useful(self, weights: Float[Array, "M"], means: Float[Array, "M A"]) -> Integer[Array, "K"]:
        if means.shape[1] <= _MANY:
            return np.arange(means.shape[1])
        average = weights @ means
        scores = np.concatenate([means, average[None], (weights @ means**2 - average**2)[None]])
        best = np.argpartition(-scores, _POOL + self._plan.horizon, axis=1)[:, : _POOL + self._plan.horizon]
        return np.union1d(best.ravel(), self._branches.arms)

    def _unplayed(self, tree: Tree, model: LatentBandit, family: Categorical) -> float:
        """The share of what the tree earns on the model that comes from arms the log never plays."""
        if self._played.all():
            return 0.0
        total = tree.value(model.weights, family)
        rest = tree.value(model.weights, family, means=np.where(self._played, 0.0, family.means))
        return rest / total if total > 0 else 0.0


def fixed_choices(model: LatentBandit, plan: Plan, played: Bool[Array, "A"]) -> tuple[float, float]:
    """What the best choice earns that ignores what it sees, among all arms and among those that the log plays."""
    fixed = model.best_fixed(plan.horizon, plan.repeats)
    average = np.sort((model.weights @ model.means)[played])[::-1]
    if played.all() or (not plan.repeats and len(average) < plan.horizon):
        return fixed, fixed
    return fixed, float(plan.horizon * average[0] if plan.repeats else average[: plan.horizon].sum())
