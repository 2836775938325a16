"""The loop: logs from the store, the next version, who may be tested, and floors that follow what the log lacks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import stat
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from policies import always
from seeds import generator
from serving import HORIZON, LABELS, Clock, go, policy_bytes, served

import lmab
from lmab.cli.serve_demo import HORIZON as STEPS
from lmab.cli.serve_demo import Population, play_demo, population, value_in_force
from lmab.data.parts import plays_twice
from lmab.errors import InvalidArgument, InvalidData, LmabError
from lmab.estimation.warm_start import start_for
from lmab.evaluation.compare import Comparison
from lmab.policies.exploration import floors
from lmab.serve.export import ServedLog, Survey, export_days, read_log, sessions_of
from lmab.serve.messages import Question, Reward
from lmab.serve.refit import (
    LAST,
    RefitOptions,
    earned,
    fit_from,
    fit_log,
    in_force,
    last_model,
    refit,
    sentence,
    surely_worse,
)  # fmt: skip
from lmab.serve.run import Options
from lmab.serve.stores import Bucket, Decision, Job, LogRow, RewardRow, Rollout, open_store

refit_module = sys.modules["lmab.serve.refit"]  # whose name the function has in the package
TRUTH = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.95, 0.5, 0.05], [0.05, 0.6, 0.95]])
OPTIONS = RefitOptions(types=2, horizon=HORIZON, repeats=True, time_limit=5.0, least=100)


@pytest.fixture
def soon(monkeypatch):
    """Options of a night in no time, for tests that ask what comes after the fit and its assessment."""
    monkeypatch.setattr(refit_module, "_DRAWS", 20)
    return {"prior": 1.0}


async def live(client, n: int, prefix: str, rng, truth=TRUTH, gold=None) -> None:
    """Sessions of people who behave as `truth`, several at a time; `gold` has an arm of this name, too."""
    truth, labels = (truth, LABELS) if gold is None else (gold, (*LABELS, "gold"))

    async def one(index: int) -> None:
        own = np.random.default_rng([seed, index])  # sessions end in any order
        type_ = np.array([own.choice(truth.n_types, p=truth.weights)])
        reward = None
        for step in range(HORIZON):
            told = await client.service.decide(Question(f"{prefix}{index}", step, reward))
            reward = float(truth.rewards.sample(type_, np.array([labels.index(told.label)]), rng=own)[0])
        await client.service.reward([Reward(f"{prefix}{index}", HORIZON - 1, reward)])

    seed = int(rng.integers(1 << 30))
    for start in range(0, n, 100):
        await asyncio.gather(*(one(index) for index in range(start, min(start + 100, n))))


def row(session, step, arm, reward, began=0.0, policy="v", propensity=0.5, at=0.0) -> LogRow:
    return LogRow(session, step, arm, reward, propensity, policy, at, 0, 0, began, 0)


def test_the_log_by_day_is_what_the_store_holds_and_fit_reads_it(event_store, tmp_path, rng):
    async def scenario():
        clock = Clock()
        async with served(event_store, clock=clock) as client:
            store = client.service.store
            await live(client, 30, "a", rng)
            clock.now += 86_400
            await live(client, 20, "b", rng)
            await client.told("open", 0)  # not rewarded: not in the log
            files = (await export_days(store, tmp_path / "log")).written
            assert [path.name for path in files] == ["1970-01-12.parquet", "1970-01-13.parquet"]
            logs = [lmab.Sessions.read(path, step="step", propensity="propensity") for path in files]
            assert [len(log) for log in logs] == [30, 20]
            np.testing.assert_allclose(logs[0].propensities, 1 / 3)
            log = await read_log(store, tmp_path / "night", await Survey.of(store), LABELS)
            assert (len(log.sessions), len(log.whole)) == (50, 50)
            assert log.sessions.arm_labels == LABELS
            both = logs[0] + logs[1]
            assert both.rewards.sum() == log.sessions.rewards.sum()
            for name in LABELS:  # the same plays of every label, whatever their numbers
                counts = [(part.arms == part.arm_labels.index(name)).sum() for part in (both, log.sessions)]
                assert counts[0] == counts[1]
            assert await export_days(store, tmp_path / "log") == ([], 0)  # nothing has changed

    go(scenario())


@contextlib.asynccontextmanager
async def filled(where: str, *days: tuple[int, str], labels=(7,)):
    """A store with one rewarded session on each of some days."""
    store = open_store(where)
    await store.open()
    await store.set_arms(labels)
    await add_sessions(store, *days)
    try:
        yield store
    finally:
        await store.close()


async def add_sessions(store, *days: tuple[int, str], arm: int = 0) -> None:
    for day, name in days:
        at = 86_400.0 * day + 5
        decision = Decision(name, 0, arm, 0.25, "v", at, 0, 0, None, None, f"person of {name}")
        await store.write([Job([RewardRow(name, 0, 1.0, at + 1, 0)], decision)])


def exported(folder) -> dict[str, int]:
    return {path.stem[-2:]: len(lmab.Sessions.read(path, step="step")) for path in sorted(folder.glob("*.parquet"))}


def test_a_day_is_written_again_whenever_it_has_changed(event_store, tmp_path):
    """A day that was exported in the morning has an evening; a clock that is a year ahead freezes nothing."""

    async def scenario():
        async with filled(event_store, (0, "morning"), (400, "clock ahead")) as store:
            await export_days(store, tmp_path)
            await add_sessions(store, (0, "evening"), (5, "later"))
            written = await export_days(store, tmp_path)
            assert [path.name for path in written.written] == ["1970-01-01.parquet", "1970-01-06.parquet"]
            assert sum(exported(tmp_path).values()) == 4
            await store.erase("person of evening", 0.0)
            await store.erase("person of later", 0.0)
            await export_days(store, tmp_path)
            assert exported(tmp_path) == {"01": 1, "05": 1}  # the day of which nothing is left is gone

    go(scenario())


@pytest.mark.parametrize("body", [b"", b"PAR1 cut off"])
def test_a_day_that_cannot_be_read_is_written_again(tmp_path, body):
    async def scenario():
        async with filled(str(tmp_path / "e.db"), (0, "a"), (1, "b")) as store:
            await export_days(store, tmp_path / "log")
            (tmp_path / "log" / "1970-01-01.parquet").write_bytes(body)
            assert [path.stem for path in (await export_days(store, tmp_path / "log")).written] == ["1970-01-01"]
            assert exported(tmp_path / "log") == {"01": 1, "02": 1}
            assert stat.S_IMODE((tmp_path / "log" / "1970-01-01.parquet").stat().st_mode) == 0o600

    go(scenario())


def test_days_that_were_written_before_an_arm_had_a_name_are_written_again(tmp_path):
    async def scenario():
        async with filled(str(tmp_path / "e.db"), (0, "a"), (1, "b"), labels=(3, 7)) as store:
            await export_days(store, tmp_path / "log")
            assert lmab.Sessions.read(tmp_path / "log", step="step").arm_labels == (3,)
            await store.set_arms([3, 7, "tea"])
            await add_sessions(store, (2, "c"), arm=2)
            assert len((await export_days(store, tmp_path / "log")).written) == 3
            assert await export_days(store, tmp_path / "log") == ([], 0)
        assert lmab.Sessions.read(tmp_path / "log", step="step").arm_labels == ("3", "tea")

    go(scenario())


class Rows:
    """A store that holds some rows, all of one day, and answers what an export asks."""

    def __init__(self, rows) -> None:
        self.held = rows

    async def buckets(self, since: float, width: float) -> list[Bucket]:
        return [Bucket("v", 0, 1, len(self.held), 0.0, 0.0, 0.0, 0, 0)]

    async def rows(self, since: float, until: float) -> list[LogRow]:
        return self.held


def log_from(rows, arms, folder, **more) -> ServedLog:
    async def read() -> ServedLog:
        store = Rows(rows)
        return await read_log(store, folder / "night", await Survey.of(store), arms, **more)

    return asyncio.run(read())


def surveyed(rows, now: float = 0.0) -> Survey:
    survey = Survey(now)
    for steps in sessions_of(rows):
        survey.add(steps)
    return survey


def test_a_session_is_cut_at_its_first_unknown_reward_or_probability(tmp_path):
    rows = [row("a", 0, 0, 1.0), row("a", 1, 1, None), row("a", 2, 0, 1.0)]
    rows += [row("b", 0, 0, 1.0, propensity=None), row("b", 1, 1, 1.0), row("c", 0, 0, 1.0)]
    log = log_from(rows, ["x", "y"], tmp_path)
    assert (len(log.sessions), log.sessions.n_steps) == (3, 5)
    assert log.whole.lengths.tolist() == [1, 1]
    assert log_from([row("a", 0, 0, 1.0, propensity=None)], ["x", "y"], tmp_path).whole is None
    with pytest.raises(InvalidData, match="the store must hold a rewarded step"):
        log_from([row("a", 0, 0, None)], ["x", "y"], tmp_path)


def test_arms_without_names_keep_their_numbers(tmp_path):
    rows = [row("a", 0, 2, 1.0, began=3.0), row("b", 0, 1, 0.0, began=4.0, propensity=0.25)]
    log = log_from(rows, ["x", "y", "z"], tmp_path)
    assert (log.sessions.arm_labels, log.sessions.arms.tolist()) == (("y", "z"), [1, 0])  # those that were played
    assert (log.sessions.propensities, log.whole.propensities.tolist()) == (None, [0.5, 0.25])
    assert log_from([one._replace(arm=one.arm - 1) for one in rows], [0, 1], tmp_path).sessions.arm_labels is None


async def night_of(client, clock, folder, **options):
    """A refit a day later, when every reward has come."""
    clock.now += 86_400
    result = await refit(client.service.store, folder, replace(OPTIONS, **options), rng=0, now=clock())
    await client.service.register.refresh()
    return result


def test_from_no_model_to_a_promoted_version(event_store, tmp_path, rng, soon):
    async def scenario():
        clock = Clock()
        async with served(event_store, clock=clock) as client:
            store, folder = client.service.store, tmp_path / "policies"
            await live(client, 50, "few", rng)
            night = await night_of(client, clock, folder, **soon)
            assert night.lines == ("The store holds 50 sessions; 100 are needed. Kept uniform.",)
            await live(client, 2000, "a", rng)
            night = await night_of(client, clock, folder, **soon)
            assert (night.outcome, night.canary) == ("canary", night.version), night.lines
            assert night.at == pytest.approx(clock())
            assert "Confidence interval: " in night.lines[1]
            assert "It differs from uniform in 100% of them" in night.lines[2]
            assert lmab.load(folder / f"{night.version}.model.lmab").n_types == 2
            register = client.service.register
            assert (register.rollout.canary, register.rollout.share) == (night.version, 0.05)
            assert sum(register.floors.values()) == pytest.approx(0.05)
            early = await night_of(client, clock, folder, **soon)
            assert (early.outcome, early.canary) == ("waits", night.version)
            await live(client, 1500, "b", rng)
            after = await night_of(client, clock, folder, **soon)
            assert (after.outcome, after.version) == ("promoted", night.version), after.lines
            assert "it surely earns more. Promoted." in after.lines[0]
            assert register.rollout.active == night.version
            policy = lmab.load(folder / f"{night.version}.lmab")
            assert lmab.evaluate(policy, TRUTH, horizon=HORIZON).mean > 0.97 * lmab.plan(TRUTH, horizon=HORIZON).lower
            nights = json.loads(await store.setting("refits", None))
            assert [one["outcome"] for one in nights] == ["waits", "canary", "waits", "promoted"]
            summary = (await client.http.get("/v1/summary")).json()
            assert summary["refits"][0]["outcome"] == "promoted"
            assert len(list((folder / "log").glob("*.parquet"))) == 3

    go(scenario())


def test_a_canary_that_earns_less_is_withdrawn(event_store, tmp_path, rng):
    async def scenario():
        clock = Clock()
        async with served(event_store, policy_bytes(floor=0.0), clock=clock) as client:
            good = client.service.register.rollout.active
            path = tmp_path / "bad.lmab"
            one = lmab.LatentBandit.bernoulli([1.0], [[0.9, 0.2, 0.1]])
            lmab.plan(lmab.LatentBandit(one.weights, one.rewards, LABELS), horizon=HORIZON).policy.save(path)
            await live(client, 100, "before", rng)
            version = await client.service.register.add_version(path.read_bytes())  # plays red for ever
            await client.service.register.promote(version.name, 0.5)
            await live(client, 900, "a", rng)
            night = await night_of(client, clock, tmp_path)
            assert (night.outcome, night.version) == ("withdrawn", version.name), night.lines
            assert "it surely earns less. Withdrawn." in night.lines[0]
            assert client.service.register.rollout.active == good

    go(scenario())


def test_the_plan_in_force_is_not_a_new_version(event_store, tmp_path, rng, soon):
    async def scenario():
        clock = Clock()
        async with served(event_store, clock=clock) as client:
            await live(client, 1500, "a", rng)
            first = await night_of(client, clock, tmp_path, canary=1.0, **soon)
            assert (first.outcome, first.lines[-1]) == ("promoted", f"{first.version} gets all new sessions, untested.")
            await live(client, 300, "b", rng)
            second = await night_of(client, clock, tmp_path, **soon)
            assert (second.outcome, second.lines[-1]) == ("kept", f"The plan plays what {first.version} plays: kept.")
            same = await night_of(client, clock, tmp_path, **soon)
            assert same.lines[-1] == second.lines[-1]
            assert len(await client.service.store.versions()) == 1

    go(scenario())


def test_a_new_arm_is_explored_first_and_then_planned_with(event_store, tmp_path, rng, soon):
    """A plan that relies on an arm with few plays is no candidate; with enough plays the arm comes into force."""

    async def scenario():
        clock = Clock()
        async with served(event_store, clock=clock) as client:
            await live(client, 600, "a", rng)
            await night_of(client, clock, tmp_path, canary=1.0, **soon)
            gold = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.95, 0.5, 0.05, 0.99], [0.05, 0.6, 0.95, 0.99]])
            await client.service.register.set_arms([*LABELS, "gold"])
            await live(client, 60, "b", rng, gold=gold)
            night = await night_of(client, clock, tmp_path, **soon)
            assert (night.outcome, "relies on arm gold" in night.lines[-1]) == ("kept", True), night.lines
            floors_now = client.service.register.floors
            assert floors_now["gold"] == pytest.approx(0.025)  # half of the floor
            assert sum(floors_now.values()) == pytest.approx(0.05)
            for i in range(300):
                await client.service.decide(Question(f"g{i}", 0, allowed=["gold"]))
                await client.service.reward([Reward(f"g{i}", 0, 1.0)])
            night = await night_of(client, clock, tmp_path, canary=1.0, **soon)
            assert night.outcome == "promoted", night.lines
            policy = lmab.load(tmp_path / f"{night.version}.lmab")
            assert policy.arm_labels[policy.act_on([])] == "gold"

    go(scenario())


def test_an_arm_that_is_opened_during_a_test_gets_half_of_the_floor(tmp_path, rng):
    async def scenario():
        clock = Clock()
        async with served(str(tmp_path / "events.db"), clock=clock) as client:
            register = client.service.register
            await live(client, 250, "a", rng)
            version = await register.add_version(policy_bytes())
            await register.promote(version.name, 0.05)
            await live(client, 40, "b", rng)
            await register.set_arms([*LABELS, "gold"])
            night = await night_of(client, clock, tmp_path)
            assert (night.outcome, night.version) == ("waits", version.name), night.lines
            assert register.floors["gold"] == pytest.approx(0.025)
            assert sum(register.floors.values()) == pytest.approx(0.05)

    go(scenario())


def test_two_refits_at_once_are_one(tmp_path):
    async def scenario():
        async with filled(str(tmp_path / "e.db"), (0, "a")) as store, store.exclusively():
            other = open_store(str(tmp_path / "e.db"))
            await other.open()
            night = await refit(other, tmp_path, rng=0)
            assert night.lines == ("Another refit of this store is at work: nothing was done.",)
            await other.close()

    go(scenario())


def test_floors_follow_what_the_log_lacks():
    found = floors([900, 90, 9, 1, 0], 0.2, n_types=0)
    assert found.sum() == pytest.approx(0.2)
    assert (np.diff(found) > 0).all()
    assert found[0] > 0.2 * 0.2 / 5  # every arm keeps a part
    np.testing.assert_allclose(floors([5, 5], 0.1), 0.05)
    young = floors([5000, 4000, 150, 199], 0.1, n_types=2)
    assert (young[:2].sum(), young[2:].sum()) == (pytest.approx(0.05), pytest.approx(0.05))
    assert floors([5000, 4000, 200], 0.1, n_types=2).sum() == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("high", "certified_high", "earned_now", "why"),
    [
        (None, None, None, ""),
        (-0.01, None, None, "surely earns less"),
        (0.0, None, None, ""),
        (None, 0.4, 0.5, "below the 0.5000"),
        (None, 0.5, 0.5, ""),
        (None, 0.4, None, ""),
    ],
)
def test_only_what_is_surely_worse_may_not_be_tested(high, certified_high, earned_now, why):
    interval = None if high is None else (-1.0, high)
    found = Comparison(1.0, 0.5, interval, 0.1, "doubly-robust", 100, 50.0)
    assessment = None if certified_high is None else SimpleNamespace(value=(0.0, certified_high))
    said = surely_worse(found, assessment, earned_now)
    assert why in said
    assert bool(said) == bool(why)
    assert surely_worse(None, assessment, None) == ""


def test_the_comparison_says_when_too_few_sessions_tell():
    found = Comparison(1.0, 0.5, None, math.nan, "doubly-robust", 100, 7.4)
    assert "but only 7 of them count in full (30 needed)." in sentence(found, "v")
    assert sentence(None, "v") == "Too few sessions with probabilities to compare with v."


def test_the_demonstration_runs_the_defaults_and_nears_the_optimum(tmp_path):
    said: list[str] = []
    people = Population(population().bandit, per_night=700, n_nights=3)
    play_demo(Options(str(tmp_path / "events.db"), port=0), said.append, people, stay=False)
    nights = [line for line in said if line.startswith("Night")]
    share = float(nights[-1].split("earns ")[1].split("%")[0])
    assert len(nights) == 3
    assert share > 95.0, said


def test_without_a_policy_the_value_in_force_is_that_of_uniform_play(event_store):
    async def scenario():
        async with served(event_store) as client:
            found = await value_in_force(client.service, TRUTH)
            uniform = lmab.evaluate(lmab.Uniform(3), TRUTH, horizon=STEPS, n_sessions=50_000, rng=0).mean
            assert found == pytest.approx(uniform, abs=0.05)

    go(scenario())


class Register:
    """A store that takes turns and settings alone."""

    def __init__(self) -> None:
        self.taken: list[Rollout] = []
        self.settings: dict[str, str] = {}

    async def add_rollout(self, rollout: Rollout) -> None:
        self.taken.append(rollout)

    async def setting(self, name: str, value: str | None) -> str | None:
        return self.settings.get(name, value)

    async def set_setting(self, name: str, value: str, signal: bool = False) -> None:
        self.settings[name] = value


def rewarded(name, policy, rewards) -> list[LogRow]:
    return [row(name, step, 0, reward, policy=policy) for step, reward in enumerate(rewards)]


def test_what_whole_sessions_earn_needs_thirty_of_them():
    short, whole = rewarded("s", "v", [9.0, None, None]), [1.0, 0.0, 2.0]
    rows = [row for i in range(30) for row in rewarded(f"a{i}", "v", whole)]
    assert earned(surveyed([*rows, *short, *rewarded("x", "w", [100.0] * 3)]), "v", 3) == pytest.approx(3.0)
    assert earned(surveyed(rows[3:]), "v", 3) is None
    assert earned(surveyed(rows), "v", 4) is None


def test_without_a_version_in_force_the_log_says_whether_arms_are_repeated(monkeypatch):
    once = lmab.Sessions.from_arrays([[0, 1, 2], [1, 0, 2]], np.ones((2, 3)), n_arms=3)
    twice = lmab.Sessions.from_arrays([[0, 1, 2], [1, 1, 2]], np.ones((2, 3)), n_arms=3)
    assert (plays_twice(once), plays_twice(twice)) == (False, True)
    monkeypatch.setattr("lmab.data.parts.CHUNK", 1)
    assert (plays_twice(once), plays_twice(twice)) == (False, True)


@pytest.mark.parametrize(("ties", "outcome"), [("newer", "promoted"), ("older", "withdrawn")])
def test_a_tie_goes_to_the_plan_that_is_asked_for(tmp_path, rng, monkeypatch, ties, outcome):
    monkeypatch.setattr("lmab.serve.canary.PATIENCE", 1)
    monkeypatch.setattr("lmab.serve.canary.MARGIN", 1e6)  # whatever they earn is the same

    async def scenario():
        clock = Clock()
        async with served(str(tmp_path / "events.db"), clock=clock) as client:
            await live(client, 60, "a", rng)
            version = await client.service.register.add_version(policy_bytes())
            await client.service.register.promote(version.name, 0.5)
            await live(client, 40, "b", rng)
            night = await night_of(client, clock, tmp_path, ties=ties, least=1000)
            assert (night.outcome, night.version) == (outcome, version.name), night.lines
            assert ("a tie: " in night.lines[0]) == (ties == "newer")

    go(scenario())


def night(options, rng, store=None, folder=None, **more):
    """One refit, of which a test asks a part."""
    more = {"survey": Survey(), "arms": (), "columns": {}, "history": None, "number": 0} | more
    return refit_module._Night(store, folder, options, rng, 0.0, math.inf, **more)


def test_a_refit_learns_its_prior_and_compares_at_90_percent(monkeypatch, tmp_path, rng):
    log, asked = log_of([0.0] * 200), []
    monkeypatch.setattr(refit_module, "fit", lambda sessions, **how: asked.append(how["method"].prior))
    monkeypatch.setattr(refit_module, "compare", lambda *_, **how: asked.append(how["confidence"]))
    policy, model = always(0), SimpleNamespace(bandit=TRUTH)
    for options in (RefitOptions(), RefitOptions(prior=2.0, confidence=0.8)):
        refit_module.fit_from(None, log.sessions, 2, options, rng)
        night(options, rng)._compared(log, None, model, policy, 1)
    assert asked == ["learned", 0.9, 2.0, 0.8]


def test_ties_are_newer_or_older():
    with pytest.raises(InvalidArgument, match="ties must be 'newer' or 'older', got 'both'"):
        RefitOptions(ties="both")


def log_of(began) -> ServedLog:
    n = len(began)
    whole = lmab.Sessions.from_arrays(np.zeros((n, 1), int), np.ones((n, 1)), propensities=np.ones((n, 1)), n_arms=1)
    return ServedLog(whole, whole)


def test_the_number_of_types_is_chosen_anew_when_the_log_has_doubled(monkeypatch, tmp_path, rng):
    asked = []

    class Found:
        n_types = 4

        def save(self, path) -> None:
            assert path == tmp_path / LAST

    def asked_for(log, *, n_types, **_):
        asked.append(n_types)
        return Found()

    monkeypatch.setattr(refit_module, "fit", asked_for)
    store = Register()
    for n in (10, 19, 20, 39, 40):
        asyncio.run(fit_log(store, tmp_path, log_of([0.0] * n), RefitOptions(), rng, 7.0))
    assert asked == ["auto", 4, "auto", 4, "auto"]
    asyncio.run(fit_log(store, tmp_path, log_of([0.0] * 99), RefitOptions(types=3), rng, 9.0))
    assert asked[-1] == 3
    assert json.loads(store.settings["fitted"]) == {"types": 4, "sessions": 40, "at": 9.0}  # the last choice


def test_the_store_remembers_the_last_hundred_nights(tmp_path):
    async def scenario():
        store = open_store(str(tmp_path / "events.db"))
        await store.open()
        await store.set_arms(LABELS)
        await store.set_setting("refits", json.dumps([{"at": i} for i in range(100)]))
        await refit(store, tmp_path, RefitOptions(), rng=0, now=5000.0)
        nights = json.loads(await store.setting("refits", None))
        assert [night["at"] for night in nights] == [*range(1, 100), 5000.0]
        await store.close()

    go(scenario())


def test_the_policy_in_force_is_uniform_where_it_has_none_of_the_arms(event_store):
    async def scenario():
        async with served(event_store, policy_bytes(floor=0.3)) as client:
            store, name = client.service.store, client.service.register.rollout.active
            for version in (name, "uniform", "missing"):
                assert isinstance(await in_force(store, version, (0, 1), 2), lmab.Uniform)
            found = await in_force(store, name, ("blue", "red"), 2)
            assert (found.arm_labels, found.deterministic) == (("blue", "red"), True)

    go(scenario())


def fitted_to(n: int, seed: int, n_arms: int = 3, **options) -> lmab.Estimate:
    truth = lmab.random_bandit(2, n_arms, rng=5)
    log = lmab.simulate(truth, lmab.Uniform(n_arms), n_sessions=n, horizon=4, rng=seed)
    named = replace(log, arm_labels=tuple("abcdefgh"[:n_arms]))
    return lmab.fit(named, n_types=2, method=lmab.EM(prior="learned", restarts=4), rng=0, **options, check=False)


def test_the_last_model_takes_the_arms_of_the_log():
    last = fitted_to(300, 1, 4)
    log = lmab.Sessions.from_arrays([[0, 1]], [[1.0, 0.0]], n_arms=5)
    start = start_for(last, replace(log, arm_labels=("new", "d", "c", "b", "a")))
    assert start.arm_labels == ("new", "d", "c", "b", "a")
    np.testing.assert_array_equal(start.means[:, 1:], last.bandit.means[:, ::-1])
    np.testing.assert_allclose(start.means[:, 0], last.law_of_arms[1])  # in every type what arms are like
    same = start_for(last, replace(log, n_arms=4, arm_labels=("a", "b", "c", "d")))
    np.testing.assert_array_equal(same.means, last.bandit.means)
    assert start_for(last, replace(log, n_arms=3, arm_labels=("a", "b", "c"))) is None  # an arm is lost
    assert start_for(last, replace(log, rewards=np.array([0.0, 0.5]), arm_labels=tuple("abcde"))) is None
    unlearned = replace(last, learned=None, prior=1.0)
    start = start_for(unlearned, replace(log, arm_labels=("new", "d", "c", "b", "a")))
    np.testing.assert_allclose(start.means[:, 0], last.bandit.weights @ last.bandit.means.mean(axis=1))


def lucky_arm() -> lmab.Sessions:
    """Clicks of one type; of 12 arms the last was played three times, and paid each time."""
    rng = generator(12)
    arms = rng.integers(11, size=(400, 4))
    rewards = (rng.random(arms.shape) < np.linspace(0.2, 0.3, 12)[arms]).astype(float)
    arms[:3, 0], rewards[:3, 0] = 11, 1.0
    return replace(lmab.Sessions.from_arrays(arms, rewards, n_arms=12), arm_labels=tuple("abcdefghijkl"))


def test_a_refit_takes_an_arm_that_was_lucky_for_an_arm():
    """Where nothing latent is found the service plays the best fixed choice by the law of arms, not by raw means."""
    log = lucky_arm()
    fitted = fit_from(None, log, "auto", RefitOptions(), generator(0))
    made = lmab.plan(fitted, horizon=4)
    raw = np.bincount(log.arms, log.rewards) / log.plays
    assert (made.fixed, fitted.n_types, raw.argmax()) == (True, 1, 11)
    assert made.policy.act_on([]) in (7, 8, 9, 10)
    assert fitted.bandit.means[0, 11] < 0.6
    plain = fit_from(None, log, 1, RefitOptions(prior=0.0), generator(0))
    assert lmab.plan(plain, horizon=4).policy.act_on([]) == 11  # what a fit without the law believes


@pytest.mark.parametrize(("chosen", "asked"), [(1, "auto"), (2, 2)])
def test_a_number_of_types_is_kept_until_the_log_doubles_but_one_type_is_not(chosen, asked, monkeypatch, tmp_path):
    """Types that the log did not support yet may be seen in any later night."""

    class Settings:
        async def setting(self, name, default):
            return json.dumps({"types": chosen, "sessions": 300})

        async def set_setting(self, name, text):
            pass

    numbers = []

    def fit_with(last, sessions, number, options, rng):
        numbers.append(number)
        return fitted_to(40, 0)

    monkeypatch.setattr(refit_module, "fit_from", fit_with)
    log = SimpleNamespace(sessions=range(400))
    go(refit_module.fit_log(Settings(), tmp_path, log, RefitOptions(), generator(0), 0.0))
    assert numbers == [asked]


def test_a_night_starts_from_the_model_of_the_last_one(event_store, tmp_path, rng, monkeypatch):
    asked = []

    def watched(sessions, *, method, start, **more):
        asked.append((len(sessions), method.restarts, start))
        return lmab.fit(sessions, method=method, start=start, **more, check=False)

    monkeypatch.setattr(refit_module, "fit", watched)

    async def scenario():
        clock = Clock()
        async with served(event_store, clock=clock) as client:
            await live(client, 300, "a", rng)
            await night_of(client, clock, tmp_path, canary=1.0)
            assert asked == [(300, 20, None)]
            first = last_model(tmp_path)
            await client.service.register.set_arms([*LABELS, "gold"])  # never played before the next night
            await live(client, 150, "b", rng, gold=TRUTH.with_arms(["gold"]))
            await client.service.register.set_arms([*LABELS, "gold", "silver"])  # open, and never played at all
            await night_of(client, clock, tmp_path)
            ((n, restarts, start),) = asked[1:]
            assert (n, restarts) == (450, 4)
            assert start.arm_labels == (*LABELS, "gold", "silver")
            np.testing.assert_array_equal(start.means[:, :3], first.bandit.means)
            np.testing.assert_allclose(start.means[:, 3:], first.law_of_arms[1])
            found = last_model(tmp_path).bandit
            order = np.abs(found.means[:, None, :3] - first.bandit.means[None]).sum(axis=2).argmin(axis=1)
            assert order.tolist() == [0, 1]  # types keep their numbers
            (tmp_path / LAST).write_bytes(b"not a model")
            assert last_model(tmp_path) is None

    go(scenario())


def test_an_arm_that_was_never_played_gets_the_law_of_arms_and_is_served(event_store, tmp_path, rng):
    async def scenario():
        async with served(event_store) as client:
            await live(client, 600, "a", rng)
            await client.service.register.set_arms([*LABELS, "new"])
            night = await refit(client.service.store, tmp_path, replace(OPTIONS, canary=1.0), rng=0)
            assert night.outcome == "promoted", night.lines
            model, policy = last_model(tmp_path), lmab.load(tmp_path / f"{night.version}.lmab")
            assert model.bandit.arm_labels == policy.arm_labels == (*LABELS, "new")
            np.testing.assert_allclose(model.bandit.means[:, 3], model.learned.centre[3, 1], atol=1e-6)
            assert "never played, so set to the learned prior of arms: arm 3" in model.message
            await client.service.register.refresh()
            assert max(client.service.register.floors, key=client.service.register.floors.get) == "new"
            told = await client.told("s", 0, allowed=["new"])  # the policy knows the arm
            assert (told["label"], told["fallback"], told["propensity"]) == ("new", False, 1.0)

    go(scenario())


def ends(rows, survey: Survey) -> dict[str, str]:
    return {steps[0].session: survey.how_it_ended(survey.ending(steps)) for steps in sessions_of(rows)}


def test_an_export_says_how_sessions_ended(tmp_path):
    """Idle for the gap: left; not idle: went on; at the most that a version asked: unknown, or cut before the limit."""
    noon, step = 86_400.0 * 3 + 43_200, 10.0
    lengths = {"short": 2, "idle": 1, "whole": 3, "other": 3, "cut": 2, "again": 2}
    began = dict.fromkeys(lengths, noon) | {"again": noon + 3500}
    versions = dict.fromkeys(lengths, "v") | {"cut": "w"}  # version w asks for two steps

    async def scenario():
        async with filled(str(tmp_path / "e.db")) as store:
            for name, length in lengths.items():
                for i in range(length):
                    at = began[name] + step * i
                    decision = Decision(name, i, 0, 0.25, versions[name], at, 0, 0, None, None, None)
                    await store.write([Job([RewardRow(name, i, float(i % 2), at + 1, 0)], decision)])
            early = await Survey.of(store, now=noon + 3600)
            ended = ends(await store.rows(0.0, math.inf), early)
            assert ended == {
                "short": "left", "idle": "left", "whole": "unknown", "other": "unknown", "cut": "went on",
                "again": "went on",
            }  # fmt: skip
            ((path,), _) = await export_days(store, tmp_path / "log", early)
            log = lmab.Sessions.read(path, step="step", ended="ended")
            assert sorted(log.ended.tolist()) == sorted(ended.values())
            assert await export_days(store, tmp_path / "log", await Survey.of(store, now=noon + 3601)) == ([], 0)
            assert await export_days(store, tmp_path / "log", await Survey.of(store, now=noon + 9000)) == ([path], 0)
            assert lmab.Sessions.read(path, step="step", ended="ended").ended.tolist().count("left") == 3

    go(scenario())


def test_a_step_without_a_reward_says_that_the_person_went_on():
    rows = [row("s", 0, 0, 1.0), row("s", 1, 0, None), row("t", 0, 0, 0.0), row("t", 1, 0, 1.0)]
    rows += [row("u", step, 0, 1.0) for step in range(3)]
    assert ends(rows, surveyed(rows, 1e9)) == {"s": "went on", "t": "left", "u": "unknown"}


def test_the_store_remembers_a_hundred_nights(event_store, tmp_path):
    async def scenario():
        store = open_store(event_store)
        await store.open()
        try:
            await store.set_arms(LABELS)
            await store.set_setting("refits", json.dumps([{"outcome": f"night {i}"} for i in range(120)]))
            await refit_module.refit(store, tmp_path, OPTIONS, rng=0)
            kept = json.loads(await store.setting("refits", None))
        finally:
            await store.close()
        assert len(kept) == 100
        assert (kept[0]["outcome"], kept[-1]["outcome"]) == ("night 21", "waits")

    go(scenario())


def test_the_assessment_of_a_night_is_from_fifty_models(monkeypatch):
    asked = []

    def refuse(*_, n_draws, rng):
        asked.append(n_draws)
        raise LmabError("not tonight")

    monkeypatch.setattr(refit_module, "assess", refuse)
    assert refit_module.assessed(None, None, None, None) == (None, "No assessment: not tonight")
    assert asked == [50]
