"""Sums over a log: the missing information, moments over a core set, and the sorted sessions for a GPU.

Missing information is the information lost because types are hidden (Louis, 1982), summed over sessions. If the type is
known, a session's score (the gradient of its log-likelihood) has, for every type m, an entry 1 at coordinate m (the
logits of the weights) and, for every step, a score of K entries at the coordinates of the step's arm in type m. The
missing information is the covariance of that score under the session's posterior.

Shelves hold sessions side by side with others of the same length, their codes in words. A row of `shelves` describes
the sessions of one length: LENGTH, SIZE (how many), FIRST_WORD, FIRST_STEP, FIRST_SESSION and FIRST_TILE of the shelf.
Word w of session k of a shelf is at FIRST_WORD + w * SIZE + k: neighbours read neighbouring words. Code t of a session
is in word t // per, from bit t % per * bits on.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from lmab._shapes import Array, Float, Integer, Shaped


def missing(
    arms: Shaped[Array, "S"],
    rows: Shaped[Array, "S"],
    offsets: Shaped[Array, "N1"],
    counts: Float[Array, "N"],
    shares: Float[Array, "N M"],
    scores: Float[Array, "D M K"],
    result: Float[Array, "P P"],
) -> None:
    """Fill `result` with the missing information.

    Step t played `arms[t]`, and row `rows[t]` of `scores` is its score in every type; `shares` is the posterior of
    every session, which represents `counts` identical ones. The coordinates are M for the weights, then A * M * K in
    the order (arm, type, entry).
    """
    n_types, n_entries = scores.shape[1:]
    result[:] = 0.0
    for session, share in enumerate(shares):
        score = np.zeros((n_types, len(result)))
        score[:, :n_types] = np.eye(n_types)
        for t in range(offsets[session], offsets[session + 1]):
            for type_ in range(n_types):
                first = n_types + (int(arms[t]) * n_types + type_) * n_entries
                score[type_, first : first + n_entries] += scores[rows[t], type_]
        mean = share @ score
        result += counts[session] * ((score.T * share) @ score - np.outer(mean, mean))


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
    """Return sums over sessions of x, y, x*x, x*y, y*y for every entry of the moment tensors.

    In a session, y counts the ways to pick different steps that played the entry's arms, one step per factor, and x
    sums the products of the observations of these steps. Both factorise: over m different steps of one arm the ordered
    products sum to m! times the m-th elementary symmetric polynomial.

    Args:
        groups: core arm (0..G-1) of every step, -1 if another arm was played.
        observed: observation of a step for each slot of its arm: 1 or 0 for a core pair, the reward for a core arm.
        offsets: first step of each session.
        slots: slot of each column of `observed`, by core arm; -1 if an arm has fewer.
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


def fill(
    codes: Shaped[Array, "S"],
    rewards: Float[Array, "s"],
    lengths: Shaped[Array, "N"],
    shelves: Integer[Array, "C 6"],
    bits: int,
    per: int,
    words: Shaped[Array, "W"],
    side: Float[Array, "s"],
    order: Integer[Array, "N"],
) -> None:
    """Write the codes to `words`, the rewards (if there are any) to `side`, the sessions' numbers to `order`."""
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    for length, size, word, step, session, _ in shelves.tolist():
        members = np.flatnonzero(lengths == length)
        order[session : session + size] = members
        steps = offsets[members] + np.arange(length)[:, None]
        for first in range(0, length, per):
            packed = np.zeros(size, words.dtype)
            for place, row in enumerate(steps[first : first + per]):
                packed |= codes[row].astype(words.dtype) << words.dtype.type(place * bits)
            words[word + first // per * size :][:size] = packed
        if len(rewards):
            side[step : step + length * size] = rewards[steps].ravel()
