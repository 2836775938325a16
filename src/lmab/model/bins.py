"""Bins: continuous rewards cut into a few values, as in the short-horizon algorithm of appendix B.2."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .. import theory
from .._shapes import Array, Float
from ..checks import check_count
from ..data import Episodes

_REFINED = (8, 64)  # the fewest and the most bins of long logs


@dataclass(frozen=True, eq=False)
class Bins:
    """Edges between bins, and the reward that stands for each bin."""

    edges: Float[Array, "E"]  # rising
    values: Float[Array, "Z"]  # Z = E + 1, rising

    @classmethod
    def at_quantiles(cls, rewards: Float[Array, "S"], n_bins: int) -> Bins:
        """Bins that hold equally many rewards each; the value of a bin is the mean of its rewards."""
        check_count("bins", n_bins, minimum=2)
        edges = np.unique(np.quantile(rewards, np.arange(1, n_bins) / n_bins))
        return cls(edges, _means(rewards, edges))

    @classmethod
    def refined(cls, episodes: Episodes) -> Bins:
        """Bins at quantiles, more of them in longer logs, so that the bias of cutting vanishes: N^(1/3), 8 to 64."""
        return cls.at_quantiles(episodes.rewards, int(np.clip(round(len(episodes) ** (1 / 3)), *_REFINED)))

    @classmethod
    def on_grid(cls, horizon: int, epsilon: float, scale: float = 1.0) -> Bins:
        """The grid of appendix B.2, for rewards of standard deviation `scale`: rewards are rounded down to it.

        Rewards beyond the grid stay at its ends. The paper makes them 0, which a policy that cuts what it observes
        cannot tell from the middle; they are so rare that both are within the error of Lemma B.5.
        """
        grid = theory.gaussian_grid(horizon, epsilon) * scale
        return cls(grid[1:], grid)

    @classmethod
    def of_log(cls, episodes: Episodes, bins: int | str | None, epsilon: float, scale: float | None = None) -> Bins:
        """What learners mean by `bins`: a number of quantiles, "auto" for `refined`, None for the appendix's grid."""
        if bins is None:
            return cls.on_grid(episodes.horizon, epsilon, scale or 1.0)
        return cls.refined(episodes) if isinstance(bins, str) else cls.at_quantiles(episodes.rewards, bins)

    def edges_between(self, values: Float[Array, "V"]) -> Float[Array, "F"]:
        """The edges below all of these values of bins but the first, where other bins are empty."""
        return self.edges[np.searchsorted(self.values, values[1:]) - 1]

    def apply(self, rewards: Float[Array, "S"]) -> Float[Array, "S"]:
        """The value of the bin that each reward falls into."""
        return self.values[np.searchsorted(self.edges, rewards, side="right")]

    def cut(self, episodes: Episodes) -> Episodes:
        """The log with its rewards cut."""
        return replace(episodes, rewards=self.apply(episodes.rewards))


def _means(rewards: Float[Array, "S"], edges: Float[Array, "E"]) -> Float[Array, "Z"]:
    place = np.searchsorted(edges, rewards, side="right")
    counts = np.bincount(place, minlength=len(edges) + 1)
    sums = np.bincount(place, rewards, minlength=len(edges) + 1)
    middles = np.concatenate([edges[:1], (edges[1:] + edges[:-1]) / 2, edges[-1:]])
    return np.where(counts > 0, sums / np.maximum(counts, 1), middles)
