"""What a plan is worth on traits models that a log could have come from, by one simulated crowd for all of them.

A plan for hundreds of types and many steps has too many histories to write out. The best known for a drawn model is
the greedy policy made for it, the plan, or the best fixed choice.
"""

from __future__ import annotations

import numpy as np

from .._shapes import Array, Bool
from ..estimation import Estimate
from ..model import LatentBandit
from ..planning import Plan
from ..policies import Greedy
from .crowd import Crowd
from .laplace import LEARNED_FLOOR, laplace, recentred
from .replanning import Replanned, fixed_choices


class TraitsReplanner:
    """A plan for a traits estimate, with the crowd that plays it."""

    def __init__(self, estimate: Estimate, plan: Plan, played: Bool[Array, "A"], rng: np.random.Generator) -> None:
        self._estimate, self._plan, self._played = estimate, plan, played
        self._crowd = Crowd.of(estimate.n_contexts, plan.horizon, rng)
        found = self._crowd.play(plan.policy, estimate.bandit, repeats=plan.repeats)
        self.own, self.plays = found.value, found.plays

    def replan(self, n_draws: int, rng: np.random.Generator) -> tuple[Replanned, int]:
        """Models around the estimate, and how many directions the log says next to nothing about."""
        posterior = laplace(self._estimate.information(), LEARNED_FLOOR)
        weights, families = posterior.draw(n_draws, rng)
        families = recentred(families, self._estimate.bandit.rewards)
        models = (LatentBandit(*model) for model in zip(weights, families, strict=True))
        rows = [self._one(model) for model in models]
        return Replanned(*np.array(rows).reshape(-1, 6).T), posterior.n_floored

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
