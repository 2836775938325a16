"""Service: decides sessions, stores decisions and rewards; it is independent of HTTP.

Rules. Draws are keyed by session and step, so that a retry, a restart or another replica draws the same arm. A
response follows its commit. The first write of a step wins, and every later request for the step gets the stored
row. A session stays with the version of the policy that its first step had. The open arms are read at every
step: a withdrawn arm is not played any more, in any session.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .cache import CachedSessions, SessionCache
from .clock import SteadyClock
from .commits import Commits
from .live import LiveSession, restore, usable_features
from .messages import Answer, Erasure, Label, Problem, Question, Reward, check_features, check_finite, check_name
from .register import Register
from .stores import FORCED, Decision, Job, PlayedArm, RewardRow, Store, StoredStep, Value
from .versions import UNIFORM, Defaults, Version

_HISTORY = 500  # steps of earlier sessions that inform a person's next one
_LOOK = 1.0  # seconds between two refreshes of the register
_QUIET = 5.0  # seconds without a commit after which a small write checks whether the store still takes any
_SWEEP = 1000  # steps that one transaction looks at for default rewards
_OVERLAP = 60.0  # seconds: rows of a commit that is under way have an earlier time
_FORGET = 100  # sessions that one transaction deletes because of their age
_FORGET_EVERY = 600.0  # seconds
_SWEPT = "swept"  # the setting with the time up to which default rewards were stored
_COUNTED = "explored fallback repeated unrecorded defaulted forgotten rewards unknown_features"
_log = logging.getLogger("lmab.serve")


@dataclass(frozen=True)
class Settings:
    """Options of an experiment and, from `without_store` on, of the process; a policy overrides `defaults`."""

    defaults: Defaults = field(default_factory=Defaults)
    default_reward: float | None = None  # counts for a step without a reward within the window
    window: float = 3600.0  # seconds after a decision in which its reward may come
    apprentice: bool = False  # answer the baseline of the request
    keep: float | None = None  # seconds after which a session is deleted; None: never
    holdout: float = 0.0  # share of new sessions that get the popularity ranking
    without_store: bool = False  # answer also while the store is away; such answers are not recorded
    memory: float = 512.0  # megabytes of sessions in memory
    queue: int = 10_000  # requests that may wait for a commit

    def record(self) -> dict[str, Any]:
        """Return the settings that the store keeps for an experiment, as JSON."""
        own = {name: getattr(self.defaults, name) for name in ("horizon", "floor", "repeats")}
        own["rewards"] = None if self.defaults.values is None else list(self.defaults.values)
        names = ("window", "default_reward", "apprentice", "keep", "holdout")
        return own | {name: getattr(self, name) for name in names}

    def with_record(self, stored: Mapping[str, Any]) -> Settings:
        """Return these settings with the values that a store has kept."""
        record = self.record() | {name: value for name, value in stored.items() if name in self.record()}
        values = None if record["rewards"] is None else tuple(map(float, record.pop("rewards")))
        record.pop("rewards", None)
        own = {name: record.pop(name) for name in ("horizon", "floor", "repeats")}
        return replace(self, defaults=replace(self.defaults, values=values, **own), **record)


@dataclass(slots=True)
class Tally:
    """Counts of the sessions of one version in this process."""

    sessions: int = 0
    rewards: int = 0
    total: float = 0.0  # sum of the rewards
    delay: float = 0.0  # sum of the seconds between decisions and their rewards


class Service:
    """Sessions of one process, in front of a store that several processes may share."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        clock: Callable[[], float] = time.time,
        begin: Callable[[Register], Awaitable[None]] | None = None,  # called once, when the store is open
        standby: tuple[Sequence[Label], Version | None] = ((), None),  # arms and policy while the store is away
        secret: bytes | None = None,  # Secret of the draws, for a store that has none yet.
        given: Collection[str] | None = None,  # settings that override the store; None: all
        beside: Service | None = None,  # service of another experiment in this process: commits and memory are shared
    ) -> None:
        self.clock = SteadyClock(clock)
        self.store, self.settings, self._standby, self._given = store, settings, standby, given
        self.cache: SessionCache = SessionCache(settings.memory) if beside is None else beside.cache
        self._live = CachedSessions(self.cache)
        self.register = Register(store, settings.defaults, self.clock, self._live.clear, begin, secret, self._settle)
        self.commits: Commits = Commits(store, settings.queue) if beside is None else beside.commits
        self.tallies: dict[str, Tally] = defaultdict(Tally)  # by version
        self.counts = dict.fromkeys(_COUNTED.split(), 0)
        self._swept: float | None = None
        self._forgotten_at = -math.inf
        self._task: asyncio.Task[None] | None = None

    @property
    def n_live(self) -> int:
        """Return the number of sessions in memory."""
        return len(self._live)

    @property
    def trouble(self) -> str:
        """Return why nothing can be recorded now; an empty text if it can."""
        return self.register.trouble or self.commits.trouble

    async def unable(self) -> str:
        """Return why decisions cannot be answered; an empty text if they can.

        A store that is away matters only if the service must record; one with newer tables always matters.
        """
        self.clock()
        if self.trouble and (self.register.outdated or not self.settings.without_store):
            return self.trouble
        return self.clock.trouble or await self.register.unable()

    @property
    def is_empty(self) -> bool:
        """Return whether the experiment has nothing to play yet: no arms, or neither a policy nor a horizon."""
        horizon, rollout = self.settings.defaults.horizon, self.register.rollout
        return self.register.ready and (not self.register.arms or (rollout.active == UNIFORM and horizon is None))

    # Settings

    async def _settle(self, opening: bool) -> None:
        """Take over the settings of the store; at the start, first store the given ones."""
        stored = await self.store.service_settings()
        if opening:
            own = self.settings.record()
            given = own if self._given is None else {name: own[name] for name in own if name in self._given}
            missing = {name: own[name] for name in own if name not in stored}
            await self.store.set_service_settings(missing | given)
            stored |= missing | given
        settings = self.settings.with_record(stored)
        if settings != self.settings:
            before = self.settings.record()
            changed = {name: value for name, value in settings.record().items() if value != before[name]}
            _log.info("settings of experiment %s: %s", self.store.experiment, json.dumps(changed))
            self.settings = settings
        self.register.configure(settings.defaults, settings.holdout)

    # Starting and stopping

    async def start(self, watch: bool = True) -> None:
        """Open the store, or keep trying while the service already responds as far as it can."""
        with contextlib.suppress(Exception):
            await self.register.refresh()
            await self.commits.probe()
        if not self.register.ready and self.settings.without_store:
            self.register.use_standby(*self._standby)
        self._task = asyncio.create_task(self._watch()) if watch else None

    async def stop(self) -> None:
        """Write the waiting jobs, then close the store."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self.commits.finish()
        with contextlib.suppress(Exception):
            await self.store.close()

    async def _watch(self) -> None:
        """Refresh the register, probe the store and run due sweeps, every second."""
        while True:
            await asyncio.sleep(_LOOK)
            try:
                await self.register.refresh()
                quiet = asyncio.get_running_loop().time() - self.commits.last_success
                if self.commits.trouble or quiet > _QUIET:
                    await self.commits.probe()
                await self.sweep()
                await self.forget_old_sessions()
                await self.store.leftovers()
            except Problem:
                pass
            except Exception as error:
                _log.debug("the watch of the store failed: %s", error)

    async def sweep(self) -> int:
        """Give the default reward to steps after their window, some at a time."""
        reward = self.settings.default_reward
        if reward is None or self.trouble or (now := self.clock.due(await self.store.newest())) is None:
            return 0
        stored = float(await self.store.setting(_SWEPT, None) or 0.0) if self._swept is None else self._swept
        before, since, total = now - self.settings.window, stored, 0
        while since < before:
            filled, since = await self.store.fill_defaults(reward, since, before, now, _SWEEP)
            total += filled
        self._swept = max(before - _OVERLAP, 0.0)
        if self._swept - stored > _OVERLAP:
            await self.store.set_setting(_SWEPT, repr(self._swept))
        self.counts["defaulted"] += total
        return total

    async def forget_old_sessions(self) -> int:
        """Delete the sessions that are older than `keep`, some at a time."""
        keep = self.settings.keep
        if keep is None or self.trouble or (now := self.clock.due(await self.store.newest())) is None:
            return 0
        if now - self._forgotten_at < _FORGET_EVERY:
            return 0
        self._forgotten_at, total = now, 0
        while (n := await self.store.forget(now - keep, _FORGET)) > 0:
            total += n
        self.counts["forgotten"] += total
        return total

    # Deciding

    async def decide(self, question: Question) -> Answer:
        """Return the arm for a step of a session, given the reward of the step before."""
        check_name(question.session)
        if question.person is not None:
            check_name(question.person)
        if question.reward is not None:
            check_finite(question.reward)
        features = None if question.features is None else check_features(question.features)
        if self.trouble and not self.settings.without_store:
            raise Problem("no-store", self.trouble)
        now = self.clock()
        live = self._live.sessions.get(question.session)
        if live is None or question.step > len(live.rows):
            live = await self._load(question, features, now)
        elif question.step == len(live.rows):
            await self._catch_up(live, question, now)
        known = self.register.tables.get(live.policy)
        live.table, live.broken = known or await self.register.table_of(live.policy)
        rewards = self._rewards_of(live, question, now)
        if question.step < len(live.rows):
            self.counts["repeated"] += 1
            row = live.rows[question.step]
        else:
            row = self._next(live, question, rewards, now)
            self.tallies[live.policy].sessions += question.step == 0
        self._live.put(question.session, live)
        answer = await self._commit(live, row, rewards)
        for reward in rewards:
            self._tally(live, reward)
            live.learn(reward.step, reward.reward)  # a new step has learned them before it decided
        if live.unknown:
            answer.unknown_features = live.unknown
        return answer

    async def _load(self, question: Question, features: str | None, now: float) -> LiveSession:
        """Return a session from the store; a first step is not read, because the first write wins."""
        if question.step == 0:
            name = self.register.version_of(question.session)
            table, broken = await self.register.table_of(name)
            prior, person = table.version.type_prior, question.person
            if features is not None and prior is not None:
                usable_features(prior, json.loads(features), strict=True)
            known = await self._known(person, now)
            return self._live.sessions.get(question.session) or LiveSession(
                name, table, person, known, broken, features
            )
        rows = None if self.trouble else await self._if_answered(self.store.session(question.session))
        if rows is None:
            return await self._unknown_past(question)
        if not rows and not self.settings.without_store:
            name = question.session
            raise Problem("unknown-session", f"session {name!r} has no step 0 here: ask for it first")
        if question.step > len(rows):
            if self.settings.without_store:  # the steps before were answered while the store was away
                return await self._unknown_past(question, rows)
            raise Problem("out-of-order", f"step {question.step} is out of order: the next step is {len(rows)}")
        restored = await self._restored(rows)
        live = self._live.sessions.get(question.session)  # another request may have loaded it
        return live if live is not None and len(live.rows) >= question.step else restored

    async def _catch_up(self, live: LiveSession, question: Question, now: float) -> None:
        """Learn the rewards that another replica has stored since; if none is missing, the store is not read."""
        last = question.step - 1
        brings = question.reward is not None and last not in live.rewards and not self._is_late(live, last, now)
        if len(live.rewards) + brings == len(live.rows) or self.trouble or live.unrecorded_from is not None:
            return
        missing = {step for step in live.unrewarded() if not (brings and step == last)}
        for step in await self._if_answered(self.store.session(question.session)) or ():
            if step.reward is not None and step.decision.step in missing:
                live.learn(step.decision.step, step.reward)

    async def _if_answered(self, question: Awaitable[Value]) -> Value | None:
        """Return the answer of the store; None if it does not and the service decides without it."""
        try:
            return await self.register.asked(question)
        except Problem:
            if self.settings.without_store:
                return None
            raise

    async def _unknown_past(self, question: Question, rows: Sequence[StoredStep] = ()) -> LiveSession:
        """Return a session without its lost last steps: it continues without its policy and is not recorded."""
        live = await self._restored(rows) if rows else None
        if live is None:
            name = self.register.version_of(question.session)
            live = LiveSession(name, *(await self.register.table_of(name))[:1], None, [], True)
        live.require_step(question.step)  # the client chooses the length of the loop below
        live.state, live.unrecorded_from = None, len(rows)
        for step in range(len(rows), question.step):  # the responses to repeated requests for these steps
            draws = self.register.draws(question.session, step)
            arm, chance, _ = live.table.choose(None, live.table.open, *draws)
            name, now = question.session, self.clock()
            live.rows.append(Decision(name, step, arm, chance, live.policy, now, 1, 1, None, None, None))
        return live

    async def _restored(self, rows: Sequence[StoredStep]) -> LiveSession:
        first = rows[0].decision
        table, broken = await self.register.table_of(first.policy)
        return restore(rows, table, await self._known(first.person, first.at), broken)

    def _rewards_of(self, live: LiveSession, question: Question, now: float) -> list[RewardRow]:
        """Return the rewards of a request: that of the step before, and defaults after their window."""
        rows = []
        if question.reward is not None:
            if question.step == 0:
                raise Problem("bad-value", "reward must be that of the step before: step 0 has none")
            live.check_reward(question.step - 1, question.reward)
            self._check_window(live, question.step - 1, now)
            rows.append(RewardRow(question.session, question.step - 1, question.reward, now, 0))
        if self.settings.default_reward is not None and question.step == len(live.rows):
            given, default = {row.step for row in rows}, self.settings.default_reward
            late = [step for step in live.unrewarded() if step not in given and self._is_late(live, step, now)]
            rows += [RewardRow(question.session, step, default, now, 1) for step in late]
        return rows

    def _next(self, live: LiveSession, question: Question, rewards: Sequence[RewardRow], now: float) -> Decision:
        """Decide a new step."""
        live.require_step(question.step)
        allowed = None if question.allowed is None else self.register.numbers(question.allowed)
        fresh = live.fresh(allowed)
        if not fresh:
            raise Problem("unknown-arm", "allowed must leave an arm that is open, got none")
        baseline = self._baseline(question, fresh)
        for reward in rewards:
            live.learn(reward.step, reward.reward)
        first, second = self.register.draws(question.session, question.step)
        best, failed = live.best(allowed)
        arm, propensity, explored = live.table.choose(best, fresh, first, second)
        chance: float | None = propensity
        preferred = None
        if baseline is not None:
            arm, chance, explored, preferred = baseline, None, False, arm
        fallback = int(failed or live.broken or live.unrecorded_from is not None)
        if question.force is not None:
            arm, chance, explored, preferred = self.register.numbers([question.force])[0], None, False, None
            fallback = FORCED
        self.counts["explored"] += explored
        self.counts["fallback"] += fallback == 1
        self.counts["unknown_features"] += bool(live.unknown) and question.step == 0
        given = None if question.allowed is None else json.dumps(question.allowed)
        person, features = (live.person, live.features) if question.step == 0 else (None, None)
        row = Decision(
            question.session, question.step, arm, chance, live.policy, now, int(explored), fallback, preferred,
            given, person, features,
        )  # fmt: skip
        live.rows.append(row)
        return row

    def _baseline(self, question: Question, fresh: Sequence[int]) -> int | None:
        if not self.settings.apprentice:
            return None
        if question.baseline is None:
            raise Problem("bad-value", "baseline must be given, because the service is an apprentice")
        number = self.register.numbers([question.baseline])[0]
        if number not in fresh:
            raise Problem("unknown-arm", f"baseline must be an arm that may be played, got {question.baseline!r}")
        return number

    async def _commit(self, live: LiveSession, row: Decision, rewards: Sequence[RewardRow]) -> Answer:
        """Commit, then answer; if the store has an earlier row, the answer is that row."""
        if live.unrecorded_from is not None and row.step >= live.unrecorded_from:
            return self._unrecorded(live, row)
        if live.unrecorded_from is not None:
            rewards = [reward for reward in rewards if reward.step < live.unrecorded_from]
        job = Job(rewards, row, experiment=self.store.experiment)
        try:
            if self.trouble:
                raise Problem("no-store", self.trouble)
            await self.commits.commit(job)
        except BaseException as error:
            if isinstance(error, Problem) and error.code == "no-store" and self.settings.without_store:
                return self._unrecorded(live, row)
            self._live.pop(row.session)
            raise
        return self._written(job, row, len(live.rows))

    def _unrecorded(self, live: LiveSession, row: Decision) -> Answer:
        """Answer without the store; nothing of the session is recorded from this step on."""
        live.unrecorded_from = row.step if live.unrecorded_from is None else min(live.unrecorded_from, row.step)
        self.counts["unrecorded"] += 1
        return self._answer(row, recorded=False)

    def _written(self, job: Job, row: Decision, n_rows: int) -> Answer:
        stored = job.stored
        looked_up = n_rows > 1  # a first step is decided without a look: one that was there may have its reward by now
        if stored is None or job.outdated or not (stored is row or (looked_up and stored.same(row))):
            self._live.pop(row.session)  # the store knows better: the next step reads it
        if job.conflict is not None:
            raise _other_reward(job.conflict)
        if job.refused == "erased":
            raise Problem("erased", f"session {row.session!r} was erased: begin another one")
        if stored is None:
            raise Problem("out-of-order", f"the steps before step {row.step} of {row.session!r} are not in the store")
        return self._answer(stored)

    def _answer(self, row: Decision, recorded: bool = True) -> Answer:
        label = self.register.arms[row.arm].label
        answer = Answer(
            row.session, row.step, row.arm, label, row.propensity, row.policy, bool(row.explored), row.fallback == 1,
            recorded,
        )  # fmt: skip
        if row.fallback == FORCED:
            answer.forced = True
        return answer

    # Rewards

    async def reward(self, items: Sequence[Reward]) -> int:
        """Store late rewards: all of them, or none."""
        self.register.require_store()
        now, rows, sessions = self.clock(), [], []
        for item in items:
            check_finite(item.reward)
            live = self._live.sessions.get(item.session)
            if live is None or item.step >= len(live.rows) or self._is_late(live, item.step, now):
                _, live = await self.history(item.session)
            if item.step >= len(live.rows) or (live.unrecorded_from is not None and item.step >= live.unrecorded_from):
                raise Problem("unknown-step", f"step {item.step} of session {item.session!r} is not in the store")
            live.check_reward(item.step, item.reward)
            self._check_window(live, item.step, now)
            rows.append(RewardRow(item.session, item.step, item.reward, now, 0))
            sessions.append(live)
        job = Job(rows, experiment=self.store.experiment)
        await self.commits.commit(job)
        if job.conflict is not None:
            self._live.pop(job.conflict.session)
            raise _other_reward(job.conflict)
        if job.refused:
            for row in rows:
                self._live.pop(row.session)
            raise Problem("unknown-step", "a step of these rewards is not in the store: perhaps it was erased")
        for live, row in zip(sessions, rows, strict=True):
            self._tally(live, row)
            live.learn(row.step, row.reward)
        return len(rows)

    def _tally(self, live: LiveSession, row: RewardRow) -> None:
        """Count a reward that a client sent."""
        if not row.defaulted:
            tally = self.tallies[live.policy]
            tally.rewards += 1
            tally.total += row.reward
            tally.delay += max(row.at - live.rows[row.step].at, 0.0)
            self.counts["rewards"] += 1

    async def erase(self, person: str) -> Erasure:
        """Delete every session of a person, in memory and in the store, while other requests are served."""
        check_name(person)
        self.register.require_store()
        await self.commits.commit(Job(experiment=self.store.experiment))  # earlier decisions are written first
        names = await self.register.asked(self.store.erase(person, self.clock()))
        for name in names:
            self._live.pop(name)
        left = await self.register.asked(self.store.leftovers())
        left.append("the log, the history and the last model of `lmab refit`, until the next refit")
        left.append("backups that were made before")
        versions = [row.version for row in await self.register.asked(self.store.versions())]
        if versions:
            left.append("the listed versions, until DELETE /v1/policies/{version} or `lmab refit` retires each")
        return Erasure(len(names), left, versions)

    async def history(self, session: str) -> tuple[list[StoredStep], LiveSession]:
        """Return the stored steps of a session and its state; raise `Problem` if there are none."""
        check_name(session)
        self.register.require_store()
        rows = await self.register.asked(self.store.session(session))
        if not rows:
            raise Problem("unknown-session", f"session {session!r} is not known here")
        return rows, await self._restored(rows)

    def _is_late(self, live: LiveSession, step: int, now: float) -> bool:
        """Return whether the window of a step has passed without a reward that is known here."""
        return step not in live.rewards and now - live.rows[step].at > self.settings.window

    def _check_window(self, live: LiveSession, step: int, now: float) -> None:
        """Raise `Problem` if a new reward comes after its window."""
        if self._is_late(live, step, now):
            window = f"{self.settings.window:g} s"
            raise Problem("too-late", f"the reward of step {step} came after its window of {window}: ask without it")

    async def _known(self, person: str | None, before: float) -> list[PlayedArm]:
        """Return the arms and rewards of earlier sessions of a person; none if the store is away."""
        if person is None or self.trouble:
            return []
        return await self._if_answered(self.store.person(person, before, _HISTORY)) or []


def _other_reward(row: RewardRow) -> Problem:
    """Return the problem of a second, different reward, or of one after the default reward."""
    if row.defaulted:
        return Problem("too-late", f"step {row.step} of session {row.session!r} has the default reward by now")
    return Problem("other-reward", f"step {row.step} of session {row.session!r} has the reward {row.reward:g} already")
