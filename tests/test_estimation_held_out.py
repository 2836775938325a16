"""Held-out log-likelihoods, session by session, in the order of the log."""

from __future__ import annotations

import numpy as np
import oracle
import pytest

import lmab
from lmab.estimation import observe


def test_scores_are_those_of_the_softened_bandit_by_enumeration(rng):
    probabilities = rng.dirichlet(np.ones(2), size=(2, 3))
    bandit = lmab.LatentBandit.categorical([0.3, 0.7], probabilities, [0.0, 1.0])
    log = lmab.simulate(bandit, lmab.Uniform(3), n_sessions=30, horizon=3, rng=rng)
    scores = observe(log + log + log, values=[0.0, 1.0]).heldout(bandit)  # merged, and yet one score per session
    softer = (1 - 1e-4) * probabilities + 1e-4 / 2
    expected = []
    for session in log:
        history = tuple(zip(session.arms.tolist(), session.rewards.tolist(), strict=True))
        expected.append(np.log(oracle.likelihood([0.3, 0.7], softer, [0.0, 1.0], history).sum()))
    np.testing.assert_allclose(scores, np.tile(expected, 3), rtol=1e-10)


def test_normal_rewards_need_no_softening(rng):
    bandit = lmab.LatentBandit.gaussian([0.3, 0.7], [[0.0, 1.0], [2.0, -1.0]], scale=0.5)
    log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=20, horizon=3, rng=rng)
    scores = observe(log, rewards="gaussian").heldout(bandit)
    expected = np.logaddexp.reduce(lmab.model.belief.log_joint(bandit, log), axis=1)
    np.testing.assert_allclose(scores, expected, rtol=1e-12)


def test_parts_change_nothing(rng, monkeypatch):
    bandit = lmab.random_bandit(3, 10, rng=rng)
    data = observe(lmab.simulate(bandit, lmab.Uniform(10), n_sessions=200, horizon=5, rng=rng))
    whole = data.heldout(bandit)
    monkeypatch.setattr("lmab.estimation.passes._PART", 30)
    np.testing.assert_allclose(data.heldout(bandit), whole, rtol=1e-13)


def test_a_bandit_of_another_family_is_refused(rng):
    normal = lmab.LatentBandit.gaussian([1.0], [[0.0, 1.0]])
    coins = lmab.LatentBandit.bernoulli([1.0], [[0.5, 0.5]])
    log = lmab.simulate(coins, lmab.Uniform(2), n_sessions=5, horizon=2, rng=rng)
    with pytest.raises(ValueError, match="categorical rewards"):
        observe(log).heldout(normal)
    with pytest.raises(ValueError, match="normal rewards"):
        observe(log, rewards="gaussian").log_likelihood(coins)
