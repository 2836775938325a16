"""Clock: the time limit of one run of a planner, and the bounds that it proved over time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple


class Bounds(NamedTuple):
    """The bounds that were proved after `seconds` seconds.

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


class OutOfTime(Exception):
    """The time of a run is over, inside a computation that has nothing to show yet."""


class Clock:
    """The clock of one run of a planner: it collects the trace, says when time is up and calls `progress`.

    Examples:
        >>> import lmab
        >>> clock = lmab.planning.Clock(time_limit=60.0, progress=lambda bounds: print(bounds.lower, bounds.upper))
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
        """Seconds since the run began."""
        return time.perf_counter() - self._start

    @property
    def expired(self) -> bool:
        """Whether the time limit is reached; the planner then stops and returns what is proved."""
        return self.seconds >= self.time_limit

    def record(self, lower: float, upper: float) -> None:
        """Record the bounds proved so far; the trace keeps the best lower and the best upper bound."""
        if self.trace:
            lower, upper = max(lower, self.trace[-1].lower), min(upper, self.trace[-1].upper)
        self.trace.append(Bounds(self.seconds, lower, upper))
        if self.progress is not None:
            self.progress(self.trace[-1])
