"""Sessions from events: the events of a person with short pauses between them belong to one session."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from .._shapes import Array, Bool, Shaped
from ..errors import InvalidArgument

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_EPOCHS = ((1e17, 1e-9, "nanoseconds"), (1e14, 1e-6, "microseconds"), (1e11, 1e-3, "milliseconds"))


class Gap(NamedTuple):
    """The pause that ends a session."""

    size: float
    in_seconds: bool  # else in the units of a column of numbers


def gap_of(gap: str | float) -> Gap:
    """The pause that `gap` describes: `30m`, `90s`, `2h`, `1d`, or a number in the units of the column.

    Examples:
        >>> gap_of("30m")
        Gap(size=1800.0, in_seconds=True)
        >>> gap_of(50)
        Gap(size=50.0, in_seconds=False)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([smhd]?)\s*", str(gap))
    size = 0.0 if match is None or isinstance(gap, bool) else float(match[1]) * _SECONDS.get(match[2], 1.0)
    if match is None or not 0 < size < np.inf:
        raise InvalidArgument(
            f"gap must be a time such as '30m', '90s', '2h' or '1d', or a positive number, got {gap!r}"
        )
    return Gap(size, bool(match[2]))


def unit_of(times: Shaped[Array, "S"], gap: Gap) -> tuple[float, str | None]:
    """Seconds per unit of a column of numbers; the unit's name where it was guessed from the size of the numbers."""
    if gap.in_seconds and len(times):
        top = float(np.abs(times.astype(np.float64)).max())
        for least, seconds, name in _EPOCHS:
            if top > least:
                return seconds, name
    return 1.0, None


def breaks(persons: Shaped[Array, "S"], times: Shaped[Array, "S"], gap: Gap, seconds: float) -> Bool[Array, "S"]:
    """Whether each event, in the order of persons and times, begins a session.

    Examples:
        >>> import numpy as np
        >>> breaks(np.array([1, 1, 1, 2]), np.array([0, 10, 40, 41]), Gap(30.0, True), 1.0)
        array([ True, False,  True,  True])
    """
    pauses = np.diff(times).astype(np.float64) * seconds
    return np.concatenate([[True], (persons[1:] != persons[:-1]) | (pauses >= gap.size)])
