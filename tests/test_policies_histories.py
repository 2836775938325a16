"""The one walk over histories: against the enumeration of all histories, merged and not."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from policies import in_turn, of_any_arms
from seeds import generator
from strategies import bandits

import lmab
from lmab import LatentBandit
from lmab.errors import InvalidArgument, TooLarge
from lmab.policies.histories import NONE, _keys, enumerate_histories
from lmab.reporting.tree import tree_of

ANYTHING = {"limit": 10**6, "remedy": "nothing"}


def enumerated(policy, bandit, length):
    """Mass of every history of `length` steps that can happen, by plain enumeration."""
    family, found = bandit.rewards, {}
    for history in oracle.histories(policy.act_on, family.values.tolist(), length):
        mass = oracle.likelihood(bandit.weights, family.probabilities, family.values.tolist(), history)
        if mass.sum() > 0:
            found[history] = mass
    return found


def followed(levels, bandit, length):
    """Every history of `length` steps with the row it leads to, by following the children from the start."""
    values, found = bandit.rewards.values.tolist(), {(): 0}
    for level in levels[:length]:
        found = {
            (*history, (int(level.arms[row]), value)): int(child)
            for history, row in found.items()
            for value, child in zip(values, level.children[row], strict=True)
            if child != NONE
        }
    return found


@given(bandits(), st.integers(1, 4), st.sampled_from([lmab.Greedy, lmab.policies.MUCB]), st.booleans())
def test_rows_are_the_histories_that_can_happen_and_their_masses_add_up(bandit, horizon, kind, merge):
    policy = kind(bandit)
    levels = list(enumerate_histories(policy, bandit, horizon, merge=merge, **ANYTHING))
    assert len(levels) == horizon
    for length, level in enumerate(levels):
        expected, rows = enumerated(policy, bandit, length), followed(levels, bandit, length)
        assert rows.keys() == expected.keys()
        by_row = defaultdict(lambda: 0)
        for history, row in rows.items():
            by_row[row] = by_row[row] + expected[history]
            assert level.arms[row] == policy.act_on(history)
        assert sorted(by_row) == list(range(len(level.arms)))
        np.testing.assert_allclose(level.mass, [by_row[row] for row in sorted(by_row)], rtol=1e-12, atol=1e-300)
        groups = Counter(tuple(sorted(history)) if merge and policy.order_free else history for history in expected)
        assert len(level.arms) == len(groups)
    assert (levels[-1].children == NONE).all()


def test_a_policy_that_looks_at_no_reward_has_one_history_a_step_and_exact_masses():
    bandit = LatentBandit.gaussian([0.3, 0.7], [[1.0, 0.0], [0.0, 2.0]])
    levels = list(enumerate_histories(in_turn(1, 0, 1), bandit, 3, **ANYTHING))
    assert [level.arms.tolist() for level in levels] == [[1], [0], [1]]
    for level in levels:
        np.testing.assert_array_equal(level.mass, [[0.3, 0.7]])
    unmerged = list(enumerate_histories(in_turn(1, 0, 1), bandit, 3, merge=False, bins=3, **ANYTHING))
    assert [len(level.arms) for level in unmerged] == [1, 3, 9]
    np.testing.assert_allclose(unmerged[2].mass.sum(axis=0), [0.3, 0.7])


def test_only_what_is_impossible_is_left_out():
    tiny = LatentBandit.bernoulli([0.5, 0.5], [[1e-100], [1e-100]])
    assert [len(level.arms) for level in enumerate_histories(lmab.Greedy(tiny), tiny, 4, **ANYTHING)] == [1, 2, 3, 4]
    sure = LatentBandit.bernoulli([0.5, 0.5], [[1.0], [1.0]])
    levels = list(enumerate_histories(lmab.Greedy(sure), sure, 4, **ANYTHING))
    assert [level.children.tolist() for level in levels] == [[[NONE, 0]]] * 3 + [[[NONE, NONE]]]


def test_keys_of_long_rows_tell_them_apart_as_short_ones_do(rng):
    rows = rng.integers(4, size=(500, 3))
    padded = np.column_stack([rows, np.zeros((500, 60), np.int64)])  # 4**63 does not fit into 64 bits
    assert _keys(rows, 4).dtype == np.int64
    assert _keys(padded, 4).dtype.kind == "V"
    _, short = np.unique(_keys(rows, 4), return_inverse=True)
    _, long = np.unique(_keys(padded, 4), return_inverse=True)
    distinct = {tuple(row) for row in rows.tolist()}
    assert len(set(short.tolist())) == len(set(long.tolist())) == len(distinct)
    assert len(set(zip(short.tolist(), long.tolist(), strict=True))) == len(distinct)


def test_the_limit_is_on_the_histories_of_one_step_and_the_error_says_what_to_do(rng):
    bandit = lmab.random_bandit(4, 10, rng=rng)
    sizes = [len(level.arms) for level in enumerate_histories(lmab.Greedy(bandit), bandit, 6, **ANYTHING)]
    assert sizes == [
        len(level.arms) for level in enumerate_histories(lmab.Greedy(bandit), bandit, 6, limit=max(sizes), remedy="")
    ]
    step = next(t for t, size in enumerate(sizes) if size > 4)
    with pytest.raises(TooLarge, match=f"{sizes[step]} different histories of {step} steps, more than 4: do less"):
        list(enumerate_histories(lmab.Greedy(bandit), bandit, 6, limit=4, remedy="do less"))


def test_arms_that_do_not_exist(rng):
    with pytest.raises(InvalidArgument, match=r"policy must name arms in 0\.\.1, got 2"):
        list(enumerate_histories(of_any_arms(), lmab.random_bandit(2, 2, rng=rng), 2, **ANYTHING))


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
    monkeypatch.setattr("lmab.policies.histories._LIMIT", 8)
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


def test_the_text_of_a_tree_has_types_in_the_order_of_their_size():
    bandit = lmab.LatentBandit.bernoulli([0.2, 0.8], [[0.9, 0.5], [0.1, 0.6]])
    lines = str(lmab.plan(bandit, horizon=3).policy.tree(2)).splitlines()
    assert lines[0].endswith("(belief 0.80 0.20)")
    other = lmab.LatentBandit.bernoulli([0.8, 0.2], [[0.1, 0.6], [0.9, 0.5]])
    assert str(lmab.plan(other, horizon=3).policy.tree(2)).splitlines() == lines
