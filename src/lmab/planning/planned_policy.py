"""PlannedPolicy and DepthPolicy: what the policies that come out of `plan` share."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property

from .. import files
from .._shapes import Array, Float
from ..checks import check_count
from ..model import LatentBandit
from ..policies import BeliefPolicy, State
from .first_steps import Tree, grow
from .graph import PolicyGraph, extract
from .problem import BINS, Problem


class PlannedPolicy(BeliefPolicy):
    """A belief policy for a known horizon that can say what each arm is worth now.

    `bins` is into how many bins per arm it cuts continuous rewards to say so.
    """

    horizon: int

    def __init__(self, bandit: LatentBandit, *, horizon: int, bins: int = BINS) -> None:
        super().__init__(bandit, horizon=check_count("horizon", horizon))
        self.bins = check_count("bins", bins, minimum=2)

    @cached_property
    def _problem(self) -> Problem:
        return Problem.of(self.bandit, self.horizon, self.bins)

    def record(self) -> files.Record:
        base = super().record()
        return files.Record(base.kind, {**base.fields, "bins": self.bins}, base.arrays, base.records)

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


class DepthPolicy(PlannedPolicy):
    """A planned policy that decides anew at every step, by looking `depth` rewards ahead."""

    def __init__(self, bandit: LatentBandit, *, horizon: int, depth: int = 1, bins: int = BINS) -> None:
        super().__init__(bandit, horizon=horizon, bins=bins)
        self.depth = check_count("depth", depth, minimum=0)

    def record(self) -> files.Record:
        base = super().record()
        return files.Record(base.kind, {**base.fields, "depth": self.depth}, base.arrays, base.records)
