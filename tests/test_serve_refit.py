"""The loop: logs from the store, the next version, its gate, its canary, and floors that follow what the log lacks."""

from __future__ import annotations

import asyncio
import functools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from serving import HORIZON, LABELS, Clock, go, policy_bytes, served
from typer.testing import CliRunner

import lmab
from lmab.cli.app import app as cli
from lmab.errors import InvalidData
from lmab.evaluation import Comparison
from lmab.serve import RefitOptions, open_store, refit
from lmab.serve.demo import HORIZON as STEPS
from lmab.serve.demo import Population, play_demo, population, value_in_force
from lmab.serve.export import Log, read_log, write_days
from lmab.serve.messages import Question, Reward
from lmab.serve.refit import (
    LAST,
    _held_back,
    _judge,
    _session_rewards,
    earned,
    failed,
    fit_log,
    floors,
    in_force,
    last_model,
    sentence,
    shape,
    start_for,
)
from lmab.serve.run import Options
from lmab.serve.stores import Rollout

TRUTH = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.95, 0.5, 0.05], [0.05, 0.6, 0.95]])
OPTIONS = RefitOptions(types=2, horizon=HORIZON, repeats=True, time_limit=5.0, least=100)


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


def test_the_log_by_day_is_what_the_store_holds_and_fit_reads_it(event_store, tmp_path, rng):
    async def scenario():
        clock = Clock()
        async with served(event_store, clock=clock) as client:
            await live(client, 30, "a", rng)
            clock.now += 86_400
            await live(client, 20, "b", rng)
            await client.told("open", 0)  # not rewarded: not in the log
            rows = await client.service.store.rows(0.0, math.inf)
            files = write_days(rows, LABELS, tmp_path / "log")
            assert [path.name for path in files] == ["1970-01-12.parquet", "1970-01-13.parquet"]
            logs = [lmab.Sessions.read(path, step="step", propensity="propensity") for path in files]
            assert [len(log) for log in logs] == [30, 20]
            np.testing.assert_allclose(logs[0].propensities, 1 / 3)
            log = read_log(rows, LABELS)
            assert (len(log.sessions), len(log.whole), log.unrewarded) == (50, 50, 1)
            assert log.sessions.arm_labels == LABELS
            both = logs[0] + logs[1]
            assert both.rewards.sum() == log.sessions.rewards.sum()
            for name in LABELS:  # the same plays of every label, whatever their numbers
                counts = [(part.arms == part.arm_labels.index(name)).sum() for part in (both, log.sessions)]
                assert counts[0] == counts[1]
            before = files[0].stat().st_mtime_ns
            clock.now += 3 * 86_400
            await live(client, 5, "c", rng)
            rows = await client.service.store.rows(0.0, math.inf)
            again = write_days(rows, LABELS, tmp_path / "log")
            assert [path.name for path in again] == ["1970-01-16.parquet"]
            assert files[0].stat().st_mtime_ns == before

    go(scenario())


def test_a_session_is_cut_at_its_first_unknown_reward_or_probability():
    def row(session, step, reward=1.0, propensity=0.5):
        return (session, step, step % 2, reward, propensity, "v", 0.0, 0, 0, 0.0)

    rows = [row("a", 0), row("a", 1, None), row("a", 2), row("b", 0, propensity=None), row("b", 1), row("c", 0)]
    log = read_log(rows, ["x", "y"])
    assert (len(log.sessions), log.sessions.n_steps, log.unrewarded) == (3, 5, 1)
    assert log.whole.lengths.tolist() == [1, 1]
    gap = read_log([row("a", 0), row("a", 2), row("b", 1), row("c", 0), row("c", 1)], ["x", "y"])  # steps are missing
    assert gap.whole.lengths.tolist() == [1, 2]
    none = read_log([row("a", 0, propensity=None)], ["x", "y"])
    assert none.whole is None
    with pytest.raises(InvalidData, match="the store must hold a rewarded step"):
        read_log([row("a", 0, None)], ["x", "y"])


