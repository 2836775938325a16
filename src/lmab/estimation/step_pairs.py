"""Pairs of consecutive steps as one code, so that the expectation step looks up half as many rows.

Given the type, the likelihood of two steps is the product of their rows, so a table of the products of all pairs of
codes replaces two lookups by one. The steps of a session are exchangeable, so a pair is unordered. Sessions may have$
any length, because an odd step at the end keeps its own code; codes beside steps are paired like steps.
"""

from __future__ import annotations

import numpy as np

from .._kernel import kernel
from .._shapes import Array, Float, Integer, Shaped

_CACHED = 1 << 19  # bytes of a table; it and its sums fit into a second-level cache of 1 MiB together
_STEPS_PER_ROW = 32  # below about 20 steps per pair of codes, making and folding the tables costs more than it gains
_LEAST = 1e-150  # smaller probabilities could multiply to zero


def count_rows(n_codes: int) -> int:
    """Return the rows of a table of weights, single codes and unordered pairs of codes.

    Examples:
        >>> count_rows(3)
        10
    """
    return 1 + n_codes + n_codes * (n_codes + 1) // 2


def is_faster(n_steps: int, n_codes: int, n_columns: int) -> bool:
    """Return whether an expectation step over so many steps is faster in pairs; this depends on the log alone.

    Examples:
        >>> is_faster(100_000, 40, 8), is_faster(10_000, 40, 8), is_faster(100_000_000, 400, 8)
        (True, False, False)
    """
    n_rows = count_rows(n_codes)
    return 8 * n_columns * n_rows <= _CACHED and n_steps >= _STEPS_PER_ROW * n_rows


def can_multiply(tables: Float[Array, "R K P"]) -> bool:
    """Return whether no product of two positive entries underflows."""
    return bool((np.where(tables > 0, tables, 1.0) >= _LEAST).all())


def paired(
    codes: Shaped[Array, "S"], offsets: Integer[Array, "N1"], low: int, high: int, n_codes: int
) -> tuple[Shaped[Array, "T"], Integer[Array, "n1"]]:
    """Return codes and offsets of sessions `low` to `high` - 1 in pairs.

    Examples:
        >>> codes, offsets = paired(np.array([2, 1, 0, 2], np.uint8), np.array([0, 3, 4]), 0, 2, 3)
        >>> codes.tolist(), offsets.tolist()
        ([7, 0, 2], [0, 2, 3])
    """
    n_steps, n_sessions = int(offsets[high] - offsets[low]), high - low
    found = np.empty((n_steps + n_sessions + 1) // 2, np.uint16)
    ends = np.empty(n_sessions + 1, np.int64)
    kernel("em").pair_up(codes, offsets, low, high, n_codes, found, ends)
    return found[: ends[-1]], ends
