"""Baselines of a policy: arms or lists that use no reward of the session, but may use features known before it.

The best arm for everyone, or without repeats the best list of arms, is `LatentBandit.best_fixed`. The others are one
list in which no arm repeats, a list for each value of the features that the policy uses, and one for each value of
every column that the fit does not use.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .._shapes import Array, Float, Integer, Shaped
from ..data.packed import Packed
from ..data.sessions import Sessions
from ..model import belief
from ..model.bandit import LatentBandit
from ..model.type_prior import TypePrior, clustered

LIST = "the best list without repeats"
MOST = 24  # groups of people with different priors, and values of a column, that are told apart
_SESSIONS = 4_000  # of a larger log that weights by value are estimated from
_LEAST = 30  # sessions with a value, below which it is pooled with the other rare ones
_PSEUDO = 10.0  # sessions with the weights of all, which are added to each value: small groups stay near the average
_ITERATIONS = 30
_NEVER, _RARE = -700.0, 1e-12  # least log-likelihood and least weight that count


@dataclass(frozen=True, eq=False)
class Segment:
    """A column of features that the fit does not use, with the weights of the types for each of its values."""

    column: str
    shares: Float[Array, "G"]  # of the sessions
    ratios: Float[Array, "G M"]  # weights of the types with each value, divided by those in all sessions


def segments_of(bandit: LatentBandit, sessions: Sessions | Packed, used: tuple[str, ...] = ()) -> tuple[Segment, ...]:
    """Estimate the weights of the types by value, for each column of a log that the fit does not use.

    The weights are those of an EM fit in which rewards are given by the bandit. Values of fewer than 30 sessions, and
    missing ones, are pooled; columns with more than 24 values, such as numbers, are left out.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]])
        >>> log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=400, horizon=3, rng=0)
        >>> segments_of(bandit, log)
        ()
    """
    if sessions.features is None or set(sessions.features) <= set(used):
        return ()
    log = sessions[:: max(1, len(sessions) // _SESSIONS)]
    assert log.features is not None
    uniform = replace(bandit, weights=np.full(bandit.n_types, 1 / bandit.n_types))
    logs = belief.log_joint(uniform, log)
    likelihood = np.exp(np.maximum(logs - logs.max(axis=1, keepdims=True), _NEVER))
    found = []
    for column in log.features:
        groups = None if column in used else _groups(log.features[column])
        if groups is None:
            continue
        shares = np.bincount(groups) / len(groups)
        weights = _weights(likelihood, groups, bandit.weights)
        found.append(Segment(column, shares, weights / np.maximum(shares @ weights, _RARE)))
    return tuple(found)


def _groups(values: Shaped[Array, "N"]) -> Integer[Array, "N"] | None:
    """Return the group of each session by its value, rare ones together; None if there are one or too many groups."""
    names, groups, counts = np.unique(values.astype(str), return_inverse=True, return_counts=True)
    rare = counts < _LEAST
    if len(names) - rare.sum() > MOST:
        return None
    numbers = np.where(rare, len(names), np.arange(len(names)))
    kept, found = np.unique(numbers[groups], return_inverse=True)
    return None if len(kept) < 2 else found


def _weights(
    likelihood: Float[Array, "N M"], groups: Integer[Array, "N"], average: Float[Array, "M"]
) -> Float[Array, "G M"]:
    """Return the weights of the types in each group, by EM from those of all sessions."""
    n_groups = int(groups.max()) + 1
    weights = np.tile(np.maximum(average, _RARE), (n_groups, 1))
    for _ in range(_ITERATIONS):
        posterior = likelihood * weights[groups]
        posterior /= posterior.sum(axis=1, keepdims=True)
        counts = np.stack([np.bincount(groups, column, n_groups) for column in posterior.T], axis=1)
        weights = counts + _PSEUDO * average
        weights /= weights.sum(axis=1, keepdims=True)
    return np.maximum(weights, _RARE)


@dataclass(frozen=True, eq=False)
class Baselines:
    """The baselines beside the best fixed arm or list, for sessions of H steps."""

    names: tuple[str, ...]
    horizon: int
    repeats: bool  # whether a list per value of a feature may repeat an arm
    segments: tuple[Segment, ...] = ()  # the last baselines, one for each

    @classmethod
    def of(
        cls,
        prior: TypePrior | None,
        n_arms: int,
        horizon: int,
        *,
        repeats: bool,
        segments: tuple[Segment, ...] = (),
    ) -> Baselines:
        """Return the baselines of a plan; if sessions start from a prior of types, one of them uses its features."""
        names = [LIST] if repeats and n_arms >= horizon > 1 else []
        best = f"the best {'arm' if repeats else 'list'} per value of"
        if prior is not None and prior.columns:
            names.append(f"{best} {', '.join(prior.columns)}")
        names += [f"{best} {segment.column}" for segment in segments]
        return cls(tuple(names), horizon, repeats, segments)

    def values(self, mass: Float[Array, "G M"], model: LatentBandit) -> list[float]:
        """Return the value of each baseline.

        Args:
            mass: weights of the types in each group of people, times the share of the group.
            model: the bandit that pays the rewards; its weights are not used. With a number of types other than that
                of the segments, the values of these are NaN.
        """
        average = mass.sum(axis=0)
        found = []
        for name in self.names[: len(self.names) - len(self.segments)]:
            if name == LIST:
                found.append(_fixed(average, model, self.horizon, repeats=False))
            else:
                found.append(self._per_group(mass, model))
        for segment in self.segments:
            if segment.ratios.shape[1] != len(average):
                found.append(np.nan)
                continue
            weights = average * segment.ratios
            weights /= weights.sum(axis=1, keepdims=True)
            found.append(self._per_group(segment.shares[:, None] * weights, model))
        return found

    def _per_group(self, mass: Float[Array, "G M"], model: LatentBandit) -> float:
        return sum(_fixed(own, model, self.horizon, repeats=self.repeats) for own in mass)

    def table(self, model: LatentBandit, prior: TypePrior | None) -> dict[str, float]:
        """Return the value of each baseline on a model, by name."""
        people = None if prior is None else prior.resolve_features()
        mass = model.weights[None]
        if prior is not None and people is not None:
            centres, shares, _ = clustered(prior.weights(people.features), people.shares, MOST)
            mass = shares[:, None] * centres
        return dict(zip(self.names, self.values(mass, model), strict=True))


def _fixed(mass: Float[Array, "M"], model: LatentBandit, horizon: int, *, repeats: bool) -> float:
    """Return the value of the best fixed arm or list for people of these weights, times their share."""
    share = float(mass.sum())
    if share <= 0:
        return 0.0
    if model.leaving is None and model.step_effects is None:
        average = mass @ model.means
        return float(horizon * average.max() if repeats else np.sort(average)[::-1][:horizon].sum())
    return share * replace(model, weights=mass / share).best_fixed(horizon, repeats)
