"""Bins: continuous rewards cut into a few values, as in the short-horizon algorithm of appendix B.2."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from .._shapes import Array, Float, Integer, Shaped
from ..checks import OneOf, check, check_count
from ..data.packed import Packed
from ..data.sessions import Sessions
from ..errors import InvalidArgument

Log = TypeVar("Log", bound=Sessions | Packed)
BINS = 8  # Bins beside the one for 0.
_TINY = float(np.finfo(np.float64).tiny)  # the edge above 0: every amount is at least this
_REFINED = (8, 64)  # the fewest and the most bins of long logs
_SESSIONS = 1 << 16  # Sessions whose rewards are looked at together.
Pieces = Callable[[], Iterable[Float[Array, "_"]]]  # all rewards, whenever it is called, in the same pieces
_DIGIT = 13  # bits that one pass tells about a quantile
_SIGN = np.uint64(1 << 63)


@dataclass(frozen=True, eq=False)
class Bins:
    """Edges between bins, and the reward that stands for each bin."""

    edges: Float[Array, "E"]  # rising
    values: Float[Array, "Z"]  # Z = E + 1, rising, but for the paper's 0 beyond its grid

    @classmethod
    def at_quantiles(cls, rewards: Float[Array, "S"], n_bins: int) -> Bins:
        """Bins that hold equally many rewards each; the value of a bin is the mean of its rewards."""
        n_bins = check_count("bins", n_bins, minimum=2)
        edges = np.unique(np.quantile(rewards, np.arange(1, n_bins) / n_bins))
        counts, sums = counts_and_sums(lambda: [rewards], edges)
        filled = np.flatnonzero(counts)  # Where many rewards are equal, the bin below them may hold none.
        return cls(edges[filled[1:] - 1], sums[filled] / counts[filled])

    @classmethod
    def with_zero_apart(cls, rewards: Float[Array, "S"], n_bins: int = BINS) -> Bins:
        """A bin for 0 alone, where it occurs, and at most `n_bins` bins at quantiles of the other rewards.

        The value of a bin is the mean of its rewards, so that the mean of the log stays what it is. Rewards that are
        mostly 0 and sometimes an amount (money, seconds of attention) keep what tells sessions apart: whether there
        was an amount, and how large it was. Half of each quantile counts rewards, the other half sums them: few large
        amounts may be most of the money, and one bin for all of them would hide which arms pay them.

        Examples:
            >>> import numpy as np
            >>> bins = Bins.with_zero_apart(np.array([0.0, 0.0, 0.0, 1.0, 3.0, 10.0, 20.0]), 2)
            >>> bins.values
            array([ 0.,  2., 15.])
            >>> bins.apply(np.array([0.0, 0.1, 99.0]))
            array([ 0.,  2., 15.])
        """
        return cls._zero_apart(lambda: [rewards], n_bins)

    @classmethod
    def of_amounts(cls, sessions: Sessions | Packed, n_bins: int = BINS) -> Bins:
        """What `with_zero_apart` gives for the rewards of a log, of which only a part is looked at at a time."""
        return cls._zero_apart(lambda: (chunk.rewards for chunk in sessions.chunks(_SESSIONS)), n_bins)

    @classmethod
    def _zero_apart(cls, pieces: Pieces, n_bins: int) -> Bins:
        n_bins = check_count("bins", n_bins, minimum=2)
        (below, zeros, above), _ = counts_and_sums(pieces, np.array([0.0, _TINY]))
        edges = quantiles(pieces, np.arange(1, n_bins) / n_bins) if below + above else np.empty(0)
        if zeros:
            edges = np.union1d(edges, [edge for edge, beyond in ((0.0, below), (_TINY, above)) if beyond])
        counts, sums = counts_and_sums(pieces, edges)
        filled = np.flatnonzero(counts)  # bins that no reward falls into are left out
        return cls(edges[filled[1:] - 1], sums[filled] / counts[filled])

    @classmethod
    def refined(cls, sessions: Sessions) -> Bins:
        """Bins at quantiles, more of them in longer logs, so that the bias of cutting vanishes: N^(1/3), 8 to 64."""
        return cls.at_quantiles(sessions.rewards, int(np.clip(round(len(sessions) ** (1 / 3)), *_REFINED)))

    @classmethod
    def on_grid(cls, horizon: int, epsilon: float, scale: float = 1.0, *, beyond: str = "ends") -> Bins:
        """The grid of appendix B.2, for rewards of standard deviation `scale`: rewards are rounded down to it.

        Rewards beyond the grid stay at its "ends", or become "zero" as in the paper. Learners leave them at the ends: a
        policy that cuts what it observes cannot tell a 0 from the middle. Such rewards are so rare that both are within
        the error of Lemma B.5.
        """
        check("beyond", beyond, OneOf(("ends", "zero")))
        grid = gaussian_grid(horizon, epsilon) * scale
        if beyond == "zero":
            return cls(grid, np.concatenate([[0.0], grid[:-1], [0.0]]))
        return cls(grid[1:], grid)

    @classmethod
    def of_log(cls, sessions: Sessions, bins: int | str | None, epsilon: float, scale: float | None = None) -> Bins:
        """What learners mean by `bins`: a number of quantiles, "auto" for `refined`, None for the appendix's grid."""
        if bins is None:
            return cls.on_grid(sessions.horizon, epsilon, scale or 1.0)
        return cls.refined(sessions) if isinstance(bins, str) else cls.at_quantiles(sessions.rewards, bins)

    def edges_between(self, values: Float[Array, "V"]) -> Float[Array, "F"]:
        """The edges below all of these values of bins but the first, where other bins are empty."""
        if (np.diff(self.values) <= 0).any():
            raise InvalidArgument("bins must have rising values to be cut by a policy, got 0 beyond the grid")
        return self.edges[np.searchsorted(self.values, values[1:]) - 1]

    def apply(self, rewards: Float[Array, "S"]) -> Float[Array, "S"]:
        """The value of the bin that each reward falls into."""
        return self.values[np.searchsorted(self.edges, rewards, side="right")]

    def cut(self, sessions: Log) -> Log:
        """The log with its rewards cut; those of a packed log are cut whenever they are read."""
        if isinstance(sessions, Packed):
            return sessions.cut(self.edges, self.values)  # type: ignore[return-value]
        return replace(sessions, rewards=self.apply(sessions.rewards))


