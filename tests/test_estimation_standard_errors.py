"""Standard errors against closed forms and the parametric bootstrap."""

from __future__ import annotations

import numpy as np
import pytest
from seeds import generator

import lmab
from lmab.estimation.standard_errors import standard_errors


def test_one_type_has_binomial_errors(rng):
    bandit = lmab.LatentBandit.bernoulli([1.0], [[0.3, 0.6]])
    log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=500, horizon=1, rng=rng)
    fit = lmab.fit(log, n_types=1, rng=rng)
    errors = fit.standard_errors()
    plays, means = np.bincount(log.arms), fit.bandit.means[0]
    np.testing.assert_allclose(errors.means[0], np.sqrt(means * (1 - means) / plays), rtol=1e-6)
    assert errors.weights.tolist() == [0.0]


def test_one_gaussian_type_has_the_error_of_a_mean(rng):
    bandit = lmab.LatentBandit.gaussian([1.0], [[0.3, 5.0]], scale=2.0)
    log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=3000, horizon=1, rng=rng)
    fit = lmab.fit(log, n_types=1, rewards="gaussian", scale=2.0, rng=rng)
    np.testing.assert_allclose(fit.standard_errors().means[0], 2 / np.sqrt(np.bincount(log.arms)), rtol=0.05)


@pytest.mark.parametrize("strength", [0.0, 40.0])
def test_the_prior_adds_its_plays_to_one_type(strength, rng):
    """With types known the errors have closed forms, of plays and pseudo-plays together."""
    coins = lmab.LatentBandit.bernoulli([1.0], [[0.3, 0.6]])
    log = lmab.simulate(coins, lmab.Uniform(2), n_sessions=100, horizon=2, rng=rng)
    plays, method = np.bincount(log.arms) + strength, lmab.EM(prior=strength)
    fit = lmab.fit(log, n_types=1, method=method, rng=rng)
    means = fit.bandit.means[0]
    np.testing.assert_allclose(fit.standard_errors().means[0], np.sqrt(means * (1 - means) / plays), rtol=1e-9)
    with pytest.warns(lmab.errors.LmabWarning, match="normal rewards do not fit"):
        normal = lmab.fit(log, n_types=1, rewards="gaussian", scale=0.7, method=method, rng=rng)
    np.testing.assert_allclose(normal.standard_errors().means[0], 0.7 / np.sqrt(plays), rtol=1e-9)


def test_three_values_one_type(rng):
    probabilities = np.array([0.2, 0.5, 0.3])
    truth = lmab.LatentBandit.categorical([1.0], [[probabilities]], [0.0, 1.0, 5.0])
    log = lmab.simulate(truth, lmab.Uniform(1), n_sessions=400, horizon=1, rng=rng)
    fit = lmab.fit(log, n_types=1, rng=rng)
    assert fit.standard_errors().means[0, 0] == pytest.approx(log.rewards.std() / np.sqrt(400), rel=1e-9)


def test_a_weight_at_its_boundary_has_none(rng):
    log = lmab.Sessions.from_arrays(np.tile([0, 1], (50, 1)), rng.integers(2, size=(50, 2)).astype(float))
    data = lmab.estimation.observe(log)
    bandit = lmab.LatentBandit.bernoulli([0.6, 0.4, 0.0], [[0.4, 0.5], [0.6, 0.3], [0.5, 0.5]])
    errors = standard_errors(data.information(bandit, data.prior(1.0)))
    assert np.isnan(errors.weights).tolist() == [False, False, True]
    assert np.isfinite(errors.means[2]).all()  # the prior knows them
    alone = standard_errors(data.information(bandit, data.prior(0.0)))
    assert np.isinf(alone.means[2]).all()


def test_what_the_log_does_not_determine_is_infinite(rng):
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.2], [0.2, 0.6]])
    log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=300, horizon=1, rng=rng)
    with pytest.warns(lmab.errors.LmabWarning, match="cannot be identified"):
        fit = lmab.fit(log, n_types=2, rng=rng)
    errors = fit.standard_errors()
    assert not np.isfinite(errors.weights).any() or not np.isfinite(errors.means).all()


def test_boundaries_and_unplayed_arms_have_none(rng):
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[1.0, 0.2], [0.0, 0.6]])
    log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=2000, horizon=6, rng=rng).with_arms(3)
    fit = lmab.fit(log, n_types=2, rng=rng)
    errors = fit.standard_errors().means
    np.testing.assert_allclose(np.sort(fit.bandit.means[:, 0]), [0, 1], atol=1e-12)
    assert np.isnan(errors[:, [0, 2]]).all()
    assert np.isfinite(errors[:, 1]).all()


def test_a_prior_sharpens(rng):
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.2], [0.2, 0.6]])
    log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=300, horizon=4, rng=rng)
    free, tight = (
        lmab.fit(log, n_types=2, method=lmab.EM(prior=prior), rng=generator(0)).standard_errors()
        for prior in (0.0, 50.0)
    )
    assert tight.means.max() < free.means.max()
    assert free.weights[0] == pytest.approx(free.weights[1])  # they sum to 1
    assert free.weights[0] > np.sqrt(0.5 * 0.5 / 300)  # the types of the sessions are not even seen


