"""shelve: sessions sorted by length, as a GPU reads them."""

from __future__ import annotations

import numpy as np

from ..._kernel import (
    FIRST_SESSION,
    FIRST_STEP,
    FIRST_TILE,
    FIRST_WORD,
    LENGTH,
    LONGEST,
    SIZE,
    TILE,
    Shelves,
    Short,
    kernel,
    per_word,
)
from ..._shapes import Array, Float, Integer, Shaped

_NONE = np.empty(0)
_WORTH = 1 << 22  # sessions for which it pays to compile kernels for short ones
_MOST_WORDS = 4  # of short sessions


def shelve(
    codes: Shaped[Array, "S"],
    lengths: Shaped[Array, "N"],
    counts: Shaped[Array, "n"] = _NONE,
    rewards: Float[Array, "s"] = _NONE,
) -> Shelves:
    """A part of a log, its sessions sorted by length.

    Args:
        codes: of all steps, session after session; unsigned.
        lengths: of the sessions.
        counts: sessions that each one stands for; empty: one.
        rewards: of all steps, where the codes are arms alone.
    """
    bits = 8 * codes.dtype.itemsize
    per = per_word(bits)
    shelves, n_words, n_tiles = _shelves(lengths, per)
    words = np.empty(n_words, np.uint32 if bits == 8 else np.uint64)
    side, order = np.empty(len(rewards)), np.empty(len(lengths), np.int64)
    kernel("shelves").fill(codes, rewards, lengths, shelves, bits, per, words, side, order)
    many = counts[order].astype(np.int64) if len(counts) else np.empty(0, np.int64)
    tiles = np.repeat(np.arange(len(shelves), dtype=np.int32), n_tiles)
    short = _short(shelves[:, LENGTH], per, n_tiles) if len(lengths) >= _WORTH and not len(rewards) else ()
    long_tile = int(n_tiles[shelves[:, LENGTH] <= LONGEST].sum())
    weight = int(lengths @ counts) if len(counts) else int(lengths.sum(dtype=np.int64))
    return Shelves(bits, len(counts) > 0, short, words, side, many, shelves, tiles, long_tile, weight)


def _short(lengths: Integer[Array, "C"], per: int, n_tiles: Integer[Array, "C"]) -> tuple[Short, ...]:
    """The tiles of sessions of one word, of two, and so on, for a kernel of their own."""
    ends, n_words, found = np.cumsum(n_tiles), -(-lengths // per), []
    for number in np.unique(n_words[n_words <= _MOST_WORDS]).tolist():
        own = np.flatnonzero(n_words == number)
        last = int(lengths[own[0]]) - (number - 1) * per if len(own) == 1 else 0
        found.append(Short(number, last, int(ends[own[0]] - n_tiles[own[0]]), int(ends[own[-1]])))
    return tuple(found)


def _shelves(lengths: Shaped[Array, "N"], per: int) -> tuple[Integer[Array, "C 6"], int, Integer[Array, "C"]]:
    """A row for each length, the number of words, and the tiles of each length."""
    sizes = np.bincount(lengths)
    present = np.flatnonzero(sizes)
    sizes = sizes[present]
    shelves = np.zeros((len(present), 6), np.int64)
    shelves[:, LENGTH], shelves[:, SIZE] = present, sizes
    n_words, n_tiles = -(-present // per) * sizes, -(-sizes // TILE)
    sums = {FIRST_WORD: n_words, FIRST_STEP: present * sizes, FIRST_SESSION: sizes, FIRST_TILE: n_tiles}
    for column, amounts in sums.items():
        shelves[1:, column] = np.cumsum(amounts)[:-1]
    return shelves, int(n_words.sum()), n_tiles
