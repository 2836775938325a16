"""The values of rewards: which ones a log holds, and the index of each reward among them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from .._shapes import Array, Float, Integer, Shaped
from ..errors import InvalidArgument

MAX_VALUES = 32  # distinct rewards up to which they are taken as categories
_CHUNK = 1 << 20  # rewards whose distinct values are collected at once


def distinct_values(rewards: Float[Array, "S"] | Iterable[Float[Array, "_"]], *, limited: bool) -> Float[Array, "Z"]:
    """The distinct rewards, sorted; more than 32 raise where `limited`, because the caller must say what they are.

    Rewards may come in pieces, so that not all of them are in memory.
    """
    values = np.empty(0)
    pieces = [rewards] if isinstance(rewards, np.ndarray) else rewards
    for part in (piece[start : start + _CHUNK] for piece in pieces for start in range(0, len(piece), _CHUNK)):
        values = np.union1d(values, part)
        if limited and len(values) > MAX_VALUES:
            raise InvalidArgument(
                f"rewards must be named where the log holds more than {MAX_VALUES} distinct rewards: "
                f"rewards='binned' for amounts such as money or seconds, rewards='gaussian' for measurements around a "
                f"mean, rewards='categorical' for categories; got None"
            )
    return values


def index_among(
    values: Float[Array, "Z"], rewards: Shaped[Array, "n"], *, first_step: int = 0, others: bool = False
) -> Integer[Array, "n"]:
    """The index of each reward among `values`; only this function turns rewards into indices.

    Another reward raises an error that names its step, counted from `first_step`; with `others` it gets the index Z.

    Examples:
        >>> import numpy as np
        >>> index_among(np.array([0.0, 1.0]), np.array([1.0, 0.5]), others=True)
        array([1, 2])
    """
    order = np.argsort(values)
    index = order[np.minimum(np.searchsorted(values, rewards, sorter=order), len(values) - 1)]
    wrong = values[index] != rewards
    if others:
        return np.where(wrong, len(values), index)
    if wrong.any():
        first = int(np.flatnonzero(wrong)[0])
        raise InvalidArgument(
            f"rewards must be among the values {values.tolist()}, got {rewards[first]} at step {first_step + first}"
        )
    return index
