"""Sessions that play each arm at most once."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
from seeds import generator

import lmab
from lmab import QMDP, Certified, Exact, LatentBandit
from lmab.errors import InvalidArgument, TooLarge
from lmab.planning.lookahead import Lookahead
from lmab.planning.point_based import PointBased


def draw(seed: int) -> tuple[LatentBandit, int]:
    rng = generator(seed)
    n_types, n_values, horizon = (int(n) for n in rng.integers([1, 2, 1], [5, 4, 5]))
    probabilities = rng.dirichlet(np.full(n_values, 0.5), (n_types, 5))
    return LatentBandit.categorical(rng.dirichlet(np.ones(n_types)), probabilities, rng.normal(size=n_values)), horizon


def optimum(bandit: LatentBandit, horizon: int) -> float:
    rewards = bandit.rewards
    return oracle.optimal_value(bandit.weights, rewards.probabilities, rewards.values, horizon, repeats=False)


METHODS = [Certified(), Exact(), PointBased(n_beliefs=30), Lookahead(0), Lookahead(1), Lookahead(2), QMDP()]


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize("seed", range(8))
def test_bounds_hold_for_the_constrained_problem(method, seed):
    bandit, horizon = draw(seed)
    plan = lmab.plan(bandit, horizon=horizon, method=method, repeats=False)
    best = optimum(bandit, horizon)
    value = lmab.evaluate(plan.policy, bandit, horizon=horizon).mean
    assert plan.lower - 1e-9 <= value <= best + 1e-9
    assert best <= plan.upper + 1e-9
    if method in (Certified(), Exact()):
        assert plan.status == "optimal"
        assert plan.lower == pytest.approx(best, abs=1e-12)


def test_large_problems_look_ahead_with_valid_bounds(rng):
    bandit = lmab.random_bandit(5, 60, kind="hard", rng=rng)
    plan = lmab.plan(bandit, horizon=8, repeats=False, time_limit=2)
    assert plan.status == "time limit"
    assert "without repeats" in plan.message
    estimate = lmab.evaluate(plan.policy, bandit, horizon=8, n_sessions=500, rng=rng)
    assert plan.lower <= estimate.mean + 4 * estimate.stderr
    assert plan.upper < lmab.plan(bandit, horizon=8, method=QMDP()).upper  # tighter than with repeats
    with pytest.raises(TooLarge, match="without repeats Exact would need"):
        lmab.plan(bandit, horizon=8, method=Exact(), repeats=False)


def test_masks_come_on_top(rng):
    bandit = lmab.random_bandit(3, 5, rng=rng)
    for method in (Lookahead(1), Exact()):
        policy = lmab.plan(bandit, horizon=4, method=method, repeats=False).policy
        first = policy.act_on([])
        allowed = np.zeros(5, bool)
        allowed[[first, (first + 1) % 5]] = True
        assert policy.act_on([(first, 1.0)], allowed=allowed) == (first + 1) % 5
        # Where only an arm already played is allowed, there is no choice.
        assert policy.act_on([(first, 1.0)], allowed=np.arange(5) == first) == first


def test_gaussian_sessions_without_repeats(rng):
    bandit = LatentBandit.gaussian([0.5, 0.5], [[1.0, 0.2, 0.5], [0.0, 0.8, 0.5]], scale=0.5)
    for method in (Exact(), Lookahead(1)):
        plan = lmab.plan(bandit, horizon=3, method=method, repeats=False)
        estimate = lmab.evaluate(plan.policy, bandit, horizon=3, n_sessions=4000, rng=rng)
        assert plan.lower - 4 * estimate.stderr <= estimate.mean <= plan.upper + 4 * estimate.stderr
        assert plan.status == "heuristic"


@pytest.mark.parametrize("method", [Exact(), Certified(), Lookahead(1), Lookahead(2), QMDP()], ids=repr)
def test_the_upper_bound_for_normal_rewards_is_none_of_the_bins(method):
    """Two bins hide most of what a reward tells: what is optimal in them, many bins exceed."""
    means = [[1.0, 0.2, 0.3, 0.9], [0.0, 0.8, 0.3, 0.1], [0.4, 0.9, 0.3, -0.6]]
    bandit = LatentBandit.gaussian([0.4, 0.3, 0.3], means, scale=0.2)
    for horizon in (2, 3):
        coarse = lmab.plan(bandit, horizon=horizon, method=method, bins=2, repeats=False)
        fine = lmab.plan(bandit, horizon=horizon, method=Exact(), bins=16, repeats=False)
        assert coarse.lower < fine.lower < coarse.upper
        assert coarse.trace[-1].upper == coarse.upper
        assert "2 bins per arm" in coarse.message
        # By brute force: one first arm for all, then each type's own best arms.
        known = max(
            sum(
                weight * (row[first] + sum(sorted(np.delete(row, first))[-(horizon - 1) :]))
                for weight, row in zip(bandit.weights, np.array(means), strict=True)
            )
            for first in range(4)
        )
        assert coarse.upper <= known + 1e-9
        assert known <= bandit.known_type(horizon, repeats=False)


def test_errors():
    bandit = lmab.random_bandit(3, 5, rng=generator(0))
    with pytest.raises(InvalidArgument, match="horizon must be at most the 5 arms without repeats, got 6"):
        lmab.plan(bandit, horizon=6, repeats=False)


def test_long_sessions_of_many_types_are_greedy_by_default(rng):
    """On people held out the search earned no more there than being greedy does, and took all of its time."""
    many, few = lmab.random_bandit(65, 13, rng=rng), lmab.random_bandit(3, 13, rng=rng)

    def greedy(bandit, horizon, **settings):
        made = lmab.plan(bandit, horizon=horizon, time_limit=0.5, **settings)
        return made.message.startswith("Q-MDP")

    assert greedy(many, 11, repeats=False)
    assert not greedy(many, 11, repeats=False, method=lmab.Certified())
    assert not greedy(many, 10, repeats=False)
    assert not greedy(few, 11, repeats=False)
    assert not greedy(many, 11)
