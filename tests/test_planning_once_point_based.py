"""Greedy steps before the plans, without repeats: against enumeration of every session."""

from __future__ import annotations

import numpy as np
import pytest
from test_planning_once_backups import case, follows

import lmab
from lmab.planning import backups
from lmab.planning.no_repeats.backups import NoRepeatVectors
from lmab.planning.no_repeats.point_based import NoRepeatPlans
from lmab.planning.problem import Clock, Problem


def found(seed: int, raised: float = 0.0) -> NoRepeatPlans:
    """Four steps; the plans for three and for two steps to go are given, and promise `raised` more."""
    problem, later, _, _ = case(seed)
    none, plans = NoRepeatVectors.none(problem), NoRepeatPlans(problem, 0, Clock(60.0))
    given = NoRepeatVectors(later.vectors + raised, later.arms, later.used)
    plans.plans = [none, given, NoRepeatVectors(given.vectors + 1.0, given.arms, given.used), none]
    return plans


def earned(problem: Problem, plans: list[NoRepeatVectors], belief: np.ndarray, gone: set[int], greedy: int) -> float:
    """What `greedy` greedy steps and then the best plan earn."""
    steps = problem.horizon - len(gone)
    if greedy == 0:
        return follows(problem, plans[steps - 1], belief, gone, steps)
    gains = [-np.inf if arm in gone else float(belief @ problem.means[arm]) for arm in range(problem.n_arms)]
    arm = int(np.argmax(gains))
    codes = range(arm * problem.n_values, (arm + 1) * problem.n_values)
    later = sum(earned(problem, plans, belief * problem.table[code], gone | {arm}, greedy - 1) for code in codes)
    return gains[arm] + later


@pytest.mark.parametrize("raised", [-3.0, 0.0, 2.0])
@pytest.mark.parametrize("seed", range(6))
def test_the_greedy_start_is_the_best_by_enumeration(seed, raised):
    plans = found(seed, raised)
    by_steps = [earned(plans.problem, plans.plans, plans.problem.weights, set(), greedy) for greedy in range(4)]
    value, steps = plans.greedy_start()
    assert value == pytest.approx(max(by_steps), rel=1e-12)
    assert by_steps[steps] == pytest.approx(value, rel=1e-12)


def test_new_plans_are_looked_at_anew():
    plans = found(0)
    before = plans.greedy_start()
    assert plans.greedy_start() is before  # once for the same plans
    plans.back_up(60)
    after = plans.greedy_start()
    assert after is not before
    assert after >= before
    plans.look_ahead()
    assert plans.greedy_start() is not after


@pytest.mark.parametrize("method", [lmab.Certified(n_beliefs=40), lmab.planning.PointBased(n_beliefs=40)])
def test_plans_with_few_of_many_arms_keep_their_promise_with_all(monkeypatch, method):
    """The policy numbers arms as the bandit does, may play any of them, and earns what was proved."""
    bandit = lmab.random_bandit(3, 30, kind="spread", rng=4)
    monkeypatch.setattr(backups, "_MANY", 29)
    monkeypatch.setattr(backups, "_FEW", 8)
    monkeypatch.setattr("lmab.planning.certified._FEW_STATES", 0)
    plan = lmab.plan(bandit, horizon=3, method=method, repeats=False, time_limit=20.0)
    assert plan.policy.used.shape[1] == 30
    monkeypatch.undo()
    exact = lmab.plan(bandit, horizon=3, method=lmab.Exact(), repeats=False)
    value = lmab.evaluate(plan.policy, bandit, horizon=3).mean
    assert plan.lower - 1e-9 <= value <= exact.upper + 1e-9 <= plan.upper + 2e-9
    assert value >= 0.98 * exact.lower


def test_a_greedy_start_may_play_an_arm_that_is_not_planned_with(monkeypatch):
    problem = Problem.of(lmab.random_bandit(3, 12, rng=1), 3)
    monkeypatch.setattr(backups, "_MANY", 11)
    monkeypatch.setattr(backups, "_FEW", 6)
    plans = NoRepeatPlans(problem, 0, Clock(60.0))
    left_out = np.setdiff1d(np.arange(12), plans.arms)
    assert len(left_out) == 6
    played = np.array([[plans.arms[2], left_out[0]]])
    np.testing.assert_array_equal(plans._seen(played), [[False, False, True, False, False, False]])
    gains = problem.means @ problem.weights
    order = np.argsort(-gains)
    assert plans._greedy(problem.weights[None], order[None, :2], problem.means) == order[2]
