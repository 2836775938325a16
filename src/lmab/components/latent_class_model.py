"""A latent class model: an ordered list of components over one likelihood table, with one E step and one M step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Protocol

import numpy as np

from .._shapes import Array, Float
from ..estimation.log import Log
from ..parallel import SERIAL, Passes
from .component import Component, Rows

WEIGHTS, REWARDS, FEATURES = "weights", "rewards", "features"
LOG = "log"  # all rows of the log, without those that an E step adds


class Expectation(Protocol):
    """An E step: expected counts of the rows of tables, and log-likelihoods."""

    @property
    def n_rows(self) -> int:
        """The rows of a table."""

    def rows(self, tables: Float[Array, "R Q P"]) -> Rows:
        """Return the tables with the names of their rows."""

    def expectation(self, tables: Float[Array, "R Q P"], passes: Passes) -> tuple[Rows, Float[Array, "R"]]:
        """Return expected counts and log-likelihood under every table, which may be changed."""


@dataclass(frozen=True, eq=False)
class IndependentSessions:
    """The E step of sessions that are independent of each other."""

    log: Log

    @property
    def n_rows(self) -> int:
        return self.log.n_model_rows

    @cached_property
    def _places(self) -> dict[str, slice]:
        """The rows of a table: weights, rewards and auxiliary rows."""
        first = 1 + self.log.n_own_rows
        return {WEIGHTS: slice(0, 1), REWARDS: slice(1, first), **self._auxiliary(first)}

    def _counted(self, sums: Float[Array, "R Q P"]) -> Rows:
        """Return expected counts of the log, of which the auxiliary rows are the last."""
        first = sums.shape[1] - self.log.n_beside
        places = {LOG: slice(0, sums.shape[1]), WEIGHTS: slice(0, 1), REWARDS: slice(1, first)}
        return Rows(sums, {**places, **self._auxiliary(first)})

    def _auxiliary(self, first: int) -> dict[str, slice]:
        rows = {} if self.log.beside is None else self.log.beside.rows
        return {name: slice(first + one.start, first + one.stop) for name, one in rows.items()}

    def rows(self, tables: Float[Array, "R Q P"]) -> Rows:
        return Rows(tables, self._places)

    @cached_property
    def _multiplied(self) -> slice | None:
        """The rows that may exceed 1 in many steps of a session, whose products could overflow; None if none can.

        Only components with codes of steps change rows of steps. A code in front of a session occurs once.
        """
        log = self.log
        if log.beside is None or all(block.steps is None for block in log.beside.blocks):
            return None
        holds_likelihoods = log.n_own == log.n_own_rows and not log.n_last_rows
        return slice(1 if holds_likelihoods else 1 + log.n_own_rows, 1 + log.n_own_rows + log.n_beside)

    def expectation(self, tables: Float[Array, "R Q P"], passes: Passes) -> tuple[Rows, Float[Array, "R"]]:
        if self._multiplied is None:
            sums, logs = self.log.expectation(tables, passes)
            return self._counted(sums), logs
        rows: Any = tables[:, self._multiplied]
        top: Any = np.ones(rows.shape[:2])
        for column in range(tables.shape[2]):
            np.maximum(top, rows[..., column], out=top)
        rows /= top[..., None]
        sums, logs = self.log.expectation(tables, passes)
        masses = sums[:, sums.shape[1] - top.shape[1] :].sum(axis=2)
        return self._counted(sums), logs + (masses * np.log(top)).sum(axis=1)


@dataclass(frozen=True, eq=False)
class LatentClassModel:
    """The objective of all components together, on batches of models that hold the rows of one after the other."""

    components: tuple[Component, ...]
    e_step: Expectation
    passes: Passes = SERIAL

    def split(self, models: Float[Array, "R K P"]) -> list[Float[Array, "R k P"]]:
        """Return the rows of each component, as views."""
        edges = accumulate((component.n_rows for component in self.components), initial=0)
        return [models[:, low:high] for low, high in pairwise(edges)]

    def place(self, name: str) -> slice:
        """Return the rows of a component in a model."""
        edges = list(accumulate((component.n_rows for component in self.components), initial=0))
        return next(
            slice(*edge) for one, edge in zip(self.components, pairwise(edges), strict=True) if one.name == name
        )

    def map(self, models: Float[Array, "R K P"]) -> tuple[Float[Array, "R"], Float[Array, "R K P"]]:
        """Return the objective at the models, and the models after one step of EM."""
        rows, memos, table = self.written(models)
        counts, objective = self.e_step.expectation(table.array, self.passes)
        ahead = self.empty(models) if any(component.looks_ahead for component in self.components) else table
        found = []
        for component, own, memo in zip(self.components, rows, memos, strict=True):
            objective = objective + component.log_prior(own)
            found.append(component.update(own, memo, counts, ahead))
            if ahead is not table and component is not self.components[-1]:
                component.write(found[-1], ahead)
        return objective, np.concatenate(found, axis=1)

    def repair(self, trial: Float[Array, "R K P"], near: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        """Return extrapolated models made valid."""
        pairs = zip(self.components, self.split(trial), self.split(near), strict=True)
        return np.concatenate([component.project(one, other) for component, one, other in pairs], axis=1)

    def written(self, models: Float[Array, "R K P"]) -> tuple[list[Float[Array, "R k P"]], list[Any], Rows]:
        """Return the rows of each component, the results of its `write`, and the likelihood table."""
        rows, table = self.split(models), self.empty(models)
        return rows, [one.write(own, table) for one, own in zip(self.components, rows, strict=True)], table

    def empty(self, models: Float[Array, "R K P"]) -> Rows:
        """Return the table of models about which no component says anything."""
        return self.e_step.rows(np.ones((len(models), self.e_step.n_rows, models.shape[2])))
