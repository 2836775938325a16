"""Observed information about weights, means and scale of normal rewards.

Means are measured in units of the scale, and the scale by its logarithm, so that no unit of the rewards matters.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..._kernel import kernel
from ..._shapes import Array, Bool, Float
from ...model import Gaussian
from ..coordinates import Coordinates, within_support
from ..information import Information, check_size, normalised, summed, with_weights
from ..passes import Passes
from ..prior import Prior
from .log import GaussianLog


@dataclass(frozen=True, eq=False)
class GaussianCoordinates(Coordinates):
    """Logits of the weights, the means in the order (arm, type), and the scale's logarithm unless it is known."""

    weights: Float[Array, "M"]
    rewards: Gaussian
    played: Bool[Array, "A"]
    scale_is_known: bool

    @property
    def size(self) -> int:
        return len(self.weights) - 1 + self.rewards.n_parameters + (not self.scale_is_known)

    @property
    def fixed(self) -> Bool[Array, "M A"]:
        return np.tile(~self.played, (len(self.weights), 1))

    def free(self) -> Any:
        from scipy.sparse import block_diag, csr_array, eye_array

        blocks = [csr_array(within_support(self.weights))]
        rewards = np.append(np.repeat(self.played, len(self.weights)), [True] * (not self.scale_is_known))
        blocks.append(eye_array(len(rewards), format="csr")[:, np.flatnonzero(rewards)])
        return csr_array(block_diag(blocks))

    def means_along(self, directions: Float[Array, "P F"]) -> Float[Array, "M A F"]:
        return self.rewards.scale * self._of_means(directions.T).transpose(2, 1, 0)

    def moved(self, moves: Float[Array, "B P"]) -> list[Any]:
        means = self.rewards.means + self.rewards.scale * self._of_means(moves).swapaxes(1, 2)
        changes = np.zeros(len(moves)) if self.scale_is_known else moves[:, -1]
        scales = self.rewards.scale * np.exp(changes)
        return [Gaussian(*pair) for pair in zip(means, scales.tolist(), strict=True)]

    def _of_means(self, moves: Float[Array, "B P"]) -> Float[Array, "B A M"]:
        first, n_means = len(self.weights) - 1, self.rewards.means.size
        return moves[:, first : first + n_means].reshape(len(moves), self.rewards.n_arms, len(self.weights))


def gaussian_information(
    log: GaussianLog, weights: Float[Array, "M"], rewards: Gaussian, prior: Prior, passes: Passes
) -> Information:
    """The information of the log and the prior."""
    scale_is_known = log.known_scale is not None
    size = len(weights) + rewards.means.size + (not scale_is_known)
    check_size(len(weights), size)
    part = partial(_part, log, weights, rewards)
    matrix = summed(part, log.steps, size, passes)
    strength = np.repeat(prior.strength[:, None], len(weights), axis=1)
    deviations = (prior.centre[:, None] - rewards.means.T) / rewards.scale
    _add_seen(matrix, strength, strength * deviations, strength * deviations**2)
    matrix = with_weights(matrix[:size, :size], weights, float(log.n_distinct))
    return Information(matrix, GaussianCoordinates(weights, rewards, log.played, scale_is_known))


def _part(log: GaussianLog, weights: Float[Array, "M"], rewards: Gaussian, low: int, high: int) -> Float[Array, "Q Q"]:
    """What some sessions tell about means and scale, less what is missing because their types are not seen."""
    n_types, n_arms = rewards.means.shape
    window = log.steps.window(low, high).own
    offsets, arms = window.offsets, window.arms.astype(np.int64)
    deviations = (window.residuals[:, None] - (rewards.means - log.centres).T[arms]) / rewards.scale  # (S, M)
    with np.errstate(divide="ignore"):
        joint = np.log(weights) + np.add.reduceat(-0.5 * deviations**2, offsets[:-1], axis=0)
    shares = normalised(joint, weights)
    size = n_types * (1 + n_arms)
    result = np.zeros((size + 1, size + 1))
    missing, rows = np.empty((size, size)), np.arange(len(arms))
    kernel("information").missing(arms, rows, offsets, np.ones(len(shares)), shares, deviations[:, :, None], missing)
    result[:-1, :-1] -= missing
    expected = np.repeat(shares, np.diff(offsets), axis=0)

    def by_arm(terms: Float[Array, "S M"]) -> Float[Array, "A M"]:
        return np.stack([np.bincount(arms, column, minlength=n_arms) for column in terms.T], axis=1)

    _add_seen(result, by_arm(expected), by_arm(expected * deviations), by_arm(expected * deviations**2))
    scores = np.add.reduceat(deviations**2 - 1, offsets[:-1], axis=0)  # of the logarithm of the scale
    unsure = shares * (scores - (shares * scores).sum(axis=1, keepdims=True))
    with_means = by_arm(np.repeat(unsure, np.diff(offsets), axis=0) * deviations)
    across = np.concatenate([unsure.sum(axis=0), with_means.ravel()])
    result[-1, :-1] -= across
    result[:-1, -1] -= across
    result[-1, -1] -= (unsure * scores).sum()
    return result


def _add_seen(
    matrix: Float[Array, "Q Q"], plays: Float[Array, "A M"], sums: Float[Array, "A M"], squares: Float[Array, "A M"]
) -> None:
    """Add the information of plays in known types, given the sums of their deviations in units of the scale."""
    index = np.arange(plays.shape[1], plays.shape[1] + plays.size)
    matrix[index, index] += plays.ravel()
    matrix[index, -1] += 2 * sums.ravel()
    matrix[-1, index] += 2 * sums.ravel()
    matrix[-1, -1] += 2 * squares.sum()
