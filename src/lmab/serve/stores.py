"""Rows of the store, the rules for writing them, and the queries that SQLite and PostgreSQL share.

A store holds experiments. Each has a set of tables of its own in the same database: tables of the experiment `default`
have plain names, and tables of another one have its name in front ("checkout.arms"). `Store.of` gives the same store
for another experiment, which shares connections and commits.

A store has tables of one version. Opening an older one migrates it in one transaction (`MIGRATIONS`); a newer one is
refused, also by a process that is running when another one migrates the store: it stops writing and is not ready.
`ADDITIONS` only add tables, do not change the version, and leave running processes of the release before alone.

Compare-and-set: read `signals()` first, then pass `Signals.register` to `add_rollout` or `Signals.arms` to `set_arms`
and `put_arm` as `after`; False means that another process was faster and nothing was changed. `removals()` lists
forgotten and erased sessions; each of them increments `Signals.erased`, and replicas clear their sessions in memory.

Steps of a session are stored in order, so that they are always 0, 1, ..., length - 1. The first write of a step or a
reward wins. `resolve` decides this for all jobs of a commit before anything is inserted; both stores share it.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
import math
import os
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, TypeVar
from urllib.parse import quote

from ..errors import InvalidArgument, InvalidFile
from .messages import Label

DEFAULT = "default"  # experiment of the paths without a name
FORCED = 2  # value of `fallback`: a tester named the arm
GAP = 1800.0  # seconds without a step after which a person has left
DEADLINE = 1.0  # seconds after which a request that waits for the store is refused
POSTGRES = ("postgres://", "postgresql://")  # how the address of a database begins
PASSWORD = "LMAB_STORE_PASSWORD"  # the environment variable that holds the password of the database
PASSWORD_FILE = "LMAB_STORE_PASSWORD_FILE"  # the one that names a file which holds it


class Decision(NamedTuple):
    """Row of the table of decisions."""

    session: str
    step: int
    arm: int
    propensity: float | None
    policy: str
    at: float
    explored: int
    fallback: int  # 1: the policy could not be asked; `FORCED`
    preferred: int | None  # the policy's own arm, if a baseline was answered
    allowed: str | None  # the allowed labels as JSON, if the request named them
    person: str | None  # at step 0
    features: str | None = None  # at step 0: features, as JSON

    def same(self, other: Decision) -> bool:
        """Return whether both are the same answer; the time may differ."""
        return self[:5] == other[:5] and self.fallback == other.fallback


class RewardRow(NamedTuple):
    """Row of the table of rewards."""

    session: str
    step: int
    reward: float
    at: float
    defaulted: int  # 1: none came in time, so the default reward stands


class StoredStep(NamedTuple):
    """Stored step of a session with its reward."""

    decision: Decision
    reward: float | None
    defaulted: bool


class PlayedArm(NamedTuple):
    """Rewarded step of a person's earlier session."""

    arm: int
    reward: float
    session: str | int = 0  # its name or number: steps of one session follow one another


class LogRow(NamedTuple):
    """Step with its reward and its session's features, as exports and refits read it."""

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
    known: int = 0  # 1: the session began with a person: earlier sessions may have informed it
    person: str | None = None
    features: str | None = None  # as JSON


class ArmState(IntEnum):
    """State of an arm for live traffic."""

    WITHDRAWN = 0
    OPEN = 1
    KNOWN = 2  # a stored policy names the arm, which was never opened


class ArmRow(NamedTuple):
    """Arm of the service; its number is its place in the list of arms."""

    label: Label
    state: ArmState

    @property
    def is_open(self) -> bool:
        """Return whether live traffic may play the arm."""
        return self.state == ArmState.OPEN


class ExperimentRow(NamedTuple):
    """Experiment of a store; its settings, arms and register are in its own tables."""

    name: str
    at: float  # time of its creation
    archived: bool  # it is not served, and its rows stay


class VersionRow(NamedTuple):
    """Version of the policy, without its file."""

    version: str
    at: float
    note: str


class Rollout(NamedTuple):
    """Entry of the register: the versions that new sessions get from then on."""

    active: str
    canary: str | None
    share: float
    at: float
    note: str


class Signals(NamedTuple):
    """Counters that, once changed, make replicas read the store again."""

    changed: int  # settings changed
    erased: int  # sessions were erased or forgotten
    erasures: int  # persons were erased
    register: int  # number of the last entry of the register
    arms: int  # arms were added or changed


