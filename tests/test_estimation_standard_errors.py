"""Standard errors against closed forms and the parametric bootstrap."""

from __future__ import annotations

import numpy as np
import pytest

import lmab


def test_one_context_has_binomial_errors(rng):
    bandit = lmab.LatentBandit.bernoulli([1.0], [[0.3, 0.6]])
    log = lmab.simulate(bandit, lmab.Uniform(2), n_episodes=500, horizon=1, rng=rng)
    fit = lmab.estimate(log, n_contexts=1, rng=rng)
    errors = fit.standard_errors()
    plays, means = np.bincount(log.actions), fit.bandit.means[0]
    np.testing.assert_allclose(errors.means[0], np.sqrt(means * (1 - means) / plays), rtol=1e-6)
    assert errors.weights.tolist() == [0.0]


def test_one_gaussian_context_has_the_error_of_a_mean(rng):
    bandit = lmab.LatentBandit.gaussian([1.0], [[0.3, 5.0]], scale=2.0)
    log = lmab.simulate(bandit, lmab.Uniform(2), n_episodes=3000, horizon=1, rng=rng)
    fit = lmab.estimate(log, n_contexts=1, rewards="gaussian", scale=2.0, rng=rng)
    np.testing.assert_allclose(fit.standard_errors().means[0], 2 / np.sqrt(np.bincount(log.actions)), rtol=0.05)


def test_scores_are_the_gradient_of_the_log_likelihood(rng):
    """At any model, not only at the maximum: the information is the sum of squared numerical gradients."""
    bandit = lmab.LatentBandit.categorical([0.4, 0.6], rng.dirichlet(np.ones(3), size=(2, 2)), [0.0, 1.0, 3.0])
    log = lmab.simulate(bandit, lmab.Uniform(2), n_episodes=25, horizon=4, rng=rng)
    data = lmab.estimation.observe(log, values=[0.0, 1.0, 3.0])
    matrix = data.information(bandit, 0.0).matrix
    tables, last = bandit.rewards.probabilities, bandit.rewards.probabilities.argmax(axis=2)

    def logs(weight: float, change: tuple[int, int, int] | None, size: float) -> np.ndarray:
        changed = tables.copy()
        if change is not None:
            context, arm, value = change
            changed[context, arm, value] += size
            changed[context, arm, last[context, arm]] -= size
        other = lmab.LatentBandit.categorical([0.4 + weight, 0.6 - weight], changed, [0.0, 1.0, 3.0])
        return np.logaddexp.reduce(lmab.belief.log_joint(other, log), axis=1)

    gradients = [(logs(1e-6, None, 0) - logs(-1e-6, None, 0)) / 2e-6]
    for context, arm, value in np.ndindex(2, 2, 3):
        if value != last[context, arm]:
            change = (context, arm, value)
            gradients.append((logs(0, change, 1e-6) - logs(0, change, -1e-6)) / 2e-6)
    gradients = np.array(gradients)
    np.testing.assert_allclose(matrix, gradients @ gradients.T, rtol=1e-5, atol=1e-4)


def test_what_the_log_does_not_determine_is_infinite(rng):
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.2], [0.2, 0.6]])
    log = lmab.simulate(bandit, lmab.Uniform(2), n_episodes=300, horizon=1, rng=rng)
    with pytest.warns(lmab.errors.LmabWarning, match="cannot be identified"):
        fit = lmab.estimate(log, n_contexts=2, rng=rng)
    errors = fit.standard_errors()
    assert not np.isfinite(errors.weights).any() or not np.isfinite(errors.means).all()


def test_boundaries_and_unplayed_arms_have_none(rng):
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[1.0, 0.2], [0.0, 0.6]])
    log = lmab.simulate(bandit, lmab.Uniform(2), n_episodes=2000, horizon=6, rng=rng).with_arms(3)
    fit = lmab.estimate(log, n_contexts=2, rng=rng)
    errors = fit.standard_errors().means
    np.testing.assert_allclose(np.sort(fit.bandit.means[:, 0]), [0, 1], atol=1e-12)
    assert np.isnan(errors[:, [0, 2]]).all()
    assert np.isfinite(errors[:, 1]).all()


def test_a_prior_sharpens(rng):
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.2], [0.2, 0.6]])
    log = lmab.simulate(bandit, lmab.Uniform(2), n_episodes=300, horizon=4, rng=rng)
    free, tight = (
        lmab.estimate(log, n_contexts=2, method=lmab.EM(prior=prior), rng=np.random.default_rng(0)).standard_errors()
        for prior in (0.0, 50.0)
    )
    assert tight.means.max() < free.means.max()
    assert free.weights[0] == pytest.approx(free.weights[1])  # they sum to 1
    assert free.weights[0] > np.sqrt(0.5 * 0.5 / 300)  # the contexts of the episodes are not even seen


@pytest.mark.parametrize("prior", [0.0, 3.0, 100.0])
def test_pseudo_counts_count_like_plays(prior, rng):
    """One context, three values: the prior sits at the arm's own frequencies, so it only adds to the sample size."""
    bandit = lmab.LatentBandit.categorical([1.0], [[[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]]], [0.0, 1.0, 3.0])
    log = lmab.simulate(bandit, lmab.Uniform(2), n_episodes=400, horizon=1, rng=rng)
    fit = lmab.estimate(log, n_contexts=1, method=lmab.EM(prior=prior), rng=rng)
    spread = [log.rewards[log.actions == arm] for arm in range(2)]
    expected = [np.sqrt(paid.var() / (len(paid) + prior)) for paid in spread]
    np.testing.assert_allclose(fit.standard_errors().means[0], expected, rtol=1e-6)


