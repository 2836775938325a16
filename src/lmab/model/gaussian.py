"""Gaussian rewards: normal distributions with one standard deviation for all arms and types."""

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


@dataclass(frozen=True, eq=False)
class Gaussian:
    """Normal rewards with a common standard deviation (Assumption B.1 of the paper, there with scale 1).

    Examples:
        >>> import numpy as np
        >>> Gaussian(np.array([[0.0, 1.0]]), 2.0).likelihood(np.array([0]), np.array([0.0])).round(3)
        array([[0.199]])
    """

    family: ClassVar[str] = "gaussian"
    discrete: ClassVar[bool] = False
    by_value: ClassVar[bool] = False
    values: ClassVar[None] = None

    means: Float[Array, "M A"]
    scale: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "means", check_array("means", self.means, ndim=2))
        scale = float(check_array("scale", np.atleast_1d(np.asarray(self.scale)), ndim=1)[0])
        if np.size(self.scale) != 1 or scale <= 0:
            raise InvalidArgument(f"scale must be one positive number, got {self.scale!r}")
        object.__setattr__(self, "scale", scale)

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
        return self.scale

    @property
    def support(self) -> tuple[float, float]:
        return -np.inf, np.inf

    def channel(self, weights: Float[Array, "M"], bins: int, edges: Float[Array, "A E"] | None = None) -> Channel:
        """Return the observation model of rewards in `bins` bins per arm, cut at quantiles of their mixture over the
        types, or at the given edges.

        A bin is less informative than the reward, so the value of a plan with bins is a lower bound for plans with
        rewards.
        """
        halves = self._quantiles(weights, 2 * bins)  # edges, alternating with the values of the bins between them
        cuts = halves[:, 1::2] if edges is None else edges
        return Channel(self._bin_table(cuts), halves[:, ::2], cuts)

    def informative_table(self, weights: Float[Array, "M"], bins: int, leaving: None = None) -> Float[Array, "D M"]:
        """Return likelihoods of observations that are at least as informative as the rewards."""
        from .informative_channel import informative_normal

        return informative_normal(self.means.T, np.full(self.n_arms, self.scale), weights, bins)

    def _quantiles(self, weights: Float[Array, "M"], parts: int) -> Float[Array, "A E"]:
        """Return parts - 1 quantiles of the rewards of every arm over all types, by bisection."""
        from scipy.special import ndtr

        targets = np.arange(1, parts) / parts
        low = np.tile(self.means.min(axis=0)[:, None] - 10 * self.scale, (1, parts - 1))
        high = np.tile(self.means.max(axis=0)[:, None] + 10 * self.scale, (1, parts - 1))
        for _ in range(60):  # 20 scales / 2^60 is below rounding
            middle = (low + high) / 2
            below = ndtr((middle[:, :, None] - self.means.T[:, None, :]) / self.scale) @ weights < targets
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return (low + high) / 2

    def _bin_table(self, edges: Float[Array, "A E"]) -> Float[Array, "D M"]:
        """Return the bin probabilities by code: row a*Z + z holds the probability of bin z of arm a in every type."""
        from scipy.special import ndtr

        below = ndtr((edges[:, :, None] - self.means.T[:, None, :]) / self.scale)
        shape = (len(below), 1, below.shape[2])
        cumulative = np.concatenate([np.zeros(shape), below, np.ones(shape)], axis=1)
        return np.ascontiguousarray(np.diff(cumulative, axis=1).reshape(-1, self.n_types))

    def joined(self, others: Sequence[Gaussian]) -> Gaussian:
        """Return the types of this model and of `others` in one model; the scale is the mean of the scales."""
        every = (self, *others)
        return Gaussian(np.concatenate([each.means for each in every]), float(np.mean([each.scale for each in every])))

    def tilted(self, effect: float) -> Gaussian:
        """Return the rewards whose density is proportional to p(z) exp(effect z): all means move by effect scale^2."""
        return Gaussian(self.means + effect * self.scale**2, self.scale)

    def floored(self, least: float, values: Sequence[float] | None = None) -> Gaussian:
        """Return the same rewards, because no normal reward is impossible."""
        return self

    def __str__(self) -> str:
        return f"normal rewards with scale {self.scale:g}"

    def sample(
        self, types: Integer[Array, "n"], arms: Integer[Array, "n"], *, rng: np.random.Generator
    ) -> Float[Array, "n"]:
        return self.means[types, arms] + self.scale * rng.standard_normal(len(types))

    def quantile(
        self, types: Integer[Array, "n"], arms: Integer[Array, "n"], shares: Float[Array, "n"]
    ) -> Float[Array, "n"]:
        """Return the reward of each arm in a type that is exceeded with probability 1 - share."""
        from scipy.special import ndtri

        return np.asarray(self.means[types, arms] + self.scale * ndtri(shares))

    def cuts(self, n: int) -> Float[Array, "n"]:
        """Return n quantiles of a normal distribution with the mean and the variance of all rewards."""
        from scipy.special import ndtri

        spread = np.sqrt(self.means.var() + self.scale**2)
        return self.means.mean() + spread * np.asarray(ndtri(np.arange(1, n + 1) / (n + 1)))

    def below(self, edges: Float[Array, "E"]) -> Float[Array, "M A E"]:
        """Return the probability of a reward below each edge."""
        from scipy.special import ndtr

        return np.asarray(ndtr((edges - self.means[:, :, None]) / self.scale))

    def recentred(self, drawn: Sequence[Gaussian]) -> Sequence[Gaussian]:
        """Return the draws unchanged: symmetric noise on means does not change their average."""
        return drawn

    def likelihood(self, arms: Shaped[Array, "n"], rewards: Shaped[Array, "n"]) -> Float[Array, "n M"]:
        """Return the density of the reward in every type."""
        return np.exp(self.log_likelihood(arms, rewards))

    def log_likelihood(self, arms: Shaped[Array, "n"], rewards: Shaped[Array, "n"]) -> Float[Array, "n M"]:
        """Return the log-density of the reward in every type."""
        deviation = (np.asarray(rewards, np.float64)[:, None] - self.means.T[arms]) / self.scale
        return -0.5 * deviation**2 - np.log(self.scale * np.sqrt(2 * np.pi))

    def evidence(self, arms: Shaped[Array, "n"], rewards: Shaped[Array, "n"]) -> Float[Array, "n M"]:
        """Return the density up to one factor per row, so that a reward far from every mean is still informative."""
        logs = self.log_likelihood(arms, rewards)
        return np.exp(logs - logs.max(axis=1, keepdims=True))

    def distances(self, other: Gaussian) -> Float[Array, "M K"]:
        """Return the largest difference of means over arms (plus that of the scales), for every pair of types."""
        gaps = np.stack([np.abs(self.means - type_).max(axis=1) for type_ in other.means], axis=1)
        return gaps + abs(self.scale - other.scale)

    def relabel(self, types: Sequence[int] | None = None, arms: Sequence[int] | None = None) -> Gaussian:
        """Return rewards with type i taken from `types[i]` of this model; the same for arms."""
        return Gaussian(take(self.means, types, arms), self.scale)

    def only_arms(self, arms: Sequence[int]) -> Gaussian:
        """Return the rewards of some arms."""
        return Gaussian(self.means[:, arms], self.scale)

    def with_arms(self, count: int, weights: Float[Array, "M"], law: Any = None) -> Gaussian:
        """Return these arms and `count` new ones, which have the mean `law` in every type."""
        mean = check_array("law", [weights @ self.means.mean(axis=1) if law is None else law], ndim=1)
        return Gaussian(np.hstack([self.means, np.full((self.n_types, count), mean[0])]), self.scale)

    def record(self) -> Record:
        return Record("gaussian", fields={"scale": self.scale.hex()}, arrays={"means": self.means})

    @classmethod
    def from_record(cls, record: Record) -> Gaussian:
        return cls(record.arrays["means"], float.fromhex(record.fields["scale"]))
