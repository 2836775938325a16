"""Moments of every order: raw products over a core set, and products of centred, standardised rewards of any arms."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .._kernel import kernel
from .._shapes import Array, Bool, Float, Integer
from ..checks import check_count
from ..data.packed import Packed
from ..data.sessions import Sessions, require_nobody_left
from ..errors import InvalidArgument
from ..model.rewards import encode_values
from ..moments.core_set import Design

MAX_ENTRIES = 200_000
_CHUNK = 1 << 18  # sessions looked at together
_LEAST_SESSIONS = 5.0  # for a mean product of rewards: fewer sessions do not give a standard error

Pairs = list[tuple[int, Any]]


@dataclass(frozen=True, eq=False)
class CoreMoments:
    """T_l for one order l: one entry per non-decreasing multi-index over the core set that the log could measure."""

    indices: Integer[Array, "R l"]  # positions in the core set
    entries: Float[Array, "R"]  # estimates of sum_m w_m prod_j nu_m(i_j)
    plays: Float[Array, "R"]  # the number of ordered choices of l steps of a session that each entry was measured on
    stderr: Float[Array, "R"]  # with the sessions as the independent measurements

    @property
    def order(self) -> int:
        return int(self.indices.shape[1])


def core_moments(sessions: Sessions | Packed, design: Design, order: int) -> tuple[CoreMoments, ...]:
    """Return the moments of order 1 to `order` over the core set of `design`.

    An entry counts how often its arms were played in different steps of a session, and is the share of these times in
    which its values were paid. The sessions may play core sequences, or any arms that were chosen without looking at
    the session's own rewards. All pairs of an arm use the plays of this arm. For designs of arms (normal rewards) an
    entry is the mean product of the rewards. Orders that the log could not measure at all are left out. The cost per
    session is at most the number of entries, for a session of any length.
    """
    order = check_count("order", order)
    require_nobody_left("moments over a core set", sessions)
    pairs = design.pairs
    size = n_entries(len(pairs), order)
    if size > MAX_ENTRIES:
        raise InvalidArgument(
            f"order must be smaller for a core set of {len(pairs)}: {size} moments, more than {MAX_ENTRIES}, "
            f"got {order}"
        )
    arms = np.array(sorted({arm for arm, _ in pairs}))
    slots, table = _hits(pairs, arms, design.values)
    indices, sums = _sums(sessions, order, arms, slots, design.values, table)
    bounded = design.values is not None
    moments = [_ratios(rows, part, bounded=bounded) for rows, part in zip(indices, sums, strict=True)]
    measured = tuple(tensor for tensor in moments if len(tensor.entries))
    if len(measured) < min(order, 2):
        raise InvalidArgument("sessions must play arms of the core set twice in a session, got none that do")
    return measured


def n_entries(n_slots: int, order: int) -> int:
    """Return the number of multi-indices of order 1 to `order` over so many slots.

    Examples:
        >>> n_entries(15, 3)
        815
    """
    return math.comb(n_slots + order, order) - 1


def _hits(
    pairs: Pairs, arms: Integer[Array, "G"], values: Float[Array, "Z"] | None
) -> tuple[Integer[Array, "G W"], Float[Array, "G Z1 W"]]:
    """Return the slots of each core arm, and whether each value is a hit for them; the last row is any other value."""
    members = [[slot for slot, (arm, _) in enumerate(pairs) if arm == core] for core in arms.tolist()]
    slots = padded(members)
    if values is None:
        return slots, np.ones((len(arms), 1, 1))
    table = np.zeros((len(arms), len(values) + 1, slots.shape[1]))
    for group, group_slots in enumerate(members):
        for column, slot in enumerate(group_slots):
            event = pairs[slot][1] if isinstance(pairs[slot][1], frozenset) else {pairs[slot][1]}
            table[group, :-1, column] = [value in event for value in values.tolist()]
    return slots, table


def padded(rows: list[list[int]]) -> Integer[Array, "G W"]:
    """Return the rows as an array, with -1 after the end of shorter ones."""
    width = max(map(len, rows), default=0)
    return np.array([row + [-1] * (width - len(row)) for row in rows], dtype=np.int64).reshape(len(rows), width)


def _sums(
    sessions: Sessions | Packed,
    order: int,
    arms: Integer[Array, "G"],
    slots: Integer[Array, "G W"],
    values: Float[Array, "Z"] | None,
    table: Float[Array, "G Z1 W"],
    centre: Float[Array, "G"] | None = None,
) -> tuple[list[Integer[Array, "_ _"]], list[Float[Array, "_ 5"]]]:
    """Return the multi-indices of each order and the kernel's sums for them, in one pass over the log.

    A step that played arm g and paid value z observes table[g, z]; without values it observes (reward - centre[g])
    table[g, 0].
    """
    position = np.full(max(sessions.n_arms, int(arms.max()) + 1), -1)
    position[arms] = np.arange(len(arms))
    n_slots = int(slots.max()) + 1
    index = _MultiIndex(slots.shape[1], n_slots, order)
    sums = np.zeros((int(index.starts[-1]), 5))
    for chunk in sessions.chunks(_CHUNK):
        groups = position[chunk.arms]
        if values is None:
            paid = chunk.rewards if centre is None else chunk.rewards - centre[groups]
            observed = paid[:, None] * table[groups, 0]
        else:
            observed = table[groups, encode_values(values, chunk.rewards, others=True)]
        sums += kernel("sums").moment_sums(
            groups, observed, chunk.offsets, slots, order, index.symbols, index.parents, index.degrees, index.repeats,
            index.binomials, index.starts,
        )  # fmt: skip
    return index.entries(), np.split(sums, index.starts[2:-1])


@dataclass(frozen=True, eq=False)
class _MultiIndex:
    """The numbering of multisets of W columns of an arm, and of n slots of all arms, up to some order."""

    width: int
    n_slots: int
    order: int

    @cached_property
    def _multisets(self) -> list[tuple[int, ...]]:
        return [
            multiset
            for size in range(self.order + 1)
            for multiset in itertools.combinations_with_replacement(range(self.width), size)
        ]

    @cached_property
    def symbols(self) -> Integer[Array, "Q L"]:
        return np.array(
            [[*multiset, *[-1] * (self.order - len(multiset))] for multiset in self._multisets], dtype=np.int64
        )

    @cached_property
    def degrees(self) -> Integer[Array, "Q"]:
        return np.array([len(multiset) for multiset in self._multisets], dtype=np.int64)

    @cached_property
    def parents(self) -> Integer[Array, "Q L"]:
        places = {multiset: place for place, multiset in enumerate(self._multisets)}
        parent = np.full((len(places), self.order), -1, dtype=np.int64)
        for multiset, place in places.items():
            for factor, symbol in enumerate(multiset):
                if factor == 0 or multiset[factor - 1] != symbol:
                    parent[place, factor] = places[multiset[:factor] + multiset[factor + 1 :]]
        return parent

    @cached_property
    def repeats(self) -> Float[Array, "Q"]:
        return _factorials(self.symbols, pad=-1)

    @cached_property
    def binomials(self) -> Integer[Array, "B L1"]:
        size = self.n_slots + self.order
        return np.array([[math.comb(i, j) for j in range(self.order + 1)] for i in range(size)], dtype=np.int64)

    @cached_property
    def starts(self) -> Integer[Array, "L2"]:
        sizes = [math.comb(self.n_slots + degree - 1, degree) for degree in range(1, self.order + 1)]
        return np.concatenate([[0, 0], np.cumsum(sizes)]).astype(np.int64)

    def entries(self) -> list[Integer[Array, "_ _"]]:
        """Return the multi-indices of each order, as the kernel numbers them."""
        ratios = []
        for degree in range(1, self.order + 1):
            every = itertools.combinations_with_replacement(range(self.n_slots), degree)
            rows = np.array(list(every), dtype=np.int64).reshape(-1, degree)
            ratios.append(rows[np.lexsort(rows.T)])
        return ratios


def _factorials(rows: Integer[Array, "R l"], pad: int) -> Float[Array, "R"]:
    """Return the product of the factorials of the multiplicities of each rising row."""
    factorials = np.ones(len(rows))
    run = np.ones(len(rows))
    for column in range(1, rows.shape[1]):
        run = np.where((rows[:, column] == rows[:, column - 1]) & (rows[:, column] != pad), run + 1, 1.0)
        factorials *= run
    return factorials


def _ratios(indices: Integer[Array, "R l"], sums: Float[Array, "R 5"], *, bounded: bool) -> CoreMoments:
    """Return entries as ratios of sums over sessions, and the standard errors of these ratios."""
    keep = sums[:, 1] > 0
    indices, (x, y, xx, xy, yy) = indices[keep], sums[keep].T
    ratio, effective = x / y, y**2 / yy  # the effective number of sessions
    variance = np.maximum(xx - 2 * ratio * xy + ratio**2 * yy, 0) / y**2
    enough: Bool[Array, "R"] = effective > 0
    if bounded:  # an entry that was seen never or always still has an error
        variance = np.maximum(variance, 0.5 / effective**2)
    else:
        enough = effective >= _LEAST_SESSIONS
        variance = np.maximum(variance, np.finfo(float).tiny)
    plays = y * _factorials(indices, pad=-1)  # ordered choices
    return CoreMoments(indices[enough], ratio[enough], plays[enough], np.sqrt(variance[enough]))


@dataclass(frozen=True, eq=False)
class Contrasts:
    """Centred, standardised rewards of some arms: uncorrelated contrasts of unit variance in the log.

    A discrete arm has an event for each of its chosen values, and as many contrasts as these events have independent
    directions; a continuous arm has its reward as its one event. In a type whose contrasts have the means y, the events
    have the means `centre + factor @ y`.
    """

    arms: Integer[Array, "G"]  # measured arms, rising
    events: Pairs  # (arm, value), or (arm, None) for continuous rewards, arm by arm
    slots: Integer[Array, "G W"]  # the contrasts of each arm; -1 if it has fewer than W
    values: Float[Array, "Z"] | None
    table: Float[Array, "G Z1 W"]  # contrasts of each value, then of any other value; (G, 1, 1) for continuous rewards
    centre: Float[Array, "E"]  # means of the events in the log
    factor: Float[Array, "E n"]
    atoms: Integer[Array, "E"]  # position of each event's value among the values; 0 for continuous rewards

    @property
    def n(self) -> int:
        """Return the number of contrasts."""
        return self.factor.shape[1]

    @classmethod
    def of(
        cls, sessions: Sessions | Packed, events: Iterable[tuple[int, Any]], values: Float[Array, "Z"] | None
    ) -> Contrasts:
        """Centre and standardise these events by their frequencies in the log.

        Directions that occur fewer than five times are left out, because they have no standard error.
        """
        pairs = sorted(set(events))
        arms = np.array(sorted({arm for arm, _ in pairs}), dtype=np.int64)
        rows_by_arm = [[place for place, (arm, _) in enumerate(pairs) if arm == core] for core in arms.tolist()]
        if values is None:
            plays, sums, squares = _by_arm(sessions, arms)
            centre = sums / np.maximum(plays, 1)
            scale = np.sqrt(np.maximum(squares / np.maximum(plays, 1) - centre**2, 0.0))
            used = np.flatnonzero((scale > 0) & (plays >= _LEAST_SESSIONS))
            slots = np.full((len(arms), 1), -1, dtype=np.int64)
            slots[used, 0] = np.arange(len(used))
            factor = np.zeros((len(arms), len(used)))
            factor[used, np.arange(len(used))] = scale[used]
            table = np.zeros((len(arms), 1, 1))
            table[used, 0, 0] = 1 / scale[used]
            return cls(arms, pairs, slots, None, table, centre, factor, np.zeros(len(pairs), np.int64))
        counts = _by_value(sessions, arms, values)
        places = np.searchsorted(values, [value for _, value in pairs])
        centre, blocks, tables = np.zeros(len(pairs)), [], []
        for group, rows in enumerate(rows_by_arm):
            plays = max(counts[group].sum(), 1.0)
            p = counts[group, places[rows]] / plays
            centre[rows] = p
            spread, directions = np.linalg.eigh(np.diag(p) - np.outer(p, p))
            kept = spread * plays >= _LEAST_SESSIONS
            root, directions = np.sqrt(spread[kept]), directions[:, kept]
            hits = np.zeros((len(values) + 1, len(rows)))
            hits[places[rows], np.arange(len(rows))] = 1.0
            blocks.append(directions * root)
            tables.append((hits - p) @ (directions / root))
        slots = padded([list(range(*ends)) for ends in itertools.pairwise(_edges(blocks))])
        factor = np.zeros((len(pairs), int(slots.max(initial=-1)) + 1))
        table = np.zeros((len(arms), len(values) + 1, slots.shape[1]))
        for group, (rows, block) in enumerate(zip(rows_by_arm, blocks, strict=True)):
            factor[np.array(rows)[:, None], slots[group, : block.shape[1]]] = block
            table[group, :, : block.shape[1]] = tables[group]
        return cls(arms, pairs, slots, values, table, centre, factor, places)

    def event_means(self, y: Float[Array, "n M"]) -> Float[Array, "E M"]:
        """Return the mean of every event in types with these means of contrasts."""
        return self.centre[:, None] + self.factor @ y

    def powers(self, weights: Float[Array, "M"], y: Float[Array, "n M"], power: int) -> Float[Array, "n M"]:
        """Return the expectation of the contrasts' second, third or fourth powers in every type."""
        if self.values is None:
            within = np.maximum(1 - y**2 @ weights, 0.0)[:, None]  # of the unit variance, not explained by the types
            return {2: y**2 + within, 3: y**3 + 3 * y * within, 4: y**4 + 6 * y**2 * within + 3 * within**2}[power]
        probabilities = np.zeros((len(self.arms), len(self.values) + 1, len(weights)))
        group = np.searchsorted(self.arms, [arm for arm, _ in self.events])
        probabilities[group, self.atoms] = np.clip(self.event_means(y), 0, 1)
        probabilities[:, -1] = np.maximum(1 - probabilities[:, :-1].sum(axis=1), 0)
        means = np.einsum("gzm,gzw->gwm", probabilities, self.table**power)
        out = np.zeros((self.n, len(weights)))
        out[self.slots[self.slots >= 0]] = means[self.slots >= 0]
        return out


