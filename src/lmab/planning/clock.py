"""Clock: the time of one run of a planner, and the bounds it proved on the way."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple


class Bounds(NamedTuple):
    """What was proved after so many seconds.

    Examples:
        >>> from lmab.planning import Bounds
        >>> seconds, lower, upper = Bounds(0.5, 3.1, 3.4)
        >>> round(upper - lower, 3)
        0.3
    """

    seconds: float
    lower: float
    upper: float


class Clock:
    """The clock of one run: collects the trace, tells when time is up, calls `progress`.

    A planner calls `record` whenever it has proved something, looks at `expired` now and then, and gives
    `tuple(clock.trace)` to its plan.

    Examples:
        >>> from lmab.planning import Clock
        >>> clock = Clock(time_limit=60.0)
        >>> clock.record(3.0, 4.0)
        >>> clock.record(2.9, 3.5)  # a worse lower bound changes nothing
        >>> clock.trace[-1].lower, clock.trace[-1].upper, clock.expired
        (3.0, 3.5, False)
    """

    def __init__(self, time_limit: float, progress: Callable[[Bounds], None] | None = None) -> None:
        self.time_limit = time_limit
        self.progress = progress
        self.trace: list[Bounds] = []
        self._start = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.perf_counter() - self._start

    @property
    def expired(self) -> bool:
        """Time is up: return the best so far."""
        return self.seconds >= self.time_limit

    def record(self, lower: float, upper: float) -> None:
        """Note the bounds proved so far; bounds only ever improve."""
        if self.trace:
            lower, upper = max(lower, self.trace[-1].lower), min(upper, self.trace[-1].upper)
        self.trace.append(Bounds(self.seconds, lower, upper))
        if self.progress is not None:
            self.progress(self.trace[-1])
