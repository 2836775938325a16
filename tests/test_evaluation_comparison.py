"""compare: the difference of two values from one log, against exact values, and how often its interval holds."""

from __future__ import annotations

import numpy as np
import pytest

import lmab
from lmab.errors import InvalidArgument
from lmab.evaluation import compare, with_propensities

BANDIT = lmab.LatentBandit.bernoulli([0.4, 0.6], [[0.8, 0.4, 0.3], [0.2, 0.5, 0.7]])
LOGGED = lmab.Exploring(lmab.Greedy(BANDIT), 0.6)


def _log(n: int, seed: int):
    return with_propensities(lmab.simulate(BANDIT, LOGGED, n_episodes=n, horizon=3, rng=seed), LOGGED)


def _exact(policy) -> float:
    return lmab.evaluate(policy, BANDIT, horizon=3).mean


@pytest.mark.parametrize("model", [None, BANDIT], ids=["self-normalised", "doubly-robust"])
def test_the_difference_is_that_of_the_two_values(model):
    plan, fixed = lmab.plan(BANDIT, horizon=3).policy, lmab.Stationary(1)
    found = compare(plan, fixed, _log(20_000, 0), horizon=3, model=model)
    assert found.method == ("self-normalised" if model is None else "doubly-robust")
    assert abs(found.difference - (_exact(plan) - _exact(fixed))) < 5 * found.stderr
    for policy, value in ((plan, found.value), (fixed, found.other)):
        alone = lmab.evaluate(policy, _log(20_000, 0), horizon=3, model=model, method=found.method)
        assert value == pytest.approx(alone.mean, abs=1e-12)


def test_a_policy_against_itself_differs_by_nothing_for_sure():
    found = compare(lmab.Greedy(BANDIT), lmab.Greedy(BANDIT), _log(500, 1), horizon=3, model=BANDIT)
    assert (found.difference, found.stderr, found.interval) == (0.0, 0.0, (0.0, 0.0))


def test_the_interval_holds_as_often_as_it_says():
    plan, fixed = lmab.plan(BANDIT, horizon=3).policy, lmab.Stationary(1)
    truth = _exact(plan) - _exact(fixed)
    held = 0
    for seed in range(100):
        low, high = compare(plan, fixed, _log(600, 100 + seed), horizon=3, model=BANDIT, confidence=0.9).interval
        held += low < truth < high
    assert 80 <= held <= 98, held


def test_refusals():
    log = _log(100, 0)
    with pytest.raises(InvalidArgument, match="horizon must be at most the log's longest session"):
        compare(lmab.Greedy(BANDIT), lmab.Stationary(1), log, horizon=4)
    with pytest.raises(InvalidArgument, match="confidence must be"):
        compare(lmab.Greedy(BANDIT), lmab.Stationary(1), log, horizon=3, confidence=1.0)
    one_arm = lmab.Episodes.from_arrays(np.zeros((5, 3), int), np.ones((5, 3)), propensities=np.ones((5, 3)), n_arms=3)
    with pytest.raises(InvalidArgument, match="episodes must hold sessions that agree with both policies"):
        compare(lmab.Stationary(1), lmab.Stationary(0), one_arm, horizon=3)
