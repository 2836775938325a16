"""`Store.write` against a dictionary: random jobs, contradictions, erasures, and faults at any statement."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sqlite3
import uuid
from dataclasses import dataclass, field, replace

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from lmab.errors import InvalidFile
from lmab.serve.stores import (
    SCHEMA_VERSION,
    ArmState,
    Decision,
    Job,
    RewardRow,
    Rollout,
    open_store,
    tombstone,
)

PHASES = (Phase.explicit, Phase.generate)  # a shorter example is not worth the time of a disk
SESSIONS, STEPS, PERSONS = ("s", "t", "u"), 2, ("ann", "bob")


class Fault(OSError):
    """What a statement raises in this test."""


class FailingSqlite:
    """A connection of which one statement fails."""

    def __init__(self, db: sqlite3.Connection, left: int) -> None:
        self.db, self.left = db, left

    def execute(self, statement: str, *values):
        self.left -= 1
        if self.left == 0 and not statement.startswith("ROLLBACK"):
            raise Fault(statement)
        return self.db.execute(statement, *values)

    def __getattr__(self, name):
        return getattr(self.db, name)


class FailingPostgres:
    """A connection that breaks before or after one of its statements."""

    def __init__(self, db, left: int, after: bool) -> None:
        self.db, self.left, self.after = db, left, after

    async def _ask(self, name: str, *values):
        self.left -= 1
        if self.left == 0 and not self.after:
            raise Fault(name)
        found = await getattr(self.db, name)(*values)
        if self.left == 0:
            raise Fault(name)
        return found

    def is_in_transaction(self) -> bool:
        return False

    async def fetchval(self, *values):
        return await self._ask("fetchval", *values)

    async def fetch(self, *values):
        return await self._ask("fetch", *values)


@dataclass
class Model:
    """What a store holds, as dictionaries."""

    decisions: dict = field(default_factory=dict)
    rewards: dict = field(default_factory=dict)
    erased: set = field(default_factory=set)
    arms: dict = field(default_factory=dict)
    register: int = 0
    active: str = ""

    def copy(self) -> Model:
        return replace(self, decisions=dict(self.decisions), rewards=dict(self.rewards), erased=set(self.erased))

    def length(self, session: str) -> int:
        return sum(key[0] == session for key in self.decisions)

    def write(self, jobs) -> list[tuple]:
        """One job after the other, all of it or nothing; what each is told."""
        return [self._write(job) for job in jobs]

    def _write(self, job) -> tuple:
        after = self.copy()
        row = job.decision
        stored = None
        if row is not None:
            key = row[:2]
            if key not in after.decisions:
                if row.step != after.length(row.session):
                    return "gap", None, None
                if row.session in after.erased:
                    return "erased", None, None
                after.decisions[key] = row
            stored = after.decisions[key]
        for reward in job.rewards:
            key = reward[:2]
            known = after.rewards.get(key)
            if known is None and key not in after.decisions:
                return "gap", None, None
            if known is None:
                after.rewards[key] = reward
            elif known.reward != reward.reward and not reward.defaulted:
                return "", None, known
        self.decisions, self.rewards = after.decisions, after.rewards
        return "", stored, None

    def erase(self, person: str) -> None:
        gone = {key[0] for key, row in self.decisions.items() if row.person == person}
        self.erased |= gone
        self._delete(gone)

    def forget(self, before: float) -> None:
        self._delete({key[0] for key, row in self.decisions.items() if row.step == 0 and row.at < before})

    def _delete(self, gone: set) -> None:
        for table in (self.decisions, self.rewards):
            for key in [key for key in table if key[0] in gone]:
                del table[key]


REWARDS = st.builds(
    RewardRow, st.sampled_from(SESSIONS), st.integers(0, STEPS - 1), st.sampled_from([0.0, 1.0]), st.just(0.0),
    st.sampled_from([0, 0, 0, 1]),
)  # fmt: skip


def decided(session: str, step: int, arm: int, person: str | None) -> Decision:
    features = f'{{"arm": {arm}}}' if step == 0 and person is not None else None
    return Decision(session, step, arm, 0.5, "v", 0.0, 0, 0, None, None, person if step == 0 else None, features)


DECISIONS = st.builds(
    decided,
    st.sampled_from(SESSIONS),
    st.integers(0, STEPS - 1),
    st.integers(0, 1),
    st.sampled_from([None, *PERSONS]),
)
JOBS = st.lists(
    st.builds(Job, st.lists(REWARDS, max_size=3), st.one_of(st.none(), st.none(), DECISIONS)), min_size=1, max_size=8
)


class Machine(RuleBasedStateMachine):
    """Two processes on one store, and the dictionary beside them."""

    where = ""

    def __init__(self) -> None:
        super().__init__()
        self.tag = uuid.uuid4().hex[:8]  # every run has sessions of its own
        self.model, self.clock = Model(), itertools.count(1)
        self.runner = asyncio.Runner()
        self.stores = [open_store(self.where) for _ in range(2)]
        for store in self.stores:
            self.runner.run(store.open())
        self.model.arms[f"known{self.tag}"] = ArmState.KNOWN
        self.runner.run(self.stores[0].add_arms([f"known{self.tag}"], ArmState.KNOWN))
        self.model.active = f"first{self.tag}"
        self.runner.run(self.stores[0].add_rollout(Rollout(self.model.active, None, 0.0, 1.0, "")))
        self.model.register = self.runner.run(self.stores[0].signals()).register

    def teardown(self) -> None:
        for store in self.stores:
            self.runner.run(store.close())
        self.runner.close()

    def named(self, job: Job) -> Job:
        """The job with this run's names, and with times that tell rows apart."""
        rewards = [row._replace(session=row.session + self.tag, at=float(next(self.clock))) for row in job.rewards]
        row = job.decision
        if row is not None:
            person = None if row.person is None else row.person + self.tag
            row = row._replace(session=row.session + self.tag, at=float(next(self.clock)), person=person)
        return Job(rewards, row)

    @initialize()
    def begin(self):
        """Two sessions have begun, so that most rewards have a step."""
        jobs = [Job(decision=decided(name, 0, 0, PERSONS[0])) for name in SESSIONS[:2]]
        self.write(jobs, 0)

    @rule(jobs=JOBS, which=st.integers(0, 1))
    def write(self, jobs, which):
        jobs = [self.named(job) for job in jobs]
        self.runner.run(self.stores[which].write(jobs))
        assert [(job.refused, job.stored, job.conflict) for job in jobs] == self.model.write(jobs)

    @rule(jobs=JOBS, which=st.integers(0, 1), left=st.integers(1, 12), after=st.booleans())
    def write_with_a_fault(self, jobs, which, left, after):
        """What failed is there as a whole or not at all, and the next write works."""
        jobs, store = [self.named(job) for job in jobs], self.stores[which]
        undo = break_one(store, left, after)
        try:
            self.runner.run(store.write(jobs))
            failed = False
        except Fault:
            failed = True
        finally:
            undo()
        whole = self.model.copy()
        whole.write(jobs)
        if not failed or self.held() == (whole.decisions, whole.rewards):
            self.model = whole

    @rule(person=st.sampled_from(PERSONS), which=st.integers(0, 1))
    def erase(self, person, which):
        self.runner.run(self.stores[which].erase(person + self.tag, float(next(self.clock))))
        self.model.erase(person + self.tag)

    @rule(name=st.sampled_from(SESSIONS), later=st.booleans(), which=st.integers(0, 1))
    def forget(self, name, later, which):
        """Sessions as old as one of them, and tombstones as old; the other replica has them in its memory."""
        row = self.model.decisions.get((name + self.tag, 0))
        if row is not None:
            before = row.at + later / 2
            self.runner.run(self.stores[which].forget(before, 10_000))
            self.model.forget(before)
            self.model.erased &= {name for name in self.model.erased if self.buried(name)}

    def buried(self, name: str) -> bool:
        return tombstone(name) in self.runner.run(self.stores[0].removals()).sessions

    @rule(which=st.integers(0, 1), lag=st.sampled_from([None, 0, 0, 1]), opens=st.booleans())
    def put_in_force(self, which, lag, opens):
        """An entry of the register after the last one, after an earlier one, or after any."""
        store, number = self.stores[which], self.model.register
        after = None if lag is None else number - lag
        entry = Rollout(f"v{next(self.clock)}", None, 0.0, 1.0, "")
        done = self.runner.run(store.add_rollout(entry, after, [f"known{self.tag}"] if opens else []))
        assert done == (lag != 1)
        if done:
            self.model.register, self.model.active = number + 1, entry.active
            if opens:
                self.model.arms[f"known{self.tag}"] = ArmState.OPEN
        assert self.runner.run(store.signals()).register == self.model.register
        assert self.runner.run(store.rollouts(1))[0].active == self.model.active

    @rule(which=st.integers(0, 1), lag=st.sampled_from([None, 0, 1]), opened=st.booleans())
    def change_an_arm(self, which, lag, opened):
        store, label = self.stores[which], f"arm{self.tag}"
        after = None if lag is None else self.runner.run(store.signals()).arms - lag
        state = ArmState.OPEN if opened else ArmState.WITHDRAWN
        assert self.runner.run(store.put_arm(label, state, after)) == (lag != 1)
        if lag != 1:
            self.model.arms[label] = state
        self.runner.run(store.add_arms([label], ArmState.KNOWN))  # this changes no arm that is there
        self.model.arms.setdefault(label, ArmState.KNOWN)

    @rule(jobs=JOBS, which=st.integers(0, 1))
    def write_to_a_newer_store(self, jobs, which):
        """A newer program has migrated the store: nothing is written until its release is here, or a backup is."""
        store, jobs = self.stores[which], [self.named(job) for job in jobs]
        set_version(self.runner, store, SCHEMA_VERSION + 1)
        try:
            with contextlib.suppress(InvalidFile):  # what asks for nothing new need not fail
                self.runner.run(store.write(jobs))
            assert self.held() == (self.model.decisions, self.model.rewards)
            for write in (store.set_setting("a", "b"), store.forget(0.0, 1), store.signals()):
                with pytest.raises(InvalidFile, match="use the newer release"):
                    self.runner.run(write)
        finally:
            set_version(self.runner, store, SCHEMA_VERSION)

    @invariant()
    def the_arms_are_as_they_were_last_set(self):
        rows = self.runner.run(self.stores[1].arms())
        assert {row.label: row.state for row in rows if self.tag in str(row.label)} == self.model.arms

    def held(self) -> tuple[dict, dict]:
        decisions, rewards = {}, {}
        for name in SESSIONS:
            for step in self.runner.run(self.stores[0].session(name + self.tag)):
                key = step.decision[:2]
                decisions[key] = step.decision
                if step.reward is not None:
                    known = self.model.rewards.get(key)
                    at = -1.0 if known is None else known.at
                    rewards[key] = RewardRow(*key, step.reward, at, int(step.defaulted))
        return decisions, rewards

    @invariant()
    def the_store_holds_what_the_dictionary_holds(self):
        decisions, rewards = self.held()
        assert decisions == self.model.decisions
        assert {key: row.reward for key, row in rewards.items()} == {
            key: row.reward for key, row in self.model.rewards.items()
        }


