"""The information bound: an upper bound for every choice of its parameters, and tight enough to be useful."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from leaving_cases import bandit_people_leave
from planning_cases import any_bandit, optimal_at

import lmab
from lmab.planning.belief_grid import BeliefGrid, grid_bound
from lmab.planning.information_bound import (
    BoundParameters,
    evaluate_bound,
    information_bound,
    information_bounds,
)
from lmab.planning.problem import Clock, Problem
from lmab.planning.search import Search
from lmab.planning.step_model import StepModel


def random_parameters(problem: Problem, rng: np.random.Generator) -> BoundParameters:
    """Draw parameters of a bound that have nothing to do with the problem."""
    observations, stages = problem.step_model.observations, problem.horizon + 1
    _, n_arms, n_values, n_types = observations.shape
    width = n_values + (n_types if problem.people_leave else 0)
    return BoundParameters(
        rng.dirichlet(np.full(n_arms, 0.3), (stages, 1)),
        rng.dirichlet(np.full(width, 0.3), (stages, 1, n_arms)),
        (np.exp(rng.normal(size=stages) * 2) * np.abs(problem.means).max())[:, None],
    )


def model_of(problem: Problem, steps: int) -> StepModel:
    return StepModel.of(problem.means, problem.table, steps, has_attrition=problem.people_leave)


def check_everywhere(seed: int) -> float:
    """Both a nonsense guess and the optimised one at random beliefs; returns the least slack, relative to the scale."""
    bandit, horizon = any_bandit(seed)
    problem, rng = Problem.of(bandit, horizon, 12), np.random.default_rng(seed)
    parameters = random_parameters(problem, rng)
    n_types, prior = len(problem.weights), problem.weights / problem.weights.sum()
    bounds = [
        *evaluate_bound(problem.step_model, prior[None], parameters),
        information_bound(problem.step_model, problem.weights, rounds=int(rng.integers(6))),
    ]
    beliefs = np.concatenate([rng.dirichlet(np.full(n_types, c), 4) for c in (0.05, 0.5, 5.0)] + [prior[None]])
    beliefs *= rng.random((len(beliefs), 1))
    beliefs[rng.random(beliefs.shape) < 0.1] = 0
    slack = np.inf
    for steps in range(1, horizon + 1):
        best = optimal_at(problem.table, problem.means, beliefs, steps)
        for bound in bounds:
            excess = bound.bound(beliefs, steps) - best
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


@pytest.mark.parametrize("leaving", [False, True], ids=["all stay", "some leave"])
@pytest.mark.parametrize("seed", range(30))
def test_the_plane_of_an_arm_is_at_least_its_value_by_the_prices_after_it(seed, leaving):
    bandit, horizon = bandit_people_leave(seed) if leaving else any_bandit(seed)
    problem, rng = Problem.of(bandit, horizon, 12), np.random.default_rng(seed)
    shares, model = problem.weights / problem.weights.sum(), problem.step_model
    prices = [information_bound(model, shares, rounds=int(rng.integers(6)))]
    if not leaving:
        near = (shares + rng.dirichlet(np.ones(len(shares)), 3)) / 2
        prices += information_bounds(model, near)
    n_values = len(problem.table) // problem.n_arms
    beliefs = rng.dirichlet(np.full(len(shares), 0.5), 12) * rng.random((12, 1))
    beliefs[rng.random(beliefs.shape) < 0.1] = 0
    for price in prices:
        told = np.where(beliefs > 0, beliefs, 1) / np.maximum(beliefs.sum(axis=1, keepdims=True), 1e-9) / price.prior
        entropy = (beliefs * np.log(np.where(beliefs > 0, told, 1))).sum(axis=1)
        for steps in range(1, horizon + 1):
            planes = beliefs @ price.arm_linear_terms[steps].T + price.entropy_weights[steps - 1] * entropy[:, None]
            for arm in range(problem.n_arms):
                codes = problem.table[arm * n_values : (arm + 1) * n_values]
                after = sum(price.bound(beliefs * code, steps - 1) for code in codes)
                earned = beliefs @ problem.means[arm] + after
                assert (planes[:, arm] >= earned - 1e-11 * problem.scale * horizon).all()


def test_stopped_at_once_it_is_still_a_bound():
    bandit = lmab.random_bandit(4, 8, kind="hard", rng=0)
    problem = Problem.of(bandit, 5, 12)
    best = lmab.plan(bandit, horizon=5, method=lmab.Exact()).lower
    for stop in (True, False):
        price = information_bound(problem.step_model, problem.weights, stop=lambda stop=stop: stop)
        assert price.at_start >= best


def test_it_is_well_below_knowing_the_type_where_that_is_far_off():
    problem = Problem.of(lmab.random_bandit(7, 50, kind="hard", rng=1), 7, 12)
    price = information_bound(problem.step_model, problem.weights)
    lower = lmab.plan(problem.bandit, horizon=7, method=lmab.Certified()).lower
    assert price.at_start - lower < 0.5 * (problem.full_information - lower)


def test_nothing_to_learn_costs_nothing():
    """One arm: the bound is its mean, whatever the price."""
    bandit = lmab.LatentBandit.bernoulli([0.3, 0.7], [[0.9], [0.2]])
    problem = Problem.of(bandit, 6, 12)
    price = information_bound(problem.step_model, problem.weights)
    assert price.at_start == pytest.approx(6 * (0.3 * 0.9 + 0.7 * 0.2), rel=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_more_rounds_give_a_lower_bound(seed):
    problem = Problem.of(lmab.random_bandit(5, 20, kind="hard", rng=seed), 6, 12)
    ends = [information_bound(problem.step_model, problem.weights, rounds=rounds).at_start for rounds in (0, 4, 30)]
    assert ends[0] > ends[1] > ends[2]
    best = lmab.plan(problem.bandit, horizon=6).lower
    assert ends[2] - best < 0.75 * (ends[0] - best)


def test_at_the_prior_the_bound_is_that_of_the_start_and_scales_with_the_mass():
    problem = Problem.of(lmab.random_bandit(3, 6, kind="hard", rng=0), 4, 12)
    price = information_bound(problem.step_model, problem.weights, rounds=3)
    sure = np.array([1.0, 0.0, 0.0])  # knowing the type costs its surprise, and earns its best arm at least
    beliefs = np.stack([price.prior, 0.2 * price.prior, np.zeros(3), sure])
    found = price.bound(beliefs, 4)
    surprise = price.linear_terms[4, 0] - price.entropy_weights[4] * np.log(price.prior[0])
    np.testing.assert_allclose(found, [price.at_start, 0.2 * price.at_start, 0, surprise])
    assert found[3] >= 4 * problem.means[:, 0].max()
    np.testing.assert_array_equal(price.bound(beliefs, 0), 0)


@pytest.mark.parametrize("level", [0.0, -1.0])
def test_a_guess_that_charges_nothing_is_made_a_bound_all_the_same(level):
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
    problem = lmab.planning.Problem.of(bandit, 4)
    shape = (5, 1, problem.n_arms)
    parameters = BoundParameters(np.ones(shape), np.ones((*shape, problem.n_values)), np.full((5, 1), level))
    [price] = evaluate_bound(problem.step_model, problem.weights[None], parameters)
    assert np.isfinite(price.at_start)
    assert price.at_start >= lmab.plan(bandit, horizon=4, method=lmab.Exact()).lower


def people_leave_everywhere(seed: int) -> float:
    """As `check_everywhere`, where people leave; a grid of beliefs too. The least slack, relative to the scale."""
    bandit, horizon = bandit_people_leave(seed)
    problem, rng = Problem.of(bandit, horizon), np.random.default_rng(seed)
    prior, n_types, model = problem.weights / problem.weights.sum(), len(problem.weights), problem.step_model
    prices = [
        *evaluate_bound(model, prior[None], random_parameters(problem, rng)),
        information_bound(model, prior, rounds=int(rng.integers(20))),
    ]
    beliefs = np.concatenate([rng.dirichlet(np.full(n_types, c), 4) for c in (0.05, 0.5, 5.0)] + [prior[None]])
    beliefs *= rng.random((len(beliefs), 1))
    beliefs[rng.random(beliefs.shape) < 0.1] = 0
    slack = np.inf
    for steps in range(1, horizon + 1):
        best = optimal_at(problem.table, problem.means, beliefs, steps)
        bounds = [price.bound(beliefs, steps) for price in prices]
        bounds.append(grid_bound(model_of(problem, steps), beliefs, size=1 << int(rng.integers(11, 16))))
        slack = min([slack, *(float((bound - best).min()) / problem.scale for bound in bounds)])
    return slack


@pytest.mark.parametrize("block", range(4))
def test_no_bound_is_below_the_optimum_where_people_leave(block):
    for seed in range(30 * block, 30 * (block + 1)):
        assert people_leave_everywhere(seed) >= 0, seed


@pytest.mark.slow
def test_no_bound_is_below_the_optimum_where_people_leave_on_thousands():
    for seed in range(1000, 4000):
        assert people_leave_everywhere(seed) >= 0, seed


def test_whoever_leaves_gives_back_what_was_learned():
    """Leaving by chance alone is a discount: what is learned is used less often, and costs less."""
    base = lmab.random_bandit(4, 8, kind="hard", rng=0)
    means, prior = base.means.T, base.weights
    table = 0.8 * np.stack([1 - means, means], axis=1).reshape(-1, 4)
    found = information_bound(StepModel.of(means, table, 10, has_attrition=True), prior)
    best = lmab.plan(dataclasses.replace(base, leaving=np.full((4, 8, 2), 0.2)), horizon=10).lower
    assert best <= found.at_start < 1.25 * best


@pytest.mark.parametrize("n_types", [2, 3, 4, 6])
def test_a_belief_is_the_mean_of_the_points_around_it(n_types):
    rng = np.random.default_rng(n_types)
    beliefs = np.concatenate([rng.dirichlet(np.full(n_types, c), 50) for c in (0.05, 1.0)] + [np.eye(n_types)])
    beliefs = np.concatenate([beliefs, np.zeros((1, n_types))]) * rng.random((101 + n_types, 1))
    grid = BeliefGrid.within(20_000, n_types)
    places, weights = grid.around(beliefs)
    assert (weights >= 0).all()
    np.testing.assert_allclose((weights[..., None] * grid.points[places]).sum(axis=1), beliefs, atol=1e-14)
    np.testing.assert_allclose(grid.points.sum(axis=1), 1.0)
    far = np.abs(grid.points[places] - (beliefs / np.maximum(beliefs.sum(axis=1, keepdims=True), 1e-300))[:, None])
    assert far[weights > 0].max() <= 1 / grid.n + 1e-12
    assert len(np.unique(grid.points, axis=0)) == len(grid.points) <= 20_000


def test_a_finer_grid_comes_closer_to_the_optimum():
    bandit, horizon = bandit_people_leave(15)
    problem = Problem.of(bandit, horizon)
    best = optimal_at(problem.table, problem.means, problem.weights[None], horizon)[0]
    sizes = [1 << k for k in (12, 14, 16, 20)]
    over = [grid_bound(problem.step_model, problem.weights[None], size=size)[0] - best for size in sizes]
    assert over[0] > over[-1] >= 0
    assert over[-1] < 2e-4 * problem.scale


def test_a_grid_that_is_too_coarse_or_stopped_proves_nothing():
    problem = Problem.of(lmab.random_bandit(4, 8, kind="hard", rng=0), 5)
    given = problem.step_model, problem.weights[None]
    assert np.isinf(grid_bound(*given, size=455 * 16 * 4 - 1)).all()  # there are 455 multiples of 1/12
    assert np.isfinite(grid_bound(*given, size=455 * 16 * 4)).all()
    assert np.isinf(grid_bound(*given, size=1 << 20, stop=lambda: True)).all()


def test_with_few_types_plans_of_long_sessions_are_proved_soon():
    """The price alone leaves 6% of this one after ten seconds."""
    rng, n_types, n_arms = np.random.default_rng(2), 4, 50
    weights, means = rng.dirichlet(np.full(n_types, 8.0)), rng.uniform(0.05, 0.55, (n_types, n_arms))
    leaving = np.full((n_types, n_arms, 2), 0.05)
    for m in range(n_types):
        means[:, m], leaving[:, m] = 0.7, 0.5
        means[m, m], leaving[m, m] = 0.9, 0.02
    bandit = lmab.LatentBandit.bernoulli(weights, means, leaving=leaving)
    plan = lmab.plan(bandit, horizon=20)
    assert plan.status == "certified"
    assert len(plan.trace) < 20
    small = Search(Problem.of(bandit, 20), 0, memory_limit=1e7)
    before = small.upper_bound
    small.add_grid_bound(1 << 18, Clock(60.0))  # it would take more memory than it may
    assert small.upper_bound == before


@pytest.mark.parametrize("seed", range(2))
def test_where_people_leave_the_price_is_close_to_the_best_and_may_be_stopped_at_any_time(seed):
    rng, bandit = np.random.default_rng(seed), lmab.random_bandit(6, 30, kind="hard", rng=seed)
    leaving = rng.beta(0.6, 4.0, (6, 30, 2))
    problem = Problem.of(dataclasses.replace(bandit, leaving=leaving), 8)

    def at_start(**options: object) -> float:
        return information_bound(problem.step_model, problem.weights, **options).at_start

    ends = [at_start(rounds=rounds) for rounds in (0, 10, 600)]
    assert ends[0] > ends[1] > ends[2]
    assert at_start() - ends[2] < 0.15 * (ends[0] - ends[2])
    best = lmab.plan(problem.bandit, horizon=8).lower
    for n_calls in (0, 5, 200):
        calls = iter(range(10**6))
        assert at_start(stop=lambda calls=calls, n=n_calls: next(calls) >= n) >= best


def test_where_nobody_leaves_the_search_for_people_who_leave_finds_as_good_a_price():
    problem = Problem.of(lmab.random_bandit(5, 20, kind="hard", rng=0), 6)
    best = lmab.plan(problem.bandit, horizon=6).lower
    plain, found = (
        information_bound(StepModel.of(problem.means, problem.table, 6, has_attrition=leave), problem.weights).at_start
        for leave in (False, True)
    )
    assert best <= found <= 1.002 * plain


def test_the_price_is_about_shares_of_the_types_whatever_they_sum_to():
    means = np.array([[0.9, 0.1], [0.5, 0.6]])
    table = np.stack([1 - means, means], axis=1).reshape(4, 2)
    one, twice = (
        information_bound(StepModel.of(means, table, 4), scale * np.array([0.3, 0.7])) for scale in (1.0, 2.0)
    )
    np.testing.assert_allclose(twice.prior, [0.3, 0.7])
    assert twice.at_start == pytest.approx(one.at_start)
