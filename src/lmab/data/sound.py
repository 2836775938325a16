"""What the columns of a log must be: of one length, arms that there are, finite rewards, propensities in (0, 1]."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._shapes import Array, Float, Integer
from ..errors import InvalidArgument, InvalidData

_CHUNK = 1 << 20  # steps looked at once: a mask of all steps would be seen in the memory of large logs


def require_sound(
    arms: Integer[Array, "S"], rewards: Float[Array, "R"], offsets: Integer[Array, "N1"], n_arms: int,
    propensities: Float[Array, "P"] | None, arm_labels: tuple[str | int, ...] | None,
) -> None:  # fmt: skip
    """Raise an error that says what is wrong with the columns, and at which step, where something is."""
    n_steps = len(arms)
    if len(offsets) < 2:
        raise InvalidArgument("sessions must hold at least one session, got none")
    if offsets[0] != 0 or offsets[-1] != n_steps or (offsets[1:] <= offsets[:-1]).any():
        raise InvalidArgument(f"offsets must rise from 0 to the number of steps ({n_steps}), by at least 1 each")
    if len(rewards) != n_steps or (propensities is not None and len(propensities) != n_steps):
        raise InvalidArgument(f"arms, rewards and propensities must have the same length, got {n_steps} arms")
    if arms.min() < 0 or arms.max() >= n_arms:
        where = int(np.flatnonzero((arms < 0) | (arms >= n_arms))[0])
        raise InvalidArgument(f"arms must be in 0..{n_arms - 1}, got {arms[where]} at step {where}")
    _require_finite("rewards", rewards)
    if propensities is not None:
        _require_probability("propensities", propensities)
    if arm_labels is not None and len(set(arm_labels)) != n_arms:
        raise InvalidArgument(f"arm_labels must be {n_arms} distinct labels, got {len(arm_labels)}")


def frozen(column: Any, dtype: Any) -> Array:
    """The column as an array of that type that cannot be written to; the caller's own array stays as it is."""
    view = np.ascontiguousarray(column, dtype).view()
    view.flags.writeable = False
    return view


def _require_finite(name: str, column: Float[Array, "S"]) -> None:
    for start in range(0, len(column), _CHUNK):
        good = np.isfinite(column[start : start + _CHUNK])
        if not good.all():
            row = start + int(good.argmin())
            raise InvalidData(f"{name} must be finite, got {column[row]} at step {row}")


def _require_probability(name: str, column: Float[Array, "S"]) -> None:
    bad = ~((column > 0) & (column <= 1))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise InvalidData(f"{name} must be in (0, 1], got {column[row]} at step {row}")
