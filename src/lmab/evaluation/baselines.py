"""Baselines of a policy: fixed choices that use no answer of the session, but may use features known before it.

The best fixed choice for everybody is one arm, or without repeats one list of arms (`LatentBandit.best_fixed`). Two
more are possible without any bandit: one list in which no arm repeats, and a list for each value of the features that
the policy uses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._shapes import Array, Float
from ..model.bandit import LatentBandit
from ..model.type_prior import TypePrior, clustered

LIST = "the best list without repeats"
MOST = 24  # groups of people with different priors that are told apart


@dataclass(frozen=True, eq=False)
class Baselines:
    """The baselines beside the best fixed choice, for sessions of H steps."""

    names: tuple[str, ...]
    horizon: int
    repeats: bool  # whether a list per value of the features may repeat an arm

    @classmethod
    def of(cls, prior: TypePrior | None, n_arms: int, horizon: int, *, repeats: bool) -> Baselines:
        """Return the baselines of a plan; if sessions start from a prior of types, one of them uses its features."""
        names = [LIST] if repeats and n_arms >= horizon > 1 else []
        if prior is not None and prior.columns:
            kind = "arm" if repeats else "list"
            names.append(f"the best {kind} per value of {', '.join(prior.columns)}")
        return cls(tuple(names), horizon, repeats)

    def values(self, mass: Float[Array, "G M"], model: LatentBandit) -> list[float]:
        """Return the value of each baseline.

        Args:
            mass: weights of the types in each group of people, times the share of the group.
            model: the bandit that pays the rewards; its weights are not used.
        """
        found = []
        for name in self.names:
            if name == LIST:
                found.append(_fixed(mass.sum(axis=0), model, self.horizon, repeats=False))
            else:
                found.append(sum(_fixed(own, model, self.horizon, repeats=self.repeats) for own in mass))
        return found

    def table(self, model: LatentBandit, prior: TypePrior | None) -> dict[str, float]:
        """Return the value of each baseline on a model, by name."""
        people = None if prior is None else prior.resolve_features()
        mass = model.weights[None]
        if prior is not None and people is not None:
            centres, shares, _ = clustered(prior.weights(people.features), people.shares, MOST)
            mass = shares[:, None] * centres
        return dict(zip(self.names, self.values(mass, model), strict=True))


def _fixed(mass: Float[Array, "M"], model: LatentBandit, horizon: int, *, repeats: bool) -> float:
    """Return the value of the best fixed choice for people of these weights, times their share."""
    share = float(mass.sum())
    if share <= 0:
        return 0.0
    if model.leaving is None:
        average = mass @ model.means
        return float(horizon * average.max() if repeats else np.sort(average)[::-1][:horizon].sum())
    return share * LatentBandit(mass / share, model.rewards, leaving=model.leaving).best_fixed(horizon, repeats)