@pytest.mark.parametrize("prior", [0.0, 3.0, 100.0])
def test_pseudo_counts_count_like_plays(prior, rng):
    """One type, three values: the prior sits at the arm's own frequencies, so it only adds to the sample size."""
    bandit = lmab.LatentBandit.categorical([1.0], [[[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]]], [0.0, 1.0, 3.0])
    log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=400, horizon=1, rng=rng)
    fit = lmab.fit(log, n_types=1, method=lmab.EM(prior=prior), rng=rng)
    spread = [log.rewards[log.arms == arm] for arm in range(2)]
    expected = [np.sqrt(paid.var() / (len(paid) + prior)) for paid in spread]
    np.testing.assert_allclose(fit.standard_errors().means[0], expected, rtol=1e-6)


@pytest.mark.parametrize("prior", [0.0, 3.0, 100.0])
def test_pseudo_plays_of_normal_rewards_count_like_plays(prior, rng):
    """One type and a known scale: the error of a mean of as many plays."""
    bandit = lmab.LatentBandit.gaussian([1.0], [[0.3, 5.0]], scale=2.0)
    log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=300, horizon=1, rng=rng)
    fit = lmab.fit(
        log, n_types=1, rewards="gaussian", scale=2.0, method=lmab.EM(prior=prior), rng=rng
    ).standard_errors()
    np.testing.assert_allclose(fit.means[0], 2.0 / np.sqrt(np.bincount(log.arms) + prior), rtol=1e-6)


@pytest.mark.parametrize("family", ["categorical", "gaussian"])
def test_the_prior_is_a_part_of_the_information(family, rng):
    """Two types, at any model: its information with a prior, less that without, is that of as many plays."""
    if family == "categorical":
        bandit = lmab.LatentBandit.bernoulli([0.4, 0.6], rng.uniform(0.1, 0.9, size=(2, 2)))
        curvature = (bandit.means * (1 - bandit.means)).T.ravel()  # of a logit, in the order (arm, type)
        arguments = {}
    else:
        bandit = lmab.LatentBandit.gaussian([0.4, 0.6], rng.normal(size=(2, 2)), scale=0.8)
        curvature = np.ones(4)  # of a mean in units of the scale
        arguments = {"rewards": "gaussian", "scale": 0.8}
    log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=60, horizon=4, rng=rng)
    data = lmab.estimation.observe(log, **arguments)
    added = data.information(bandit, data.prior(7.0)).matrix - data.information(bandit, data.prior(0.0)).matrix
    np.testing.assert_allclose(added, np.diag([0.0, *(7.0 * curvature)]), atol=1e-9)


def _bootstrap(fit: lmab.Estimate, n_draws: int, rng: np.random.Generator, **family):
    weights, means = [], []
    size, horizon = len(fit.sessions), fit.sessions.horizon
    for _ in range(n_draws):
        log = lmab.simulate(fit.bandit, lmab.Uniform(3), n_sessions=size, horizon=horizon, rng=rng)
        again = lmab.fit(log, n_types=2, method=lmab.EM(restarts=3), rng=rng, **family).bandit
        same = (
            [0, 1]
            if np.abs(again.means - fit.bandit.means).sum() < np.abs(again.means[::-1] - fit.bandit.means).sum()
            else [1, 0]
        )
        weights.append(again.weights[same])
        means.append(again.means[same])
    return np.std(weights, axis=0), np.std(means, axis=0)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["categorical", "gaussian"])
def test_standard_errors_agree_with_the_parametric_bootstrap(family):
    """300 draws: a bootstrap standard error is itself known to about 4 percent."""
    rng = generator(1)
    means = [[0.9, 0.1, 0.4], [0.2, 0.7, 0.5]]
    if family == "categorical":
        bandit = lmab.LatentBandit.bernoulli([0.3, 0.7], means)
    else:
        bandit = lmab.LatentBandit.gaussian([0.3, 0.7], means, 0.5)
    log = lmab.simulate(bandit, lmab.Uniform(3), n_sessions=3000, horizon=5, rng=rng)
    fit = lmab.fit(log, n_types=2, rewards=family, rng=rng)
    weights, spread = _bootstrap(fit, 300, rng, rewards=family)
    errors = fit.standard_errors()
    np.testing.assert_allclose(errors.weights, weights, rtol=0.15)
    np.testing.assert_allclose(errors.means, spread, rtol=0.2)


def test_directions_that_the_log_is_silent_about_are_infinite():
    """Two means of which only the sum is known, and a third, known to within a half."""
    from lmab.estimation.gaussian.information import GaussianCoordinates
    from lmab.estimation.information import Information
    from lmab.estimation.standard_errors import standard_errors

    rewards = lmab.LatentBandit.gaussian([1.0], [[0.0, 0.0, 0.0, 0.0]], scale=3.0).rewards
    coordinates = GaussianCoordinates(np.ones(1), rewards, np.array([True, True, True, False]), True)
    matrix = np.array([[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 4.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    found = standard_errors(Information(matrix, coordinates)).means[0]
    assert found[:2].tolist() == [np.inf, np.inf]
    assert found[2] == pytest.approx(3.0 / 2)  # in units of the scale it is known to within a half
    assert np.isnan(found[3])  # never played


def test_too_many_parameters_are_refused(rng, monkeypatch):
    monkeypatch.setattr("lmab.estimation.information.MAX_PARAMETERS", 6)
    log = lmab.simulate(lmab.random_bandit(2, 2, rng=rng), lmab.Uniform(2), n_sessions=200, horizon=3, rng=rng)
    assert lmab.fit(log, n_types=2, rng=rng).standard_errors().means.shape == (2, 2)  # six exactly
    monkeypatch.setattr("lmab.estimation.information.MAX_PARAMETERS", 5)
    with pytest.raises(lmab.errors.TooLarge, match="about 6 parameters of 2 types was asked for, more than 5"):
        lmab.fit(log, n_types=2, rng=rng).standard_errors()
