"""Random sessions, and what a policy decides after each of their steps; the laws of policies are checked on them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .._shapes import Array, Float, Integer
from ..model import LatentBandit
from ..policies import Policy, State

N_SESSIONS = 12
_MAX_STEPS = 6  # of the sessions; the law of the horizon goes to the end
_SEED = 20221012


@dataclass(frozen=True, eq=False)
class Sessions:
    """Sessions of one type each, with random arms; a policy watches them and may be asked after every step."""

    policy: Policy
    bandit: LatentBandit
    n: int = N_SESSIONS

    @property
    def n_steps(self) -> int:
        """How many steps are decided; the last one is not watched."""
        return min(self.policy.horizon or _MAX_STEPS, _MAX_STEPS)

    @cached_property
    def played(self) -> tuple[Integer[Array, "T n"], Float[Array, "T n"]]:
        """Arms and rewards of every step."""
        rng = np.random.default_rng(_SEED)
        types = rng.choice(self.bandit.n_types, size=self.n, p=self.bandit.weights / self.bandit.weights.sum())
        arms = rng.integers(self.bandit.n_arms, size=(self.n_steps, self.n))
        rewards = [self.bandit.rewards.sample(types, row, rng=rng) for row in arms]
        return arms, np.stack(rewards)

    def history(self, session: int, steps: int) -> list[tuple[int, float]]:
        """The first steps of one session."""
        arms, rewards = self.played
        return list(zip(arms[:steps, session].tolist(), rewards[:steps, session].tolist(), strict=True))

    def states(self, policy: Policy | None = None) -> list[State]:
        """The state of all sessions before every step."""
        policy = policy or self.policy
        arms, rewards = self.played
        found = [policy.start(self.n)]
        for step in range(self.n_steps - 1):
            found.append(policy.observe(found[-1], arms[step], rewards[step]))
        return found

    def states_of(self, session: int) -> list[State]:
        """The state of one session alone before every step."""
        found = [self.policy.start()]
        for arm, reward in self.history(session, self.n_steps - 1):
            found.append(self.policy.observe(found[-1], arm, reward))
        return found


def decide(policy: Policy, state: State, *, allowed: Any = None, seed: int = 0) -> Any:
    """What the policy plays; a policy that says it is deterministic is given no generator."""
    return policy.act(state, allowed=allowed, rng=None if policy.deterministic else np.random.default_rng(seed))


def decide_all(policy: Policy, state: State, *, allowed: Any = None, seed: int = 0) -> Integer[Array, "n"]:
    """The arms of n sessions."""
    return np.asarray(decide(policy, state, allowed=allowed, seed=seed))
