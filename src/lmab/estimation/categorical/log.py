"""A log of rewards on finitely many values, encoded: one small number per step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..._shapes import Array, Bool, Float, Integer, Shaped
from ...data import Episodes
from ...model import index_among
from ..arrays import frozen, tally
from ..merging import merge
from ..passes import Arrays, partitions

_CHUNK = 1 << 18  # steps encoded at once


@dataclass(frozen=True, eq=False)
class CategoricalLog:
    """A log as codes a * Z + z, identical episodes merged where that pays."""

    episodes: Episodes  # as they were given
    values: Float[Array, "Z"]
    codes: Shaped[Array, "T"]  # unsigned, of the smallest size
    offsets: Integer[Array, "K1"]
    counts: Float[Array, "C"]  # episodes that each distinct one stands for; empty: one
    edges: Float[Array, "E"] | None = None  # where continuous rewards were cut into the values

    @classmethod
    def encode(
        cls, episodes: Episodes, values: Float[Array, "Z"], edges: Float[Array, "E"] | None = None
    ) -> CategoricalLog:
        """The log in codes of the given reward values."""
        n_codes = episodes.n_arms * len(values)
        codes = np.empty(episodes.n_steps, np.min_scalar_type(n_codes - 1))
        for start in range(0, episodes.n_steps, _CHUNK):
            steps = slice(start, start + _CHUNK)
            place = index_among(values, episodes.rewards[steps], first_step=start)
            codes[steps] = episodes.actions[steps] * np.int64(len(values)) + place
        merged, starts, counts = map(frozen, merge(codes, episodes.offsets, n_codes))
        return cls(episodes, values, merged, starts, counts, edges)

    @property
    def n_arms(self) -> int:
        return self.episodes.n_arms

    @property
    def n_codes(self) -> int:
        return self.n_arms * len(self.values)

    @property
    def n_steps(self) -> int:
        return len(self.codes)

    @property
    def n_sums(self) -> int:
        return 1 + self.n_codes

    @property
    def largest(self) -> None:
        return None

    def partitions(self) -> Iterable[Arrays]:
        """(codes, lengths, counts, no rewards) of parts of the log."""
        return partitions(self.codes, self.offsets, self.counts, np.empty(0))

    @property
    def n_distinct(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def multiplicity(self) -> Float[Array, "n"]:
        """How many episodes each distinct one stands for."""
        return self.counts if len(self.counts) else np.ones(self.n_distinct)

    @cached_property
    def cells(self) -> Float[Array, "A Z"]:
        """How often each arm paid each value."""
        if len(self.counts):
            steps = np.repeat(self.counts, np.diff(self.offsets))
            cells = np.bincount(self.codes, steps, minlength=self.n_codes)
        else:
            cells = tally(self.codes, self.n_codes)
        return cells.reshape(self.n_arms, len(self.values))

    @cached_property
    def played(self) -> Bool[Array, "A"]:
        return self.cells.sum(axis=1) > 0

    @cached_property
    def marginals(self) -> Float[Array, "A Z"]:
        """Distribution of the rewards of each arm over all contexts; an arm never played gets that of all arms."""
        plays = self.cells.sum(axis=1, keepdims=True)
        overall = self.cells.sum(axis=0) / self.cells.sum()
        return np.where(plays > 0, self.cells / np.maximum(plays, 1), overall)

    def by_arm(self, models: Float[Array, "R K P"]) -> Float[Array, "R A Z P"]:
        """The rows of the codes in models or statistics, as a view."""
        return models[:, 1:].reshape(len(models), self.n_arms, len(self.values), models.shape[2])
