"""Climb a likelihood from many starts at once: plain EM, or SQUAREM (Varadhan and Roland, 2008) that never falls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from .._shapes import Array, Bool, Float, Integer

_LONGEST = 256.0  # step length of an extrapolation, in units of the plain map's
_ROUNDING = 1e-13  # of the objective: gains below this are noise


class Ascent(Protocol):
    """What is climbed: a map that never lowers the objective, on batches of models."""

    def map(self, models: Float[Array, "R K P"]) -> tuple[Float[Array, "R"], Float[Array, "R K P"]]:
        """The objective at the models, and the models one map further."""

    def repair(self, trial: Float[Array, "R K P"], near: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        """The extrapolated models made valid."""


@dataclass(frozen=True, eq=False)
class Climb:
    """Where R climbs ended."""

    models: Float[Array, "R K P"]
    objectives: Float[Array, "R"]  # at `models`
    n_maps: Integer[Array, "R"]
    converged: Bool[Array, "R"]
    traces: tuple[tuple[float, ...], ...]  # the objective after every accepted map, never falling; one per climb
    stopped: bool  # by the observer

    def order(self) -> Integer[Array, "R"]:
        """Climbs from the best to the worst."""
        return np.argsort(-self.objectives, kind="stable")

    def pick(self, rows: Integer[Array, "r"]) -> Climb:
        """Some of the climbs."""
        traces = tuple(self.traces[row] for row in rows)
        return Climb(
            self.models[rows], self.objectives[rows], self.n_maps[rows], self.converged[rows], traces, self.stopped
        )

    def after(self, earlier: Climb) -> Climb:
        """The same climbs with the way that led to their starts."""
        traces = tuple(old + new for old, new in zip(earlier.traces, self.traces, strict=True))
        n_maps = earlier.n_maps + self.n_maps
        stopped = earlier.stopped or self.stopped
        return Climb(self.models, self.objectives, n_maps, self.converged, traces, stopped)


@dataclass
class _Front:
    """Climbs still under way: a model, its objective, and the model one map ahead."""

    models: Float[Array, "r K P"]
    objectives: Float[Array, "r"]
    ahead: Float[Array, "r K P"]

    def __getitem__(self, rows: Bool[Array, "r"]) -> _Front:
        return _Front(self.models[rows], self.objectives[rows], self.ahead[rows])


def climb(
    ascent: Ascent,
    models: Float[Array, "R K P"],
    *,
    left: float,
    max_maps: int,
    accelerate: bool,
    observer: Callable[[int, float], bool] | None = None,
) -> Climb:
    """Climb from every model until at most about `left` remains to be gained, or `max_maps` maps are spent.

    What remains is judged from the gain of a plain map and from how slowly the maps shorten (were they to shorten by
    a factor q each, gains would shrink by q^2 and the sum of all that follow be gain / (1 - q^2)); twice in a row.
    `observer(maps, best objective)` is told after every cycle and may answer True to stop.
    """
    n_starts = len(models)
    result, objectives = models.copy(), np.full(n_starts, -np.inf)
    n_maps, calm = np.ones(n_starts, np.int64), np.zeros(n_starts, np.int64)
    traces: list[list[float]] = [[] for _ in range(n_starts)]
    stopped = False
    active = np.arange(n_starts)
    front = _Front(models, *ascent.map(models))
    _record(traces, active, front.objectives)
    while True:
        result[active], objectives[active] = front.models, front.objectives
        running = (calm[active] < 2) & (n_maps[active] < max_maps)
        if not running.all():
            active, front = active[running], front[running]
        if stopped or not len(active):
            break
        front, used, trail, remains = _cycle(ascent, front, accelerate)
        for values in trail:
            _record(traces, active, values)
        n_maps[active] += used
        enough = remains <= np.maximum(left, _ROUNDING * np.abs(front.objectives))
        calm[active] = np.where(enough, calm[active] + 1, 0)
        if observer is not None:
            stopped = observer(int(n_maps.max()), float(max(objectives.max(), front.objectives.max())))
    return Climb(result, objectives, n_maps, calm >= 2, tuple(map(tuple, traces)), stopped)


def _record(traces: list[list[float]], rows: Integer[Array, "r"], values: Float[Array, "r"]) -> None:
    for row, value in zip(rows.tolist(), values.tolist(), strict=True):
        traces[row].append(value)


def _cycle(
    ascent: Ascent, front: _Front, accelerate: bool
) -> tuple[_Front, Integer[Array, "r"], tuple[Float[Array, "r"], ...], Float[Array, "r"]]:
    """One round of the climb: the new front, maps used, objectives on the way, and what may remain to be gained.

    SQUAREM: two maps, a jump along the curve they suggest, and the map there; where that is worse, one more plain map.
    """
    middle, second = ascent.map(front.ahead)
    used = np.ones(len(middle), np.int64)
    step, trial = _extrapolate(front.models, front.ahead, second)
    remains = (middle - front.objectives) * np.maximum(1.0, step / 2)  # 1 / (1 - q^2) is about step / 2, q near 1
    if not accelerate:
        return _Front(front.ahead, middle, second), used, (middle,), remains
    trial = ascent.repair(trial, second)
    objectives, ahead = ascent.map(trial)
    worse = ~(objectives >= middle)
    if worse.any():
        trial[worse] = second[worse]
        objectives[worse], ahead[worse] = ascent.map(second[worse])
    return _Front(trial, objectives, ahead), used + 1 + worse, (middle, objectives), remains


def _extrapolate(
    start: Float[Array, "r K P"], first: Float[Array, "r K P"], second: Float[Array, "r K P"]
) -> tuple[Float[Array, "r"], Float[Array, "r K P"]]:
    """Scheme S3 of SQUAREM: s and start + 2 s change + s^2 bend, with s = |change| / |bend|."""
    change = first - start
    bend = second - first - change
    length = np.sqrt((change**2).sum(axis=(1, 2)))
    curvature = np.sqrt((bend**2).sum(axis=(1, 2)))
    step = np.divide(length, curvature, out=np.ones_like(length), where=curvature > 0)
    step = np.clip(step, 1.0, _LONGEST)
    stretch = step[:, None, None]
    return step, start + 2 * stretch * change + stretch**2 * bend
