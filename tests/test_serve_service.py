"""The service on both stores: repeated requests, late rewards, versions, persons, masks, and every refusal."""

from __future__ import annotations

import asyncio
import itertools
import math

import numpy as np
import pytest
from serving import BANDIT, HORIZON, LABELS, Client, Clock, go, policy_bytes, refused, served

import lmab
from lmab.serve.register import KeyedDraws
from lmab.serve.stores import Rollout
from lmab.serve.versions import Defaults


async def play(client: Client, session: str, rewards) -> list[dict]:
    """The answers of a session that earns these rewards."""
    told = [await client.told(session, 0)]
    for step, reward in enumerate(rewards, start=1):
        told.append(await client.told(session, step, reward))
    return told


def test_a_session_plays_what_its_policy_plays(event_store):
    async def scenario():
        policy = lmab.plan(BANDIT, horizon=HORIZON).policy
        async with served(event_store, policy_bytes(floor=0.0)) as client:
            for index, rewards in enumerate(itertools.product([0.0, 1.0], repeat=3)):
                told = await play(client, f"s{index}", rewards)
                state = policy.start()
                for answer, reward in zip(told, [*rewards, None], strict=True):
                    assert answer["arm"] == policy.act(state)
                    assert answer["label"] == LABELS[answer["arm"]]
                    assert (answer["propensity"], answer["explored"], answer["fallback"]) == (1.0, False, False)
                    state = policy.observe(state, answer["arm"], reward)

    go(scenario())


def test_propensities_are_those_of_exploring_and_arms_come_as_often(event_store):
    async def scenario():
        inner = lmab.plan(BANDIT, horizon=HORIZON).policy
        policy = lmab.policies.Exploring(inner, 0.3)
        expected = policy.probabilities(policy.start())
        async with served(event_store, policy_bytes(floor=0.3)) as client:
            answers = await asyncio.gather(*(client.told(f"s{i}", 0) for i in range(1500)))
            for answer in answers:
                assert answer["propensity"] == pytest.approx(expected[answer["arm"]], abs=1e-12)
            shares = np.bincount([answer["arm"] for answer in answers], minlength=3) / 1500
            assert (np.abs(shares - expected) < 5 * np.sqrt(expected * (1 - expected) / 1500)).all()
            masked = policy.probabilities(policy.start(), allowed=[False, True, True])
            for i in range(20):
                answer = await client.told(f"m{i}", 0, allowed=["green", "blue"])
                assert answer["propensity"] == pytest.approx(masked[answer["arm"]], abs=1e-12)

    go(scenario())


def test_floors_by_arm_and_new_arms(event_store):
    async def scenario():
        policy = lmab.policies.Exploring(lmab.plan(BANDIT, horizon=HORIZON).policy, [0.1, 0.0, 0.2])
        expected = policy.probabilities(policy.start())
        async with served(event_store, policy_bytes(floor=(0.1, 0.0, 0.2))) as client:
            for i in range(40):
                answer = await client.told(f"s{i}", 0)
                assert answer["propensity"] == pytest.approx(expected[answer["arm"]], abs=1e-12)
            opened = await client.http.put("/v1/arms", json={"arms": [*LABELS, "new"]})
            assert opened.json() == {"arms": [*LABELS, "new"]}
            seen = {}
            for i in range(200):
                told = await play(client, f"n{i}", [1.0])
                seen[told[0]["label"]] = told[0]["propensity"]
                assert not told[1]["fallback"]  # a reward of the new arm tells the policy nothing, and harms nothing
            assert seen["new"] == pytest.approx(0.2)  # the largest floor
            assert sum(seen.values()) == pytest.approx(1 if len(seen) == 4 else 1 - 0.0, abs=0.11)

    go(scenario())


