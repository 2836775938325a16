"""Rewards on finitely many values: one code per step, and all that estimation asks of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from .._kernel import kernel
from .._shapes import Array, Bool, Float, Integer, Shaped
from ..data.packed import Packed
from ..data.sessions import Sessions
from ..errors import InvalidArgument
from ..model.bandit import LatentBandit
from ..model.bins import Bins
from ..model.categorical import Categorical
from ..model.rewards import index_among
from . import low_rank
from .arm_law import STRENGTHS, CategoricalArms
from .information import (
    AT_ZERO,
    Coordinates,
    Information,
    check_size,
    contrasts,
    covariances,
    moved_distributions,
    normalised,
    summed,
    with_weights,
    within_support,
)
from .log import (
    Chain,
    Confinement,
    EMMap,
    InFiles,
    InMemory,
    Models,
    Observations,
    Prior,
    StartModels,
    Steps,
    count_parameters,
    equal_weights,
    expectation,
    frozen,
    hashes_of,
    log_likelihoods,
    merge,
    normalised_weights,
    padded,
    seems_diverse,
    take,
    tally,
    worth,
)
from .passes import SERIAL, Arrays, Passes
from .traits.surface import Arms, Points, Surface, blocks

_NONE: Float[Array, "C"] = np.empty(0)
_CHUNK = 1 << 18  # steps encoded at once
_HASHED_SESSIONS = 1 << 20  # hashed together
_UNSEEN = 1e-4  # probability that a held-out reward is of any kind
LEAST = 1e-3  # probability of a reward that a moment estimate calls impossible: a belief must survive it
_NEGLIGIBLE = 1e-150  # a probability below this is zero: it would only slow the arithmetic down
_SHRINK = 0.02  # an extrapolation may take a probability down to this part of what it was, never to zero
_SMOOTHING = 5.0  # pseudo-plays that keep a cluster's probabilities off 0 and 1
_SOFTENING = 0.02  # part of the marginals in a softened model
_LEAST_WEIGHT = 0.02  # of a cluster
_DRAWN_SESSIONS = 1 << 22  # of a log in files, drawn together
_NO_WEIGHT = 1e-9  # a weight never falls below
_SOFT = 0.01  # of equal probabilities is mixed into the start, which may call nothing impossible
_LEAST_SHARE = 0.01  # of a probability to begin with
_LEAST_UNIT = 0.05  # variance of a reward's place among the values, below which it is not divided by
_STEEPEST = 30.0  # logits beyond are the same to the last digit


class Window(NamedTuple):
    """Arrays that hold sessions low to high - 1, perhaps among others."""

    codes: Shaped[Array, "T"]  # unsigned, of the smallest size
    offsets: Integer[Array, "K1"]
    counts: Float[Array, "C"]  # sessions that each distinct one stands for; empty: one
    low: int
    high: int

    @property
    def own(self) -> Window:
        """The same sessions alone."""
        first, last = int(self.offsets[self.low]), int(self.offsets[self.high])
        offsets = self.offsets[self.low : self.high + 1] - first
        return Window(self.codes[first:last], offsets, self.counts[self.low : self.high], 0, self.high - self.low)

    @property
    def arrays(self) -> Arrays:
        """(codes, lengths, counts, no rewards)."""
        return self.codes, np.diff(self.offsets), self.counts, _NONE


@dataclass(frozen=True, eq=False)
class HeldSteps(InMemory):
    """Steps in memory."""

    codes: Shaped[Array, "T"]
    counts: Float[Array, "C"]

    @property
    def n_bytes(self) -> int:
        return int(self.codes.nbytes)

    def window(self, low: int, high: int, room: Integer[Array, "m"] | None = None) -> Window:
        return Window(self.codes, self.offsets, self.counts, low, high)


@dataclass(frozen=True, eq=False)
class FiledSteps(InFiles):
    """Steps in the files of a packed log."""

    table: Shaped[Array, "c"] | None  # the code of each code in the files; None: itself

    @classmethod
    def of(cls, packed: Packed, table: Shaped[Array, "c"] | None) -> FiledSteps:
        return cls(packed.partitions, table)

    @property
    def n_bytes(self) -> int:
        return self.n_steps * (self.partitions.bytes_per_step if self.table is None else self.table.itemsize)

    @property
    def held(self) -> HeldSteps:
        window = self.window(0, self.n_all)
        return HeldSteps(window.offsets, window.codes, window.counts)

    def window(self, low: int, high: int, room: Integer[Array, "m"] | None = None) -> Window:
        offsets, codes = self.partitions.part(low, high, "codes", room=room)
        return Window(frozen(self._coded(codes)), frozen(offsets), frozen(_NONE), 0, high - low)

    def pick(self, rows: Integer[Array, "n"]) -> tuple[Shaped[Array, "T"], Integer[Array, "n1"]]:
        """Codes and offsets of the sessions `rows`, which rise."""
        offsets, codes = self.partitions.pick(rows, "codes")
        return self._coded(codes), offsets

    def _coded(self, codes: Shaped[Array, "T"]) -> Any:
        return codes if self.table is None else self.table.take(codes)


@dataclass(frozen=True, eq=False)
class CategoricalLog:
    """A log as codes a * Z + z, identical sessions merged where that pays."""

    sessions: Sessions | Packed  # as they were given
    values: Float[Array, "Z"]
    steps: Steps
    edges: Float[Array, "E"] | None = None  # where continuous rewards were cut into the values

    @classmethod
    def encode(
        cls, sessions: Sessions | Packed, values: Float[Array, "Z"], edges: Float[Array, "E"] | None = None
    ) -> CategoricalLog:
        """The log in codes of the given reward values."""
        if isinstance(sessions, Packed):
            return cls(sessions, values, merged(_filed(sessions, values), sessions.n_arms * len(values)), edges)
        n_codes = sessions.n_arms * len(values)
        codes = np.empty(sessions.n_steps, np.min_scalar_type(n_codes - 1))
        for start in range(0, sessions.n_steps, _CHUNK):
            chunk = slice(start, start + _CHUNK)
            place = index_among(values, sessions.rewards[chunk], first_step=start)
            codes[chunk] = sessions.arms[chunk] * np.int64(len(values)) + place
        codes, offsets, counts = map(frozen, merge(codes, sessions.offsets, n_codes))
        return cls(sessions, values, HeldSteps(offsets, codes, counts), edges)

    def __getstate__(self) -> dict[str, Any]:
        """What a pickle holds: nothing that is computed again as easily."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @property
    def travels(self) -> bool:
        """Whether a pickle is small."""
        return self.steps.travels

    def level(self, every: int) -> CategoricalLog | None:
        """One of `every` parts of the log; None where the log is too small."""
        steps = self.steps.level(every)
        if steps is None:
            return None
        part = replace(self, steps=steps)
        part.__dict__["cells"] = self.cells  # which are those of the whole log, counted once
        return part

    @cached_property
    def held(self) -> HeldSteps:
        """All steps in memory."""
        return self.steps.held

    @property
    def codes(self) -> Shaped[Array, "T"]:
        """Unsigned, of the smallest size."""
        return self.held.codes

    @property
    def offsets(self) -> Integer[Array, "K1"]:
        return self.held.offsets

    @property
    def counts(self) -> Float[Array, "C"]:
        """Sessions that each distinct one stands for; empty: one."""
        return self.held.counts

    @property
    def n_arms(self) -> int:
        return self.sessions.n_arms

    @property
    def n_codes(self) -> int:
        return self.n_arms * len(self.values)

    @property
    def n_steps(self) -> int:
        return self.steps.n_steps // self.steps.every

    @property
    def n_sums(self) -> int:
        return 1 + self.n_codes

    @property
    def largest(self) -> None:
        return None

    def partitions(self) -> Iterable[Arrays]:
        """(codes, lengths, counts, no rewards) of parts of the log."""
        return self.steps.stretches()

    @property
    def n_distinct(self) -> int:
        return self.steps.n_distinct

    @cached_property
    def multiplicity(self) -> Float[Array, "n"]:
        """How many sessions each distinct one stands for."""
        return self.counts if len(self.counts) else np.ones(self.n_distinct)

    @cached_property
    def cells(self) -> Float[Array, "A Z"]:
        """How often each arm paid each value."""
        if isinstance(self.sessions, Packed):
            return _cells(self.sessions, self.values)
        if len(self.counts):
            steps = np.repeat(self.counts, np.diff(self.offsets))
            cells = np.bincount(self.codes, steps, minlength=self.n_codes)
        else:
            cells = tally(self.codes, self.n_codes)
        return cells.reshape(self.n_arms, len(self.values))

    @cached_property
    def played(self) -> Bool[Array, "A"]:
        return self.cells.sum(axis=1) > 0

    @cached_property
    def marginals(self) -> Float[Array, "A Z"]:
        """Distribution of the rewards of each arm over all types; an arm never played gets that of all arms."""
        plays = self.cells.sum(axis=1, keepdims=True)
        overall = self.cells.sum(axis=0) / self.cells.sum()
        return np.where(plays > 0, self.cells / np.maximum(plays, 1), overall)

    def by_arm(self, models: Float[Array, "R K P"]) -> Float[Array, "R A Z P"]:
        """The rows of the codes in models or statistics, as a view."""
        return models[:, 1:].reshape(len(models), self.n_arms, len(self.values), models.shape[2])


