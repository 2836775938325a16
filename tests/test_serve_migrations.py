"""Schema migrations, from stores that version 4 wrote: `golden/store-4.*` hold eight sessions, arms and a register."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import os
import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from serving import HORIZON, empty_database, go

from lmab.errors import InvalidFile
from lmab.serve.messages import Problem, Question
from lmab.serve.service import Service, Settings
from lmab.serve.stores import (
    FIRST_VERSION,
    MIGRATIONS,
    SCHEMA_VERSION,
    ArmState,
    Decision,
    Job,
    Rollout,
    Store,
    open_store,
    tombstone,
)
from lmab.serve.versions import Defaults

GOLDEN = Path(__file__).parent / "golden"
# Migrates a store and is killed before a statement of the migration; the last one commits.
KILLED = """
import asyncio, os, signal, sys
from lmab.serve import stores
migrations = stores.migrations
def deadly(*arguments):
    statements = migrations(*arguments)
    for number, statement in enumerate([*statements, "SELECT 1"]):
        if number == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        yield statement
stores.migrations = deadly
asyncio.run(stores.open_store(sys.argv[1]).open())
"""


def run_sql(where: str, *statements: str) -> list[tuple]:
    """Run statements as somebody does who knows nothing of this version; the rows of the last one."""
    if "://" not in where:
        with contextlib.closing(sqlite3.connect(where, isolation_level=None)) as db:
            return [db.execute(statement).fetchall() for statement in statements][-1]

    async def ask() -> list[tuple]:
        import asyncpg

        db = await asyncpg.connect(where)
        try:
            for statement in statements[:-1]:
                await db.execute(statement)
            return [tuple(row) for row in await db.fetch(statements[-1])]
        finally:
            await db.close()

    return asyncio.run(ask())


def version_of(where: str) -> int:
    query = "SELECT version FROM lmab_schema" if "://" in where else "PRAGMA user_version"
    return int(run_sql(where, query)[0][0])


@pytest.fixture(params=["sqlite", "postgres"])
def old_store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store of version 4 is, of each kind."""
    if request.param == "sqlite":
        path = tmp_path / "events.db"
        path.write_bytes(gzip.decompress((GOLDEN / "store-4.db.gz").read_bytes()))
        return str(path)
    where = empty_database(request.getfixturevalue("postgres").address)
    run_sql(where, (GOLDEN / "store-4.sql").read_text(), "SELECT 1")
    return where


async def check_content(store: Store) -> None:
    """What version 4 wrote is there, and what the migrations add works."""
    rows = await store.rows(0.0, 1e12)
    assert len(rows) == 22
    assert {row.session for row in rows} == {f"s{i}" for i in range(8) if i != 6} | {"late"}
    first = (await store.session("s1"))[0].decision
    assert (first.person, first.features, first.at) == ("ann", '{"age": 31, "town": "Ulm"}', 1_700_000_008.0)
    assert [step.defaulted for step in await store.session("s5")] == [False, False, True]
    arms = [(arm.label, arm.state) for arm in await store.arms()]
    assert arms == [
        *((label, ArmState.OPEN) for label in ("red", "green", "blue")),
        ("gone", ArmState.WITHDRAWN),
        (7, ArmState.OPEN),
    ]
    versions = await store.versions()
    assert [row.note for row in versions] == ["second", "first"]
    (body,) = [await store.version(row.version) for row in versions if row.note == "first"]
    assert body is not None
    assert len(body) > 500
    assert [(entry.active, entry.share) for entry in await store.rollouts(9)] == [
        (versions[1].version, 0.25),
        (versions[1].version, 0.0),
    ]
    assert await store.setting("secret", None) == b"golden".hex()
    assert await store.setting("floors", None) == '[["red", 0.25]]'
    assert (await store.signals()).register == 2
    removals = await store.removals()
    assert removals.sessions == {tombstone("s6")}
    assert (removals.forgotten_before, removals.persons) == (float("-inf"), {})
    await store.write([job := Job(decision=Decision("new", 0, 0, 1.0, "v", 2e9, 0, 0, None, None, None))])
    assert job.stored == job.decision


def test_a_store_of_version_4_is_migrated_with_all_that_it_holds(old_store):
    async def scenario():
        store = open_store(old_store)
        await store.open()
        await check_content(store)
        await store.close()

    assert version_of(old_store) == 4 == FIRST_VERSION
    go(scenario())
    assert version_of(old_store) == SCHEMA_VERSION


