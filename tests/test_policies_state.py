"""States: as JSON and back, late rewards, people who return, beliefs; the compact forms under masks."""

from __future__ import annotations

import json

import numpy as np
import policies
import pytest

import lmab
from lmab.errors import InvalidArgument
from lmab.learning import HistoryPolicy

BANDIT = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5, 0.2], [0.1, 0.6, 0.3]])
GREEDY = lmab.Greedy(BANDIT)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", "text must be a state that to_json wrote, got ''"),
        ("[1]", "text must be a state that to_json wrote"),
        ('{"kind": "greedy"}', "text must be a state that to_json wrote"),
        ('{"kind": "greedy", "step": 1, "single": true, "memory": [["x", 1]]}', "text must be a state that to_json"),
        ('{"kind": "mucb", "step": 1, "single": true, "memory": [[1, 1]]}', "a state of a 'greedy' policy, got one of"),
        ('{"kind": "greedy", "step": 1, "single": true, "memory": [[1]]}', "must hold 2 numbers a session"),
        ('{"kind": "greedy", "step": -1, "single": true, "memory": [[1, 1]]}', "text must be a state that to_json"),
        ('{"kind": "greedy", "step": true, "single": true, "memory": [[1, 1]]}', "text must be a state that to_json"),
        ('{"kind": "greedy", "step": 1, "single": true, "memory": [[1, 1], [1, 1]]}', "text must be a state that"),
    ],
)
def test_text_that_is_no_state_is_refused(text, wanted):
    with pytest.raises(InvalidArgument, match=wanted):
        GREEDY.from_json(text)


def test_a_state_is_plain_json_and_keeps_every_bit():
    policy = lmab.plan(BANDIT, horizon=3, method=lmab.Exact()).policy  # its memory holds infinities
    state = policy.observe(policy.start(), 1, 1.0)
    told = json.loads(policy.to_json(state))
    assert (told["kind"], told["step"], told["single"]) == ("exact", 1, True)
    np.testing.assert_array_equal(policy.from_json(policy.to_json(state)).memory, state.memory)


def test_the_belief_by_hand():
    state = GREEDY.observe(GREEDY.start(), 0, 1.0)
    np.testing.assert_allclose(GREEDY.belief(state), [0.9, 0.1])
    assert GREEDY.belief(GREEDY.start(3)).shape == (3, 2)
    graph = lmab.plan(BANDIT, horizon=3).policy.graph()
    np.testing.assert_allclose(graph.belief(graph.observe(graph.start(), 0, 1.0)), [0.9, 0.1])
    for without in (lmab.Uniform(3), lmab.policies.MUCB(BANDIT)):
        with pytest.raises(InvalidArgument, match="policy must keep a belief over types"):
            without.belief(without.start())


def test_a_history_of_earlier_sessions_moves_the_belief_and_no_step():
    returning = GREEDY.start(history=[(0, 1.0), (1, None), (0, 1.0)])
    np.testing.assert_allclose(GREEDY.belief(returning), [81 / 82, 1 / 82])
    assert returning.step == 0
    many = GREEDY.start(2, history=[(0, 1.0)])
    np.testing.assert_allclose(GREEDY.belief(many), [[0.9, 0.1]] * 2)
    once = lmab.plan(BANDIT, horizon=3, repeats=False).policy
    assert once.act(once.start(history=[(0, 1.0)])) == 0  # the arms of earlier sessions may be played again


@pytest.mark.parametrize("name", ["ExactPolicy", "ExactNoRepeatsPolicy", "PolicyGraph"])
def test_tables_that_miss_a_reward_decide_by_a_lookahead_and_return_to_the_table(name):
    policy = policies.EXAMPLES[name](BANDIT, 3)
    late = policy.tell(policy.observe(policy.start(), 0, None), 0, 1.0)
    timely = policy.observe(policy.start(), 0, 1.0)
    assert policy.act(late) == policy.act(timely)
    np.testing.assert_allclose(policy.belief(late), policy.belief(timely))
    if name != "PolicyGraph":  # which stays with its source once it was left
        np.testing.assert_allclose(late.memory, timely.memory)
    long = policy.start(history=[(0, 1.0), (0, 0.0)] * 2000)  # far below the numeric range, were it not scaled
    np.testing.assert_allclose(
        policy.belief(long), lmab.model.belief.normalise(np.array([0.09, 0.09]) ** 20), atol=1e-9
    )


