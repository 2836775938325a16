"""Compiled expectation step of EM: one fused pass over the steps, in the linear domain.

Types are processed eight at a time, in local variables that fill vector registers. Two consecutive steps can be one
code: its row of a table is the product of the rows of both steps, and its sum is added to both afterwards. A product of
probabilities never increases, so underflow appears in its final sum: such sessions, and long ones, are repeated with
logarithms, which are only taken when the product has become small. Indices are unsigned, because Numba tests signed
ones for negative values at every access.
"""

from __future__ import annotations

import numpy as np
from numba import njit

_SMALL = 1e-100  # smaller products use logarithms
_LONG = 192  # steps from which a session uses logarithms immediately
_LANES = 8
_U0, _U1, _U4, _U8 = (np.uint64(i) for i in (0, 1, 4, 8))


@njit(cache=True, nogil=True, error_model="numpy")
def categorical(codes, offsets, counts, edges, tables, statistics, logs, first, last):
    n_blocks = len(edges) - 1
    for task in range(first, last):
        model, block = task // n_blocks, task % n_blocks
        target = statistics[task - first]
        target[:] = 0.0
        low, high = edges[block], edges[block + 1]
        if tables.shape[2] == _LANES:
            logs[task - first] = _block_of_lanes(codes, offsets, counts, tables[model], target, low, high)
        else:
            logs[task - first] = _block(codes, offsets, counts, tables[model], target, low, high)


@njit(cache=True, nogil=True, error_model="numpy")
def in_pairs(codes, offsets, counts, edges, tables, room, statistics, logs, first, last):
    n_blocks, products, sums = len(edges) - 1, room[:1], room[1:]
    one_log, one_edge = np.empty(1), np.empty(2, np.int64)
    for task in range(first, last):
        model, block = task // n_blocks, task % n_blocks
        one_edge[0], one_edge[1] = edges[block], edges[block + 1]
        _multiply_pairs(tables[model], products[0])
        categorical(codes, offsets, counts, one_edge, products, sums, one_log, 0, 1)
        _add_pairs(sums[0], statistics[task - first])
        logs[task - first] = one_log[0]


@njit(cache=True, nogil=True, error_model="numpy")
def _multiply_pairs(table, products):
    """Copy the rows of single codes, and multiply those of all unordered pairs, which come after them."""
    n_rows, width = np.uint64(len(table)), np.uint64(table.shape[1])
    products[:n_rows] = table
    place = n_rows
    for high in range(_U1, n_rows):
        for low in range(_U1, high + _U1):
            for j in range(_U0, width, _U8):
                x, y, row = table[high, j:], table[low, j:], products[place, j:]
                row[0], row[1], row[2], row[3] = x[0] * y[0], x[1] * y[1], x[2] * y[2], x[3] * y[3]
                row[4], row[5], row[6], row[7] = x[4] * y[4], x[5] * y[5], x[6] * y[6], x[7] * y[7]
            place += _U1


@njit(cache=True, nogil=True, error_model="numpy")
def _add_pairs(sums, statistics):
    """Copy the sums of single codes, and add those of each pair to both of its codes."""
    n_rows, width = np.uint64(len(statistics)), np.uint64(statistics.shape[1])
    statistics[:] = sums[:n_rows]
    place = n_rows
    for high in range(_U1, n_rows):
        for low in range(_U1, high + _U1):
            for j in range(_U0, width, _U8):
                x, row = sums[place, j:], statistics[high, j:]
                row[0], row[1], row[2], row[3] = row[0] + x[0], row[1] + x[1], row[2] + x[2], row[3] + x[3]
                row[4], row[5], row[6], row[7] = row[4] + x[4], row[5] + x[5], row[6] + x[6], row[7] + x[7]
                row = statistics[low, j:]
                row[0], row[1], row[2], row[3] = row[0] + x[0], row[1] + x[1], row[2] + x[2], row[3] + x[3]
                row[4], row[5], row[6], row[7] = row[4] + x[4], row[5] + x[5], row[6] + x[6], row[7] + x[7]
            place += _U1


@njit(cache=True, nogil=True, error_model="numpy")
def pair_up(codes, offsets, low, high, n_codes, paired, ends):
    begin, at = np.uint64(offsets[low]), _U0
    ends[0] = 0
    for session in range(np.uint64(low), np.uint64(high)):
        end = np.uint64(offsets[session + _U1])
        for pair in range(_U0, (end - begin) >> _U1):
            t = begin + (pair << _U1)
            one, other = np.uint64(codes[t]), np.uint64(codes[t + _U1])
            top, bottom = max(one, other), min(one, other)
            paired[at] = np.uint64(n_codes) + ((top * (top + _U1)) >> _U1) + bottom
            at += _U1
        if (end - begin) & _U1:
            paired[at] = codes[end - _U1]
            at += _U1
        begin = end
        ends[session + _U1 - np.uint64(low)] = at


