"""Cut rewards: how many outcomes, equally likely ones, and means that stay exact."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

import lmab
from lmab.evaluation.cutting import Cut, discrete, only

ONE = lmab.LatentBandit.gaussian([1.0], [[0.3]], scale=0.5)
TWO = lmab.LatentBandit.gaussian([0.5, 0.5], [[1.0, 0.0, -1.0], [0.0, 2.0, 4.0]], scale=0.5)


@pytest.mark.parametrize(("horizon", "n_outcomes"), [(1, 9), (2, 9), (4, 9), (5, 8), (6, 5), (7, 4), (8, 3), (40, 3)])
def test_as_many_outcomes_as_five_thousand_histories_allow(horizon, n_outcomes):
    """Between 3 and 9, and n^(H - 1) <= 5,000 where 3 allow it."""
    cut = Cut.of(TWO, horizon)
    assert (len(cut.values), len(cut.edges)) == (n_outcomes, n_outcomes - 1)
    if 3 < n_outcomes < 9:
        assert n_outcomes ** (horizon - 1) <= 5000 < (n_outcomes + 1) ** (horizon - 1)


def test_outcomes_of_one_arm_are_equally_likely_and_stand_at_their_medians():
    cut = Cut.of(ONE, 6)
    family = cut.rewards(ONE.rewards)
    np.testing.assert_allclose(family.probabilities[0, 0], 1 / 5)
    np.testing.assert_allclose(norm(0.3, 0.5).cdf(cut.values), (np.arange(5) + 0.5) / 5)
    np.testing.assert_allclose(norm(0.3, 0.5).cdf(cut.edges), np.arange(1, 5) / 5)


def test_cuts_spread_over_the_means_of_all_arms_and_the_means_stay_exact():
    cut = Cut.of(TWO, 6)
    spread = np.sqrt(TWO.means.var() + 0.25)
    np.testing.assert_allclose(cut.edges, norm(1.0, spread).ppf(np.arange(1, 5) / 5))
    family = discrete(TWO.rewards, cut)
    np.testing.assert_array_equal(family.means, TWO.means)
    below = norm(4.0, 0.5).cdf(cut.edges)
    np.testing.assert_allclose(family.probabilities[1, 2], np.diff([0, *below, 1]))
    some = only(family, np.array([2, 0]))
    np.testing.assert_array_equal(some.means, TWO.means[:, [2, 0]])
    np.testing.assert_array_equal(some.probabilities, family.probabilities[:, [2, 0]])


def test_finitely_many_values_are_not_cut():
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
    assert Cut.of(bandit, 5) is None
    assert discrete(bandit.rewards, None) is bandit.rewards
    np.testing.assert_array_equal(only(bandit.rewards, np.array([1])).means, [[0.5], [0.6]])
