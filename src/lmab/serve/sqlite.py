"""SqliteStore: one file in WAL mode; a commit is on the disk before it is answered.

Sessions are numbered in the order of their first step, and steps are kept by that number. Sessions that are played at
the same time are then neighbours in the file, so that one commit writes few pages: keyed by the names of sessions, each
row had a page of its own, and a commit took twice the processor time.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import cache
from itertools import chain
from typing import Any, ClassVar
from urllib.parse import quote

from ..errors import InvalidFile
from . import stores
from .stores import (
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

MOST = 128  # rows of one statement
_KNOWN = 50_000  # sessions with remembered numbers
_WAIT = 0.4  # seconds for which a write waits for another process that holds the file
_PRAGMAS = (
    "journal_mode=WAL", "synchronous=FULL", "wal_autocheckpoint=10000", "secure_delete=ON",
    "journal_size_limit=67108864",  # after a checkpoint the write-ahead log is cut to this many bytes
    "temp_store=MEMORY",  # a statement of many rows keeps a journal of its own, which otherwise is a file on the disk
)  # fmt: skip
_STEP = "step, arm, propensity, policy, at, explored, fallback, preferred, allowed"
_REWARD = "step, reward, at, defaulted"
_TABLES = (  # of version 4: later versions are made by migrations
    "CREATE TABLE {people}(number INTEGER PRIMARY KEY, session TEXT NOT NULL UNIQUE, person TEXT, features TEXT)",
    "CREATE TABLE {steps}(number INTEGER NOT NULL, step INTEGER NOT NULL, arm INTEGER NOT NULL, "
    "propensity REAL, policy TEXT NOT NULL, at REAL NOT NULL, explored INTEGER NOT NULL, fallback INTEGER NOT NULL, "
    "preferred INTEGER, allowed TEXT, PRIMARY KEY(number, step)) WITHOUT ROWID",
    "CREATE TABLE {rewards}(number INTEGER NOT NULL, step INTEGER NOT NULL, reward REAL NOT NULL, "
    "at REAL NOT NULL, defaulted INTEGER NOT NULL, PRIMARY KEY(number, step)) WITHOUT ROWID",
    "CREATE INDEX {by_person} ON {people}(person) WHERE person IS NOT NULL",
    "CREATE INDEX {by_time} ON {steps}(at)",
    "CREATE TABLE {tombstones}(session TEXT PRIMARY KEY, at REAL NOT NULL) WITHOUT ROWID",
    "CREATE TABLE {settings}(name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE {arms}(arm INTEGER PRIMARY KEY, label TEXT NOT NULL UNIQUE, open INTEGER NOT NULL)",
    "CREATE TABLE {policies}(version TEXT PRIMARY KEY, at REAL NOT NULL, note TEXT NOT NULL, body BLOB NOT NULL)",
    "CREATE TABLE {register}(number INTEGER PRIMARY KEY AUTOINCREMENT, active TEXT NOT NULL, canary TEXT, "
    "share REAL NOT NULL, at REAL NOT NULL, note TEXT NOT NULL)",
    "CREATE TABLE {signals}(name TEXT PRIMARY KEY, count INTEGER NOT NULL)",
    "INSERT INTO {signals} VALUES('changed', 0), ('erased', 0)",
    # For SQL of the users:
    f"CREATE VIEW {{decided}} AS SELECT session, {_STEP}, CASE step WHEN 0 THEN person END AS person, "
    "CASE step WHEN 0 THEN features END AS features "
    "FROM {steps} JOIN {people} USING(number)",
    f"CREATE VIEW {{rewarded}} AS SELECT session, {_REWARD} FROM {{rewards}} JOIN {{people}} USING(number)",
    "CREATE VIEW {labelled} AS SELECT session, step, json_extract('[' || label || ']', '$[0]') AS label, reward, "
    "propensity, policy, datetime(d.at, 'unixepoch') AS decided, explored, fallback FROM {steps} d "
    "JOIN {people} USING(number) JOIN {arms} USING(arm) LEFT JOIN {rewards} r USING(number, step)",
)
_NAMES = {
    "steps": "steps", "rewards": "step_rewards", "people": "sessions", "decided": "decisions", "rewarded": "rewards",
    "labelled": "labelled", "exported": "exported", "by_person": "sessions_person", "by_time": "steps_at",
    **stores.SHARED,
}  # fmt: skip


def make_tables(db: sqlite3.Connection, path: str = "the file", create: bool = True) -> None:
    """Bring the tables up to date, or create them in an empty file; refuse tables of a newer version."""
    if _version(db) == stores.SCHEMA_VERSION and _is_complete(db):
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        version, (n_tables,) = _version(db), db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if version == 0 and n_tables == 0 and not create:
            raise InvalidFile(f"{path}: there is no store in this file; `lmab serve` makes it")
        tables = _TABLES if version == 0 and n_tables == 0 else ()
        found = db.execute("SELECT name FROM experiments").fetchall() if _is_complete(db) else [(stores.DEFAULT,)]
        for (experiment,) in found:
            names = stores.table_names(_NAMES, experiment)
            for statement in (*tables, *stores.migrations(stores.FIRST_VERSION if tables else version, path)):
                db.execute(statement.format(**names))
        for statement in stores.ADDITIONS:
            db.execute(statement)
        for (experiment,) in found:
            db.execute(SqliteStore.view.format(**stores.table_names(_NAMES, experiment), **SqliteStore.dialect))
        db.execute(f"PRAGMA user_version={stores.SCHEMA_VERSION}")
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


def _is_complete(db: sqlite3.Connection) -> bool:
    return db.execute("SELECT 1 FROM sqlite_master WHERE name='exported'").fetchone() is not None


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


class Writer:
    """Writer of the jobs of a commit in few statements; caches sessions until another process writes."""

    def __init__(self, db: sqlite3.Connection, path: str = "the file", names: Mapping[str, str] = _NAMES) -> None:
        self.db, self.path, self.names = db, path, names
        self._numbers: dict[str, int] = {}
        self._lengths: dict[str, int] = {}
        self._tombstones = True  # whether there may be any
        self._data_version = -1

    def forget(self) -> None:
        """Clear the cache: sessions were erased, or a transaction was rolled back."""
        self._numbers.clear()
        self._lengths.clear()
        self._tombstones = True

    def try_to_write(self, jobs: Sequence[Job], careful: bool) -> bool:
        """Insert the rows that `resolve` accepts; return False if the transaction must begin anew, with stored rewards.

        Rewards are usually new, so the stored ones are read only if an insert meets one or a job is refused.
        """
        if careful:
            self._lengths.clear()
        known = self._known(jobs)
        if careful:
            known.rewards = self._stored_rewards(jobs)
        accepted = resolve(jobs, known)
        return (careful or not any(job.refused or job.conflict for job in jobs)) and self._insert_all(accepted)

    def _known(self, jobs: Sequence[Job]) -> Known:
        """Return the lengths of the jobs' sessions, and the stored rows of repeated steps."""
        (version,) = self.db.execute("PRAGMA data_version").fetchone()
        if version != self._data_version or len(self._numbers) > _KNOWN:  # it changes when another process has written
            stores.migrations(_version(self.db), self.path)  # raises if a newer program has migrated the file
            self._data_version = version
            self.forget()
        names = {reward.session for job in jobs for reward in job.rewards}
        names.update(job.decision.session for job in jobs if job.decision is not None)
        missing = [name for name in names if name not in self._lengths]
        query = (
            "SELECT session, number, coalesce((SELECT max(step) + 1 FROM {steps} d WHERE d.number=n.number), 0) "
            "FROM {people} n WHERE session IN"
        )
        for session, number, length in self._select(query, missing):
            self._numbers[session], self._lengths[session] = number, length
        known = Known(self._lengths)
        for job in jobs:
            row = job.decision
            if row is not None and row.step < self._lengths.get(row.session, 0):
                query = "SELECT * FROM {decided} WHERE session=? AND step=?".format(**self.names)
                known.decisions[row[:2]] = Decision(*self.db.execute(query, row[:2]).fetchone())
        if self._tombstones:
            self._tombstones = self._first("SELECT 1 FROM {tombstones} LIMIT 1") is not None
        if self._tombstones:
            new = {tombstone(name): name for name in missing if name not in self._lengths}
            found = self._select("SELECT session FROM {tombstones} WHERE session IN", list(new))
            known.erased = {new[mark] for (mark,) in found}
        return known

    def _insert_all(self, accepted: Accepted) -> bool:
        """Insert rows; return False if a row of the same key exists."""
        first = [row for row in accepted.decisions if row.step == 0]
        for start in range(0, len(first), MOST):
            part = first[start : start + MOST]
            statement = (
                _statement(f"{self.names['people']}(session, person, features)", len(part), 3)
                + " RETURNING session, number"
            )
            values = list(chain.from_iterable((row.session, row.person, row.features) for row in part))
            self._numbers.update(self.db.execute(statement, values).fetchall())
        numbers = self._numbers
        rewards = [(numbers[row[0]], *row[1:]) for row in accepted.rewards]
        decisions = [(numbers[row[0]], *row[1:10]) for row in accepted.decisions]
        return self._insert(self.names["rewards"], rewards) and self._insert(self.names["steps"], decisions)

    def _insert(self, table: str, rows: Sequence[tuple[Any, ...]]) -> bool:
        """Insert rows; return False if a key exists.

        Many rows go into one statement, because the driver lets other threads run at every statement, and a writer
        that has to wait its turn for every row is slow.
        """
        inserted = 0
        for start in range(0, len(rows), MOST):
            part = rows[start : start + MOST]
            statement = _statement(table, len(part), len(part[0]))
            inserted += self.db.execute(statement, list(chain.from_iterable(part))).rowcount
        return inserted == len(rows)

    def _first(self, query: str) -> tuple[Any, ...] | None:
        found: tuple[Any, ...] | None = self.db.execute(query.format(**self.names)).fetchone()
        return found

    def _select(self, query: str, keys: Sequence[str]) -> Iterable[tuple[Any, ...]]:
        for start in range(0, len(keys), MOST):
            part = keys[start : start + MOST]
            yield from self.db.execute(f"{query.format(**self.names)} ({','.join('?' * len(part))})", part).fetchall()

    def _stored_rewards(self, jobs: Sequence[Job]) -> dict[tuple[str, int], RewardRow]:
        found = {}
        query = f"SELECT {_REWARD} FROM {self.names['rewards']} WHERE number=? AND step=?"
        for session, step in {(reward.session, reward.step) for job in jobs for reward in job.rewards}:
            row = self.db.execute(query, (self._numbers.get(session, -1), step)).fetchone()
            if row is not None:
                found[session, step] = RewardRow(session, *row)
        return found


