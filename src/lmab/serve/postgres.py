"""PostgresStore: the same tables in PostgreSQL, for any number of replicas of the service.

A commit is one statement, so no replica that dies leaves a transaction open. The statement fails where another replica
was first; then the store is read, `resolve` decides again, and the next statement writes the rest.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from ..errors import InvalidFile
from .messages import Label
from .stores import (
    DEADLINE,
    SCHEMA_VERSION,
    Accepted,
    ArmCount,
    ArmRow,
    Bucket,
    DayState,
    Decision,
    Job,
    Known,
    LogRow,
    PlayedArm,
    RewardRow,
    Rollout,
    Signals,
    Store,
    StoredStep,
    Swept,
    VersionRow,
    check_schema,
    resolve,
    tombstone,
)  # fmt: skip

Value = TypeVar("Value")

_TABLES = f"""
CREATE TABLE decisions(session TEXT NOT NULL, step INT NOT NULL, arm INT NOT NULL,
    propensity FLOAT8, policy TEXT NOT NULL, at FLOAT8 NOT NULL, explored INT NOT NULL, fallback INT NOT NULL,
    preferred INT, allowed TEXT, person TEXT, features TEXT, PRIMARY KEY(session, step));
CREATE TABLE rewards(session TEXT NOT NULL, step INT NOT NULL, reward FLOAT8 NOT NULL,
    at FLOAT8 NOT NULL, defaulted INT NOT NULL, PRIMARY KEY(session, step));
