"""Observations of rewards on finitely many values: one code per step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .._kernel import kernel
from .._shapes import Array, Bool, Float, Integer, Shaped
from ..data import Episodes
from ..errors import InvalidArgument
from ..model import Categorical, LatentBandit, belief, index_among
from . import low_rank
from .information import Information, categorical_information
from .merging import merge
from .observations import (
    Observations,
    block_edges,
    count_parameters,
    equal_weights,
    frozen,
    normalised_weights,
    padded,
    tally,
)
from .passes import Crew

_CHUNK = 1 << 18  # steps encoded at once
_NEGLIGIBLE = 1e-150  # a probability below this is zero: it would only slow the arithmetic down
_SHRINK = 0.02  # an extrapolation may take a probability down to this part of what it was, never to zero
_UNSEEN = 1e-4  # probability that a held-out reward is of any kind
_SMOOTHING = 5.0  # pseudo-counts that keep a cluster's probabilities off 0 and 1


@dataclass(frozen=True, eq=False)
class CategoricalObservations(Observations):
    """A log as codes a * Z + z, identical episodes merged where that pays. Row 1 + code of a model: its probability."""

    episodes: Episodes
    values: Float[Array, "Z"]
    codes: Shaped[Array, "T"]  # unsigned, of the smallest size
    offsets: Integer[Array, "K1"]
    counts: Float[Array, "C"]  # episodes that each distinct one stands for; empty: one

    @classmethod
    def encode(cls, episodes: Episodes, values: Float[Array, "Z"]) -> CategoricalObservations:
        """The log in codes of the given reward values."""
        n_codes = episodes.n_arms * len(values)
        codes = np.empty(episodes.n_steps, np.min_scalar_type(n_codes - 1))
        for start in range(0, episodes.n_steps, _CHUNK):
            steps = slice(start, start + _CHUNK)
            place = index_among(values, episodes.rewards[steps], first_step=start)
            codes[steps] = episodes.actions[steps] * np.int64(len(values)) + place
        return cls(episodes, values, *map(frozen, merge(codes, episodes.offsets, n_codes)))

    @property
    def n_distinct(self) -> int:  # type: ignore[override]
        return len(self.offsets) - 1

    @property
    def n_features(self) -> int:
        return self.episodes.n_arms * len(self.values)

    @cached_property
    def multiplicity(self) -> Float[Array, "n"]:
        return self.counts if len(self.counts) else np.ones(self.n_distinct)

    @cached_property
    def cells(self) -> Float[Array, "A Z"]:
        """How often each arm paid each value."""
        if len(self.counts):
            steps = np.repeat(self.counts, np.diff(self.offsets))
            cells = np.bincount(self.codes, steps, minlength=self.n_features)
        else:
            cells = tally(self.codes, self.n_features)
        return cells.reshape(self.episodes.n_arms, len(self.values))

    @cached_property
    def seen(self) -> Bool[Array, "A Z"]:
        return self.cells > 0

    @cached_property
    def marginals(self) -> Float[Array, "A Z"]:
        """Distribution of the rewards of each arm over all contexts; an arm never played gets that of all arms."""
        played = self.cells.sum(axis=1, keepdims=True)
        overall = self.cells.sum(axis=0) / self.cells.sum()
        return np.where(played > 0, self.cells / np.maximum(played, 1), overall)

    def expectation(self, models: Float[Array, "R K P"], crew: Crew) -> tuple[Float[Array, "R Q P"], Float[Array, "R"]]:
        edges = block_edges(self.offsets, self.codes.nbytes, models[0].nbytes)
        n_models, n_blocks = len(models), len(edges) - 1
        statistics = np.empty((n_models, n_blocks, *models.shape[1:]))
        logs = np.empty((n_models, n_blocks))
        arguments = (self.codes, self.offsets, self.counts, edges, np.ascontiguousarray(models), statistics, logs)
        crew(kernel("em").categorical, n_models * n_blocks, *arguments, work=len(self.codes) * n_models)
        return statistics[:, 0] if n_blocks == 1 else statistics.sum(axis=1), logs.sum(axis=1)

    def maximise(
        self, statistics: Float[Array, "R Q P"], models: Float[Array, "R K P"], prior: float
    ) -> Float[Array, "R K P"]:
        cells = self._by_arm(statistics)
        if prior > 0:
            cells = cells + prior * self.marginals[:, :, None]
        result = np.empty_like(models)
        result[:, 0] = normalised_weights(statistics[:, 0])
        result[:, 1:] = models[:, 1:]
        totals = np.broadcast_to(cells.sum(axis=2, keepdims=True), cells.shape)
        np.divide(cells, totals, out=self._by_arm(result), where=totals > 0)
        result[result < _NEGLIGIBLE] = 0.0
        return result

    def log_prior(self, models: Float[Array, "R K P"], prior: float) -> Float[Array, "R"]:
        if prior == 0:
            return np.zeros(len(models))
        possible = self.marginals > 0
        with np.errstate(divide="ignore"):
            logs = np.log(self._by_arm(models)[:, possible])
        return prior * np.einsum("c,rcp->r", self.marginals[possible], logs)

    def repair(self, trial: Float[Array, "R K P"], near: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        trial = np.maximum(trial, _SHRINK * near)
        trial[:, 0] = normalised_weights(trial[:, 0])
        tables = self._by_arm(trial)
        totals = tables.sum(axis=2, keepdims=True)
        np.divide(tables, totals, out=tables, where=totals > 0)
        return trial

    def project(self, model: Float[Array, "K P"], n_contexts: int, rank: int) -> Float[Array, "K P"]:
        weights, table = model[0, :n_contexts], model[1:, :n_contexts]
        fit = low_rank.positive(low_rank.project(table, weights, rank))
        return self._confined(model, fit)

    def maximise_confined(
        self, statistics: Float[Array, "Q P"], model: Float[Array, "K P"], prior: float, n_contexts: int, rank: int
    ) -> Float[Array, "K P"]:
        result = model.copy()
        result[0] = normalised_weights(statistics[None, 0])[0]
        cells = self._by_arm(statistics[None])[0, ..., :n_contexts] + prior * self.marginals[:, :, None]
        fit = low_rank.project(model[1:, :n_contexts], model[0, :n_contexts], rank)
        return self._confined(result, low_rank.improve_categorical(fit, cells))

    def _confined(self, model: Float[Array, "K P"], fit: low_rank.LowRank) -> Float[Array, "K P"]:
        result = model.copy()
        table = np.where(self.marginals.reshape(-1, 1) > 0, np.maximum(fit.table, 0), 0.0)  # rounding errors at 0
        result[1:, : table.shape[1]] = table
        by_arm = self._by_arm(result[None])[0, ..., : table.shape[1]]
        by_arm /= by_arm.sum(axis=1, keepdims=True)
        return result

    def random_models(self, n_models: int, n_contexts: int, rng: np.random.Generator) -> Float[Array, "R K P"]:
        models = equal_weights(n_models, 1 + self.marginals.size, n_contexts)
        shapes = np.broadcast_to(self.marginals[:, :, None], (n_models, *self.marginals.shape, n_contexts))
        draws = rng.gamma(len(self.values) * shapes) + 1e-3 * shapes
        played = self.cells.sum(axis=1)[:, None, None] > 0
        self._by_arm(models)[..., :n_contexts] = np.where(played, draws / draws.sum(axis=2, keepdims=True), shapes)
        return models

    def clustered_model(self, labels: Integer[Array, "n"], n_contexts: int) -> Float[Array, "1 K P"]:
        empty = equal_weights(1, 1 + self.marginals.size, n_contexts)
        statistics = np.zeros_like(empty)
        scale = self.multiplicity[: len(labels)]
        np.add.at(statistics[0, 0], labels, scale)
        steps = self.codes[: self.offsets[len(labels)]].astype(np.int64)
        lengths = np.diff(self.offsets[: len(labels) + 1])
        np.add.at(statistics[0, 1:], (steps, np.repeat(labels, lengths)), np.repeat(scale, lengths))
        model = self.maximise(statistics, empty, _SMOOTHING)
        model[:, 0, :n_contexts] = normalised_weights(model[:, 0, :n_contexts], 0.02)
        return model

    def features(self) -> tuple[Any, Float[Array, "D"]]:
        from scipy.sparse import csr_array

        size = self.marginals.size
        ones = np.ones(len(self.codes))
        sums = csr_array((ones, self.codes.astype(np.int64), self.offsets), shape=(self.n_distinct, size))
        return sums, self.cells.ravel()

    def centre(self, features: Float[Array, "D k"]) -> Float[Array, "D k"]:
        """Features per code, less their mean under the arm's marginal."""
        by_arm = features.reshape(*self.marginals.shape, -1)
        return (by_arm - np.einsum("az,azk->ak", self.marginals, by_arm)[:, None]).reshape(features.shape)

    def subset(self, rows: Integer[Array, "n"]) -> CategoricalObservations:
        return CategoricalObservations.encode(self.episodes[rows], self.values)

    def heldout(self, bandit: LatentBandit) -> Float[Array, "N"]:
        model = self.pack(bandit)[0, 1:, : bandit.n_contexts].T.reshape(bandit.n_contexts, *self.marginals.shape)
        probabilities = (1 - _UNSEEN) * model + _UNSEEN / len(self.values)
        softer = LatentBandit(bandit.weights, Categorical(probabilities, self.values))
        return np.logaddexp.reduce(belief.log_joint(softer, self.episodes), axis=1)

    def soften(self, models: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        softer = models.copy()
        softer[:, 1:] = 0.98 * models[:, 1:] + 0.02 * self.marginals.reshape(-1, 1)
        return softer

    def information(self, bandit: LatentBandit, prior: float) -> Information:
        distinct = Episodes(
            self.codes // len(self.values), self.values[self.codes % len(self.values)], self.offsets, bandit.n_arms
        )
        table = self.pack(bandit)[0, 1:, : bandit.n_contexts].T.reshape(bandit.n_contexts, *self.marginals.shape)
        log = (self.codes, self.offsets, self.multiplicity, belief.posterior(bandit, distinct))
        return categorical_information(*log, bandit.weights, table, self.values, prior * self.marginals)

    def bandit(self, model: Float[Array, "K P"], n_contexts: int) -> LatentBandit:
        probabilities = np.moveaxis(self._by_arm(model[None])[0, ..., :n_contexts], 2, 0)
        probabilities = probabilities / probabilities.sum(axis=2, keepdims=True)
        weights = model[0, :n_contexts] / model[0, :n_contexts].sum()
        return LatentBandit(weights, Categorical(probabilities, self.values), self.episodes.arm_labels)

    def pack(self, bandit: LatentBandit) -> Float[Array, "1 K P"]:
        rewards = bandit.rewards
        if not isinstance(rewards, Categorical):
            raise InvalidArgument(f"bandit must have categorical rewards, as this log was read, got {bandit}")
        table = rewards.probabilities[:, :, rewards.encode(self.values)]
        model = np.zeros((1, 1 + self.marginals.size, padded(bandit.n_contexts)))
        model[0, 0, : bandit.n_contexts] = bandit.weights
        model[0, 1:, : bandit.n_contexts] = table.reshape(bandit.n_contexts, -1).T
        return model

    def n_parameters(self, n_contexts: int, rank: int | None = None) -> int:
        return count_parameters(n_contexts, int(np.maximum(self.seen.sum(axis=1) - 1, 0).sum()), rank)

    def _by_arm(self, models: Float[Array, "R K P"]) -> Float[Array, "R A Z P"]:
        """The rows of codes as a view (R, A, Z, P)."""
        return models[:, 1:].reshape(len(models), *self.marginals.shape, models.shape[2])
