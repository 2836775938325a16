"""compare: the difference of two policies on one log, by hand, by the estimates themselves, and against the truth."""

from __future__ import annotations

import numpy as np
import pytest
from seeds import generator

import lmab
from lmab.errors import InvalidArgument
from lmab.evaluation import compare, with_propensities

BANDIT = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.7, 0.4], [0.4, 0.7]])
UNIFORM = lmab.Uniform(2)


def logged(n_episodes: int, seed: int) -> lmab.Episodes:
    log = lmab.simulate(BANDIT, UNIFORM, n_episodes=n_episodes, horizon=3, rng=generator(seed))
    return with_propensities(log, UNIFORM)


def test_a_policy_earns_no_more_than_itself():
    greedy = lmab.Greedy(BANDIT)
    found = compare(greedy, greedy, logged(500, 0), horizon=3)
    assert (found.difference, found.stderr, found.interval) == (0.0, 0.0, (0.0, 0.0))


def test_the_other_way_round_is_the_same_with_the_other_sign():
    log, one, other = logged(2_000, 1), lmab.Greedy(BANDIT), lmab.Stationary(1)
    there, back = (compare(*pair, log, horizon=3, model=BANDIT, rng=0) for pair in ((one, other), (other, one)))
    assert there.difference == pytest.approx(-back.difference)
    assert there.interval == pytest.approx((-back.interval[1], -back.interval[0]))


def test_one_step_by_hand():
    """Arm 0 paid 1, 1, 0 in three sessions, arm 1 paid 0, 1: the shares that each arm paid are compared."""
    log = lmab.Episodes.from_arrays(
        [[0], [0], [0], [1], [1]], [[1.0], [1.0], [0.0], [0.0], [1.0]], propensities=np.full((5, 1), 0.5)
    )
    found = compare(lmab.Stationary(0), lmab.Stationary(1), log, horizon=1)
    assert (found.method, found.n_episodes) == ("self-normalised", 5)
    assert (found.value, found.other) == pytest.approx((2 / 3, 1 / 2))
    assert found.interval[0] >= -1
    assert found.interval[1] == 1  # a normal interval would go beyond what is possible


@pytest.mark.parametrize("horizon", [1, 2])
def test_intervals_stay_within_what_is_possible_at_both_ends(horizon):
    """Four sessions: a normal interval is wider than any difference of rewards from 0 to 3 could be."""
    arms = np.repeat([[0], [0], [1], [1]], horizon, axis=1)
    rewards = np.repeat([[3.0], [0.0], [0.0], [3.0]], horizon, axis=1)
    log = lmab.Episodes.from_arrays(arms, rewards, propensities=np.full((4, horizon), 0.5))
    there, back = (
        compare(lmab.Stationary(a), lmab.Stationary(1 - a), log, horizon=horizon, confidence=0.999) for a in (0, 1)
    )
    assert there.interval == back.interval == (-3 * horizon, 3 * horizon)


def test_the_confidence_is_95_percent_unless_it_is_said():
    log, pair = logged(500, 3), (lmab.Greedy(BANDIT), lmab.Stationary(0))
    assert compare(*pair, log, horizon=3).interval == compare(*pair, log, horizon=3, confidence=0.95).interval


@pytest.mark.parametrize("model", [None, BANDIT])
def test_the_interval_holds_the_truth_and_narrows_with_confidence(model):
    one, other = lmab.Greedy(BANDIT), lmab.Stationary(0)
    truth = lmab.evaluate(one, BANDIT, horizon=3).mean - lmab.evaluate(other, BANDIT, horizon=3).mean
    held = 0
    for seed in range(12):
        log = logged(3_000, seed)
        wide, narrow = (compare(one, other, log, horizon=3, model=model, confidence=c, rng=0) for c in (0.95, 0.5))
        held += wide.interval[0] <= truth <= wide.interval[1]
        assert wide.interval[0] < narrow.interval[0] < narrow.interval[1] < wide.interval[1]
        assert (wide.interval[1] - wide.interval[0]) / (2 * wide.stderr) == pytest.approx(1.959964, rel=1e-5)
    assert held >= 9  # at 95% each, fewer happen once in 5,000 times


def test_refuses_a_log_that_agrees_with_neither():
    log = lmab.Episodes.from_arrays([[0]] * 5, [[1.0]] * 5, propensities=np.full((5, 1), 0.5), n_arms=2)
    with pytest.raises(InvalidArgument, match="episodes must hold sessions that agree with both policies"):
        compare(lmab.Stationary(0), lmab.Stationary(1), log, horizon=1)