def test_withdrawn_arms_are_never_played_and_come_back(event_store):
    async def scenario():
        async with served(event_store, policy_bytes(floor=0.5)) as client:
            first = await client.told("before", 0)
            await client.http.put("/v1/arms", json={"arms": ["green", "blue"]})
            for i in range(60):
                assert (await client.told(f"s{i}", 0))["label"] != "red"
            again = await client.told("before", 0)
            assert again == first  # even if that arm is withdrawn since
            refused(await client.decide("t", 0, allowed=["red"]), 422, "unknown-arm")
            await client.http.put("/v1/arms", json={"arms": list(LABELS)})
            assert (await client.told("t", 0, allowed=["red"]))["arm"] == 0  # with its old number

    go(scenario())


def test_the_same_request_gets_the_same_answer_also_after_a_restart_and_from_another_replica(event_store):
    async def scenario():
        async with served(event_store, policy_bytes(floor=0.5)) as client:
            told = await play(client, "a", [1.0, 0.0, 1.0])
            assert await client.told("a", 2, 0.0) == told[2]
            assert client.service.counts["repeated"] == 1
        async with served(event_store) as one, served(event_store) as other:
            assert [await one.told("a", 0), await other.told("a", 3, 1.0)] == [told[0], told[3]]
            for step in range(3):  # two replicas take turns, each with an old memory
                here, there = (one, other) if step % 2 else (other, one)
                reward = None if step == 0 else 1.0
                assert await here.told("b", step, reward) == await there.told("b", step, reward)

    go(scenario())


def test_a_replica_that_missed_a_step_takes_it_from_the_store(event_store):
    """It has the session in its memory, but the step in between was decided by another replica."""

    async def scenario():
        policy = lmab.plan(BANDIT, horizon=HORIZON).policy
        async with served(event_store, policy_bytes(floor=0.0)) as one, served(event_store) as other:
            for reward in (0.0, 1.0):
                name = f"s{reward}"
                played = [await one.told(name, 0), await other.told(name, 1, reward), await one.told(name, 2, reward)]
                history = [(told["arm"], reward) for told in played[:2]]
                assert [told["step"] for told in played] == [0, 1, 2]
                assert played[2]["arm"] == policy.act_on(history)
                assert await one.told(name, 1, reward) == played[1]
                assert await other.told(name, 2, reward) == played[2]

    go(scenario())


def test_a_reward_that_another_replica_was_told_is_known_at_the_next_step(event_store):
    """The replica that decides has the session in its memory, without that reward."""

    async def scenario():
        policy = lmab.plan(BANDIT, horizon=HORIZON).policy
        async with served(event_store, policy_bytes(floor=0.0)) as one, served(event_store) as other:
            for reward in (0.0, 1.0):
                history = []
                for step in range(3):
                    told = await one.told(f"s{reward}", step)
                    assert told["arm"] == policy.act_on(history)
                    assert (await other.reward(f"s{reward}", step, reward)).status_code == 200
                    history.append((told["arm"], reward))

    go(scenario())


def test_a_session_that_brings_its_rewards_is_not_looked_up(event_store, monkeypatch):
    async def scenario():
        async with served(event_store, policy_bytes(floor=0.0)) as client:
            looked, session = [], client.service.store.session

            async def look(name):
                looked.append(name)
                return await session(name)

            monkeypatch.setattr(client.service.store, "session", look)
            for name, rewards in (("told", (None, 0.0, 1.0)), ("silent", (None, None, None))):
                for step, reward in enumerate(rewards):
                    await client.told(name, step, reward)
            assert looked == ["silent", "silent"]

    go(scenario())


def test_a_first_step_that_is_asked_for_again_brings_the_reward_that_came_since(event_store):
    """It is decided without a look at the store, so a replica that never saw the session must look before step 1."""

    async def scenario():
        policy = lmab.plan(BANDIT, horizon=HORIZON).policy
        async with served(event_store, policy_bytes(floor=0.0)) as one, served(event_store) as other:
            for reward in (0.0, 1.0):
                first = await one.told(f"s{reward}", 0)
                assert (await one.reward(f"s{reward}", 0, reward)).status_code == 200
                assert await other.told(f"s{reward}", 0) == first
                second = await other.told(f"s{reward}", 1)
                assert second["arm"] == policy.act_on([(first["arm"], reward)])

    go(scenario())


