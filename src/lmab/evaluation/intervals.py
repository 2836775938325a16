"""Standard errors and intervals of the off-policy estimates, made from the sums over sessions.

Few sessions carry the weight, so a log may miss the session that would move the estimate most. Each end of an interval
therefore counts one session more than the log has. Its weight at each step is the largest that was seen, or more where
the weights average less than 1 by more than chance explains, because then the log lacks that much of what the policy
does. It earns the least possible reward for the lower end, and the largest one for the upper end. The bootstrap draws
it like any other session. Thirty sessions that earned nothing then do not prove that the policy earns nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from .._shapes import Array, Float
from ..data import Sessions
from ..model import MAX_VALUES, LatentBandit
from .importance import REACHED, REWARD, ROBUST, WEIGHT

Interval = tuple[float, float]
_REPLICATES_AT_ONCE = 100
_CHANCE = 2.0  # standard errors of the average weight that chance explains
_RARE = 0.01  # share of continuous rewards beyond what the session that the log lacks earns
_LOOKED_AT = 100_000  # rewards, of a larger log, that tell whether rewards are continuous


@dataclass(frozen=True)
class Range:
    """Rewards of a step: the least and the largest, and those that a session which the log lacks is given."""

    least: float
    most: float
    low: float
    high: float

    @property
    def width(self) -> float:
        """The most by which two rewards differ."""
        return self.most - self.least

    @classmethod
    def of(cls, sessions: Sessions, model: LatentBandit | None) -> Range:
        """What the log and the model know: their extremes; 0 and 1 where all rewards of the log are 0 or 1.

        Rewards with many values are taken for continuous: their extremes grow with the log, so that the session which
        the log lacks is given a percentile.

        Examples:
            >>> Range.of(Sessions.from_arrays([[0, 1]], [[0.0, 0.0]]), None)
            Range(least=0.0, most=1.0, low=0.0, high=1.0)
            >>> Range.of(Sessions.from_arrays([[0, 1]], [[2.0, -1.0]]), None)
            Range(least=-1.0, most=2.0, low=-1.0, high=2.0)
        """
        known = [float(sessions.rewards.min()), float(sessions.rewards.max())]
        if set(known) <= {0.0, 1.0}:
            known += [0.0, 1.0]
        if model is not None and model.rewards.values is not None:
            known += model.rewards.values.tolist()
        least, most = min(known), max(known)
        some = sessions.rewards[:: max(len(sessions.rewards) // _LOOKED_AT, 1)]
        if len(np.unique(some)) <= MAX_VALUES:
            return cls(least, most, least, most)
        low, high = np.quantile(some, [_RARE, 1 - _RARE]).tolist()
        return cls(least, most, low, high)


@dataclass(frozen=True, eq=False)
class Tails:
    """What a session that the log does not hold could add to the sums."""

    weights: Float[Array, "H"]  # its weight at each step
    effective: float  # the smallest effective sample over the steps
    rewards: Range

    @classmethod
    def of(cls, sums: Float[Array, "G 4 H"], heaviest: Float[Array, "H"], effective: float, rewards: Range) -> Tails:
        """From the sums, the largest weight seen at each step, the effective sample and the range of rewards."""
        average, error = average_weights(sums)
        lacking = sums[:, REACHED].sum(axis=0) * (1 - average - _CHANCE * error)
        return cls(np.maximum(heaviest, lacking), effective, rewards)

    @property
    def bounds(self) -> Interval:
        """What a session can earn."""
        return len(self.weights) * self.rewards.least, len(self.weights) * self.rewards.most

    def sessions_beside(self, sums: Float[Array, "G 4 H"]) -> Float[Array, "2 4 H"]:
        """What that session adds to the sums of a log, of which the doubly robust estimate had expected this much."""
        return self.sessions(np.clip(estimates(sums.sum(axis=0))[2], self.rewards.low, self.rewards.high))

    def sessions(self, expected: Float[Array, "H"]) -> Float[Array, "2 4 H"]:
        """What that session adds, if it earns little and if it earns much; the model had `expected` of each step."""
        parts = np.empty((2, 4, len(self.weights)))
        for part, reward in zip(parts, (self.rewards.low, self.rewards.high), strict=True):
            part[REWARD], part[WEIGHT], part[REACHED] = self.weights * reward, self.weights, 1.0
            part[ROBUST] = expected + self.weights * (reward - expected)
        return parts


def average_weights(sums: Float[Array, "G 4 H"]) -> tuple[Float[Array, "H"], Float[Array, "H"]]:
    """The average weight of each step, 1 in expectation where the propensities are true, and its standard error."""
    weights, reached = sums[:, WEIGHT], sums[:, REACHED]
    average = weights.sum(axis=0) / reached.sum(axis=0)
    deviation = weights - average * reached
    return average, np.sqrt((deviation**2).sum(axis=0)) / reached.sum(axis=0)


def estimates(total: Float[Array, "*n 4 H"]) -> Float[Array, "3 *n H"]:
    """Expected reward of each step by the three methods, from the sums over sessions; NaN where there is no weight."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.stack(
            [
                total[..., REWARD, :] / total[..., REACHED, :],
                total[..., REWARD, :] / total[..., WEIGHT, :],
                total[..., ROBUST, :] / total[..., REACHED, :],
            ]
        )


