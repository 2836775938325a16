from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from seeds import generator
from strategies import logs

import lmab
from lmab.estimation.tensor_decomposition import decompose, third_moments


def triples_by_loops(episodes, features, values):
    """Mean over ordered triples of different steps, by brute force."""
    share = np.bincount(episodes.actions, minlength=episodes.n_arms) / episodes.n_steps
    total, n = np.zeros((features.shape[1],) * 3), 0
    for start, end in zip(episodes.offsets[:-1], episodes.offsets[1:], strict=True):
        rows = []
        for step in range(start, end):
            arm, reward = episodes.actions[step], episodes.rewards[step]
            if values is None:
                rows.append(features[arm] * reward / share[arm])
            else:
                rows.append(features[arm * len(values) + list(values).index(reward)] / share[arm])
        for a, b, c in itertools.permutations(rows, 3):
            total += np.einsum("i,j,k->ijk", a, b, c)
            n += 1
    return total / n


@given(logs(max_steps=5), st.integers(0, 1000), st.booleans())
def test_third_moments_agree_with_loops(episodes, seed, categorical):
    if episodes.horizon < 3:
        return
    values = np.unique(episodes.rewards) if categorical else None
    rows = episodes.n_arms * (len(values) if values is not None else 1)
    features = np.random.default_rng(seed).standard_normal((rows, 2))
    found = third_moments(episodes, features, values)
    expected = triples_by_loops(episodes, features, values)
    np.testing.assert_allclose(found, expected, atol=1e-9 * max(1.0, np.abs(expected).max()))


def test_chunks_add_up(rng, monkeypatch):
    log = lmab.simulate(lmab.random_bandit(2, 4, rng=rng), lmab.Uniform(4), n_episodes=300, horizon=4, rng=rng)
    features = rng.standard_normal((8, 3))
    whole = third_moments(log, features, np.array([0.0, 1.0]))
    monkeypatch.setattr("lmab.estimation.tensor_decomposition._STEPS", 50)
    np.testing.assert_allclose(third_moments(log, features, np.array([0.0, 1.0])), whole, rtol=1e-9)


@given(st.integers(1, 5), st.integers(0, 10**6))
def test_orthogonal_components_are_found_exactly(k, seed):
    rng = np.random.default_rng(seed)
    directions = np.linalg.qr(rng.standard_normal((k, k)))[0]
    strengths = rng.uniform(1.2, 4, k)
    tensor = np.einsum("c,ci,cj,ck->ijk", strengths, directions, directions, directions)
    found, vectors, converged = decompose(tensor, k, 30, 200, rng)
    assert converged
    np.testing.assert_allclose(np.sort(found), np.sort(strengths), rtol=1e-6)
    rebuilt = np.einsum("c,ci,cj,ck->ijk", found, vectors, vectors, vectors)
    np.testing.assert_allclose(rebuilt, tensor, atol=1e-6)


def test_error_falls_with_the_log():
    distances = []
    for n in (3000, 300_000):
        rng = generator(3)
        bandit = lmab.LatentBandit.bernoulli([0.5, 0.3, 0.2], rng.uniform(0.05, 0.95, (3, 6)))
        log = lmab.simulate(bandit, lmab.Uniform(6), n_episodes=n, horizon=4, rng=rng)
        fit = lmab.estimate(log, n_contexts=3, method=lmab.TensorDecomposition(), rng=rng)
        distances.append(fit.bandit.distance(bandit))
    assert distances[1] < 0.1 < distances[0]


def test_values_and_unequal_plays(rng):
    probabilities = rng.dirichlet(np.full(3, 0.6), size=(2, 5))
    bandit = lmab.LatentBandit.categorical([0.55, 0.45], probabilities, [-1, 0, 2])
    arms = rng.choice(5, p=[0.4, 0.3, 0.1, 0.1, 0.1], size=(200_000, 4))
    log = lmab.simulate(bandit, arms, rng=rng)
    fit = lmab.estimate(log, n_contexts=2, method=lmab.TensorDecomposition(), rng=rng)
    assert fit.bandit.distance(bandit) < 0.12
    assert fit.bandit.rewards.values.tolist() == [-1, 0, 2]


def test_features_that_determine_the_rest(rng):
    probabilities = rng.dirichlet(np.full(3, 0.6), size=(2, 5))
    bandit = lmab.LatentBandit.categorical([0.55, 0.45], probabilities, [-1, 0, 2])
    log = lmab.simulate(bandit, lmab.Uniform(5), n_episodes=200_000, horizon=4, rng=rng)
    pairs, free = (
        lmab.estimate(log, n_contexts=2, method=lmab.TensorDecomposition(features=features), rng=rng).bandit
        for features in ("pairs", "free")
    )
    assert free.distance(bandit) < 0.2
    assert 0 < free.distance(pairs) < 0.2


def test_normal_rewards(rng):
    bandit = lmab.LatentBandit.gaussian([0.6, 0.4], [[1, 0, -1, 0.5], [-0.5, 1, 0.5, 0]], scale=0.7)
    log = lmab.simulate(bandit, lmab.Uniform(4), n_episodes=100_000, horizon=4, rng=rng)
    fit = lmab.estimate(log, n_contexts=2, method=lmab.TensorDecomposition(), rewards="gaussian", rng=rng)
    assert fit.bandit.distance(bandit) < 0.15
    assert fit.bandit.rewards.scale == pytest.approx(0.7, abs=0.02)


def test_more_contexts_than_directions_still_give_a_valid_bandit(rng):
    bandit = lmab.random_bandit(6, 10, rank=3, rng=rng)
    log = lmab.simulate(bandit, lmab.Uniform(10), n_episodes=5000, horizon=5, rng=rng)
    fit = lmab.estimate(log, n_contexts=6, method=lmab.TensorDecomposition(), rng=rng)
    assert fit.n_contexts == 6
    assert np.isfinite(fit.log_likelihood)


def test_two_steps_are_too_few(rng):
    log = lmab.simulate(lmab.random_bandit(2, 4, rng=rng), lmab.Uniform(4), n_episodes=50, horizon=2, rng=rng)
    with pytest.raises(ValueError, match="sessions of at least 3 steps: third moments need three, got 2"):
        lmab.estimate(log, n_contexts=2, method=lmab.TensorDecomposition(), rng=rng)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"restarts": 0}, "restarts must be"),
        ({"floor": 0}, "floor must be"),
        ({"floor": 1.5}, "floor must be"),
        ({"features": "all"}, "features must be 'pairs' or 'free', got 'all'"),
    ],
)
def test_bad_options(arguments, message):
    with pytest.raises(ValueError, match=message):
        lmab.TensorDecomposition(**arguments)
