"""Belief grid: an upper bound on the optimal value by interpolation between beliefs (Lovejoy, 1991)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import comb
from typing import Any

import numpy as np

from .._shapes import Array, Float, Integer
from .step_model import StepModel

_COARSEST, _FINEST = 12, 512  # beliefs of a grid are multiples of 1 / n, with n between these
_CHILDREN = 1 << 15  # beliefs located in a grid at once
_SLACK = 1e-13  # added to the bound for each pair of steps, relative to the largest mean


def grid_bound(
    model: StepModel, starts: Float[Array, "K M"], *, size: int, stop: Callable[[], bool] = lambda: False
) -> Float[Array, "K"]:
    """Return upper bounds on the optimal value at unnormalised beliefs, by dynamic programming over a grid of beliefs.

    Optimal values are convex in the belief, so between the points of a grid they lie below the interpolation. The
    transitions of a table do not depend on the steps to go, so they are computed once for each table. The grid is the
    finest one with at most `size` weights; the bound is infinite if that is too coarse, or if `stop` returns True.
    """
    nothing = np.full(len(starts), np.inf)
    n_types, n_codes = starts.shape[1], model.observations.shape[1] * model.observations.shape[2]
    used = np.unique(model.step_tables[1:]).tolist()
    grid = BeliefGrid.within(size // (n_codes * n_types * len(used)), n_types)
    if grid is None:
        return nothing
    transitions = {}
    for table in used:
        found = grid.transitions(model.observations[table].reshape(n_codes, n_types), model.payoffs.shape[1], stop)
        if found is None:
            return nothing
        transitions[table] = found
    values = np.zeros(len(grid.points))
    for table in model.step_tables[1:].tolist():
        if stop():
            return nothing
        paid = grid.points @ model.payoffs[table].T
        values = (paid + (transitions[table] @ values).reshape(paid.shape)).max(axis=1)
    places, weights = grid.around(starts)
    slack = _SLACK * model.horizon**2 * float(np.abs(model.payoffs).max())
    return (weights * (values[places] + slack)).sum(axis=1)


@dataclass(frozen=True, eq=False)
class BeliefGrid:
    """Beliefs with entries that are multiples of 1 / n, and the simplices between them (Freudenthal's triangulation).

    A belief is represented by its n-fold sums of the last 1, 2, ..., M - 1 entries, which increase. Their floors are a
    corner of the simplex that contains the belief; raising them one by one, the largest fractions first, gives the
    other corners.
    """

    n: int
    points: Float[Array, "P M"]
    choose: Integer[Array, "_ M"]  # binomial coefficients; ranks of points are sums of these

    @classmethod
    def within(cls, n_points: int, n_types: int) -> BeliefGrid | None:
        """Return the finest grid of at most `n_points` points; None if it is too coarse."""
        n = _COARSEST
        if n_types < 2 or comb(n + n_types - 1, n_types - 1) > n_points:
            return None
        while n < _FINEST and comb(n + n_types, n_types - 1) <= n_points:
            n += 1
        sums = np.array(list(combinations_with_replacement(range(n + 1), n_types - 1)))
        choose = np.array([[comb(k, j) for j in range(n_types)] for k in range(n + n_types + 1)])
        ends = np.pad(sums, ((0, 0), (1, 1)), constant_values=((0, 0), (0, n)))
        points = np.empty((len(sums), n_types))
        points[_ranks(sums, choose)] = np.diff(ends, axis=1)[:, ::-1] / n
        return cls(n, points, choose)

    def transitions(self, table: Float[Array, "D M"], n_arms: int, stop: Callable[[], bool]) -> Any | None:
        """Return the sparse matrix (points * arms, points) of the interpolated beliefs that follow each arm."""
        from scipy.sparse import csr_matrix

        shape = (len(self.points), *table.shape)
        places, weights = np.empty(shape, np.int32), np.empty(shape)
        block = max(1, _CHILDREN // len(table))
        for start in range(0, len(self.points), block):
            if stop():
                return None
            part = slice(start, start + block)
            children = (self.points[part, None] * table).reshape(-1, table.shape[1])
            corners, shares = self.around(children)
            places[part], weights[part] = corners.reshape(-1, *table.shape), shares.reshape(-1, *table.shape)
        ends = np.arange(0, places.size + 1, places.size // (len(self.points) * n_arms))
        return csr_matrix((weights.ravel(), places.ravel(), ends), shape=(len(ends) - 1, len(self.points)))

    def around(self, beliefs: Float[Array, "k M"]) -> tuple[Integer[Array, "k M"], Float[Array, "k M"]]:
        """Return the points around unnormalised beliefs, and the weights with which they sum to each belief."""
        sums = np.cumsum(beliefs[:, ::-1], axis=1)
        mass = sums[:, -1:]
        sums = np.minimum(sums[:, :-1] * (self.n / np.where(mass > 0, mass, 1)), self.n)
        corner = np.floor(sums)
        order = np.argsort(corner - sums, axis=1, kind="stable")
        fractions = np.take_along_axis(sums - corner, order, axis=1)
        weights = -np.diff(fractions, axis=1, prepend=1.0, append=0.0) * mass
        corner, rows, places = corner.astype(np.int64), np.arange(len(sums)), np.empty(beliefs.shape, np.int64)
        places[:, 0] = _ranks(corner, self.choose)
        for step, raised in enumerate(order.T, start=1):
            corner[rows, raised] += 1
            places[:, step] = _ranks(corner, self.choose)
        return np.minimum(places, len(self.points) - 1), weights  # points outside the grid have weight 0


def _ranks(sums: Integer[Array, "k m"], choose: Integer[Array, "_ M"]) -> Integer[Array, "k"]:
    """Return the place of each increasing row among all of them."""
    total = np.zeros(len(sums), np.int64)
    for place, column in enumerate(sums.T):
        total += choose[column + place, place + 1]
    return total
