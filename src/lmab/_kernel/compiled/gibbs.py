"""Compiled Gibbs sweep: linear in the steps, then a few passes over (arm, centre, spread)."""

from __future__ import annotations

import numpy as np
from numba import njit

_SMALL = 1e-100  # smaller products are rescaled
_OFTEN = 8  # number of steps between tests of a product
_HALF_LOG = 0.5 * np.log(2 * np.pi)
_NEVER = -80.0  # smaller logarithms of shares are replaced by this
_RARE = np.exp(_NEVER)
_NOTHING = 1e-17  # fraction of an arm's mass that sums may omit


@njit(cache=True, nogil=True, error_model="numpy")
def categorical(codes, offsets, counts, table, uniforms, statistics):
    n_types = table.shape[1]
    share = np.empty(n_types)
    statistics[:] = 0.0
    merged = len(counts) > 0
    drawn = 0
    for session in range(len(offsets) - 1):
        begin, end = offsets[session], offsets[session + 1]
        for m in range(n_types):
            share[m] = table[0, m]
        for t in range(begin, end):
            row = table[np.int64(codes[t]) + 1]
            for m in range(n_types):
                share[m] *= row[m]
            if (t - begin) % _OFTEN == _OFTEN - 1:
                _rescale(share)
        _accumulate(share)
        for _ in range(np.int64(counts[session]) if merged else 1):
            m = _place(share, uniforms[drawn])
            drawn += 1
            statistics[0, m] += 1.0
            for t in range(begin, end):
                statistics[np.int64(codes[t]) + 1, m] += 1.0


@njit(cache=True, nogil=True, error_model="numpy")
def gaussian(arms, rewards, offsets, table, scale, uniforms, statistics):
    n_types, n_arms = table.shape[1], table.shape[0] - 1
    share = np.empty(n_types)
    statistics[:] = 0.0
    factor = -0.5 / (scale * scale)
    for session in range(len(offsets) - 1):
        begin, end = offsets[session], offsets[session + 1]
        for m in range(n_types):
            share[m] = np.log(table[0, m])
        for t in range(begin, end):
            row, x = table[np.int64(arms[t]) + 1], rewards[t]
            for m in range(n_types):
                share[m] += factor * (x - row[m]) * (x - row[m])
        top = share.max()
        for m in range(n_types):
            share[m] = np.exp(share[m] - top)
        _accumulate(share)
        m = _place(share, uniforms[session])
        statistics[0, m] += 1.0
        for t in range(begin, end):
            row = np.int64(arms[t]) + 1
            statistics[row, m] += 1.0
            statistics[row + n_arms, m] += rewards[t]


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _rescale(share):
    top = share.max()
    if top < _SMALL:
        for m in range(len(share)):
            share[m] /= top


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _accumulate(share):
    for m in range(1, len(share)):
        share[m] += share[m - 1]


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _place(cumulative, uniform):
    target, place = uniform * cumulative[-1], 0
    while place < len(cumulative) - 1 and cumulative[place] <= target:
        place += 1
    return place


@njit(cache=True, nogil=True, error_model="numpy")
def beta_evidence(paid, missed, first, second, table, shift, n_spreads, evidence):
    both = first + second
    for arm in range(paid.shape[0]):
        row = evidence[arm]
        for m in range(paid.shape[1]):
            move = shift[arm, m] * n_spreads
            _add_rising(row, paid[arm, m], first, table[0], move, n_spreads, 1.0)
            _add_rising(row, missed[arm, m], second, table[1], move, n_spreads, 1.0)
            _add_rising(row, paid[arm, m] + missed[arm, m], both, table[2], move, n_spreads, -1.0)


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _add_rising(row, count, shape, table, move, n_spreads, sign):
    """Add the log of the rising factorial, shifted by `move` centres; beyond the ends the outermost centre is used."""
    n, size = np.int64(count), len(row)
    if n == 0:
        return
    last = len(table) - 1
    known = table[min(n, last)]
    begin, end = min(max(-move, 0), size), max(min(size, size - move), 0)
    if n <= last:
        here, there = row[begin:end], known[begin + move : end + move]
        for j in range(len(here)):
            here[j] += sign * there[j]
        if move == 0:
            return
    else:  # Stirling's series beyond the end of the table, exact up to rounding there
        for j in range(begin, end):
            i = j + move
            row[j] += sign * (known[i] + _log_gamma(shape[i] + count) - _log_gamma(shape[i] + last))
    for j in range(size):
        if j < begin or j >= end:
            i = j % n_spreads + (size - n_spreads if move > 0 else 0)
            extra = 0.0 if n <= last else _log_gamma(shape[i] + count) - _log_gamma(shape[i] + last)
            row[j] += sign * (known[i] + extra)


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _log_gamma(x):
    return (x - 0.5) * np.log(x) - x + _HALF_LOG + 1 / (12 * x) - 1 / (360 * x * x * x)


