"""A log encoded for one reward family: all that maximum likelihood needs to know about the rewards.

A batch of R models is one array (R, K, P): row 0 holds the weights, the other rows what the family needs, in P columns
(M contexts, padded with contexts of weight 0 to a multiple of 8). One array, so that models can be added, subtracted
and extrapolated whatever the family.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from .._shapes import Array, Float, Integer, Shaped
from ..data import Episodes
from ..model import LatentBandit
from .information import Information
from .passes import Crew

LANES = 8  # contexts the kernel works on at a time
_BLOCK = 1 << 15  # steps that make a block worth its own statistics
_MAX_BLOCKS = 64
_PIECE = 1 << 20


class Observations(ABC):
    """Encoded episodes of one reward family, and the two halves of the EM map on batches of models."""

    episodes: Episodes  # as they were given
    n_distinct: int  # episodes the kernel walks through, after merging identical ones

    @abstractmethod
    def expectation(self, models: Float[Array, "R K P"], crew: Crew) -> tuple[Float[Array, "R Q P"], Float[Array, "R"]]:
        """Expected sufficient statistics (row 0: episodes per context) and log-likelihood under every model."""

    @abstractmethod
    def maximise(
        self, statistics: Float[Array, "R Q P"], models: Float[Array, "R K P"], prior: float
    ) -> Float[Array, "R K P"]:
        """The models that explain the statistics best; what they say nothing about stays as in `models`."""

    @abstractmethod
    def log_prior(self, models: Float[Array, "R K P"], prior: float) -> Float[Array, "R"]:
        """log density, up to a constant, of `prior` pseudo-observations per column and arm at the arm's marginal."""

    @abstractmethod
    def repair(self, trial: Float[Array, "R K P"], near: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        """The extrapolated `trial` made valid; nothing that is positive in the models `near` becomes zero."""

    @abstractmethod
    def project(self, model: Float[Array, "K P"], n_contexts: int, rank: int) -> Float[Array, "K P"]:
        """A valid model near `model` whose reward tables have the given rank."""

    @abstractmethod
    def maximise_confined(
        self, statistics: Float[Array, "Q P"], model: Float[Array, "K P"], prior: float, n_contexts: int, rank: int
    ) -> Float[Array, "K P"]:
        """A better model of the given rank than `model`, which has that rank, for the statistics."""

    @abstractmethod
    def random_models(self, n_models: int, n_contexts: int, rng: np.random.Generator) -> Float[Array, "R K P"]:
        """Models drawn around the marginals, with equal weights."""

    @abstractmethod
    def clustered_model(self, labels: Integer[Array, "n"], n_contexts: int) -> Float[Array, "1 K P"]:
        """The model in which episode i (of the first n) came from context `labels[i]`."""

    @abstractmethod
    def features(self) -> tuple[Any, Float[Array, "D"]]:
        """Sparse (N, D) sums of the steps' features per distinct episode, and the sums of their squares (D,)."""

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Columns of `features`: D."""

    @property
    @abstractmethod
    def multiplicity(self) -> Float[Array, "n"]:
        """How many episodes each distinct one stands for."""

    @abstractmethod
    def centre(self, features: Float[Array, "D k"]) -> Float[Array, "D k"]:
        """Coordinates of the features, less their mean under each arm's marginal."""

    @abstractmethod
    def subset(self, rows: Integer[Array, "n"]) -> Observations:
        """The same encoding of some of the episodes."""

    @abstractmethod
    def heldout(self, bandit: LatentBandit) -> Float[Array, "N"]:
        """log-likelihood of each episode under a bandit that was fitted to others, so made to exclude nothing."""

    @abstractmethod
    def soften(self, models: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        """Models of a sample, changed so that nothing in the whole log is impossible."""

    @abstractmethod
    def information(self, bandit: LatentBandit, prior: float) -> Information:
        """The observed information about the bandit's parameters, that of the prior included."""

    @abstractmethod
    def bandit(self, model: Float[Array, "K P"], n_contexts: int) -> LatentBandit:
        """The model as a bandit."""

    @abstractmethod
    def pack(self, bandit: LatentBandit) -> Float[Array, "1 K P"]:
        """The bandit as a model."""

    @abstractmethod
    def n_parameters(self, n_contexts: int, rank: int | None = None) -> int:
        """Free parameters, of a model of the given rank; a value that an arm never paid has none."""

    def log_likelihood(self, bandit: LatentBandit, crew: Crew | None = None) -> float:
        """Total natural log-likelihood of the log."""
        return float(self.expectation(self.pack(bandit), crew or Crew(1))[1][0])


def padded(n_contexts: int) -> int:
    """Columns of a model with `n_contexts` contexts."""
    return -(-n_contexts // LANES) * LANES


def equal_weights(n_models: int, n_rows: int, n_contexts: int) -> Float[Array, "R K P"]:
    """Models of equal weights and zeros elsewhere."""
    models = np.zeros((n_models, n_rows, padded(n_contexts)))
    models[:, 0, :n_contexts] = 1 / n_contexts
    return models


def normalised_weights(masses: Float[Array, "R P"], floor: Float[Array, "R P"] | float = 0.0) -> Float[Array, "R P"]:
    """Weights in proportion to `masses`, none below `floor` before they are made to sum to 1."""
    masses = np.maximum(masses, floor)
    return masses / masses.sum(axis=1, keepdims=True)


def count_parameters(n_contexts: int, n_features: int, rank: int | None) -> int:
    """Weights, and M points in n_features dimensions or in an affine space of rank - 1 dimensions there."""
    if rank is None or rank > min(n_contexts - 1, n_features):
        return n_contexts - 1 + n_contexts * n_features
    return n_contexts - 1 + n_features + (rank - 1) * (n_contexts - 1 + n_features - (rank - 1))


def block_edges(offsets: Integer[Array, "N1"], n_bytes: int, statistics_bytes: int) -> Integer[Array, "B1"]:
    """Cuts between blocks of episodes with about equally many steps.

    They depend on the log and the model only, never on the number of threads; a block's statistics stay well below the
    share of the data it stands for.
    """
    n_steps = int(offsets[-1])
    n_blocks = max(min(n_steps // _BLOCK, n_bytes // (2 * statistics_bytes), _MAX_BLOCKS), 1)
    cuts = np.searchsorted(offsets, np.arange(1, n_blocks) * (n_steps / n_blocks))
    return np.unique(np.concatenate([[0], cuts, [len(offsets) - 1]])).astype(np.int64)


def tally(numbers: Shaped[Array, "S"], size: int) -> Float[Array, "n"]:
    """How often each of 0 to size - 1 occurs; in pieces, since counting needs wide integers."""
    pieces = range(0, len(numbers), _PIECE)
    return sum((np.bincount(numbers[i : i + _PIECE], minlength=size) for i in pieces), np.zeros(size))


def frozen(array: Array) -> Array:
    """A read-only view: kernels are compiled once for arrays that are always of one kind."""
    view = array.view()
    view.flags.writeable = False
    return view
