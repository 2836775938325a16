"""The contract that every policy keeps, whoever adds it."""

from __future__ import annotations

import numpy as np
import policies
import pytest

import lmab
from lmab import files
from lmab.errors import InvalidArgument, InvalidFile
from lmab.planning import PolicyGraph
from lmab.policies import best_allowed, restore_policy
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


def test_relabelling_types_changes_no_decision_and_arms_are_permuted(bandit, rng):
    types, arms = rng.permutation(bandit.n_types), rng.permutation(bandit.n_arms)
    played, rewards = _history(bandit, rng, 30, 3)
    for make in (lmab.Greedy, lmab.policies.MUCB):
        first = make(bandit)
        second, third = make(bandit.relabel(types=types)), make(bandit.relabel(arms=arms))
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


class Stubborn(lmab.policies.BeliefPolicy):
    """A user's own: the best arm of the likeliest type."""

    kind = "stubborn"

    def _choose(self, state, allowed, rng):
        return best_allowed(self.bandit.means[state.memory.argmax(axis=1)], allowed)


def test_a_policy_class_of_your_own_is_loaded_too(bandit, tmp_path):
    policy = Stubborn(bandit, horizon=4)
    policy.save(tmp_path / "own.lmab")
    again = lmab.load(tmp_path / "own.lmab")
    assert type(again) is Stubborn
    assert (again.horizon, again.bandit) == (4, bandit)
    source = PolicyGraph(policy, np.array([1]), np.array([[-1, -1]]), 0)
    source.save(tmp_path / "graph.lmab")
    assert type(lmab.load(tmp_path / "graph.lmab").source) is Stubborn


def test_a_class_that_was_not_imported_is_named(tmp_path, bandit):
    unknown = files.Record("never-imported", {})
    files.write(tmp_path / "p.lmab", unknown)
    with pytest.raises(
        InvalidFile, match=r"p\.lmab: holds a 'never-imported', .* import the module of its class first"
    ):
        lmab.load(tmp_path / "p.lmab")
    graph = lmab.plan(bandit, horizon=2).policy.graph().record()
    files.write(tmp_path / "g.lmab", files.Record(graph.kind, graph.fields, graph.arrays, {"source": unknown}))
    with pytest.raises(InvalidFile, match=r"g\.lmab: holds a 'never-imported'"):
        lmab.load(tmp_path / "g.lmab")


def test_a_kind_belongs_to_one_class_which_may_be_written_anew(bandit):
    with pytest.raises(InvalidArgument, match="kind must be a new name, got 'greedy', which is the kind of Greedy"):
        type("Mine", (lmab.policies.BeliefPolicy,), {"kind": "greedy"})
    first, second = (
        type("Draft", (lmab.policies.BeliefPolicy,), {"kind": "draft", "_choose": Stubborn._choose}) for _ in range(2)
    )
    assert type(restore_policy(first(bandit).record())) is second
    inherited = type("Louder", (lmab.Greedy,), {})  # without a kind of its own, files know it as its parent
    assert type(restore_policy(inherited(bandit).record())) is lmab.Greedy


def test_a_policy_says_whether_it_repeats_arms(policy, bandit, rng):
    assert policy.repeats == ("NoRepeats" not in type(policy).__name__)
    if not policy.repeats:
        assert not policy.graph().repeats
        sessions = lmab.simulate(bandit, policy, n_sessions=20, horizon=HORIZON, rng=rng)
        assert all(len(set(session.arms.tolist())) == HORIZON for session in sessions)
