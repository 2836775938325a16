"""From vectors that the method of moments found, which need not be probabilities, to a bandit."""

from __future__ import annotations

import numpy as np
import pytest

import lmab
from lmab.estimation import observe, reconstruct
from lmab.estimation.categorical.models import LEAST
from lmab.moments import Subspace

LOG = lmab.Sessions.from_arrays(
    [[0, 1, 1, 0], [1, 0, 0, 1]], [[0.0, 1.0, 1.0, 1.0], [0.0, 1.0, 1.0, 1.0]], n_arms=3
)  # arm 2 is never played


def floored(*probabilities: float) -> np.ndarray:
    raised = np.maximum(probabilities, LEAST)
    return raised / raised.sum()


def test_probabilities_are_clipped_before_they_are_made_to_sum_to_one():
    """Equation (clipping_mu): 1.5 counts as 1 and -1 as 0, whatever the others are."""
    vectors = np.array([[0.5, 1.5, -1.0, 0.5, 0.3, 0.7], [0.2, 0.6, 1.2, -0.2, 0.0, 0.0]])
    found = observe(LOG).models.from_moments(np.array([0.4, 0.6]), vectors).rewards.probabilities
    np.testing.assert_allclose(found[0, 0], floored(1 / 3, 2 / 3))
    np.testing.assert_allclose(found[0, 1], floored(0.0, 1.0))
    np.testing.assert_allclose(found[1, 0], floored(0.25, 0.75))
    np.testing.assert_allclose(found[1, 1], floored(1.0, 0.0))


def test_an_arm_without_plays_gets_the_rewards_of_all_arms():
    found = observe(LOG).models.from_moments(np.array([0.4, 0.6]), np.tile([0.9, 0.1], (2, 3))).rewards.probabilities
    np.testing.assert_allclose(found[:, 2], np.tile([2 / 8, 6 / 8], (2, 1)))
    np.testing.assert_allclose(found[:, 0], np.tile([0.9, 0.1], (2, 1)))


def test_an_arm_that_came_out_as_nothing_gets_its_own_rewards():
    found = observe(LOG).models.from_moments(np.array([1.0]), np.array([[-0.3, 0.0005, 0.5, 0.5, 0.5, 0.5]]))
    np.testing.assert_allclose(found.rewards.probabilities[0, 0], [1 / 4, 3 / 4])  # arm 0 paid 1 in three of four plays


def test_normal_means_stay_and_the_scale_is_what_is_left():
    rng = np.random.default_rng(0)
    means = np.array([[0.0, 3.0], [2.0, -1.0]])
    bandit = lmab.LatentBandit.gaussian([0.5, 0.5], means, scale=0.5)
    log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=20_000, horizon=3, rng=rng).with_arms(3)
    found = observe(log, rewards="gaussian").models.from_moments(
        np.array([0.5, 0.5]), np.column_stack([means, [9.0, 9.0]])
    )
    np.testing.assert_array_equal(found.means[:, :2], means)
    np.testing.assert_allclose(found.means[:, 2], log.rewards.mean())
    assert found.rewards.scale == pytest.approx(0.5, abs=0.02)
    known = observe(log, rewards="gaussian", scale=0.7).models.from_moments(np.array([0.5, 0.5]), np.zeros((2, 3)))
    assert known.rewards.scale == 0.7
    absurd = observe(log, rewards="gaussian").models.from_moments(np.array([0.5, 0.5]), 50 * np.ones((2, 3)))
    assert 0 < absurd.rewards.scale < 1e-4  # more explained than there is: next to nothing is left


def test_reconstruction_clips_too():
    """A core set of all pairs: what is rebuilt is what was found, clipped."""
    core = lmab.moments.design(Subspace(np.eye(6), np.ones(6), 3, np.array([0.0, 1.0])))
    np.testing.assert_allclose(core.reconstruction, np.eye(6), atol=1e-9)
    found = reconstruct(np.array([1.0]), np.array([[0.5, 1.5, -1.0, 0.5, 0.3, 0.7]]).T, core, LOG)
    np.testing.assert_allclose(found.rewards.probabilities[0, 0], floored(1 / 3, 2 / 3), rtol=1e-6)
    np.testing.assert_allclose(found.rewards.probabilities[0, 1], [LEAST / (LEAST + 0.5), 0.5 / (LEAST + 0.5)])


def test_values_that_only_the_core_plays_paid_join_with_the_least_probability():
    core = lmab.moments.design(Subspace(np.eye(4), np.ones(4), 2, np.array([0.0, 1.0])))
    log = lmab.Sessions.from_arrays([[0, 1], [1, 0]], [[0.0, 2.0], [1.0, 0.0]])
    found = reconstruct(np.array([1.0]), np.array([[0.4, 0.6, 0.5, 0.5]]).T, core, log).rewards
    assert found.values.tolist() == [0.0, 1.0, 2.0]
    np.testing.assert_allclose(found.probabilities[0, 0], np.array([0.4, 0.6, LEAST]) / (1 + LEAST), rtol=1e-6)
