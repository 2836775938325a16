"""Whether normal rewards fit is told whoever chose the arms."""

from __future__ import annotations

import numpy as np
import pytest

import lmab
from lmab.errors import InvalidArgument
from lmab.estimation.families import observe
from lmab.estimation.gaussian import _log_normal, _profile_variance, gaussian, misfit
from lmab.parallel import SERIAL, Threads

MEANS = [[2.0, 0.0, 0.5], [0.0, 2.0, 1.0]]
TRUTH = lmab.LatentBandit.gaussian([0.5, 0.5], MEANS, scale=1.0)


@pytest.mark.parametrize("policy", [lmab.Uniform(3), lmab.Greedy(TRUTH, horizon=5), lmab.Thompson(TRUTH, horizon=5)])
def test_the_true_model_fits_logs_of_policies_that_look_at_rewards(policy, rng):
    log = lmab.simulate(TRUTH, policy, n_sessions=4000, horizon=5, rng=rng)
    assert misfit(TRUTH, log) == []


@pytest.mark.parametrize("policy", [lmab.Uniform(3), lmab.Greedy(TRUTH, horizon=5)])
@pytest.mark.parametrize("wrong", [{"scale": 2.0}, {"scale": 1.0, "shift": 0.5}])
def test_a_wrong_model_does_not_fit_them(policy, wrong, rng):
    log = lmab.simulate(TRUTH, policy, n_sessions=4000, horizon=5, rng=rng)
    model = lmab.LatentBandit.gaussian([0.5, 0.5], np.array(MEANS) + wrong.get("shift", 0.0), scale=wrong["scale"])
    assert len(misfit(model, log)) == 1


def test_whole_sessions_of_a_large_log_are_looked_at(rng, monkeypatch):
    monkeypatch.setattr("lmab.estimation.gaussian._STEPS", 5_000)
    log = lmab.simulate(TRUTH, lmab.Greedy(TRUTH, horizon=5), n_sessions=4000, horizon=5, rng=rng)
    assert misfit(TRUTH, log) == []


@pytest.mark.parametrize("ratio", [0.0, 0.3, 2.0])
def test_the_variance_within_sessions_is_the_likeliest(ratio, rng):
    arms = rng.integers(3, size=(60, 5))
    means = np.array([0.0, 1.0, -2.0])
    rewards = means[arms] + rng.normal(size=(60, 3))[np.arange(60)[:, None], arms] + 0.7 * rng.normal(size=arms.shape)
    log = lmab.Sessions.from_arrays(arms, rewards, n_arms=3)
    best = _profile_variance(log, means, ratio)
    likelihoods = [_log_normal(log, means, factor * best, ratio).sum() for factor in (0.98, 1.0, 1.02)]
    assert max(likelihoods) == likelihoods[1]


def test_a_bandit_of_another_family_is_refused_in_words():
    other = lmab.LatentBandit.bernoulli([1.0], [[0.2, 0.8]])
    with pytest.raises(
        InvalidArgument, match=r"bandit must have normal rewards, as this log was read, got LatentBandit"
    ):
        gaussian(other)


def test_a_device_leaves_the_constant_of_the_densities_to_the_log(rng):
    """It adds up squares alone; what every density is divided by comes once for every step."""
    bandit = lmab.LatentBandit.gaussian([0.4, 0.6], [[0.0, 1.0], [2.0, 0.5]], scale=0.7)
    log = observe(lmab.simulate(bandit, lmab.Uniform(2), n_sessions=20, horizon=3, rng=rng), rewards="gaussian")
    models = log.pack(bandit)
    statistics, logs = log.expectation(models, SERIAL)

    class Device(Threads):
        def expectation(self, log, models):
            return statistics + 1.0, logs + 60 * np.log(0.7 * np.sqrt(2 * np.pi))

    found = log.expectation(models, Device(1))
    np.testing.assert_array_equal(found[0], statistics + 1.0)  # what the device found, and nothing else
    np.testing.assert_allclose(found[1], logs, rtol=1e-12)
