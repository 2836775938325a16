"""The information price is an upper bound whatever it is computed from, and tight enough to be of use."""

from __future__ import annotations

import numpy as np
import pytest
from planning_cases import any_bandit, optimal_at

import lmab
from lmab.planning.information_price import Guess, certify, information_price
from lmab.planning.problem import Problem


def check_everywhere(seed: int) -> float:
    """Both a nonsense guess and the optimised one at random beliefs; returns the least slack, relative to the scale."""
    bandit, horizon = any_bandit(seed)
    problem, rng = Problem.of(bandit, horizon, 12), np.random.default_rng(seed)
    channels = problem.table.reshape(problem.n_arms, -1, len(problem.weights))
    n_arms, n_values, n_types = channels.shape
    guess = Guess(
        rng.dirichlet(np.full(n_arms, 0.3), horizon + 1),
        rng.dirichlet(np.full(n_values, 0.3), (horizon + 1, n_arms)),
        np.exp(rng.normal(size=horizon + 1) * 2) * np.abs(problem.means).max(),
    )
    prior = problem.weights / problem.weights.sum()
    prices = [
        certify(problem.means, channels, prior, guess),
        information_price(problem.means, problem.table, problem.weights, horizon, rounds=int(rng.integers(6))),
    ]
    beliefs = np.concatenate([rng.dirichlet(np.full(n_types, c), 4) for c in (0.05, 0.5, 5.0)] + [prior[None]])
    beliefs *= rng.random((len(beliefs), 1))
    beliefs[rng.random(beliefs.shape) < 0.1] = 0
    slack = np.inf
    for steps in range(1, horizon + 1):
        best = optimal_at(problem.table, problem.means, beliefs, steps)
        for price in prices:
            excess = price.bound(beliefs, steps) - best
            slack = min(slack, float(excess.min()) / problem.scale)
    return slack


@pytest.mark.parametrize("block", range(10))
def test_no_bound_is_below_the_optimum(block):
    for seed in range(30 * block, 30 * (block + 1)):
        assert check_everywhere(seed) >= 0, seed


@pytest.mark.slow
def test_no_bound_is_below_the_optimum_on_thousands():
    for seed in range(1000, 6000):
        assert check_everywhere(seed) >= 0, seed


def test_stopped_at_once_it_is_still_a_bound():
    bandit = lmab.random_bandit(4, 8, kind="hard", rng=0)
    problem = Problem.of(bandit, 5, 12)
    best = lmab.plan(bandit, horizon=5, method=lmab.Exact()).lower
    for stop in (True, False):
        price = information_price(problem.means, problem.table, problem.weights, 5, stop=lambda stop=stop: stop)
        assert price.at_start >= best


def test_it_is_well_below_knowing_the_type_where_that_is_far_off():
    problem = Problem.of(lmab.random_bandit(7, 50, kind="hard", rng=1), 7, 12)
    price = information_price(problem.means, problem.table, problem.weights, 7)
    lower = lmab.plan(problem.bandit, horizon=7, method=lmab.Certified()).lower
    assert price.at_start - lower < 0.5 * (problem.full_information - lower)


def test_nothing_to_learn_costs_nothing():
    """One arm: the bound is its mean, whatever the price."""
    bandit = lmab.LatentBandit.bernoulli([0.3, 0.7], [[0.9], [0.2]])
    problem = Problem.of(bandit, 6, 12)
    price = information_price(problem.means, problem.table, problem.weights, 6)
    assert price.at_start == pytest.approx(6 * (0.3 * 0.9 + 0.7 * 0.2), rel=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_more_rounds_give_a_lower_bound(seed):
    problem = Problem.of(lmab.random_bandit(5, 20, kind="hard", rng=seed), 6, 12)
    ends = [
        information_price(problem.means, problem.table, problem.weights, 6, rounds=rounds).at_start
        for rounds in (0, 4, 30)
    ]
    assert ends[0] > ends[1] > ends[2]
    best = lmab.plan(problem.bandit, horizon=6).lower
    assert ends[2] - best < 0.75 * (ends[0] - best)


def test_at_the_prior_the_bound_is_that_of_the_start_and_scales_with_the_mass():
    problem = Problem.of(lmab.random_bandit(3, 6, kind="hard", rng=0), 4, 12)
    price = information_price(problem.means, problem.table, problem.weights, 4, rounds=3)
    sure = np.array([1.0, 0.0, 0.0])  # knowing the type costs its surprise, and earns its best arm at least
    beliefs = np.stack([price.prior, 0.2 * price.prior, np.zeros(3), sure])
    found = price.bound(beliefs, 4)
    surprise = price.planes[4, 0] - price.rates[4] * np.log(price.prior[0])
    np.testing.assert_allclose(found, [price.at_start, 0.2 * price.at_start, 0, surprise])
    assert found[3] >= 4 * problem.means[:, 0].max()
    np.testing.assert_array_equal(price.bound(beliefs, 0), 0)


@pytest.mark.parametrize("level", [0.0, -1.0])
def test_a_guess_that_charges_nothing_is_made_a_bound_all_the_same(level):
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
    problem = lmab.planning.Problem.of(bandit, 4)
    channels = problem.table.reshape(problem.n_arms, -1, 2)
    shape = (5, problem.n_arms)
    guess = Guess(np.ones(shape), np.ones((*shape, channels.shape[1])), np.full(5, level))
    price = certify(problem.means, channels, problem.weights, guess)
    assert np.isfinite(price.at_start)
    assert price.at_start >= lmab.plan(bandit, horizon=4, method=lmab.Exact()).lower
