"""Values under attrition of policies that ignore rewards, and values if the type is known.

After arm a, a session of type m continues with probability `stays[a, m]`. If the type is known, playing a, b, ... has
the value R_a + s_a (R_b + s_b (...)), which depends on the order. All arrays have shape (A, M): a row per arm.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._shapes import Array, Bool, Float, Integer

_WIDTH = 1 << 14  # arm sets of one length that `best_fixed_sequence` keeps; the search is exact if there are no more
_NEVER = -1e200  # value of a sequence that is longer than the number of remaining arms


def constant_arm_values(
    means: Float[Array, "*H A M"], stays: Float[Array, "*H A M"], horizon: int
) -> Float[Array, "T A M"]:
    """Return the values of playing each arm at all of 0, 1, ..., H steps, by type: v_t = R + s v_(t-1).

    Both arrays are those of every step, or a row of arrays by steps to go 1, ..., H.
    """
    means, stays = _by_step(means, horizon), _by_step(stays, horizon)
    values = np.zeros((horizon + 1, *means.shape[1:]))
    for steps in range(1, horizon + 1):
        values[steps] = means[steps - 1] + stays[steps - 1] * values[steps - 1]
    return values


class KnownTypeValues(NamedTuple):
    """Values of the best and of the worst policy with 0, 1, ..., H steps to go if the type is known."""

    best: Float[Array, "T M"]
    worst: Float[Array, "T M"]


def known_type_values(means: Float[Array, "*H A M"], stays: Float[Array, "*H A M"], horizon: int) -> KnownTypeValues:
    """Return the values for a known type: the best is K_t = max_a R_a + s_a K_(t-1), an upper bound for all policies.

    Both arrays are those of every step, or a row of arrays by steps to go 1, ..., H.
    """
    means, stays = _by_step(means, horizon), _by_step(stays, horizon)
    best, worst = np.zeros((2, horizon + 1, means.shape[2]))
    for steps in range(1, horizon + 1):
        best[steps] = (means[steps - 1] + stays[steps - 1] * best[steps - 1]).max(axis=0)
        worst[steps] = (means[steps - 1] + stays[steps - 1] * worst[steps - 1]).min(axis=0)
    return KnownTypeValues(best, worst)


def _by_step(array: Float[Array, "*H A M"], horizon: int) -> Float[Array, "H A M"]:
    return np.broadcast_to(array, (horizon, *array.shape[-2:]))


def known_type_values_without_repeats(
    means: Float[Array, "A M"], stays: Float[Array, "A M"], played: Bool[Array, "n A"], steps: int
) -> Float[Array, "n M"]:
    """Return the largest expected reward of `steps` distinct mask_unplayed arms for each known type.

    If fewer arms remain, all of them are played. Playing a before b is at least as good as b before a if R_a (1 - s_b)
    >= R_b (1 - s_a), whatever follows. So every set is best played in decreasing order of R / (1 - s), and one dynamic
    program over the arms in this order finds the best set.

    Examples:
        >>> means, stays = np.array([[0.5], [0.9], [0.4]]), np.array([[1.0], [0.1], [0.9]])
        >>> known_type_values_without_repeats(means, stays, np.zeros((1, 3), bool), 2)  # arm 0, then 1
        array([[1.4]])
    """
    order = np.argsort(-_index(means, stays), axis=0, kind="stable")
    result = np.empty((len(played), means.shape[1]))
    free = ~played
    for m in range(means.shape[1]):
        best = np.full((len(played), steps + 1), _NEVER)
        best[:, 0] = 0.0
        for arm in order[::-1, m].tolist():
            longer = np.maximum(best[:, 1:], means[arm, m] + stays[arm, m] * best[:, :-1])
            best[:, 1:] = np.where(free[:, arm, None], longer, best[:, 1:])
        there = (best > _NEVER / 2).sum(axis=1) - 1  # the longest sequence that the remaining arms allow
        result[:, m] = best[np.arange(len(best)), there]
    return result


def arm_orders_by_type(means: Float[Array, "A M"], stays: Float[Array, "A M"], steps: int) -> Integer[Array, "M A"]:
    """Return a complete arm order for each type: the best sequence of `steps` arms, then the others by their means."""
    order = np.argsort(-_index(means, stays), axis=0, kind="stable")
    n_arms, n_types = means.shape
    best = np.full((n_types, steps + 1), _NEVER)
    best[:, 0] = 0.0
    taken, types = np.zeros((n_arms, n_types, steps + 1), bool), np.arange(n_types)
    for place in range(n_arms - 1, -1, -1):
        arms = order[place]
        longer = means[arms, types, None] + stays[arms, types, None] * best[:, :-1]
        taken[place, :, 1:] = longer > best[:, 1:]
        best[:, 1:] = np.maximum(best[:, 1:], longer)
    orders = np.empty((n_types, n_arms), np.int64)
    for m in range(n_types):
        left, first = min(steps, n_arms), []
        for place in range(n_arms):
            if left and taken[place, m, left]:
                first.append(int(order[place, m]))
                left -= 1
        others = np.setdiff1d(np.argsort(-means[:, m], kind="stable"), first, assume_unique=True)
        orders[m] = np.concatenate([np.array(first, np.int64), others])
    return orders


def _index(means: Float[Array, "A M"], stays: Float[Array, "A M"]) -> Float[Array, "A M"]:
    """Return R / (1 - s); infinite with the sign of R if nobody leaves."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(stays < 1, means / (1 - stays), np.where(means == 0, 0.0, np.sign(means) * np.inf))


