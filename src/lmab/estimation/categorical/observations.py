"""The roles of rewards on finitely many values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..._shapes import Array, Float, Integer
from ...data import Packed, Sessions
from ...model import Bins, Categorical, LatentBandit
from ..held_out import log_likelihoods
from ..information import Information
from ..observations import Observations, count_parameters
from ..passes import SERIAL, Passes
from ..prior import Prior
from .chain import CategoricalChain
from .confinement import CategoricalConfinement
from .em_map import CategoricalMap
from .information import categorical_information
from .log import CategoricalLog
from .models import CategoricalModels, categorical
from .start_models import CategoricalStartModels
from .surface import CategoricalSurface

_UNSEEN = 1e-4  # probability that a held-out reward is of any kind


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
