"""What the service knows before a session: features that are checked, kept, exported, erased and learned from."""

from __future__ import annotations

import functools
import math
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from serving import BANDIT, HORIZON, LABELS, Clock, go, refused, served

import lmab
from lmab.data.parts import column_of
from lmab.model.type_prior import Numeric
from lmab.serve.canary import first_difference
from lmab.serve.export import Survey, export_days, person_numbers, read_log
from lmab.serve.live import usable_features
from lmab.serve.messages import MOST_FEATURES, MOST_LETTERS, Problem, check_features
from lmab.serve.refit import RefitOptions, refit
from lmab.serve.stores import ArmRow, ArmState, LogRow
from lmab.serve.versions import ArmTable, Defaults, read_version
from lmab.serve.watch import known_before

refit_module = sys.modules["lmab.serve.refit"]  # whose name the function has in the package
PRIOR = lmab.TypePrior.by_value("country", {"de": [0.9, 0.1], "fr": [0.2, 0.8]}, keep=0.5)


@functools.cache
def known_policy() -> lmab.Policy:
    bandit = lmab.LatentBandit(BANDIT.weights, BANDIT.rewards, LABELS)
    return lmab.plan(bandit, horizon=HORIZON, type_prior=PRIOR).policy


@functools.cache
def known_bytes() -> bytes:
    """The file of a policy that starts from the country."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "p.lmab"
        lmab.policies.Exploring(known_policy(), 0.0).save(path)
        return path.read_bytes()


def test_the_summary_tells_shares_of_types_by_value_and_what_knowing_them_is_worth(event_store):
    async def scenario():
        policy = known_policy()
        async with served(event_store, known_bytes()) as client:
            found = (await client.http.get("/v1/summary")).json()["known"]
        order = policy.bandit.types_by_weight
        [column] = found["columns"]
        assert (column["name"], column["remark"], found["keep"]) == ("country", "", 0.5)
        for value, shares in column["values"]:
            np.testing.assert_allclose(shares, PRIOR.weights({"country": [value]})[0][order])
        people = PRIOR.resolve_features()
        plans = policy.vectors[policy.starts[-2] :]
        alone = max(float(plan @ (people.shares @ PRIOR.weights(people.features))) for plan in plans)
        own = sum(share * max(float(plan @ row) for plan in plans)
                  for share, row in zip(people.shares, PRIOR.weights(people.features), strict=True))  # fmt: skip
        assert found["worth"] == pytest.approx(own - alone)
        assert found["worth"] > 0.01

    go(scenario())
    assert known_before(lmab.plan(BANDIT, horizon=2).policy) is None
    greedy = lmab.plan(BANDIT, horizon=2, method=lmab.QMDP(), type_prior=PRIOR).policy
    assert known_before(greedy)["worth"] is None


def test_the_summary_is_told_for_every_policy_that_starts_from_features(tmp_path):
    graph = known_policy().graph()
    graph.save(tmp_path / "p.lmab")

    async def scenario():
        async with served(str(tmp_path / "s.db"), (tmp_path / "p.lmab").read_bytes()) as client:
            answer = await client.http.get("/v1/summary")
            assert answer.status_code == 200
            assert answer.json()["known"]["columns"] == known_before(known_policy())["columns"]

    go(scenario())
    assert known_before(lmab.policies.Relabelled(known_policy(), LABELS))["keep"] == 0.5


def test_a_session_starts_from_its_features_and_the_persons_sessions(event_store):
    async def scenario():
        policy = known_policy()
        async with served(event_store, known_bytes()) as client:
            for country in ("de", "fr"):
                told = await client.told(country, 0, features={"country": country})
                assert told["arm"] == policy.act(policy.start(features={"country": country}))
            assert (await client.told("nobody", 0))["arm"] == policy.act(policy.start())
            told = await client.told("a", 0, person="ann", features={"country": "fr", "age": 31, "member": True})
            await client.told("a", 1, 1.0)
            await client.told("b", 0, person="ann", features={"country": "de"})
            expected = policy.start(features={"country": "de"}, sessions=[[(told["arm"], 1.0)]])
            story = (await client.http.get("/v1/sessions/b")).json()
            np.testing.assert_allclose(story["belief"], policy.belief(expected), atol=1e-9)
            story = (await client.http.get("/v1/sessions/a")).json()
            assert story["features"] == {"country": "fr", "age": 31.0, "member": 1.0}
            first = story["steps"][0]["belief"]
            np.testing.assert_allclose(first, [0.2, 0.8], atol=1e-9)

    go(scenario())


@pytest.mark.parametrize("features", [{"age": None}, {"age": 3.0, "land": None}, {"land": "de"}, {}, None])
def test_missing_values_start_a_session_as_in_the_library(features, tmp_path):
    """That a number is missing tells something where the log had people without one."""
    bandit = lmab.LatentBandit([0.8, 0.2], BANDIT.rewards, LABELS)
    prior = lmab.TypePrior([Numeric("age", 3.0, 1.0, missing=True)], [[0.0, 0.0], [1.0, -1.0], [-2.0, 2.0]])
    policy = lmab.plan(bandit, horizon=HORIZON, type_prior=prior).policy
    policy.save(tmp_path / "p.lmab")

    async def scenario():
        async with served(str(tmp_path / "s.db"), (tmp_path / "p.lmab").read_bytes()) as client:
            await client.told("a", 0, features=features)
            story = (await client.http.get("/v1/sessions/a")).json()
            asked = None if features is None else {"age": features.get("age")}
            np.testing.assert_allclose(story["belief"], policy.belief(policy.start(features=asked)))

    go(scenario())


def test_a_text_that_the_policy_does_not_know_is_marked_and_counted(event_store):
    unknown = {"country": "XX", "colour": "red"}  # the policy does not ask for the colour

    async def scenario():
        async with served(event_store, known_bytes()) as client:
            for session, features in (("a", {"country": "de"}), ("b", {"country": None}), ("c", None)):
                assert "unknown_features" not in await client.told(session, 0, features=features)
            first = await client.told("x", 0, features=unknown)
            assert first["unknown_features"] == ["country"]
            line = 'lmab_unknown_features_total{experiment="default"} 1'
            assert f"\n{line}\n" in (await client.http.get("/metrics")).text
            client.service._live.clear()
            assert await client.told("x", 0, features=unknown) == first
            assert (await client.told("x", 1, 1.0))["unknown_features"] == ["country"]
        async with served(event_store) as client:
            assert (await client.told("x", 2, 1.0))["unknown_features"] == ["country"]
            assert "unknown_features" not in await client.told("a", 1, 1.0)

    go(scenario())


def test_features_survive_a_restart_and_are_erased_with_the_person(event_store):
    async def scenario():
        async with served(event_store, known_bytes()) as client:
            told = await client.told("a", 0, person="ann", features={"country": "fr"})
        async with served(event_store) as client:
            after = await client.told("a", 1, 0.0)
            policy = known_policy()
            state = policy.observe(policy.start(features={"country": "fr"}), told["arm"], 0.0)
            assert after["arm"] == policy.act(state)
            await client.http.delete("/v1/persons/ann")
            rows = await client.service.store.rows(0.0, math.inf)
            assert rows == []

    go(scenario())


@pytest.mark.parametrize(
    ("features", "words"),
    [
        ({"country": 3}, "features['country'] must hold text"),
        ({"country": "x\0"}, "text without the character 0"),
        ({"a\0": "x"}, "text without the character 0"),
        ({"country": "x" * (MOST_LETTERS + 1)}, "at most 200 letters"),
        ({f"c{i}": 1 for i in range(MOST_FEATURES + 1)}, "features must be at most 100, got 101"),
    ],
)
def test_features_that_make_no_sense_are_refused(features, words, tmp_path):
    async def scenario():
        async with served(str(tmp_path / "s.db"), known_bytes()) as client:
            answer = await client.decide("a", 0, features=features)
            refused(answer, 422, "bad-value")
            assert words in answer.json()["error"]
            refused(await client.decide("a", 0, features={"country": ["de"]}), 400, "malformed")
            await client.told("a", 0, features={"unknown": "x", "country": None})  # kept for the next model
            rows = await client.service.store.rows(0.0, math.inf)
            assert rows[0].features == '{"unknown": "x", "country": null}'

    go(scenario())


def test_numbers_must_be_finite():
    with pytest.raises(Problem, match="must be text, a finite number or null"):
        check_features({"age": math.inf})
    assert check_features({"age": True, "land": "Österreich"}) == '{"age": 1.0, "land": "Österreich"}'


def test_values_of_another_kind_are_left_out_where_nobody_can_be_told():
    prior = lmab.TypePrior(["age"], [[0.0, 0.0], [1.0, -1.0]])
    assert usable_features(prior, {"age": "old", "land": "de"}) == {}
    assert usable_features(lmab.TypePrior.constant([0.5, 0.5]), {"age": 3.0}) is None
    assert usable_features(prior, {"age": 3.0, "land": "de"}) == {"age": 3.0}
    with pytest.raises(Problem, match="must hold numbers"):
        usable_features(prior, {"age": "old"}, strict=True)


def test_logs_have_the_features_and_persons_of_the_store(event_store, tmp_path):
    async def scenario():
        clock = Clock()
        async with served(event_store, clock=clock) as client:
            await client.told("a", 0, person="ann", features={"country": "fr", "age": 31, "arm": "left"})
            await client.told("a", 1, 1.0)
            await client.told("b", 0, features={"country": None, "age": 4})
            await client.told("b", 1, 0.0)
            await client.told("c", 0)
            await client.told("c", 1, 1.0)
            store = client.service.store
            log = (await read_log(store, tmp_path / "night", await Survey.of(store), LABELS)).sessions
            assert log.persons.tolist() == person_numbers(["ann", None, None]).tolist()
            assert log.features["country"].tolist() == ["fr", None, None]
            np.testing.assert_array_equal(log.features["age"], [31.0, 4.0, np.nan])
            ((path,), _) = await export_days(store, tmp_path / "log")
            assert pq.read_table(path)["feature_arm"].to_pylist() == ["left", None, None]
            read = lmab.Sessions.read(path, step="step", features=["country", "age"], person="person")
            assert read.features["country"].tolist() == ["fr", None, None]
            assert read.persons.tolist()[0] == "ann"

    go(scenario())


def test_columns_of_two_kinds_are_text():
    assert column_of([3.0, "x", None], text=True).tolist() == ["3", "x", None]
    found = column_of([10117001.0, 10117002.0, 0.1, "x"], text=True)
    assert found.tolist() == ["10117001", "10117002", "0.1", "x"]
    np.testing.assert_array_equal(column_of([3, None], text=False), [3.0, np.nan])


def test_what_was_learned_from_numbers_and_texts_is_asked_with_both():
    """Else the service refused after a refit what it took before."""
    prior = lmab.TypePrior.by_value("zip", {"10117": [0.9, 0.1], "A12": [0.1, 0.9]})
    for given in (10117, 10117.0, "10117"):
        told = usable_features(prior, {"zip": given}, strict=True)
        np.testing.assert_array_equal(prior.weights(told), prior.weights({"zip": "10117"}))
    assert usable_features(prior, {"zip": 7}, strict=True) == {"zip": "7"}  # the average person
    with pytest.raises(Problem, match="must hold text, got numbers such as 3"):
        usable_features(PRIOR, {"country": 3}, strict=True)


def test_two_versions_are_replayed_from_the_features():
    made = known_policy()
    arms = [ArmRow(label, ArmState.OPEN) for label in LABELS]
    version = read_version(known_bytes(), Defaults(HORIZON))
    bandit = lmab.LatentBandit(BANDIT.weights, BANDIT.rewards, LABELS)
    with tempfile.TemporaryDirectory() as folder:
        lmab.plan(bandit, horizon=HORIZON).policy.save(Path(folder) / "p.lmab")
        plain = read_version((Path(folder) / "p.lmab").read_bytes(), Defaults(HORIZON))
    tables = ArmTable(version, arms), ArmTable(plain, arms)
    assert made.act(made.start(features={"country": "fr"})) != made.act(made.start())
    row = LogRow("s", 0, 0, 1.0, 0.5, "v", 0.0, 0, 0, 0.0, 0, features='{"country": "fr"}')
    assert first_difference([row], *tables) == 0
    assert first_difference([row._replace(features=None)], *tables) is None


def test_a_refit_learns_what_features_and_persons_tell(tmp_path, monkeypatch):
    monkeypatch.setattr(refit_module, "YOUNG", 1)

    async def scenario():
        rng = np.random.default_rng(0)
        truth = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.95, 0.5, 0.05], [0.05, 0.6, 0.95]])
        async with served(str(tmp_path / "s.db"), clock=Clock()) as client:
            for number in range(150):
                country = ("de", "fr")[number % 2]
                type_ = np.array([int(rng.random() < (0.1, 0.9)[number % 2])])
                reward = None
                for step in range(3):
                    more = {"person": f"p{number // 3}", "features": {"country": country}} if step == 0 else {}
                    told = await client.told(f"s{number}", step, reward, **more)
                    reward = float(truth.rewards.sample(type_, np.array([told["arm"]]), rng=rng)[0])
                await client.reward(f"s{number}", 2, reward)
            options = RefitOptions(types=2, horizon=3, repeats=True, least=100, time_limit=2.0, prior=2.0)
            result = await refit(client.service.store, tmp_path / "f", options, rng=0)
            assert result.outcome == "canary", result.lines
            policy = lmab.load(tmp_path / "f" / f"{result.version}.lmab")
            assert policy.type_prior.columns == ("country",)
            assert policy.act(policy.start(features={"country": "de"})) != policy.act(
                policy.start(features={"country": "fr"})
            )

    go(scenario())
