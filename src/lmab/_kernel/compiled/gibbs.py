"""Compiled Gibbs sweep: linear in the steps, then a few passes over (arm, centre, spread).

Types are processed eight at a time in local variables, and the type of a session is the number of cumulative shares
that do not exceed its uniform number: a loop that ends early mispredicts its branch in most sessions. Exponentials are
computed by a polynomial, because a library call for each number cannot be vectorised. The tables of distributions are
read in tiles that fit into the first-level cache.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

_SMALL = 1e-100  # products below this are scaled up
_LONG = 192  # steps of a session that is scaled up on the way
_OFTEN = 8  # steps after which a product is looked at
_U0, _U1, _U8 = (np.uint64(i) for i in (0, 1, 8))
_LANES = 8
_HALF_LOG = 0.5 * np.log(2 * np.pi)
_NEVER = -80.0  # smaller logarithms of shares are replaced by this
_RARE = np.exp(_NEVER)
_TILE = 64  # laws that are read together: 45 centres of 64 laws are 23 kB
_UNSEEN = 4  # arms after which products of masses are looked at: a mass is at least 1e-47
# exp(x) = 2^n exp(r), where |r| <= log(2) / 2; adding 1.5 * 2^52 rounds to an integer and leaves it in the last bits
_PER_LOG_2, _LOG_2, _LOG_2_REST = 1 / math.log(2), 6.93147180369123816490e-01, 1.90821492927058770002e-10
_ROUNDING = 6755399441055744.0
_T2, _T3, _T4, _T5, _T6, _T7, _T8, _T9, _T10, _T11, _T12, _T13 = (1 / math.factorial(i) for i in range(2, 14))
_MANTISSA, _BIAS = 52, 1023
_LEAST = 1e-9  # probabilities never fall below


@njit(cache=True, nogil=True, error_model="numpy")
def categorical(codes, offsets, counts, table, uniforms, statistics):
    n_types = table.shape[1]
    width = (n_types + _LANES - 1) // _LANES * _LANES
    room = np.zeros(len(table) * width + _LANES)  # rows that begin with a line of the cache
    start = (-room.ctypes.data % 64) // 8
    rows = room[start : start + len(table) * width].reshape(len(table), width)
    rows[:, :n_types] = table
    share, last = np.empty(width), np.uint64(n_types - 1)
    statistics[:] = 0.0
    merged, drawn = len(counts) > 0, 0
    for session in range(len(offsets) - 1):
        begin, end = np.uint64(offsets[session]), np.uint64(offsets[session + 1])
        if end - begin <= _LONG:
            _products(codes, begin, end, rows, share)
            _accumulate(share)
        if end - begin > _LONG or share[last] < _SMALL:
            _scaled_products(codes, begin, end, table, share)
            _accumulate(share)
        for _ in range(np.int64(counts[session]) if merged else 1):
            m = min(_exceeded(share, uniforms[drawn] * share[last]), last)
            drawn += 1
            statistics[_U0, m] += 1.0
            for t in range(begin, end):
                statistics[np.uint64(codes[t]) + _U1, m] += 1.0


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _products(codes, begin, end, rows, share):
    """Weight times probabilities of the steps in every type."""
    for j in range(_U0, np.uint64(len(share)), _U8):
        row = rows[_U0, j:]
        p0, p1, p2, p3, p4, p5, p6, p7 = row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7]
        for t in range(begin, end):
            row = rows[np.uint64(codes[t]) + _U1, j:]
            p0, p1, p2, p3 = p0 * row[0], p1 * row[1], p2 * row[2], p3 * row[3]
            p4, p5, p6, p7 = p4 * row[4], p5 * row[5], p6 * row[6], p7 * row[7]
        row = share[j:]
        row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7] = p0, p1, p2, p3, p4, p5, p6, p7


@njit(cache=True, nogil=True, error_model="numpy")
def _scaled_products(codes, begin, end, table, share):
    """Return the products up to a factor that keeps the largest from underflow."""
    share[:] = 0.0
    n_types = table.shape[1]
    for m in range(n_types):
        share[m] = table[0, m]
    for t in range(begin, end):
        row = table[np.int64(codes[t]) + 1]
        for m in range(n_types):
            share[m] *= row[m]
        if (t - begin) % _OFTEN == _OFTEN - 1:
            _rescale(share)


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _exceeded(cumulative, target):
    """Return how many cumulative shares do not exceed the target."""
    count = _U0
    for j in range(_U0, np.uint64(len(cumulative)), _U8):
        row = cumulative[j:]
        count += np.uint64(row[0] <= target) + np.uint64(row[1] <= target) + np.uint64(row[2] <= target)
        count += np.uint64(row[3] <= target) + np.uint64(row[4] <= target) + np.uint64(row[5] <= target)
        count += np.uint64(row[6] <= target) + np.uint64(row[7] <= target)
    return count


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
def draw_split(grid, paid, missed, before, slope, judges, state, choice, shares, rng):
    masses, shift = np.empty((len(paid), len(grid.centre))), np.empty(paid.shape, np.int64)
    for arm in range(paid.shape[0]):
        for m in range(paid.shape[1]):
            shift[arm, m] = _move(before[arm, m], slope / grid.step) if slope != 0.0 else 0
    beta_masses(grid, paid, missed, shift, masses)
    uniforms = np.empty(2 + len(paid))
    for i in range(len(uniforms)):
        uniforms[i] = rng.random()
    laws(grid, masses, judges, state, uniforms, choice)
    draw_shares(grid, paid, missed, before, slope, choice, shares, rng)


@njit(cache=True, nogil=True, error_model="numpy")
def draw_shares(grid, paid, missed, before, slope, choice, shares, rng):
    n_centres, n_spreads = grid.centre_laws.shape[1], grid.spread_laws.shape[1]
    for arm in range(paid.shape[0]):
        for m in range(paid.shape[1]):
            move = _move(before[arm, m], slope / grid.step) if slope != 0.0 else 0
            place = min(max(choice[arm] // n_spreads + move, 0), n_centres - 1) * n_spreads + choice[arm] % n_spreads
            strength, centre = grid.strength[place], grid.centre[place]
            drawn = rng.beta(paid[arm, m] + strength * centre, missed[arm, m] + strength * (1 - centre))
            shares[arm, m] = min(max(drawn, _LEAST), 1 - _LEAST)


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _move(share, slope):
    """Return by how many places of the grid a centre moves, given the share of the previous split."""
    return np.int64(np.rint(slope * np.log(share / (1 - share))))


@njit(cache=True, nogil=True, error_model="numpy")
def slope(paid_before, missed_before, paid, missed, steepest):
    total, mean_x, mean_y = 0.0, 0.0, 0.0
    x, y = np.empty(paid.shape), np.empty(paid.shape)
    for arm in range(paid.shape[0]):
        for m in range(paid.shape[1]):
            weight = paid[arm, m] + missed[arm, m]
            x[arm, m] = np.log((paid_before[arm, m] + 0.5) / (missed_before[arm, m] + 0.5))
            y[arm, m] = np.log((paid[arm, m] + 0.5) / (missed[arm, m] + 0.5))
            total, mean_x, mean_y = total + weight, mean_x + weight * x[arm, m], mean_y + weight * y[arm, m]
    if total <= 0.0:
        return 0.0
    mean_x, mean_y, across, along = mean_x / total, mean_y / total, 0.0, 0.0
    for arm in range(paid.shape[0]):
        for m in range(paid.shape[1]):
            weighted = (paid[arm, m] + missed[arm, m]) * (x[arm, m] - mean_x)
            across, along = across + weighted * (y[arm, m] - mean_y), along + weighted * (x[arm, m] - mean_x)
    return min(max(across / max(along, 1e-12), -steepest), steepest)


@njit(cache=True, nogil=True, error_model="numpy")
def join(ends, shares, probabilities):
    probabilities[:] = 1.0
    for i in range(len(ends)):
        first, middle, last = ends[i]
        for arm in range(shares.shape[1]):
            for m in range(shares.shape[2]):
                share = shares[i, arm, m]
                for z in range(middle, last):
                    probabilities[arm, z, m] *= share
                for z in range(first, middle):
                    probabilities[arm, z, m] *= 1 - share


@njit(cache=True, nogil=True, error_model="numpy")
def beta_masses(grid, paid, missed, shift, masses):
    size, n_spreads = len(grid.centre), grid.spread_laws.shape[1]
    first, second = grid.strength * grid.centre, grid.strength * (1 - grid.centre)
    logs, bits = np.empty(size), np.empty(size, np.int64)
    for arm in range(len(paid)):
        row, most = masses[arm], 0.0
        for m in range(paid.shape[1]):
            most = max(most, paid[arm, m] + missed[arm, m])
        if most == 0.0:
            row[:] = 1.0
            continue
        if most < len(grid.few):
            row[:] = 1.0
            for m in range(paid.shape[1]):
                plays = np.int64(paid[arm, m] + missed[arm, m])
                if plays > 0:
                    _multiply(row, grid.few[plays, np.int64(paid[arm, m])], shift[arm, m] * n_spreads, n_spreads)
            top = _largest(row)
            if top > _SMALL:
                for j in range(size):
                    row[j] = max(row[j] / top, _RARE)
                continue
        logs[:] = 0.0
        for m in range(paid.shape[1]):
            if paid[arm, m] + missed[arm, m] > 0.0:
                up, down = _rising(paid[arm, m], first, grid.rising[0]), _rising(missed[arm, m], second, grid.rising[1])
                total = _rising(paid[arm, m] + missed[arm, m], grid.strength, grid.rising[2])
                _add(logs, up, down, total, shift[arm, m] * n_spreads, n_spreads)
        _raise(logs, row, bits, bits.view(np.float64))


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _span(move, size):
    """Return the places of the centres that lie on the grid after a shift by `move`."""
    move = min(max(move, -size), size)
    return max(-move, 0), min(size, size - move), move


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _multiply(row, chance, move, n_spreads):
    """Multiply by the chances `move` places further on; beyond the ends of the grid the outermost centre holds."""
    begin, end, move = _span(move, len(row))
    here, there = row[begin:end], chance[begin + move :]
    for j in range(len(here)):
        here[j] *= there[j]
    rest = row[:begin] if move < 0 else row[end:]
    edge = chance[:n_spreads] if move < 0 else chance[len(chance) - n_spreads :]
    for first in range(0, len(rest), n_spreads):
        for k in range(n_spreads):
            rest[first + k] *= edge[k]


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _add(row, up, down, total, move, n_spreads):
    """Add logarithms of the chances in the same way."""
    begin, end, move = _span(move, len(row))
    here, one, other, both = row[begin:end], up[begin + move :], down[begin + move :], total[begin + move :]
    for j in range(len(here)):
        here[j] += one[j] + other[j] - both[j]
    rest = row[:begin] if move < 0 else row[end:]
    edge = 0 if move < 0 else len(row) - n_spreads
    for first in range(0, len(rest), n_spreads):
        for k in range(n_spreads):
            rest[first + k] += up[edge + k] + down[edge + k] - total[edge + k]


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _rising(count, shape, table):
    """Logs of rising factorials; beyond the table by Stirling's series, which is exact to rounding at its end."""
    n, last = np.int64(count), len(table) - 1
    if n <= last:
        return table[n]
    logs = np.empty(len(shape))
    for j in range(len(shape)):
        logs[j] = table[last, j] + _log_gamma(shape[j] + count) - _log_gamma(shape[j] + last)
    return logs


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _log_gamma(x):
    return (x - 0.5) * np.log(x) - x + _HALF_LOG + 1 / (12 * x) - 1 / (360 * x * x * x)


