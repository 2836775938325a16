"""What the page shows: the last sessions by version, arms by step, explored and fallback shares, the last refits."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from .metrics import Metrics
from .service import Service

_SESSIONS = 20_000  # the latest ones that the page looks at
_FRESH = 2.0  # seconds for which an answer is kept
_ARMS = 12  # arms by name; the others are one row
_NORMAL = 1.96  # of a 95% interval


class Summaries:
    """Makes the summary at most every few seconds, however many pages are open."""

    def __init__(self, service: Service, metrics: Metrics) -> None:
        self.service, self.metrics = service, metrics
        self._made: tuple[float, dict[str, Any]] = (-math.inf, {})

    async def now(self) -> dict[str, Any]:
        """The summary, perhaps some seconds old."""
        service = self.service
        clock = service.clock()
        if clock - self._made[0] > _FRESH:
            service.register.require_store()
            rows = await service.register.asked(service.store.rows(0.0, clock + 1, _SESSIONS))
            found = summarise(rows, [label for label, _ in service.register.labels], clock)
            found["refits"] = await _refits(service)
            found["policy"] = {
                "active": service.register.turn.active,
                "canary": service.register.turn.canary,
                "share": service.register.turn.share,
            }
            quantiles = {name: self.metrics.quantile(share) for name, share in (("p50", 0.5), ("p99", 0.99))}
            found["latency"] = quantiles
            self._made = (clock, found)
        return self._made[1]


async def _refits(service: Service) -> list[dict[str, Any]]:
    """The nights that `lmab refit` left in the register of settings, the newest first."""
    text = await service.register.asked(service.store.setting("refits", None))
    return list(json.loads(text))[::-1][:10] if text else []


def summarise(rows: Sequence[tuple[Any, ...]], labels: Sequence[Any], now: float) -> dict[str, Any]:
    """From the steps of the store, as `Store.rows` gives them."""
    totals: dict[str, dict[str, float]] = defaultdict(dict)  # by version, by session: reward
    by_step: dict[int, Counter[int]] = defaultdict(Counter)
    minutes: Counter[int] = Counter()
    explored: Counter[str] = Counter()
    fallback: Counter[str] = Counter()
    steps: Counter[str] = Counter()
    recent: dict[str, float] = {}  # by session: its last step
    for session, step, arm, reward, _, policy, at, was_explored, was_fallback, began in rows:
        totals[policy][session] = totals[policy].get(session, 0.0) + (reward or 0.0)
        by_step[step][arm] += 1
        steps[policy] += 1
        explored[policy] += was_explored
        fallback[policy] += was_fallback
        recent[session] = at
        if step == 0:
            minutes[int((now - began) // 60)] += 1
    versions = [
        {
            "version": name,
            **_mean(list(sessions.values())),
            "explored": explored[name] / steps[name],
            "fallback": fallback[name] / steps[name],
        }
        for name, sessions in totals.items()
    ]
    shown = [arm for arm, _ in sum(by_step.values(), Counter()).most_common(_ARMS)]
    return {
        "sessions": len(recent),
        "versions": versions,
        "arms": [str(labels[arm]) for arm in shown],
        "by_step": [[by_step[step][arm] for arm in shown] for step in sorted(by_step)],
        "per_step": [sum(by_step[step].values()) for step in sorted(by_step)],
        "per_minute": [minutes[minute] for minute in range(59, -1, -1)],
        "recent": sorted(recent, key=lambda name: recent[name], reverse=True)[:20],
    }


def _mean(values: Sequence[float]) -> dict[str, float]:
    """Mean and 95% interval of the reward of a session."""
    n = len(values)
    mean = math.fsum(values) / n
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / max(n - 1, 1))
    reach = _NORMAL * spread / math.sqrt(n)
    return {"sessions": n, "mean": mean, "low": mean - reach, "high": mean + reach}
