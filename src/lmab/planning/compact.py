"""CompactPolicy: the decisions of a plan by vectors for one session at a time, in a few microseconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._kernel import kernel
from .._shapes import Array, Float
from ..errors import InvalidArgument
from ..policies import MANY, Compact, CompactState

if TYPE_CHECKING:
    from .vectors import VectorPolicy

SMALL = 2.0**-400  # a belief below this is updated by the policy itself, which scales it


class CompactPolicy(Compact):
    """A `VectorPolicy` for servers: plain values in, the same arms out, without arrays of sessions and masks.

    `policy.compact()` makes one. What is rare (an unknown reward, a belief near the end of the numeric range, a plan
    whose arm is not allowed) is left to the policy itself.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> compact = lmab.plan(bandit, horizon=5).policy.compact()
        >>> state = compact.start()
        >>> arm = compact.act(state)
        >>> state = compact.observe(state, arm, 0.0)
        >>> arm, compact.act(state)
        (0, 1)
    """

    policy: VectorPolicy
    horizon: int

    def __init__(self, policy: VectorPolicy) -> None:
        super().__init__(policy)
        self._arms, self._starts = policy.arms.tolist(), policy.starts.tolist()
        self._vectors = np.ascontiguousarray(policy.vectors)
        self._scores = np.empty(int(np.diff(policy.starts).max()))
        self._rows: dict[tuple[int, float], Float[Array, "M"]] = {}
        module = kernel("planning")
        self._updated, self._best_plan = module.updated, module.best_plan

    def act(self, state: CompactState, allowed: Any = None) -> int:
        left = self.horizon - state.step
        if left < 1:
            raise InvalidArgument(f"state must be before the horizon of {self.horizon} steps, got step {state.step}")
        starts = self._starts
        arm = self._arms[self._best_plan(state.memory, self._vectors, starts[left - 1], starts[left], self._scores)]
        if allowed is None or (len(allowed) == self.n_arms and allowed[arm]):
            return arm
        return int(self.policy.act(self._whole(state), allowed=allowed))

    def observe(self, state: CompactState, arm: int, reward: float | None) -> CompactState:
        row = self._rows.get((arm, reward))  # type: ignore[arg-type]  # None is no key
        if row is not None:
            belief, top = self._updated(state.memory, row)
            if top >= SMALL:
                return CompactState(state.step + 1, belief)
        after = self.policy.observe(self._whole(state), arm, reward)
        if reward is not None and self.policy.bandit.rewards.discrete and len(self._rows) < MANY:
            self._rows[arm, reward] = self.policy.bandit.rewards.likelihood(np.array([arm]), np.array([reward]))[0]
        return self._one(after)
