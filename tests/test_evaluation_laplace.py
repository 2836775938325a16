"""Draws around a fitted bandit: their spread, their floor, and what stays impossible."""

from __future__ import annotations

import numpy as np
import pytest
from test_estimation_information import categorical_case, gaussian_case

import lmab
from lmab.estimation import observe
from lmab.evaluation.laplace import Laplace, laplace
from lmab.model import Categorical


def approximation(bandit, sessions, strength=1.0, **family):
    data = observe(sessions, **family)
    return laplace(data.information(bandit, data.prior(strength)))


def test_relabelling_types_arms_or_values_changes_no_eigenvalue(rng):
    bandit, sessions, _ = categorical_case(3, 4, 3, 50, rng)
    arms = [2, 0, 3, 1]
    other = bandit.relabel(types=[1, 2, 0], arms=arms)
    values = Categorical(other.rewards.probabilities[:, :, [1, 0, 2]], np.array([1.0, 0.0, 2.0]))
    moved = lmab.Sessions(np.argsort(arms)[sessions.arms], sessions.rewards, sessions.offsets, 4)
    before = approximation(bandit, sessions).eigenvalues
    after = approximation(lmab.LatentBandit(other.weights, values), moved).eigenvalues
    np.testing.assert_allclose(after, before, atol=1e-9)


def test_draws_have_the_covariance_of_the_information(rng):
    bandit, sessions, _ = categorical_case(1, 2, 2, 400, rng)
    found = approximation(bandit, sessions)
    assert found.n_floored == 0
    weights, families = found.draw(4000, rng)
    assert (weights == 1).all()
    means = np.array([family.means[0] for family in families])
    logits = np.log(means / (1 - means))
    plays = np.bincount(sessions.arms)
    expected = 1 / ((plays + 1) * bandit.means[0] * (1 - bandit.means[0]))
    np.testing.assert_allclose(logits.var(axis=0), expected, rtol=0.1)
    np.testing.assert_allclose(logits.mean(axis=0), np.log(bandit.means[0] / (1 - bandit.means[0])), atol=0.02)


def test_gaussian_draws_have_the_covariance_of_the_information(rng):
    truth, sessions, _ = gaussian_case(1, 2, 400, rng)
    bandit = lmab.fit(sessions, n_types=1, rewards="gaussian", rng=rng).bandit
    found = approximation(bandit, sessions, 0.0, rewards="gaussian")
    _, families = found.draw(4000, rng)
    means, scales = np.array([family.means[0] for family in families]), np.array([family.scale for family in families])
    expected = bandit.rewards.scale / np.sqrt(np.bincount(sessions.arms))
    np.testing.assert_allclose(means.std(axis=0), expected, rtol=0.1)
    np.testing.assert_allclose(np.log(scales).std(), 1 / np.sqrt(2 * sessions.n_steps), rtol=0.1)
    assert truth.n_types == 1


def test_what_the_log_says_nothing_about_is_floored_and_the_impossible_stays_impossible(rng):
    bandit = lmab.LatentBandit.categorical([1.0, 0.0], [[[0.5, 0.5, 0.0]] * 2, [[0.2, 0.8, 0.0]] * 2], [0, 1, 2])
    sessions = lmab.Sessions.from_arrays([[0, 0]] * 50, [[0.0, 1.0]] * 50, n_arms=2)
    found = approximation(bandit, sessions, values=[0, 1, 2])
    # All but the played arm's logit of value 0 against 1 in the type that is left: 9 coordinates less 1.
    assert (found.n_parameters, found.n_floored) == (9, 8)
    weights, families = found.draw(400, rng)
    assert weights[:, 1].max() < 1e-9
    unplayed = np.array([family.probabilities[0, 1] for family in families])
    assert np.log(unplayed[:, 1] / unplayed[:, 0]).std() == pytest.approx(1, rel=0.15)
    assert max(family.probabilities[:, :, 2].max() for family in families) < 1e-9


def test_draws_spread_along_the_eigenvectors(rng):
    """Two logits of one type, known well along one diagonal and badly along the other."""
    bandit = lmab.LatentBandit.bernoulli([1.0], [[0.5, 0.5]])
    log = lmab.Sessions.from_arrays([[0, 1]] * 2, [[0.0, 1.0], [1.0, 0.0]])
    data = observe(log)
    turned = np.array([[0.8, -0.6], [0.6, 0.8]])
    found = Laplace(data.information(bandit, data.prior(1.0)), np.array([2.0, 50.0]), turned)
    means = np.array([one.means[0] for one in found.draw(20_000, rng)[1]])
    expected = turned @ np.diag([1 / 2, 1 / 50]) @ turned.T
    np.testing.assert_allclose(np.cov(np.log(means / (1 - means)).T), expected, atol=0.02)
