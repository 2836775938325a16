"""Rewards on finitely many values: one code per (arm, value), and all that estimation asks of them.

Row 1 + code of a model is the probability of the code. Where codes also say what came after the step (`letters`), the
first block of rows holds the probabilities p of the values, the second p (1 - l) and the third p l, with the chance l
to leave after the arm and the value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from .._kernel import kernel
from .._shapes import Array, Bool, Float, Integer
from ..data.sessions import Sessions
from ..errors import InvalidArgument
from ..model.bandit import LatentBandit
from ..model.bins import Bins
from ..model.categorical import Categorical
from ..model.rewards import encode_values
from ..parallel import SERIAL, Passes
from . import leave_rates, low_rank
from .arm_law import STRENGTHS, CategoricalArms
from .information import (
    AT_ZERO,
    Coordinates,
    Information,
    contrasts,
    covariances,
    moved_distributions,
    within_support,
)
from .log import (
    Chain,
    CodeScores,
    Prior,
    SessionArms,
    count_parameters,
    information_of_codes,
    normalised_weights,
)
from .soft_max import SoftMax
from .traits.surface import Points, Surface, TraitArms, blocks

LEAST = 1e-3  # Probability of a reward that a moment estimate calls impossible: a belief must survive it.
_UNSEEN = 1e-4  # Probability that a held-out reward is of any kind.
_NEGLIGIBLE = 1e-150  # A probability below this is zero: it would only slow the arithmetic down.
_SHRINK = 0.02  # An extrapolation may take a probability down to this part of what it was, never to zero.
_SMOOTHING = 5.0  # Pseudo-plays that keep a cluster's probabilities off 0 and 1.
_SOFTENING = 0.02  # Part of the marginals in a softened model.
_LEAST_WEIGHT = 0.02  # Least weight of a cluster.
_NO_WEIGHT = 1e-9  # A weight never falls below this in a chain.
_SOFT = 0.01  # Part of equal probabilities in the start of a chain, which may call nothing impossible.
_LEAST_SHARE = 0.01  # Least probability to begin with.
_LEAST_UNIT = 0.05  # Variance of a reward's place among the values, below which it is not divided by.
_PRECISIONS = np.concatenate([np.geomspace(0.1, 1000, 25), [1e8]])  # Pseudo-counts; the last: no variation at all.
_STEEPEST = 30.0  # Logits beyond are the same to the last digit.


@dataclass(frozen=True, eq=False)
class CategoricalLog(leave_rates.LeavingLog):
    """A log as codes a * Z + z, identical sessions merged where that pays."""

    family = Categorical.family
    has_coordinates = True
    edges: Float[Array, "E"] | None = field(default=None, kw_only=True)  # where rewards were cut into the values

    @property
    def values(self) -> Float[Array, "Z"]:
        return self.listed

    @property
    def n_features(self) -> int:
        return self.n_cells

    @property
    def bins(self) -> Bins | None:
        return None if self.edges is None else Bins(self.edges, self.values)

    @cached_property
    def marginals(self) -> Float[Array, "A Z"]:
        """Distribution of the rewards of each arm over all types; an arm never played gets that of all arms."""
        plays = self.cells.sum(axis=1, keepdims=True)
        overall = self.cells.sum(axis=0) / self.cells.sum()
        return np.where(plays > 0, self.cells / np.maximum(plays, 1), overall)

    @property
    def _more(self) -> dict[str, Any]:
        return {"edges": self.edges, "letters": self.letters}

    def n_parameters(self, n_types: int, rank: int | None = None) -> int:
        free = np.maximum((self.cells > 0).sum(axis=1) - 1, 0)
        leaving = n_types * int((self.cells > 0).sum()) if self.letters else 0
        return count_parameters(n_types, int(free.sum()), rank) + leaving

    def prior_of_rewards(self, strength: float) -> Prior:
        return Prior.equal(self.marginals, strength)

    # Who leaves: the rows of the second and third letter.

    def after_places(self, statistics: Float[Array, "R Q P"]) -> Float[Array, "R L A Z P"]:
        return self.by_letter(statistics)

    @cached_property
    def seen_after(self) -> Float[Array, "L A Z"]:
        return leave_rates.letter_counts(self.sessions, self.values)

    def leaving_of(self, models: Float[Array, "R K P"]) -> Float[Array, "R A Z P"]:
        """The chances to leave of models with letters; where a value is impossible, those of everybody."""
        rows = self.by_letter(models)
        goes_on, left = rows[:, leave_rates.GOES_ON], rows[:, leave_rates.LEFT]
        return leave_rates.free(left, goes_on, self.shown[..., None], 0.0)

    def write_leaving(self, models: Float[Array, "R K P"], leaving: Float[Array, "R A Z P"]) -> None:
        """Fill in the rows of the letters from those of the rewards and the chances to leave."""
        rows, own = self.by_letter(models), self.by_arm(models)
        rows[:, leave_rates.GOES_ON], rows[:, leave_rates.LEFT] = own * (1 - leaving), own * leaving

    # Models and bandits.

    def pack(self, bandit: LatentBandit) -> Float[Array, "1 K P"]:
        table = categorical(bandit).probabilities[:, :, categorical(bandit).encode(self.values)]
        model = self.empty_models(1, self.n_sums, bandit.n_types)
        model[0, 0, : bandit.n_types] = bandit.weights
        model[0, 1 : 1 + self.n_cells, : bandit.n_types] = table.reshape(bandit.n_types, -1).T
        if self.letters:
            leaving = np.broadcast_to(self.shown[..., None], (*self.shown.shape, model.shape[2])).copy()
            if bandit.leaving is not None:
                own = bandit.leaving[:, :, categorical(bandit).encode(self.values)]
                leaving[..., : bandit.n_types] = np.moveaxis(own, 0, 2)
            self.write_leaving(model, leaving[None])
        return model

    def bandit(self, model: Float[Array, "K P"], n_types: int) -> LatentBandit:
        probabilities = np.moveaxis(self.by_arm(model[None])[0, ..., :n_types], 2, 0)
        probabilities = probabilities / probabilities.sum(axis=2, keepdims=True)
        weights = model[0, :n_types] / model[0, :n_types].sum()
        leaving = np.moveaxis(self.leaving_of(model[None])[0, ..., :n_types], 2, 0) if self.letters else None
        rewards = Categorical(probabilities, self.values, self.edges)
        return LatentBandit(weights, rewards, self.sessions.arm_labels, leaving)

    def from_moments(self, weights: Float[Array, "M"], vectors: Float[Array, "M D"]) -> LatentBandit:
        """Probabilities are clipped and normalised over the values, and kept off 0."""
        cells = np.clip(vectors, 0, 1).reshape(len(vectors), *self.cells.shape)
        total = cells.sum(axis=2, keepdims=True)
        known = (total > LEAST) & self.played[:, None]
        cells = np.where(known, cells / np.maximum(total, LEAST), self.marginals)
        cells = np.maximum(cells, LEAST)
        rewards = Categorical(cells / cells.sum(axis=2, keepdims=True), self.values, self.edges)
        return LatentBandit(weights, rewards, self.sessions.arm_labels)

    def possible(self, bandit: LatentBandit) -> LatentBandit:
        """The bandit on the values of this log, with each reward of any kind with a small probability."""
        rewards = categorical(bandit)
        probabilities = rewards.probabilities[:, :, rewards.encode(self.values)]
        softer = (1 - _UNSEEN) * probabilities + _UNSEEN / len(self.values)
        leaving = None
        if self.letters and bandit.leaving is not None:
            leaving = np.clip(bandit.leaving[:, :, rewards.encode(self.values)], _UNSEEN, 1 - _UNSEEN)
        rewards = Categorical(softer, self.values)
        return LatentBandit(bandit.weights, rewards, leaving=leaving, step_effects=bandit.step_effects)

    # The EM map: expected counts of codes, and their frequencies.

    def maximise(
        self, statistics: Float[Array, "R Q P"], models: Float[Array, "R K P"], prior: Prior
    ) -> Float[Array, "R K P"]:
        cells = self.counted(statistics)
        if prior.active:
            cells = cells + prior.pseudo_counts[:, :, None]
        result = np.empty_like(models)
        result[:, 0] = normalised_weights(statistics[:, 0])
        result[:, 1:] = models[:, 1:]
        totals = np.broadcast_to(cells.sum(axis=2, keepdims=True), cells.shape)
        np.divide(cells, totals, out=self.by_arm(result), where=totals > 0)
        if self.letters:
            self.write_leaving(result, self._best_leaving(statistics, prior))
        result[result < _NEGLIGIBLE] = 0.0
        return result

    def log_prior(self, models: Float[Array, "R K M"], prior: Prior) -> Float[Array, "R"]:
        counts = prior.pseudo_counts
        with np.errstate(divide="ignore"):
            logs = np.log(self.by_arm(models)[:, counts > 0])
        found = np.einsum("c,rcp->r", counts[counts > 0], logs)
        if not self.letters or prior.leaving is None:
            return found
        centre, _ = self.leaving_centre(prior, models.shape[2])
        return found + self._log_leaving(np.where(self.by_arm(models) > 0, self.leaving_of(models), centre), prior)

    def coordinates(
        self, model: Float[Array, "K P"], statistics: Float[Array, "Q P"], prior: Prior, n_types: int
    ) -> SoftMax:
        return SoftMax.at(self, prior, model, statistics, n_types)

    def repair(self, trial: Float[Array, "R K P"], near: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        trial = np.maximum(trial, _SHRINK * near)
        trial[:, 0] = normalised_weights(trial[:, 0])
        leaving = self.leaving_of(trial) if self.letters else None
        tables = self.by_arm(trial)
        totals = tables.sum(axis=2, keepdims=True)
        np.divide(tables, totals, out=tables, where=totals > 0)
        if leaving is not None:
            self.write_leaving(trial, leaving)
        return trial

    # Probabilities of a given rank over the types.

    def project(self, model: Float[Array, "K P"], prior: Prior, n_types: int, rank: int) -> Float[Array, "K P"]:
        return self._with_table(model, low_rank.positive(self._nearest(model, n_types, rank)), prior)

    def improve(
        self, statistics: Float[Array, "Q P"], model: Float[Array, "K P"], prior: Prior, n_types: int, rank: int
    ) -> Float[Array, "K P"]:
        cells = self.counted(statistics[None])[0, ..., :n_types] + prior.pseudo_counts[:, :, None]
        better = low_rank.improve_probabilities(self._nearest(model, n_types, rank), cells)
        result = self._with_table(model, better, prior)
        result[0] = normalised_weights(statistics[None, 0])[0]
        if self.letters:
            self.write_leaving(result[None], self._best_leaving(statistics[None], prior))
        return result

    def _nearest(self, model: Float[Array, "K P"], n_types: int, rank: int) -> low_rank.LowRank:
        return low_rank.project(model[1 : 1 + self.n_cells, :n_types], model[0, :n_types], rank)

    def _with_table(self, model: Float[Array, "K P"], fit: low_rank.LowRank, prior: Prior) -> Float[Array, "K P"]:
        n_types, possible = len(fit.scores), (self.marginals > 0) | (prior.pseudo_counts > 0)
        table = np.where(possible.reshape(-1, 1), np.maximum(fit.table, 0), 0.0)  # rounding errors at 0
        result = model.copy()
        result[1 : 1 + self.n_cells, :n_types] = table
        by_arm = self.by_arm(result[None])[0, ..., :n_types]
        by_arm /= by_arm.sum(axis=1, keepdims=True)
        if self.letters:
            self.write_leaving(result[None], self.leaving_of(model[None]))
        return result

    # Models that EM may start from.

    def random_models(self, n_models: int, n_types: int, rng: np.random.Generator) -> Float[Array, "R K P"]:
        marginals = self.marginals
        models = self.empty_models(n_models, self.n_sums, n_types)
        shapes = np.broadcast_to(marginals[:, :, None], (n_models, *marginals.shape, n_types))
        draws = rng.gamma(marginals.shape[1] * shapes) + 1e-3 * shapes
        played = self.played[:, None, None]
        self.by_arm(models)[..., :n_types] = np.where(played, draws / draws.sum(axis=2, keepdims=True), shapes)
        if self.letters:
            self.write_leaving(models, self._random_leaving(n_models, models.shape[2], rng))
        return models

    def clustered(self, labels: Integer[Array, "n"], n_types: int) -> Float[Array, "1 K P"]:
        empty = self.empty_models(1, self.n_sums, n_types)
        statistics = np.zeros_like(empty)
        scale = self.multiplicity[: len(labels)]
        np.add.at(statistics[0, 0], labels, scale)
        steps = self.codes[: self.offsets[len(labels)]].astype(np.int64)
        lengths = np.diff(self.offsets[: len(labels) + 1])
        np.add.at(statistics[0, 1:], (steps, np.repeat(labels, lengths)), np.repeat(scale, lengths))
        model = self.maximise(statistics, empty, self.prior(_SMOOTHING))
        model[:, 0, :n_types] = normalised_weights(model[:, 0, :n_types], _LEAST_WEIGHT)
        return model

    def soften(self, models: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        softer, own = models.copy(), slice(1, 1 + self.n_cells)
        softer[:, own] = (1 - _SOFTENING) * models[:, own] + _SOFTENING * self.marginals.reshape(-1, 1)
        if self.letters:
            mixed = (1 - _SOFTENING) * self.leaving_of(models) + _SOFTENING * self.shown[..., None]
            self.write_leaving(softer, mixed)
        return softer

    def features(self) -> tuple[Any, Float[Array, "D"]]:
        from scipy.sparse import csr_array

        cells = self.own.codes.astype(np.int64) % self.n_cells
        codes = (np.ones(len(cells)), cells, self.own.offsets)
        return csr_array(codes, shape=(self.n_distinct, self.n_cells)), self.cells.ravel()

    def centre(self, features: Float[Array, "D k"]) -> Float[Array, "D k"]:
        by_arm = features.reshape(*self.marginals.shape, -1)
        return (by_arm - np.einsum("az,azk->ak", self.marginals, by_arm)[:, None]).reshape(features.shape)

    def unrelated(self, test: Sessions) -> Float[Array, "N"]:
        return _unrelated(self.sessions.load(), test, self.values)

    # Parts that have a life of their own.

    def chain(self, bandit: LatentBandit, *, cautious: bool = False) -> CategoricalChain:
        return CategoricalChain(self, bandit, cautious=cautious)

    @property
    def surface(self) -> CategoricalSurface:
        return CategoricalSurface(self)

    def information(self, bandit: LatentBandit, prior: Prior, passes: Passes = SERIAL) -> Information:
        """The information of the log and the prior, of which only the strengths matter in logits."""
        weights, rewards = bandit.weights, categorical(bandit)
        matrix = information_of_codes(self, weights, code_scores(self, bandit, rewards), prior, passes)
        return Information(matrix, CategoricalCoordinates(weights, rewards, self.played))


def categorical(bandit: LatentBandit) -> Categorical:
    """The bandit's rewards, which must be of this family."""
    if not isinstance(bandit.rewards, Categorical):
        raise InvalidArgument(f"bandit must have categorical rewards, as this log was read, got {bandit}")
    return bandit.rewards


