"""Reward tables of low rank: types mu_m = base + directions @ coordinates_m, in rank - 1 directions.

Means and probabilities alike: an affine space of dimension rank - 1 is a linear one of dimension `rank`, the k of the
paper's Assumption on M2. `project` finds one near a table; the other functions improve one for given expected counts,
coordinates and directions in turn, by Newton's method with a line search (so that the expected log-likelihood never
falls, and probabilities stay positive) or by least squares for normal rewards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._shapes import Array, Bool, Float

_FLOOR = 1e-4  # Projected probabilities stay above this part of the base's.
_HALVINGS = 12  # Halvings of a Newton step that would lower the likelihood.
_RIDGE = 1e-9  # Part of the mean diagonal that is added, so that every system can be solved.


@dataclass(frozen=True, eq=False)
class LowRank:
    """A table of D rows and M types, of rank 1 + r."""

    loadings: Float[Array, "D k"]  # base and directions
    scores: Float[Array, "M k"]  # 1 and coordinates

    @property
    def table(self) -> Float[Array, "D M"]:
        return self.loadings @ self.scores.T


def project(table: Float[Array, "D M"], weights: Float[Array, "M"], rank: int) -> LowRank:
    """Return the nearest table of the given rank, types weighted."""
    share = np.maximum(weights, 1e-3)
    base = table @ (share / share.sum())
    left, size, right = np.linalg.svd((table - base[:, None]) * np.sqrt(share), full_matrices=False)
    r = min(rank - 1, len(size))
    coordinates = right[:r].T / np.sqrt(share)[:, None]
    return LowRank(
        np.concatenate([base[:, None], left[:, :r] * size[:r]], axis=1),
        np.concatenate([np.ones((len(weights), 1)), coordinates], axis=1),
    )


def positive(fit: LowRank) -> LowRank:
    """Return the same space with every type drawn towards the base until no probability is negative or nearly so."""
    base, moves = fit.loadings[:, :1], fit.loadings[:, 1:] @ fit.scores[:, 1:].T
    room = (1 - _FLOOR) * np.broadcast_to(base, moves.shape)
    part = np.divide(room, -moves, out=np.ones_like(moves), where=-moves > room).min(axis=0)
    scores = fit.scores.copy()
    scores[:, 1:] *= part[:, None]
    return LowRank(fit.loadings, scores)


def improve_probabilities(fit: LowRank, cells: Float[Array, "A Z M"]) -> LowRank:
    """More of sum cells * log(table), the sums over the values of each arm staying 1."""
    scores = _coordinate_step(fit, cells.reshape(-1, cells.shape[2]))
    return LowRank(_loading_step(LowRank(fit.loadings, scores), cells), scores)


def improve_means(fit: LowRank, plays: Float[Array, "A M"], sums: Float[Array, "A M"]) -> LowRank:
    """Return one weighted least-squares step that lowers sum plays * (sums / plays - table)^2."""
    base, directions = fit.loadings[:, 0], fit.loadings[:, 1:]
    curvature = np.einsum("ai,aj,am->mij", directions, directions, plays)
    coordinates = solve(curvature, directions.T @ (sums - plays * base[:, None]))
    scores = np.concatenate([np.ones((len(coordinates), 1)), coordinates], axis=1)
    curvature = np.einsum("mi,mj,am->aij", scores, scores, plays)
    return LowRank(solve(curvature, scores.T @ sums.T), scores)


def solve(matrices: Float[Array, "n d d"], sides: Float[Array, "d n"]) -> Float[Array, "n d"]:
    size = matrices.shape[1]
    ridge = _RIDGE * np.trace(matrices, axis1=1, axis2=2)[:, None, None] / max(size, 1) + np.finfo(float).tiny
    return np.linalg.solve(matrices + ridge * np.eye(size), sides.T[:, :, None])[:, :, 0]


def _coordinate_step(fit: LowRank, cells: Float[Array, "D M"]) -> Float[Array, "M k"]:
    """Return one Newton step of every type's coordinates, the directions fixed."""
    directions, table = fit.loadings[:, 1:], fit.table
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(cells > 0, cells / table, 0.0)
        bend = np.where(cells > 0, slope / table, 0.0)
    step = solve(np.einsum("di,dj,dm->mij", directions, directions, bend), directions.T @ slope)
    moves = directions @ step.T
    length = _line_search(table, moves, cells, np.ones(cells.shape[1]), axis=0)
    scores = fit.scores.copy()
    scores[:, 1:] += length[:, None] * step
    return scores