class Removals(NamedTuple):
    """Record of the sessions that are gone on purpose; exports may drop these sessions and no others."""

    forgotten_before: float  # sessions that began before this time are forgotten, or are about to be
    sessions: frozenset[str]  # `tombstone(name)` of the erased sessions that began since
    persons: Mapping[str, float]  # `person_mark(name)` of each erased person, and when
    erasures: int  # as in `Signals`: it changes with every erasure of a person

    def covers(self, session: str, began: float) -> bool:
        """Return whether a session was forgotten or erased."""
        return began < self.forgotten_before or tombstone(session) in self.sessions


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
    """Rows of one request, of which all are written or none. The other fields are the store's answer."""

    rewards: Sequence[RewardRow] = ()
    decision: Decision | None = None
    stored: Decision | None = None  # the row that is there now, which may be an earlier one
    conflict: RewardRow | None = None  # another reward is stored: nothing of this job was written
    refused: str = ""  # "gap": an earlier step is missing; "erased": nothing of this job was written
    outdated: bool = False  # a default reward was left out, because a reward had come
    experiment: str = DEFAULT


@dataclass(slots=True)
class Known:
    """Stored state of the sessions of some jobs. `resolve` adds the rows that it accepts."""

    lengths: dict[str, int]  # stored steps of each session; a session that is not here has none
    rewards: dict[tuple[str, int], RewardRow] = field(default_factory=dict)
    decisions: dict[tuple[str, int], Decision] = field(default_factory=dict)
    erased: AbstractSet[str] = frozenset()  # sessions that must not be stored again


class Accepted(NamedTuple):
    """Rows that are new."""

    rewards: list[RewardRow]
    decisions: list[Decision]


def resolve(jobs: Sequence[Job], known: Known) -> Accepted:
    """Decide job by job, in order, which rows may be written; fill in the answers of the jobs.

    A job that contradicts a stored reward, does not continue the stored steps, or belongs to a session that was
    erased leaves no trace: the jobs after it see the store without it.
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
    """Return the new rewards of a job; a contradiction or a missing step is noted in the job."""
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


def check_experiment(name: str) -> None:
    """Raise `InvalidArgument` if a text cannot be the name of an experiment."""
    if not re.fullmatch("[a-z][a-z0-9_-]{0,39}", name):
        text = "must begin with a to z and have at most 40 characters of a to z, 0 to 9, _ and -"
        raise InvalidArgument(f"the name of an experiment {text}, got {name!r}")


def table_names(tables: Mapping[str, str], experiment: str) -> dict[str, str]:
    """Return the names of the tables of an experiment, quoted if they need it."""
    if experiment == DEFAULT:
        return dict(tables)
    return {key: f'"{experiment}.{table}"' for key, table in tables.items()}


def by_experiment(jobs: Sequence[Job]) -> dict[str, list[Job]]:
    """Return the jobs of each experiment."""
    found: dict[str, list[Job]] = {}
    for job in jobs:
        found.setdefault(job.experiment, []).append(job)
    return found


def tombstone(session: str) -> str:
    """Return the hash of an erased session's name, by which no replica stores it again."""
    return hashlib.blake2b(session.encode(), digest_size=16, person=b"lmab-erased").hexdigest()


def person_mark(person: str) -> str:
    """Return the hash of an erased person's name, by which other copies of their sessions are deleted."""
    return hashlib.blake2b(person.encode(), digest_size=16, person=b"lmab-person").hexdigest()


Value = TypeVar("Value")
Statement = tuple[Any, ...]  # SQL text, then its values
_CHUNK = 50  # sessions that are deleted in one transaction, so that decisions get their turn
_RECENT = 500  # sessions of a person that are read
_FORGOTTEN, _STORE_ID, _SERVED = "forgotten", "store", "serve."  # names of settings, the last one a prefix
_REMOVED: Statement = ("UPDATE {counters} SET count=count+1 WHERE name='erased'",)
_ERASED: Statement = ("UPDATE {counters} SET count=count+1 WHERE name IN ('erased', 'erasures')",)

