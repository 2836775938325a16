from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from leaving_cases import every_session, left_by_reward
from seeds import generator
from strategies import logs

import lmab
from lmab.paper.tensor_decomposition import decompose, third_moments


def triples_by_loops(sessions, features, values):
    """Mean over ordered triples of different steps, by brute force."""
    share = np.bincount(sessions.arms, minlength=sessions.n_arms) / sessions.n_steps
    total, n = np.zeros((features.shape[1],) * 3), 0
    for start, end in zip(sessions.offsets[:-1], sessions.offsets[1:], strict=True):
        rows = []
        for step in range(start, end):
            arm, reward = sessions.arms[step], sessions.rewards[step]
            if values is None:
                rows.append(features[arm] * reward / share[arm])
            else:
                rows.append(features[arm * len(values) + list(values).index(reward)] / share[arm])
        for a, b, c in itertools.permutations(rows, 3):
            total += np.einsum("i,j,k->ijk", a, b, c)
            n += 1
    return total / n


@given(logs(max_steps=5), st.integers(0, 1000), st.booleans())
def test_third_moments_agree_with_loops(sessions, seed, categorical):
    if sessions.horizon < 3:
        return
    values = np.unique(sessions.rewards) if categorical else None
    rows = sessions.n_arms * (len(values) if values is not None else 1)
    features = np.random.default_rng(seed).standard_normal((rows, 2))
    found = third_moments(sessions, features, values)
    expected = triples_by_loops(sessions, features, values)
    np.testing.assert_allclose(found, expected, atol=1e-9 * max(1.0, np.abs(expected).max()))


def test_chunks_add_up(rng, monkeypatch):
    log = lmab.simulate(lmab.random_bandit(2, 4, rng=rng), lmab.Uniform(4), n_sessions=300, horizon=4, rng=rng)
    features = rng.standard_normal((8, 3))
    whole = third_moments(log, features, np.array([0.0, 1.0]))
    monkeypatch.setattr("lmab.paper.tensor_decomposition._STEPS", 50)
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
        log = lmab.simulate(bandit, lmab.Uniform(6), n_sessions=n, horizon=4, rng=rng)
        fit = lmab.fit(log, n_types=3, method=lmab.estimation.TensorDecomposition(), rng=rng)
        distances.append(fit.bandit.distance(bandit))
    assert distances[1] < 0.1 < distances[0]


def test_values_and_unequal_plays(rng):
    probabilities = rng.dirichlet(np.full(3, 0.6), size=(2, 5))
    bandit = lmab.LatentBandit.categorical([0.55, 0.45], probabilities, [-1, 0, 2])
    arms = rng.choice(5, p=[0.4, 0.3, 0.1, 0.1, 0.1], size=(200_000, 4))
    log = lmab.simulate(bandit, arms, rng=rng)
    fit = lmab.fit(log, n_types=2, method=lmab.estimation.TensorDecomposition(), rng=rng)
    assert fit.bandit.distance(bandit) < 0.12
    assert fit.bandit.rewards.values.tolist() == [-1, 0, 2]


def test_features_that_determine_the_rest(rng):
    probabilities = rng.dirichlet(np.full(3, 0.6), size=(2, 5))
    bandit = lmab.LatentBandit.categorical([0.55, 0.45], probabilities, [-1, 0, 2])
    log = lmab.simulate(bandit, lmab.Uniform(5), n_sessions=200_000, horizon=4, rng=rng)
    pairs, free = (
        lmab.fit(log, n_types=2, method=lmab.estimation.TensorDecomposition(features=features), rng=rng).bandit
        for features in ("pairs", "free")
    )
    assert free.distance(bandit) < 0.2
    assert 0 < free.distance(pairs) < 0.2


def test_normal_rewards(rng):
    bandit = lmab.LatentBandit.gaussian([0.6, 0.4], [[1, 0, -1, 0.5], [-0.5, 1, 0.5, 0]], scale=0.7)
    log = lmab.simulate(bandit, lmab.Uniform(4), n_sessions=100_000, horizon=4, rng=rng)
    fit = lmab.fit(log, n_types=2, method=lmab.estimation.TensorDecomposition(), rewards="gaussian", rng=rng)
    assert fit.bandit.distance(bandit) < 0.15
    assert fit.bandit.rewards.scale == pytest.approx(0.7, abs=0.02)


def test_more_types_than_directions_still_give_a_valid_bandit(rng):
    bandit = lmab.random_bandit(6, 10, rank=3, rng=rng)
    log = lmab.simulate(bandit, lmab.Uniform(10), n_sessions=5000, horizon=5, rng=rng)
    fit = lmab.fit(log, n_types=6, method=lmab.estimation.TensorDecomposition(), rng=rng)
    assert fit.n_types == 6
    assert np.isfinite(fit.log_likelihood)


