"""The contract that every policy keeps, whoever adds it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import policies
import pytest

import lmab
from lmab import files
from lmab.errors import InvalidArgument, InvalidFile
from lmab.planning import PolicyGraph
from lmab.policies import best_allowed, restore

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


def test_one_session_and_many_make_the_same_decisions(policy, bandit, rng):
    arms, rewards = _history(bandit, rng, 6, HORIZON - 1)
    batch = policy.start(6)
    singles = [policy.start() for _ in range(6)]
    for step in range(HORIZON):
        if policy.deterministic:
            together = policy.act(batch)
            assert together.tolist() == [policy.act(state) for state in singles]
        else:
            together = policy.act(batch, rng=rng)
        assert together.shape == (6,)
        assert ((together >= 0) & (together < bandit.n_arms)).all()
        if step < HORIZON - 1:
            batch = policy.observe(batch, arms[step], rewards[step])
            pairs = zip(singles, arms[step].tolist(), rewards[step].tolist(), strict=True)
            singles = [policy.observe(state, arm, reward) for state, arm, reward in pairs]


def test_act_on_equals_playing_the_history(policy, bandit, rng):
    arms, rewards = _history(bandit, rng, 1, 3)
    history = list(zip(arms[:, 0].tolist(), rewards[:, 0].tolist(), strict=True))
    state = policy.start()
    for arm, reward in history:
        state = policy.observe(state, arm, reward)
    generators = [None, None] if policy.deterministic else [np.random.default_rng(5), np.random.default_rng(5)]
    assert policy.act_on(history, rng=generators[0]) == policy.act(state, rng=generators[1])
    assert isinstance(policy.act_on([], rng=np.random.default_rng(0)), int)


def test_observing_changes_nothing_but_the_value(policy, bandit, rng):
    state = policy.start(3)
    before = state.memory.copy()
    policy.observe(state, np.array([0, 1, 2]), np.array([1.0, 0.0, 1.0]))
    np.testing.assert_array_equal(state.memory, before)
    assert state.step == 0


def test_only_allowed_arms_are_played(policy, bandit, rng):
    mask = rng.random((50, bandit.n_arms)) < 0.4
    mask[np.arange(50), rng.integers(bandit.n_arms, size=50)] = True
    arms = policy.act(policy.start(50), allowed=mask, rng=rng)
    assert mask[np.arange(50), arms].all()
    one = np.zeros(bandit.n_arms, bool)
    one[3] = True
    assert policy.act(policy.start(), allowed=one, rng=rng) == 3
    assert policy.act_on([(0, 1.0)], allowed=one.tolist(), rng=rng) == 3


def test_allowing_every_arm_changes_nothing(policy, bandit, rng):
    if policy.deterministic:
        state = policy.observe(policy.start(2), np.array([0, 1]), np.array([1.0, 0.0]))
        everything = np.ones(bandit.n_arms, bool)
        np.testing.assert_array_equal(policy.act(state, allowed=everything), policy.act(state))


def test_the_distribution_is_how_often_arms_are_played(policy, bandit, rng):
    n = 4000
    state = policy.observe(policy.start(n), np.zeros(n, int), np.ones(n))
    probabilities = policy.distribution(state, n_arms=bandit.n_arms)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    shares = np.bincount(policy.act(state, rng=rng), minlength=bandit.n_arms) / n
    np.testing.assert_allclose(shares, probabilities[0], atol=5 * np.sqrt(0.25 / n))


def test_bad_masks(policy, bandit, rng):
    with pytest.raises(InvalidArgument, match="allowed must leave an arm to play"):
        policy.act(policy.start(), allowed=np.zeros(bandit.n_arms, bool), rng=rng)
    with pytest.raises(InvalidArgument, match="allowed must have shape"):
        policy.act(policy.start(2), allowed=np.ones((3, bandit.n_arms), bool), rng=rng)


def test_random_policies_ask_for_a_generator(policy):
    if not policy.deterministic:
        with pytest.raises(InvalidArgument, match=r"rng must be a numpy\.random\.Generator"):
            policy.act(policy.start())


def test_bad_observations(policy, bandit):
    with pytest.raises(InvalidArgument, match="arm and reward must hold 2 entries"):
        policy.observe(policy.start(2), np.array([0]), np.array([1.0]))
    with pytest.raises(InvalidArgument, match="arm must be an integer"):
        policy.observe(policy.start(), -1, 0.0)
    with pytest.raises(InvalidArgument, match="n must be an integer"):
        policy.start(0)


def test_round_trip_through_a_file(policy, bandit, rng, tmp_path):
    path = tmp_path / "policy.lmab"
    policy.save(path)
    again = lmab.load(path)
    assert type(again) is type(policy)
    assert (again.horizon, again.n_arms, again.arm_labels) == (policy.horizon, policy.n_arms, policy.arm_labels)
    arms, rewards = _history(bandit, rng, 20, HORIZON - 1)
    states = [policy.start(20), again.start(20)]
    for step in range(HORIZON):
        mine, theirs = (p.act(s, rng=np.random.default_rng(1)) for p, s in zip((policy, again), states, strict=True))
        np.testing.assert_array_equal(mine, theirs)
        if step < HORIZON - 1:
            states = [p.observe(s, arms[step], rewards[step]) for p, s in zip((policy, again), states, strict=True)]


def test_past_the_horizon(policy):
    if policy.horizon is None:
        return
    state = policy.start()
    for _ in range(policy.horizon):
        state = policy.observe(state, 0, 0.0)
    with pytest.raises(InvalidArgument, match="before the horizon"):
        policy.act(state, rng=np.random.default_rng(0))


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


SAVED = Path(__file__).parent / "saved_by_0_1"
SAYS = json.loads((SAVED / "decisions.json").read_text())


@pytest.mark.parametrize("kind", SAYS["arms"])
def test_policies_that_version_0_1_saved_decide_as_they_did_then(kind):
    policy = lmab.load(SAVED / f"{kind}.lmab")
    assert policy.kind == kind
    decisions = [policy.act_on(history, rng=np.random.default_rng(7)) for history in SAYS["histories"]]
    assert decisions == SAYS["arms"][kind]


def test_every_policy_has_a_file_of_version_0_1():
    assert {cls.kind for cls in policies.concrete().values()} >= set(SAYS["arms"])
    assert len(SAYS["arms"]) == 14


class Stubborn(lmab.BeliefPolicy):
    """A user's own: the best arm of the likeliest context."""

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
    with pytest.raises(InvalidArgument, match="kind must be a name of its own, got 'greedy', which is that of Greedy"):
        type("Mine", (lmab.BeliefPolicy,), {"kind": "greedy"})
    first, second = (
        type("Draft", (lmab.BeliefPolicy,), {"kind": "draft", "_choose": Stubborn._choose}) for _ in range(2)
    )
    assert type(restore(first(bandit).record())) is second
    inherited = type("Louder", (lmab.Greedy,), {})  # without a kind of its own, files know it as its parent
    assert type(restore(inherited(bandit).record())) is lmab.Greedy


def test_a_policy_says_whether_it_repeats_arms(policy, bandit, rng):
    assert policy.repeats == (type(policy).__name__ not in ("NoRepeatsPolicy", "ExactNoRepeatsPolicy"))
    if not policy.repeats:
        assert not policy.graph().repeats
        episodes = lmab.simulate(bandit, policy, n_episodes=20, horizon=HORIZON, rng=rng)
        assert all(len(set(episode.actions.tolist())) == HORIZON for episode in episodes)
