"""TablePolicy: the base class of policies that look up values in a table of what a session can see."""

from __future__ import annotations

from abc import abstractmethod
from typing import Self

import numpy as np

from .. import files
from .._shapes import Array, Bool, Float, Integer
from ..errors import InvalidArgument
from ..model import LatentBandit, belief
from ..policies import State
from .planned_policy import PlannedPolicy
from .problem import BINS


class TablePolicy(PlannedPolicy):
    """A table of values for every step.

    The memory of a session is its belief, then the sorted codes that it saw, then a 1 where the table does not cover
    the session, because something is known of the person from earlier sessions. A step whose reward is not known has
    the code D + arm, with D the number of codes; D + A stands for an arm that the policy does not know. What the table
    does not cover is decided by a lookahead.
    """

    def __init__(self, bandit: LatentBandit, values: Float[Array, "states"], *, horizon: int, bins: int = BINS) -> None:
        super().__init__(bandit, horizon=horizon, bins=bins)
        sizes = self._sizes()
        if len(values) != sum(sizes):
            raise InvalidArgument(f"values must hold {sum(sizes)} states, got {len(values)}")
        self._values = values
        self._starts = np.cumsum([0, *sizes])

    @abstractmethod
    def _sizes(self) -> list[int]:
        """The number of states of the table after 0, 1, ... steps."""

    def _seen(self, state: State) -> Integer[Array, "n t"]:
        """The sorted codes of what each session saw."""
        width = self.bandit.n_types
        return state.memory[:, width : width + state.step].astype(np.int64)

    def _covered(self, state: State) -> Bool[Array, "n"]:
        """Whether the table covers the session."""
        return (self._seen(state) < len(self._problem.table)).all(axis=1) & (state.memory[:, -1] == 0)

    def _initial_memory(self) -> Float[Array, "K"]:
        return np.concatenate([self.bandit.weights, np.full(self.horizon, np.inf), [0.0]])

    def _remember(self, state: State, arms: Integer[Array, "n"], rewards: Float[Array, "n"]) -> Float[Array, "n K"]:
        memory = self._updated(state, arms, rewards)
        return self._noted(state, memory, self._problem.codes(arms, rewards))

    def _pass(self, state: State, arms: Integer[Array, "n"]) -> Float[Array, "n K"]:
        return self._noted(state, state.memory.copy(), len(self._problem.table) + arms)

    def _skip(self, state: State) -> Float[Array, "n K"]:
        unknown = np.full(len(state.memory), len(self._problem.table) + self._problem.n_arms)
        return self._noted(state, state.memory.copy(), unknown)

    def _learn(self, state: State, arms: Integer[Array, "n"], rewards: Float[Array, "n"]) -> Float[Array, "n K"]:
        memory, width = self._updated(state, arms, rewards), self.bandit.n_types
        notes = memory[:, width:-1]
        waits = notes == (len(self._problem.table) + arms)[:, None]
        known = waits.any(axis=1)
        rows = np.flatnonzero(known)
        notes[rows, waits[rows].argmax(axis=1)] = self._problem.codes(arms, rewards)[rows]
        notes.sort(axis=1)
        memory[~known, -1] = 1
        memory[~known, :width] = belief.rescale(memory[~known, :width])  # off the table the scale is free
        return memory

    def _updated(self, state: State, arms: Integer[Array, "n"], rewards: Float[Array, "n"]) -> Float[Array, "n K"]:
        """The memory with the belief after `rewards`."""
        memory, width = state.memory.copy(), self.bandit.n_types
        # No rescaling: beliefs and the table's values are on one scale, the probability of what was seen.
        likelihood = self._problem.spread(self._problem.table[self._problem.codes(arms, rewards)])
        memory[:, :width] = belief.multiply(memory[:, :width], likelihood)
        return memory

    def _noted(self, state: State, memory: Float[Array, "n K"], codes: Integer[Array, "n"]) -> Float[Array, "n K"]:
        """The memory with one more code."""
        if state.step < self.horizon:
            notes = memory[:, self.bandit.n_types : -1]
            notes[:, state.step] = codes
            notes.sort(axis=1)
        return memory

    def record(self) -> files.Record:
        base = super().record()
        return files.Record(base.kind, base.fields, {"values": self._values}, base.records)

    @classmethod
    def from_record(cls, record: files.Record) -> Self:
        bandit = LatentBandit.from_record(record.records["bandit"])
        return cls(bandit, record.arrays["values"], **record.fields)
