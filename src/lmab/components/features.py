"""The component of features: the weights of a session's types are softmax(x B) of its row of features.

The first code of a session is its group, the distinct row of its features, and the expected counts of this code are all
that the update of B needs. B takes one step of Boehning's bound per M step, and every column has a ridge.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from .._shapes import Array, Float, Integer
from ..data.features import Features
from ..estimation.log import CodeBlock
from ..model.type_prior import Category, Term, TypePrior, softmax
from .component import Component, Rows
from .latent_class_model import FEATURES, WEIGHTS

_MANY, _DENSE = 64, 0.2  # Rows of so many coefficients are sparse, where at most this part of them is not 0.
_GLANCED = 2_000  # Rows from which a first look tells whether they are sparse, about.
_OF_ROWS = ("sizes", "curvature", "_sparse", "_single")  # What a design computes of its rows, whatever the ridge is.
_MERGED = 20_000  # Rows of features up to which those that became equal are merged.
_SINGLE = 500_000  # Numbers of the rows beyond which they are multiplied in single precision.
_FEW = 0.5  # Sessions for each row of features below which rows of nobody are looked for.
_RIDGE = (1e-3, 1e6)  # The least and the largest ridge.


@dataclass(frozen=True, eq=False)
class Design:
    """Distinct rows of features as numbers, the row of each session, and the ridge of every coefficient."""

    terms: tuple[Term, ...]
    x: Float[Array, "G D"]
    groups: Integer[Array, "N"]
    ridge: Float[Array, "D"]  # 0 for the constant.

    @classmethod
    def of(cls, terms: tuple[Term, ...], features: Features | None, n_sessions: int, *, ridge: float) -> Design:
        """Return the design of a log; without terms all sessions are in one group."""
        if not terms or features is None:
            return cls((), np.ones((1, 1)), np.zeros(n_sessions, np.int32), np.zeros(1))
        n_terms = sum(term.n_terms for term in terms)
        used, own = np.unique(features.rows, return_inverse=True)
        table = tuple(column[used] for column in features.table)
        x = TypePrior(terms, np.zeros((1 + n_terms, 1))).design(Features(features.columns, table, own))
        if len(x) <= _MERGED:
            x, groups = np.unique(x, axis=0, return_inverse=True)
            own = groups.ravel()[own]
        return cls(terms, x, own.astype(np.int32), np.array([0.0, *[ridge] * n_terms]))

    def part(self, sessions: Integer[Array, "n"]) -> Design:
        """Return the rows of some of the sessions; if most rows have no session, these are left out."""
        groups = self.groups[sessions]
        if len(groups) > _FEW * len(self.x):
            return replace(self, groups=groups)
        used, groups = np.unique(groups, return_inverse=True)
        return replace(self, x=self.x[used], groups=groups.astype(np.int32))

    @property
    def size(self) -> int:
        return self.x.shape[1]

    @property
    def n_free(self) -> int:
        """The identified coefficients of a type: those of the levels of a column sum to 0."""
        return sum(len(term.levels) - 1 if isinstance(term, Category) else term.n_terms for term in self.terms)

    @cached_property
    def sizes(self) -> Float[Array, "G"]:
        """How many sessions have each row."""
        return np.bincount(self.groups, minlength=len(self.x)).astype(float)

    @cached_property
    def curvature(self) -> Float[Array, "D D"]:
        return (self.x * self.sizes[:, None]).T @ self.x

    @cached_property
    def bound(self) -> Float[Array, "D D"]:
        """The inverse of a bound on the curvature that does not depend on B: X' n X / 2 plus the ridge."""
        return _inverse(0.5 * self.curvature + np.diag(self.ridge), shrunk=bool(self.ridge[1:].all()))

    @property
    def blocks(self) -> list[slice]:
        """The coefficients of each column."""
        ends = np.cumsum([1, *(term.n_terms for term in self.terms)]).tolist()
        return [slice(low, high) for low, high in pairwise(ends)]

    @cached_property
    def _sparse(self) -> tuple[Any, Float[Array, "D"]] | None:
        """The rows less the most common value of each column, if most of the differences are 0."""
        from scipy.sparse import csr_array

        some = self.x[:: max(1, len(self.x) // _GLANCED)]
        if self.size < _MANY or (some != np.median(some, axis=0)).mean() > 2 * _DENSE:
            return None
        common = np.median(self.x, axis=0)
        rest = self.x - common
        return None if (rest != 0).mean() > _DENSE else (csr_array(rest), common)

    @cached_property
    def _single(self) -> Float[Array, "G D"] | None:
        """Many rows in single precision, which takes half the time; its rounding is far below the tolerance."""
        return self.x.astype(np.float32) if self.x.size > _SINGLE else None

    def _times(self, coefficients: Float[Array, "D M"]) -> Float[Array, "G M"]:
        if self._sparse is None:
            if self._single is not None:
                return (self._single @ coefficients.astype(np.float32)).astype(float)
            return self.x @ coefficients
        rest, common = self._sparse
        return rest @ coefficients + common @ coefficients

    def _summed(self, numbers: Float[Array, "G M"]) -> Float[Array, "D M"]:
        """Return X' times some numbers."""
        if self._sparse is None:
            if self._single is not None:
                return (self._single.T @ numbers.astype(np.float32)).astype(float)
            return self.x.T @ numbers
        rest, common = self._sparse
        return rest.T @ numbers + common[:, None] * numbers.sum(axis=0)

    def weights(self, coefficients: Float[Array, "D M"]) -> Float[Array, "G M"]:
        return softmax(self._times(coefficients))

    def mean_weights(self, coefficients: Float[Array, "D M"]) -> Float[Array, "M"]:
        """Return the mean weights of the sessions."""
        found = self.sizes @ self.weights(coefficients)
        return found / found.sum()

    def improved(
        self, coefficients: Float[Array, "D M"], weights: Float[Array, "G M"], shares: Float[Array, "G M"]
    ) -> Float[Array, "D M"]:
        """Return B after one step of the bound; `shares` are the expected sessions of each group by type."""
        gap = shares - shares.sum(axis=1, keepdims=True) * weights
        return coefficients + self.bound @ (self._summed(gap) - self.ridge[:, None] * coefficients)

    def log_prior(self, coefficients: Float[Array, "D M"]) -> float:
        return -0.5 * float((self.ridge[:, None] * coefficients**2).sum())

    def with_learned_ridge(self, coefficients: Float[Array, "D M"], informed: float) -> Design:
        """Return the design with the ridge of each column: its effective parameters over its squared length (MacKay).

        A session carries `informed` times the information of one whose type is observed and has probability 1/2.
        """
        n_types = coefficients.shape[1]
        inverse = _inverse(informed * self.curvature + np.diag(self.ridge + 1e-9), shrunk=True)
        ridge = self.ridge.copy()
        for block in self.blocks:
            own = np.diag(inverse)[block]
            effective = (n_types - 1) * float(len(own) - (ridge[block] * own).sum())
            length = float((coefficients[block] ** 2).sum())
            ridge[block] = np.clip(max(effective, 1e-3) / max(length, 1e-9), *_RIDGE)
        return self.with_ridge(ridge)

    def with_ridge(self, ridge: Float[Array, "D"]) -> Design:
        """Return the same rows under another ridge, with the values already computed from them."""
        found = replace(self, ridge=ridge)
        vars(found).update({name: vars(self)[name] for name in _OF_ROWS if name in vars(self)})
        return found

    def type_prior(self, coefficients: Float[Array, "D M"], keep: float | None) -> TypePrior:
        centred = coefficients - coefficients.mean(axis=1, keepdims=True)
        return TypePrior(self.terms, centred, keep)


def _inverse(matrix: Float[Array, "D D"], *, shrunk: bool) -> Float[Array, "D D"]:
    """Return the inverse of a positive matrix; without a ridge its columns may be linearly dependent."""
    return np.linalg.inv(matrix) if shrunk else np.linalg.pinv(matrix, hermitian=True)


@dataclass(frozen=True, eq=False)
class FeatureWeights(Component):
    """The coefficients B of a design; without features its only row is a constant, and all weights are the same."""

    name = FEATURES
    design: Design
    n_types: int

    @property
    def n_rows(self) -> int:
        return self.design.size

    @property
    def group_codes(self) -> CodeBlock:
        """The group of each session of the design, as the code in front of it."""
        return CodeBlock(self.name, len(self.design.x), self.design.groups)

    def write(self, own: Float[Array, "R k P"], table: Rows) -> list[Float[Array, "G M"]]:
        m = self.n_types
        found = [self.design.weights(model[:, :m]) for model in own]
        table[WEIGHTS][..., m:] = 0.0
        sizes = self.design.sizes / self.design.sizes.sum()
        for common, rows, weights in zip(table[WEIGHTS], table[self.name], found, strict=True):
            common[0, :m] = sizes @ weights
            rows[:, :m] = weights / common[0, :m]
        return found

    def update(
        self, own: Float[Array, "R k P"], memo: list[Float[Array, "G M"]], counts: Rows, ahead: Rows
    ) -> Float[Array, "R k P"]:
        m, result = self.n_types, np.zeros_like(own)
        for new, old, weights, sums in zip(result, own, memo, counts[self.name], strict=True):
            new[:, :m] = self.design.improved(old[:, :m], weights, sums[:, :m])
        return result

    def log_prior(self, own: Float[Array, "R k P"]) -> Float[Array, "R"]:
        return np.array([self.design.log_prior(model[:, : self.n_types]) for model in own])

    def project(self, trial: Float[Array, "R k P"], near: Float[Array, "R k P"]) -> Float[Array, "R k P"]:
        return trial

    def n_parameters(self, n_types: int) -> int:
        return (n_types - 1) * (1 + self.design.n_free)
