"""Exploration: what a learner wants to have played next, by a simulator or by a live system."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .._shapes import Array, Integer
from ..data import Episodes
from ..policies import Policy
from ..simulation import Environment


@dataclass(frozen=True, eq=False)
class Exploration:
    """Sessions to be played: each a row of `actions`, or as `policy` decides. One of the two is None.

    Examples:
        >>> import numpy as np, lmab
        >>> environment = lmab.Simulator(lmab.random_bandit(2, 5, rng=0), horizon=4, rng=0)
        >>> exploration = lmab.Exploration.of_policy("explore", lmab.Uniform(5), 100)
        >>> exploration.after(30)
        Exploration(explore: 70 episodes, Uniform)
        >>> exploration.on(environment)
        Episodes(100 episodes, 400 steps, 5 arms)
        >>> lmab.Exploration.of_actions("each arm", np.repeat(np.arange(5), 4).reshape(5, 4)).on(environment)
        Episodes(5 episodes, 20 steps, 5 arms)
    """

    phase: str  # what they are for
    n_episodes: int
    policy: Policy | None = None
    actions: Integer[Array, "n H"] | None = None

    @classmethod
    def of_policy(cls, phase: str, policy: Policy, n_episodes: int) -> Exploration:
        """Let `policy` play n sessions."""
        return cls(phase, n_episodes, policy=policy)

    @classmethod
    def of_actions(cls, phase: str, actions: Integer[Array, "n H"]) -> Exploration:
        """Play the given arms, whatever they pay."""
        return cls(phase, len(actions), actions=actions)

    def on(self, environment: Environment) -> Episodes:
        """Have it played."""
        if self.actions is not None:
            return environment.play(self.actions)
        assert self.policy is not None
        return environment.run(self.policy, self.n_episodes)

    def after(self, n_played: int) -> Exploration:
        """What is left when the first `n_played` sessions have been."""
        actions = None if self.actions is None else self.actions[n_played:]
        return replace(self, n_episodes=self.n_episodes - n_played, actions=actions)

    def __repr__(self) -> str:
        how = "arms given" if self.policy is None else type(self.policy).__name__
        return f"Exploration({self.phase}: {self.n_episodes} episodes, {how})"
