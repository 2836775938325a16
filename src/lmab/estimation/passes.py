"""Cuts of a log into parts, and the place in which a fit computes on them.

A computation over the log is cut into parts that depend on the log alone, so that it has the same bits wherever the
parts run (`parallel`). Only a GPU (`gpu`) computes the expectation step in its own way, to about 1e-8.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import Executor
from itertools import pairwise
from typing import Any

import numpy as np

from .._shapes import Array, Integer
from ..data.packed import Packed
from ..data.sessions import Sessions
from ..errors import InvalidArgument
from ..parallel import Cluster, Passes, Pool, Threads

_PART = 1 << 15  # Steps that make a part worth its own statistics.
_MAX_PARTS = 64
PARTITION = 1 << 30  # Steps that a device is given at once.
DEVICES = ("gpu",)


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
        with Threads(threads) as here:
            yield Cluster(backend, here)
    elif isinstance(backend, Passes):
        yield backend
    else:
        raise _refusal(type(backend).__name__)


def _refusal(shown: str) -> InvalidArgument:
    return InvalidArgument(f"backend must be None, a concurrent.futures.Executor, a Dask client or 'gpu', got {shown}")
