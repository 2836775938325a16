"""Exploration: the sessions that a learner wants to have played next, by a simulator or by a live system."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .._shapes import Array, Integer
from ..data import Sessions
from ..policies import Policy
from ..simulation import Environment


@dataclass(frozen=True, eq=False)
class Exploration:
    """Sessions to play: either each row of `arms` is one, or `policy` decides. One of the two is None.

    Examples:
        >>> import numpy as np, lmab
        >>> environment = lmab.Simulator(lmab.random_bandit(2, 5, rng=0), horizon=4, rng=0)
        >>> exploration = lmab.learning.Exploration.of_policy("explore", lmab.Uniform(5), 100)
        >>> exploration.after(30)
        Exploration(explore: 70 sessions, Uniform)
        >>> exploration.on(environment)
        Sessions(100 sessions, 400 steps, 5 arms)
        >>> lmab.learning.Exploration.of_arms("each arm", np.repeat(np.arange(5), 4).reshape(5, 4)).on(environment)
        Sessions(5 sessions, 20 steps, 5 arms)
    """

    phase: str  # what the sessions are for
    n_sessions: int
    policy: Policy | None = None
    arms: Integer[Array, "n H"] | None = None

    @classmethod
    def of_policy(cls, phase: str, policy: Policy, n_sessions: int) -> Exploration:
        """Let `policy` play n sessions."""
        return cls(phase, n_sessions, policy=policy)

    @classmethod
    def of_arms(cls, phase: str, arms: Integer[Array, "n H"]) -> Exploration:
        """Play the given arms, one row per session."""
        return cls(phase, len(arms), arms=arms)

    def on(self, environment: Environment) -> Sessions:
        """Play the sessions on `environment`."""
        if self.arms is not None:
            return environment.play(self.arms)
        assert self.policy is not None
        return environment.run(self.policy, self.n_sessions)

    def after(self, n_played: int) -> Exploration:
        """What is left after the first `n_played` sessions were played."""
        arms = None if self.arms is None else self.arms[n_played:]
        return replace(self, n_sessions=self.n_sessions - n_played, arms=arms)

    def __repr__(self) -> str:
        how = "arms given" if self.policy is None else type(self.policy).__name__
        return f"Exploration({self.phase}: {self.n_sessions} sessions, {how})"
