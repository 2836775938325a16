"""Arrays that kernels are given and fill: named tuples, and the constants that the caller shares with a kernel."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._shapes import Array, Bool, Float, Integer, Shaped

ROUNDING = 1e-12  # scores within this relative difference are equal: the first of them is taken
TINY = 1e-300  # probabilities below count as this where a logarithm or a ratio is taken
KEEP = 1e-3  # a new vector or point must improve by this fraction of the tolerated error
CLOSE = 1e-2  # of the tolerated error: bounds as close to a target as this do not say on which side of it a value is
TRIES = 2  # how often what a proof tolerates is shared out anew among the values of an arm before it is given up
MOST_TRIES = 16  # the same, after doubling at the start until the proof succeeds
LESS = 0.85  # of the best factor of a point, at which the price of what the point leaves is tried, too
SHRINK = 1 - 2 * KEEP  # a step later less error is tolerated, by more than what KEEP may lose: else trials could stall
MORE, CLOSED, FULL = 0, 1, 2  # why a batch ended: its work was done, the gap is closed, an array is full
LENGTH, SIZE, FIRST_WORD, FIRST_STEP, FIRST_SESSION, FIRST_TILE = range(6)  # columns of `shelves`
TILE = 128  # sessions of one shelf that a warp works through, whatever the grid
LONGEST = 32  # steps of a session whose probabilities are multiplied; longer ones take logarithms


class Arms(NamedTuple):
    """The problem: A arms in play, K of them for the last step, D = A*Z codes, M types."""

    table: Float[Array, "D M"]
    means: Float[Array, "A M"]
    names: Integer[Array, "A"]  # what each arm is called outside
    last: Float[Array, "K M"]  # means of the arms that may be best at the last step
    last_names: Integer[Array, "K"]
    scale: Float[Array, "T"]  # by steps to go, the factor of the two rows below: the steps, or 1 where people leave
    corner: Float[Array, "T M"]  # what knowing the type earns, over `scale`: K_t
    spread: Float[Array, "T M"]  # by how much it exceeds what the worst plan earns there, over `scale`: K_t - k_t
    stays: Float[Array, "L M"]  # the probability that a session goes on after each arm; no rows where nobody leaves
    flat: Bool[Array, "A"]  # what the arm shows has the same probabilities in every type, and nobody leaves
    columns: Float[Array, "M D"]  # the table's
    entropies: Float[Array, "M D"]  # p log p of every p in the columns
    order: Integer[Array, "D M"]  # the types by the probability of the code
    keys: Integer[Array, "D"]  # random numbers whose sums name multisets of codes


class Price(NamedTuple):
    """The information price, by steps to go; rates of 0: there is none."""

    planes: Float[Array, "T M"]
    rates: Float[Array, "T"]
    log_prior: Float[Array, "M"]


class Charges(NamedTuple):
    """The price of every arm: planes[t] . x + rates[t - 1] * (relative entropy) is at least its Q-value at x."""

    planes: Float[Array, "T M A"]
    logs: Float[Array, "D M"]  # of the table
    entropies: Float[Array, "D M"]  # p log p of every p in the table
    last: Float[Array, "M K"]  # means of the arms for the last step


class Lower(NamedTuple):
    """Vectors by steps to go."""

    vectors: Float[Array, "T M capacity"]
    arms: Integer[Array, "T capacity"]  # the first arm of each vector's plan
    counts: Integer[Array, "T"]


class Upper(NamedTuple):
    """Sawtooth points by steps to go."""

    beliefs: Float[Array, "T M capacity"]  # the normalised points
    screen: Float[Array, "T M capacity"]  # the same in single precision, to see which of them matter
    drops: Float[Array, "T capacity"]  # how far its value lies below the corner plane: <= 0
    counts: Integer[Array, "T"]


class Nodes(NamedTuple):
    """Multisets of observations that trials went through; node 0 is the start."""

    beliefs: Float[Array, "capacity M"]
    upper: Float[Array, "capacity"]
    values: Float[Array, "capacity A"]  # upper bounds on Q-values: they only fall
    shares: Float[Array, "capacity D"]  # what each code's child adds to them
    low: Integer[Array, "capacity A"]  # points from `low` to `high` are accounted for; high = -1: the node is new
    high: Integer[Array, "capacity A"]
    points: Integer[Array, "capacity"]  # the node's sawtooth point, -1 for none
    solved: Bool[Array, "capacity"]  # its upper bound is the optimal value
    keys: Integer[Array, "capacity"]
    steps: Integer[Array, "capacity"]  # to go
    slots: Integer[Array, "table"]  # open addressing: node by key; a power of two, -1 where free
    counts: Integer[Array, "1"]


class Short(NamedTuple):
    """Neighbouring tiles of sessions with equally many words."""

    n_words: int
    last: int  # steps in the last word; 0: they differ
    first_tile: int
    last_tile: int  # the one after


class Shelves(NamedTuple):
    """Sessions sorted by length, as arrays of the host or of the device."""

    bits: int  # Bits of a code.
    merged: bool  # whether a session may stand for several
    short: tuple[Short, ...]  # launches for short sessions, from the first tile on; the others follow
    words: Shaped[Array, "W"]
    rewards: Float[Array, "s"]  # empty: the codes say all
    counts: Integer[Array, "n"]  # sessions that each one stands for; empty where none is merged
    shelves: Integer[Array, "C 6"]
    tile_shelf: Integer[Array, "T"]
    long_tile: int  # the first one of sessions of more than LONGEST steps
    weight: int  # steps of all sessions that these stand for

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self[3:8])


def per_word(bits: int) -> int:
    """Codes in a word."""
    return {8: 4, 16: 4, 32: 2}[bits]


def plane(arms: Arms, x: Float[Array, "M"], steps: int) -> float:
    """K_t . x: what knowing the type would earn."""
    return float(arms.scale[steps] * (arms.corner[steps] @ x))


def price_bound(price: Price, x: Float[Array, "M"], steps: int) -> float:
    """planes . x + rate * (relative entropy of x and the prior, times the mass of x)."""
    mass = x.sum()
    if price.rates[steps] == 0:
        return float("inf")
    if mass == 0:
        return 0.0
    ratios = np.log(np.maximum(x, TINY)) - np.log(mass) - price.log_prior
    return float(x @ (price.planes[steps] + price.rates[steps] * ratios))


def add_node(arms: Arms, nodes: Nodes, x: Float[Array, "M"], key: int, steps: int) -> int:
    """A new node with the bounds of knowing the type from the next step on."""
    node = int(nodes.counts[0])
    nodes.counts[0] += 1
    nodes.beliefs[node] = x
    means = arms.means @ x
    if len(arms.stays):
        nodes.values[node] = means + (arms.stays * arms.corner[steps - 1]) @ x
    else:
        nodes.values[node] = np.where(arms.flat, steps * means, means + plane(arms, x, steps - 1))
    nodes.upper[node] = plane(arms, x, steps)
    nodes.high[node] = -1
    nodes.points[node], nodes.solved[node] = -1, False
    nodes.keys[node], nodes.steps[node] = key, steps
    mask = len(nodes.slots) - 1
    slot = int(key) & mask
    while nodes.slots[slot] >= 0:
        slot = (slot + 1) & mask
    nodes.slots[slot] = node
    return node
