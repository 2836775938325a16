"""Discretisation of continuous rewards into a few values, as in the short-horizon algorithm of appendix B.2."""

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
BINS = 8  # number of bins beside the one for 0
_TINY = float(np.finfo(np.float64).tiny)  # the edge above 0, below every positive amount
_SESSIONS = 1 << 16  # sessions per chunk
Pieces = Callable[[], Iterable[Float[Array, "_"]]]  # yields all rewards, in the same pieces at each call
_DIGIT = 13  # bits of a quantile that one pass determines
_SIGN = np.uint64(1 << 63)


@dataclass(frozen=True, eq=False)
class Bins:
    """Edges between bins, and the reward that represents each bin."""

    edges: Float[Array, "E"]  # increasing
    values: Float[Array, "Z"]  # Z = E + 1, increasing, except for the paper's 0 beyond its grid

    @classmethod
    def at_quantiles(cls, rewards: Float[Array, "S"], n_bins: int) -> Bins:
        """Return bins with equally many rewards each; the value of a bin is the mean of its rewards."""
        n_bins = check_count("bins", n_bins, minimum=2)
        edges = np.unique(np.quantile(rewards, np.arange(1, n_bins) / n_bins))
        counts, sums = counts_and_sums(lambda: [rewards], edges)
        filled = np.flatnonzero(counts)  # If many rewards are equal, the bin below them may be empty.
        return cls(edges[filled[1:] - 1], sums[filled] / counts[filled])

    @classmethod
    def with_zero_bin(cls, rewards: Float[Array, "S"], n_bins: int = BINS) -> Bins:
        """Return a bin for 0 alone, if rewards of 0 occur, and at most `n_bins` quantile bins of the other rewards.

        The value of a bin is the mean of its rewards, so the mean of the log does not change. Rewards that are mostly 0
        and sometimes an amount (money, seconds of attention) keep the information that distinguishes sessions: whether
        there was an amount, and its size. Half of each quantile counts rewards, the other half sums them: few large
        amounts may be most of the money, and one bin for all of them would hide the arms that pay them.

        Examples:
            >>> import numpy as np
            >>> bins = Bins.with_zero_bin(np.array([0.0, 0.0, 0.0, 1.0, 3.0, 10.0, 20.0]), 2)
            >>> bins.values
            array([ 0.,  2., 15.])
            >>> bins.apply(np.array([0.0, 0.1, 99.0]))
            array([ 0.,  2., 15.])
        """
        return cls._zero_apart(lambda: [rewards], n_bins)

    @classmethod
    def with_zero_bin_from_log(cls, sessions: Sessions | Packed, n_bins: int = BINS) -> Bins:
        """Return the bins of `with_zero_bin` for the rewards of a log, which are read in chunks."""
        return cls._zero_apart(lambda: (chunk.rewards for chunk in sessions.chunks(_SESSIONS)), n_bins)

    @classmethod
    def _zero_apart(cls, pieces: Pieces, n_bins: int) -> Bins:
        n_bins = check_count("bins", n_bins, minimum=2)
        (below, zeros, above), _ = counts_and_sums(pieces, np.array([0.0, _TINY]))
        edges = quantiles(pieces, np.arange(1, n_bins) / n_bins) if below + above else np.empty(0)
        if zeros:
            edges = np.union1d(edges, [edge for edge, beyond in ((0.0, below), (_TINY, above)) if beyond])
        counts, sums = counts_and_sums(pieces, edges)
        filled = np.flatnonzero(counts)  # bins without rewards are dropped
        return cls(edges[filled[1:] - 1], sums[filled] / counts[filled])

    @classmethod
    def appendix_grid(cls, horizon: int, epsilon: float, scale: float = 1.0, *, beyond: str = "ends") -> Bins:
        """Return the grid of appendix B.2 for rewards of standard deviation `scale`, which are rounded down to it.

        Rewards beyond the grid stay at its "ends", or become "zero" as in the paper. Learners leave them at the ends: a
        policy that discretises its observations cannot distinguish a 0 from the middle. Such rewards are so rare that
        both choices are within the error of Lemma B.5.
        """
        check("beyond", beyond, OneOf(("ends", "zero")))
        grid = gaussian_grid(horizon, epsilon) * scale
        if beyond == "zero":
            return cls(grid, np.concatenate([[0.0], grid[:-1], [0.0]]))
        return cls(grid[1:], grid)

    def edges_between(self, values: Float[Array, "V"]) -> Float[Array, "F"]:
        """Return the edges below all of these values of bins except the first, if the other bins are empty."""
        if (np.diff(self.values) <= 0).any():
            raise InvalidArgument("bins must have rising values to be cut by a policy, got 0 beyond the grid")
        return self.edges[np.searchsorted(self.values, values[1:]) - 1]

    def apply(self, rewards: Float[Array, "S"]) -> Float[Array, "S"]:
        """Return the value of the bin of each reward."""
        return self.values[np.searchsorted(self.edges, rewards, side="right")]

    def cut(self, sessions: Log) -> Log:
        """Return the log with its rewards discretised; a packed log is discretised whenever it is read."""
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
    """Return the number and the sum of the rewards between two edges; an edge belongs to the bin above it."""
    size = len(edges) + 1
    counts, sums = np.zeros(size, np.int64), np.zeros(size)
    for rewards in pieces():
        place = np.searchsorted(edges, rewards, side="right")
        counts += np.bincount(place, minlength=size)
        sums += np.bincount(place, rewards, minlength=size)
    return counts, sums


