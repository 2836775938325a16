"""Backups: every vector is the value of a plan, and the best of those that were to be tried."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from seeds import generator

from lmab import LatentBandit, random_bandit
from lmab.planning import backups
from lmab.planning.backups import QuickLookahead, Rounds, backup, fixed_arms, join, largest, observe, useful_arms
from lmab.planning.lookahead import lookahead_values
from lmab.planning.problem import Problem
from lmab.testing.oracle import small_bandit


def all_plans(problem: Problem, arm: int, later: np.ndarray) -> list[np.ndarray]:
    """The vectors of all plans that begin with an arm and go on with a `later` plan after each value."""
    own = problem.table[arm * problem.n_values : (arm + 1) * problem.n_values]
    choices = itertools.product(range(len(later)), repeat=problem.n_values)
    return [problem.means[arm] + sum(own[z] * later[k] for z, k in enumerate(choice)) for choice in choices]


@pytest.mark.parametrize("seed", range(6))
def test_a_backup_is_the_best_plan_that_begins_with_a_candidate(seed):
    rng = generator(seed)
    bandit, _ = small_bandit(seed)
    problem = Problem.of(bandit, 3)
    beliefs = rng.dirichlet(np.ones(len(problem.weights)), size=4)
    later = rng.normal(size=(3, len(problem.weights)))
    candidates = rng.integers(problem.n_arms, size=(4, 2))
    low = np.full((1, len(problem.weights)), -1e6)
    together, _ = backup(problem, 3, beliefs, candidates, later, low, precision=np.float64)
    for belief, tried in zip(beliefs, candidates, strict=True):
        plans = [plan for arm in tried for plan in all_plans(problem, int(arm), later)]
        (vector,), (arm,) = backup(problem, 3, belief[None], tried[None], later, low, precision=np.float64)
        assert vector @ belief == pytest.approx(max(plan @ belief for plan in plans), abs=1e-12)
        assert arm in tried
        assert min(np.abs(plan - vector).max() for plan in all_plans(problem, int(arm), later)) < 1e-12
        assert np.abs(together - vector).max(axis=1).min() < 1e-12


def test_what_is_known_already_is_not_found_again():
    problem = Problem.of(LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]]), 3)
    later, beliefs = problem.means, np.array([[0.5, 0.5], [0.5, 0.5], [0.9, 0.1]])
    candidates = np.tile([0, 1], (3, 1))
    nothing = np.full((1, 2), -1e6)
    vectors, arms = backup(problem, 3, beliefs, candidates, later, nothing)
    assert len(np.unique(vectors, axis=0)) == len(vectors) == len(arms)
    again, _ = backup(problem, 3, beliefs, candidates, later, vectors)
    assert len(again) == 0


@pytest.mark.parametrize("seed", range(4))
def test_the_quick_lookahead_is_a_lookahead(seed):
    """Three arms are few enough for all of them to be ends: then only single precision tells them apart."""
    bandit, _ = small_bandit(seed)
    problem = Problem.of(bandit, 4)
    beliefs = generator(seed).dirichlet(np.ones(len(problem.weights)), size=7).astype(np.float32)
    quick = QuickLookahead.of(problem)
    for remaining in (1, 2, 4):
        expected = lookahead_values(problem, beliefs.astype(float), remaining, 1)
        np.testing.assert_allclose(quick.values(beliefs, remaining), expected, atol=1e-4 * problem.scale)


def test_observations_follow_the_type(rng):
    problem = Problem.of(LatentBandit.categorical([0.5, 0.5], [[[0.2, 0.3, 0.5]], [[0.6, 0.0, 0.4]]], [0, 1, 2]), 2)
    types = np.repeat([0, 1], 20_000)
    codes = observe(problem, 2, types, np.zeros(40_000, int), rng)
    for type_ in (0, 1):
        shares = np.bincount(codes[types == type_], minlength=3) / 20_000
        np.testing.assert_allclose(shares, problem.table[:, type_], atol=0.015)


@pytest.mark.parametrize("seed", range(3))
def test_rounds_never_promise_more_than_the_optimum_and_come_near(seed):
    bandit, _ = small_bandit(seed)
    problem = Problem.of(bandit, 3)
    sets = fixed_arms(problem)
    assert [len(arms) for _, arms in sets] == [len(problem.last_arms)] * 3
    np.testing.assert_allclose(sets[2][0], 3 * problem.means[problem.last_arms])
    rounds = Rounds(problem, generator(seed), lambda: False)
    for _ in range(3):
        sets = [join(old, new) for old, new in zip(sets, rounds.run(sets, 50), strict=True)]
    optimum = lookahead_values(problem, problem.weights[None], 3, 2).max()
    found = float((sets[-1][0] @ problem.weights).max())
    assert found <= optimum + 1e-9
    assert found >= optimum - 0.02 * problem.scale
    assert all(len(new[1]) == 0 for new in Rounds(problem, generator(seed), lambda: True).run(sets, 50))


def test_rounds_stop_between_steps_when_told():
    problem = Problem.of(random_bandit(3, 6, kind="hard", rng=generator(1)), 4)
    asked: list[int] = []

    def stop() -> bool:  # once the beliefs are visited, after one backup
        asked.append(1)
        return len(asked) > problem.horizon

    found = Rounds(problem, generator(0), stop).run(fixed_arms(problem), 20)
    assert len(found[1][1]) > 0
    assert [len(arms) for _, arms in found[2:]] == [0, 0]
    assert all(
        len(arms) > 0 for _, arms in Rounds(problem, generator(0), lambda: False).run(fixed_arms(problem), 20)[1:]
    )


def test_of_many_arms_those_are_planned_with_that_pay_or_tell(monkeypatch):
    problem = Problem.of(random_bandit(4, 300, kind="hard", rng=3), 5)
    np.testing.assert_array_equal(useful_arms(problem), np.arange(300))
    monkeypatch.setattr(backups, "_MANY", 299)
    monkeypatch.setattr(backups, "_FEW", 20)
    arms = useful_arms(problem)
    assert len(arms) == 20
    assert (np.diff(arms) > 0).all()
    at_start = np.argsort(-(problem.means @ problem.weights), kind="stable")[:5]
    assert np.isin(at_start, arms).all()  # a fixed sequence needs them
    assert np.isin(problem.means.argmax(axis=0), arms).all()  # the best of every type
    telling = np.argsort(-np.ptp(problem.means, axis=1))[:4]
    assert np.isin(telling, arms).all()


def test_a_long_session_without_repeats_has_arms_enough(monkeypatch):
    monkeypatch.setattr(backups, "_MANY", 50)
    monkeypatch.setattr(backups, "_FEW", 4)
    assert len(useful_arms(Problem.of(random_bandit(2, 60, rng=0), 9))) == 18


def test_plans_with_few_of_many_arms_are_plans_for_all(monkeypatch):
    """Vectors keep the arms' own numbers, and promise no more than the optimum."""
    problem = Problem.of(random_bandit(3, 40, rng=5), 4)
    monkeypatch.setattr(backups, "_MANY", 39)
    monkeypatch.setattr(backups, "_FEW", 12)
    sets, rounds = fixed_arms(problem), Rounds(problem, generator(0), lambda: False)
    assert rounds.problem.n_arms == 12
    found = rounds.run(sets, 40)
    used = np.unique(np.concatenate([arms for _, arms in found]))
    assert np.isin(used, useful_arms(problem)).all()
    for remaining, (vectors, arms) in enumerate(found, start=1):
        later = join(sets[remaining - 2], found[remaining - 2])[0] if remaining > 1 else np.zeros((1, 3))
        for vector, arm in zip(vectors, arms, strict=True):  # each is its own arm, then a later plan after each value
            own = problem.table[2 * arm : 2 * arm + 2]
            plans = [problem.means[arm] + own[0] * a + own[1] * b for a in later for b in later]
            assert min(np.abs(plan - vector).max() for plan in plans) < 1e-9


