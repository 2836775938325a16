"""Named tuples of arrays that kernels read and write, and the constants that a kernel shares with its caller."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._shapes import Array, Bool, Float, Integer, Shaped

ROUNDING = 1e-12  # scores within this relative difference are equal: the first of them is taken
TINY = 1e-300  # smaller probabilities are replaced by this in logarithms and ratios
KEEP = 1e-3  # a new vector or point must improve by this fraction of the tolerated error
CLOSE = 1e-2  # fraction of the tolerated error; bounds this close to a target count as equal to it
TRIES = 2  # how often a proof distributes its tolerance again among the values of an arm before it gives up
MOST_TRIES = 16  # the same, after doubling at the start until the proof succeeds
LESS = 0.85  # fraction of the best factor of a point at which the bound on the rest is evaluated as well
SHRINK = (
    1 - 2 * KEEP
)  # factor on the tolerated error per step; below 1 by more than the loss due to KEEP, or trials could stall
MORE, CLOSED, FULL = 0, 1, 2  # reasons for the end of a batch: its work was done, the gap is closed, an array is full
LENGTH, SIZE, FIRST_WORD, FIRST_STEP, FIRST_SESSION, FIRST_TILE = range(6)  # columns of `shelves`
TILE = 128  # sessions of one shelf that a warp processes, for any grid
LONGEST = 32  # steps of a session up to which probabilities are multiplied; longer ones use logarithms


class Arms(NamedTuple):
    """The planning problem: A arms, K of them candidates for the last step, D = A*Z codes, M types, S step tables."""

    table: Float[Array, "S D M"]
    means: Float[Array, "S A M"]
    at: Integer[Array, "T"]  # by steps to go, the number of the step's table
    names: Integer[Array, "A"]  # the caller's number of each arm
    last: Float[Array, "K M"]  # means of the arms that may be best at the last step
    last_names: Integer[Array, "K"]
    scale: Float[Array, "T"]  # by steps to go, the factor of the two rows below: the steps, or 1 unless uniform
    corner: Float[Array, "T M"]  # value if the type is known, divided by `scale`: K_t
    spread: Float[Array, "T M"]  # best minus worst value if the type is known, divided by `scale`: K_t - k_t
    stays: Float[Array, "L A M"]  # probability that a session continues after each arm; L = S, or 0 without attrition
    flat: Bool[Array, "A"]  # the arm's observations have the same probabilities in every type, no attrition, S = 1
    columns: Float[Array, "S M D"]  # the transposed table
    entropies: Float[Array, "S M D"]  # p log p of every p in the columns
    order: Integer[Array, "S D M"]  # the types by the probability of the code
    keys: Integer[Array, "S D"]  # random numbers; their sums identify multisets of codes


class BetaGrid(NamedTuple):
    """The grid of (centre, spread) of an arm, J = G * K pairs with the spread running fastest, and the laws on it."""

    step: float  # between neighbouring centres, in logits
    centre: Float[Array, "J"]
    strength: Float[Array, "J"]
    centre_laws: Float[Array, "B G"]
    centre_prior: Float[Array, "B"]  # logarithm
    spread_laws: Float[Array, "L K"]
    spread_prior: Float[Array, "L"]  # logarithm
    rising: Float[Array, "3 n J"]  # logs of rising factorials of strength * centre, strength * (1 - centre), strength
    few: Float[Array, "p p J"]  # the chance of each pair to pay k of n plays in a given order, of few plays n

    @property
    def n_spreads(self) -> int:
        return self.spread_laws.shape[1]


class Price(NamedTuple):
    """The information bound by steps to go; rates of 0 mean that there is none."""

    planes: Float[Array, "T M"]
    rates: Float[Array, "T"]
    log_prior: Float[Array, "M"]


class Charges(NamedTuple):
    """Bounds on Q-values: planes[t] . x + rates[t - 1] * (relative entropy of x) is at least the arm's Q-value at x."""

    planes: Float[Array, "T M A"]
    logs: Float[Array, "S D M"]  # logarithms of the table
    entropies: Float[Array, "S D M"]  # p log p of every p in the table
    last: Float[Array, "M K"]  # means of the arms for the last step


