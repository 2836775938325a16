"""Dominated arms: those that a mixture of other arms can replace, found by linear programs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._shapes import Array, Float, Integer

_SAMPLE = 10  # arms that are examined first
_ERROR = 1e-13  # A dominance may miss by this much: solver tolerances (1e-7) must not leak into the bounds.


def undominated_arms(
    table: Float[Array, "D M"],
    means: Float[Array, "A M"],
    stop: Callable[[], bool] = lambda: False,
    *,
    has_attrition: bool = False,
) -> Integer[Array, "K"]:
    """Return the arms to keep so that the optimal value stays the same, for every belief and horizon.

    There is one linear program per arm. If `stop` returns True, the arms that were not yet examined are kept; if no
    arm of a sample is dominated, all others are kept. With attrition, a mixture must retain at least as many sessions
    as the arm, after each outcome and in each type; exactly as many if some mean is negative.

    Examples:
        >>> import numpy as np
        >>> means = np.array([[0.9, 0.1], [0.2, 0.2], [0.1, 0.8]])  # arm 1 pays less than a mixture
        >>> table = np.stack([1 - means, means], axis=1).reshape(6, 2)
        >>> undominated_arms(table, means)
        array([0, 2])
    """
    kept = list(range(len(means)))
    order = np.argsort(means.mean(axis=1), kind="stable")  # the weak ones first
    sample = order[:: max(1, len(order) // _SAMPLE)]
    for place, arm in enumerate([*sample.tolist(), *np.setdiff1d(order, sample, assume_unique=True).tolist()]):
        others = [other for other in kept if other != arm]
        if stop() or (place == len(sample) and len(kept) == len(means)):
            break
        if others and _dominated(table.reshape(len(means), -1, table.shape[1]), means, arm, others, has_attrition):
            kept = others
    return np.array(kept)


def best_somewhere(means: Float[Array, "A M"], stop: Callable[[], bool] = lambda: False) -> Integer[Array, "K"]:
    """Return the arms to keep so that the best mean stays the same at every belief, as the last step needs.

    If `stop` returns True, the arms that were not yet examined are kept.

    Examples:
        >>> import numpy as np
        >>> best_somewhere(np.array([[0.9, 0.1], [0.4, 0.4], [0.1, 0.8]]))
        array([0, 2])
    """
    kept = list(range(len(means)))
    for arm in np.argsort(means.mean(axis=1), kind="stable").tolist():
        if stop():
            break
        others = [other for other in kept if other != arm]
        if others and _outdone(means, arm, others):
            kept = others
    return np.array(kept)


def _dominated(
    channels: Float[Array, "A Z M"], means: Float[Array, "A M"], arm: int, others: list[int], has_attrition: bool
) -> bool:
    """Return whether some mixture q of arms and a garbling dominate the arm.

    Unknown is W[i, y, z], the part of arm i's outcome y that becomes z: its sum over z is q_i for every y.
    """
    n, n_values, n_types = len(others), channels.shape[1], channels.shape[2]
    unknowns = (n, n_values, n_values)
    # Garbled outcomes: sum over i, y of W[i, y, z] P[i, y, m] = P[a, z, m]; the last z is implied by the others.
    shown = np.zeros((n_values, n_types, *unknowns))
    for z in range(n_values):
        shown[z, :, :, :, z] = np.moveaxis(channels[others], 2, 0)
    # Equal mixture weights: sum_z W[i, y, z] - sum_z W[i, y + 1, z] = 0; and q sums to 1 over the outcome 0.
    equal = np.zeros((n_values - 1, n, *unknowns))
    for y in range(n_values - 1):
        equal[y, np.arange(n), np.arange(n), y] = 1
        equal[y, np.arange(n), np.arange(n), y + 1] = -1
    total = np.zeros((1, *unknowns))
    total[0, :, 0] = 1
    # Means: sum_i q_i R[i, m] >= R[a, m].
    paid = np.zeros((n_types, *unknowns))
    paid[:, :, 0, :] = means[others].T[:, :, None]
    size = n * n_values**2
    more = has_attrition and bool((means >= 0).all())  # then retaining more sessions costs nothing
    fixed = shown[:0] if more else shown if has_attrition else shown[:-1]
    equations = np.concatenate([fixed.reshape(-1, size), equal.reshape(-1, size), total.reshape(1, size)])
    targets = np.concatenate([channels[arm, : len(fixed)].ravel(), np.zeros((n_values - 1) * n), np.ones(1)])
    below, limits = -paid.reshape(n_types, size), -means[arm]
    if more:
        below, limits = np.concatenate([below, -shown.reshape(-1, size)]), np.append(limits, -channels[arm].ravel())
    found = _solution(below, limits, equations, targets)
    return found is not None and _holds(
        found.reshape(unknowns), channels[others], means[others], channels[arm], means[arm], more
    )


def _holds(
    parts: Float[Array, "n Z Z"],
    channels: Float[Array, "n Z M"],
    means: Float[Array, "n M"],
    channel: Float[Array, "Z M"],
    mean: Float[Array, "M"],
    more: bool,
) -> bool:
    """Return whether the solver's answer, turned into an exact mixture and garbling, still dominates the arm."""
    weights = parts.sum(axis=2)
    mixture = weights.mean(axis=1) / weights.mean(axis=1).sum()
    garbling = parts / np.where(weights > 0, weights, 1)[:, :, None]
    garbling[weights == 0] = 1 / parts.shape[2]
    shown = np.einsum("i,iyz,iym->zm", mixture, garbling, channels)
    enough = (shown >= channel - _ERROR).all() if more else np.abs(shown - channel).max() <= _ERROR
    return bool(enough and (mixture @ means >= mean - _ERROR).all())


def _outdone(means: Float[Array, "A M"], arm: int, others: list[int]) -> bool:
    """Return whether a mixture of the others has at least the arm's mean in every type."""
    found = _solution(-means[others].T, -means[arm], np.ones((1, len(others))), np.ones(1))
    return found is not None and bool((found / found.sum() @ means[others] >= means[arm] - _ERROR).all())


def _solution(
    below: Float[Array, "i n"], limits: Float[Array, "i"], equations: Float[Array, "e n"], targets: Float[Array, "e"]
) -> Float[Array, "n"] | None:
    """Return an x >= 0 with below @ x <= limits and equations @ x = targets, to the solver's tolerance, or None."""
    from scipy.optimize import linprog

    answer = linprog(np.zeros(below.shape[1]), below, limits, equations, targets, bounds=(0, None), method="highs")
    return np.maximum(answer.x, 0) if answer.status == 0 else None
