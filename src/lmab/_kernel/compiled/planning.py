"""Compiled one-step lookahead, decisions and exact dynamic programming; see `tests/reference/planning.py`."""

from __future__ import annotations

import numpy as np
from numba import njit

from ..arrays import ROUNDING

FAST = {"nnan", "ninf", "nsz", "arcp", "contract", "reassoc"}
part = njit(inline="always", fastmath=FAST, error_model="numpy")  # inlined into its caller
_STRICT = {"reassoc", "contract", "nsz"}
_exact_part = njit(inline="always", fastmath=_STRICT, error_model="numpy")  # inlined into its caller


@njit(cache=True, fastmath=FAST, error_model="numpy")
def one_step_values(beliefs, table, means, vectors):
    """Return Q[n, a] = means[a].x + sum_z max_k vectors[k].(x * table[a*Z + z]), on unnormalised beliefs x."""
    values = np.empty((len(beliefs), len(means)))
    columns = np.ascontiguousarray(table.T)
    sums, best = np.empty(len(table)), np.empty(len(table))
    for n in range(len(beliefs)):
        _best_continuations(beliefs[n], columns, vectors, sums, best)
        _add_means(beliefs[n], means, best, values[n])
    return values


@part
def _best_continuations(x, columns, vectors, sums, best):
    """Set best[c] = max_k sum_m vectors[k, m] * x[m] * columns[m, c]; the loop over codes c vectorises."""
    n_codes, odd = columns.shape[1], len(x) % 2
    for k in range(len(vectors)):
        first = vectors[k, 0] * x[0] if odd else 0.0
        for c in range(n_codes):
            sums[c] = first * columns[0, c]
        for m in range(odd, len(x), 2):  # two types at a time: half the traffic on `sums`
            first, second = vectors[k, m] * x[m], vectors[k, m + 1] * x[m + 1]
            for c in range(n_codes):
                sums[c] += first * columns[m, c] + second * columns[m + 1, c]
        if k == 0:
            for c in range(n_codes):
                best[c] = sums[c]
        else:
            for c in range(n_codes):
                best[c] = max(best[c], sums[c])


@part
def _add_means(x, means, best, values):
    """Set values[a] = means[a].x + sum over the arm's codes of best."""
    n_values = len(best) // len(means)
    for arm in range(len(means)):
        gain = 0.0
        for m in range(len(x)):
            gain += means[arm, m] * x[m]
        for code in range(arm * n_values, (arm + 1) * n_values):
            gain += best[code]
        values[arm] = gain


@njit(cache=True, fastmath=FAST, error_model="numpy")
def updated(belief, likelihood):
    """Return the product, and its largest entry."""
    product, top = np.empty(len(belief)), 0.0
    for m in range(len(belief)):
        product[m] = belief[m] * likelihood[m]
        top = max(top, product[m])
    return product, top


@njit(cache=True, fastmath=FAST, error_model="numpy")
def best_plan(belief, vectors, start, stop, scores):
    """Return the first of the plans from `start` to `stop` with the highest score, up to rounding."""
    top = -1e300
    for k in range(start, stop):
        total = 0.0
        for m in range(len(belief)):
            total += vectors[k, m] * belief[m]
        scores[k - start] = total
        top = max(top, total)
    enough = top - ROUNDING * abs(top)
    k = 0
    while scores[k] < enough:
        k += 1
    return start + k


@njit(cache=True, fastmath=_STRICT, error_model="numpy")
def exact_block(weights, table, means, binomials, later, symbols, values):
    """Compute the optimal values of `len(values)` states from `symbols` on, in rank order."""
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


@_exact_part
def _dot(left, right):
    total = 0.0
    for m in range(len(left)):
        total += left[m] * right[m]
    return total


@_exact_part
def _multiply(tails, table, symbols, first):
    for place in range(first, -1, -1):
        row = table[symbols[place]]
        for m in range(tails.shape[1]):
            tails[place, m] = tails[place + 1, m] * row[m]


@_exact_part
def _last(x, means):
    best = -np.inf
    for arm in range(len(means)):
        best = max(best, _dot(means[arm], x))
    return best


@_exact_part
def _value(x, table, means, binomials, later, symbols):
    step = len(symbols)
    n_values = len(table) // len(means)
    # The rank of the row with one code inserted: terms before its position stay, later ones move up by one.
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


@_exact_part
def _advance(symbols):
    for place in range(len(symbols)):
        if place == len(symbols) - 1 or symbols[place] < symbols[place + 1]:
            symbols[place] += 1
            for before in range(place):
                symbols[before] = 0
            return place
    return -1
