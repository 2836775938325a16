"""Service: decides for sessions, keeps what it decided, and takes rewards; it knows nothing of HTTP.

The rules. Draws are keyed by session and step, so that a retry, a restart or another replica draws the same arm. An
answer is given after its commit. The first write of a step wins, and every later request for the step gets the stored
row. A session stays with the version of the policy that its first step had.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

from .commits import Commits
from .live import Live, restore
from .messages import Ask, Label, Reward, Told
from .problems import Problem, check_finite, check_name, other_reward
from .register import Register
from .settings import Settings
from .stores import Decision, Job, Past, RewardRow, Store
from .versions import Version

_HISTORY = 500  # steps of earlier sessions that inform a person's next one
_LOOK = 1.0  # seconds between two looks at the register


class Service:
    """The sessions of one process, in front of a store that several may share."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        clock: Callable[[], float] = time.time,
        begin: Callable[[Register], Awaitable[None]] | None = None,  # called once, when the store is open
        spare: tuple[Sequence[Label], Version | None] = ((), None),  # arms and policy while the store is away
        secret: bytes | None = None,  # of the draws, for a store that has none yet
    ) -> None:
        self.store, self.settings, self.clock, self._spare = store, settings, clock, spare
        self._live: OrderedDict[str, Live] = OrderedDict()
        self.register = Register(store, settings.defaults, clock, self._live.clear, begin, secret)
        self.commits = Commits(store, settings.queue)
        self.counts = {"explored": 0, "fallback": 0, "repeated": 0, "unrecorded": 0, "defaulted": 0}
        self._swept = 0.0
        self._task: asyncio.Task[None] | None = None

    @property
    def n_live(self) -> int:
        """Sessions in memory."""
        return len(self._live)

    # Starting and stopping

    async def start(self, watch: bool = True) -> None:
        """Open the store, or keep trying while the service already answers what it can."""
        with contextlib.suppress(Exception):
            await self.register.refresh()
        if not self.register.ready and self.settings.without_store:
            self.register.use_spare(*self._spare)
        self._task = asyncio.create_task(self._watch()) if watch else None

    async def stop(self) -> None:
        """Write what waits, then close the store."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self.commits.finish()
        with contextlib.suppress(Exception):
            await self.store.close()

    async def _watch(self) -> None:
        """Look at the register now and then, and give default rewards where the window has passed."""
        while True:
            await asyncio.sleep(_LOOK)
            with contextlib.suppress(Exception):
                await self.register.refresh()
                await self.sweep()

    async def sweep(self) -> int:
        """Give the default reward to steps whose window has passed."""
        reward, now = self.settings.default_reward, self.clock()
        if reward is None or not self.register.ready:
            return 0
        before = now - self.settings.window
        filled = await self.store.fill_defaults(reward, self._swept, before, now)
        self._swept = before - 60  # rows of a commit that is under way have an earlier time
        self.counts["defaulted"] += filled
        return filled

    # Deciding

    async def decide(self, ask: Ask) -> Told:
        """The arm for a step of a session, after the reward of the step before."""
        check_name(ask.session)
        if ask.person is not None:
            check_name(ask.person)
        if ask.reward is not None:
            check_finite(ask.reward)
        if not self.register.ready and not self.settings.without_store:
            raise Problem("no-store", self.register.trouble)
        now = self.clock()
        live = self._live.get(ask.session)
        if live is None or ask.step > len(live.rows):
            live = await self._load(ask, now)
        rewards = self._rewards_of(live, ask, now)
        if ask.step < len(live.rows):
            self.counts["repeated"] += 1
            row = live.rows[ask.step]
        else:
            row = self._next(live, ask, rewards, now)
        self._live[ask.session] = live
        if len(self._live) > self.settings.memory:
            self._live.popitem(last=False)
        told = await self._answer(row, rewards)
        for reward in rewards:
            live.learn(reward.step, reward.reward)  # a new step has learned them before it decided
        return told

    async def _load(self, ask: Ask, now: float) -> Live:
        """The session from the store; a first step needs no look, because the first write wins."""
        if ask.step == 0:
            name = self.register.version_of(ask.session)
            seats, broken = await self.register.seats_of(name)
            known = await self._known(ask.person, now)
            return self._live.get(ask.session) or Live(name, seats, ask.person, known, broken)
        self.register.require_store()
        rows = await self.register.asked(self.store.session(ask.session))
        if not rows:
            raise Problem("unknown-session", f"session {ask.session!r} has no step 0 here: ask for it first")
        live = await self._restored(rows)
        if ask.step > len(live.rows):
            raise Problem("out-of-order", f"step {ask.step} is out of order: the next step is {len(live.rows)}")
        return live

    async def _restored(self, rows: Sequence[Past]) -> Live:
        first = rows[0].decision
        seats, broken = await self.register.seats_of(first.policy)
        return restore(rows, seats, await self._known(first.person, first.at), broken)

    def _rewards_of(self, live: Live, ask: Ask, now: float) -> list[RewardRow]:
        """The rewards that this request brings: that of the step before, and defaults whose window has passed."""
        rows = []
        if ask.reward is not None:
            if ask.step == 0:
                raise Problem("bad-value", "reward must be that of the step before: step 0 has none")
            live.check_reward(ask.step - 1, ask.reward)
            self._check_window(live, ask.step - 1, now)
            rows.append(RewardRow(ask.session, ask.step - 1, ask.reward, now, 0))
        if self.settings.default_reward is not None and ask.step == len(live.rows):
            for step in live.unrewarded():
                late = now - live.rows[step].at > self.settings.window
                if late and not (ask.reward is not None and step == ask.step - 1):
                    rows.append(RewardRow(ask.session, step, self.settings.default_reward, now, 1))
        return rows

    def _next(self, live: Live, ask: Ask, rewards: Sequence[RewardRow], now: float) -> Decision:
        """Decide a new step."""
        horizon = live.seats.version.horizon
        if ask.step >= horizon:
            raise Problem("beyond-horizon", f"step must be below the horizon of {horizon} steps, got {ask.step}")
        allowed = None if ask.allowed is None else self.register.numbers(ask.allowed)
        fresh = live.fresh(allowed)
        if not fresh:
            raise Problem("unknown-arm", "allowed must leave an arm that is open, got none")
        baseline = self._baseline(ask, fresh)
        for told in rewards:
            live.learn(told.step, told.reward)
        first, second = self.register.draws(ask.session, ask.step)
        best, fallback = live.best(allowed)
        arm, propensity, explored = live.seats.choose(best, fresh, first, second)
        chance: float | None = propensity
        wish = None
        if baseline is not None:
            arm, chance, explored, wish = baseline, None, False, arm
        fallback = fallback or live.broken
        self.counts["explored"] += explored
        self.counts["fallback"] += fallback
        given = None if ask.allowed is None else json.dumps(ask.allowed)
        person = live.person if ask.step == 0 else None
        row = Decision(
            ask.session, ask.step, arm, chance, live.policy, now, int(explored), int(fallback), wish, given,
            person,
        )  # fmt: skip
        live.rows.append(row)
        return row

    def _baseline(self, ask: Ask, fresh: Sequence[int]) -> int | None:
        if not self.settings.apprentice:
            return None
        if ask.baseline is None:
            raise Problem("bad-value", "baseline must be given, because the service is an apprentice")
        number = self.register.numbers([ask.baseline])[0]
        if number not in fresh:
            raise Problem("unknown-arm", f"baseline must be an arm that may be played, got {ask.baseline!r}")
        return number

    async def _answer(self, row: Decision, rewards: Sequence[RewardRow]) -> Told:
        """Commit, then answer; where the store has an earlier row, the answer is that row."""
        job = Job(rewards, row)
        try:
            if not self.register.ready:
                raise Problem("no-store", self.register.trouble)
            await self.commits.commit(job)
        except Problem as problem:
            if problem.code != "no-store" or not self.settings.without_store:
                self._live.pop(row.session, None)
                raise
            self.counts["unrecorded"] += 1
            return self._told(row, recorded=False)
        except BaseException:
            self._live.pop(row.session, None)
            raise
        if job.conflict is not None:
            self._live.pop(row.session, None)
            raise other_reward(job.conflict)
        assert job.stored is not None
        if job.stored is not row and not job.stored.same(row):
            self._live.pop(row.session, None)
        return self._told(job.stored)

    def _told(self, row: Decision, recorded: bool = True) -> Told:
        label = self.register.labels[row.arm][0]
        return Told(
            row.session, row.step, row.arm, label, row.propensity, row.policy, bool(row.explored), bool(row.fallback),
            recorded,
        )  # fmt: skip

    # Rewards

    async def reward(self, items: Sequence[Reward]) -> int:
        """Keep rewards that came late; all of them, or none."""
        self.register.require_store()
        now, rows, lives = self.clock(), [], []
        for item in items:
            check_name(item.session)
            check_finite(item.reward)
            live = self._live.get(item.session)
            if live is None or item.step >= len(live.rows):
                found = await self.register.asked(self.store.session(item.session))
                if not found:
                    raise Problem("unknown-session", f"session {item.session!r} is not known here")
                live = await self._restored(found)
            if item.step >= len(live.rows):
                raise Problem("unknown-step", f"session {item.session!r} has not decided step {item.step}")
            live.check_reward(item.step, item.reward)
            self._check_window(live, item.step, now)
            rows.append(RewardRow(item.session, item.step, item.reward, now, 0))
            lives.append(live)
        job = Job(rows)
        await self.commits.commit(job)
        if job.conflict is not None:
            self._live.pop(job.conflict.session, None)
            raise other_reward(job.conflict)
        for live, row in zip(lives, rows, strict=True):
            live.learn(row.step, row.reward)
        return len(rows)

    async def erase(self, person: str) -> int:
        """Delete every session of a person, here and in the store."""
        check_name(person)
        self.register.require_store()
        await self.commits.finish()
        names = await self.register.asked(self.store.erase(person))
        for name in names:
            self._live.pop(name, None)
        return len(names)

    async def story(self, session: str) -> tuple[list[Past], Live]:
        """The rows of a session, and where it stands."""
        check_name(session)
        self.register.require_store()
        rows = await self.register.asked(self.store.session(session))
        if not rows:
            raise Problem("unknown-session", f"session {session!r} is not known here")
        return rows, await self._restored(rows)

    def _check_window(self, live: Live, step: int, now: float) -> None:
        """Raise where a reward that is not known yet comes after its window."""
        if step not in live.rewards and step < len(live.rows) and now - live.rows[step].at > self.settings.window:
            window = f"{self.settings.window:g} s"
            raise Problem("too-late", f"the reward of step {step} came after its window of {window}: ask without it")

    async def _known(self, person: str | None, before: float) -> list[tuple[int, float]]:
        """What earlier sessions of the person showed."""
        if person is None or not self.register.ready:
            return []
        return await self.register.asked(self.store.person(person, before, _HISTORY))
