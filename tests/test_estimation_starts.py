"""Where EM starts from: k-means++ with weights, and the spectral features that it works on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lmab
from lmab.estimation import observe, starts
from lmab.estimation.starts import cluster, draw_starts, spectral_features


def test_centres_are_drawn_by_squared_distance(monkeypatch):
    """The first centre is at 0 all but surely; the second at 3 with probability 9 / (1 + 9), not 3 / (1 + 3)."""
    monkeypatch.setattr(starts, "_LLOYD", 1)  # the labels are then those of the centres as drawn
    features, sizes = np.array([[0.0], [1.0], [3.0]]), np.array([1e9, 1.0, 1.0])
    rng = np.random.default_rng(0)
    far = [cluster(features, sizes, 2, rng).tolist() == [0, 0, 1] for _ in range(4000)]
    assert np.mean(far) == pytest.approx(0.9, abs=0.02)  # four standard errors


def test_centres_are_drawn_by_multiplicity(monkeypatch):
    """Points at the same distance from the first centre: one stands for three times as many sessions."""
    monkeypatch.setattr(starts, "_LLOYD", 1)
    features, sizes = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), np.array([1e9, 3.0, 1.0])
    rng = np.random.default_rng(0)
    heavy = [cluster(features, sizes, 2, rng).tolist() == [0, 1, 0] for _ in range(4000)]
    assert np.mean(heavy) == pytest.approx(0.75, abs=0.03)


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


def test_spectral_features_tell_separated_contexts_apart(rng, monkeypatch):
    likely = np.tile([0.95, 0.05], 6)
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [likely, 1 - likely])
    contexts = np.repeat([0, 1], 200)
    arms = rng.integers(12, size=(400, 6))
    rewards = bandit.rewards.sample(np.repeat(contexts, 6), arms.ravel(), rng=rng).reshape(400, 6)
    data = observe(lmab.Episodes.from_arrays(arms, rewards))
    assert data.n_distinct == 400  # nothing was merged, so rows are sessions
    feature = spectral_features(data, 1)[:, 0]
    assert abs(np.corrcoef(feature, contexts)[0, 1]) > 0.9
    monkeypatch.setattr(starts, "_DENSE", 2)
    lean = spectral_features(data, 1)[:, 0]
    assert abs(np.corrcoef(lean, feature)[0, 1]) > 0.999


def test_starts_are_a_decomposition_clusters_and_random_models(rng, monkeypatch):
    """Of 7 starts one is the tensor's, half of the rest come from clusters, the others are random."""
    data = observe(lmab.simulate(lmab.random_bandit(2, 4, rng=rng), lmab.Uniform(4), n_episodes=80, horizon=3, rng=rng))
    calls: list[str] = []

    def spy(name: str):
        original = getattr(starts, name)
        monkeypatch.setattr(starts, name, lambda *args: (calls.append(name), original(*args))[1])

    spy("cluster")
    spy("_tensor_start")
    assert len(draw_starts(data, 2, 7, rng)) == 7
    assert calls == ["_tensor_start", *["cluster"] * 3]
    calls.clear()
    assert len(draw_starts(data, 2, 2, rng)) == 2  # too few for the tensor
    assert calls == ["cluster"]
    calls.clear()
    assert len(draw_starts(data, 1, 3, rng)) == 3  # one context: nothing to part
    assert calls == []
