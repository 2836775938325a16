"""What every store keeps, which jobs it may write, and the queue that puts many jobs into one commit.

Steps of a session are written in order: a step is stored only after the step before it, so the stored steps of a
session are always 0, 1, ..., length - 1. The first write of a step or a reward wins. `resolve` decides this for all
jobs of a commit before anything is inserted; both stores share it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlsplit, urlunsplit

from ..errors import InvalidFile
from .messages import Label, Problem

SCHEMA_VERSION = 4  # Version of the tables; a store with tables of another version is refused.
GAP = 1800.0  # seconds without a step after which a person has left
DEADLINE = 1.0  # seconds after which a request that waits for the store is refused
PASSWORD = "LMAB_STORE_PASSWORD"  # the environment variable that holds the password of the database
PASSWORD_FILE = "LMAB_STORE_PASSWORD_FILE"  # the one that names a file which holds it
_BUSY = 8  # requests of one commit from which on the next one waits a little
_LINGER = 0.005  # seconds; with a fast disk, less meant many small commits and a third more processor time
_TICK = 0.1  # seconds between two looks at requests that wait too long
_log = logging.getLogger("lmab.serve")


class Decision(NamedTuple):
    """A row of the table of decisions."""

    session: str
    step: int
    arm: int
    propensity: float | None
    policy: str
    at: float
    explored: int
    fallback: int
    preferred: int | None  # the policy's own arm, where a baseline was answered
    allowed: str | None  # the allowed labels as JSON, where the request named them
    person: str | None  # at step 0
    features: str | None = None  # at step 0: what is known before the session, as JSON

    def same(self, other: Decision) -> bool:
        """Whether both are the same answer; the time may differ."""
        return self[:5] == other[:5] and self.fallback == other.fallback


class RewardRow(NamedTuple):
    """A row of the table of rewards."""

    session: str
    step: int
    reward: float
    at: float
    defaulted: int  # 1: none came in time, so the default reward stands


class StoredStep(NamedTuple):
    """A step of a session with its reward, as the store has them."""

    decision: Decision
    reward: float | None
    defaulted: bool


class PlayedArm(NamedTuple):
    """A rewarded step of a person's earlier session."""

    arm: int
    reward: float
    session: str | int = 0  # its name or number: steps of one session follow one another


class LogRow(NamedTuple):
    """A step with its reward, as the log of all sessions has it."""

    session: str
    step: int
    arm: int
    reward: float | None
    propensity: float | None
    policy: str
    at: float
    explored: int
    fallback: int
    began: float  # time of the session's first step
    restricted: int  # 1: the request named the arms that were allowed
    told: float | None = None  # time of the reward
    known: int = 0  # 1: the session began with a person, whose earlier sessions may have informed it
    person: str | None = None
    features: str | None = None  # what was known before the session, as JSON


class ArmRow(NamedTuple):
    """An arm of the service; its number is its place in the list of arms."""

    label: Label
    is_open: bool


class VersionRow(NamedTuple):
    """A version of the policy, without its file."""

    version: str
    at: float
    note: str


class Rollout(NamedTuple):
    """An entry of the register: which versions new sessions get from now on."""

    active: str
    canary: str | None
    share: float
    at: float
    note: str


class Signals(NamedTuple):
    """Numbers that tell replicas to look again."""

    changed: int  # the register or the arms changed
    erased: int  # a person was erased


class Swept(NamedTuple):
    """How far a sweep of default rewards came."""

    filled: int
    until: float  # steps decided before this time have been looked at


class DayState(NamedTuple):
    """How much of one day the store holds: the export compares it with its files."""

    day: int  # days since 1970-01-01 on which the sessions began
    rows: int  # rewarded steps
    newest: float  # time of the last reward


class Bucket(NamedTuple):
    """Sessions of one version that began in one span of time, for the page."""

    policy: str
    began: int  # number of the span
    sessions: int
    steps: int
    reward: float  # sum over sessions
    reward_squares: float  # sum over sessions of the squared reward of the session
    length_squares: float  # sum over sessions of the squared number of steps
    explored: int
    fallback: int


class ArmCount(NamedTuple):
    """How often one arm was played at one step by the latest sessions."""

    step: int
    arm: int
    plays: int
    last: int = 0  # plays after which nothing was asked any more


@dataclass(slots=True)
class Job:
    """What one request wants written: all of it, or nothing. The other fields are the store's answer."""

    rewards: Sequence[RewardRow] = ()
    decision: Decision | None = None
    stored: Decision | None = None  # the row that is there now, which may be an earlier one
    conflict: RewardRow | None = None  # another reward was there first: nothing of this job was written
    refused: str = ""  # "gap": an earlier step is missing; "erased": nothing of this job was written
    outdated: bool = False  # a default reward was left out, because a reward had come


