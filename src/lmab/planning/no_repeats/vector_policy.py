"""Policy of plans that carry the arms that they may use, for sessions that play each arm at most once."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import files
from ..._shapes import Array, Bool, Float, Integer
from ...checks import check_count
from ...errors import InvalidArgument
from ...model.bandit import LatentBandit
from ...policies.policy import State, best_allowed, mask_unplayed
from ..backups import best_columns
from ..policies import NoRepeatPolicy, check_plans
from ..problem import Problem
from .backups import NoRepeatVectors, at_children, own_arms

_TRIED = 6  # arms with the best means, and as many of the most informative ones, compared at a decision
_ROUNDING = 1e-12  # relative difference of values that counts as none
_CHUNK = 1 << 22  # numbers computed at once


class NoRepeatVectorPolicy(NoRepeatPolicy):
    """Policy that achieves the value of the best plan, or fixed sequence, of the unplayed arms.

    `vectors[starts[t] : starts[t + 1]]` are the plans for t + 1 steps to go, `arms` their first arms and `used` the
    arms that they may use. The first `greedy_steps` are greedy. Then a decision looks one reward ahead: the greedy arm
    is played if the plans after it keep the value of now; otherwise the best of the plan's first arm, the arms with
    the best means and the most informative ones; if that arm is not allowed, the best allowed one. The memory of a
    session is its belief, then a 1 for every arm played.
    """

    kind = "once-vectors"

    def __init__(
        self,
        bandit: LatentBandit,
        vectors: Float[Array, "K M"],
        arms: Integer[Array, "K"],
        used: Bool[Array, "K A"],
        starts: Integer[Array, "T"],
        *,
        greedy_steps: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(bandit, **options)
        check_plans(bandit, vectors, arms, starts, self.horizon, least=0)
        if used.shape != (len(arms), bandit.n_arms):
            raise InvalidArgument(f"used must be ({len(arms)}, {bandit.n_arms}), got {used.shape}")
        self.vectors, self.arms, self.used, self.starts = vectors, arms, used, starts
        self.greedy_steps = check_count("greedy_steps", greedy_steps, minimum=0)

    def arm_values(self, state: State) -> Float[Array, "n A"]:
        """Return the mean now plus the value of the best plan or sequence afterwards; -inf for played arms."""
        everything = np.tile(np.arange(self._problem.n_arms), (len(state.memory), 1))
        return np.where(self._played(state), -np.inf, self._values(state, everything))

    def _choose(self, state: State, allowed: Bool[Array, "n A"] | None, rng: Any) -> Integer[Array, "n"]:
        played = self._played(state)
        chosen = self._unmasked(state, played)
        if allowed is not None:
            rows = np.flatnonzero(~allowed[np.arange(len(chosen)), chosen])
            if len(rows):
                some = State(state.step, state.memory[rows], single=False)
                chosen[rows] = best_allowed(self.arm_values(some), mask_unplayed(played[rows], allowed[rows]))
        return chosen

    def _unmasked(self, state: State, played: Bool[Array, "n A"]) -> Integer[Array, "n"]:
        beliefs = self._problem.beliefs(state.memory)
        gains = np.where(played, -np.inf, beliefs @ self._step_at(state.step).means.T)
        greedy = best_allowed(gains, ~played)
        if state.step < self.greedy_steps or self._remaining(state) == 1:
            return greedy
        promise, candidates = self._promise(beliefs, played, gains, self._remaining(state))
        values = self._values(state, candidates)
        keeps = values[np.arange(len(values)), greedy] >= promise - _ROUNDING * np.abs(promise)
        return np.where(keeps, greedy, best_allowed(values, ~played))

    def _values(self, state: State, tried: Integer[Array, "n c"]) -> Float[Array, "n A"]:
        """Return the Q-values of the arms tried, -inf for the others."""
        problem, remaining, played = self._problem, self._remaining(state), self._played(state)
        beliefs = problem.beliefs(state.memory)
        values = np.full((len(beliefs), problem.n_arms), -np.inf)
        later = self._plans(remaining - 1)
        n, count = tried.shape
        block = max(1, _CHUNK // (count * max(len(later.arms), problem.n_arms, beliefs.shape[1])))
        for start in range(0, n, block):
            part = slice(start, min(start + block, n))
            rows, arms = np.repeat(np.arange(part.stop - start), count), tried[part].ravel()
            worth = (beliefs[part] @ self._step_at(state.step).means.T)[rows, arms]
            if remaining > 1:
                after = at_children(problem, later, beliefs[part], played[part], rows, arms, remaining - 1)
                worth = worth + np.add.reduce([answer.values for answer in after])
            values[start + rows, arms] = worth
        return values

    def _promise(
        self, beliefs: Float[Array, "n M"], played: Bool[Array, "n A"], gains: Float[Array, "n A"], remaining: int
    ) -> tuple[Float[Array, "n"], Integer[Array, "n c"]]:
        """Return the value of the plans at each belief, and the arms to compare."""
        problem = self._problem
        mass = beliefs.sum(axis=1, keepdims=True)
        table = problem.step(remaining).table
        shown = beliefs @ table.T
        spread = (beliefs @ (table**2).T - shown**2 / np.where(mass > 0, mass, 1)).reshape(*gains.shape, -1)
        informative = np.where(played, -np.inf, spread.sum(axis=2))
        count = max(1, min(_TRIED, int((~played).sum(axis=1).min(initial=problem.n_arms))))
        greedy = best_columns(gains, count)
        value, own = own_arms(problem, self._plans(remaining), beliefs, played, gains, greedy, remaining)
        return value, np.column_stack([own, greedy, best_columns(informative, count)])

    def _plans(self, remaining: int) -> NoRepeatVectors:
        if remaining < 1:
            return NoRepeatVectors.none(self._problem)
        part = slice(self.starts[remaining - 1], self.starts[remaining])
        return NoRepeatVectors(self.vectors[part][:, self._problem.types], self.arms[part], self.used[part])

    def record(self) -> files.Record:
        base = super().record()
        arrays = {
            **base.arrays,
            "vectors": self.vectors,
            "arms": self.arms,
            "used": np.packbits(self.used, axis=1),
            "starts": self.starts,
        }
        fields = {**base.fields, "greedy_steps": self.greedy_steps}
        return files.Record(base.kind, fields, arrays, base.records)

    @classmethod
    def from_record(cls, record: files.Record) -> NoRepeatVectorPolicy:
        bandit = LatentBandit.from_record(record.records["bandit"])
        arrays = record.arrays
        used = np.unpackbits(arrays["used"], axis=1, count=bandit.n_arms).astype(bool)
        given = arrays["vectors"], arrays["arms"], used, arrays["starts"]
        return cls(bandit, *given, **cls._options_of(record))


def no_repeat_policy(problem: Problem, plans: list[NoRepeatVectors], greedy_steps: int) -> NoRepeatVectorPolicy:
    """Return the policy of `plans`, for 1, 2, ..., H steps to go."""
    starts = np.cumsum([0, *(len(some.arms) for some in plans)])
    vectors = problem.spread(np.concatenate([some.vectors for some in plans]))
    arms = np.concatenate([some.arms for some in plans]).astype(np.int64)
    used = np.concatenate([some.used for some in plans])
    return NoRepeatVectorPolicy(
        problem.bandit, vectors, arms, used, starts, greedy_steps=greedy_steps, **problem.of_policy
    )
