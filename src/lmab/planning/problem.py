"""Problem: a bandit and a horizon as the arrays that planners work on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .._shapes import Array, Float, Integer
from ..model import LatentBandit

BINS = 12  # into which the rewards of an arm are cut while planning, where they are continuous


@dataclass(frozen=True, eq=False)
class Problem:
    """What a planner has to solve: M types of positive weight, A arms, Z values (or bins) per arm, H steps.

    A pair of arm and value is one of D = A*Z codes. Values are those of unnormalised beliefs, rows of M numbers.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.0, 0.5], [[0.9, 0.5], [0.3, 0.3], [0.1, 0.6]])
        >>> problem = lmab.planning.Problem.of(bandit, 5)
        >>> problem.types, problem.n_arms, problem.n_values
        (array([0, 2]), 2, 2)
        >>> problem.means @ problem.weights  # what each arm pays in expectation before anything is seen
        array([0.5 , 0.55])
        >>> round(problem.full_information, 10)
        3.75
    """

    bandit: LatentBandit
    horizon: int
    types: Integer[Array, "M"]  # those of positive weight, as numbered in the bandit
    weights: Float[Array, "M"]
    table: Float[Array, "D M"]  # row a*Z + z: probability of value or bin z of arm a in every type
    means: Float[Array, "A M"]  # exact mean rewards, also when the rewards were binned
    edges: Float[Array, "A edges"] | None  # inner edges of the bins of continuous rewards

    @classmethod
    def of(cls, bandit: LatentBandit, horizon: int, bins: int = BINS) -> Problem:
        """The problem of `bandit`; continuous rewards are put into `bins` bins per arm."""
        types = np.flatnonzero(bandit.weights > 0)
        weights = bandit.weights[types]
        table, _, edges = bandit.rewards.channel(bandit.weights, bins)
        means = np.ascontiguousarray(bandit.means.T[:, types])
        return cls(bandit, horizon, types, weights, np.ascontiguousarray(table[:, types]), means, edges)

    def beliefs(self, memory: Float[Array, "n W"]) -> Float[Array, "n M"]:
        """The beliefs of sessions over these types; the memory of a state begins with all types of the bandit."""
        if len(self.types) == self.bandit.n_types:  # a part of each row, which is copied at once
            return memory[:, : len(self.types)].copy()
        return np.ascontiguousarray(memory[:, self.types])

    @property
    def binned(self) -> bool:
        """The rewards are continuous: `table` is a garbling of what a session sees."""
        return self.edges is not None

    def codes(self, arms: Integer[Array, "n"], rewards: Float[Array, "n"]) -> Integer[Array, "n"]:
        """The row of `table` that each (arm, reward) belongs to."""
        if self.edges is None:
            return self.bandit.rewards.codes(arms, rewards).astype(np.int64)  # type: ignore[union-attr]
        return arms * self.n_values + (rewards[:, None] > self.edges[arms]).sum(axis=1)

    @property
    def bins(self) -> int:
        """Into how many bins per arm a policy for this problem cuts rewards; the default where they need no cutting."""
        return self.n_values if self.binned else BINS

    @property
    def n_arms(self) -> int:
        return len(self.means)

    @property
    def n_values(self) -> int:
        return len(self.table) // len(self.means)

    @cached_property
    def corner(self) -> Float[Array, "M"]:
        """The best mean of every type: what knowing the type would earn per step."""
        return self.means.max(axis=0)

    @cached_property
    def last_arms(self) -> Integer[Array, "K"]:
        """Arms that may be best at the last step: those no other arm beats, or equals, in every type."""
        means = self.means
        at_least = np.ones((self.n_arms, self.n_arms), bool)  # [b, a]: b is at least a everywhere
        for type_ in means.T:
            at_least &= type_[:, None] >= type_[None, :]
        strictly = at_least & ~at_least.T
        equal_before = np.triu(at_least & at_least.T, k=1)  # [b, a]: equal, and b comes first
        return np.flatnonzero(~(strictly | equal_before).any(axis=0))

    @property
    def full_information(self) -> float:
        """What knowing the type earns: no policy earns more, whatever it sees."""
        return self.bandit.known_type(self.horizon)

    @property
    def scale(self) -> float:
        """The largest sum of rewards in absolute value: what rounding errors are measured against."""
        return self.horizon * float(np.abs(self.means).max())

    def best_everywhere(self) -> int | None:
        """The arm that is best in every type, if there is one: playing it always is optimal."""
        best = np.all(self.means >= self.corner, axis=1)
        return int(best.argmax()) if best.any() else None

    def spread(self, vectors: Float[Array, "K M"]) -> Float[Array, "K N"]:
        """Vectors over the types of positive weight, as vectors over all types of the bandit."""
        wide = np.zeros((len(vectors), self.bandit.n_types))
        wide[:, self.types] = vectors
        return wide