def test_the_last_two_days_are_written_again_and_earlier_ones_are_not(tmp_path):
    def days(*numbers, reward=1.0):
        return [(f"s{day}", 0, 0, reward, 0.25, "v", 0.0, 0, 0, 86_400.0 * day + 5) for day in numbers]

    write_days(days(0, 1, 2, 3), [7], tmp_path)
    written = write_days(days(0, 1, 2, 3, reward=0.0), [7], tmp_path)
    assert [path.name for path in written] == ["1970-01-03.parquet", "1970-01-04.parquet"]
    earlier, later = (
        lmab.Sessions.read(tmp_path / f"1970-01-0{day}.parquet", step="step", propensity="propensity") for day in (2, 3)
    )
    assert (earlier.rewards.tolist(), later.rewards.tolist()) == ([1.0], [0.0])
    assert (later.propensities.tolist(), later.arm_labels) == ([0.25], (7,))


def test_days_with_and_without_named_arms_are_one_log(tmp_path):
    """Arm 7 alone was played on the first day; beside an arm that has a name, its number is a name, too."""
    days = [[7], [7, "tea"]]
    rows = [
        (f"s{day}{arm}", 0, [7, "tea"].index(arm), 1.0, 0.5, "v", 0.0, 0, 0, 86_400.0 * day)
        for day, played in enumerate(days)
        for arm in played
    ]
    write_days(rows, [7, "tea"], tmp_path)
    log = lmab.Sessions.read(tmp_path, step="step")
    assert (len(log), log.arm_labels) == (3, ("7", "tea"))


def test_days_that_were_written_before_an_arm_had_a_name_are_written_again(tmp_path):
    def rows(last, arms):
        return [
            (f"s{day}-{n}", 0, n % arms, float(n % 2), 0.5, "v", 0.0, 0, 0, 86_400.0 * day)
            for day in range(last)
            for n in range(20)
        ]

    folder = tmp_path / "log"
    write_days(rows(4, 2), [3, 7], folder)
    numbered = lmab.Sessions.read(folder, step="step")
    assert (len(numbered), numbered.arm_labels) == (80, (3, 7))
    again = write_days(rows(6, 2), [3, 7, "tea"], folder)
    assert [path.stem[-1] for path in again] == ["1", "2", "3", "4", "5", "6"]  # all days, once
    assert [path.stem[-1] for path in write_days(rows(6, 2), [3, 7, "tea"], folder)] == ["5", "6"]
    log = lmab.Sessions.read(folder, step="step")
    assert (len(log), log.arm_labels) == (120, ("3", "7"))
    fitted = CliRunner().invoke(
        cli, ["fit", str(folder), "--step", "step", "--types", "1", "-o", str(tmp_path / "m.lmab")]
    )
    assert fitted.exit_code == 0, fitted.output
    assert lmab.load(tmp_path / "m.lmab").bandit.arm_labels == ("3", "7")


def test_arms_without_names_keep_their_numbers():
    rows = [("a", 0, 2, 1.0, 0.5, "v", 0.0, 0, 0, 3.0), ("b", 0, 1, 0.0, 0.25, "v", 0.0, 0, 0, 4.0)]
    log = read_log(rows, ["x", "y", "z"])
    assert (log.sessions.arm_labels, log.sessions.arms.tolist()) == (("y", "z"), [1, 0])  # those that were played
    assert (log.began.tolist(), log.whole_began.tolist()) == ([3.0, 4.0], [3.0, 4.0])
    assert (log.sessions.propensities, log.whole.propensities.tolist()) == (None, [0.5, 0.25])
    assert read_log([(*row[:2], row[2] - 1, *row[3:]) for row in rows], [0, 1]).sessions.arm_labels is None


