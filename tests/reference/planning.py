"""One-step lookahead, one decision, and exact dynamic programming over counts."""

from __future__ import annotations

import numpy as np

from lmab._kernel.arrays import ROUNDING
from lmab._shapes import Array, Float, Integer

_CHUNK = 1 << 22


def one_step_values(
    beliefs: Float[Array, "n M"],
    table: Float[Array, "D M"],
    means: Float[Array, "A M"],
    vectors: Float[Array, "K M"],
) -> Float[Array, "n A"]:
    """Return Q[n, a] = means[a].x + sum_z max_k vectors[k].(x * table[a*Z + z]), on unnormalised beliefs x."""
    n_arms = len(means)
    values = beliefs @ means.T
    block = max(1, _CHUNK // (len(table) * len(vectors)))
    for start in range(0, len(beliefs), block):
        children = beliefs[start : start + block, None, :] * table
        best = (children @ vectors.T).max(axis=2)
        values[start : start + block] += best.reshape(len(best), n_arms, -1).sum(axis=2)
    return np.ascontiguousarray(values)


def updated(belief: Float[Array, "M"], likelihood: Float[Array, "M"]) -> tuple[Float[Array, "M"], float]:
    """Return the product, and its largest entry."""
    product = belief * likelihood
    return product, float(product.max())


def best_plan(
    belief: Float[Array, "M"], vectors: Float[Array, "K M"], start: int, stop: int, scores: Float[Array, "K"]
) -> int:
    """Return the first plan from `start` to `stop` with the highest score, up to rounding. `scores` is scratch."""
    worth = vectors[start:stop] @ belief
    return start + int((worth >= worth.max() - ROUNDING * abs(worth.max())).argmax())


def exact_block(
    weights: Float[Array, "M"],
    table: Float[Array, "D M"],
    means: Float[Array, "A M"],
    binomials: Integer[Array, "n k"],  # binomials[i, j] = C(i, j)
    later: Float[Array, "next"],  # values of the states one step later; empty at the last step
    symbols: Integer[Array, "step"],  # the first state of the block; left at the state after the last
    values: Float[Array, "block"],  # filled
) -> None:
    """Compute the optimal values of `len(values)` states from `symbols` on, in rank order."""
    for index in range(len(values)):
        values[index] = _value(weights * table[symbols].prod(axis=0), table, means, binomials, later, symbols)
        _advance(symbols)


def _value(
    x: Float[Array, "M"],
    table: Float[Array, "D M"],
    means: Float[Array, "A M"],
    binomials: Integer[Array, "n k"],
    later: Float[Array, "next"],
    symbols: Integer[Array, "step"],
) -> float:
    gains = means @ x
    if len(later):
        children = [rank(np.sort(np.append(symbols, code)), binomials) for code in range(len(table))]
        gains = gains + later[children].reshape(len(means), -1).sum(axis=1)
    return float(gains.max())


def rank(symbols: Integer[Array, "step"], binomials: Integer[Array, "n k"]) -> int:
    """Return the rank of a sorted row among all rows of its length."""
    places = np.arange(len(symbols))
    return int(binomials[symbols + places, places + 1].sum())


def _advance(symbols: Integer[Array, "step"]) -> None:
    """Advance to the next row in colexicographic order: raise the first symbol possible, zero those before it."""
    for place in range(len(symbols)):
        if place == len(symbols) - 1 or symbols[place] < symbols[place + 1]:
            symbols[place] += 1
            symbols[:place] = 0
            return