def gaussian_grid(horizon: int, epsilon: float) -> Float[Array, "Z"]:
    """Return the grid of appendix B.2: from -4 sqrt(log(H / epsilon)) upwards in steps of epsilon / H^2."""
    start = -4 * _grid_edge(horizon, epsilon)
    return start + np.arange(gaussian_grid_size(horizon, epsilon)) * epsilon / horizon**2


def gaussian_grid_size(horizon: int, epsilon: float) -> int:
    """Return the number of points of the grid of appendix B.2."""
    return math.floor(8 * horizon**2 * _grid_edge(horizon, epsilon) / epsilon)


def _grid_edge(horizon: int, epsilon: float) -> float:
    """Return sqrt(log(H / epsilon))."""
    if not 0 < epsilon < horizon:
        raise InvalidArgument(f"epsilon must be in (0, horizon), got {epsilon!r}")
    return math.sqrt(math.log(horizon / epsilon))


def counts_and_sums(pieces: Pieces, edges: Float[Array, "E"]) -> tuple[Integer[Array, "Z"], Float[Array, "Z"]]:
    """How many rewards lie between two edges, and their sums; an edge belongs to what lies above it."""
    size = len(edges) + 1
    counts, sums = np.zeros(size, np.int64), np.zeros(size)
    for rewards in pieces():
        place = np.searchsorted(edges, rewards, side="right")
        counts += np.bincount(place, minlength=size)
        sums += np.bincount(place, rewards, minlength=size)
    return counts, sums


def quantiles(pieces: Pieces, targets: Float[Array, "q"]) -> Float[Array, "e"]:
    """The rewards other than 0 at which their shares pass the targets; half of a share counts them, half sums them.

    A reward is found bit by bit: each pass counts and sums the rewards that begin with the bits known so far by their
    next bits. So a log of any size takes five passes and little memory.

    Examples:
        >>> import numpy as np
        >>> quantiles(lambda: [np.array([1.0, 3.0, 0.0]), np.array([20.0, 10.0])], np.array([0.5]))
        array([10.])
    """
    known, owner = np.zeros(1, np.uint64), np.zeros(len(targets), np.int64)  # first bits, and those of each target
    below, total = np.zeros((len(targets), 2)), np.zeros(2)  # number and size of what lies below the known bits
    for shift in range(4 * _DIGIT, -1, -_DIGIT):
        found = _by_next_bits(pieces, known, shift)
        total = found.sum(axis=(0, 1)) if shift == 4 * _DIGIT else total
        next_bits = np.empty(len(targets), np.uint64)
        for number, (target, own) in enumerate(zip(targets.tolist(), owner.tolist(), strict=True)):
            reached = below[number] + np.cumsum(found[own], axis=0)
            passed = np.searchsorted((reached / total).sum(axis=1) / 2, target, side="right")
            filled = np.flatnonzero(found[own, :, 0])  # rounding must not lead to where no reward is
            here = int(filled[min(np.searchsorted(filled, passed), len(filled) - 1)])
            below[number] = reached[here] - found[own, here]
            next_bits[number] = here
        known, owner = np.unique((known[owner] << np.uint64(_DIGIT)) | next_bits, return_inverse=True)
    return _rewards(known)


def _by_next_bits(pieces: Pieces, known: Shaped[Array, "k"], shift: int) -> Float[Array, "k n 2"]:
    """Number and size of the rewards that begin with the known bits, by their next bits."""
    n = 1 << _DIGIT
    found = np.zeros((2, len(known) * n))
    for rewards in pieces():
        others = rewards[rewards != 0]
        bits = _keys(others) >> np.uint64(shift)
        first = bits >> np.uint64(_DIGIT)
        place = np.minimum(np.searchsorted(known, first), len(known) - 1)
        here = known[place] == first
        cells = place[here] * n + (bits[here] & np.uint64(n - 1)).astype(np.int64)
        found[0] += np.bincount(cells, minlength=len(known) * n)
        found[1] += np.bincount(cells, np.abs(others[here]), minlength=len(known) * n)
    return found.T.reshape(len(known), n, 2)


def _keys(rewards: Float[Array, "s"]) -> Shaped[Array, "s"]:
    """Whole numbers in the order of the rewards, with all of their bits."""
    bits = rewards.view(np.uint64)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def _rewards(keys: Shaped[Array, "s"]) -> Float[Array, "s"]:
    return np.where(keys & _SIGN, keys ^ _SIGN, ~keys).view(np.float64)
