"""sweep: a few maps of EM from a given bandit."""

from __future__ import annotations

import numpy as np
import pytest

import lmab
from lmab.errors import InvalidArgument
from lmab.estimation import observe, sweep

START = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.6, 0.5, 0.5], [0.5, 0.6, 0.4]])


@pytest.fixture
def log(rng):
    bandit = lmab.LatentBandit.bernoulli([0.4, 0.6], [[0.9, 0.1, 0.5], [0.2, 0.8, 0.4]])
    return lmab.simulate(bandit, lmab.Uniform(3), n_sessions=300, horizon=4, rng=rng)


def test_one_sweep_is_bayes_and_counting(log):
    """Against responsibilities and smoothed frequencies written out."""
    found, likelihood = sweep(START, log, sweeps=1, prior=2.0)
    shares = lmab.model.belief.posterior(START, log)
    np.testing.assert_allclose(found.weights, shares.mean(axis=0), rtol=1e-10)
    assert likelihood == pytest.approx(np.logaddexp.reduce(lmab.model.belief.log_joint(START, log), axis=1).sum())
    owner = np.repeat(np.arange(len(log)), log.lengths)
    for arm in range(3):
        steps = log.arms == arm
        mine, paid = shares[owner[steps]], log.rewards[steps]
        expected = (mine.T @ paid + 2 * paid.mean()) / (mine.sum(axis=0) + 2)
        np.testing.assert_allclose(found.means[:, arm], expected, rtol=1e-10)


def test_sweeps_follow_each_other(log):
    three, likelihood = sweep(START, log, sweeps=3, prior=1.0)
    bandit = START
    for _ in range(3):
        bandit, last = sweep(bandit, log, sweeps=1, prior=1.0)
    np.testing.assert_allclose(three.means, bandit.means, rtol=1e-9)
    assert likelihood == pytest.approx(last, rel=1e-12)
    assert observe(log).log_likelihood(three) > likelihood


def test_normal_rewards_and_given_values(log, rng):
    bandit = lmab.LatentBandit.gaussian([0.5, 0.5], [[0.0, 1.0], [1.0, 0.0]])
    normal = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=100, horizon=4, rng=rng)
    assert sweep(bandit, normal, sweeps=2, prior=1.0)[0].rewards.scale == pytest.approx(1.0, abs=0.2)
    wide = lmab.LatentBandit.categorical([1.0], [[[0.5, 0.4, 0.1]] * 3], [0.0, 1.0, 2.0])
    assert sweep(wide, log, sweeps=1, prior=1.0, values=[0.0, 1.0, 2.0])[0].rewards.n_values == 3


@pytest.mark.parametrize(
    ("keywords", "message"), [({"sweeps": 0}, "sweeps must be"), ({"prior": -1.0}, "prior must be")]
)
def test_bad_arguments(log, keywords, message):
    with pytest.raises(InvalidArgument, match=message):
        sweep(START, log, **{"sweeps": 1, "prior": 1.0, **keywords})
