"""Points: where the types of a traits model lie, as a rule that integrates over normal factors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._shapes import Array, Float

_MOST_NODES = 64  # of one factor: more change nothing
_PRODUCT = 2  # factors up to which a product of one-dimensional rules is the better one
_EDGE = 1e-6  # of the unit cube is cut off before normal scores are taken
_SEED = 0  # of the scrambling, so that the same points come every time


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
    from scipy.stats import qmc

    power = int(np.ceil(np.log2(n_points)))  # the sequence is balanced at powers of two
    places = ndtri(qmc.Sobol(n_factors, seed=_SEED).random_base2(power)[:n_points].clip(_EDGE, 1 - _EDGE))
    places -= places.mean(axis=0)
    covariance = places.T @ places / len(places)
    return np.ascontiguousarray(np.linalg.solve(np.linalg.cholesky(covariance), places.T).T)
