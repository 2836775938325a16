"""The contract that every policy keeps, whoever adds it."""

from __future__ import annotations

import json

import numpy as np
import policies
import pytest
from policies import in_turn

import lmab
from lmab import files
from lmab.errors import InvalidArgument, InvalidFile
from lmab.policies.graph import PolicyGraph
from lmab.policies.policy import best_allowed, restore_policy
from lmab.testing.policies import check_policy

HORIZON = 4
BANDIT = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5, 0.2], [0.1, 0.6, 0.3]])
GREEDY = lmab.Greedy(BANDIT)


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
    with pytest.raises(InvalidArgument, match="rng must be given, because Thompson plays at random"):
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
    name = type(policy).__name__
    assert policy.repeats == ("NoRepeat" not in name and name != "Ranking")
    if not policy.repeats:
        assert name == "Ranking" or not policy.graph().repeats
        sessions = lmab.simulate(bandit, policy, n_sessions=20, horizon=HORIZON, rng=rng)
        assert all(len(set(session.arms.tolist())) == HORIZON for session in sessions)


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
        with pytest.raises(InvalidArgument, match="policy must be a BeliefPolicy"):
            without.belief(without.start())


def test_a_history_of_earlier_sessions_moves_the_belief_and_no_step():
    returning = GREEDY.start(history=[(0, 1.0), (1, None), (0, 1.0)])
    np.testing.assert_allclose(GREEDY.belief(returning), [81 / 82, 1 / 82])
    assert returning.step == 0
    many = GREEDY.start(2, history=[(0, 1.0)])
    np.testing.assert_allclose(GREEDY.belief(many), [[0.9, 0.1]] * 2)
    once = lmab.plan(BANDIT, horizon=3, repeats=False).policy
    assert once.act(once.start(history=[(0, 1.0)])) == 0  # the arms of earlier sessions may be played again


@pytest.mark.parametrize("name", ["ExactPolicy", "NoRepeatExactPolicy", "PolicyGraph"])
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
    policy = policies.EXAMPLES["NoRepeatExactPolicy"](BANDIT, 3)
    state = policy.start()
    first = policy.act(state)
    state = policy.observe(state, first, None)
    second = policy.act(state)
    third = policy.act(policy.observe(state, second, 1.0))
    assert sorted([first, second, third]) == [0, 1, 2]


def test_a_policy_by_whole_sequences_refuses_late_rewards():
    from lmab.paper.history_ucbvi import HistoryPolicy

    policy = HistoryPolicy([0.0, 1.0], [np.array([[1.0, 0.0]]), np.eye(4)[:, :2]])
    with pytest.raises(InvalidArgument, match="reward must be known at every step"):
        policy.observe(policy.start(), 0, None)
    with pytest.raises(InvalidArgument, match="reward must not be late"):
        policy.tell(policy.start(), 0, 1.0)


def test_probabilities_need_the_number_of_arms():
    policy = policies.of_any_arms()
    with pytest.raises(InvalidArgument, match="allowed must be given, because Ranking"):
        policy.probabilities(policy.start())
    row = policy.probabilities(policy.start(), allowed=[True, True, False])
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
    monkeypatch.setattr("lmab.policies.policy.MANY", 3)
    compact = lmab.plan(BANDIT, horizon=6, method=lmab.planning.Lookahead(1)).policy.compact()
    policy, state = compact.policy, compact.start()
    for reward in (1.0, 0.0, 1.0, 0.0):
        assert compact.act(state) == policy.act(compact._as_state(state))
        assert len(compact._arms) <= 3
        state = compact.observe(state, 0, reward)


@pytest.mark.parametrize(
    "method", [lmab.planning.PointBased(), lmab.planning.Lookahead()], ids=["vectors", "any other"]
)
def test_sessions_on_remembered_paths_play_what_the_policy_plays(method, monkeypatch):
    monkeypatch.setattr("lmab.policies.policy.MANY", 50)  # the memory is full soon, so that both ways are taken
    policy = lmab.plan(lmab.random_bandit(3, 6, kind="hard", rng=0), horizon=6, method=method).policy
    draws, compact = np.random.default_rng(1), policy.compact()
    for _ in range(60):
        state, alone = compact.start(), policy.start()
        for _ in range(5):
            assert compact.act(state) == policy.act(alone)
            arm = int(draws.integers(6)) if draws.random() < 0.3 else policy.act(alone)
            reward = [0.0, 1.0, None][draws.integers(3)]
            state, alone = compact.observe(state, arm, reward), policy.observe(alone, arm, reward)
            assert state.step == alone.step
            np.testing.assert_array_equal(state.memory, alone.memory[0])


def test_a_second_session_of_the_same_path_asks_the_policy_nothing(monkeypatch):
    compact = lmab.plan(BANDIT, horizon=6).policy.compact()
    asked: list[str] = []

    def counted(name):
        method = getattr(compact, name)

        def call(*given):
            asked.append(name)
            return method(*given)

        return call

    for name in ("_decide", "_follow"):
        monkeypatch.setattr(compact, name, counted(name))
    for wanted in (["_decide", "_follow", "_decide", "_follow", "_decide"], []):
        asked.clear()
        state = compact.start()
        for reward in (1.0, 0.0):
            state = compact.observe(state, compact.act(state), reward)
        compact.act(state)
        assert asked == wanted


def test_a_compact_form_starts_from_what_is_known():
    compact = GREEDY.compact()
    known = compact.start(history=[(0, 1.0), (1, None)])
    np.testing.assert_allclose(compact.belief(known), [0.9, 0.1])
    assert known.step == 0
    assert compact.skip(compact.start()).step == 1


def test_a_compact_policy_tells_steps_apart_that_look_the_same():
    compact = in_turn(2, 0, 1).compact()
    state, played = compact.start(), []
    for _ in range(3):
        played.append(compact.act(state))
        state = compact.observe(state, played[-1], 1.0)
    assert played == [2, 0, 1]


@pytest.mark.parametrize("arm", [-1, 2])
@pytest.mark.parametrize("labels", [None, ("tea", "milk")])
def test_arms_that_do_not_exist_have_no_label(arm, labels):
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
    policy = lmab.Greedy(lmab.LatentBandit(bandit.weights, bandit.rewards, labels))
    with pytest.raises(InvalidArgument, match=rf"arm must be an integer in 0\.\.1, got {arm}"):
        policy.label(arm)
    with pytest.raises(InvalidArgument, match=r"arm must be an integer"):
        in_turn(0, 1).label(-1)


def test_a_compact_form_forgets_states_before_they_become_many(monkeypatch):
    monkeypatch.setattr("lmab.policies.policy.MANY", 4)
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1, 0.5], [0.2, 0.7, 0.4]])
    compact = lmab.plan(bandit, horizon=6).policy.compact()
    begin = compact.start()
    for arm in range(3):
        for reward in (0.0, 1.0):
            after = compact.observe(begin, arm, reward)
            np.testing.assert_array_equal(compact.observe(begin, arm, reward).memory, after.memory)
            assert len(compact._after) <= 4
