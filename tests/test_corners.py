"""Ways through the package that are hardly ever taken: refusals in a table, odd columns, disks that fail."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import lmab
from lmab import Sessions
from lmab.data.features import Features, column_values
from lmab.errors import InvalidArgument, InvalidData, InvalidFile, LmabError
from lmab.estimation import MomentMatching
from lmab.evaluation.replanning import Earned, Histories
from lmab.paper.experiment.analysis import Mean
from lmab.paper.experiment.checks import explained

ARMS, REWARDS = [[0, 1], [1, 0]], [[0.0, 1.0], [1.0, 0.0]]
LOG = Sessions.from_arrays(ARMS, REWARDS)
KNOWN = Sessions.from_arrays(ARMS, REWARDS, features={"age": [1, 2]})
BANDIT = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.2], [0.1, 0.8]])

REFUSED = {
    "propensities of another shape": (
        lambda folder: Sessions.from_arrays(ARMS, REWARDS, propensities=[[0.5, 0.5]]),
        "propensities must have shape (2, 2), got (1, 2)",
    ),
    "one ending for two sessions": (
        lambda folder: Sessions.from_arrays(ARMS, REWARDS, ended=["left"]),
        "ended must hold one entry for each of the 2 sessions, got (1,)",
    ),
    "persons of too few sessions": (
        lambda folder: Sessions.from_arrays(ARMS, REWARDS, persons=["a"]),
        "persons must hold one id for each of the 2 sessions, got (1,)",
    ),
    "features of other sessions": (
        lambda folder: Features.of(KNOWN.features, 3),
        "features must hold 3 sessions, got 2",
    ),
    "infinite features": (
        lambda folder: column_values("age", [1.0, -np.inf]),
        "features['age'] must hold finite numbers, got -inf",
    ),
    "features in a table": (
        lambda folder: column_values("age", [[1.0], [2.0]]),
        "features['age'] must be one-dimensional, got the shape (2, 1)",
    ),
    "features that are dates": (
        lambda folder: column_values("day", np.array(["2026-01-01"], "M8[D]")),
        "features['day'] must hold numbers or text, got datetime64[D]",
    ),
    "logs with and without features": (
        lambda folder: lmab.pack([KNOWN, LOG], folder / "p"),
        "all logs must have features, or none; got some with and some without",
    ),
    "logs with other features": (
        lambda folder: lmab.pack([KNOWN, Sessions.from_arrays(ARMS, REWARDS, features={"sex": [1, 2]})], folder / "p"),
        "all logs must have the same features, got logs that differ",
    ),
    "logs with other arms": (
        lambda folder: lmab.pack([LOG, LOG.with_arms(3)], folder / "p"),
        "the logs must have the same arms and labels, got logs that differ",
    ),
    "events that end": (
        lambda folder: lmab.pack("log.csv", folder / "p", person="who", time="when", limit=3),
        "ended and limit must be None if sessions are made of events: a pause ends them",
    ),
    "time without a person": (
        lambda folder: lmab.pack("log.csv", folder / "p", time="when"),
        "time must be given with person: sessions are made of both",
    ),
    "a frame without the columns of a log": (
        lambda folder: Sessions.read(pd.DataFrame({"session": [0]})),
        "the log has no column 'arm'; its columns are 'session'",
    ),
    "more steps than the policy has": (
        lambda folder: lmab.evaluate(lmab.Greedy(BANDIT, horizon=1), LOG, horizon=2, fit_propensities=True, rng=0),
        "horizon must be at most the policy's 1, got 2",
    ),
    "one session": (
        lambda folder: lmab.evaluate(lmab.Uniform(2), LOG[:1], horizon=1, fit_propensities=True, rng=0),
        "sessions must hold at least two sessions, got one",
    ),
    "a class in the place of an estimator": (
        lambda folder: lmab.fit(LOG, n_types=1, method=lmab.EM, rng=0),
        "method must be an estimator such as EM() or EM(prior=1.0), got the class EM itself",
    ),
    "a name in the place of an estimator": (
        lambda folder: lmab.fit(LOG, n_types=1, method="em", rng=0),
        "method must be an estimator such as EM() or EM(prior=1.0), got 'em'",
    ),
    "a number of traits": (
        lambda folder: lmab.fit(LOG, n_types=2, method=lmab.Traits(), rng=0),
        "n_types must not be given with Traits, got 2",
    ),
    "a start for moments": (
        lambda folder: lmab.fit(LOG, n_types=2, method=MomentMatching(), start=BANDIT, rng=0),
        "start must be None for the method MomentMatching, got LatentBandit(2 types",
    ),
    "a start of other types": (
        lambda folder: lmab.fit(LOG, n_types=1, method=lmab.EM(prior=1.0), start=BANDIT, check=False, rng=0),
        "start must have 1 types and 2 arms, got 2 types and 2 arms",
    ),
    "a start that does not know a reward": (
        lambda folder: lmab.fit(
            Sessions.from_arrays(ARMS, [[0.0, 2.0], [1.0, 0.0]]),
            n_types=2,
            method=lmab.EM(prior=1.0),
            start=BANDIT,
            check=False,
            rng=0,
        ),
        "start must know every reward of the log, got LatentBandit",
    ),
    "more types than sessions": (
        lambda folder: lmab.fit(LOG, n_types=3, rng=0),
        "n_types must be at most the number of sessions (2), got 3",
    ),
    "types that are no number": (
        lambda folder: lmab.fit(LOG, n_types="many", rng=0),
        "n_types must be an integer of at least 1 or 'auto', got 'many'",
    ),
    "a label of nothing": (
        lambda folder: lmab.Greedy(BANDIT).arm_of("tea"),
        "arm must be a label of the policy (none, because the arms of this policy have numbers only), got 'tea'",
    ),
    "a label of something else": (
        lambda folder: lmab.Greedy(lmab.LatentBandit(BANDIT.weights, BANDIT.rewards, ("tea", "milk"))).arm_of("rum"),
        "arm must be a label of the policy ('tea', 'milk'), got 'rum'",
    ),
    "fewer arms than are played": (
        lambda folder: lmab.Greedy(BANDIT).distribution(lmab.Greedy(BANDIT).start(1), n_arms=0),
        "n_arms must be above the arm played, 0, got 0",
    ),
    "an assessment of no plan": (
        lambda folder: lmab.assess(estimate(), lmab.Uniform(2), LOG, rng=0),
        "plan must be what lmab.plan returns, with its bounds, got a Uniform",
    ),
    "an assessment of chance": (
        lambda folder: lmab.assess(
            estimate(), replace(lmab.plan(BANDIT, horizon=2), policy=lmab.Uniform(2)), LOG, rng=0
        ),
        "plan must have a deterministic policy, got Uniform",
    ),
}


def read(frame, **options) -> Sessions:
    return Sessions.from_frame(frame, session="session", arm="arm", reward="reward", **options)


def estimate() -> lmab.Estimate:
    return lmab.fit(LOG, n_types=1, method=lmab.EM(prior=1.0), check=False, rng=0)


@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_these_words(name, tmp_path):
    call, words = REFUSED[name]
    with pytest.raises(LmabError) as caught:
        call(tmp_path)
    assert words in str(caught.value)


def test_values_of_other_kinds_are_not_equal():
    assert KNOWN.features != "age"
    assert LOG != "log"
    assert KNOWN != LOG
    assert Sessions.from_arrays(ARMS, REWARDS, features={"age": [1, 2]}) == KNOWN


def frame(**columns) -> pd.DataFrame:
    return pd.DataFrame({"session": [0, 0, 1], "arm": [0, 1, 0], "reward": [0.0, 1.0, 1.0]} | columns)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (pd.Categorical(["a", "a", "b"]), ["a", "b"]),
        ([True, True, False], [1.0, 0.0]),
        (["1.5", "1.5", "2"], ["1.5", "2"]),
        ([None, None, "b"], [None, "b"]),
        ([3, 3, 4], [3.0, 4.0]),
    ],
)
def test_features_of_any_type_are_numbers_or_text(column, values):
    log = read(frame(x=column), features=["x"])
    assert log.features["x"].tolist() == values
    whole = Sessions.from_arrays([[0], [0]], [[0.0], [1.0]], features={"x": np.array(values)})
    assert whole.features["x"].tolist() == values


def test_features_of_files_are_numbers_where_all_of_them_are(tmp_path):
    header = "session,arm,reward,age,town\n"
    (tmp_path / "a.csv").write_text(f"{header}0,0,1,30,\n1,1,0,,\n")
    (tmp_path / "b.csv").write_text(f"{header}2,0,1,41.5,Bonn\n3,1,0,7,Ulm\n")
    log = Sessions.read([tmp_path / "a.csv", tmp_path / "b.csv"], features=["age", "town"])
    np.testing.assert_array_equal(log.features["age"], [30.0, np.nan, 41.5, 7.0])
    assert log.features["town"].tolist() == [None, None, "Bonn", "Ulm"]


def test_lines_of_json_may_be_empty_and_columns_without_values(tmp_path):
    path = tmp_path / "log.jsonl"
    rows = [
        '{"session": 0, "arm": 1, "reward": 0, "town": null}',
        '{"session": 1, "arm": 0, "reward": 1, "town": null}',
    ]
    path.write_text("\n\n".join(rows) + "\n\n")
    log = Sessions.read(path, features=["town"])
    assert (log.arms.tolist(), log.rewards.tolist()) == ([1, 0], [0.0, 1.0])
    assert log.features["town"].tolist() == [None, None]
    path.write_text("\n\n")
    with pytest.raises(LmabError):
        Sessions.read(path)


def test_rewards_of_a_packed_log_that_are_not_listed(tmp_path):
    rewards = np.linspace(-1, 1, 70).reshape(35, 2)
    log = Sessions.from_arrays(np.tile([0, 1], (35, 1)), rewards)
    packed = lmab.pack([log], tmp_path / "p")
    np.testing.assert_array_equal(packed.some_rewards, np.unique(rewards))
    np.testing.assert_array_equal(packed.load().rewards, log.rewards)
    assert repr(packed) == "Packed(35 sessions, 70 steps, 2 arms, 1 partition)"


@pytest.mark.parametrize("name", ["log.csv", "log.parquet"])
def test_a_log_that_cannot_be_written_leaves_nothing_behind(name, tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(InvalidFile, match=f"{name}: cannot write here: No space left on device"):
        LOG.write(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("n_sessions", [2, 5])
def test_a_limit_is_at_least_the_longest_session(n_sessions):
    table = {"session": np.arange(3).repeat([1, 2, 3]), "arm": 0, "reward": [0.0, 1.0, 1.0, 0.0, 1.0, 1.0]}
    if n_sessions < 3:
        with pytest.raises(InvalidData, match="limit must be at least the longest session, which has 3 steps, got 2"):
            read(pd.DataFrame(table), limit=n_sessions)
    else:
        assert read(pd.DataFrame(table), limit=3).ended.tolist() == ["left", "left", "unknown"]
        assert read(pd.DataFrame(table), limit=4).ended.tolist() == ["left"] * 3


@pytest.mark.parametrize(
    ("word", "ended"),
    [("left", "left"), ("TRUE", "left"), ("went on", "went on"), ("False", "went on"), (True, "left"), (0, "went on")],
)
def test_words_for_how_a_session_ended(word, ended):
    assert Sessions.from_arrays([[0]], [[1.0]], ended=[word]).ended.tolist() == [ended]


def test_other_words_are_refused():
    with pytest.raises(InvalidData, match=r"ended must be 'left', 'went on' or 'unknown' .* got 'gone'"):
        Sessions.from_arrays([[0]], [[1.0]], ended=["gone"])
    with pytest.raises(InvalidArgument):
        Sessions.from_arrays([[0]], [[1.0]], ended="left")


def test_arms_have_no_share_in_what_nobody_earns():
    arms = np.array([True, False])
    nobody = Histories(np.zeros(0, int), np.zeros(0), np.zeros((0, 1), int), np.zeros((0, 0)))
    assert Earned(np.array([1.0, 3.0]), np.ones(2), 0.0, nobody).share_of(arms) == 0.25
    assert Earned(np.array([-1.0, -3.0]), np.ones(2), 0.0, nobody).share_of(arms) == 0.0


def test_rates_that_are_all_the_same_leave_nothing_to_explain():
    same = {(gap, 4): Mean(0.3, 0.01, 5) for gap in (0.1, 0.2, 0.4)}
    assert explained(same, 2.0) == 0.0
    rising = {cell: Mean(cell[0], 0.01, 5) for cell in same}
    assert explained(rising, 2.0) == pytest.approx(1.0)
    falling = {cell: Mean(-cell[0], 0.01, 5) for cell in same}
    assert explained(falling, 2.0) == pytest.approx(0.0)
