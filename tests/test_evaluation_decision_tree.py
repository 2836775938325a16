"""A policy as a tree: against the enumeration of all histories, and against the evaluator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import oracle
import pytest
from policies import EXAMPLES
from scipy.stats import norm

import lmab
from lmab.errors import TooLarge
from lmab.evaluation import decision_tree as module
from lmab.evaluation.decision_tree import Cut, discrete, improved_at_decisions, merged, only, unroll

DETERMINISTIC = ["Ranking", "Greedy", "MUCB", "VectorPolicy", "LookaheadPolicy", "ExactPolicy"]
ONE = lmab.LatentBandit.gaussian([1.0], [[0.3]], scale=0.5)
TWO = lmab.LatentBandit.gaussian([0.5, 0.5], [[1.0, 0.0, -1.0], [0.0, 2.0, 4.0]], scale=0.5)


def random_bandit(rng, n_types=3, n_arms=3, n_values=3):
    probabilities = rng.dirichlet(np.ones(n_values), size=(n_types, n_arms))
    return lmab.LatentBandit.categorical(rng.dirichlet(np.ones(n_types)), probabilities, np.arange(n_values))


@pytest.mark.parametrize("name", DETERMINISTIC)
def test_a_tree_is_worth_what_its_policy_is_on_any_model(name, rng):
    bandit, other = random_bandit(rng), random_bandit(rng)
    policy = EXAMPLES[name](bandit, 4)
    tree = unroll(policy, bandit, 4)
    for model in (bandit, other):
        expected = lmab.evaluate(policy, model, horizon=4).mean
        assert tree.value(model.weights, model.rewards) == pytest.approx(expected, rel=1e-12)


def test_every_branch_is_worth_what_the_rest_of_the_session_earns_in_each_type(rng):
    bandit = random_bandit(rng, n_values=2)
    policy = lmab.plan(bandit, horizon=4).policy
    tree = unroll(policy, bandit, 4)
    branches = tree.branches(bandit.rewards)
    arm = policy.act_on([])
    for z, value in enumerate(bandit.rewards.values):
        row = tree.levels[0].children[0, z]
        for type_ in range(3):
            single = np.eye(3)[type_]
            expected = oracle.policy_value(
                single,
                bandit.rewards.probabilities,
                bandit.rewards.values,
                lambda rest, value=value: policy.act_on([(arm, value), *rest]),
                3,
            )
            assert branches[1][row, type_] == pytest.approx(expected, rel=1e-12)


def followed(tree, probabilities, values, weights, seen=(), row=0, depth=0):
    """What a tree earns, by following its children through every history."""
    level, total = tree.levels[depth], 0.0
    arm = level.arms[row]
    for z, value in enumerate(values):
        chances = weights * probabilities[:, arm, z]
        total += chances.sum() * value
        if depth + 1 < len(tree.levels):
            total += followed(tree, probabilities, values, chances, (*seen, z), level.children[row, z], depth + 1)
    return total


def test_a_merged_plan_is_a_smaller_plan_that_earns_what_it_says_and_hardly_less(rng):
    bandit = random_bandit(rng, n_types=3, n_arms=4)
    plan = lmab.plan(bandit, horizon=5)
    tree = merged(plan.policy, bandit, bandit.weights[None])
    written = unroll(plan.policy, bandit, 5)
    assert sum(len(level.arms) for level in tree.levels) < sum(len(level.arms) for level in written.levels)
    value = tree.value(bandit.weights, bandit.rewards)
    assert value == pytest.approx(followed(tree, bandit.rewards.probabilities, bandit.rewards.values, bandit.weights))
    assert 0.97 * plan.lower < value <= plan.upper + 1e-9
    assert [level.probabilities.sum() for level in tree.levels] == pytest.approx([1.0] * 5)


def test_a_merged_plan_improved_for_another_model_is_nearly_the_best_there(rng):
    bandit, other = random_bandit(rng, n_arms=4), random_bandit(rng, n_types=4, n_arms=4)
    tree = merged(lmab.plan(bandit, horizon=5).policy, bandit, bandit.weights[None])
    for model in (bandit, other):  # the other one has a type more
        better = improved_at_decisions(tree, model, model.weights[None])
        value, best = better.value(model.weights, model.rewards), lmab.plan(model, horizon=5, method=lmab.Exact())
        probabilities, values = model.rewards.probabilities, model.rewards.values
        assert value == pytest.approx(followed(better, probabilities, values, model.weights))
        assert max(model.best_fixed(5), 0.97 * best.lower) - 1e-9 <= value <= best.upper + 1e-9
        assert value >= tree.value(model.weights, model.rewards) - 1e-9


def test_a_merged_plan_starts_once_for_every_group_of_people_and_ends_where_people_leave(rng):
    bandit = random_bandit(rng, n_types=2, n_arms=3, n_values=2)
    bandit = replace(bandit, leaving=rng.uniform(0, 0.6, (2, 3, 2)))
    policy, roots = lmab.plan(bandit, horizon=4).policy, np.array([[0.5, 0.1], [0.05, 0.35]])
    tree = merged(policy, bandit, roots)
    better = improved_at_decisions(tree, bandit, roots)
    assert len(tree.levels[0].arms) == len(better.levels[0].arms) == 2
    assert tree.levels[-1].probabilities.sum() < 0.9
    best = sum(
        root.sum() * lmab.plan(replace(bandit, weights=root / root.sum()), horizon=4, method=lmab.Exact()).upper
        for root in roots
    )
    assert 0.97 * best < better.value(roots, bandit.rewards, stays=1 - bandit.leaving) <= best + 1e-9


def test_histories_with_equal_counts_are_one_and_probabilities_sum_to_one(rng):
    bandit = random_bandit(rng, n_arms=1, n_values=2)
    tree = unroll(lmab.Greedy(bandit), bandit, 6)
    assert [len(level.arms) for level in tree.levels] == [1, 2, 3, 4, 5, 6]
    for level in tree.levels:
        assert level.probabilities.sum() == pytest.approx(1)


def test_what_cannot_happen_is_left_out():
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[1.0, 0.5], [1.0, 0.2]])
    tree = unroll(lmab.Greedy(bandit), bandit, 5)
    assert [len(level.arms) for level in tree.levels] == [1] * 5
    assert tree.value(bandit.weights, bandit.rewards) == 5


def test_a_tree_that_grows_too_large_is_refused(rng, monkeypatch):
    monkeypatch.setattr(module, "NODE_LIMIT", 20)
    bandit = random_bandit(rng)
    with pytest.raises(TooLarge, match="more than 20"):
        unroll(lmab.Greedy(bandit), bandit, 8)


@pytest.mark.parametrize(("horizon", "n_outcomes"), [(1, 9), (2, 9), (4, 9), (5, 8), (6, 5), (7, 4), (8, 3), (40, 3)])
def test_as_many_outcomes_as_five_thousand_histories_allow(horizon, n_outcomes):
    """Between 3 and 9, and n^(H - 1) <= 5,000 where 3 allow it."""
    cut = Cut.of(TWO, horizon)
    assert (len(cut.values), len(cut.edges)) == (n_outcomes, n_outcomes - 1)
    if 3 < n_outcomes < 9:
        assert n_outcomes ** (horizon - 1) <= 5000 < (n_outcomes + 1) ** (horizon - 1)


def test_outcomes_of_one_arm_are_equally_likely_and_stand_at_their_medians():
    cut = Cut.of(ONE, 6)
    family = cut.rewards(ONE.rewards)
    np.testing.assert_allclose(family.probabilities[0, 0], 1 / 5)
    np.testing.assert_allclose(norm(0.3, 0.5).cdf(cut.values), (np.arange(5) + 0.5) / 5)
    np.testing.assert_allclose(norm(0.3, 0.5).cdf(cut.edges), np.arange(1, 5) / 5)


def test_cuts_spread_over_the_means_of_all_arms_and_the_means_stay_exact():
    cut = Cut.of(TWO, 6)
    spread = np.sqrt(TWO.means.var() + 0.25)
    np.testing.assert_allclose(cut.edges, norm(1.0, spread).ppf(np.arange(1, 5) / 5))
    family = discrete(TWO.rewards, cut)
    np.testing.assert_array_equal(family.means, TWO.means)
    below = norm(4.0, 0.5).cdf(cut.edges)
    np.testing.assert_allclose(family.probabilities[1, 2], np.diff([0, *below, 1]))
    some = only(family, np.array([2, 0]))
    np.testing.assert_array_equal(some.means, TWO.means[:, [2, 0]])
    np.testing.assert_array_equal(some.probabilities, family.probabilities[:, [2, 0]])


def test_finitely_many_values_are_not_cut():
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
    assert Cut.of(bandit, 5) is None
    assert discrete(bandit.rewards, None) is bandit.rewards
    np.testing.assert_array_equal(only(bandit.rewards, np.array([1])).means, [[0.5], [0.6]])
