"""Prices on arms bound sessions without repeats from above, whatever the prices are; plans bound them from below."""

from __future__ import annotations

import numpy as np
import oracle
import pytest

import lmab
from lmab import Certified, LatentBandit
from lmab.planning import exact as exact_module
from lmab.planning import search as search_module
from lmab.planning.information_bound import information_bound
from lmab.planning.no_repeats import relaxation as module
from lmab.planning.no_repeats.relaxation import optimize_multipliers, relaxed_problem
from lmab.planning.problem import Clock, Problem
from lmab.planning.search import Search


def draw(seed: int) -> tuple[LatentBandit, int]:
    """Two or three values of any sign, types of weight 0."""
    rng = np.random.default_rng([seed, 7])
    n_types, n_arms, horizon, n_values = (int(n) for n in rng.integers([2, 4, 2, 2], [6, 7, 5, 4]))
    n_arms, horizon = (n_arms, horizon) if n_values == 2 else (min(n_arms, 5), min(horizon, 3))
    probabilities = rng.dirichlet(np.full(n_values, rng.choice([0.3, 1.0, 4.0])), (n_types, n_arms))
    values = np.arange(n_values) if rng.random() < 0.5 else np.sort(rng.normal(size=n_values))
    weights = rng.dirichlet(np.full(n_types, rng.choice([0.5, 3])))
    if rng.random() < 0.2:
        weights[0] = 0
        weights /= weights.sum()
    return LatentBandit.categorical(weights, probabilities, values.astype(float)), min(horizon, n_arms)


def optimum(bandit: LatentBandit, horizon: int) -> float:
    rewards = bandit.rewards
    return oracle.optimal_value(bandit.weights, rewards.probabilities, rewards.values, horizon, repeats=False)


def check_bounds(seed: int) -> None:
    bandit, horizon = draw(seed)
    problem, rng, best = Problem.of(bandit, horizon), np.random.default_rng(seed), optimum(bandit, horizon)
    found = optimize_multipliers(problem, rounds=int(rng.integers(1, 12)))
    mass, slack = problem.weights.sum(), 1e-10 * problem.scale
    assert found.at_start * mass >= best - slack
    prices = found.multipliers + np.abs(rng.normal(size=found.multipliers.shape)) * 0.1  # any prices will do
    there = relaxed_problem(problem, prices)
    price = information_bound(there.step_model, there.weights, rounds=2)
    refund = float(prices.sum(axis=0) @ problem.weights)
    assert price.at_start * mass + refund >= best - slack
    search = Search(there, seed=0)
    if horizon > 1:
        search.look_ahead(Clock(60.0))
        search.set_information_bounds([price])
        for _ in range(3):
            search.advance(1e-3 * problem.scale)
            assert search.upper_bound + refund >= best - slack


@pytest.mark.parametrize("block", range(6))
def test_no_prices_give_less_than_the_optimum(block):
    for seed in range(20 * block, 20 * (block + 1)):
        check_bounds(seed)


@pytest.mark.slow
def test_no_prices_give_less_than_the_optimum_on_a_thousand():
    for seed in range(1000, 2500):
        check_bounds(seed)


@pytest.mark.parametrize("seed", range(25))
def test_the_search_without_repeats_brackets_the_optimum(seed, monkeypatch):
    monkeypatch.setattr("lmab.planning.certified._FEW_STATES", 0)
    monkeypatch.setattr(module.NoRepeatSearch, "_fits", lambda self, problem: False)
    bandit, horizon = draw(seed)
    best = optimum(bandit, horizon)
    for method in (Certified(n_beliefs=20), lmab.planning.PointBased(n_beliefs=20)):
        plan = lmab.plan(bandit, horizon=horizon, method=method, repeats=False)
        assert plan.policy.kind == "once-vectors"
        value = lmab.evaluate(plan.policy, bandit, horizon=horizon).mean
        assert plan.lower - 1e-9 <= value <= best + 1e-9
        assert best <= plan.upper + 1e-9
        assert (
            plan.lower
            >= lmab.plan(bandit, horizon=horizon, method=lmab.planning.Lookahead(1), repeats=False).lower - 1e-9
        )
        if plan.status == "certified":
            assert plan.gap <= 0.01


