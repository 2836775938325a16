"""What was given in the place of a log: errors that say how to make one."""

from __future__ import annotations

import os
from typing import Any

from ..errors import InvalidArgument


def require_log(name: str, value: Any) -> None:
    """Raise, with the call that makes a log of it, where `value` is a data frame, a path or something else.

    Examples:
        >>> require_log("sessions", "x.csv")
        Traceback (most recent call last):
        lmab.errors.InvalidArgument: sessions must be a log: read it by lmab.Sessions.read('x.csv', ...), got a str
    """
    if hasattr(value, "n_arms") and hasattr(value, "arm_labels") and hasattr(value, "__len__"):
        return
    kind = type(value).__name__
    if isinstance(value, str | os.PathLike):
        how = f"read it by lmab.Sessions.read({os.fspath(value)!r}, ...)"
    elif hasattr(value, "columns"):
        how = "make it by lmab.Sessions.from_frame(frame, session=..., arm=..., reward=...)"
    else:
        how = "make it by lmab.Sessions.read, from_frame, from_events or from_arrays"
    raise InvalidArgument(f"{name} must be a log: {how}, got a {kind}")
