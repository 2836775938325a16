"""The expectation step for short sessions: the codes of a session stay in registers, and no loop depends on its length.

Sessions of one to four words lie side by side, so that a launch takes those with equally many words. Everything else is
as in `em.fast_kernel`.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from numba import float32, float64, int32, int64, uint32, uint64

from ..reference.shelves import FIRST_TILE, FIRST_WORD, LENGTH, SIZE, TILE
from . import cuda
from .lanes import atomic_add, compiled, group_sum, warp_any
from .steps import LOG_ONE, RUN, TINY, give_sums, load_table, share_one, word_walks

_REGISTERS = 64  # of a thread: with fewer, spills cost more than further threads gain (measured)


@cache
def short_kernel(width: int, bits: int, pitch: int, n_words: int, last: int) -> Any:
    """Adds the statistics and the log-likelihood of unmerged sessions of `n_words` words to `out` and `logs`.

    Args:
        width: lanes of a group: 8, 16 or 32.
        bits: of a code.
        pitch: columns of the table and the sums in shared memory.
        n_words: of a session: 1 to 4.
        last: steps in the last word; 0: as the length of the session says.
    """
    per, product, product_of, add, carry = word_walks(bits)
    per_warp, shared_pitch, one = 32 // width, uint32(pitch), float32(share_one(width))

    @compiled(fastmath=True, max_registers=_REGISTERS)
    def kernel(words, shelves, tile_shelf, first_tile, last_tile, single, n_rows, out, logs, left):
        lane, part = cuda.threadIdx.x % width, cuda.threadIdx.x % 32 // width
        columns = uint64(width)
        in_sums = uint64(cuda.blockIdx.y * n_rows) * columns + uint64(lane)
        table = cuda.shared.array(0, float32)
        sums = cuda.shared.array(0, uint32)  # the same memory, of which the table takes the first part
        column = uint32(cuda.threadIdx.x % pitch)
        sums_column = uint32(column + uint32(n_rows * pitch))
        load_table(
            table, single, in_sums - uint64(lane), columns, n_rows, pitch, width, cuda.threadIdx.x, cuda.blockDim.x
        )
        for i in range(cuda.threadIdx.x, n_rows * pitch, cuda.blockDim.x):
            sums[n_rows * pitch + i] = 0
        cuda.syncthreads()
        weight = table[column]
        weights, total_log = uint64(0), int64(0)
        warp = (cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x) // 32
        for tile in range(first_tile + warp, last_tile, cuda.gridDim.x * cuda.blockDim.x // 32):
            shelf = tile_shelf[tile]
            rest = uint32(last) if last > 0 else uint32(shelves[shelf, LENGTH] - (n_words - 1) * per)
            size = uint64(shelves[shelf, SIZE])
            begin = (tile - shelves[shelf, FIRST_TILE]) * TILE
            n_sessions = uint32(min(TILE, shelves[shelf, SIZE] - begin))
            first_word = uint64(shelves[shelf, FIRST_WORD] + begin)
            run, total = float64(1.0), float64(0.0)
            for number in range(uint32(n_sessions + uint32(per_warp - 1)) // uint32(per_warp)):
                session = uint32(number * uint32(per_warp)) + uint32(part)
                valid = session < n_sessions
                at = first_word + (session if valid else uint32(0))
                a = words[at]
                b = words[at + size] if n_words > 1 else a
                c = words[at + size + size] if n_words > 2 else a
                d = words[at + size + size + size] if n_words > 3 else a
                share = weight
                if n_words > 1:
                    share = product(a, table, shared_pitch, column, share)
                if n_words > 2:
                    share = product(b, table, shared_pitch, column, share)
                if n_words > 3:
                    share = product(c, table, shared_pitch, column, share)
                end = d if n_words > 3 else c if n_words > 2 else b if n_words > 1 else a
                share = product_of(end, rest, table, shared_pitch, column, share)
                mass = group_sum(share, width)
                if warp_any(mass < float32(TINY)):
                    if cuda.threadIdx.x % 32 == 0:
                        word = (uint64(cuda.blockIdx.y) * uint64(len(tile_shelf)) + uint64(tile)) * uint64(4)
                        atomic_add(left, word + uint64(number // 32), uint32(uint32(1) << uint32(number % 32)))
                elif valid:
                    amount = uint32(int32(share * (one / mass) + float32(0.5)))
                    weights += uint64(amount)
                    run *= float64(mass)  # one logarithm for many sessions
                    if run < RUN:
                        total += math.log(run)
                        run = float64(1.0)
                    if amount > 0:
                        first, second, third = uint32(0), uint32(0), uint32(0)
                        if n_words > 1:
                            first = add(a, per, sums, shared_pitch, sums_column, amount, out, columns, in_sums)
                        if n_words > 2:
                            second = add(b, per, sums, shared_pitch, sums_column, amount, out, columns, in_sums)
                        if n_words > 3:
                            third = add(c, per, sums, shared_pitch, sums_column, amount, out, columns, in_sums)
                        fourth = add(end, rest, sums, shared_pitch, sums_column, amount, out, columns, in_sums)
                        if first | second | third | fourth > 0:  # once, so that no sum waits for those before
                            carry(a, first, out, columns, in_sums)
                            carry(b, second, out, columns, in_sums)
                            carry(c, third, out, columns, in_sums)
                            carry(end, fourth, out, columns, in_sums)
            total_log += int64(math.floor((total + math.log(run)) * LOG_ONE + 0.5))
        atomic_add(out, in_sums, weights)
        if lane == 0:
            atomic_add(logs, 2 * cuda.blockIdx.y, total_log)
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
