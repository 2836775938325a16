"""A session in memory: what it believes after late, repeated and foreign rewards, and when it is forgotten."""

from __future__ import annotations

import numpy as np
import pytest
from serving import BANDIT, HORIZON, LABELS, Clock, go, policy_bytes, refused, served

import lmab
from lmab.errors import InvalidArgument
from lmab.serve import service as service_module
from lmab.serve.versions import Defaults

POLICY = lmab.plan(BANDIT, horizon=HORIZON).policy


def belief_now(client, session: str) -> np.ndarray:
    """The belief in memory, not that of a session restored from the store."""
    live = client.service._live.sessions[session]
    live.advance()
    return live.table.version.compact.belief(live.state)


async def story(client, session: str) -> dict:
    return (await client.http.get(f"/v1/sessions/{session}")).json()


def test_a_reward_counts_once_however_often_and_late_it_comes(event_store):
    async def scenario():
        async with served(event_store, policy_bytes(floor=0.0)) as client:
            arms = [(await client.told("a", 0))["arm"]]
            arms.append((await client.told("a", 1))["arm"])  # without the reward of step 0
            for _ in range(3):
                await client.reward("a", 0, 0.0)
            arms.append((await client.told("a", 2, 0.0))["arm"])
            await client.told("a", 2, 0.0)
            expected = POLICY.start(history=[(arms[0], 0.0), (arms[1], 0.0)])
            np.testing.assert_allclose(belief_now(client, "a"), POLICY.belief(expected), atol=1e-12)

    go(scenario())


def test_an_arm_that_the_policy_does_not_know_tells_it_nothing(event_store):
    async def scenario():
        async with served(event_store, policy_bytes(floor=0.0)) as client:
            await client.service.register.set_arms([*LABELS, "new"])
            assert (await client.told("a", 0, allowed=["new"]))["label"] == "new"
            arm = (await client.told("a", 1, 1.0))["arm"]
            np.testing.assert_allclose(belief_now(client, "a"), BANDIT.weights)
            await client.told("a", 2, 1.0)
            expected = POLICY.belief(POLICY.start(history=[(arm, 1.0)]))
            np.testing.assert_allclose(belief_now(client, "a"), expected, atol=1e-12)
            await client.told("b", 0, allowed=["new"])
            await client.told("b", 1)
            await client.reward("b", 0, 1.0)  # late
            np.testing.assert_allclose(belief_now(client, "b"), BANDIT.weights)

    go(scenario())


def test_a_person_is_known_by_earlier_sessions_alone(event_store, monkeypatch):
    async def scenario():
        async with served(event_store, policy_bytes(floor=0.0)) as client:
            past = {"a": [], "b": []}
            for session, rewards in (("a", [0.0, 0.0, 1.0]), ("b", [1.0, 1.0])):
                told = await client.told(session, 0, person="ann")
                for step, reward in enumerate(rewards, start=1):
                    past[session].append((told["arm"], reward))
                    told = await client.told(session, step, reward)
            found = (await story(client, "b"))["belief"]  # its own steps count once
            state = POLICY.start(sessions=[past["a"]])
            for arm, reward in past["b"]:
                state = POLICY.tell(state, arm, reward)
            np.testing.assert_allclose(found, POLICY.belief(state), atol=1e-9)
            monkeypatch.setattr(service_module, "_HISTORY", 3)
            await client.told("c", 0, person="ann")
            expected = POLICY.belief(POLICY.start(sessions=[past["a"][-1:], past["b"]]))
            np.testing.assert_allclose(belief_now(client, "c"), expected, atol=1e-9)

    go(scenario())


def test_rewards_that_a_version_does_not_know_are_left_out_of_a_persons_history(event_store):
    async def scenario():
        async with served(event_store, defaults=Defaults(HORIZON, values=None)) as client:
            await client.told("a", 0, person="ann", allowed=["red"])
            await client.told("a", 1, 0.5, allowed=["green"])
            await client.told("a", 2, 1.0)
            version = await client.service.register.add_version(policy_bytes(floor=0.0))
            await client.service.register.promote(version.name, 1.0)
            await client.told("b", 0, person="ann")
            expected = POLICY.belief(POLICY.start(sessions=[[(1, 1.0)]]))
            np.testing.assert_allclose(belief_now(client, "b"), expected, atol=1e-9)

    go(scenario())


