"""NumPy versions of the kernels that a saved policy acts with, for environments without Numba."""

from __future__ import annotations

import numpy as np

from .._shapes import Array, Float
from .arrays import ROUNDING


def updated(belief: Float[Array, "M"], likelihood: Float[Array, "M"]) -> tuple[Float[Array, "M"], float]:
    """Return the product, and its largest entry."""
    product = belief * likelihood
    return product, float(product.max())


def best_plan(
    belief: Float[Array, "M"], vectors: Float[Array, "K M"], start: int, stop: int, scores: Float[Array, "S"]
) -> int:
    """Return the first of the plans from `start` to `stop` with the highest score, up to rounding."""
    found = np.matmul(vectors[start:stop], belief, out=scores[: stop - start])
    top = float(found.max())
    return start + int(np.argmax(found >= top - ROUNDING * abs(top)))


def one_step_values(
    beliefs: Float[Array, "n M"], table: Float[Array, "C M"], means: Float[Array, "A M"], vectors: Float[Array, "K M"]
) -> Float[Array, "n A"]:
    """Return Q[n, a] = means[a].x + sum_z max_k vectors[k].(x * table[a*Z + z]), on unnormalised beliefs x."""
    n_arms = len(means)
    best = np.stack([(table * x @ vectors.T).max(axis=1) for x in beliefs])
    return beliefs @ means.T + best.reshape(len(beliefs), n_arms, -1).sum(axis=2)