class Lower(NamedTuple):
    """Alpha-vectors by steps to go."""

    vectors: Float[Array, "T M capacity"]
    arms: Integer[Array, "T capacity"]  # the first arm of each vector's plan
    counts: Integer[Array, "T"]


class Upper(NamedTuple):
    """Sawtooth points by steps to go."""

    beliefs: Float[Array, "T M capacity"]  # the normalised points
    screen: Float[Array, "T M capacity"]  # the same in single precision, for a first selection of the points
    drops: Float[Array, "T capacity"]  # value of the point minus its known-type value: <= 0
    counts: Integer[Array, "T"]


class Nodes(NamedTuple):
    """Multisets of observations that trials visited; node 0 is the start."""

    beliefs: Float[Array, "capacity M"]
    upper: Float[Array, "capacity"]
    values: Float[Array, "capacity A"]  # upper bounds on Q-values, which never increase
    shares: Float[Array, "capacity D"]  # contribution of each code's child to these bounds
    low: Integer[Array, "capacity A"]  # points from `low` to `high` are included; high = -1: the node is new
    high: Integer[Array, "capacity A"]
    points: Integer[Array, "capacity"]  # the node's sawtooth point, -1 for none
    solved: Bool[Array, "capacity"]  # its upper bound is the optimal value
    keys: Integer[Array, "capacity"]
    steps: Integer[Array, "capacity"]  # steps to go
    slots: Integer[Array, "table"]  # open addressing: node by key; the length is a power of two, -1 marks a free slot
    counts: Integer[Array, "1"]


class Short(NamedTuple):
    """Neighbouring tiles of sessions with equally many words."""

    n_words: int
    last: int  # steps in the last word; 0 if they differ
    first_tile: int
    last_tile: int  # the tile after the last one


class Shelves(NamedTuple):
    """Sessions sorted by length, as arrays of the host or of the device."""

    bits: int  # bits of a code
    merged: bool  # whether a session may represent several identical ones
    short: tuple[Short, ...]  # launches for short sessions, from the first tile on; the others follow
    words: Shaped[Array, "W"]
    rewards: Float[Array, "s"]  # empty if the codes determine the rewards
    counts: Integer[Array, "n"]  # number of sessions that each one represents; empty if none is merged
    shelves: Integer[Array, "C 6"]
    tile_shelf: Integer[Array, "T"]
    long_tile: int  # the first tile of sessions of more than LONGEST steps
    weight: int  # steps of all represented sessions

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self[3:8])


def per_word(bits: int) -> int:
    """Return the number of codes in a word."""
    return {8: 4, 16: 4, 32: 2}[bits]


def plane(arms: Arms, x: Float[Array, "M"], steps: int) -> float:
    """Return K_t . x, the value if the type is known."""
    return float(arms.scale[steps] * (arms.corner[steps] @ x))


def price_bound(price: Price, x: Float[Array, "M"], steps: int) -> float:
    """Return planes . x + rate * (relative entropy of x and the prior, times the mass of x)."""
    mass = x.sum()
    if price.rates[steps] == 0:
        return float("inf")
    if mass == 0:
        return 0.0
    ratios = np.log(np.maximum(x, TINY)) - np.log(mass) - price.log_prior
    return float(x @ (price.planes[steps] + price.rates[steps] * ratios))


def add_node(arms: Arms, nodes: Nodes, x: Float[Array, "M"], key: int, steps: int) -> int:
    """Add a node with the bounds of knowing the type from the next step on; return its number."""
    node = int(nodes.counts[0])
    nodes.counts[0] += 1
    nodes.beliefs[node] = x
    means = arms.means[arms.at[steps]] @ x
    if len(arms.stays):
        nodes.values[node] = means + (arms.stays[arms.at[steps]] * arms.corner[steps - 1]) @ x
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