def test_without_repeats_arms_come_again_once_all_were_played(event_store):
    async def scenario():
        async with served(event_store, defaults=Defaults(5, repeats=False)) as client:
            chances = [(await client.told("a", step, 1.0 if step else None))["propensity"] for step in range(4)]
            assert chances == pytest.approx([1 / 3, 1 / 2, 1, 1 / 3])

    go(scenario())


def test_a_withdrawn_arm_is_not_played_even_if_a_request_allows_it(event_store):
    async def scenario():
        assert LABELS[POLICY.act_on([])] == "red"
        async with served(event_store, policy_bytes(floor=0.0)) as client:
            await client.service.register.set_arms(["green", "blue"])
            told = await client.told("a", 0, allowed=["red", "green"])
            assert (told["label"], told["propensity"]) == ("green", 1.0)

    go(scenario())


def test_a_policy_that_fails_is_replaced_by_chance_and_says_so(event_store, monkeypatch):
    async def scenario():
        async with served(event_store, policy_bytes(floor=0.0)) as client:
            register = client.service.register
            table, _ = await register.table_of(register.rollout.active)

            def fail(state, allowed=None):
                raise InvalidArgument("a broken policy")

            monkeypatch.setattr(table.version.compact, "act", fail)
            told = await client.told("a", 0)
            assert (told["fallback"], told["explored"], told["propensity"]) == (True, True, pytest.approx(1 / 3))
            assert client.service.counts["fallback"] == 1
            (step,) = (await story(client, "a"))["steps"]
            assert "a fallback" in step["why"]

    go(scenario())


def test_a_story_tells_exploration_from_the_plan(event_store):
    async def scenario():
        async with served(event_store, policy_bytes(floor=0.5)) as client:
            seen = []
            for i in range(12):
                told = await client.told(f"s{i}", 0)
                (step,) = (await story(client, f"s{i}"))["steps"]
                assert step["why"].startswith("explored: any allowed arm" if told["explored"] else "the plan: ")
                assert (step["propensity"], step["policy"]) == (told["propensity"], told["policy"])
                seen.append(told["explored"])
            assert set(seen) == {True, False}
            assert client.service.counts["explored"] == sum(seen)

    go(scenario())


def test_a_request_that_was_refused_can_be_put_right(event_store):
    async def scenario():
        async with served(event_store, policy_bytes()) as one, served(event_store) as other:
            await one.told("a", 0)
            await other.told("a", 0)
            told = await one.told("a", 1, 1.0)
            refused(await other.decide("a", 1, 0.0), 409, "other-reward")
            assert await other.told("a", 1, 1.0) == told

    go(scenario())


@pytest.mark.parametrize("allowed", [list(LABELS), ["red"]])  # another arm, or the same arm of another version
def test_a_session_that_another_process_began_otherwise_goes_on_with_its_version(event_store, allowed):
    async def scenario():
        async with served(event_store, policy_bytes(floor=0.0)) as client:
            first = await client.told("a", 0, allowed=allowed)
            client.service._live.clear()
            version = await client.service.register.add_version(policy_bytes(seed=5))
            await client.service.register.promote(version.name, 1.0)
            assert await client.told("a", 0, allowed=allowed) == first
            assert (await client.told("a", 1, 1.0))["policy"] == first["policy"] != version.name

    go(scenario())


def test_a_default_reward_waits_for_its_window_and_is_given_once(event_store):
    async def scenario():
        clock = Clock()
        settings = {"default_reward": 0.0, "window": 100.0}
        async with served(event_store, policy_bytes(), clock=clock, **settings) as client:
            await client.told("a", 0)
            clock.now += 90
            await client.told("a", 1)
            assert (await story(client, "a"))["steps"][0]["reward"] is None
            assert await client.service.sweep() == 0
            clock.now += 20
            assert await client.service.sweep() == 1  # step 0, which was there at the sweep before
            assert await client.service.sweep() == 0
            assert client.service.counts["defaulted"] == 1
            assert [step["reward"] for step in (await story(client, "a"))["steps"]] == [0.0, None]

    go(scenario())


