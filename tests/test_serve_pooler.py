"""PgBouncer with transaction pooling: every transaction may meet another session of the database."""

from __future__ import annotations

import asyncio
import shutil
import uuid

import pytest
from serving import HORIZON, go

from lmab.serve.messages import Question
from lmab.serve.service import Service, Settings
from lmab.serve.stores import open_store
from lmab.serve.versions import Defaults


@pytest.fixture(params=[False, True], ids=["refuses parameters", "ignores parameters"])
def pooled(postgres, request):
    """The address of an empty database behind PgBouncer."""
    from benchmarks import postgres_server

    if shutil.which("pgbouncer", path="/usr/sbin:/usr/bin") is None:
        pytest.skip("PgBouncer is not installed (Debian: apt-get install pgbouncer)")
    name = f"t{uuid.uuid4().hex}"

    async def make() -> None:
        import asyncpg

        db = await asyncpg.connect(postgres.address)
        await db.execute(f"CREATE DATABASE {name}")
        await db.close()

    go(make())
    with postgres_server.pooler(postgres, ignoring=request.param) as address:
        yield address.replace("/postgres", f"/{name}")


def test_two_replicas_behind_a_pooler_lose_and_refuse_nothing(pooled):
    async def scenario():
        services = [Service(open_store(pooled), Settings(Defaults(HORIZON))) for _ in range(2)]
        for service in services:
            await service.start(watch=False)
            assert service.register.trouble == ""
            await service.register.add_arms(["a", "b"])

        async def play(i: int) -> None:
            for step in range(3):
                asked = Question(f"s{i}", step, float(i % 2) if step else None, person="ann" if i < 5 else None)
                both = await asyncio.gather(*(service.decide(asked) for service in services))
                assert both[0] == both[1]

        await asyncio.gather(*(play(i) for i in range(60)))
        store = services[0].store
        rows = await store.rows(0.0, 1e12)
        assert len(rows) == 180
        assert sum(row.reward == float(int(row.session[1:]) % 2) for row in rows) == 120
        assert len(await services[1].store.erase("ann", 1.0)) == 5
        assert await store.forget(1e12, 1000) == 55
        for service in services:
            await service.stop()

    go(scenario())


def test_one_process_refits_at_a_time_behind_a_pooler(pooled):
    async def scenario():
        one, other = open_store(pooled), open_store(pooled)
        await one.open()
        await other.open()
        async with one.exclusively() as first:
            for _ in range(5):  # the sessions of the pool are used by others meanwhile
                await asyncio.gather(*(store.set_setting("name", "value") for store in (one, other)))
                async with other.exclusively() as second:
                    assert (first, second) == (True, False)
        for _ in range(100):  # the pooler notices a connection that is gone when it next looks
            async with other.exclusively() as third:
                pass
            if third:
                break
            await asyncio.sleep(0.05)
        assert third
        await one.close()
        await other.close()

    go(scenario())


def test_a_statement_behind_a_pooler_ends_at_its_time_limit(pooled):
    async def scenario():
        store = open_store(pooled)
        await store.open()
        link = store._writers.links[0]
        assert await link.run(lambda db: db.fetchval("SHOW statement_timeout")) == "1s"
        assert link.pooled
        await store.close()

    go(scenario())
