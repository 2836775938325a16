"""One step of lookahead for many beliefs at once."""

from __future__ import annotations

import numpy as np

from ..._shapes import Array, Float

_CHUNK = 1 << 22


def one_step_values(
    beliefs: Float[Array, "n M"],
    table: Float[Array, "D M"],
    means: Float[Array, "A M"],
    vectors: Float[Array, "K M"],
) -> Float[Array, "n A"]:
    """Q[n, a] = means[a].x + sum_z max_k vectors[k].(x * table[a*Z + z]), on unnormalised beliefs x."""
    n_arms = len(means)
    values = beliefs @ means.T
    block = max(1, _CHUNK // (len(table) * len(vectors)))
    for start in range(0, len(beliefs), block):
        children = beliefs[start : start + block, None, :] * table
        best = (children @ vectors.T).max(axis=2)
        values[start : start + block] += best.reshape(len(best), n_arms, -1).sum(axis=2)
    return np.ascontiguousarray(values)
