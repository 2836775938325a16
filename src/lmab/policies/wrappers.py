"""Policies around a policy: `Exploring` plays any arm with a small probability, `Relabelled` renames the arms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from .. import files
from .._shapes import Array, Bool, Float, Integer
from ..checks import check_array
from ..errors import InvalidArgument
from ..model.type_prior import TypePrior
from .policy import Policy, State, mask_unplayed, restore_policy


class PolicyWrapper(Policy):
    """Base class of policies that forward all of a session to an inner policy.

    A subclass defines `_choose` and the names of its `parameters`. Its arms may differ from the arms of `policy`:
    `inner_arms` maps them. An arm that `policy` does not have counts as a skipped step.

    Examples:
        >>> import lmab
        >>> class Without(lmab.policies.PolicyWrapper):
        ...     kind, parameters = "without", ("arm",)
        ...     def __init__(self, policy, arm):
        ...         super().__init__(policy)
        ...         self.arm = arm
        ...     def _choose(self, state, allowed, rng):
        ...         mask = self._allowed(state, allowed).copy()
        ...         mask[:, self.arm] = False
        ...         return self.policy.act(self._inner(state), allowed=mask, rng=rng)
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5, 0.3], [0.1, 0.6, 0.4]])
        >>> Without(lmab.Greedy(bandit), arm=1).act_on([(0, 0.0)])
        2
    """

    parameters: ClassVar[tuple[str, ...]] = ()  # attributes that the constructor takes after `policy`, kept in files
    marks_played: ClassVar[bool] = False  # the memory of a policy without repeats also marks the arms played
    n_arms: int

    def __init__(
        self,
        policy: Policy,
        *,
        arm_labels: tuple[str | int, ...] | None = None,
        inner_arms: Integer[Array, "A"] | None = None,
    ) -> None:
        """Wrap `policy`.

        Args:
            policy: the inner policy, which must know its number of arms.
            arm_labels: labels of the arms; None: the labels of `policy`.
            inner_arms: number of each arm in `policy`, -1 for a missing arm; None: the same numbers.
        """
        if policy.n_arms is None:
            raise InvalidArgument(f"policy must know how many arms there are, got {policy!r}")
        self.policy = policy
        self.horizon, self.repeats = policy.horizon, policy.repeats
        self.adaptive, self.order_free = policy.adaptive, policy.order_free
        self.depends_on_step = policy.depends_on_step
        self._labels = policy.arm_labels if arm_labels is None else arm_labels
        self._inner_arms = np.arange(policy.n_arms) if inner_arms is None else inner_arms
        self.n_arms, self._n_inner = len(self._inner_arms), policy.n_arms
        self._width = len(policy._initial_memory())  # of the inner policy's part of the memory; marks follow
        self._n_marks = self.n_arms if self.marks_played and not policy.repeats else 0

    @property
    def arm_labels(self) -> tuple[str | int, ...] | None:
        return self._labels

    @property
    def type_prior(self) -> TypePrior | None:
        return self.policy.type_prior

    def distribution(self, state: State, *, n_arms: int) -> Float[Array, "n A"]:
        if n_arms != self.n_arms:
            raise InvalidArgument(f"n_arms must be the policy's {self.n_arms}, got {n_arms}")
        return super().distribution(state, n_arms=n_arms)

    def record(self) -> files.Record:
        values = {name: getattr(self, name) for name in self.parameters}
        arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
        lists = {name: list(value) for name, value in values.items() if isinstance(value, tuple)}
        fields = {name: lists.get(name, value) for name, value in values.items() if name not in arrays}
        return files.Record(self.kind, fields, arrays, {"policy": self.policy.record()})

    @classmethod
    def from_record(cls, record: files.Record) -> Self:
        values = {**record.fields, **record.arrays}
        return cls(restore_policy(record.records["policy"]), *(values[name] for name in cls.parameters))

    def _inner(self, state: State, rows: Any = slice(None)) -> State:
        """Return the state of the inner policy in these sessions."""
        return State(state.step, state.memory[rows, : self._width], single=False)

    def _allowed(self, state: State, allowed: Bool[Array, "n A"] | None) -> Bool[Array, "n A"]:
        """Return the mask of the allowed arms; without repeats, only arms that the session has not played."""
        mask = np.ones((len(state.memory), self.n_arms), bool) if allowed is None else allowed
        return mask_unplayed(state.memory[:, self._width :] > 0, mask) if self._n_marks else mask

    def _with_marks(self, memory: Float[Array, "n K"]) -> Float[Array, "n L"]:
        return np.hstack([memory, np.zeros((len(memory), self._n_marks))])

    def _initial_memory(self) -> Float[Array, "K"]:
        return self._with_marks(self.policy._initial_memory()[None])[0]

    def _first_memory(self, n: int, features: Mapping[str, Any] | None) -> Float[Array, "n K"]:
        return self._with_marks(self.policy._first_memory(n, features))

    def _next_memory(self, state: State, features: Mapping[str, Any] | None) -> Float[Array, "n K"]:
        return np.hstack([self.policy._next_memory(self._inner(state), features), state.memory[:, self._width :]])

    def _remember(self, state: State, arms: Integer[Array, "n"], rewards: Float[Array, "n"]) -> Float[Array, "n K"]:
        return self._played(state, arms, lambda inner, of, rows: self.policy.observe(inner, of, rewards[rows]))

    def _pass(self, state: State, arms: Integer[Array, "n"]) -> Float[Array, "n K"]:
        return self._played(state, arms, lambda inner, of, rows: self.policy.observe(inner, of, None))

    def _learn(self, state: State, arms: Integer[Array, "n"], rewards: Float[Array, "n"]) -> Float[Array, "n K"]:
        def tell(inner: State, of: Integer[Array, "k"], rows: Any) -> State:
            return self.policy.tell(inner, of, rewards[rows], step=state.step)

        return self._forwarded(state, arms, tell)

    def _skip(self, state: State) -> Float[Array, "n K"]:
        return np.hstack([self.policy.skip(self._inner(state)).memory, state.memory[:, self._width :]])

    def _belief(self, state: State) -> Float[Array, "n M"]:
        return self.policy.belief(self._inner(state))

    def _played(self, state: State, arms: Integer[Array, "n"], update: _Update) -> Float[Array, "n K"]:
        """Return the memory after a step: updated, or skipped if the inner policy does not have the arm."""
        memory = self._forwarded(state, arms, update)
        unknown = np.flatnonzero(self._inner_arms[arms] < 0)
        if len(unknown):
            memory[unknown, : self._width] = self.policy.skip(self._inner(state, unknown)).memory
        if self._n_marks:
            memory[np.arange(len(memory)), self._width + arms] = 1
        return memory

    def _forwarded(self, state: State, arms: Integer[Array, "n"], update: _Update) -> Float[Array, "n K"]:
        """Return the memory after `update` of the sessions whose arm the inner policy has."""
        inner_arms, memory = self._inner_arms[arms], state.memory.copy()
        rows = np.flatnonzero(inner_arms >= 0)
        if len(rows):
            memory[rows, : self._width] = update(self._inner(state, rows), inner_arms[rows], rows).memory
        return memory


#: function of states of the inner policy, its arms and the numbers of their sessions that returns the next states
_Update = Callable[[State, Integer[Array, "n"], Integer[Array, "n"]], State]


class Exploring(PolicyWrapper):
    """Policy that plays `policy`, and with a small probability any allowed arm.

    `floor` is the exploration floor: the probability of exploring, which the allowed arms share equally, or the least
    probability of each arm, so that arms with little data can get more. An arm that is not allowed returns its part to
    the policy. If the policy does not repeat arms, only unplayed arms are explored.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> policy = lmab.policies.Exploring(lmab.Greedy(bandit), floor=[0.2, 0.0])
        >>> policy.probabilities(policy.start())
        array([0.2, 0.8])
    """

    kind, deterministic = "exploring", False
    parameters, marks_played = ("floor",), True

    def __init__(self, policy: Policy, floor: Any = 0.05) -> None:
        if isinstance(policy, Exploring):
            raise InvalidArgument(f"policy must not explore already, got {policy!r}")
        super().__init__(policy)
        self.floor = _checked_floor(floor, self.n_arms)

    def _choose(self, state: State, allowed: Bool[Array, "n A"] | None, rng: Any) -> Integer[Array, "n"]:
        draws, cumulative = rng.random((2, len(state.memory))), self._floors(state, allowed).cumsum(axis=1)
        targets = np.minimum(draws[1] * cumulative[:, -1], np.nextafter(cumulative[:, -1], 0))
        explored = (cumulative > targets[:, None]).argmax(axis=1)
        arms = np.asarray(self.policy.act(self._inner(state), allowed=allowed, rng=rng))
        return np.where(draws[0] < cumulative[:, -1], explored, arms)

    def _chances(self, state: State, allowed: Bool[Array, "n A"] | None, n_arms: int) -> Float[Array, "n A"]:
        floors = self._floors(state, allowed)
        rest = np.maximum(1 - floors.sum(axis=1, keepdims=True), 0)
        return floors + rest * self.policy.probabilities(self._inner(state), allowed=allowed)

    def _floors(self, state: State, allowed: Bool[Array, "n A"] | None) -> Float[Array, "n A"]:
        mask = self._allowed(state, allowed)
        return self.floor * mask / (mask.sum(axis=1, keepdims=True) if np.ndim(self.floor) == 0 else 1)


def _checked_floor(floor: Any, n_arms: int) -> float | Float[Array, "A"]:
    """Return a number in [0, 1], or one for each arm that sum to at most 1; raise `InvalidArgument` for others."""
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


class Relabelled(PolicyWrapper):
    """Policy that plays `policy` if the arms are called `labels`: arm i is the inner arm with label i.

    Arms that the inner policy does not have are only played if nothing else is allowed, and their rewards do not change
    its belief. Arms of the inner policy without a label are never played.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]]).with_arms(["c"])
        >>> policy = lmab.policies.Relabelled(lmab.Greedy(bandit), ["new", 1, 0])
        >>> policy.act_on([]), policy.act_on([(1, 1.0), (0, 1.0)])
        (1, 1)
    """

    kind, parameters = "relabelled", ("labels",)

    def __init__(self, policy: Policy, labels: Sequence[str | int]) -> None:
        if not policy.deterministic or policy.n_arms is None:
            raise InvalidArgument(f"policy must be deterministic and know its arms, got {policy!r}")
        numbers = {label: arm for arm, label in enumerate(policy.arm_labels or range(policy.n_arms))}
        inner_arms = np.array([numbers.get(label, -1) for label in labels], np.int64)
        if len(set(labels)) != len(labels) or (inner_arms < 0).all():
            raise InvalidArgument(f"labels must be distinct and name an arm of {policy!r}, got {list(labels)!r}")
        self.labels = tuple(labels)
        super().__init__(policy, arm_labels=self.labels, inner_arms=inner_arms)

    def _choose(self, state: State, allowed: Bool[Array, "n A"] | None, rng: Any) -> Integer[Array, "n"]:
        outer, mapped = self._allowed(state, allowed), np.flatnonzero(self._inner_arms >= 0)
        inner, outer_arms = np.zeros((len(outer), self._n_inner), bool), np.zeros(self._n_inner, int)
        inner[:, self._inner_arms[mapped]], outer_arms[self._inner_arms[mapped]] = outer[:, mapped], mapped
        chosen, rows = outer.argmax(axis=1), np.flatnonzero(inner.any(axis=1))
        if len(rows):
            mask = None if inner.all() else inner[rows]
            chosen[rows] = outer_arms[np.asarray(self.policy.act(self._inner(state, rows), allowed=mask))]
        return chosen
