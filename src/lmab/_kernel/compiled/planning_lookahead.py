"""One step of lookahead for many beliefs at once, in Numba. See `reference.planning_lookahead`."""

from __future__ import annotations

import numpy as np
from numba import njit

FAST = {"nnan", "ninf", "nsz", "arcp", "contract", "reassoc"}
part = njit(inline="always", fastmath=FAST, error_model="numpy")  # compiled as a part of its caller


@njit(cache=True, fastmath=FAST, error_model="numpy")
def one_step_values(beliefs, table, means, vectors):
    """Q[n, a] = means[a].x + sum_z max_k vectors[k].(x * table[a*Z + z]), on unnormalised beliefs x."""
    values = np.empty((len(beliefs), len(means)))
    columns = np.ascontiguousarray(table.T)
    sums, best = np.empty(len(table)), np.empty(len(table))
    for n in range(len(beliefs)):
        _best_continuations(beliefs[n], columns, vectors, sums, best)
        _add_means(beliefs[n], means, best, values[n])
    return values


@part
def _best_continuations(x, columns, vectors, sums, best):
    """best[c] = max_k sum_m vectors[k, m] * x[m] * columns[m, c]: the loop over codes c vectorises."""
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
    """values[a] = means[a].x + sum over the arm's codes of best."""
    n_values = len(best) // len(means)
    for arm in range(len(means)):
        gain = 0.0
        for m in range(len(x)):
            gain += means[arm, m] * x[m]
        for code in range(arm * n_values, (arm + 1) * n_values):
            gain += best[code]
        values[arm] = gain
