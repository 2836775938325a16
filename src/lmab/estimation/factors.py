"""Factors: in what directions sessions differ under a traits model, as data that an estimate carries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._shapes import Array, Bool, Float, Integer
from ..checks import check_same_length

ALIVE = 0.15  # root mean square of a factor's loadings (in units of a logit, or of the noise) that counts as alive


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
    centre: Float[Array, "p"]  # of the law that arms are drawn from
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
        found = f"{self.n_alive} of {self.n_factors} factors live" + (f" (sizes {sizes})" if self.n_alive else "")
        alone = "" if self.tell_arms_apart else f"; {self.ranking}"
        return f"{found}{alone}; twice the points change the log-likelihood per session by {self.doubled:+.5f}"

    @property
    def ranking(self) -> str:
        """What it means that no factor tells arms apart, in a sentence."""
        ranked = ", and arms rank by their mean rewards in the log" if self.by_mean else ""
        return f"no factor tells arms apart, so that what a session paid does not say which arms suit it{ranked}"