def test_a_reward_after_the_default_of_another_process_is_too_late(event_store):
    async def scenario():
        clock = Clock()
        hasty = {"default_reward": 0.0, "window": 100.0}
        async with (
            served(event_store, policy_bytes(), clock=clock, **hasty) as one,
            served(event_store, clock=clock, window=1e6) as other,
        ):
            await other.told("a", 0)
            assert await one.service.sweep() == 0
            clock.now += 200
            assert await one.service.sweep() == 1
            answer = await other.reward("a", 0, 1.0)
            refused(answer, 410, "too-late")
            assert "has the default reward by now" in answer.json()["error"]

    go(scenario())


def test_a_reward_after_its_window_is_not_kept(event_store):
    async def scenario():
        clock = Clock()
        async with served(event_store, policy_bytes(), clock=clock, window=100.0) as client:
            await client.told("a", 0)
            clock.now += 101
            answer = await client.reward("a", 0, 1.0)
            refused(answer, 410, "too-late")
            assert "came after its window of 100 s" in answer.json()["error"]
            assert (await client.service.store.session("a"))[0].reward is None

    go(scenario())


def test_the_least_recently_used_sessions_leave_the_memory(event_store):
    async def scenario():
        async with served(event_store, policy_bytes(), memory=0.0047) as client:  # for two sessions of one step
            for i in range(3):
                await client.told(f"s{i}", 0)
            assert list(client.service._live.sessions) == ["s1", "s2"]
            await client.told("s1", 1, 1.0)  # used again, so that s2 is the next to leave
            await client.told("s3", 0)
            assert list(client.service._live.sessions) == ["s1", "s3"]
            assert client.service.cache.size <= 4700
            assert (await client.told("s0", 1, 1.0))["step"] == 1  # the store has it

    go(scenario())


def test_what_was_allowed_is_kept_and_a_baseline_must_be_among_it(event_store):
    async def scenario():
        async with served(event_store, policy_bytes(), apprentice=True) as client:
            refused(await client.decide("a", 0, baseline="blue", allowed=["red"]), 422, "unknown-arm")
            await client.told("a", 0, baseline="blue", allowed=["blue", "red"])
            await client.told("a", 1, baseline="red")
            rows = await client.service.store.session("a")
            assert [row.decision.allowed for row in rows] == ['["blue", "red"]', None]

    go(scenario())


def test_draws_of_steps_of_sessions_and_of_the_canary_are_independent(event_store):
    async def scenario():
        async with served(event_store) as client:
            draw = client.service.register.draws
            draws = np.array([draw(f"s{i}", 0) for i in range(2000)])
            later = np.array([draw(f"s{i}", 1) for i in range(2000)])
            columns = np.column_stack([draws, later])
            assert np.abs(np.corrcoef(columns.T) - np.eye(4)).max() < 5 / np.sqrt(2000)
            np.testing.assert_allclose(
                np.quantile(columns, [0.1, 0.5, 0.9], axis=0).T, [[0.1, 0.5, 0.9]] * 4, atol=0.06
            )
            assert draw("a1", 1) != draw("a", 11)
            old, new = [
                await client.service.register.add_version(policy_bytes(floor=0.5, seed=seed)) for seed in (0, 5)
            ]
            await client.service.register.promote(old.name, 1.0)
            await client.service.register.promote(new.name, 0.5)
            told = [await client.told(f"c{i}", 0) for i in range(300)]
            for name in (old.name, new.name):  # the canary explores as often as the other
                explored = [answer["explored"] for answer in told if answer["policy"] == name]
                assert np.mean(explored) == pytest.approx(0.5, abs=5 * 0.5 / np.sqrt(len(explored)))

    go(scenario())


def test_a_policy_opens_its_new_arms_when_it_is_promoted(event_store, tmp_path):
    async def scenario():
        async with served(event_store) as client:
            await client.service.register.set_arms(["red", "tea"])
            bandit = lmab.LatentBandit(BANDIT.weights, BANDIT.rewards, ("red", "green", "gold"))
            lmab.plan(bandit, horizon=2).policy.save(tmp_path / "p.lmab")
            register = client.service.register
            added = await register.add_version((tmp_path / "p.lmab").read_bytes())
            assert {arm.label for arm in register.arms if arm.is_open} == {"red", "tea"}
            await register.promote(added.name, 0.5)
            opened = {arm.label for arm in register.arms if arm.is_open}
            assert opened == {"red", "tea", "gold"}  # green was withdrawn, and stays so

    go(scenario())