# Migrations by the version that they make, for both databases: statements that run in one transaction, the tables of
# version 4 being the first. A new store runs all of them, too. Renaming `signals` stops processes of version 4.
MIGRATIONS: dict[int, Sequence[str]] = {
    5: (
        "ALTER TABLE {signals} RENAME TO {counters}",
        "INSERT INTO {counters} SELECT 'register', count(*) FROM {register}",
        "INSERT INTO {counters} VALUES('arms', 0), ('erasures', 0)",
        "CREATE TABLE {erasures}(person TEXT PRIMARY KEY, at FLOAT NOT NULL)",
    )
}
# Statements that only add tables, for the whole store; each may run again. A release that needs more of an existing
# table migrates instead.
ADDITIONS = (
    "CREATE TABLE IF NOT EXISTS experiments(name TEXT PRIMARY KEY, at FLOAT NOT NULL, archived INT NOT NULL)",
    f"INSERT INTO experiments VALUES('{DEFAULT}', 0, 0) ON CONFLICT DO NOTHING",
)
SHARED = {  # tables that have the same columns in both databases
    name: name for name in ("settings", "arms", "policies", "register", "signals", "counters", "tombstones", "erasures")
}
# Columns of the view `exported` of every experiment, and of `lmab export`: one row for each decision.
EXPORTED = {
    "session": "n.session", "person": "n.person", "features": "n.features", "began": "s.at", "step": "d.step",
    "arm": "{label}", "propensity": "d.propensity", "preferred": "{preferred}", "explored": "d.explored",
    "fallback": "CASE d.fallback WHEN 1 THEN 1 ELSE 0 END",
    "forced": f"CASE d.fallback WHEN {FORCED} THEN 1 ELSE 0 END",
    "version": "d.policy", "decided": "d.at", "allowed": "d.allowed", "reward": "r.reward", "rewarded": "r.at",
    "defaulted": "r.defaulted",
}  # fmt: skip
EXPORT_VIEW = (
    f"VIEW {{exported}} AS SELECT {', '.join(f'{source} AS {name}' for name, source in EXPORTED.items())} "
    "FROM {steps} s JOIN {people} n ON n.{key}=s.{key} {first} JOIN {steps} d ON d.{key}=s.{key} "
    "JOIN {arms} a ON a.arm=d.arm LEFT JOIN {arms} p ON p.arm=d.preferred "
    "LEFT JOIN {rewards} r ON r.{key}=d.{key} AND r.step=d.step WHERE s.step=0"
)
SCHEMA_VERSION = max(MIGRATIONS)
FIRST_VERSION = min(MIGRATIONS) - 1


class NewerStore(InvalidFile):
    """Store with tables of a newer release, which this program must not write."""


def migrations(found: int, where: str) -> list[str]:
    """Return the statements that bring tables of version `found` up to date; raise `InvalidFile` if none can."""
    if found > SCHEMA_VERSION:
        raise NewerStore(
            f"{without_secrets(where)}: the store has tables of version {found}, and this program knows versions up to "
            f"{SCHEMA_VERSION}: use the newer release that migrated the store"
        )
    if found < FIRST_VERSION:
        raise InvalidFile(
            f"{without_secrets(where)}: the tables must be of version {FIRST_VERSION} or newer, got version {found}: "
            "use the release that made them, or another store"
        )
    return [text for version in range(found + 1, SCHEMA_VERSION + 1) for text in (*MIGRATIONS[version], _REMOVED[0])]


