"""Observations of normal rewards with one standard deviation, known or estimated."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .._kernel import kernel
from .._shapes import Array, Float, Integer, Shaped
from ..data import Episodes
from ..errors import InvalidArgument
from ..model import Gaussian, LatentBandit, belief
from . import low_rank
from .information import Information, gaussian_information
from .observations import Observations, block_edges, count_parameters, equal_weights, frozen, normalised_weights, padded
from .passes import Crew

_SHRINK = 0.02  # an extrapolation may take a weight down to this part of what it was
_SMOOTHING = 5.0  # pseudo-plays at the arm's mean in a model made of clusters
_LEAST_SCALE = 1e-6  # of the rewards' own deviation: below it the likelihood has no maximum


@dataclass(frozen=True, eq=False)
class GaussianObservations(Observations):
    """A log with rewards centred arm by arm. Rows 1 to A of a model: the (centred) means; row A + 1: the scale."""

    episodes: Episodes
    known_scale: float | None  # None: estimated
    arms: Shaped[Array, "S"]  # unsigned, of the smallest size
    centres: Float[Array, "A"]  # mean reward of each arm; an arm never played gets that of all arms
    residuals: Float[Array, "S"]  # rewards less the centre of their arm
    offsets: Integer[Array, "N1"]

    @classmethod
    def encode(
        cls, episodes: Episodes, known_scale: float | None, centres: Float[Array, "A"] | None = None
    ) -> GaussianObservations:
        """The log, centred (by default at each arm's mean) so that large means cost no precision."""
        if centres is None:
            plays = np.bincount(episodes.actions, minlength=episodes.n_arms)
            sums = np.bincount(episodes.actions, episodes.rewards, minlength=episodes.n_arms)
            centres = np.where(plays > 0, sums / np.maximum(plays, 1), episodes.rewards.mean())
        residuals = episodes.rewards - centres[episodes.actions]
        arms = episodes.actions.astype(np.min_scalar_type(episodes.n_arms - 1))
        return cls(episodes, known_scale, frozen(arms), centres, frozen(residuals), frozen(episodes.offsets))

    @property
    def n_distinct(self) -> int:  # type: ignore[override]
        return len(self.offsets) - 1

    @property
    def n_features(self) -> int:
        return self.episodes.n_arms

    @cached_property
    def multiplicity(self) -> Float[Array, "n"]:
        return np.ones(self.n_distinct)

    @cached_property
    def plays(self) -> Integer[Array, "A"]:
        return np.bincount(self.arms, minlength=self.episodes.n_arms)

    @cached_property
    def squares(self) -> float:
        """Sum of the squared residuals."""
        return float(self.residuals @ self.residuals)

    @cached_property
    def spread(self) -> float:
        """Standard deviation of the rewards around their arm's mean."""
        return float(np.sqrt(self.squares / len(self.residuals)))

    def expectation(self, models: Float[Array, "R K P"], crew: Crew) -> tuple[Float[Array, "R Q P"], Float[Array, "R"]]:
        rows = 1 + 2 * self.episodes.n_arms
        edges = block_edges(self.offsets, self.residuals.nbytes, rows * models.shape[2] * 8)
        n_models, n_blocks = len(models), len(edges) - 1
        statistics = np.empty((n_models, n_blocks, rows, models.shape[2]))
        logs = np.empty((n_models, n_blocks))
        arguments = (self.arms, self.residuals, self.offsets, edges, np.ascontiguousarray(models), statistics, logs)
        crew(kernel("em").gaussian, n_models * n_blocks, *arguments, work=len(self.arms) * n_models)
        return statistics[:, 0] if n_blocks == 1 else statistics.sum(axis=1), logs.sum(axis=1)

    def maximise(
        self, statistics: Float[Array, "R Q P"], models: Float[Array, "R K P"], prior: float
    ) -> Float[Array, "R K P"]:
        n_arms = self.episodes.n_arms
        plays, sums = statistics[:, 1 : 1 + n_arms] + prior, statistics[:, 1 + n_arms :]
        result = models.copy()
        result[:, 0] = normalised_weights(statistics[:, 0])
        np.divide(sums, plays, out=result[:, 1:-1], where=plays > 0)
        self._rescale(result, plays, sums)
        return result

    def _rescale(
        self, models: Float[Array, "R K P"], plays: Float[Array, "R A P"], sums: Float[Array, "R A P"]
    ) -> None:
        """Set the scale to its best for the means.

        The penalty of the prior counts as squared deviation, so that the map climbs likelihood plus prior.
        """
        if self.known_scale is None:
            means = models[:, 1:-1]
            rest = self.squares - 2 * (means * sums).sum(axis=(1, 2)) + (means**2 * plays).sum(axis=(1, 2))
            variance = np.maximum(rest / len(self.residuals), self._least_scale**2)
            models[:, -1] = np.sqrt(variance)[:, None]

    def project(self, model: Float[Array, "K P"], n_contexts: int, rank: int) -> Float[Array, "K P"]:
        result = model.copy()
        result[1:-1, :n_contexts] = low_rank.project(model[1:-1, :n_contexts], model[0, :n_contexts], rank).table
        return result

    def maximise_confined(
        self, statistics: Float[Array, "Q P"], model: Float[Array, "K P"], prior: float, n_contexts: int, rank: int
    ) -> Float[Array, "K P"]:
        n_arms = self.episodes.n_arms
        plays, sums = statistics[1 : 1 + n_arms] + prior, statistics[1 + n_arms :]
        result = model.copy()
        result[0] = normalised_weights(statistics[None, 0])[0]
        fit = low_rank.project(model[1:-1, :n_contexts], model[0, :n_contexts], rank)
        fit = low_rank.improve_gaussian(fit, plays[:, :n_contexts], sums[:, :n_contexts])
        result[1:-1, :n_contexts] = fit.table
        self._rescale(result[None], plays[None], sums[None])
        return result

    @property
    def _least_scale(self) -> float:
        return _LEAST_SCALE * max(self.spread, np.finfo(float).tiny ** 0.25)

    def log_prior(self, models: Float[Array, "R K P"], prior: float) -> Float[Array, "R"]:
        return -0.5 * prior * (models[:, 1:-1] ** 2).sum(axis=(1, 2)) / models[:, -1, 0] ** 2

    def repair(self, trial: Float[Array, "R K P"], near: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        trial = trial.copy()
        trial[:, 0] = normalised_weights(trial[:, 0], _SHRINK * near[:, 0])
        trial[:, -1] = np.maximum(trial[:, -1], 0.5 * near[:, -1])
        return trial

    def _empty(self, n_models: int, n_contexts: int) -> Float[Array, "R K P"]:
        models = equal_weights(n_models, self.episodes.n_arms + 2, n_contexts)
        models[:, -1] = max(self.spread, self._least_scale) if self.known_scale is None else self.known_scale
        return models

    def random_models(self, n_models: int, n_contexts: int, rng: np.random.Generator) -> Float[Array, "R K P"]:
        models = self._empty(n_models, n_contexts)
        shape = (n_models, self.episodes.n_arms, n_contexts)
        draws = 0.5 * self.spread * rng.standard_normal(shape)
        models[:, 1:-1, :n_contexts] = np.where(self.plays[:, None] > 0, draws, 0.0)
        return models

    def clustered_model(self, labels: Integer[Array, "n"], n_contexts: int) -> Float[Array, "1 K P"]:
        n_arms, empty = self.episodes.n_arms, self._empty(1, n_contexts)
        statistics = np.zeros((1, 1 + 2 * n_arms, empty.shape[2]))
        np.add.at(statistics[0, 0], labels, 1.0)
        end = self.offsets[len(labels)]
        arms, owners = self.arms[:end].astype(np.int64), np.repeat(labels, np.diff(self.offsets[: len(labels) + 1]))
        np.add.at(statistics[0, 1:], (arms, owners), 1.0)
        np.add.at(statistics[0, 1 + n_arms :], (arms, owners), self.residuals[:end])
        model = self.maximise(statistics, empty, _SMOOTHING)
        model[:, -1] = empty[:, -1]
        model[:, 0, :n_contexts] = normalised_weights(model[:, 0, :n_contexts], 0.02)
        return model

    def features(self) -> tuple[Any, Float[Array, "D"]]:
        from scipy.sparse import csr_array

        n_arms = self.episodes.n_arms
        sums = csr_array((self.residuals, self.arms.astype(np.int64), self.offsets), shape=(self.n_distinct, n_arms))
        return sums, np.bincount(self.arms, self.residuals**2, minlength=n_arms)

    def centre(self, features: Float[Array, "D k"]) -> Float[Array, "D k"]:
        return features

    def subset(self, rows: Integer[Array, "n"]) -> GaussianObservations:
        return GaussianObservations.encode(self.episodes[rows], self.known_scale, self.centres)

    def heldout(self, bandit: LatentBandit) -> Float[Array, "N"]:
        return np.logaddexp.reduce(belief.log_joint(bandit, self.episodes), axis=1)

    def soften(self, models: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        return models

    def information(self, bandit: LatentBandit, prior: float) -> Information:
        scale = float(self.pack(bandit)[0, -1, 0])
        log = (self.arms, self.residuals, self.offsets, belief.posterior(bandit, self.episodes))
        model = (bandit.weights, bandit.means - self.centres, scale)
        return gaussian_information(*log, *model, self.known_scale is None, prior)

    def bandit(self, model: Float[Array, "K P"], n_contexts: int) -> LatentBandit:
        weights = model[0, :n_contexts] / model[0, :n_contexts].sum()
        means = model[1:-1, :n_contexts].T + self.centres
        return LatentBandit(weights, Gaussian(means, float(model[-1, 0])), self.episodes.arm_labels)

    def pack(self, bandit: LatentBandit) -> Float[Array, "1 K P"]:
        if not isinstance(bandit.rewards, Gaussian):
            raise InvalidArgument(f"bandit must have normal rewards, as this log was read, got {bandit}")
        model = np.zeros((1, self.episodes.n_arms + 2, padded(bandit.n_contexts)))
        model[0, 0, : bandit.n_contexts] = bandit.weights
        model[0, 1:-1, : bandit.n_contexts] = (bandit.rewards.means - self.centres).T
        model[0, -1] = bandit.rewards.scale
        return model

    def n_parameters(self, n_contexts: int, rank: int | None = None) -> int:
        return count_parameters(n_contexts, int((self.plays > 0).sum()), rank) + (self.known_scale is None)
