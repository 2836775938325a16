"""What operators change: arms and versions, by several at once, with retries, beside promotions and retirements."""

from __future__ import annotations

import asyncio
import functools
import tempfile
from pathlib import Path

import httpx
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from serving import HORIZON, LABELS, Clock, go, policy_bytes, refused, served

import lmab
from lmab.serve.app import make_app
from lmab.serve.register import versions_in_force
from lmab.serve.service import Service, Settings
from lmab.serve.stores import ArmState, Rollout, open_store
from lmab.serve.versions import UNIFORM, Defaults


@functools.cache
def policy_for(labels: tuple[str, ...], seed: int = 0) -> bytes:
    made = lmab.random_bandit(2, len(labels), rng=seed)
    bandit = lmab.LatentBandit(made.weights, made.rewards, labels)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "p.lmab"
        lmab.plan(bandit, horizon=2, method=lmab.planning.PointBased()).policy.save(path)
        return path.read_bytes()


async def is_open(client) -> set[str]:
    return set((await client.http.get("/v1/arms")).json()["arms"])


def test_a_policy_opens_its_arms_when_it_is_promoted_and_not_before(event_store):
    """A policy that was only stored sent live traffic to its arms."""

    async def scenario():
        async with served(event_store, defaults=Defaults(2)) as client:
            body = policy_for(("red", "white", "black"))
            version = (await client.http.put("/v1/policies", content=body)).json()["version"]
            assert await is_open(client) == set(LABELS)
            played = {(await client.told(f"s{n}", 0))["label"] for n in range(60)}
            assert played == set(LABELS)
            await client.http.delete("/v1/arms/white")  # somebody withdraws an arm before it was ever open
            await client.http.delete("/v1/arms/red")
            promoted = await client.http.post(f"/v1/policies/{version}:promote", json={"share": 0})
            assert promoted.status_code == 200
            assert await is_open(client) == {"green", "blue"}  # no session gets it yet
            await client.http.post(f"/v1/policies/{version}:promote", json={"share": 0.1})
            assert await is_open(client) == {"green", "blue", "black"}
            await client.http.put("/v1/policies", content=policy_for(("white", "black"), 1))
            await client.service.register.add_arms(["white", "black"])  # a restart with a list of arms
            assert await is_open(client) == {"green", "blue", "black"}

    go(scenario())


def test_withdrawals_beside_uploads_stay(event_store):
    """The upload of a policy read the open arms and then wrote them all: 6 of 40 withdrawals were undone."""

    async def scenario():
        async with served(event_store) as one, served(event_store) as other:
            undone = 0
            for n in range(40):
                await one.http.put("/v1/arms", json={"arms": LABELS})
                body = policy_for(("red", "green", f"new{n % 4}"), n)
                withdraw = (
                    one.http.delete("/v1/arms/red") if n % 2 else one.http.put("/v1/arms", json={"arms": ["blue"]})
                )
                upload, change = await asyncio.gather(other.http.put("/v1/policies", content=body), withdraw)
                assert (upload.status_code, change.status_code) == (200, 200)
                undone += "red" in {arm.label for arm in await one.service.store.arms() if arm.is_open}
            assert undone == 0

    go(scenario())


def test_two_replicas_that_change_arms_at_once_lose_no_change(event_store):
    async def scenario():
        async with served(event_store) as one, served(event_store) as other:
            for n in range(10):
                names = [f"a{n}", f"b{n}"]
                clients = zip((one, other), names, strict=True)
                answers = await asyncio.gather(*(client.http.post(f"/v1/arms/{name}") for client, name in clients))
                assert [answer.status_code for answer in answers] == [200, 200]
            arms = await one.service.store.arms()
            assert {arm.label for arm in arms} == {*LABELS, *(f"{one}{n}" for one in "ab" for n in range(10))}
            for _ in range(10):  # each of two replicas withdraws one of the last two arms
                await one.http.put("/v1/arms", json={"arms": ["red", "blue"]})
                pairs = (one, "red"), (other, "blue")
                gone = await asyncio.gather(*(client.http.delete(f"/v1/arms/{label}") for client, label in pairs))
                assert sorted(answer.status_code for answer in gone) == [200, 409]
                refused(max(gone, key=lambda answer: answer.status_code), 409, "last-arm")
                await one.service.register.refresh()
                assert len(await is_open(one)) == 1

    go(scenario())


