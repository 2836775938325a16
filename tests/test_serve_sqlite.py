"""What every store answers, asked directly: spans of time, the latest sessions, and what erasing leaves on the disk."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest
from serving import go

from lmab.serve import open_store, sqlite_writer
from lmab.serve.stores import Decision, Job, RewardRow, Turn


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


def test_rows_are_those_of_the_latest_sessions_and_of_a_span_of_time(event_store):
    async def scenario():
        async with opened(event_store) as store:
            for span, limit, wanted in (
                ((0.0, 1e9), None, ["old", "old", "middle", "new", "new"]),
                ((0.0, 1e9), 2, ["middle", "new", "new"]),
                ((0.0, 1e9), 1, ["new", "new"]),
                ((100.0, 300.0), None, ["old", "old", "middle"]),  # from the first moment, up to the last
                ((100.5, 300.5), None, ["middle", "new", "new"]),
            ):
                assert [row[0] for row in await store.rows(*span, limit)] == wanted
            assert (await store.rows(300.0, 301.0))[1] == ("new", 1, 0, 0.0, 0.5, "v", 301.0, 0, 0, 300.0)

    go(scenario())


def test_a_person_is_known_by_the_last_steps_of_earlier_sessions(event_store):
    async def scenario():
        async with opened(event_store) as store:
            whole = [(0, 1.0), (1, 0.0), (2, 1.0), (1, 1.0), (0, 0.0)]
            assert await store.person("ann", 1e9, 100) == whole
            assert await store.person("ann", 1e9, 2) == whole[-2:]
            assert await store.person("ann", 300.0, 100) == whole[:3]  # sessions that began before that moment
            assert await store.person("bob", 1e9, 100) == []

    go(scenario())


def test_default_rewards_go_to_unrewarded_steps_of_a_span_alone(event_store):
    async def scenario():
        async with opened(event_store) as store:
            await store.write([Job(decision=decided(f"s{at}", 0, 0, float(at))) for at in (400, 410, 420)])
            assert await store.fill_defaults(0.25, 400.0, 420.0, 500.0) == 2
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
                await store.turn(Turn(name, None, 0.0, 1.0, ""))
            assert [turn.active for turn in await store.turns(2)] == ["x", "w"]

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
            assert [(row[0], row[2], row[3]) for row in rows] == [(f"m{i}", i % 3, 1.0) for i in range(301)]
            assert jobs[7].stored == jobs[7].decision

    go(scenario())


def test_an_erased_person_has_no_rewards_left(event_store):
    async def scenario():
        async with opened(event_store) as store:
            assert sorted(await store.erase("ann")) == ["middle", "new", "old"]
            await store.write([Job(decision=decided("old", 0, 0, 500.0))])  # the same name, of somebody else
            (past,) = await store.session("old")
            assert past.reward is None

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
            assert len(await store.erase("ann-of-nowhere")) == 200
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
            await other.erase("ann")  # whose newest session has a number that `other` gives away again
            await other.write([Job(decision=decided("c", 0, 4, 600.0))])
            await one.write([Job(decision=decided("new", 2, 1, 601.0))])  # a step of a session that is gone
            assert [past.decision.arm for past in await one.session("c")] == [4]
            assert [past.decision.step for past in await one.session("new")] == [2]
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
    monkeypatch.setattr(sqlite_writer, "_KNOWN", 10)

    async def scenario():
        async with opened(str(tmp_path / "events.db")) as store:
            for step in range(3):
                for start in range(0, 60, 6):
                    await store.write([Job(decision=decided(f"s{start + i}", step, step, 500.0)) for i in range(6)])
                    assert len(store._jobs._numbers) <= 16
            for i in range(60):
                assert [past.decision.arm for past in await store.session(f"s{i}")] == [0, 1, 2]

    go(scenario())


_OLD = """
CREATE TABLE decisions(session TEXT NOT NULL, step INTEGER NOT NULL, arm INTEGER NOT NULL,
    propensity REAL, policy TEXT NOT NULL, at REAL NOT NULL, explored INTEGER NOT NULL, fallback INTEGER NOT NULL,
    wish INTEGER, allowed TEXT, person TEXT, PRIMARY KEY(session, step)) WITHOUT ROWID;
CREATE TABLE rewards(session TEXT NOT NULL, step INTEGER NOT NULL, reward REAL NOT NULL, at REAL NOT NULL,
    defaulted INTEGER NOT NULL, PRIMARY KEY(session, step)) WITHOUT ROWID;
CREATE INDEX decisions_person ON decisions(person) WHERE person IS NOT NULL;
CREATE INDEX decisions_at ON decisions(at);
CREATE TABLE settings(name TEXT PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO decisions VALUES('b', 0, 4, 0.5, 'v', 10.0, 1, 0, 3, '["x"]', 'ann'),
    ('b', 1, 5, NULL, 'v', 11.0, 0, 1, NULL, NULL, NULL), ('a', 0, 6, 0.25, 'w', 20.0, 0, 0, NULL, NULL, NULL);
INSERT INTO rewards VALUES('b', 0, 1.0, 11.0, 0), ('b', 1, 0.5, 12.0, 1), ('lost', 3, 1.0, 13.0, 0);
INSERT INTO settings VALUES('secret', 'abcd');
"""


def test_a_file_of_an_earlier_version_opens_with_all_it_has(tmp_path):
    where = tmp_path / "events.db"
    with contextlib.closing(sqlite3.connect(where)) as db:
        db.executescript(_OLD)
        tables = [db.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall() for name in ("decisions", "rewards")]

    async def scenario():
        for _ in range(2):  # the second time the tables are there
            store = open_store(str(where))
            await store.open()
            first, second = await store.session("b")
            assert first == (Decision("b", 0, 4, 0.5, "v", 10.0, 1, 0, 3, '["x"]', "ann"), 1.0, False)
            assert second == (Decision("b", 1, 5, None, "v", 11.0, 0, 1, None, None, None), 0.5, True)
            assert [row[0] for row in await store.rows(0.0, 1e9)] == ["b", "b", "a"]
            assert await store.person("ann", 1e9, 10) == [(4, 1.0), (5, 0.5)]
            assert await store.setting("secret", "other") == "abcd"
            names = ("decisions", "rewards")  # for whoever reads them by their own SQL
            assert [store._db.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall() for name in names] == tables
            job = Job(decision=decided("b", 1, 9, 50.0))
            await store.write([job])
            assert job.stored == second.decision
            await store.close()

    go(scenario())