def superseded_share(upper: Upper) -> float:
    """Return the share of points, at the largest stage, that fell and were stored again."""
    stage = int(upper.counts.argmax())
    count = int(upper.counts[stage])
    return np.count_nonzero(upper.drops[stage, :count] >= 0) / count if count else 0.0


def renumber_points(nodes: Nodes, before: list[Integer[Array, "_"]]) -> None:
    """Update the point numbers of nodes; `before` holds, by steps to go, how many earlier points stay."""
    count = int(nodes.counts[0])
    steps, points = nodes.steps[:count], nodes.points[:count]
    for stage, places in enumerate(before):
        owners = np.flatnonzero((steps == stage) & (points >= 0))
        points[owners] = places[points[owners]]
        parents = np.flatnonzero((steps == stage + 1) & (nodes.high[:count, 0] >= 0))
        for known in (nodes.low, nodes.high):
            known[parents] = places[known[parents]]


def doubled(array: Array) -> Array:
    """Return the same entries with twice the room along the last axis."""
    wide = np.empty((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    wide[..., : array.shape[-1]] = array
    return wide


def empty_lower(stages: int, n_types: int, capacity: int) -> Lower:
    """Return room for vectors."""
    return Lower(
        np.empty((stages, n_types, capacity)), np.empty((stages, capacity), np.int64), np.zeros(stages, np.int64)
    )


def doubled_lower(lower: Lower) -> Lower:
    """Return the vectors with twice the room."""
    return Lower(doubled(lower.vectors), doubled(lower.arms), lower.counts)


def empty_upper(stages: int, n_types: int, capacity: int) -> Upper:
    """Return room for points."""
    return Upper(
        np.empty((stages, n_types, capacity)),
        np.empty((stages, n_types, capacity), np.float32),
        np.empty((stages, capacity)),
        np.zeros(stages, np.int64),
    )


def empty_nodes(count: int, capacity: int, n_types: int, n_arms: int, n_codes: int) -> list[Nodes]:
    """Return room for the nodes of several trees in one allocation, which takes less time than many small ones."""
    sizes = (count, capacity)
    fields: dict[str, Array] = {
        "beliefs": np.empty((*sizes, n_types)),
        "upper": np.empty(sizes),
        "values": np.empty((*sizes, n_arms)),
        "shares": np.empty((*sizes, n_codes)),
        "low": np.empty((*sizes, n_arms), np.int32),
        "high": np.empty((*sizes, n_arms), np.int32),
        "points": np.empty(sizes, np.int64),
        "solved": np.empty(sizes, np.bool_),
        "keys": np.empty(sizes, np.int64),
        "steps": np.empty(sizes, np.int64),
        "slots": np.full((count, 1 << (2 * capacity).bit_length()), -1, np.int64),  # at most half full
        "counts": np.zeros((count, 1), np.int64),
    }
    return [Nodes(**{name: array[k] for name, array in fields.items()}) for k in range(count)]


def doubled_nodes(nodes: Nodes) -> Nodes:
    """Return the nodes with twice the room."""
    sizes = (nodes.beliefs.shape[1], nodes.values.shape[1], nodes.shares.shape[1])
    [wide] = empty_nodes(1, 2 * len(nodes.upper), *sizes)
    count = int(nodes.counts[0])
    for name in set(Nodes._fields) - {"slots", "counts"}:
        getattr(wide, name)[:count] = getattr(nodes, name)[:count]
    wide.counts[0] = count
    mask = len(wide.slots) - 1
    for node, key in enumerate(nodes.keys[:count].tolist()):
        slot = key & mask
        while wide.slots[slot] >= 0:
            slot = (slot + 1) & mask
        wide.slots[slot] = node
    return wide
