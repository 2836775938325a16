"""Expectation step of EM on a GPU: a group of lanes shares a session, and each lane holds one type.

Probabilities and their products are in double precision. A session with a mass that becomes too small, and a long one,
uses logarithms. Statistics are sums of integers: a share is counted in units of its type (`scales`), and the
log-likelihood of a tile of sessions is rounded to integers before it is added. So the result has the same bits on any
number of blocks.

If there are more types than lanes, they are cut into pieces (the third dimension of the grid): one kernel computes the
mass of every session in every piece, a second one adds the shares.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from numba import float64, int64, uint32, uint64

from ..arrays import TILE
from . import cuda
from .lanes import (
    IMPOSSIBLE,
    LEFT,
    N_LOGS,
    address,
    atomic_add,
    clear_sums,
    compiled,
    device,
    flags_of,
    give_logs,
    give_sums,
    group_max,
    group_sum,
    in_units,
    load_table,
    reciprocal,
    tile_of,
    warp_any,
)
from .steps import LARGE, RUN, TINY, Walks, largest, logarithm, walks, word_walks

_REGISTERS = 64  # registers of a thread: with fewer, spills cost more than further threads gain (measured)


@device
def _sum_pieces(masses, slot, n_pieces, lane, width):
    """Return the mass of a session over all pieces of the types."""
    mass = float64(0.0)
    for piece in range(lane, n_pieces, width):
        mass += masses[slot * n_pieces + piece]
    return group_sum(mass, width)


@device
def _log_sum_pieces(masses, slot, n_pieces, lane, width):
    """Return the mass of a session over all pieces, from logarithms of masses."""
    value = float64(-math.inf)
    for piece in range(lane, n_pieces, width):
        value = _log_add(value, masses[slot * n_pieces + piece])
    return _log_group_sum(value, width)


@device
def _log_add(first, second):
    high, low = max(first, second), min(first, second)
    return high + math.log1p(math.exp(low - high)) if low > -math.inf else high


@device
def _log_group_sum(value, width):
    """Return the log of the sum of exponentials over a group."""
    top = group_max(value, width)
    mass = group_sum(math.exp(value - top) if top > -math.inf else 0.0, width)
    return top + logarithm(mass) if top > -math.inf else top


@device
def _none_left(left, flags):
    return left[flags] | left[flags + uint64(1)] | left[flags + uint64(2)] | left[flags + uint64(3)] == 0


@cache
def masses_kernel(width: int, bits: int, pitch: int, gaussian: bool) -> Any:
    """Return the kernel that computes masses (of long sessions, their logarithms) by session and piece of the types."""
    walk = walks(bits, pitch > 0)
    log_joint, read, product = walk.log_density if gaussian else walk.log_product, walk.read, walk.product
    per_warp = 32 // width

    @cuda.jit
    def kernel(words, rewards, shelves, tile_shelf, first_tile, last_tile, double, n_rows, masses, longest):
        thread, n_threads = cuda.threadIdx.x, cuda.blockDim.x
        lane, part = thread % width, thread % 32 // width
        n_pieces = cuda.gridDim.z
        columns = uint64(n_pieces * width)
        place = uint64(cuda.blockIdx.z * width + lane)
        table = cuda.shared.array(0, float64)
        column = uint64(address(table, uint32(thread % pitch))) if pitch > 0 else place
        if pitch > 0 and not gaussian:
            load_table(table, double, place - uint64(lane), columns, n_rows, pitch, width, thread, n_threads)
            cuda.syncthreads()
        warp = (cuda.blockIdx.x * n_threads + thread) // 32
        for tile in range(first_tile + warp, last_tile, cuda.gridDim.x * n_threads // 32):
            n_steps, n_sessions, size, first_word, first_step, _ = tile_of(shelves, tile_shelf, tile)
            for start in range(0, n_sessions, per_warp):
                session = uint64(min(start + part, n_sessions - 1))
                at = first_word + session
                if not gaussian and n_steps <= longest:
                    kept = read(words, at, size)
                    if pitch > 0:
                        share = product(kept, words, at, size, n_steps, table, pitch, column, double[place])
                    else:
                        share = product(kept, words, at, size, n_steps, double, columns, column, double[place])
                    mass = group_sum(share, width)
                else:
                    log_weight = log_joint(
                        words, rewards, at, first_step + session, size, n_steps, double, n_rows, columns, place
                    )
                    mass = _log_group_sum(log_weight, width)
                if lane == 0 and start + part < n_sessions:
                    masses[(uint64(tile - first_tile) * uint64(TILE) + session) * n_pieces + cuda.blockIdx.z] = mass

    return kernel


@cache
def fast_kernel(width: int, bits: int, pitch: int, merged: bool, sliced: bool, n_words: int = 0, last: int = 0) -> Any:
    """Return the kernel that adds the statistics and log-likelihoods of sessions that are not long to `out` and `logs`.

    A round, in which every group of a warp processes one session, is left to `careful_kernel` if the mass of one of its
    sessions is too small; `left` has a bit for every round of a tile.

    Args:
        width: lanes of a group: 8, 16 or 32.
        bits: of a code.
        pitch: columns of the table and the sums in shared memory; 0: both stay in the device's memory.
        merged: whether `counts` holds how many sessions each one represents.
        sliced: whether `masses` holds the mass of each session in each piece of the types.
        n_words: of every session, if they are few and equally many; 0: any number.
        last: steps in the last of them, if the sessions are equally long; 0: any number.
    """
    walk = short_walks(bits, n_words, last) if n_words > 0 else walks(bits, pitch > 0)
    read, product, add, add_large = walk.read, walk.product, walk.add, walk.add_large
    per_warp = uint32(32 // width)

    @compiled(fastmath=True, max_registers=_REGISTERS)
    def kernel(words, counts, shelves, tile_shelf, first_tile, last_tile, double, scales, n_rows, masses, out, logs,
               left):  # fmt: skip
        thread, n_threads, model = cuda.threadIdx.x, cuda.blockDim.x, cuda.blockIdx.y
        lane, part = thread % width, uint32(thread % 32 // width)
        columns = uint64(cuda.gridDim.z * width)
        place = uint64(cuda.blockIdx.z * width + lane)
        in_sums = uint64(model * n_rows) * columns + place
        table = cuda.shared.array(0, float64)
        sums = cuda.shared.array(0, uint32)  # the same memory; the table takes the first part
        offset = 2 * n_rows * pitch
        column = uint64(address(table, uint32(thread % pitch))) if pitch > 0 else in_sums
        sums_column = address(sums, uint32(offset + thread % pitch)) if pitch > 0 else uint32(0)
        if pitch > 0:
            load_table(table, double, in_sums - uint64(lane), columns, n_rows, pitch, width, thread, n_threads)
            clear_sums(sums, offset, n_rows, pitch, thread, n_threads)
            cuda.syncthreads()
        weight, scale = double[in_sums], scales[uint64(model) * columns + place]
        weights, whole, fraction = uint64(0), int64(0), int64(0)
        warp = (cuda.blockIdx.x * n_threads + thread) // 32
        for tile in range(first_tile + warp, last_tile, cuda.gridDim.x * n_threads // 32):
            n_steps, n_sessions, size, first_word, _, first_session = tile_of(shelves, tile_shelf, tile)
            run, total, start = float64(1.0), float64(0.0), uint32(0)
            while start < n_sessions:
                session = uint32(start + part)
                valid = session < n_sessions
                if not valid:
                    session = uint32(0)
                at = first_word + uint64(session)
                kept = read(words, at, size)
                if pitch > 0:
                    share = product(kept, words, at, size, n_steps, table, pitch, column, weight)
                else:
                    share = product(kept, words, at, size, n_steps, double, columns, column, weight)
                if sliced:
                    slot = uint64(tile - first_tile) * uint64(TILE) + uint64(session)
                    mass = _sum_pieces(masses, slot, cuda.gridDim.z, lane, width)
                else:
                    mass = group_sum(share, width)
                if warp_any(mass < TINY):
                    if thread % 32 == 0 and cuda.blockIdx.z == 0:
                        number = start // per_warp
                        word = flags_of(model, len(tile_shelf), tile) + uint64(number // uint32(32))
                        atomic_add(left, word, uint32(uint32(1) << uint32(number % uint32(32))))
                        atomic_add(logs, N_LOGS * model + LEFT, int64(1))
                elif valid:
                    units = share * (scale * reciprocal(mass)) + 0.5
                    if merged:
                        count = counts[first_session + uint64(session)]
                        total += count * math.log(mass)
                        units = math.floor(units) * count
                    else:
                        run *= mass  # one logarithm for many sessions
                        if run < RUN:
                            total += math.log(run)
                            run = float64(1.0)
                    if units < LARGE:
                        amount = uint32(units)
                        weights += uint64(amount)
                        if amount > 0:
                            add(kept, words, at, size, n_steps, sums, pitch, sums_column, amount, out, columns, in_sums)
                    else:
                        weights += uint64(units)
                        add_large(words, at, size, n_steps, uint64(units), out, columns, in_sums)
                start += per_warp
            units_of = in_units(total + math.log(run))
            whole += units_of[0]
            fraction += units_of[1]
        atomic_add(out, in_sums, weights)
        if lane == 0 and cuda.blockIdx.z == 0:
            give_logs(logs, model, whole, fraction)
        if pitch > 0:
            cuda.syncthreads()
            give_sums(sums, offset, out, in_sums - uint64(lane), columns, n_rows, pitch, width, thread, n_threads)

    return kernel


@cache
def careful_kernel(width: int, bits: int, pitch: int, gaussian: bool, sliced: bool) -> Any:
    """Return the kernel that uses logarithms: for long sessions, from `long_tile` on, and for the rounds in `left`.

    The arguments are as in `fast_kernel`; `gaussian` means that rewards are normal instead of coded. `logs` also
    receives the number of impossible sessions.
    """
    walk = walks(bits, pitch > 0)
    log_joint = walk.log_density if gaussian else walk.log_product
    read, add, add_large, add_weighted = walk.read, walk.add, walk.add_large, walk.add_weighted
    per_warp = 32 // width

    @cuda.jit
    def kernel(words, rewards, counts, merged, shelves, tile_shelf, first_tile, last_tile, long_tile, double, scales,
               n_rows, n_sums, masses, longest, top, out, logs, left):  # fmt: skip
        thread, n_threads, model = cuda.threadIdx.x, cuda.blockDim.x, cuda.blockIdx.y
        lane, part = thread % width, thread % 32 // width
        n_pieces = cuda.gridDim.z
        columns = uint64(n_pieces * width)
        place = uint64(cuda.blockIdx.z * width + lane)
        in_tables = uint64(model * n_rows) * columns + place
        in_sums = uint64(model * n_sums) * columns + place
        sums = cuda.shared.array(0, uint32)
        column = address(sums, uint32(thread % pitch)) if pitch > 0 else uint32(0)
        begin = first_tile if logs[N_LOGS * model + LEFT] > 0 else max(first_tile, long_tile)
        if begin >= last_tile:
            return
        if pitch > 0:
            clear_sums(sums, 0, n_sums, pitch, thread, n_threads)
            cuda.syncthreads()
        scale = float64(scales[uint64(model) * columns + place])
        weights, whole, fraction, impossible = uint64(0), int64(0), int64(0), int64(0)
        warp = (cuda.blockIdx.x * n_threads + thread) // 32
        for tile in range(begin + warp, last_tile, cuda.gridDim.x * n_threads // 32):
            n_steps, n_sessions, size, first_word, first_step, first_session = tile_of(shelves, tile_shelf, tile)
            flags = flags_of(model, len(tile_shelf), tile)
            if n_steps <= longest and _none_left(left, flags):
                continue
            total = float64(0.0)
            for number in range((n_sessions + per_warp - 1) // per_warp):
                if n_steps <= longest and (left[flags + uint64(number // 32)] >> uint32(number % 32)) & uint32(1) == 0:
                    continue
                valid = number * per_warp + part < n_sessions
                session = uint64(min(number * per_warp + part, n_sessions - 1))
                at, first = first_word + session, first_step + session
                count = counts[first_session + session] if merged else int64(1)
                log_weight = log_joint(words, rewards, at, first, size, n_steps, double, n_rows, columns, in_tables)
                if not sliced:
                    log_mass = _log_group_sum(log_weight, width)
                elif n_steps > longest:
                    slot = uint64(tile - first_tile) * uint64(TILE) + session
                    log_mass = _log_sum_pieces(masses, slot, n_pieces, lane, width)
                else:
                    log_mass = float64(-math.inf)
                    for piece in range(n_pieces):
                        there = in_tables - place + uint64(piece * width + lane)
                        joint = log_joint(words, rewards, at, first, size, n_steps, double, n_rows, columns, there)
                        log_mass = _log_add(log_mass, _log_group_sum(joint, width))
                if valid and log_mass == -math.inf:
                    impossible += 1
                elif valid:
                    total += count * log_mass
                    units = math.exp(log_weight - log_mass) * scale
                    amount = uint64(units + 0.5) * uint64(count)
                    weights += amount
                    if amount >= uint64(LARGE):
                        add_large(words, at, size, n_steps, amount, out, columns, in_sums)
                    elif amount > 0:
                        add(read(words, at, size), words, at, size, n_steps, sums, pitch, column,
                            uint32(amount), out, columns, in_sums)  # fmt: skip
                    if gaussian:
                        add_weighted(words, rewards, at, first, size, n_steps, sums, pitch, column, units, top,
                                     uint64(n_rows - 2), out, columns, in_sums)  # fmt: skip
            units_of = in_units(total)
            whole += units_of[0]
            fraction += units_of[1]
        atomic_add(out, in_sums, weights)
        if lane == 0 and cuda.blockIdx.z == 0:
            give_logs(logs, model, whole, fraction)
            atomic_add(logs, N_LOGS * model + IMPOSSIBLE, impossible)
        if pitch > 0:
            cuda.syncthreads()
            give_sums(sums, 0, out, in_sums - uint64(lane), columns, n_sums, pitch, width, thread, n_threads)

    return kernel


@cuda.jit
def clear_kernel(array):
    """Set all entries to zero."""
    for i in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, len(array), cuda.gridDim.x * cuda.blockDim.x):
        array[i] = 0


def short_walks(bits: int, n_words: int, last: int) -> Walks:
    """Return the functions for sessions of equally many words, with sums in shared memory.

    Args:
        bits: of a code.
        n_words: of a session: 1 to 4.
        last: steps in the last word; 0: given by the length of the session.
    """
    per, of_word, add_of, carry, _ = word_walks(bits)
    before = (n_words - 1) * per  # steps in the other words
    none = uint32(0), uint32(0), uint32(0), uint32(0)

    @device
    def read(words, at, stride):
        """Return four words of a session, the last one last; sessions of fewer words repeat it."""
        a = words[at]
        b = words[at + stride] if n_words > 1 else a
        c = words[at + stride + stride] if n_words > 2 else b
        d = words[at + stride + stride + stride] if n_words > 3 else c
        return a, b, c, d

    @device
    def product(kept, words, at, stride, n_steps, table, pitch, column, value):
        a, b, c, d = kept
        rest = last if last > 0 else n_steps - before
        if n_words > 1:
            value = of_word(a, per, table, pitch, column, value)
        if n_words > 2:
            value = of_word(b, per, table, pitch, column, value)
        if n_words > 3:
            value = of_word(c, per, table, pitch, column, value)
        return of_word(d, rest, table, pitch, column, value)

    @device
    def add(kept, words, at, stride, n_steps, sums, pitch, column, amount, out, out_pitch, out_column):
        a, b, c, d = kept
        rest = last if last > 0 else n_steps - before
        first, second, third = none, none, none
        if n_words > 1:
            first = add_of(a, per, sums, pitch, column, amount, out, out_pitch, out_column)
        if n_words > 2:
            second = add_of(b, per, sums, pitch, column, amount, out, out_pitch, out_column)
        if n_words > 3:
            third = add_of(c, per, sums, pitch, column, amount, out, out_pitch, out_column)
        fourth = add_of(d, rest, sums, pitch, column, amount, out, out_pitch, out_column)
        if max(max(largest(first), largest(second)), max(largest(third), largest(fourth))) > uint32(~amount):
            carry(a, amount, first, out, out_pitch, out_column)  # at the end, so that no sum waits for earlier ones
            carry(b, amount, second, out, out_pitch, out_column)
            carry(c, amount, third, out, out_pitch, out_column)
            carry(d, amount, fourth, out, out_pitch, out_column)

    return walks(bits, shared=True)._replace(read=read, product=product, add=add)
