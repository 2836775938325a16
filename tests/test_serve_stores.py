"""What every store answers, asked directly: spans of time, the latest sessions, and what erasing leaves on the disk."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import stat
import time
from collections import OrderedDict
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace

import pytest
from serving import empty_database, go

from lmab.errors import InvalidFile
from lmab.serve import postgres as postgres_module
from lmab.serve import sqlite as sqlite_module
from lmab.serve import stores as stores_module
from lmab.serve.commits import Commits
from lmab.serve.messages import Problem
from lmab.serve.stores import (
    ArmState,
    Bucket,
    DayState,
    Decision,
    Job,
    LogRow,
    RewardRow,
    Rollout,
    Swept,
    open_store,
    person_mark,
    without_secrets,
)


def decided(session: str, step: int, arm: int, at: float, person: str | None = None) -> Decision:
    return Decision(session, step, arm, 0.5, "v", at, 0, 0, None, None, person if step == 0 else None)


@contextlib.asynccontextmanager
async def opened(where: str):
    store = open_store(where)
    await store.open()
    try:
        await store.write(
            [
                Job([RewardRow(name, step, reward, at + step, 0)], decided(name, step, arm, at + step, "ann"))
                for name, at, played in (
                    ("old", 100.0, [(0, 1.0), (1, 0.0)]),
                    ("middle", 200.0, [(2, 1.0)]),
                    ("new", 300.0, [(1, 1.0), (0, 0.0)]),
                )
                for step, (arm, reward) in enumerate(played)
            ]
        )
        yield store
    finally:
        await store.close()


def test_rows_are_those_of_a_span_of_time(event_store):
    async def scenario():
        async with opened(event_store) as store:
            for span, wanted in (
                ((0.0, 1e9), ["old", "old", "middle", "new", "new"]),
                ((100.0, 300.0), ["old", "old", "middle"]),  # from the first moment, up to the last
                ((100.5, 300.5), ["middle", "new", "new"]),
            ):
                assert [row.session for row in await store.rows(*span)] == wanted
            row = LogRow("new", 1, 0, 0.0, 0.5, "v", 301.0, 0, 0, 300.0, 0, told=301.0, known=1, person="ann")
            assert (await store.rows(300.0, 301.0))[1] == row
            await store.write([Job(decision=decided("alone", 0, 0, 400.0))])
            row = LogRow("alone", 0, 0, None, 0.5, "v", 400.0, 0, 0, 400.0, 0, told=None, known=0)
            assert await store.rows(400.0, 401.0) == [row]
            assert await store.erase("nobody", 0.0) == []
            assert await store.latest(2) == ["alone", "new"]
            assert await store.days() == [DayState(0, 5, 301.0)]

    go(scenario())


def test_the_latest_sessions_are_found_behind_a_long_one(event_store):
    """So many steps are looked at as so many sessions of ten steps have."""

    async def scenario():
        async with opened(event_store) as store:
            await store.write([Job(decision=decided("long", step, 0, 400.0 + step)) for step in range(29)])
            assert await store.latest(3) == ["long", "new"]
            await store.write([Job(decision=decided("long", 29, 0, 450.0))])
            assert await store.latest(3) == ["long"]

    go(scenario())


def test_a_person_is_known_by_the_last_steps_of_earlier_sessions(event_store):
    async def scenario():
        async with opened(event_store) as store:
            whole = [(0, 1.0), (1, 0.0), (2, 1.0), (1, 1.0), (0, 0.0)]
            found = await store.person("ann", 1e9, 100)
            assert [step[:2] for step in found] == whole
            assert [len(list(steps)) for _, steps in groupby(found, key=lambda step: step.session)] == [2, 1, 2]
            assert [step[:2] for step in await store.person("ann", 1e9, 2)] == whole[-2:]
            before = await store.person("ann", 300.0, 100)  # sessions that began before that moment
            assert [step[:2] for step in before] == whole[:3]
            assert await store.person("bob", 1e9, 100) == []

    go(scenario())


def test_default_rewards_go_to_unrewarded_steps_of_a_span_alone(event_store):
    async def scenario():
        async with opened(event_store) as store:
            await store.write([Job(decision=decided(f"s{at}", 0, 0, float(at))) for at in (400, 410, 420)])
            assert await store.fill_defaults(0.25, 400.0, 420.0, 500.0, 100) == Swept(2, 420.0)
            for name, reward in (("s400", 0.25), ("s410", 0.25), ("s420", None)):
                (past,) = await store.session(name)
                assert (past.reward, past.defaulted) == (reward, reward is not None)
            assert [past.reward for past in await store.session("old")] == [1.0, 0.0]

    go(scenario())


def test_the_same_version_twice_is_one_and_the_register_is_newest_first(event_store):
    async def scenario():
        async with opened(event_store) as store:
            for at, note in ((1.0, "first"), (2.0, "again")):
                await store.add_version("v", b"body", at, note)
            await store.add_version("w", b"other", 3.0, "later")
            assert [tuple(row) for row in await store.versions()] == [("w", 3.0, "later"), ("v", 1.0, "first")]
            assert (await store.version("v"), await store.version("x")) == (b"body", None)
            for name in ("v", "w", "x"):
                await store.add_rollout(Rollout(name, None, 0.0, 1.0, ""))
            assert [turn.active for turn in await store.rollouts(2)] == ["x", "w"]

    go(scenario())


def test_settings_keep_their_first_value_until_they_are_set(event_store):
    async def scenario():
        async with opened(event_store) as store:
            assert await store.setting("name", None) is None
            assert [await store.setting("name", value) for value in ("one", "two")] == ["one", "one"]
            await store.set_setting("name", "three")
            assert await store.setting("name", "four") == "three"

    go(scenario())


def test_many_rows_of_one_commit_are_all_there(event_store):
    async def scenario():
        async with opened(event_store) as store:
            jobs = [Job([RewardRow(f"m{i}", 0, 1.0, 0.0, 0)], decided(f"m{i}", 0, i % 3, 1e6 + i)) for i in range(301)]
            await store.write([*jobs, Job(decision=decided("m0", 0, 2, 5.0))])
            rows = await store.rows(1e6, 2e6)
            assert [(row.session, row.arm, row.reward) for row in rows] == [(f"m{i}", i % 3, 1.0) for i in range(301)]
            assert jobs[7].stored == jobs[7].decision

    go(scenario())


def test_an_erased_person_has_no_rewards_left(event_store):
    async def scenario():
        async with opened(event_store) as store:
            assert sorted(await store.erase("ann", 400.0)) == ["middle", "new", "old"]
            late = [Job(decision=decided("old", 0, 0, 500.0)), Job(decision=decided("new", 2, 0, 500.0))]
            late.append(Job([RewardRow("middle", 0, 1.0, 500.0, 0)]))
            await store.write(late)  # by a replica that has the sessions in its memory
            assert [job.refused for job in late] == ["erased", "gap", "gap"]
            assert await store.rows(0.0, 1e9) == []
            assert await store.forget(400.5, 10) == 0  # the tombstones are as old as that
            await store.write([again := Job(decision=decided("old", 0, 0, 500.0))])
            assert again.stored == again.decision
            assert [step.reward for step in await store.session("old")] == [None]

    go(scenario())


def test_erasing_many_sessions_leaves_commits_time_between_its_parts(postgres, monkeypatch):
    """Each part makes commits that are under way look again; without a pause they looked until they gave up."""
    monkeypatch.setattr(stores_module, "_CHUNK", 2)
    where, pauses = empty_database(postgres.address), []

    async def scenario():
        async with opened(where) as store:
            await store.write([Job(decision=decided(f"a{i}", 0, 0, 500.0, "eve")) for i in range(5)])

            async def pause(seconds):
                await store.write([Job(decision=decided(f"b{len(pauses)}", 0, 0, 500.0))])
                pauses.append(seconds)

            monkeypatch.setattr(stores_module.asyncio, "sleep", pause)
            assert len(await store.erase("eve", 600.0)) == 5
            monkeypatch.undo()
            assert len(pauses) == 2
            assert min(pauses) >= 0.04
            assert {one for one in await store.latest(99) if len(one) == 2} == {"b0", "b1"}

    go(scenario())


def test_a_commit_is_on_the_disk_and_what_is_erased_is_gone_from_it(tmp_path):
    def on_disk(name: str) -> list[str]:
        return [path.name for path in Path(tmp_path).iterdir() if name.encode() in path.read_bytes()]

    async def scenario():
        async with opened(str(tmp_path / "events.db")) as store:
            levels = [store._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("synchronous", "secure_delete")]
            assert levels == [2, 1]  # FULL: a commit waits for the disk; what is deleted is overwritten
            jobs = [Job(decision=decided(f"secret-{i}", 0, 0, 1e6 + i, "ann-of-nowhere")) for i in range(200)]
            await store.write(jobs)
            assert on_disk("ann-of-nowhere")
            assert len(await store.erase("ann-of-nowhere", 2e6)) == 200
            assert await store.leftovers() == []
            assert (on_disk("ann-of-nowhere"), on_disk("secret-")) == ([], [])
            assert len(await store.session("old")) == 2

    go(scenario())


def test_two_processes_of_one_file_number_sessions_alike(tmp_path):
    where = str(tmp_path / "events.db")

    async def scenario():
        async with opened(where) as one:
            other = open_store(where)
            await other.open()
            await other.write([Job(decision=decided("b", 0, 1, 500.0))])
            await one.write([Job(decision=decided("a", 0, 0, 501.0)), Job(decision=decided("b", 1, 2, 502.0))])
            await other.write([Job([RewardRow("a", 0, 1.0, 503.0, 0)], decided("a", 1, 3, 503.0))])
            late = Job([RewardRow("a", 0, 0.0, 504.0, 0)])
            await one.write([late])
            assert late.conflict == RewardRow("a", 0, 1.0, 503.0, 0)
            assert [past.decision.arm for past in await one.session("a")] == [0, 3]
            assert [past.decision.arm for past in await one.session("b")] == [1, 2]
            await other.erase("ann", 600.0)  # whose newest session has a number that `other` gives away again
            await other.write([Job(decision=decided("c", 0, 4, 600.0))])
            await one.write([gone := Job(decision=decided("new", 2, 1, 601.0))])  # a step of a session that is gone
            assert gone.refused == "gap"
            assert [past.decision.arm for past in await one.session("c")] == [4]
            await other.close()

    go(scenario())


def test_a_commit_that_failed_leaves_no_numbers_behind(tmp_path):
    async def scenario():
        async with opened(str(tmp_path / "events.db")) as store:
            bad = decided("a", 0, 0, 500.0)._replace(policy=None)
            with pytest.raises(sqlite3.IntegrityError):
                await store.write([Job(decision=bad)])
            await store.write([Job(decision=decided("b", 0, 1, 501.0)), Job(decision=decided("a", 0, 2, 502.0))])
            assert [past.decision.arm for past in await store.session("a")] == [2]
            assert [past.decision.arm for past in await store.session("b")] == [1]

    go(scenario())


def test_the_numbers_remembered_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_module, "_KNOWN", 10)

    async def scenario():
        async with opened(str(tmp_path / "events.db")) as store:
            for step in range(3):
                for start in range(0, 60, 6):
                    await store.write([Job(decision=decided(f"s{start + i}", step, step, 500.0)) for i in range(6)])
                    assert len(store._jobs._numbers) <= 16
            for i in range(60):
                assert [past.decision.arm for past in await store.session(f"s{i}")] == [0, 1, 2]

    go(scenario())


def test_a_file_is_for_its_owner_alone_and_has_labels_for_people(tmp_path):
    async def scenario():
        async with opened(str(tmp_path / "events.db")) as store:
            assert stat.S_IMODE(Path(store.path).stat().st_mode) == 0o600
            await store.set_arms(["tea", 7, "milk"])
            query = "SELECT session, step, label, reward FROM labelled ORDER BY session, step LIMIT 2"
            assert store._db.execute(query).fetchall() == [("middle", 0, "milk", 1.0), ("new", 0, 7, 1.0)]

    go(scenario())


def test_sums_for_the_page_are_those_of_the_rows(event_store):
    async def scenario():
        async with opened(event_store) as store:
            await store.write([Job(decision=decided("bare", 0, 1, 130.0)._replace(policy="w", explored=1))])
            assert sorted(await store.buckets(0.0, 100.0)) == [
                Bucket("v", 1, 1, 2, 1.0, 1.0, 4.0, 0, 0),
                Bucket("v", 2, 1, 1, 1.0, 1.0, 1.0, 0, 0),
                Bucket("v", 3, 1, 2, 1.0, 1.0, 4.0, 0, 0),
                Bucket("w", 1, 1, 1, 0.0, 0.0, 1.0, 1, 0),
            ]
            assert [bucket.began for bucket in await store.buckets(250.0, 100.0)] == [3]
            found = sorted(await store.arm_counts(100, 301.0))
            assert [count[:3] for count in found] == [(0, 0, 1), (0, 1, 2), (0, 2, 1), (1, 0, 1), (1, 1, 1)]
            rows = await store.rows(0.0, 1e9)
            last = {row.session: row for row in rows}  # rows of a session come in the order of its steps
            for step, arm, _, ended in found:
                mine = [row for row in last.values() if (row.step, row.arm) == (step, arm)]
                assert ended == sum(row.at < 301.0 for row in mine)
            assert 0 < sum(count.last for count in found) < len(last)

    go(scenario())


def test_default_rewards_are_given_some_at_a_time(event_store):
    async def scenario():
        async with opened(event_store) as store:
            await store.write([Job(decision=decided(f"s{i}", 0, 0, 400.0 + i // 3)) for i in range(20)])
            since, filled, tries = 400.0, 0, 0
            while since < 500.0:
                n, since = await store.fill_defaults(0.0, since, 500.0, 600.0, 4)
                filled, tries = filled + n, tries + 1
            assert (filled, tries > 3) == (20, True)

    go(scenario())


def test_old_sessions_are_forgotten_some_at_a_time(event_store):
    async def scenario():
        async with opened(event_store) as store:
            assert [await store.forget(300.0, 1) for _ in range(3)] == [1, 1, 0]
            assert [row.session for row in await store.rows(0.0, 1e9)] == ["new", "new"]

    go(scenario())


def test_one_process_refits_at_a_time(event_store):
    async def scenario():
        async with opened(event_store) as store:
            other = open_store(event_store)
            await other.open()
            async with store.exclusively() as first, other.exclusively() as second:
                assert (first, second) == (True, False)
            async with other.exclusively() as third:
                assert third
            await other.close()

    go(scenario())


def test_a_file_that_was_deleted_or_replaced_takes_no_writes(tmp_path):
    async def scenario():
        async with opened(str(tmp_path / "events.db")) as store:
            await store.probe()
            Path(store.path).rename(tmp_path / "moved.db")
            with pytest.raises(InvalidFile, match="was deleted"):
                await store.probe()
            with pytest.raises(InvalidFile, match="was deleted"):  # nobody is told that this is kept
                await store.write([Job(decision=decided("late", 0, 0, 500.0))])
            Path(store.path).touch()
            with pytest.raises(InvalidFile, match="was replaced while it was open"):
                await store.probe()

    go(scenario())


def test_passwords_come_from_the_environment_and_are_not_printed(monkeypatch):
    monkeypatch.setenv("LMAB_STORE_PASSWORD", "p@ss/word")
    assert open_store("postgresql://lmab@db/shop").address == "postgresql://lmab:p%40ss%2Fword@db/shop"
    assert open_store("postgresql://lmab:own@db/shop").address == "postgresql://lmab:own@db/shop"
    for typed, address in (
        ("lmab:o/w#n@db/shop", "lmab:o%2Fw%23n@db/shop"),  # unquoted, a slash would end the host
        ("lmab:o@w@db:5432/shop?sslmode=require", "lmab:o%40w@db:5432/shop?sslmode=require"),
        ("lmab:o%2Fw@db/shop", "lmab:o%2Fw@db/shop"),
        ("db/shop?password=a@b", "db/shop?password=a@b"),
        ("lmab@db/shop?password=a@b", "lmab:p%40ss%2Fword@db/shop?password=a@b"),
    ):
        assert open_store(f"postgresql://{typed}").address == f"postgresql://{address}"
    for address in ("lmab:own@db/shop?password=x", "lmab:o/w#n@db/shop", "lmab@db/shop?password=a@b", "lmab@db/shop"):
        assert without_secrets(f"postgresql://{address}") == "postgresql://lmab@db/shop"
    assert without_secrets("postgresql://db/shop?password=x") == "postgresql://db/shop"


def test_a_password_may_be_in_a_file(monkeypatch, tmp_path):
    path = tmp_path / "password"
    path.write_text("hunter2\n")
    monkeypatch.setenv("LMAB_STORE_PASSWORD_FILE", str(path))
    assert open_store("postgresql://lmab@db/shop").address == "postgresql://lmab:hunter2@db/shop"
    monkeypatch.setenv("LMAB_STORE_PASSWORD", "first")
    assert open_store("postgresql://lmab@db/shop").address == "postgresql://lmab:first@db/shop"
    assert open_store("postgresql://db/shop").address == "postgresql://db/shop"
    monkeypatch.delenv("LMAB_STORE_PASSWORD")
    path.unlink()
    with pytest.raises(InvalidFile, match="LMAB_STORE_PASSWORD_FILE must name a file with a password"):
        open_store("postgresql://lmab@db/shop")


class Poisoned:
    """A store in which the jobs of one session cannot be written."""

    def __init__(self) -> None:
        self.written: list[str] = []

    async def probe(self) -> None:
        pass

    async def write(self, jobs) -> None:
        if any(job.decision.session == "bad" for job in jobs):
            raise OSError("this row is locked")
        self.written += [job.decision.session for job in jobs]


def test_one_bad_job_harms_no_other_of_its_commit():
    async def scenario():
        store = Poisoned()
        commits = Commits(store, 100)
        names = ["a", "bad", "b", "c"]
        tasks = [commits.commit(Job(decision=decided(name, 0, 0, 0.0))) for name in names]
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [getattr(answer, "code", None) for answer in answers] == [None, "no-store", None, None]
        assert (sorted(store.written), commits.trouble, commits.n_failed) == (["a", "b", "c"], "", 1)

    go(scenario())


def test_nobody_waits_longer_than_the_deadline_and_trouble_is_told_until_a_write_succeeds():
    async def scenario():
        store = Gate()
        commits = Commits(store, 10, deadline=0.3)
        began = time.monotonic()
        tasks = await waiting(commits, 2)
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [answer.code for answer in answers] == ["no-store"] * 3
        assert time.monotonic() - began > 0.2
        store.fails = True
        store.open.set()
        await commits.finish()
        with pytest.raises(Problem, match="did not take this: OSError"):
            await commits.commit(Job())
        assert commits.trouble == "the store takes no writes: OSError"
        store.fails = False
        await commits.commit(Job())
        assert commits.trouble == ""

    go(scenario())


class Gate:
    """A store that writes when it is let, and fails where it is told to."""

    async def probe(self) -> None:
        if self.fails:
            raise OSError("the disk is gone")

    def __init__(self, fails: bool = False) -> None:
        self.open, self.fails, self.written, self.begun = asyncio.Event(), fails, 0, False

    async def write(self, jobs) -> None:
        self.begun = True
        await self.open.wait()
        if self.fails:
            raise OSError("the disk is gone")
        self.written += len(jobs)


async def waiting(commits: Commits, n: int) -> list[asyncio.Task]:
    """One commit under way, and `n` requests that wait for the next one."""
    tasks = [asyncio.create_task(commits.commit(Job()))]
    await until(lambda: commits.store.begun)
    tasks += [asyncio.create_task(commits.commit(Job())) for _ in range(n)]
    await until(lambda: len(commits.waiting) == n)
    return tasks


async def until(happened: Callable[[], bool]) -> None:
    """Wait for what the loop is about to do, however busy the machine is."""
    for _ in range(10_000):
        if happened():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not happen within ten seconds")


def test_as_many_wait_as_the_limit_says_and_not_one_more():
    async def scenario():
        store = Gate()
        commits = Commits(store, 2)
        tasks = await waiting(commits, 2)
        assert len(commits.waiting) == 2
        with pytest.raises(Problem, match="2 requests wait for the store: try again"):
            await commits.commit(Job())
        store.open.set()
        await asyncio.wait_for(asyncio.gather(*tasks), 10)
        assert (commits.n_commits, commits.n_jobs, commits.n_failed, store.written) == (2, 3, 0, 3)

    go(scenario())


@pytest.mark.parametrize("fails", [False, True])
def test_a_client_that_goes_away_takes_no_other_answer_with_it(fails):
    async def scenario():
        store = Gate(fails)
        commits = Commits(store, 10)
        tasks = await waiting(commits, 2)
        tasks[1].cancel()
        store.open.set()
        answers = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)
        assert isinstance(answers[1], asyncio.CancelledError)
        for answer in (answers[0], answers[2]):
            assert not fails or str(answer) == "the store did not take this: OSError"
            assert (answer.code if fails else answer) == ("no-store" if fails else None)
        assert (commits.n_jobs, commits.n_failed) == ((0, 3) if fails else (2, 0))  # nobody waits for the other

    go(scenario())


@pytest.mark.parametrize(("deadline", "seconds", "told"), [(60.0, 0.01, "0.01"), (0.02, None, "0.02")])
def test_a_connection_waits_as_long_as_it_was_told_and_no_longer(monkeypatch, deadline, seconds, told):
    async def never(self, work, keep=False):
        await asyncio.Event().wait()

    monkeypatch.setattr(postgres_module._Link, "_work", never)
    link = postgres_module._Link("postgresql://nowhere", deadline)
    with pytest.raises(TimeoutError, match=f"the database did not answer within {told} s"):
        go(link.run(never, seconds))


def test_a_long_read_for_the_page_holds_no_session_up(tmp_path):
    """Rows of a log are read in a thread of their own: while it is busy, sessions are looked up all the same."""
    import threading

    async def scenario():
        store = open_store(str(tmp_path / "events.db"))
        await store.open()
        busy, free = threading.Event(), threading.Event()

        def hold() -> None:
            busy.set()
            free.wait(20)

        try:
            store._far_reader.submit(hold)
            busy.wait(20)
            assert await asyncio.wait_for(store.session("nobody"), 10) == []
            rows = asyncio.ensure_future(store.rows(0.0, 1.0))
            done, _ = await asyncio.wait([rows], timeout=0.1)
            assert not done
            free.set()
            assert await asyncio.wait_for(rows, 10) == []
        finally:
            free.set()
            await store.close()

    go(scenario())


def test_the_lengths_that_postgresql_remembers_are_those_of_the_latest_sessions(monkeypatch):
    monkeypatch.setattr(postgres_module, "_KNOWN", 2)
    memory = SimpleNamespace(_lengths=OrderedDict())
    for name, known in (("a", ["a"]), ("b", ["a", "b"]), ("c", ["b", "c"])):
        rows = SimpleNamespace(decisions=[SimpleNamespace(session=name, step=3)])
        postgres_module.PostgresStore._remember(memory, rows)
        assert list(memory._lengths) == known
    assert memory._lengths["c"] == 4


def test_a_store_keeps_its_name_and_the_settings_of_the_service(event_store):
    async def scenario():
        async with opened(event_store) as store:
            name = await store.store_id()
            assert len(name) == 16
            other = open_store(event_store)
            await other.open()
            assert await other.store_id() == name
            assert await store.service_settings() == {}
            await store.set_service_settings({"floor": 0.02, "horizon": None})
            await other.set_service_settings({"horizon": 5, "keep": None})
            assert await store.service_settings() == {"floor": 0.02, "horizon": 5, "keep": None}
            await other.close()

    go(scenario())


def test_an_arm_that_is_known_is_opened_by_its_rollout_and_a_withdrawn_one_is_not(event_store):
    async def scenario():
        async with opened(event_store) as store:
            await store.set_arms(["a", "b", 3])
            await store.set_arms(["a", 3])
            await store.add_arms(["b", "c", "d", 3], ArmState.KNOWN)
            states = [(arm.label, arm.state.name) for arm in await store.arms()]
            assert states == [("a", "OPEN"), ("b", "WITHDRAWN"), (3, "OPEN"), ("c", "KNOWN"), ("d", "KNOWN")]
            assert [arm.is_open for arm in await store.arms()] == [True, False, True, False, False]
            before = await store.signals()
            assert await store.add_rollout(Rollout("v", None, 0.0, 1.0, ""), opens=["a", "b", "c"])
            assert [arm.state.name for arm in await store.arms()] == ["OPEN", "WITHDRAWN", "OPEN", "OPEN", "KNOWN"]
            after = await store.signals()
            assert (after.register, after.arms) == (before.register + 1, before.arms + 1)
            await store.set_arms(["a"])
            assert [arm.state.name for arm in await store.arms()] == ["OPEN", *["WITHDRAWN"] * 3, "KNOWN"]
            await store.put_arm("b", ArmState.OPEN)
            await store.put_arm("e", ArmState.OPEN)
            assert [arm.label for arm in await store.arms() if arm.is_open] == ["a", "b", "e"]

    go(scenario())


def test_a_change_of_the_register_or_the_arms_fails_after_another_one(event_store):
    async def scenario():
        async with opened(event_store) as store:
            await store.set_arms(["a", "b"])
            await store.add_rollout(Rollout("v", None, 0.0, 1.0, ""))
            seen = await store.signals()
            other = open_store(event_store)
            await other.open()
            assert await other.add_rollout(Rollout("w", None, 0.0, 2.0, ""), seen.register)
            assert not await store.add_rollout(Rollout("x", None, 0.0, 3.0, ""), seen.register, opens=["a"])
            assert [entry.active for entry in await store.rollouts(9)] == ["w", "v"]
            assert await other.set_arms(["a"], seen.arms)
            assert not await store.set_arms(["b"], seen.arms)
            assert not await store.put_arm("b", ArmState.OPEN, seen.arms)
            assert [arm.label for arm in await store.arms() if arm.is_open] == ["a"]
            now = await store.signals()
            assert (now.register, now.arms) == (seen.register + 1, seen.arms + 1)
            assert await store.put_arm("b", ArmState.OPEN, now.arms)
            await other.close()

    go(scenario())


def test_of_many_changes_after_the_same_number_one_succeeds(event_store):
    async def scenario():
        async with opened(event_store) as store:
            other = open_store(event_store)
            await other.open()
            entries = [Rollout(f"v{i}", None, 0.0, float(i), "") for i in range(6)]
            number = (await store.signals()).register
            tries = [(store, other)[i % 2].add_rollout(entry, number) for i, entry in enumerate(entries)]
            assert sorted(await asyncio.gather(*tries)) == [False] * 5 + [True]
            assert len(await store.rollouts(9)) == 1
            await other.close()

    go(scenario())


def test_the_version_in_force_and_its_canary_are_not_removed(event_store):
    async def scenario():
        async with opened(event_store) as store:
            for name in ("a", "b", "c"):
                await store.add_version(name, b"body", 1.0, "")
            await store.add_rollout(Rollout("c", None, 0.0, 1.0, ""))
            await store.add_rollout(Rollout("a", "b", 0.5, 2.0, ""))
            assert [await store.remove_version(name) for name in ("a", "b", "c", "d")] == [False, False, True, False]
            assert sorted(row.version for row in await store.versions()) == ["a", "b"]

    go(scenario())


def test_what_was_forgotten_or_erased_is_on_record(event_store):
    async def scenario():
        async with opened(event_store) as store:
            before = await store.signals()
            assert not (await store.removals()).covers("old", 100.0)
            assert await store.forget(150.0, 10) == 1
            forgotten = await store.signals()
            assert (forgotten.erased, forgotten.erasures) == (before.erased + 1, before.erasures)
            assert await store.forget(120.0, 10) == 0  # an earlier time takes nothing back
            assert await store.signals() == forgotten
            removals = await store.removals()
            assert (removals.forgotten_before, removals.sessions) == (150.0, frozenset())
            assert (removals.covers("old", 100.0), removals.covers("middle", 200.0)) == (True, False)
            await store.erase("ann", 400.0)
            removals = await store.removals()
            assert (removals.covers("middle", 200.0), removals.covers("another", 200.0)) == (True, False)
            assert removals.persons == {person_mark("ann"): 400.0}
            assert (await store.signals()).erasures == removals.erasures == before.erasures + 1
            await store.erase("nobody", 500.0)  # who may be in a policy all the same
            assert (await store.removals()).erasures == removals.erasures + 1

    go(scenario())


def test_the_newest_step_says_how_far_time_has_come(event_store):
    async def scenario():
        async with opened(event_store) as store:
            assert await store.newest() == 301.0
            await store.erase("ann", 400.0)
            assert await store.newest() is None

    go(scenario())


def test_a_replica_does_not_go_on_with_a_session_that_another_one_forgot(event_store):
    """It remembers that steps 0 to 2 were stored; step 3 alone would be a session that nobody can read."""

    async def scenario():
        async with opened(event_store) as one:
            other = open_store(event_store)
            await other.open()
            await other.write([Job(decision=decided("kept", step, 0, 250.0 + step)) for step in range(3)])
            before = await other.signals()
            assert await one.forget(260.0, 100) == 3
            await other.write([late := Job(decision=decided("kept", 3, 0, 270.0))])
            assert (late.refused, late.stored) == ("gap", None)
            assert await one.session("kept") == []
            assert (await other.signals()).erased == before.erased + 1  # sessions in memory are dropped
            await other.write([again := Job(decision=decided("kept", 0, 1, 271.0))])
            assert again.stored == again.decision
            await other.close()

    go(scenario())
