"""Compact forms of policies, for servers: plain values in, the same arms out, one session at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._shapes import Array, Float
from ..errors import InvalidArgument
from .state import State

if TYPE_CHECKING:
    from .policy import Policy

MANY = 1 << 16  # decisions or likelihoods remembered


class CompactState(NamedTuple):
    """Where one session stands."""

    step: int
    memory: Float[Array, "K"]  # the row of the policy's own state

    @property
    def belief(self) -> Float[Array, "K"]:
        """The memory, which for plans by vectors is the unnormalised belief."""
        return self.memory


class Compact(ABC):
    """A deterministic policy for one session at a time: `start`, then `act` and `observe` in turn, and `tell`.

    What is rare is left to the policy itself, so that every decision is the policy's.
    """

    def __init__(self, policy: Policy) -> None:
        if not policy.deterministic:
            raise InvalidArgument(f"policy must be deterministic to be compact, got {policy!r}, which plays at random")
        self.policy = policy
        self.horizon = policy.horizon
        self.n_arms = policy.n_arms
        self._start = self._one(policy.start())

    def start(self, *, history: Iterable[tuple[int, float | None]] | None = None) -> CompactState:
        """The state before the first step; `history` is what is known of the person from earlier sessions."""
        return self._start if history is None else self._one(self.policy.start(history=history))

    @abstractmethod
    def act(self, state: CompactState, allowed: Any = None) -> int:
        """The arm to play now; `allowed` (A,) masks arms that cannot be played."""

    @abstractmethod
    def observe(self, state: CompactState, arm: int, reward: float | None) -> CompactState:
        """The state after `arm` paid `reward`; None: the reward is not known yet."""

    def tell(self, state: CompactState, arm: int, reward: float) -> CompactState:
        """The state after a late reward of `arm`."""
        return self._one(self.policy.tell(self._whole(state), arm, reward))

    def skip(self, state: CompactState) -> CompactState:
        """The state after a step that played an arm unknown to the policy."""
        return self._one(self.policy.skip(self._whole(state)))

    def belief(self, state: CompactState) -> Float[Array, "M"]:
        """The probability of each type."""
        return self.policy.belief(self._whole(state))

    def to_json(self, state: CompactState) -> str:
        """The state as JSON, as `Policy.to_json` writes it."""
        return self.policy.to_json(self._whole(state))

    def from_json(self, text: str) -> CompactState:
        """The state that `to_json` wrote."""
        return self._one(self.policy.from_json(text))

    def _whole(self, state: CompactState) -> State:
        return State(state.step, state.memory[None], single=True)

    def _one(self, state: State) -> CompactState:
        return CompactState(state.step, state.memory[0])


class Remembering(Compact):
    """The compact form of any deterministic policy: it asks the policy once for each state, and remembers its arms.

    `policy.compact()` makes one.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> compact = lmab.plan(bandit, horizon=5, method=lmab.planning.Lookahead()).policy.compact()
        >>> state = compact.observe(compact.start(), 0, 0.0)
        >>> compact.act(state), compact.act(state, allowed=[True, False])
        (1, 0)
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self._arms: dict[tuple[int, bytes, bytes], int] = {}

    def act(self, state: CompactState, allowed: Any = None) -> int:
        mask = b"" if allowed is None else np.asarray(allowed, bool).tobytes()
        key = state.step, state.memory.tobytes(), mask
        arm = self._arms.get(key)
        if arm is None:
            arm = int(self.policy.act(self._whole(state), allowed=allowed))
            if len(self._arms) >= MANY:
                self._arms.clear()
            self._arms[key] = arm
        return arm

    def observe(self, state: CompactState, arm: int, reward: float | None) -> CompactState:
        return self._one(self.policy.observe(self._whole(state), arm, reward))
