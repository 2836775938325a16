"""Where EM starts from: clusters, softened models, valid models, and which starts go on."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lmab
from lmab.estimation import climb as climb_module
from lmab.estimation.climb import Likelihood, climb, cluster, draw_starts, spectral_features
from lmab.estimation.em import EM
from lmab.estimation.families import observe
from lmab.estimation.result import StopOnce
from lmab.parallel import SERIAL


class Dice:
    """A generator that draws the given numbers."""

    def __init__(self, *draws):
        self.draws = list(draws)

    def random(self):
        return self.draws.pop(0)


@pytest.fixture
def data(rng):
    bandit = lmab.LatentBandit.categorical([0.4, 0.6], rng.dirichlet(np.ones(3), size=(2, 4)), [0.0, 1.0, 2.0])
    return observe(lmab.simulate(bandit, lmab.Uniform(4), n_sessions=300, horizon=5, rng=rng))


def test_centres_are_drawn_by_squared_distance(monkeypatch):
    """From 0, the chances of 1 and 3 are 1 : 9; the number .15 of the second draw belongs to 3."""
    monkeypatch.setattr("lmab.estimation.climb._LLOYD", 1)
    labels = cluster(np.array([[0.0], [1.0], [3.0]]), np.ones(3), 2, Dice(0.0, 0.15))
    assert labels.tolist() == [0, 0, 1]
    labels = cluster(np.array([[0.0], [1.0], [3.0]]), np.ones(3), 2, Dice(0.0, 0.09))
    assert labels.tolist() == [0, 1, 1]


def test_centres_are_drawn_by_multiplicity(monkeypatch):
    monkeypatch.setattr("lmab.estimation.climb._LLOYD", 1)
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
    log = lmab.Sessions.from_arrays([[0, 1], [0, 1], [0, 0]], [[0.0, 1.0], [1.0, 1.0], [1.0, 0.0]])
    data = observe(log)
    assert data.n_distinct == 3
    model = data.clustered(np.array([0, 1, 1]), 2)
    bandit = data.bandit(model[0], 2)
    np.testing.assert_allclose(bandit.weights, [1 / 3, 2 / 3])
    marginal = np.array([0.5, 0.5])  # of arm 0; five pseudo-plays of it
    np.testing.assert_allclose(bandit.rewards.probabilities[0, 0], (np.array([1, 0]) + 5 * marginal) / 6)
    np.testing.assert_allclose(bandit.rewards.probabilities[1, 0], (np.array([1, 2]) + 5 * marginal) / 8)


def test_softened_models_exclude_nothing_that_the_log_holds(data):
    sure = np.zeros((2, 4, 3))
    sure[:, :, 0] = 1.0
    model = data.pack(lmab.LatentBandit.categorical([0.5, 0.5], sure, [0.0, 1.0, 2.0]))
    soft = data.soften(model)
    assert data.expectation(model, SERIAL)[1][0] == -np.inf
    assert np.isfinite(data.expectation(soft, SERIAL)[1][0])
    expected = 0.98 * sure + 0.02 * data.marginals
    np.testing.assert_allclose(data.bandit(soft[0], 2).rewards.probabilities, expected, rtol=1e-12)


def test_a_reward_that_the_sample_of_the_starts_misses_is_not_impossible(monkeypatch, rng):
    """One session of 400 paid a 7, and the starts compete on 60 others."""
    monkeypatch.setattr("lmab.estimation.em._PILOT", 60)
    monkeypatch.setattr("lmab.estimation.em._PILOT_PER_PARAMETER", 0)
    bandit = lmab.random_bandit(2, 30, rng=rng)
    log = lmab.simulate(bandit, lmab.Uniform(30), n_sessions=400, horizon=6, rng=rng)
    rewards = log.rewards.copy()
    rewards[5] = 7.0
    log = lmab.Sessions(log.arms, rewards, log.offsets, 30)
    for seed in range(3):
        fit = lmab.fit(log, n_types=2, method=EM(restarts=4, prior=0.0), rng=seed)
        assert np.isfinite(fit.trace).all()


@pytest.mark.parametrize("family", ["categorical", "gaussian"])
def test_extrapolations_are_made_valid(family, data, rng):
    if family == "gaussian":
        data = observe(data.sessions, rewards="gaussian")
    near = data.random_models(2, 3, rng)
    repaired = data.repair(-near, near)
    np.testing.assert_allclose(repaired[:, 0].sum(axis=1), 1)
    assert (repaired[:, 0, :3] > 0).all()
    for model in repaired:
        data.bandit(model, 3)  # raises where it is not one
    if family == "gaussian":
        np.testing.assert_array_equal(repaired[:, -1], 0.5 * near[:, -1])
    trial = near.copy()
    trial[:, 0, :2] = [-1.0, 0.98]
    weights = data.repair(trial, near)[0, 0, :3]
    np.testing.assert_allclose(weights, np.array([0.02 / 3, 0.98, 1 / 3]) / (0.02 / 3 + 0.98 + 1 / 3), rtol=1e-12)


def test_a_probability_shrinks_to_a_fiftieth_at_most(data):
    near = data.pack(lmab.LatentBandit.categorical([1.0], [[[0.2, 0.3, 0.5]] * 4], [0.0, 1.0, 2.0]))
    trial = near.copy()
    trial[0, 1, 0] = -1.0
    found = data.repair(trial, near)[0, 1:4, 0]
    np.testing.assert_allclose(found, np.array([0.004, 0.3, 0.5]) / 0.804, rtol=1e-12)


def test_the_better_starts_go_on(data, rng):
    task = Likelihood(data, 2, data.prior(1.0), SERIAL)
    models = data.random_models(8, 2, rng)
    method = EM(accelerate=False, prior=0.0)
    way = method._compete(task, models, 1, (2, 3), StopOnce())
    first = climb(task, models, left=0.0, max_maps=2, accelerate=False)
    halved = first.models[np.argsort(-first.objectives)[:4]]
    second = climb(task, halved, left=0.0, max_maps=3, accelerate=False)
    assert len(way.models) == 2
    np.testing.assert_allclose(way.objectives, np.sort(second.objectives)[:1:-1], rtol=1e-12)


def test_starts_are_valid_and_differ(data, rng):
    models = draw_starts(data, 2, 8, rng)
    assert len(models) == 8
    bandits = [data.bandit(model, 2) for model in models]
    assert len({bandit.means.tobytes() for bandit in bandits}) > 5  # clusters may coincide
    logs = data.expectation(models, SERIAL)[1]
    assert np.isfinite(logs).all()


@given(st.integers(1, 4), st.integers(2, 30), st.integers(0, 2**32 - 1))
def test_a_session_seen_twice_counts_twice(n_clusters, n_points, seed):
    """Weights and copies are the same to every step of the clustering."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n_points, 2)) * [3.0, 1.0]
    copies = rng.integers(1, 9, size=n_points)
    once = cluster(features, copies.astype(float), n_clusters, np.random.default_rng(seed))
    every = cluster(np.repeat(features, copies, axis=0), np.ones(copies.sum()), n_clusters, np.random.default_rng(seed))
    np.testing.assert_array_equal(np.repeat(once, copies), every)