def test_from_no_model_to_a_promoted_version(event_store, tmp_path, rng):
    async def scenario():
        async with served(event_store) as client:
            store, folder = client.service.store, tmp_path / "policies"
            await live(client, 50, "few", rng)
            night = await refit(store, folder, OPTIONS, rng=0, now=client.service.clock())
            assert (night.outcome, night.lines[0]) == ("waits", "The store holds 50 sessions; 100 are needed.")
            await live(client, 2000, "a", rng)
            strict = await refit(store, folder, replace(OPTIONS, gate=100.0), rng=0, now=client.service.clock())
            assert (strict.outcome, strict.passed, strict.version) == ("kept", False, None)
            assert [path.name for path in folder.glob("*.lmab")] == [LAST]
            night = await refit(store, folder, replace(OPTIONS, canary=0.5), rng=0, now=client.service.clock())
            assert (night.outcome, night.passed) == ("canary", True), night.lines
            assert "Certified: in truth" in night.lines[1]
            policy = lmab.load(folder / f"{night.version}.lmab")
            assert policy.floor.sum() == pytest.approx(0.1)
            assert lmab.load(folder / f"{night.version}.model.lmab").n_types == 2
            await client.service.register.refresh()
            assert client.service.register.rollout.canary == night.version
            soon = await refit(store, folder, OPTIONS, rng=0, now=client.service.clock())
            assert (soon.outcome, soon.lines[2]) == ("waits", "Waited.")
            await live(client, 600, "b", rng)
            after = await refit(store, folder, OPTIONS, rng=0, now=client.service.clock())
            assert (after.outcome, after.version) == ("promoted", night.version), after.lines
            await client.service.register.refresh()
            assert client.service.register.rollout.active == night.version
            exact = lmab.evaluate(policy.policy, TRUTH, horizon=HORIZON).mean
            assert exact > 0.97 * lmab.plan(TRUTH, horizon=HORIZON).lower
            nights = json.loads(await store.setting("refits", None))
            assert [row["outcome"] for row in nights] == ["waits", "kept", "canary", "waits", "promoted"]
            summary = (await client.http.get("/v1/summary")).json()
            assert summary["refits"][0]["outcome"] == "promoted"
            assert len(list((folder / "log").glob("*.parquet"))) >= 1

    go(scenario())


def test_a_canary_that_earns_less_is_rolled_back(event_store, tmp_path, rng):
    async def scenario():
        async with served(event_store, policy_bytes(floor=0.0)) as client:
            good = client.service.register.rollout.active
            path = tmp_path / "bad.lmab"
            one = lmab.LatentBandit.bernoulli([1.0], [[0.9, 0.2, 0.1]])
            lmab.plan(lmab.LatentBandit(one.weights, one.rewards, LABELS), horizon=HORIZON).policy.save(path)
            version = await client.service.register.add_version(path.read_bytes())  # plays red for ever
            await client.service.register.promote(version.name, 0.5)
            await live(client, 600, "a", rng)
            night = await refit(client.service.store, tmp_path, OPTIONS, rng=0)
            assert (night.outcome, night.passed, night.version) == ("rolled back", False, version.name), night.lines
            await client.service.register.refresh()
            assert (client.service.register.rollout.active, client.service.register.rollout.canary) == (good, None)

    go(scenario())


def test_a_refit_compares_with_a_policy_in_force_that_knows_fewer_arms(event_store, tmp_path, rng):
    async def scenario():
        async with served(event_store, policy_bytes(floor=0.3)) as client:
            await client.service.register.set_arms(["gold", *LABELS])
            wide = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5, 0.2, 0.99], [0.1, 0.6, 0.3, 0.99]])
            labels = (*LABELS, "gold")

            async def one(index):
                type_, reward = np.array([index % 2]), None
                for step in range(HORIZON):
                    told = await client.service.decide(Question(f"s{index}", step, reward))
                    arm = np.array([labels.index(told.label)])
                    reward = float(wide.rewards.sample(type_, arm, rng=np.random.default_rng([index, step]))[0])
                await client.service.reward([Reward(f"s{index}", HORIZON - 1, reward)])

            await asyncio.gather(*(one(i) for i in range(900)))
            night = await refit(client.service.store, tmp_path, replace(OPTIONS, gate=-10.0), rng=0)
            assert night.outcome == "kept", night.lines  # few sessions agree with the new arm for ever
            assert night.lines[2].startswith("Did not pass: too few sessions agree with it. RewardsStored ")
            night = await refit(client.service.store, tmp_path, replace(OPTIONS, gate=-10.0, unproven=True), rng=0)
            assert night.outcome == "canary", night.lines
            policy = lmab.load(tmp_path / f"{night.version}.lmab")
            assert policy.arm_labels[policy.policy.act_on([])] == "gold"

    go(scenario())