def _edges(blocks: list[Float[Array, "_ _"]]) -> list[int]:
    return [0, *np.cumsum([block.shape[1] for block in blocks]).tolist()]


def _by_value(sessions: Sessions | Packed, arms: Integer[Array, "G"], values: Float[Array, "Z"]) -> Float[Array, "G Z"]:
    """Return how often each arm paid each value."""
    size = len(values)
    cells = np.zeros(max(sessions.n_arms, int(arms.max()) + 1) * size)
    for chunk in sessions.chunks(_CHUNK):
        place = encode_values(values, chunk.rewards, others=True)
        inside = place < size
        code = np.asarray(chunk.arms, np.int64)[inside] * size + place[inside]
        cells += np.bincount(code, minlength=len(cells))
    return cells.reshape(-1, size)[arms]


def _by_arm(sessions: Sessions | Packed, arms: Integer[Array, "G"]) -> Float[Array, "3 G"]:
    """Return the plays of each arm, the sum of its rewards, and the sum of their squares."""
    size = max(sessions.n_arms, int(arms.max()) + 1)
    totals = np.zeros((3, size))
    for chunk in sessions.chunks(_CHUNK):
        for row, weights in zip(totals, (None, chunk.rewards, chunk.rewards**2), strict=True):
            row += np.bincount(chunk.arms, weights, minlength=size)
    return totals[:, arms]