def test_the_first_write_wins(event_store):
    async def scenario():
        async with served(event_store, policy_bytes(floor=0.0)) as client:
            first = await client.told("a", 0)
            client.service.register.draws = KeyedDraws(b"another")
            client.service._live.clear()
            other = policy_bytes(floor=1.0, seed=3)
            version = await client.service.register.add_version(other)
            await client.service.register.promote(version.name, 1.0)
            assert await client.told("a", 0) == first

    go(scenario())


def test_many_at_once_share_commits(event_store):
    async def scenario():
        async with served(event_store, policy_bytes()) as client:
            await client.told("warm", 0)
            before = client.service.commits.n_commits
            answers = await asyncio.gather(*(client.told("same", 0) for _ in range(50)))
            assert all(answer == answers[0] for answer in answers)
            await asyncio.gather(*(client.told(f"s{i}", 0) for i in range(300)))
            assert client.service.commits.n_commits - before < 100

    go(scenario())


def test_late_rewards_inform_the_next_step_and_repeated_ones_change_nothing(event_store):
    async def scenario():
        policy = lmab.plan(BANDIT, horizon=HORIZON).policy
        async with served(event_store, policy_bytes(floor=0.0)) as client:
            first = await client.told("a", 0)
            second = await client.told("a", 1)  # without the reward
            assert second["arm"] == policy.act_on([(first["arm"], None)])
            for _ in range(2):
                assert (await client.reward("a", 0, 0.0)).json() == {"rewards": 1}
            third = await client.told("a", 2, 0.0)
            assert third["arm"] == policy.act_on([(first["arm"], 0.0), (second["arm"], 0.0)])
            refused(await client.reward("a", 0, 1.0), 409, "other-reward")
            refused(await client.reward("a", 3, 1.0), 404, "unknown-step")
            refused(await client.reward("nobody", 0, 1.0), 404, "unknown-session")
            refused(await client.reward("a", 2, 0.5), 422, "unknown-reward")
            assert (await client.reward("a", 2, 1.0)).status_code == 200
            story = (await client.http.get("/v1/sessions/a")).json()
            assert [step["reward"] for step in story["steps"]] == [0.0, 0.0, 1.0]
            state = policy.start()
            for step in story["steps"]:
                np.testing.assert_allclose(step["belief"], policy.belief(state), atol=1e-9)
                state = policy.observe(state, LABELS.index(step["label"]), step["reward"])
            np.testing.assert_allclose(story["belief"], policy.belief(state), atol=1e-9)
            assert "the plan" in story["steps"][0]["why"]

    go(scenario())


def test_a_batch_of_rewards_is_kept_whole_or_not_at_all(event_store):
    async def scenario():
        async with served(event_store, policy_bytes()) as client:
            await play(client, "a", [1.0])
            await client.told("b", 0)
            rows = [{"session": "b", "step": 0, "reward": 1.0}, {"session": "a", "step": 0, "reward": 0.0}]
            client.service._live.clear()
            refused(await client.http.post("/v1/rewards", json={"rewards": rows}), 409, "other-reward")
            client.service._live.clear()
            past = await client.service.store.session("b")
            assert past[0].reward is None
            twice = [{"session": "b", "step": 0, "reward": value} for value in (1.0, 0.0)]
            refused(await client.http.post("/v1/rewards", json={"rewards": twice}), 409, "other-reward")
            assert (await client.service.store.session("b"))[0].reward is None

    go(scenario())


def test_two_different_rewards_at_two_replicas(event_store):
    async def scenario():
        async with served(event_store, policy_bytes()) as one, served(event_store) as other:
            await one.told("a", 0)
            await other.told("a", 0)
            assert (await one.told("a", 1, 1.0))["step"] == 1
            refused(await other.decide("a", 1, 0.0), 409, "other-reward")
            rows = await one.service.store.session("a")
            assert [row.reward for row in rows] == [1.0, None]

    go(scenario())


