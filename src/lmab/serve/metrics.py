"""Metrics: counts and times of requests, as the text that Prometheus reads."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping

BUCKETS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)  # seconds


class Metrics:
    """Requests by path and status, and how long decisions took."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.latency = [0] * (len(BUCKETS) + 1)
        self.seconds = 0.0

    def decided(self, seconds: float) -> None:
        """One decision took this long."""
        self.latency[bisect_left(BUCKETS, seconds)] += 1
        self.seconds += seconds

    def quantile(self, share: float) -> float | None:
        """The upper end of the bucket in which this quantile of the times lies; None before the first decision."""
        total = sum(self.latency)
        below = 0
        for end, count in zip((*BUCKETS, float("inf")), self.latency, strict=True):
            below += count
            if total and below >= share * total:
                return min(end, 10.0)
        return None

    def text(self, gauges: Mapping[str, float], counts: Mapping[str, float]) -> str:
        """All metrics, with further gauges and counts of the service."""
        lines = ["# TYPE lmab_requests_total counter"]
        for (path, status), count in sorted(self.requests.items()):
            lines.append(f'lmab_requests_total{{path="{path}",status="{status}"}} {count}')
        lines.append("# TYPE lmab_decision_seconds histogram")
        below = 0
        for end, count in zip((*map(str, BUCKETS), "+Inf"), self.latency, strict=True):
            below += count
            lines.append(f'lmab_decision_seconds_bucket{{le="{end}"}} {below}')
        lines += [f"lmab_decision_seconds_sum {self.seconds:.6f}", f"lmab_decision_seconds_count {below}"]
        for kind, values in (("counter", counts), ("gauge", gauges)):
            for name, value in values.items():
                lines += [f"# TYPE lmab_{name} {kind}", f"lmab_{name} {value:g}"]
        return "\n".join(lines) + "\n"
