"""What a plan is worth on models that a log could have come from, and what replanning for each of them would earn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._kernel import kernel
from .._shapes import Array, Bool, Float, Integer
from ..model import Categorical, LatentBandit, belief
from ..planning import NoRepeatsPolicy, Plan, Problem
from ..policies import Decisions, State, best_allowed
from .cutting import Cut, discrete
from .decision_tree import Tree, unroll

_BRANCHES = 64  # branches of the plan, the likeliest of each step, that a draw may continue with


@dataclass(frozen=True, eq=False)
class Replanned:
    """One entry per drawn model."""

    optimum: Float[Array, "B"]  # the best known for the model: its own plan, the policy, or the best fixed choice
    value: Float[Array, "B"]  # of the policy on the model
    transferred: Float[Array, "B"]  # of the model's own plan on the estimate
    fixed: Float[Array, "B"]  # the best that ignores what it sees, on the model
    fixed_played: Float[Array, "B"]  # the same among the arms that the log plays, where these are enough
    unplayed: Float[Array, "B"]  # share of the optimum that is earned with arms the log never plays


class Replanner:
    """A plan for an estimate, written out once."""

    def __init__(self, bandit: LatentBandit, plan: Plan, played: Bool[Array, "A"]) -> None:
        self._cut = Cut.of(bandit, plan.horizon)
        self.rewards = discrete(bandit.rewards, self._cut)
        self._bandit = LatentBandit(bandit.weights, self.rewards)
        self._plan, self._played = plan, played
        self.tree = unroll(plan.policy, self._bandit, plan.horizon)
        self.own = self.tree.value(bandit.weights, self.rewards)  # value of the policy on the estimate

    @property
    def exact(self) -> bool:
        """Whether nothing was cut."""
        return self._cut is None

    def replan(self, weights: Float[Array, "B M"], families: Sequence[Any]) -> Replanned:
        """For each drawn model, one step of policy iteration from the plan, or without repeats a lookahead."""
        rows = [
            self._one(own_weights, discrete(family, self._cut))
            for own_weights, family in zip(weights, families, strict=True)
        ]
        return Replanned(*np.array(rows).reshape(-1, 6).T)

    def _one(self, weights: Float[Array, "M"], family: Categorical) -> tuple[float, ...]:
        plan, model, branches = self._plan, LatentBandit(weights, family), self.tree.branches(family)
        policy: Decisions = NoRepeatsPolicy(model, horizon=plan.horizon)
        if plan.repeats:
            policy = _Improved(model, self.tree, branches, plan.horizon)
        replanned = unroll(policy, model, plan.horizon)
        value, own = float(weights @ branches[0][0]), replanned.value(weights, family)
        unplayed = self._unplayed(replanned if own > value else self.tree, model, family)
        transferred = replanned.value(self._bandit.weights, self.rewards)
        fixed, among_played = self._fixed(model)
        return max(own, value, fixed), value, transferred, fixed, among_played, unplayed

    def _fixed(self, model: LatentBandit) -> tuple[float, float]:
        horizon, repeats = self._plan.horizon, self._plan.repeats
        fixed = model.best_fixed(horizon, repeats)
        average = np.sort((model.weights @ model.means)[self._played])[::-1]
        if self._played.all() or (not repeats and len(average) < horizon):
            return fixed, fixed
        return fixed, float(horizon * average[0] if repeats else average[:horizon].sum())

    def _unplayed(self, tree: Tree, model: LatentBandit, family: Categorical) -> float:
        """The share of what the tree earns on the model that comes from arms the log never plays."""
        if self._played.all():
            return 0.0
        total = tree.value(model.weights, family)
        rest = tree.value(model.weights, family, means=np.where(self._played, 0.0, family.means))
        return rest / total if total > 0 else 0.0


class _Improved:
    """A plan improved for another model: at every step the best arm if a branch of the plan, or one arm, follows.

    This is one step of policy iteration, with all branches of the plan on offer at every belief.
    """

    adaptive = True
    order_free = True

    def __init__(self, bandit: LatentBandit, tree: Tree, branches: list[Float[Array, "n M"]], horizon: int) -> None:
        self._problem = Problem.of(bandit, horizon, bins=2)
        last = self._problem.means[self._problem.last_arms]
        self._later = [last]  # what may follow, with 1 step to go, 2, ...
        for level, worth in list(zip(tree.levels, branches, strict=True))[-2:0:-1]:
            likely = np.argsort(-level.probabilities, kind="stable")[:_BRANCHES]
            self._later.append(np.concatenate([worth[likely], (len(self._later) + 1) * last]))

    def start(self, n: int) -> State:
        return State(0, belief.prior(self._problem.bandit, n), single=False)

    def act(self, state: State) -> Integer[Array, "n"]:
        problem, remaining = self._problem, self._problem.horizon - state.step
        if remaining == 1:
            return best_allowed(state.memory @ problem.means.T, None)
        one_step = kernel("planning_lookahead").one_step_values
        return best_allowed(one_step(state.memory, problem.table, problem.means, self._later[remaining - 2]), None)

    def observe(self, state: State, arm: Integer[Array, "n"], reward: Float[Array, "n"]) -> State:
        return State(state.step + 1, belief.update(self._problem.bandit, state.memory, arm, reward), single=False)