def test_the_window_and_the_default_reward(event_store):
    async def scenario():
        clock = Clock()
        async with served(
            event_store, policy_bytes(floor=0.0), clock=clock, default_reward=0.0, window=100.0
        ) as client:
            policy = lmab.plan(BANDIT, horizon=HORIZON).policy
            first = await client.told("a", 0)
            await client.told("b", 0)
            clock.now += 200
            second = await client.told("a", 1)  # the window of step 0 has passed: the default counts
            assert second["arm"] == policy.act_on([(first["arm"], 0.0)])
            assert await client.service.sweep() == 1  # that of session b; the last step of a may still be rewarded
            refused(await client.reward("a", 0, 1.0), 409, "other-reward")
            refused(await client.reward("b", 0, 1.0), 409, "other-reward")  # the store has the default by now
            client.service._live.clear()
            refused(await client.reward("b", 0, 1.0), 409, "other-reward")  # whatever is in memory
            assert (await client.reward("b", 0, 0.0)).status_code == 200  # says the same as the store
            assert (await client.reward("a", 1, 1.0)).status_code == 200
            clock.now += 200
            refused(await client.decide("c", 1, 1.0), 404, "unknown-session")
            await client.told("c", 0)
            clock.now += 200
            refused(await client.decide("c", 1, 1.0), 410, "too-late")
            assert (await client.told("c", 1))["step"] == 1

    go(scenario())


def test_a_person_who_returns_starts_from_what_is_known_and_can_be_erased(event_store):
    async def scenario():
        policy = lmab.plan(BANDIT, horizon=HORIZON).policy
        async with served(event_store, policy_bytes(floor=0.0)) as client:
            history = []
            told = await client.told("a", 0, person="ann")
            for step, reward in enumerate([0.0, 0.0, 1.0], start=1):
                history.append((told["arm"], reward))
                told = await client.told("a", step, reward)
            again = await client.told("b", 0, person="ann")
            assert again["arm"] == policy.act(policy.start(sessions=[history]))
            story = (await client.http.get("/v1/sessions/b")).json()
            np.testing.assert_allclose(story["belief"], policy.belief(policy.start(sessions=[history])), atol=1e-9)
            assert story["person"] == "ann"
            await client.told("other", 0, person="bob")
            assert (await client.http.delete("/v1/persons/ann")).json()["sessions"] == 2
            for session in ("a", "b"):
                refused(await client.http.get(f"/v1/sessions/{session}"), 404, "unknown-session")
                refused(await client.decide(session, 1, 1.0), 404, "unknown-session")
            assert (await client.http.get("/v1/sessions/other")).status_code == 200
            again = (await client.http.delete("/v1/persons/ann")).json()
            assert again["sessions"] == 0
            assert again["versions"] == [told["policy"]]  # it may have been made from sessions of hers

    go(scenario())


def test_an_erased_person_leaves_the_memory_of_other_replicas(event_store):
    async def scenario():
        async with served(event_store, policy_bytes()) as one, served(event_store) as other:
            await one.told("a", 0, person="ann")
            await other.told("a", 0, person="ann")
            await one.http.delete("/v1/persons/ann")
            await other.service.register.refresh()
            assert other.service.n_live == 0
            refused(await other.decide("a", 1, 1.0), 404, "unknown-session")

    go(scenario())


