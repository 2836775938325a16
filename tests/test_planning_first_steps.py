"""The first steps of a policy as a tree."""

from __future__ import annotations

import numpy as np
import pytest
from seeds import generator

import lmab
from lmab.errors import TooLarge
from lmab.planning import tree_of


def _nodes(tree):
    yield tree
    for branch in tree.branches:
        yield from _nodes(branch.tree)


def test_the_tree_is_the_policy():
    bandit = lmab.random_bandit(4, 10, kind="hard", rng=generator(1))
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
    bandit = lmab.random_bandit(4, 10, kind="hard", rng=generator(1))
    policy = lmab.plan(bandit, horizon=5).policy
    monkeypatch.setattr("lmab.planning.first_steps.LIMIT", 8)
    assert policy.tree(4).step == 0
    with pytest.raises(TooLarge, match="16 different histories of 4 steps, more than 8: ask for fewer steps"):
        policy.tree(5)


@pytest.mark.parametrize(("n_values", "horizon", "steps"), [(2, 9, 4), (2, 3, 3), (3, 9, 3), (5, 9, 2), (20, 9, 1)])
def test_a_tree_that_fits_on_a_page(n_values, horizon, steps):
    """Up to four steps, and no step more once there are over 16 branches before it."""
    probabilities = generator(2).dirichlet(np.ones(n_values), (2, 3))
    bandit = lmab.LatentBandit.categorical([0.4, 0.6], probabilities, np.arange(float(n_values)))
    tree = tree_of(lmab.Greedy(bandit), bandit, horizon)
    assert max(node.step for node in _nodes(tree)) + 1 == steps
    assert tree_of(lmab.Uniform(3), bandit, horizon) is None


def test_a_printed_tree_has_the_chance_of_every_reward_after_what_came_before():
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
    lines = str(lmab.plan(bandit, horizon=5).policy.tree(3)).splitlines()
    assert lines[0] == "arm 0 (belief 0.50 0.50)"
    assert lines[1] == "  reward 0 (0.50): arm 1 (belief 0.10 0.90)"
    assert lines[3].startswith("    reward 1 (0.59): arm 1 (belief 0.08 0.92)")  # 0.1 * 0.5 + 0.9 * 0.6
