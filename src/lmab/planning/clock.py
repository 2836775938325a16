"""Clock: the time of one run of a planner, and the bounds it proved on the way."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple


class Bounds(NamedTuple):
    """What was proved after so many seconds."""

    seconds: float
    lower: float
    upper: float


class Clock:
    """The clock of one run: collects the trace, tells when time is up, calls `progress`."""

    def __init__(self, time_limit: float, progress: Callable[[Bounds], None] | None = None) -> None:
        self.time_limit = time_limit
        self.progress = progress
        self.trace: list[Bounds] = []
        self._start = time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._start

    @property
    def expired(self) -> bool:
        return self.seconds >= self.time_limit

    def record(self, lower: float, upper: float) -> None:
        """Note the bounds proved so far; bounds only ever improve."""
        if self.trace:
            lower, upper = max(lower, self.trace[-1].lower), min(upper, self.trace[-1].upper)
        self.trace.append(Bounds(self.seconds, lower, upper))
        if self.progress is not None:
            self.progress(self.trace[-1])