def test_an_unrewarded_step_of_a_table_without_repeats_counts_its_arm_as_played():
    policy = policies.EXAMPLES["ExactNoRepeatsPolicy"](BANDIT, 3)
    state = policy.start()
    first = policy.act(state)
    state = policy.observe(state, first, None)
    second = policy.act(state)
    third = policy.act(policy.observe(state, second, 1.0))
    assert sorted([first, second, third]) == [0, 1, 2]


def test_a_policy_by_whole_sequences_refuses_late_rewards():
    policy = HistoryPolicy([0.0, 1.0], [np.array([[1.0, 0.0]]), np.eye(4)[:, :2]])
    with pytest.raises(InvalidArgument, match="reward must be known at every step"):
        policy.observe(policy.start(), 0, None)
    with pytest.raises(InvalidArgument, match="reward must not be late"):
        policy.tell(policy.start(), 0, 1.0)


def test_probabilities_need_the_number_of_arms():
    with pytest.raises(InvalidArgument, match="allowed must be given, because Stationary"):
        lmab.policies.Stationary(1).probabilities(lmab.policies.Stationary(1).start())
    row = lmab.policies.Stationary(1).probabilities(lmab.policies.Stationary(1).start(), allowed=[True, False, True])
    assert row.tolist() == [1, 0, 0]


@pytest.mark.parametrize("name", sorted(set(policies.concrete()) - {"Exploring", "Uniform", "Thompson"}))
def test_compact_forms_tell_and_mask_as_the_policy_does(name, rng):
    bandit = lmab.random_bandit(3, 5, rng=rng)
    policy = policies.EXAMPLES[name](bandit, 4)
    compact = policy.compact()
    mine, whole = compact.start(), policy.start()
    for step in range(4):
        allowed = rng.random(5) < 0.5
        allowed[rng.integers(5)] = True
        for _ in range(2):
            assert compact.act(mine, allowed) == policy.act(whole, allowed=allowed)
        with pytest.raises(InvalidArgument, match="allowed must"):
            compact.act(mine, np.ones(7, bool) if policy.n_arms else np.zeros(5, bool))
        arm, reward = int(rng.integers(5)), float(rng.integers(2))
        if policy.order_free:
            mine = compact.tell(compact.observe(mine, arm, None), arm, reward)
            whole = policy.tell(policy.observe(whole, arm, None), arm, reward)
        else:
            mine, whole = compact.observe(mine, arm, reward), policy.observe(whole, arm, reward)
        assert mine.step == whole.step == step + 1
        np.testing.assert_array_equal(compact.from_json(compact.to_json(mine)).memory, whole.memory[0])


def test_what_a_compact_form_remembers_is_bounded(monkeypatch):
    monkeypatch.setattr("lmab.policies.compact.MANY", 3)
    compact = lmab.plan(BANDIT, horizon=6, method=lmab.planning.Lookahead(1)).policy.compact()
    policy, state = compact.policy, compact.start()
    for reward in (1.0, 0.0, 1.0, 0.0):
        assert compact.act(state) == policy.act(compact._whole(state))
        assert len(compact._arms) <= 3
        state = compact.observe(state, 0, reward)


def test_a_compact_form_starts_from_what_is_known():
    compact = GREEDY.compact()
    known = compact.start(history=[(0, 1.0), (1, None)])
    np.testing.assert_allclose(compact.belief(known), [0.9, 0.1])
    assert known.step == 0
    assert compact.skip(compact.start()).step == 1
