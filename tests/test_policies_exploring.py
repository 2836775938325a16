"""Exploring: propensities by hand, floors by arm, masks, sessions without repeats, files."""

from __future__ import annotations

import numpy as np
import pytest

import lmab
from lmab.errors import InvalidArgument
from lmab.evaluation import with_propensities
from lmab.policies import unplayed
from lmab.testing import check_policy

BANDIT = lmab.LatentBandit.bernoulli(
    [0.3, 0.3, 0.4], [[0.9, 0.1, 0.4, 0.5], [0.2, 0.7, 0.5, 0.3], [0.3, 0.4, 0.8, 0.1]]
)


def test_the_probability_of_what_it_played_by_hand():
    greedy = lmab.Greedy(BANDIT)
    best = greedy.act_on([])
    policy = lmab.policies.Exploring(greedy, floor=0.2)
    expected = np.full(4, 0.05)
    expected[best] += 0.8
    np.testing.assert_allclose(policy.probabilities(policy.start()), expected, rtol=1e-15)
    others = np.arange(4) != best
    second = greedy.act(greedy.start(), allowed=others)
    masked = np.where(others, 0.2 / 3, 0.0)
    masked[second] += 0.8
    np.testing.assert_allclose(policy.probabilities(policy.start(), allowed=others), masked, rtol=1e-15)


def test_floors_by_arm_and_what_a_withdrawn_arm_gives_back():
    greedy = lmab.Greedy(BANDIT)
    assert greedy.act_on([]) == 2
    policy = lmab.policies.Exploring(greedy, floor=[0.0, 0.1, 0.05, 0.3])
    np.testing.assert_allclose(policy.probabilities(policy.start()), [0.0, 0.1, 0.6, 0.3], rtol=1e-12)
    allowed = [True, True, True, False]
    np.testing.assert_allclose(policy.probabilities(policy.start(), allowed=allowed), [0, 0.1, 0.9, 0], rtol=1e-12)


@pytest.mark.parametrize("floor", [0.0, 1.0, 0.35, [0.1, 0.0, 0.3, 0.05]])
def test_arms_are_played_as_often_as_it_says_under_a_mask(floor):
    policy, n = lmab.policies.Exploring(lmab.Thompson(BANDIT), floor=floor), 40_000
    allowed = np.array([True, False, True, True])
    told = policy.probabilities(policy.start(), allowed=allowed)
    shares = np.bincount(policy.act(policy.start(n), allowed=allowed, rng=3), minlength=4) / n
    assert (np.abs(shares - told) <= 5 * np.sqrt(told * (1 - told) / n) + 1e-12).all(), (shares, told)


def test_without_repeats_it_explores_arms_not_yet_played():
    plan = lmab.plan(BANDIT, horizon=4, repeats=False)
    policy = lmab.policies.Exploring(plan.policy, floor=0.5)
    assert not policy.repeats
    check_policy(policy, BANDIT)
    state = policy.observe(policy.start(), 3, None)
    chances = policy.probabilities(state)
    assert chances[3] == 0
    np.testing.assert_allclose(np.sort(chances)[1:3], 0.5 / 3)
    sessions = lmab.simulate(BANDIT, policy, n_sessions=200, horizon=4, rng=0)
    assert all(len(set(session.arms.tolist())) == 4 for session in sessions)


def test_arms_not_yet_played_and_what_is_left_where_none_is_allowed():
    played = np.array([[True, False, False], [False, True, True]])
    np.testing.assert_array_equal(unplayed(played, None), ~played)
    allowed = np.array([[True, True, False], [False, True, False]])
    np.testing.assert_array_equal(unplayed(played, allowed), [[False, True, False], [False, True, False]])


@pytest.mark.parametrize("make", [lambda b: lmab.Uniform(4), lmab.Greedy, lmab.Thompson, lmab.policies.MUCB])
def test_keeps_the_laws_around_any_policy(make):
    check_policy(lmab.policies.Exploring(make(BANDIT), floor=[0.05, 0.1, 0.0, 0.2]), BANDIT)


def test_logs_of_it_say_what_another_policy_earns():
    explored = lmab.policies.Exploring(lmab.Greedy(BANDIT), floor=0.4)
    log = with_propensities(lmab.simulate(BANDIT, explored, n_sessions=20_000, horizon=2, rng=1), explored)
    found = lmab.evaluate(lmab.policies.Stationary(0), log, horizon=2, rng=0)
    truth = lmab.evaluate(lmab.policies.Stationary(0), BANDIT, horizon=2).mean
    assert abs(found.mean - truth) < 5 * found.stderr


def test_refusals_name_the_argument(tmp_path):
    greedy = lmab.Greedy(BANDIT)
    for floor in (-0.1, 1.1, float("nan"), True, "much"):
        with pytest.raises(InvalidArgument, match="floor must be a number from 0 to 1, or one for each arm"):
            lmab.policies.Exploring(greedy, floor)
    for floors in ([0.1] * 3, [0.5, 0.6, 0, 0], [-0.1, 0, 0, 0]):
        with pytest.raises(InvalidArgument, match="floor must be 4 numbers of at least 0 that sum to at most 1"):
            lmab.policies.Exploring(greedy, floors)
    with pytest.raises(InvalidArgument, match="policy must not explore already"):
        lmab.policies.Exploring(lmab.policies.Exploring(greedy))
    with pytest.raises(InvalidArgument, match="policy must know how many arms there are"):
        lmab.policies.Exploring(lmab.policies.Stationary(1))
    with pytest.raises(InvalidArgument, match="policy must be deterministic to be compact"):
        lmab.policies.Exploring(greedy).compact()
    with pytest.raises(InvalidArgument, match="n_arms must be the policy's 4, got 5"):
        lmab.policies.Exploring(greedy).distribution(greedy.start(), n_arms=5)


def test_one_decision_in_twenty_explores_unless_it_is_said():
    policy = lmab.policies.Exploring(lmab.Greedy(BANDIT))
    assert policy.floor == 0.05
    np.testing.assert_allclose(np.sort(policy.probabilities(policy.start())), [0.0125] * 3 + [0.9625])


def test_floors_may_leave_nothing_to_the_policy():
    policy = lmab.policies.Exploring(lmab.Greedy(BANDIT), [0.25] * 4)
    np.testing.assert_allclose(policy.probabilities(policy.start()), 0.25)
    tenths = lmab.policies.Exploring(lmab.Greedy(BANDIT), [0.7, 0.1, 0.1, 0.1])  # a sum of 1 up to rounding
    assert tenths.probabilities(tenths.start()).min() >= 0


def test_files_keep_one_floor_and_floors_by_arm(tmp_path):
    for floor in (0.3, [0.1, 0.0, 0.2, 0.05]):
        policy = lmab.policies.Exploring(lmab.Greedy(BANDIT), floor)
        policy.save(tmp_path / "p.lmab")
        again = lmab.load(tmp_path / "p.lmab")
        np.testing.assert_array_equal(again.probabilities(again.start()), policy.probabilities(policy.start()))


def test_a_skipped_or_late_step_leaves_the_marks_of_arms_played(rng):
    inner = lmab.plan(BANDIT, horizon=4, repeats=False).policy
    policy = lmab.policies.Exploring(inner, floor=0.4)
    state = policy.observe(policy.start(), 3, None)
    for after in (policy.skip(state), policy.tell(state, 3, 1.0)):
        assert policy.probabilities(after)[3] == 0
    told = policy.tell(state, 3, 1.0)
    np.testing.assert_allclose(policy.belief(told), inner.belief(inner.observe(inner.start(), 3, 1.0)))
