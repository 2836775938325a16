"""What every planner promises whenever it stops: bounds that hold, no less than a lookahead, bounded memory."""

from __future__ import annotations

import numpy as np
import pytest
from planning_cases import interrupted

import lmab
from lmab import QMDP, Certified, Exact, LatentBandit
from lmab.errors import InvalidArgument, TooLarge
from lmab.planning import Clock, Lookahead, PointBased, Problem
from lmab.planning.information_price import Guess, certify
from lmab.planning.search import Search


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("method", [Certified(), PointBased()], ids=lambda method: type(method).__name__)
@pytest.mark.parametrize("repeats", [True, False])
def test_stopped_at_once_a_plan_proves_what_a_lookahead_proves(seed, method, repeats):
    bandit = lmab.random_bandit(5, 12, kind=("hard", "spherical")[seed % 2], rng=seed)
    stopped = lmab.plan(bandit, horizon=6, method=method, time_limit=1e-9, repeats=repeats)
    ahead = lmab.plan(bandit, horizon=6, method=Lookahead(1), repeats=repeats)
    greedy = lmab.plan(bandit, horizon=6, method=QMDP(), repeats=repeats)
    assert stopped.lower >= max(ahead.lower, greedy.lower, bandit.best_fixed(6, repeats)) - 1e-9
    assert stopped.lower <= lmab.evaluate(stopped, bandit, horizon=6).mean + 1e-9


METHODS = [Certified(gap=1e-12), PointBased(n_beliefs=100_000), Lookahead(2), Exact()]


@pytest.mark.parametrize("repeats", [True, False])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_an_interrupt_returns_the_best_so_far(method, repeats):
    """Ctrl-C in the middle of planning, wherever that is."""
    lmab.plan(lmab.random_bandit(2, 6, rng=0), horizon=3, method=type(method)(), repeats=repeats)  # kernels loaded
    n_types, n_arms, horizon = (60, 60, 8) if not isinstance(method, Exact) else (400, 14, 6)
    bandit = lmab.random_bandit(n_types, n_arms, rng=1)
    plan = interrupted(lambda: lmab.plan(bandit, horizon=horizon, method=method, repeats=repeats))
    assert bandit.best_fixed(horizon, repeats) - 1e-9 <= plan.lower <= plan.upper
    assert 0 <= plan.policy.act_on([]) < n_arms


def test_the_search_stops_before_its_memory_limit():
    bandit = lmab.random_bandit(10, 200, kind="hard", rng=0)
    plan = lmab.plan(bandit, horizon=10, method=Certified(gap=1e-6, memory_limit=4e7), time_limit=60)
    assert plan.status == "memory limit"
    assert "memory limit" in plan.message
    assert plan.lower < plan.upper
    search = Search(Problem.of(bandit, 10), seed=0, memory_limit=4e7)
    search.look_ahead(Clock(60.0))
    while not search.full:
        search.advance(1e-6)
        assert search.memory <= 4e7
    with pytest.raises(InvalidArgument, match="memory_limit must be"):
        Certified(memory_limit=0)


def test_exact_planning_without_repeats_names_the_size_it_refuses():
    with pytest.raises(TooLarge, match=r"would need \d+ states \(60 arms, 2 values, 8 steps; [\d.]+ GB\)"):
        lmab.plan(lmab.random_bandit(3, 60, rng=0), horizon=8, method=Exact(), repeats=False)


@pytest.mark.parametrize("seed", range(5))
def test_one_step_is_worth_the_best_mean(seed):
    bandit = lmab.random_bandit(4, 6, rng=seed)
    for method in (QMDP(), Lookahead(0), Lookahead(2), PointBased(), Certified(), Exact()):
        for repeats in (True, False):
            plan = lmab.plan(bandit, horizon=1, method=method, repeats=repeats)
            assert (plan.lower, plan.upper) == pytest.approx((bandit.best_fixed(1),) * 2, abs=1e-12)


def test_the_price_is_reported_by_every_method():
    bandit = lmab.random_bandit(7, 50, kind="hard", rng=0)
    best = lmab.plan(bandit, horizon=7).lower
    for method in (QMDP(), Lookahead(1), PointBased()):
        plan = lmab.plan(bandit, horizon=7, method=method)
        assert best <= plan.upper < 0.9 * bandit.known_type(7)


def test_rewards_that_tell_nothing_leave_nothing_to_search():
    """Flat arms: their values stand for all the steps left, and the bounds still meet at the optimum."""
    means = np.array([[0.5, 0.6, 0.9, 0.1], [0.5, 0.6, 0.1, 0.9]])
    bandit = LatentBandit.bernoulli([0.5, 0.5], means)
    exact = lmab.plan(bandit, horizon=6, method=Exact()).lower
    plan = lmab.plan(bandit, horizon=6, method=Certified(gap=1e-9))
    assert (plan.lower, plan.upper) == pytest.approx((exact, exact), abs=1e-8)


def test_a_horizon_for_which_no_limit_could_hold_is_refused_at_once():
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
    with pytest.raises(InvalidArgument, match="horizon must be at most 10,000 steps, got 100000: the type is known"):
        lmab.plan(bandit, horizon=100_000, time_limit=5.0)


def test_a_poor_price_does_not_raise_the_upper_bound():
    problem = Problem.of(lmab.random_bandit(3, 6, kind="hard", rng=0), 4)
    search = Search(problem, seed=0)
    before = search.upper_bound
    channels = problem.table.reshape(problem.n_arms, -1, len(problem.weights))
    shape = (5, problem.n_arms)
    poor = Guess(np.ones(shape), np.ones((*shape, channels.shape[1])), np.full(5, 1e3))
    search.use(certify(problem.means, channels, problem.weights / problem.weights.sum(), poor))
    assert search.upper_bound == before
    search.charge_for_information(Clock(60.0))
    assert lmab.plan(problem.bandit, horizon=4, method=Exact()).lower <= search.upper_bound < before
