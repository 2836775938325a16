"""Observed information: how sharply a log speaks for a model, from the scores of its episodes.

The free parameters are all weights but that of the likeliest context and, per context and arm, all probabilities but
the likeliest value's (normal rewards: the means, and the scale where it was estimated). A probability at 0, and what
belongs to an arm never played, is not free: the likelihood has no curvature there to speak of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .._shapes import Array, Bool, Float, Integer, Shaped
from ..errors import TooLarge

MAX_PARAMETERS = 6000
_CHUNK = 1 << 22  # entries of scores at a time
_AT_ZERO = 1e-7  # probabilities below this are at the boundary


@dataclass(frozen=True, eq=False)
class Information:
    """The information about K free parameters, and how weights and means follow from these."""

    matrix: Float[Array, "K K"]
    weights: Float[Array, "M K"]  # derivative of each weight
    means: Float[Array, "MA K"]  # derivative of each mean, contexts one after the other
    fixed: Bool[Array, "MA"]  # means that depend on no free parameter


def categorical_information(
    codes: Shaped[Array, "S"],
    offsets: Integer[Array, "N1"],
    multiplicity: Float[Array, "N"],
    posterior: Float[Array, "N M"],
    weights: Float[Array, "M"],
    probabilities: Float[Array, "M A Z"],
    values: Float[Array, "Z"],
    pseudo: Float[Array, "A Z"],
) -> Information:
    """Information of coded steps, plus that of `pseudo` observations per context."""
    from scipy.sparse import csr_array

    n_contexts, n_arms, n_values = probabilities.shape
    last = probabilities.argmax(axis=2)[:, :, None]
    free = (probabilities > _AT_ZERO) & (np.arange(n_values) != last)
    plays = np.bincount(codes, minlength=n_arms * n_values).reshape(n_arms, n_values).sum(axis=1)
    free &= plays[:, None] > 0
    context, arm, value = np.nonzero(free)
    reference = last[context, arm, 0]
    inverse = 1 / probabilities[context, arm, value]
    other = -1 / probabilities[context, arm, reference]
    column = np.arange(len(context))
    rows = np.concatenate([arm * n_values + value, arm * n_values + reference])
    derivative = csr_array(
        (np.concatenate([inverse, other]), (rows, np.concatenate([column, column]))),
        shape=(n_arms * n_values, len(context)),
    )

    def scores(low: int, high: int) -> Float[Array, "n K"]:
        steps = codes[offsets[low] : offsets[high]].astype(np.int64)
        pattern = (np.ones(len(steps)), steps, offsets[low : high + 1] - offsets[low])
        counts = csr_array(pattern, shape=(high - low, n_arms * n_values))
        return (counts @ derivative).toarray() * posterior[low:high, context]

    matrix, weight_map = _accumulate(scores, len(context), posterior, multiplicity, weights)
    own = pseudo[arm, value] * inverse**2
    shared = pseudo[arm, reference] * other**2
    same_cell = (context[:, None] == context) & (arm[:, None] == arm)
    matrix[n_contexts - 1 :, n_contexts - 1 :] += np.diag(own) + np.where(same_cell, shared[:, None], 0.0)
    means = np.zeros((n_contexts * n_arms, len(matrix)))
    means[context * n_arms + arm, n_contexts - 1 + column] = values[value] - values[reference]
    return Information(matrix, weight_map, means, ~free.any(axis=2).ravel())


def gaussian_information(
    arms: Shaped[Array, "S"],
    residuals: Float[Array, "S"],
    offsets: Integer[Array, "N1"],
    posterior: Float[Array, "N M"],
    weights: Float[Array, "M"],
    means: Float[Array, "M A"],
    scale: float,
    scale_is_free: bool,
    pseudo: float,
) -> Information:
    """Information of normal rewards, plus that of `pseudo` observations at the centre per context and arm."""
    n_contexts, n_arms = means.shape
    played = np.flatnonzero(np.bincount(arms, minlength=n_arms))
    size = n_contexts * len(played)
    place = np.full(n_arms, -1)
    place[played] = np.arange(len(played))

    def scores(low: int, high: int) -> Float[Array, "n K"]:
        steps = slice(offsets[low], offsets[high])
        owner = np.repeat(np.arange(high - low), np.diff(offsets[low : high + 1]))
        result = np.zeros((high - low, size + scale_is_free))
        for context in range(n_contexts):
            deviation = residuals[steps] - means[context, arms[steps]]
            share = posterior[low:high, context]
            own = np.zeros((high - low, len(played)))
            np.add.at(own, (owner, place[arms[steps]]), deviation / scale**2)
            result[:, context * len(played) : (context + 1) * len(played)] = own * share[:, None]
            if scale_is_free:
                spread = np.bincount(owner, (deviation / scale) ** 2 - 1, minlength=high - low) / scale
                result[:, -1] += spread * share
        return result

    matrix, weight_map = _accumulate(scores, size + scale_is_free, posterior, np.ones(len(posterior)), weights)
    first = n_contexts - 1
    index = np.arange(first, first + size)
    matrix[index, index] += pseudo / scale**2
    derivative = np.zeros((n_contexts, n_arms, len(matrix)))
    derivative[np.arange(n_contexts)[:, None], played, index.reshape(n_contexts, -1)] = 1.0
    fixed = np.tile(np.bincount(arms, minlength=n_arms) == 0, n_contexts)
    return Information(matrix, weight_map, derivative.reshape(-1, len(matrix)), fixed)


def _accumulate(
    scores: Callable[[int, int], Float[Array, "n K"]],
    n_rewards: int,
    posterior: Float[Array, "N M"],
    multiplicity: Float[Array, "N"],
    weights: Float[Array, "M"],
) -> tuple[Float[Array, "K K"], Float[Array, "M K"]]:
    """Sum of outer products of the scores, weights first, and the derivative of the weights."""
    n_contexts = len(weights)
    size = n_contexts - 1 + n_rewards
    if size > MAX_PARAMETERS:
        raise TooLarge(f"standard errors are limited to {MAX_PARAMETERS} free parameters, this model has {size}")
    last = int(weights.argmax())
    others = np.delete(np.arange(n_contexts), last)
    matrix = np.zeros((size, size))
    chunk = max(_CHUNK // max(size, 1), 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(weights > 0, posterior / weights, 0.0)
    for low in range(0, len(posterior), chunk):
        high = min(low + chunk, len(posterior))
        part = np.empty((high - low, size))
        part[:, : n_contexts - 1] = ratios[low:high, others] - ratios[low:high, [last]]
        part[:, n_contexts - 1 :] = scores(low, high)
        part *= np.sqrt(multiplicity[low:high, None])
        matrix += part.T @ part
    derivative = np.zeros((n_contexts, size))
    derivative[others, np.arange(n_contexts - 1)] = 1.0
    derivative[last, : n_contexts - 1] = -1.0
    return matrix, derivative
