"""PlannedPolicy, DepthPolicy and OncePolicy: the base classes of the policies that `plan` returns."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property

import numpy as np

from .. import files
from .._shapes import Array, Bool, Float, Integer
from ..checks import check_count
from ..model import LatentBandit
from ..policies import BeliefPolicy, State
from .first_steps import Tree, grow
from .graph import PolicyGraph, extract
from .problem import BINS, Problem


class PlannedPolicy(BeliefPolicy):
    """A belief policy for a known horizon that has a value for each arm at each step.

    `bins` is the number of bins per arm into which continuous rewards are cut to compute these values.
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
    def arm_values(self, state: State) -> Float[Array, "n A"]:
        """The value of each arm now: the expected reward until the horizon, times the sum of the belief's entries."""

    def tree(self, depth: int) -> Tree:
        """The first `depth` steps of the session: arms, rewards and beliefs. `lmab.reporting.tree_svg` draws it."""
        return grow(self, self.bandit, min(check_count("depth", depth), self.horizon))

    def graph(self, *, max_nodes: int = 1_000_000) -> PolicyGraph:
        """The same decisions as a graph, for discrete rewards; a step of the graph takes well under a microsecond."""
        return extract(self, self.bandit, self.horizon, check_count("max_nodes", max_nodes))

    def _remaining(self, state: State) -> int:
        return self.horizon - state.step


class DepthPolicy(PlannedPolicy):
    """A planned policy that looks `depth` rewards ahead at every step."""

    def __init__(self, bandit: LatentBandit, *, horizon: int, depth: int = 1, bins: int = BINS) -> None:
        super().__init__(bandit, horizon=horizon, bins=bins)
        self.depth = check_count("depth", depth, minimum=0)

    def record(self) -> files.Record:
        base = super().record()
        return files.Record(base.kind, {**base.fields, "depth": self.depth}, base.arrays, base.records)


class OncePolicy(PlannedPolicy):
    """A planned policy that plays no arm twice. A session remembers its belief, then a 1 for every arm played."""

    repeats = False

    def _played(self, state: State) -> Bool[Array, "n A"]:
        return state.memory[:, self.bandit.n_types :] > 0

    def _initial_memory(self) -> Float[Array, "K"]:
        return np.concatenate([self.bandit.weights, np.zeros(self.bandit.n_arms)])

    def _remember(self, state: State, arms: Integer[Array, "n"], rewards: Float[Array, "n"]) -> Float[Array, "n K"]:
        return self._marked(self._learn(state, arms, rewards), arms)

    def _pass(self, state: State, arms: Integer[Array, "n"]) -> Float[Array, "n K"]:
        return self._marked(state.memory.copy(), arms)

    def _learn(self, state: State, arms: Integer[Array, "n"], rewards: Float[Array, "n"]) -> Float[Array, "n K"]:
        width = self.bandit.n_types
        known = State(state.step, state.memory[:, :width], state.single)
        return np.hstack([super()._remember(known, arms, rewards), state.memory[:, width:]])

    def _marked(self, memory: Float[Array, "n K"], arms: Integer[Array, "n"]) -> Float[Array, "n K"]:
        memory[np.arange(len(memory)), self.bandit.n_types + arms] = 1
        return memory
