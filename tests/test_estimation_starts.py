"""Where EM starts from: clusters, softened models, valid models, and which starts go on."""

from __future__ import annotations

import numpy as np
import pytest

import lmab
from lmab.estimation import observe
from lmab.estimation.em import EM
from lmab.estimation.objective import Likelihood
from lmab.estimation.passes import SERIAL
from lmab.estimation.request import StopOnce
from lmab.estimation.squarem import climb
from lmab.estimation.starts import cluster, draw_starts


class Dice:
    """A generator that draws the given numbers."""

    def __init__(self, *draws):
        self.draws = list(draws)

    def random(self):
        return self.draws.pop(0)


@pytest.fixture
def data(rng):
    bandit = lmab.LatentBandit.categorical([0.4, 0.6], rng.dirichlet(np.ones(3), size=(2, 4)), [0.0, 1.0, 2.0])
    return observe(lmab.simulate(bandit, lmab.Uniform(4), n_episodes=300, horizon=5, rng=rng))


def test_centres_are_drawn_by_squared_distance(monkeypatch):
    """From 0, the chances of 1 and 3 are 1 : 9; the number .15 of the second draw belongs to 3."""
    monkeypatch.setattr("lmab.estimation.starts._LLOYD", 1)
    labels = cluster(np.array([[0.0], [1.0], [3.0]]), np.ones(3), 2, Dice(0.0, 0.15))
    assert labels.tolist() == [0, 0, 1]
    labels = cluster(np.array([[0.0], [1.0], [3.0]]), np.ones(3), 2, Dice(0.0, 0.09))
    assert labels.tolist() == [0, 1, 1]


def test_centres_are_drawn_by_multiplicity(monkeypatch):
    monkeypatch.setattr("lmab.estimation.starts._LLOYD", 1)
    labels = cluster(np.array([[0.0], [1.0], [3.0]]), np.array([1.0, 90.0, 1.0]), 2, Dice(0.0, 0.15))
    assert labels.tolist() == [0, 1, 1]


def test_means_of_clusters_are_weighted():
    """Centres start at 0 and 10; the heavy 4 draws the first centre to 3.96, and so 5.9 over to it."""
    features = np.array([[0.0], [4.0], [5.9], [10.0]])
    heavy = cluster(features, np.array([1.0, 100.0, 1.0, 1.0]), 2, Dice(0.0, 0.999))
    light = cluster(features, np.ones(4), 2, Dice(0.0, 0.999))
    assert heavy.tolist() == [0, 0, 0, 1]
    assert light.tolist() == [0, 0, 1, 1]


def test_a_clustered_model_has_smoothed_frequencies(rng):
    log = lmab.Episodes.from_arrays([[0, 1], [0, 1], [0, 0]], [[0.0, 1.0], [1.0, 1.0], [1.0, 0.0]])
    data = observe(log)
    assert data.n_distinct == 3
    model = data.start_models.clustered(np.array([0, 1, 1]), 2)
    bandit = data.models.bandit(model[0], 2)
    np.testing.assert_allclose(bandit.weights, [1 / 3, 2 / 3])
    marginal = np.array([0.5, 0.5])  # of arm 0; five pseudo-plays of it
    np.testing.assert_allclose(bandit.rewards.probabilities[0, 0], (np.array([1, 0]) + 5 * marginal) / 6)
    np.testing.assert_allclose(bandit.rewards.probabilities[1, 0], (np.array([1, 2]) + 5 * marginal) / 8)


def test_softened_models_exclude_nothing_that_the_log_holds(data):
    sure = np.zeros((2, 4, 3))
    sure[:, :, 0] = 1.0
    model = data.models.pack(lmab.LatentBandit.categorical([0.5, 0.5], sure, [0.0, 1.0, 2.0]))
    soft = data.start_models.soften(model)
    assert data.em_map(data.prior(0.0)).expectation(model, SERIAL)[1][0] == -np.inf
    assert np.isfinite(data.em_map(data.prior(0.0)).expectation(soft, SERIAL)[1][0])
    expected = 0.98 * sure + 0.02 * data.log.marginals
    np.testing.assert_allclose(data.models.bandit(soft[0], 2).rewards.probabilities, expected, rtol=1e-12)