@njit(cache=True, nogil=True, error_model="numpy")
def laws(grid, masses, judges, state, uniforms, choice):
    n_arms, n_centres, n_spreads = len(masses), grid.centre_laws.shape[1], grid.spread_laws.shape[1]
    if len(judges) > 0:
        by_spread, base = np.zeros((n_arms, n_spreads)), grid.centre_laws[state[1]]
        for arm in judges:
            row, target = masses[arm], by_spread[arm]
            for g in range(n_centres):
                for k in range(n_spreads):
                    target[k] += row[g * n_spreads + k] * base[g]
        state[0] = _draw_law(by_spread, judges, grid.spread_laws, grid.spread_prior, uniforms[0])
    by_centre, spread = np.empty((n_arms, n_centres)), grid.spread_laws[state[0]]
    for arm in range(n_arms):
        row, target = masses[arm], by_centre[arm]
        if n_spreads == _LANES:
            s0, s1, s2, s3, s4, s5, s6, s7 = _eight(spread)
            for g in range(n_centres):
                r0, r1, r2, r3, r4, r5, r6, r7 = _eight(row[g * _LANES :])
                target[g] = ((r0 * s0 + r4 * s4) + (r2 * s2 + r6 * s6)) + ((r1 * s1 + r5 * s5) + (r3 * s3 + r7 * s7))
        else:
            target[:] = 0.0
            for g in range(n_centres):
                for k in range(n_spreads):
                    target[g] += row[g * n_spreads + k] * spread[k]
    if len(judges) > 0:
        state[1] = _draw_law(by_centre, judges, grid.centre_laws, grid.centre_prior, uniforms[1])
    base = grid.centre_laws[state[1]]
    for arm in range(n_arms):
        choice[arm] = _find(masses[arm], by_centre[arm], base, spread, uniforms[2 + arm])


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _eight(row):
    return row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7]


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _largest(row):
    """Return the largest of at least eight numbers."""
    t0, t1, t2, t3, t4, t5, t6, t7 = row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7]
    whole = len(row) // _LANES * _LANES
    for j in range(_LANES, whole, _LANES):
        here = row[j:]
        t0, t1, t2, t3 = max(t0, here[0]), max(t1, here[1]), max(t2, here[2]), max(t3, here[3])
        t4, t5, t6, t7 = max(t4, here[4]), max(t5, here[5]), max(t6, here[6]), max(t7, here[7])
    top = max(max(max(t0, t1), max(t2, t3)), max(max(t4, t5), max(t6, t7)))
    for j in range(whole, len(row)):
        top = max(top, row[j])
    return top


