"""Where passes run: threads of this process, the workers of an executor, a Dask cluster, or a GPU.

Every place but the GPU runs the same function on ranges of the parts and gives the arrays in the order of the parts, so
that a fit has the same bits everywhere. A log in memory is worked on where it lies; a packed log travels as names of
files. A GPU computes the expectation step in its own way, to about 1e-8.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

import numpy as np

from ..errors import InvalidArgument
from .passes import Arrays, Passes, Threads, ranges_of

DEVICES = ("gpu",)
_FAR = 200_000  # steps of a pass below which sending it away does not pay
_PIECES = 4  # per worker, since parts and workers may differ


def require_backend(backend: Any) -> None:
    """Fail, with the reason, where a device that is asked for by name cannot be used on this machine.

    It is used or refused: a fit never falls back to the CPU, where it could take hours.
    """
    if not isinstance(backend, str):
        return
    if backend not in DEVICES:
        raise _refusal(repr(backend))
    from .gpu import missing

    why_not = missing()
    if why_not is not None:
        raise InvalidArgument(f"backend must be None where no GPU can be used ({why_not}), got {backend!r}")


@contextlib.contextmanager
def opened(backend: Any, threads: int | None = None) -> Iterator[Passes]:
    """The passes of a backend: None (threads), "gpu", an executor, a Dask client, or passes themselves."""
    require_backend(backend)
    if isinstance(backend, str):
        from .gpu import Gpu

        with Gpu(threads) as on_device:
            yield on_device
    elif backend is None:
        with Threads(threads) as passes:
            yield passes
    elif isinstance(backend, Executor):
        with Threads(threads) as here:
            yield Pool(backend, here)
    elif hasattr(backend, "scheduler_info") and hasattr(backend, "submit"):
        from .dask_cluster import Cluster

        with Threads(threads) as here:
            yield Cluster(backend, here)
    elif isinstance(backend, Passes):
        yield backend
    else:
        raise _refusal(type(backend).__name__)


def _refusal(shown: str) -> InvalidArgument:
    return InvalidArgument(f"backend must be None, a concurrent.futures.Executor, a Dask client or 'gpu', got {shown}")


class Pool(Passes):
    """The workers of an executor; what does not pay to be sent away runs here."""

    def __init__(self, executor: Executor, here: Threads) -> None:
        self._executor, self._here = executor, here
        self._in_process = isinstance(executor, ThreadPoolExecutor)

    def ordered(self, function: Callable[..., Arrays], n_parts: int, *arguments: Any, work: int) -> Arrays:
        away = self._in_process or (travels(arguments) and work >= _FAR)
        if not away or n_parts == 1:
            return self._here.ordered(function, n_parts, *arguments, work=work)
        workers = int(getattr(self._executor, "_max_workers", None) or self._here.threads)
        jobs = [self._executor.submit(function, *arguments, *one) for one in ranges_of(n_parts, _PIECES * workers)]
        return tuple(np.concatenate(arrays) for arrays in zip(*(job.result() for job in jobs), strict=True))


def travels(arguments: tuple[Any, ...]) -> bool:
    """Whether the log among the arguments lies in files, so that other processes can open it themselves."""
    return any(getattr(argument, "travels", False) for argument in arguments)
