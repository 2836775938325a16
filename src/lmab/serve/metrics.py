"""Metrics as Prometheus reads them: requests, times of decisions, and samples of each experiment."""

from __future__ import annotations

import logging
import platform
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable
from importlib.metadata import version
from itertools import accumulate
from typing import Any, NamedTuple

from .register import Register
from .service import Service
from .stores import DEFAULT

BUCKETS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)  # seconds
REFITS = "refits"  # the setting with the results of the last refits
_log = logging.getLogger("lmab.serve")
BACKUP = "backup"  # the setting that holds the time of the last backup, which `deploy/backup.py` writes


class Sample(NamedTuple):
    """Value of a metric with its labels."""

    name: str
    kind: str  # counter or gauge
    value: float
    labels: tuple[tuple[str, str], ...] = ()


class Times:
    """Histogram of times."""

    def __init__(self) -> None:
        self.counts, self.seconds = [0] * (len(BUCKETS) + 1), 0.0

    def add(self, seconds: float) -> None:
        """Count a time."""
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.seconds += seconds

    def quantile(self, share: float) -> float | None:
        """Return the upper end of the bucket that holds this quantile of the times; None without times."""
        below = list(accumulate(self.counts))
        return (*BUCKETS, 10.0)[bisect_left(below, share * below[-1])] if below[-1] else None


class Metrics:
    """Requests by experiment, route and status, refusals by code, and how long decisions took, with failures."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.refusals: Counter[tuple[str, str]] = Counter()
        self.times: dict[str, Times] = defaultdict(Times)  # by experiment
        self._unlogged: Counter[tuple[str, str]] = Counter()  # refusals since the last line about them
        self._logged = -1.0

    def refuse(self, experiment: str, code: str) -> None:
        """Count a refused request; the log has one line per second with the counts of the codes."""
        self.refusals[experiment, code] += 1
        self._unlogged[experiment, code] += 1
        if time.monotonic() - self._logged >= 1.0:
            counts = {f"{name}: {code}": count for (name, code), count in sorted(self._unlogged.items())}
            _log.info("refused requests: %s", counts, extra={"fields": {"refused": counts}})
            self._logged = time.monotonic()
            self._unlogged.clear()

    def text(self, samples: Iterable[Sample]) -> str:
        """Return all metrics, with samples of the services; every digit of a count is printed."""
        own = [
            Sample("requests_total", "counter", count, (("experiment", name), ("path", path), ("status", str(status))))
            for (name, path, status), count in sorted(self.requests.items())
        ]
        own += [
            Sample("refused_total", "counter", count, (("experiment", name), ("code", code)))
            for (name, code), count in sorted(self.refusals.items())
        ]
        lines, before = [], ""
        for name, kind, value, labels in sorted([*own, *samples], key=lambda sample: sample.name):
            if name != before:
                lines.append(f"# TYPE lmab_{name} {kind}")
            before = name
            lines.append(f"lmab_{name}{_labels(labels)} {value!r}")
        lines.append("# TYPE lmab_decision_seconds histogram")
        for name, times in sorted(self.times.items()) or [(DEFAULT, Times())]:
            for end, below in zip((*map(str, BUCKETS), "+Inf"), accumulate(times.counts), strict=True):
                lines.append(f'lmab_decision_seconds_bucket{{experiment="{name}",le="{end}"}} {below}')
            lines.append(f'lmab_decision_seconds_sum{{experiment="{name}"}} {times.seconds:.6f}')
            lines.append(f'lmab_decision_seconds_count{{experiment="{name}"}} {sum(times.counts)}')
        return "\n".join(lines) + "\n"


def _labels(labels: tuple[tuple[str, str], ...]) -> str:
    escaped = [(key, value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")) for key, value in labels]
    return "{" + ",".join(f'{key}="{value}"' for key, value in escaped) + "}" if labels else ""


def process_samples(service: Service, ready: bool) -> list[Sample]:
    """Return samples of the whole process, from the service of `default`."""
    commits, recording = service.commits, service.register.ready and not service.trouble
    gauges = {"ready": int(ready), "recording": int(recording), "queue": len(commits.waiting)}
    counts = {"commits": commits.n_commits, "committed_jobs": commits.n_jobs, "failed_jobs": commits.n_failed}
    info = ("version", version("lmab")), ("python", platform.python_version())
    return [
        *(Sample(name, "gauge", value) for name, value in gauges.items()),
        *(Sample(f"{name}_total", "counter", value) for name, value in counts.items()),
        Sample("build_info", "gauge", 1, info),
    ]


def experiment_samples(name: str, service: Service) -> list[Sample]:
    """Return samples of one experiment, by version if a count depends on it."""
    register, own = service.register, (("experiment", name),)
    gauges = {"sessions_in_memory": service.n_live, "canary_share": register.rollout.share}
    gauges["broken_versions"] = len(register.broken)
    found = [Sample(metric, "gauge", value, own) for metric, value in gauges.items()]
    found += [Sample(f"{metric}_total", "counter", count, own) for metric, count in service.counts.items()]
    for version_name, tally in service.tallies.items():
        labels = (*own, ("version", version_name))
        sums = {"sessions": tally.sessions, "version_rewards": tally.rewards, "reward_sum": tally.total}
        sums["reward_delay_seconds"] = tally.delay
        found += [Sample(f"{metric}_total", "counter", value, labels) for metric, value in sums.items()]
    return found


async def stored_samples(name: str, register: Register) -> list[Sample]:
    """Return samples from the store: the last refit of an experiment, and the last backup."""
    own, found = (("experiment", name),), []
    past: list[dict[str, Any]] = await register.record(REFITS) or []
    if past:
        last = past[-1]
        found.append(Sample("last_refit_timestamp_seconds", "gauge", float(last["at"]), own))
        if "seconds" in last:
            found.append(Sample("last_refit_duration_seconds", "gauge", float(last["seconds"]), own))
        if "outcome" in last:
            found.append(Sample("last_refit_outcome", "gauge", 1, (*own, ("outcome", str(last["outcome"])))))
    if name == DEFAULT and (backup := await register.record(BACKUP)) is not None:
        found.append(Sample("last_backup_timestamp_seconds", "gauge", float(backup)))
    return found


async def size_samples(register: Register) -> list[Sample]:
    """Return the size of the store, and the free bytes of its disk if the store is a file."""
    size, free = await register.asked(register.store.size())
    found = [Sample("store_bytes", "gauge", size)]
    return found if free is None else [*found, Sample("disk_free_bytes", "gauge", free)]