def test_a_log_in_which_nothing_matters_gives_no_new_version(event_store, tmp_path, rng):
    """Every arm pays the same: a plan that pleases its model must not pass for a better one."""

    async def scenario():
        flat = lmab.LatentBandit.bernoulli([1.0], [[0.5, 0.5, 0.5]])
        async with served(event_store, policy_bytes(floor=0.2)) as client:
            await live(client, 400, "a", rng, flat)
            night = await refit(client.service.store, tmp_path, OPTIONS, rng=0)
            assert (night.outcome, night.passed) == ("kept", False), night.lines
            assert night.lines[2].startswith("Did not pass: ")

    go(scenario())


@pytest.mark.parametrize(
    ("low", "certified", "earned_now", "why"),
    [
        (None, 1.0, 0.5, "nothing to compare"),
        (0.0, 1.0, 0.5, "it must surely earn"),
        (0.1, None, 0.5, "could not be certified"),
        (0.1, 0.5, 0.5, "does not exclude the 0.5000"),
        (0.1, 0.6, 0.5, ""),
        (0.1, 0.1, None, ""),
    ],
)
def test_the_gate(low, certified, earned_now, why):
    found = None if low is None else Comparison(1.0, 0.5, (low, 1.0), 0.1, "doubly-robust", 100, 50.0)
    certificate = None if certified is None else replace(_certificate(), value=(certified, 2.0))
    said = failed(found, certificate, earned_now, "v", RefitOptions())
    assert why in said
    assert bool(said) == bool(why)


@functools.cache
def _certificate() -> lmab.Certificate:
    log = lmab.simulate(TRUTH, lmab.Uniform(3), n_sessions=200, horizon=3, rng=0)
    estimate = lmab.fit(log, n_types=2, method=lmab.EM(prior=2.0), rng=0)
    return lmab.certify(estimate, lmab.plan(estimate, horizon=3), log, n_draws=20, rng=0)


@pytest.mark.parametrize(
    ("active", "unproven", "certified", "earned_now", "why"),
    [
        ("v", False, 9.0, 0.5, "too few sessions agree with it"),
        ("v", True, 9.0, 0.5, ""),
        ("v", True, 0.5, 0.5, "does not exclude the 0.5000"),
        ("uniform", False, 9.0, 0.5, ""),  # nothing is in force: the certificate decides alone
        ("uniform", False, 0.4, 0.5, "does not exclude the 0.5000"),
        ("uniform", False, 9.0, None, "too few whole sessions"),
        ("uniform", False, None, 0.5, "could not be certified"),
    ],
)
def test_without_a_verdict_the_policy_in_force_stays(active, unproven, certified, earned_now, why):
    found = Comparison(1.0, 0.5, None, math.nan, "doubly-robust", 100, 7.4)
    certificate = None if certified is None else replace(_certificate(), value=(certified, 10.0))
    said = failed(found, certificate, earned_now, active, RefitOptions(unproven=unproven))
    assert why in said
    assert bool(said) == bool(why)
    assert "but only 7 of them count in full (30 needed): no verdict." in sentence(found, active, RefitOptions())


def test_floors_follow_what_the_log_lacks():
    arms = np.repeat([0, 1, 2, 3], [900, 90, 9, 1])[:, None]
    log = lmab.Sessions.from_arrays(arms, np.ones((1000, 1)), n_arms=5)
    found = floors(log, 0.2)
    assert found.sum() == pytest.approx(0.2)
    assert (np.diff(found) > 0).all()
    assert found[0] > 0.2 * 0.2 / 5  # every arm keeps a part
    np.testing.assert_allclose(floors(lmab.Sessions.from_arrays([[0, 1]], [[1.0, 0.0]]), 0.1), 0.05)


