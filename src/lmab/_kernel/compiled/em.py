"""The expectation step of EM in Numba: one fused pass over the steps, in the linear domain.

Contexts are worked on four at a time, in local variables, so that they stay in one vector register. A product of
probabilities only falls, so underflow shows in its final sum: such episodes, and long ones, are done again (or at
once) with logarithms, taken only when the product has become small. Signed indices would be tested for being negative
at every access: hence the unsigned ones.
"""

from __future__ import annotations

import numpy as np
from numba import njit

_SMALL = 1e-100  # products below this go to the logarithms
_LONG = 192  # steps of an episode that starts with logarithms
_U0, _U1, _U2, _U3, _U4 = (np.uint64(i) for i in range(5))


@njit(cache=True, nogil=True, error_model="numpy")
def categorical(codes, offsets, counts, edges, tables, statistics, logs, first, last):
    n_blocks = len(edges) - 1
    for task in range(first, last):
        model, block = task // n_blocks, task % n_blocks
        target = statistics[model, block]
        target[:] = 0.0
        logs[model, block] = _block(codes, offsets, counts, tables[model], target, edges[block], edges[block + 1])


@njit(cache=True, nogil=True, error_model="numpy")
def _block(codes, offsets, counts, table, statistics, low, high):
    width = np.uint64(table.shape[1])
    share = np.empty(table.shape[1])
    merged = len(counts) > 0
    total, product = 0.0, 1.0
    for episode in range(np.uint64(low), np.uint64(high)):
        begin, end = np.uint64(offsets[episode]), np.uint64(offsets[episode + _U1])
        mass = 0.0
        if end - begin <= _LONG:
            for j in range(_U0, width, _U4):
                p0, p1, p2, p3 = table[_U0, j], table[_U0, j + _U1], table[_U0, j + _U2], table[_U0, j + _U3]
                for t in range(begin, end):
                    row = np.uint64(codes[t]) + _U1
                    p0 *= table[row, j]
                    p1 *= table[row, j + _U1]
                    p2 *= table[row, j + _U2]
                    p3 *= table[row, j + _U3]
                share[j], share[j + _U1], share[j + _U2], share[j + _U3] = p0, p1, p2, p3
                mass += (p0 + p2) + (p1 + p3)
        scale = counts[episode] if merged else 1.0
        if mass < _SMALL:
            for j in range(width):
                share[j] = _log_product(codes, begin, end, table, j)
            top = share.max()
            if top == -np.inf:
                total = -np.inf
                continue
            mass = _exponentials(share, top)
            total += scale * (top + np.log(mass))
        elif merged:
            total += scale * np.log(mass)
        else:
            product *= mass  # one logarithm for many episodes
            if product < _SMALL:
                total += np.log(product)
                product = 1.0
        scale /= mass
        for j in range(_U0, width, _U4):
            p0, p1, p2, p3 = share[j], share[j + _U1], share[j + _U2], share[j + _U3]
            p0, p1, p2, p3 = p0 * scale, p1 * scale, p2 * scale, p3 * scale
            _add(statistics, _U0, j, p0, p1, p2, p3)
            for t in range(begin, end):
                _add(statistics, np.uint64(codes[t]) + _U1, j, p0, p1, p2, p3)
    return total + np.log(product)


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _add(statistics, row, j, p0, p1, p2, p3):
    statistics[row, j] += p0
    statistics[row, j + _U1] += p1
    statistics[row, j + _U2] += p2
    statistics[row, j + _U3] += p3


@njit(cache=True, nogil=True, error_model="numpy")
def _log_product(codes, begin, end, table, j):
    """log of weight times probabilities of the steps, in context j."""
    total, product = 0.0, table[_U0, j]
    for t in range(begin, end):
        factor = table[np.uint64(codes[t]) + _U1, j]
        if factor < _SMALL:
            total += np.log(factor)
        else:
            product *= factor
            if product < _SMALL:
                total += np.log(product)
                product = 1.0
    return total + np.log(product)


@njit(cache=True, nogil=True, error_model="numpy")
def _exponentials(share, top):
    """Replace each entry by exp(entry - top); return their sum."""
    mass = 0.0
    for j in range(len(share)):
        share[j] = np.exp(share[j] - top)
        mass += share[j]
    return mass


@njit(cache=True, nogil=True, error_model="numpy")
def gaussian(arms, rewards, offsets, edges, tables, statistics, logs, first, last):
    n_blocks = len(edges) - 1
    for task in range(first, last):
        model, block = task // n_blocks, task % n_blocks
        target = statistics[model, block]
        target[:] = 0.0
        low, high = edges[block], edges[block + 1]
        logs[model, block] = _gaussian_block(arms, rewards, offsets, tables[model], target, low, high)


@njit(cache=True, nogil=True, error_model="numpy")
def _gaussian_block(arms, rewards, offsets, table, statistics, low, high):
    width, n_arms = np.uint64(table.shape[1]), np.uint64(table.shape[0] - 2)
    deviation = table[n_arms + _U1, _U0]
    precision = -0.5 / deviation**2
    weights = np.log(table[0])
    share = np.empty(table.shape[1])
    total = 0.0
    for episode in range(np.uint64(low), np.uint64(high)):
        begin, end = np.uint64(offsets[episode]), np.uint64(offsets[episode + _U1])
        for j in range(_U0, width, _U4):
            s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
            for t in range(begin, end):
                row, x = np.uint64(arms[t]) + _U1, rewards[t]
                d0, d1, d2, d3 = (
                    x - table[row, j],
                    x - table[row, j + _U1],
                    x - table[row, j + _U2],
                    x - table[row, j + _U3],
                )
                s0, s1, s2, s3 = s0 + d0 * d0, s1 + d1 * d1, s2 + d2 * d2, s3 + d3 * d3
            share[j], share[j + _U1], share[j + _U2], share[j + _U3] = s0, s1, s2, s3
        for j in range(width):
            share[j] = weights[j] + precision * share[j]
        top = share.max()
        if not top > -np.inf:
            total = -np.inf
            continue
        mass = _exponentials(share, top)
        total += top + np.log(mass)
        scale = 1.0 / mass
        for j in range(_U0, width, _U4):
            p0, p1, p2, p3 = share[j], share[j + _U1], share[j + _U2], share[j + _U3]
            p0, p1, p2, p3 = p0 * scale, p1 * scale, p2 * scale, p3 * scale
            _add(statistics, _U0, j, p0, p1, p2, p3)
            for t in range(begin, end):
                row, x = np.uint64(arms[t]) + _U1, rewards[t]
                _add(statistics, row, j, p0, p1, p2, p3)
                _add(statistics, row + n_arms, j, p0 * x, p1 * x, p2 * x, p3 * x)
    steps = offsets[high] - offsets[low]
    return total - steps * np.log(deviation * np.sqrt(2 * np.pi))
