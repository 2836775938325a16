"""observe: encode a log for its reward family."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..checks import POSITIVE, OneOf, check, check_array, optional
from ..data import Episodes, Packed
from ..errors import InvalidArgument
from ..model import Bins, distinct_values
from .categorical import CategoricalObservations
from .gaussian import GaussianObservations
from .observations import Observations

FAMILIES = ("categorical", "gaussian", "binned")


def bins_of(episodes: Episodes | Packed) -> Bins:
    """How binned rewards are cut: 0 apart, the others at quantiles; the same for the same log."""
    return Bins.with_zero_apart(episodes.load().rewards)


def observe(
    episodes: Episodes | Packed, *, rewards: str | None = None, values: Any = None, scale: float | None = None
) -> Observations:
    """The log encoded for the named family of rewards, as `estimate` does it.

    Categorical rewards of a packed log stay in their files; other rewards are read into memory.

    Binned rewards are cut into values, and the episodes of the encoded log hold these values; `bins_of` says how.
    """
    check("rewards", rewards, optional(OneOf(FAMILIES)))
    if isinstance(episodes, Packed) and (rewards in ("binned", "gaussian") or episodes.values is None):
        episodes = episodes.load()
    if rewards == "binned":
        if values is not None or scale is not None:
            raise InvalidArgument("values and scale must be None for binned rewards, got some")
        bins = bins_of(episodes)
        return CategoricalObservations.encode(bins.cut(episodes.load()), bins.values, bins.edges)
    if rewards == "gaussian":
        if values is not None:
            raise InvalidArgument("values must be None for gaussian rewards, got some")
        check("scale", scale, optional(POSITIVE))
        return GaussianObservations.encode(episodes.load(), None if scale is None else float(scale))
    if scale is not None:
        raise InvalidArgument(f"scale must be None unless rewards='gaussian', got {scale!r}")
    if values is not None:
        return CategoricalObservations.encode(episodes, np.unique(check_array("values", values, ndim=1)))
    seen = episodes.values if isinstance(episodes, Packed) else episodes.rewards
    assert seen is not None
    return CategoricalObservations.encode(episodes, distinct_values(seen, limited=rewards is None))
