"""design: choose the few (arm, value) pairs that determine all others in a subspace (sections 2.2 and 3.1).

A near G-optimal design is found by cutting planes. An interior-point method solves the design on a small set of
candidate rows to high precision. Then the rows with the highest scores are added to the set, until every score is at
most the target. A pass over all rows costs O(D k^2); the small problem costs very little.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .. import _registry, files
from .._shapes import Array, Float, Integer
from ..checks import POSITIVE, OneOf, check, check_array
from ..errors import InvalidArgument, InvalidFile
from .second import Subspace

_EVENTS = ("pairs", "events", "arms")
_MAX_EVENT_VALUES = 12  # 2^Z events per arm
_BLOCK = 4096  # rows that are scored at once: they stay in cache
_MAX_ROUNDS = 200
_NEGLIGIBLE = 1e-9  # a row with a smaller weight is not part of a design
_SINGULAR = 1e-6  # rows span if their least singular value is at least this part of the largest


@dataclass(frozen=True, eq=False)
class Design:
    """A core set: rows of a feature matrix, their weights, and how to rebuild every other row from them.

    For rows of a `Subspace`, row a*Z + z is the pair (arm a, value z); `pairs` names the chosen ones.
    """

    support: Integer[Array, "n"]  # chosen rows
    rho: Float[Array, "n"]  # their weights, summing to 1
    g: float  # the certificate, max over rows of |row|^2 in the inverse information matrix: equation (g_optimal_design)
    coordinates: Float[Array, "D k"]  # the features, in coordinates in which the information matrix is the identity
    events: str = "pairs"
    n_arms: int | None = None  # None: a raw feature matrix
    values: Float[Array, "Z"] | None = None  # None: one row per arm
    error: float | None = None  # how far a type of weight 1 is off the features in any row, measured; None: unknown

    @property
    def rank(self) -> int:
        """Return k, the dimension of the features."""
        return int(self.coordinates.shape[1])

    @cached_property
    def reconstruction(self) -> Float[Array, "D n"]:
        """Return T of (transform_subspace): u = T u[support] for every u in the span; row L1 norms <= sqrt(g)."""
        return self.coordinates @ (self.coordinates[self.support] * self.rho[:, None]).T

    @property
    def onto_pairs(self) -> Float[Array, "P n"]:
        """Return the rows of `reconstruction` that rebuild a type: one per (arm, value), or per arm."""
        if self.events != "events" or self.values is None:
            return self.reconstruction
        single = [place for place, mask in enumerate(_subsets(len(self.values))) if sum(mask) == 1]
        per_arm = 2 ** len(self.values) - 1
        rows = self.reconstruction.reshape(-1, per_arm, len(self.support))[:, single[::-1]]
        return rows.reshape(-1, len(self.support))

    @cached_property
    def leeway(self) -> float | None:
        """Return how far a rebuilt type of weight 1 may leave its probabilities: Proposition 2.5, measured error.

        A type of weight w_m may leave them by leeway / sqrt(w_m), equation (valid_param_2). None: unknown.
        """
        if self.error is None:
            return None
        return float(self.error * (1 + np.abs(self.onto_pairs).sum(axis=1).max()))

    @property
    def pairs(self) -> list[tuple[int, Any]]:
        """Return the chosen pairs: (arm, value), (arm, set of values) for events, or (arm, None) if rows are arms."""
        if self.n_arms is None:
            raise InvalidArgument("pairs are known for the design of a Subspace, got one of a raw feature matrix")
        per_arm = len(self.coordinates) // self.n_arms
        names = self._names(per_arm)
        return [(int(row) // per_arm, names[int(row) % per_arm]) for row in self.support]

    @property
    def arms(self) -> list[int]:
        """Return the arms of the core set, each once, in rising order."""
        return sorted({arm for arm, _ in self.pairs})

    def _names(self, per_arm: int) -> list[Any]:
        if self.values is None:
            return [None]
        values = self.values.tolist()
        if self.events != "events":
            return values
        return [
            frozenset(v for v, inside in zip(values, mask, strict=True) if inside) for mask in _subsets(len(values))
        ]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to `path`; `lmab.load` gives the same design back."""
        files.write(path, self.record())

    def record(self) -> files.Record:
        arrays = {"support": self.support, "rho": self.rho, "coordinates": self.coordinates}
        if self.values is not None:
            arrays["values"] = self.values
        error = None if self.error is None else self.error.hex()
        fields = {"g": self.g.hex(), "events": self.events, "n_arms": self.n_arms, "error": error}
        return files.Record("design", fields, arrays)

    @classmethod
    def from_record(cls, record: files.Record) -> Design:
        arrays, fields = record.arrays, record.fields
        support = arrays["support"]
        if support.ndim != 1 or support.min() < 0 or support.max() >= len(arrays["coordinates"]):
            raise InvalidFile("its support names rows that do not exist")
        g = float.fromhex(fields["g"])
        error = fields["error"]
        return cls(support, arrays["rho"], g, arrays["coordinates"], fields["events"], fields["n_arms"],
                   arrays.get("values"), None if error is None else float.fromhex(error))  # fmt: skip

    def __repr__(self) -> str:
        return f"Design({len(self.support)} of {len(self.coordinates)} rows, k = {self.rank}, g = {self.g:.6g})"


