"""Values of fixed sequences of distinct arms, and of the best arms of a known type."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..._shapes import Array, Bool, Float, Integer
from ...model.attrition_values import known_type_values_without_repeats
from ..problem import OutOfTime, Problem


def sequence_vectors(problem: Problem, sequences: Integer[Array, "n t"]) -> Float[Array, "n M"]:
    """Return the vectors of arms played in this order, the last steps of a session: R_1 + s_1 (R_2 + s_2 (...))."""
    if problem.is_uniform:
        vectors = problem.means[sequences[:, 0]]
        for arms in sequences.T[1:]:
            vectors += problem.means[arms]
        return vectors
    vectors = np.zeros((len(sequences), len(problem.weights)))
    for steps, arms in enumerate(sequences.T[::-1], start=1):
        step = problem.step(steps)
        vectors = step.means[arms] + step.stays[arms] * vectors
    return vectors


def best_sequences(
    problem: Problem, beliefs: Float[Array, "n M"], gains: Float[Array, "n A"], played: Bool[Array, "n A"], steps: int
) -> tuple[Integer[Array, "n t"], Float[Array, "n"]]:
    """Return the best fixed sequences of `steps` unplayed arms, and their values; `gains`: of the arms now.

    If the order matters, this is the best of `problem.orders`, each followed from its first unplayed arm. After its
    first step, the rest of a sequence is compared again, so choosing anew at every step earns at least the prediction.
    """
    if problem.is_uniform or steps == 1:
        left = np.where(played, -np.inf, gains)
        sequences = np.argpartition(-left, steps - 1, axis=1)[:, :steps]
        return sequences, np.take_along_axis(left, sequences, axis=1).sum(axis=1)
    best = np.full(len(beliefs), -np.inf)
    sequences = np.zeros((len(beliefs), steps), np.int64)
    later = [problem.step(remaining) for remaining in range(steps, 0, -1)]
    arrays = [(step.means.astype(beliefs.dtype), step.stays.astype(beliefs.dtype)) for step in later]
    for order in problem.orders:
        tried = order[np.argsort(played[:, order], axis=1, kind="stable")[:, :steps]]
        mass, value = beliefs, np.zeros(len(beliefs), beliefs.dtype)
        for arms, (means, stays) in zip(tried.T, arrays, strict=True):
            value = value + np.einsum("nm,nm->n", mass, means[arms])
            mass = mass * stays[arms]
        better = value > best
        sequences[better], best[better] = tried[better], value[better]
    return sequences, best


def best_of_known_type(
    problem: Problem,
    beliefs: Float[Array, "n M"],
    played: Bool[Array, "n A"],
    remaining: int,
    stop: Callable[[], bool] = lambda: False,
) -> Float[Array, "n"]:
    """Return upper bounds on the values of `remaining` unplayed arms if the type is known.

    They are exact for equal steps. If steps differ, repeats are allowed in the bound.
    """
    if not problem.is_stationary:
        return beliefs @ problem.known.best[remaining]
    if problem.people_leave:
        return np.einsum(
            "nm,nm->n", beliefs, known_type_values_without_repeats(problem.means, problem.stays, played, remaining)
        )
    total = np.zeros(len(beliefs))
    for type_ in range(beliefs.shape[1]):
        if stop():
            raise OutOfTime
        total += beliefs[:, type_] * sum_of_best(np.where(played, -np.inf, problem.means[:, type_]), remaining)
    return total


def sum_of_best(scores: Float[Array, "n A"], count: int) -> Float[Array, "n"]:
    """Return the sum of the `count` highest scores, or of all if fewer are left."""
    best = -np.partition(-scores, count - 1, axis=1)[:, :count]
    return np.where(np.isfinite(best), best, 0.0).sum(axis=1)
