"""The least-squares problem of moment matching: residuals, their Jacobian, starts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .._shapes import Array, Float, Integer
from ..moments import CoreMoments, Design

_MAX_EVALUATIONS = 200
_LOGIT_RANGE = 6.0
_JITTER = 0.3  # spread of the starts around the first moments


@dataclass(frozen=True, eq=False)
class Fit:
    """One solution."""

    weights: Float[Array, "M"]
    core: Float[Array, "n M"]  # nu_m(j): what the core pairs pay in each context
    cost: float  # half the sum of squared, weighted residuals
    residual: float  # the largest one, not weighted
    largest_error: float  # the largest one in standard errors
    point: Float[Array, "p"]
    converged: bool


@dataclass(frozen=True, eq=False)
class Matching:
    """Find weights and core values whose moments are the measured ones.

    A point holds M - 1 logits of the weights and the core values (n, M). Residuals are divided by their standard
    errors; further ones keep the reconstruction within `slack` of probabilities, equation (valid_param_2).
    """

    tensors: tuple[CoreMoments, ...]
    design: Design
    n_contexts: int
    slack: float

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
        """Weight of a constraint: leaving the bounds everywhere costs as much as one moment that is off as far."""
        return float(np.median(self._scales) / np.sqrt(len(self._transform)))

    def random_start(self, rng: np.random.Generator) -> Float[Array, "p"]:
        low, high = self._bounds
        margin = 0.02 * (high - low)
        jitter = _JITTER * rng.standard_normal((self.n_core, self.n_contexts))
        core = np.clip(self._means[:, None] + jitter, (low + margin)[:, None], (high - margin)[:, None])
        return np.concatenate([np.zeros(self.n_contexts - 1), core.ravel()])

    def restart(self, fit: Fit) -> Float[Array, "p"]:
        """The solution of another least weight, moved inside its bounds."""
        low, high = (np.repeat(bound, self.n_contexts) for bound in self._bounds)
        margin = 1e-6 * (high - low)
        logits = np.clip(fit.point[: self.n_contexts - 1], -0.9 * _LOGIT_RANGE, 0.9 * _LOGIT_RANGE)
        return np.concatenate([logits, np.clip(fit.point[self.n_contexts - 1 :], low + margin, high - margin)])

    def solve(self, start: Float[Array, "p"], w_min: float) -> Fit:
        """Least squares from one start."""
        from scipy.optimize import least_squares

        low, high = (np.repeat(bound, self.n_contexts) for bound in self._bounds)
        reach = np.full(self.n_contexts - 1, _LOGIT_RANGE)
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
        weighted = errors * self._scales
        return Fit(
            weights, core, float(answer.cost), float(errors.max()), float(weighted.max()), answer.x, answer.status > 0
        )

    def unpack(self, point: Float[Array, "p"], w_min: float) -> tuple[Float[Array, "M"], Float[Array, "n M"]]:
        """Weights of at least `w_min`, and core values."""
        shares = _softmax(point[: self.n_contexts - 1])
        weights = w_min + (1 - self.n_contexts * w_min) * shares
        return weights / weights.sum(), point[self.n_contexts - 1 :].reshape(self.n_core, self.n_contexts)

    def residuals(self, point: Float[Array, "p"], w_min: float) -> Float[Array, "q"]:
        weights, core = self.unpack(point, w_min)
        moments = (self._moments(weights, core) - self._measured) * self._scales
        return np.concatenate([moments, self._penalty * self._violations(core)[0]])

    def jacobian(self, point: Float[Array, "p"], w_min: float) -> Float[Array, "q p"]:
        weights, core = self.unpack(point, w_min)
        shares = _softmax(point[: self.n_contexts - 1])
        free = 1 - self.n_contexts * w_min
        slopes = free * (np.diag(shares) - np.outer(shares, shares))[:, : self.n_contexts - 1]  # d weights / d logits
        rows = []
        for tensor in self.tensors:
            factors = core[tensor.indices]  # (R, l, M)
            by_weight = factors.prod(axis=1)
            by_core = _scatter(tensor.indices, _others(factors) * weights, self.n_core)
            rows.append(np.hstack([by_weight @ slopes, by_core.reshape(len(by_weight), -1)]))
        constraints = self._penalty * self._violation_slopes(core)
        empty = np.zeros((len(constraints), self.n_contexts - 1))
        return np.vstack([np.vstack(rows) * self._scales[:, None], np.hstack([empty, constraints])])

    def _moments(self, weights: Float[Array, "M"], core: Float[Array, "n M"]) -> Float[Array, "R"]:
        return np.concatenate([core[tensor.indices].prod(axis=1) @ weights for tensor in self.tensors])

    def _violations(self, core: Float[Array, "n M"]) -> tuple[Float[Array, "v"], Float[Array, "v"]]:
        """How far reconstructed entries, and sums over an arm's values, leave their bounds, and on which side."""
        if self.design.values is None:
            return np.zeros(0), np.zeros(0)
        table = self._transform @ core
        sums = table.reshape(-1, len(self.design.values), self.n_contexts).sum(axis=1)
        distance = np.concatenate([(table - 0.5).ravel(), (sums - 1).ravel()])
        limit = np.concatenate([np.full(table.size, 0.5 + self.slack),
                                np.full(sums.size, len(self.design.values) * self.slack)])  # fmt: skip
        beyond = np.maximum(np.abs(distance) - limit, 0)
        return beyond * np.sign(distance), np.where(beyond > 0, 1.0, 0.0)

    def _violation_slopes(self, core: Float[Array, "n M"]) -> Float[Array, "v q"]:
        active = self._violations(core)[1]
        if not len(active):
            return np.zeros((0, core.size))
        transform = self._transform
        assert self.design.values is not None
        sums = transform.reshape(-1, len(self.design.values), self.n_core).sum(axis=1)
        rows = np.concatenate([transform, sums])  # (D + A, n)
        wide = np.einsum("dn,mk->dmnk", rows, np.eye(self.n_contexts)).reshape(-1, core.size)
        return wide * active[:, None]


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
