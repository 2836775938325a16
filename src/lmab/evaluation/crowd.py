"""A crowd of simulated sessions that is the same for every model and policy, so that differences have little noise.

Sessions of every type come equally often and count by the type's weight. The luck of a step is a uniform number that
every model turns into a reward of its own. What is added up are expected rewards of the arms played, not the rewards
drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._shapes import Array, Bool, Float, Integer
from ..model import Categorical, LatentBandit
from ..policies import Policy

_SESSIONS = 1024  # about, and at least one of each type


@dataclass(frozen=True, eq=False)
class Earned:
    """Of one session on average."""

    by_arm: Float[Array, "A"]  # what each arm earned
    plays: Float[Array, "A"]

    @property
    def value(self) -> float:
        return float(self.by_arm.sum())


@dataclass(frozen=True, eq=False)
class Crowd:
    """n sessions of H steps."""

    types: Integer[Array, "n"]
    luck: Float[Array, "n H"]

    @classmethod
    def of(cls, n_types: int, horizon: int, rng: np.random.Generator) -> Crowd:
        """As many sessions of each type as make about `_SESSIONS` in all, every second with the luck reversed."""
        each = max(round(_SESSIONS / n_types), 1)
        luck = rng.random((each, n_types, horizon))
        luck[1::2] = 1 - luck[: 2 * (each // 2) : 2]
        return cls(np.tile(np.arange(n_types), each), luck.reshape(-1, horizon))

    def play(self, policy: Policy, model: LatentBandit, *, repeats: bool) -> Earned:
        """What a session earns under the policy where the model is true."""
        n, horizon = self.luck.shape
        state, everyone, n_arms = policy.start(n), np.arange(n), model.n_arms
        left: Bool[Array, "n A"] = np.ones((n, n_arms), bool)
        shares = model.weights[self.types] * (model.n_types / n)
        paid, plays = np.zeros(n_arms), np.zeros(n_arms)
        for step in range(horizon):
            arms = np.asarray(policy.act(state) if repeats else policy.act(state, allowed=left))
            left[everyone, arms] = False
            paid += np.bincount(arms, shares * model.means[self.types, arms], minlength=n_arms)
            plays += np.bincount(arms, shares, minlength=n_arms)
            if step < horizon - 1:
                state = policy.observe(state, arms, rewards_of(model, self.types, arms, self.luck[:, step]))
        return Earned(paid, plays)


def rewards_of(
    model: LatentBandit, types: Integer[Array, "n"], arms: Integer[Array, "n"], luck: Float[Array, "n"]
) -> Float[Array, "n"]:
    """The reward at the quantile `luck` of what the arm pays in the type."""
    rewards = model.rewards
    if isinstance(rewards, Categorical):
        below = rewards.probabilities[types, arms].cumsum(axis=1) <= luck[:, None]
        return rewards.values[np.minimum(below.sum(axis=1), rewards.n_values - 1)]
    from scipy.special import ndtri

    return np.asarray(rewards.means[types, arms] + rewards.scale * ndtri(luck))
