"""Bins: continuous rewards cut into a few values, as in the short-horizon algorithm of appendix B.2."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .. import theory
from .._shapes import Array, Float
from ..checks import check_count
from ..data import Episodes


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
    def on_grid(cls, horizon: int, epsilon: float) -> Bins:
        """The paper's grid: rewards are rounded down to the grid, and rewards outside it become 0."""
        grid = theory.gaussian_grid(horizon, epsilon)
        step = grid[1] - grid[0]
        return cls(np.append(grid, grid[-1] + step), np.concatenate([[grid[0] - step], grid, [grid[-1] + step]]))

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
