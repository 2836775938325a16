"""Poisson rewards: counts (items bought, pages, minutes), with one mean per type and arm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .._shapes import Array, Float, Integer, Shaped
from ..checks import check_array
from ..errors import InvalidArgument
from ..files import Record
from .rewards import Channel, take

_FAR = 12.0  # standard deviations above a mean beyond which counts are ignored


@dataclass(frozen=True, eq=False)
class Counts:
    """Poisson rewards 0, 1, 2, ...: their variance equals their mean.

    Examples:
        >>> import numpy as np
        >>> Counts(np.array([[2.0], [0.5]])).likelihood(np.array([0]), np.array([0.0])).round(3)
        array([[0.135, 0.607]])
    """

    family: ClassVar[str] = "counts"
    discrete: ClassVar[bool] = False  # the support is infinite
    by_value: ClassVar[bool] = False
    values: ClassVar[None] = None

    means: Float[Array, "M A"]

    def __post_init__(self) -> None:
        means = check_array("means", self.means, ndim=2)
        if (means < 0).any():
            where = tuple(int(i) for i in np.argwhere(means < 0)[0])
            raise InvalidArgument(f"means of counts must be at least 0, got {means[where]} at index {where}")
        object.__setattr__(self, "means", means)

    @property
    def n_types(self) -> int:
        return int(self.means.shape[0])

    @property
    def n_arms(self) -> int:
        return int(self.means.shape[1])

    @property
    def n_parameters(self) -> int:
        return int(self.means.size)

    @property
    def spread(self) -> float:
        """Return the largest standard deviation."""
        return float(np.sqrt(self.means.max()))

    @property
    def support(self) -> tuple[float, float]:
        return 0.0, np.inf

    def channel(self, weights: Float[Array, "M"], bins: int, edges: Float[Array, "A E"] | None = None) -> Channel:
        """Return the observation model of counts in `bins` bins per arm, cut at quantiles of their mixture over the
        types, or at the given edges.

        A bin is less informative than the count, so the value of a plan with bins is a lower bound for plans with
        counts.
        """
        if edges is None:
            last = np.stack([_rising(self._quantiles(weights, arm, bins)) for arm in range(self.n_arms)])
        else:
            last = edges - 0.5
        first = np.concatenate([np.zeros((self.n_arms, 1)), last + 1], axis=1)
        middle = np.concatenate([np.floor((first[:, :-1] + last) / 2), first[:, -1:]], axis=1)
        edges = last + 0.5
        below = _below(edges[:, :, None], self.means.T[:, None, :])
        ends = np.zeros((self.n_arms, 1, self.n_types)), np.ones((self.n_arms, 1, self.n_types))
        table = np.diff(np.concatenate([ends[0], below, ends[1]], axis=1), axis=1).reshape(-1, self.n_types)
        return Channel(np.ascontiguousarray(table), middle, edges)

    def informative_table(
        self, weights: Float[Array, "M"], bins: int, leaving: Float[Array, "M A Z"] | None = None
    ) -> Float[Array, "D M"]:
        """Return likelihoods of observations that are at least as informative as the counts, and that the session
        continues.
        """
        from .informative_channel import informative_counts

        return informative_counts(self.means.T, bins, None if leaving is None else leaving.transpose(1, 0, 2))

    def places(self, rewards: Float[Array, "n"], n_places: int) -> Integer[Array, "n"]:
        """Return the column of `leaving` of each count; the last column also stands for all larger counts.

        Examples:
            >>> Counts(np.array([[2.0]])).places(np.array([0.0, 1.0, 7.0]), 3)
            array([0, 1, 2])
        """
        return np.minimum(require_counts(np.asarray(rewards, np.float64)), n_places - 1).astype(np.int64)

    def shares_of_places(self, n_places: int) -> Float[Array, "M A Z"]:
        """Return the probability of each column of `leaving`."""
        from scipy.special import gammaln, xlogy

        counts = np.arange(n_places - 1.0)
        each = np.exp(xlogy(counts, self.means[:, :, None]) - self.means[:, :, None] - gammaln(counts + 1))
        return np.concatenate([each, np.maximum(1 - each.sum(axis=2, keepdims=True), 0.0)], axis=2)

    def staying(self, channel: Channel, leaving: Float[Array, "M A Z"]) -> Channel:
        """Return the observation probabilities in sessions that continue, for binned counts and any columns of
        `leaving`.
        """
        assert channel.edges is not None
        n_places, last = leaving.shape[2], leaving[:, :, -1]
        table = channel.table.reshape(self.n_arms, -1, self.n_types).copy()
        shares, arms = self.shares_of_places(n_places), np.arange(self.n_arms)
        table *= (1 - last).T[:, None]
        for place in range(n_places - 1):
            bins = (place > channel.edges).sum(axis=1)
            table[arms, bins] += (shares[:, :, place] * (last - leaving[:, :, place])).T
        return channel._replace(table=np.ascontiguousarray(np.maximum(table, 0.0).reshape(-1, self.n_types)))

    def _quantiles(self, weights: Float[Array, "M"], arm: int, parts: int) -> Float[Array, "E"]:
        """Return the counts at which the distribution function of an arm passes 1, 2, ... of `parts` equal parts."""
        from scipy.special import pdtr

        counts = np.arange(_highest(self.means[:, arm]) + 1.0)
        shares = pdtr(counts[:, None], self.means[:, arm]) @ (weights / weights.sum())
        return counts[np.minimum(np.searchsorted(shares, np.arange(1, parts) / parts), len(counts) - 1)]

    def joined(self, others: Sequence[Counts]) -> Counts:
        """Return the types of this model and of `others` in one model."""
        return Counts(np.concatenate([each.means for each in (self, *others)]))

    def tilted(self, effect: float) -> Counts:
        """Return the counts whose probabilities are proportional to p(z) exp(effect z): means times exp(effect)."""
        return Counts(self.means * np.exp(effect))

    def floored(self, least: float, values: Sequence[float] | None = None) -> Counts:
        """Return the same rewards with means of at least `least`; a mean of 0 makes every other count impossible."""
        return Counts(np.maximum(self.means, least))

    def __str__(self) -> str:
        return "counts 0, 1, 2, ..."

    def sample(
        self, types: Integer[Array, "n"], arms: Integer[Array, "n"], *, rng: np.random.Generator
    ) -> Float[Array, "n"]:
        return rng.poisson(self.means[types, arms]).astype(np.float64)

    def quantile(
        self, types: Integer[Array, "n"], arms: Integer[Array, "n"], shares: Float[Array, "n"]
    ) -> Float[Array, "n"]:
        """Return the count of each arm in a type that is exceeded with probability 1 - share."""
        from scipy.stats import poisson

        return np.asarray(poisson.ppf(shares, self.means[types, arms]), np.float64)

    def cuts(self, n: int) -> Float[Array, "n"]:
        """Return about n quantiles of all counts, every second of them half way between two counts."""
        pooled = Counts(self.means.reshape(-1, 1))
        equal = np.full(pooled.n_types, 1 / pooled.n_types)
        counts = _rising(pooled._quantiles(equal, 0, n + 1)[::2])
        points = np.empty(2 * len(counts) - 1)
        points[::2], points[1::2] = counts, np.floor((counts[:-1] + counts[1:] - 1) / 2) + 0.5
        return points

    def below(self, edges: Float[Array, "E"]) -> Float[Array, "M A E"]:
        """Return the probability of a count below each edge."""
        return _below(edges, self.means[:, :, None])

    def recentred(self, drawn: Sequence[Counts]) -> Sequence[Counts]:
        """Return the draws, rescaled if their average mean exceeds the mean of this model, as noise on logarithms
        causes.
        """
        average = np.mean([each.means for each in drawn], axis=0)
        factor = np.where(average > self.means, self.means / np.maximum(average, np.finfo(float).tiny), 1.0)
        return [Counts(each.means * factor) for each in drawn]

    def likelihood(self, arms: Shaped[Array, "n"], rewards: Shaped[Array, "n"]) -> Float[Array, "n M"]:
        """Return P(reward | type, arm) for every type."""
        return np.exp(self.log_likelihood(arms, rewards))

    def log_likelihood(self, arms: Shaped[Array, "n"], rewards: Shaped[Array, "n"]) -> Float[Array, "n M"]:
        """Return the logarithm of `likelihood`; -inf if it is zero."""
        from scipy.special import gammaln, xlogy

        counts, means = require_counts(np.asarray(rewards, np.float64))[:, None], self.means.T[arms]
        return np.asarray(xlogy(counts, means) - means - gammaln(counts + 1))

    def evidence(self, arms: Shaped[Array, "n"], rewards: Shaped[Array, "n"]) -> Float[Array, "n M"]:
        """Return the likelihood up to one factor per row, so that a count far from every mean is still informative."""
        logs = self.log_likelihood(arms, rewards)
        top = logs.max(axis=1, keepdims=True)
        return np.exp(logs - np.where(np.isfinite(top), top, 0.0))

    def distances(self, other: Counts) -> Float[Array, "M K"]:
        """Return the largest difference of means over arms, for every pair of types."""
        return np.stack([np.abs(self.means - one).max(axis=1) for one in other.means], axis=1)

    def relabel(self, types: Sequence[int] | None = None, arms: Sequence[int] | None = None) -> Counts:
        """Return rewards with type i taken from `types[i]` of this model; the same for arms."""
        return Counts(take(self.means, types, arms))

    def only_arms(self, arms: Sequence[int]) -> Counts:
        """Return the rewards of some arms."""
        return Counts(self.means[:, arms])

    def with_arms(self, count: int, weights: Float[Array, "M"], law: Any = None) -> Counts:
        """Return these arms and `count` new ones, which have the mean `law` in every type."""
        mean = check_array("law", [weights @ self.means.mean(axis=1) if law is None else law], ndim=1)
        return Counts(np.hstack([self.means, np.full((self.n_types, count), mean[0])]))

    def record(self) -> Record:
        return Record("counts", arrays={"means": self.means})

    @classmethod
    def from_record(cls, record: Record) -> Counts:
        return cls(record.arrays["means"])


def require_counts(rewards: Float[Array, "n"]) -> Float[Array, "n"]:
    """Return the rewards, or raise `InvalidArgument` if they are not integers of at least 0."""
    wrong = (rewards < 0) | (rewards != np.floor(rewards))
    if wrong.any():
        first = int(np.flatnonzero(wrong)[0])
        raise InvalidArgument(
            f"rewards must be counts, whole numbers of at least 0, got {rewards[first]} at step {first}: "
            f"rewards='gaussian' is for measurements, rewards='binned' for amounts"
        )
    return rewards


def _highest(means: Float[Array, "M"]) -> int:
    """Return a count that is exceeded with negligible probability."""
    top = float(means.max())
    return int(np.ceil(top + _FAR * np.sqrt(top) + _FAR))


def _rising(counts: Float[Array, "n"]) -> Float[Array, "n"]:
    """Return the counts, raised until each exceeds the previous one."""
    steps = np.arange(len(counts))
    return np.maximum.accumulate(counts - steps) + steps


def _below(edges: Float[Array, "*e"], means: Float[Array, "*m"]) -> Float[Array, "..."]:
    """Return the probability of a count below each edge."""
    from scipy.special import pdtr

    highest = np.ceil(edges) - 1
    return np.where(highest < 0, 0.0, pdtr(np.maximum(highest, 0.0), means))