@pytest.mark.parametrize("prior", [0.0, 3.0, 100.0])
def test_pseudo_plays_of_normal_rewards_count_like_plays(prior, rng):
    """One context and a known scale: 1 / (sum of squared scores + prior / scale^2)."""
    bandit = lmab.LatentBandit.gaussian([1.0], [[0.3, 5.0]], scale=2.0)
    log = lmab.simulate(bandit, lmab.Uniform(2), n_episodes=300, horizon=1, rng=rng)
    fit = lmab.estimate(
        log, n_contexts=1, rewards="gaussian", scale=2.0, method=lmab.EM(prior=prior), rng=rng
    ).standard_errors()
    spread = [log.rewards[log.actions == arm] for arm in range(2)]
    expected = [1 / np.sqrt(((paid - paid.mean()) ** 2).sum() / 2**4 + prior / 2**2) for paid in spread]
    np.testing.assert_allclose(fit.means[0], expected, rtol=1e-6)


@pytest.mark.parametrize("family", ["categorical", "gaussian"])
def test_the_prior_is_a_part_of_the_information(family, rng):
    """Two contexts, at any model: its information with a prior, less that without, is the prior's own curvature."""
    if family == "categorical":
        bandit = lmab.LatentBandit.categorical([0.4, 0.6], rng.dirichlet(np.ones(3), size=(2, 2)), [0.0, 1.0, 3.0])
        arguments = {"values": [0.0, 1.0, 3.0]}
    else:
        bandit = lmab.LatentBandit.gaussian([0.4, 0.6], rng.normal(size=(2, 2)), scale=0.8)
        arguments = {"rewards": "gaussian", "scale": 0.8}
    log = lmab.simulate(bandit, lmab.Uniform(2), n_episodes=60, horizon=4, rng=rng)
    data = lmab.estimation.observe(log, **arguments)
    added = data.information(bandit, 7.0).matrix - data.information(bandit, 0.0).matrix
    expected = np.zeros_like(added)
    if family == "gaussian":
        expected[1:, 1:] = 7.0 / 0.8**2 * np.eye(4)
    else:
        shares = np.array([[np.mean(log.rewards[log.actions == arm] == v) for v in (0.0, 1.0, 3.0)] for arm in (0, 1)])
        row = 1
        for context, arm in np.ndindex(2, 2):
            table = bandit.rewards.probabilities[context, arm]
            last = table.argmax()
            free = np.delete(np.arange(3), last)
            block = np.diag(shares[arm, free] / table[free] ** 2) + shares[arm, last] / table[last] ** 2
            expected[row : row + 2, row : row + 2] = 7.0 * block
            row += 2
    np.testing.assert_allclose(added, expected, atol=1e-9 * np.abs(expected).max())


def _bootstrap(fit: lmab.Estimate, n_draws: int, rng: np.random.Generator, **family):
    weights, means = [], []
    size, horizon = len(fit.episodes), fit.episodes.horizon
    for _ in range(n_draws):
        log = lmab.simulate(fit.bandit, lmab.Uniform(3), n_episodes=size, horizon=horizon, rng=rng)
        again = lmab.estimate(log, n_contexts=2, method=lmab.EM(restarts=3), rng=rng, **family).bandit
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
    rng = np.random.default_rng(1)
    means = [[0.9, 0.1, 0.4], [0.2, 0.7, 0.5]]
    make = lmab.LatentBandit.bernoulli if family == "categorical" else lmab.LatentBandit.gaussian
    bandit = make([0.3, 0.7], means) if family == "categorical" else make([0.3, 0.7], means, 0.5)
    log = lmab.simulate(bandit, lmab.Uniform(3), n_episodes=3000, horizon=5, rng=rng)
    fit = lmab.estimate(log, n_contexts=2, rewards=family, rng=rng)
    weights, spread = _bootstrap(fit, 300, rng, rewards=family)
    errors = fit.standard_errors()
    np.testing.assert_allclose(errors.weights, weights, rtol=0.15)
    np.testing.assert_allclose(errors.means, spread, rtol=0.2)


def test_directions_that_the_log_is_silent_about_are_infinite():
    """Two parameters, of which only the sum is known; the third is known to within a half."""
    from lmab.estimation.information import Information
    from lmab.estimation.standard_errors import standard_errors

    matrix = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 4.0]])
    means = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    fixed = np.array([False, False, False, True])
    found = standard_errors(Information(matrix, np.array([[0.0, 0.0, -1.0], [0.0, 0.0, 1.0]]), means, fixed))
    assert found.means.shape == (2, 2)
    assert found.means[0, 0] == np.inf
    assert found.means[0, 1] == pytest.approx(0.5)  # half of the sum, whose variance is 1
    assert found.means[1, 0] == pytest.approx(0.5)
    assert np.isnan(found.means[1, 1])
    np.testing.assert_allclose(found.weights, [0.5, 0.5])


def test_too_many_parameters_are_refused(rng, monkeypatch):
    monkeypatch.setattr("lmab.estimation.information.MAX_PARAMETERS", 5)
    log = lmab.simulate(lmab.random_bandit(2, 2, rng=rng), lmab.Uniform(2), n_episodes=200, horizon=3, rng=rng)
    assert lmab.estimate(log, n_contexts=2, rng=rng).standard_errors().means.shape == (2, 2)  # five exactly
    monkeypatch.setattr("lmab.estimation.information.MAX_PARAMETERS", 4)
    with pytest.raises(lmab.errors.TooLarge, match="limited to 4 free parameters, this model has 5"):
        lmab.estimate(log, n_contexts=2, rng=rng).standard_errors()