@pytest.mark.parametrize(("wide", "rounds"), [(False, [8, 16, 32, 64, 64]), (True, [8, 16, 16, 16, 16])])
def test_rounds_grow_until_many_arms_take_the_memory(wide, rounds, monkeypatch):
    monkeypatch.setattr(search_module, "_WIDE", 100 if wide else 1 << 16)
    monkeypatch.setattr(module, "_BATCHES", 1)
    asked: list[int] = []

    def back_up(self, n):
        asked.append(n)
        return len(asked) < 5

    monkeypatch.setattr(module.NoRepeatPlans, "back_up", back_up)
    problem = Problem.of(lmab.random_bandit(3, 8, rng=1), 4, repeats=False)
    options = {"tolerance": lambda lower: 1e-9, "n_beliefs": 4, "seed": 0, "memory_limit": 1e9}
    search = module.NoRepeatSearch(problem, Clock(60.0), **options)
    search._relax()
    for cycle in range(6):  # the fifth round finds no plans, so there is no sixth
        search._cycle(cycle)
    assert asked == rounds


@pytest.fixture
def stalled(monkeypatch):
    """A bandit on which the search stalls above a gap of 0, as if it were too large to be solved exactly at once."""
    monkeypatch.setattr("lmab.planning.certified._FEW_STATES", 0)
    return lmab.random_bandit(4, 7, kind="hard", rng=3)


def test_a_search_that_stalls_is_followed_by_dynamic_programming(stalled, monkeypatch):
    plan = lmab.plan(stalled, horizon=5, repeats=False, method=Certified(gap=0.0))
    assert plan.status == "optimal"
    assert plan.lower == plan.upper == pytest.approx(optimum(stalled, 5))
    assert lmab.evaluate(plan.policy, stalled, horizon=5).mean == pytest.approx(plan.lower)
    assert lmab.plan(stalled, horizon=5, repeats=False, method=Certified(gap=1.0)).status == "certified"


@pytest.mark.parametrize("need", ["seconds_needed", "n_states"])
def test_branch_and_bound_closes_a_gap_for_which_dynamic_programming_does_not_fit(stalled, need, monkeypatch):
    monkeypatch.setattr(module, need, lambda problem: 1 << 62)
    plan = lmab.plan(stalled, horizon=5, repeats=False, method=Certified(gap=1e-9))
    assert plan.status == "certified"
    assert plan.policy.kind == "once-vectors"
    best = optimum(stalled, 5)
    assert plan.lower - 1e-9 <= best <= plan.upper + 1e-9
    assert lmab.evaluate(plan.policy, stalled, horizon=5).mean >= plan.lower - 1e-9


def test_dynamic_programming_that_is_interrupted_leaves_the_plan_of_the_search(stalled, monkeypatch):
    def interrupt(problem):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "seconds_needed", interrupt)
    plan = lmab.plan(stalled, horizon=5, repeats=False, method=Certified(gap=0.0))
    assert plan.status == "interrupted"
    assert plan.policy.kind == "once-vectors"


def test_a_click_log_with_few_arms_is_planned_to_the_optimum():
    """The search stalls at a gap of 7% after a second or two."""
    rng = np.random.default_rng(0)
    bandit = lmab.LatentBandit.bernoulli(rng.dirichlet(np.full(4, 5.0)), rng.beta(1, 6, (4, 15)))
    plan = lmab.plan(bandit, horizon=8, repeats=False, time_limit=600.0)
    assert plan.status == "optimal"
    assert plan.gap == 0


def test_seconds_of_exact_count_every_step(monkeypatch):
    monkeypatch.setattr(exact_module, "_seconds_of_one", lambda problem, states, step, later: 1.0 + len(later))
    problem = Problem.of(lmab.random_bandit(2, 4, rng=1), 3, repeats=False)
    sizes = [exact_module.States.of(problem).count(step) for step in range(3)]
    assert exact_module.seconds_needed(problem) == 2 * (sizes[2] + (1 + sizes[2]) * (sizes[0] + sizes[1]))
    monkeypatch.undo()
    assert 0 < exact_module.seconds_needed(Problem.of(lmab.random_bandit(2, 4, rng=1), 1)) < 60


