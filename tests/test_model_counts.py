"""Counts: Poisson rewards of the model, against scipy and by counting."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import poisson

import lmab
from lmab.errors import InvalidArgument
from lmab.model.counts import Counts

MEANS = np.array([[2.0, 0.3, 0.0], [0.5, 40.0, 1.0]])
BANDIT = lmab.LatentBandit.counts([0.4, 0.6], MEANS)


def test_likelihoods_are_those_of_poisson():
    arms, rewards = np.array([0, 1, 1, 2, 2]), np.array([3.0, 0.0, 55.0, 0.0, 2.0])
    expected = poisson.pmf(rewards[:, None], MEANS.T[arms])
    np.testing.assert_allclose(BANDIT.rewards.likelihood(arms, rewards), expected, rtol=1e-12)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(BANDIT.rewards.log_likelihood(arms, rewards), np.log(expected), rtol=1e-12)


def test_evidence_survives_counts_that_no_type_expects():
    found = Counts([[0.1], [0.2]]).evidence(np.array([0, 0]), np.array([500.0, 0.0]))
    assert found.max(axis=1).tolist() == [1.0, 1.0]
    assert found[0, 0] < 1e-140
    assert Counts([[0.0], [0.0]]).evidence(np.array([0]), np.array([1.0])).tolist() == [[0.0, 0.0]]  # impossible


@pytest.mark.parametrize("bad", [-1.0, 0.5])
def test_other_rewards_are_refused(bad):
    with pytest.raises(InvalidArgument, match=rf"whole numbers of at least 0, got {bad} at step 1"):
        BANDIT.rewards.likelihood(np.array([0, 0]), np.array([1.0, bad]))
    with pytest.raises(InvalidArgument, match=r"means of counts must be at least 0, got -0\.5 at index \(0, 1\)"):
        lmab.LatentBandit.counts([1.0], [[1.0, -0.5]])


def test_samples_have_the_mean_as_their_variance(rng):
    types, arms = np.zeros(40_000, int), np.zeros(40_000, int)
    found = BANDIT.rewards.sample(types, arms, rng=rng)
    assert found.mean() == pytest.approx(2.0, abs=0.05)
    assert found.var() == pytest.approx(2.0, abs=0.1)
    assert BANDIT.rewards.sample(types, arms + 2, rng=rng).max() == 0.0


@pytest.mark.parametrize("bins", [2, 5, 12])
def test_bins_hold_the_probabilities_of_their_counts(bins):
    """Every count falls into the bin that `Problem.codes` gives it; a bin has the sum of its counts' probabilities."""
    table, rewards, edges = BANDIT.rewards.channel(BANDIT.weights, bins)
    counts = np.arange(400.0)
    for arm in range(3):
        place = (counts[:, None] > edges[arm]).sum(axis=1)
        expected = np.stack([np.bincount(place, poisson.pmf(counts, mean), bins) for mean in MEANS[:, arm]], axis=1)
        np.testing.assert_allclose(table[arm * bins : (arm + 1) * bins], expected, atol=1e-12)
        assert ((rewards[arm][:, None] > edges[arm]).sum(axis=1) == np.arange(bins)).all()
    shares = table.reshape(3, bins, 2) @ BANDIT.weights
    assert shares[1].max() < 0.62  # the arm of mean 40 is cut where its counts are


def test_quantiles_invert_the_distribution():
    types, arms = np.array([0, 1, 1, 0]), np.array([0, 1, 0, 2])
    shares = np.array([0.1, 0.5, 0.999, 0.7])
    found = BANDIT.rewards.quantile(types, arms, shares)
    means = MEANS[types, arms]
    assert (poisson.cdf(found, means) >= shares).all()
    assert (poisson.cdf(found - 1, means) < shares).all()


def test_cuts_lie_half_way_between_rising_counts():
    for n in (5, 9, 17):
        points = np.asarray(BANDIT.rewards.cuts(n))
        assert len(points) == n
        assert (np.diff(points) > 0).all()
        assert (points[::2] == np.floor(points[::2])).all()
        assert (points[1::2] % 1 == 0.5).all()
    edges = np.array([-1.0, 0.0, 0.5, 1.0, 3.5])
    expected = np.stack([poisson.cdf(limit, MEANS) for limit in (-2, -1, 0, 0, 3)], axis=2)
    np.testing.assert_allclose(BANDIT.rewards.below(edges), expected, atol=1e-12)


def test_recentred_draws_raise_no_mean_on_average(rng):
    drawn = [Counts(MEANS * np.exp(rng.normal(size=MEANS.shape))) for _ in range(50)]
    found = np.mean([each.means for each in BANDIT.rewards.recentred(drawn)], axis=0)
    assert (found <= MEANS * (1 + 1e-9)).all()


def test_what_every_family_can_do(tmp_path):
    BANDIT.save(tmp_path / "bandit.lmab")
    assert lmab.load(tmp_path / "bandit.lmab") == BANDIT
    assert str(BANDIT.rewards) == "counts 0, 1, 2, ..."
    assert BANDIT.relabel(types=[1, 0]).means[0].tolist() == MEANS[1].tolist()
    assert BANDIT.distance(BANDIT.relabel(types=[1, 0])) == pytest.approx(0.0, abs=1e-9)
    assert BANDIT.distance(lmab.LatentBandit.counts([0.4, 0.6], MEANS + np.array([0, 2, 0]))) == pytest.approx(2.0)
    assert BANDIT.with_arms(["new"]).means[:, 3].tolist() == pytest.approx(
        [0.4 * MEANS[0].mean() + 0.6 * MEANS[1].mean()] * 2
    )
    assert BANDIT.rewards.floored(0.1).means.min() == 0.1
    assert Counts(MEANS).joined([Counts(MEANS)]).n_types == 4
    assert (BANDIT.rewards.support, BANDIT.rewards.spread, BANDIT.rewards.n_parameters) == (
        (0.0, np.inf),
        np.sqrt(40),
        6,
    )


def test_a_plan_keeps_its_promise(rng):
    """The lower bound of a plan on cut counts is what its policy earns at least, and knowing the type earns more."""
    bandit = lmab.LatentBandit.counts([0.5, 0.5], [[4.0, 0.5, 1.5], [0.5, 3.0, 1.5]])
    plan = lmab.plan(bandit, horizon=3, time_limit=10.0)
    earned = lmab.evaluate(plan.policy, bandit, horizon=3, n_sessions=20_000, rng=rng)
    assert earned.mean >= plan.lower - 4 * earned.stderr
    assert bandit.best_fixed(3) <= plan.lower <= plan.upper <= bandit.known_type(3) + 1e-9