def design(subspace: Subspace | Any, *, tolerance: float = 1.0, events: str = "pairs") -> Design:
    """Choose a small core set that determines every vector of the subspace (Theorem 2.4, Corollary 3.2).

    Args:
        subspace: a `Subspace`, or a (D, k) feature matrix.
        tolerance: stops at g <= (1 + tolerance) * k, with k the rank of the features; 1 is the paper's 2k.
        events: "pairs", core arm-value pairs; "events", the lifted arm-events of Remark A.1 (2^Z per arm, Z at
            most 12); "arms", all pairs of the core arms, for likelihoods that use every value an arm can pay.

    Examples:
        >>> import numpy as np, lmab
        >>> grid = np.linspace(-1, 1, 2001)
        >>> cubic = lmab.moments.design(np.vander(grid, 4, increasing=True), tolerance=1e-4)
        >>> grid[cubic.support].round(2), cubic.rho.round(2)
        (array([-1.  , -0.45,  0.45,  1.  ]), array([0.25, 0.25, 0.25, 0.25]))
    """
    check("events", events, OneOf(_EVENTS))
    check("tolerance", tolerance, POSITIVE)
    if not isinstance(subspace, Subspace):
        if events != "pairs":
            raise InvalidArgument(f"events must be 'pairs' for a raw feature matrix, got {events!r}")
        return _solve(check_array("subspace", subspace, ndim=2), tolerance)
    features = _lift(subspace) if events == "events" else subspace.basis
    found = _solve(features, tolerance)
    support, rho = _all_pairs(found, subspace) if events == "arms" else (found.support, found.rho)
    error = subspace.error
    if error is not None and events == "events" and subspace.values is not None:
        error *= len(subspace.values)  # an event is a sum of at most Z rows
    return Design(support, rho, found.g, found.coordinates, events, subspace.n_arms, subspace.values, error)


def _lift(subspace: Subspace) -> Float[Array, "E k"]:
    """Return one row per (arm, event), the sum of the rows of its values: Remark A.1."""
    if subspace.values is None:
        raise InvalidArgument("events must be 'pairs' or 'arms' for continuous rewards, got 'events'")
    n_values = len(subspace.values)
    if n_values > _MAX_EVENT_VALUES:
        raise InvalidArgument(f"events must be 'pairs' for more than {_MAX_EVENT_VALUES} values (2^Z), got {n_values}")
    masks = np.array(list(_subsets(n_values)), dtype=np.float64)
    rows = subspace.basis.reshape(subspace.n_arms, n_values, -1)
    return np.einsum("ez,azk->aek", masks, rows).reshape(-1, subspace.rank)


