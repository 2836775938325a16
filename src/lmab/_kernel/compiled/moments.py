"""The sums from which the moments of a core set are made, in Numba, in one pass over the sessions."""

from __future__ import annotations

import numpy as np
from numba import njit


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
        table[::stride] = 1.0  # the empty products, and the cell that stands for no factor
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
