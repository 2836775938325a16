"""Places where the parts of a computation run: threads, the workers of an executor, or a Dask cluster.

A computation is cut into parts that do not depend on the place. The results of the parts are put together in the order
of their numbers, so that the outcome has the same bits in every place. A log in memory is worked on where it lies; a
packed log travels as names of files.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import cache, wraps
from importlib.util import find_spec
from itertools import pairwise, product
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Protocol, TypeVar

import numpy as np

from ._shapes import Array, Float
from .checks import check_count
from .errors import ClusterLost, InvalidArgument, InvalidFile, first_line

Arrays = tuple[Array, ...]
_WORTH = 50_000  # Steps of a pass below which waking other threads does not pay.
_PIECES = 4  # Pieces per thread or worker, since parts may differ in length.
_FAR = 200_000  # Steps of a pass below which sending it away does not pay.
_LARGE = 1 << 17  # Bytes of arguments that are sent to the scheduler once, and not with every piece.
_DEATHS = 100  # Deaths of workers that a piece survives.
_PATIENCE = 60.0  # Seconds without any worker after which the cluster is lost.
_LOOK = 2.0  # Seconds after which a wait looks around.
_CONNECT = 20.0  # Seconds until a scheduler must answer.


_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


@cache
def blas_libraries() -> tuple[tuple[Callable[[], int], Callable[[int], None]], ...]:
    """Return the functions that get and set the number of threads of each OpenBLAS that NumPy and SciPy bring along.

    A library that is not loaded yet is loaded. Builds with another BLAS bring none, and keep their threads.
    """
    found = []
    for package in ("numpy", "scipy"):
        spec = find_spec(package)
        folder = Path(spec.origin or "") if spec else Path()
        for path in sorted([*folder.parents[1].glob(f"{package}.libs/*openblas*"),
                            *folder.parent.glob(".dylibs/*openblas*")]):  # fmt: skip
            library = ctypes.CDLL(str(path))
            for prefix, suffix in product(("scipy_", ""), ("64_", "")):
                getter = getattr(library, f"{prefix}openblas_get_num_threads{suffix}", None)
                setter = getattr(library, f"{prefix}openblas_set_num_threads{suffix}", None)
                if getter is not None and setter is not None:
                    found.append((getter, setter))
                    break
    return tuple(found)


class _BlasLimit:
    """Limit of one thread for the BLAS libraries of this process, in force while any thread uses it.

    Threads of BLAS cost more than they gain for matrices of some tens of rows, and results depend on their number.
    """

    def __init__(self) -> None:
        self._lock, self._users = threading.Lock(), 0
        self._before: list[int] = []

    def enter(self) -> None:
        """Limit all libraries, unless they are limited already."""
        with self._lock:
            if self._users == 0:
                self._before = [getter() for getter, _ in blas_libraries()]
                for _, setter in blas_libraries():
                    setter(1)
            self._users += 1

    def leave(self) -> None:
        """Restore the settings when the last user leaves."""
        with self._lock:
            self._users -= 1
            if self._users == 0:
                for before, (_, setter) in zip(self._before, blas_libraries(), strict=True):
                    setter(before)


_BLAS = _BlasLimit()


def with_one_blas_thread(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Run the function with one thread of BLAS, and leave the setting as it was.

    Examples:
        >>> with_one_blas_thread(abs)(-2)
        2
    """

    @wraps(function)
    def limited(*arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        _BLAS.enter()
        try:
            return function(*arguments, **named)
        finally:
            _BLAS.leave()

    return limited


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


def _available() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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


class Cluster(Passes):
    """The workers of a Dask cluster.

    A pass is a few tasks that are pure functions of their arguments, so that those of a worker that died are done by
    others. Where the scheduler is lost, `failure` says so, and what is left of the pass runs here.
    """

    def __init__(self, client: Any, here: Threads) -> None:
        self._client, self._here = client, here
        with contextlib.suppress(Exception):  # another scheduler may not allow it
            client.run_on_scheduler(_forgive)

    def ordered(self, function: Callable[..., Arrays], n_parts: int, *arguments: Any, work: int) -> Arrays:
        away = self.failure is None and travels(arguments) and work >= _FAR
        if not away:
            return self._here.ordered(function, n_parts, *arguments, work=work)
        try:
            found = self._gathered(self._submitted(function, n_parts, arguments))
        except InvalidFile:
            raise
        except Exception as error:  # whatever the network does
            self.failure = ClusterLost(f"the cluster was lost: {first_line(error)}")
            return self._here.ordered(function, n_parts, *arguments, work=work)
        return tuple(np.concatenate(arrays) for arrays in zip(*found, strict=True))

    def _submitted(self, function: Callable[..., Arrays], n_parts: int, arguments: tuple[Any, ...]) -> list[Any]:
        self._require_scheduler()
        payload: Any = pickle.dumps((function, arguments))
        if len(payload) > _LARGE:  # a task, and not scattered data, so that it can be made again
            payload = self._client.submit(_same, payload, pure=False, retries=_DEATHS)
        threads = max(sum(self._client.nthreads().values()), 1)
        firsts, lasts = zip(*ranges_of(n_parts, _PIECES * threads), strict=True)
        # all pieces at once, because a message to the scheduler costs as much as many pieces in it
        return list(self._client.map(_run, [payload] * len(firsts), firsts, lasts, pure=False, retries=2))

    def _gathered(self, jobs: list[Any]) -> list[Arrays]:
        from distributed import wait

        seen = time.monotonic()
        while True:
            try:
                with self._client.as_current():
                    wait(jobs, timeout=_LOOK)
                return list(self._client.gather(jobs))
            except TimeoutError:
                self._require_scheduler()
                if self._client.nthreads():
                    seen = time.monotonic()
                elif time.monotonic() - seen > _PATIENCE:
                    raise ConnectionError(f"there was no worker for {_PATIENCE:.0f} seconds") from None

    def _require_scheduler(self) -> None:
        if self._client.status != "running":
            raise ConnectionError("the scheduler does not answer")


@contextlib.contextmanager
def connected(address: str) -> Iterator[Any]:
    """A Dask client for the scheduler at `address`, such as tcp://host:8786."""
    try:
        from distributed import Client
    except ImportError:
        raise InvalidArgument("a cluster needs Dask: pip install '.[dask]'") from None
    try:
        client = Client(address, timeout=_CONNECT, set_as_default=False)
    except Exception as error:
        raise ClusterLost(f"no scheduler answers at {address}: {first_line(error)}") from None
    try:
        yield client
    finally:
        with contextlib.suppress(Exception):
            client.close(timeout=_LOOK)


def _same(payload: bytes) -> bytes:
    return payload


def _run(payload: bytes, first: int, last: int) -> Arrays:
    """A range of the parts, on a worker."""
    try:
        function, arguments = pickle.loads(payload)  # this opens the files of a packed log
        return function(*arguments, first, last)
    except InvalidFile as error:
        from distributed import get_worker

        raise InvalidFile(f"worker {get_worker().address}: {error}") from None


def _forgive(dask_scheduler: Any) -> None:
    dask_scheduler.allowed_failures = max(dask_scheduler.allowed_failures, _DEATHS)
