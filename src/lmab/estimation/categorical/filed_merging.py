"""Merging of a log in files: the same distinct sessions as in memory, found partition by partition."""

from __future__ import annotations

import numpy as np

from ..._shapes import Array, Float, Integer
from ..arrays import frozen
from ..merging import hashes_of, seems_diverse, take, worth
from ..steps import Steps
from .steps import FiledSteps, HeldSteps

_SESSIONS = 1 << 20  # hashed together


def merged(steps: FiledSteps, n_codes: int) -> Steps:
    """Distinct sessions in memory with their counts, where that pays; else the steps as they are.

    The rules are those of `merge`: the same log gives the same arrays wherever it lies.
    """
    n = steps.n_all
    if seems_diverse(n, steps.pick, n_codes):
        return steps
    hashes, counts, rows = np.empty((2, 0), np.uint64), np.empty(0), np.empty(0, np.int64)
    for low in range(0, n, _SESSIONS):
        window = steps.window(low, min(low + _SESSIONS, n))
        found = hashes_of(window.codes, window.offsets, n_codes)
        hashes, counts, rows = _joined(
            np.concatenate([hashes, found], axis=1),
            np.concatenate([counts, np.ones(window.high)]),
            np.concatenate([rows, low + np.arange(window.high)]),
        )
        if len(rows) > worth(n):
            return steps
    order = np.argsort(rows)
    codes, offsets = steps.pick(rows[order])
    codes, offsets = take(codes, offsets, np.argsort(order))
    return HeldSteps(frozen(offsets), frozen(codes), frozen(counts))


def _joined(
    hashes: Integer[Array, "2 n"], counts: Float[Array, "n"], rows: Integer[Array, "n"]
) -> tuple[Integer[Array, "2 k"], Float[Array, "k"], Integer[Array, "k"]]:
    """Hashes in order, each once, with the sum of its counts and its first row."""
    order = np.lexsort(hashes)
    fresh = np.ones(len(rows), bool)
    fresh[1:] = (hashes[:, order[1:]] != hashes[:, order[:-1]]).any(axis=0)
    first = np.flatnonzero(fresh)
    return hashes[:, order[first]], np.add.reduceat(counts[order], first), rows[order[first]]
