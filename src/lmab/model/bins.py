"""Bins: continuous rewards cut into a few values, as in the short-horizon algorithm of appendix B.2."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from .. import theory
from .._shapes import Array, Float
from ..checks import OneOf, check, check_count
from ..data import Packed, Sessions
from ..errors import InvalidArgument
from .amounts import Pieces, counts_and_sums, quantiles

Log = TypeVar("Log", bound=Sessions | Packed)
BINS = 8  # beside the one for 0
_TINY = float(np.finfo(np.float64).tiny)  # the edge above 0: every amount is at least this
_REFINED = (8, 64)  # the fewest and the most bins of long logs
_SESSIONS = 1 << 16  # whose rewards are looked at together


@dataclass(frozen=True, eq=False)
class Bins:
    """Edges between bins, and the reward that stands for each bin."""

    edges: Float[Array, "E"]  # rising
    values: Float[Array, "Z"]  # Z = E + 1, rising, but for the paper's 0 beyond its grid

    @classmethod
    def at_quantiles(cls, rewards: Float[Array, "S"], n_bins: int) -> Bins:
        """Bins that hold equally many rewards each; the value of a bin is the mean of its rewards."""
        check_count("bins", n_bins, minimum=2)
        edges = np.unique(np.quantile(rewards, np.arange(1, n_bins) / n_bins))
        return cls(edges, _means(rewards, edges))

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
        check_count("bins", n_bins, minimum=2)
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
        grid = theory.gaussian_grid(horizon, epsilon) * scale
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


def _means(rewards: Float[Array, "S"], edges: Float[Array, "E"]) -> Float[Array, "Z"]:
    place = np.searchsorted(edges, rewards, side="right")
    counts = np.bincount(place, minlength=len(edges) + 1)
    sums = np.bincount(place, rewards, minlength=len(edges) + 1)
    if len(edges) == 0:
        return np.array([rewards.mean()])
    middles = np.concatenate([edges[:1], (edges[1:] + edges[:-1]) / 2, edges[-1:]])
    return np.where(counts > 0, sums / np.maximum(counts, 1), middles)
