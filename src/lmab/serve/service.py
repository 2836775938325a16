"""Service: decides for sessions, keeps what it decided, and takes rewards; it knows nothing of HTTP.

The rules. Draws are keyed by session and step, so that a retry, a restart or another replica draws the same arm. An
answer is given after its commit. The first write of a step wins, and every later request for the step gets the stored
row. A session stays with the version of the policy that its first step had.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from .commits import Commits
from .live import Live, restore
from .messages import Ask, Label, Reward, Told
from .problems import Problem
from .stores import Decision, Job, Past, RewardRow, Store, Turn
from .versions import UNIFORM, Defaults, Seats, Version, read_version, uniform_version

Value = TypeVar("Value")

_HISTORY = 500  # steps of earlier sessions that inform a person's next one
_LOOK = 1.0  # seconds between two looks at the register


@dataclass(frozen=True)
class Settings:
    """How the service behaves; what a policy says of itself comes before `defaults`."""

    defaults: Defaults = field(default_factory=Defaults)
    default_reward: float | None = None  # counts for a step whose reward did not come within the window
    window: float = 3600.0  # seconds after a decision in which its reward may come
    apprentice: bool = False  # answer the baseline of the request
    without_store: bool = False  # answer also while the store is away; such answers are not recorded
    memory: int = 200_000  # sessions kept in memory
    queue: int = 10_000  # requests that may wait for a commit


class Service:
    """The sessions of one process, in front of a store that several may share."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        clock: Callable[[], float] = time.time,
        begin: Callable[[Service], Awaitable[None]] | None = None,  # called once, when the store is open
        spare: tuple[Sequence[Label], Version | None] = ((), None),  # arms and policy while the store is away
        secret: bytes | None = None,  # of the draws, for a store that has none yet
    ) -> None:
        self.store, self.settings, self.clock, self._begin, self._spare = store, settings, clock, begin, spare
        self.commits = Commits(store, settings.queue)
        self.ready = False  # the store is open
        self.trouble = "the service has not started"
        self.turn = Turn(UNIFORM, None, 0.0, 0.0, "")
        self.labels: list[tuple[Label, bool]] = []
        self.counts = {"explored": 0, "fallback": 0, "repeated": 0, "unrecorded": 0, "defaulted": 0}
        self._number: dict[Label, int] = {}
        self._live: OrderedDict[str, Live] = OrderedDict()
        self._seats: dict[str, Seats] = {}
        self.broken: dict[str, str] = {}  # versions that do not load, and why
        self._secret = secret or secrets.token_bytes(32)
        self._signals = (-1, -1)
        self._swept = 0.0
        self._task: asyncio.Task[None] | None = None

    # Starting and stopping

    async def start(self, watch: bool = True) -> None:
        """Open the store, or keep trying while the service already answers what it can."""
        with contextlib.suppress(Exception):
            await self.refresh()
        if not self.ready and self.settings.without_store:
            self._use_spare()
        self._task = asyncio.create_task(self._watch()) if watch else None

    async def stop(self) -> None:
        """Write what waits, then close the store."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self.commits.finish()
        with contextlib.suppress(Exception):
            await self.store.close()

    async def refresh(self) -> None:
        """Open the store if it is not, and take over what changed in it."""
        try:
            if not self.ready:
                await self.store.open()
                self._secret = bytes.fromhex(await self.store.setting("secret", self._secret.hex()) or "")
                self.ready = True
                self._live.clear()  # what was answered without the store is not in it
            signals = await self.store.signals()
            if signals[1] != self._signals[1]:
                self._live.clear()  # a person was erased, perhaps by another replica
            if signals != self._signals:
                self._take_arms(await self.store.arms())
                turns = await self.store.turns(1)
                self.turn = turns[0] if turns else self.turn
                self._signals = signals
            self.trouble = ""
            if self._begin is not None:
                begin, self._begin = self._begin, None
                await begin(self)
        except Exception as error:
            self.trouble = f"the store does not answer: {type(error).__name__}"
            raise

    def _use_spare(self) -> None:
        """Answer without the store, with the arms and the policy that were given at the start."""
        labels, version = self._spare
        self._take_arms([(label, True) for label in labels or (() if version is None else version.labels)])
        if version is not None:
            self._seats[version.name] = Seats(version, self.labels)
            self.turn = Turn(version.name, None, 0.0, self.clock(), "the store is away")

    def _take_arms(self, arms: list[tuple[Label, bool]]) -> None:
        if arms != self.labels:
            self.labels, self._number = arms, {label: number for number, (label, _) in enumerate(arms)}
            self._seats.clear()

    async def _watch(self) -> None:
        """Look at the register now and then, and give default rewards where the window has passed."""
        while True:
            await asyncio.sleep(_LOOK)
            with contextlib.suppress(Exception):
                await self.refresh()
                await self.sweep()

    async def sweep(self) -> int:
        """Give the default reward to steps whose window has passed."""
        reward, now = self.settings.default_reward, self.clock()
        if reward is None or not self.ready:
            return 0
        before = now - self.settings.window
        filled = await self.store.fill_defaults(reward, self._swept, before, now)
        self._swept = before - 60  # rows of a commit that is under way have an earlier time
        self.counts["defaulted"] += filled
        return filled

    # Deciding

    async def decide(self, ask: Ask) -> Told:
        """The arm for a step of a session, after the reward of the step before."""
        _check_name(ask.session)
        if ask.person is not None:
            _check_name(ask.person)
        if ask.reward is not None and not math.isfinite(ask.reward):
            raise Problem("unknown-reward", "reward must be a finite number")
        live = self._live.get(ask.session)
        if live is None or ask.step > len(live.rows):
            live = await self._load(ask)
        rewards = self._rewards_of(live, ask)
        if ask.step < len(live.rows):
            self.counts["repeated"] += 1
            row = live.rows[ask.step]
        else:
            row = self._next(live, ask, rewards)
        self._live[ask.session] = live
        if len(self._live) > self.settings.memory:
            self._live.popitem(last=False)
        told = await self._answer(row, rewards)
        for reward in rewards:
            live.learn(reward.step, reward.reward)  # a new step has learned them before it decided
        return told

    async def _load(self, ask: Ask) -> Live:
        """The session from the store; a first step needs no look, because the first write wins."""
        if ask.step == 0:
            name = self._version_of(ask.session)
            seats, broken = await self._seats_of(name)
            known = await self._known(ask.person, self.clock())
            return self._live.get(ask.session) or Live(name, seats, ask.person, known, broken)
        self.require_store()
        rows = await self.asked(self.store.session(ask.session))
        if not rows:
            raise Problem("unknown-session", f"session {ask.session!r} has no step 0 here: ask for it first")
        live = await self._restored(rows)
        if ask.step > len(live.rows):
            raise Problem("out-of-order", f"step {ask.step} is out of order: the next step is {len(live.rows)}")
        return live

    async def _restored(self, rows: Sequence[Past]) -> Live:
        first = rows[0].decision
        seats, broken = await self._seats_of(first.policy)
        return restore(rows, seats, await self._known(first.person, first.at), broken)

    def _rewards_of(self, live: Live, ask: Ask) -> list[RewardRow]:
        """The rewards that this request brings: that of the step before, and defaults whose window has passed."""
        now, rows = self.clock(), []
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

    def _next(self, live: Live, ask: Ask, rewards: Sequence[RewardRow]) -> Decision:
        """Decide a new step."""
        horizon = live.seats.version.horizon
        if ask.step >= horizon:
            raise Problem("beyond-horizon", f"step must be below the horizon of {horizon} steps, got {ask.step}")
        allowed = None if ask.allowed is None else self._numbers(ask.allowed)
        fresh = live.fresh(allowed)
        if not fresh:
            raise Problem("unknown-arm", "allowed must leave an arm that is open, got none")
        baseline = self._baseline(ask, fresh)
        for told in rewards:
            live.learn(told.step, told.reward)
        first, second = self._draws(ask.session, ask.step)
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
            ask.session, ask.step, arm, chance, live.policy, self.clock(), int(explored), int(fallback), wish, given,
            person,
        )  # fmt: skip
        live.rows.append(row)
        return row

    def _baseline(self, ask: Ask, fresh: Sequence[int]) -> int | None:
        if not self.settings.apprentice:
            return None
        if ask.baseline is None:
            raise Problem("bad-value", "baseline must be given, because the service is an apprentice")
        number = self._numbers([ask.baseline])[0]
        if number not in fresh:
            raise Problem("unknown-arm", f"baseline must be an arm that may be played, got {ask.baseline!r}")
        return number

    async def _answer(self, row: Decision, rewards: Sequence[RewardRow]) -> Told:
        """Commit, then answer; where the store has an earlier row, the answer is that row."""
        job = Job(rewards, row)
        try:
            if not self.ready:
                raise Problem("no-store", self.trouble)
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
        if not job.stored.same(row):
            self._live.pop(row.session, None)
        return self._told(job.stored)

    def _told(self, row: Decision, recorded: bool = True) -> Told:
        label = self.labels[row.arm][0]
        return Told(
            row.session, row.step, row.arm, label, row.propensity, row.policy, bool(row.explored), bool(row.fallback),
            recorded,
        )  # fmt: skip

    # Rewards

    async def reward(self, items: Sequence[Reward]) -> int:
        """Keep rewards that came late; all of them, or none."""
        self.require_store()
        now, rows, lives = self.clock(), [], []
        for item in items:
            _check_name(item.session)
            if not math.isfinite(item.reward):
                raise Problem("unknown-reward", "reward must be a finite number")
            live = self._live.get(item.session)
            if live is None or item.step >= len(live.rows):
                found = await self.asked(self.store.session(item.session))
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
        _check_name(person)
        self.require_store()
        await self.commits.finish()
        names = await self.asked(self.store.erase(person))
        for name in names:
            self._live.pop(name, None)
        return len(names)

    async def story(self, session: str) -> tuple[list[Past], Live]:
        """The rows of a session, and where it stands."""
        _check_name(session)
        self.require_store()
        rows = await self.asked(self.store.session(session))
        if not rows:
            raise Problem("unknown-session", f"session {session!r} is not known here")
        return rows, await self._restored(rows)

    # Versions and arms

    async def set_arms(self, labels: Sequence[Label]) -> None:
        """Open these arms and no others."""
        self.require_store()
        if len(set(labels)) != len(labels):
            raise Problem("bad-value", "arms must be distinct labels")
        await self.asked(self.store.set_arms(labels))
        await self.refresh()

    async def add_version(self, body: bytes, note: str = "") -> Version:
        """Keep a policy file; nobody gets it before it is promoted."""
        self.require_store()
        version = read_version(body, self.settings.defaults)
        await self.asked(self.store.add_version(version.name, body, self.clock(), note.replace("\0", "")))
        known = [label for label, is_open in self.labels if is_open]
        new = [label for label in version.labels if label not in self._number]
        if new:
            await self.asked(self.store.set_arms([*known, *new]))
            await self.refresh()
        return version

    async def promote(self, version: str, share: float, note: str = "") -> Turn:
        """Give a version a share of new sessions; all of them puts it in force."""
        self.require_store()
        _check_name(version)
        if version != UNIFORM and await self.asked(self.store.version(version)) is None:
            raise Problem("unknown-policy", f"version {version!r} is not known here")
        if share >= 1:
            turn = Turn(version, None, 0.0, self.clock(), note or "put in force")
        else:
            turn = Turn(self.turn.active, version, share, self.clock(), note or "canary")
        return await self._register(turn)

    async def rollback(self, note: str = "") -> Turn:
        """End the canary; where there is none, return to the version before."""
        self.require_store()
        if self.turn.canary is not None:
            return await self._register(Turn(self.turn.active, None, 0.0, self.clock(), note or "canary ended"))
        for turn in await self.asked(self.store.turns(1000)):
            if turn.active != self.turn.active:
                return await self._register(Turn(turn.active, None, 0.0, self.clock(), note or "rolled back"))
        raise Problem("unknown-policy", "there is no earlier version to return to")

    @property
    def n_live(self) -> int:
        """Sessions in memory."""
        return len(self._live)

    async def _register(self, turn: Turn) -> Turn:
        await self.asked(self.store.turn(turn))
        await self.refresh()
        return turn

    # Small parts

    async def asked(self, question: Awaitable[Value]) -> Value:
        """What the store answers."""
        try:
            return await question
        except Exception as error:
            raise Problem("no-store", f"the store does not answer: {type(error).__name__}") from None

    def _check_window(self, live: Live, step: int, now: float) -> None:
        """Raise where a reward that is not known yet comes after its window."""
        if step not in live.rewards and step < len(live.rows) and now - live.rows[step].at > self.settings.window:
            window = f"{self.settings.window:g} s"
            raise Problem("too-late", f"the reward of step {step} came after its window of {window}: ask without it")

    def require_store(self) -> None:
        """Raise where the store is away."""
        if not self.ready:
            raise Problem("no-store", self.trouble)

    def _draws(self, session: str, step: int) -> tuple[float, float]:
        """Two uniform numbers that a retry, a restart or another replica draws again."""
        digest = hmac.digest(self._secret, f"{session}\0{step}".encode(), "sha256")
        return int.from_bytes(digest[:7], "big") / 2**56, int.from_bytes(digest[8:15], "big") / 2**56

    def _version_of(self, session: str) -> str:
        """The version that a new session gets."""
        if self.turn.canary is not None and self._draws(session, -1)[0] < self.turn.share:
            return self.turn.canary
        return self.turn.active

    async def _seats_of(self, name: str) -> tuple[Seats, bool]:
        """The seats of a version, and whether a fallback plays for it because it is missing or does not load."""
        if not self.labels:
            raise Problem("no-policy", "the service has no arms: give it a policy or a list of arms")
        seats = self._seats.get(name)
        if seats is None:
            version = await self._find(name)
            seats = self._seats[name] = Seats(version, self.labels)
        return seats, name in self.broken

    async def _find(self, name: str) -> Version:
        if name == UNIFORM:
            return uniform_version(self.settings.defaults)
        try:
            body = await self.asked(self.store.version(name))
            if body is None:
                raise Problem("unknown-policy", f"version {name!r} is not in the store")
            self.broken.pop(name, None)
            return read_version(body, self.settings.defaults)
        except Problem as problem:
            if problem.code == "no-store":
                raise
            self.broken[name] = str(problem)
            return uniform_version(self.settings.defaults)

    async def _known(self, person: str | None, before: float) -> list[tuple[int, float]]:
        """What earlier sessions of the person showed."""
        if person is None or not self.ready:
            return []
        return await self.asked(self.store.person(person, before, _HISTORY))

    def _numbers(self, labels: Sequence[Label]) -> list[int]:
        try:
            return [self._number[label] for label in labels]
        except KeyError as error:
            raise Problem("unknown-arm", f"arm {error.args[0]!r} is not known here") from None


def _check_name(name: str) -> None:
    """A text that every store can hold: one that a store refuses would take the whole commit with it."""
    if "\0" in name or (not name.isprintable() and any(0xD800 <= ord(letter) <= 0xDFFF for letter in name)):
        raise Problem("bad-value", "session and person must be text without the character 0")


def other_reward(row: RewardRow) -> Problem:
    """Two different rewards for one step, or one that came after the default."""
    if row.defaulted:
        return Problem("too-late", f"step {row.step} of session {row.session!r} has the default reward by now")
    return Problem("other-reward", f"step {row.step} of session {row.session!r} has the reward {row.reward:g} already")
