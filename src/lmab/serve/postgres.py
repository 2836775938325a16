"""PostgresStore: the same tables in PostgreSQL, for any number of replicas of the service.

A commit is one statement, so no replica that dies leaves a transaction open. The statement fails where another replica
was first; then the store is read, `resolve` decides again, and the next statement writes the rest.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import cache, partial
from typing import Any, ClassVar

from ..errors import InvalidFile
from . import stores
from .stores import (
    DEADLINE,
    Accepted,
    Decision,
    Job,
    Known,
    RewardRow,
    Statement,
    Store,
    Value,
    by_experiment,
    resolve,
    tombstone,
)  # fmt: skip

_TABLES = (  # of version 4: later versions are made by migrations
    "CREATE TABLE {steps}(session TEXT NOT NULL, step INT NOT NULL, arm INT NOT NULL, "
    "propensity FLOAT8, policy TEXT NOT NULL, at FLOAT8 NOT NULL, explored INT NOT NULL, fallback INT NOT NULL, "
    "preferred INT, allowed TEXT, person TEXT, features TEXT, PRIMARY KEY(session, step))",
    "CREATE TABLE {rewards}(session TEXT NOT NULL, step INT NOT NULL, reward FLOAT8 NOT NULL, "
    "at FLOAT8 NOT NULL, defaulted INT NOT NULL, PRIMARY KEY(session, step))",
    "CREATE INDEX {by_person} ON {steps}(person, at) WHERE person IS NOT NULL",
    "CREATE INDEX {by_time} ON {steps}(at)",
    "CREATE TABLE {tombstones}(session TEXT PRIMARY KEY, at FLOAT8 NOT NULL)",
    "CREATE TABLE {settings}(name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE {arms}(arm INT PRIMARY KEY, label TEXT NOT NULL UNIQUE, open INT NOT NULL)",
    "CREATE TABLE {policies}(version TEXT PRIMARY KEY, at FLOAT8 NOT NULL, note TEXT NOT NULL, body BYTEA NOT NULL)",
    "CREATE TABLE {register}(number SERIAL PRIMARY KEY, active TEXT NOT NULL, canary TEXT, "
    "share FLOAT8 NOT NULL, at FLOAT8 NOT NULL, note TEXT NOT NULL)",
    "CREATE TABLE {signals}(name TEXT PRIMARY KEY, count INT NOT NULL)",
    "INSERT INTO {signals} VALUES('changed', 0), ('erased', 0)",
    "CREATE VIEW {labelled} AS SELECT d.session, d.step, (a.label::json #>> '{{}}') AS label, r.reward, d.propensity, "
    "d.policy, to_timestamp(d.at) AS decided, d.explored, d.fallback FROM {steps} d JOIN {arms} a USING(arm) "
    "LEFT JOIN {rewards} r ON r.session=d.session AND r.step=d.step",
)
_VERSION = ("CREATE TABLE lmab_schema(version INT NOT NULL)", f"INSERT INTO lmab_schema VALUES({stores.FIRST_VERSION})")
_LOCK = 7_261_943  # any number of our own: replicas that start together make the tables one after the other
_REFIT_LOCK = _LOCK + 1
_LOCK_WAIT = 250  # milliseconds for which a statement waits for a row that another transaction has locked
_KNOWN = 50_000  # sessions with remembered lengths
_LEAST_WAIT = 0.25  # seconds that an answer may take, however long its turn took to come
_TRIES = 5  # Most tries of a commit that other replicas overtake.
_FAR = 120.0  # seconds for statements on many rows
# One statement: nothing is written where a person was erased meanwhile, or where a new session has a tombstone.
_WRITE = (
    "WITH guard AS MATERIALIZED (SELECT 1 FROM {counters} WHERE name='erased' AND count=$1 AND NOT EXISTS "
    "(SELECT 1 FROM {tombstones} WHERE session = ANY($2::text[])) FOR SHARE), "
    "r AS (INSERT INTO {rewards} SELECT u.* FROM guard, "
    "unnest($3::text[],$4::int[],$5::float8[],$6::float8[],$7::int[]) AS u), "
    "d AS (INSERT INTO {steps} SELECT u.* FROM guard, unnest($8::text[],$9::int[],$10::int[],$11::float8[],"
    "$12::text[],$13::float8[],$14::int[],$15::int[],$16::int[],$17::text[],$18::text[],$19::text[]) AS u) "
    "SELECT count(*) FROM guard"
)
_COLUMNS = (
    "d.session, d.step, d.arm, d.propensity, d.policy, d.at, d.explored, d.fallback, d.preferred, d.allowed, d.person, "
    "d.features"
)
_ERASED = "SELECT count, (SELECT version FROM lmab_schema) FROM {counters} WHERE name='erased'"


class _Link:
    """One connection, thrown away as soon as it does not answer in time: a partition must not delay requests."""

    def __init__(self, address: str, deadline: float) -> None:
        self.address, self.deadline = address, deadline
        self.pooled = False  # a pooler such as PgBouncer may give every transaction another session of the database
        milliseconds = int(1000 * deadline)
        self._limits = {
            "statement_timeout": str(milliseconds),
            "lock_timeout": str(_LOCK_WAIT),
            "idle_in_transaction_session_timeout": str(min(milliseconds, 5000)),
            "client_min_messages": "warning",
        }
        self.lock = asyncio.Lock()
        self._db: Any = None

    async def run(
        self, work: Callable[[Any], Awaitable[Value]], seconds: float | None = None, keep: bool = False
    ) -> Value:
        """Return the result of `work` on the connection within some seconds; the caller holds the lock.

        `keep`: `work` begins a transaction, which stays open.
        """
        task, limit = asyncio.ensure_future(self._work(work, keep)), self.deadline if seconds is None else seconds
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

    async def _work(self, work: Callable[[Any], Awaitable[Value]], keep: bool) -> Value:
        if self._db is None or self._db.is_closed():
            self._db = await self._connect()
        if keep or not self.pooled:
            return await work(self._db)
        async with self._db.transaction():
            await self._db.execute("; ".join(f"SET LOCAL {name}={value}" for name, value in self._limits.items()))
            return await work(self._db)

    async def _connect(self) -> Any:
        """Connect with limits on every statement; through a pooler that takes none, `_work` sets them each time."""
        import asyncpg

        connect = partial(asyncpg.connect, self.address, timeout=min(self.deadline, 5.0))
        always = {"application_name": "lmab"}
        if not self.pooled:
            try:
                db = await connect(server_settings={**always, **self._limits, "tcp_user_timeout": "5000"})
                limit = self._limits["statement_timeout"]
                query = f"SELECT 1 FROM pg_settings WHERE name='statement_timeout' AND setting='{limit}'"
                if await db.execute(query) == "SELECT 1":
                    return db
                db.terminate()
            except asyncpg.ProtocolViolationError as error:
                if "startup parameter" not in str(error):
                    raise
            self.pooled = True
        return await connect(server_settings=always, statement_cache_size=0)

    def _abandon(self, task: asyncio.Future[Any]) -> None:
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # no request waits for it any more
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

    async def close(self) -> None:
        for link in self.links:
            await link.close()


class PostgresStore(Store):
    """A commit is durable before it is answered, as far as the server's settings make it so."""

    tables: ClassVar = {
        "steps": "decisions", "rewards": "rewards", "people": "decisions", "labelled": "labelled",
        "exported": "exported", "by_person": "decisions_person", "by_time": "decisions_at", **stores.SHARED,
    }  # fmt: skip
    dialect: ClassVar = {
        "key": "session", "latest": "at", "first": "AND n.step=0", "floor": "floor",
        "among": "IN (SELECT json_array_elements_text(?::json))", "schema": "version FROM lmab_schema",
        "label": "(a.label::json #>> '{}')", "preferred": "(p.label::json #>> '{}')",
    }  # fmt: skip
    creation = _TABLES
    view = f"CREATE OR REPLACE {stores.EXPORT_VIEW}"
    pause = 0.04

    def __init__(self, address: str) -> None:
        self.address = address
        self._writers = _Links(address, 3, DEADLINE)
        self._readers = _Links(address, 2, DEADLINE)
        self._far = _Links(address, 1, _FAR)
        self._open = False
        self._stores: dict[str, PostgresStore] = {}  # by experiment
        self._use(stores.DEFAULT)

    def _use(self, experiment: str) -> None:
        self.experiment, self.names = experiment, stores.table_names(self.tables, experiment) | self.dialect
        self._erased = -1
        self._lengths: OrderedDict[str, int] = OrderedDict()  # at least as many steps of a session are stored
        self._statement = _WRITE.format(**self.names)
        self._stores[experiment] = self

    async def open(self, create: bool = True) -> None:
        async def bring_up_to_date(db: Any) -> None:
            async with db.transaction():
                await db.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
                query = "SELECT to_regclass('lmab_schema') IS NOT NULL, to_regclass('decisions') IS NOT NULL"
                (has_version, has_tables), *_ = await db.fetch(query)
                if not has_version and not has_tables:
                    if not create:
                        where = stores.without_secrets(self.address)
                        raise InvalidFile(f"{where}: there is no store; `lmab serve` makes it")
                    for statement in (*_TABLES, *_VERSION):
                        await db.execute(statement.format(**self.names))
                    has_version = True
                version = await db.fetchval("SELECT version FROM lmab_schema") if has_version else 0
                updates = stores.migrations(version, self.address)
                experiments = [stores.DEFAULT]
                if await db.fetchval("SELECT to_regclass('experiments') IS NOT NULL"):
                    experiments = [row[0] for row in await db.fetch("SELECT name FROM experiments")]
                for experiment in experiments if updates else ():
                    names = stores.table_names(self.tables, experiment)
                    for statement in updates:
                        await db.execute(statement.format(**names))
                for statement in stores.ADDITIONS:
                    await db.execute(statement)
                if not await db.fetchval("SELECT to_regclass('exported') IS NOT NULL"):
                    for experiment in experiments:
                        names = stores.table_names(self.tables, experiment) | self.dialect
                        await db.execute(self.view.format(**names))
                if version != stores.SCHEMA_VERSION:
                    await db.execute("UPDATE lmab_schema SET version=$1", stores.SCHEMA_VERSION)

        if self.experiment != stores.DEFAULT:  # the connections are those of the whole store
            return
        await self._writers.run(bring_up_to_date)
        self._open = True

    async def open_to_read(self) -> None:
        self._open = False  # connections are made by queries, and `write` refuses

    async def close(self) -> None:
        if self.experiment != stores.DEFAULT:
            return
        self._open = False
        for links in (self._writers, self._readers, self._far):
            await links.close()

    async def _ask(self, query: str, *values: Any, far: bool = False) -> list[Any]:
        text, links = _numbered(query.format(**self.names)), self._far if far else self._readers
        return list(await links.run(lambda db: db.fetch(text, *values)))

    async def _do(self, *statements: Statement, far: bool = False, guarded: bool = False) -> list[int]:
        async def run(db: Any) -> list[int]:
            counts: list[int] = []
            async with db.transaction():
                stores.migrations(await db.fetchval("SELECT version FROM lmab_schema"), self.address)
                for text, *values in statements:
                    done = await db.execute(_numbered(text.format(**self.names)), *values)
                    words = done.split()
                    counts.append(int(words[-1]) if words[-1].isdigit() else -1)  # -1: it made a table
                    if guarded and counts == [0]:
                        break
            return counts

        return await (self._far if far else self._writers).run(run)

    # Decisions and rewards

    async def write(self, jobs: Sequence[Job]) -> None:
        if not self._open:
            raise InvalidFile("the store is not open")
        groups = by_experiment(jobs)
        if len(groups) == 1:
            await self._stores[next(iter(groups))]._write_own(jobs)
            return
        writes = [self._stores[name]._write_own(own) for name, own in groups.items()]
        for error in await asyncio.gather(*writes, return_exceptions=True):  # all of them end before the next commit
            if error is not None:
                raise error

    async def _write_own(self, jobs: Sequence[Job]) -> None:
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
                rows = *_columns(accepted.rewards, 5), *_columns(accepted.decisions, 12)
                part = db.transaction() if db.is_in_transaction() else nullcontext()
                async with part:  # a failure ends only this part
                    done = await db.fetchval(self._statement, self._erased, new, *rows)
            except asyncpg.UniqueViolationError:
                done = 0
            if done:
                self._remember(accepted)
                return
            known, remembered = None, False
        raise TimeoutError("other replicas wrote the same sessions again and again")

    def _remembered(self, jobs: Sequence[Job]) -> Known | None:
        """Return the remembered state if it is enough: for new sessions, and new steps of remembered sessions."""
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
        (erased, version), *_ = await db.fetch(_ERASED.format(**self.names))
        stores.migrations(version, self.address)  # every migration counts as an erasure, so that replicas come here
        if erased != self._erased:
            self._lengths.clear()
            self._erased = erased
        steps, tombstones = self.names["steps"], self.names["tombstones"]
        query = f"SELECT session, max(step) + 1 FROM {steps} WHERE session = ANY($1::text[]) GROUP BY session"
        known = Known(dict(await db.fetch(query, names)))
        keys = [(reward.session, reward.step) for job in jobs for reward in job.rewards]
        query = "SELECT {} JOIN unnest($1::text[], $2::int[]) AS k(s, t) ON d.session=k.s AND d.step=k.t"
        if keys:
            rows = await db.fetch(query.format(f"d.* FROM {self.names['rewards']} d"), *_transposed(keys, 2))
            known.rewards = {(row[0], row[1]): RewardRow(*tuple(row)) for row in rows}
        again = [job.decision[:2] for job in jobs if job.decision is not None]
        if again:
            rows = await db.fetch(query.format(f"{_COLUMNS} FROM {steps} d"), *_transposed(again, 2))
            known.decisions = {(row[0], row[1]): Decision(*tuple(row)) for row in rows}
        marks = {tombstone(name): name for name in names if name not in known.lengths}
        rows = await db.fetch(f"SELECT session FROM {tombstones} WHERE session = ANY($1::text[])", list(marks))
        known.erased = {marks[row[0]] for row in rows}
        return known

    def _remember(self, accepted: Accepted) -> None:
        for row in accepted.decisions:
            self._lengths[row.session] = row.step + 1
        while len(self._lengths) > _KNOWN:
            self._lengths.popitem(last=False)

    async def leftovers(self) -> list[str]:
        return ["dead rows and the write-ahead log of PostgreSQL, until VACUUM and the next checkpoints"]

    async def size(self) -> tuple[int, int | None]:
        return int((await self._ask("SELECT pg_database_size(current_database())"))[0][0]), None

    @asynccontextmanager
    async def exclusively(self) -> AsyncIterator[bool]:
        async def begin(db: Any) -> bool:
            await db.execute("BEGIN; SET LOCAL idle_in_transaction_session_timeout=0")
            if self.experiment == stores.DEFAULT:
                return bool(await db.fetchval("SELECT pg_try_advisory_xact_lock($1)", _REFIT_LOCK))
            lock = "SELECT pg_try_advisory_xact_lock($1::int, hashtext($2))"
            return bool(await db.fetchval(lock, _REFIT_LOCK, self.experiment))

        link = _Link(self.address, _FAR)
        try:  # the lock belongs to a transaction that stays open, so that it ends with this process
            yield await link.run(begin, keep=True)
        finally:
            link.drop()


def _columns(rows: Sequence[tuple[Any, ...]], n: int) -> list[list[Any]]:
    """The rows by column, in the order of session and step, so that replicas wait for each other in one order."""
    return _transposed(sorted(rows, key=lambda row: row[:2]), n)


def _transposed(rows: Sequence[tuple[Any, ...]], n: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(n)]


@cache
def _numbered(query: str) -> str:
    """Return the query with $1, $2 ... for its question marks."""
    number = itertools.count(1)
    return re.sub(r"\?", lambda _: f"${next(number)}", query)