@njit(cache=True, nogil=True, error_model="numpy")
def _raise(logs, into, bits, powers):
    """exp(logs - max), at least exp(_NEVER); `powers` are the `bits`, read as floats."""
    size, top = len(logs), _largest(logs)
    for j in range(size):
        x = max(logs[j] - top, _NEVER)
        places = x * _PER_LOG_2 + _ROUNDING
        n = places - _ROUNDING
        r = (x - n * _LOG_2) - n * _LOG_2_REST
        p = ((((_T13 * r + _T12) * r + _T11) * r + _T10) * r + _T9) * r + _T8
        p = ((((((p * r + _T7) * r + _T6) * r + _T5) * r + _T4) * r + _T3) * r + _T2) * r + 1.0
        into[j], powers[j] = p * r + 1.0, places
    for j in range(size):
        bits[j] = (bits[j] << _MANTISSA) + (_BIAS << _MANTISSA)
    for j in range(size):
        into[j] *= powers[j]


@njit(cache=True, nogil=True, error_model="numpy")
def _draw_law(masses, judges, laws, log_prior, uniform):
    """Index of a law, in proportion to its prior and to the product over the judges of the mass under it."""
    n_laws, n_entries = laws.shape
    scores, columns, whole = log_prior.copy(), np.zeros((n_entries, _TILE)), n_entries // 4 * 4
    product, evidence_sums = np.empty(_TILE), np.empty(_TILE)
    for low in range(
        0, n_laws, _TILE
    ):  # no library for products of matrices: its threads would cost more than they gain
        size = min(_TILE, n_laws - low)
        for law in range(size):
            columns[:, law] = laws[low + law]
        product[:] = 1.0
        for seen in range(len(judges)):
            arm_masses = masses[judges[seen]]
            evidence_sums[:] = 0.0
            for i in range(0, whole, 4):
                m0, m1, m2, m3 = arm_masses[i], arm_masses[i + 1], arm_masses[i + 2], arm_masses[i + 3]
                c0, c1, c2, c3 = columns[i], columns[i + 1], columns[i + 2], columns[i + 3]
                for law in range(_TILE):
                    evidence_sums[law] = evidence_sums[law] + m0 * c0[law] + m1 * c1[law] + m2 * c2[law] + m3 * c3[law]
            for i in range(whole, n_entries):
                for law in range(_TILE):
                    evidence_sums[law] += arm_masses[i] * columns[i, law]
            for law in range(_TILE):
                product[law] *= evidence_sums[law]
            if seen % _UNSEEN == _UNSEEN - 1:
                for law in range(size):
                    if product[law] < _SMALL:  # one logarithm for many arms
                        scores[low + law] += np.log(product[law])
                        product[law] = 1.0
        for law in range(size):
            scores[low + law] += np.log(product[law])
    top = scores.max()
    for law in range(n_laws):
        scores[law] = np.exp(scores[law] - top)
    _accumulate(scores)
    return _place(scores, uniform)


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _find(raised, by_centre, base, spread, uniform):
    """Return the place of a centre and a spread: the centre is drawn first, then the spread given the centre."""
    total = 0.0
    for g in range(len(base)):
        total += by_centre[g] * base[g]
    target, below, g = uniform * total, 0.0, 0
    while g < len(base) - 1 and below + by_centre[g] * base[g] <= target:
        below += by_centre[g] * base[g]
        g += 1
    row, k = raised[g * len(spread) :], 0
    below += row[0] * base[g] * spread[0]
    while k < len(spread) - 1 and below <= target:
        k += 1
        below += row[k] * base[g] * spread[k]
    return g * len(spread) + k
