"""The component of returning persons: a person keeps the type of the session before with probability `keep`.

The sessions of a person form a Markov chain of types, whose posterior comes from one forward and one backward pass. The
likelihoods of sessions under each type come from the E step of the other components, with a code per session.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from .._kernel import kernel
from .._shapes import Array, Float, Integer
from ..estimation.log import Beside, CodeBlock, Log
from ..parallel import Passes
from .component import Component, Rows
from .latent_class_model import FEATURES, WEIGHTS, IndependentSessions

_STEEPEST = 12.0  # The largest logit of `keep`.
_BOUND = 40.0  # The largest logit of an extrapolation.
_PERSONS, _SESSION = "persons", "session"


def probability(logit: float) -> float:
    """Return the probability with this logit."""
    return float(1 / (1 + np.exp(-logit)))


def logit(share: float) -> float:
    """Return the logit of a probability, which is bounded."""
    with np.errstate(divide="ignore"):
        return float(np.clip(np.log(share) - np.log1p(-share), -_STEEPEST, _STEEPEST))


class Persons(Component):
    """The logit of the probability that a returning person keeps the type."""

    name = _PERSONS
    n_rows = 1

    def write(self, own: Float[Array, "R 1 P"], table: Rows) -> None:
        table[self.name][:] = 1 / (1 + np.exp(-own[..., :1]))

    def update(self, own: Float[Array, "R 1 P"], memo: Any, counts: Rows, ahead: Rows) -> Float[Array, "R 1 P"]:
        result = own.copy()
        for model, (kept, returned) in zip(result, counts[self.name][:, 0, :2], strict=True):
            if returned:
                model[:] = logit(kept / returned)
        return result

    def project(self, trial: Float[Array, "R 1 P"], near: Float[Array, "R 1 P"]) -> Float[Array, "R 1 P"]:
        return np.clip(trial, -_BOUND, _BOUND)

    def n_parameters(self, n_types: int) -> int:
        return 1


@dataclass(frozen=True, eq=False)
class LinkedSessions:
    """The E step of sessions that follow one another person by person: tables end with rows of groups and of `keep`."""

    groups: Integer[Array, "N"]  # the group of features of each session
    n_groups: int
    edges: Integer[Array, "P1"]  # the first session of each person, and the end
    n_types: int
    independent: IndependentSessions | None = None  # of a log with a code per session; None: types are given
    like: Float[Array, "N M"] | None = field(default=None, repr=False)  # of each session under given types

    @classmethod
    def of(
        cls, log: Log, blocks: Mapping[str, CodeBlock], groups: Integer[Array, "N"], edges: Any, n_groups: int, m: int
    ) -> LinkedSessions:
        """Return the E step of a log with the auxiliary codes of other components."""
        session = CodeBlock(_SESSION, len(groups), np.arange(len(groups)))
        coded = log.coded(log.sessions, Beside.of(session, *blocks.values()))
        return cls(groups, n_groups, edges, m, IndependentSessions(coded))

    @property
    def n_rows(self) -> int:
        return self._n_own + self.n_groups + 1

    @property
    def _n_own(self) -> int:
        """The rows of the log's tables."""
        return 1 if self.independent is None else self.independent.n_rows

    @cached_property
    def _own(self) -> Mapping[str, slice]:
        return {WEIGHTS: slice(0, 1)} if self.independent is None else self.independent.rows(np.empty((0, 0, 0))).places

    def _with_last(self, places: Mapping[str, slice], first: int) -> dict[str, slice]:
        end = first + self.n_groups
        return {**places, FEATURES: slice(first, end), _PERSONS: slice(end, end + 1)}

    def rows(self, tables: Float[Array, "R Q P"]) -> Rows:
        return Rows(tables, self._with_last(self._own, self._n_own))

    def expectation(self, tables: Float[Array, "R Q P"], passes: Passes) -> tuple[Rows, Float[Array, "R"]]:
        m, table = self.n_types, self.rows(tables)
        own = tables[:, : self._n_own]
        likes, logs = self._likelihoods(own, passes)
        last, factors = np.zeros((len(tables), self.n_groups + 1, tables.shape[2])), []
        for r, keep in enumerate(table[_PERSONS][:, 0, 0].tolist()):
            weights = np.ascontiguousarray(table[WEIGHTS][r, :, :m] * table[FEATURES][r, :, :m])
            like, fresh, kept = likes[r], np.empty_like(weights), np.empty(2)
            posterior, each = np.empty_like(like), np.empty(len(like))
            kernel("em").returning(like, self.edges, weights, self.groups, keep, posterior, fresh, kept, each)
            factors.append(np.divide(posterior, like, out=np.zeros_like(like), where=like > 0))
            last[r, :-1, :m], last[r, -1, :2] = fresh, kept
            logs[r] += each.sum()
        sums, places = self._sums(own, factors, passes)
        return Rows(np.concatenate([sums, last], axis=1), self._with_last(places, sums.shape[1])), logs

    def _likelihoods(
        self, tables: Float[Array, "R Q P"], passes: Passes
    ) -> tuple[list[Float[Array, "N M"]], Float[Array, "R"]]:
        """Return the likelihood of each session by type over its mean, and the sum of the logs of these means."""
        if self.independent is None:
            assert self.like is not None
            return [self.like] * len(tables), np.zeros(len(tables))
        counts, logs = self._pass(tables, np.ones((len(tables), len(self.groups), self.n_types)), passes)
        return list(np.ascontiguousarray(counts[_SESSION][..., : self.n_types]) * self.n_types), logs

    def _sums(
        self, tables: Float[Array, "R Q P"], factors: list[Float[Array, "N M"]], passes: Passes
    ) -> tuple[Float[Array, "R S P"], Mapping[str, slice]]:
        """Return the counts of the log's rows under the posterior, whose ratio to the likelihood is `factors`."""
        if self.independent is None:
            return np.zeros((len(tables), 1, tables.shape[2])), {WEIGHTS: slice(0, 1)}
        counts, _ = self._pass(tables, np.stack(factors), passes)
        return counts.array, counts.places

    def _pass(
        self, tables: Float[Array, "R Q P"], sessions: Float[Array, "R N M"], passes: Passes
    ) -> tuple[Rows, Float[Array, "R"]]:
        """Return counts and log-likelihood under equal weights and the given rows of sessions."""
        assert self.independent is not None
        rows, m = self.independent.rows(tables.copy()), self.n_types
        rows[WEIGHTS][..., :m], rows[WEIGHTS][..., m:] = 1 / m, 0.0
        rows[_SESSION][..., :m], rows[_SESSION][..., m:] = sessions, 0.0
        return self.independent.expectation(rows.array, passes)
