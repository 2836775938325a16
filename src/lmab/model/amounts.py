"""Sums and quantiles of rewards that are looked at piece by piece, so that a log need not be in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from .._shapes import Array, Float, Integer, Shaped

Pieces = Callable[[], Iterable[Float[Array, "_"]]]  # all rewards, whenever it is called, in the same pieces
_DIGIT = 13  # bits that one pass tells about a quantile
_SIGN = np.uint64(1 << 63)


def counts_and_sums(pieces: Pieces, edges: Float[Array, "E"]) -> tuple[Integer[Array, "Z"], Float[Array, "Z"]]:
    """How many rewards lie between two edges, and their sums; an edge belongs to what lies above it."""
    size = len(edges) + 1
    counts, sums = np.zeros(size, np.int64), np.zeros(size)
    for rewards in pieces():
        place = np.searchsorted(edges, rewards, side="right")
        counts += np.bincount(place, minlength=size)
        sums += np.bincount(place, rewards, minlength=size)
    return counts, sums


def quantiles(pieces: Pieces, targets: Float[Array, "q"]) -> Float[Array, "e"]:
    """The rewards other than 0 at which their shares pass the targets; half of a share counts them, half sums them.

    A reward is found bit by bit: each pass counts and sums the rewards that begin with the bits known so far by their
    next bits. So a log of any size takes five passes and little memory.

    Examples:
        >>> import numpy as np
        >>> quantiles(lambda: [np.array([1.0, 3.0, 0.0]), np.array([20.0, 10.0])], np.array([0.5]))
        array([10.])
    """
    known, owner = np.zeros(1, np.uint64), np.zeros(len(targets), np.int64)  # first bits, and those of each target
    below, total = np.zeros((len(targets), 2)), np.zeros(2)  # number and size of what lies below the known bits
    for shift in range(4 * _DIGIT, -1, -_DIGIT):
        found = _by_next_bits(pieces, known, shift)
        total = found.sum(axis=(0, 1)) if shift == 4 * _DIGIT else total
        next_bits = np.empty(len(targets), np.uint64)
        for number, (target, own) in enumerate(zip(targets.tolist(), owner.tolist(), strict=True)):
            reached = below[number] + np.cumsum(found[own], axis=0)
            passed = np.searchsorted((reached / total).sum(axis=1) / 2, target, side="right")
            filled = np.flatnonzero(found[own, :, 0])  # rounding must not lead to where no reward is
            here = int(filled[min(np.searchsorted(filled, passed), len(filled) - 1)])
            below[number] = reached[here] - found[own, here]
            next_bits[number] = here
        known, owner = np.unique((known[owner] << np.uint64(_DIGIT)) | next_bits, return_inverse=True)
    return _rewards(known)


def _by_next_bits(pieces: Pieces, known: Shaped[Array, "k"], shift: int) -> Float[Array, "k n 2"]:
    """Number and size of the rewards that begin with the known bits, by their next bits."""
    n = 1 << _DIGIT
    found = np.zeros((2, len(known) * n))
    for rewards in pieces():
        others = rewards[rewards != 0]
        bits = _keys(others) >> np.uint64(shift)
        first = bits >> np.uint64(_DIGIT)
        place = np.minimum(np.searchsorted(known, first), len(known) - 1)
        here = known[place] == first
        cells = place[here] * n + (bits[here] & np.uint64(n - 1)).astype(np.int64)
        found[0] += np.bincount(cells, minlength=len(known) * n)
        found[1] += np.bincount(cells, np.abs(others[here]), minlength=len(known) * n)
    return found.T.reshape(len(known), n, 2)


def _keys(rewards: Float[Array, "s"]) -> Shaped[Array, "s"]:
    """Whole numbers in the order of the rewards, with all of their bits."""
    bits = rewards.view(np.uint64)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def _rewards(keys: Shaped[Array, "s"]) -> Float[Array, "s"]:
    return np.where(keys & _SIGN, keys ^ _SIGN, ~keys).view(np.float64)