def test_a_reward_that_the_sample_of_the_starts_misses_is_not_impossible(monkeypatch, rng):
    """One episode of 400 paid a 7, and the starts compete on 60 others."""
    monkeypatch.setattr("lmab.estimation.em._PILOT", 60)
    monkeypatch.setattr("lmab.estimation.em._PILOT_PER_PARAMETER", 0)
    bandit = lmab.random_bandit(2, 30, rng=rng)
    log = lmab.simulate(bandit, lmab.Uniform(30), n_episodes=400, horizon=6, rng=rng)
    rewards = log.rewards.copy()
    rewards[5] = 7.0
    log = lmab.Episodes(log.actions, rewards, log.offsets, 30)
    for seed in range(3):
        fit = lmab.estimate(log, n_contexts=2, method=EM(restarts=4), rng=seed)
        assert np.isfinite(fit.trace).all()


@pytest.mark.parametrize("family", ["categorical", "gaussian"])
def test_extrapolations_are_made_valid(family, data, rng):
    if family == "gaussian":
        data = observe(data.episodes, rewards="gaussian")
    near = data.start_models.random(2, 3, rng)
    em_map = data.em_map(data.prior(0.0))
    repaired = em_map.repair(-near, near)
    np.testing.assert_allclose(repaired[:, 0].sum(axis=1), 1)
    assert (repaired[:, 0, :3] > 0).all()
    for model in repaired:
        data.models.bandit(model, 3)  # raises where it is not one
    if family == "gaussian":
        np.testing.assert_array_equal(repaired[:, -1], 0.5 * near[:, -1])
    trial = near.copy()
    trial[:, 0, :2] = [-1.0, 0.98]
    weights = em_map.repair(trial, near)[0, 0, :3]
    np.testing.assert_allclose(weights, np.array([0.02 / 3, 0.98, 1 / 3]) / (0.02 / 3 + 0.98 + 1 / 3), rtol=1e-12)


def test_a_probability_shrinks_to_a_fiftieth_at_most(data):
    near = data.models.pack(lmab.LatentBandit.categorical([1.0], [[[0.2, 0.3, 0.5]] * 4], [0.0, 1.0, 2.0]))
    trial = near.copy()
    trial[0, 1, 0] = -1.0
    found = data.em_map(data.prior(0.0)).repair(trial, near)[0, 1:4, 0]
    np.testing.assert_allclose(found, np.array([0.004, 0.3, 0.5]) / 0.804, rtol=1e-12)


def test_the_better_starts_go_on(data, rng):
    task = Likelihood(data, 2, data.prior(1.0), SERIAL)
    models = data.start_models.random(8, 2, rng)
    method = EM(accelerate=False)
    way = method._compete(task, models, 1, (2, 3), StopOnce())
    first = climb(task, models, left=0.0, max_maps=2, accelerate=False)
    halved = first.models[np.argsort(-first.objectives)[:4]]
    second = climb(task, halved, left=0.0, max_maps=3, accelerate=False)
    assert len(way.models) == 2
    np.testing.assert_allclose(way.objectives, np.sort(second.objectives)[:1:-1], rtol=1e-12)


def test_starts_are_valid_and_differ(data, rng):
    models = draw_starts(data, 2, 8, rng)
    assert len(models) == 8
    bandits = [data.models.bandit(model, 2) for model in models]
    assert len({bandit.means.tobytes() for bandit in bandits}) > 5  # clusters may coincide
    logs = data.em_map(data.prior(0.0)).expectation(models, SERIAL)[1]
    assert np.isfinite(logs).all()