@njit(cache=True, nogil=True, error_model="numpy")
def laws(evidence, centre_laws, centre_prior, spread_laws, spread_prior, judges, state, uniforms, choice):
    n_arms, n_centres, n_spreads = len(evidence), centre_laws.shape[1], spread_laws.shape[1]
    raised = np.empty((n_arms, n_centres, n_spreads))
    by_spread, by_centre = np.zeros((n_arms, n_spreads)), np.zeros((n_arms, n_centres))
    base = centre_laws[state[1]]
    for arm in range(n_arms):
        row = evidence[arm]
        top = row.max()
        for g in range(n_centres):
            for k in range(n_spreads):
                below = row[g * n_spreads + k] - top
                value = 1.0 if below == 0.0 else np.exp(below) if below > _NEVER else _RARE
                raised[arm, g, k] = value
                by_spread[arm, k] += value * base[g]
    if len(judges) > 0:
        state[0] = _draw_law(by_spread, judges, spread_laws, spread_prior, uniforms[0])
    spread = spread_laws[state[0]]
    for arm in range(n_arms):
        for g in range(n_centres):
            for k in range(n_spreads):
                by_centre[arm, g] += raised[arm, g, k] * spread[k]
    if len(judges) > 0:
        state[1] = _draw_law(by_centre, judges, centre_laws, centre_prior, uniforms[1])
    base = centre_laws[state[1]]
    for arm in range(n_arms):
        total = 0.0
        for g in range(n_centres):
            total += by_centre[arm, g] * base[g]
        choice[arm] = _find(raised[arm], base, spread, uniforms[2 + arm] * total)


@njit(cache=True, nogil=True, error_model="numpy")
def _draw_law(masses, judges, laws, log_prior, uniform):
    """Draw the index of a distribution, with probability proportional to its prior times the evidence of the arms."""
    scores, columns = log_prior.copy(), laws.T.copy()
    product, evidence_sums = np.ones(len(laws)), np.empty(len(laws))
    for arm in judges:  # explicit loops, because the threads of a matrix library would cost more than they gain
        evidence_sums[:] = 0.0
        least = _NOTHING * masses[arm].max()
        for entry in range(laws.shape[1]):
            mass, column = masses[arm, entry], columns[entry]
            if mass < least:
                continue
            for law in range(len(laws)):
                evidence_sums[law] += mass * column[law]
        for law in range(len(laws)):
            product[law] *= evidence_sums[law]
            if product[law] < _SMALL:  # one logarithm for many arms
                scores[law] += np.log(product[law])
                product[law] = 1.0
    for law in range(len(laws)):
        scores[law] += np.log(product[law])
    top = scores.max()
    for law in range(len(laws)):
        scores[law] = np.exp(scores[law] - top)
    _accumulate(scores)
    return _place(scores, uniform)


@njit(cache=True, nogil=True, error_model="numpy")
def _find(raised, base, spread, target):
    total = 0.0
    for g in range(len(base)):
        for k in range(len(spread)):
            total += raised[g, k] * base[g] * spread[k]
            if total > target:
                return g * len(spread) + k
    return len(base) * len(spread) - 1
