"""Run a kernel's tasks on several threads: kernels release the interpreter's lock and take a range of tasks."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

from ..checks import check_count


class Crew:
    """A number of threads, idle between calls; `with Crew(threads) as crew: crew(kernel, n_tasks, *arguments)`.

    The kernel is called as `kernel(*arguments, first, last)` for ranges of tasks that together are 0 to n_tasks - 1.
    Tasks write to places of their own, so that the outcome is the same for any number of threads.
    """

    def __init__(self, threads: int | None = None) -> None:
        self.threads = _available() if threads is None else check_count("threads", threads)
        self._pool = ThreadPoolExecutor(self.threads) if self.threads > 1 else None

    def __call__(self, kernel: Callable[..., None], n_tasks: int, *arguments: Any, work: int) -> None:
        """Run all tasks; `work`, in steps of all tasks together, decides whether waking other threads pays."""
        if self._pool is None or n_tasks == 1 or work < 50_000:
            kernel(*arguments, 0, n_tasks)
            return
        pieces = min(4 * self.threads, n_tasks)  # more pieces than threads, since tasks may differ in length
        edges = [n_tasks * piece // pieces for piece in range(pieces + 1)]
        jobs = [self._pool.submit(kernel, *arguments, *edges[i : i + 2]) for i in range(pieces)]
        for job in jobs:
            job.result()

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown()


def _available() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