def test_one_arm_by_its_name(event_store):
    async def scenario():
        async with served(event_store) as client:
            for name in ("tea/green", "a b", "7", "r\u00f6t"):
                answer = await client.http.post(f"/v1/arms/{httpx.URL(path=f'/{name}').raw_path.decode()[1:]}")
                assert (answer.status_code, answer.json()["arms"][-1]) == (200, name)
            refused(await client.http.delete("/v1/arms/nothing"), 422, "unknown-arm")
            refused(await client.http.post("/v1/arms/a%00b"), 422, "bad-value")
            for _ in range(2):  # a retry changes nothing
                assert "red" not in (await client.http.delete("/v1/arms/red")).json()["arms"]
            assert "red" in (await client.http.post("/v1/arms/red")).json()["arms"]

    go(scenario())


def test_a_new_arm_among_integers_is_one(event_store):
    async def scenario():
        service = Service(open_store(event_store), Settings(Defaults(HORIZON)), Clock())
        await service.start(watch=False)
        await service.register.set_arms([3, -1])
        await service.register.put_arm("12", ArmState.OPEN)
        await service.register.put_arm("-1", ArmState.WITHDRAWN)
        assert await service.store.arms() == [(3, 1), (-1, 0), (12, 1)]
        await service.register.put_arm("007", ArmState.OPEN)  # no integer is written so
        await service.register.put_arm("13", ArmState.OPEN)  # there is a text among them by now
        assert [arm.label for arm in service.register.arms] == [3, -1, 12, "007", "13"]
        await service.stop()

    go(scenario())


def test_if_match_refuses_a_change_of_what_nobody_has_read(event_store):
    async def scenario():
        async with served(event_store, policy_bytes()) as one, served(event_store) as other:
            tag = (await one.http.get("/v1/arms")).headers["etag"]
            assert (await other.http.delete("/v1/arms/red")).status_code == 200  # another replica
            for method, path in (("PUT", "/v1/arms"), ("POST", "/v1/arms/red"), ("DELETE", "/v1/arms/blue")):
                body = {"arms": LABELS} if method == "PUT" else None
                for given in (tag, f"W/{tag}", '"x"', tag.strip('"'), ""):
                    answer = await one.http.request(method, path, json=body, headers={"If-Match": given})
                    refused(answer, 412, "precondition-failed")
            assert await is_open(one) == {"green", "blue"}
            tag = (await one.http.get("/v1/arms")).headers["etag"]
            answer = await one.http.put("/v1/arms", json={"arms": ["red"]}, headers={"If-Match": tag})
            assert (answer.status_code, answer.json()) == (200, {"arms": ["red"]})
            assert answer.headers["etag"] != tag
            answer = await one.http.put(
                "/v1/arms", json={"arms": ["blue"]}, headers={"If-Match": answer.headers["etag"]}
            )
            assert answer.status_code == 200
            assert (await one.http.put("/v1/arms", json={"arms": LABELS}, headers={"If-Match": "*"})).status_code == 200
            listed = await one.http.get("/v1/policies")
            path = f"/v1/policies/{listed.json()['active']}:promote"
            headers = {"If-Match": listed.headers["etag"]}
            assert (await other.http.post(path, json={"share": 1})).status_code == 200
            refused(await one.http.post(path, json={"share": 1}, headers=headers), 412, "precondition-failed")

    go(scenario())


def test_a_rollback_that_is_sent_twice_ends_one_version(event_store):
    """The retry of a rollback whose answer was lost took the good version out of force for everybody."""

    async def scenario():
        async with served(event_store, policy_bytes()) as one, served(event_store) as other:
            good = one.service.register.rollout.active
            put = await one.http.put("/v1/policies", content=policy_bytes(seed=5))
            canary, path = put.json()["version"], "/v1/policies:rollback"
            await one.http.post(f"/v1/policies/{canary}:promote", json={"share": 0.2})
            refused(await one.http.post(path), 400, "malformed")
            refused(await one.http.post(path, json={"from": good}), 409, "not-in-force")
            answers = await asyncio.gather(*(client.http.post(path, json={"from": canary}) for client in (one, other)))
            assert sorted(answer.status_code for answer in answers) == [200, 409]
            refused(await one.http.post(path, json={"from": canary}), 409, "not-in-force")
            assert (await other.http.get("/v1/policies")).json()["active"] == good
            await one.http.post(f"/v1/policies/{canary}:promote", json={"share": 1})
            answers = await asyncio.gather(*(client.http.post(path, json={"from": canary}) for client in (one, other)))
            assert sorted(answer.status_code for answer in answers) == [200, 409]
            assert [(entry.active, entry.canary) for entry in await one.service.store.rollouts(2)] == [
                (good, None), (canary, None),
            ]  # fmt: skip

    go(scenario())