def _places(packed: Packed, values: Float[Array, "Z"]) -> Integer[Array, "V"]:
    """The place of each reward of the packed log among `values`."""
    assert packed.values is not None
    return index_among(values, packed.values)


def _filed(packed: Packed, values: Float[Array, "Z"]) -> FiledSteps:
    """The steps in the codes of the values; those in the files where they are the same."""
    assert packed.values is not None
    if np.array_equal(packed.values, values):
        return FiledSteps.of(packed, None)
    n_codes = packed.n_arms * len(values)
    table = (np.arange(packed.n_arms)[:, None] * len(values) + _places(packed, values)).ravel()
    return FiledSteps.of(packed, table.astype(np.min_scalar_type(n_codes - 1)))


def _cells(packed: Packed, values: Float[Array, "Z"]) -> Float[Array, "A Z"]:
    cells = np.zeros((packed.n_arms, len(values)))
    cells[:, _places(packed, values)] = packed.cells
    return cells


def merged(steps: FiledSteps, n_codes: int) -> Steps:
    """Distinct sessions in memory with their counts, where that pays; else the steps as they are.

    The rules are those of `merge`: the same log gives the same arrays wherever it lies.
    """
    n = steps.n_all
    if seems_diverse(n, steps.pick, n_codes):
        return steps
    hashes, counts, rows = np.empty((2, 0), np.uint64), np.empty(0), np.empty(0, np.int64)
    for low in range(0, n, _HASHED_SESSIONS):
        window = steps.window(low, min(low + _HASHED_SESSIONS, n))
        found = hashes_of(window.codes, window.offsets, n_codes)
        hashes, counts, rows = _joined(
            np.concatenate([hashes, found], axis=1),
            np.concatenate([counts, np.ones(window.high)]),
            np.concatenate([rows, low + np.arange(window.high)]),
        )
        if len(rows) > worth(n):
            return steps
    order = np.argsort(rows)
    codes, offsets = steps.pick(rows[order])
    codes, offsets = take(codes, offsets, np.argsort(order))
    return HeldSteps(frozen(offsets), frozen(codes), frozen(counts))