@njit(cache=True, nogil=True, error_model="numpy")
def _block_of_lanes(codes, offsets, counts, table, statistics, low, high):
    """Do the work of `_block` for up to eight types, whose posterior and weights stay in registers."""
    share = np.empty(_LANES)
    merged = len(counts) > 0
    total, product = 0.0, 1.0
    w0, w1, w2, w3, w4, w5, w6, w7 = _eight(table[_U0])
    s0, s1, s2, s3, s4, s5, s6, s7 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for session in range(np.uint64(low), np.uint64(high)):
        begin, end = np.uint64(offsets[session]), np.uint64(offsets[session + _U1])
        p0, p1, p2, p3, p4, p5, p6, p7 = w0, w1, w2, w3, w4, w5, w6, w7
        mass = 0.0
        if end - begin <= _LONG:
            for t in range(begin, end):
                row = table[np.uint64(codes[t]) + _U1]
                p0, p1, p2, p3 = p0 * row[0], p1 * row[1], p2 * row[2], p3 * row[3]
                p4, p5, p6, p7 = p4 * row[4], p5 * row[5], p6 * row[6], p7 * row[7]
            mass = ((p0 + p4) + (p2 + p6)) + ((p1 + p5) + (p3 + p7))
        scale = counts[session] if merged else 1.0
        if mass < _SMALL:
            mass, logarithm = _with_logarithms(codes, begin, end, table, share)
            total += scale * logarithm
            if mass == 0:
                continue
            p0, p1, p2, p3, p4, p5, p6, p7 = _eight(share)
        else:
            if scale > 1.0:
                total += (scale - 1.0) * np.log(mass)
            product *= mass  # one logarithm for many sessions
            if product < _SMALL:
                total += np.log(product)
                product = 1.0
        scale /= mass
        p0, p1, p2, p3 = p0 * scale, p1 * scale, p2 * scale, p3 * scale
        p4, p5, p6, p7 = p4 * scale, p5 * scale, p6 * scale, p7 * scale
        s0, s1, s2, s3, s4, s5, s6, s7 = s0 + p0, s1 + p1, s2 + p2, s3 + p3, s4 + p4, s5 + p5, s6 + p6, s7 + p7
        for t in range(begin, end):
            row = statistics[np.uint64(codes[t]) + _U1]
            row[0], row[1], row[2], row[3] = row[0] + p0, row[1] + p1, row[2] + p2, row[3] + p3
            row[4], row[5], row[6], row[7] = row[4] + p4, row[5] + p5, row[6] + p6, row[7] + p7
    row = statistics[_U0]
    row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7] = s0, s1, s2, s3, s4, s5, s6, s7
    return total + np.log(product)


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _eight(row):
    return row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7]


@njit(cache=True, nogil=True, error_model="numpy")
def _block(codes, offsets, counts, table, statistics, low, high):
    width = np.uint64(table.shape[1])
    share = np.empty(table.shape[1])
    merged = len(counts) > 0
    total, product = 0.0, 1.0
    for session in range(np.uint64(low), np.uint64(high)):
        begin, end = np.uint64(offsets[session]), np.uint64(offsets[session + _U1])
        mass = 0.0
        if end - begin <= _LONG:
            for j in range(_U0, width, _U8):
                row = table[_U0, j:]
                p0, p1, p2, p3, p4, p5, p6, p7 = row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7]
                for t in range(begin, end):
                    row = table[np.uint64(codes[t]) + _U1, j:]
                    p0, p1, p2, p3 = p0 * row[0], p1 * row[1], p2 * row[2], p3 * row[3]
                    p4, p5, p6, p7 = p4 * row[4], p5 * row[5], p6 * row[6], p7 * row[7]
                row = share[j:]
                row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7] = p0, p1, p2, p3, p4, p5, p6, p7
                mass += ((p0 + p4) + (p2 + p6)) + ((p1 + p5) + (p3 + p7))
        scale = counts[session] if merged else 1.0
        if mass < _SMALL:
            mass, logarithm = _with_logarithms(codes, begin, end, table, share)
            total += scale * logarithm
            if mass == 0:
                continue
        else:
            if scale > 1.0:
                total += (scale - 1.0) * np.log(mass)
            product *= mass  # one logarithm for many sessions
            if product < _SMALL:
                total += np.log(product)
                product = 1.0
        scale /= mass
        for j in range(_U0, width, _U8):
            row = share[j:]
            p0, p1, p2, p3 = row[0] * scale, row[1] * scale, row[2] * scale, row[3] * scale
            p4, p5, p6, p7 = row[4] * scale, row[5] * scale, row[6] * scale, row[7] * scale
            row = statistics[_U0, j:]
            row[0], row[1], row[2], row[3] = row[0] + p0, row[1] + p1, row[2] + p2, row[3] + p3
            row[4], row[5], row[6], row[7] = row[4] + p4, row[5] + p5, row[6] + p6, row[7] + p7
            for t in range(begin, end):
                row = statistics[np.uint64(codes[t]) + _U1, j:]
                row[0], row[1], row[2], row[3] = row[0] + p0, row[1] + p1, row[2] + p2, row[3] + p3
                row[4], row[5], row[6], row[7] = row[4] + p4, row[5] + p5, row[6] + p6, row[7] + p7
    return total + np.log(product)