class CategoricalChain(Chain):
    """A Gibbs chain on coded steps; a `cautious` one believes less that arms are alike."""

    def __init__(self, log: CategoricalLog, bandit: LatentBandit, *, cautious: bool = False) -> None:
        self._log, self._arms = log, CategoricalArms(log.n_arms, log.values, cautious=cautious)
        self._table = np.ascontiguousarray(log.pack(bandit)[0, :, : bandit.n_types])
        self._table[0] = np.maximum(self._table[0], _NO_WEIGHT)
        own = self._table[self._own]
        own[:] = (1 - _SOFT) * own + _SOFT / len(log.values)
        if log.letters:
            log.write_leaving(self._table[None], log.leaving_of(self._table[None]).clip(*leave_rates.INSIDE))
        self._statistics, self._leaving = np.empty_like(self._table), leave_rates.LeavingDraws(log.n_arms)

    @property
    def weights(self) -> Float[Array, "M"]:
        return self._table[0] / self._table[0].sum()

    @property
    def _own(self) -> slice:
        return slice(1, 1 + self._log.n_cells)

    @property
    def rewards(self) -> Categorical:
        probabilities = self._table[self._own].T.reshape(-1, self._log.n_arms, len(self._log.values))
        return Categorical(probabilities / probabilities.sum(axis=2, keepdims=True), self._log.values)

    @property
    def leaving(self) -> Float[Array, "M A Z"] | None:
        if not self._log.letters:
            return None
        return np.moveaxis(self._log.leaving_of(self._table[None])[0], 2, 0)

    @property
    def freedom(self) -> Float[Array, "A"] | None:
        return self._leaving.freedom if self._log.letters else None

    def likely(self, rng: np.random.Generator) -> tuple[Float[Array, "A Z"], Float[Array, "A"]]:
        return self._arms.likely(rng)

    def free(self) -> None:
        self._arms.free()

    @staticmethod
    def prior(centre: Float[Array, "A Z"], strength: Float[Array, "A"]) -> Prior:
        return Prior(centre, np.clip(strength, *STRENGTHS))

    def sweep(self, rng: np.random.Generator) -> None:
        log = self._log
        self._statistics[:] = 0.0
        for steps in log.pieces():
            n_drawn = steps.high if log.travels else len(log.sessions)
            own, uniforms = np.empty_like(self._statistics), rng.random(n_drawn)
            kernel("gibbs").categorical(steps.codes, steps.offsets, steps.counts, self._table, uniforms, own)
            self._statistics += own
        self._table[0] = np.maximum(rng.dirichlet(self._statistics[0] + 1.0), _NO_WEIGHT)
        counts = log.counted(self._statistics[None])[0]
        self._table[self._own] = self._arms.draw(counts, rng).reshape(-1, counts.shape[2])
        if log.letters:
            drawn = self._leaving.draw(log.by_letter(self._statistics[None])[0], rng)
            log.write_leaving(self._table[None], drawn[None])

    @property
    def group_sums(self) -> Float[Array, "G M"]:
        """Of the last sweep: how many sessions of each group of features had each type."""
        return self._statistics[1 + self._log.n_own :]

    def weigh_groups(self, common: Float[Array, "M"], each: Float[Array, "G M"]) -> None:
        """Give the sessions of each group their own weights from the next sweep on."""
        self._table[0] = np.maximum(common, _NO_WEIGHT)
        self._table[1 + self._log.n_own :] = each / self._table[0]


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