CREATE INDEX decisions_person ON decisions(person, at) WHERE person IS NOT NULL;
CREATE INDEX decisions_at ON decisions(at);
CREATE TABLE tombstones(session TEXT PRIMARY KEY, at FLOAT8 NOT NULL);
CREATE TABLE settings(name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE arms(arm INT PRIMARY KEY, label TEXT NOT NULL UNIQUE, open INT NOT NULL);
CREATE TABLE policies(version TEXT PRIMARY KEY, at FLOAT8 NOT NULL, note TEXT NOT NULL, body BYTEA NOT NULL);
CREATE TABLE register(number SERIAL PRIMARY KEY, active TEXT NOT NULL, canary TEXT,
    share FLOAT8 NOT NULL, at FLOAT8 NOT NULL, note TEXT NOT NULL);
CREATE TABLE signals(name TEXT PRIMARY KEY, count INT NOT NULL);
INSERT INTO signals VALUES('changed', 0), ('erased', 0);
CREATE VIEW labelled AS SELECT d.session, d.step, (a.label::json #>> '{{}}') AS label, r.reward, d.propensity, d.policy,
    to_timestamp(d.at) AS decided, d.explored, d.fallback FROM decisions d JOIN arms a USING(arm)
    LEFT JOIN rewards r ON r.session=d.session AND r.step=d.step;
CREATE TABLE lmab_schema(version INT NOT NULL);
INSERT INTO lmab_schema VALUES({SCHEMA_VERSION});
"""
_LOCK = 7_261_943  # any number of our own: replicas that start together make the tables one after the other
_REFIT_LOCK = _LOCK + 1
_LOCK_WAIT = 250  # milliseconds for which a statement waits for a row that another transaction has locked
_KNOWN = 50_000  # sessions whose lengths are remembered
_LEAST_WAIT = 0.25  # seconds that an answer may take, however long its turn took to come
_TRIES = 5  # Most tries of a commit that other replicas overtake.
_CHUNK = 50  # sessions that are deleted in one transaction
_PAUSE = 0.04  # seconds between two of them, at least: each makes commits that are under way look again
_RECENT = 500  # sessions of a person that are looked at
_FAR = 120.0  # seconds for what reads or deletes many rows
# One statement: nothing is written where a person was erased meanwhile, or where a new session has a tombstone.
_WRITE = (
    "WITH guard AS MATERIALIZED (SELECT 1 FROM signals WHERE name='erased' AND count=$1 AND NOT EXISTS "
    "(SELECT 1 FROM tombstones WHERE session = ANY($2::text[])) FOR SHARE), "
    "r AS (INSERT INTO rewards SELECT u.* FROM guard, unnest($3::text[],$4::int[],$5::float8[],$6::float8[],$7::int[]) "
    "AS u), d AS (INSERT INTO decisions SELECT u.* FROM guard, unnest($8::text[],$9::int[],$10::int[],$11::float8[],"
    "$12::text[],$13::float8[],$14::int[],$15::int[],$16::int[],$17::text[],$18::text[],$19::text[]) AS u) "
    "SELECT count(*) FROM guard"
)
_COLUMNS = (
    "d.session, d.step, d.arm, d.propensity, d.policy, d.at, d.explored, d.fallback, d.preferred, d.allowed, d.person, "
    "d.features"
)
_ERASED = "SELECT count FROM signals WHERE name='erased'"


class _Link:
    """One connection, thrown away as soon as it does not answer in time: a partition must not hold anybody up."""

    def __init__(self, address: str, deadline: float) -> None:
        self.address, self.deadline = address, deadline
        self.lock = asyncio.Lock()
        self._db: Any = None

    async def run(self, work: Callable[[Any], Awaitable[Value]], seconds: float | None = None) -> Value:
        """The result of `work` on the connection within some seconds; the caller holds the lock."""
        task, limit = asyncio.ensure_future(self._work(work)), self.deadline if seconds is None else seconds
        try:
            done, _ = await asyncio.wait({task}, timeout=limit)
        except asyncio.CancelledError:
            self._abandon(task)
            raise
        if not done:
            self._abandon(task)
            raise TimeoutError(f"the database did not answer within {limit:g} s")
        try:
            return task.result()
        except OSError:
            self.drop()
            raise

    async def _work(self, work: Callable[[Any], Awaitable[Value]]) -> Value:
        import asyncpg

        if self._db is None or self._db.is_closed():
            milliseconds = str(int(1000 * self.deadline))
            self._db = await asyncpg.connect(
                self.address,
                timeout=min(self.deadline, 5.0),
                server_settings={
                    "application_name": "lmab",
                    "statement_timeout": milliseconds,
                    "lock_timeout": str(_LOCK_WAIT),
                    "idle_in_transaction_session_timeout": str(min(int(milliseconds), 5000)),
                    "tcp_user_timeout": "5000",
                    "client_min_messages": "warning",
                },
            )
        return await work(self._db)

    def _abandon(self, task: asyncio.Future[Any]) -> None:
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody waits for it any more
        self.drop()
        task.cancel()

    def drop(self) -> None:
        """Close the connection without asking the server."""
        if self._db is not None:
            self._db.terminate()
            self._db = None

    async def close(self) -> None:
        if self._db is not None:
            with suppress(Exception):
                await asyncio.wait_for(self._db.close(), self.deadline)
            self.drop()


class _Links:
    """A few connections for one purpose; the first free one is taken."""

    def __init__(self, address: str, n: int, deadline: float) -> None:
        self.deadline = deadline
        self.links = [_Link(address, deadline) for _ in range(n)]
        self._free = asyncio.Semaphore(n)

    async def run(self, work: Callable[[Any], Awaitable[Value]]) -> Value:
        clock = asyncio.get_running_loop().time
        until = clock() + self.deadline  # for the turn and the answer together
        async with asyncio.timeout_at(until):
            await self._free.acquire()
        try:
            link = next(one for one in self.links if not one.lock.locked())
            async with link.lock:
                return await link.run(work, max(until - clock(), _LEAST_WAIT))
        finally:
            self._free.release()

    async def fetch(self, query: str, *values: Any) -> list[Any]:
        return list(await self.run(lambda db: db.fetch(query, *values)))

    async def execute(self, query: str, *values: Any) -> str:
        return str(await self.run(lambda db: db.execute(query, *values)))

    async def close(self) -> None:
        for link in self.links:
            await link.close()


class PostgresStore(Store):
    """A commit is durable before it is answered, as far as the server's settings say so."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._writers = _Links(address, 3, DEADLINE)
        self._readers = _Links(address, 2, DEADLINE)
        self._far = _Links(address, 1, _FAR)
        self._open = False
        self._erased = -1
        self._lengths: OrderedDict[str, int] = OrderedDict()  # at least as many steps of a session are stored

    async def open(self) -> None:
        found = await self._readers.fetch("SELECT to_regclass('lmab_schema') IS NOT NULL, to_regclass('decisions')")
        if not found[0][0]:
            if found[0][1] is not None:
                check_schema(0, self.address)
            await self._writers.run(_make_tables)
        rows = await self._readers.fetch("SELECT version FROM lmab_schema")
        check_schema(rows[0][0], self.address)
        self._open = True

    async def close(self) -> None:
        self._open = False
        for links in (self._writers, self._readers, self._far):
            await links.close()

    def _require_open(self) -> None:
        if not self._open:
            raise InvalidFile("the store is not open")

    # Decisions and rewards

    async def write(self, jobs: Sequence[Job]) -> None:
        self._require_open()
        await self._writers.run(lambda db: self._write(db, jobs))

    async def _write(self, db: Any, jobs: Sequence[Job]) -> None:
        import asyncpg

        known = self._remembered(jobs)
        remembered = known is not None
        for _ in range(_TRIES):
            if known is None:
                known = await self._read_known(db, jobs)
            accepted = resolve(jobs, known)
            if remembered and any(job.refused or job.conflict for job in jobs):  # other replicas may have stored more
                known, remembered = None, False
                continue
            if not accepted.rewards and not accepted.decisions:
                return
            new = [tombstone(row.session) for row in accepted.decisions if row.step == 0]
            try:
                done = await db.fetchval(
                    _WRITE, self._erased, new, *_columns(accepted.rewards, 5), *_columns(accepted.decisions, 12)
                )
            except asyncpg.UniqueViolationError:
                done = 0
            if done:
                self._remember(accepted)
                return
            known, remembered = None, False
        raise TimeoutError("other replicas wrote the same sessions again and again")

    def _remembered(self, jobs: Sequence[Job]) -> Known | None:
        """What is known without asking, if it is enough: new steps of sessions that this replica knows, or new ones."""
        if self._erased < 0:
            return None
        lengths: dict[str, int] = {}
        for job in jobs:
            row = job.decision
            names = [reward.session for reward in job.rewards]
            for name in names if row is None or row.step == 0 else [row.session, *names]:
                if name not in self._lengths and name not in lengths:
                    return None
                lengths.setdefault(name, self._lengths.get(name, 0))
            if row is not None:
                length = lengths.setdefault(row.session, self._lengths.get(row.session, 0))
                if row.step != length:
                    return None
                lengths[row.session] = length + 1
        for job in jobs:
            if job.decision is not None:
                name = job.decision.session
                lengths[name] = min(lengths[name], job.decision.step)
        return Known(lengths)

    async def _read_known(self, db: Any, jobs: Sequence[Job]) -> Known:
        names = list({job.decision.session for job in jobs if job.decision is not None})
        names += [reward.session for job in jobs for reward in job.rewards]
        erased = await db.fetchval(_ERASED)
        if erased != self._erased:
            self._lengths.clear()
            self._erased = erased
        query = "SELECT session, max(step) + 1 FROM decisions WHERE session = ANY($1::text[]) GROUP BY session"
        known = Known(dict(await db.fetch(query, names)))
        keys = [(reward.session, reward.step) for job in jobs for reward in job.rewards]
        query = "SELECT {} JOIN unnest($1::text[], $2::int[]) AS k(s, t) ON d.session=k.s AND d.step=k.t"
        if keys:
            rows = await db.fetch(query.format("d.* FROM rewards d"), *_transposed(keys, 2))
            known.rewards = {(row[0], row[1]): RewardRow(*tuple(row)) for row in rows}
        again = [job.decision[:2] for job in jobs if job.decision is not None]
        if again:
            rows = await db.fetch(query.format(f"{_COLUMNS} FROM decisions d"), *_transposed(again, 2))
            known.decisions = {(row[0], row[1]): Decision(*tuple(row)) for row in rows}
        marks = {tombstone(name): name for name in names if name not in known.lengths}
        rows = await db.fetch("SELECT session FROM tombstones WHERE session = ANY($1::text[])", list(marks))
        known.erased = {marks[row[0]] for row in rows}
        return known

    def _remember(self, accepted: Accepted) -> None:
        for row in accepted.decisions:
            self._lengths[row.session] = row.step + 1
        while len(self._lengths) > _KNOWN:
            self._lengths.popitem(last=False)

    async def probe(self) -> None:
        self._require_open()
        query = "INSERT INTO settings VALUES('probe', '1') ON CONFLICT(name) DO UPDATE SET value='1'"
        await self._writers.execute(query)

    async def session(self, session: str) -> list[StoredStep]:
        query = (
            f"SELECT {_COLUMNS}, r.reward, r.defaulted FROM decisions d LEFT JOIN rewards r USING(session, step) "
            "WHERE d.session=$1 ORDER BY d.step"
        )
        rows = await self._readers.fetch(query, session)
        return [StoredStep(Decision(*tuple(row)[:12]), row[12], bool(row[13])) for row in rows]

    async def person(self, person: str, before: float, limit: int) -> list[PlayedArm]:
        query = (
            "WITH p AS (SELECT session, at FROM decisions WHERE person=$1 AND at<$2 ORDER BY at DESC LIMIT $3) "
            "SELECT d.arm, r.reward, d.session FROM p JOIN decisions d ON d.session=p.session JOIN rewards r "
            "ON r.session=d.session AND r.step=d.step ORDER BY p.at DESC, d.session, d.step DESC LIMIT $4"
        )
        return [PlayedArm(*tuple(row)) for row in await self._readers.fetch(query, person, before, _RECENT, limit)][
            ::-1
        ]

    async def erase(self, person: str, now: float) -> list[str]:
        async def delete(db: Any) -> list[str]:
            async with db.transaction():
                query = "SELECT session FROM decisions WHERE person=$1 LIMIT $2"
                names = [row[0] for row in await db.fetch(query, person, _CHUNK)]
                await db.execute("UPDATE signals SET count=count+1 WHERE name='erased'")  # commits wait for this row
                query = "INSERT INTO tombstones SELECT u, $2 FROM unnest($1::text[]) u ON CONFLICT DO NOTHING"
                await db.execute(query, [tombstone(name) for name in names], now)
                await _delete(db, names)
            return names

        names, clock = list[str](), asyncio.get_running_loop().time
        while True:
            began = clock()
            part = await self._writers.run(delete)
            names += part
            if len(part) < _CHUNK:
                return names
            await asyncio.sleep(max(_PAUSE, 2 * (clock() - began)))

    async def leftovers(self) -> list[str]:
        return ["dead rows and the write-ahead log of PostgreSQL, until VACUUM and the next checkpoints"]

    async def forget(self, before: float, limit: int) -> int:
        async def delete(db: Any) -> int:
            async with db.transaction():
                query = "SELECT session FROM decisions WHERE step=0 AND at<$1 ORDER BY at LIMIT $2"
                names = [row[0] for row in await db.fetch(query, before, limit)]
                await _delete(db, names)
                await db.execute("DELETE FROM tombstones WHERE at<$1", before)
            return len(names)

        self._lengths.clear()
        return await self._far.run(delete)

    async def fill_defaults(self, reward: float, since: float, before: float, now: float, limit: int) -> Swept:
        query = "SELECT at FROM decisions WHERE at>=$1 AND at<$2 ORDER BY at LIMIT 1 OFFSET $3"
        found = await self._far.fetch(query, since, before, limit)
        until = math.nextafter(found[0][0], math.inf) if found else before
        query = (
            "INSERT INTO rewards SELECT d.session, d.step, $1, $2, 1 FROM decisions d LEFT JOIN rewards r "
            "USING(session, step) WHERE d.at>=$3 AND d.at<$4 AND r.session IS NULL ON CONFLICT DO NOTHING"
        )
        return Swept(int((await self._far.execute(query, reward, now, since, until)).split()[-1]), until)

    # Settings, arms, versions

    async def setting(self, name: str, value: str | None) -> str | None:
        if value is not None:
            await self._writers.execute("INSERT INTO settings VALUES($1,$2) ON CONFLICT DO NOTHING", name, value)
        rows = await self._readers.fetch("SELECT value FROM settings WHERE name=$1", name)
        return str(rows[0][0]) if rows else None

    async def set_setting(self, name: str, value: str, signal: bool = False) -> None:
        query = (
            "WITH s AS (INSERT INTO settings VALUES($1,$2) ON CONFLICT(name) DO UPDATE SET value=$2) "
            "UPDATE signals SET count=count+1 WHERE name='changed' AND $3"
        )
        await self._writers.execute(query, name, value, signal)

    async def arms(self) -> list[ArmRow]:
        rows = await self._readers.fetch("SELECT label, open FROM arms ORDER BY arm")
        return [ArmRow(json.loads(row[0]), bool(row[1])) for row in rows]

    async def set_arms(self, labels: Sequence[Label]) -> None:
        async def put(db: Any) -> None:
            async with db.transaction():
                await db.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
                number = await db.fetchval("SELECT count(*) FROM arms")
                await db.execute("UPDATE arms SET open=0")
                for label in labels:
                    row = json.dumps(label)
                    if await db.execute("UPDATE arms SET open=1 WHERE label=$1", row) == "UPDATE 0":
                        await db.execute("INSERT INTO arms VALUES($1,$2,1)", number, row)
                        number += 1
                await db.execute("UPDATE signals SET count=count+1 WHERE name='changed'")

        await self._far.run(put)

    async def add_version(self, version: str, body: bytes, at: float, note: str) -> None:
        query = "INSERT INTO policies VALUES($1,$2,$3,$4) ON CONFLICT DO NOTHING"
        await self._far.execute(query, version, at, note, body)

    async def version(self, version: str) -> bytes | None:
        rows = await self._far.fetch("SELECT body FROM policies WHERE version=$1", version)
        return bytes(rows[0][0]) if rows else None

    async def versions(self) -> list[VersionRow]:
        rows = await self._readers.fetch("SELECT version, at, note FROM policies ORDER BY at DESC")
        return [VersionRow(*tuple(row)) for row in rows]

    async def add_rollout(self, rollout: Rollout) -> None:
        query = (
            "WITH r AS (INSERT INTO register(active, canary, share, at, note) VALUES($1,$2,$3,$4,$5)) "
            "UPDATE signals SET count=count+1 WHERE name='changed'"
        )
        await self._writers.execute(query, *rollout)

    async def rollouts(self, limit: int) -> list[Rollout]:
        query = "SELECT active, canary, share, at, note FROM register ORDER BY number DESC LIMIT $1"
        return [Rollout(*tuple(row)) for row in await self._readers.fetch(query, limit)]

    async def signals(self) -> Signals:
        counts = {row[0]: row[1] for row in await self._readers.fetch("SELECT name, count FROM signals")}
        return Signals(counts["changed"], counts["erased"])

    # What reads many rows

    async def rows(self, since: float, until: float) -> list[LogRow]:
        query = (
            "WITH s AS (SELECT session, at AS began, (person IS NOT NULL)::int AS known, person, features "
            "FROM decisions WHERE step=0 AND at>=$1 AND at<$2) "
            "SELECT d.session, d.step, d.arm, r.reward, d.propensity, d.policy, d.at, "
            "d.explored, d.fallback, s.began, (d.allowed IS NOT NULL)::int, r.at, s.known, s.person, s.features "
            "FROM s JOIN decisions d USING(session) LEFT JOIN rewards r "
            "ON r.session=d.session AND r.step=d.step ORDER BY s.began, d.session, d.step"
        )
        return [LogRow(*tuple(row)) for row in await self._far.fetch(query, since, until)]

    async def days(self) -> list[DayState]:
        query = (
            "SELECT floor(s.at / 86400)::int AS day, count(*), max(r.at) FROM decisions s JOIN rewards r "
            "ON r.session=s.session WHERE s.step=0 GROUP BY day ORDER BY day"
        )
        return [DayState(*tuple(row)) for row in await self._far.fetch(query)]

    async def buckets(self, since: float, width: float) -> list[Bucket]:
        query = (
            "WITH s AS (SELECT session, at AS began FROM decisions WHERE step=0 AND at>=$1), "
            "t AS (SELECT min(d.policy) AS policy, floor(min(s.began) / $2::float8)::int AS began, count(*) AS steps, "
            "coalesce(sum(r.reward), 0) AS reward, sum(d.explored) AS explored, sum(d.fallback) AS fallback "
            "FROM s JOIN decisions d ON d.session=s.session LEFT JOIN rewards r ON r.session=d.session "
            "AND r.step=d.step GROUP BY s.session) SELECT policy, began, count(*), sum(steps)::int8, sum(reward), "
            "sum(reward * reward), sum(steps * steps)::float8, sum(explored)::int8, sum(fallback)::int8 "
            "FROM t GROUP BY policy, began"
        )
        return [Bucket(*tuple(row)) for row in await self._far.fetch(query, since, width)]

    async def arm_counts(self, limit: int, idle: float) -> list[ArmCount]:
        query = (
            "WITH s AS (SELECT session FROM decisions WHERE step=0 ORDER BY at DESC LIMIT $1) "
            "SELECT d.step, d.arm, count(*), count(*) FILTER (WHERE e.step IS NULL AND d.at < $2) "
            "FROM s JOIN decisions d USING(session) "
            "LEFT JOIN decisions e ON e.session = d.session AND e.step = d.step + 1 GROUP BY d.step, d.arm"
        )
        return [ArmCount(*tuple(row)) for row in await self._far.fetch(query, limit, idle)]

    async def latest(self, limit: int) -> list[str]:
        query = (
            "SELECT session FROM (SELECT session, at FROM decisions ORDER BY at DESC LIMIT $1) d "
            "GROUP BY session ORDER BY max(at) DESC LIMIT $2"
        )
        return [row[0] for row in await self._readers.fetch(query, 10 * limit, limit)]

    @asynccontextmanager
    async def exclusively(self) -> AsyncIterator[bool]:
        link = _Link(self.address, _FAR)
        try:  # the lock belongs to the connection, so that it ends with this process
            query = "SELECT pg_try_advisory_lock($1)"
            yield bool(await link.run(lambda db: db.fetchval(query, _REFIT_LOCK)))
        finally:
            await link.close()


async def _make_tables(db: Any) -> None:
    async with db.transaction():
        await db.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        if await db.fetchval("SELECT to_regclass('lmab_schema')") is None:
            await db.execute(_TABLES)


async def _delete(db: Any, names: Sequence[str]) -> None:
    for table in ("decisions", "rewards"):
        await db.execute(f"DELETE FROM {table} WHERE session = ANY($1::text[])", list(names))


def _columns(rows: Sequence[tuple[Any, ...]], n: int) -> list[list[Any]]:
    """The rows by column, in the order of session and step, so that replicas wait for each other in one order."""
    return _transposed(sorted(rows, key=lambda row: row[:2]), n)


def _transposed(rows: Sequence[tuple[Any, ...]], n: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(n)]