@njit(cache=True, nogil=True, error_model="numpy")
def _with_logarithms(codes, begin, end, table, share):
    """Return the type weights up to a factor, their sum, and the log-likelihood; (0, -inf) if impossible."""
    for j in range(len(share)):
        share[j] = _log_product(codes, begin, end, table, np.uint64(j))
    top = share.max()
    if top == -np.inf:
        return 0.0, -np.inf
    mass = _exponentials(share, len(share), top)
    return mass, top + np.log(mass)


@njit(cache=True, nogil=True, error_model="numpy")
def _log_product(codes, begin, end, table, j):
    """Return the log of weight times probabilities of the steps, in type j."""
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
def _exponentials(share, n, top):
    """Replace each of the first n entries by exp(entry - top); return their sum."""
    mass = 0.0
    for j in range(n):
        share[j] = np.exp(share[j] - top)
        mass += share[j]
    return mass


@njit(cache=True, nogil=True, error_model="numpy")
def gaussian(arms, rewards, offsets, edges, tables, statistics, logs, first, last):
    n_blocks = len(edges) - 1
    for task in range(first, last):
        model, block = task // n_blocks, task % n_blocks
        target = statistics[task - first]
        target[:] = 0.0
        low, high = edges[block], edges[block + 1]
        logs[task - first] = _gaussian_block(arms, rewards, offsets, tables[model], target, low, high)


