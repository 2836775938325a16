from __future__ import annotations

import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import bandits

import lmab
from lmab import LatentBandit, Sessions
from lmab.model import belief


@given(bandits(), st.integers(1, 4), st.integers(0, 10**6))
def test_beliefs_agree_with_the_oracle(bandit, horizon, seed):
    rng = np.random.default_rng(seed)
    sessions = lmab.simulate(bandit, lmab.Uniform(bandit.n_arms), n_sessions=5, horizon=horizon, rng=rng)
    posterior = belief.posterior(bandit, sessions)
    for row, session in zip(posterior, sessions, strict=True):
        history = tuple(zip(session.arms.tolist(), session.rewards.tolist(), strict=True))
        family = bandit.rewards
        joint = oracle.likelihood(bandit.weights, family.probabilities, family.values.tolist(), history)
        now = belief.prior(bandit)
        for arm, reward in history:
            now = belief.update(bandit, now, arm, reward)
        np.testing.assert_allclose(now, joint, rtol=1e-12, atol=0)
        np.testing.assert_allclose(row, joint / joint.sum(), rtol=1e-12, atol=1e-15)


def test_batch_equals_one_by_one(rng):
    bandit = lmab.random_bandit(3, 4, rng=rng)
    start = belief.prior(bandit, 6)
    arms, rewards = rng.integers(4, size=6), rng.integers(2, size=6).astype(float)
    batch = belief.update(bandit, start, arms, rewards)
    single = [belief.update(bandit, row, int(arm), float(r)) for row, arm, r in zip(start, arms, rewards, strict=True)]
    np.testing.assert_array_equal(batch, single)


def test_long_sessions_do_not_underflow():
    bandit = LatentBandit.bernoulli([0.5, 0.5], [[0.01], [0.011]])
    now = belief.prior(bandit)
    for _ in range(20_000):
        now = belief.update(bandit, now, 0, 1.0)
    assert np.isfinite(now).all()
    assert now.max() > 0
    np.testing.assert_allclose(belief.normalise(now), [0, 1], atol=1e-12)
    long = Sessions.from_arrays(np.zeros((1, 20_000), int), np.ones((1, 20_000)))
    np.testing.assert_allclose(belief.posterior(bandit, long), [[0, 1]], atol=1e-12)


def test_scaling_changes_no_ratio():
    rows = np.array([[2.0**-1000, 3 * 2.0**-1001], [0.5, 0.25]])
    scaled = belief.rescale(rows)
    assert scaled[0, 0] / scaled[0, 1] == rows[0, 0] / rows[0, 1]
    assert scaled[0].max() >= 0.25
    np.testing.assert_array_equal(scaled[1], rows[1])


def test_exact_zeros_rule_types_out():
    bandit = LatentBandit.bernoulli([0.5, 0.5], [[1.0], [0.5]])
    now = belief.update(bandit, belief.prior(bandit), 0, 0.0)
    np.testing.assert_array_equal(now, [0.0, 0.25])


def test_an_impossible_observation_leaves_the_belief():
    bandit = LatentBandit.bernoulli([0.25, 0.75], [[1.0], [1.0]])
    np.testing.assert_array_equal(belief.update(bandit, belief.prior(bandit), 0, 0.0), [0.25, 0.75])
    impossible = Sessions.from_arrays([[0], [0]], [[0.0], [1.0]])
    np.testing.assert_allclose(belief.posterior(bandit, impossible), [[0.25, 0.75], [0.25, 0.75]], rtol=1e-14)


def test_gaussian_posterior_is_bayes_rule():
    from scipy.stats import norm

    bandit = LatentBandit.gaussian([0.3, 0.7], [[0.0], [1.0]], scale=2.0)
    now = belief.normalise(belief.update(bandit, belief.prior(bandit), 0, 0.4))
    joint = np.array([0.3 * norm.pdf(0.4, 0, 2), 0.7 * norm.pdf(0.4, 1, 2)])
    np.testing.assert_allclose(now, joint / joint.sum(), rtol=1e-12)


def test_a_reward_far_from_every_mean_still_tells_types_apart():
    bandit = LatentBandit.gaussian([0.5, 0.5], [[0.0], [1.0]])
    np.testing.assert_allclose(belief.update(bandit, belief.prior(bandit), 0, 500.0), [0.0, 0.5], atol=1e-12)
    far = Sessions.from_arrays([[0]], [[500.0]])
    np.testing.assert_allclose(belief.posterior(bandit, far), [[0.0, 1.0]], atol=1e-12)


def test_unknown_rewards_are_an_error():
    bandit = LatentBandit.bernoulli([1.0], [[0.5]])
    with pytest.raises(ValueError, match="rewards must be among the values"):
        belief.update(bandit, belief.prior(bandit), 0, 0.5)


def test_sessions_that_cross_a_chunk_are_whole(monkeypatch, rng):
    bandit = lmab.random_bandit(3, 4, rng=rng)
    log = lmab.simulate(bandit, lmab.Uniform(4), n_sessions=20, horizon=5, rng=rng)
    whole = belief.log_joint(bandit, log)
    monkeypatch.setattr(belief, "_CHUNK", 7)
    np.testing.assert_allclose(belief.log_joint(bandit, log), whole, rtol=1e-12)


def test_only_rows_near_the_end_of_the_range_are_scaled():
    rows = np.array([[2.0**-399, 0.0], [2.0**-401, 0.0]])
    scaled = belief.rescale(rows)
    assert scaled[0, 0] == 2.0**-399
    assert scaled[1, 0] == 0.5
    assert rows[1, 0] == 2.0**-401  # what was given stays as it was
