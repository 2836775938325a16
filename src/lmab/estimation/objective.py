"""The objective of EM: log-likelihood plus log prior, among all models or those of a given rank."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .._shapes import Array, Float
from .observations import Confinement, EMMap, Observations
from .passes import Passes
from .prior import Prior


@dataclass(frozen=True, eq=False)
class Likelihood:
    """The objective on batches of models, and its EM map."""

    observations: Observations
    n_types: int
    prior: Prior
    passes: Passes

    @cached_property
    def em_map(self) -> EMMap:
        return self.observations.em_map(self.prior)

    def expectation(self, models: Float[Array, "R K P"]) -> tuple[Float[Array, "R Q P"], Float[Array, "R"]]:
        """Expected statistics, and the objective."""
        statistics, objective = self.em_map.expectation(models, self.passes)
        if self.prior.active:
            objective = objective + self.em_map.log_prior(models[:, :, : self.n_types])
        return statistics, objective

    def map(self, models: Float[Array, "R K P"]) -> tuple[Float[Array, "R"], Float[Array, "R K P"]]:
        statistics, objective = self.expectation(models)
        return objective, self.em_map.maximise(statistics, models)

    def repair(self, trial: Float[Array, "R K P"], near: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        return self.em_map.repair(trial, near)


@dataclass(frozen=True, eq=False)
class Confined:
    """The same objective among models of low rank. A prior must keep probabilities off 0, where a rank has no room."""

    task: Likelihood
    rank: int

    @property
    def observations(self) -> Observations:
        return self.task.observations

    @property
    def passes(self) -> Passes:
        return self.task.passes

    @cached_property
    def confinement(self) -> Confinement:
        return self.observations.confinement(self.task.prior, self.task.n_types, self.rank)

    def map(self, models: Float[Array, "R K P"]) -> tuple[Float[Array, "R"], Float[Array, "R K P"]]:
        statistics, objective = self.task.expectation(models)
        pairs = zip(statistics, models, strict=True)
        return objective, np.stack([self.confinement.maximise(*pair) for pair in pairs])

    def repair(self, trial: Float[Array, "R K P"], near: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        return np.stack([self.confinement.project(model) for model in self.task.repair(trial, near)])
