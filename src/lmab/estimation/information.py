"""Observed information of a log and a prior about a bandit, which is computed only here.

It is minus the second derivatives of log-likelihood plus log prior, by Louis' identity: the information of a log in
which the types were seen, plus that of the prior, less what is missing because they were not seen. Each reward
family fills in its own part (`categorical/information.py`, `gaussian/information.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from .._shapes import Array, Float, Integer
from ..errors import TooLarge
from .coordinates import Coordinates, contrasts, covariances
from .passes import Passes, spans

MAX_PARAMETERS = 6000  # whose information matrix is still decomposed in minutes
_STEPS = 1 << 18  # steps whose scores are held at once

Part = Callable[[int, int], Float[Array, "Q Q"]]  # what distinct sessions low to high - 1 tell


@dataclass(frozen=True, eq=False)
class Information:
    """The information about the coordinates of a bandit."""

    matrix: Float[Array, "P P"]
    coordinates: Coordinates


def check_size(n_types: int, size: int) -> None:
    """Refuse what takes too long; `size` counts one coordinate per type for the weights."""
    if size > MAX_PARAMETERS:
        raise TooLarge(
            f"the information about {size} parameters of {n_types} types was asked for, more than "
            f"{MAX_PARAMETERS}: fit fewer types, or merge rare arms or values"
        )


class Parted(Protocol):
    """Steps that can be looked at part by part."""

    @property
    def n_steps(self) -> int: ...

    def parts(self, result_bytes: int) -> Integer[Array, "B 2"]:
        """The first session of each part, and the one after its last."""

    def window(self, low: int, high: int) -> Any:
        """Arrays that hold some sessions: `offsets`, of which those from `low` to `high` count."""


def summed(part: Part, steps: Parted, size: int, passes: Passes) -> Float[Array, "Q Q"]:
    """The sum of what all sessions tell, in one pass over a log."""
    parts = steps.parts(8 * size**2)
    (found,) = passes.ordered(_parts, len(parts), steps, part, parts, work=steps.n_steps)
    return found.sum(axis=0)


def _parts(
    steps: Parted, part: Part, parts: Integer[Array, "B 2"], first: int, last: int
) -> tuple[Float[Array, "n Q Q"]]:
    found = []
    for start, end in parts[first:last].tolist():
        window = steps.window(start, end)
        ranges = spans(window.offsets[window.low : window.high + 1], _STEPS)
        total = part(start + ranges[0][0], start + ranges[0][1])
        for low, high in ranges[1:]:
            total += part(start + low, start + high)
        found.append(total)
    return (np.stack(found),)


def with_weights(matrix: Float[Array, "Q Q"], weights: Float[Array, "M"], n_sessions: float) -> Float[Array, "P P"]:
    """Add what seen types would tell about the weights, whose M logits come first, and keep M - 1 of these.

    Only differences of the logits matter.
    """
    n, basis = len(weights), contrasts(len(weights))
    matrix[:n, :n] += n_sessions * covariances(weights)
    top = basis.T @ matrix[:n]
    return np.block([[top[:, :n] @ basis, top[:, n:]], [top[:, n:].T, matrix[n:, n:]]])


def normalised(logs: Float[Array, "n M"], weights: Float[Array, "M"]) -> Float[Array, "n M"]:
    """Posteriors from the logs of joint probabilities; an impossible session gets the weights."""
    top = logs.max(axis=1, keepdims=True)
    possible = np.isfinite(top[:, 0])
    shares = np.tile(weights, (len(logs), 1))
    raised = np.exp(logs[possible] - top[possible])
    shares[possible] = raised / raised.sum(axis=1, keepdims=True)
    return shares