def _joined(
    hashes: Integer[Array, "2 n"], counts: Float[Array, "n"], rows: Integer[Array, "n"]
) -> tuple[Integer[Array, "2 k"], Float[Array, "k"], Integer[Array, "k"]]:
    """Hashes in order, each once, with the sum of its counts and its first row."""
    order = np.lexsort(hashes)
    fresh = np.ones(len(rows), bool)
    fresh[1:] = (hashes[:, order[1:]] != hashes[:, order[:-1]]).any(axis=0)
    first = np.flatnonzero(fresh)
    return hashes[:, order[first]], np.add.reduceat(counts[order], first), rows[order[first]]


@dataclass(frozen=True, eq=False)
class CategoricalObservations(Observations):
    log: CategoricalLog
    family = Categorical.family

    @classmethod
    def encode(
        cls, sessions: Sessions | Packed, values: Float[Array, "Z"], edges: Float[Array, "E"] | None = None
    ) -> CategoricalObservations:
        """The log in codes of the given reward values, and the edges between them where rewards were cut."""
        return cls(CategoricalLog.encode(sessions, values, edges))

    @property
    def sessions(self) -> Sessions | Packed:  # type: ignore[override]
        return self.log.sessions

    @property
    def values(self) -> Float[Array, "Z"]:
        return self.log.values

    @property
    def bins(self) -> Bins | None:
        return None if self.log.edges is None else Bins(self.log.edges, self.log.values)

    @property
    def n_distinct(self) -> int:
        return self.log.n_distinct

    @property
    def multiplicity(self) -> Float[Array, "n"]:
        return self.log.multiplicity

    @property
    def n_features(self) -> int:
        return self.log.n_codes

    def n_parameters(self, n_types: int, rank: int | None = None) -> int:
        free = np.maximum((self.log.cells > 0).sum(axis=1) - 1, 0)
        return count_parameters(n_types, int(free.sum()), rank)

    def subset(self, rows: Integer[Array, "n"]) -> CategoricalObservations:
        return CategoricalObservations.encode(self.sessions[rows], self.values, self.log.edges)

    def level(self, every: int) -> CategoricalObservations | None:
        log = self.log.level(every)
        return None if log is None else CategoricalObservations(log)

    def prior(self, strength: float) -> Prior:
        return Prior.equal(self.log.marginals, strength)

    @property
    def models(self) -> CategoricalModels:
        return CategoricalModels(self.log)

    @property
    def start_models(self) -> CategoricalStartModels:
        return CategoricalStartModels(self.log)

    @property
    def surface(self) -> CategoricalSurface:
        return CategoricalSurface(self.log)

    def em_map(self, prior: Prior) -> CategoricalMap:
        return CategoricalMap(self.log, prior)

    def confinement(self, prior: Prior, n_types: int, rank: int) -> CategoricalConfinement:
        return CategoricalConfinement(self.log, prior, n_types, rank)

    def chain(self, bandit: LatentBandit) -> CategoricalChain:
        return CategoricalChain(self.log, bandit)

    def information(self, bandit: LatentBandit, prior: Prior, passes: Passes = SERIAL) -> Information:
        return categorical_information(self.log, bandit.weights, categorical(bandit), prior, passes)

    def heldout(self, bandit: LatentBandit, passes: Passes = SERIAL) -> Float[Array, "N"]:
        return log_likelihoods(self._excluding_nothing(bandit), self.sessions, passes)

    def _excluding_nothing(self, bandit: LatentBandit) -> LatentBandit:
        """The bandit on the values of this log, with each reward of any kind with a small probability."""
        rewards = categorical(bandit)
        probabilities = rewards.probabilities[:, :, rewards.encode(self.values)]
        softer = (1 - _UNSEEN) * probabilities + _UNSEEN / len(self.values)
        return LatentBandit(bandit.weights, Categorical(softer, self.values))


