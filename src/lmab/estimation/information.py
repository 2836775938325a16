"""Observed information of a log and a prior about a bandit, and the standard errors that follow from it.

It is minus the second derivatives of log-likelihood plus log prior, by Louis' identity: the information of a log in
which the types were seen, plus that of the prior, less what is missing because they were not seen. Each reward family
fills in its own part.

Coordinates are unbounded parameters around a bandit, in which its information is measured and it can be moved.
Distributions over n outcomes (the weights; the reward values of an arm in a type) are described by logits: they are
softmax(log p + B x) with n - 1 coordinates x. The columns of B sum to 0 and are orthogonal, of length 1/sqrt(2): for
two outcomes x is the usual logit, and for more no outcome is singled out as the reference. All coordinates are 0 at
the bandit itself, those of the weights come first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import numpy as np

from .._shapes import Array, Bool, Float, Integer
from ..errors import TooLarge
from ..parallel import Passes
from .passes import spans

MAX_PARAMETERS = 6000  # Parameters whose information matrix is still decomposed in minutes.
_STEPS = 1 << 18  # Steps whose scores are held at once.
Part = Callable[[int, int], Float[Array, "Q Q"]]  # what distinct sessions low to high - 1 tell
AT_ZERO = 1e-7  # probabilities below this are at the boundary
_IMPOSSIBLE = 1e-12  # probabilities below this are taken for this: logits are finite
_FLAT = 1e-5  # scaled eigenvalues below this: the log says nothing, up to how near the estimate is to the maximum
_TOUCHED = 1e-6  # part of a quantity's slope in such directions that makes it one the log does not determine
_NOTHING = 1e-12  # least information that a coordinate is scaled by


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
    """A log that can be looked at part by part."""

    @property
    def n_steps(self) -> int: ...

    def parts(self, result_bytes: int) -> Integer[Array, "B 2"]:
        """Return the first session of each part, and the one after its last."""

    def steps(self, low: int, high: int) -> Any:
        """Arrays that hold some sessions: `offsets`, of which those from `low` to `high` count."""


def summed(part: Part, log: Parted, size: int, passes: Passes) -> Float[Array, "Q Q"]:
    """Return the sum of what all sessions tell, in one pass over a log."""
    parts = log.parts(8 * size**2)
    (found,) = passes.ordered(_parts, len(parts), log, part, parts, work=log.n_steps)
    return found.sum(axis=0)


def _parts(
    log: Parted, part: Part, parts: Integer[Array, "B 2"], first: int, last: int
) -> tuple[Float[Array, "n Q Q"]]:
    found = []
    for start, end in parts[first:last].tolist():
        steps = log.steps(start, end)
        ranges = spans(steps.offsets[steps.low : steps.high + 1], _STEPS)
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


class Coordinates(ABC):
    """P coordinates around a bandit of M types and A arms."""

    weights: Float[Array, "M"]
    played: Bool[Array, "A"]  # arms that the log says anything about

    @property
    @abstractmethod
    def size(self) -> int:
        """P."""

    @property
    @abstractmethod
    def fixed(self) -> Bool[Array, "M A"]:
        """Means on their boundary, and those of arms never played: no error can be stated for them."""

    @abstractmethod
    def free(self) -> Any:
        """Sparse (P, F): columns that span the directions in which nothing leaves its boundary."""

    @abstractmethod
    def means_along(self, directions: Float[Array, "P F"]) -> Float[Array, "M A F"]:
        """Derivatives of the means along the directions."""

    @abstractmethod
    def moved(self, moves: Float[Array, "B P"]) -> list[Any]:
        """Return the rewards of the bandit, of its own family, after every move."""

    @property
    def fixed_weights(self) -> Bool[Array, "M"]:
        """Weights on their boundary; the only weight of one type is 1 without error."""
        alive = self.weights > AT_ZERO
        return ~alive | ((alive.sum() == 1) & (len(alive) > 1))

    def weights_along(self, directions: Float[Array, "P F"]) -> Float[Array, "M F"]:
        """Derivatives of the weights along the directions."""
        return covariances(self.weights) @ contrasts(len(self.weights)) @ directions[: len(self.weights) - 1]

    def moved_weights(self, moves: Float[Array, "B P"]) -> Float[Array, "B M"]:
        """Return the weights after every move."""
        return moved_distributions(self.weights, moves[:, : len(self.weights) - 1])


def contrasts(n: int) -> Float[Array, "n n1"]:
    """Return the matrix B of softmax(B x): n rows, n - 1 orthogonal columns of length 1/sqrt(2) that sum to 0."""
    columns = np.zeros((n, n - 1))
    for k in range(1, n):
        columns[:k, k - 1] = -1.0
        columns[k, k - 1] = k
        columns[:, k - 1] /= np.sqrt(2 * k * (k + 1))
    return columns


def covariances(probabilities: Float[Array, "*n Z"]) -> Float[Array, "*n Z Z"]:
    """diag(p) - p p' of every distribution: what one draw tells about its logits."""
    diagonal = probabilities[..., None] * np.eye(probabilities.shape[-1])
    return diagonal - probabilities[..., :, None] * probabilities[..., None, :]


def moved_distributions(probabilities: Float[Array, "*n Z"], moves: Float[Array, "B *n K"]) -> Float[Array, "B *n Z"]:
    """Return the distributions with their logits moved."""
    logits = np.log(np.maximum(probabilities, _IMPOSSIBLE)) + moves @ contrasts(probabilities.shape[-1]).T
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)


def within_support(probabilities: Float[Array, "Z"]) -> Float[Array, "K k"]:
    """Directions of the K = Z - 1 coordinates that move only the logits of outcomes off the boundary."""
    return _within(tuple((probabilities > AT_ZERO).tolist()))


@cache
def _within(support: tuple[bool, ...]) -> Float[Array, "K k"]:
    inside = np.flatnonzero(support)
    moves = np.zeros((len(support), max(len(inside) - 1, 0)))
    if len(inside):
        moves[inside] = contrasts(len(inside))
    return 2 * contrasts(len(support)).T @ moves  # the columns of the contrasts have length 1/sqrt(2)


@dataclass(frozen=True, eq=False)
class StandardErrors:
    """One standard error per weight and mean.

    Infinite where the log does not determine the quantity; NaN where it sits on its boundary (an arm that pays the
    same in every play of a type) or the arm was never played.
    """

    weights: Float[Array, "M"]
    means: Float[Array, "M A"]


def standard_errors(information: Information) -> StandardErrors:
    """Standard errors by the delta method, from the inverse of the information where no boundary is near."""
    coordinates = information.coordinates
    free = coordinates.free()
    matrix = free.T @ (free.T @ information.matrix).T
    scale = np.sqrt(np.maximum(np.diag(matrix), _NOTHING))
    values, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    directions = free @ (vectors / scale[:, None])
    weights = _errors(coordinates.weights_along(directions), values)
    means = _errors(coordinates.means_along(directions), values)
    weights[coordinates.fixed_weights] = np.nan
    means[coordinates.fixed] = np.nan
    return StandardErrors(weights, means)


def _errors(slopes: Float[Array, "*n F"], values: Float[Array, "F"]) -> Float[Array, "*n"]:
    """Square roots of the variances of quantities, given their slopes along the eigenvectors of the information."""
    flat = values < _FLAT
    variance = (slopes[..., ~flat] ** 2 / values[~flat]).sum(axis=-1)
    touched = (slopes[..., flat] ** 2).sum(axis=-1) > _TOUCHED * (slopes**2).sum(axis=-1)
    return np.where(touched, np.inf, np.sqrt(variance))
