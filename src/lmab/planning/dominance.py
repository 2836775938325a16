"""Dominated arms, found by linear programs: planning drops them and loses nothing.

Arm a is dominated when a mixture of other arms has at least its mean in every type, and what that mixture shows
can be garbled into what a shows: whoever would play a plays the mixture, garbles what it sees and earns no less.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._shapes import Array, Float, Integer

_SAMPLE = 10  # arms looked at before all are
_ERROR = 1e-13  # of a dominance that still counts as one: solver tolerances (1e-7) must not leak into the bounds


def undominated_arms(
    table: Float[Array, "D M"], means: Float[Array, "A M"], stop: Callable[[], bool] = lambda: False
) -> Integer[Array, "K"]:
    """Arms to keep so that the optimal value stays the same, for every belief and horizon.

    There is one linear program per arm. When `stop` returns True, the arms that were not yet examined are kept. When
    none of a sample of arms is dominated, the others are kept without being examined.

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
        if others and _dominated(table.reshape(len(means), -1, table.shape[1]), means, arm, others):
            kept = others
    return np.array(kept)


def best_somewhere(means: Float[Array, "A M"], stop: Callable[[], bool] = lambda: False) -> Integer[Array, "K"]:
    """Arms to keep so that the best mean stays the same at every belief: the last step needs no others.

    When `stop` returns True, the arms that were not yet examined are kept.

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


def _dominated(channels: Float[Array, "A Z M"], means: Float[Array, "A M"], arm: int, others: list[int]) -> bool:
    """Is there a mixture q and a garbling? Unknown: W[i, y, z], the part of arm i's outcome y that is shown as z.

    For every i the sum over z of W[i, y, z] is q_i whatever y is; the total of q is 1.
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
    equations = np.concatenate([shown[:-1].reshape(-1, size), equal.reshape(-1, size), total.reshape(1, size)])
    targets = np.concatenate([channels[arm, :-1].ravel(), np.zeros((n_values - 1) * n), np.ones(1)])
    found = _solution(-paid.reshape(n_types, size), -means[arm], equations, targets)
    return found is not None and _holds(
        found.reshape(unknowns), channels[others], means[others], channels[arm], means[arm]
    )


def _holds(
    parts: Float[Array, "n Z Z"],
    channels: Float[Array, "n Z M"],
    means: Float[Array, "n M"],
    channel: Float[Array, "Z M"],
    mean: Float[Array, "M"],
) -> bool:
    """Make the solver's answer an exact mixture and garbling, and see whether it still does what it should."""
    weights = parts.sum(axis=2)
    mixture = weights.mean(axis=1) / weights.mean(axis=1).sum()
    garbling = parts / np.where(weights > 0, weights, 1)[:, :, None]
    garbling[weights == 0] = 1 / parts.shape[2]
    shown = np.einsum("i,iyz,iym->zm", mixture, garbling, channels)
    return bool(np.abs(shown - channel).max() <= _ERROR and (mixture @ means >= mean - _ERROR).all())


def _outdone(means: Float[Array, "A M"], arm: int, others: list[int]) -> bool:
    """Has a mixture of the others at least the arm's mean in every type?"""
    found = _solution(-means[others].T, -means[arm], np.ones((1, len(others))), np.ones(1))
    return found is not None and bool((found / found.sum() @ means[others] >= means[arm] - _ERROR).all())


def _solution(
    below: Float[Array, "i n"], limits: Float[Array, "i"], equations: Float[Array, "e n"], targets: Float[Array, "e"]
) -> Float[Array, "n"] | None:
    """Some x >= 0 with below @ x <= limits and equations @ x = targets, to the solver's tolerance."""
    from scipy.optimize import linprog

    answer = linprog(np.zeros(below.shape[1]), below, limits, equations, targets, bounds=(0, None), method="highs")
    return np.maximum(answer.x, 0) if answer.status == 0 else None
