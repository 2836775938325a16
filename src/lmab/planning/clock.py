"""Clock: the time of one run of a planner, and the bounds it proved on the way."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple


class Bounds(NamedTuple):
    """What was proved after so many seconds.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> bounds = lmab.plan(bandit, horizon=5, method=lmab.Exact()).trace[-1]
        >>> round(bounds.lower, 5), bounds.lower == bounds.upper
        (3.35771, True)
    """

    seconds: float
    lower: float
    upper: float


class Clock:
    """The clock of one run of a planner: collects the trace, tells when time is up, calls `progress`.

    Examples:
        >>> import lmab
        >>> clock = lmab.Clock(time_limit=60.0, progress=lambda bounds: print(bounds.lower, bounds.upper))
        >>> clock.record(2.0, 4.0)
        2.0 4.0
        >>> clock.record(1.0, 3.0)  # a worse lower bound than the one before proves nothing new
        2.0 3.0
        >>> clock.expired, len(clock.trace)
        (False, 2)
    """

    def __init__(self, time_limit: float, progress: Callable[[Bounds], None] | None = None) -> None:
        self.time_limit = time_limit
        self.progress = progress
        self.trace: list[Bounds] = []
        self._start = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Since the run began."""
        return time.perf_counter() - self._start

    @property
    def expired(self) -> bool:
        """Whether the time limit is reached: stop, and return what is proved."""
        return self.seconds >= self.time_limit

    def record(self, lower: float, upper: float) -> None:
        """Note the bounds proved so far; bounds only ever improve."""
        if self.trace:
            lower, upper = max(lower, self.trace[-1].lower), min(upper, self.trace[-1].upper)
        self.trace.append(Bounds(self.seconds, lower, upper))
        if self.progress is not None:
            self.progress(self.trace[-1])
