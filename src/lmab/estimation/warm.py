"""A model to start from: whether it fits the log, and how the types of a new fit keep its order."""

from __future__ import annotations

import numpy as np

from .._shapes import Array, Float
from ..data import Packed, Sessions
from ..errors import InvalidArgument
from ..model import LatentBandit
from .observations import Observations

_SAME = 1e-9  # of the total difference: orders that differ by less are the same


def check_start(start: LatentBandit, observations: Observations, n_types: int) -> None:
    """Raise where a fit of `n_types` types to the log cannot start from the model."""
    wanted = n_types, observations.sessions.n_arms
    if (start.n_types, start.n_arms) != wanted:
        got = f"{start.n_types} types and {start.n_arms} arms"
        raise InvalidArgument(f"start must have {wanted[0]} types and {wanted[1]} arms, got {got}")
    own, values = start.rewards.values, observations.values
    knows = own is None if values is None else own is not None and bool(np.isin(values, own).all())
    if not knows:
        raise InvalidArgument(f"start must know every reward of the log, got {start}")


def packed_start(start: LatentBandit, observations: Observations) -> Float[Array, "1 K P"]:
    """The model as arrays, moved off the edges, where EM could not leave them."""
    return observations.start_models.soften(observations.models.pack(start))


def in_order_of(start: LatentBandit, bandit: LatentBandit, sessions: Sessions | Packed) -> LatentBandit:
    """The bandit with its types in the order of those that they resemble: differences count as often as arms play.

    Examples:
        >>> import lmab
        >>> start = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
        >>> found = lmab.LatentBandit.bernoulli([0.6, 0.4], [[0.3, 0.7], [0.8, 0.1]])
        >>> log = lmab.Sessions.from_arrays([[0, 1]], [[1.0, 0.0]])
        >>> in_order_of(start, found, log).weights
        array([0.4, 0.6])
    """
    from scipy.optimize import linear_sum_assignment

    cost = np.abs(start.means[:, None] - bandit.means[None]) @ sessions.plays
    _, order = linear_sum_assignment(cost)
    everyone = np.arange(len(order))
    if cost[everyone, order].sum() >= (1 - _SAME) * np.trace(cost):
        return bandit
    return bandit.relabel(types=order.tolist())