def test_the_demonstration_reaches_the_optimum(tmp_path):
    said: list[str] = []
    people = Population(population().bandit, per_night=1200, n_nights=2)
    play_demo(Options(str(tmp_path / "events.db"), port=0), said.append, people, stay=False)
    nights = [line for line in said if line.startswith("RefitResult")]
    share = float(nights[-1].split("earns ")[1].split("%")[0])
    assert len(nights) == 2
    assert share > 98.0, said


def test_without_a_policy_the_value_in_force_is_that_of_uniform_play(event_store):
    async def scenario():
        async with served(event_store) as client:
            found = await value_in_force(client.service, TRUTH)
            uniform = lmab.evaluate(lmab.Uniform(3), TRUTH, horizon=STEPS, n_sessions=50_000, rng=0).mean
            assert found == pytest.approx(uniform, abs=0.05)

    go(scenario())


def test_the_gate_is_what_a_plan_must_earn_more_than_now():
    found = Comparison(1.0, 0.5, (0.1, 1.0), 0.1, "doubly-robust", 100, 50.0)
    certificate = replace(_certificate(), value=(0.6, 2.0))
    assert failed(found, certificate, 0.5, "v", RefitOptions(gate=0.05)) == ""
    assert "it must surely earn +0.1" in failed(found, certificate, 0.5, "v", RefitOptions(gate=0.1))
    assert "does not exclude the 0.5600" in failed(found, certificate, 0.56, "v", RefitOptions(gate=0.05))


class Register:
    """A store that takes turns and settings alone."""

    def __init__(self) -> None:
        self.turns_taken: list[Rollout] = []
        self.settings: dict[str, str] = {}

    async def add_rollout(self, rollout: Rollout) -> None:
        self.turns_taken.append(turn)

    async def setting(self, name: str, value: str | None) -> str | None:
        return self.settings.get(name, value)

    async def set_setting(self, name: str, value: str) -> None:
        self.settings[name] = value


def rewarded(name, policy, rewards, began=100.0, propensity=0.5):
    return [(name, step, 0, reward, propensity, policy, began, 0, 0, began) for step, reward in enumerate(rewards)]


@pytest.mark.parametrize(
    ("new", "old", "margin", "outcome"),
    [
        ([1.0, 2.0] * 10, [1.0, 2.0] * 10, 0.0, "waits"),  # nobody knows
        ([1.0, 2.0] * 10, [1.0, 2.0] * 10, 0.25, "promoted"),  # it loses a quarter of 1.5 at most, surely
        ([1.0, 2.0] * 10, [1.0, 2.0] * 10, 0.2, "waits"),  # 1.96 sqrt(2 * 5/19 / 20) = 0.318: more than a fifth
        ([3.0, 4.0] * 10, [1.0, 2.0] * 10, 0.0, "promoted"),
        ([1.0, 2.0] * 10, [1.3, 2.3] * 10, 0.0, "waits"),
        ([1.0, 2.0] * 10, [1.33, 2.33] * 10, 0.0, "rolled back"),
        ([1.0, 2.0] * 9, [9.0, 9.5] * 10, 0.0, "waits"),  # each needs 20 sessions
        ([9.0, 9.5] * 10, [1.0, 2.0] * 9, 0.0, "waits"),
    ],
)
def test_a_canary_is_judged_by_the_interval_of_its_gain(new, old, margin, outcome):
    rows = [row for i, reward in enumerate(new) for row in rewarded(f"n{i}", "new", [reward])]
    rows += [row for i, reward in enumerate(old) for row in rewarded(f"o{i}", "old", [reward])]
    rows += rewarded("before", "old", [1000.0], began=99.0)  # before the canary began
    store, options = Register(), RefitOptions(least=20, margin=margin)
    night = asyncio.run(_judge(store, Rollout("old", "new", 0.5, 100.0, ""), rows, options, 200.0))
    assert (night.outcome, night.version, night.at) == (outcome, "new", 200.0)
    turns = {"promoted": [("new", None, 0.0)], "rolled back": [("old", None, 0.0)]}.get(outcome, [])
    assert [turn[:3] for turn in store.turns_taken] == turns
    assert night.lines[0] == f"Canary new: {len(new)} sessions, {len(old)} of old beside it."