@pytest.mark.parametrize("n_ends", [1, 2, 7])
def test_the_largest_of_a_short_axis_is_that_of_numpy(n_ends):
    array = np.random.default_rng(n_ends).normal(size=(5, 4, n_ends)).astype(np.float32)
    before = array.copy()
    np.testing.assert_array_equal(largest(array), before.max(axis=2))
    np.testing.assert_array_equal(array, before)


def test_other_priors_are_like_those_of_the_people(rng):
    weights, shares = np.array([0.5, 0.3, 0.15, 0.05]), np.full(400, 1 / 400)
    priors = rng.dirichlet(6 * weights, 400)
    drawn = backups.priors_like(priors, shares, 4000, rng)
    np.testing.assert_allclose(drawn.sum(axis=1), 1)
    assert (drawn > 0).all()
    np.testing.assert_allclose(drawn.mean(axis=0), weights, atol=0.02)
    assert drawn.var(axis=0).sum() == pytest.approx(priors.var(axis=0).sum(), rel=0.1)
    same = backups.priors_like(np.tile(weights, (20, 1)), np.full(20, 0.05), 50, rng)
    np.testing.assert_allclose(same, np.tile(weights, (50, 1)), atol=1e-4)


@pytest.mark.parametrize(("n_priors", "others"), [(16, 0), (20, 280)])
def test_sessions_of_many_priors_also_begin_at_others(n_priors, others, rng):
    bandit = random_bandit(3, 4, kind="ordinary", rank=2, rng=rng)
    priors = rng.dirichlet(np.full(3, 2.0), n_priors)
    problem = Problem.of(bandit, 3, priors=priors, shares=np.full(n_priors, 1 / n_priors))
    beliefs, numbers = Rounds(problem, rng, lambda: False)._starts(15 * n_priors)
    assert len(beliefs) == len(numbers) == 15 * n_priors
    own = (np.abs(beliefs[:, None] - priors).max(axis=2) < 1e-12).any(axis=1)
    assert (~own).sum() == others
    assert all((np.abs(beliefs - prior).max(axis=1) < 1e-12).any() for prior in priors)
