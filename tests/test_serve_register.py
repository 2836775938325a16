"""The register: when a service is ready, and what it begins with in a store that comes late."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import sqlite3

import httpx
import pytest
from serving import HORIZON, go, policy_bytes, refused

import lmab
from lmab.serve.app import make_app
from lmab.serve.messages import Problem, Question
from lmab.serve.register import KeyedDraws
from lmab.serve.run import Options, make_service
from lmab.serve.service import Service, Settings
from lmab.serve.stores import open_store
from lmab.serve.versions import Defaults


def client_of(service: Service) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=make_app(service)), base_url="http://service")


class Late:
    """A store that cannot be opened at first, and takes its time to promote a version."""

    def __init__(self, service: Service) -> None:
        self.store, self.there, self.promoting, self.go_on = service.store, False, asyncio.Event(), asyncio.Event()
        self._open, self._add = self.store.open, self.store.add_rollout
        self.store.open, self.store.add_rollout = self.open, self.add_rollout

    async def open(self, create: bool = True) -> None:
        if not self.there:
            raise OSError("no route to the store")
        await self._open()

    async def add_rollout(self, *arguments, **more) -> bool:
        self.promoting.set()
        await self.go_on.wait()
        return await self._add(*arguments, **more)


@pytest.mark.parametrize("without_store", [False, True])
def test_a_store_that_comes_late_is_not_ready_before_the_policy_is_in_it(tmp_path, without_store):
    """Between the opening of the store and the first promotion a session would be pinned to the uniform version."""
    path = tmp_path / "policy.lmab"
    path.write_bytes(policy_bytes(floor=0.1))

    async def scenario():
        settings = Settings(Defaults(HORIZON), without_store=without_store)
        service = make_service(Options(str(tmp_path / "events.db"), path, settings=settings))
        late = Late(service)
        await service.start(watch=False)
        async with client_of(service) as http:
            status = 200 if without_store else 503
            assert (await http.get("/readyz")).status_code == status
            late.there = True
            opening = asyncio.create_task(service.register.refresh())
            await late.promoting.wait()
            answer = await http.get("/readyz")
            assert (answer.status_code, answer.json()["ready"]) == (status, without_store)
            asked = await http.post("/v1/decide", json={"session": "a", "step": 0})
            if without_store:
                assert (asked.json()["recorded"], asked.json()["policy"]) == (False, service.register.rollout.active)
            else:
                refused(asked, 503, "no-store")
            late.go_on.set()
            await opening
            answer = await http.get("/readyz")
            assert (answer.status_code, answer.json()["policy"]) == (200, service.register.rollout.active)
            told = (await http.post("/v1/decide", json={"session": "a", "step": 0})).json()
            assert (told["recorded"], told["policy"]) == (True, answer.json()["policy"])
        await service.stop()

    go(scenario())


def test_a_beginning_that_failed_is_tried_again(tmp_path):
    tries = []

    async def begin(register) -> None:
        tries.append(register)
        if len(tries) == 1:
            raise OSError("the store went away")
        await register.set_arms(["x", "y"])

    async def scenario():
        service = Service(open_store(str(tmp_path / "events.db")), Settings(Defaults(HORIZON)), begin=begin)
        await service.start(watch=False)
        assert (service.register.ready, service.register.trouble) == (False, "the store does not answer: OSError")
        with pytest.raises(Problem, match="the store does not answer"):
            await service.decide(Question("a", 0))
        await service.register.refresh()
        await service.register.refresh()
        assert (len(tries), service.register.ready, service.register.trouble) == (2, True, "")
        assert (await service.decide(Question("a", 0))).recorded
        await service.stop()

    go(scenario())


def test_a_service_says_why_it_does_not_begin(tmp_path):
    """What can be mended is told to whoever asks, without the place of the store."""
    where = str(tmp_path / "events.db")

    async def scenario():
        first = make_service(Options(where, arms=(1, "a"), settings=Settings(Defaults(HORIZON))))
        await first.start(watch=False)
        await first.stop()
        second = make_service(Options(where, arms=("1", "a"), settings=Settings(Defaults(HORIZON))))
        await second.start(watch=False)
        async with client_of(second) as http:
            answer = await http.get("/readyz")
            assert (answer.status_code, answer.json()["trouble"]) == (503, second.register.trouble)
        assert second.register.trouble == "arms must be distinct labels, also as text: '1' is known already"
        await second.stop()
        with contextlib.closing(sqlite3.connect(where)) as db:
            db.execute("PRAGMA user_version=99")
        third = make_service(Options(where, settings=Settings(Defaults(HORIZON))))
        await third.start(watch=False)
        assert third.register.trouble.startswith("the store does not answer: the store has tables of version 99")
        assert where not in third.register.trouble
        await third.stop()

    go(scenario())


@pytest.mark.parametrize("label", [10**30, -(10**30)])
def test_a_policy_whose_arms_no_store_can_hold_is_refused(tmp_path, label):
    made = lmab.LatentBandit.bernoulli([1.0], [[0.9, 0.5]])
    bandit = lmab.LatentBandit(made.weights, made.rewards, (1, label))
    lmab.plan(bandit, horizon=2).policy.save(tmp_path / "policy.lmab")

    async def scenario():
        service = Service(open_store(str(tmp_path / "events.db")), Settings(Defaults(HORIZON)))
        await service.start(watch=False)
        with pytest.raises(Problem, match="integers of 64 bits"):
            await service.register.add_version((tmp_path / "policy.lmab").read_bytes())
        await service.stop()

    go(scenario())


def test_a_service_that_cannot_decide_is_not_ready(tmp_path):
    async def scenario():
        service = Service(open_store(str(tmp_path / "events.db")), Settings())
        await service.start(watch=False)
        async with client_of(service) as http:
            assert "no arms" in (await http.get("/readyz")).json()["trouble"]
            await service.register.set_arms(["x", "y"])
            answer = await http.get("/readyz")
            assert (answer.status_code, answer.json()["store"]) == (503, "open")
            assert "no policy and no horizon" in answer.json()["trouble"]
            refused(await http.post("/v1/decide", json={"session": "a", "step": 0}), 503, "no-policy")
            version = await service.register.add_version(policy_bytes())
            await service.register.promote(version.name, 1.0)
            assert (await http.get("/readyz")).status_code == 200
        await service.stop()

    go(scenario())


@pytest.mark.parametrize("secret", [b"short", b"k" * 64, b"longer than a block of the hash " * 3])
def test_draws_are_the_hmac_of_session_and_step(secret):

    digest = hmac.digest(secret, "sessi\u00f6n\0".encode() + b"3", "sha256")
    assert KeyedDraws(secret).digest("sessi\u00f6n\0".encode() + b"3") == digest
    assert KeyedDraws(secret)("sessi\u00f6n", 3)[0] == int.from_bytes(digest[:7], "big") / 2**56
