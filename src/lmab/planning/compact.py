"""CompactPolicy: the decisions of a planned policy for one session at a time, in a few microseconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .._kernel import kernel
from .._shapes import Array, Float
from ..errors import InvalidArgument
from ..policies import State

if TYPE_CHECKING:
    from .vectors import VectorPolicy

MANY = 1 << 16  # likelihoods kept: rewards that edges place may take any value
SMALL = 2.0**-400  # a belief below this is updated by the policy itself, which scales it


class CompactState(NamedTuple):
    """Where one session stands."""

    step: int
    belief: Float[Array, "M"]  # unnormalised


class CompactPolicy:
    """A `VectorPolicy` for servers: plain values in, the same arms out, without arrays of sessions and masks.

    `policy.compact()` makes one. What is rare (an unknown reward, a belief near the end of the numeric range) is left
    to the policy itself.

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

    def __init__(self, policy: VectorPolicy) -> None:
        self.policy = policy
        self.horizon = policy.horizon
        self._arms, self._starts = policy.arms.tolist(), policy.starts.tolist()
        self._vectors = np.ascontiguousarray(policy.vectors)
        self._scores = np.empty(int(np.diff(policy.starts).max()))
        self._rows: dict[tuple[int, float], Float[Array, "M"]] = {}
        module = kernel("planning_decide")
        self._updated, self._best_plan = module.updated, module.best_plan
        self._start = CompactState(0, policy.bandit.weights.copy())

    def start(self) -> CompactState:
        """The state before the first step."""
        return self._start

    def act(self, state: CompactState) -> int:
        """The arm to play now."""
        left = self.horizon - state.step
        if left < 1:
            raise InvalidArgument(f"state must be before the horizon of {self.horizon} steps, got step {state.step}")
        starts = self._starts
        return self._arms[self._best_plan(state.belief, self._vectors, starts[left - 1], starts[left], self._scores)]

    def observe(self, state: CompactState, arm: int, reward: float) -> CompactState:
        """The state after `arm` paid `reward`."""
        row = self._rows.get((arm, reward))
        if row is not None:
            belief, top = self._updated(state.belief, row)
            if top >= SMALL:
                return CompactState(state.step + 1, belief)
        after = self.policy.observe(State(state.step, state.belief[None], single=True), arm, reward)
        if self.policy.bandit.rewards.discrete and len(self._rows) < MANY:
            self._rows[arm, reward] = self.policy.bandit.rewards.likelihood(np.array([arm]), np.array([reward]))[0]
        return CompactState(after.step, after.memory[0])
