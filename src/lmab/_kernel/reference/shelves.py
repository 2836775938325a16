"""Sessions side by side with others of the same length, their codes in words: how a GPU reads them.

A row of `shelves` describes the sessions of one length: LENGTH, SIZE (how many), FIRST_WORD, FIRST_STEP, FIRST_SESSION
and FIRST_TILE, where the shelf begins. Word w of session k of a shelf is at FIRST_WORD + w * SIZE + k: neighbours read
neighbouring words. Code t of a session is in word t // per, from bit t % per * bits on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..._shapes import Array, Float, Integer, Shaped

LENGTH, SIZE, FIRST_WORD, FIRST_STEP, FIRST_SESSION, FIRST_TILE = range(6)  # columns of `shelves`
TILE = 128  # sessions of one shelf that a warp works through, whatever the grid
LONGEST = 32  # steps of a session whose probabilities are multiplied; longer ones take logarithms


class Short(NamedTuple):
    """Neighbouring tiles of sessions with equally many words."""

    n_words: int
    last: int  # steps in the last word; 0: they differ
    first_tile: int
    last_tile: int  # the one after


class Shelves(NamedTuple):
    """Sessions sorted by length, as arrays of the host or of the device."""

    bits: int  # of a code
    merged: bool  # whether a session may stand for several
    short: tuple[Short, ...]  # launches for short sessions, from the first tile on; the others follow
    words: Shaped[Array, "W"]
    rewards: Float[Array, "s"]  # empty: the codes say all
    counts: Integer[Array, "n"]  # sessions that each one stands for; empty where none is merged
    shelves: Integer[Array, "C 6"]
    tile_shelf: Integer[Array, "T"]
    long_tile: int  # the first one of sessions of more than LONGEST steps
    weight: int  # steps of all sessions that these stand for

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self[3:8])


def per_word(bits: int) -> int:
    """Codes in a word."""
    return {8: 4, 16: 4, 32: 2}[bits]


def fill(
    codes: Shaped[Array, "S"],
    rewards: Float[Array, "s"],
    lengths: Shaped[Array, "N"],
    shelves: Integer[Array, "C 6"],
    bits: int,
    per: int,
    words: Shaped[Array, "W"],
    side: Float[Array, "s"],
    order: Integer[Array, "N"],
) -> None:
    """Write the codes to `words`, the rewards (where there are any) to `side`, the sessions' numbers to `order`."""
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    for length, size, word, step, session, _ in shelves.tolist():
        members = np.flatnonzero(lengths == length)
        order[session : session + size] = members
        steps = offsets[members] + np.arange(length)[:, None]
        for first in range(0, length, per):
            packed = np.zeros(size, words.dtype)
            for place, row in enumerate(steps[first : first + per]):
                packed |= codes[row].astype(words.dtype) << words.dtype.type(place * bits)
            words[word + first // per * size :][:size] = packed
        if len(rewards):
            side[step : step + length * size] = rewards[steps].ravel()
