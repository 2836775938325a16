"""Models as arrays, so that they can be added, subtracted and extrapolated whatever their reward family.

A batch of R models is one array (R, K, P): row 0 holds the weights, the other rows what the family needs, in P columns
(M types, padded with types of weight 0 to a multiple of 8: see `padded`).
"""

from __future__ import annotations

import numpy as np

from .._shapes import Array, Float, Shaped

LANES = 8  # types the kernel works on at a time
_WIDE = 128  # columns from which on a power of two of them is avoided
_CHUNK = 1 << 20  # numbers counted at once


def padded(n_types: int) -> int:
    """Columns of a model with `n_types` types.

    Wide models have an odd number of lanes: the kernel walks through rows at one column, and where rows are a power of
    two apart they would all compete for the same few lines of the processor's cache.
    """
    lanes = -(-n_types // LANES)
    return (lanes | 1) * LANES if lanes * LANES >= _WIDE else lanes * LANES


def equal_weights(n_models: int, n_rows: int, n_types: int) -> Float[Array, "R K P"]:
    """Models of equal weights and zeros elsewhere."""
    models = np.zeros((n_models, n_rows, padded(n_types)))
    models[:, 0, :n_types] = 1 / n_types
    return models


def normalised_weights(masses: Float[Array, "R P"], floor: Float[Array, "R P"] | float = 0.0) -> Float[Array, "R P"]:
    """Weights in proportion to `masses`, none below `floor` before they are made to sum to 1."""
    masses = np.maximum(masses, floor)
    return masses / masses.sum(axis=1, keepdims=True)


def tally(numbers: Shaped[Array, "S"], size: int) -> Float[Array, "n"]:
    """How often each of 0 to size - 1 occurs; in chunks, since counting needs wide integers."""
    chunks = range(0, len(numbers), _CHUNK)
    return sum((np.bincount(numbers[i : i + _CHUNK], minlength=size) for i in chunks), np.zeros(size))


def frozen(array: Array) -> Array:
    """A read-only view: kernels are compiled once for arrays that are always of one kind."""
    view = array.view()
    view.flags.writeable = False
    return view
