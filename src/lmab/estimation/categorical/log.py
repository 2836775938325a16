"""A log of rewards on finitely many values, encoded: one small number per step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..._shapes import Array, Bool, Float, Integer, Shaped
from ...data import Packed, Sessions
from ...model import index_among
from ..arrays import frozen, tally
from ..merging import merge
from ..passes import Arrays
from ..steps import Steps
from .filed_merging import merged
from .steps import FiledSteps, HeldSteps

_CHUNK = 1 << 18  # steps encoded at once


@dataclass(frozen=True, eq=False)
class CategoricalLog:
    """A log as codes a * Z + z, identical sessions merged where that pays."""

    sessions: Sessions | Packed  # as they were given
    values: Float[Array, "Z"]
    steps: Steps
    edges: Float[Array, "E"] | None = None  # where continuous rewards were cut into the values

    @classmethod
    def encode(
        cls, sessions: Sessions | Packed, values: Float[Array, "Z"], edges: Float[Array, "E"] | None = None
    ) -> CategoricalLog:
        """The log in codes of the given reward values."""
        if isinstance(sessions, Packed):
            return cls(sessions, values, merged(_filed(sessions, values), sessions.n_arms * len(values)), edges)
        n_codes = sessions.n_arms * len(values)
        codes = np.empty(sessions.n_steps, np.min_scalar_type(n_codes - 1))
        for start in range(0, sessions.n_steps, _CHUNK):
            chunk = slice(start, start + _CHUNK)
            place = index_among(values, sessions.rewards[chunk], first_step=start)
            codes[chunk] = sessions.arms[chunk] * np.int64(len(values)) + place
        codes, offsets, counts = map(frozen, merge(codes, sessions.offsets, n_codes))
        return cls(sessions, values, HeldSteps(offsets, codes, counts), edges)

    def __getstate__(self) -> dict[str, Any]:
        """What a pickle holds: nothing that is computed again as easily."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @property
    def travels(self) -> bool:
        """Whether a pickle is small."""
        return self.steps.travels

    def level(self, every: int) -> CategoricalLog | None:
        """One of `every` parts of the log; None where the log is too small."""
        steps = self.steps.level(every)
        if steps is None:
            return None
        part = replace(self, steps=steps)
        part.__dict__["cells"] = self.cells  # which are those of the whole log, counted once
        return part

    @cached_property
    def held(self) -> HeldSteps:
        """All steps in memory."""
        return self.steps.held

    @property
    def codes(self) -> Shaped[Array, "T"]:
        """Unsigned, of the smallest size."""
        return self.held.codes

    @property
    def offsets(self) -> Integer[Array, "K1"]:
        return self.held.offsets

    @property
    def counts(self) -> Float[Array, "C"]:
        """Sessions that each distinct one stands for; empty: one."""
        return self.held.counts

    @property
    def n_arms(self) -> int:
        return self.sessions.n_arms

    @property
    def n_codes(self) -> int:
        return self.n_arms * len(self.values)

    @property
    def n_steps(self) -> int:
        return self.steps.n_steps // self.steps.every

    @property
    def n_sums(self) -> int:
        return 1 + self.n_codes

    @property
    def largest(self) -> None:
        return None

    def partitions(self) -> Iterable[Arrays]:
        """(codes, lengths, counts, no rewards) of parts of the log."""
        return self.steps.stretches()

    @property
    def n_distinct(self) -> int:
        return self.steps.n_distinct

    @cached_property
    def multiplicity(self) -> Float[Array, "n"]:
        """How many sessions each distinct one stands for."""
        return self.counts if len(self.counts) else np.ones(self.n_distinct)

    @cached_property
    def cells(self) -> Float[Array, "A Z"]:
        """How often each arm paid each value."""
        if isinstance(self.sessions, Packed):
            return _cells(self.sessions, self.values)
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
        """Distribution of the rewards of each arm over all types; an arm never played gets that of all arms."""
        plays = self.cells.sum(axis=1, keepdims=True)
        overall = self.cells.sum(axis=0) / self.cells.sum()
        return np.where(plays > 0, self.cells / np.maximum(plays, 1), overall)

    def by_arm(self, models: Float[Array, "R K P"]) -> Float[Array, "R A Z P"]:
        """The rows of the codes in models or statistics, as a view."""
        return models[:, 1:].reshape(len(models), self.n_arms, len(self.values), models.shape[2])


def _places(packed: Packed, values: Float[Array, "Z"]) -> Integer[Array, "V"]:
    """The place of each reward of the packed log among `values`."""
    assert packed.values is not None
    return index_among(values, packed.values)


def _filed(packed: Packed, values: Float[Array, "Z"]) -> FiledSteps:
    """The steps in the codes of the values; those in the files where they are the same."""
    assert packed.values is not None
    if np.array_equal(packed.values, values):
        return FiledSteps.of(packed, None)
    n_codes = packed.n_arms * len(values)
    table = (np.arange(packed.n_arms)[:, None] * len(values) + _places(packed, values)).ravel()
    return FiledSteps.of(packed, table.astype(np.min_scalar_type(n_codes - 1)))


def _cells(packed: Packed, values: Float[Array, "Z"]) -> Float[Array, "A Z"]:
    cells = np.zeros((packed.n_arms, len(values)))
    cells[:, _places(packed, values)] = packed.cells
    return cells