def code_scores(log: CategoricalLog, bandit: LatentBandit, rewards: Categorical) -> CodeScores:
    """The scores of a bandit's rewards, which may know more values than the log shows."""
    basis = contrasts(rewards.n_values)
    code = np.arange(log.n_own) % log.n_cells
    arms, values = code // len(log.values), rewards.encode(log.values)[code % len(log.values)]
    expected = (rewards.probabilities @ basis).swapaxes(0, 1)  # (A, M, K)
    with np.errstate(divide="ignore"):
        logs = np.log(rewards.probabilities[:, arms, values].T)
        if log.letters:
            logs = np.log(log.pack(bandit)[0, 1 : 1 + log.n_own, : bandit.n_types])
    seen = (basis.T @ covariances(rewards.probabilities) @ basis).swapaxes(0, 1)
    return CodeScores(arms, logs, np.ascontiguousarray(basis[values][:, None, :] - expected[arms]), seen)


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
        arms, values = np.divmod(log.own.codes.astype(np.int64), len(places))
        shape = (log.n_distinct, log.n_arms)
        sums = csr_array((places[values] - mean[arms], arms, log.own.offsets), shape=shape)
        plays = csr_array((np.ones(len(arms)), arms, log.own.offsets), shape=shape)
        return sums, plays, (self._shares @ places**2 - mean**2).clip(_LEAST_UNIT)

    def _logits(self, parameters: Float[Array, "a p"], points: Points) -> Float[Array, "a Z K"]:
        q = self.n_intercepts
        along = parameters[:, q:] @ points.places.T
        intercepts = np.pad(parameters[:, :q], ((0, 0), (1, 0)))
        return np.clip(intercepts[:, :, None] + self._places[:, None] * along[:, None], -_STEEPEST, _STEEPEST)

    def model(self, parameters: Float[Array, "A p"], scale: float, points: Points) -> Float[Array, "1 K P"]:
        result = self.log.empty_models(1, self.log.n_sums, len(points))
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
        self, played: Integer[Array, "S"], rewards: Float[Array, "S"], arms: TraitArms, points: Points
    ) -> Float[Array, "S p K"]:
        chances = _softmax(self._logits(arms.parameters, points))
        seen = np.eye(len(self._places))[encode_values(self.log.values, rewards)]
        rest = seen[:, :, None] - chances[played]
        along = np.einsum("z,szk->sk", self._places, rest)
        return np.concatenate([rest[:, 1:], along[:, None] * points.places.T], axis=1)

    def mean_slopes(self, parameters: Float[Array, "A p"], points: Points) -> Float[Array, "K A p"]:
        chances = _softmax(self._logits(parameters, points))
        values, mean = self.log.values, np.einsum("z,azk->ak", self.log.values, chances)
        each = chances * (values[:, None] - mean[:, None])  # Scores of the logits.
        along = np.einsum("z,azk->ak", self._places, each)
        slopes = np.concatenate([each[:, 1:], along[:, None] * points.places.T], axis=1)
        return np.moveaxis(slopes, 2, 0)

    def best_scale(
        self, statistics: Float[Array, "Q P"], parameters: Float[Array, "A p"], scale: float, points: Points
    ) -> float:
        return scale

    def averaged(self, arms: TraitArms, points: Points) -> LatentBandit:
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


