"""The starts of EM, its objective, and climbs of it, accelerated by SQUAREM (Varadhan and Roland, 2008).

Starts are clusters of spectral features and random models.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from .._shapes import Array, Bool, Float, Integer
from ..parallel import Passes
from . import quasi_newton
from .log import Coordinates, Log, Prior
from .prior import many_arms
from .quasi_newton import Smooth

_FIRST_REACH = 16.0  # Longest jump at first, in units of the plain map's; it grows while jumps succeed.
_CYCLE = 3  # Most maps of a cycle of SQUAREM.
_CALM = 3  # Cycles in a row that must promise little.
_SLOW = 100  # Maps after which L-BFGS goes on: it needs a half to a fifth of the maps that SQUAREM would still need.
_ROUNDING = 1e-13  # Gains below this part of the objective are noise.
_DENSE = 400  # Features up to which the eigenvectors come from a full decomposition.
_MAX_DIMENSIONS = 12  # Most spectral features.
_LLOYD = 20  # Most iterations of Lloyd's algorithm.
_CLUSTERED = 10_000  # Sessions, about, among which the centres of clusters are looked for, of many arms.


@dataclass(frozen=True, eq=False)
class Likelihood:
    """The objective on batches of models, and its EM map."""

    log: Log
    n_types: int
    prior: Prior
    passes: Passes

    def expectation(self, models: Float[Array, "R K P"]) -> tuple[Float[Array, "R Q P"], Float[Array, "R"]]:
        """Expected statistics, and the objective."""
        statistics, objective = self.log.expectation(models, self.passes)
        if self.prior.active:
            objective = objective + self.log.log_prior(models[:, :, : self.n_types], self.prior)
        return statistics, objective

    def map(self, models: Float[Array, "R K P"]) -> tuple[Float[Array, "R"], Float[Array, "R K P"]]:
        statistics, objective = self.expectation(models)
        return objective, self.log.maximise(statistics, models, self.prior)

    def repair(self, trial: Float[Array, "R K P"], near: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        return self.log.repair(trial, near)

    def smooth(self, model: Float[Array, "K P"]) -> Smooth:
        """Return the objective near a model as a smooth function of coordinates, of a family that has them."""
        statistics, _ = self.expectation(model[None])
        return _InCoordinates(self, self.log.coordinates(model, statistics[0], self.prior, self.n_types))


@dataclass(frozen=True, eq=False)
class _InCoordinates:
    """The objective on one model at a time, as a function of coordinates."""

    task: Likelihood
    coordinates: Coordinates

    def place(self, model: Float[Array, "K P"]) -> Float[Array, "n"]:
        return self.coordinates.place(model)

    def model(self, place: Float[Array, "n"]) -> Float[Array, "K P"]:
        return self.coordinates.model(place)

    def evaluate(self, model: Float[Array, "K P"]) -> tuple[float, Float[Array, "n"]]:
        statistics, objective = self.task.expectation(model[None])
        return float(objective[0]), self.coordinates.gradient(statistics[0], model)

    def longest(self, direction: Float[Array, "n"]) -> float:
        return self.coordinates.longest(direction)


@dataclass(frozen=True, eq=False)
class Confined:
    """The same objective among models of low rank. A prior must keep probabilities off 0, where a rank has no room."""

    task: Likelihood
    rank: int

    @property
    def log(self) -> Log:
        return self.task.log

    @property
    def passes(self) -> Passes:
        return self.task.passes

    @property
    def n_types(self) -> int:
        return self.task.n_types

    def project(self, model: Float[Array, "K P"]) -> Float[Array, "K P"]:
        """A valid model of the rank near `model`."""
        return self.log.project(model, self.task.prior, self.task.n_types, self.rank)

    def map(self, models: Float[Array, "R K P"]) -> tuple[Float[Array, "R"], Float[Array, "R K P"]]:
        statistics, objective = self.task.expectation(models)
        prior, n_types = self.task.prior, self.task.n_types
        pairs = zip(statistics, models, strict=True)
        return objective, np.stack([self.log.improve(*pair, prior, n_types, self.rank) for pair in pairs])

    def repair(self, trial: Float[Array, "R K P"], near: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        return np.stack([self.project(model) for model in self.task.repair(trial, near)])


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
    """Climbs still under way: a model, its objective, the model one map ahead, and how far a jump may go."""

    models: Float[Array, "r K P"]
    objectives: Float[Array, "r"]
    ahead: Float[Array, "r K P"]
    reach: Float[Array, "r"]

    def __getitem__(self, rows: Bool[Array, "r"]) -> _Front:
        return _Front(self.models[rows], self.objectives[rows], self.ahead[rows], self.reach[rows])


def climb(
    ascent: Ascent,
    models: Float[Array, "R K P"],
    *,
    left: float,
    max_maps: int,
    accelerate: bool,
    observer: Callable[[int, float], bool] | None = None,
    smooth: Callable[[Float[Array, "K P"]], Smooth] | None = None,
) -> Climb:
    """Climb from every model until at most about `left` remains to be gained, or `max_maps` maps are spent.

    What remains is judged from the gain of a plain map and from how slowly the maps shorten (were they to shorten by
    a factor q each, gains would shrink by q^2 and the sum of all that follow be gain / (1 - q^2)). It must be little
    several times in a row, since a jump may hide what is slowest. `observer(maps, best objective)` is told after every
    cycle and may answer True to stop.

    If `smooth` describes the objective near a model by coordinates, L-BFGS goes on from it after a hundred maps.
    """
    n_starts = len(models)
    result, objectives = models.copy(), np.full(n_starts, -np.inf)
    n_maps, calm = np.ones(n_starts, np.int64), np.zeros(n_starts, np.int64)
    traces: list[list[float]] = [[] for _ in range(n_starts)]
    stopped = False
    first_maps = max_maps if smooth is None else min(max_maps, _SLOW)
    active = np.arange(n_starts)
    front = _Front(models, *ascent.map(models), np.full(n_starts, _FIRST_REACH))
    _record(traces, active, front.objectives[:, None])
    while True:
        result[active], objectives[active] = front.models, front.objectives
        running = (calm[active] < _CALM) & (n_maps[active] < first_maps)
        if not running.all():
            active, front = active[running], front[running]
        if stopped or not len(active):
            break
        room = n_maps[active].max() + _CYCLE <= max_maps
        front, trail, remains = _cycle(ascent, front, accelerate and room)
        n_maps[active] += _record(traces, active, trail)
        enough = remains <= np.maximum(left, _ROUNDING * np.abs(front.objectives))
        calm[active] = np.where(enough, calm[active] + 1, 0)
        if observer is not None:
            stopped = observer(int(n_maps.max()), float(max(objectives.max(), front.objectives.max())))
    outcome = Climb(result, objectives, n_maps, calm >= _CALM, tuple(map(tuple, traces)), stopped)
    if smooth is not None:
        for row in np.flatnonzero(~outcome.converged & (n_maps + 1 < max_maps)).tolist():
            if outcome.stopped:
                break
            outcome = _continued(outcome, row, smooth(outcome.models[row]), left, max_maps, observer)
    return outcome


def _continued(
    outcome: Climb,
    row: int,
    objective: Smooth,
    left: float,
    max_maps: int,
    observer: Callable[[int, float], bool] | None,
) -> Climb:
    """Return the climbs with one of them continued by L-BFGS; its first map made the coordinates."""
    spent, best = int(outcome.n_maps[row]) + 1, float(outcome.objectives.max())

    def observe(maps: int, value: float) -> bool:
        return observer is not None and observer(spent + maps, max(best, value))

    found = quasi_newton.maximise(
        objective, outcome.models[row], left=left, max_evaluations=max_maps - spent, observer=observe
    )
    models, objectives, converged = outcome.models.copy(), outcome.objectives.copy(), outcome.converged.copy()
    models[row], objectives[row], converged[row] = found.model, found.objective, found.converged
    traces, n_maps = list(outcome.traces), outcome.n_maps.copy()
    traces[row] += (traces[row][-1], *found.trace)
    n_maps[row] = len(traces[row])
    return Climb(models, objectives, n_maps, converged, tuple(traces), found.stopped)


def _record(traces: list[list[float]], rows: Integer[Array, "r"], trail: Float[Array, "r n"]) -> Integer[Array, "r"]:
    """Append what is not NaN to the traces; how many entries that were."""
    made = ~np.isnan(trail)
    for row, values, valid in zip(rows.tolist(), trail, made, strict=True):
        traces[row].extend(values[valid].tolist())
    return made.sum(axis=1)


def _cycle(ascent: Ascent, front: _Front, accelerate: bool) -> tuple[_Front, Float[Array, "r n"], Float[Array, "r"]]:
    """One round of the climb: the new front, the objective after each map, and what may remain to be gained.

    SQUAREM: two maps, a jump along the curve they suggest, and the map there; where that is worse, one more plain map.
    """
    middle, second = ascent.map(front.ahead)
    change, bend = front.ahead - front.models, second - 2 * front.ahead + front.models
    ratio = _ratio(change, bend)
    remains = (middle - front.objectives) * np.maximum(1.0, ratio / 2)  # ratio is 1 / (1 - q), and q is near 1
    if not accelerate:
        return _Front(front.ahead, middle, second, front.reach), middle[:, None], remains
    step = np.clip(ratio, 1.0, front.reach)
    stretch = step[:, None, None]
    trial = ascent.repair(front.models + 2 * stretch * change + stretch**2 * bend, second)  # scheme S3
    objectives, ahead = ascent.map(trial)
    worse = ~(objectives >= middle)
    trail = np.stack([middle, np.where(worse, middle, objectives), np.full(len(middle), np.nan)], axis=1)
    if worse.any():
        trial[worse] = second[worse]
        objectives[worse], ahead[worse] = ascent.map(second[worse])
        trail[worse, 2] = objectives[worse]
    reach = np.where(
        worse, np.maximum(step / 2, _FIRST_REACH), np.where(step >= front.reach, 4 * front.reach, front.reach)
    )
    return _Front(trial, objectives, ahead, reach), trail, remains


def _ratio(change: Float[Array, "r K P"], bend: Float[Array, "r K P"]) -> Float[Array, "r"]:
    """|change| / |bend|, and 1 where nothing bends."""
    length, curvature = (np.sqrt((array**2).sum(axis=(1, 2))) for array in (change, bend))
    return np.divide(length, curvature, out=np.ones_like(length), where=curvature > 0)


def draw_starts(data: Log, n_types: int, n_starts: int, rng: np.random.Generator) -> Float[Array, "R K P"]:
    """Return starts of EM: one half from k-means++ on spectral features, the others random models."""
    starts: list[Float[Array, "1 K P"]] = []
    n_clustered = (n_starts + 1) // 2 if n_types > 1 and data.n_distinct > n_types else 0
    if n_clustered:
        features = spectral_features(data, min(n_types - 1, _MAX_DIMENSIONS))
        every = max(len(features) // _CLUSTERED, 1) if many_arms(data) else 1
        labels = [cluster(features, data.multiplicity, n_types, rng, every=every) for _ in range(n_clustered)]
        starts += [data.clustered(one, n_types) for one in labels]
    return np.concatenate([*starts, data.random_models(n_starts - len(starts), n_types, rng)])


def spectral_features(data: Log, n_dimensions: int) -> Float[Array, "N k"]:
    """Each session's coordinates along the leading directions in which types differ.

    These are eigenvectors of the second moment of the centred steps over pairs of *different* steps of a session:
    given the type, different steps are independent, so what is left is the covariance between types.
    """
    sums, squares = data.features()
    size, multiplicity = len(squares), data.multiplicity[:, None]

    def moment(directions: Float[Array, "D k"]) -> Float[Array, "D k"]:
        centred = data.centre(directions)
        return data.centre(sums.T @ (multiplicity * (sums @ centred)) - squares[:, None] * centred)

    k = max(min(n_dimensions, size - 1), 1)
    if size <= _DENSE:
        matrix = moment(np.eye(size))
        values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    else:
        from scipy.sparse.linalg import LinearOperator, eigsh

        operator = LinearOperator((size, size), matvec=lambda v: moment(v.reshape(-1, 1))[:, 0], dtype=np.float64)
        values, vectors = eigsh(operator, k=k, which="LA", v0=np.ones(size) + np.arange(size) / size)
    leading = np.argsort(-values)[:k]
    scale = np.sqrt(np.maximum(values[leading], 0) / max(values[leading[0]], np.finfo(float).tiny))
    return sums @ (data.centre(vectors[:, leading]) * scale)


def cluster(
    features: Float[Array, "N k"],
    multiplicity: Float[Array, "N"],
    n_clusters: int,
    rng: np.random.Generator,
    every: int = 1,
) -> Integer[Array, "N"]:
    """Labels from k-means++ followed by a few of Lloyd's iterations.

    Only one session in `every` is looked at to find the clusters; then every session joins the nearest one.

    Examples:
        >>> features = np.repeat([[0.0], [5.0]], 50, axis=0) + np.linspace(-1, 1, 100)[:, None]
        >>> labels = cluster(features, np.ones(100), 2, np.random.default_rng(0), every=10)
        >>> len(set(labels[:50])), len(set(labels[50:])), bool(labels[0] == labels[-1])
        (1, 1, False)
    """
    if every > 1:
        some = features[::every]
        labels = cluster(some, multiplicity[::every], n_clusters, rng)
        sizes = np.maximum(np.bincount(labels, minlength=n_clusters), 1)
        sums = np.stack([np.bincount(labels, column, minlength=n_clusters) for column in some.T], axis=1)
        return _nearest(features, sums / sizes[:, None])
    centres = np.empty((0, features.shape[1]))
    nearest = np.ones(len(features))
    for _ in range(n_clusters):
        cumulative = np.cumsum(nearest * multiplicity if nearest.any() else multiplicity)
        pick = np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right")
        centres = np.vstack([centres, features[min(pick, len(features) - 1)]])
        distances = ((features - centres[-1]) ** 2).sum(axis=1)
        nearest = distances if len(centres) == 1 else np.minimum(nearest, distances)
    labels = np.empty(0, np.int64)
    for _ in range(_LLOYD):
        previous, labels = labels, _nearest(features, centres)
        if np.array_equal(previous, labels):
            break
        sizes = np.bincount(labels, multiplicity, minlength=n_clusters)
        weighted = (features * multiplicity[:, None]).T
        sums = np.stack([np.bincount(labels, column, minlength=n_clusters) for column in weighted], axis=1)
        centres = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], centres)
    return labels


def _nearest(features: Float[Array, "N k"], centres: Float[Array, "M k"]) -> Integer[Array, "N"]:
    return ((centres**2).sum(axis=1) - 2 * features @ centres.T).argmin(axis=1)
