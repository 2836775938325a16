"""Continuous rewards: planned in bins, played with the true densities."""

from __future__ import annotations

import numpy as np
import pytest
from seeds import generator

import lmab
from lmab import LatentBandit
from lmab.planning.problem import Problem


@pytest.fixture
def bandit():
    # Arm 2 pays nothing and tells the type; without it both gambles look the same.
    return LatentBandit.gaussian([0.5, 0.5], [[1.0, 0.0, 0.6], [0.0, 1.0, -0.6]], scale=0.7)


def test_bins_are_equally_likely_and_sum_to_one(bandit):
    table, middles, edges = bandit.rewards.channel(bandit.weights, 8)
    assert ((middles[:, 1:] > edges) & (middles[:, :-1] < edges)).all()
    np.testing.assert_allclose(table.reshape(3, 8, 2).sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(table @ bandit.weights, 1 / 8, atol=1e-9)


@pytest.mark.parametrize("n_bins", [2, 40])
def test_bins_are_quantiles_of_the_mixture(n_bins):
    """Unequal weights, and bins far out in the tails: under the mixture each is as likely as any other."""
    bandit = LatentBandit.gaussian([0.9, 0.1], [[1.0, 0.0], [-3.0, 5.0]], scale=0.7)
    table, middles, edges = bandit.rewards.channel(bandit.weights, n_bins)
    np.testing.assert_allclose(table @ bandit.weights, 1 / n_bins, atol=1e-9)
    assert edges.shape == (2, n_bins - 1)
    assert middles.shape == (2, n_bins)


def test_codes_find_the_bin(bandit):
    problem = Problem.of(bandit, 3, 8)
    rng = generator(0)
    types, arms = rng.integers(2, size=20_000), rng.integers(3, size=20_000)
    codes = problem.codes(arms, bandit.rewards.sample(types, arms, rng=rng))
    assert (codes // 8 == arms).all()
    for type_ in range(2):
        seen = np.bincount(codes[types == type_], minlength=24) / (types == type_).sum()
        np.testing.assert_allclose(seen, problem.table[:, type_] / 3, atol=0.01)


@pytest.mark.parametrize(
    "method",
    [lmab.Certified(), lmab.Exact(), lmab.planning.Lookahead(1), lmab.planning.PointBased(), lmab.QMDP()],
    ids=repr,
)
def test_both_bounds_hold_for_the_gaussian_problem(bandit, method):
    plan = lmab.plan(bandit, horizon=4, method=method, bins=6)
    estimate = lmab.evaluate(plan.policy, bandit, horizon=4, n_sessions=20_000, rng=generator(1))
    assert plan.lower <= estimate.mean + 4 * estimate.stderr
    assert estimate.mean <= plan.upper + 4 * estimate.stderr
    assert plan.upper < 0.95 * 4 * (bandit.weights @ bandit.means.max(axis=1))  # the value of a known type
    assert "6 bins per arm" in plan.message


def test_more_bins_never_hurt_when_nested(bandit):
    lowers = [lmab.plan(bandit, horizon=4, method=lmab.Exact(), bins=bins).lower for bins in (2, 4, 8)]
    assert lowers == sorted(lowers)
    fine = lmab.plan(bandit, horizon=3, method=lmab.Exact(), bins=24).lower
    coarse = lmab.plan(bandit, horizon=3, method=lmab.Exact(), bins=8).lower
    assert coarse > 0.99 * fine


def test_plans_are_certified_with_observations_that_are_more_informative(bandit):
    plan = lmab.plan(bandit, horizon=4)
    assert plan.status == "certified"
    assert plan.gap <= 0.01
    assert "12 bins per arm" in plan.message


def test_files_and_masks(bandit, tmp_path):
    policy = lmab.plan(bandit, horizon=4).policy
    policy.save(tmp_path / "policy.lmab")
    again = lmab.load(tmp_path / "policy.lmab")
    history = [(2, 0.3), (0, -0.1)]
    assert again.act_on(history) == policy.act_on(history)
    assert again.act_on(history, allowed=[False, False, True]) == 2


@pytest.mark.parametrize(
    "method", [lmab.Certified(), lmab.Exact(), lmab.planning.Lookahead(1), lmab.planning.Lookahead(2)], ids=repr
)
@pytest.mark.parametrize("repeats", [True, False])
def test_a_bound_proved_in_coarse_bins_is_not_printed_as_one_for_the_rewards(method, repeats):
    """With finer bins a policy earns more than the search in two bins calls possible: that bound is none."""
    means = [[0.9, -0.9, 0.4, 0.2], [-0.9, 0.9, -0.4, 0.2]]
    bandit = LatentBandit.gaussian([0.5, 0.5], means, scale=0.5)
    coarse = lmab.plan(bandit, horizon=3, method=method, bins=2, repeats=repeats)
    fine = lmab.plan(bandit, horizon=3, method=lmab.Exact(), bins=24, repeats=repeats)
    in_bins = lmab.plan(bandit, horizon=3, method=lmab.Exact(), bins=2, repeats=repeats).lower
    assert fine.lower > in_bins + 0.005  # what two bins can earn is less than what the rewards can
    assert coarse.upper >= fine.lower
    assert fine.upper >= fine.lower
    assert coarse.upper <= bandit.known_type(3, repeats=repeats) + 1e-9
    assert "optimal" not in (coarse.status, fine.status)
    assert "bin" in coarse.message


def test_looking_ahead_in_coarse_bins_proves_nothing_about_the_rewards():
    """Arm 0 tells four types apart, but not in two bins: then a half is left to guess at the second step.

    The search in bins calls 1.75 the best, though whoever sees the rewards plays arm 0 and then two good arms.
    """
    good = np.kron(np.eye(4), np.ones(3))  # three arms that pay 1, in every type others
    means = np.column_stack([[-0.3, -0.1, 0.1, 0.3], good])
    bandit = LatentBandit.gaussian(np.full(4, 0.25), means, scale=0.02)
    sure = lmab.plan(bandit, horizon=3, method=lmab.planning.Lookahead(1), bins=16, repeats=False).lower
    assert sure > 1.99
    for depth in (1, 2):
        assert lmab.plan(bandit, horizon=3, method=lmab.planning.Lookahead(depth), bins=2, repeats=False).upper >= sure
