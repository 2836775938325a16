"""Rewards on ordered values as a logistic surface over the factors.

Value z of arm a has the logit b[a, z] + s[z] w[a].u, where s runs from 0 for the smallest to 1 for the largest value
and b[a, 0] = 0: with two values this is the two-parameter logistic model of item response theory, with more its
generalised partial credit model.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..._shapes import Array, Bool, Float, Integer
from ...model import Categorical, LatentBandit, index_among
from ..arrays import padded
from ..points import Points
from ..surface import Arms, Surface, blocks
from .log import CategoricalLog

_LEAST = 0.01  # of a probability to begin with
_LEAST_UNIT = 0.05  # variance of a reward's place among the values, below which it is not divided by
_STEEPEST = 30.0  # logits beyond are the same to the last digit


@dataclass(frozen=True, eq=False)
class CategoricalSurface(Surface):
    log: CategoricalLog

    @property
    def n_intercepts(self) -> int:
        return len(self.log.values) - 1

    @cached_property
    def _places(self) -> Float[Array, "Z"]:
        """Where each value lies between the smallest and the largest."""
        values = self.log.values
        return (values - values[0]) / max(values[-1] - values[0], np.finfo(float).tiny)

    @property
    def slopes(self) -> Float[Array, "q"]:
        return self._places[1:]

    @property
    def unit(self) -> float:
        return 1.0

    @property
    def played(self) -> Bool[Array, "A"]:
        return self.log.played

    def scale(self) -> float:
        return 1.0

    @cached_property
    def _shares(self) -> Float[Array, "A Z"]:
        """How often each arm pays each value, with one pseudo-play of the average arm."""
        cells = self.log.cells
        return (cells + cells.sum(axis=0) / cells.sum()) / (cells.sum(axis=1, keepdims=True) + 1)

    def intercepts(self) -> Float[Array, "A q"]:
        logs = np.log(np.clip(self._shares, _LEAST, 1 - _LEAST))
        return logs[:, 1:] - logs[:, :1]

    def popularity(self) -> Float[Array, "A"]:
        return self._shares @ self.log.values

    def deviations(self) -> tuple[Any, Any, Float[Array, "A"]]:
        from scipy.sparse import csr_array

        log, places = self.log, self._places
        mean = self._shares @ places
        arms, values = np.divmod(log.codes.astype(np.int64), len(places))
        shape = (log.n_distinct, log.n_arms)
        sums = csr_array((places[values] - mean[arms], arms, log.offsets), shape=shape)
        plays = csr_array((np.ones(len(arms)), arms, log.offsets), shape=shape)
        return sums, plays, (self._shares @ places**2 - mean**2).clip(_LEAST_UNIT)

    def _logits(self, parameters: Float[Array, "a p"], points: Points) -> Float[Array, "a Z K"]:
        q = self.n_intercepts
        along = parameters[:, q:] @ points.places.T
        intercepts = np.pad(parameters[:, :q], ((0, 0), (1, 0)))
        return np.clip(intercepts[:, :, None] + self._places[:, None] * along[:, None], -_STEEPEST, _STEEPEST)

    def model(self, parameters: Float[Array, "A p"], scale: float, points: Points) -> Float[Array, "1 K P"]:
        result = np.zeros((1, 1 + self.log.n_codes, padded(len(points))))
        result[0, 0, : len(points)] = points.weights
        table = self.log.by_arm(result)[0, ..., : len(points)]
        for some in blocks(len(parameters), len(points) * len(self._places)):
            table[some] = _softmax(self._logits(parameters[some], points))
        return result

    def derivatives(
        self, statistics: Float[Array, "Q P"], parameters: Float[Array, "A p"], scale: float, points: Points
    ) -> tuple[Float[Array, "A p"], Float[Array, "A p p"]]:
        n_arms, p = parameters.shape
        cells = self.log.by_arm(statistics[None])[0, ..., : len(points)]
        gradient, information = np.empty((n_arms, p)), np.empty((n_arms, p, p))
        squares = np.einsum("ki,kj->kij", points.places, points.places).reshape(len(points), -1)
        for some in blocks(n_arms, len(points) * len(self._places)):
            chances = _softmax(self._logits(parameters[some], points))
            self._fill(cells[some], chances, points.places, squares, gradient[some], information[some])
        return gradient, information

    def _fill(
        self,
        cells: Float[Array, "a Z K"],
        chances: Float[Array, "a Z K"],
        places: Float[Array, "K d"],
        squares: Float[Array, "K dd"],
        gradient: Float[Array, "a p"],
        information: Float[Array, "a p p"],
    ) -> None:
        """The derivatives of some arms, whose values have `chances` at the points."""
        q, d, steps = self.n_intercepts, places.shape[1], self._places
        plays = cells.sum(axis=1)
        rest = cells - plays[:, None] * chances
        gradient[:, :q] = rest[:, 1:].sum(axis=2)
        gradient[:, q:] = np.einsum("z,azk->ak", steps, rest) @ places
        expected = plays[:, None] * chances
        mean = np.einsum("z,azk->ak", steps, chances)
        spread = np.einsum("z,azk->ak", steps**2, expected) - plays * mean**2
        information[:, :q, :q] = -expected[:, 1:] @ chances[:, 1:].swapaxes(1, 2)
        information[:, range(q), range(q)] += expected[:, 1:].sum(axis=2)
        across = (expected * (steps[:, None] - mean[:, None]))[:, 1:] @ places
        information[:, :q, q:], information[:, q:, :q] = across, across.swapaxes(1, 2)
        information[:, q:, q:] = (spread @ squares).reshape(len(spread), d, d)

    def scores(
        self, played: Integer[Array, "S"], rewards: Float[Array, "S"], arms: Arms, points: Points
    ) -> Float[Array, "S p K"]:
        chances = _softmax(self._logits(arms.parameters, points))
        seen = np.eye(len(self._places))[index_among(self.log.values, rewards)]
        rest = seen[:, :, None] - chances[played]
        along = np.einsum("z,szk->sk", self._places, rest)
        return np.concatenate([rest[:, 1:], along[:, None] * points.places.T], axis=1)

    def mean_slopes(self, parameters: Float[Array, "A p"], points: Points) -> Float[Array, "K A p"]:
        chances = _softmax(self._logits(parameters, points))
        values, mean = self.log.values, np.einsum("z,azk->ak", self.log.values, chances)
        each = chances * (values[:, None] - mean[:, None])  # of the logits
        along = np.einsum("z,azk->ak", self._places, each)
        slopes = np.concatenate([each[:, 1:], along[:, None] * points.places.T], axis=1)
        return np.moveaxis(slopes, 2, 0)

    def best_scale(
        self, statistics: Float[Array, "Q P"], parameters: Float[Array, "A p"], scale: float, points: Points
    ) -> float:
        return scale

    def averaged(self, arms: Arms, points: Points) -> LatentBandit:
        """By the unscented rule: all q logits as they are, and moved both ways along each axis of what is unsure."""
        q, n_arms = self.n_intercepts, len(arms.parameters)
        chances = np.empty((len(points), n_arms, q + 1))
        for some in blocks(n_arms, len(points) * (q + 1) ** 2):
            logits = np.moveaxis(self._logits(arms.parameters[some], points), 1, 2)  # (a, K, Z)
            chances[:, some] = np.moveaxis(_average(logits, self._roots(arms.covariance[some], points)), 1, 0)
        rewards = Categorical(chances, self.log.values, self.log.edges)
        return LatentBandit(points.weights, rewards, self.log.sessions.arm_labels)

    def _roots(self, covariance: Float[Array, "a p p"], points: Points) -> Float[Array, "a K q q"]:
        """Roots of the covariance of the logits of the larger values at every point."""
        q = self.n_intercepts
        along = self.slopes[:, None] * points.places[:, None]  # (K, q, d)
        across = covariance[:, None, :q, q:] @ along.swapaxes(1, 2)
        spread = along @ covariance[:, None, q:, q:] @ along.swapaxes(1, 2)
        total = covariance[:, None, :q, :q] + across + across.swapaxes(2, 3) + spread
        return np.linalg.cholesky(total + 1e-12 * np.eye(q)) if q else total


def _softmax(logits: Float[Array, "a Z K"]) -> Float[Array, "a Z K"]:
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def _average(logits: Float[Array, "a K Z"], roots: Float[Array, "a K q q"]) -> Float[Array, "a K Z"]:
    """Mean of the softmax over moves of the logits along the columns of `roots`, both ways."""
    q = roots.shape[-1]
    if q == 0:
        return _softmax_last(logits)
    reach = max(q, 3)  # with up to 3 logits the fourth moments of a normal distribution are right too
    total = (1 - q / reach) * _softmax_last(logits)
    for axis in range(q):
        for sign in (-np.sqrt(reach), np.sqrt(reach)):
            moved = logits.copy()
            moved[..., 1:] += sign * roots[..., axis]
            total += _softmax_last(moved) / (2 * reach)
    return total


def _softmax_last(logits: Float[Array, "a K Z"]) -> Float[Array, "a K Z"]:
    return np.moveaxis(_softmax(np.moveaxis(logits, 2, 1)), 1, 2)
