"""Observations: a log encoded for one reward family, and the roles that the family plays in estimation.

Each role is a small class with one file per family: `categorical/` and `gaussian/` hold the same file names.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from .._shapes import Array, Float, Integer
from ..data import Packed, Sessions
from ..model import Bins, LatentBandit
from .information import Information
from .passes import SERIAL, Passes
from .prior import Prior
from .surface import Surface


class Models(ABC):
    """Bandits as model arrays and back (`models.py`)."""

    @abstractmethod
    def pack(self, bandit: LatentBandit) -> Float[Array, "1 K P"]:
        """The bandit as a model."""

    @abstractmethod
    def bandit(self, model: Float[Array, "K P"], n_types: int) -> LatentBandit:
        """The model as a bandit."""

    @abstractmethod
    def from_moments(self, weights: Float[Array, "M"], vectors: Float[Array, "M D"]) -> LatentBandit:
        """The valid bandit with types near `vectors`, one entry per feature: equation (clipping_mu).

        An arm that was never played gets the rewards of all arms together.
        """


class EMMap(ABC):
    """The two halves of the EM map on batches of models, under one prior (`em_map.py`)."""

    prior: Prior

    @abstractmethod
    def expectation(
        self, models: Float[Array, "R K P"], passes: Passes
    ) -> tuple[Float[Array, "R Q P"], Float[Array, "R"]]:
        """Expected sufficient statistics (row 0: sessions per type) and log-likelihood under every model."""

    @abstractmethod
    def maximise(self, statistics: Float[Array, "R Q P"], models: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        """The models that explain statistics and prior best; what they say nothing about stays as in `models`."""

    @abstractmethod
    def log_prior(self, models: Float[Array, "R K M"]) -> Float[Array, "R"]:
        """log density of the prior, up to a constant, at models without padding."""

    @abstractmethod
    def repair(self, trial: Float[Array, "R K P"], near: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        """The extrapolated `trial` made valid; nothing that is positive in the models `near` becomes zero."""


class Confinement(ABC):
    """Models whose reward tables have a given rank (`confinement.py`)."""

    @abstractmethod
    def project(self, model: Float[Array, "K P"]) -> Float[Array, "K P"]:
        """A valid model of the rank near `model`."""

    @abstractmethod
    def maximise(self, statistics: Float[Array, "Q P"], model: Float[Array, "K P"]) -> Float[Array, "K P"]:
        """A better model of the rank than `model`, which has that rank, for statistics and prior."""


class StartModels(ABC):
    """Models that EM may start from, and what finds them (`start_models.py`)."""

    @abstractmethod
    def random(self, n_models: int, n_types: int, rng: np.random.Generator) -> Float[Array, "R K P"]:
        """Models drawn around the marginals, with equal weights."""

    @abstractmethod
    def clustered(self, labels: Integer[Array, "n"], n_types: int) -> Float[Array, "1 K P"]:
        """The model in which distinct session i (of the first n) came from type `labels[i]`."""

    @abstractmethod
    def soften(self, models: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        """Models of a sample, changed so that nothing in the whole log is impossible."""

    @abstractmethod
    def features(self) -> tuple[Any, Float[Array, "D"]]:
        """Sparse (N, D) sums of the steps' features per distinct session, and the sums of their squares (D,)."""

    @abstractmethod
    def centre(self, features: Float[Array, "D k"]) -> Float[Array, "D k"]:
        """Coordinates of the features, less their mean under each arm's marginal."""


class Chain(ABC):
    """One state of a Gibbs sampler over models of the log; `sweep` moves it (`chain.py`)."""

    @abstractmethod
    def sweep(self, rng: np.random.Generator) -> None:
        """Draw types of sessions, weights, what arms are like, and rewards, each given all others."""

    @property
    @abstractmethod
    def weights(self) -> Float[Array, "M"]: ...

    @property
    @abstractmethod
    def rewards(self) -> Any:
        """Of the log's family."""

    @abstractmethod
    def likely(self, rng: np.random.Generator) -> tuple[Float[Array, "A *Z"], Float[Array, "A"]]:
        """Where the types of each arm lie, and one over the pseudo-plays that this is worth, in this state."""

    @staticmethod
    @abstractmethod
    def prior(centre: Float[Array, "A *Z"], strength: Float[Array, "A"]) -> Prior:
        """The prior of centres and strengths that were averaged over draws."""


class Observations(ABC):
    """An encoded log, which hands out the roles of its reward family."""

    family: str  # as `lmab.fit(rewards=...)` names it
    sessions: Sessions | Packed  # as they were given

    @property
    @abstractmethod
    def values(self) -> Float[Array, "Z"] | None:
        """The reward values; None where rewards are continuous."""

    @property
    def known_scale(self) -> float | None:
        """The scale of normal rewards, where it was given instead of being estimated."""
        return None

    @property
    def bins(self) -> Bins | None:
        """How rewards were cut into the values, where they were."""
        return None

    @property
    @abstractmethod
    def n_distinct(self) -> int:
        """Sessions that a pass walks through, after merging identical ones."""

    @property
    @abstractmethod
    def multiplicity(self) -> Float[Array, "n"]:
        """How many sessions each distinct one stands for."""

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Numbers that describe a type: (arm, value) pairs, or arms."""

    @abstractmethod
    def n_parameters(self, n_types: int, rank: int | None = None) -> int:
        """Free parameters, of a model of the given rank; a value that an arm never paid has none."""

    @abstractmethod
    def subset(self, rows: Integer[Array, "n"]) -> Observations:
        """The same encoding of some of the sessions."""

    def level(self, every: int) -> Observations | None:
        """One of `every` parts of the log, on which a climb begins; None where the log is too small for that."""
        return None

    @abstractmethod
    def prior(self, strength: float) -> Prior:
        """`strength` pseudo-plays per type and arm that pay what the arm pays on average in the log."""

    @property
    @abstractmethod
    def models(self) -> Models: ...

    @property
    @abstractmethod
    def start_models(self) -> StartModels: ...

    @property
    @abstractmethod
    def surface(self) -> Surface:
        """Arms that are linear in the factors of a session."""

    @abstractmethod
    def em_map(self, prior: Prior) -> EMMap: ...

    @abstractmethod
    def confinement(self, prior: Prior, n_types: int, rank: int) -> Confinement: ...

    @abstractmethod
    def chain(self, bandit: LatentBandit) -> Chain:
        """A Gibbs chain that starts from the bandit."""

    @abstractmethod
    def information(self, bandit: LatentBandit, prior: Prior, passes: Passes = SERIAL) -> Information:
        """The observed information about the bandit's parameters, that of the prior included."""

    @abstractmethod
    def heldout(self, bandit: LatentBandit, passes: Passes = SERIAL) -> Float[Array, "N"]:
        """log-likelihood of each session under a bandit that was fitted to others, so made to exclude nothing."""

    def log_likelihood(self, bandit: LatentBandit, passes: Passes = SERIAL) -> float:
        """Total natural log-likelihood of the log."""
        em_map = self.em_map(self.prior(0.0))
        return float(em_map.expectation(self.models.pack(bandit), passes)[1][0])


def count_parameters(n_types: int, n_features: int, rank: int | None) -> int:
    """Weights, and M points in n_features dimensions or in an affine space of rank - 1 dimensions there."""
    if rank is None or rank > min(n_types - 1, n_features):
        return n_types - 1 + n_types * n_features
    return n_types - 1 + n_features + (rank - 1) * (n_types - 1 + n_features - (rank - 1))