def test_versions_are_pinned_promoted_shared_and_rolled_back(event_store):
    async def scenario():
        async with served(event_store, policy_bytes(floor=0.0)) as client:
            old = (await client.told("a", 0))["policy"]
            answer = await client.http.put("/v1/policies?note=try", content=policy_bytes(floor=0.0, seed=5))
            new = answer.json()["version"]
            assert (await client.told("b", 0))["policy"] == old  # nobody gets it yet
            await client.http.post(f"/v1/policies/{new}:promote", json={"share": 0.3})
            versions = [(await client.told(f"s{i}", 0))["policy"] for i in range(400)]
            share = np.mean([version == new for version in versions])
            assert abs(share - 0.3) < 5 * math.sqrt(0.21 / 400)
            client.service._live.clear()
            assert [(await client.told(f"s{i}", 0))["policy"] for i in range(20)] == versions[:20]
            answer = await client.http.post(f"/v1/policies/{new}:promote", json={"share": 1.0})
            assert answer.json()["active"] == new
            assert (await client.told("a", 1, 1.0))["policy"] == old  # a session stays with its version
            assert (await client.told("c", 0))["policy"] == new
            listed = (await client.http.get("/v1/policies")).json()
            assert [row["version"] for row in listed["versions"]] == [new, old]
            assert [row["share"] for row in listed["versions"]] == [1.0, 0.0]
            assert (await client.http.post("/v1/policies:rollback", json={"from": new})).json()["active"] == old
            assert (await client.told("d", 0))["policy"] == old
            refused(await client.http.post("/v1/policies/nope:promote", json={"share": 1}), 404, "unknown-policy")
            refused(await client.http.put("/v1/policies", content=b"no policy"), 422, "bad-policy")
            assert (await client.told("e", 0))["policy"] == old

    go(scenario())


def test_a_canary_is_ended_by_rollback_and_there_is_nothing_before_the_first_version(event_store):
    async def scenario():
        async with served(event_store, policy_bytes()) as client:
            version = await client.service.register.add_version(policy_bytes(seed=5))
            await client.service.register.promote(version.name, 0.5)
            assert client.service.register.rollout.canary == version.name
            active = client.service.register.rollout.active
            answer = (await client.http.post("/v1/policies:rollback", json={"from": version.name})).json()
            assert (answer["active"], answer["canary"], answer["share"]) == (active, None, 0.0)
            refused(await client.http.post("/v1/policies:rollback", json={"from": active}), 404, "unknown-policy")

    go(scenario())


def test_other_replicas_learn_of_versions_and_arms(event_store):
    async def scenario():
        async with served(event_store, policy_bytes()) as one, served(event_store) as other:
            version = await one.service.register.add_version(policy_bytes(seed=5))
            await one.service.register.promote(version.name, 1.0)
            await one.service.register.set_arms([*LABELS, "new"])
            await other.service.register.refresh()
            assert (await other.told("a", 0))["policy"] == version.name
            assert [label for label, _ in other.service.register.arms] == [*LABELS, "new"]

    go(scenario())


def test_without_a_policy_every_allowed_arm_is_equally_likely(event_store):
    async def scenario():
        async with served(event_store, defaults=Defaults(3, repeats=False)) as client:
            arms = []
            for step in range(3):
                told = await client.told("a", step, None if step == 0 else 1.0)
                assert told["propensity"] == pytest.approx(1 / (3 - step))  # no arm twice
                assert (told["policy"], told["explored"], told["fallback"]) == ("uniform", True, False)
                arms.append(told["arm"])
            assert sorted(arms) == [0, 1, 2]
            refused(await client.decide("a", 3, 1.0), 422, "beyond-horizon")
            assert (await client.told("b", 0, allowed=["blue"]))["propensity"] == 1.0

    go(scenario())


def test_a_version_that_is_missing_falls_back_with_a_right_propensity(event_store):
    async def scenario():
        async with served(event_store, policy_bytes()) as client:
            await client.service.store.add_version("broken", b"not a policy", 0.0, "")
            refused(await client.http.post("/v1/policies/broken:promote", json={"share": 1}), 422, "bad-policy")
            await client.service.store.add_rollout(
                Rollout("broken", None, 0.0, 0.0, "")
            )  # it was fine before a release
            await client.service.register.refresh()
            told = await client.told("a", 0)
            assert (told["fallback"], told["propensity"], told["policy"]) == (True, pytest.approx(1 / 3), "broken")
            assert (await client.told("a", 1, 1.0))["fallback"]
            ready = await client.http.get("/readyz")
            assert ready.status_code == 200
            assert "does not load" in ready.json()["trouble"]

    go(scenario())