def best_fixed_sequence(
    means: Float[Array, "A M"], stays: Float[Array, "A M"], weights: Float[Array, "M"], steps: int, width: int = _WIDTH
) -> tuple[Integer[Array, "t"], float]:
    """Return the sequence of `steps` different arms with the largest value without looking at rewards, and this value.

    The probability that a session continues after some arms depends on the set of these arms, not on their order, so
    this is a dynamic program over sets. If there are more than `width` sets of one length, only the most promising ones
    are kept (beam search), and the sequence may not be the best one.
    """
    ahead = known_type_values(means, stays, steps).best
    sets, mass = np.zeros((1, len(means)), bool), weights[None]
    earned, lists = np.zeros(1), np.empty((1, 0), np.int64)
    for step in range(steps):
        value = earned[:, None] + mass @ means.T
        promise = value + mass @ (stays * ahead[steps - step - 1]).T
        promise[sets] = -np.inf
        rows, arms = _most_promising(promise, 4 * width)
        grown = sets[rows]
        grown[np.arange(len(rows)), arms] = True
        first = _best_of_equal_sets(grown, value[rows, arms])
        if len(first) > width:
            first = first[np.argsort(-promise[rows, arms][first], kind="stable")[:width]]
        rows, arms = rows[first], arms[first]
        sets, earned, mass = grown[first], value[rows, arms], mass[rows] * stays[arms]
        lists = np.column_stack([lists[rows], arms])
    best = int(earned.argmax())
    return lists[best], float(earned[best])


def _most_promising(promise: Float[Array, "n A"], most: int) -> tuple[Integer[Array, "k"], Integer[Array, "k"]]:
    """Return rows and columns of the finite entries, at most `most` of them, the largest first."""
    rows, columns = np.nonzero(np.isfinite(promise))
    if len(rows) > most:
        kept = np.sort(np.argpartition(-promise[rows, columns], most - 1)[:most])
        rows, columns = rows[kept], columns[kept]
    return rows, columns


def _best_of_equal_sets(sets: Bool[Array, "n A"], values: Float[Array, "n"]) -> Integer[Array, "k"]:
    """Return the row with the highest value for every distinct set, the first among equals."""
    order = np.lexsort((np.arange(len(values)), -values))
    packed = np.ascontiguousarray(np.packbits(sets[order], axis=1))
    keys = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
    _, first = np.unique(keys, return_index=True)
    return np.sort(order[first])
