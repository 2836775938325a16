"""SqliteStore: one file in WAL mode; a commit is on the disk before it is answered."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from .messages import Label
from .sqlite_tables import make_tables
from .sqlite_writer import MOST, Writer
from .stores import Decision, Job, Past, Store, Turn, VersionRow

Value = TypeVar("Value")

_PRAGMAS = (
    "journal_mode=WAL", "synchronous=FULL", "wal_autocheckpoint=10000", "secure_delete=ON",
    "temp_store=MEMORY",  # a statement of many rows keeps a journal of its own, which else is a file on the disk
)  # fmt: skip
_PAST = (
    "SELECT n.session, d.step, d.arm, d.propensity, d.policy, d.at, d.explored, d.fallback, d.wish, d.allowed, "
    "CASE d.step WHEN 0 THEN n.person END, r.reward, r.defaulted FROM sessions n JOIN steps d USING(number) "
    "LEFT JOIN step_rewards r ON r.number=d.number AND r.step=d.step WHERE n.session=? ORDER BY d.step"
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
            self.path, check_same_thread=False, isolation_level=None, timeout=10, cached_statements=5 * MOST
        )
        for pragma in _PRAGMAS:
            db.execute(f"PRAGMA {pragma}")
        make_tables(db)
        self._db, self._jobs = db, Writer(db)
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
                self._jobs.forget()
                self._db.execute("ROLLBACK")
                raise
            return value

        return await self._in(self._writer, transaction)

    async def write(self, jobs: Sequence[Job]) -> None:
        await self._change(lambda db: self._jobs.write(jobs))

    async def session(self, session: str) -> list[Past]:
        rows = self._near.execute(_PAST, (session,)).fetchall()  # some microseconds: no thread is worth it
        return [Past(Decision(*row[:11]), row[11], bool(row[12])) for row in rows]

    async def person(self, person: str, before: float, limit: int) -> list[tuple[int, float]]:
        query = (
            "SELECT d.arm, r.reward FROM sessions n JOIN steps p ON p.number=n.number AND p.step=0 JOIN steps d "
            "ON d.number=n.number JOIN step_rewards r ON r.number=d.number AND r.step=d.step "
            "WHERE n.person=? AND p.at<? ORDER BY d.at DESC LIMIT ?"
        )
        return list(self._near.execute(query, (person, before, limit)).fetchall())[::-1]

    async def erase(self, person: str) -> list[str]:
        def delete(db: sqlite3.Connection) -> list[str]:
            found = db.execute("SELECT number, session FROM sessions WHERE person=?", (person,)).fetchall()
            for table in ("sessions", "steps", "step_rewards"):
                db.executemany(f"DELETE FROM {table} WHERE number=?", [(number,) for number, _ in found])
            db.execute("UPDATE signals SET count=count+1 WHERE name='erased'")
            self._jobs.forget()
            return [name for _, name in found]

        names = await self._change(delete)
        # What was deleted must leave the write-ahead log, too.
        await self._in(
            self._writer, lambda: self._db and self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        )
        return names

    async def fill_defaults(self, reward: float, since: float, before: float, now: float) -> int:
        def fill(db: sqlite3.Connection) -> int:
            query = (
                "INSERT INTO step_rewards SELECT d.number, d.step, ?, ?, 1 FROM steps d LEFT JOIN step_rewards r "
                "USING(number, step) WHERE d.at>=? AND d.at<? AND r.number IS NULL"
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
                "WITH s AS (SELECT number, at AS began FROM steps WHERE step=0 AND at>=? AND at<? "
                "ORDER BY at DESC LIMIT ?) SELECT n.session, d.step, d.arm, r.reward, d.propensity, d.policy, d.at, "
                "d.explored, d.fallback, s.began FROM s JOIN sessions n USING(number) JOIN steps d USING(number) "
                "LEFT JOIN step_rewards r ON r.number=d.number AND r.step=d.step "
                "ORDER BY s.began, n.session, d.step"
            )
            return self._far.execute(query, (since, until, -1 if limit is None else limit)).fetchall()

        return await self._in(self._reader, read)
