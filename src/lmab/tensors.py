"""Moments of every order over a core set, stored by symmetric multi-index (equation (tensor_estimate))."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from ._shapes import Array, Float, Integer
from .coreset import Design
from .episodes import Episodes
from .errors import InvalidArgument, check_count

_MAX_ENTRIES = 2_000_000


@dataclass(frozen=True, eq=False)
class Tensor:
    """T_l for one order l: one entry per non-decreasing multi-index over the core set that the log could measure."""

    indices: Integer[Array, "R l"]  # positions in the core set
    entries: Float[Array, "R"]  # estimates of sum_m w_m prod_j nu_m(i_j)
    plays: Float[Array, "R"]  # sets of l steps of an episode that each was measured on
    spread: Float[Array, "R"]  # standard deviation of one measurement

    @property
    def order(self) -> int:
        return int(self.indices.shape[1])

    @property
    def stderr(self) -> Float[Array, "R"]:
        """Standard errors, as if measurements were independent."""
        return self.spread / np.sqrt(self.plays)


def core_tensors(episodes: Episodes, design: Design, order: int) -> tuple[Tensor, ...]:
    """Moments of order 1 to `order` over the core set of `design`.

    An entry is the share of times that its values were paid among the times that its arms were played in different
    steps of an episode: from episodes that played core sequences, or from any log whose arms were chosen without
    looking at the session's own rewards. An arm's pairs share its plays. For designs of arms (normal rewards), the
    mean product of the rewards. Orders that the log could not measure at all are left out.
    """
    check_count("order", order)
    arms = np.array([arm for arm, _ in design.pairs])
    position = np.full(episodes.n_arms, -1)
    core_arms = np.unique(arms)
    position[core_arms] = np.arange(len(core_arms))
    actions, rewards = episodes.to_arrays()
    played = np.where(actions >= 0, position[actions], -1)  # column of core_arms, or -1
    if math.comb(len(arms) + order - 1, order) > _MAX_ENTRIES:
        raise InvalidArgument(
            f"order must be smaller for a core set of {len(arms)}: {math.comb(len(arms) + order - 1, order)} moments, "
            f"more than {_MAX_ENTRIES}; got {order}"
        )
    owner = np.searchsorted(core_arms, arms)
    if design.values is None:
        found = [_products(played, rewards, owner, degree) for degree in range(1, order + 1)]
    else:
        hit = _hits(played, rewards, design, owner)
        found = [_frequencies(played, hit, owner, degree) for degree in range(1, order + 1)]
    measured = tuple(tensor for tensor in found if len(tensor.entries))
    if len(measured) < min(order, 2):
        raise InvalidArgument("episodes must play arms of the core set twice in a session, got none that do")
    return measured


def _hits(
    played: Integer[Array, "N H"], rewards: Float[Array, "N H"], design: Design, owner: Integer[Array, "n"]
) -> Integer[Array, "N H"]:
    """Which pair of the core set each step hit, -1 where its arm paid a value that is in no core pair."""
    if any(isinstance(value, frozenset) for _, value in design.pairs):
        raise InvalidArgument("design must be of 'pairs' or 'arms' here, got one of events")
    hit = np.full(played.shape, -1)
    for index, (_, value) in enumerate(design.pairs):
        hit[(played == owner[index]) & (rewards == value)] = index
    return hit


def _frequencies(
    played: Integer[Array, "N H"], hit: Integer[Array, "N H"], owner: Integer[Array, "n"], degree: int
) -> Tensor:
    """Counts of hits over counts of plays, by sorted multi-index; orderings of one arm's values are shared out."""
    plays = _Counter(degree, int(owner.max()) + 1)
    hits = _Counter(degree, len(owner))
    for steps in itertools.combinations(range(played.shape[1]), degree):
        plays.add(played[:, steps])
        hits.add(hit[:, steps])
    indices = _multi_indices(len(owner), degree)
    times = plays.of(np.sort(owner[indices], axis=1))
    known = times > 0
    indices, times = indices[known], times[known]
    entries = hits.of(indices) / times / _orderings(indices, owner)
    floor = 0.5 / times  # an entry seen never or always is not known without error
    spread = np.sqrt(np.clip(entries * (1 - entries), floor, None))
    return Tensor(indices, entries, times, spread)


def _products(
    played: Integer[Array, "N H"], rewards: Float[Array, "N H"], owner: Integer[Array, "n"], degree: int
) -> Tensor:
    """Mean products of rewards, by sorted multi-index of arms."""
    plays, sums, squares = (_Counter(degree, len(owner)) for _ in range(3))
    for steps in itertools.combinations(range(played.shape[1]), degree):
        product = rewards[:, steps].prod(axis=1)
        plays.add(played[:, steps])
        sums.add(played[:, steps], product)
        squares.add(played[:, steps], product**2)
    indices = _multi_indices(len(owner), degree)
    times = plays.of(indices)
    known = times > 0
    indices, times = indices[known], times[known]
    entries = sums.of(indices) / times
    pooled = squares.total / max(plays.total, 1)  # variances of single entries are too noisy to weight by
    return Tensor(indices, entries, times, np.full(len(entries), math.sqrt(pooled)))


class _Counter:
    """Sums by sorted multi-index of a degree over a small alphabet; rows with a -1 do not count."""

    def __init__(self, degree: int, size: int) -> None:
        self._bases = np.int64(size) ** np.arange(degree, dtype=np.int64)[::-1]
        self._keys: list[Integer[Array, "n"]] = []
        self._weights: list[Float[Array, "n"]] = []

    def add(self, rows: Integer[Array, "n l"], weights: Float[Array, "n"] | None = None) -> None:
        inside = np.all(rows >= 0, axis=1)
        keys = np.sort(rows[inside], axis=1) @ self._bases
        values = np.ones(len(keys)) if weights is None else weights[inside]
        distinct, group = np.unique(keys, return_inverse=True)
        self._keys.append(distinct)
        self._weights.append(np.bincount(group, values, minlength=len(distinct)))

    @property
    def total(self) -> float:
        return float(sum(weights.sum() for weights in self._weights))

    def of(self, indices: Integer[Array, "R l"]) -> Float[Array, "R"]:
        """The sums at the given multi-indices."""
        keys, group = np.unique(np.concatenate(self._keys), return_inverse=True)
        sums = np.bincount(group, np.concatenate(self._weights), minlength=len(keys))
        wanted = indices @ self._bases
        place = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
        return np.where(keys[place] == wanted, sums[place], 0.0) if len(keys) else np.zeros(len(wanted))


def _multi_indices(size: int, degree: int) -> Integer[Array, "R l"]:
    return np.array(list(itertools.combinations_with_replacement(range(size), degree)), dtype=np.int64)


def _orderings(indices: Integer[Array, "R l"], owner: Integer[Array, "n"]) -> Float[Array, "R"]:
    """In how many ways the steps of each arm can have paid an index's values: a product of multinomials."""
    ways = np.ones(len(indices))
    arms = owner[indices]
    same_arm, same_pair = np.ones(len(indices)), np.ones(len(indices))
    for column in range(1, indices.shape[1]):
        # Indices are sorted and pairs of an arm are neighbours, so runs are what they must be.
        same_arm = np.where(arms[:, column] == arms[:, column - 1], same_arm + 1, 1)
        same_pair = np.where(indices[:, column] == indices[:, column - 1], same_pair + 1, 1)
        ways *= same_arm / same_pair
    return ways
