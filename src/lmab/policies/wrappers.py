"""Policies around a policy: `Exploring` plays any arm now and then, `Relabelled` plays on another table of arms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .. import files
from .._shapes import Array, Bool, Float, Integer
from ..checks import check_array
from ..errors import InvalidArgument
from ..model.type_prior import TypePrior
from .policy import Policy, State, restore_policy, unplayed


class Exploring(Policy):
    """Plays `policy`, and with a small probability any allowed arm.

    `floor` is one number, the probability of exploring, which the allowed arms share equally; or one number for each
    arm, the probability with which it is played at least: arms that a log hardly knows can get more. An arm that is
    not allowed gives its part back to the policy. A policy without repeats explores arms not yet played.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> policy = lmab.policies.Exploring(lmab.Greedy(bandit), floor=0.1)
        >>> policy.probabilities(policy.start())
        array([0.05, 0.95])
        >>> lmab.policies.Exploring(lmab.Greedy(bandit), floor=[0.2, 0.0]).probabilities(policy.start())
        array([0.2, 0.8])
    """

    kind = "exploring"
    deterministic = False
    n_arms: int

    def __init__(self, policy: Policy, floor: Any = 0.05) -> None:
        if isinstance(policy, Exploring):
            raise InvalidArgument(f"policy must not explore already, got {policy!r}")
        if policy.n_arms is None:
            raise InvalidArgument(f"policy must know how many arms there are, got {policy!r}")
        self.policy = policy
        self.horizon, self.n_arms, self.repeats = policy.horizon, policy.n_arms, policy.repeats
        self.adaptive, self.order_free = policy.adaptive, policy.order_free
        self.floor = _checked_floor(floor, self.n_arms)

    @property
    def arm_labels(self) -> tuple[str | int, ...] | None:
        return self.policy.arm_labels

    def floors(self, allowed: Bool[Array, "n A"]) -> Float[Array, "n A"]:
        """The least probability of each arm where only the arms of the mask may be played."""
        if isinstance(self.floor, float):
            return self.floor * allowed / allowed.sum(axis=1, keepdims=True)
        return self.floor * allowed

    def _choose(
        self, state: State, allowed: Bool[Array, "n A"] | None, rng: np.random.Generator | None
    ) -> Integer[Array, "n"]:
        assert rng is not None  # `act` sees to it
        floors = self.floors(self._open(state, allowed))
        draw = rng.random((2, len(floors)))
        cumulative = floors.cumsum(axis=1)
        target = np.minimum(draw[1] * cumulative[:, -1], np.nextafter(cumulative[:, -1], 0))
        explored = (cumulative > target[:, None]).argmax(axis=1)
        inner = np.asarray(self.policy.act(self._inner(state), allowed=allowed, rng=rng))
        return np.where(draw[0] < cumulative[:, -1], explored, inner)

    def _chances(self, state: State, allowed: Bool[Array, "n A"] | None, n_arms: int) -> Float[Array, "n A"]:
        floors = self.floors(self._open(state, allowed))
        rest = 1 - floors.sum(axis=1, keepdims=True)
        return floors + np.maximum(rest, 0) * self.policy.probabilities(self._inner(state), allowed=allowed)

    def distribution(self, state: State, *, n_arms: int) -> Float[Array, "n A"]:
        if n_arms != self.n_arms:
            raise InvalidArgument(f"n_arms must be the policy's {self.n_arms}, got {n_arms}")
        return self._chances(state, None, n_arms)

    def _open(self, state: State, allowed: Bool[Array, "n A"] | None) -> Bool[Array, "n A"]:
        """The arms that may be explored."""
        everything = np.ones((len(state.memory), self.n_arms), bool) if allowed is None else allowed
        return everything if self.repeats else unplayed(state.memory[:, self._width :] > 0, everything)

    @property
    def _width(self) -> int:
        """How many numbers of the memory are the policy's own; after them come, without repeats, the arms played."""
        return len(self.policy._initial_memory())

    def _inner(self, state: State) -> State:
        return State(state.step, state.memory[:, : self._width], single=False)

    def _initial_memory(self) -> Float[Array, "K"]:
        marks = 0 if self.repeats else self.n_arms
        return np.concatenate([self.policy._initial_memory(), np.zeros(marks)])

    @property
    def type_prior(self) -> TypePrior | None:
        return self.policy.type_prior

    def _first_memory(self, n: int, features: Mapping[str, Any] | None) -> Float[Array, "n K"]:
        marks = 0 if self.repeats else self.n_arms
        return np.hstack([self.policy._first_memory(n, features), np.zeros((n, marks))])

    def _next_memory(self, state: State, features: Mapping[str, Any] | None) -> Float[Array, "n K"]:
        return np.hstack([self.policy._next_memory(self._inner(state), features), state.memory[:, self._width :]])

    def _remember(self, state: State, arms: Integer[Array, "n"], rewards: Float[Array, "n"]) -> Float[Array, "n K"]:
        return self._marked(state, self.policy.observe(self._inner(state), arms, rewards), arms)

    def _pass(self, state: State, arms: Integer[Array, "n"]) -> Float[Array, "n K"]:
        return self._marked(state, self.policy.observe(self._inner(state), arms, None), arms)

    def _learn(self, state: State, arms: Integer[Array, "n"], rewards: Float[Array, "n"]) -> Float[Array, "n K"]:
        after = self.policy.tell(self._inner(state), arms, rewards)
        return np.hstack([after.memory, state.memory[:, self._width :]])

    def _skip(self, state: State) -> Float[Array, "n K"]:
        return np.hstack([self.policy.skip(self._inner(state)).memory, state.memory[:, self._width :]])

    def _marked(self, state: State, after: State, arms: Integer[Array, "n"]) -> Float[Array, "n K"]:
        if self.repeats:
            return after.memory
        marks = state.memory[:, self._width :].copy()
        marks[np.arange(len(marks)), arms] = 1
        return np.hstack([after.memory, marks])

    def _belief(self, state: State) -> Float[Array, "n M"]:
        return self.policy.belief(self._inner(state))

    def record(self) -> files.Record:
        inner = {"policy": self.policy.record()}
        if isinstance(self.floor, float):
            return files.Record(self.kind, {"floor": self.floor}, records=inner)
        return files.Record(self.kind, {}, {"floor": self.floor}, inner)

    @classmethod
    def from_record(cls, record: files.Record) -> Exploring:
        floor = record.fields["floor"] if "floor" in record.fields else record.arrays["floor"]
        return cls(restore_policy(record.records["policy"]), floor)


