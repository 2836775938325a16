"""Coordinates: unbounded parameters around a bandit, in which its information is measured and it can be moved.

Distributions over n outcomes (the weights; the reward values of an arm in a type) are described by logits: they are
softmax(log p + B x) with n - 1 coordinates x. The columns of B sum to 0 and are orthogonal, of length 1/sqrt(2): for
two outcomes x is the usual logit, and for more no outcome is singled out as the reference. All coordinates are 0 at
the bandit itself, those of the weights come first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from typing import Any

import numpy as np

from .._shapes import Array, Bool, Float

AT_ZERO = 1e-7  # probabilities below this are at the boundary
_IMPOSSIBLE = 1e-12  # probabilities below this are taken for this: logits are finite


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
        """The rewards of the bandit, of its own family, after every move."""

    @property
    def fixed_weights(self) -> Bool[Array, "M"]:
        """Weights on their boundary; the only weight of one type is 1 without error."""
        alive = self.weights > AT_ZERO
        return ~alive | ((alive.sum() == 1) & (len(alive) > 1))

    def weights_along(self, directions: Float[Array, "P F"]) -> Float[Array, "M F"]:
        """Derivatives of the weights along the directions."""
        return covariances(self.weights) @ contrasts(len(self.weights)) @ directions[: len(self.weights) - 1]

    def moved_weights(self, moves: Float[Array, "B P"]) -> Float[Array, "B M"]:
        """The weights after every move."""
        return moved_distributions(self.weights, moves[:, : len(self.weights) - 1])


def contrasts(n: int) -> Float[Array, "n n1"]:
    """The matrix B of softmax(B x): n rows, n - 1 orthogonal columns of length 1/sqrt(2) that sum to 0."""
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
    """The distributions with their logits moved."""
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
