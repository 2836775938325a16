"""observe: encode a log for its reward family."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from .._shapes import Array, Float
from ..checks import POSITIVE, OneOf, check, check_array, optional
from ..data.packed import Packed
from ..data.sessions import Sessions
from ..errors import InvalidArgument
from ..model.bins import Bins
from ..model.rewards import distinct_values, encode_values
from .categorical import CategoricalLog
from .counts import CountsLog
from .gaussian import GaussianLog
from .log import Log

FAMILIES = ("categorical", "gaussian", "binned", "counts")
_SESSIONS = 1 << 16  # Sessions whose rewards are looked at together.


def observe(
    sessions: Sessions | Packed, *, rewards: str | None = None, values: Any = None, scale: float | None = None
) -> Log:
    """Return the log encoded for the named family of rewards, as `fit` does it.

    The rewards of a packed log stay in its files.

    Binned rewards are cut into values (0 apart, the others at quantiles), and the sessions of the encoded log hold
    these values.
    """
    check("rewards", rewards, optional(OneOf(FAMILIES)))
    if rewards == "binned":
        if values is not None or scale is not None:
            raise InvalidArgument("values and scale must be None for binned rewards, got some")
        bins = Bins.with_zero_bin_from_log(sessions)
        return CategoricalLog.encode(bins.cut(sessions), bins.values, edges=bins.edges)
    if rewards == "gaussian":
        if values is not None:
            raise InvalidArgument("values must be None for gaussian rewards, got some")
        check("scale", scale, optional(POSITIVE))
        return GaussianLog.encode(sessions, None if scale is None else float(scale))
    if rewards == "counts":
        if values is not None or scale is not None:
            raise InvalidArgument("values and scale must be None for counts, got some")
        seen = distinct_values(_pieces(sessions), limited=False)
        return CountsLog.of(_listed(sessions, seen), seen)
    if scale is not None:
        raise InvalidArgument(f"scale must be None unless rewards='gaussian', got {scale!r}")
    if values is not None:
        known = np.unique(check_array("values", values, ndim=1))
        return CategoricalLog.encode(_listed(sessions, known), known)
    seen = distinct_values(_pieces(sessions), limited=rewards is None)
    return CategoricalLog.encode(_listed(sessions, seen), seen)


def _pieces(sessions: Sessions | Packed) -> Iterable[Float[Array, "_"]]:
    """Rewards among which each reward of the log is."""
    if isinstance(sessions, Packed) and sessions.values is None:
        return (chunk.rewards for chunk in sessions.chunks(_SESSIONS))
    return [sessions.some_rewards]


def _listed(sessions: Sessions | Packed, values: Float[Array, "Z"]) -> Sessions | Packed:
    """Return a packed log without a list of its rewards, with this list of them, less what no step paid."""
    if isinstance(sessions, Sessions) or sessions.values is not None:
        return sessions
    paid, step = np.zeros(len(values), bool), 0
    for chunk in sessions.chunks(_SESSIONS):
        paid[encode_values(values, chunk.rewards, first_step=step)] = True
        step += chunk.n_steps
    return sessions.cut(values[paid][1:], values[paid])