def set_version(runner: asyncio.Runner, store, version: int) -> None:
    """Say that the tables are of a version, as the migration of another process does."""
    if hasattr(store, "_db"):
        with contextlib.closing(sqlite3.connect(store.path)) as other:
            other.execute(f"PRAGMA user_version={version}")
        return

    async def change(db) -> None:
        await db.execute(f"UPDATE lmab_schema SET version={version}")
        await db.execute("UPDATE counters SET count=count+1 WHERE name='erased'")

    runner.run(store._writers.run(change))


def break_one(store, left: int, after: bool):
    """Let the `left`-th statement of the next write fail; what puts the store right again."""
    if hasattr(store, "_jobs"):
        db, jobs = store._db, store._jobs
        store._db = jobs.db = FailingSqlite(db, left)

        def undo() -> None:
            store._db, jobs.db = db, db

        return undo
    write = store._write

    async def breaking(db, jobs):
        await write(FailingPostgres(db, left, after), jobs)

    store._write = breaking
    return lambda: delattr(store, "_write")


@pytest.mark.parametrize("examples", [40])
def test_a_store_holds_what_a_dictionary_would_hold(event_store, examples):
    machine = type("M", (Machine,), {"where": event_store})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=12, deadline=None, derandomize=True, phases=PHASES,
            suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip


def test_a_refused_job_takes_no_row_of_another_with_it(event_store):
    """Three rewards in one commit: the one that is acknowledged must not rely on the one that is refused."""

    async def scenario():
        store = open_store(event_store)
        await store.open()
        await store.write([Job(decision=decided(name, 0, 0, None)) for name in ("s", "t")])
        first = Job([RewardRow("t", 0, 0.0, 1.0, 0)])
        refused = Job([RewardRow("s", 0, 1.0, 2.0, 0), RewardRow("t", 0, 1.0, 2.0, 0)])
        kept = Job([RewardRow("s", 0, 1.0, 2.0, 0)])
        await store.write([first, refused, kept])
        assert (first.conflict, refused.conflict, kept.conflict) == (None, RewardRow("t", 0, 0.0, 1.0, 0), None)
        assert [(await store.session(name))[0].reward for name in ("s", "t")] == [1.0, 0.0]
        await store.close()

    asyncio.run(scenario())
