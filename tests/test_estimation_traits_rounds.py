"""The rounds of a traits fit: regressions, the law of arms, parameter expansion, the evidence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp
from seeds import generator

import lmab
from lmab.estimation.families import observe
from lmab.estimation.traits import rounds
from lmab.estimation.traits.rounds import (
    NO_PRECISION,
    Plain,
    TraitsTask,
    _expanded,
    _law_learned,
    evidence,
    first_arms,
    learned_round,
    regressed,
    start_loadings,
)
from lmab.estimation.traits.surface import Points, TraitArms
from lmab.parallel import SERIAL

POINTS = Points.of(1, 9)


def small(seed: int = 0, n: int = 200, n_arms: int = 4) -> TraitsTask:
    rng = generator(seed)
    arms = rng.integers(n_arms - 1, size=(n, 4))  # the last arm is never played
    logits = np.linspace(-1, 1, n_arms)[arms] + rng.normal(size=(n, 1))
    rewards = (rng.random(arms.shape) < 1 / (1 + np.exp(-logits))) * 1.0
    return TraitsTask(observe(lmab.Sessions.from_arrays(arms, rewards, n_arms=n_arms)), SERIAL)


def marginal(task: TraitsTask, parameters: np.ndarray) -> float:
    """The log-likelihood by its definition."""
    log = task.log.sessions
    logits = parameters[:, 0] + POINTS.places @ parameters[:, 1:].T
    logs = np.where(
        log.rewards[:, None] == 1, -np.logaddexp(0, -logits.T[log.arms]), -np.logaddexp(0, logits.T[log.arms])
    )
    return float(logsumexp(np.add.reduceat(logs, log.offsets[:-1]) + np.log(POINTS.weights), axis=1).sum())


def arms_of(task: TraitsTask, variance: float = 0.5) -> TraitArms:
    first = first_arms(task.log, 1)
    return replace(first, centre=np.array([0.3, 0.7]), variance=np.array([1.0, variance]))


def test_the_expectation_is_that_of_the_definition():
    task = small()
    arms = arms_of(task)
    _, found = task.expectation(arms, POINTS)
    assert found == pytest.approx(marginal(task, arms.parameters), rel=1e-12)


def test_rounds_without_learning_reach_the_maximum_a_posteriori():
    task = small()
    arms = arms_of(task)

    def minus(flat: np.ndarray) -> float:
        parameters = flat.reshape(4, 2)
        return -marginal(task, parameters) + 0.5 * float(((parameters - arms.centre) ** 2 / arms.variance).sum())

    best = minimize(minus, arms.parameters.ravel(), tol=1e-10)
    for _ in range(150):
        statistics, _ = task.expectation(arms, POINTS)
        arms = regressed(task.surface, statistics, arms, POINTS, 3)
    np.testing.assert_allclose(arms.parameters.ravel(), best.x, atol=2e-4)
    np.testing.assert_allclose(arms.parameters[3], arms.centre, atol=1e-9)  # never played
    np.testing.assert_allclose(arms.covariance[3], np.diag(arms.variance), atol=1e-9)


def test_a_shift_common_to_all_arms_moves_the_law_with_them():
    task = small()
    arms = replace(arms_of(task), centre=np.array([-1.0, 0.7]), variance=np.array([1e-4, 1e-4]))
    arms = replace(arms, parameters=np.tile(arms.centre, (4, 1)))
    after, objective = learned_round(task, arms, POINTS, expand=False, learn=False)
    assert after.centre[0] > -0.7  # a law as narrow as this would hold single arms back for ever
    np.testing.assert_allclose(after.parameters[3], after.centre, atol=1e-6)
    assert objective == pytest.approx(evidence(arms, task.expectation(arms, POINTS)[1]))


def test_the_law_is_that_of_the_arms_that_were_played():
    task = small()
    parameters = np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 1.6], [50.0, 50.0]])
    covariance = np.tile(np.diag([0.3, 0.1]), (4, 1, 1))
    covariance[3] = 100 * np.eye(2)
    law = _law_learned(task.surface, TraitArms(parameters, covariance, np.zeros(2), np.ones(2)))
    np.testing.assert_allclose(law.centre, [1.0, 1.2])
    np.testing.assert_allclose(law.variance, [2 / 3 + 0.3, 0.08 + 0.1])


def test_expansion_describes_the_same_arms_in_other_factors():
    rng = generator(3)
    values = [0.0, 1.0, 3.0]
    log = lmab.Sessions.from_arrays(rng.integers(3, size=(50, 4)), rng.choice(values, (50, 4)), n_arms=3)
    surface = observe(log, values=values).surface
    points = Points.of(2, 25)
    arms = TraitArms(rng.normal(size=(3, 4)), np.zeros((3, 4, 4)), rng.normal(size=4), np.ones(4))
    mass = rng.gamma(2.0, size=25)
    after = _expanded(surface, mass, arms, points)
    share = mass / mass.sum()
    mean = share @ points.places
    root = np.linalg.cholesky((points.places - mean).T @ ((points.places - mean) * share[:, None]))
    moved = Points((points.places - mean) @ np.linalg.inv(root).T, points.weights)  # u = mean + root u'
    one, other = (surface.model(each.parameters, 1.0, where) for each, where in ((arms, points), (after, moved)))
    np.testing.assert_allclose(one, other, atol=1e-5)


def test_the_evidence_of_normal_rewards_is_exact():
    """Without factors each arm is a normal mean under a normal law, whose marginal likelihood is known."""
    rng = generator(4)
    rewards = rng.normal(size=(30, 2))
    task = TraitsTask(
        observe(lmab.Sessions.from_arrays(np.tile([0, 1], (30, 1)), rewards), rewards="gaussian", scale=1.0), SERIAL
    )
    points = Points.of(0, 1)
    arms = replace(first_arms(task.log, 0), centre=np.array([0.2]), variance=np.array([0.5]))
    statistics, _ = task.expectation(arms, points)
    arms = regressed(task.surface, statistics, arms, points, 2)
    found = evidence(arms, task.expectation(arms, points)[1])
    covariance = np.eye(30) + 0.5
    rest = rewards - rewards.mean() - 0.2
    expected = -0.5 * np.einsum("ia,ij,ja->", rest, np.linalg.inv(covariance), rest)
    expected -= np.linalg.slogdet(2 * np.pi * covariance)[1]
    assert found == pytest.approx(expected, rel=1e-9)


def test_the_plain_map_climbs_and_packs_what_it_unpacks():
    task = small()
    first = replace(arms_of(task), centre=np.zeros(2), variance=np.full(2, 1 / NO_PRECISION))
    ascent = Plain(task, POINTS, first)
    model, last = ascent.pack(first), -np.inf
    np.testing.assert_array_equal(ascent.unpack(model[0]).parameters, first.parameters)
    for _ in range(20):
        (objective,), model = ascent.map(model)
        assert objective >= last - 1e-9
        last = objective
    assert ascent.log is task.log
    assert (ascent.repair(-np.ones((1, 3, 4)), np.ones((1, 3, 4)))[0, -1] == 0.5).all()


def test_covariances_are_those_of_pairs_of_different_steps(rng):
    arms, rewards = rng.integers(4, size=(60, 3)), rng.integers(2, size=(60, 3)) * 1.0
    data = observe(lmab.Sessions.from_arrays(arms, rewards, n_arms=4), values=[0.0, 1.0])
    sums, plays, unit = data.surface.deviations()
    found = rounds._covariance(sums, plays, data.multiplicity)
    mean = np.array([(rewards[arms == a].sum() + rewards.mean()) / ((arms == a).sum() + 1) for a in range(4)])
    for a in range(4):
        for b in range(a):
            products = [
                (rewards[i, t] - mean[a]) * (rewards[i, u] - mean[b])
                for i in range(60) for t in range(3) for u in range(3) if arms[i, t] == a and arms[i, u] == b
            ]  # fmt: skip
            assert np.isclose(found[a, b], sum(products) / (len(products) + 5))
    np.testing.assert_allclose(unit, np.maximum(mean * (1 - mean), 0.05))


def test_merged_sessions_count_as_often_as_they_came(rng):
    arms = np.tile([0, 1, 2], (600, 1))
    rewards = (rng.random((600, 3)) < 1 / (1 + np.exp(-2 * rng.normal(size=(600, 1))))) * 1.0
    log = lmab.Sessions.from_arrays(arms, rewards)
    data = observe(log)
    assert data.n_distinct == 8
    centred = rewards - (rewards.sum(axis=0) + rewards.mean()) / 601
    expected = (centred.T @ centred / 605)[0, 1]
    found = rounds._covariance(*data.surface.deviations()[:2], data.multiplicity)
    assert np.isclose(found[0, 1], expected)


def test_the_diagonal_is_filled_in_from_the_leading_directions(rng):
    loadings = rng.normal(size=(30, 2))
    matrix = loadings @ loadings.T + np.diag(rng.uniform(5, 20, 30))  # noise of single plays
    found = rounds._leading(matrix.copy(), 2)
    error = found @ found.T - loadings @ loadings.T
    assert np.abs(error).max() < 0.35 * np.abs(loadings @ loadings.T).max()
    assert (error**2).mean() < 0.02 * ((loadings @ loadings.T) ** 2).mean()


def test_many_arms_have_the_same_directions_as_few(rng, monkeypatch):
    matrix = rng.normal(size=(30, 30))
    matrix = matrix @ matrix.T
    dense = rounds._eigen(matrix, 3)
    monkeypatch.setattr(rounds, "_DENSE", 10)
    sparse = rounds._eigen(matrix, 3)
    np.testing.assert_allclose(dense[0], sparse[0])
    np.testing.assert_allclose(np.abs(dense[1]), np.abs(sparse[1]), atol=1e-8)


def test_only_the_most_played_arms_start_with_loadings(rng, monkeypatch):
    arms = np.column_stack([rng.integers(4, size=300), rng.integers(2, 6, size=300)])
    log = lmab.Sessions.from_arrays(arms, rng.integers(2, size=(300, 2)) * 1.0, n_arms=6)
    monkeypatch.setattr(rounds, "_MOST", 2)
    loadings = start_loadings(observe(log), 3)
    assert loadings.shape == (6, 3)
    assert np.flatnonzero(loadings.any(axis=1)).tolist() == np.sort(np.argsort(-np.bincount(arms.ravel()))[:2]).tolist()
    assert (loadings.sum(axis=0) >= 0).all()
