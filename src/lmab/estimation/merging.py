"""Merging: sessions that are identical up to the order of their steps are stored once, with a count."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .._shapes import Array, Float, Integer, Shaped

SAMPLE = 4096  # sessions looked at to guess how many are distinct
MOST = 1 << 24  # distinct sessions that are kept in memory, wherever the log lies
_LARGE = 1 << 24  # sessions of a log of which more are looked at, since few would always let it seem worth merging
_CHUNK = 1 << 18  # steps hashed at once

Pick = Callable[[Any], tuple[Any, Any]]  # codes and offsets of the sessions with these numbers


def merge(
    codes: Shaped[Array, "S"], offsets: Integer[Array, "N1"], n_codes: int
) -> tuple[Shaped[Array, "T"], Integer[Array, "K1"], Float[Array, "K"]]:
    """Distinct sessions (codes, offsets) and how often each occurs; the input and no counts where that would not pay.

    Two sessions are the same when two independent 64-bit hashes of their steps agree. The answer does not depend on
    the order of the sessions, nor on that of the steps within them.
    """
    n_sessions = len(offsets) - 1
    if seems_diverse(n_sessions, partial(take, codes, offsets), n_codes):
        return codes, offsets, np.empty(0)
    hashes = hashes_of(codes, offsets, n_codes)
    order = np.lexsort(hashes)
    fresh = np.ones(n_sessions, bool)
    fresh[1:] = (hashes[:, order[1:]] != hashes[:, order[:-1]]).any(axis=0)
    if fresh.sum() > worth(n_sessions):
        return codes, offsets, np.empty(0)
    first = np.flatnonzero(fresh)
    counts = np.diff(np.append(first, n_sessions)).astype(np.float64)
    return *take(codes, offsets, order[first]), counts


def worth(n_sessions: int) -> float:
    """The most distinct sessions with which merging pays."""
    return min(n_sessions / 2, MOST)


def seems_diverse(n_sessions: int, pick: Pick, n_codes: int) -> bool:
    """Whether a sample of the sessions says that too many are distinct.

    Where no two of n are alike, all that is known is that about n^2 or more are distinct: so n^2 must be above `worth`.
    """
    if n_sessions <= SAMPLE:
        return False
    size = SAMPLE if n_sessions < _LARGE else 4 * SAMPLE
    return guess(*pick(np.linspace(0, n_sessions - 1, size).astype(np.int64)), n_codes) > worth(n_sessions)


def guess(codes: Shaped[Array, "S"], offsets: Integer[Array, "N1"], n_codes: int) -> float:
    """How many distinct sessions there may be, from the coincidences in a sample of them (the birthday problem)."""
    first = np.sort(hashes_of(codes, offsets, n_codes)[0])
    n = len(first)
    sizes = np.diff(np.append(np.flatnonzero(np.append(True, first[1:] != first[:-1])), n))
    coincidences = (sizes * (sizes - 1) / 2).sum()
    return float(n * (n - 1) / 2 / max(coincidences, 0.5))


def hashes_of(codes: Shaped[Array, "S"], offsets: Integer[Array, "N1"], n_codes: int) -> Integer[Array, "2 N"]:
    """Sums of random 64-bit numbers, one per code: blind to the order of the steps."""
    words = np.random.default_rng(n_codes).integers(0, 2**64, size=(2, n_codes), dtype=np.uint64)
    n_sessions = len(offsets) - 1
    hashes = np.empty((2, n_sessions), np.uint64)
    low = 0
    while low < n_sessions:
        high = max(int(np.searchsorted(offsets, offsets[low] + _CHUNK, side="right")) - 1, low + 1)
        steps = words[:, codes[offsets[low] : offsets[high]]]
        hashes[:, low:high] = np.add.reduceat(steps, offsets[low:high] - offsets[low], axis=1)
        low = high
    return hashes


def take(
    codes: Shaped[Array, "S"], offsets: Integer[Array, "N1"], picked: Integer[Array, "n"]
) -> tuple[Shaped[Array, "T"], Integer[Array, "n1"]]:
    """The picked sessions, with the steps of each in the order of their codes."""
    lengths = offsets[picked + 1] - offsets[picked]
    result = np.concatenate([[0], np.cumsum(lengths)])
    owner = np.repeat(np.arange(len(picked)), lengths)
    steps = codes[np.arange(result[-1]) - result[owner] + offsets[picked][owner]]
    return steps[np.lexsort((steps, owner))], result