def write_together(groups: Sequence[tuple[Writer, Sequence[Job]]]) -> None:
    """Write the jobs of several experiments in one transaction, which has begun."""
    for careful in (False, True):
        if all(writer.try_to_write(jobs, careful) for writer, jobs in groups):
            return
        groups[0][0].db.execute("ROLLBACK")
        groups[0][0].db.execute("BEGIN IMMEDIATE")
    raise sqlite3.IntegrityError("a row that was absent is present")


@cache
def _statement(table: str, n_rows: int, n_columns: int) -> str:
    marks = ",".join(["(" + ",".join("?" * n_columns) + ")"] * n_rows)
    return f"INSERT INTO {table} VALUES {marks} ON CONFLICT DO NOTHING"


class SqliteStore(Store):
    """One writer thread; every transaction is synced to the disk (synchronous=FULL)."""

    tables = _NAMES
    dialect: ClassVar = {
        "key": "number", "latest": "number", "first": "", "floor": "", "among": "IN (SELECT value FROM json_each(?))",
        "schema": "user_version FROM pragma_user_version",
        "label": "json_extract('[' || a.label || ']', '$[0]')",
        "preferred": "json_extract('[' || p.label || ']', '$[0]')",
    }  # fmt: skip
    creation = _TABLES
    view = f"CREATE {stores.EXPORT_VIEW}".replace("VIEW", "VIEW IF NOT EXISTS", 1)

    def __init__(self, path: str) -> None:
        self.path = path
        self._writer = ThreadPoolExecutor(1, "lmab-writer")
        self._reader = ThreadPoolExecutor(1, "lmab-reader")  # for queries of requests
        self._far_reader = ThreadPoolExecutor(1, "lmab-far-reader")  # for long queries
        self._db: sqlite3.Connection | None = None
        self._inode = (0, 0)
        self._unclean = False  # deleted rows are in the write-ahead log
        self._own_writers: dict[str, Writer] = {}  # by experiment
        self._use(stores.DEFAULT)

    def _use(self, experiment: str) -> None:
        self.experiment, self.names = experiment, stores.table_names(self.tables, experiment) | self.dialect
        if self._db is not None:
            self._jobs = self._own_writers[experiment] = Writer(self._db, self.path, self.names)

    async def open(self, create: bool = True) -> None:
        await self._in(self._writer, self._connect, create)

    async def open_to_read(self) -> None:
        def connect() -> None:
            address = f"file:{quote(os.path.abspath(self.path))}?mode=ro"
            self._near = self._far = sqlite3.connect(address, uri=True, check_same_thread=False, timeout=10.0)

        try:
            await self._in(self._far_reader, connect)
        except sqlite3.OperationalError:
            raise InvalidFile(f"{self.path}: there is no such store; `lmab serve` makes it") from None

    def _connect(self, create: bool) -> None:
        if self._db is not None:
            return
        if not create and not os.path.exists(self.path):
            raise InvalidFile(f"{self.path}: there is no such store; `lmab serve` makes it")
        os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))  # only the owner may read sessions of persons
        db = self._connection(_WAIT)
        try:
            for pragma in _PRAGMAS:
                db.execute(f"PRAGMA {pragma}")
            make_tables(db, self.path, create)
        except BaseException:
            db.close()
            raise
        self._near, self._far = self._connection(_WAIT), self._connection(10.0)
        found = os.stat(self.path)
        self._inode = found.st_dev, found.st_ino
        self._db = db
        self._use(self.experiment)

    def _connection(self, timeout: float) -> sqlite3.Connection:
        return sqlite3.connect(
            self.path, check_same_thread=False, isolation_level=None, timeout=timeout, cached_statements=5 * MOST
        )

    async def close(self) -> None:
        if self.experiment != stores.DEFAULT:  # the connections belong to the whole store
            return

        def shut() -> None:
            if self._db is not None:
                for one in (self._near, self._far, self._db):
                    one.close()
                self._db = None

        await self._in(self._writer, shut)
        for pool in (self._writer, self._reader, self._far_reader):
            pool.shutdown()

    async def _in(self, pool: ThreadPoolExecutor, function: Callable[..., Value], *arguments: Any) -> Value:
        return await asyncio.get_running_loop().run_in_executor(pool, function, *arguments)

    async def _change(self, function: Callable[[sqlite3.Connection], Value]) -> Value:
        """Run in the writer thread, as one transaction."""

        def transaction() -> Value:
            if self._db is None:
                raise InvalidFile(f"{self.path}: the store is not open")
            self._db.execute("BEGIN IMMEDIATE")
            try:
                value = function(self._db)
                self._db.execute("COMMIT")
                self._check_file()
            except BaseException:
                for writer in self._own_writers.values():
                    writer.forget()
                if self._db.in_transaction:  # a full disk may have ended it already
                    self._db.execute("ROLLBACK")
                raise
            return value

        return await self._in(self._writer, transaction)

    async def _ask(self, query: str, *values: Any, far: bool = False) -> list[tuple[Any, ...]]:
        """Return rows, read in a thread, because there may be many."""

        def read() -> list[tuple[Any, ...]]:
            return (self._far if far else self._near).execute(query.format(**self.names), values).fetchall()

        return await self._in(self._far_reader if far else self._reader, read)

    async def _do(self, *statements: Statement, far: bool = False, guarded: bool = False) -> list[int]:
        def run(db: sqlite3.Connection) -> list[int]:
            stores.migrations(_version(db), self.path)  # likewise
            counts: list[int] = []
            for text, *values in statements:
                counts.append(db.execute(text.format(**self.names), values).rowcount)
                if guarded and counts == [0]:
                    break
                if text.startswith("DELETE") and counts[-1]:
                    self._unclean = True
                    self._jobs.forget()
            return counts

        return await self._change(run)

    # Decisions and rewards

    async def write(self, jobs: Sequence[Job]) -> None:
        groups = [(self._own_writers[name], group) for name, group in by_experiment(jobs).items()]
        await self._change(lambda db: write_together(groups))

    def _check_file(self) -> None:
        """Raise `InvalidFile` if another program deleted or replaced the file: later writes would be lost."""
        try:
            found = os.stat(self.path)
        except OSError:
            raise InvalidFile(f"{self.path}: the file was deleted") from None
        if (found.st_dev, found.st_ino) != self._inode:
            raise InvalidFile(f"{self.path}: the file was replaced while it was open: start the service again")

    async def leftovers(self) -> list[str]:
        def truncate() -> bool:
            with sqlite3.connect(self.path, isolation_level=None, timeout=0) as db:
                db.execute("PRAGMA wal_checkpoint(PASSIVE)")  # writers go on; the next line then has little to do
                busy, *_ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            db.close()
            return not busy

        if self._unclean:
            with suppress(sqlite3.OperationalError):
                self._unclean = not await self._in(self._far_reader, truncate)
        return [f"{self.path}-wal, until no other program reads the file"] if self._unclean else []

    async def size(self) -> tuple[int, int | None]:
        files = [self.path, f"{self.path}-wal"]
        size = sum(os.stat(file).st_size for file in files if os.path.exists(file))
        return size, shutil.disk_usage(os.path.dirname(os.path.abspath(self.path))).free

    @asynccontextmanager
    async def exclusively(self) -> AsyncIterator[bool]:
        name = "refit" if self.experiment == stores.DEFAULT else f"{self.experiment}.refit"
        handle = os.open(f"{os.path.realpath(self.path)}.{name}", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
                return
            yield True
        finally:
            os.close(handle)