def quantiles(pieces: Pieces, targets: Float[Array, "q"]) -> Float[Array, "e"]:
    """Return the rewards other than 0 at which their shares pass the targets; half of a share counts, half sums.

    Each pass counts and sums the rewards that begin with the bits determined so far, by their next bits. A log of any
    size takes five passes and little memory.

    Examples:
        >>> import numpy as np
        >>> quantiles(lambda: [np.array([1.0, 3.0, 0.0]), np.array([20.0, 10.0])], np.array([0.5]))
        array([10.])
    """
    prefixes, row_of_target = (
        np.zeros(1, np.uint64),
        np.zeros(len(targets), np.int64),
    )  # leading bits of the quantiles, and the entry of each target
    below, total = np.zeros((len(targets), 2)), np.zeros(2)  # number and sum of the rewards below these bits
    for shift in range(4 * _DIGIT, -1, -_DIGIT):
        mass = _by_next_bits(pieces, prefixes, shift)
        total = mass.sum(axis=(0, 1)) if shift == 4 * _DIGIT else total
        next_bits = np.empty(len(targets), np.uint64)
        for number, (target, row) in enumerate(zip(targets.tolist(), row_of_target.tolist(), strict=True)):
            reached = below[number] + np.cumsum(mass[row], axis=0)
            passed = np.searchsorted((reached / total).sum(axis=1) / 2, target, side="right")
            filled = np.flatnonzero(mass[row, :, 0])  # rounding must not lead to bits without rewards
            here = int(filled[min(np.searchsorted(filled, passed), len(filled) - 1)])
            below[number] = reached[here] - mass[row, here]
            next_bits[number] = here
        prefixes, row_of_target = np.unique(
            (prefixes[row_of_target] << np.uint64(_DIGIT)) | next_bits, return_inverse=True
        )
    return _rewards(prefixes)


def _by_next_bits(pieces: Pieces, prefixes: Shaped[Array, "k"], shift: int) -> Float[Array, "k n 2"]:
    """Return the number and the sum of the rewards with these leading bits, by their next bits."""
    n = 1 << _DIGIT
    mass = np.zeros((2, len(prefixes) * n))
    for rewards in pieces():
        others = rewards[rewards != 0]
        bits = _keys(others) >> np.uint64(shift)
        first = bits >> np.uint64(_DIGIT)
        place = np.minimum(np.searchsorted(prefixes, first), len(prefixes) - 1)
        here = prefixes[place] == first
        cells = place[here] * n + (bits[here] & np.uint64(n - 1)).astype(np.int64)
        mass[0] += np.bincount(cells, minlength=len(prefixes) * n)
        mass[1] += np.bincount(cells, np.abs(others[here]), minlength=len(prefixes) * n)
    return mass.T.reshape(len(prefixes), n, 2)


def _keys(rewards: Float[Array, "s"]) -> Shaped[Array, "s"]:
    """Return integers in the order of the rewards, with all of their bits."""
    bits = rewards.view(np.uint64)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def _rewards(keys: Shaped[Array, "s"]) -> Float[Array, "s"]:
    return np.where(keys & _SIGN, keys ^ _SIGN, ~keys).view(np.float64)