def test_rewards_of_a_session_are_added_from_when_a_version_began():
    rows = [*rewarded("a", "v", [1.0, None, 2.0]), *rewarded("b", "v", [5.0], began=50.0), *rewarded("c", "w", [7.0])]
    assert _session_rewards(rows, "v", 100.0).tolist() == [3.0]
    assert _session_rewards(rows, "v", 50.0).tolist() == [3.0, 5.0]


def test_what_whole_sessions_earn_needs_thirty_of_them():
    short, whole = rewarded("s", "v", [9.0, None, None]), [1.0, 0.0, 2.0]
    rows = [row for i in range(30) for row in rewarded(f"a{i}", "v", whole)]
    assert earned([*rows, *short, *rewarded("x", "w", [100.0] * 3)], "v", 3) == pytest.approx(3.0)
    assert earned(rows[3:], "v", 3) is None
    assert earned(rows, "v", 4) is None


def test_the_shape_of_a_session_is_that_of_the_log_unless_it_is_said():
    once = lmab.Sessions.from_arrays([[0, 1, 2], [1, 0, 2]], np.ones((2, 3)), n_arms=3)
    twice = lmab.Sessions.from_arrays([[0, 1, 2], [1, 1, 2]], np.ones((2, 3)), n_arms=3)
    assert (shape(once, RefitOptions()), shape(twice, RefitOptions())) == ((3, False), (3, True))
    assert shape(once, RefitOptions(horizon=2, repeats=True)) == (2, True)
    assert shape(twice, RefitOptions(horizon=2)) == (2, True)
    assert shape(twice, RefitOptions(repeats=False)) == (3, False)


def log_of(began) -> Log:
    n = len(began)
    whole = lmab.Sessions.from_arrays(np.zeros((n, 1), int), np.ones((n, 1)), propensities=np.ones((n, 1)), n_arms=1)
    return Log(whole, np.asarray(began), whole, np.asarray(began), 0)


def test_the_last_day_is_kept_back_where_it_is_enough_and_not_most(rng):
    day, options = 86_400.0, RefitOptions(least=10, held_back=0.3)
    last = _held_back(log_of([0.0] * 20 + [day + 1.0] * 10), -math.inf, options, rng)
    assert last.tolist() == [False] * 20 + [True] * 10
    for began in ([0.0] * 21 + [day + 1.0] * 9, [0.0] * 14 + [day + 1.0] * 16):  # too few; most of all
        held = _held_back(log_of(began), -math.inf, options, rng)
        assert held.sum() == round(0.3 * 30)
        assert held.tolist() != _held_back(log_of(began), -math.inf, options, rng).tolist()  # drawn at random
    assert _held_back(log_of([0.0] * 15 + [day + 1.0] * 15), -math.inf, options, rng)[15:].all()  # half is not most
    began = [0.0] * 30 + [day, *[day + 5.0] * 10, day + 9.0]
    assert _held_back(log_of(began), day + 2.0, options, rng).sum() == 11  # those after the last fit
    assert _held_back(log_of(began), day + 7.0, options, rng).sum() == 12  # these are too few: the whole day


def test_the_number_of_types_is_chosen_anew_when_the_log_has_doubled(monkeypatch, tmp_path, rng):
    asked = []

    class Found:
        n_types = 4

        def save(self, path) -> None:
            assert path == tmp_path / LAST

    def asked_for(log, *, n_types, **_):
        asked.append(n_types)
        return Found()

    monkeypatch.setattr("lmab.serve.refit.fit", asked_for)
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


def test_a_version_that_gets_everybody_is_in_force_at_once(event_store, tmp_path, rng):
    async def scenario():
        async with served(event_store) as client:
            await live(client, 400, "a", rng)
            night = await refit(client.service.store, tmp_path, replace(OPTIONS, canary=1.0), rng=0)
            assert (night.outcome, night.passed) == ("promoted", True), night.lines
            assert night.lines[2] == f"Passed: {night.version} gets 100% of new sessions."
            await client.service.register.refresh()
            assert client.service.register.rollout[:3] == (night.version, None, 0.0)

    go(scenario())


