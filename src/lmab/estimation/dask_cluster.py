"""Passes on a Dask cluster; only this module, and only when it is asked for, imports Dask."""

from __future__ import annotations

import contextlib
import pickle
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..errors import ClusterLost, InvalidArgument, InvalidFile, first_line
from . import backends
from .passes import Arrays, Passes, Threads, ranges_of

_PIECES = 4  # per thread of a worker
_LARGE = 1 << 17  # bytes of arguments that are sent to the scheduler once, and not with every piece
_DEATHS = 100  # of workers that a piece survives
_PATIENCE = 60.0  # seconds without any worker
_LOOK = 2.0  # seconds after which a wait looks around
_CONNECT = 20.0  # seconds until a scheduler must answer


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
        away = self.failure is None and backends.travels(arguments) and work >= backends._FAR
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
        raise InvalidArgument("a cluster needs Dask: pip install 'lmab[dask]'") from None
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
    function, arguments = pickle.loads(payload)
    try:
        return function(*arguments, first, last)
    except InvalidFile as error:
        from distributed import get_worker

        raise InvalidFile(f"worker {get_worker().address}: {error}") from None


def _forgive(dask_scheduler: Any) -> None:
    dask_scheduler.allowed_failures = max(dask_scheduler.allowed_failures, _DEATHS)
