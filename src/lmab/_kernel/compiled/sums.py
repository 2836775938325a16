"""Compiled sums over a log; `tests/reference/sums.py` specifies them."""

from __future__ import annotations

import numpy as np
from numba import njit

from ..arrays import FIRST_SESSION, FIRST_STEP, FIRST_WORD, LENGTH, SIZE


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
        for m in range(n_types):  # a sum of arrays would take Numba three seconds longer to compile
            for k in range(n_types):
                result[m, k] += 0.5 * spread[m, k]
        for t in range(offsets[session], offsets[session + 1]):
            score_row = np.int64(rows[t])
            row = n_types + np.int64(arms[t]) * width
            for i in range(width):
                left = flat[score_row, i]
                for m in range(n_types):
                    result[m, row + i] += spread[m, owner[i]] * left
                for j in range(width):
                    half[i, j] = left * spread[owner[i], owner[j]]
            # The matrix is symmetric: half of a step with itself, and each pair of steps once.
            _add(result, row, row, half, flat[score_row], 0.5)
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


@njit(cache=True, nogil=True, error_model="numpy")
def core_sums(groups, observed, offsets, slots, n_slots, order, products, ways):
    n_groups, width = slots.shape
    n_entries, n_factors = products.shape
    stride = order + 1
    sums = np.zeros((n_entries, 5))
    table = np.zeros(n_slots * stride + 1)
    counts = np.zeros(n_groups * stride + 1)
    plays = np.zeros(n_groups, np.int64)
    for session in range(len(offsets) - 1):
        table[:] = 0.0
        table[::stride] = 1.0  # the empty products, and the cell that represents no factor
        plays[:] = 0
        for step in range(offsets[session], offsets[session + 1]):
            group = groups[step]
            if group < 0:
                continue
            plays[group] += 1
            for column in range(width):
                slot = slots[group, column]
                if slot >= 0 and observed[step, column] != 0.0:
                    for m in range(order, 0, -1):
                        table[slot * stride + m] += table[slot * stride + m - 1] * observed[step, column]
        for slot in range(n_slots):
            factorial = 1.0
            for m in range(2, stride):
                factorial *= m
                table[slot * stride + m] *= factorial
        counts[n_groups * stride] = 1.0
        for group in range(n_groups):
            counts[group * stride] = 1.0
            for m in range(order):
                counts[group * stride + m + 1] = counts[group * stride + m] * max(plays[group] - m, 0)
        for entry in range(n_entries):
            y = 1.0
            for factor in range(n_factors):
                y *= counts[ways[entry, factor]]
                if y == 0.0:
                    break
            if y == 0.0:
                continue
            x = 1.0
            for factor in range(n_factors):
                x *= table[products[entry, factor]]
            sums[entry, 0] += x
            sums[entry, 1] += y
            sums[entry, 2] += x * x
            sums[entry, 3] += x * y
            sums[entry, 4] += y * y
    return sums


@njit(cache=True, nogil=True)
def fill(codes, rewards, lengths, shelves, bits, per, words, side, order):
    n_shelves = len(shelves)
    shelf_of = np.empty(shelves[n_shelves - 1, LENGTH] + 1, np.int64)
    for shelf in range(n_shelves):
        shelf_of[shelves[shelf, LENGTH]] = shelf
    cursor = np.zeros(n_shelves, np.int64)
    begin = 0
    for session in range(len(lengths)):
        length = np.int64(lengths[session])
        shelf = shelf_of[length]
        place, size = cursor[shelf], shelves[shelf, SIZE]
        cursor[shelf] += 1
        order[shelves[shelf, FIRST_SESSION] + place] = session
        at = shelves[shelf, FIRST_WORD] + place
        for first in range(0, length, per):
            word = np.uint64(0)
            for t in range(first, min(first + per, length)):
                word |= np.uint64(codes[begin + t]) << np.uint64((t - first) * bits)
            words[at] = word
            at += size
        if len(rewards) > 0:
            for t in range(length):
                side[shelves[shelf, FIRST_STEP] + t * size + place] = rewards[begin + t]
        begin += length
