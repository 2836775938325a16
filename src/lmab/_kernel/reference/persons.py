"""People who come back: forward and backward over the sessions of each person, in plain NumPy.

Between two sessions a person keeps the type with probability `keep`, else it is drawn anew from the weights of the next
session. The transition is keep * I plus a matrix of rank one, so a session costs O(M), not O(M^2).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ..._shapes import Array, Float, Integer, Shaped


def likelihoods(
    codes: Shaped[Array, "S"],
    offsets: Integer[Array, "N1"],
    table: Float[Array, "D M"],
    rows: Float[Array, "N M"],
    scales: Float[Array, "N"],
) -> None:
    """The likelihood of each session by type into `rows`, scaled so that the largest is 1, and the logs of the scales.

    Row c of the table holds the probability of code c in each type.
    """
    with np.errstate(divide="ignore"):
        logs = np.add.reduceat(np.log(table[codes.astype(np.int64)]), offsets[:-1], axis=0)
    top = logs.max(axis=1, keepdims=True)
    top[~np.isfinite(top)] = 0.0
    rows[:] = np.exp(logs - top)
    scales[:] = top[:, 0]


def returning(
    like: Float[Array, "N M"],
    edges: Integer[Array, "P1"],
    weights: Float[Array, "G M"],
    groups: Integer[Array, "N"],
    keep: float,
    posterior: Float[Array, "N M"],
    fresh: Float[Array, "G M"],
    kept: Float[Array, "2"],
    logs: Float[Array, "N"],
) -> None:
    """The posterior of every session given all sessions of its person, and the log of its probability after the others.

    Person p has the sessions edges[p] to edges[p + 1] - 1, in order. `fresh` receives how often a type was drawn anew,
    by group of the session; `kept` how often a returning person kept the type, and how many returned.
    """
    fresh[:], kept[:] = 0.0, 0.0
    for low, high in pairwise(edges.tolist()):
        forward, masses = np.empty((high - low, like.shape[1])), np.empty(high - low)
        for t in range(high - low):
            own = weights[groups[low + t]]
            prior = own if t == 0 else keep * forward[t - 1] + (1 - keep) * own
            forward[t] = prior * like[low + t]
            masses[t] = forward[t].sum()
            logs[low + t] = np.log(masses[t])
            forward[t] /= masses[t]
        back = np.ones(like.shape[1])
        for t in range(high - low - 1, -1, -1):
            posterior[low + t] = forward[t] * back
            own = weights[groups[low + t]]
            if t == 0:
                fresh[groups[low]] += posterior[low]
                continue
            after = like[low + t] * back / masses[t]
            fresh[groups[low + t]] += (1 - keep) * own * after
            kept += (keep * float(forward[t - 1] @ after), 1.0)
            back = keep * after + (1 - keep) * float(own @ after)


def sums(
    codes: Shaped[Array, "S"], offsets: Integer[Array, "N1"], posterior: Float[Array, "N M"], into: Float[Array, "D M"]
) -> None:
    """How often each code is expected in each type."""
    into[:] = 0.0
    np.add.at(into, codes.astype(np.int64), np.repeat(posterior, np.diff(offsets), axis=0))