class Store(ABC):
    """Decisions and rewards, each written once; versions of policies; settings. Methods are coroutines.

    Every query stands here once, in SQL that both databases take; a driver runs it. `tables` are the driver's names for
    the tables of steps and rewards, for the table that holds the person of each session (`people`) and for the others;
    `dialect` has the column that joins them (`key`) and differences between the databases, such as `{among}`: whether
    a value is in a JSON list. `names` are both, for the experiment of the store.
    """

    tables: ClassVar[Mapping[str, str]]
    dialect: ClassVar[Mapping[str, str]]
    creation: ClassVar[Sequence[str]]  # statements that make the tables of an experiment, of the first version
    view: ClassVar[str]  # statement that makes the view `exported` of an experiment if there is none
    names: Mapping[str, str]
    experiment = DEFAULT
    address = ""  # of a database, with the password
    pause = 0.0  # least seconds between two chunks of a deletion: each makes commits under way read the store again

    @abstractmethod
    def _use(self, experiment: str) -> None:
        """Set the experiment, the names of its tables, and forget its sessions."""

    def of(self, experiment: str) -> Self:
        """Return this store, which must be open, for another experiment; both share connections and commits."""
        view = copy.copy(self)
        view._use(experiment)
        return view

    @abstractmethod
    async def open(self, create: bool = True) -> None:
        """Connect; migrate tables of an older version, refuse newer ones, make tables of a new store if `create`."""

    @abstractmethod
    async def open_to_read(self) -> None:
        """Connect without the right to change anything; `check_tables` checks whether queries can be answered."""

    async def check_tables(self) -> None:
        """Raise `InvalidFile` if the store has tables of another release than this program."""
        try:
            await self.signals()
            await self._ask("SELECT 1 FROM {exported} LIMIT 1")
        except NewerStore:
            raise
        except Exception as error:
            text = "has no tables of this release: `lmab serve` or `lmab refit` of this release brings them up to date"
            raise InvalidFile(f"the store {text} ({type(error).__name__})") from None

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def write(self, jobs: Sequence[Job]) -> None:
        """Write the rows of the jobs that `resolve` accepts, also of other experiments, durably on return."""

    @abstractmethod
    async def leftovers(self) -> list[str]:
        """Return where rows that were deleted can still be read in the store's own files; try to clean them."""

    @abstractmethod
    async def size(self) -> tuple[int, int | None]:
        """Return the bytes of the store, and the free bytes of its disk; None: it is that of a database server."""

    @abstractmethod
    def exclusively(self) -> AbstractAsyncContextManager[bool]:
        """Hold the right to refit, which one process has at a time; False: another one has it."""

    @abstractmethod
    async def _ask(self, query: str, *values: Any, far: bool = False) -> list[Any]:
        """Return the rows of a query, which has ? for values and `names` in braces; `far`: it may take long."""

    @abstractmethod
    async def _do(self, *statements: Statement, far: bool = False, guarded: bool = False) -> list[int]:
        """Run statements in one transaction and return how many rows each changed.

        `guarded`: if the first statement changes no row, nothing is changed and the result is [0].
        """

    # Experiments

    async def experiments(self) -> list[ExperimentRow]:
        """Return all experiments by name."""
        rows = await self._ask("SELECT name, at, archived FROM experiments ORDER BY name")
        return [ExperimentRow(name, at, bool(archived)) for name, at, archived in map(tuple, rows)]

    async def create_experiment(self, name: str, at: float) -> bool:
        """Make the tables of an experiment; return False if there is one of this name."""
        check_experiment(name)
        if name in {row.name for row in await self.experiments()}:
            return False
        view = self.of(name)
        updates = migrations(FIRST_VERSION, "the store")
        statements = [(text,) for text in (*self.creation, *updates, self.view)]
        await view._do(("INSERT INTO experiments VALUES(?,?,0)", name, at), *statements)
        return True

    async def archive_experiment(self, name: str, archived: bool = True) -> bool:
        """Stop or start serving an experiment; its rows stay. Return whether there is one of this name."""
        return (await self._do(("UPDATE experiments SET archived=? WHERE name=?", int(archived), name)))[0] == 1

    # Sessions and persons

    async def session(self, session: str) -> list[StoredStep]:
        """Return the steps of a session in order."""
        query = (
            "SELECT n.session, d.step, d.arm, d.propensity, d.policy, d.at, d.explored, d.fallback, d.preferred, "
            "d.allowed, CASE d.step WHEN 0 THEN n.person END, CASE d.step WHEN 0 THEN n.features END, r.reward, "
            "r.defaulted FROM {people} n JOIN {steps} d ON d.{key}=n.{key} LEFT JOIN {rewards} r ON r.{key}=d.{key} "
            "AND r.step=d.step WHERE n.session=? {first} ORDER BY d.step"
        )
        return [StoredStep(Decision(*row[:12]), row[12], bool(row[13])) for row in await self._ask(query, session)]

    async def person(self, person: str, before: float, limit: int) -> list[PlayedArm]:
        """Return the last `limit` rewarded steps of a person's latest sessions that began before a time."""
        query = (
            "SELECT d.arm, r.reward, n.{key} FROM (SELECT {key} FROM {people} WHERE person=? ORDER BY {latest} DESC "
            "LIMIT ?) n CROSS JOIN {steps} p CROSS JOIN {steps} d CROSS JOIN {rewards} r WHERE p.{key}=n.{key} AND "
            "p.step=0 AND d.{key}=n.{key} AND r.{key}=d.{key} AND r.step=d.step AND p.at<? "
            "ORDER BY p.at DESC, n.{key} DESC, d.step DESC LIMIT ?"
        )
        return [PlayedArm(*row) for row in await self._ask(query, person, _RECENT, before, limit)][::-1]

    async def erase(self, person: str, now: float) -> list[str]:
        """Delete every session of a person, a chunk at a time, and leave tombstones; return the sessions' names."""
        names, clock = list[str](), asyncio.get_running_loop().time
        mark = "INSERT INTO {erasures} VALUES(?,?) ON CONFLICT(person) DO UPDATE SET at=excluded.at"
        bury = "INSERT INTO {tombstones} VALUES(?,?) ON CONFLICT DO NOTHING"
        chosen = "SELECT {key} FROM {people} WHERE person=? AND session {among}"
        while True:
            began = clock()
            rows = await self._ask("SELECT session FROM {people} WHERE person=? LIMIT ?", person, _CHUNK)
            found = [row[0] for row in rows]
            await self._do(
                _ERASED,  # commits wait for this row
                (mark, person_mark(person), now),
                *[(bury, tombstone(name), now) for name in found],
                *self._deletions("people", chosen, person, json.dumps(found)),
            )
            names += found
            if len(found) < _CHUNK:
                return names
            await self._rest(clock() - began)

    async def forget(self, before: float, limit: int) -> int:
        """Delete up to `limit` sessions that began before a time, and tombstones as old; return how many there were."""
        began = asyncio.get_running_loop().time()
        chosen = "SELECT {key} FROM {steps} WHERE step=0 AND at<? ORDER BY at, {key} LIMIT ?"
        n = int((await self._ask(f"SELECT count(*) FROM ({chosen}) x", before, limit, far=True))[0][0])
        mark = (
            "INSERT INTO {settings} VALUES(?,?) ON CONFLICT(name) DO UPDATE SET value=excluded.value "
            "WHERE CAST({settings}.value AS FLOAT)<CAST(excluded.value AS FLOAT)"
        )
        deletions = [_REMOVED, *self._deletions("steps", chosen, before, limit)] if n else []
        tombstones = "DELETE FROM {tombstones} WHERE at<?", before
        await self._do(*deletions, (mark, _FORGOTTEN, repr(float(before))), tombstones, far=True)
        if n:
            await self._rest(asyncio.get_running_loop().time() - began)
        return n

    def _deletions(self, last: str, chosen: str, *values: Any) -> list[Statement]:
        """Return the statements that delete the chosen sessions, last from the table that the choice reads."""
        tables = dict.fromkeys(self.names[one] for one in ("rewards", "people", "steps"))
        ordered = sorted(tables, key=lambda table: table == self.names[last])
        return [(f"DELETE FROM {table} WHERE {{key}} IN ({chosen})", *values) for table in ordered]

    async def _rest(self, took: float) -> None:
        await asyncio.sleep(max(self.pause, 2 * took) if self.pause else 0)

    async def removals(self) -> Removals:
        """Return the record of forgotten sessions and of erased sessions and persons."""
        forgotten = float(await self.setting(_FORGOTTEN, None) or "-inf")
        sessions = await self._ask("SELECT session FROM {tombstones}", far=True)
        persons = await self._ask("SELECT person, at FROM {erasures}", far=True)
        erasures = (await self.signals()).erasures
        return Removals(forgotten, frozenset(row[0] for row in sessions), dict(map(tuple, persons)), erasures)

    async def newest(self) -> float | None:
        """Return the time of the newest decision."""
        rows = await self._ask("SELECT max(at) FROM {steps}")
        return None if rows[0][0] is None else float(rows[0][0])

    async def fill_defaults(self, reward: float, since: float, before: float, now: float, limit: int) -> Swept:
        """Store `reward` for steps decided between `since` and `before` that have none; look at about `limit` steps."""
        query = "SELECT at FROM {steps} WHERE at>=? AND at<? ORDER BY at LIMIT 1 OFFSET ?"
        found = await self._ask(query, since, before, limit, far=True)
        until = math.nextafter(found[0][0], math.inf) if found else before
        query = (
            "INSERT INTO {rewards} SELECT d.{key}, d.step, CAST(? AS FLOAT), CAST(? AS FLOAT), 1 FROM {steps} d "
            "LEFT JOIN {rewards} r ON r.{key}=d.{key} AND r.step=d.step "
            "WHERE d.at>=? AND d.at<? AND r.step IS NULL ON CONFLICT DO NOTHING"
        )
        return Swept((await self._do((query, reward, now, since, until), far=True))[0], until)

    # Settings

    async def setting(self, name: str, value: str | None) -> str | None:
        """Return the stored value of a setting; if there is none, store `value` first."""
        if value is not None:
            await self._do(("INSERT INTO {settings} VALUES(?,?) ON CONFLICT DO NOTHING", name, value))
        rows = await self._ask("SELECT value FROM {settings} WHERE name=?", name)
        return str(rows[0][0]) if rows else None

    async def set_setting(self, name: str, value: str, signal: bool = False) -> None:
        """Store another value of a setting; with `signal`, replicas read the register again."""
        signals = [("UPDATE {counters} SET count=count+1 WHERE name='changed'",)] if signal else []
        await self._do((_PUT_SETTING, name, value), *signals)

    async def probe(self) -> None:
        """Write something small; raise if the store takes no writes."""
        await self.set_setting("probe", secrets.token_hex(4))

    async def store_id(self) -> str:
        """Return the random name that the store keeps for ever, and that its backups share."""
        return await self.setting(_STORE_ID, secrets.token_hex(8)) or ""

    async def service_settings(self) -> dict[str, Any]:
        """Return the settings that the service last ran with (floor, window, horizon ...)."""
        rows = await self._ask("SELECT name, value FROM {settings} WHERE name LIKE ?", f"{_SERVED}%")
        return {name.removeprefix(_SERVED): json.loads(value) for name, value in map(tuple, rows)}

    async def set_service_settings(self, values: Mapping[str, Any], signal: bool = False) -> None:
        """Store settings of the service as JSON; the others stay. With `signal`, replicas follow."""
        signals = [("UPDATE {counters} SET count=count+1 WHERE name='changed'",)] if signal else []
        puts = [(_PUT_SETTING, _SERVED + name, json.dumps(value)) for name, value in values.items()]
        await self._do(*puts, *signals)

    # Arms

    async def arms(self) -> list[ArmRow]:
        """Return every arm in the order of the numbers."""
        rows = await self._ask("SELECT label, open FROM {arms} ORDER BY arm")
        return [ArmRow(json.loads(label), ArmState(state)) for label, state in map(tuple, rows)]

    async def set_arms(self, labels: Sequence[Label], after: int | None = None) -> bool:
        """Open these arms, adding new ones, and withdraw the other open ones; known arms stay known.

        With `after`, only if `Signals.arms` is that number; return whether it was.
        """
        statements = ("UPDATE {arms} SET open=0 WHERE open=1",), *self._arm_rows(labels, ArmState.OPEN, _PUT_STATE)
        return (await self._do(_count("arms", after), *statements, far=True, guarded=True))[0] == 1

    async def put_arm(self, label: Label, state: ArmState, after: int | None = None) -> bool:
        """Add an arm or change its state, like `set_arms` only if `Signals.arms` is `after`."""
        rows = self._arm_rows([label], state, _PUT_STATE)
        return (await self._do(_count("arms", after), *rows, far=True, guarded=True))[0] == 1

    async def add_arms(self, labels: Sequence[Label], state: ArmState = ArmState.OPEN) -> None:
        """Add the arms that the store does not have, and open known ones if they are to be open.

        The others keep their state, whatever happens meanwhile.
        """
        is_open = state is ArmState.OPEN
        have = {arm.label for arm in await self.arms() if not (is_open and arm.state is ArmState.KNOWN)}
        missing = [label for label in labels if label not in have]
        new = self._arm_rows(missing, state, "UPDATE SET open=1 WHERE {arms}.open=2" if is_open else "NOTHING")
        if new:
            await self._do(_count("arms"), *new, far=True)

    def _arm_rows(self, labels: Sequence[Label], state: ArmState, on_conflict: str) -> list[Statement]:
        add = f"INSERT INTO {{arms}} VALUES((SELECT count(*) FROM {{arms}}), ?, ?) ON CONFLICT(label) DO {on_conflict}"
        return [(add, json.dumps(label), int(state)) for label in labels]

    # Versions and the register

    async def add_version(self, version: str, body: bytes, at: float, note: str) -> None:
        """Store the file of a version."""
        put = "INSERT INTO {policies} VALUES(?,?,?,?) ON CONFLICT DO NOTHING"
        await self._do((put, version, at, note, body), far=True)

    async def remove_version(self, version: str) -> bool:
        """Delete a version that the latest entry of the register does not name; return whether one was deleted."""
        query = (
            "DELETE FROM {policies} WHERE version=? AND NOT EXISTS (SELECT 1 FROM {register} WHERE number=(SELECT "
            "max(number) FROM {register}) AND (active={policies}.version OR canary={policies}.version))"
        )
        # The counter changes, so that no promotion that has read the version before puts it in force afterwards.
        return (await self._do(_count("register"), (query, version), far=True))[1] == 1

    async def version(self, version: str) -> bytes | None:
        """Return the file of a version."""
        rows = await self._ask("SELECT body FROM {policies} WHERE version=?", version, far=True)
        return bytes(rows[0][0]) if rows else None

    async def versions(self) -> list[VersionRow]:
        """Return all versions, the newest first."""
        return [
            VersionRow(*row) for row in await self._ask("SELECT version, at, note FROM {policies} ORDER BY at DESC")
        ]

    async def add_rollout(self, rollout: Rollout, after: int | None = None, opens: Sequence[Label] = ()) -> bool:
        """Add an entry to the register; with it, open the known ones of the arms `opens`.

        With `after`, only if `Signals.register` is that number; return whether it was.
        """
        put = "INSERT INTO {register}(active, canary, share, at, note) VALUES(?,?,?,?,?)"
        open_known = "UPDATE {arms} SET open=1 WHERE open=2 AND label {among}"
        arms = [(open_known, json.dumps([json.dumps(label) for label in opens])), _count("arms")] if opens else []
        return (await self._do(_count("register", after), (put, *rollout), *arms, guarded=True))[0] == 1

    async def rollouts(self, limit: int) -> list[Rollout]:
        """Return the last entries of the register, the newest first."""
        query = "SELECT active, canary, share, at, note FROM {register} ORDER BY number DESC LIMIT ?"
        return [Rollout(*row) for row in await self._ask(query, limit)]

    async def signals(self) -> Signals:
        """Return the counters; raise `InvalidFile` if a newer program has migrated the store."""
        query = "SELECT name, count FROM {counters} UNION ALL SELECT 'schema', {schema}"
        counts = dict(map(tuple, await self._ask(query)))
        migrations(counts.pop("schema"), "the store")
        return Signals(**counts)

    # Queries over many sessions

    async def rows(self, since: float, until: float) -> list[LogRow]:
        """Return steps with their rewards of the sessions that began in a span of time, by session and step.

        Sessions with a forced arm are left out: nothing learns from them.
        """
        query = (
            "WITH s AS (SELECT {key}, at AS began FROM {steps} WHERE step=0 AND at>=? AND at<?) "
            "SELECT n.session, d.step, d.arm, r.reward, d.propensity, d.policy, d.at, d.explored, d.fallback, s.began, "
            "CASE WHEN d.allowed IS NULL THEN 0 ELSE 1 END, r.at, CASE WHEN n.person IS NULL THEN 0 ELSE 1 END, "
            "n.person, n.features FROM s JOIN {people} n ON n.{key}=s.{key} {first} JOIN {steps} d ON d.{key}=s.{key} "
            "LEFT JOIN {rewards} r ON r.{key}=d.{key} AND r.step=d.step ORDER BY s.began, n.session, d.step"
        )
        found = list(map(LogRow._make, await self._ask(query, since, until, far=True)))
        forced = {row.session for row in found if row.fallback == FORCED}
        return [row for row in found if row.session not in forced] if forced else found

    async def exported(self, since: float, until: float) -> list[tuple[Any, ...]]:
        """Return the rows of the view `exported` of the sessions that began in a span of time."""
        chosen = f"SELECT {', '.join(EXPORTED)} FROM {{exported}} WHERE began>=? AND began<?"
        query = f"{chosen} ORDER BY began, session, step"
        return list(map(tuple, await self._ask(query, since, until, far=True)))

    async def days(self) -> list[DayState]:
        """Return the days on which rewarded sessions began, in order."""
        query = (
            "SELECT CAST({floor}(s.at / 86400) AS INT) AS day, count(*), max(r.at) FROM {steps} s JOIN {rewards} r "
            "ON r.{key}=s.{key} WHERE s.step=0 GROUP BY day ORDER BY day"
        )
        return [DayState(*row) for row in await self._ask(query, far=True)]

    async def buckets(self, since: float, width: float) -> list[Bucket]:
        """Return sums over the sessions that began since a time, by version and span of `width` seconds."""
        query = (
            "WITH s AS (SELECT {key}, at AS began FROM {steps} WHERE step=0 AND at>=?), t AS (SELECT min(d.policy) AS "
            "policy, CAST({floor}(min(s.began) / CAST(? AS FLOAT)) AS INT) AS began, count(*) AS steps, "
            "coalesce(sum(r.reward), 0.0) AS reward, sum(d.explored) AS explored, "
            "sum(CASE d.fallback WHEN 1 THEN 1 ELSE 0 END) AS fallback "
            "FROM s JOIN {steps} d ON d.{key}=s.{key} LEFT JOIN {rewards} r ON r.{key}=d.{key} AND r.step=d.step "
            "GROUP BY s.{key}) SELECT policy, began, count(*), CAST(sum(steps) AS BIGINT), sum(reward), "
            "sum(reward * reward), CAST(sum(steps * steps) AS FLOAT), CAST(sum(explored) AS BIGINT), "
            "CAST(sum(fallback) AS BIGINT) FROM t GROUP BY policy, began"
        )
        return [Bucket(*row) for row in await self._ask(query, since, width, far=True)]

    async def arm_counts(self, limit: int, idle: float) -> list[ArmCount]:
        """Return plays by step and arm of the latest `limit` sessions; a last step counts if it is before `idle`."""
        query = (
            "WITH s AS (SELECT {key} FROM {steps} WHERE step=0 ORDER BY at DESC LIMIT ?) "
            "SELECT d.step, d.arm, count(*), count(*) FILTER (WHERE e.step IS NULL AND d.at < ?) "
            "FROM s JOIN {steps} d ON d.{key}=s.{key} "
            "LEFT JOIN {steps} e ON e.{key}=d.{key} AND e.step=d.step + 1 GROUP BY d.step, d.arm"
        )
        return [ArmCount(*row) for row in await self._ask(query, limit, idle, far=True)]

    async def latest(self, limit: int) -> list[str]:
        """Return the sessions that were decided last, the newest first."""
        query = (
            "SELECT n.session FROM (SELECT {key}, max(at) AS last FROM (SELECT {key}, at FROM {steps} ORDER BY at DESC "
            "LIMIT ?) x GROUP BY {key} ORDER BY last DESC LIMIT ?) y JOIN {people} n ON n.{key}=y.{key} {first} "
            "ORDER BY y.last DESC"
        )
        return [row[0] for row in await self._ask(query, 10 * limit, limit)]