def test_a_version_is_downloaded_and_retired(event_store):
    async def scenario():
        async with served(event_store, policy_bytes()) as client:
            names = [client.service.register.rollout.active]
            for seed in (5, 6):
                put = await client.http.put("/v1/policies", content=policy_bytes(seed=seed))
                names.append(put.json()["version"])
                await client.http.post(f"/v1/policies/{names[-1]}:promote", json={"share": 1})
            answer = await client.http.get(f"/v1/policies/{names[1]}")
            assert (answer.content, answer.headers["content-type"]) == (
                policy_bytes(seed=5),
                "application/octet-stream",
            )
            refused(await client.http.get("/v1/policies/nothing"), 404, "unknown-policy")
            refused(await client.http.delete(f"/v1/policies/{names[2]}"), 409, "in-force")
            await client.http.post(f"/v1/policies/{names[0]}:promote", json={"share": 0.5})
            refused(await client.http.delete(f"/v1/policies/{names[0]}"), 409, "in-force")
            listed = (await client.http.delete(f"/v1/policies/{names[1]}")).json()
            assert {row["version"] for row in listed["versions"]} == {names[0], names[2]}
            for again in (names[1], "nothing", UNIFORM):
                refused(await client.http.delete(f"/v1/policies/{again}"), 404, "unknown-policy")
            refused(await client.http.get(f"/v1/policies/{names[1]}"), 404, "unknown-policy")
            refused(
                await client.http.post(f"/v1/policies/{names[1]}:promote", json={"share": 1}), 404, "unknown-policy"
            )
            await client.http.post("/v1/policies:rollback", json={"from": names[0]})
            rolled = await client.http.post("/v1/policies:rollback", json={"from": names[2]})
            assert rolled.json()["active"] == names[0]  # the one between is gone
            assert versions_in_force(await client.service.store.rollouts(100)) == [names[0]]
            put = await client.http.put("/v1/policies", content=policy_bytes(seed=5))
            assert put.json()["version"] == names[1]

    go(scenario())


def test_a_version_cannot_be_retired_while_it_is_being_promoted(event_store):
    async def scenario():
        async with served(event_store, policy_bytes()) as one, served(event_store) as other:
            for seed in range(1, 13):
                name = (await one.http.put("/v1/policies", content=policy_bytes(seed=seed))).json()["version"]
                promoted, retired = await asyncio.gather(
                    one.http.post(f"/v1/policies/{name}:promote", json={"share": 1}),
                    other.http.delete(f"/v1/policies/{name}"),
                )
                assert (promoted.status_code, retired.status_code) in ((200, 409), (404, 200)), seed
                active = (await one.service.store.rollouts(1))[0].active
                assert await one.service.store.version(active) is not None

    go(scenario())


def test_a_change_by_a_refit_or_another_replica_is_logged(event_store, caplog):
    async def scenario():
        async with served(event_store, policy_bytes()) as client:
            active = client.service.register.rollout.active
            await client.service.store.add_rollout(Rollout(active, "other", 0.0, 5.0, "refit"))
            with caplog.at_level("INFO", "lmab.serve"):
                await client.service.register.refresh()
                await client.service.register.refresh()
            assert caplog.messages.count(f"default: in force: {active}, canary: other at 0 (refit)") == 1

    go(scenario())


def test_versions_between_two_of_a_rollback_leave_the_stack():
    entries = [Rollout(name, None, 0.0, 0.0, "") for name in "abcd"]
    back = Rollout("b", None, 0.0, 1.0, "rolled back")
    assert versions_in_force([back, *entries[::-1]]) == ["a", "b"]
    assert versions_in_force([Rollout("c", None, 0.0, 2.0, ""), back, *entries[::-1]]) == ["a", "b", "c"]


NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
SEEDS = st.integers(0, 4)