@pytest.mark.parametrize("floor", [0.02, 0.2, 0.9])
def test_the_floor_limits_how_much_whitening_blows_up(floor, rng, monkeypatch):
    """Whitened directions have the length 1 / sqrt(eigenvalue), where no eigenvalue is below floor times the first."""
    from lmab.moments.second import second_moments
    from lmab.paper import tensor_decomposition

    seen = []

    def spy(sessions, features, values):
        seen.append(features)
        return third_moments(sessions, features, values)

    monkeypatch.setattr(tensor_decomposition, "third_moments", spy)
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.3, 0.5], [0.4, 0.6, 0.5]])
    log = lmab.simulate(bandit, lmab.Uniform(3), n_sessions=4000, horizon=4, rng=rng)
    lmab.fit(log, n_types=3, method=lmab.estimation.TensorDecomposition(floor=floor), rng=rng)
    values = np.linalg.eigvalsh(second_moments(log).second)[::-1][:3]
    raised = np.maximum(values, floor * values[0])
    assert (raised != values).any()
    np.testing.assert_allclose(np.linalg.norm(seen[0], axis=0), 1 / np.sqrt(raised))


def test_directions_without_any_signal_do_no_harm(rng):
    """As many types as features: the last eigenvalues of the second moments are below zero."""
    log = lmab.simulate(lmab.random_bandit(1, 2, rng=rng), lmab.Uniform(2), n_sessions=400, horizon=4, rng=rng)
    assert np.linalg.eigvalsh(lmab.moments.second_moments(log).second)[0] < 0
    fit = lmab.fit(log, n_types=4, method=lmab.estimation.TensorDecomposition(), rng=rng)
    assert np.isfinite(fit.log_likelihood)


def test_two_steps_are_too_few(rng):
    log = lmab.simulate(lmab.random_bandit(2, 4, rng=rng), lmab.Uniform(4), n_sessions=50, horizon=2, rng=rng)
    with pytest.raises(ValueError, match="sessions must have at least 3 steps: third moments need three, got 2"):
        lmab.fit(log, n_types=2, method=lmab.estimation.TensorDecomposition(), rng=rng)


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
        lmab.estimation.TensorDecomposition(**arguments)


def test_weights_are_one_over_the_squared_strengths(rng):
    """Components of a whitened third moment have strength 1 / sqrt(weight)."""
    bandit = lmab.LatentBandit.bernoulli([0.8, 0.2], [[0.9, 0.1, 0.8, 0.3], [0.1, 0.9, 0.2, 0.6]])
    log = lmab.simulate(bandit, lmab.Uniform(4), n_sessions=60_000, horizon=4, rng=rng)
    fit = lmab.fit(log, n_types=2, method=lmab.estimation.TensorDecomposition(), rng=rng)
    np.testing.assert_allclose(np.sort(fit.bandit.weights), [0.2, 0.8], atol=0.03)
    assert fit.bandit.distance(bandit) < 0.12
    free = lmab.fit(log, n_types=2, method=lmab.estimation.TensorDecomposition(features="free"), rng=rng)
    assert free.bandit.distance(bandit) < 0.12
    with pytest.raises(ValueError, match="n_types must be at most the 4 features, got 5"):
        lmab.fit(log, n_types=5, method=lmab.estimation.TensorDecomposition(features="free"), rng=rng)


def test_a_power_iteration_that_is_cut_short_says_so(rng):
    log = lmab.simulate(lmab.random_bandit(3, 6, rng=rng), lmab.Uniform(6), n_sessions=500, horizon=4, rng=rng)
    with pytest.warns(lmab.errors.LmabWarning, match="did not converge"):
        cut = lmab.fit(log, n_types=3, method=lmab.estimation.TensorDecomposition(max_iterations=1), rng=rng)
    assert cut.status == "iteration limit"
    assert "stopped by max_iterations" in cut.message
    assert lmab.fit(log, n_types=3, method=lmab.estimation.TensorDecomposition(), rng=rng).status == "converged"


def test_deflation_takes_a_component_out_once():
    """Two orthogonal components of different strength: the stronger first, and each of them once."""
    tensor = np.zeros((3, 3, 3))
    tensor[0, 0, 0], tensor[1, 1, 1] = 5.0, 2.0
    strengths, directions, converged = decompose(tensor, 2, 10, 100, np.random.default_rng(0))
    np.testing.assert_allclose(strengths, [5.0, 2.0])
    np.testing.assert_allclose(directions, np.eye(3)[:2], atol=1e-9)
    assert converged
    weak, _, _ = decompose(0.1 * tensor, 1, 10, 100, np.random.default_rng(0))
    assert weak.tolist() == [1.0]  # a weight is at most 1


def test_third_moments_make_up_for_those_who_left_by_reward(rng):
    """On every session that may be seen, as often as it is probable, whatever lies in one part."""
    bandit = left_by_reward()
    log, rows = every_session(bandit, 4), bandit.rewards.probabilities.reshape(2, -1)
    features = rng.normal(size=(4, 2))
    expected = np.einsum("m,mi,mj,mk->ijk", bandit.weights, *[rows @ features] * 3)
    np.testing.assert_allclose(third_moments(log, features, bandit.rewards.values), expected, atol=1e-9)
    ignored = third_moments(replace(log, endings=None), features, bandit.rewards.values)
    assert np.abs(ignored - expected).max() > 0.01
