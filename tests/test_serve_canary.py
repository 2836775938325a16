"""The canary: which sessions count, what is said when, how the share grows, and how often the whole rule errs."""

from __future__ import annotations

import json

import numpy as np
import pytest
from serving import BANDIT, HORIZON, LABELS, policy_bytes

import lmab
from benchmarks.study_canary import simulated
from lmab.evaluation.sequential import GainBounds
from lmab.serve.canary import (
    BETTER,
    END,
    NO_WORSE,
    OLDER,
    PATIENCE,
    TOO_LONG,
    USELESS,
    WAIT,
    WORSE,
    Canary,
    Counted,
    count_sessions,
    evidence,
    expected,
    first_difference,
    next_share,
    ratio_is_wrong,
    verdict,
)  # fmt: skip
from lmab.serve.export import sessions_of
from lmab.serve.stores import ArmRow, ArmState, LogRow, Rollout
from lmab.serve.versions import ArmTable, Defaults, read_version, uniform_version

ARMS = [ArmRow(label, ArmState.OPEN) for label in LABELS]


def table(body: bytes | None) -> ArmTable:
    version = uniform_version(Defaults(HORIZON)) if body is None else read_version(body, Defaults(HORIZON))
    return ArmTable(version, ARMS)


def steps(name, played, policy="old", began=0.0, restricted=0, told=None, known=0) -> list[LogRow]:
    return [
        LogRow(name, step, arm, reward, 0.5, policy, began + step, 0, 0, began, restricted, told, known)
        for step, (arm, reward) in enumerate(played)
    ]


@pytest.mark.parametrize(
    ("low", "high", "night", "said"),
    [
        (0.01, 0.3, 1, BETTER),
        (-0.3, -0.01, 1, WORSE),
        (-0.01, 0.3, PATIENCE - 1, WAIT),
        (-0.01, 0.3, PATIENCE, NO_WORSE),
        (-0.3, 0.01, PATIENCE, USELESS),
        (-0.3, 0.01, PATIENCE - 1, WAIT),
        (-0.01, 0.01, PATIENCE, NO_WORSE),  # the newer plan wins a tie
        (-0.3, 0.3, END - 1, WAIT),
        (-0.3, 0.3, END, TOO_LONG),
    ],
)
def test_what_is_said_when(low, high, night, said):
    found = GainBounds(low, (low + high) / 2, high)
    assert verdict(found, night, 0.02) == said
    without_ties = {NO_WORSE: USELESS if high < 0.02 else WAIT}.get(said, said)
    assert verdict(found, night, 0.02, OLDER) == without_ties


def test_the_share_grows_every_three_nights_while_the_canary_earns_more():
    assert [float(next_share(0.05, night, 0.1)) for night in (1, 2, 3, 5, 6, 9)] == [0.05, 0.05, 0.2, 0.2, 0.5, 0.5]
    assert float(next_share(0.2, 9, -0.1)) == 0.2  # it is never lowered
    assert float(next_share(0.3, 3, 0.1)) == 0.3


def test_plans_differ_from_the_step_on_at_which_they_would_play_other_arms():
    one, same, other = table(policy_bytes()), table(policy_bytes(floor=0.3)), table(policy_bytes(seed=5))
    plan, second = lmab.plan(BANDIT, horizon=HORIZON).policy, read_version(policy_bytes(seed=5), Defaults()).compact
    for rewards in np.ndindex(2, 2, 2, 2):
        played = [(arm, float(reward)) for arm, reward in zip((0, 1, 2, 1), rewards, strict=True)]
        assert first_difference(steps("s", played), one, same) is None
        wanted = None
        for step in range(HORIZON):
            state = second.start()
            for arm, reward in played[:step]:
                state = second.observe(state, arm, reward)
            if plan.act_on(played[:step]) != second.act(state):
                wanted = step
                break
        assert first_difference(steps("s", played), one, other) == wanted
        assert first_difference(steps("s", played), one, table(None)) == 0


