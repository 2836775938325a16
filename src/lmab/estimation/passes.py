"""Passes: how a computation over the log is cut into parts, and the threads that run the parts.

A pass is cut into parts that depend on the log alone. What the parts give is put together, and added up, in the order
of their numbers, so that the outcome has the same bits wherever the parts ran.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from types import TracebackType
from typing import Any, Protocol

import numpy as np

from .._shapes import Array, Float, Integer
from ..checks import check_count
from ..data import Packed, Sessions
from ..errors import ClusterLost

Arrays = tuple[Array, ...]
_WORTH = 50_000  # steps of a pass below which waking other threads does not pay
_PIECES = 4  # per thread, since parts may differ in length
_PART = 1 << 15  # steps that make a part worth its own statistics
_MAX_PARTS = 64
PARTITION = 1 << 30  # steps that a device is given at once


class CodedLog(Protocol):
    """A log as the expectation step reads it: a code for every step, and a reward where the code is only the arm."""

    @property
    def n_steps(self) -> int:
        """Steps that a pass walks through."""

    @property
    def n_sums(self) -> int:
        """Rows of the statistics."""

    @property
    def largest(self) -> float | None:
        """The largest absolute reward; None where the codes say all."""

    def partitions(self) -> Iterable[Arrays]:
        """Parts of whole sessions: (codes, lengths, counts, rewards), counts empty where no sessions are merged."""


class Passes(ABC):
    """What runs a function on all parts of a log."""

    failure: ClusterLost | None = None  # why passes run here now, where they were to run elsewhere

    @abstractmethod
    def ordered(self, function: Callable[..., Arrays], n_parts: int, *arguments: Any, work: int) -> Arrays:
        """The arrays that `function(*arguments, first, last)` gives for parts first to last - 1, for all parts.

        Whoever runs the parts may call the function once for all or for ranges of them, in any order and place; the
        arrays of the ranges are put one after the other in the order of the parts. So entry k of an array with one
        entry per part belongs to part k, and a sum over the entries has the same bits however the parts were run.
        `work`, in steps of all parts together, tells whether sharing it out pays.
        """

    def expectation(
        self, log: CodedLog, models: Float[Array, "R K P"]
    ) -> tuple[Float[Array, "R Q P"], Float[Array, "R"]] | None:
        """The expectation step on another device; None: `ordered` is to run it."""
        return None

    @property
    def processor(self) -> Passes:
        """The same without another device."""
        return self


class Threads(Passes):
    """A number of threads, idle between passes: `with Threads(2) as passes: passes.ordered(...)`.

    Threads gain where the function releases the interpreter's lock, as the kernels do.
    """

    def __init__(self, threads: int | None = None) -> None:
        self.threads = _available() if threads is None else check_count("threads", threads)
        self._pool = ThreadPoolExecutor(self.threads) if self.threads > 1 else None

    def ordered(self, function: Callable[..., Arrays], n_parts: int, *arguments: Any, work: int) -> Arrays:
        if self._pool is None or n_parts == 1 or work < _WORTH:
            return function(*arguments, 0, n_parts)
        jobs = [self._pool.submit(function, *arguments, *one) for one in ranges_of(n_parts, _PIECES * self.threads)]
        return tuple(np.concatenate(arrays) for arrays in zip(*(job.result() for job in jobs), strict=True))

    def each(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """The function of every item, in their order; for calls that are long, and whose results are no arrays."""
        return list(map(function, items) if self._pool is None else self._pool.map(function, items))

    def __enter__(self) -> Threads:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown()


def ranges_of(n_parts: int, most: int) -> list[tuple[int, int]]:
    """At most so many ranges of the parts, about equally long."""
    pieces = min(most, n_parts)
    return list(pairwise(n_parts * piece // pieces for piece in range(pieces + 1)))


SERIAL = Threads(1)  # where no other place is given


def part_edges(offsets: Integer[Array, "N1"], n_bytes: int, result_bytes: int) -> Integer[Array, "B1"]:
    """Cuts between parts of the sessions with about equally many steps.

    They depend on the log and the size of a part's result only, never on who runs them; a part's result stays well
    below the share of the data that it stands for.
    """
    n_steps = int(offsets[-1])
    n_parts = count_parts(n_steps, n_bytes, result_bytes)
    return edges_at(np.searchsorted(offsets, np.arange(1, n_parts) * (n_steps / n_parts)), len(offsets) - 1)


def session_edges(sessions: Sessions | Packed, result_bytes: int) -> Integer[Array, "B1"]:
    """Cuts between parts of a log, in memory or in files; the same for the same log."""
    n_steps = sessions.n_steps
    if isinstance(sessions, Sessions):
        return part_edges(sessions.offsets, 8 * n_steps, result_bytes)
    n_parts = count_parts(n_steps, 8 * n_steps, result_bytes)
    return edges_at(sessions.partitions.cuts(np.arange(1, n_parts) * (n_steps / n_parts)), len(sessions))


def count_parts(n_steps: int, n_bytes: int, result_bytes: int) -> int:
    """How many parts a pass over so many steps has."""
    return max(min(n_steps // _PART, n_bytes // (2 * max(result_bytes, 1)), _MAX_PARTS), 1)


def edges_at(cuts: Integer[Array, "n"], n_sessions: int) -> Integer[Array, "B1"]:
    """The edges of the parts with these cuts between them; parts without sessions are left out."""
    return np.unique(np.concatenate([[0], cuts, [n_sessions]])).astype(np.int64)


def spans(offsets: Integer[Array, "n1"], n_steps: int) -> list[tuple[int, int]]:
    """Ranges of the sessions with about `n_steps` steps each, for work that holds something for every step."""
    cuts = np.searchsorted(offsets, np.arange(int(offsets[0]) + n_steps, int(offsets[-1]), n_steps))
    edges = np.unique(np.concatenate([[0], cuts, [len(offsets) - 1]])).tolist()
    return list(pairwise(edges))


def _available() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
