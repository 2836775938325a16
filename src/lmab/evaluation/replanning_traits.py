"""What a plan is worth on traits models that a log could have come from, by one simulated crowd for all of them.

A plan for hundreds of types and many steps has too many histories to write out. The best known for a drawn model is
the greedy policy made for it, the plan, or the best fixed choice. Every drawn model has one more factor, of a size that
the log would not have shown, because a fit drops factors that hide in the noise; and in half of the models the factors
that live are smaller, because the size of a factor near the noise is partly noise.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._shapes import Array, Bool, Float
from ..estimation import Estimate, Factors, TraitCoordinates, hidden_size
from ..model import LatentBandit
from ..planning import Plan
from ..policies import Greedy
from .crowd import Crowd
from .laplace import LEARNED_FLOOR, laplace
from .replanning import Replanned, fixed_choices


class TraitsReplanner:
    """A plan for a traits estimate, with the crowd that plays it."""

    def __init__(self, estimate: Estimate, plan: Plan, played: Bool[Array, "A"], rng: np.random.Generator) -> None:
        self._estimate, self._plan, self._played = estimate, plan, played
        self._crowd = Crowd.of(estimate.n_types, plan.horizon, rng)
        found = self._crowd.play(plan.policy, estimate.bandit, repeats=plan.repeats)
        self.own, self.plays = found.value, found.plays

    def replan(self, n_draws: int, rng: np.random.Generator, backend: Any = None) -> tuple[list[Replanned], int]:
        """Two sets of models around the estimate, and how many directions the log says next to nothing about."""
        information, data = self._estimate.information(backend=backend), self._estimate.require_log()
        posterior, coordinates = laplace(information, LEARNED_FLOOR), information.coordinates
        assert isinstance(coordinates, TraitCoordinates)
        hidden = hidden_size(data, coordinates.arms.scale)
        moves = posterior.moves(n_draws, rng)
        sets = [moves, coordinates.shrunk(moves, self._shares(hidden, n_draws, rng))]
        return [self._replanned(self._widened(coordinates, each, hidden, rng)) for each in sets], posterior.n_floored

    def _shares(self, hidden: float, n_draws: int, rng: np.random.Generator) -> Float[Array, "B d"]:
        """How much of each live factor is there in truth: the size of one near the noise is mostly noise."""
        size = self._factors.size[self._factors.alive] * self._estimate.require_log().surface.unit
        return np.sqrt(np.maximum(1 - 2 * rng.random((n_draws, 1)) * (hidden / size) ** 2, 0.0))

    def _widened(
        self, coordinates: TraitCoordinates, moves: Float[Array, "B P"], hidden: float, rng: np.random.Generator
    ) -> list[Any]:
        """The drawn rewards, with one more factor of any size that the log would not have shown."""
        if self._factors.alive.all():
            return coordinates.moved(moves)
        sizes = hidden * rng.random((len(moves), 1))
        loadings = sizes * rng.standard_normal((len(moves), len(self._played)))
        return coordinates.with_one_more(moves, loadings, self._factors.points[:, self._factors.n_alive])

    @property
    def _factors(self) -> Factors:
        assert self._estimate.factors is not None
        return self._estimate.factors

    def _replanned(self, families: list[Any]) -> Replanned:
        rows = [self._one(LatentBandit(self._estimate.bandit.weights, family)) for family in families]
        return Replanned(*np.array(rows).reshape(-1, 6).T)

    def _one(self, model: LatentBandit) -> tuple[float, ...]:
        repeats = self._plan.repeats
        value = self._crowd.play(self._plan.policy, model, repeats=repeats)
        greedy = Greedy(model, horizon=self._plan.horizon)
        own = self._crowd.play(greedy, model, repeats=repeats)
        transferred = self._crowd.play(greedy, self._estimate.bandit, repeats=repeats).value
        fixed, among_played = fixed_choices(model, self._plan, self._played)
        best = own if own.value > value.value else value
        unplayed = float(best.by_arm[~self._played].sum() / best.value) if best.value > 0 else 0.0
        return max(own.value, value.value, fixed), value.value, transferred, fixed, among_played, unplayed
