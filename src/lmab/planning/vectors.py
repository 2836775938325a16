"""VectorPolicy: a policy that plays by the best of a set of vectors, each the value of a plan for the steps left."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import files
from .._kernel import kernel
from .._shapes import Array, Bool, Float, Integer
from ..errors import InvalidArgument
from ..model import LatentBandit
from ..policies import MANY, State, best_allowed
from .compact import SMALL, CompactPolicy
from .planned_policy import PlannedPolicy
from .problem import BINS, Problem

_CHUNK = 1 << 22  # scores computed at once


class VectorPolicy(PlannedPolicy):
    """The first arm of the plan that is worth most at the belief: it earns at least that much.

    `vectors[starts[t] : starts[t + 1]]` are the plans for t + 1 steps to go and `arms` their first arms. Where that
    arm is not allowed, the allowed arm with the highest mean plus value of the plans afterwards.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> policy = lmab.plan(bandit, horizon=5).policy
        >>> policy.act(policy.start(3))
        array([0, 0, 0])
        >>> policy.act(policy.start(), allowed=[False, True])
        1
    """

    kind = "vectors"

    def __init__(
        self,
        bandit: LatentBandit,
        vectors: Float[Array, "K M"],
        arms: Integer[Array, "K"],
        starts: Integer[Array, "T"],
        *,
        horizon: int,
        bins: int = BINS,
    ) -> None:
        super().__init__(bandit, horizon=horizon, bins=bins)
        if len(starts) != horizon + 1 or starts[0] != 0 or starts[-1] != len(vectors) or (np.diff(starts) < 1).any():
            raise InvalidArgument(
                f"starts must rise from 0 to {len(vectors)} in {horizon} steps, got {starts.tolist()}"
            )
        if vectors.shape != (len(arms), bandit.n_types) or arms.min() < 0 or arms.max() >= bandit.n_arms:
            raise InvalidArgument(f"vectors must be ({len(arms)}, {bandit.n_types}), got {vectors.shape}")
        self.vectors, self.arms, self.starts = vectors, arms, starts
        self._rows: dict[tuple[int, float], Float[Array, "1 M"]] = {}  # likelihoods, as far as they were asked for
        self._transposed = [np.ascontiguousarray(self._stage(left).T) for left in range(1, horizon + 1)]

    def _stage(self, remaining: int) -> Float[Array, "K M"]:
        return self.vectors[self.starts[remaining - 1] : self.starts[remaining]]

    def arm_values(self, state: State) -> Float[Array, "n A"]:
        """Mean now plus what the plans earn afterwards, for every arm."""
        problem, remaining = self._problem, self._remaining(state)
        beliefs = problem.beliefs(state.memory)
        if remaining == 1:
            return beliefs @ problem.means.T
        later = np.ascontiguousarray(self._stage(remaining - 1)[:, problem.types])
        return kernel("planning").one_step_values(beliefs, problem.table, problem.means, later)

    def observe(self, state: State, arm: Any, reward: Any) -> State:
        """The state after `arm` paid `reward`. One session with a reward seen before takes a short way."""
        if state.single and type(arm) is int and type(reward) in (float, int, np.float64):
            row = self._rows.get((arm, reward))
            if row is not None:
                memory = state.memory * row
                if memory.max() >= SMALL:
                    return State(state.step + 1, memory, True)
            elif self.bandit.rewards.discrete and len(self._rows) < MANY:
                after = super().observe(state, arm, reward)  # raises where arm or reward is none
                self._rows[arm, reward] = self.bandit.rewards.likelihood(np.array([arm]), np.array([reward]))
                return after
        return super().observe(state, arm, reward)

    def compact(self) -> CompactPolicy:
        """The same decisions for one session at a time, in a few microseconds each."""
        return CompactPolicy(self)

    def _choose(self, state: State, allowed: Bool[Array, "n A"] | None, rng: Any) -> Integer[Array, "n"]:
        remaining = self._remaining(state)
        stage, first = self._transposed[remaining - 1], self.arms[self.starts[remaining - 1] :]
        block = max(1, _CHUNK // stage.shape[1])
        beliefs = state.memory
        best = [best_allowed(beliefs[i : i + block] @ stage) for i in range(0, len(beliefs), block)]
        chosen = first[np.concatenate(best)]
        if allowed is not None:
            chosen = self._replace_forbidden(state, chosen, allowed)
        return chosen

    def _replace_forbidden(
        self, state: State, chosen: Integer[Array, "n"], allowed: Bool[Array, "n A"]
    ) -> Integer[Array, "n"]:
        rows = np.flatnonzero(~allowed[np.arange(len(chosen)), chosen])
        if len(rows):
            chosen = chosen.copy()
            some = State(state.step, state.memory[rows], single=False)
            chosen[rows] = best_allowed(self.arm_values(some), allowed[rows])
        return chosen

    def record(self) -> files.Record:
        base = super().record()
        arrays = {"vectors": self.vectors, "arms": self.arms, "starts": self.starts}
        return files.Record(base.kind, base.fields, arrays, base.records)

    @classmethod
    def from_record(cls, record: files.Record) -> VectorPolicy:
        bandit = LatentBandit.from_record(record.records["bandit"])
        arrays = (record.arrays[name] for name in ("vectors", "arms", "starts"))
        return cls(bandit, *arrays, **record.fields)


def vector_policy(problem: Problem, sets: list[tuple[Float[Array, "K M"], Integer[Array, "K"]]]) -> VectorPolicy:
    """The policy of `sets`: vectors over the problem's types and their arms, for 1 step to go, 2, ..., H."""
    distinct = [_distinct(vectors, arms) for vectors, arms in sets]
    starts = np.cumsum([0, *(len(arms) for _, arms in distinct)])
    vectors = problem.spread(np.concatenate([vectors for vectors, _ in distinct]))
    arms = np.concatenate([arms for _, arms in distinct]).astype(np.int64)
    return VectorPolicy(problem.bandit, vectors, arms, starts, horizon=problem.horizon, bins=problem.bins)


def _distinct(
    vectors: Float[Array, "K M"], arms: Integer[Array, "K"]
) -> tuple[Float[Array, "J M"], Integer[Array, "J"]]:
    """Each vector once, in the order they were found."""
    _, first = np.unique(vectors, axis=0, return_index=True)
    first.sort()
    return vectors[first], arms[first]