def _checked_floor(floor: Any, n_arms: int) -> float | Float[Array, "A"]:
    """One number in [0, 1], or one for each arm that sum to at most 1."""
    if np.ndim(floor) == 0:
        if isinstance(floor, bool) or not isinstance(floor, int | float | np.number) or not 0 <= floor <= 1:
            raise InvalidArgument(f"floor must be a number from 0 to 1, or one for each arm, got {floor!r}")
        return float(floor)
    floors = check_array("floor", floor, ndim=1)
    if len(floors) != n_arms or (floors < 0).any() or floors.sum() > 1 + 1e-12:
        raise InvalidArgument(
            f"floor must be {n_arms} numbers of at least 0 that sum to at most 1, got {len(floors)} numbers that sum "
            f"to {floors.sum():g}"
        )
    return floors


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

    @property
    def type_prior(self) -> TypePrior | None:
        return self.policy.type_prior

    def _first_memory(self, n: int, features: Mapping[str, Any] | None) -> Float[Array, "n K"]:
        return self.policy._first_memory(n, features)

    def _next_memory(self, state: State, features: Mapping[str, Any] | None) -> Float[Array, "n K"]:
        return self.policy._next_memory(State(state.step, state.memory, single=False), features)

    def record(self) -> files.Record:
        return files.Record(self.kind, {"labels": list(self.labels)}, records={"policy": self.policy.record()})

    @classmethod
    def from_record(cls, record: files.Record) -> Relabelled:
        return cls(restore_policy(record.records["policy"]), record.fields["labels"])
