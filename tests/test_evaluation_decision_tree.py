"""A policy as a tree: against the enumeration of all histories, and against the evaluator."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
from policies import EXAMPLES

import lmab
from lmab.errors import TooLarge
from lmab.evaluation import decision_tree as module
from lmab.evaluation.decision_tree import unroll

DETERMINISTIC = ["FixedSequence", "Stationary", "Greedy", "MUCB", "VectorPolicy", "LookaheadPolicy", "ExactPolicy"]


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
