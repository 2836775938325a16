"""The contract that every policy keeps, whoever adds it."""

from __future__ import annotations

import numpy as np
import policies
import pytest

import lmab
from lmab import loading
from lmab.errors import InvalidArgument
from lmab.testing import check_policy

HORIZON = 4


@pytest.fixture
def bandit(rng):
    return lmab.random_bandit(3, 5, rng=rng)


@pytest.fixture(params=sorted(policies.concrete()))
def policy(request, bandit):
    assert request.param in policies.EXAMPLES, f"add an example of {request.param} to tests/policies.py"
    return policies.EXAMPLES[request.param](bandit, HORIZON)


def _history(bandit, rng, n, steps):
    arms = rng.integers(bandit.n_arms, size=(steps, n))
    return arms, rng.integers(2, size=(steps, n)).astype(float)


def test_keeps_the_laws(policy, bandit):
    assert check_policy(policy, bandit).not_checked == {}


def test_says_what_it_is(policy):
    tags = policies.EXAMPLES[type(policy).__name__].tags
    assert tags == {
        tag
        for tag, true in (
            ("random", not policy.deterministic),
            ("blind", not policy.adaptive),
            ("ordered", not policy.order_free),
        )
        if true
    }


@pytest.mark.parametrize("name", ["Greedy", "Thompson", "VectorPolicy", "ExactPolicy", "LookaheadPolicy"])
def test_keeps_the_laws_on_normal_rewards(name):
    normal = lmab.LatentBandit.gaussian([0.6, 0.4], [[1.0, 0.2, 0.5], [0.0, 0.9, 0.5]], scale=0.6)
    check_policy(policies.EXAMPLES[name](normal, 3), normal)


def test_errors_name_the_argument(bandit):
    policy = lmab.Greedy(bandit, horizon=2)
    with pytest.raises(InvalidArgument, match="allowed must leave an arm to play, got none in row 0"):
        policy.act(policy.start(), allowed=np.zeros(bandit.n_arms, bool))
    with pytest.raises(InvalidArgument, match=r"allowed must have shape \(5,\) or \(2, 5\), got \(3, 5\)"):
        policy.act(policy.start(2), allowed=np.ones((3, bandit.n_arms), bool))
    with pytest.raises(InvalidArgument, match="arm and reward must hold 2 entries"):
        policy.observe(policy.start(2), np.array([0]), np.array([1.0]))
    with pytest.raises(InvalidArgument, match=r"arm must be an integer in 0\.\.4, got -1"):
        policy.observe(policy.start(), -1, 0.0)
    with pytest.raises(InvalidArgument, match="n must be an integer"):
        policy.start(0)
    with pytest.raises(InvalidArgument, match="state must be before the horizon of 2 steps, got step 2"):
        policy.act_on([(0, 1.0), (0, 1.0)])
    with pytest.raises(InvalidArgument, match=r"rng must be a numpy\.random\.Generator"):
        lmab.Thompson(bandit).act_on([])


def test_load_knows_every_policy(policy):
    assert type(policy) in loading.POLICIES


def test_relabelling_contexts_changes_no_decision_and_arms_are_permuted(bandit, rng):
    contexts, arms = rng.permutation(bandit.n_contexts), rng.permutation(bandit.n_arms)
    played, rewards = _history(bandit, rng, 30, 3)
    for make in (lmab.Greedy, lmab.MUCB):
        first = make(bandit)
        second, third = make(bandit.relabel(contexts=contexts)), make(bandit.relabel(arms=arms))
        states = [p.start(30) for p in (first, second, third)]
        for arm, reward in zip(played, rewards, strict=True):
            moved = np.argsort(arms)[arm]
            states = [
                p.observe(s, a, reward)
                for p, s, a in zip((first, second, third), states, (arm, arm, moved), strict=True)
            ]
        chosen = first.act(states[0])
        np.testing.assert_array_equal(second.act(states[1]), chosen)
        np.testing.assert_array_equal(arms[third.act(states[2])], chosen)
