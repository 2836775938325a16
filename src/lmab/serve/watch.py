"""Summary that the dashboard draws, and one session step by step."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import LmabError
from ..planning.policies import VectorPolicy
from ..policies.policy import Policy, underlying_bandit
from .live import LiveSession, restore
from .messages import HistoryStep, SessionHistory
from .metrics import REFITS, Times
from .service import Service
from .stores import FORCED, GAP, ArmCount, ArmState, Bucket, Decision, StoredStep

CANARY = "canary"  # the setting with the state of the canary
_DAY, _HOUR, _MINUTE = 86_400.0, 3600.0, 60.0
_DAYS = 30  # that the page looks back
_LATE_DAYS = 2  # days that are summed again, because late rewards may have come
_SESSIONS = 20_000  # latest sessions that are counted by arm
_FRESH = 2.0  # seconds for which an answer is kept
_REST = 10.0  # multiple of the time of a summary: the page must not keep a processor busy
_ARMS = 12  # arms by name; the others are one row
_NORMAL = 1.96  # Standard errors on each side of a 95% interval.
_SHOWN = 1000  # steps of a session that are shown


class Summaries:
    """Sums kept up to date: days that are over are summed once for all readers, and never on the event loop."""

    def __init__(self, service: Service, times: Times) -> None:
        self.service, self.times = service, times
        self._made: tuple[float, dict[str, Any]] = (-math.inf, {})
        self._days: dict[int, list[Bucket]] = {}  # by day; days that are over stay
        self._known: dict[str, dict[str, Any] | None] = {}  # known before a session, by the version in force
        self._task: asyncio.Task[dict[str, Any]] | None = None

    async def now(self) -> dict[str, Any]:
        """Return the summary, perhaps some seconds old; pages that ask at the same time share one."""
        if time.monotonic() < self._made[0]:
            return self._made[1]
        self.service.register.require_store()
        if self._task is None:
            self._task = asyncio.create_task(self._make())
            self._task.add_done_callback(self._forget_task)
        return await asyncio.shield(self._task)

    def _forget_task(self, task: asyncio.Task[dict[str, Any]]) -> None:
        self._task = None
        _ = task.cancelled() or task.exception()

    async def _make(self) -> dict[str, Any]:
        began, service = time.monotonic(), self.service
        store, asked, clock = service.store, service.register.asked, service.clock()
        days = await self._last_days(clock)
        minutes = await asked(store.buckets(clock - _HOUR, _MINUTE))
        series, width = days, _DAY
        if len({bucket.began for bucket in days}) < 3:
            series, width = await asked(store.buckets(clock - 48 * _HOUR, _HOUR)), _HOUR
            if len({bucket.began for bucket in series}) < 3:
                series, width = minutes, _MINUTE
        arms = service.register.arms
        found = {
            "sessions": sum(bucket.sessions for bucket in days),
            "versions": by_version(days),
            "series": [{"at": bucket.began * width, **describe(bucket)} for bucket in sorted(series)],
            "width": width,
            "per_minute": per_minute(minutes, clock),
            **arms_by_step(await asked(store.arm_counts(_SESSIONS, clock - GAP)), [str(arm.label) for arm in arms]),
            "withdrawn": [str(arm.label) for arm in arms if arm.state == ArmState.WITHDRAWN],
            "recent": await asked(store.latest(20)),
            "refits": (await service.register.record(REFITS) or [])[::-1][:10],
            "canary": await service.register.record(CANARY),
            "known": await self._known_before(),
            "policy": service.register.rollout._asdict(),
            "latency": {name: self.times.quantile(share) for name, share in (("p50", 0.5), ("p99", 0.99))},
        }
        ended = time.monotonic()
        self._made = (ended + max(_FRESH, _REST * (ended - began)), found)
        return found

    async def _known_before(self) -> dict[str, Any] | None:
        name = self.service.register.rollout.active
        if name not in self._known and self.service.register.arms:
            compact = (await self.service.register.table_of(name))[0].version.compact
            self._known = {name: None if compact is None else await asyncio.to_thread(known_before, compact.policy)}
        return self._known.get(name)

    async def _last_days(self, clock: float) -> list[Bucket]:
        """Return the sums of the last days; only the days that may still change are read."""
        today = int(clock // _DAY)
        since = min((day for day in range(today - _DAYS, today + 1) if day not in self._days), default=today)
        since = min(since, today - _LATE_DAYS)
        found = await self.service.register.asked(self.service.store.buckets(since * _DAY, _DAY))
        kept = {day: self._days.get(day, []) for day in range(today - _DAYS, since)}
        new: dict[int, list[Bucket]] = {day: [] for day in range(since, today + 1)}
        for bucket in found:
            new.setdefault(bucket.began, []).append(bucket)
        self._days = kept | new
        return [bucket for day in sorted(self._days) for bucket in self._days[day]]


def by_version(buckets: Iterable[Bucket]) -> list[dict[str, Any]]:
    """Return reward and length of a session, explored and fallback shares of the steps, for each version."""
    groups: dict[str, list[Bucket]] = defaultdict(list)
    for bucket in buckets:
        groups[bucket.policy].append(bucket)
    sums = {name: [sum(column) for column in list(zip(*group, strict=True))[2:]] for name, group in groups.items()}
    return [describe(Bucket(name, 0, *sums[name])) for name in sorted(sums)]


def describe(bucket: Bucket) -> dict[str, Any]:
    """Return the sums of a version in one span of time, for the page."""
    return {
        "version": bucket.policy,
        "sessions": bucket.sessions,
        **_mean(bucket.sessions, bucket.reward, bucket.reward_squares),
        "length": _mean(bucket.sessions, bucket.steps, bucket.length_squares),
        "explored": bucket.explored / bucket.steps,
        "fallback": bucket.fallback / bucket.steps,
    }


def _mean(n: int, total: float, squares: float) -> dict[str, float]:
    """Return the mean per session and its 95% interval, from sums."""
    mean = total / n
    spread = math.sqrt(max(squares - n * mean * mean, 0.0) / max(n - 1, 1))
    reach = _NORMAL * spread / math.sqrt(n)
    return {"mean": mean, "low": mean - reach, "high": mean + reach}


def known_before(policy: Policy) -> dict[str, Any] | None:
    """Return the weights of the types by feature, and the gain of features in guaranteed value (`worth`).

    `worth` is None if the policy is no plan of vectors; None: the policy knows nothing before a session.
    """
    prior, bandit = policy.type_prior, underlying_bandit(policy)
    if prior is None or bandit is None:
        return None
    order, worth = bandit.types_by_weight, policy.value_of_features() if isinstance(policy, VectorPolicy) else None
    columns = []
    for column in prior.shown():
        values = [[value, [float(weights[m]) for m in order]] for value, weights in column.rows]
        columns.append({"name": column.name, "values": values, "remark": column.remark})
    return {"columns": columns, "keep": prior.keep, "worth": worth}


def per_minute(buckets: Iterable[Bucket], now: float) -> list[int]:
    """Return the new sessions in each of the last 60 minutes, the present one last."""
    counts: Counter[int] = Counter()
    for bucket in buckets:
        counts[int(now // _MINUTE) - bucket.began] += bucket.sessions
    return [counts[minute] for minute in range(59, -1, -1)]


def arms_by_step(counts: Iterable[ArmCount], labels: Sequence[str]) -> dict[str, Any]:
    """Return how often the most played arms were played at each step, and the share of sessions that left after each.

    No session goes on after the longest one, so its last step does not count.
    """
    by_step: dict[int, Counter[int]] = defaultdict(Counter)
    left, played, counts = Counter[int](), Counter[int](), list(counts)
    longest = max((count.step for count in counts), default=0)
    for step, arm, plays, last in counts:
        by_step[step][arm] += plays
        if step < longest:
            left[arm] += last
            played[arm] += plays
    shown = [arm for arm, _ in sum(by_step.values(), Counter()).most_common(_ARMS)]
    return {
        "arms": [labels[arm] for arm in shown],
        "by_step": [[by_step[step][arm] for arm in shown] for step in sorted(by_step)],
        "per_step": [sum(by_step[step].values()) for step in sorted(by_step)],
        "left": [left[arm] / played[arm] if played[arm] else None for arm in shown],
    }


def session_history(service: Service, rows: Sequence[StoredStep], live: LiveSession) -> SessionHistory:
    """Return the session as the store has it, with the rewards known by now; only the last steps of a long one."""
    so_far = restore(rows, live.table, [], live.broken)
    so_far.rows, so_far.state = [], live.state  # before the first step, with the earlier sessions of the person
    first, labels = max(len(rows) - _SHOWN, 0), [arm.label for arm in service.register.arms]
    steps = []
    for index, (row, reward, _) in enumerate(rows):
        if index >= first:
            chosen = labels[row.arm], reward, row.propensity, row.policy, bool(row.explored), row.fallback == 1
            steps.append(HistoryStep(row.step, *chosen, row.at, _belief(so_far), _why(row, labels)))
        so_far.rows.append(row)
    known = None if live.features is None else json.loads(live.features)
    return SessionHistory(rows[0].decision.session, live.person, known, live.policy, steps, _belief(so_far))


def _belief(live: LiveSession) -> list[float] | None:
    """Return the probability of each type; None if the policy keeps none."""
    compact = live.table.version.compact
    if compact is None or live.state is None:
        return None
    try:
        live.advance()
        return [float(share) for share in compact.belief(live.state)]
    except LmabError:
        return None


def _why(row: Decision, labels: Sequence[Any]) -> str:
    if row.preferred is not None:
        return f"your baseline; the policy would have played {labels[row.preferred]}"
    if row.fallback == FORCED:
        return "forced: the request named the arm, and nothing learns from the session"
    if row.fallback:
        return "a fallback: the policy could not be asked, so every allowed arm was equally likely"
    if row.explored:
        return "explored: any allowed arm, so that the next model learns about all of them"
    return "the plan: it promises most for the steps that are left"