@pytest.mark.parametrize(
    ("more", "whole"),
    [({}, False), ({"restricted": 1}, True), ({"known": 1}, True), ({"told": 1.0}, False), ({"told": 1.5}, True)],
)
def test_a_session_counts_as_a_whole_where_the_versions_knew_what_a_replay_does_not(more, whole):
    """The arms that were allowed, a person's past, and a reward that came after the next decision."""
    rows = steps("a", [(0, 1.0), (1, 0.0)], **more)
    found = count_sessions(sessions_of(rows), table(policy_bytes()), table(policy_bytes(floor=0.2)))
    assert found == ([Counted("old", 0.0, 1.0)] if whole else [], 1, 1.0, 0)


def test_one_plan_stays_one_where_sessions_count_as_a_whole():
    rows = [one for i in range(200) for one in steps(f"s{i}", [(0, float(i % 2))] * 3, known=1)]
    assert expected(list(sessions_of(rows)), table(policy_bytes(floor=0.1)), table(policy_bytes()), "v", 5.0) is None
    assert expected(list(sessions_of(rows)), table(policy_bytes()), table(None), "v", 5.0) is not None


def test_a_session_counts_from_the_difference_on_and_once_for_all():
    rows = steps("a", [(0, 1.0), (1, 0.0)]) + steps("b", [(0, 1.0), (1, None), (2, 1.0)], "new", 7.0)
    found = count_sessions(sessions_of(rows), table(policy_bytes()), table(None))
    assert found == ([Counted("old", 0.0, 1.0), Counted("new", 7.0, 2.0)], 2, 3.0, 2)
    assert count_sessions(sessions_of(rows), table(policy_bytes()), table(policy_bytes(floor=0.2))) == ([], 2, 3.0, 0)


def test_sessions_that_saw_the_same_but_of_which_other_things_were_known_are_two(tmp_path):
    bandit = lmab.LatentBandit(BANDIT.weights, BANDIT.rewards, LABELS)
    prior = lmab.TypePrior.by_value("land", {"de": [0.99, 0.01], "fr": [0.01, 0.99]})
    lmab.plan(bandit, horizon=HORIZON, type_prior=prior).policy.save(tmp_path / "policy.lmab")
    new, old = table((tmp_path / "policy.lmab").read_bytes()), table(policy_bytes())
    told = {land: json.dumps({"land": land}) for land in ("de", "fr")}
    alone = {land: count_sessions([[row._replace(features=text) for row in steps(land, [(0, 1.0)] * 2)]], new, old)
             for land, text in told.items()}  # fmt: skip
    assert [found.n_differ for found in alone.values()] == [0, 1]
    for order in (("de", "fr"), ("fr", "de")):
        rows = [row._replace(features=told[land]) for land in order for row in steps(land, [(0, 1.0)] * 2)]
        assert count_sessions(sessions_of(rows), new, old).n_differ == 1


def test_nights_are_strata():
    counted = [Counted("new", 1.0, 1.0), Counted("old", 2.0, 1.0), Counted("new", 11.0, 5.0), Counted("old", 12.0, 5.0)]
    counted += [Counted("third", 12.0, 99.0)]
    assert evidence(counted, "new", "old", [10.0]).total == 0.0
    assert evidence(counted[:1] + counted[3:], "new", "old", [10.0]).information == 0.0
    assert evidence(counted[:1] + counted[3:], "new", "old", []).total < 0


def test_one_plan_is_no_test_and_a_test_survives_the_store():
    rows = [one for i in range(200) for one in steps(f"s{i}", [(0, float(i % 2))] * 3)]
    assert expected(list(sessions_of(rows)), table(policy_bytes(floor=0.1)), table(policy_bytes()), "v", 5.0) is None
    canary = expected(list(sessions_of(rows)), table(policy_bytes()), table(None), "v", 5.0)
    assert (canary.version, canary.began, canary.differ) == ("v", 5.0, 1.0)
    assert (canary.mean, canary.variance, canary.whole) == (1.5, 2.25, 1.5)
    assert canary.needed() > canary.needed(0.1) > 0
    counted = [Counted("v", 6.0 + i, 3.0) for i in range(300)] + [Counted("old", 6.0 + i, 1.0) for i in range(300)]
    after, said = canary.look(counted, "old", 1000.0, 0.05)
    assert (said, after.nights[0].n_new, after.nights[0].n_old) == (BETTER, 300, 300)
    assert after.nights[0].gain == pytest.approx(2.0)
    assert Canary.from_json(json.loads(json.dumps(after.to_json()))) == after


