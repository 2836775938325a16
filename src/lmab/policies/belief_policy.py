"""BeliefPolicy: the base class of policies that remember their belief over the types of a model."""

from __future__ import annotations

from .. import files
from .._shapes import Array, Float, Integer
from ..model import LatentBandit, belief
from .policy import Policy, check_horizon
from .state import State


class BeliefPolicy(Policy):
    """A policy whose memory is the unnormalised belief under a model.

    A subclass chooses arms from `state.memory`, one row of M numbers per session; `belief.normalise` makes them
    probabilities. A subclass whose constructor takes the same arguments can be saved and loaded without more code.

    Examples:
        >>> import lmab
        >>> from lmab.policies import best_allowed
        >>> class Cautious(lmab.policies.BeliefPolicy):
        ...     "The arm whose mean in the worst type_ is highest, until one type_ is sure."
        ...     kind = "cautious"
        ...     def _choose(self, state, allowed, rng):
        ...         sure = lmab.model.belief.normalise(state.memory).max(axis=1, keepdims=True) > 0.9
        ...         means = self.bandit.means
        ...         return best_allowed(sure * (state.memory @ means) + ~sure * means.min(axis=0), allowed)
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> lmab.evaluate(Cautious(bandit), bandit, horizon=5)
        Evaluation(2.75 ± 0 over 5 steps, exact)
    """

    def __init__(self, bandit: LatentBandit, *, horizon: int | None = None) -> None:
        self.bandit = bandit
        self.n_arms = bandit.n_arms
        self.horizon = check_horizon(horizon)

    @property
    def arm_labels(self) -> tuple[str | int, ...] | None:
        return self.bandit.arm_labels

    def _initial_memory(self) -> Float[Array, "M"]:
        return self.bandit.weights

    def _remember(self, state: State, arms: Integer[Array, "n"], rewards: Float[Array, "n"]) -> Float[Array, "n M"]:
        return belief.update(self.bandit, state.memory, arms, rewards)

    def _belief(self, state: State) -> Float[Array, "n M"]:
        return belief.normalise(state.memory[:, : self.bandit.n_types])

    def record(self) -> files.Record:
        return files.Record(self.kind, {"horizon": self.horizon}, records={"bandit": self.bandit.record()})

    @classmethod
    def from_record(cls, record: files.Record) -> Policy:
        return cls(LatentBandit.from_record(record.records["bandit"]), **record.fields)
