"""What every store keeps, and how one is opened: SQLite by default, PostgreSQL where several replicas serve."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .messages import Label


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
    wish: int | None  # what the policy would have played where a baseline was answered
    allowed: str | None  # the allowed labels as JSON, where the request named them
    person: str | None  # at step 0

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


class Past(NamedTuple):
    """A step of a session with its reward, as the store has them."""

    decision: Decision
    reward: float | None
    defaulted: bool


class VersionRow(NamedTuple):
    """A version of the policy, without its file."""

    version: str
    at: float
    note: str


class Turn(NamedTuple):
    """An entry of the register: which versions new sessions get from now on."""

    active: str
    canary: str | None
    share: float
    at: float
    note: str


@dataclass(slots=True)
class Job:
    """What one request wants written: all of it, or nothing."""

    rewards: Sequence[RewardRow] = ()
    decision: Decision | None = None
    # What the store says:
    stored: Decision | None = None  # the row that is there now, which may be an earlier one
    conflict: RewardRow | None = None  # another reward was there first: nothing of this job was written


class Store(ABC):
    """Decisions and rewards, each written once; versions of policies; settings. Methods are coroutines."""

    @abstractmethod
    async def open(self) -> None:
        """Connect, and make the tables where they are missing."""

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def write(self, jobs: Sequence[Job]) -> None:
        """Write all jobs in one transaction that is durable on return, and fill in what the store says."""

    @abstractmethod
    async def session(self, session: str) -> list[Past]:
        """The steps of a session in order."""

    @abstractmethod
    async def person(self, person: str, before: float, limit: int) -> list[tuple[int, float]]:
        """The last rewarded steps of a person's sessions that began before a time, as (arm, reward)."""

    @abstractmethod
    async def erase(self, person: str) -> list[str]:
        """Delete every session of a person; their names."""

    @abstractmethod
    async def fill_defaults(self, reward: float, since: float, before: float, now: float) -> int:
        """Give the default reward to steps that were decided in a span of time and have none."""

    @abstractmethod
    async def setting(self, name: str, value: str | None) -> str | None:
        """The stored value of a setting; where there is none, `value` is stored first."""

    @abstractmethod
    async def set_setting(self, name: str, value: str) -> None:
        """Store another value of a setting."""

    @abstractmethod
    async def arms(self) -> list[tuple[Label, bool]]:
        """The label of every arm in the order of their numbers, and whether the arm is open."""

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
    async def turn(self, turn: Turn) -> None:
        """Add an entry to the register."""

    @abstractmethod
    async def turns(self, limit: int) -> list[Turn]:
        """The last entries of the register, the newest first."""

    @abstractmethod
    async def signals(self) -> tuple[int, int]:
        """Numbers that change when the register or the arms change, and when a person was erased."""

    @abstractmethod
    async def rows(self, since: float, until: float, limit: int | None = None) -> list[tuple[Any, ...]]:
        """Steps with their rewards of the sessions that began in a span of time, by session and step.

        Each is (session, step, arm, reward, propensity, policy, at, explored, fallback, began). With `limit`, those
        of the latest sessions only.
        """


def open_store(where: str) -> Store:
    """The store at a path (SQLite) or at a postgresql:// address; not yet open."""
    if where.startswith(("postgres://", "postgresql://")):
        from .postgres import PostgresStore

        return PostgresStore(where)
    from .sqlite import SqliteStore

    return SqliteStore(where)