@dataclass(frozen=True, eq=False)
class CategoricalModels(Models):
    log: CategoricalLog

    def pack(self, bandit: LatentBandit) -> Float[Array, "1 K P"]:
        table = categorical(bandit).probabilities[:, :, categorical(bandit).encode(self.log.values)]
        model = np.zeros((1, 1 + self.log.n_codes, padded(bandit.n_types)))
        model[0, 0, : bandit.n_types] = bandit.weights
        model[0, 1:, : bandit.n_types] = table.reshape(bandit.n_types, -1).T
        return model

    def bandit(self, model: Float[Array, "K P"], n_types: int) -> LatentBandit:
        probabilities = np.moveaxis(self.log.by_arm(model[None])[0, ..., :n_types], 2, 0)
        probabilities = probabilities / probabilities.sum(axis=2, keepdims=True)
        weights = model[0, :n_types] / model[0, :n_types].sum()
        rewards = Categorical(probabilities, self.log.values, self.log.edges)
        return LatentBandit(weights, rewards, self.log.sessions.arm_labels)

    def from_moments(self, weights: Float[Array, "M"], vectors: Float[Array, "M D"]) -> LatentBandit:
        """Probabilities are clipped and normalised over the values, and kept off 0."""
        cells = np.clip(vectors, 0, 1).reshape(len(vectors), *self.log.cells.shape)
        total = cells.sum(axis=2, keepdims=True)
        known = (total > LEAST) & self.log.played[:, None]
        cells = np.where(known, cells / np.maximum(total, LEAST), self.log.marginals)
        cells = np.maximum(cells, LEAST)
        rewards = Categorical(cells / cells.sum(axis=2, keepdims=True), self.log.values, self.log.edges)
        return LatentBandit(weights, rewards, self.log.sessions.arm_labels)