@dataclass(slots=True)
class Known:
    """What a store holds of the sessions of some jobs. `resolve` adds what it accepts."""

    lengths: dict[str, int]  # stored steps of each session; a session that is not here has none
    rewards: dict[tuple[str, int], RewardRow] = field(default_factory=dict)
    decisions: dict[tuple[str, int], Decision] = field(default_factory=dict)
    erased: AbstractSet[str] = frozenset()  # sessions that must not be stored again


class Accepted(NamedTuple):
    """Rows that are new."""

    rewards: list[RewardRow]
    decisions: list[Decision]


def resolve(jobs: Sequence[Job], known: Known) -> Accepted:
    """Decide job by job, in order, what may be written; fill in the answers of the jobs.

    A job whose reward contradicts a stored one, whose step does not follow the stored steps, or whose session was
    erased leaves no trace: the jobs after it see what the store would hold without it.
    """
    accepted = Accepted([], [])
    for job in jobs:
        job.stored, job.conflict, job.refused, job.outdated = None, None, "", False
        row, is_new = job.decision, False
        if row is not None:
            length = known.lengths.get(row.session, 0)
            is_new = row.step == length
            if row.step > length:
                job.refused = "gap"
            elif is_new and row.session in known.erased:
                job.refused = "erased"
        own = {} if job.refused else _own_rewards(job, known, is_new)
        if job.refused or job.conflict is not None:
            continue
        known.rewards.update(own)
        accepted.rewards.extend(own.values())
        if row is not None:
            if is_new:
                known.lengths[row.session] = row.step + 1
                known.decisions[row.session, row.step] = row
                accepted.decisions.append(row)
            job.stored = known.decisions[row.session, row.step]
    return accepted


def _own_rewards(job: Job, known: Known, is_new: bool) -> dict[tuple[str, int], RewardRow]:
    """The new rewards of a job; a contradiction or a missing step is noted in the job."""
    own: dict[tuple[str, int], RewardRow] = {}
    for reward in job.rewards:
        key = reward.session, reward.step
        found = known.rewards.get(key) or own.get(key)
        if found is None:
            row = job.decision
            decided = is_new and row is not None and (row.session, row.step) == key
            if not decided and reward.step >= known.lengths.get(reward.session, 0):
                job.refused = "gap"
                break
            own[key] = reward
        elif found.reward != reward.reward:
            if reward.defaulted:
                job.outdated = True
                continue
            job.conflict = found
            break
    return own


def tombstone(session: str) -> str:
    """What stays of the name of an erased session, so that no replica stores it again."""
    return hashlib.blake2b(session.encode(), digest_size=16, person=b"lmab-erased").hexdigest()


class Store(ABC):
    """Decisions and rewards, each written once; versions of policies; settings. Methods are coroutines."""

    @abstractmethod
    async def open(self) -> None:
        """Connect; make the tables in an empty store, refuse tables of another version."""

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def write(self, jobs: Sequence[Job]) -> None:
        """Write what `resolve` accepts of the jobs in one transaction that is durable on return."""

    @abstractmethod
    async def probe(self) -> None:
        """Write something small; raise where the store takes no writes."""

    @abstractmethod
    async def session(self, session: str) -> list[StoredStep]:
        """The steps of a session in order."""

    @abstractmethod
    async def person(self, person: str, before: float, limit: int) -> list[PlayedArm]:
        """The last `limit` rewarded steps of a person's latest sessions that began before a time."""

    @abstractmethod
    async def erase(self, person: str, now: float) -> list[str]:
        """Delete every session of a person, a few at a time, and leave tombstones; the names of the sessions."""

    @abstractmethod
    async def leftovers(self) -> list[str]:
        """Where rows that were deleted can still be read in the store's own files; tries to clean them."""

    @abstractmethod
    async def forget(self, before: float, limit: int) -> int:
        """Delete up to `limit` sessions that began before a time, and tombstones as old."""

    @abstractmethod
    async def fill_defaults(self, reward: float, since: float, before: float, now: float, limit: int) -> Swept:
        """Store `reward` for steps decided between `since` and `before` that have none; looks at about `limit`."""

    @abstractmethod
    async def setting(self, name: str, value: str | None) -> str | None:
        """The stored value of a setting; where there is none, `value` is stored first."""

    @abstractmethod
    async def set_setting(self, name: str, value: str, signal: bool = False) -> None:
        """Store another value of a setting; with `signal`, replicas look again."""

    @abstractmethod
    async def arms(self) -> list[ArmRow]:
        """Every arm in the order of the numbers."""

    @abstractmethod
    async def set_arms(self, labels: Sequence[Label]) -> None:
        """Add new labels after the known ones, and withdraw the labels that are missing."""

    @abstractmethod
    async def add_version(self, version: str, body: bytes, at: float, note: str) -> None: ...

    @abstractmethod
    async def version(self, version: str) -> bytes | None:
        """The file of a version."""

    @abstractmethod
    async def versions(self) -> list[VersionRow]:
        """All versions, the newest first."""

    @abstractmethod
    async def add_rollout(self, rollout: Rollout) -> None:
        """Add an entry to the register."""

    @abstractmethod
    async def rollouts(self, limit: int) -> list[Rollout]:
        """The last entries of the register, the newest first."""

    @abstractmethod
    async def signals(self) -> Signals: ...

    @abstractmethod
    async def rows(self, since: float, until: float) -> list[LogRow]:
        """Steps with their rewards of the sessions that began in a span of time, by session and step."""

    @abstractmethod
    async def days(self) -> list[DayState]:
        """The days on which rewarded sessions began, in order."""

    @abstractmethod
    async def buckets(self, since: float, width: float) -> list[Bucket]:
        """Sums over the sessions that began since a time, by version and span of `width` seconds."""

    @abstractmethod
    async def arm_counts(self, limit: int, idle: float) -> list[ArmCount]:
        """Plays by step and arm of about the latest `limit` sessions; a last step counts where it is before `idle`."""

    @abstractmethod
    async def latest(self, limit: int) -> list[str]:
        """The sessions that were decided last, the newest first."""

    @abstractmethod
    def exclusively(self) -> AbstractAsyncContextManager[bool]:
        """The right to refit, which one process has at a time; False: another one has it."""


