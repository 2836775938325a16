"""The surface of a traits model: arms that are linear in the factors of a session, whose types lie at points.

Each arm has p parameters: q intercepts (one for normal rewards, one less than the values otherwise) and a loading on
each of d factors. Each reward family fills in its own part.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._shapes import Array, Bool, Float, Integer
from ...checks import check_same_length
from ...model.bandit import LatentBandit
from .sobol import MOST_DIMENSIONS, scrambled_sobol

ALIVE = 0.15  # root mean square of a factor's loadings (in units of a logit, or of the noise) that counts as alive
_MOST_NODES = 64  # Most nodes of one factor: more change nothing.
_PRODUCT = 2  # Factors up to which a product of one-dimensional rules is the better one.
_EDGE = 1e-6  # Part of the unit cube that is cut off before normal scores are taken.
_SEED = 0  # Seed of the scrambling, so that the same points come every time.
CELLS = 1 << 21  # Numbers that are held at once.


@dataclass(frozen=True, eq=False)
class Factors:
    """K types at points of d factors, and A arms with p = q + d parameters each: q intercepts, d loadings.

    Factors are principal axes of the loadings: the first moves rewards most. In a session the factors u are normal
    with mean 0 and covariance I; w.u, with w the loadings of an arm, moves the logit of its reward (for rewards on
    more than two values that of the largest against the smallest), or the mean of a normal reward.
    """

    points: Float[Array, "K d"]
    intercepts: Float[Array, "A q"]
    loadings: Float[Array, "A d"]
    covariance: Float[Array, "A p p"]  # how unsure the log leaves the parameters of each arm
    centre: Float[Array, "p"]  # Centre of the law that arms are drawn from.
    spread: Float[Array, "p p"]  # its covariance
    size: Float[Array, "d"]  # root mean square of the loadings on each factor, in units of a logit or of the noise
    doubled: float  # change of the log-likelihood per session (of at most 2,000) when there are twice the points
    apart: float = np.inf  # by how much the loadings of arms differ where they differ most, in the same units
    by_mean: bool = False  # arms rank by their mean rewards in the log

    def __post_init__(self) -> None:
        check_same_length("factors by arm", self.intercepts, self.loadings, self.covariance)

    @property
    def n_factors(self) -> int:
        """How many were offered to the log."""
        return len(self.size)

    @property
    def alive(self) -> Bool[Array, "d"]:
        """Factors that the log supports."""
        return self.size > ALIVE

    @property
    def n_alive(self) -> int:
        return int(self.alive.sum())

    @property
    def tell_arms_apart(self) -> bool:
        """Whether what a session paid says which arms suit it; otherwise sessions differ in generosity alone."""
        return self.apart > ALIVE

    def ends(self, factor: int, n: int = 3) -> tuple[Integer[Array, "n"], Integer[Array, "n"]]:
        """The arms with the lowest loadings on a factor, lowest first, and those with the highest, highest first."""
        order = np.argsort(self.loadings[:, factor], kind="stable")
        return order[:n], order[::-1][:n]

    def __str__(self) -> str:
        if not self.n_factors:
            return "no factors"
        sizes = ", ".join(f"{size:.2f}" for size in self.size[self.alive])
        found = f"{self.n_alive} of {self.n_factors} factors are active" + (f" (sizes {sizes})" if self.n_alive else "")
        alone = "" if self.tell_arms_apart else f"; {self.ranking}"
        change = f"doubling the number of points changes the log-likelihood per session by {self.doubled:+.5f}"
        return f"{found}{alone}; {change}"

    @property
    def ranking(self) -> str:
        """The consequence for the choice of arms if no factor distinguishes arms."""
        ranked = "; arms are ranked by their mean rewards in the log" if self.by_mean else ""
        return f"no factor distinguishes arms, so rewards of a session do not help to choose its next arm{ranked}"


@dataclass(frozen=True, eq=False)
class Points:
    """K points of a rule for the standard normal distribution in d dimensions, one per type."""

    places: Float[Array, "K d"]
    weights: Float[Array, "K"]

    @classmethod
    def of(cls, n_factors: int, n_points: int) -> Points:
        """The rule with at most `n_points` points: a product of Gauss-Hermite rules up to 2 factors, else Sobol's.

        Examples:
            >>> Points.of(1, 3).places.round(3).ravel().tolist()
            [-1.732, -0.0, 1.732]
        """
        if n_factors == 0:
            return cls(np.zeros((1, 0)), np.ones(1))
        if n_factors > _PRODUCT:
            places = _spread(n_factors, max(n_points, n_factors + 1))
            return cls(places, np.full(len(places), 1 / len(places)))
        nodes, weights = np.polynomial.hermite_e.hermegauss(min(int(n_points ** (1 / n_factors) + 1e-9), _MOST_NODES))
        grid = np.stack([axis.ravel() for axis in np.meshgrid(*[nodes] * n_factors, indexing="ij")], axis=1)
        products = np.prod(np.meshgrid(*[weights / weights.sum()] * n_factors, indexing="ij"), axis=0).ravel()
        return cls(grid, products)

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def n_factors(self) -> int:
        return int(self.places.shape[1])


def _spread(n_factors: int, n_points: int) -> Float[Array, "K d"]:
    """Normal scores of a scrambled Sobol sequence, moved to mean 0 and covariance I."""
    from scipy.special import ndtri

    power = int(np.ceil(np.log2(n_points)))  # the sequence is balanced at powers of two
    places = ndtri(_sobol(n_factors, power)[:n_points].clip(_EDGE, 1 - _EDGE))
    places -= places.mean(axis=0)
    covariance = places.T @ places / len(places)
    return np.ascontiguousarray(np.linalg.solve(np.linalg.cholesky(covariance), places.T).T)


def _sobol(n_factors: int, power: int) -> Float[Array, "n d"]:
    """Return 2^power points of a scrambled Sobol sequence."""
    if n_factors <= MOST_DIMENSIONS:
        return scrambled_sobol(n_factors, power, _SEED)
    from scipy.stats import qmc

    return qmc.Sobol(n_factors, seed=_SEED).random_base2(power)


@dataclass(frozen=True, eq=False)
class TraitArms:
    """The parameters of all arms, and the law that arms are drawn from."""

    parameters: Float[Array, "A p"]  # intercepts, then loadings
    covariance: Float[Array, "A p p"]  # how unsure the log leaves each arm
    centre: Float[Array, "p"]  # mean of the law
    variance: Float[Array, "p"]  # Variances of the law, which has no covariances.
    scale: float = 1.0  # Standard deviation of normal rewards.


class Surface(ABC):
    """The arms of one log on a surface over the factors."""

    log: Any  # The encoded log of the family.

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
    def played(self) -> Bool[Array, "A"]:
        """Arms that the log says anything about."""
        return self.log.played

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
        self, played: Integer[Array, "S"], rewards: Float[Array, "S"], arms: TraitArms, points: Points
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

    def scale_of(self, rewards: Any) -> float:
        """The scale of fitted rewards, where they have one."""
        return 1.0

    def noise(self, scale: float, unit: float) -> float:
        """Variance of a reward within a session, for an arm of this unit."""
        return unit

    @abstractmethod
    def averaged(self, arms: TraitArms, points: Points) -> LatentBandit:
        """The bandit whose rewards are averaged over what is unsure about each arm."""

    def bandit(self, arms: TraitArms, points: Points) -> LatentBandit:
        """The bandit of the parameters as they are."""
        return self.averaged(
            TraitArms(arms.parameters, np.zeros_like(arms.covariance), *_law(arms), arms.scale), points
        )


def _law(arms: TraitArms) -> tuple[Float[Array, "p"], Float[Array, "p"]]:
    return arms.centre, arms.variance


def blocks(n_arms: int, cells: int) -> list[slice]:
    """Ranges of arms with about as many `CELLS`, for work that holds some numbers per cell."""
    size = max(CELLS // max(cells, 1), 1)
    return [slice(start, min(start + size, n_arms)) for start in range(0, n_arms, size)]
