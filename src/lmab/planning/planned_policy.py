"""PlannedPolicy: what the policies that come out of `plan` share."""

from __future__ import annotations

from abc import abstractmethod

from .._shapes import Array, Float
from ..checks import check_count
from ..model import LatentBandit
from ..policies import BeliefPolicy, State
from .first_steps import Tree, grow
from .graph import PolicyGraph, extract


class PlannedPolicy(BeliefPolicy):
    """A belief policy for a known horizon that can say what each arm is worth now."""

    horizon: int

    def __init__(self, bandit: LatentBandit, *, horizon: int) -> None:
        super().__init__(bandit, horizon=check_count("horizon", horizon))

    @abstractmethod
    def action_values(self, state: State) -> Float[Array, "n A"]:
        """What each arm is worth now, in expected reward until the horizon, times the belief's scale."""

    def tree(self, depth: int) -> Tree:
        """The first `depth` steps of the session: arms, rewards and beliefs. `lmab.report` draws it."""
        return grow(self, self.bandit, min(check_count("depth", depth), self.horizon))

    def graph(self, *, max_nodes: int = 1_000_000) -> PolicyGraph:
        """The same decisions as a graph that takes a step in well under a microsecond; for discrete rewards."""
        return extract(self, self.bandit, self.horizon, check_count("max_nodes", max_nodes))

    def _remaining(self, state: State) -> int:
        return self.horizon - state.step
