"""Surface: arms that are linear in the factors of a session, and what a reward family has to answer about them.

Each arm has p parameters: q intercepts (one for normal rewards, one less than the values otherwise) and a loading on
each of d factors. Each family fills in its own part (`categorical/surface.py`, `gaussian/surface.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._shapes import Array, Bool, Float, Integer
from ..model import LatentBandit
from .points import Points

CELLS = 1 << 21  # numbers that are held at once


@dataclass(frozen=True, eq=False)
class Arms:
    """The parameters of all arms, and the law that arms are drawn from."""

    parameters: Float[Array, "A p"]  # intercepts, then loadings
    covariance: Float[Array, "A p p"]  # how unsure the log leaves each arm
    centre: Float[Array, "p"]  # mean of the law
    variance: Float[Array, "p"]  # of the law, which has no covariances
    scale: float = 1.0  # of normal rewards


class Surface(ABC):
    """The arms of one log on a surface over the factors."""

    @property
    @abstractmethod
    def n_intercepts(self) -> int:
        """q."""

    @property
    @abstractmethod
    def slopes(self) -> Float[Array, "q"]:
        """How much each intercept rises when w.z rises by one."""

    @property
    @abstractmethod
    def unit(self) -> float:
        """A natural size of parameters."""

    @property
    @abstractmethod
    def played(self) -> Bool[Array, "A"]:
        """Arms that the log says anything about."""

    @abstractmethod
    def intercepts(self) -> Float[Array, "A q"]:
        """Those of a model without factors, one pseudo-play of the average arm included."""

    @abstractmethod
    def popularity(self) -> Float[Array, "A"]:
        """Mean rewards in the log up to a constant, one pseudo-play of the average arm included."""

    @abstractmethod
    def scale(self) -> float:
        """To begin with."""

    @abstractmethod
    def deviations(self) -> tuple[Any, Any, Float[Array, "A"]]:
        """Sparse (N, A) sums of rewards less their arm's mean, and plays, per distinct session; and their unit.

        The unit of an arm says by how much its mean rises when w.z rises by one.
        """

    @abstractmethod
    def model(self, parameters: Float[Array, "A p"], scale: float, points: Points) -> Float[Array, "1 K P"]:
        """The model array in which type k lies at point k."""

    @abstractmethod
    def derivatives(
        self, statistics: Float[Array, "Q P"], parameters: Float[Array, "A p"], scale: float, points: Points
    ) -> tuple[Float[Array, "A p"], Float[Array, "A p p"]]:
        """Gradient, and minus the second derivatives, of each arm's expected log-likelihood."""

    @abstractmethod
    def scores(
        self, played: Integer[Array, "S"], rewards: Float[Array, "S"], arms: Arms, points: Points
    ) -> Float[Array, "S p K"]:
        """Gradient of the log-likelihood of every step in the parameters of its arm, at every point."""

    @abstractmethod
    def mean_slopes(self, parameters: Float[Array, "A p"], points: Points) -> Float[Array, "K A p"]:
        """Derivatives of the mean rewards at every point in the parameters of each arm."""

    @abstractmethod
    def best_scale(
        self, statistics: Float[Array, "Q P"], parameters: Float[Array, "A p"], scale: float, points: Points
    ) -> float:
        """The scale of normal rewards that explains the statistics best."""

    @abstractmethod
    def averaged(self, arms: Arms, points: Points) -> LatentBandit:
        """The bandit whose rewards are averaged over what is unsure about each arm."""

    def bandit(self, arms: Arms, points: Points) -> LatentBandit:
        """The bandit of the parameters as they are."""
        return self.averaged(Arms(arms.parameters, np.zeros_like(arms.covariance), *_law(arms), arms.scale), points)


def _law(arms: Arms) -> tuple[Float[Array, "p"], Float[Array, "p"]]:
    return arms.centre, arms.variance


def blocks(n_arms: int, cells: int) -> list[slice]:
    """Ranges of arms with about as many `CELLS`, for work that holds some numbers per cell."""
    size = max(CELLS // max(cells, 1), 1)
    return [slice(start, min(start + size, n_arms)) for start in range(0, n_arms, size)]