def standard_errors(sums: Float[Array, "G 4 H"]) -> Float[Array, "3"]:
    """Of the three totals, by the jackknife over sessions or groups of them."""
    return jackknife(without_each(sums))


def without_each(sums: Float[Array, "G 4 H"]) -> Float[Array, "3 G"]:
    """The three totals without the first group of sessions, without the second, and so on."""
    return estimates(sums.sum(axis=0) - sums).sum(axis=2)


def jackknife(left_out: Float[Array, "*n G"]) -> Float[Array, "*n"]:
    """The standard error of a total, from what it is without each group."""
    size = left_out.shape[-1]
    spread = ((left_out - left_out.mean(axis=-1, keepdims=True)) ** 2).sum(axis=-1)
    return np.asarray(np.sqrt((size - 1) / size * spread))


def intervals(
    sums: Float[Array, "G 4 H"],
    tails: Tails,
    confidence: float,
    n_bootstrap: int,
    rng: np.random.Generator | None,
) -> list[Interval]:
    """The interval of each method: percentiles of the bootstrap over sessions; without `rng` from standard errors."""
    tail = (1 - confidence) / 2
    extra = tails.sessions_beside(sums)
    middles = estimates(sums.sum(axis=0) + extra).sum(axis=2).T
    reach = student_reach(tails.effective, tail)
    if rng is None:
        errors = np.stack([standard_errors(np.concatenate([sums, part[None]])) for part in extra])
        ends = middles + reach * errors * [[-1.0], [1.0]]
    else:
        low, high = _resample(sums, extra, n_bootstrap, rng)
        ends = np.stack([np.quantile(low, tail, axis=1), np.quantile(high, 1 - tail, axis=1)])
        ends = middles + reach / NormalDist().inv_cdf(1 - tail) * (ends - middles)
    return [(float(low), float(high)) for low, high in np.clip(ends, *tails.bounds).T]


def student_reach(effective: float, tail: float) -> float:
    """Standard errors that an interval reaches from its middle, where few sessions tell how large such an error is."""
    from scipy.special import stdtrit

    return float(stdtrit(effective - 1, 1 - tail) * np.sqrt(effective / (effective - 1)))


def _resample(
    sums: Float[Array, "G 4 H"], extra: Float[Array, "2 4 H"], n_bootstrap: int, rng: np.random.Generator
) -> Float[Array, "2 3 B"]:
    """Totals of the three methods on resampled sessions, for each of the two sessions added to the log."""
    size, flat, replicates = len(sums) + 1, sums.reshape(len(sums), -1), []
    for start in range(0, n_bootstrap, _REPLICATES_AT_ONCE):
        n = min(_REPLICATES_AT_ONCE, n_bootstrap - start)
        counts = np.stack([np.bincount(rng.integers(size, size=size), minlength=size) for _ in range(n)])
        drawn = (counts[:, :-1] @ flat).reshape(n, *sums.shape[1:])
        added = counts[:, -1, None, None] * extra[:, None]
        replicates.append(estimates(drawn + added).sum(axis=3).swapaxes(0, 1))
    return np.concatenate(replicates, axis=2)
