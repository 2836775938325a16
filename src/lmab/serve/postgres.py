"""PostgresStore: the same tables in PostgreSQL, for any number of replicas of the service."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from .messages import Label
from .stores import Decision, Job, Past, RewardRow, Store, Turn, VersionRow

SCHEMA = """
CREATE TABLE IF NOT EXISTS decisions(session TEXT NOT NULL, step INT NOT NULL, arm INT NOT NULL,
    propensity FLOAT8, policy TEXT NOT NULL, at FLOAT8 NOT NULL, explored INT NOT NULL, fallback INT NOT NULL,
    wish INT, allowed TEXT, person TEXT, PRIMARY KEY(session, step));
CREATE TABLE IF NOT EXISTS rewards(session TEXT NOT NULL, step INT NOT NULL, reward FLOAT8 NOT NULL,
    at FLOAT8 NOT NULL, defaulted INT NOT NULL, PRIMARY KEY(session, step));
CREATE INDEX IF NOT EXISTS decisions_person ON decisions(person) WHERE person IS NOT NULL;
CREATE INDEX IF NOT EXISTS decisions_at ON decisions(at);
CREATE TABLE IF NOT EXISTS settings(name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS arms(arm INT PRIMARY KEY, label TEXT NOT NULL UNIQUE, open INT NOT NULL);
CREATE TABLE IF NOT EXISTS policies(version TEXT PRIMARY KEY, at FLOAT8 NOT NULL, note TEXT NOT NULL,
    body BYTEA NOT NULL);
CREATE TABLE IF NOT EXISTS register(number SERIAL PRIMARY KEY, active TEXT NOT NULL, canary TEXT,
    share FLOAT8 NOT NULL, at FLOAT8 NOT NULL, note TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS signals(name TEXT PRIMARY KEY, count INT NOT NULL);
INSERT INTO signals VALUES('changed', 0), ('erased', 0) ON CONFLICT DO NOTHING;
"""
_LOCK = 7_261_943  # any number of our own: replicas that start together make the tables one after the other
_REWARDS = (
    "INSERT INTO rewards SELECT * FROM unnest($1::text[],$2::int[],$3::float8[],$4::float8[],$5::int[]) "
    "ON CONFLICT DO NOTHING RETURNING session"
)
_DECISIONS = (
    "INSERT INTO decisions SELECT * FROM unnest($1::text[],$2::int[],$3::int[],$4::float8[],$5::text[],$6::float8[],"
    "$7::int[],$8::int[],$9::int[],$10::text[],$11::text[]) ON CONFLICT DO NOTHING RETURNING session"
)
_COLUMNS = "d.session, d.step, d.arm, d.propensity, d.policy, d.at, d.explored, d.fallback, d.wish, d.allowed, d.person"


class PostgresStore(Store):
    """A pool of connections; a commit is durable before it is answered, as far as the server's settings say so."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._pool: Any = None

    async def open(self) -> None:
        import asyncpg

        pool = await asyncpg.create_pool(self.address, min_size=0, max_size=4, timeout=5, command_timeout=30)
        async with pool.acquire() as db, db.transaction():
            await db.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
            await db.execute(SCHEMA)
        self._pool = pool

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()
            self._pool = None

    async def write(self, jobs: Sequence[Job]) -> None:
        async with self._pool.acquire() as db, db.transaction():
            rewards = [row for job in jobs for row in job.rewards]
            if rewards and len(await db.fetch(_REWARDS, *_columns(rewards))) != len(rewards):
                for job in jobs:
                    job.conflict = await _conflict(db, job.rewards)
                for job in jobs:
                    if job.conflict is not None:
                        await _take_back(db, job)
            decisions = [job.decision for job in jobs if job.decision is not None and job.conflict is None]
            all_new = not decisions or len(await db.fetch(_DECISIONS, *_columns(decisions))) == len(decisions)
            for job in jobs:
                if job.decision is not None and job.conflict is None:
                    job.stored = job.decision if all_new else await _stored(db, job.decision)

    async def session(self, session: str) -> list[Past]:
        query = (
            f"SELECT {_COLUMNS}, r.reward, r.defaulted FROM decisions d LEFT JOIN rewards r USING(session, step) "
            "WHERE d.session=$1 ORDER BY d.step"
        )
        rows = await self._pool.fetch(query, session)
        return [Past(Decision(*tuple(row)[:11]), row[11], bool(row[12])) for row in rows]

    async def person(self, person: str, before: float, limit: int) -> list[tuple[int, float]]:
        query = (
            "SELECT d.arm, r.reward FROM decisions p JOIN decisions d USING(session) JOIN rewards r "
            "ON r.session=d.session AND r.step=d.step WHERE p.person=$1 AND p.at<$2 ORDER BY d.at DESC LIMIT $3"
        )
        return [(row[0], row[1]) for row in await self._pool.fetch(query, person, before, limit)][::-1]

    async def erase(self, person: str) -> list[str]:
        async with self._pool.acquire() as db, db.transaction():
            names = [row[0] for row in await db.fetch("SELECT session FROM decisions WHERE person=$1", person)]
            for table in ("decisions", "rewards"):
                await db.execute(f"DELETE FROM {table} WHERE session = ANY($1::text[])", names)
            await db.execute("UPDATE signals SET count=count+1 WHERE name='erased'")
        return names

    async def fill_defaults(self, reward: float, since: float, before: float, now: float) -> int:
        query = (
            "INSERT INTO rewards SELECT d.session, d.step, $1, $2, 1 FROM decisions d LEFT JOIN rewards r "
            "USING(session, step) WHERE d.at>=$3 AND d.at<$4 AND r.session IS NULL ON CONFLICT DO NOTHING"
        )
        return int((await self._pool.execute(query, reward, now, since, before)).split()[-1])

    async def setting(self, name: str, value: str | None) -> str | None:
        if value is not None:
            await self._pool.execute("INSERT INTO settings VALUES($1,$2) ON CONFLICT DO NOTHING", name, value)
        found = await self._pool.fetchval("SELECT value FROM settings WHERE name=$1", name)
        return None if found is None else str(found)

    async def set_setting(self, name: str, value: str) -> None:
        query = "INSERT INTO settings VALUES($1,$2) ON CONFLICT(name) DO UPDATE SET value=$2"
        await self._pool.execute(query, name, value)

    async def arms(self) -> list[tuple[Label, bool]]:
        rows = await self._pool.fetch("SELECT label, open FROM arms ORDER BY arm")
        return [(json.loads(row[0]), bool(row[1])) for row in rows]

    async def set_arms(self, labels: Sequence[Label]) -> None:
        async with self._pool.acquire() as db, db.transaction():
            await db.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
            number = await db.fetchval("SELECT count(*) FROM arms")
            await db.execute("UPDATE arms SET open=0")
            for label in labels:
                row = json.dumps(label)
                if await db.execute("UPDATE arms SET open=1 WHERE label=$1", row) == "UPDATE 0":
                    await db.execute("INSERT INTO arms VALUES($1,$2,1)", number, row)
                    number += 1
            await db.execute("UPDATE signals SET count=count+1 WHERE name='changed'")

    async def add_version(self, version: str, body: bytes, at: float, note: str) -> None:
        query = "INSERT INTO policies VALUES($1,$2,$3,$4) ON CONFLICT DO NOTHING"
        await self._pool.execute(query, version, at, note, body)

    async def version(self, version: str) -> bytes | None:
        body = await self._pool.fetchval("SELECT body FROM policies WHERE version=$1", version)
        return None if body is None else bytes(body)

    async def versions(self) -> list[VersionRow]:
        rows = await self._pool.fetch("SELECT version, at, note FROM policies ORDER BY at DESC")
        return [VersionRow(*tuple(row)) for row in rows]

    async def turn(self, turn: Turn) -> None:
        async with self._pool.acquire() as db, db.transaction():
            await db.execute("INSERT INTO register(active, canary, share, at, note) VALUES($1,$2,$3,$4,$5)", *turn)
            await db.execute("UPDATE signals SET count=count+1 WHERE name='changed'")

    async def turns(self, limit: int) -> list[Turn]:
        query = "SELECT active, canary, share, at, note FROM register ORDER BY number DESC LIMIT $1"
        return [Turn(*tuple(row)) for row in await self._pool.fetch(query, limit)]

    async def signals(self) -> tuple[int, int]:
        counts = {row[0]: row[1] for row in await self._pool.fetch("SELECT name, count FROM signals")}
        return counts["changed"], counts["erased"]

    async def rows(self, since: float, until: float, limit: int | None = None) -> list[tuple[Any, ...]]:
        query = (
            "WITH s AS (SELECT session, at AS began FROM decisions WHERE step=0 AND at>=$1 AND at<$2 "
            "ORDER BY at DESC LIMIT $3) SELECT d.session, d.step, d.arm, r.reward, d.propensity, d.policy, d.at, "
            "d.explored, d.fallback, s.began FROM s JOIN decisions d USING(session) LEFT JOIN rewards r "
            "ON r.session=d.session AND r.step=d.step ORDER BY s.began, d.session, d.step"
        )
        return [tuple(row) for row in await self._pool.fetch(query, since, until, limit)]


def _columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    """The rows by column, in the order of session and step, so that replicas wait for each other in one order.

    Sorted here, because this sort keeps the order of rows with one key: the first of them is the one that is stored.
    """
    return [list(column) for column in zip(*sorted(rows, key=lambda row: row[:2]), strict=True)]


async def _conflict(db: Any, rows: Sequence[RewardRow]) -> RewardRow | None:
    """A reward in the store that contradicts one of the rows."""
    for row in rows:
        found = await db.fetchrow("SELECT * FROM rewards WHERE session=$1 AND step=$2", row.session, row.step)
        if found is not None and found["reward"] != row.reward:
            return RewardRow(*tuple(found))
    return None


async def _take_back(db: Any, job: Job) -> None:
    for row in job.rewards:  # only rows that this transaction wrote have this very time
        query = "DELETE FROM rewards WHERE session=$1 AND step=$2 AND reward=$3 AND at=$4"
        await db.execute(query, row.session, row.step, row.reward, row.at)


async def _stored(db: Any, row: Decision) -> Decision:
    found = await db.fetchrow("SELECT * FROM decisions WHERE session=$1 AND step=$2", row.session, row.step)
    return Decision(*tuple(found))
