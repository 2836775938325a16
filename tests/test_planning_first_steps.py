"""The first steps of a policy as a tree."""

from __future__ import annotations

import numpy as np
import pytest

import lmab
from lmab.errors import TooLarge


def _nodes(tree):
    yield tree
    for branch in tree.branches:
        yield from _nodes(branch.tree)


def test_the_tree_is_the_policy():
    bandit = lmab.random_bandit(4, 10, kind="hard", rng=np.random.default_rng(1))
    policy = lmab.plan(bandit, horizon=5).policy

    def follow(tree, history):
        assert tree.step == len(history)
        assert tree.arm == policy.act_on(history)
        joint = bandit.weights.copy()
        for arm, reward in history:
            joint *= bandit.rewards.likelihood(np.array([arm]), np.array([reward]))[0]
        assert tree.probability == pytest.approx(joint.sum())
        np.testing.assert_allclose(tree.belief, joint / joint.sum())
        for branch in tree.branches:
            follow(branch.tree, [*history, (tree.arm, branch.reward)])

    tree = policy.tree(3)
    follow(tree, [])
    assert len(list(_nodes(tree))) == 1 + 2 + 4
    assert sum(branch.tree.probability for branch in tree.branches) == pytest.approx(1)


def test_depth_is_cut_at_the_horizon_and_impossible_rewards_are_left_out():
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], np.eye(2))
    tree = lmab.plan(bandit, horizon=3, method=lmab.Exact()).policy.tree(10)
    assert max(node.step for node in _nodes(tree)) == 2
    assert [len(node.branches) for node in _nodes(tree)] == [2, 1, 0, 1, 0]


def test_labels_and_continuous_rewards():
    named = lmab.LatentBandit(
        np.array([0.5, 0.5]),
        lmab.LatentBandit.gaussian([0.5, 0.5], [[1.0, 0.0], [0.0, 1.0]]).rewards,
        ("tea", "coffee"),
    )
    tree = lmab.plan(named, horizon=3).policy.tree(2)
    assert tree.label in ("tea", "coffee")
    assert len(tree.branches) == 3
    assert "arm tea" in str(tree) or "arm coffee" in str(tree)
    assert sum(branch.tree.probability for branch in tree.branches) == pytest.approx(1)


def test_a_tree_too_large_to_print_is_refused(monkeypatch):
    bandit = lmab.random_bandit(4, 10, kind="hard", rng=np.random.default_rng(1))
    policy = lmab.plan(bandit, horizon=5).policy
    monkeypatch.setattr("lmab.planning.first_steps.LIMIT", 8)
    assert policy.tree(4).step == 0
    with pytest.raises(TooLarge, match="16 different histories of 4 steps, more than 8: ask for fewer steps"):
        policy.tree(5)
