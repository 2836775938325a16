"""Normal rewards cut into a few outcomes, so that what a policy can meet can be written out.

Seeing a rounded reward instead of the reward is a garbling: what is written out is the policy for rounded rewards. The
means stay exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._shapes import Array, Float, Integer
from ..model import Categorical, Gaussian, LatentBandit

_HISTORIES = 5_000  # of one step, about, that outcomes are few enough for
_OUTCOMES = (3, 9)  # fewest and most


@dataclass(frozen=True, eq=False)
class CutRewards(Categorical):
    """Outcomes with their probabilities, and the exact means."""

    exact: Float[Array, "M A"] | None = None

    @property
    def means(self) -> Float[Array, "M A"]:
        assert self.exact is not None
        return self.exact


@dataclass(frozen=True, eq=False)
class Cut:
    """Where rewards are cut, for all arms alike."""

    edges: Float[Array, "E"]
    values: Float[Array, "Z"]  # that stand for the outcomes

    @classmethod
    def of(cls, bandit: LatentBandit, horizon: int) -> Cut | None:
        """Cuts at quantiles of all rewards of the bandit; None where rewards take finitely many values anyway."""
        if bandit.rewards.discrete:
            return None
        most = _HISTORIES ** (1 / max(horizon - 1, 1))
        n_outcomes = int(np.clip(most, *_OUTCOMES))
        spread = np.sqrt(bandit.means.var() + bandit.rewards.spread**2)
        normal = _normal_quantiles(np.arange(1, 2 * n_outcomes) / (2 * n_outcomes))
        points = bandit.means.mean() + spread * normal
        return cls(points[1::2], points[::2])

    def rewards(self, family: Gaussian) -> CutRewards:
        """The family as outcomes."""
        from scipy.special import ndtr

        below = ndtr((self.edges - family.means[:, :, None]) / family.scale)
        ends = np.zeros((*family.means.shape, 1)), np.ones((*family.means.shape, 1))
        probabilities = np.diff(np.concatenate([ends[0], below, ends[1]], axis=2), axis=2)
        return CutRewards(probabilities, self.values, exact=family.means)


def discrete(rewards: Any, cut: Cut | None) -> Categorical:
    """Rewards on finitely many values: themselves, or cut."""
    return rewards if cut is None else cut.rewards(rewards)


def only(rewards: Categorical, arms: Integer[Array, "k"]) -> Categorical:
    """The rewards of some arms."""
    probabilities = rewards.probabilities[:, arms]
    if isinstance(rewards, CutRewards):
        return CutRewards(probabilities, rewards.values, exact=rewards.means[:, arms])
    return Categorical(probabilities, rewards.values)


def _normal_quantiles(shares: Float[Array, "n"]) -> Float[Array, "n"]:
    from scipy.special import ndtri

    return np.asarray(ndtri(shares))
