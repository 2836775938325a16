"""StepModel: payoffs and observation likelihoods by steps to go, which upper bounds are computed from."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .._shapes import Array, Float, Integer


@dataclass(frozen=True, eq=False)
class StepModel:
    """Payoffs and observation likelihoods by steps to go; S differs from 1 if they depend on the step."""

    payoffs: Float[Array, "S A M"]
    observations: Float[Array, "S A Z M"]  # P(observation, the session continues | arm, type)
    step_tables: Integer[Array, "T"]  # by steps to go 0, ..., H: the place of the step's arrays among the S
    continuation: Float[Array, "S A M"] | None = None  # probability that the session continues; None: always 1
    penalties: Float[Array, "K A M"] | None = None  # cost of a play of each arm, for each of K priors; None: 0

    @classmethod
    def of(
        cls,
        payoffs: Float[Array, "*S A M"],
        table: Float[Array, "*S D M"],
        horizon: int,
        *,
        has_attrition: bool = False,
        step_tables: Integer[Array, "T"] | None = None,
    ) -> StepModel:
        """Return the model of `horizon` steps with one table, or with one of S tables at each step."""
        n_arms, n_types = payoffs.shape[-2:]
        payoffs = payoffs.reshape(-1, n_arms, n_types)
        observations = table.reshape(len(payoffs), n_arms, -1, n_types)
        tables = np.zeros(horizon + 1, np.int64) if step_tables is None else step_tables
        return cls(payoffs, observations, tables, observations.sum(axis=2) if has_attrition else None)

    @property
    def horizon(self) -> int:
        return len(self.step_tables) - 1

    @property
    def by_stage(self) -> Float[Array, "H K A M"]:
        """Return the payoffs with 1, 2, ..., H steps to go, less the penalties; K is 1 without penalties."""
        payoffs = self.payoffs[self.step_tables[1:], None]
        return payoffs if self.penalties is None else payoffs - self.penalties

    @property
    def range_of_means(self) -> float:
        """Return the difference of the largest and the smallest payoff, the unit of the increments."""
        return max(float(np.ptp(self.payoffs)), 1e-9)

    def with_penalties(self, multipliers: Float[Array, "K A M"] | None) -> StepModel:
        """Return the model in which every play of an arm costs its multiplier."""
        return replace(self, penalties=None if multipliers is None else multipliers.astype(self.payoffs.dtype))

    def last(self, steps: int) -> StepModel:
        """Return the model of the last steps."""
        return replace(self, step_tables=self.step_tables[: steps + 1])

    def astype(self, dtype: type) -> StepModel:
        arrays = {name: array.astype(dtype) for name, array in vars(self).items() if array is not None}
        return StepModel(**{**arrays, "step_tables": self.step_tables})

    @property
    def blocks(self) -> list[slice]:
        """Return the blocks of independent stages: all if no session ends early, otherwise one after the other."""
        ends = range(1, self.horizon + 1)
        return [slice(1, self.horizon + 1)] if self.continuation is None else [slice(t, t + 1) for t in ends]