_PUT_SETTING = "INSERT INTO {settings} VALUES(?,?) ON CONFLICT(name) DO UPDATE SET value=excluded.value"
_PUT_STATE = "UPDATE SET open=excluded.open"


def _count(counter: str, after: int | None = None) -> Statement:
    """Return the statement that increments a counter, if it is `after`; its row locks out other such transactions."""
    text = "UPDATE {counters} SET count=count+1 WHERE name=?"
    return (text, counter) if after is None else (f"{text} AND count=?", counter, after)


def open_store(where: str) -> Store:
    """Return the store at a path (SQLite) or at a postgresql:// address; it is not yet open."""
    if where.startswith(POSTGRES):
        from .postgres import PostgresStore

        return PostgresStore(_with_password(where))
    if re.match("[A-Za-z][A-Za-z0-9+.-]+:/", where):
        text = "the store must be a file or an address that begins with postgresql://"
        raise InvalidArgument(f"{text}, got {where.partition(':')[0]}:/...")
    from .sqlite import SqliteStore

    return SqliteStore(where)


def _with_password(address: str) -> str:
    """Return the address with its password quoted; if it has none, with that of the environment or of a file."""
    scheme, _, rest = address.partition("://")
    before, query, options = rest.partition("?")
    user, at, place = before.rpartition("@")
    name, colon, password = user.partition(":")
    if colon:
        password = quote(password, safe="%")  # a slash would end the host, and an error would show the rest
    elif at:
        password = quote(os.environ.get(PASSWORD, "") or _password_of_file(os.environ.get(PASSWORD_FILE, "")), safe="")
    if not password:
        return address
    return f"{scheme}://{name}:{password}@{place}{query}{options}"


def _password_of_file(path: str) -> str:
    try:
        return Path(path).read_text("utf-8").strip() if path else ""
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidFile(f"{PASSWORD_FILE} must name a file with a password, got {path}: {error}") from None


def without_secrets(where: str) -> str:
    """Return the address of a store without its password and options.

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


def public_reason(error: BaseException) -> str:
    """Return the part of an error that clients may see: neither the address of the store nor the driver's text.

    Examples:
        >>> public_reason(InvalidFile("/var/lib/lmab/events.db: the file was deleted"))
        'the file was deleted'
        >>> public_reason(OSError("no route to db.example"))
        'OSError'
    """
    return str(error).split(": ", 1)[-1] if isinstance(error, InvalidFile) else type(error).__name__