@dataclass(frozen=True, eq=False)
class CentredMoments:
    """Mean products of contrasts over different steps of a session, of order 1 to L.

    If types were alike, entries would be uncorrelated, with standard error 1 / sqrt(plays).
    """

    indices: Integer[Array, "R L"]  # contrasts; n stands for no factor
    entries: Float[Array, "R"]  # estimates of sum_m w_m prod_j y_m(i_j)
    plays: Float[Array, "R"]  # choices of steps of a session that an entry is the mean of
    clustering: Float[Array, "R"]  # such choices in the session of one of them; 1 if no session has several
    variances: Float[Array, "R"]  # of the entries between sessions, times plays

    @property
    def order(self) -> int:
        return int(self.indices.shape[1])


def centred_moments(sessions: Sessions | Packed, contrasts: Contrasts, order: int) -> CentredMoments:
    """Return the moments of order 1 to `order` of these contrasts, in one pass over a log of sessions of any length.

    An order that the log could not measure at all has no entries.
    """
    if contrasts.n == 0:
        empty = np.zeros(0)
        return CentredMoments(np.zeros((0, order), np.int64), empty, empty, empty, empty)
    centre = contrasts.centre if contrasts.values is None else None
    indices, sums = _sums(
        sessions, order, contrasts.arms, contrasts.slots, contrasts.values, contrasts.table, centre
    )  # fmt: skip
    missing = [((0, 0), (0, order - table.shape[1])) for table in indices]
    rows = np.concatenate(
        [np.pad(table, width, constant_values=contrasts.n) for table, width in zip(indices, missing, strict=True)]
    )
    totals = np.concatenate(sums)
    kept = totals[:, 1] > 0
    x, y, xx, xy, yy = totals[kept].T
    mean = x / y
    return CentredMoments(rows[kept], mean, y, yy / y, (xx - 2 * mean * xy + mean**2 * yy) / y)