def test_a_migration_that_is_killed_leaves_the_old_store_and_the_next_one_succeeds(old_store):
    n_statements = sum(len(statements) + 1 for statements in MIGRATIONS.values())
    for number in (0, 1, n_statements // 2, n_statements):
        made = subprocess.run([sys.executable, "-c", KILLED, old_store, str(number)], timeout=120, check=False)
        assert made.returncode == -signal.SIGKILL
        assert version_of(old_store) == 4
        assert run_sql(old_store, "SELECT name FROM signals ORDER BY name") == [("changed",), ("erased",)]

    async def scenario():
        store = open_store(old_store)
        await store.open()
        await check_content(store)
        await store.close()

    go(scenario())


def test_replicas_that_open_an_old_store_together_migrate_it_once(old_store):
    async def scenario():
        replicas = [open_store(old_store) for _ in range(3)]
        await asyncio.gather(*(store.open() for store in replicas))
        for store in replicas:
            assert (await store.signals()).register == 2
            await store.close()

    go(scenario())


def test_a_new_store_has_the_tables_of_a_migrated_one(old_store):
    new_store = empty_database(old_store.partition("?")[0]) if "://" in old_store else f"{old_store}.new"

    def tables(where: str) -> list[tuple]:
        query = (
            "SELECT table_name, column_name, data_type, is_nullable, column_default IS NULL FROM "
            "information_schema.columns WHERE table_schema=current_schema() ORDER BY 1, 2"
            if "://" in where
            else "SELECT name, replace(sql, '\"', '') FROM sqlite_master ORDER BY name"
        )
        return run_sql(where, query)

    async def scenario():
        for where in (old_store, new_store):
            store = open_store(where)
            await store.open()
            await store.close()

    go(scenario())
    assert tables(old_store) == tables(new_store)
    assert len(tables(new_store)) > 10


def test_what_version_4_ran_on_is_gone_so_that_it_stops(old_store):
    """A process of version 4 reads `signals` every second; it is not ready, and writes nothing, once that fails."""

    async def scenario():
        store = open_store(old_store)
        await store.open()
        await store.close()

    go(scenario())
    with pytest.raises(Exception, match="signals"):
        run_sql(old_store, "SELECT name, count FROM signals")


def migrate_further(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Open the store by a program that knows one version more."""

    async def scenario():
        store = open_store(where)
        await store.open()
        await store.close()

    with monkeypatch.context() as newer:
        newer.setitem(MIGRATIONS, SCHEMA_VERSION + 1, ("CREATE TABLE more(name TEXT)",))
        newer.setattr("lmab.serve.stores.SCHEMA_VERSION", SCHEMA_VERSION + 1)
        go(scenario())
    assert version_of(where) == SCHEMA_VERSION + 1


def test_a_newer_store_is_refused_and_left_alone(event_store, monkeypatch):
    migrate_further(event_store, monkeypatch)

    async def scenario():
        store = open_store(event_store)
        text = (
            f"tables of version {SCHEMA_VERSION + 1}, and this program knows versions up to {SCHEMA_VERSION}: use the"
        )
        with pytest.raises(InvalidFile, match=text):
            await store.open()
        await store.close()

    go(scenario())
    assert version_of(event_store) == SCHEMA_VERSION + 1


@pytest.mark.parametrize("version", [1, 3])
def test_a_store_from_before_version_4_is_refused(old_store, version):
    setting = f"UPDATE lmab_schema SET version={version}" if "://" in old_store else f"PRAGMA user_version={version}"
    run_sql(old_store, setting, "SELECT 1")

    async def scenario():
        store = open_store(old_store)
        with pytest.raises(InvalidFile, match=f"must be of version 4 or newer, got version {version}: use the release"):
            await store.open()
        await store.close()

    go(scenario())


def test_tables_without_a_version_are_refused(event_store):
    run_sql(event_store, "CREATE TABLE decisions(session TEXT)", "SELECT 1")

    async def scenario():
        store = open_store(event_store)
        with pytest.raises(InvalidFile, match="got version 0"):
            await store.open()
        await store.close()

    go(scenario())


def test_a_running_process_stops_writing_when_a_newer_one_migrates_its_store(event_store, monkeypatch):
    """Every kind of write fails from the first one on, and the service is not ready; a read says why."""

    async def before(runner_store: Service):
        await runner_store.start(watch=False)
        await runner_store.register.set_arms(["x", "y"])
        for step in range(2):  # the session is in memory, so that a write needs no look at the store
            await runner_store.decide(Question("a", step))
        assert await runner_store.unable() == ""

    async def after(service: Service):
        store = service.store
        newer = f"tables of version {SCHEMA_VERSION + 1}"
        with pytest.raises(Problem, match=newer):
            await service.decide(Question("a", 2))
        writes = (
            store.write([Job(decision=Decision("b", 0, 0, 1.0, "v", 1.0, 0, 0, None, None, None))]),
            store.set_setting("name", "value"),
            store.add_rollout(Rollout("v", None, 0.0, 1.0, "")),
            store.erase("ann", 1.0),
            store.forget(1.0, 1),
        )
        for write in writes:
            with pytest.raises(InvalidFile, match=newer):
                await write
        with pytest.raises(InvalidFile, match=newer):
            await service.register.refresh()
        assert newer in await service.unable()
        service.settings = replace(service.settings, without_store=True)
        assert newer in await service.unable()  # a store of a newer release is no store that is away
        assert [step.decision.step for step in await store.session("a")] == [0, 1]
        assert await store.session("b") == []
        await service.stop()

    with asyncio.Runner() as runner:
        service = Service(open_store(event_store), Settings(Defaults(HORIZON)))
        runner.run(before(service))
        migrate_further(event_store, monkeypatch)
        runner.run(after(service))


def test_opening_without_making_leaves_no_store_behind(event_store):
    async def scenario():
        store = open_store(event_store)
        with pytest.raises(InvalidFile, match="there is no"):
            await store.open(create=False)
        await store.close()
        assert "://" in event_store or not os.path.exists(event_store)
        store = open_store(event_store)
        await store.open()
        await store.close()
        store = open_store(event_store)
        await store.open(create=False)
        assert await store.arms() == []
        await store.close()

    go(scenario())


def test_versions_of_the_schema_follow_each_other():
    assert list(MIGRATIONS) == list(range(FIRST_VERSION + 1, SCHEMA_VERSION + 1))
