"""Sobol sequences of few dimensions: those of SciPy, whose module of statistics takes half a second to import."""

from __future__ import annotations

import numpy as np

from ..._shapes import Array, Float, Integer

_BITS = 30
#: Primitive polynomials, and the first direction numbers, of dimensions 2 to 10 (Joe and Kuo 2008, new-joe-kuo-6).
_DIRECTIONS = (
    (0b11, (1,)),
    (0b111, (1, 3)),
    (0b1011, (1, 3, 1)),
    (0b1101, (1, 1, 1)),
    (0b10011, (1, 1, 3, 3)),
    (0b11001, (1, 3, 5, 13)),
    (0b100101, (1, 1, 5, 5, 17)),
    (0b101001, (1, 1, 5, 5, 5)),
    (0b101111, (1, 1, 7, 11, 19)),
)
MOST_DIMENSIONS = 1 + len(_DIRECTIONS)


def scrambled_sobol(n_dimensions: int, power: int, seed: int) -> Float[Array, "n d"]:
    """Return the first 2^power points of a scrambled Sobol sequence in the unit cube.

    The scrambling is a random linear matrix and a digital shift (Matousek 1998), drawn as `scipy.stats.qmc.Sobol`
    draws them.

    Examples:
        >>> scrambled_sobol(2, 1, seed=0).shape
        (2, 2)
    """
    rng, shape = np.random.default_rng(seed), (n_dimensions, _BITS)
    weights = 2 ** np.arange(_BITS, dtype=np.uint32)
    state = rng.integers(2, size=shape, dtype=np.uint32) @ weights
    lower = np.tril(rng.integers(2, size=(*shape, _BITS), dtype=np.uint32))
    lower[:, np.arange(_BITS), np.arange(_BITS)] = 1
    directions = _scrambled(_direction_numbers(n_dimensions), lower)
    points = np.empty((2**power, n_dimensions))
    for i in range(len(points)):
        points[i] = state
        lowest_zero = (~i & (i + 1)).bit_length() - 1
        if lowest_zero < _BITS:
            state = state ^ directions[:, lowest_zero]
    return points / 2.0**_BITS


def _direction_numbers(n_dimensions: int) -> Integer[Array, "d b"]:
    """Return the direction numbers, scaled to integers of `_BITS` bits."""
    found = np.ones((n_dimensions, _BITS), np.uint32)
    for own, (polynomial, first) in zip(found[1:], _DIRECTIONS, strict=False):
        degree = len(first)
        own[:degree] = first
        for j in range(degree, _BITS):
            own[j] = own[j - degree]
            for k in range(1, degree + 1):
                if polynomial >> (degree - k) & 1:
                    own[j] ^= own[j - k] << np.uint32(k)
    return found << np.arange(_BITS - 1, -1, -1, dtype=np.uint32)


def _scrambled(directions: Integer[Array, "d b"], lower: Integer[Array, "d b b"]) -> Integer[Array, "d b"]:
    """Return the direction numbers multiplied, as vectors of bits, by the triangular matrices."""
    bits = directions[:, None, :] >> np.arange(_BITS - 1, -1, -1, dtype=np.uint32)[:, None] & 1  # the highest first
    products = (lower @ bits) % 2
    return (products << np.arange(_BITS - 1, -1, -1, dtype=np.uint32)[:, None]).sum(axis=1).astype(np.uint32)