def test_an_apprentice_answers_the_baseline_and_keeps_its_own_wish(event_store):
    async def scenario():
        policy = lmab.plan(BANDIT, horizon=HORIZON).policy
        async with served(event_store, policy_bytes(floor=0.0), apprentice=True) as client:
            told = await client.told("a", 0, baseline="blue")
            assert (told["label"], told["propensity"]) == ("blue", None)
            row = (await client.service.store.session("a"))[0].decision
            assert row.preferred == policy.act_on([])
            second = await client.told("a", 1, 1.0, baseline="green")
            assert second["label"] == "green"
            rows = await client.service.store.session("a")
            assert rows[1].decision.preferred == policy.act_on([(2, 1.0)])  # it learned from what was played
            refused(await client.decide("b", 0), 422, "bad-value")
            refused(await client.decide("b", 0, baseline="pink"), 422, "unknown-arm")
            assert "would have played" in (await client.http.get("/v1/sessions/a")).json()["steps"][0]["why"]

    go(scenario())


def test_every_refusal(event_store):
    async def scenario():
        async with served(event_store, policy_bytes()) as client:
            await play(client, "a", [1.0])
            refused(await client.decide("a", 3, 1.0), 409, "out-of-order")
            refused(await client.decide("zzz", 2, 1.0), 404, "unknown-session")
            refused(await client.decide("a", 2, 0.25), 422, "unknown-reward")
            refused(await client.decide("b", 0, 1.0), 422, "bad-value")
            refused(await client.decide("b", 0, allowed=["pink"]), 422, "unknown-arm")
            refused(await client.decide("b", 0, allowed=[]), 422, "unknown-arm")
            await play(client, "long", [1.0] * 3)
            refused(await client.decide("long", 4, 1.0), 422, "beyond-horizon")
            refused(await client.decide("b", -1), 400, "malformed")
            refused(await client.decide("", 0), 400, "malformed")
            refused(await client.decide("b", 0, unknown=1), 400, "malformed")
            refused(await client.http.post("/v1/decide", content=b"{"), 400, "malformed")
            refused(await client.http.post("/v1/decide", content=b"\xff\xfe"), 400, "malformed")
            refused(await client.http.post("/v1/decide", content=b"[" * 50_000), 400, "malformed")
            refused(await client.http.post("/v1/decide", content=b" " * 70_000), 413, "too-large")
            refused(await client.http.get("/v1/decide"), 405, "wrong-method")
            refused(await client.http.get("/v1/rewards"), 405, "wrong-method")
            refused(await client.http.get("/nothing"), 404, "unknown-path")
            refused(await client.http.put("/v1/arms", json={"arms": ["x", "x"]}), 422, "bad-value")
            refused(await client.http.put("/v1/arms", json={"arms": []}), 400, "malformed")
            assert (await client.told("b", 0))["step"] == 0  # nothing of all this was written

    go(scenario())


def test_a_sweep_looks_again_at_the_last_minute_before_the_sweep_before(tmp_path):
    """A commit that was under way then may have brought rows of an earlier time."""

    async def scenario():
        clock, asked = Clock(), []
        settings = {"default_reward": 0.0, "window": 100.0, "clock": clock}
        async with served(str(tmp_path / "events.db"), policy_bytes(), **settings) as client:

            async def fill(reward, since, before, now, most):
                asked.append((since, before))
                return 0, before

            client.service.store.fill_defaults = fill
            await client.told("a", 0)
            await client.service.sweep()
            clock.now += 1000
            await client.service.sweep()
        (_, first), (since, second) = asked
        assert since == first - 60
        assert second == pytest.approx(first + 1000, abs=1)

    go(scenario())


def test_what_a_person_did_long_ago_still_counts(event_store):
    """Two steps in each of forty sessions: all of them inform the next one."""

    async def scenario():
        async with served(event_store, policy_bytes(floor=0.0)) as client:
            for number in range(40):
                await client.told(f"s{number}", 0, person="ann")
                await client.told(f"s{number}", 1, 1.0, person="ann")
                await client.reward(f"s{number}", 1, 1.0)
            past = await client.service._known("ann", client.service.clock())
            assert len(past) == 80

    go(scenario())
