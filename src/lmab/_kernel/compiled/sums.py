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
def moment_sums(groups, observed, offsets, slots, order, symbols, parents, degrees, repeats, binomials, starts):
    n_groups = len(slots)
    n_multisets = len(symbols)
    sums = np.zeros((starts[order + 1], 5))
    table = np.zeros((n_groups, n_multisets))
    plays = np.zeros(n_groups, np.int64)
    played = np.empty(n_groups, np.int64)
    item_set, item_group = np.empty(n_groups * n_multisets, np.int64), np.empty(n_groups * n_multisets, np.int64)
    item_next = np.empty(n_groups * n_multisets, np.int64)
    item_ways = np.empty(n_groups * n_multisets)
    at, degree = np.zeros(order + 1, np.int64), np.zeros(order + 1, np.int64)
    rank, x, y = np.zeros(order + 1, np.int64), np.ones(order + 1), np.ones(order + 1)
    for session in range(len(offsets) - 1):
        n_played = 0
        for step in range(offsets[session], offsets[session + 1]):
            group = groups[step]
            if group < 0:
                continue
            products = table[group]
            if plays[group] == 0:
                products[:] = 0.0
                products[0] = 1.0
                place = n_played
                while place > 0 and played[place - 1] > group:
                    played[place] = played[place - 1]
                    place -= 1
                played[place] = group
                n_played += 1
            plays[group] += 1
            for one in range(n_multisets - 1, 0, -1):
                if degrees[one] <= plays[group]:
                    for factor in range(degrees[one]):
                        if parents[one, factor] >= 0:
                            products[one] += observed[step, symbols[one, factor]] * products[parents[one, factor]]
        # The parts that each arm can contribute to an entry, arm by arm.
        n_items = 0
        for number in range(n_played):
            group = played[number]
            first = n_items
            for one in range(1, n_multisets):
                size = degrees[one]
                if size > plays[group]:
                    break
                fits = True
                for factor in range(size):
                    fits = fits and slots[group, symbols[one, factor]] >= 0
                if fits:
                    ways = 1.0
                    for taken in range(size):
                        ways *= plays[group] - taken
                    item_set[n_items], item_group[n_items], item_ways[n_items] = one, group, ways / repeats[one]
                    n_items += 1
            for item in range(first, n_items):
                item_next[item] = n_items
        # Every entry is one choice of parts of different arms, in rising order.
        level = 0
        at[0] = 0
        while level >= 0:
            item = at[level]
            if item >= n_items:
                level -= 1
                continue
            at[level] = item + 1
            one = item_set[item]
            size = degree[level] + degrees[one]
            if size > order:
                continue
            place = rank[level]
            for factor in range(degrees[one]):
                slot, position = slots[item_group[item], symbols[one, factor]], degree[level] + factor
                place += binomials[slot + position, position + 1]
            value, ways = x[level] * table[item_group[item], one], y[level] * item_ways[item]
            entry = sums[starts[size] + place]
            entry[0] += value
            entry[1] += ways
            entry[2] += value * value
            entry[3] += value * ways
            entry[4] += ways * ways
            if size < order:
                level += 1
                at[level], degree[level], rank[level] = item_next[item], size, place
                x[level], y[level] = value, ways
        for number in range(n_played):
            plays[played[number]] = 0
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
