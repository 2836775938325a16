"""PlannedPolicy: what the policies that come out of `plan` share."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from .._shapes import Array, Bool, Float, Integer
from ..errors import check_count
from ..model import LatentBandit
from ..policy import BeliefPolicy, State
from .graph import PolicyGraph, extract
from .tree import Tree, grow

_TIE = 1e-12  # scores this close, relatively, are equal: rounding decides nothing


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


def first_best(scores: Float[Array, "n K"], allowed: Bool[Array, "n K"] | None = None) -> Integer[Array, "n"]:
    """The first of the highest (allowed) scores, up to rounding: the same for one session and for many."""
    if allowed is not None:
        scores = np.where(allowed, scores, -np.inf)
    top = scores.max(axis=1, keepdims=True)
    best = scores >= top - _TIE * np.abs(top)
    return (best if allowed is None else best & allowed).argmax(axis=1)
