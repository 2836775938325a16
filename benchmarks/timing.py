"""Seconds on the clock, and seconds that the processor spent: on a busy machine the two differ."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Timed(NamedTuple, Generic[T]):
    """What the work came to, and how long it took."""

    result: T
    wall: float
    used: float


def timed(work: Callable[[], T]) -> Timed[T]:
    wall, used = time.perf_counter(), time.process_time()
    result = work()
    return Timed(result, time.perf_counter() - wall, time.process_time() - used)


def fastest(work: Callable[[], T], repeats: int) -> Timed[T]:
    """The least of each kind of seconds over some repeats."""
    runs = [timed(work) for _ in range(repeats)]
    return Timed(runs[-1].result, min(run.wall for run in runs), min(run.used for run in runs))
