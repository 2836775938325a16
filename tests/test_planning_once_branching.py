"""Branch and bound without repeats: its bounds close at the optimum, which enumeration of all sessions gives."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
from seeds import generator

import lmab
from lmab.planning.no_repeats.branching import BranchAndBound
from lmab.planning.no_repeats.point_based import NoRepeatPlans
from lmab.planning.no_repeats.relaxation import optimize_multipliers
from lmab.planning.problem import Clock, Problem


def tree_of(problem: Problem, plans: NoRepeatPlans | None) -> BranchAndBound:
    found = optimize_multipliers(problem, rounds=10)
    return BranchAndBound(problem, problem.weights, (found.multipliers, found.parameters), plans, lambda: False)


def draw(seed: int) -> tuple[lmab.LatentBandit, int]:
    """Return a bandit with two or three values of any sign, some of them certain, and at most five steps."""
    rng = generator(seed)
    n_types, n_values = int(rng.integers(2, 5)), int(rng.integers(2, 4))
    n_arms, horizon = (6, 5) if n_values == 2 else (5, 4)
    probabilities = rng.dirichlet(np.full(n_values, 0.6), (n_types, n_arms))
    probabilities[0, 0] = np.eye(n_values)[0]
    weights = rng.dirichlet(np.full(n_types, 2.0))
    return lmab.LatentBandit.categorical(weights, probabilities, np.sort(rng.normal(size=n_values))), horizon


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("with_plans", [True, False])
def test_bounds_hold_after_every_expansion_and_close(seed, with_plans):
    bandit, horizon = draw(seed)
    problem = Problem.of(bandit, horizon, repeats=False)
    rewards = bandit.rewards
    best = oracle.optimal_value(bandit.weights, rewards.probabilities, rewards.values, horizon, repeats=False)
    plans = NoRepeatPlans(problem, 0, Clock(60.0)) if with_plans else None
    tree, slack = tree_of(problem, plans), 1e-9 * problem.scale
    for _ in range(5_000):
        tree.improve()
        lower, upper = tree.root.bounds
        assert lower - slack <= best <= upper + slack
        if tree.gap <= slack:
            break
    assert tree.gap <= slack
    if plans is not None:  # the plans that were added earn the lower bound
        assert plans.lower_bound == pytest.approx(best, abs=10 * slack)


def test_an_order_of_observations_is_one_node_only_if_steps_are_alike(rng):
    bandit, horizon = draw(0)
    problem = Problem.of(bandit, horizon, repeats=False)
    for steps, same in ((problem, True), (_with_steps(problem, rng), False)):
        tree = tree_of(steps, None)
        first = tree._node(problem.weights, (0, 3), (0.0, 1.0))
        assert (tree._node(problem.weights, (3, 0), (0.0, 1.0)) is first) == same


def _with_steps(problem: Problem, rng: np.random.Generator) -> Problem:
    tables = rng.dirichlet(np.ones(problem.n_values), (2, problem.n_arms, len(problem.weights)))
    tables = tables.transpose(0, 1, 3, 2).reshape(2, problem.n_codes, -1)
    return problem.with_steps(np.repeat(problem.payoffs, 2, axis=0), tables, np.arange(problem.horizon + 1) % 2)


def test_a_search_that_may_not_end_takes_the_time_that_it_was_given():
    """The relaxation leaves a gap of 10% here, and dynamic programming does not fit."""
    bandit = lmab.random_bandit(4, 30, kind="hard", rng=0)
    short, long = (lmab.plan(bandit, horizon=8, repeats=False, time_limit=limit) for limit in (0.6, 2.4))
    assert short.status == long.status == "time limit"
    assert long.gap < short.gap
    assert long.trace[-1].seconds > 2.3
