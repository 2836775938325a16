"""The least-squares problem of moment matching: residuals, their Jacobian, starts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from .._shapes import Array, Float, Integer
from ..moments import CoreMoments, Design

_MAX_EVALUATIONS = 200
_LOGIT_RANGE = 6.0
_JITTER = 0.3  # spread of the starts around the first moments
_FIRMER = (1.0, 30.0, 1000.0)  # what leaving the bounds costs, in turns, until it is negligible
NEGLIGIBLE = 1e-3  # a probability that is this far beyond its bounds keeps them


@dataclass(frozen=True, eq=False)
class Fit:
    """One solution."""

    weights: Float[Array, "M"]
    core: Float[Array, "n M"]  # nu_m(j): what the core pairs pay in each type
    cost: float  # half the sum of squared, weighted residuals
    residual: float  # the largest one, not weighted
    largest_error: float  # the largest one in standard errors
    beyond: float  # how far the reconstruction leaves the bounds of equation (valid_param_2)
    point: Float[Array, "p"]
    converged: bool


@dataclass(frozen=True, eq=False)
class Matching:
    """Find weights and core values whose moments are the measured ones.

    A point holds M - 1 logits of the weights and the core values (n, M). Residuals are divided by their standard
    errors; further ones keep the reconstruction of a type of weight w within slack / sqrt(w) of probabilities,
    equation (valid_param_2). They cost more and more until the bounds are kept, so the bounds are not traded for
    moments.
    """

    tensors: tuple[CoreMoments, ...]
    design: Design
    n_types: int
    slack: float  # 2 sqrt(M) delta_sub of the equation
    firmness: float = 1.0

    @property
    def n_core(self) -> int:
        return len(self.design.support)

    @cached_property
    def _transform(self) -> Float[Array, "D n"]:
        return self.design.onto_pairs

    @cached_property
    def _scales(self) -> Float[Array, "R"]:
        return np.concatenate([1 / tensor.stderr for tensor in self.tensors])

    @cached_property
    def _measured(self) -> Float[Array, "R"]:
        return np.concatenate([tensor.entries for tensor in self.tensors])

    @cached_property
    def _bounds(self) -> tuple[Float[Array, "n"], Float[Array, "n"]]:
        if self.design.values is not None:
            return np.zeros(self.n_core), np.ones(self.n_core)
        reach = 4 * np.abs(self._means).max() + 1
        return np.full(self.n_core, -reach), np.full(self.n_core, reach)

    @cached_property
    def _means(self) -> Float[Array, "n"]:
        """First moments; those not measured are in the middle."""
        first = self.tensors[0]
        means = np.full(self.n_core, float(first.entries.mean()))
        means[first.indices[:, 0]] = first.entries
        return means

    @cached_property
    def _penalty(self) -> float:
        """Weight of a constraint: at firmness 1 leaving all bounds costs as much as one moment that is off as far."""
        return float(self.firmness * np.median(self._scales) / np.sqrt(len(self._transform)))

    def random_start(self, rng: np.random.Generator) -> Float[Array, "p"]:
        low, high = self._bounds
        margin = 0.02 * (high - low)
        jitter = _JITTER * rng.standard_normal((self.n_core, self.n_types))
        core = np.clip(self._means[:, None] + jitter, (low + margin)[:, None], (high - margin)[:, None])
        return np.concatenate([np.zeros(self.n_types - 1), core.ravel()])

    def restart(self, fit: Fit) -> Float[Array, "p"]:
        """The solution of another least weight, moved inside its bounds."""
        low, high = (np.repeat(bound, self.n_types) for bound in self._bounds)
        margin = 1e-6 * (high - low)
        logits = np.clip(fit.point[: self.n_types - 1], -0.9 * _LOGIT_RANGE, 0.9 * _LOGIT_RANGE)
        return np.concatenate([logits, np.clip(fit.point[self.n_types - 1 :], low + margin, high - margin)])

    def solve(self, start: Float[Array, "p"], w_min: float) -> Fit:
        """Least squares from one start, with firmer bounds while they are left."""
        for firmness in _FIRMER:
            fit = replace(self, firmness=firmness)._solve(start, w_min)
            if fit.beyond <= NEGLIGIBLE:
                break
            start = self.restart(fit)
        return fit

    def _solve(self, start: Float[Array, "p"], w_min: float) -> Fit:
        from scipy.optimize import least_squares

        low, high = (np.repeat(bound, self.n_types) for bound in self._bounds)
        reach = np.full(self.n_types - 1, _LOGIT_RANGE)
        answer = least_squares(
            lambda point: self.residuals(point, w_min),
            start,
            jac=lambda point: self.jacobian(point, w_min),
            bounds=(np.concatenate([-reach, low]), np.concatenate([reach, high])),
            max_nfev=_MAX_EVALUATIONS,
            x_scale=1.0,
        )
        weights, core = self.unpack(answer.x, w_min)
        errors = np.abs(self._moments(weights, core) - self._measured)
        beyond = np.abs(self._violations(weights, core)[0]).max(initial=0.0)
        return Fit(
            weights, core, float(answer.cost), float(errors.max()), float((errors * self._scales).max()),
            float(beyond), answer.x, answer.status > 0,
        )  # fmt: skip

    def unpack(self, point: Float[Array, "p"], w_min: float) -> tuple[Float[Array, "M"], Float[Array, "n M"]]:
        """Weights of at least `w_min`, and core values."""
        shares = _softmax(point[: self.n_types - 1])
        weights = w_min + (1 - self.n_types * w_min) * shares
        return weights / weights.sum(), point[self.n_types - 1 :].reshape(self.n_core, self.n_types)

    def residuals(self, point: Float[Array, "p"], w_min: float) -> Float[Array, "q"]:
        weights, core = self.unpack(point, w_min)
        moments = (self._moments(weights, core) - self._measured) * self._scales
        return np.concatenate([moments, self._penalty * self._violations(weights, core)[0].ravel()])

    def jacobian(self, point: Float[Array, "p"], w_min: float) -> Float[Array, "q p"]:
        weights, core = self.unpack(point, w_min)
        shares = _softmax(point[: self.n_types - 1])
        free = 1 - self.n_types * w_min
        slopes = free * (np.diag(shares) - np.outer(shares, shares))[:, : self.n_types - 1]  # d weights / d logits
        rows = []
        for tensor in self.tensors:
            factors = core[tensor.indices]  # (R, l, M)
            by_weight = factors.prod(axis=1)
            by_core = _scatter(tensor.indices, _others(factors) * weights, self.n_core)
            rows.append(np.hstack([by_weight @ slopes, by_core.reshape(len(by_weight), -1)]))
        by_weight, by_core = self._violation_slopes(weights, core)
        constraints = self._penalty * np.hstack([by_weight @ slopes, by_core])
        return np.vstack([np.vstack(rows) * self._scales[:, None], constraints])

    def _moments(self, weights: Float[Array, "M"], core: Float[Array, "n M"]) -> Float[Array, "R"]:
        return np.concatenate([core[tensor.indices].prod(axis=1) @ weights for tensor in self.tensors])

    def _violations(
        self, weights: Float[Array, "M"], core: Float[Array, "n M"]
    ) -> tuple[Float[Array, "V M"], Float[Array, "V M"]]:
        """How far reconstructed entries, and sums over an arm's values, leave their bounds; and on which side."""
        if self.design.values is None:
            return np.zeros((0, self.n_types)), np.zeros((0, self.n_types))
        distance = self._constrained @ core - self._centres[:, None]
        beyond = np.abs(distance) - self._widths[:, None] - self._slacks[:, None] / np.sqrt(weights)
        side = np.where(beyond > 0, np.sign(distance), 0.0)
        return np.maximum(beyond, 0) * side, side

    @cached_property
    def _constrained(self) -> Float[Array, "V n"]:
        """Rows that rebuild every entry, and every arm's sum over its values."""
        assert self.design.values is not None
        sums = self._transform.reshape(-1, len(self.design.values), self.n_core).sum(axis=1)
        return np.concatenate([self._transform, sums])

    @cached_property
    def _centres(self) -> Float[Array, "V"]:
        return self._per_row(0.5, 1.0)

    @cached_property
    def _widths(self) -> Float[Array, "V"]:
        return self._per_row(0.5, 0.0)

    @cached_property
    def _slacks(self) -> Float[Array, "V"]:
        return self._per_row(self.slack, 0.0 if self.design.values is None else len(self.design.values) * self.slack)

    def _per_row(self, entry: float, total: float) -> Float[Array, "V"]:
        """One number for every entry, and one for every arm's sum."""
        n_entries = len(self._transform)
        return np.concatenate([np.full(n_entries, entry), np.full(len(self._constrained) - n_entries, total)])

    def _violation_slopes(
        self, weights: Float[Array, "M"], core: Float[Array, "n M"]
    ) -> tuple[Float[Array, "v M"], Float[Array, "v q"]]:
        """Derivatives of the violations by the weights and by the core values."""
        side = self._violations(weights, core)[1]
        if not len(side):
            return np.zeros((0, self.n_types)), np.zeros((0, core.size))
        every = np.eye(self.n_types)
        wider = self._slacks[:, None] / 2 * weights**-1.5  # the bounds of a lighter type are wider
        by_weight = np.einsum("vm,mk->vmk", side * wider, every)
        by_core = np.einsum("vm,vn,mk->vmnk", np.abs(side), self._constrained, every)
        return by_weight.reshape(side.size, -1), by_core.reshape(side.size, -1)


def _softmax(logits: Float[Array, "k"]) -> Float[Array, "M"]:
    full = np.append(logits, 0.0)
    shares = np.exp(full - full.max())
    return shares / shares.sum()


def _others(factors: Float[Array, "R l M"]) -> Float[Array, "R l M"]:
    """For every factor the product of the others."""
    ones = np.ones_like(factors[:, :1])
    before = np.concatenate([ones, np.cumprod(factors, axis=1)[:, :-1]], axis=1)
    after = np.concatenate([np.cumprod(factors[:, ::-1], axis=1)[:, -2::-1], ones], axis=1)
    return before * after


def _scatter(indices: Integer[Array, "R l"], slopes: Float[Array, "R l M"], size: int) -> Float[Array, "R n M"]:
    """Add each factor's slope at its position in the core set."""
    total = np.zeros((len(indices), size, slopes.shape[2]))
    rows = np.arange(len(indices))
    for column in range(indices.shape[1]):
        total[rows, indices[:, column]] += slopes[:, column]  # one position per row, so += does not collide
    return total
