"""A wrong clock: nothing is deleted or rewarded because of it, the service is not ready, and it recovers by itself."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from serving import HORIZON, go

from lmab.serve.clock import AGREED, APART, SteadyClock
from lmab.serve.messages import Problem, Question, Reward
from lmab.serve.service import Service, Settings
from lmab.serve.stores import open_store
from lmab.serve.versions import Defaults

YEAR = 365 * 86_400.0


class Machine:
    """A wall clock and a monotonic clock; time passes for both when a test says so."""

    def __init__(self) -> None:
        self.wall, self.monotonic = 1_700_000_000.0, 50.0

    def clock(self) -> SteadyClock:
        return SteadyClock(lambda: self.wall, lambda: self.monotonic)

    def wait(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds


def aged(machine: Machine, **settings) -> Service:
    """A service without a store that is open, older than the first minutes of a process."""
    service = Service(open_store(settings.pop("where")), Settings(Defaults(HORIZON), **settings))
    service.clock = service.register.clock = machine.clock()
    machine.wait(AGREED)
    return service


@pytest.mark.parametrize("jump", [YEAR, -YEAR, 2 * APART])
def test_a_clock_that_jumps_is_not_believed_until_it_ran_evenly_for_five_minutes(jump):
    machine = Machine()
    clock = machine.clock()
    machine.wait(10)
    true = machine.wall
    assert clock() == true
    machine.wall += jump
    for _ in range(29):
        assert clock() == pytest.approx(true)
        assert f"jumped by {jump:.0f} s" in clock.trouble
        machine.wait(AGREED / 30)
        true += AGREED / 30
    clock()
    machine.wait(AGREED / 30 + 1)
    assert (clock(), clock.trouble) == (machine.wall, "")


def test_a_clock_that_jumps_again_and_again_is_not_believed():
    machine = Machine()
    clock, true = machine.clock(), machine.wall
    for i in range(100):
        machine.wall = true + YEAR * (1 + i % 3)
        assert clock() == pytest.approx(true)
        assert clock.trouble
        machine.monotonic += AGREED / 2
        true += AGREED / 2
    machine.wall = true
    assert clock() == pytest.approx(true)
    assert clock.trouble == ""


def test_the_same_wrong_reading_twice_is_not_five_minutes_of_agreement():
    machine = Machine()
    clock = machine.clock()
    for _ in range(3):
        machine.wall += YEAR
        assert clock() == pytest.approx(machine.wall - YEAR)
        machine.wall -= YEAR
        assert clock() == machine.wall
        machine.wait(2 * AGREED)


def test_small_corrections_are_followed_however_many():
    machine = Machine()
    clock = machine.clock()
    for _ in range(50):
        machine.wait(AGREED)
        clock()
        machine.wall += APART / 2
        assert (clock(), clock.trouble) == (machine.wall, "")


@given(st.lists(st.tuples(st.floats(0, 1000), st.sampled_from([0.0, 0.0, 30.0, 3600.0, YEAR, -YEAR])), max_size=30))
def test_time_never_runs_more_than_a_minute_ahead_unless_five_minutes_agree(moves):
    """The bound that matters for deletions, for any sequence of waits and jumps that are read once a second or less."""
    machine = Machine()
    clock = machine.clock()
    last, read = clock(), machine.monotonic
    for seconds, jump in moves:
        machine.wait(seconds)
        machine.wall += jump
        now = clock()
        if seconds < AGREED:
            agreed = machine.monotonic - clock._since == 0 and not clock.trouble
            assert agreed or now - last <= machine.monotonic - read + APART + 1e-3
        last, read = now, machine.monotonic


def test_what_is_due_lags_behind_the_newest_step_and_waits_after_a_start():
    machine = Machine()
    clock, newest = machine.clock(), machine.wall - 8 * 3600  # after a quiet night
    assert clock.due(newest) is None
    machine.wait(AGREED)
    assert clock.due(newest) == pytest.approx(newest + AGREED)
    assert clock.trouble == ""  # a quiet night is no fault
    assert clock.due(None) is None
    newest = machine.wall
    assert clock.due(newest) == pytest.approx(machine.wall)
    machine.wait(100)
    assert clock.due(newest) == pytest.approx(machine.wall)
    assert clock.due(newest + YEAR) == pytest.approx(machine.wall)  # a step of another, wrong clock


async def play(service: Service, n: int) -> None:
    for i in range(n):
        await service.decide(Question(f"s{i}", 0))


@pytest.mark.parametrize("settings", [{"keep": 30 * 86_400.0}, {"default_reward": 0.0}])
def test_one_reading_of_a_wrong_clock_deletes_and_rewards_nothing(event_store, settings):
    machine = Machine()
    service = aged(machine, where=event_store, **settings)

    async def scenario():
        await service.start(watch=False)
        await service.register.set_arms(["a", "b"])
        await play(service, 20)
        assert (await service.sweep(), await service.forget_old_sessions()) == (0, 0)
        machine.wait(1)
        machine.wall += YEAR
        assert (await service.sweep(), await service.forget_old_sessions()) == (0, 0)
        assert "jumped by 31536000 s" in await service.unable()
        await service.decide(Question("s0", 1))  # the default of step 0 is not due
        assert await service.reward([Reward("s1", 0, 1.0)]) == 1
        machine.wall -= YEAR
        assert await service.unable() == ""
        rows = await service.store.rows(0.0, 1e12)
        assert len({row.session for row in rows}) == 20
        assert [row.session for row in rows if row.reward is not None] == ["s1"]
        assert max(row.at for row in rows) <= machine.wall
        assert (await service.sweep(), await service.forget_old_sessions()) == (0, 0)
        machine.wait(31 * 86_400.0)
        assert await service.sweep() + await service.forget_old_sessions() == 20  # in the end they are due
        await service.stop()

    go(scenario())


def test_a_machine_that_was_suspended_recovers_and_then_sweeps(event_store):
    """Monotonic time stands still while a machine sleeps."""
    machine = Machine()
    service = aged(machine, where=event_store, default_reward=0.0)

    async def scenario():
        await service.start(watch=False)
        await service.register.set_arms(["a", "b"])
        await play(service, 3)
        await service.sweep()
        machine.wall += 10 * 3600
        assert await service.sweep() == 0
        assert "jumped by 36000 s" in await service.unable()
        for _ in range(6):
            machine.wait(60)
            await service.sweep()
        assert await service.unable() == ""
        assert await service.sweep() == 0  # an hour of this process has to pass before the steps are due
        machine.wait(3600)
        assert await service.sweep() == 3
        await service.stop()

    go(scenario())


def test_nothing_is_swept_in_the_first_five_minutes_of_a_process(event_store):
    machine = Machine()
    service = Service(open_store(event_store), Settings(Defaults(HORIZON), keep=10.0))
    service.clock = service.register.clock = machine.clock()

    async def scenario():
        await service.start(watch=False)
        await service.register.set_arms(["a", "b"])
        await play(service, 2)
        assert await service.forget_old_sessions() == 0
        machine.wait(AGREED - 1)
        assert await service.forget_old_sessions() == 0
        machine.wait(2)
        assert await service.forget_old_sessions() == 2
        await service.stop()

    go(scenario())


class Retention(RuleBasedStateMachine):
    """Two replicas with `--keep` and `--default-reward` on one store, whose clocks may jump for less than five minutes.

    In true time, no session is forgotten before its age, no step gets the default reward within its window, and the
    steps that the store has of a session are those that were answered, from the first one on.
    """

    where = ""
    KEEP, WINDOW = 1500.0, 500.0

    def __init__(self) -> None:
        super().__init__()
        self.tag, self.runner = uuid.uuid4().hex[:8], asyncio.Runner()
        self.true, self.jumped = 1_700_000_000.0, 0.0  # seconds, and for how long a clock has been wrong
        self.off = [0.0, 0.0]  # of each replica's wall clock
        self.sessions: dict[str, list[tuple[float, float | None]]] = {}  # true time and reward of each answered step
        self.gone: set[str] = set()
        self.replicas = [self.runner.run(self.begin(which)) for which in (0, 1)]

    def wall(self, which: int) -> Callable[[], float]:
        return lambda: self.true + self.off[which]

    async def begin(self, which: int) -> Service:
        options = Settings(Defaults(HORIZON), keep=self.KEEP, default_reward=0.0, window=self.WINDOW)
        service = Service(open_store(self.where), options)
        service.clock = service.register.clock = SteadyClock(self.wall(which), lambda: self.true)
        await service.start(watch=False)
        await service.register.add_arms(["a", "b", "c"])
        return service

    @rule(which=st.integers(0, 1))
    def look(self, which):
        """A replica reads the counters, which it does every second: until then it has sessions in its memory."""
        self.runner.run(self.replicas[which].register.refresh())

    @rule(which=st.integers(0, 1), number=st.integers(0, 3), reward=st.sampled_from([None, 1.0]))
    def decide(self, which, number, reward):
        name = f"{self.tag}{number}"
        steps = self.sessions.get(name, [])
        if len(steps) == HORIZON or name in self.gone:
            return
        reward = (
            reward if steps and steps[-1][1] is None and self.true - steps[-1][0] < self.WINDOW - 2 * APART else None
        )
        try:
            self.runner.run(self.replicas[which].decide(Question(name, len(steps), reward)))
        except Problem as problem:  # it was forgotten: is it old enough?
            if (
                problem.code not in ("unknown-session", "out-of-order")
                or self.true - steps[0][0] < self.KEEP - 2 * APART
            ):
                raise
            self.gone.add(name)
            return
        if reward is not None:
            steps[-1] = steps[-1][0], reward
        self.sessions[name] = [*steps, (self.true, None)]

    @rule(seconds=st.sampled_from([1.0, 140.0, 1600.0]))
    def wait(self, seconds):
        if any(self.off):
            seconds = min(seconds, AGREED - 10 - self.jumped)
            self.jumped += seconds
        self.true += seconds
        if self.jumped >= AGREED - 10:
            self.repair()

    @precondition(lambda self: not any(self.off))
    @rule(which=st.integers(0, 1), jump=st.sampled_from([YEAR, -YEAR, 86_400.0]))
    def jump(self, which, jump):
        self.sweep(which)
        self.off[which], self.jumped = jump, 0.0
        self.sweep(which)

    @rule()
    def repair(self):
        self.off, self.jumped = [0.0, 0.0], 0.0

    @rule(which=st.integers(0, 1))
    def sweep(self, which):
        service = self.replicas[which]
        self.runner.run(service.sweep())
        self.runner.run(service.forget_old_sessions())
        assert bool(self.runner.run(service.unable())) == bool(service.clock.trouble)
        self.check()

    @precondition(lambda self: not any(self.off))
    @rule(which=st.integers(0, 1))
    def restart(self, which):
        self.runner.run(self.replicas[which].stop())
        self.replicas[which] = self.runner.run(self.begin(which))

    def check(self) -> None:
        for name, steps in self.sessions.items():
            stored = self.runner.run(self.replicas[0].store.session(name))
            if name in self.gone or (not stored and self.true - steps[0][0] > self.KEEP - 2 * APART):
                self.gone.add(name)
                continue
            assert [step.decision.step for step in stored] == list(range(len(steps)))
            for step, (at, reward) in zip(stored, steps, strict=True):
                if step.defaulted:
                    assert self.true - at > self.WINDOW - 2 * APART
                else:
                    assert step.reward == reward

    def teardown(self) -> None:
        try:
            self.repair()
            self.check()
        finally:
            for service in self.replicas:
                self.runner.run(service.stop())
            self.runner.close()


def test_no_clock_that_is_wrong_for_a_while_deletes_or_rewards_anything_too_early(event_store):
    machine = type("M", (Retention,), {"where": event_store})
    few = settings(
        max_examples=15, stateful_step_count=40, deadline=None, derandomize=True, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    run_state_machine_as_test(machine, settings=few)