def categorical(bandit: LatentBandit) -> Categorical:
    """The bandit's rewards, which must be of this family."""
    if not isinstance(bandit.rewards, Categorical):
        raise InvalidArgument(f"bandit must have categorical rewards, as this log was read, got {bandit}")
    return bandit.rewards


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
        return expectation("categorical", self.log.steps, models, self.log.n_sums, passes)

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


@dataclass(frozen=True, eq=False)
class CategoricalStartModels(StartModels):
    log: CategoricalLog

    def random(self, n_models: int, n_types: int, rng: np.random.Generator) -> Float[Array, "R K P"]:
        marginals = self.log.marginals
        models = equal_weights(n_models, 1 + marginals.size, n_types)
        shapes = np.broadcast_to(marginals[:, :, None], (n_models, *marginals.shape, n_types))
        draws = rng.gamma(marginals.shape[1] * shapes) + 1e-3 * shapes
        played = self.log.played[:, None, None]
        self.log.by_arm(models)[..., :n_types] = np.where(played, draws / draws.sum(axis=2, keepdims=True), shapes)
        return models

    def clustered(self, labels: Integer[Array, "n"], n_types: int) -> Float[Array, "1 K P"]:
        log = self.log
        empty = equal_weights(1, 1 + log.n_codes, n_types)
        statistics = np.zeros_like(empty)
        scale = log.multiplicity[: len(labels)]
        np.add.at(statistics[0, 0], labels, scale)
        steps = log.codes[: log.offsets[len(labels)]].astype(np.int64)
        lengths = np.diff(log.offsets[: len(labels) + 1])
        np.add.at(statistics[0, 1:], (steps, np.repeat(labels, lengths)), np.repeat(scale, lengths))
        model = CategoricalMap(log, Prior.equal(log.marginals, _SMOOTHING)).maximise(statistics, empty)
        model[:, 0, :n_types] = normalised_weights(model[:, 0, :n_types], _LEAST_WEIGHT)
        return model

    def soften(self, models: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        softer = models.copy()
        softer[:, 1:] = (1 - _SOFTENING) * models[:, 1:] + _SOFTENING * self.log.marginals.reshape(-1, 1)
        return softer

    def features(self) -> tuple[Any, Float[Array, "D"]]:
        from scipy.sparse import csr_array

        log = self.log
        codes = (np.ones(len(log.codes)), log.codes.astype(np.int64), log.offsets)
        return csr_array(codes, shape=(log.n_distinct, log.n_codes)), log.cells.ravel()

    def centre(self, features: Float[Array, "D k"]) -> Float[Array, "D k"]:
        by_arm = features.reshape(*self.log.marginals.shape, -1)
        return (by_arm - np.einsum("az,azk->ak", self.log.marginals, by_arm)[:, None]).reshape(features.shape)


@dataclass(frozen=True, eq=False)
class CategoricalConfinement(Confinement):
    log: CategoricalLog
    prior: Prior
    n_types: int
    rank: int

    def project(self, model: Float[Array, "K P"]) -> Float[Array, "K P"]:
        return self._with_table(model, low_rank.positive(self._nearest(model)))

    def maximise(self, statistics: Float[Array, "Q P"], model: Float[Array, "K P"]) -> Float[Array, "K P"]:
        cells = self.log.by_arm(statistics[None])[0, ..., : self.n_types] + self.prior.pseudo_counts[:, :, None]
        result = self._with_table(model, low_rank.improve_categorical(self._nearest(model), cells))
        result[0] = normalised_weights(statistics[None, 0])[0]
        return result

    def _nearest(self, model: Float[Array, "K P"]) -> low_rank.LowRank:
        return low_rank.project(model[1:, : self.n_types], model[0, : self.n_types], self.rank)

    def _with_table(self, model: Float[Array, "K P"], fit: low_rank.LowRank) -> Float[Array, "K P"]:
        possible = (self.log.marginals > 0) | (self.prior.pseudo_counts > 0)
        table = np.where(possible.reshape(-1, 1), np.maximum(fit.table, 0), 0.0)  # rounding errors at 0
        result = model.copy()
        result[1:, : self.n_types] = table
        by_arm = self.log.by_arm(result[None])[0, ..., : self.n_types]
        by_arm /= by_arm.sum(axis=1, keepdims=True)
        return result


class CategoricalChain(Chain):
    def __init__(self, log: CategoricalLog, bandit: LatentBandit) -> None:
        self._log, self._arms = log, CategoricalArms(log.n_arms, log.values)
        self._table = np.ascontiguousarray(CategoricalModels(log).pack(bandit)[0, :, : bandit.n_types])
        self._table[0] = np.maximum(self._table[0], _NO_WEIGHT)
        self._table[1:] = (1 - _SOFT) * self._table[1:] + _SOFT / len(log.values)
        self._statistics = np.empty_like(self._table)

    def _windows(self) -> Iterator[Window]:
        """The log as it lies in memory, or some sessions of a log in files after the other."""
        steps = self._log.steps
        if not steps.travels:
            yield steps.window(0, steps.n_all)
            return
        for low in range(0, steps.n_all, _DRAWN_SESSIONS):
            yield steps.window(low, min(low + _DRAWN_SESSIONS, steps.n_all))

    def _n_drawn(self, window: Window) -> int:
        return len(self._log.sessions) if not self._log.steps.travels else window.high

    @property
    def weights(self) -> Float[Array, "M"]:
        return self._table[0] / self._table[0].sum()

    @property
    def rewards(self) -> Categorical:
        probabilities = self._table[1:].T.reshape(-1, self._log.n_arms, len(self._log.values))
        return Categorical(probabilities / probabilities.sum(axis=2, keepdims=True), self._log.values)

    def likely(self, rng: np.random.Generator) -> tuple[Float[Array, "A Z"], Float[Array, "A"]]:
        return self._arms.likely(rng)

    @staticmethod
    def prior(centre: Float[Array, "A Z"], strength: Float[Array, "A"]) -> Prior:
        return Prior(centre, np.clip(strength, *STRENGTHS))

    def sweep(self, rng: np.random.Generator) -> None:
        log = self._log
        self._statistics[:] = 0.0
        for window in self._windows():
            own, uniforms = np.empty_like(self._statistics), rng.random(self._n_drawn(window))
            kernel("gibbs").categorical(*window[:3], self._table, uniforms, own)
            self._statistics += own
        self._table[0] = np.maximum(rng.dirichlet(self._statistics[0] + 1.0), _NO_WEIGHT)
        counts = self._statistics[1:].reshape(log.n_arms, len(log.values), -1)
        self._table[1:] = self._arms.draw(counts, rng).reshape(-1, counts.shape[2])


@dataclass(frozen=True, eq=False)
class CategoricalCoordinates(Coordinates):
    """Logits of the weights, then of the rewards in the order (arm, type, Z - 1)."""

    weights: Float[Array, "M"]
    rewards: Categorical
    played: Bool[Array, "A"]

    @property
    def size(self) -> int:
        return len(self.weights) - 1 + self.rewards.n_parameters

    @property
    def fixed(self) -> Bool[Array, "M A"]:
        return ((self.rewards.probabilities > AT_ZERO).sum(axis=2) < 2) | ~self.played

    def free(self) -> Any:
        from scipy.sparse import block_diag, csr_array

        nothing = np.zeros((self.rewards.n_values - 1, 0))
        blocks = [within_support(self.weights)]
        for arm, played in enumerate(self.played.tolist()):
            cells = self.rewards.probabilities[:, arm]
            blocks += [within_support(cell) if played else nothing for cell in cells]
        return csr_array(block_diag([csr_array(block) for block in blocks]))

    def means_along(self, directions: Float[Array, "P F"]) -> Float[Array, "M A F"]:
        n_types, n_arms, n_values = self.rewards.probabilities.shape
        slopes = (covariances(self.rewards.probabilities) @ self.rewards.values) @ contrasts(n_values)
        own = directions[n_types - 1 :].reshape(n_arms, n_types, n_values - 1, directions.shape[1])
        return np.einsum("mak,amkf->maf", slopes, own)

    def moved(self, moves: Float[Array, "B P"]) -> list[Any]:
        n_types, n_arms, n_values = self.rewards.probabilities.shape
        own = moves[:, n_types - 1 :].reshape(len(moves), n_arms, n_types, n_values - 1)
        drawn = moved_distributions(self.rewards.probabilities, own.swapaxes(1, 2))
        return [Categorical(probabilities, self.rewards.values) for probabilities in drawn]


@dataclass(frozen=True, eq=False)
class _Steps:
    """What every code of the log says in the terms of a bandit, which may know more values than the log shows."""

    arms: Integer[Array, "D"]
    logs: Float[Array, "D M"]  # log-probability in every type
    scores: Float[Array, "D M K"]  # gradient of that in the coordinates of the arm and type
    seen: Float[Array, "A M K K"]  # information of one play of an arm in a type that is known

    @classmethod
    def of(cls, log: CategoricalLog, rewards: Categorical) -> _Steps:
        basis = contrasts(rewards.n_values)
        code = np.arange(log.n_codes)
        arms, values = code // len(log.values), rewards.encode(log.values)[code % len(log.values)]
        expected = (rewards.probabilities @ basis).swapaxes(0, 1)  # (A, M, K)
        with np.errstate(divide="ignore"):
            logs = np.log(rewards.probabilities[:, arms, values].T)
        seen = (basis.T @ covariances(rewards.probabilities) @ basis).swapaxes(0, 1)
        return cls(arms, logs, np.ascontiguousarray(basis[values][:, None, :] - expected[arms]), seen)


def categorical_information(
    log: CategoricalLog, weights: Float[Array, "M"], rewards: Categorical, prior: Prior, passes: Passes
) -> Information:
    """The information of the log and the prior, of which only the strengths matter in logits."""
    size = len(weights) + rewards.n_parameters
    check_size(len(weights), size)
    steps = _Steps.of(log, rewards)
    matrix = summed(partial(_part, log, weights, steps), log.steps, size, passes)
    _add_seen(matrix, np.repeat(prior.strength[:, None], len(weights), axis=1), steps.seen)
    matrix = with_weights(matrix, weights, float(len(log.sessions)))
    return Information(matrix, CategoricalCoordinates(weights, rewards, log.played))


def _part(log: CategoricalLog, weights: Float[Array, "M"], steps: _Steps, low: int, high: int) -> Float[Array, "Q Q"]:
    """What some sessions tell about the rewards, less what is missing because their types are not seen."""
    n_arms, n_types, n_entries = steps.seen.shape[:3]
    window = log.steps.window(low, high).own
    offsets, codes = window.offsets, window.codes.astype(np.int64)
    counts, arms = window.counts if len(window.counts) else np.ones(high - low), steps.arms[codes]
    with np.errstate(divide="ignore"):
        joint = np.log(weights) + np.add.reduceat(steps.logs[codes], offsets[:-1], axis=0)
    shares = normalised(joint, weights)
    size = n_types * (1 + n_arms * n_entries)
    result = np.empty((size, size))
    kernel("sums").missing(arms, codes, offsets, counts, shares, steps.scores, result)
    np.negative(result, out=result)
    expected = np.repeat(shares * counts[:, None], np.diff(offsets), axis=0)
    plays = np.stack([np.bincount(arms, column, minlength=n_arms) for column in expected.T], axis=1)
    _add_seen(result, plays, steps.seen)
    return result


def _add_seen(matrix: Float[Array, "Q Q"], plays: Float[Array, "A M"], seen: Float[Array, "A M K K"]) -> None:
    """Add the information of plays in known types to the blocks of the arms and types."""
    n_types, n_entries = seen.shape[1:3]
    starts = n_types + np.arange(plays.size) * n_entries
    rows = starts[:, None] + np.arange(n_entries)
    blocks = plays[:, :, None, None] * seen
    matrix[rows[:, :, None], rows[:, None, :]] += blocks.reshape(plays.size, n_entries, n_entries)


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
        logs = np.log(np.clip(self._shares, _LEAST_SHARE, 1 - _LEAST_SHARE))
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