def test_the_policy_in_force_is_uniform_where_it_has_none_of_the_arms(event_store):
    async def scenario():
        async with served(event_store, policy_bytes(floor=0.3)) as client:
            store, name = client.service.store, client.service.register.rollout.active
            log = lmab.Sessions.from_arrays([[0, 1]], [[1.0, 0.0]])
            assert isinstance(await in_force(store, name, log), lmab.Uniform)
            assert isinstance(await in_force(store, "uniform", log), lmab.Uniform)
            assert isinstance(await in_force(store, "missing", log), lmab.Uniform)
            named = replace(log, arm_labels=("blue", "red"))
            found = await in_force(store, name, named)
            assert (found.arm_labels, found.deterministic) == (("blue", "red"), True)

    go(scenario())


def fitted_to(n: int, seed: int, n_arms: int = 3, **options) -> lmab.Estimate:
    truth = lmab.random_bandit(2, n_arms, rng=5)
    log = lmab.simulate(truth, lmab.Uniform(n_arms), n_sessions=n, horizon=4, rng=seed)
    named = replace(log, arm_labels=tuple("abcdefgh"[:n_arms]))
    return lmab.fit(named, n_types=2, method=lmab.EM(prior="learned", restarts=4), rng=0, **options)


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


def test_a_night_starts_from_the_model_of_the_last_one(event_store, tmp_path, rng, monkeypatch):
    asked = []

    def watched(sessions, *, method, start, **more):
        asked.append((len(sessions), method.restarts, start))
        return lmab.fit(sessions, method=method, start=start, **more)

    monkeypatch.setattr("lmab.serve.refit.fit", watched)

    async def scenario():
        clock = Clock()
        async with served(event_store, clock=clock) as client:
            await live(client, 300, "a", rng)
            await refit(client.service.store, tmp_path, replace(OPTIONS, gate=9.0), rng=0, now=clock())
            assert [(n, restarts, start) for n, restarts, start in asked] == [(300, 20, None), (240, 20, None)]
            first = last_model(tmp_path)
            clock.now += 2 * 86_400
            await client.service.register.set_arms([*LABELS, "gold"])  # never played before the next night
            await live(client, 150, "b", rng, gold=TRUTH.with_arms(["gold"]))
            await client.service.register.set_arms([*LABELS, "gold", "silver"])  # open, and never played at all
            await refit(client.service.store, tmp_path, replace(OPTIONS, gate=9.0), rng=0, now=clock())
            (n, restarts, start), (_, kept_back, earlier) = asked[2:]
            assert (n, restarts, kept_back) == (450, 4, 4)
            assert start.arm_labels == (*LABELS, "gold", "silver")
            np.testing.assert_array_equal(start.means[:, :3], first.bandit.means)
            np.testing.assert_allclose(start.means[:, 3:], first.law_of_arms[1])
            assert earlier is not None  # what was kept back came after the last model
            found = last_model(tmp_path).bandit
            order = np.abs(found.means[:, None, :3] - first.bandit.means[None]).sum(axis=2).argmin(axis=1)
            assert order.tolist() == [0, 1]  # types keep their numbers
            now = clock()
            await refit(client.service.store, tmp_path, replace(OPTIONS, gate=9.0), rng=0, now=now)
            await refit(client.service.store, tmp_path, replace(OPTIONS, gate=9.0), rng=0, now=now)
            assert asked[-2][2] is not None
            assert asked[-1][1:] == (20, None)  # the last model has seen what is kept back
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
            assert "never played, so given the law of the other arms: arm 3" in model.message
            assert policy.floor.argmax() == 3
            await client.service.register.refresh()
            told = await client.told("s", 0, allowed=["new"])  # the policy knows the arm
            assert (told["label"], told["fallback"], told["propensity"]) == ("new", False, 1.0)

    go(scenario())