def open_store(where: str) -> Store:
    """The store at a path (SQLite) or at a postgresql:// address; not yet open."""
    if where.startswith(("postgres://", "postgresql://")):
        from .postgres import PostgresStore

        return PostgresStore(_with_password(where))
    from .sqlite import SqliteStore

    return SqliteStore(where)


def _with_password(address: str) -> str:
    """The address with the password of the environment or of a file, where the address has none."""
    parts = urlsplit(address)
    if parts.password is not None or "@" not in parts.netloc:
        return address
    password = os.environ.get(PASSWORD, "") or _password_of_file(os.environ.get(PASSWORD_FILE, ""))
    if not password:
        return address
    user, _, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user}:{quote(password, safe='')}@{host}"))


def _password_of_file(path: str) -> str:
    try:
        return Path(path).read_text("utf-8").strip() if path else ""
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidFile(f"{PASSWORD_FILE} must name a file with a password, got {path}: {error}") from None


def without_secrets(where: str) -> str:
    """Where a store is, as it may be printed.

    Examples:
        >>> without_secrets("postgresql://lmab:hunter2@db:5432/shop?sslpassword=x")
        'postgresql://lmab@db:5432/shop'
        >>> without_secrets("postgresql://lmab:hun/ter?2@db/shop")
        'postgresql://lmab@db/shop'
        >>> without_secrets("events.db")
        'events.db'
    """
    scheme, found, rest = where.partition("://")
    if not found:
        return where
    before_query = re.split("[?#]", rest)[0]  # a password may hold any letter, also where it should have been quoted
    user, _, place = (before_query if "@" in before_query else rest).rpartition("@")
    name = re.split("[:/?#]", user)[0]
    return f"{scheme}://{name + '@' if name else ''}{re.split('[?#]', place)[0]}"


def check_schema(found: int, where: str) -> None:
    """Refuse tables of another version."""
    if found != SCHEMA_VERSION:
        raise InvalidFile(
            f"{without_secrets(where)}: the tables must be of version {SCHEMA_VERSION}, got version {found}: "
            "use the release that made them, or another store"
        )


def told(error: BaseException) -> str:
    """What anybody who asks may know of an error: neither where the store is nor what a driver says of it.

    Examples:
        >>> told(InvalidFile("/var/lib/lmab/events.db: the file was deleted"))
        'the file was deleted'
        >>> told(OSError("no route to db.example"))
        'OSError'
    """
    return str(error).split(": ", 1)[-1] if isinstance(error, InvalidFile) else type(error).__name__


@dataclass(slots=True)
class _Waiting:
    job: Job
    future: asyncio.Future[None]
    until: float  # by the clock of the queue