def _subsets(n: int) -> Iterator[tuple[int, ...]]:
    """Return all nonempty subsets of n values as rows of 0 and 1; the last one is the sure event."""
    return (mask for mask in itertools.product((0, 1), repeat=n) if any(mask))


def _all_pairs(found: Design, subspace: Subspace) -> tuple[Integer[Array, "n"], Float[Array, "n"]]:
    """Return the design with every pair of the core arms; pairs that it did not need have weight 0."""
    per_arm = len(found.coordinates) // subspace.n_arms
    arms = np.unique(found.support // per_arm)
    support = (arms[:, None] * per_arm + np.arange(per_arm)).ravel()
    rho = np.zeros(len(support))
    rho[np.searchsorted(support, found.support)] = found.rho
    return support, rho


def _solve(features: Float[Array, "D k"], tolerance: float) -> Design:
    rows = _whiten(features)
    rank = rows.shape[1]
    target = (1 + tolerance) * rank
    chosen, weights = _cut(rows, _spanning_rows(rows), target)
    chosen, weights = _reduce(rows, chosen, weights, target)
    order = np.argsort(chosen)
    chosen, weights = chosen[order], weights[order]
    factor = _factor(rows[chosen], weights)
    coordinates = rows @ factor
    return Design(chosen, weights, float(_scores(rows, factor).max()), coordinates)


def _whiten(features: Float[Array, "D k"]) -> Float[Array, "D r"]:
    """Return orthonormal coordinates of the column space: a G-optimal design does not depend on the basis."""
    norm = float(np.abs(features).max())
    if norm == 0:
        raise InvalidArgument("subspace must have a row that is not zero, got only zeros")
    scaled = features / norm
    values, vectors = np.linalg.eigh(scaled.T @ scaled)
    if values[0] > 1e-6 * values[-1]:
        return scaled @ (vectors / np.sqrt(values))
    left, singular, _ = np.linalg.svd(scaled, full_matrices=False)  # columns are dependent, or nearly so
    return left[:, singular > singular[0] * max(scaled.shape) * np.finfo(float).eps]


def _spanning_rows(rows: Float[Array, "D r"]) -> Integer[Array, "r"]:
    """Return r rows that span the space; each is the farthest from the span of the rows before it."""
    left = np.einsum("ij,ij->i", rows, rows)
    chosen: list[int] = []
    basis = np.zeros((0, rows.shape[1]))
    for _ in range(rows.shape[1]):
        left[chosen] = -1
        chosen.append(int(left.argmax()))
        direction = rows[chosen[-1]] - basis.T @ (basis @ rows[chosen[-1]])
        basis = np.vstack([basis, direction / np.linalg.norm(direction)])
        left -= (rows @ basis[-1]) ** 2
    return np.array(chosen)


def _cut(
    rows: Float[Array, "D r"], chosen: Integer[Array, "n"], target: float
) -> tuple[Integer[Array, "m"], Float[Array, "m"]]:
    """Solve on the chosen rows and add the rows with the highest scores, until every score is within the target."""
    for _ in range(_MAX_ROUNDS):
        weights = _optimal_weights(rows[chosen])
        keep = weights > _NEGLIGIBLE
        chosen, weights = chosen[keep], weights[keep] / weights[keep].sum()
        factor = _factor(rows[chosen], weights)
        scores = _scores(rows, factor)
        if scores.max() <= target:
            return chosen, weights
        worst = _worst_rows(rows, factor, scores)
        chosen = np.union1d(chosen, worst)
    return chosen, weights


def _worst_rows(
    rows: Float[Array, "D r"], factor: Float[Array, "r r"], scores: Float[Array, "D"]
) -> Integer[Array, "m"]:
    """Return up to r rows with high scores in different directions."""
    top = np.argpartition(scores, -_BLOCK)[-_BLOCK:] if len(rows) > _BLOCK else np.arange(len(rows))
    points, left = rows[top] @ factor, scores[top].copy()
    picked: list[int] = []
    for _ in range(points.shape[1]):
        worst = int(left.argmax())
        if picked and left[worst] <= 0.5 * scores[top[picked[0]]]:
            break
        picked.append(worst)
        left -= (points @ points[worst]) ** 2 / scores[top[worst]]
    return top[picked]


def _optimal_weights(rows: Float[Array, "n r"]) -> Float[Array, "n"]:
    """Return the D-optimal weights on a few rows, by a primal-dual interior-point method.

    The method minimises -log det G(rho) + r * sum(rho) over rho >= 0. The solution sums to 1, and scores are at most r
    (Kiefer and Wolfowitz), with equality if rho > 0.
    """
    n, rank = rows.shape
    rho = np.full(n, 1 / n)
    slack = np.ones(n)
    for _ in range(100):
        cross = rows @ _factor(rows, rho)
        kernel = cross @ cross.T
        scores = np.diag(kernel)
        residual = rank - scores - slack
        gap = float(rho @ slack) / n
        if gap < 1e-14 and np.abs(residual).max() < 1e-9:
            break
        centre = 0.1 * gap
        hessian = kernel**2 + np.diag(slack / rho)
        step = np.linalg.solve(hessian, centre / rho - slack - residual)
        dual = (centre - slack * step) / rho - slack
        rho = rho + _length(rho, step) * step
        slack = slack + _length(slack, dual) * dual
    return rho / rho.sum()


def _length(point: Float[Array, "n"], step: Float[Array, "n"]) -> float:
    """Return the longest step, at most 1, after which all entries are positive."""
    falling = step < 0
    return min(1.0, 0.99 * float((point[falling] / -step[falling]).min())) if falling.any() else 1.0


def _reduce(
    rows: Float[Array, "D r"], chosen: Integer[Array, "n"], weights: Float[Array, "n"], target: float
) -> tuple[Integer[Array, "m"], Float[Array, "m"]]:
    """Drop rows one by one, the one with the least weight first, while the target holds without them.

    At a tight target a row can be dropped only if another row is nearly equal to it (neighbours on a grid).
    """
    rank = rows.shape[1]
    for row in chosen[np.argsort(weights)]:
        if len(chosen) == rank:
            break
        fewer = chosen[chosen != row]
        if target < 1.01 * rank and _likeness(rows[fewer], rows[row]) < 0.99:
            continue
        singular = np.linalg.svd(rows[fewer], compute_uv=False)
        if singular[-1] < _SINGULAR * singular[0]:
            continue
        lighter = _optimal_weights(rows[fewer])
        if lighter.min() > _NEGLIGIBLE and _scores(rows, _factor(rows[fewer], lighter)).max() <= target:
            chosen, weights = fewer, lighter
    return chosen, weights


def _likeness(rows: Float[Array, "n r"], row: Float[Array, "r"]) -> float:
    """Return the largest squared cosine between `row` and one of `rows`."""
    return float(((rows @ row) ** 2 / np.einsum("ij,ij->i", rows, rows)).max() / (row @ row))


def _factor(rows: Float[Array, "n r"], weights: Float[Array, "n"]) -> Float[Array, "r r"]:
    """Return the matrix F such that F F' is the inverse of the information matrix G(rho)."""
    from scipy.linalg import solve_triangular

    information = rows.T @ (rows * weights[:, None])
    lower = np.linalg.cholesky(information)
    return solve_triangular(lower, np.eye(len(lower)), lower=True).T


def _scores(rows: Float[Array, "D r"], factor: Float[Array, "r r"]) -> Float[Array, "D"]:
    """Return |row|^2 in the inverse information matrix, for every row."""
    scores = np.empty(len(rows))
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK] @ factor
        np.einsum("ij,ij->i", block, block, out=scores[start : start + _BLOCK])
    return scores


_registry.register("design", Design)
