"""Observed information about weights and probabilities, in logits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..._kernel import kernel
from ..._shapes import Array, Bool, Float, Integer
from ...model import Categorical
from ..coordinates import AT_ZERO, Coordinates, contrasts, covariances, moved_distributions, within_support
from ..information import Information, check_size, normalised, summed, with_weights
from ..passes import Passes
from ..prior import Prior
from .log import CategoricalLog


@dataclass(frozen=True, eq=False)
class CategoricalCoordinates(Coordinates):
    """Logits of the weights, then of the rewards in the order (arm, type, Z - 1)."""

    weights: Float[Array, "M"]
    rewards: Categorical
    played: Bool[Array, "A"]

    @property
    def size(self) -> int:
        return len(self.weights) - 1 + self.rewards.n_parameters

    @property
    def fixed(self) -> Bool[Array, "M A"]:
        return ((self.rewards.probabilities > AT_ZERO).sum(axis=2) < 2) | ~self.played

    def free(self) -> Any:
        from scipy.sparse import block_diag, csr_array

        nothing = np.zeros((self.rewards.n_values - 1, 0))
        blocks = [within_support(self.weights)]
        for arm, played in enumerate(self.played.tolist()):
            cells = self.rewards.probabilities[:, arm]
            blocks += [within_support(cell) if played else nothing for cell in cells]
        return csr_array(block_diag([csr_array(block) for block in blocks]))

    def means_along(self, directions: Float[Array, "P F"]) -> Float[Array, "M A F"]:
        n_types, n_arms, n_values = self.rewards.probabilities.shape
        slopes = (covariances(self.rewards.probabilities) @ self.rewards.values) @ contrasts(n_values)
        own = directions[n_types - 1 :].reshape(n_arms, n_types, n_values - 1, directions.shape[1])
        return np.einsum("mak,amkf->maf", slopes, own)

    def moved(self, moves: Float[Array, "B P"]) -> list[Any]:
        n_types, n_arms, n_values = self.rewards.probabilities.shape
        own = moves[:, n_types - 1 :].reshape(len(moves), n_arms, n_types, n_values - 1)
        drawn = moved_distributions(self.rewards.probabilities, own.swapaxes(1, 2))
        return [Categorical(probabilities, self.rewards.values) for probabilities in drawn]


@dataclass(frozen=True, eq=False)
class _Steps:
    """What every code of the log says in the terms of a bandit, which may know more values than the log shows."""

    arms: Integer[Array, "D"]
    logs: Float[Array, "D M"]  # log-probability in every type
    scores: Float[Array, "D M K"]  # gradient of that in the coordinates of the arm and type
    seen: Float[Array, "A M K K"]  # information of one play of an arm in a type that is known

    @classmethod
    def of(cls, log: CategoricalLog, rewards: Categorical) -> _Steps:
        basis = contrasts(rewards.n_values)
        code = np.arange(log.n_codes)
        arms, values = code // len(log.values), rewards.encode(log.values)[code % len(log.values)]
        expected = (rewards.probabilities @ basis).swapaxes(0, 1)  # (A, M, K)
        with np.errstate(divide="ignore"):
            logs = np.log(rewards.probabilities[:, arms, values].T)
        seen = (basis.T @ covariances(rewards.probabilities) @ basis).swapaxes(0, 1)
        return cls(arms, logs, np.ascontiguousarray(basis[values][:, None, :] - expected[arms]), seen)


def categorical_information(
    log: CategoricalLog, weights: Float[Array, "M"], rewards: Categorical, prior: Prior, passes: Passes
) -> Information:
    """The information of the log and the prior, of which only the strengths matter in logits."""
    size = len(weights) + rewards.n_parameters
    check_size(len(weights), size)
    steps = _Steps.of(log, rewards)
    matrix = summed(partial(_part, log, weights, steps), log.steps, size, passes)
    _add_seen(matrix, np.repeat(prior.strength[:, None], len(weights), axis=1), steps.seen)
    matrix = with_weights(matrix, weights, float(len(log.sessions)))
    return Information(matrix, CategoricalCoordinates(weights, rewards, log.played))


def _part(log: CategoricalLog, weights: Float[Array, "M"], steps: _Steps, low: int, high: int) -> Float[Array, "Q Q"]:
    """What some sessions tell about the rewards, less what is missing because their types are not seen."""
    n_arms, n_types, n_entries = steps.seen.shape[:3]
    window = log.steps.window(low, high).own
    offsets, codes = window.offsets, window.codes.astype(np.int64)
    counts, arms = window.counts if len(window.counts) else np.ones(high - low), steps.arms[codes]
    with np.errstate(divide="ignore"):
        joint = np.log(weights) + np.add.reduceat(steps.logs[codes], offsets[:-1], axis=0)
    shares = normalised(joint, weights)
    size = n_types * (1 + n_arms * n_entries)
    result = np.empty((size, size))
    kernel("information").missing(arms, codes, offsets, counts, shares, steps.scores, result)
    np.negative(result, out=result)
    expected = np.repeat(shares * counts[:, None], np.diff(offsets), axis=0)
    plays = np.stack([np.bincount(arms, column, minlength=n_arms) for column in expected.T], axis=1)
    _add_seen(result, plays, steps.seen)
    return result


def _add_seen(matrix: Float[Array, "Q Q"], plays: Float[Array, "A M"], seen: Float[Array, "A M K K"]) -> None:
    """Add the information of plays in known types to the blocks of the arms and types."""
    n_types, n_entries = seen.shape[1:3]
    starts = n_types + np.arange(plays.size) * n_entries
    rows = starts[:, None] + np.arange(n_entries)
    blocks = plays[:, :, None, None] * seen
    matrix[rows[:, :, None], rows[:, None, :]] += blocks.reshape(plays.size, n_entries, n_entries)
