"""observe: Episodes -> Observations of the right reward family."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..checks import POSITIVE, OneOf, check, check_array, optional
from ..data import Episodes
from ..errors import InvalidArgument
from ..model import distinct_values
from .categorical import CategoricalObservations
from .gaussian import GaussianObservations
from .observations import Observations


def observe(
    episodes: Episodes, *, rewards: str | None = None, values: Any = None, scale: float | None = None
) -> Observations:
    """The log encoded for the named family of rewards, as `estimate` does it."""
    check("rewards", rewards, optional(OneOf(("categorical", "gaussian"))))
    if rewards == "gaussian":
        if values is not None:
            raise InvalidArgument("values must be None for gaussian rewards, got some")
        check("scale", scale, optional(POSITIVE))
        return GaussianObservations.encode(episodes, None if scale is None else float(scale))
    if scale is not None:
        raise InvalidArgument(f"scale must be None unless rewards='gaussian', got {scale!r}")
    if values is not None:
        return CategoricalObservations.encode(episodes, np.unique(check_array("values", values, ndim=1)))
    return CategoricalObservations.encode(episodes, distinct_values(episodes.rewards, limited=rewards is None))
