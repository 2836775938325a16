"""Tiny planning problems of every kind, and their optimal values by enumeration of all histories.

Rewards with a density are integrated on a grid, counts are summed up to a number that is next to never passed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from seeds import generator

from lmab import LatentBandit
from lmab._shapes import Array
from lmab.model.counts import Counts
from lmab.model.gaussian import Gaussian
from lmab.planning.problem import Problem
from lmab.policies.policy import Policy, State

GRID = {1: 201, 2: 2001, 3: 401}  # points of the integral over a normal reward, by horizon


@dataclass(frozen=True)
class Tiny:
    """A problem and, for each of its S tables, the rewards of every arm with their likelihoods."""

    problem: Problem
    rewards: list[Array]  # by arm
    likelihoods: list[list[Array]]  # by table and arm: P(reward, the session continues), all types
    error: float  # of the integrals

    @property
    def starts(self) -> tuple[Array, Array]:
        problem = self.problem
        if problem.priors is None or problem.shares is None:
            return problem.spread(problem.weights[None]), np.ones(1)
        return problem.spread(problem.priors), problem.shares

    def optimum(self) -> float:
        """Return the optimal value, averaged over the priors."""
        starts, shares = self.starts
        best = self._best(starts, self.problem.horizon, ())
        return float(shares @ best)

    def _means(self, steps: int) -> Array:
        return self.problem.spread(self.problem.step(steps).means)

    def _best(self, beliefs: Array, steps: int, played: tuple[int, ...]) -> Array:
        means, found = self._means(steps), np.full(len(beliefs), -np.inf)
        for arm in range(self.problem.n_arms):
            if arm in played:
                continue
            value = beliefs @ means[arm]
            if steps > 1:
                after = () if self.problem.repeats else (*played, arm)
                rows = self.likelihoods[self.problem.step_tables[steps]][arm]
                children = (beliefs[:, None] * rows).reshape(-1, beliefs.shape[1])
                value = value + self._best(children, steps - 1, after).reshape(len(beliefs), -1).sum(axis=1)
            found = np.maximum(found, value)
        return found

    def value(self, policy: Policy) -> float:
        """Return the value of a policy, averaged over the priors."""
        starts, shares = self.starts
        return float(sum(share * self._value(policy, start) for start, share in zip(starts, shares, strict=True)))

    def _value(self, policy: Any, start: Array) -> float:
        horizon, state = self.problem.horizon, policy.start(1)
        if self.problem.priors is not None:
            policy._put_belief(state.memory, start[None])
        beliefs, total = start[None], 0.0
        for steps in range(horizon, 0, -1):
            arms, means = np.asarray(policy.act(state)), self._means(steps)
            total += float(np.einsum("nm,nm->", beliefs, means[arms]))
            if steps == 1:
                break
            rows, chosen, rewards, masses = [], [], [], []
            for arm in np.unique(arms).tolist():
                here = np.flatnonzero(arms == arm)
                likelihoods = self.likelihoods[self.problem.step_tables[steps]][arm]
                children = (beliefs[here, None] * likelihoods).reshape(-1, beliefs.shape[1])
                rows.append(np.repeat(here, len(likelihoods)))
                chosen.append(np.full(len(children), arm))
                rewards.append(np.tile(self.rewards[arm], len(here)))
                masses.append(children)
            row, arm_, reward, mass = (np.concatenate(part) for part in (rows, chosen, rewards, masses))
            alive = mass.sum(axis=1) > 1e-15
            after = State(state.step, state.memory[row[alive]], single=False)
            state, beliefs = policy.observe(after, arm_[alive], reward[alive]), mass[alive]
        return total


def draw(seed: int, *, step_effects: bool = False) -> Tiny:
    """Draw a tiny problem: rewards, repeats, attrition, priors and tables by step vary with the seed.

    With `step_effects` the bandit has step effects, at least two steps and no other tables.
    """
    rng = generator(seed)
    kind = ("categorical", "gaussian", "counts", "categorical")[seed % 4]
    n_types, n_arms = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    repeats = bool(rng.random() < 0.5)
    horizon = int(rng.integers(1, 4 if kind == "categorical" else 3 + (seed % 8 == 1)))
    horizon = horizon if repeats else min(horizon, n_arms)
    weights = rng.dirichlet(np.ones(n_types))
    n_values = int(rng.integers(2, 4))
    if kind == "categorical":
        probabilities = rng.dirichlet(np.full(n_values, 0.5), (n_types, n_arms))
        if rng.random() < 0.3:  # deterministic arms
            sure = rng.random((n_types, n_arms)) < 0.5
            probabilities[sure] = np.eye(n_values)[rng.integers(n_values, size=int(sure.sum()))]
        leaving = rng.beta(0.5, 1.5, probabilities.shape) if rng.random() < 0.4 else None
        if n_types > 1 and rng.random() < 0.2:  # a type of weight 0
            weights = np.append(weights[:-1], 0.0) / weights[:-1].sum()
        bandit = LatentBandit.categorical(weights, probabilities, np.sort(rng.normal(size=n_values)), leaving=leaving)
    elif kind == "gaussian":
        means = rng.normal(size=(n_types, n_arms))
        bandit = LatentBandit.gaussian(weights, means, scale=float(np.exp(rng.uniform(-2, 0.7))))
    else:
        means = rng.gamma(1.0, 1.5, size=(n_types, n_arms)) * (rng.random((n_types, n_arms)) > 0.1)
        leaving = rng.beta(0.5, 1.5, (n_types, n_arms, int(rng.integers(1, 4)))) if rng.random() < 0.4 else None
        bandit = LatentBandit.counts(weights, means, leaving=leaving)
    options: dict[str, Any] = {"repeats": repeats}
    if n_types > 1 and (weights > 0).all() and rng.random() < 0.3:
        priors = rng.dirichlet(np.ones(n_types), int(rng.integers(2, 4)))
        shares = rng.dirichlet(np.ones(len(priors)))
        bandit = replace(bandit, weights=shares @ priors / (shares @ priors).sum())
        options |= {"priors": priors, "shares": shares}
    if step_effects:
        horizon = min(horizon + (horizon == 1), 3 if repeats else n_arms)
        size = float(rng.choice([0.1, 1.0])) / max(bandit.rewards.spread, 0.5)
        effects = np.append(0.0, size * rng.normal(size=int(rng.integers(1, 4))))
        bandit = replace(bandit, step_effects=effects)
    problem = Problem.of(bandit, horizon, int(rng.integers(2, 13)), **options)
    if not step_effects and rng.random() < 0.4:
        problem = with_random_steps(problem, rng)
    return tiny(problem)


def with_random_steps(problem: Problem, rng: np.random.Generator) -> Problem:
    """Return the problem with payoffs that depend on the step; tables too if observations are categorical."""
    n_tables = int(rng.integers(2, 4))
    payoffs = problem.payoffs * rng.uniform(0.2, 1.5, (n_tables, 1, 1)) + rng.normal(size=(n_tables, problem.n_arms, 1))
    tables = np.repeat(problem.tables, n_tables, axis=0)
    if not problem.binned and rng.random() < 0.7:
        shape = (n_tables, problem.n_arms, problem.n_values, len(problem.weights))
        tilted = tables.reshape(shape) * rng.gamma(1.0, 1.0, (n_tables, 1, problem.n_values, 1))
        totals = tables.reshape(shape).sum(axis=2, keepdims=True)
        sums = tilted.sum(axis=2, keepdims=True)
        tilted = np.where(sums > 0, tilted / np.where(sums > 0, sums, 1), tables.reshape(shape)) * np.where(
            sums > 0, totals, 1
        )
        tables = tilted.reshape(tables.shape)
    return problem.with_steps(payoffs, tables, rng.integers(n_tables, size=problem.horizon + 1))


def tiny(problem: Problem) -> Tiny:
    """Return the problem with rewards that can be enumerated."""
    bandit, family = problem.bandit, problem.bandit.rewards
    n_arms, n_tables = problem.n_arms, len(problem.tables)
    if bandit.step_effects is not None:
        return _with_step_effects(problem)
    if isinstance(family, Gaussian | Counts):
        rewards, rows = [], []
        for arm in range(n_arms):
            values, weights = _grid(family, arm, problem.horizon)
            arms = np.full(len(values), arm)
            likelihood = family.likelihood(arms, values) * weights[:, None]
            if bandit.leaving is not None:
                likelihood = likelihood * (1 - bandit.leaving[:, arms, bandit.leaving_columns(values)].T)
            rewards.append(values)
            rows.append(likelihood)
        error = 2e-4 * problem.scale if isinstance(family, Gaussian) else 1e-9 * problem.scale
        return Tiny(problem, rewards, [rows] * n_tables, error)
    tables = [problem.spread(table).reshape(n_arms, problem.n_values, -1) for table in problem.tables]
    likelihoods = [[table[arm] for arm in range(n_arms)] for table in tables]
    return Tiny(problem, [family.values] * n_arms, likelihoods, 1e-9 * max(problem.scale, 1e-9))


def _with_step_effects(problem: Problem) -> Tiny:
    """Return the problem with rewards and likelihoods from the definition p_t(z) ~ p(z) exp(effect z)."""
    bandit, horizon, n_arms = problem.bandit, problem.horizon, problem.n_arms
    family, effects = bandit.rewards, np.asarray(bandit.step_effects)
    by_step = effects[np.minimum(np.arange(horizon), len(effects) - 1)]
    grids = []
    for arm in range(n_arms):
        if isinstance(family, Gaussian | Counts):
            grids.append(_wide_grid(family, arm, horizon, by_step))
        else:
            grids.append((family.values, np.ones(len(family.values))))
    rows: list[list[Array]] = [[] for _ in problem.tables]
    for step in range(horizon):
        table = int(problem.step_tables[horizon - step])
        rows[table] = []
        for arm, (values, weights) in enumerate(grids):
            arms = np.full(len(values), arm)
            logs = family.log_likelihood(arms, values) + (by_step[step] * values)[:, None]
            likelihood = np.exp(logs) * weights[:, None]
            likelihood /= likelihood.sum(axis=0)
            means = problem.spread(problem.payoffs[table])[arm]
            possible = problem.spread(np.ones((1, len(problem.weights))))[0] > 0
            slack = 1e-6 * max(1.0, np.abs(values).max())
            assert np.abs((values @ likelihood - means)[possible]).max() <= slack, "payoffs are the means of the step"
            if bandit.leaving is not None:
                likelihood = likelihood * (1 - bandit.leaving[:, arms, bandit.leaving_columns(values)].T)
            rows[table].append(likelihood)
    error = {"gaussian": 2e-4, "counts": 1e-9}.get(family.family, 1e-9) * max(problem.scale, 1e-9)
    return Tiny(problem, [values for values, _ in grids], rows, error)


def _wide_grid(family: Gaussian | Counts, arm: int, horizon: int, effects: Array) -> tuple[Array, Array]:
    """Return a grid on which no step has more than negligible probability outside."""
    models = [family.tilted(float(effect)) for effect in effects]
    if isinstance(family, Counts):
        top = max(len(_grid(model, arm, horizon)[0]) for model in models)
        return np.arange(float(top)), np.ones(top)
    ends = [_grid(model, arm, horizon)[0][[0, -1]] for model in models]
    values = np.linspace(np.min(ends), np.max(ends), GRID[horizon])
    return values, np.full(len(values), values[1] - values[0])


def _grid(family: Gaussian | Counts, arm: int, horizon: int) -> tuple[Array, Array]:
    """Return the rewards of an arm that are enumerated, and the weight of each in sums."""
    means = family.means[:, arm]
    if isinstance(family, Counts):
        top = int(np.ceil(means.max() + 12 * np.sqrt(means.max()) + 12))
        return np.arange(top + 1.0), np.ones(top + 1)
    values = np.linspace(means.min() - 8 * family.scale, means.max() + 8 * family.scale, GRID[horizon])
    return values, np.full(len(values), values[1] - values[0])
