"""Relabelled: a policy on another table of arms, in another order, with new arms and without withdrawn ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import files
from .._shapes import Array, Bool, Float, Integer
from ..errors import InvalidArgument
from .policy import Policy, restore_policy
from .state import State


class Relabelled(Policy):
    """Plays `policy` where the arms are called `labels`: arm i of this policy is the inner arm with label i.

    Arms that the inner policy does not know are played only where nothing else is allowed, and their rewards tell it
    nothing. Arms of the inner policy that are missing are never played.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]]).with_arms(["c"])
        >>> policy = lmab.policies.Relabelled(lmab.Greedy(bandit), ["new", 1, 0])
        >>> policy.act_on([]), policy.act_on([(1, 1.0), (0, 1.0)])
        (1, 1)
    """

    kind = "relabelled"
    n_arms: int

    def __init__(self, policy: Policy, labels: Sequence[str | int]) -> None:
        if not policy.deterministic or policy.n_arms is None:
            raise InvalidArgument(f"policy must be deterministic and know its arms, got {policy!r}")
        names = policy.arm_labels or tuple(range(policy.n_arms))
        self.policy, self.labels = policy, tuple(labels)
        self.horizon, self.repeats, self.n_arms = policy.horizon, policy.repeats, len(self.labels)
        self.adaptive, self.order_free = policy.adaptive, policy.order_free
        places = {name: arm for arm, name in enumerate(names)}
        self._inner_arm = np.array([places.get(label, -1) for label in self.labels], np.int64)
        if len(set(self.labels)) != len(self.labels) or (self._inner_arm < 0).all():
            raise InvalidArgument(f"labels must be distinct and name an arm of {policy!r}, got {list(labels)!r}")
        self._outer_arm = np.full(policy.n_arms, -1)
        known = self._inner_arm >= 0
        self._outer_arm[self._inner_arm[known]] = np.flatnonzero(known)

    @property
    def arm_labels(self) -> tuple[str | int, ...]:
        return self.labels

    def _choose(self, state: State, allowed: Bool[Array, "n A"] | None, rng: Any) -> Integer[Array, "n"]:
        outer = np.ones((len(state.memory), self.n_arms), bool) if allowed is None else allowed
        inner = np.where(self._outer_arm >= 0, outer[:, self._outer_arm], False)
        chosen = outer.argmax(axis=1)  # where the policy knows no allowed arm
        rows = np.flatnonzero(inner.any(axis=1))
        if len(rows):
            some = State(state.step, state.memory[rows], single=False)
            free = bool(inner.all())
            chosen[rows] = self._outer_arm[np.asarray(self.policy.act(some, allowed=None if free else inner[rows]))]
        return chosen

    def _each(self, state: State, arms: Integer[Array, "n"], after: Any) -> Float[Array, "n K"]:
        """The memory after a step: `after` for arms that the policy knows, a skipped step for the others."""
        places = self._inner_arm[arms]
        memory = np.empty_like(state.memory)
        for rows, known in ((np.flatnonzero(places >= 0), True), (np.flatnonzero(places < 0), False)):
            if len(rows):
                some = State(state.step, state.memory[rows], single=False)
                memory[rows] = (after(some, places[rows], rows) if known else self.policy.skip(some)).memory
        return memory

    def _remember(self, state: State, arms: Integer[Array, "n"], rewards: Float[Array, "n"]) -> Float[Array, "n K"]:
        return self._each(state, arms, lambda some, places, rows: self.policy.observe(some, places, rewards[rows]))

    def _pass(self, state: State, arms: Integer[Array, "n"]) -> Float[Array, "n K"]:
        return self._each(state, arms, lambda some, places, rows: self.policy.observe(some, places, None))

    def _learn(self, state: State, arms: Integer[Array, "n"], rewards: Float[Array, "n"]) -> Float[Array, "n K"]:
        places = self._inner_arm[arms]
        memory = state.memory.copy()
        rows = np.flatnonzero(places >= 0)
        if len(rows):
            some = State(state.step, state.memory[rows], single=False)
            memory[rows] = self.policy.tell(some, places[rows], rewards[rows]).memory
        return memory

    def _skip(self, state: State) -> Float[Array, "n K"]:
        return self.policy.skip(State(state.step, state.memory, single=False)).memory

    def _belief(self, state: State) -> Float[Array, "n M"]:
        return self.policy.belief(State(state.step, state.memory, single=False))

    def _initial_memory(self) -> Float[Array, "K"]:
        return self.policy._initial_memory()

    def record(self) -> files.Record:
        return files.Record(self.kind, {"labels": list(self.labels)}, records={"policy": self.policy.record()})

    @classmethod
    def from_record(cls, record: files.Record) -> Relabelled:
        return cls(restore_policy(record.records["policy"]), record.fields["labels"])
