"""How sure a log makes one of a fitted bandit: the Laplace approximation of the posterior around the estimate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._shapes import Array, Float
from ..estimation import Information
from ..model import Categorical

FLOOR = 1.0  # least information about any direction: a coordinate (a logit, say) is never less sure than +-1
LEARNED_FLOOR = 0.25  # the same under a learned prior, which knows how far arms can be apart


@dataclass(frozen=True, eq=False)
class Laplace:
    """A normal distribution over the coordinates of a bandit."""

    information: Information
    eigenvalues: Float[Array, "P"]  # of the information, before any is raised to the floor
    eigenvectors: Float[Array, "P P"]
    floor: float = FLOOR

    @property
    def n_parameters(self) -> int:
        return len(self.eigenvalues)

    @property
    def n_floored(self) -> int:
        """Directions that the log says next to nothing about."""
        return int((self.eigenvalues < self.floor).sum())

    def moves(self, n_draws: int, rng: np.random.Generator) -> Float[Array, "B P"]:
        """Coordinates of models that the log could have come from."""
        noise = rng.standard_normal((n_draws, self.n_parameters))
        return noise / np.sqrt(np.maximum(self.eigenvalues, self.floor)) @ self.eigenvectors.T

    def draw(self, n_draws: int, rng: np.random.Generator) -> tuple[Float[Array, "B M"], list[Any]]:
        """Weights and rewards (of the bandit's family) of models that the log could have come from."""
        moves, coordinates = self.moves(n_draws, rng), self.information.coordinates
        return coordinates.moved_weights(moves), coordinates.moved(moves)


def laplace(information: Information, floor: float = FLOOR) -> Laplace:
    """The Laplace approximation around the bandit that the information is about."""
    return Laplace(information, *np.linalg.eigh(information.matrix), floor)


def recentred(drawn: list[Any], rewards: Any) -> list[Any]:
    """Draws of rewards on finitely many values, with no arm's mean above that of `rewards` on average.

    Moves in logits that are as likely up as down raise small probabilities on average, which the log does not ask
    for: rare rewards would seem worth twice what they are.
    """
    if not rewards.discrete:
        return drawn
    average = np.mean([each.probabilities for each in drawn], axis=0)
    raised = average @ rewards.values > rewards.means
    ratio = np.clip(average / np.maximum(rewards.probabilities, 1e-12), 1e-3, 1e3)
    factor = np.where(raised[:, :, None], 1 / ratio, 1.0)
    lowered = [each.probabilities * factor for each in drawn]
    return [Categorical(each / each.sum(axis=2, keepdims=True), rewards.values) for each in lowered]