def test_sessions_that_cannot_be_replayed_count_but_are_not_said_to_differ():
    """Half of the sessions play alike, a quarter differs, and of a quarter the requests named the allowed arms."""
    old = table(policy_bytes())
    histories = [[(arm, float(n & 1)), (arm, float(n >> 1))] for arm in range(3) for n in range(4)]
    for seed in range(1, 20):  # a plan that begins like ours, and differs after some rewards
        new = table(policy_bytes(seed=seed))
        differs = [first_difference(steps("s", history), new, old) for history in histories]
        if None in differs and 1 in differs:
            break
    alike, apart = histories[differs.index(None)], histories[differs.index(1)]
    rows: list[LogRow] = []
    for i in range(400):
        rows += steps(f"s{i}", apart if i % 4 == 0 else alike, restricted=int(i % 4 == 1))
    canary = expected(list(sessions_of(rows)), new, old, "v", 5.0)
    assert (canary.differ, canary.counted) == (0.25, 0.5)
    earlier = {name: value for name, value in canary.to_json().items() if name != "counted"}
    assert Canary.from_json(earlier).counted == Canary.from_json(earlier).differ == 0.25


def test_a_second_look_in_one_night_is_no_second_night():
    canary = Canary("v", 0.0, 1.0, 1.0, 1.5, 2.25, 1.5)
    for at in (86_400.0, 90_000.0, 86_400.0 + 43_199.0):
        canary, said = canary.look([], "old", at, 0.05)
        assert (said, len(canary.nights), canary.nights[-1].at) == (WAIT, 1, at)
    canary, _ = canary.look([], "old", canary.nights[-1].at + 43_200.0, 0.05)
    assert len(canary.nights) == 2


def test_the_whole_rule_errs_seldom():
    """An equal plan is hardly ever called better, one that is worse by 5% hardly ever comes into force."""
    equal = simulated(0.3, 5, per_night=500, gain=0.0, n_loops=500, rng=1)
    worse = simulated(0.3, 5, per_night=500, gain=-0.05, n_loops=500, rng=2)
    better = simulated(0.3, 5, per_night=500, gain=0.1, n_loops=500, rng=3)
    assert equal.called_better <= equal.ever_better <= 0.05
    assert equal.promoted == pytest.approx(equal.called_better + equal.tied)
    assert equal.called_better <= equal.promoted_ties_older <= equal.ever_better  # only what is called better
    assert equal.ever_worse <= 0.1
    assert worse.promoted <= 0.01
    assert better.promoted > 0.9


def sessions(rng: np.random.Generator, spans: list[tuple[float, int, float]]) -> list[tuple[float, str]]:
    """Times and versions of n sessions after each time, the canary with a probability."""
    return [(low + 20.0 + i, "new" if rng.random() < share else "old") for low, n, share in spans for i in range(n)]


def test_a_share_of_sessions_that_differs_from_the_asked_one_is_found(rng):
    rollouts = [Rollout("old", "new", 0.2, 1e6, ""), Rollout("old", "new", 0.05, 0.0, "")]
    rollouts.append(Rollout("old", None, 0.0, -9.0, ""))
    fair = sessions(rng, [(0.0, 4000, 0.05), (1e6, 4000, 0.2)])
    assert ratio_is_wrong(fair, rollouts, 2e6) == ""
    assert ratio_is_wrong([*fair, *[(5.0, "new")] * 500], rollouts, 2e6) == ""  # replicas follow one by one
    assert ratio_is_wrong([*fair, *[(30.0, "other")] * 500], rollouts, 2e6) == ""
    lossy = sessions(rng, [(0.0, 4000, 0.05), (1e6, 4000, 0.15)])  # a quarter of the canary's sessions is lost
    found = ratio_is_wrong(lossy, rollouts, 2e6)
    assert "of 4,000, 20% was asked" in found
    assert ratio_is_wrong([], rollouts, 2e6) == ""


def test_fair_shares_are_rarely_called_wrong(rng):
    rollouts = [Rollout("old", "new", 0.05, 0.0, "")]
    wrong = sum(bool(ratio_is_wrong(sessions(rng, [(0.0, 300, 0.05)]), rollouts, 1e6)) for _ in range(200))
    assert wrong <= 1  # one in 10,000 is expected