def _unrelated(train: Sessions, test: Sessions, values: Float[Array, "Z"]) -> Float[Array, "N"]:
    """log-likelihood of each test session where each arm's probabilities are Dirichlet, anew in every session."""
    groups, counts = _counted(train, values)
    total = counts.sum(axis=0) / counts.sum()
    plays = np.zeros((train.n_arms, len(values)))
    np.add.at(plays, groups.arm, counts)
    marginal = (plays + total) / (plays.sum(axis=1, keepdims=True) + 1)
    seen, times = np.unique(np.column_stack([groups.arm, counts]), axis=0, return_counts=True)  # few are different
    arm = seen[:, 0].astype(np.int64)
    fits = np.stack(
        [
            np.bincount(arm, times * _dirichlet(seen[:, 1:], marginal[arm], np.array([precision])), train.n_arms)
            for precision in _PRECISIONS
        ]
    )
    precision = _PRECISIONS[fits.argmax(axis=0)]
    groups, counts = _counted(test, values)
    scores = _dirichlet(counts, marginal[groups.arm], precision[groups.arm])
    return np.bincount(groups.session, scores, len(test))


def _counted(sessions: Sessions, values: Float[Array, "Z"]) -> tuple[SessionArms, Float[Array, "G Z"]]:
    groups = SessionArms.of(sessions)
    place = encode_values(values, sessions.rewards)
    return groups, np.stack([groups.sums((place == z).astype(np.float64)) for z in range(len(values))], axis=1)


def _dirichlet(
    counts: Float[Array, "G Z"], marginal: Float[Array, "G Z"], precision: Float[Array, "K"]
) -> Float[Array, "G"]:
    """log-probability of sequences with these counts, for one precision or one per group."""
    from scipy.special import gammaln

    alpha = np.maximum(marginal * precision[:, None], 1e-300)
    terms = np.where(counts > 0, gammaln(alpha + counts) - gammaln(alpha), 0.0)
    size = counts.sum(axis=1)
    return terms.sum(axis=1) + gammaln(precision) - gammaln(precision + size)
