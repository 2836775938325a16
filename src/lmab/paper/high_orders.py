"""Moments of every order over a core set, stored by symmetric multi-index (equation (tensor_estimate))."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass
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

_MAX_ENTRIES = 200_000
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
    """Moments of order 1 to `order` over the core set of `design`.

    An entry counts how often its arms were played in different steps of a session, and is the share of these times in
    which its values were paid. The sessions may play core sequences, or any arms that were chosen without looking at
    the session's own rewards. All pairs of an arm use the plays of this arm. For designs of arms (normal rewards) an
    entry is the mean product of the rewards. Orders that the log could not measure at all are left out. The cost per
    session is the number of entries, for a session of any length.
    """
    order = check_count("order", order)
    require_nobody_left("moments over a core set", sessions)
    pairs = design.pairs
    size = sum(math.comb(len(pairs) + degree - 1, degree) for degree in range(1, order + 1))
    if size > _MAX_ENTRIES:
        raise InvalidArgument(
            f"order must be smaller for a core set of {len(pairs)}: {size} moments, more than {_MAX_ENTRIES}, "
            f"got {order}"
        )
    arms = sorted({arm for arm, _ in pairs})
    position = np.full(max(sessions.n_arms, arms[-1] + 1), -1)
    position[arms] = np.arange(len(arms))
    indices = [_multi_indices(pairs, degree) for degree in range(1, order + 1)]
    products, ways = _positions(indices, [arms.index(arm) for arm, _ in pairs], len(arms), order)
    sums = np.zeros((len(products), 5))
    for chunk in sessions.chunks(_CHUNK):  # one pass over the log for all orders
        groups = position[chunk.arms]
        slots, observed = _observed(chunk, groups, pairs, arms, design.values)
        sums += kernel("sums").core_sums(
            groups, observed, chunk.offsets, slots, len(pairs), order, products, ways
        )  # fmt: skip
    parts = np.split(sums, np.cumsum([len(own) for own in indices])[:-1])
    bounded = design.values is not None
    found = [_ratios(own, part, bounded=bounded) for own, part in zip(indices, parts, strict=True)]
    measured = tuple(tensor for tensor in found if len(tensor.entries))
    if len(measured) < min(order, 2):
        raise InvalidArgument("sessions must play arms of the core set twice in a session, got none that do")
    return measured


def _observed(
    sessions: Sessions, groups: Integer[Array, "S"], pairs: Pairs, arms: list[int], values: Float[Array, "Z"] | None
) -> tuple[Integer[Array, "G W"], Float[Array, "S W"]]:
    """The pairs of each core arm, and what every step says about the pairs of its arm: 1 or 0, or the reward."""
    members = [[slot for slot, (arm, _) in enumerate(pairs) if arm == core] for core in arms]
    width = max(len(own) for own in members)
    slots = np.array([own + [-1] * (width - len(own)) for own in members], dtype=np.int64)
    if values is None:
        return slots, sessions.rewards[:, None].copy()
    hit = np.zeros((len(arms), len(values) + 1, width))  # the last row: any other reward
    for group, own in enumerate(members):
        for column, slot in enumerate(own):
            event = pairs[slot][1] if isinstance(pairs[slot][1], frozenset) else {pairs[slot][1]}
            hit[group, :-1, column] = [value in event for value in values.tolist()]
    return slots, hit[groups, encode_values(values, sessions.rewards, others=True)]


def _multi_indices(pairs: Pairs, degree: int) -> Integer[Array, "R l"]:
    """Non-decreasing multi-indices, without those that join overlapping events of one arm: one step could be both."""
    clash = {
        (i, j)
        for i, j in itertools.combinations(range(len(pairs)), 2)
        if pairs[i][0] == pairs[j][0] and isinstance(pairs[i][1], frozenset) and pairs[i][1] & pairs[j][1]
    }
    every = itertools.combinations_with_replacement(range(len(pairs)), degree)
    rows = [index for index in every if not clash or clash.isdisjoint(itertools.combinations(sorted(set(index)), 2))]
    return np.array(rows, dtype=np.int64).reshape(-1, degree)


def _positions(
    indices: list[Integer[Array, "_ _"]], owner: list[int], n_groups: int, order: int
) -> tuple[Integer[Array, "R L"], Integer[Array, "R L"]]:
    """The places of the factors of each entry in the kernel's tables of products and of counts."""
    stride = order + 1
    rows = [row for own in indices for row in own.tolist()]
    products = np.full((len(rows), order), len(owner) * stride)
    ways = np.full((len(rows), order), n_groups * stride)
    for number, row in enumerate(rows):
        for place, (slot, times) in enumerate(Counter(row).items()):
            products[number, place] = slot * stride + times
        for place, (group, times) in enumerate(Counter(owner[slot] for slot in row).items()):
            ways[number, place] = group * stride + times
    return products, ways


def _ratios(indices: Integer[Array, "R l"], sums: Float[Array, "R 5"], *, bounded: bool) -> CoreMoments:
    """Entries as ratios of sums over sessions, and the standard errors of these ratios."""
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
    return CoreMoments(indices[enough], ratio[enough], y[enough], np.sqrt(variance[enough]))
