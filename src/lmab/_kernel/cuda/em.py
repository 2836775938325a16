"""The expectation step of EM on a GPU: a group of lanes shares a session, and each lane holds one context.

Probabilities and their products are single precision. A session whose mass becomes too small for that, and one that is
long, is done with logarithms in double precision. Statistics are sums of integers (`share_one`), and the
logarithms of a tile of sessions are rounded to integers before they are added. So the outcome has the same bits on
any number of blocks.

Where there are more contexts than lanes, they are cut into pieces (the third dimension of the grid): one kernel finds
the mass of every session in every piece, a second one adds the shares.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from numba import float32, float64, int32, int64, uint32, uint64

from ..reference.shelves import FIRST_SESSION, FIRST_STEP, FIRST_TILE, FIRST_WORD, LENGTH, SIZE, TILE
from . import cuda
from .lanes import atomic_add, compiled, device, group_max, group_sum, warp_any
from .steps import LOG_ONE, RUN, TINY, give_sums, load_table, logarithm, registers, share_one, walks


@device
def _sum_pieces(masses, slot, n_pieces, lane, width):
    """Mass of a session over all pieces of the contexts."""
    mass = float64(0.0)
    for piece in range(lane, n_pieces, width):
        mass += masses[slot * n_pieces + piece]
    return group_sum(mass, width)


@device
def _log_sum_pieces(masses, slot, n_pieces, lane, width):
    """The same where logarithms of masses are kept."""
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
    """log of the sum of exponentials over a group."""
    top = group_max(value, width)
    mass = group_sum(math.exp(value - top) if top > -math.inf else 0.0, width)
    return top + logarithm(mass) if top > -math.inf else top


@device
def _none_left(left, flags):
    return left[flags] | left[flags + uint64(1)] | left[flags + uint64(2)] | left[flags + uint64(3)] == 0


@cache
def masses_kernel(width: int, bits: int, pitch: int, gaussian: bool) -> Any:
    """Writes the mass of each session of the tiles in each piece of the contexts; of long ones, its logarithm."""
    walk = walks(bits, pitch > 0)
    log_joint, product = walk.log_density if gaussian else walk.log_product, walk.product
    per_warp, shared_pitch = 32 // width, uint32(pitch)

    @cuda.jit
    def kernel(words, rewards, shelves, tile_shelf, first_tile, last_tile, single, double, n_rows, masses, longest):
        lane, part = cuda.threadIdx.x % width, cuda.threadIdx.x % 32 // width
        n_pieces = cuda.gridDim.z
        columns = uint64(n_pieces * width)
        place = uint64(cuda.blockIdx.z * width + lane)
        table = cuda.shared.array(0, float32)
        column = uint32(cuda.threadIdx.x % pitch) if pitch > 0 else uint32(place)
        if pitch > 0 and not gaussian:
            load_table(
                table,
                single,
                uint64(cuda.blockIdx.z * width),
                columns,
                n_rows,
                pitch,
                width,
                cuda.threadIdx.x,
                cuda.blockDim.x,
            )
            cuda.syncthreads()
        warp = (cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x) // 32
        for tile in range(first_tile + warp, last_tile, cuda.gridDim.x * cuda.blockDim.x // 32):
            shelf = tile_shelf[tile]
            n_steps, size = uint32(shelves[shelf, LENGTH]), uint64(shelves[shelf, SIZE])
            begin = (tile - shelves[shelf, FIRST_TILE]) * TILE
            n_sessions = min(TILE, shelves[shelf, SIZE] - begin)
            first_word, first_step = shelves[shelf, FIRST_WORD] + begin, shelves[shelf, FIRST_STEP] + begin
            for start in range(0, n_sessions, per_warp):
                session = min(start + part, n_sessions - 1)
                at, first = uint64(first_word + session), uint64(first_step + session)
                if not gaussian and n_steps <= longest:
                    if pitch > 0:
                        share = product(words, at, size, n_steps, table, shared_pitch, column, table[column])
                    else:
                        share = product(words, at, size, n_steps, single, columns, column, single[column])
                    mass = float64(group_sum(share, width))
                else:
                    own = log_joint(words, rewards, at, first, size, n_steps, double, n_rows, columns, place)
                    mass = _log_group_sum(own, width)
                if lane == 0 and start + part < n_sessions:
                    masses[((tile - first_tile) * TILE + session) * n_pieces + cuda.blockIdx.z] = mass

    return kernel


@cache
def fast_kernel(width: int, bits: int, pitch: int, merged: bool, sliced: bool) -> Any:
    """Adds the statistics and the log-likelihood of sessions of up to `longest` steps to `out` and `logs`.

    A round, in which every group of a warp does one session, is left to `careful_kernel` where the mass of one of its
    sessions is too small for single precision; `left` has a bit for every round of a tile.

    Args:
        width: lanes of a group: 8, 16 or 32.
        bits: of a code.
        pitch: columns of the table and the sums in shared memory; 0: both stay in the device's memory.
        merged: whether `counts` says how many sessions each one stands for.
        sliced: whether `masses` holds the mass of each session in each piece of the contexts.
    """
    walk = walks(bits, pitch > 0)
    product, add, add_high = walk.product, walk.add, walk.add_high
    per_warp, shared_pitch, one = 32 // width, uint32(pitch), float32(share_one(width))

    @compiled(fastmath=True, max_registers=registers(width))
    def kernel(
        words, counts, shelves, tile_shelf, first_tile, last_tile, single, n_rows, masses, longest, out, logs, left
    ):
        lane, part = cuda.threadIdx.x % width, cuda.threadIdx.x % 32 // width
        columns = uint64(cuda.gridDim.z * width)
        place = uint64(cuda.blockIdx.z * width + lane)
        in_sums = uint64(cuda.blockIdx.y * n_rows) * columns + place
        table = cuda.shared.array(0, float32)
        sums = cuda.shared.array(0, uint32)  # the same memory, of which the table takes the first part
        column = uint32(cuda.threadIdx.x % pitch) if pitch > 0 else uint32(in_sums)
        sums_column = uint32(column + uint32(n_rows * pitch))
        if pitch > 0:
            load_table(
                table, single, in_sums - uint64(lane), columns, n_rows, pitch, width, cuda.threadIdx.x, cuda.blockDim.x
            )
            for i in range(cuda.threadIdx.x, n_rows * pitch, cuda.blockDim.x):
                sums[n_rows * pitch + i] = 0
            cuda.syncthreads()
        weight = table[column] if pitch > 0 else single[column]
        weights, total_log = uint64(0), int64(0)
        warp = (cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x) // 32
        for tile in range(first_tile + warp, last_tile, cuda.gridDim.x * cuda.blockDim.x // 32):
            shelf = tile_shelf[tile]
            n_steps, size = uint32(shelves[shelf, LENGTH]), uint64(shelves[shelf, SIZE])
            if n_steps > longest:
                continue
            begin = (tile - shelves[shelf, FIRST_TILE]) * TILE
            n_sessions = uint32(min(TILE, shelves[shelf, SIZE] - begin))
            first_word = uint64(shelves[shelf, FIRST_WORD] + begin)
            first_session = shelves[shelf, FIRST_SESSION] + begin
            run, total = float64(1.0), float64(0.0)
            for number in range(uint32(n_sessions + uint32(per_warp - 1)) // uint32(per_warp)):
                session = uint32(number * uint32(per_warp)) + uint32(part)
                valid = session < n_sessions
                if not valid:
                    session = uint32(0)
                at = first_word + session
                if pitch > 0:
                    share = product(words, at, size, n_steps, table, shared_pitch, column, weight)
                else:
                    share = product(words, at, size, n_steps, single, columns, column, weight)
                if sliced:
                    slot = (tile - first_tile) * TILE + session
                    mass = float32(_sum_pieces(masses, slot, cuda.gridDim.z, lane, width))
                else:
                    mass = group_sum(share, width)
                if warp_any(mass < float32(TINY)):
                    if cuda.threadIdx.x % 32 == 0 and cuda.blockIdx.z == 0:
                        word = (uint64(cuda.blockIdx.y) * uint64(len(tile_shelf)) + uint64(tile)) * uint64(4)
                        atomic_add(left, word + uint64(number // 32), uint32(uint32(1) << uint32(number % 32)))
                elif valid:
                    amount = uint32(int32(share * (one / mass) + float32(0.5)))
                    if merged:
                        total += counts[first_session + session] * math.log(float64(mass))
                        full = uint64(amount) * uint64(counts[first_session + session])
                        amount, high = uint32(full & uint64(0xFFFFFFFF)), full >> uint64(32)
                        weights += full
                        if high > 0:
                            add_high(words, at, size, n_steps, high << uint64(32), out, columns, in_sums)
                    else:
                        weights += uint64(amount)
                        run *= float64(mass)  # one logarithm for many sessions
                        if run < RUN:
                            total += math.log(run)
                            run = float64(1.0)
                    if amount > 0:
                        add(words, at, size, n_steps, sums, shared_pitch, sums_column, amount, out, columns, in_sums)
            total_log += int64(math.floor((total + math.log(run)) * LOG_ONE + 0.5))
        atomic_add(out, in_sums, weights)
        if lane == 0 and cuda.blockIdx.z == 0:
            atomic_add(logs, 2 * cuda.blockIdx.y, total_log)
        if pitch > 0:
            cuda.syncthreads()
            give_sums(
                sums,
                n_rows * pitch,
                out,
                in_sums - uint64(lane),
                columns,
                n_rows,
                pitch,
                width,
                cuda.threadIdx.x,
                cuda.blockDim.x,
            )

    return kernel


@cache
def careful_kernel(width: int, bits: int, pitch: int, gaussian: bool, sliced: bool) -> Any:
    """The same in double precision and with logarithms: long sessions, and the rounds that `left` names.

    Arguments as of `fast_kernel`; `gaussian` tells whether rewards are normal instead of coded. `logs` receives the
    number of sessions that are impossible, too.
    """
    walk = walks(bits, pitch > 0)
    log_joint = walk.log_density if gaussian else walk.log_product
    add, add_high, add_weighted = walk.add, walk.add_high, walk.add_weighted
    per_warp, shared_pitch, one = 32 // width, uint32(pitch), float64(share_one(width))

    @cuda.jit
    def kernel(words, rewards, counts, merged, shelves, tile_shelf, first_tile, last_tile, double, n_rows, n_sums,
               masses, longest, top, out, logs, left):  # fmt: skip
        lane, part = cuda.threadIdx.x % width, cuda.threadIdx.x % 32 // width
        n_pieces = cuda.gridDim.z
        columns = uint64(n_pieces * width)
        place = uint64(cuda.blockIdx.z * width + lane)
        in_tables = uint64(cuda.blockIdx.y * n_rows) * columns + place
        in_sums = uint64(cuda.blockIdx.y * n_sums) * columns + place
        sums = cuda.shared.array(0, uint32)
        column = uint32(cuda.threadIdx.x % pitch) if pitch > 0 else uint32(0)
        if pitch > 0:
            for i in range(cuda.threadIdx.x, n_sums * pitch, cuda.blockDim.x):
                sums[i] = 0
            cuda.syncthreads()
        weights, total_log, impossible = uint64(0), int64(0), int64(0)
        warp = (cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x) // 32
        for tile in range(first_tile + warp, last_tile, cuda.gridDim.x * cuda.blockDim.x // 32):
            shelf = tile_shelf[tile]
            n_steps, size = uint32(shelves[shelf, LENGTH]), uint64(shelves[shelf, SIZE])
            begin = (tile - shelves[shelf, FIRST_TILE]) * TILE
            n_sessions = min(TILE, shelves[shelf, SIZE] - begin)
            first_word, first_step = shelves[shelf, FIRST_WORD] + begin, shelves[shelf, FIRST_STEP] + begin
            flags = (uint64(cuda.blockIdx.y) * uint64(len(tile_shelf)) + uint64(tile)) * uint64(4)
            if n_steps <= longest and _none_left(left, flags):
                continue
            total = float64(0.0)
            for number in range((n_sessions + per_warp - 1) // per_warp):
                if n_steps <= longest and (left[flags + uint64(number // 32)] >> uint32(number % 32)) & uint32(1) == 0:
                    continue
                valid = number * per_warp + part < n_sessions
                session = min(number * per_warp + part, n_sessions - 1)
                at, first = uint64(first_word + session), uint64(first_step + session)
                count = counts[shelves[shelf, FIRST_SESSION] + begin + session] if merged else int64(1)
                own = log_joint(words, rewards, at, first, size, n_steps, double, n_rows, columns, in_tables)
                if not sliced:
                    log_mass = _log_group_sum(own, width)
                elif n_steps > longest:
                    log_mass = _log_sum_pieces(masses, (tile - first_tile) * TILE + session, n_pieces, lane, width)
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
                    scaled = math.exp(own - log_mass) * one
                    full = uint64(scaled + 0.5) * uint64(count)
                    low, high = uint32(full & uint64(0xFFFFFFFF)), full >> uint64(32)
                    weights += full
                    if high > 0:
                        add_high(words, at, size, n_steps, high << uint64(32), out, columns, in_sums)
                    if low > 0:
                        add(words, at, size, n_steps, sums, shared_pitch, column, low, out, columns, in_sums)
                    if gaussian:
                        add_weighted(words, rewards, at, first, size, n_steps, sums, shared_pitch, column, scaled, top,
                                     uint64(n_rows - 2), out, columns, in_sums)  # fmt: skip
            total_log += int64(math.floor(total * LOG_ONE + 0.5))
        atomic_add(out, in_sums, weights)
        if lane == 0 and cuda.blockIdx.z == 0:
            atomic_add(logs, 2 * cuda.blockIdx.y, total_log)
            atomic_add(logs, 2 * cuda.blockIdx.y + 1, impossible)
        if pitch > 0:
            cuda.syncthreads()
            give_sums(
                sums, 0, out, in_sums - uint64(lane), columns, n_sums, pitch, width, cuda.threadIdx.x, cuda.blockDim.x
            )

    return kernel


@cuda.jit
def clear_kernel(array):
    """Set all entries to zero."""
    for i in range(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, len(array), cuda.gridDim.x * cuda.blockDim.x):
        array[i] = 0
