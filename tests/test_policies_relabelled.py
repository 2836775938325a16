"""Relabelled: the same decisions under other numbers, new arms that tell nothing, missing arms that are not played."""

from __future__ import annotations

import numpy as np
import pytest

import lmab
from lmab.errors import InvalidArgument
from lmab.policies import Relabelled
from lmab.testing import check_policy

BANDIT = lmab.LatentBandit.bernoulli([0.4, 0.6], [[0.8, 0.4, 0.3], [0.2, 0.5, 0.7]])
PLANNED = lmab.plan(BANDIT, horizon=4).policy


def test_a_permutation_plays_the_same_labels(rng):
    order = [2, 0, 1]
    policy = Relabelled(PLANNED, order)
    for _ in range(20):
        history = [(int(rng.integers(3)), float(rng.integers(2))) for _ in range(3)]
        moved = [(order.index(arm), reward) for arm, reward in history]
        assert order[policy.act_on(moved)] == PLANNED.act_on(history)
        np.testing.assert_allclose(
            policy.belief(policy.start(history=moved)), PLANNED.belief(PLANNED.start(history=history))
        )


def test_new_arms_tell_nothing_and_missing_arms_are_not_played():
    policy = Relabelled(PLANNED, ["x", 1, 2])
    assert policy.act_on([(0, 1.0), (0, None)]) == [None, 1, 2].index(
        PLANNED.act(PLANNED.skip(PLANNED.skip(PLANNED.start())), allowed=[False, True, True])
    )
    assert policy.act(policy.start(), allowed=[True, False, False]) == 0
    told = policy.tell(policy.start(), 0, 1.0)
    np.testing.assert_array_equal(told.memory, policy.start().memory)
    many = policy.observe(policy.start(2), np.array([0, 1]), np.array([1.0, 1.0]))
    np.testing.assert_allclose(policy.belief(many)[0], BANDIT.weights)
    np.testing.assert_allclose(policy.belief(many)[1], PLANNED.belief(PLANNED.observe(PLANNED.start(), 1, 1.0)))
    assert policy.skip(policy.start()).step == 1
    check_policy(policy, lmab.LatentBandit.bernoulli([1.0], [[0.5, 0.5, 0.5]]))


@pytest.mark.parametrize("method", [lmab.Exact(), lmab.Certified(), lmab.planning.Lookahead(1)])
@pytest.mark.parametrize("repeats", [True, False])
def test_every_planned_policy_goes_on_after_an_unknown_arm(method, repeats):
    inner = lmab.plan(BANDIT, horizon=3, method=method, repeats=repeats).policy
    policy = Relabelled(inner, [0, 1, 2, "new"])
    check_policy(policy, BANDIT.with_arms(["new"]))


def test_refusals():
    for labels in (["x", "y"], [0, 0, 1], []):
        with pytest.raises(InvalidArgument, match="labels must be distinct and name an arm"):
            Relabelled(PLANNED, labels)
    with pytest.raises(InvalidArgument, match="policy must be deterministic and know its arms"):
        Relabelled(lmab.Uniform(3), [0, 1])


def test_late_and_missing_rewards_of_many_sessions_go_to_their_own_arms():
    policy = Relabelled(PLANNED, ["x", 2, 0])
    arms = np.array([0, 1, 2])
    waiting = policy.observe(policy.start(3), arms, None)
    told = policy.tell(waiting, arms, np.array([1.0, 1.0, 0.0]))
    np.testing.assert_allclose(policy.belief(waiting), [BANDIT.weights] * 3)
    expected = [PLANNED.start(), *(PLANNED.observe(PLANNED.start(), arm, r) for arm, r in ((2, 1.0), (0, 0.0)))]
    np.testing.assert_allclose(policy.belief(told), [PLANNED.belief(state) for state in expected])


def test_masks_of_many_sessions_are_each_their_own():
    policy = Relabelled(PLANNED, [2, "x", 0])
    allowed = np.array([[True, True, True], [True, True, False], [False, True, False], [False, True, True]])
    inner = [None, [False, False, True], None, [True, False, False]]
    found = np.asarray(policy.act(policy.start(4), allowed=allowed))
    best = PLANNED.act(PLANNED.start(), allowed=[True, False, True])
    assert found.tolist() == [[2, None, 0].index(best), 0, 1, 2]
    for row in (1, 3):
        assert [2, None, 0][found[row]] == PLANNED.act(PLANNED.start(), allowed=inner[row])


def test_files_keep_the_labels(tmp_path):
    Relabelled(PLANNED, ["x", 2, 0]).save(tmp_path / "p.lmab")
    again = lmab.load(tmp_path / "p.lmab")
    assert again.arm_labels == ("x", 2, 0)
    assert again.act_on([(1, 1.0)]) == Relabelled(PLANNED, ["x", 2, 0]).act_on([(1, 1.0)])
