"""What every store answers, asked directly: spans of time, the latest sessions, and what erasing leaves on the disk."""

from __future__ import annotations

import contextlib
from pathlib import Path

from serving import go

from lmab.serve import open_store
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
