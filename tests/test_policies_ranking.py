from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import serving
from hypothesis import given
from hypothesis import strategies as st

import lmab
from lmab.errors import InvalidArgument
from lmab.policies import Ranking

OLD = Path(__file__).parent / "golden" / "policies"  # written by version 7c5c700, with the decisions that it made
DECISIONS = json.loads((OLD / "decisions.json").read_text())


def expected(order, played, allowed, repeats):
    """The reference implementation, one session at a time."""
    open_ = [arm for arm in order if allowed[arm]]
    new = [arm for arm in open_ if repeats or arm not in played]
    return (new or open_)[0]


@given(st.permutations(range(5)), st.booleans(), st.lists(st.tuples(st.integers(1, 31), st.integers(0, 4)), max_size=8))
def test_the_first_allowed_arm_that_the_session_has_not_played(order, repeats, steps):
    policy = Ranking(order, horizon=None, repeats=repeats)
    states, compact, played = policy.start(2), policy.compact().start(), []
    for code, arm in steps:
        mask = [bool(code >> one & 1) for one in range(5)]
        wanted = expected(order, played, mask, repeats)
        assert policy.act(states, allowed=mask).tolist() == [wanted, wanted]
        assert policy.compact().act(compact, mask) == wanted
        assert policy.act_on([(one, None) for one in played]) == expected(order, played, [True] * 5, repeats)
        states, compact = policy.observe(states, [arm, arm], [1.0, 0.0]), policy.compact().observe(compact, arm, None)
        played.append(arm)


def test_what_other_sessions_and_late_rewards_tell_leaves_every_arm_open():
    policy = Ranking([2, 0, 1], horizon=3, repeats=False)
    state = policy.start(history=[(2, 1.0), (0, 0.0)])
    assert policy.act(state) == 2
    state = policy.observe(state, 2, None)
    assert policy.act(policy.tell(state, 2, 1.0)) == 0
    assert policy.act(policy.skip(state)) == 0
    assert policy.act(policy.from_json(policy.to_json(state))) == 0


def test_arms_by_their_labels(tmp_path):
    names = ["tea", "milk", "water"]
    policy = Ranking(["milk", "water", 0], horizon=3, repeats=False, arm_labels=names)
    policy.save(tmp_path / "ranking.lmab")
    for one in (policy, lmab.load(tmp_path / "ranking.lmab")):
        assert (one.arms, one.n_arms, one.repeats) == ((1, 2, 0), 3, False)
        assert one.label(one.act_on([("milk", 1.0)])) == "water"
        assert one.top(one.start(), 3).tolist() == [1, 2, 0]


@pytest.mark.parametrize(
    ("arms", "labels", "message"),
    [
        ([], None, "the number of arms must be an integer of at least 1, got 0"),
        ([0, -1], None, r"arms\[1\] must be an integer of at least 0, got -1"),
        ([0, True], None, r"arms\[1\] must be an integer of at least 0, got True"),
        ([1, 1, 0], None, "arms must hold each of the 3 arms once, got arm 1 more than once"),
        ([0, 2], None, "arms must hold each of the 2 arms once, got arm 2 which is no arm"),
        ([0, 1], ["a", "b", "c"], "arms must hold each of the 3 arms once, got arm 2 not at all"),
        (["a", "d"], ["a", "b"], "arms must be numbers of arms or labels among arm_labels, got 'd'"),
        ([0, 1], ["a", "a"], "arm_labels must be distinct, got 'a' more than once"),
    ],
)
def test_an_order_that_is_not_complete_is_refused(arms, labels, message):
    with pytest.raises(InvalidArgument, match=message):
        Ranking(arms, horizon=1, arm_labels=labels)


def old(name):
    loaded = lmab.load(OLD / f"{name}.lmab")
    return loaded.policy if isinstance(loaded, lmab.Plan) else loaded


@pytest.mark.parametrize("name", sorted(DECISIONS))
def test_old_files_load_as_a_ranking_that_plays_as_before(name, tmp_path):
    policy = old(name)
    assert isinstance(policy, Ranking)
    policy.save(tmp_path / "again.lmab")
    for one in (policy, lmab.load(tmp_path / "again.lmab")):
        state = one.start()
        for arm in DECISIONS[name]["played"]:
            assert one.act(state) == arm
            state = one.observe(state, arm, 1.0)


@pytest.mark.parametrize("name", ["twice", "twice-numbered", "one-arm", "one-arm-numbered", "plan-arm"])
def test_old_files_that_repeat_arms_play_as_before_under_masks_and_after_other_arms(name):
    policy = old(name)
    assert policy.repeats
    for session in DECISIONS[name]["masked"]:
        state = policy.start()
        for mask, arm, played in session:
            assert policy.act(state, allowed=mask) == arm
            state = policy.observe(state, played, 1.0)


def test_old_lists_of_different_arms_go_on_by_number():
    assert old("sequence").arms == (3, 0, 2, 1, 4)
    assert not old("sequence").repeats
    assert old("exploring").policy.arms == (3, 0, 2, 1, 4)
    numbered = old("sequence-numbered")  # does not know how many arms there are
    assert numbered.n_arms is None
    assert numbered.act_on([], allowed=np.arange(9) > 5) == 6
    assert numbered.act_on([(3, 1.0)]) == 0
    with pytest.raises(InvalidArgument, match="allowed must cover arm 3, got 2 arms"):
        numbered.act_on([], allowed=[True, True])


def test_a_store_with_an_old_list_plays_on(tmp_path):
    path = tmp_path / "store.sqlite"
    shutil.copy(OLD / "store.sqlite", path)

    async def play():
        async with serving.served(str(path)) as client:
            third = await client.told("half", 2, 1.0)
            masked = await client.told("new", 0, allowed=["p", "t", "u"])
            return third, masked

    third, masked = asyncio.run(play())
    assert not third["fallback"]
    assert not masked["fallback"]
    assert third["explored"] or third["label"] == "u"  # the third entry of the list q, s, u, p
    assert masked["explored"] or masked["label"] == "u"


def popularity(model, played, allowed, repeats):
    """The allowed arm with the highest mean under the model, that was not played if arms do not repeat."""
    means = np.where(allowed, model.weights @ model.means, -np.inf)
    fresh = means.copy()
    fresh[played] = -np.inf
    return int((means if repeats or not np.isfinite(fresh).any() else fresh).argmax())


@pytest.mark.parametrize("repeats", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_the_fallback_of_a_plan_is_popularity_under_any_mask(seed, repeats):
    """It earned 63%, 36% and 25% of the gain of popularity on logs of 15 allowed arms, when it went on by number."""
    rng = np.random.default_rng(seed)
    truth = lmab.LatentBandit.bernoulli([1.0], rng.beta(2, 5, size=(1, 60)))
    log = lmab.simulate(truth, lmab.Uniform(60), n_sessions=500, horizon=6, rng=rng)
    estimate = lmab.fit(log, n_types=2, rng=0)
    made = lmab.plan(estimate, horizon=6, repeats=repeats)
    assert made.fixed
    assert made.policy.repeats == repeats
    earned = np.zeros(2)
    for _ in range(200):
        allowed = np.isin(np.arange(60), rng.choice(60, 15, replace=False))
        played = []
        for _step in range(6):
            best = popularity(estimate.bandit, played, allowed, repeats)
            arm = made.policy.act_on([(one, 0.0) for one in played], allowed=allowed)
            earned += truth.means[0, [arm, best]]
            played.append(best)
    assert earned[0] >= 0.99 * earned[1]