@given(st.integers(2, 4), st.integers(5, 40), st.integers(0, 2**32 - 1))
def test_lloyd_ends_where_every_point_is_nearest_to_its_own_mean(n_clusters, n_points, seed):
    rng = np.random.default_rng(seed)
    features, sizes = rng.normal(size=(n_points, 2)), rng.integers(1, 5, size=n_points).astype(float)
    labels = cluster(features, sizes, n_clusters, rng)
    used = np.unique(labels)
    means = np.array([np.average(features[labels == k], axis=0, weights=sizes[labels == k]) for k in used])
    distances = ((features[:, None] - means) ** 2).sum(axis=2)
    own = distances[np.arange(n_points), np.searchsorted(used, labels)]
    np.testing.assert_allclose(own, distances.min(axis=1), atol=1e-12)


def test_more_clusters_than_points_do_no_harm(rng):
    labels = cluster(np.zeros((3, 1)), np.ones(3), 5, rng)
    assert labels.shape == (3,)
    assert (labels == labels[0]).all()


def test_spectral_features_tell_separated_types_apart(rng, monkeypatch):
    likely = np.tile([0.95, 0.05], 6)
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [likely, 1 - likely])
    types = np.repeat([0, 1], 200)
    arms = rng.integers(12, size=(400, 6))
    rewards = bandit.rewards.sample(np.repeat(types, 6), arms.ravel(), rng=rng).reshape(400, 6)
    data = observe(lmab.Sessions.from_arrays(arms, rewards))
    assert data.n_distinct == 400  # nothing was merged, so rows are sessions
    feature = spectral_features(data, 1)[:, 0]
    assert abs(np.corrcoef(feature, types)[0, 1]) > 0.9
    monkeypatch.setattr(climb_module, "_DENSE", 2)
    lean = spectral_features(data, 1)[:, 0]
    assert abs(np.corrcoef(lean, feature)[0, 1]) > 0.999


def test_half_of_the_starts_are_clusters_and_the_others_are_random(rng, monkeypatch):
    data = observe(lmab.simulate(lmab.random_bandit(2, 4, rng=rng), lmab.Uniform(4), n_sessions=80, horizon=3, rng=rng))
    clustered: list[int] = []

    def noted(*arguments, **keywords):
        clustered.append(1)
        return cluster(*arguments, **keywords)

    monkeypatch.setattr(climb_module, "cluster", noted)
    for n_types, n_starts, expected in ((2, 7, 4), (2, 2, 1), (1, 3, 0)):  # one type: nothing to separate
        clustered.clear()
        assert len(draw_starts(data, n_types, n_starts, rng)) == n_starts
        assert len(clustered) == expected


def test_every_centre_is_a_new_point(monkeypatch):
    """A point at a centre has no chance left: three points give three centres, whatever is drawn."""
    monkeypatch.setattr("lmab.estimation.climb._LLOYD", 1)
    features = np.array([[0.0], [10.0], [11.0]])
    for seed in range(200):
        labels = cluster(features, np.ones(3), 3, np.random.default_rng(seed))
        assert sorted(labels.tolist()) == [0, 1, 2]


def test_spectral_features_are_those_of_pairs_of_different_steps(rng):
    """By loops: the second moment over ordered pairs of different steps, centred by the arms' frequencies."""
    log = lmab.simulate(lmab.random_bandit(2, 3, rng=rng), lmab.Uniform(3), n_sessions=60, horizon=2, rng=rng)
    data = observe(log)
    pairs = np.zeros((6, 6))
    for session in log:
        codes = session.arms * 2 + session.rewards.astype(int)
        for s, t in itertools.permutations(range(2), 2):
            pairs[codes[s], codes[t]] += 1
    codes = log.arms * 2 + log.rewards.astype(int)
    shares = np.array([np.mean(codes[log.arms == code // 2] == code) for code in range(6)])
    centre = np.eye(6) - np.kron(np.eye(3), np.ones((2, 2))) * shares
    moment = centre @ pairs @ centre
    vectors = np.linalg.eigh((moment + moment.T) / 2)[1]
    sums = data.features()[0].toarray()
    expected = sums @ centre @ vectors[:, -1]
    found = spectral_features(data, 1)[:, 0]
    np.testing.assert_allclose(found * np.sign(found @ expected), expected, atol=1e-9)
