"""Exact dynamic programming over counts: what `lmab.planning.exact` computes, one block of states at a time.

After `step` observations a state is the multiset of their codes: a non-decreasing row of `step` symbols in [0, D).
Rows are ranked in colexicographic order: rank(s) = sum_j C(s[j] + j, j + 1). Values are those of unnormalised
beliefs, x = w * prod_j table[s[j]], so no observation's probability is ever divided out.
"""

from __future__ import annotations

import numpy as np

from ..._shapes import Array, Float, Integer


def exact_block(
    weights: Float[Array, "M"],
    table: Float[Array, "D M"],
    means: Float[Array, "A M"],
    binomials: Integer[Array, "n k"],  # binomials[i, j] = C(i, j)
    later: Float[Array, "next"],  # values of the states one step later; empty at the last step
    symbols: Integer[Array, "step"],  # the first state of the block; left at the state after the last
    values: Float[Array, "block"],  # filled
) -> None:
    """Optimal values of `len(values)` states from `symbols` on, in rank order."""
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
    """Place of a sorted row among all rows of its length."""
    places = np.arange(len(symbols))
    return int(binomials[symbols + places, places + 1].sum())


def _advance(symbols: Integer[Array, "step"]) -> None:
    """The next row in colexicographic order: raise the first symbol that may rise, zero those before it."""
    for place in range(len(symbols)):
        if place == len(symbols) - 1 or symbols[place] < symbols[place + 1]:
            symbols[place] += 1
            symbols[:place] = 0
            return
