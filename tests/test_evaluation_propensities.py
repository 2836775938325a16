"""Propensities fitted to a log: shares by step, and the test for logs that adapt."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import lmab
from lmab import Sessions
from lmab.evaluation import fit_propensities
from lmab.evaluation import propensities as module


def test_a_share_counts_the_sessions_that_reach_the_step():
    """Four sessions begin, three have a second step, one a third: shares are of four, three and one."""
    log = Sessions.from_arrays([[0, 1, 1], [0, 1, -1], [0, 0, -1], [1, -1, -1]], np.zeros((4, 3)))
    fitted, notes = fit_propensities(log)
    expected = [3 / 4, 2 / 3, 1, 3 / 4, 2 / 3, 3 / 4, 1 / 3, 1 / 4]
    np.testing.assert_allclose(fitted.propensities, expected)
    assert notes == ()
    assert fitted.arms is not None
    np.testing.assert_array_equal(fitted.rewards, log.rewards)


def test_fitted_weights_of_a_blind_policy_average_one_at_every_step(rng):
    """Uniform play of ragged sessions: per-decision weights from fitted propensities average 1 where arms were seen."""
    arms = rng.integers(3, size=(300, 4))
    arms[np.arange(4) >= rng.integers(1, 5, size=300)[:, None]] = -1
    log = Sessions.from_arrays(arms, rng.integers(2, size=(300, 4)).astype(float), n_arms=3)
    fitted, _ = fit_propensities(log)
    shares = np.asarray(fitted.propensities)
    for step in range(4):
        here = shares[log.steps == step]
        assert (1 / 3 / here).mean() == pytest.approx(1)


def adaptive_log(repeat: int) -> Sessions:
    """Two steps; the second arm is the first reward. Each of the four sessions occurs equally often."""
    sessions = list(itertools.product((0, 1), (0.0, 1.0)))
    arms = [[first, int(reward)] for first, reward in sessions] * repeat
    rewards = [[reward, 0.5] for _, reward in sessions] * repeat
    return Sessions.from_arrays(arms, rewards)


def test_arms_that_follow_the_reward_before_are_noticed():
    _, notes = fit_propensities(adaptive_log(50))
    assert len(notes) == 1
    assert "depend on the rewards before them" in notes[0]


def test_the_p_value_is_that_of_the_chi_square_test(rng):
    """One later step: the plain test of independence of a 2 x A table."""
    from scipy.stats import chi2_contingency

    log = lmab.simulate(lmab.random_bandit(2, 3, rng=rng), lmab.Uniform(3), n_sessions=400, horizon=2, rng=rng)
    first, second = log.rewards[::2] > log.rewards.mean(), log.arms[1::2]
    table = np.array([[np.sum((first == side) & (second == arm)) for arm in range(3)] for side in (False, True)])
    expected = chi2_contingency(table, correction=False).pvalue
    assert module._independence(log, log.steps) == pytest.approx(expected)


def test_few_sessions_prove_nothing():
    """Cells with an expected count below 5 are left out: what is left here has no freedom at all."""
    assert module._independence(adaptive_log(2), adaptive_log(2).steps) == 1.0
    assert module._independence(adaptive_log(5), adaptive_log(5).steps) < 0.001
    single = Sessions.from_arrays([[0], [1]], [[0.0], [1.0]])
    assert module._independence(single, single.steps) == 1.0