def test_large_plans_say_what_was_not_reached():
    bandit = lmab.random_bandit(6, 40, kind="hard", rng=3)
    plan = lmab.plan(bandit, horizon=8, repeats=False, method=Certified(n_beliefs=40), time_limit=2.0)
    assert plan.status == "time limit"
    assert "a longer time_limit would close more of the gap" in plan.message
    assert plan.upper < bandit.known_type(8, repeats=False)
    quick = lmab.plan(bandit, horizon=8, repeats=False, time_limit=1e-6)
    assert quick.status == "time limit"
    assert quick.lower <= plan.lower + 1e-9
    assert quick.upper >= plan.lower


def test_sessions_that_start_greedily_earn_what_is_promised():
    """Here 3 steps of a tree of greedy steps promise more than the plans alone."""
    bandit = lmab.random_bandit(8, 14, kind="spherical", rng=5)
    plan = lmab.plan(bandit, horizon=6, method=lmab.planning.PointBased(n_beliefs=1), repeats=False)
    assert plan.policy.greedy_steps > 0
    assert plan.lower <= lmab.evaluate(plan.policy, bandit, horizon=6).mean + 1e-9


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("repeats", [True, False])
def test_what_a_masked_policy_earns(seed, repeats, monkeypatch):
    """By enumeration of every history: no more than the best policy of the arms allowed, and no other arm is played."""
    bandit, horizon = draw(seed)
    allowed = np.ones(bandit.n_arms, bool)
    allowed[np.random.default_rng(seed).choice(bandit.n_arms, bandit.n_arms - max(horizon, 2), replace=False)] = False
    rewards, kept = bandit.rewards, np.flatnonzero(allowed)
    best = oracle.optimal_value(
        bandit.weights, rewards.probabilities[:, kept], rewards.values, horizon, repeats=repeats
    )
    methods = [Certified(gap=1e-6), lmab.Exact(), lmab.planning.Lookahead(1), lmab.planning.PointBased(n_beliefs=20)]
    for method in methods:
        policy = lmab.plan(bandit, horizon=horizon, method=method, repeats=repeats).policy

        def decide(history, policy=policy):
            arm = policy.act_on(history, allowed=allowed)
            assert allowed[arm]
            assert repeats or arm not in [played for played, _ in history]
            return arm

        value = oracle.policy_value(bandit.weights, rewards.probabilities, rewards.values, decide, horizon)
        assert value <= best + 1e-9
        if allowed.all():
            assert value >= lmab.plan(bandit, horizon=horizon, method=method, repeats=repeats).lower - 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_more_rounds_give_a_lower_bound_and_a_start_is_kept(seed):
    problem = Problem.of(lmab.random_bandit(4, 12, kind="hard", rng=seed), 4)
    ends = [optimize_multipliers(problem, rounds=rounds).at_start for rounds in (1, 15, 150)]
    assert ends[0] > ends[1] > ends[2]
    best = lmab.plan(problem.bandit, horizon=4, repeats=False).lower
    assert ends[2] - best < 0.75 * (problem.bandit.known_type(4, repeats=False) - best)
    found = optimize_multipliers(problem, rounds=15)
    assert optimize_multipliers(problem, rounds=0, start=found).at_start == pytest.approx(found.at_start, rel=1e-12)
    assert (
        optimize_multipliers(problem, rounds=5, start=found).at_start < optimize_multipliers(problem, rounds=5).at_start
    )
    stopped = optimize_multipliers(problem, stop=lambda: True)  # the price of knowing the type, or a little more
    assert stopped.at_start >= best


def test_what_is_paid_is_given_back():
    """Arms 0 and 1 are the best of both types: with the price of 0.1 on arm 0, nothing is left to learn."""
    problem = Problem.of(LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.8, 0.1], [0.7, 0.6, 0.1]]), 2)
    found = optimize_multipliers(problem, rounds=3)
    np.testing.assert_allclose(found.constant_term, found.multipliers.sum(axis=0))
    assert found.constant_term.min() > 0.05
    assert found.at_start == pytest.approx(1.5, abs=0.02)
    assert (found.multipliers >= 0).all()
    there = relaxed_problem(problem, found.multipliers)
    np.testing.assert_allclose(there.means, problem.means - found.multipliers)
