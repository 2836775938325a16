"""The missing information, in Numba: a session of H steps changes H * H blocks of M * K coordinates."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True, error_model="numpy")
def missing(arms, rows, offsets, counts, shares, scores, result):
    n_types, n_entries = scores.shape[1], scores.shape[2]
    width = n_types * n_entries
    flat = scores.reshape(len(scores), width)
    owner = np.empty(width, np.int64)
    for i in range(width):
        owner[i] = i // n_entries
    spread = np.empty((n_types, n_types))
    half = np.empty((width, width))
    result[:] = 0.0
    for session in range(len(shares)):
        _covariance(shares[session], counts[session], spread)
        result[:n_types, :n_types] += 0.5 * spread
        for t in range(offsets[session], offsets[session + 1]):
            own = np.int64(rows[t])
            row = n_types + np.int64(arms[t]) * width
            for i in range(width):
                left = flat[own, i]
                for m in range(n_types):
                    result[m, row + i] += spread[m, owner[i]] * left
                for j in range(width):
                    half[i, j] = left * spread[owner[i], owner[j]]
            # The matrix is symmetric: half of a step with itself, and each pair of steps once.
            _add(result, row, row, half, flat[own], 0.5)
            for later in range(t + 1, offsets[session + 1]):
                column = n_types + np.int64(arms[later]) * width
                _add(result, row, column, half, flat[np.int64(rows[later])], 1.0)
    _symmetrise(result)


@njit(cache=True, nogil=True, error_model="numpy")
def _covariance(share, count, spread):
    for m in range(len(share)):
        for k in range(len(share)):
            spread[m, k] = -count * share[m] * share[k]
        spread[m, m] += count * share[m]


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _add(result, row, column, half, right, scale):
    for i in range(len(half)):
        target = result[row + i, column : column + len(half)]
        source = half[i]
        for j in range(len(half)):
            target[j] += scale * source[j] * right[j]


@njit(cache=True, nogil=True, error_model="numpy")
def _symmetrise(result):
    """Add the transpose, in place."""
    for i in range(len(result)):
        for j in range(i + 1):
            total = result[i, j] + result[j, i]
            result[i, j] = total
            result[j, i] = total
