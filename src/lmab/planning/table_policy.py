"""TablePolicy: what the policies that look up the value of what a session saw share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Self

import numpy as np

from .. import files
from .._shapes import Array, Float, Integer
from ..errors import InvalidArgument
from ..model import LatentBandit, belief
from ..policies import State
from .planned_policy import PlannedPolicy
from .problem import BINS


class TablePolicy(PlannedPolicy):
    """A table of values, step after step. The memory of a session is its belief, then the sorted codes it saw."""

    def __init__(self, bandit: LatentBandit, values: Float[Array, "states"], *, horizon: int, bins: int = BINS) -> None:
        super().__init__(bandit, horizon=horizon, bins=bins)
        sizes = self._sizes()
        if len(values) != sum(sizes):
            raise InvalidArgument(f"values must hold {sum(sizes)} states, got {len(values)}")
        self._values = values
        self._starts = np.cumsum([0, *sizes])

    @abstractmethod
    def _sizes(self) -> list[int]:
        """States of the table after 0, 1, ... steps."""

    def _seen(self, state: State) -> Integer[Array, "n t"]:
        """The sorted codes of what each session saw."""
        width = self.bandit.n_contexts
        return state.memory[:, width : width + state.step].astype(np.int64)

    def _initial_memory(self) -> Float[Array, "K"]:
        return np.concatenate([self.bandit.weights, np.full(self.horizon, np.inf)])

    def _remember(self, state: State, arms: Integer[Array, "n"], rewards: Float[Array, "n"]) -> Float[Array, "n K"]:
        codes = self._problem.codes(arms, rewards)
        memory, width = state.memory.copy(), self.bandit.n_contexts
        # No rescaling: beliefs and the table's values are on one scale, the probability of what was seen.
        likelihood = self._problem.spread(self._problem.table[codes])
        memory[:, :width] = belief.multiply(memory[:, :width], likelihood)
        if state.step < self.horizon:
            memory[:, width + state.step] = codes
            memory[:, width:].sort(axis=1)
        return memory

    def record(self) -> files.Record:
        base = super().record()
        return files.Record(base.kind, base.fields, {"values": self._values}, base.records)

    @classmethod
    def from_record(cls, record: files.Record) -> Self:
        bandit = LatentBandit.from_record(record.records["bandit"])
        return cls(bandit, record.arrays["values"], **record.fields)
