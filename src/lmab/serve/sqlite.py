"""SqliteStore: one file in WAL mode; a commit is on the disk before it is answered."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import chain
from typing import Any, TypeVar

from .messages import Label
from .stores import Decision, Job, Past, RewardRow, Store, Turn, VersionRow

Value = TypeVar("Value")

SCHEMA = """
CREATE TABLE IF NOT EXISTS decisions(session TEXT NOT NULL, step INTEGER NOT NULL, arm INTEGER NOT NULL,
    propensity REAL, policy TEXT NOT NULL, at REAL NOT NULL, explored INTEGER NOT NULL, fallback INTEGER NOT NULL,
    wish INTEGER, allowed TEXT, person TEXT, PRIMARY KEY(session, step)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS rewards(session TEXT NOT NULL, step INTEGER NOT NULL, reward REAL NOT NULL, at REAL NOT NULL,
    defaulted INTEGER NOT NULL, PRIMARY KEY(session, step)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS decisions_person ON decisions(person) WHERE person IS NOT NULL;
CREATE INDEX IF NOT EXISTS decisions_at ON decisions(at);
CREATE TABLE IF NOT EXISTS settings(name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS arms(arm INTEGER PRIMARY KEY, label TEXT NOT NULL UNIQUE, open INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS policies(version TEXT PRIMARY KEY, at REAL NOT NULL, note TEXT NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS register(number INTEGER PRIMARY KEY AUTOINCREMENT, active TEXT NOT NULL, canary TEXT,
    share REAL NOT NULL, at REAL NOT NULL, note TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS signals(name TEXT PRIMARY KEY, count INTEGER NOT NULL);
INSERT OR IGNORE INTO signals VALUES('changed', 0), ('erased', 0);
"""
_PRAGMAS = (
    "journal_mode=WAL", "synchronous=FULL", "wal_autocheckpoint=10000", "secure_delete=ON",
    "temp_store=MEMORY",  # a statement of many rows keeps a journal of its own, which else is a file on the disk
)  # fmt: skip
_MOST = 128  # rows of one statement
_COLUMNS = "d.session, d.step, d.arm, d.propensity, d.policy, d.at, d.explored, d.fallback, d.wish, d.allowed, d.person"
_PAST = (
    f"SELECT {_COLUMNS}, r.reward, r.defaulted FROM decisions d LEFT JOIN rewards r USING(session, step) "
    "WHERE d.session=? ORDER BY d.step"
)


class SqliteStore(Store):
    """One writer thread; every transaction is synced to the disk (synchronous=FULL)."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._writer = ThreadPoolExecutor(1, "lmab-writer")
        self._reader = ThreadPoolExecutor(1, "lmab-reader")
        self._db: sqlite3.Connection | None = None

    async def open(self) -> None:
        await self._in(self._writer, self._connect)

    def _connect(self) -> None:
        db = sqlite3.connect(
            self.path, check_same_thread=False, isolation_level=None, timeout=10, cached_statements=3 * _MOST
        )
        for pragma in _PRAGMAS:
            db.execute(f"PRAGMA {pragma}")
        db.executescript(SCHEMA)
        self._db = db
        self._near = sqlite3.connect(self.path, check_same_thread=False, isolation_level=None, timeout=10)
        self._far = sqlite3.connect(self.path, check_same_thread=False, isolation_level=None, timeout=10)

    async def close(self) -> None:
        def shut() -> None:
            if self._db is not None:
                for one in (self._near, self._far, self._db):
                    one.close()
                self._db = None

        await self._in(self._writer, shut)
        self._writer.shutdown()
        self._reader.shutdown()

    async def _in(self, pool: ThreadPoolExecutor, function: Callable[..., Value], *arguments: Any) -> Value:
        return await asyncio.get_running_loop().run_in_executor(pool, function, *arguments)

    async def _change(self, function: Callable[[sqlite3.Connection], Value]) -> Value:
        """Run in the writer thread, as one transaction."""

        def transaction() -> Value:
            assert self._db is not None, "the store is not open"
            self._db.execute("BEGIN IMMEDIATE")
            try:
                value = function(self._db)
                self._db.execute("COMMIT")
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            return value

        return await self._in(self._writer, transaction)

    async def write(self, jobs: Sequence[Job]) -> None:
        await self._change(lambda db: _write(db, jobs))

    async def session(self, session: str) -> list[Past]:
        rows = self._near.execute(_PAST, (session,)).fetchall()  # some microseconds: no thread is worth it
        return [Past(Decision(*row[:11]), row[11], bool(row[12])) for row in rows]

    async def person(self, person: str, before: float, limit: int) -> list[tuple[int, float]]:
        query = (
            "SELECT d.arm, r.reward FROM decisions p JOIN decisions d USING(session) JOIN rewards r "
            "ON r.session=d.session AND r.step=d.step WHERE p.person=? AND p.at<? ORDER BY d.at DESC LIMIT ?"
        )
        return list(self._near.execute(query, (person, before, limit)).fetchall())[::-1]

    async def erase(self, person: str) -> list[str]:
        def delete(db: sqlite3.Connection) -> list[str]:
            names = [name for (name,) in db.execute("SELECT session FROM decisions WHERE person=?", (person,))]
            for table in ("decisions", "rewards"):
                db.executemany(f"DELETE FROM {table} WHERE session=?", [(name,) for name in names])
            db.execute("UPDATE signals SET count=count+1 WHERE name='erased'")
            return names

        names = await self._change(delete)
        # What was deleted must leave the write-ahead log, too.
        await self._in(
            self._writer, lambda: self._db and self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        )
        return names

    async def fill_defaults(self, reward: float, since: float, before: float, now: float) -> int:
        def fill(db: sqlite3.Connection) -> int:
            query = (
                "INSERT INTO rewards SELECT d.session, d.step, ?, ?, 1 FROM decisions d LEFT JOIN rewards r "
                "USING(session, step) WHERE d.at>=? AND d.at<? AND r.session IS NULL"
            )
            return db.execute(query, (reward, now, since, before)).rowcount

        return await self._change(fill)

    async def setting(self, name: str, value: str | None) -> str | None:
        def keep(db: sqlite3.Connection) -> str | None:
            if value is not None:
                db.execute("INSERT OR IGNORE INTO settings VALUES(?,?)", (name, value))
            row = db.execute("SELECT value FROM settings WHERE name=?", (name,)).fetchone()
            return None if row is None else str(row[0])

        return await self._change(keep)

    async def set_setting(self, name: str, value: str) -> None:
        await self._change(lambda db: db.execute("INSERT OR REPLACE INTO settings VALUES(?,?)", (name, value)))

    async def arms(self) -> list[tuple[Label, bool]]:
        rows = self._near.execute("SELECT label, open FROM arms ORDER BY arm").fetchall()
        return [(json.loads(label), bool(is_open)) for label, is_open in rows]

    async def set_arms(self, labels: Sequence[Label]) -> None:
        def put(db: sqlite3.Connection) -> None:
            number = db.execute("SELECT count(*) FROM arms").fetchone()[0]
            db.execute("UPDATE arms SET open=0")
            for label in labels:
                row = json.dumps(label)
                if not db.execute("UPDATE arms SET open=1 WHERE label=?", (row,)).rowcount:
                    db.execute("INSERT INTO arms VALUES(?,?,1)", (number, row))
                    number += 1
            db.execute("UPDATE signals SET count=count+1 WHERE name='changed'")

        await self._change(put)

    async def add_version(self, version: str, body: bytes, at: float, note: str) -> None:
        row = (version, at, note, body)
        await self._change(lambda db: db.execute("INSERT OR IGNORE INTO policies VALUES(?,?,?,?)", row))

    async def version(self, version: str) -> bytes | None:
        row = self._near.execute("SELECT body FROM policies WHERE version=?", (version,)).fetchone()
        return None if row is None else bytes(row[0])

    async def versions(self) -> list[VersionRow]:
        rows = self._near.execute("SELECT version, at, note FROM policies ORDER BY at DESC").fetchall()
        return [VersionRow(*row) for row in rows]

    async def turn(self, turn: Turn) -> None:
        def put(db: sqlite3.Connection) -> None:
            db.execute("INSERT INTO register(active, canary, share, at, note) VALUES(?,?,?,?,?)", turn)
            db.execute("UPDATE signals SET count=count+1 WHERE name='changed'")

        await self._change(put)

    async def turns(self, limit: int) -> list[Turn]:
        query = "SELECT active, canary, share, at, note FROM register ORDER BY number DESC LIMIT ?"
        return [Turn(*row) for row in self._near.execute(query, (limit,)).fetchall()]

    async def signals(self) -> tuple[int, int]:
        counts = dict(self._near.execute("SELECT name, count FROM signals").fetchall())
        return counts["changed"], counts["erased"]

    async def rows(self, since: float, until: float, limit: int | None = None) -> list[tuple[Any, ...]]:
        def read() -> list[tuple[Any, ...]]:
            query = (
                "WITH s AS (SELECT session, at AS began FROM decisions WHERE step=0 AND at>=? AND at<? "
                "ORDER BY at DESC LIMIT ?) SELECT d.session, d.step, d.arm, r.reward, d.propensity, d.policy, d.at, "
                "d.explored, d.fallback, s.began FROM s JOIN decisions d USING(session) LEFT JOIN rewards r "
                "ON r.session=d.session AND r.step=d.step ORDER BY s.began, d.session, d.step"
            )
            return self._far.execute(query, (since, until, -1 if limit is None else limit)).fetchall()

        return await self._in(self._reader, read)


def _write(db: sqlite3.Connection, jobs: Sequence[Job]) -> None:
    """All jobs; rows that are there already stay, and each job is told what the store has."""
    rewards = [row for job in jobs for row in job.rewards]
    if _insert(db, "rewards", rewards) != len(rewards):
        for job in jobs:
            job.conflict = _conflict(db, job.rewards)
        # A job whose reward contradicts the store writes nothing, so its other rewards must go again.
        for job in jobs:
            if job.conflict is not None:
                _take_back(db, job)
    decisions = [job.decision for job in jobs if job.decision is not None and job.conflict is None]
    all_new = _insert(db, "decisions", decisions) == len(decisions)
    for job in jobs:
        if job.decision is not None and job.conflict is None:
            job.stored = job.decision if all_new else _stored(db, job.decision)


def _insert(db: sqlite3.Connection, table: str, rows: Sequence[tuple[Any, ...]]) -> int:
    """Insert rows whose keys are new, and count them.

    Many rows go into one statement, because the driver lets other threads run at every statement, and a writer that
    has to wait its turn for every row is slow.
    """
    inserted = 0
    for start in range(0, len(rows), _MOST):
        part = rows[start : start + _MOST]
        inserted += db.execute(_statement(table, len(part), len(part[0])), list(chain.from_iterable(part))).rowcount
    return inserted


@cache
def _statement(table: str, n_rows: int, n_columns: int) -> str:
    marks = ",".join(["(" + ",".join("?" * n_columns) + ")"] * n_rows)
    return f"INSERT INTO {table} VALUES {marks} ON CONFLICT DO NOTHING"


def _conflict(db: sqlite3.Connection, rows: Sequence[RewardRow]) -> RewardRow | None:
    """A reward in the store that contradicts one of the rows."""
    for row in rows:
        found = db.execute("SELECT * FROM rewards WHERE session=? AND step=?", row[:2]).fetchone()
        if found is not None and found[2] != row.reward:
            return RewardRow(*found)
    return None


def _take_back(db: sqlite3.Connection, job: Job) -> None:
    for row in job.rewards:  # only rows that this transaction wrote have this very time
        db.execute("DELETE FROM rewards WHERE session=? AND step=? AND reward=? AND at=?", row[:4])


def _stored(db: sqlite3.Connection, row: Decision) -> Decision:
    return Decision(*db.execute("SELECT * FROM decisions WHERE session=? AND step=?", row[:2]).fetchone())
