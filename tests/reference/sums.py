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

import itertools
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


def moment_sums(
    groups: Integer[Array, "S"],
    observed: Float[Array, "S W"],
    offsets: Integer[Array, "N1"],
    slots: Integer[Array, "G W"],
    order: int,
    symbols: Integer[Array, "Q L"],
    parents: Integer[Array, "Q L"],
    degrees: Integer[Array, "Q"],
    repeats: Float[Array, "Q"],
    binomials: Integer[Array, "B L1"],
    starts: Integer[Array, "L2"],
) -> Float[Array, "R 5"]:
    """Return the sums over sessions of x, y, x*x, x*y, y*y for every entry of the moment tensors.

    An entry of order l is a multiset of l slots, and a slot is one of the W observations of a step. In a session, y
    counts the ways to give the slots to different steps that played the slots' arms, and x sums the products of the
    observations of these steps over the ways. Entries of order l are rows starts[l] to starts[l + 1] - 1, and the
    multiset s_1 <= ... <= s_l has the place sum_j C(s_j + j - 1, j) among them. If a step plays another arm than the
    measured ones, it is skipped.

    Args:
        groups: measured arm (0..G-1) of every step, -1 if another arm was played.
        observed: observations of a step: 1 or 0 for a pair, the reward, or centred and standardised contrasts of it.
        offsets: first step of each session.
        slots: slot of each column of `observed`, by measured arm, rising; -1 if an arm has fewer.
        order: L, the largest order.
        symbols: the multisets of at most L columns as rising rows, padded with -1, by their size.
        parents: row of the multiset without one of its columns; -1 for a column that repeats the one before it.
        degrees: the size of each multiset.
        repeats: the product of the factorials of the multiplicities.
        binomials: C(i, j).
        starts: first entry of each order; starts[0] and starts[1] are 0.
    """
    sums = np.zeros((int(starts[order + 1]), 5))
    for first, last in pairwise(offsets.tolist()):
        x, y = np.zeros(len(sums)), np.zeros(len(sums))
        known = [step for step in range(first, last) if groups[step] >= 0]
        for size in range(1, order + 1):
            for steps in itertools.combinations(known, size):
                for columns in itertools.product(range(slots.shape[1]), repeat=size):
                    chosen = sorted(int(slots[groups[s], c]) for s, c in zip(steps, columns, strict=True))
                    if chosen[0] >= 0:
                        place = sum(int(binomials[slot + j, j + 1]) for j, slot in enumerate(chosen))
                        x[starts[size] + place] += np.prod(
                            [observed[s, c] for s, c in zip(steps, columns, strict=True)]
                        )
                        y[starts[size] + place] += 1
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
