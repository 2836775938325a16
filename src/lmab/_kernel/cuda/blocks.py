"""What every block of threads does: shared memory filled before its tiles, the sums given away after them."""

from __future__ import annotations

import math

from numba import int64, uint32, uint64

from ..reference.shelves import FIRST_SESSION, FIRST_STEP, FIRST_TILE, FIRST_WORD, LENGTH, SIZE, TILE
from .lanes import atomic_add, device

WHOLE, FRACTION, IMPOSSIBLE, LEFT = range(4)  # of every model in `logs`; the first two: a sum of logarithms
N_LOGS = 4
LOG_BITS = 36  # of the fraction of a tile's log-likelihood; fractions of 2**27 tiles have room
LOG_ONE = float(1 << LOG_BITS)


@device
def load_table(table, source, first, columns, n_rows, pitch, width, thread, n_threads):
    """Bring a piece of the table to shared memory, repeated for every group where `pitch` is 32."""
    for i in range(thread, n_rows * pitch, n_threads):
        table[i] = source[first + uint64(i // pitch) * columns + uint64(i % width)]


@device
def clear_sums(sums, offset, n_rows, pitch, thread, n_threads):
    for i in range(thread, n_rows * pitch, n_threads):
        sums[offset + i] = 0


@device
def give_sums(sums, offset, out, first, columns, n_rows, pitch, width, thread, n_threads):
    """Add the sums of shared memory, those of all groups together, to `out`."""
    for i in range(thread, n_rows * width, n_threads):
        total = uint64(0)
        for column in range(i % width, pitch, width):
            total += uint64(sums[offset + i // width * pitch + column])
        if total > 0:
            atomic_add(out, first + uint64(i // width) * columns + uint64(i % width), total)


@device
def tile_of(shelves, tile_shelf, tile):
    """Steps of a tile's sessions, their number, words between the words of one, first word, step and session."""
    shelf = tile_shelf[tile]
    begin = (tile - shelves[shelf, FIRST_TILE]) * TILE
    return (
        uint32(shelves[shelf, LENGTH]),
        uint32(min(TILE, shelves[shelf, SIZE] - begin)),
        uint64(shelves[shelf, SIZE]),
        uint64(shelves[shelf, FIRST_WORD] + begin),
        uint64(shelves[shelf, FIRST_STEP] + begin),
        uint64(shelves[shelf, FIRST_SESSION] + begin),
    )


@device
def flags_of(model, n_tiles, tile):
    """Where a tile has its four words of flags, a bit for every round."""
    return (uint64(model) * uint64(n_tiles) + uint64(tile)) * uint64(4)


@device
def give_logs(logs, model, whole, fraction):
    atomic_add(logs, N_LOGS * model + WHOLE, whole)
    atomic_add(logs, N_LOGS * model + FRACTION, fraction)


@device
def in_units(total):
    """A sum of logarithms as two integers, so that sums of them do not depend on their order."""
    whole = math.floor(total)
    return int64(whole), int64(math.floor((total - whole) * LOG_ONE + 0.5))
