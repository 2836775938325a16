"""The EM map for rewards on finitely many values: expected counts of codes, and their frequencies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..._kernel import kernel
from ..._shapes import Array, Float, Integer
from ..arrays import normalised_weights
from ..observations import EMMap
from ..passes import Passes
from ..prior import Prior
from .log import CategoricalLog
from .steps import Steps

_NEGLIGIBLE = 1e-150  # a probability below this is zero: it would only slow the arithmetic down
_SHRINK = 0.02  # an extrapolation may take a probability down to this part of what it was, never to zero


@dataclass(frozen=True, eq=False)
class CategoricalMap(EMMap):
    log: CategoricalLog
    prior: Prior

    def expectation(
        self, models: Float[Array, "R K P"], passes: Passes
    ) -> tuple[Float[Array, "R Q P"], Float[Array, "R"]]:
        elsewhere = passes.expectation(self.log, models)
        if elsewhere is not None:
            return elsewhere
        steps = self.log.steps
        parts = steps.parts(models[0].nbytes)
        n_models, n_parts = len(models), len(parts)
        arguments = (steps, parts, np.ascontiguousarray(models))
        work = steps.n_steps * n_models
        statistics, logs = passes.ordered(_expectation, n_parts * n_models, *arguments, work=work)
        if n_parts == 1:
            return statistics, logs
        statistics = statistics.reshape(n_parts, n_models, *models.shape[1:])
        return statistics.sum(axis=0), np.ascontiguousarray(logs.reshape(n_parts, n_models).T).sum(axis=1)

    def maximise(self, statistics: Float[Array, "R Q P"], models: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        cells = self.log.by_arm(statistics)
        if self.prior.active:
            cells = cells + self.prior.pseudo_counts[:, :, None]
        result = np.empty_like(models)
        result[:, 0] = normalised_weights(statistics[:, 0])
        result[:, 1:] = models[:, 1:]
        totals = np.broadcast_to(cells.sum(axis=2, keepdims=True), cells.shape)
        np.divide(cells, totals, out=self.log.by_arm(result), where=totals > 0)
        result[result < _NEGLIGIBLE] = 0.0
        return result

    def log_prior(self, models: Float[Array, "R K M"]) -> Float[Array, "R"]:
        counts = self.prior.pseudo_counts
        with np.errstate(divide="ignore"):
            logs = np.log(self.log.by_arm(models)[:, counts > 0])
        return np.einsum("c,rcp->r", counts[counts > 0], logs)

    def repair(self, trial: Float[Array, "R K P"], near: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        trial = np.maximum(trial, _SHRINK * near)
        trial[:, 0] = normalised_weights(trial[:, 0])
        tables = self.log.by_arm(trial)
        totals = tables.sum(axis=2, keepdims=True)
        np.divide(tables, totals, out=tables, where=totals > 0)
        return trial


def _expectation(
    steps: Steps, parts: Integer[Array, "B 2"], models: Float[Array, "R K P"], first: int, last: int
) -> tuple[Float[Array, "n K P"], Float[Array, "n"]]:
    """Statistics and log-likelihood of tasks first to last - 1; task b * R + r is part b under model r.

    So a range of tasks asks for each of its parts once, for all models.
    """
    n_models = len(models)
    statistics, logs = np.empty((last - first, *models.shape[1:])), np.empty(last - first)
    asked = range(first // n_models, -(-last // n_models))
    room = np.empty(1 + int(np.diff(parts[asked.start : asked.stop], axis=1).max()) if steps.travels else 0, np.int64)
    for part in asked:
        low, high = parts[part].tolist()
        window = steps.window(low, high, room)
        edges = np.array([window.low, window.high])
        start = max(part * n_models, first)
        end = min((part + 1) * n_models, last)
        one, other = start % n_models, end - part * n_models
        own = slice(start - first, end - first)
        kernel("em").categorical(*window[:3], edges, models, statistics[own], logs[own], one, other)
    return statistics, logs
