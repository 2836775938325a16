"""How sure a log makes one of a fitted bandit: the Laplace approximation of the posterior around the estimate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._shapes import Array, Float
from ..estimation import Information

FLOOR = 1.0  # least information about any direction: a coordinate (a logit, say) is never less sure than +-1


@dataclass(frozen=True, eq=False)
class Laplace:
    """A normal distribution over the coordinates of a bandit."""

    information: Information
    eigenvalues: Float[Array, "P"]  # of the information, before any is raised to FLOOR
    eigenvectors: Float[Array, "P P"]

    @property
    def n_parameters(self) -> int:
        return len(self.eigenvalues)

    @property
    def n_floored(self) -> int:
        """Directions that the log says next to nothing about."""
        return int((self.eigenvalues < FLOOR).sum())

    def draw(self, n_draws: int, rng: np.random.Generator) -> tuple[Float[Array, "B M"], list[Any]]:
        """Weights and rewards (of the bandit's family) of models that the log could have come from."""
        noise = rng.standard_normal((n_draws, self.n_parameters))
        moves = noise / np.sqrt(np.maximum(self.eigenvalues, FLOOR)) @ self.eigenvectors.T
        coordinates = self.information.coordinates
        return coordinates.moved_weights(moves), coordinates.moved(moves)


def laplace(information: Information) -> Laplace:
    """The Laplace approximation around the bandit that the information is about."""
    return Laplace(information, *np.linalg.eigh(information.matrix))