@njit(cache=True, nogil=True, error_model="numpy")
def _gaussian_block(arms, rewards, offsets, table, statistics, low, high):
    n_types, n_arms = np.flatnonzero(table[0])[-1] + 1, np.uint64(table.shape[0] - 2)  # the others are padding
    width = np.uint64((n_types + 3) // 4 * 4)
    deviation = table[n_arms + _U1, _U0]
    precision, weights = -0.5 / deviation**2, np.log(table[0])
    share = np.zeros(table.shape[1])
    total = 0.0
    for session in range(np.uint64(low), np.uint64(high)):
        begin, end = np.uint64(offsets[session]), np.uint64(offsets[session + _U1])
        top = -np.inf
        for j in range(_U0, width, _U4):
            s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
            for t in range(begin, end):
                row, x = table[np.uint64(arms[t]) + _U1, j:], rewards[t]
                d0, d1, d2, d3 = x - row[0], x - row[1], x - row[2], x - row[3]
                s0, s1, s2, s3 = s0 + d0 * d0, s1 + d1 * d1, s2 + d2 * d2, s3 + d3 * d3
            row = share[j:]
            row[0], row[1], row[2], row[3] = s0, s1, s2, s3
        for j in range(n_types):
            share[j] = weights[j] + precision * share[j]
            top = max(top, share[j])
        if not top > -np.inf:
            total = -np.inf
            continue
        share[n_types:] = 0.0
        mass = _exponentials(share, n_types, top)
        total += top + np.log(mass)
        scale = 1.0 / mass
        for j in range(_U0, width, _U4):
            row = share[j:]
            p0, p1, p2, p3 = row[0] * scale, row[1] * scale, row[2] * scale, row[3] * scale
            row = statistics[_U0, j:]
            row[0], row[1], row[2], row[3] = row[0] + p0, row[1] + p1, row[2] + p2, row[3] + p3
            for t in range(begin, end):
                arm, x = np.uint64(arms[t]) + _U1, rewards[t]
                row = statistics[arm, j:]
                row[0], row[1], row[2], row[3] = row[0] + p0, row[1] + p1, row[2] + p2, row[3] + p3
                row = statistics[arm + n_arms, j:]
                row[0], row[1], row[2], row[3] = row[0] + p0 * x, row[1] + p1 * x, row[2] + p2 * x, row[3] + p3 * x
    steps = offsets[high] - offsets[low]
    return total - steps * np.log(deviation * np.sqrt(2 * np.pi))


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
            prior_weights, mass = weights[groups[low + t]], 0.0
            for j in range(n_types):
                prior = prior_weights[j] if t == 0 else keep * forward[t - 1, j] + (1 - keep) * prior_weights[j]
                forward[t, j] = prior * like[low + t, j]
                mass += forward[t, j]
            masses[t] = mass
            logs[low + t] = np.log(mass)
            for j in range(n_types):
                forward[t, j] /= mass
        back[:] = 1.0
        for t in range(n - 1, -1, -1):
            prior_weights, drawn = weights[groups[low + t]], fresh[groups[low + t]]
            for j in range(n_types):
                posterior[low + t, j] = forward[t, j] * back[j]
            if t == 0:
                for j in range(n_types):
                    drawn[j] += posterior[low, j]
                continue
            mass = 0.0
            for j in range(n_types):
                after[j] = like[low + t, j] * back[j] / masses[t]
                drawn[j] += (1 - keep) * prior_weights[j] * after[j]
                kept[0] += keep * forward[t - 1, j] * after[j]
                mass += prior_weights[j] * after[j]
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


@njit(cache=True, nogil=True, error_model="numpy")
def soft_counts(arms, outcomes, offsets, sessions, plays, paid, prior, floor):
    share = np.empty(len(sessions))
    for session in range(len(offsets) - 1):
        begin, end = offsets[session], offsets[session + 1]
        _copy_normalised(sessions, share)
        for t in range(begin, end):
            _observe(share, plays, paid, arms[t], outcomes[t], prior, floor)
        _add_session(share, arms[begin:end], outcomes[begin:end], sessions, plays, paid)


@njit(cache=True, nogil=True, error_model="numpy")
def optimistic_plays(
    types, uniforms, cumulative, nearest, known, values, sessions, plays, paid, prior, floor, width, arms, outcomes
):
    n_types, n_arms = plays.shape
    horizon, top = uniforms.shape[1], values.max()
    share, index, seen = np.empty(n_types), np.empty((n_arms, n_types)), np.empty(horizon, np.int64)
    for arm in range(n_arms):
        _bound(index[arm], plays, paid, values, arm, prior, floor, width, top)
    for session in range(len(types)):
        _copy_normalised(sessions, share)
        new = False
        for step in range(horizon):
            arm, best = 0, -np.inf
            for a in range(n_arms):
                promise = 0.0
                for m in range(n_types):
                    promise += share[m] * index[a, m]
                if promise > best:
                    arm, best = a, promise
            row, outcome = cumulative[types[session] * n_arms + arm], 0
            for y in range(len(row)):
                outcome += uniforms[session, step] >= row[y]
            arms[session, step], outcomes[session, step] = arm, outcome
            seen[step] = nearest[outcome]
            new = new or not known[outcome]
            _observe(share, plays, paid, arm, seen[step], prior, floor)
        if new:
            return session + 1
        _add_session(share, arms[session], seen, sessions, plays, paid)
        for step in range(horizon):
            arm = arms[session, step]
            _bound(index[arm], plays, paid, values, arm, prior, floor, width, top)
    return len(types)


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _copy_normalised(source, target):
    total = source.sum()
    for m in range(len(source)):
        target[m] = source[m] / total


@njit(cache=True, nogil=True, error_model="numpy")
def _observe(share, plays, paid, arm, outcome, prior, floor):
    n_values, mass = paid.shape[2], 0.0
    for m in range(len(share)):
        total, chance = 0.0, 0.0
        for z in range(n_values):
            each = max((paid[m, arm, z] + prior / n_values) / (plays[m, arm] + prior), floor)
            total += each
            if z == outcome:
                chance = each
        share[m] *= chance / total
        mass += share[m]
    for m in range(len(share)):
        share[m] /= mass


@njit(cache=True, nogil=True, error_model="numpy")
def _add_session(share, arms, outcomes, sessions, plays, paid):
    for m in range(len(share)):
        sessions[m] += share[m]
        for t in range(len(arms)):
            plays[m, arms[t]] += share[m]
            paid[m, arms[t], outcomes[t]] += share[m]


@njit(cache=True, nogil=True, error_model="numpy")
def _bound(row, plays, paid, values, arm, prior, floor, width, top):
    for m in range(len(row)):
        total, mean = 0.0, 0.0
        for z in range(len(values)):
            each = max((paid[m, arm, z] + prior / len(values)) / (plays[m, arm] + prior), floor)
            total += each
            mean += each * values[z]
        mean /= total
        row[m] = mean + min(width / np.sqrt(max(plays[m, arm], 1.0)), top - mean)
