"""Dropping dominated arms loses nothing; dropping arms for their means alone does."""

from __future__ import annotations

import numpy as np
import pytest
from seeds import generator

import lmab
from lmab.planning.clock import Clock
from lmab.planning.dominance import best_somewhere, undominated_arms
from lmab.planning.problem import Problem
from lmab.planning.search import Search
from lmab.planning.vectors import vector_policy


def _value(bandit: lmab.LatentBandit, arms: np.ndarray, horizon: int) -> float:
    some = lmab.LatentBandit.categorical(bandit.weights, bandit.rewards.probabilities[:, arms], bandit.rewards.values)
    return lmab.plan(some, horizon=horizon, method=lmab.Exact()).lower


def _bandit(kind: str, n_values: int, rng: np.random.Generator) -> lmab.LatentBandit:
    """A few arms, and mixtures and garblings of them that are never needed."""
    if kind != "categorical":
        return lmab.random_bandit(3, 8, kind=kind, rng=rng)
    values = np.sort(rng.normal(size=n_values))
    base = rng.dirichlet(np.ones(n_values), (3, 3))
    worse = base[:, :2] @ np.where(np.eye(n_values) > 0, 0.7, 0)  # 0.7 stays, the rest is shown as the worst value
    worse[:, :, 0] += 0.3
    return lmab.LatentBandit.categorical(rng.dirichlet(np.ones(3)), np.concatenate([base, worse], axis=1), values)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("kind", "n_values"), [("hard", 2), ("ordinary", 2), ("categorical", 2), ("categorical", 3)])
def test_nothing_is_lost(kind, n_values, seed):
    bandit = _bandit(kind, n_values, generator(seed))
    problem = Problem.of(bandit, 4, 2)
    kept = undominated_arms(problem.table, problem.means)
    everything = np.arange(bandit.n_arms)
    assert _value(bandit, kept, 4) == pytest.approx(_value(bandit, everything, 4), abs=1e-12)
    if kind == "categorical":
        assert not {3, 4} & set(kept.tolist())  # garbled and worse: always superfluous


def test_means_alone_would_lose_what_cheap_arms_tell():
    """The negative control: the same reduction without the condition on what an arm shows."""
    # Two gambles that hardly tell which is better, and a probe that always loses a little and tells all.
    gambles = [[[0.4, 0, 0, 0.6], [0.6, 0, 0, 0.4]], [[0.6, 0, 0, 0.4], [0.4, 0, 0, 0.6]]]
    probe = [[[0, 1, 0, 0]], [[0, 0, 1, 0]]]
    bandit = lmab.LatentBandit.categorical(
        [0.5, 0.5], np.concatenate([gambles, probe], axis=1), [-1.0, -0.1, -0.05, 1.0]
    )
    problem = Problem.of(bandit, 6, 2)
    assert best_somewhere(problem.means).tolist() == [0, 1]
    assert undominated_arms(problem.table, problem.means).tolist() == [0, 1, 2]
    assert _value(bandit, np.array([0, 1]), 6) < 0.9 * _value(bandit, np.arange(3), 6)


def test_the_last_step_needs_only_arms_that_are_best_somewhere():
    rng = generator(0)
    means = rng.random((30, 4))
    kept = best_somewhere(means)
    assert len(kept) < 30
    beliefs = rng.dirichlet(np.full(4, 0.5), 2000)
    np.testing.assert_allclose((beliefs @ means.T).max(axis=1), (beliefs @ means[kept].T).max(axis=1), rtol=1e-12)
    for arm in kept:  # each of them is needed
        others = [other for other in kept if other != arm]
        assert len(best_somewhere(means[others])) == len(others)


def test_equal_arms_keep_one():
    means = np.array([[0.5, 0.2], [0.5, 0.2], [0.1, 0.9]])
    table = np.stack([1 - means, means], axis=1).reshape(6, 2)
    assert len(undominated_arms(table, means)) == 2
    assert len(best_somewhere(means)) == 2


def test_stopping_keeps_the_rest():
    means = np.array([[0.9, 0.1], [0.2, 0.2], [0.1, 0.8]])
    table = np.stack([1 - means, means], axis=1).reshape(6, 2)
    assert undominated_arms(table, means, lambda: True).tolist() == [0, 1, 2]
    assert best_somewhere(means, lambda: True).tolist() == [0, 1, 2]
    asked = iter([False, True])
    several = np.concatenate([[[0.1, 0.05]], means])  # the weakest is examined, then time is up
    assert best_somewhere(several, lambda: next(asked)).tolist() == [1, 2, 3]


@pytest.mark.parametrize(("seconds", "dropped"), [(0.4, False), (60.0, True)])
def test_programs_are_not_begun_in_the_last_half_second(seconds, dropped):
    """Loading the solver and one program may take as long."""
    search = Search(Problem.of(lmab.random_bandit(4, 20, kind="hard", rng=generator(0)), 5, 2), seed=0)
    search.drop_dominated_arms(Clock(seconds))
    assert (len(search.arms.means) < 20) == dropped


def test_solver_tolerance_is_no_dominance():
    """Arms that differ by less than a solver notices, but do differ, both stay."""
    means = np.array([[0.6, 0.4], [0.6 + 1e-8, 0.4 + 1e-8]])
    table = np.stack([1 - means, means], axis=1).reshape(4, 2)
    assert undominated_arms(table, means).tolist() == [0, 1]


def test_vectors_name_the_arms_of_the_bandit_after_arms_were_dropped():
    bandit = lmab.random_bandit(4, 20, kind="hard", rng=generator(0))
    search = Search(Problem.of(bandit, 5, 2), seed=0)
    search.drop_dominated_arms(Clock(60.0))
    assert len(search.arms.means) < 20
    search.advance(1e-3)
    policy = vector_policy(search.problem, search.sets())
    assert search.lower_bound > 3
    assert lmab.evaluate(policy, bandit, horizon=5).mean >= search.lower_bound - 1e-9


def test_a_search_that_drops_arms_ends_at_the_same_optimum():
    bandit = lmab.random_bandit(4, 20, kind="hard", rng=generator(0))
    exact = lmab.plan(bandit, horizon=5, method=lmab.Exact()).lower
    plan = lmab.plan(bandit, horizon=5, method=lmab.Certified(gap=1e-8))  # open long enough to drop
    assert plan.status == "certified"
    assert plan.lower - 1e-9 <= exact <= plan.upper + 1e-9
    assert lmab.evaluate(plan.policy, bandit, horizon=5).mean >= plan.lower - 1e-9