class Commits:
    """A queue in front of a store: what comes while one commit runs is written by the next one.

    `limit` bounds how many requests may wait, `deadline` how long. `trouble` says why the last write failed; it is
    empty while writes succeed. A batch that fails is written again job by job, so that one bad job harms no other.
    """

    def __init__(self, store: Store, limit: int, deadline: float = DEADLINE) -> None:
        self.store, self.limit, self.deadline = store, limit, deadline
        self.trouble = ""
        self.last_success = 0.0  # by the clock of the event loop
        self.n_commits = self.n_jobs = self.n_failed = 0
        self._waiting: list[_Waiting] = []
        self._under_way: dict[int, list[_Waiting]] = {}
        self._task: asyncio.Task[None] | None = None
        self._alone: set[asyncio.Task[None]] = set()
        self._clock = 0.0  # seconds in which the event loop had time; while it is busy, nobody's deadline passes
        self._ticked = 0.0
        self._ticking = False

    @property
    def depth(self) -> int:
        """How many requests wait for the next commit."""
        return len(self._waiting)

    async def commit(self, job: Job) -> None:
        """Return when the job is durable; raise `Problem` where it is not."""
        if len(self._waiting) >= self.limit:
            raise Problem("busy", f"{self.limit} requests wait for the store: try again in a moment")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.append(_Waiting(job, future, self._clock + self.deadline))
        if self._task is None:
            self._task = asyncio.create_task(self._drain())
        if not self._ticking:
            self._ticking, self._ticked = True, loop.time()
            loop.call_later(_TICK, self._tick)
        await future

    async def finish(self) -> None:
        """Wait until everything is written or refused."""
        while self._task is not None or self._alone:
            await asyncio.wait([*([] if self._task is None else [self._task]), *self._alone])

    async def probe(self) -> str:
        """Try a small write; why it failed, or nothing."""
        try:
            await asyncio.wait_for(self.store.probe(), self.deadline)
        except Exception as error:
            self._failed(error)
        else:
            self._succeeded()
        return self.trouble

    def _tick(self) -> None:
        """Refuse the requests that have waited too long; the store may still write what is under way."""
        loop = asyncio.get_running_loop()
        self._clock, self._ticked = self._clock + min(loop.time() - self._ticked, 2 * _TICK), loop.time()
        for batch in (self._waiting, *self._under_way.values()):
            for waiting in batch:
                if waiting.until <= self._clock and not waiting.future.done():
                    waiting.future.set_exception(
                        Problem("no-store", f"the store did not answer within {self.deadline:g} s: try again")
                    )
        self._ticking = bool(self._waiting or self._under_way)
        if self._ticking:
            loop.call_later(_TICK, self._tick)

    async def _drain(self) -> None:
        try:
            last = 0
            while self._waiting:
                if last >= _BUSY:  # those who were just answered are about to ask again: one larger commit costs less
                    await asyncio.sleep(_LINGER)
                batch, self._waiting = self._waiting, []
                last = len(batch)
                error = await self._write(batch)
                if error is not None:
                    await self._write_again(batch, error)
        finally:
            self._task = None

    async def _write(self, batch: list[_Waiting]) -> Exception | None:
        """Write a batch and answer it; the error where it failed."""
        asked = [waiting for waiting in batch if not waiting.future.done()]  # the others were refused, or left
        if not asked:
            return None
        self._under_way[id(batch)] = batch
        try:
            await self.store.write([waiting.job for waiting in asked])
        except Exception as error:
            return error
        finally:
            del self._under_way[id(batch)]
        self.n_commits += 1
        self.n_jobs += len(asked)
        self._succeeded()
        _answer(asked, None)
        return None

    async def _write_again(self, batch: list[_Waiting], error: Exception) -> None:
        """Where the store takes other writes, a job of the batch is at fault: try each of them alone."""
        if len(batch) > 1 and not await self.probe():
            for waiting in batch:
                task = asyncio.create_task(self._write_alone(waiting))
                self._alone.add(task)
                task.add_done_callback(self._alone.discard)
            return
        if len(batch) == 1:
            await self.probe()
        self._refuse(batch, error)

    async def _write_alone(self, waiting: _Waiting) -> None:
        error = await self._write([waiting])
        if error is not None:
            self._refuse([waiting], error)

    def _refuse(self, batch: list[_Waiting], error: Exception) -> None:
        self.n_failed += len(batch)
        _log.error("%d requests could not be stored: %s", len(batch), type(error).__name__)
        _answer(batch, Problem("no-store", f"the store did not take this: {told(error)}"))

    def _succeeded(self) -> None:
        self.last_success = asyncio.get_running_loop().time()
        if self.trouble:
            _log.warning("the store takes writes again")
        self.trouble = ""

    def _failed(self, error: BaseException) -> None:
        trouble = f"the store takes no writes: {told(error)}"
        if trouble != self.trouble:
            _log.error("%s: %s", trouble, error)
        self.trouble = trouble


def _answer(batch: Sequence[_Waiting], problem: Problem | None) -> None:
    for waiting in batch:
        if not waiting.future.done():  # a client that went away has cancelled its own
            if problem is None:
                waiting.future.set_result(None)
            else:
                waiting.future.set_exception(problem)
