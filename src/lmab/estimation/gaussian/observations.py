"""The roles of normal rewards with one standard deviation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..._shapes import Array, Float, Integer
from ...data import Packed, Sessions
from ...errors import InvalidArgument
from ...model import Gaussian, LatentBandit
from ..held_out import log_likelihoods
from ..information import Information
from ..observations import Observations, count_parameters
from ..passes import SERIAL, Passes
from ..prior import Prior
from .chain import GaussianChain
from .confinement import GaussianConfinement
from .em_map import GaussianMap
from .information import gaussian_information
from .log import GaussianLog
from .models import GaussianModels, gaussian
from .start_models import GaussianStartModels
from .surface import GaussianSurface


@dataclass(frozen=True, eq=False)
class GaussianObservations(Observations):
    log: GaussianLog
    family = Gaussian.family

    @classmethod
    def encode(cls, sessions: Sessions | Packed, known_scale: float | None) -> GaussianObservations:
        """The log with rewards centred at each arm's mean; a scale that is not known must be there to be estimated."""
        log = GaussianLog.encode(sessions, known_scale)
        if known_scale is None and log.spread == 0:
            raise InvalidArgument(
                "scale must be given where no arm's rewards ever differ: there is none to estimate, got None"
            )
        return cls(log)

    @property
    def known_scale(self) -> float | None:
        return self.log.known_scale

    @property
    def sessions(self) -> Sessions | Packed:  # type: ignore[override]
        return self.log.sessions

    @property
    def values(self) -> None:
        return None

    @property
    def n_distinct(self) -> int:
        return self.log.n_distinct

    @property
    def multiplicity(self) -> Float[Array, "n"]:
        return np.ones(self.n_distinct)

    @property
    def n_features(self) -> int:
        return self.log.n_arms

    def n_parameters(self, n_types: int, rank: int | None = None) -> int:
        scale = int(self.log.known_scale is None)
        return count_parameters(n_types, int(self.log.played.sum()), rank) + scale

    def subset(self, rows: Integer[Array, "n"]) -> GaussianObservations:
        """With the centres of the whole log, so that models of one fit the other."""
        part = GaussianLog.encode(self.sessions[rows], self.log.known_scale, self.log.centres)
        return GaussianObservations(part)

    def prior(self, strength: float) -> Prior:
        return Prior.equal(self.log.centres, strength)

    @property
    def models(self) -> GaussianModels:
        return GaussianModels(self.log)

    @property
    def start_models(self) -> GaussianStartModels:
        return GaussianStartModels(self.log)

    @property
    def surface(self) -> GaussianSurface:
        return GaussianSurface(self.log)

    def em_map(self, prior: Prior) -> GaussianMap:
        return GaussianMap(self.log, prior)

    def confinement(self, prior: Prior, n_types: int, rank: int) -> GaussianConfinement:
        return GaussianConfinement(self.em_map(prior), n_types, rank)

    def chain(self, bandit: LatentBandit) -> GaussianChain:
        return GaussianChain(self.log, bandit)

    def information(self, bandit: LatentBandit, prior: Prior, passes: Passes = SERIAL) -> Information:
        return gaussian_information(self.log, bandit.weights, gaussian(bandit), prior, passes)

    def heldout(self, bandit: LatentBandit, passes: Passes = SERIAL) -> Float[Array, "N"]:
        return log_likelihoods(bandit, self.sessions, passes)
