"""The sums from which the moments of a core set are made: what the kernel must compute."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ..._shapes import Array, Float, Integer


def core_sums(
    groups: Integer[Array, "S"],
    observed: Float[Array, "S W"],
    offsets: Integer[Array, "N1"],
    slots: Integer[Array, "G W"],
    n_slots: int,
    order: int,
    products: Integer[Array, "R L"],
    ways: Integer[Array, "R L"],
) -> Float[Array, "R 5"]:
    """Sums over sessions of x, y, x*x, x*y, y*y for every entry of the moment tensors.

    In a session, y counts the ways to pick different steps that played the entry's arms, one step per factor, and x
    sums over them the products of what was observed there. Both factorise: over m different steps of one arm the
    ordered products sum to m! times the m-th elementary symmetric polynomial.

    Args:
        groups: core arm (0..G-1) of every step, -1 where another arm was played.
        observed: what a step says about each slot of its arm: 1 or 0 for a core pair, the reward for a core arm.
        offsets: where sessions begin.
        slots: slot of each column of `observed`, by core arm; -1 where an arm has fewer.
        n_slots: number of core pairs (or core arms).
        order: L, the largest order.
        products: per entry, positions slot * (L + 1) + multiplicity in the table of products; n_slots * (L + 1) is 1.
        ways: per entry, positions arm * (L + 1) + multiplicity in the table of counts; G * (L + 1) is 1.
    """
    sums = np.zeros((len(products), 5))
    for first, last in pairwise(offsets):
        table = np.zeros((n_slots, order + 1))
        table[:, 0] = 1
        plays = np.zeros(len(slots))
        for step in range(first, last):
            group = groups[step]
            if group < 0:
                continue
            plays[group] += 1
            for column, slot in enumerate(slots[group]):
                if slot >= 0:
                    table[slot, 1:] += table[slot, :-1] * observed[step, column]
        steps = np.arange(order)
        counts = np.hstack([np.ones((len(slots), 1)), np.cumprod(np.maximum(plays[:, None] - steps, 0), axis=1)])
        table = table * np.concatenate([[1], np.cumprod(steps + 1.0)])
        x = np.append(table.ravel(), 1.0)[products].prod(axis=1)
        y = np.append(counts.ravel(), 1.0)[ways].prod(axis=1)
        x = np.where(y > 0, x, 0.0)
        sums += np.stack([x, y, x * x, x * y, y * y], axis=1)
    return sums
