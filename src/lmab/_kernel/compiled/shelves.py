"""Sessions side by side with others of the same length, in Numba: one walk over the codes."""

from __future__ import annotations

import numpy as np
from numba import njit

from ..reference.shelves import FIRST_SESSION, FIRST_STEP, FIRST_WORD, LENGTH, SIZE


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
