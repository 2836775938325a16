"""People who come back, in Numba; `reference/persons.py` says what the functions do."""

from __future__ import annotations

import numpy as np
from numba import njit

_SMALL = 1e-100  # products below this are scaled up


@njit(cache=True, nogil=True, error_model="numpy")
def likelihoods(codes, offsets, table, rows, scales):
    n_types = table.shape[1]
    for session in range(len(offsets) - 1):
        row, scale = rows[session], 0.0
        row[:] = 1.0
        for t in range(offsets[session], offsets[session + 1]):
            factor, top = table[codes[t]], 0.0
            for j in range(n_types):
                row[j] *= factor[j]
                top = max(top, row[j])
            if 0.0 < top < _SMALL:
                scale += np.log(top)
                for j in range(n_types):
                    row[j] /= top
        top = row.max()
        if top > 0.0:
            scale += np.log(top)
            for j in range(n_types):
                row[j] /= top
        scales[session] = scale


@njit(cache=True, nogil=True, error_model="numpy")
def returning(like, edges, weights, groups, keep, posterior, fresh, kept, logs):
    n_types, longest = like.shape[1], 0
    for p in range(len(edges) - 1):
        longest = max(longest, edges[p + 1] - edges[p])
    forward, masses = np.empty((longest, n_types)), np.empty(longest)
    back, after = np.empty(n_types), np.empty(n_types)
    fresh[:], kept[:] = 0.0, 0.0
    for p in range(len(edges) - 1):
        low, n = edges[p], edges[p + 1] - edges[p]
        for t in range(n):
            own, mass = weights[groups[low + t]], 0.0
            for j in range(n_types):
                prior = own[j] if t == 0 else keep * forward[t - 1, j] + (1 - keep) * own[j]
                forward[t, j] = prior * like[low + t, j]
                mass += forward[t, j]
            masses[t] = mass
            logs[low + t] = np.log(mass)
            for j in range(n_types):
                forward[t, j] /= mass
        back[:] = 1.0
        for t in range(n - 1, -1, -1):
            own, drawn = weights[groups[low + t]], fresh[groups[low + t]]
            for j in range(n_types):
                posterior[low + t, j] = forward[t, j] * back[j]
            if t == 0:
                for j in range(n_types):
                    drawn[j] += posterior[low, j]
                continue
            mass = 0.0
            for j in range(n_types):
                after[j] = like[low + t, j] * back[j] / masses[t]
                drawn[j] += (1 - keep) * own[j] * after[j]
                kept[0] += keep * forward[t - 1, j] * after[j]
                mass += own[j] * after[j]
            kept[1] += 1.0
            for j in range(n_types):
                back[j] = keep * after[j] + (1 - keep) * mass


@njit(cache=True, nogil=True, error_model="numpy")
def sums(codes, offsets, posterior, into):
    into[:] = 0.0
    for session in range(len(offsets) - 1):
        share = posterior[session]
        for t in range(offsets[session], offsets[session + 1]):
            row = into[codes[t]]
            for j in range(len(share)):
                row[j] += share[j]
