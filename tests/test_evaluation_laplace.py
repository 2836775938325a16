"""Draws around a fitted bandit: their spread, their floor, and what stays impossible."""

from __future__ import annotations

import numpy as np
import pytest
from test_estimation_information import categorical_case, gaussian_case

import lmab
from lmab.estimation import observe
from lmab.evaluation.laplace import laplace
from lmab.model import Categorical


def approximation(bandit, episodes, strength=1.0, **family):
    data = observe(episodes, **family)
    return laplace(data.information(bandit, data.prior(strength)))


def test_relabelling_contexts_arms_or_values_changes_no_eigenvalue(rng):
    bandit, episodes, _ = categorical_case(3, 4, 3, 50, rng)
    arms = [2, 0, 3, 1]
    other = bandit.relabel(contexts=[1, 2, 0], arms=arms)
    values = Categorical(other.rewards.probabilities[:, :, [1, 0, 2]], np.array([1.0, 0.0, 2.0]))
    moved = lmab.Episodes(np.argsort(arms)[episodes.actions], episodes.rewards, episodes.offsets, 4)
    before = approximation(bandit, episodes).eigenvalues
    after = approximation(lmab.LatentBandit(other.weights, values), moved).eigenvalues
    np.testing.assert_allclose(after, before, atol=1e-9)


def test_draws_have_the_covariance_of_the_information(rng):
    bandit, episodes, _ = categorical_case(1, 2, 2, 400, rng)
    found = approximation(bandit, episodes)
    assert found.n_floored == 0
    weights, families = found.draw(4000, rng)
    assert (weights == 1).all()
    means = np.array([family.means[0] for family in families])
    logits = np.log(means / (1 - means))
    plays = np.bincount(episodes.actions)
    expected = 1 / ((plays + 1) * bandit.means[0] * (1 - bandit.means[0]))
    np.testing.assert_allclose(logits.var(axis=0), expected, rtol=0.1)
    np.testing.assert_allclose(logits.mean(axis=0), np.log(bandit.means[0] / (1 - bandit.means[0])), atol=0.02)


def test_gaussian_draws_have_the_covariance_of_the_information(rng):
    truth, episodes, _ = gaussian_case(1, 2, 400, rng)
    bandit = lmab.estimate(episodes, n_contexts=1, rewards="gaussian", rng=rng).bandit
    found = approximation(bandit, episodes, 0.0, rewards="gaussian")
    _, families = found.draw(4000, rng)
    means, scales = np.array([family.means[0] for family in families]), np.array([family.scale for family in families])
    expected = bandit.rewards.scale / np.sqrt(np.bincount(episodes.actions))
    np.testing.assert_allclose(means.std(axis=0), expected, rtol=0.1)
    np.testing.assert_allclose(np.log(scales).std(), 1 / np.sqrt(2 * episodes.n_steps), rtol=0.1)
    assert truth.n_contexts == 1


def test_what_the_log_says_nothing_about_is_floored_and_the_impossible_stays_impossible(rng):
    bandit = lmab.LatentBandit.categorical([1.0, 0.0], [[[0.5, 0.5, 0.0]] * 2, [[0.2, 0.8, 0.0]] * 2], [0, 1, 2])
    episodes = lmab.Episodes.from_arrays([[0, 0]] * 50, [[0.0, 1.0]] * 50, n_arms=2)
    found = approximation(bandit, episodes, values=[0, 1, 2])
    # All but the played arm's logit of value 0 against 1 in the context that is left: 9 coordinates less 1.
    assert (found.n_parameters, found.n_floored) == (9, 8)
    weights, families = found.draw(400, rng)
    assert weights[:, 1].max() < 1e-9
    unplayed = np.array([family.probabilities[0, 1] for family in families])
    assert np.log(unplayed[:, 1] / unplayed[:, 0]).std() == pytest.approx(1, rel=0.15)
    assert max(family.probabilities[:, :, 2].max() for family in families) < 1e-9