class Control(RuleBasedStateMachine):
    """Two replicas of the service against a dictionary of arms and a list of versions in force."""

    @initialize()
    def start(self):
        self.folder = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        path = str(Path(self.folder.name) / "e.db")
        self.services = [Service(open_store(path), Settings(Defaults(2)), Clock()) for _ in range(2)]
        for service in self.services:
            self.runner.run(service.start(watch=False))
        self.runner.run(self.services[0].register.set_arms(["a", "b"]))
        self.arms = {"a": ArmState.OPEN, "b": ArmState.OPEN}
        self.stored: dict[str, tuple[str, ...]] = {}
        self.active, self.canary = UNIFORM, None
        self.stack: list[str] = []  # versions in force one after the other

    def ask(self, replica, method, path, **more):
        async def asking():
            transport = httpx.ASGITransport(app=make_app(self.services[replica]))
            async with httpx.AsyncClient(transport=transport, base_url="http://service") as http:
                return await http.request(method, path, **more)

        return self.runner.run(asking())

    @rule(replica=st.integers(0, 1), labels=st.sets(NAMES, min_size=1))
    def set_arms(self, replica, labels):
        assert self.ask(replica, "PUT", "/v1/arms", json={"arms": sorted(labels)}).status_code == 200
        for label, state in self.arms.items():
            if state == ArmState.OPEN:
                self.arms[label] = ArmState.WITHDRAWN
        self.arms |= dict.fromkeys(labels, ArmState.OPEN)

    @rule(replica=st.integers(0, 1), label=NAMES)
    def open_arm(self, replica, label):
        assert self.ask(replica, "POST", f"/v1/arms/{label}").status_code == 200
        self.arms[label] = ArmState.OPEN

    @rule(replica=st.integers(0, 1), label=NAMES)
    def withdraw_arm(self, replica, label):
        status = self.ask(replica, "DELETE", f"/v1/arms/{label}").status_code
        left = [name for name, state in self.arms.items() if state == ArmState.OPEN and name != label]
        assert status == (422 if label not in self.arms else 200 if left else 409)
        if status == 200:
            self.arms[label] = ArmState.WITHDRAWN

    @rule(replica=st.integers(0, 1), labels=st.sets(NAMES, min_size=2, max_size=3), seed=SEEDS)
    def upload(self, replica, labels, seed):
        answer = self.ask(replica, "PUT", "/v1/policies", content=policy_for(tuple(sorted(labels)), seed))
        self.stored[answer.json()["version"]] = tuple(labels)
        for label in labels:
            self.arms.setdefault(label, ArmState.KNOWN)

    @rule(replica=st.integers(0, 1), share=st.sampled_from([0.0, 0.3, 1.0]), which=SEEDS)
    def promote(self, replica, share, which):
        if not self.stored:
            return
        name = sorted(self.stored)[which % len(self.stored)]
        assert self.ask(replica, "POST", f"/v1/policies/{name}:promote", json={"share": share}).status_code == 200
        for label in self.stored[name] if share else ():
            if self.arms[label] == ArmState.KNOWN:
                self.arms[label] = ArmState.OPEN
        self.active, self.canary = (name, None) if share == 1 else (self.active, name)
        if self.stack[-1:] != [self.active]:
            self.stack.append(self.active)

    @rule(replica=st.integers(0, 1), which=SEEDS)
    def retire(self, replica, which):
        if not self.stored:
            return
        name = sorted(self.stored)[which % len(self.stored)]
        status = self.ask(replica, "DELETE", f"/v1/policies/{name}").status_code
        assert status == (409 if name in (self.active, self.canary) else 200)
        if status == 200:
            del self.stored[name]

    @rule(replica=st.integers(0, 1), twice=st.booleans())
    def roll_back(self, replica, twice):
        ends = self.canary or self.active
        earlier = [name for name in self.stack[:-1] if name in self.stored or name == UNIFORM]
        status = self.ask(replica, "POST", "/v1/policies:rollback", json={"from": ends}).status_code
        assert status == (200 if self.canary or earlier else 404)
        if self.canary is None and earlier:
            self.active = earlier[-1]
            while self.stack.pop() != self.active:
                pass
            self.stack.append(self.active)
        self.canary = None
        if twice and status == 200:
            refused(self.ask(1 - replica, "POST", "/v1/policies:rollback", json={"from": ends}), 409, "not-in-force")

    @invariant()
    def the_store_agrees(self):
        if not hasattr(self, "services"):
            return
        arms = dict(self.runner.run(self.services[0].store.arms()))
        assert arms == self.arms
        entry = next(iter(self.runner.run(self.services[0].store.rollouts(1))), None)
        assert ((UNIFORM, None) if entry is None else entry[:2]) == (self.active, self.canary)
        assert {row.version for row in self.runner.run(self.services[0].store.versions())} == set(self.stored)

    def teardown(self):
        if hasattr(self, "services"):
            for service in self.services:
                self.runner.run(service.stop())
            self.runner.close()
            self.folder.cleanup()


Control.TestCase.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)
TestControl = Control.TestCase
