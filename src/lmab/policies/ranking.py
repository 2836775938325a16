"""Ranking: a complete order of the arms, the popularity baseline of a model or of a business."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .. import _registry, files
from .._shapes import Array, Bool, Float, Integer
from ..checks import check_count
from ..errors import InvalidArgument
from .policy import Policy, State, check_horizon


class Ranking(Policy):
    """Policy that plays the first allowed arm of a complete order of the arms, and ignores rewards.

    With repeats this is the first arm at every step. Without repeats, arms that the session has played are skipped
    until every allowed arm has been played; then the first allowed arm is played again.

    Args:
        arms: all arms, the best first, each once: by number, or by label if `arm_labels` are given and are text.
        horizon: steps per session; None: any number.
        repeats: False if a session should play each arm at most once.
        arm_labels: names of the arms 0, 1, ...

    Examples:
        >>> import lmab
        >>> policy = lmab.policies.Ranking([2, 0, 1], horizon=3, repeats=False)
        >>> policy.act_on([]), policy.act_on([(2, 1.0)]), policy.act_on([], allowed=[True, True, False])
        (2, 0, 0)
    """

    kind = "ranking"
    adaptive = False
    n_arms: int | None

    def __init__(
        self,
        arms: Iterable[int | str],
        *,
        horizon: int | None,
        repeats: bool = True,
        arm_labels: Sequence[str | int] | None = None,
    ) -> None:
        self._labels = None if arm_labels is None else tuple(arm_labels)
        self.arms = _checked_order(tuple(arms), self._labels)
        self.horizon = check_horizon(horizon)
        self.n_arms, self.repeats = len(self.arms), repeats
        self._schedule: tuple[int, ...] = ()  # sequence of an old file in which arms occur twice: entry t is for step t
        self._old: files.Record | None = None

    @property
    def arm_labels(self) -> tuple[str | int, ...] | None:
        return self._labels

    def _initial_memory(self) -> Float[Array, "K"]:
        """Return zero for each entry of the order; a session without repeats marks the arms it played by 1."""
        return np.zeros(0 if self.repeats else len(self.arms))

    def _remember(self, state: State, arms: Integer[Array, "n"], rewards: Float[Array, "n"]) -> Float[Array, "n K"]:
        return self._pass(state, arms)

    def _pass(self, state: State, arms: Integer[Array, "n"]) -> Float[Array, "n K"]:
        if self.repeats:
            return state.memory
        return np.maximum(state.memory, arms[:, None] == np.array(self.arms))

    def _learn(self, state: State, arms: Integer[Array, "n"], rewards: Float[Array, "n"]) -> Float[Array, "n K"]:
        return state.memory

    def _choose(self, state: State, allowed: Bool[Array, "n A"] | None, rng: Any) -> Integer[Array, "n"]:
        n, listed = len(state.memory), len(self.arms)
        if allowed is None:
            allowed = np.ones((n, listed), bool)
        size = allowed.shape[1]
        if size < listed:
            raise InvalidArgument(f"allowed must cover arm {listed - 1}, got {size} arms")
        if self._schedule:
            entries = np.array([*self._schedule[state.step :], *range(size)])
            return entries[allowed[:, entries].argmax(axis=1)]
        entries = np.array([*self.arms, *range(listed, size), *self.arms])
        playable = allowed[:, entries]
        if not self.repeats:
            playable[:, :listed] &= state.memory == 0
        return entries[playable.argmax(axis=1)]

    def record(self) -> files.Record:
        if self._old is not None:
            return self._old
        labels = None if self._labels is None else list(self._labels)
        fields = {"arms": list(self.arms), "horizon": self.horizon, "repeats": self.repeats, "arm_labels": labels}
        return files.Record(self.kind, fields)

    @classmethod
    def from_record(cls, record: files.Record) -> Ranking:
        """Construct the policy of a record, also of the two kinds that earlier versions wrote.

        These held the arms to play, a sequence or a single one; the other arms follow by number. A sequence in which
        arms occur more than once is a schedule of steps, and one without labels does not determine the number of arms:
        both are written back unchanged.
        """
        if record.kind == cls.kind:
            return cls(**record.fields)
        labels, is_list = record.fields["arm_labels"], record.kind == "fixed-sequence"
        arms = record.fields["arms"] if is_list else [record.fields["arm"]]
        n_arms = max(arms) + 1 if labels is None else len(labels)
        order = list(dict.fromkeys([*arms, *range(n_arms)]))
        twice = len(set(arms)) < len(arms)
        horizon = len(arms) if is_list else record.fields["horizon"]
        policy = cls(order, horizon=horizon, repeats=twice or not is_list, arm_labels=labels)
        policy._schedule = tuple(arms) if twice else ()
        if labels is None:
            policy.n_arms = None
        if twice or labels is None:
            policy._old = record
        return policy


def _checked_order(arms: Sequence[int | str], labels: tuple[str | int, ...] | None) -> tuple[int, ...]:
    """Return the numbers of the arms; raise unless each arm is in the order exactly once."""
    if labels is not None and len(set(labels)) < len(labels):
        twice = Counter(labels).most_common(1)[0][0]
        raise InvalidArgument(f"arm_labels must be distinct, got {twice!r} more than once")
    numbers = {label: number for number, label in enumerate(labels or ()) if isinstance(label, str)}
    for arm in arms:
        if isinstance(arm, str) and arm not in numbers:
            raise InvalidArgument(f"arms must be numbers of arms or labels among arm_labels, got {arm!r}")
    order = [
        numbers[arm] if isinstance(arm, str) else check_count(f"arms[{place}]", arm, minimum=0)
        for place, arm in enumerate(arms)
    ]
    n_arms = check_count("the number of arms", len(order) if labels is None else len(labels))
    repeated = [arm for arm, count in Counter(order).items() if count > 1]
    unknown = [arm for arm in order if arm >= n_arms]
    missing = sorted(set(range(n_arms)) - set(order))
    for wrong_arms, fault in ((repeated, "more than once"), (unknown, "which is no arm"), (missing, "not at all")):
        if wrong_arms:
            raise InvalidArgument(f"arms must hold each of the {n_arms} arms once, got arm {wrong_arms[0]} {fault}")
    return tuple(order)


for _kind in ("fixed-sequence", "stationary"):  # kinds that earlier versions wrote
    _registry.register(_kind, Ranking)
