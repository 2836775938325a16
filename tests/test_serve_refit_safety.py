"""What a refit may not do: remove exports, undo a rollback, shorten sessions, explore more, or follow any feature."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
from serving import HORIZON, LABELS, Clock, go, policy_bytes, served
from test_serve_refit import OPTIONS, TRUTH, add_sessions, exported, filled, live, night_of
from typer.testing import CliRunner

import lmab
from lmab.cli.app import app
from lmab.errors import InvalidArgument, InvalidFile
from lmab.serve.export import HISTORY, OTHERS, Survey, export_days, keep_history, person_numbers, read_history, read_log
from lmab.serve.refit import LAST, NIGHT, RefitOptions, inherited, refit, retire, used_columns
from lmab.serve.stores import Decision, Job, RewardRow, Rollout, open_store
from lmab.serve.versions import Defaults, read_version

RUNNER = CliRunner()
refit_module = sys.modules["lmab.serve.refit"]  # whose name the function has in the package
SHORT = {"types": 2, "repeats": True, "time_limit": 2.0, "least": 20, "prior": 1.0}


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(refit_module, "_DRAWS", 20)


# Exports


def test_a_refit_never_creates_a_store(tmp_path):
    words = ["refit", "--store", str(tmp_path / "typo.db"), "--policies", str(tmp_path / "policies")]
    assert isinstance(RUNNER.invoke(app, words).exception, InvalidFile)
    assert not (tmp_path / "typo.db").exists()
    assert not (tmp_path / "policies").exists()


def test_a_folder_of_another_store_ends_with_status_2(tmp_path):
    async def scenario():
        for name in "ab":
            async with filled(str(tmp_path / f"{name}.db"), (0, "a"), (1, "b")):
                pass

    go(scenario())
    words = ["refit", "--policies", str(tmp_path / "p"), "--store"]
    assert RUNNER.invoke(app, [*words, str(tmp_path / "a.db")]).exit_code == 0
    answer = RUNNER.invoke(app, [*words, str(tmp_path / "b.db")])
    assert (answer.exit_code, "the log of another store" in answer.output) == (2, True)
    assert len(list((tmp_path / "p" / "log").glob("*.parquet"))) == 2


def test_a_folder_of_another_store_is_refused(tmp_path):
    async def scenario():
        async with filled(str(tmp_path / "a.db"), (0, "a"), (1, "b")) as store:
            await export_days(store, tmp_path / "log")
            assert (tmp_path / "log" / ".store").read_text() == await store.store_id()
        async with filled(str(tmp_path / "b.db"), (0, "a"), (1, "b")) as other:
            with pytest.raises(InvalidArgument, match="holds the log of another store"):
                await refit(other, tmp_path, OPTIONS, rng=0)
        assert exported(tmp_path / "log") == {"01": 1, "02": 1}

    go(scenario())


@pytest.mark.parametrize(("own", "taken"), [("a", True), ("x", False)])
def test_a_folder_without_an_id_is_adopted_if_its_days_agree(tmp_path, own, taken):
    async def scenario():
        async with filled(str(tmp_path / "a.db"), (0, "a"), (1, "b")) as store:
            await export_days(store, tmp_path / "log")
        (tmp_path / "log" / ".store").unlink()  # as an earlier release left it
        async with filled(str(tmp_path / "b.db"), (0, own)) as other:
            if taken:
                assert (await export_days(other, tmp_path / "log")).kept == 1
            else:
                with pytest.raises(InvalidArgument, match="a log of which this store has no row"):
                    await export_days(other, tmp_path / "log")
        assert exported(tmp_path / "log") == {"01": 1, "02": 1}

    go(scenario())


def test_only_what_the_store_forgot_or_erased_leaves_the_log(event_store, tmp_path):
    """A store that was restored from a backup lacks rows that it has not removed: they stay."""

    async def scenario():
        async with filled(event_store, (0, "old"), (3, "a"), (3, "b"), (4, "c"), (5, "d"), (5, "e")) as store:
            assert await export_days(store, tmp_path) == (sorted(tmp_path.glob("*.parquet")), 0)
            await _lose(store, "b", "c")
            assert (await export_days(store, tmp_path)).kept == 2
            assert exported(tmp_path) == {"01": 1, "04": 2, "05": 1, "06": 2}
            assert (await export_days(store, tmp_path)) == ([], 2)  # nothing is written twice
            await store.erase("person of e", 1e9)
            await store.erase("person of c", 1e9)  # the store has no session of this person any more
            await store.forget(86_400.0, 10)
            assert (await export_days(store, tmp_path)).kept == 1
            assert exported(tmp_path) == {"04": 2, "06": 1}
            await add_sessions(store, (3, "new"))
            assert (await export_days(store, tmp_path)).kept == 1
            assert exported(tmp_path)["04"] == 3
            assert (await export_days(store, tmp_path, remove=True)).kept == 0
            assert exported(tmp_path) == {"04": 2, "06": 1}

    go(scenario())


async def _lose(store, *sessions: str) -> None:
    """Delete sessions behind the back of the store, as a restored backup does."""
    names, marks = store.names, ",".join("?" * len(sessions))
    for table in {names["rewards"], names["steps"], names["people"]}:
        if names["key"] == "number" and table != names["people"]:
            chosen = f"number IN (SELECT number FROM {names['people']} WHERE session IN ({marks}))"
        else:
            chosen = f"session IN ({marks})"
        if table != names["people"] or table == names["steps"]:
            await store._do((f"DELETE FROM {table} WHERE {chosen}", *sessions))
    if names["people"] != names["steps"]:
        await store._do((f"DELETE FROM {names['people']} WHERE session IN ({marks})", *sessions))


def test_a_refit_says_that_exported_rows_stay(tmp_path):
    async def scenario():
        async with filled(str(tmp_path / "e.db"), (0, "a"), (1, "b")) as store:
            await export_days(store, tmp_path / "log")
            await _lose(store, "b")
            found = await refit(store, tmp_path, replace(OPTIONS, horizon=None), rng=0)
            assert "1 exported rows stay, which the store neither has nor forgot or erased" in found.lines[0]
            found = await refit(store, tmp_path, replace(OPTIONS, horizon=None, remove_days=True), rng=0)
            assert found.lines == ("The store holds 1 sessions; 100 are needed. Kept uniform.",)
            assert exported(tmp_path / "log") == {"01": 1}

    go(scenario())


def test_two_refits_through_a_link_are_one(tmp_path):
    async def scenario():
        async with filled(str(tmp_path / "e.db"), (0, "a")) as store, store.exclusively():
            (tmp_path / "link.db").symlink_to(tmp_path / "e.db")
            other = open_store(str(tmp_path / "link.db"))
            await other.open()
            assert (await refit(other, tmp_path, rng=0)).lines[0].startswith("Another refit of this store is at work")
            await other.close()

    go(scenario())


# The register


def test_a_refit_does_not_undo_a_rollback(event_store, tmp_path, rng, monkeypatch):
    async def scenario():
        clock = Clock()
        async with served(event_store, policy_bytes(), clock=clock) as client:
            register = client.service.register
            good = register.rollout.active
            bad = await register.add_version(policy_bytes(seed=7))
            await register.promote(bad.name, 1.0)
            await live(client, 300, "a", rng)
            real = type(client.service.store).add_version

            async def rolled_back(self, *given):
                await real(self, *given)  # the plan is made, and not yet tested
                monkeypatch.setattr(type(self), "add_version", real)
                await register.rollback(register.rollout.canary or register.rollout.active)

            monkeypatch.setattr(type(client.service.store), "add_version", rolled_back)
            monkeypatch.setattr(refit_module, "YOUNG", 1)
            night = await night_of(client, clock, tmp_path, **SHORT)
            assert (night.outcome, night.canary) == ("kept", None)
            assert night.lines[-1] == "The register changed: nothing was put in force."
            assert (register.rollout.active, register.rollout.canary) == (good, None)

    go(scenario())


def test_the_verdict_on_a_canary_does_not_undo_a_rollback(tmp_path, rng, monkeypatch):
    async def scenario():
        clock = Clock()
        async with served(str(tmp_path / "e.db"), policy_bytes(), clock=clock) as client:
            register, store = client.service.register, client.service.store
            version = await register.add_version(policy_bytes(seed=7))
            await register.promote(version.name, 0.5)
            await live(client, 60, "a", rng)
            real = type(store).removals

            async def rolled_back(self):
                monkeypatch.setattr(type(self), "removals", real)
                await register.rollback(register.rollout.canary or register.rollout.active)
                return await real(self)

            monkeypatch.setattr(type(store), "removals", rolled_back)
            monkeypatch.setattr("lmab.serve.canary.Canary.look", lambda self, *_: (self, 1))
            monkeypatch.setattr(refit_module, "_sentence", lambda *_: "It earns more.")
            night = await night_of(client, clock, tmp_path, least=1000)
            assert (night.outcome, night.lines[-1][-43:]) == ("kept", "register changed: nothing was put in force.")
            assert (await store.rollouts(1))[0][:2] == (register.rollout.active, None)
            assert (await store.rollouts(1))[0].note == "canary ended"

    go(scenario())


# What is inherited


async def inherits(client, **options):
    store = client.service.store
    name = client.service.register.rollout.active
    body = await store.version(name) if name != "uniform" else None
    version = None if body is None else read_version(body, Defaults(1))
    return await inherited(store, RefitOptions(**options), version, await Survey.of(store))


@pytest.mark.parametrize("stored", [True, False])
def test_a_refit_inherits_what_the_service_runs_with(event_store, rng, stored):
    async def scenario():
        async with served(event_store, defaults=Defaults(7, 0.02, repeats=False), window=60.0) as client:
            await live(client, 5, "a", rng)
            if not stored:  # the service of an earlier release
                await client.service.store._do(("DELETE FROM settings WHERE name LIKE 'serve.%'",))
            found, lines = await inherits(client)
            wanted = (0.02, 60.0, 7, False) if stored else (0.05, 3600.0, HORIZON, None)
            assert (found.floor, found.window, found.horizon, found.repeats) == wanted
            assert lines == []
            found, lines = await inherits(client, floor=0.1, horizon=3)
            assert (found.floor, found.horizon) == (0.1, 3)
            assert lines == [
                f"The floor of this refit is 0.1; the service has {wanted[0]:g}.",
                f"The horizon of this refit is 3; the service has {wanted[2]}.",
            ]

    go(scenario())


def test_floor_and_repeats_of_what_is_in_force_are_inherited(tmp_path):
    async def scenario():
        async with served(str(tmp_path / "e.db"), policy_bytes(), defaults=Defaults(None, 0.05)) as client:
            store = client.service.store
            await store._do(("DELETE FROM settings WHERE name LIKE 'serve.%'",))
            await store.set_setting("floors", json.dumps([["red", 0.02], ["green", 0.01]]))
            found, _ = await inherits(client)
            assert (found.floor, found.horizon, found.repeats) == (pytest.approx(0.03), HORIZON, True)

    go(scenario())


def test_a_refit_does_not_shorten_sessions(event_store, tmp_path, rng, monkeypatch):
    """Sessions of two steps under a service of four: the next version plans four."""

    async def scenario():
        clock = Clock()
        async with served(event_store, clock=clock) as client:
            for i in range(60):
                told = await client.told(f"s{i}", 0)
                second = await client.told(f"s{i}", 1, float(rng.random() < TRUTH.means[i % 2, told["arm"]]))
                await client.reward(f"s{i}", 1, float(rng.random() < TRUTH.means[i % 2, second["arm"]]))
            clock.now += 86_400
            monkeypatch.setattr(refit_module, "YOUNG", 1)
            options = RefitOptions(canary=1.0, **SHORT)
            night = await refit(client.service.store, tmp_path, options, rng=0, now=clock())
            assert night.outcome == "promoted", night.lines
            assert lmab.load(tmp_path / f"{night.version}.lmab").horizon == HORIZON

    go(scenario())


def test_a_shorter_version_is_not_promoted_without_a_horizon(tmp_path, rng, monkeypatch):
    monkeypatch.setattr("lmab.serve.canary.PATIENCE", 1)
    monkeypatch.setattr("lmab.serve.canary.MARGIN", 1e6)  # whatever they earn is the same

    async def scenario(folder, **more):
        clock = Clock()
        async with served(str(folder / "e.db"), policy_bytes(), clock=clock) as client:
            version = await client.service.register.add_version(policy_bytes(seed=7, horizon=2))
            await client.service.register.promote(version.name, 0.5)
            async for _ in _short_sessions(client, rng):
                pass
            night = await night_of(client, clock, folder, least=1000, **{"horizon": None} | more)
            return night.outcome, " ".join(night.lines)

    (tmp_path / "b").mkdir()
    outcome, said = asyncio.run(scenario(tmp_path))
    assert (outcome, "it plans 2 steps of a session" in said, "--horizon 2" in said) == ("withdrawn", True, True)
    assert asyncio.run(scenario(tmp_path / "b", horizon=2))[0] == "promoted"


async def _short_sessions(client, rng):
    for i in range(60):
        await client.told(f"s{i}", 0)
        await client.told(f"s{i}", 1, float(rng.random() < 0.5))
        yield await client.reward(f"s{i}", 1, float(rng.random() < 0.5))


# Features


def survey_of(**counts) -> Survey:
    survey = Survey(n_sessions=10)
    survey.columns.update(counts)
    survey.texts = {"country"}
    return survey


def test_features_that_clients_invent_are_not_used():
    survey = survey_of(country=9, age=5, odd=4, **{f"u{i}": 1 for i in range(50)})
    used, (line,) = used_columns(survey, (), None, None)
    assert used == {"age": False, "country": True}
    assert line == "51 features are stored and not used: odd, u0, u1, ... (--features names the used ones)."
    assert used_columns(survey, ("odd",), None, None)[0] == {"odd": False}
    with pytest.raises(InvalidArgument, match="--features must name features that some session has, got 'agee'"):
        used_columns(survey, ("agee",), None, None)


def test_features_of_the_version_in_force_are_used():
    prior = lmab.TypePrior(["odd"], [[0.0, 0.0], [1.0, -1.0]])
    policy = SimpleNamespace(policy=SimpleNamespace(type_prior=prior))
    version = replace(read_version(policy_bytes(), Defaults(HORIZON)), compact=policy)
    survey = survey_of(country=9, odd=1)
    assert used_columns(survey, (), version, None)[0] == {"odd": False}
    assert used_columns(survey, ("country",), version, None)[0] == {"country": True}


def test_features_that_are_not_used_stay_in_the_log_by_day(tmp_path, rng):
    async def scenario():
        async with served(str(tmp_path / "e.db")) as client:
            for i in range(20):
                await client.told(f"s{i}", 0, features={"age": i, f"u{i}": "x"})
                await client.told(f"s{i}", 1, 1.0)
            store, survey = client.service.store, await Survey.of(client.service.store)
            columns, _ = used_columns(survey, (), None, None)
            ((path,), _) = await export_days(store, tmp_path / "log", survey, columns=columns)
            table = pq.read_table(path)
            assert {"age", OTHERS} < set(table.column_names)
            assert "u3" not in table.column_names
            assert table[OTHERS].to_pylist()[3] == '{"u3": "x"}'
            log = await read_log(store, tmp_path / NIGHT, survey, LABELS, columns=columns)
            assert list(log.sessions.features) == ["age"]

    go(scenario())


def test_a_log_that_is_read_in_batches_is_the_same(event_store, tmp_path, rng, monkeypatch):
    async def scenario():
        clock = Clock()
        async with served(event_store, clock=clock) as client:
            await live(client, 40, "a", rng)
            store = client.service.store
            whole = await read_log(store, tmp_path / "a", await Survey.of(store), LABELS)
            monkeypatch.setattr("lmab.serve.export._BATCH", 7)
            monkeypatch.setattr("lmab.serve.export._IN_MEMORY", 10)
            parts = await read_log(store, tmp_path / "b", await Survey.of(store), LABELS)
            assert isinstance(parts.sessions, lmab.Packed)
            assert (parts.sessions.load(), parts.whole) == (whole.sessions, whole.whole)

    go(scenario())


# The history


def past_log(n: int = 400, persons=None, features=None) -> lmab.Sessions:
    truth = lmab.LatentBandit(TRUTH.weights, TRUTH.rewards, LABELS)
    log = lmab.simulate(truth, lmab.Uniform(3), n_sessions=n, horizon=HORIZON, rng=3)
    return replace(log, persons=persons, features=features)


def test_a_history_is_used_by_this_refit_and_by_later_ones(event_store, tmp_path, rng):
    async def scenario():
        clock = Clock()
        async with served(event_store, policy_bytes(), clock=clock) as client:
            await live(client, 30, "a", rng)
            store = client.service.store
            options = replace(OPTIONS, **SHORT | {"least": 200, "canary": 1.0})
            clock.now += 86_400
            alone = await refit(store, tmp_path / "none", options, rng=0, now=clock())
            assert alone.lines[-1].startswith("The store holds 30 sessions; 200 are needed.")
            first = await refit(store, tmp_path / "f", options, rng=0, now=clock(), history=past_log())
            assert any(line.startswith("430 sessions, 3 arms") for line in first.lines), first.lines
            assert not any("relies on" in line for line in first.lines)
            again = await refit(store, tmp_path / "f", options, rng=0, now=clock())
            assert any(line.startswith("430 sessions, 3 arms") for line in again.lines)
            assert (tmp_path / "f" / HISTORY).stat().st_mode & 0o777 == 0o700
            assert not (tmp_path / "f" / NIGHT).exists()

    go(scenario())


def test_plays_of_an_arm_that_is_too_young_are_printed(tmp_path, rng):
    async def scenario():
        clock = Clock()
        async with served(str(tmp_path / "e.db"), clock=clock) as client:
            await live(client, 60, "a", rng)
            night = await night_of(client, clock, tmp_path, **SHORT)
            assert "plays so far; 200 are needed (100 for each type). Kept uniform." in night.lines[-1], night.lines

    go(scenario())


def test_a_history_has_the_arms_and_columns_of_the_service(tmp_path, rng):
    features = {"age": np.arange(400.0), "land": np.array(["de", "fr"] * 200, object)}
    history = keep_history(past_log(persons=np.array(["ann", None] * 200, object), features=features), tmp_path)

    async def scenario():
        async with served(str(tmp_path / "e.db")) as client:
            await client.service.register.set_arms(["new", "blue", "red"])
            await client.told("s", 0, person="ann", features={"age": "old"})
            await client.told("s", 1, 1.0)
            store = client.service.store
            arms = [arm.label for arm in await store.arms()]
            columns = {"age": True, "town": True}
            log = (
                await read_log(
                    store, tmp_path / "n", await Survey.of(store), arms, columns=columns, history=history,
                    more=[arms.index(name) for name in ("new", "red", "blue")],
                )
            ).sessions  # fmt: skip
            assert set(log.arm_labels) == {"red", "blue", "new"}  # green was withdrawn
            own = past_log()
            for name in ("red", "blue"):
                place = own.arm_labels.index(name)
                mine = log.arms == log.arm_labels.index(name)
                assert mine[: log.offsets[-2]].sum() == (own.arms == place).sum()
            assert log.features["age"][-1] == "old"
            assert log.features["age"][1] in {str(i) for i in range(400)}
            assert set(log.features["town"]) == {None}
            assert log.persons[-1] == person_numbers(["ann"])[0] == log.persons[0]

    go(scenario())


def test_an_erased_person_leaves_the_history(event_store, tmp_path):
    async def scenario():
        persons = np.array([7, 8, 9, 7] * 100)
        folder = tmp_path / "policies"
        keep_history(past_log(persons=persons), folder)
        async with filled(event_store, (0, "a")) as store:
            assert len(read_history(folder, (await store.removals()).persons)) == 400
            await store.erase("7", 5.0)
            kept = read_history(folder, (await store.removals()).persons)
            assert (len(kept), set(kept.persons)) == (200, set(person_numbers(["8", "9"])))
            assert len(lmab.Packed(folder / HISTORY)) == 200
            assert [path.name for path in folder.iterdir()] == [HISTORY]
            for name in ("8", "9"):
                await store.erase(name, 6.0)
            assert read_history(folder, (await store.removals()).persons) is None
            assert list(folder.iterdir()) == []

    go(scenario())


def test_a_kill_between_two_renames_loses_no_history(tmp_path):
    keep_history(past_log(), tmp_path)
    (tmp_path / HISTORY).rename(tmp_path / f".{HISTORY}.new")
    assert len(read_history(tmp_path, ())) == 400
    with pytest.raises(InvalidArgument, match="--history must be files if it has persons, got a packed log"):
        keep_history(lmab.pack(past_log(persons=np.arange(400)), tmp_path / "packed"), tmp_path)


# Versions


def test_a_refit_keeps_the_last_versions_and_those_in_use(event_store, tmp_path):
    folder = tmp_path / "policies"
    folder.mkdir()

    async def scenario():
        async with served(event_store) as client:
            store = client.service.store
            for number in range(6):
                await store.add_version(f"{number:012x}", b"x", float(number), "")
                for end in (".lmab", ".model.lmab"):
                    path = folder / f"{number:012x}{end}"
                    path.touch()
                    os.utime(path, (number, number))
            for path in (folder / LAST, folder / "mine.lmab", folder / "aaaaaaaaaaaa.lmab"):
                path.touch()  # the last one is newer than all versions: the store comes from a backup
            for number in (1, 0):
                await store.add_rollout(Rollout(f"{number:012x}", None, 0.0, 1.0, ""))
            await retire(store, folder, 2)
            assert sorted(int(row.version, 16) for row in await store.versions()) == [0, 1, 4, 5]
            names = {path.name.split(".")[0] for path in folder.iterdir()}
            assert names == {*(f"{number:012x}" for number in (0, 1, 4, 5)), "last", "mine", "aaaaaaaaaaaa"}

    go(scenario())


def test_the_first_fit_after_an_erasure_starts_from_scratch(tmp_path, rng, monkeypatch):
    starts = []

    def watched(sessions, *, start, n_types, **more):
        starts.append((start is None, n_types))
        return lmab.fit(sessions, start=start, n_types=2, **more, check=False)

    monkeypatch.setattr(refit_module, "fit", watched)

    async def scenario():
        clock = Clock()
        async with served(str(tmp_path / "e.db"), clock=clock) as client:
            await live(client, 150, "a", rng)
            decision = Decision("mine", 0, 0, 0.5, "uniform", clock(), 1, 0, None, None, "me")
            await client.service.store.write([Job([RewardRow("mine", 0, 1.0, clock(), 0)], decision)])
            options = SHORT | {"types": "auto"}
            await night_of(client, clock, tmp_path, **options)
            await night_of(client, clock, tmp_path, **options)
            await client.service.erase("me")
            await night_of(client, clock, tmp_path, **options | {"least": 10_000})  # nothing is fitted this night
            assert not (tmp_path / LAST).exists()
            await night_of(client, clock, tmp_path, **options)
            await night_of(client, clock, tmp_path, **options)
            assert starts == [(True, "auto"), (False, 2), (True, "auto"), (False, 2)]

    go(scenario())
