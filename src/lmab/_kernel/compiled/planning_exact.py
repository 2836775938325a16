"""Exact dynamic programming over counts, in Numba. See `reference.planning_exact`."""

from __future__ import annotations

import numpy as np
from numba import njit

FLAGS = {"reassoc", "contract", "nsz"}
part = njit(inline="always", fastmath=FLAGS, error_model="numpy")  # compiled as a part of its caller


@njit(cache=True, fastmath=FLAGS, error_model="numpy")
def exact_block(weights, table, means, binomials, later, symbols, values):
    """Optimal values of `len(values)` states from `symbols` on, in rank order."""
    step = len(symbols)
    # tails[j] = weights * prod over i >= j of table[symbols[i]]: the first symbols change most often
    tails = np.empty((step + 1, len(weights)))
    for m in range(len(weights)):
        tails[step, m] = weights[m]
    _multiply(tails, table, symbols, step - 1)
    for index in range(len(values)):
        values[index] = (
            _last(tails[0], means) if len(later) == 0 else _value(tails[0], table, means, binomials, later, symbols)
        )
        changed = _advance(symbols)
        if changed >= 0 and symbols[changed] < len(table):
            _multiply(tails, table, symbols, changed)


@part
def _dot(left, right):
    total = 0.0
    for m in range(len(left)):
        total += left[m] * right[m]
    return total


@part
def _multiply(tails, table, symbols, first):
    for place in range(first, -1, -1):
        row = table[symbols[place]]
        for m in range(tails.shape[1]):
            tails[place, m] = tails[place + 1, m] * row[m]


@part
def _last(x, means):
    best = -np.inf
    for arm in range(len(means)):
        best = max(best, _dot(means[arm], x))
    return best


@part
def _value(x, table, means, binomials, later, symbols):
    step = len(symbols)
    n_values = len(table) // len(means)
    # The rank of the row with one code inserted: terms before the place stay, those after it move up by one.
    after = 0
    for place in range(step):
        after += binomials[symbols[place] + place + 1, place + 2]
    before, place, best = 0, 0, -np.inf
    for arm in range(len(means)):
        gain = _dot(means[arm], x)
        for code in range(arm * n_values, (arm + 1) * n_values):
            while place < step and symbols[place] <= code:
                before += binomials[symbols[place] + place, place + 1]
                after -= binomials[symbols[place] + place + 1, place + 2]
                place += 1
            gain += later[before + binomials[code + place, place + 1] + after]
        best = max(best, gain)
    return best


@part
def _advance(symbols):
    for place in range(len(symbols)):
        if place == len(symbols) - 1 or symbols[place] < symbols[place + 1]:
            symbols[place] += 1
            for before in range(place):
                symbols[before] = 0
            return place
    return -1