def _loading_step(fit: LowRank, cells: Float[Array, "A Z M"]) -> Float[Array, "D k"]:
    """One Newton step of every arm's loadings, the coordinates fixed; the likeliest value takes up the rest to 1."""
    n_arms, n_values, _ = cells.shape
    k = fit.scores.shape[1]
    table = fit.table.reshape(cells.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(cells > 0, cells / table, 0.0)
        bend = np.where(cells > 0, slope / table, 0.0)
    last = cells.sum(axis=2).argmax(axis=1)[:, None]
    others = np.argsort(np.arange(n_values) == last, axis=1, kind="stable")[:, :-1]

    def at(array: Float[Array, "A Z M"], index: Array) -> Float[Array, "A Y M"]:
        return np.take_along_axis(array, index[:, :, None], axis=1)

    squares = np.einsum("mi,mj->mij", fit.scores, fit.scores)
    system = np.zeros((n_arms, n_values - 1, k, n_values - 1, k))
    system += np.einsum("am,mij->aij", at(bend, last)[:, 0], squares)[:, None, :, None, :]
    own = np.einsum("azm,mij->azij", at(bend, others), squares)
    index = np.arange(n_values - 1)
    system[:, index, :, index, :] += np.moveaxis(own, 1, 0)
    side = (at(slope, others) - at(slope, last)) @ fit.scores
    fixed = at(cells, others).sum(axis=2) <= 0  # a value that the arm never paid stays at probability 0
    side[fixed] = 0.0
    _freeze(system, fixed)
    size = (n_values - 1) * k
    answer = solve(system.reshape(n_arms, size, size), side.reshape(n_arms, size).T)
    step = np.zeros((n_arms, n_values, k))
    free = np.where(fixed[:, :, None], 0.0, answer.reshape(n_arms, n_values - 1, k))
    np.put_along_axis(step, others[:, :, None], free, axis=1)
    np.put_along_axis(step, last[:, :, None], -free.sum(axis=1, keepdims=True), axis=1)
    length = _line_search(table, step @ fit.scores.T, cells, np.ones(n_arms), axis=(1, 2))
    return fit.loadings + (length[:, None, None] * step).reshape(n_arms * n_values, k)


def _freeze(system: Float[Array, "A Y k Y k"], fixed: Bool[Array, "A Y"]) -> None:
    """Make the unknowns of fixed values independent of the others."""
    k = system.shape[2]
    for arm, value in np.argwhere(fixed):
        system[arm, value] = system[arm, :, :, value] = 0.0
        system[arm, value, np.arange(k), value, np.arange(k)] = 1.0


def _line_search(
    table: Float[Array, "..."],
    moves: Float[Array, "..."],
    cells: Float[Array, "..."],
    length: Float[Array, "n"],
    axis: int | tuple[int, ...],
) -> Float[Array, "n"]:
    """The largest of 1, 1/2, ... of each move that keeps probabilities positive and the likelihood from falling."""

    def value(at: Float[Array, "n"]) -> Float[Array, "n"]:
        shaped = np.expand_dims(at, axis)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(table + shaped * moves)
        logs = np.where(cells > 0, logs, 0.0)
        return np.where(np.isnan(logs), -np.inf, logs * cells).sum(axis=axis)

    start = value(np.zeros_like(length))
    for _ in range(_HALVINGS):
        good = value(length) >= start
        if good.all():
            return length
        length = np.where(good, length, length / 2)
    return np.where(value(length) >= start, length, 0.0)
