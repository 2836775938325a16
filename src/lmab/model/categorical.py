"""Categorical rewards: finitely many values; Bernoulli rewards are categorical on 0 and 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from .._shapes import Array, Float, Integer, Shaped
from ..checks import check_array, check_distribution
from ..errors import InvalidArgument
from ..files import Record
from .rewards import Channel, encode_values, take


@dataclass(frozen=True, eq=False)
class Categorical:
    """Rewards on a finite set of values (Assumption 2.2 of the paper).

    Examples:
        >>> import numpy as np
        >>> family = Categorical(np.array([[[0.2, 0.8]], [[0.5, 0.5]]]), np.array([0.0, 1.0]))
        >>> family.means
        array([[0.8],
               [0.5]])
    """

    family: ClassVar[str] = "categorical"
    discrete: ClassVar[bool] = True
    by_value: ClassVar[bool] = True

    probabilities: Float[Array, "M A Z"]  # P(value z | type m, arm a): the paper's mu_m(a, z)
    values: Float[Array, "Z"]  # distinct rewards
    edges: Float[Array, "E"] | None = None  # bin edges of discretised rewards: rewards between two edges have one value

    def __post_init__(self) -> None:
        probabilities = check_distribution("probabilities", check_array("probabilities", self.probabilities, ndim=3))
        values = check_array("values", self.values, ndim=1)
        if len(set(values.tolist())) != len(values):
            raise InvalidArgument(f"values must be distinct, got {values.tolist()}")
        if len(values) != probabilities.shape[2]:
            raise InvalidArgument(
                f"values must have one entry per column of probabilities ({probabilities.shape[2]}), got {len(values)}"
            )
        object.__setattr__(self, "probabilities", probabilities)
        object.__setattr__(self, "values", values)
        if self.edges is not None and len(values) > 1:
            edges = check_array("edges", self.edges, ndim=1)
            if len(edges) != len(values) - 1 or (np.diff(edges) <= 0).any() or (np.diff(values) <= 0).any():
                raise InvalidArgument(f"edges must rise, one between any two rising values, got {edges.tolist()}")
            object.__setattr__(self, "edges", edges)

    @classmethod
    def bernoulli(cls, means: Any) -> Categorical:
        """Return rewards 0 and 1 with the given means (M, A)."""
        means = check_array("means", means, ndim=2)
        if (means < 0).any() or (means > 1).any():
            where = tuple(int(i) for i in np.argwhere((means < 0) | (means > 1))[0])
            raise InvalidArgument(f"means must lie in [0, 1], got {means[where]} at index {where}")
        return cls(np.stack([1 - means, means], axis=2), np.array([0.0, 1.0]))

    @property
    def n_types(self) -> int:
        return int(self.probabilities.shape[0])

    @property
    def n_arms(self) -> int:
        return int(self.probabilities.shape[1])

    @property
    def n_values(self) -> int:
        return int(self.probabilities.shape[2])

    @property
    def n_parameters(self) -> int:
        return self.n_types * self.n_arms * (self.n_values - 1)

    @cached_property
    def means(self) -> Float[Array, "M A"]:
        return self.probabilities @ self.values

    @cached_property
    def table(self) -> Float[Array, "D M"]:
        """Return the probabilities by code: row a*Z + z holds P(value z | m, arm a) for every type m."""
        n_types, n_arms, n_values = self.probabilities.shape
        return np.ascontiguousarray(self.probabilities.reshape(n_types, n_arms * n_values).T)

    @property
    def spread(self) -> float:
        return float(np.ptp(self.values))

    @property
    def support(self) -> tuple[float, float]:
        return float(self.values.min()), float(self.values.max())

    def channel(self, weights: Float[Array, "M"], bins: int, edges: Float[Array, "A E"] | None = None) -> Channel:
        """Return the observation model with the values as outcomes; `bins` and `edges` are ignored."""
        return Channel(self.table, np.tile(self.values, (self.n_arms, 1)), None)

    def joined(self, others: Sequence[Categorical]) -> Categorical:
        """Return the types of this model and of `others` in one model; all have the same arms and values."""
        return replace(self, probabilities=np.concatenate([each.probabilities for each in (self, *others)]))

    def tilted(self, effect: float) -> Categorical:
        """Return the rewards whose probabilities are proportional to p(z) exp(effect z).

        Examples:
            >>> Categorical.bernoulli([[0.5]]).tilted(1.0).means.round(3)
            array([[0.731]])
        """
        exponents = effect * self.values
        tilted = self.probabilities * np.exp(exponents - exponents.max())
        return replace(self, probabilities=tilted / tilted.sum(axis=2, keepdims=True))

    def floored(self, least: float, values: Sequence[float] | None = None) -> Categorical:
        """Return the same rewards with value probabilities of at least `least`; new `values` get `least`."""
        known = self.values if values is None else np.union1d(values, self.values)
        probabilities = np.zeros((*self.means.shape, len(known)))
        probabilities[:, :, np.searchsorted(known, self.values)] = self.probabilities
        probabilities = np.maximum(probabilities, least)
        return Categorical(probabilities / probabilities.sum(axis=2, keepdims=True), known, self.edges)

    def __str__(self) -> str:
        shown = ", ".join(f"{value:g}" for value in self.values[:8]) + (", ..." if self.n_values > 8 else "")
        return "rewards in {" + shown + "}"

    @cached_property
    def cumulative(self) -> Float[Array, "cells Y"]:
        """Return the cumulative probabilities without the last column, one row per (type, arm)."""
        return np.cumsum(self.probabilities, axis=2)[:, :, :-1].reshape(-1, self.n_values - 1)

    def places(self, rewards: Any, n_places: int) -> Integer[Array, "n"]:
        """Return the column of `leaving` of each reward."""
        return self.encode(rewards)

    def shares_of_places(self, n_places: int) -> Float[Array, "M A Z"]:
        """Return the probability of each column of `leaving`."""
        return self.probabilities

    def encode(self, rewards: Shaped[Array, "n"]) -> Integer[Array, "n"]:
        """Return the index of each reward among `values`; raise for others, unless `edges` assign them to a bin."""
        if self.edges is not None:
            return np.searchsorted(self.edges, rewards, side="right")
        return encode_values(self.values, rewards)

    def codes(self, arms: Shaped[Array, "n"], rewards: Shaped[Array, "n"]) -> Integer[Array, "n"]:
        """Return the code a*Z + z in [0, A*Z) of each step, in the smallest unsigned integer type."""
        codes = np.asarray(arms, np.int64) * self.n_values + self.encode(rewards)
        return codes.astype(np.min_scalar_type(self.n_arms * self.n_values - 1))

    def sample(
        self, types: Integer[Array, "n"], arms: Integer[Array, "n"], *, rng: np.random.Generator
    ) -> Float[Array, "n"]:
        rows = self.cumulative[types * self.n_arms + arms]
        index = (rng.random(len(rows))[:, None] >= rows).sum(axis=1)
        return self.values[index]

    def quantile(
        self, types: Integer[Array, "n"], arms: Integer[Array, "n"], shares: Float[Array, "n"]
    ) -> Float[Array, "n"]:
        """Return the reward of each arm in a type that is exceeded with probability 1 - share."""
        below = self.probabilities[types, arms].cumsum(axis=1) <= shares[:, None]
        return self.values[np.minimum(below.sum(axis=1), self.n_values - 1)]

    def cuts(self, n: int) -> None:
        """Return None, because rewards with finitely many values are not discretised."""
        return

    def below(self, edges: Float[Array, "E"]) -> Float[Array, "M A E"]:
        """Return the probability of a reward below each edge."""
        return self.probabilities @ (self.values[:, None] < edges).astype(np.float64)

    def recentred(self, drawn: Sequence[Categorical]) -> list[Categorical]:
        """Return the draws, rescaled if their average mean of an arm and type exceeds the mean of this model.

        Symmetric noise on logits raises small probabilities on average, which would overstate the value of rare
        rewards.
        """
        average = np.mean([each.probabilities for each in drawn], axis=0)
        raised = average @ self.values > self.means
        ratio = np.clip(average / np.maximum(self.probabilities, 1e-12), 1e-3, 1e3)
        factor = np.where(raised[:, :, None], 1 / ratio, 1.0)
        lowered = [each.probabilities * factor for each in drawn]
        return [Categorical(each / each.sum(axis=2, keepdims=True), self.values) for each in lowered]

    def likelihood(self, arms: Shaped[Array, "n"], rewards: Shaped[Array, "n"]) -> Float[Array, "n M"]:
        """Return P(reward | type, arm) for every type."""
        return self.table[np.asarray(arms, np.int64) * self.n_values + self.encode(rewards)]

    def log_likelihood(self, arms: Shaped[Array, "n"], rewards: Shaped[Array, "n"]) -> Float[Array, "n M"]:
        """Return the logarithm of `likelihood`; -inf if it is zero."""
        with np.errstate(divide="ignore"):
            return np.log(self.likelihood(arms, rewards))

    def evidence(self, arms: Shaped[Array, "n"], rewards: Shaped[Array, "n"]) -> Float[Array, "n M"]:
        """Return the likelihood up to one factor per row, which suffices for a belief."""
        return self.likelihood(arms, rewards)

    def distances(self, other: Categorical) -> Float[Array, "M K"]:
        """Return the largest L1 distance over arms between reward distributions, for every pair of types."""
        values = np.union1d(self.values, other.values)
        mine, theirs = self._on(values), other._on(values)
        return np.stack([np.abs(mine - type_).sum(axis=2).max(axis=1) for type_ in theirs], axis=1)

    def _on(self, values: Float[Array, "Y"]) -> Float[Array, "M A Y"]:
        """Return the same probabilities on a larger set of values."""
        wide = np.zeros((self.n_types, self.n_arms, len(values)))
        wide[:, :, np.searchsorted(values, self.values)] = self.probabilities
        return wide

    def relabel(self, types: Sequence[int] | None = None, arms: Sequence[int] | None = None) -> Categorical:
        """Return rewards with type i taken from `types[i]` of this model; the same for arms."""
        return Categorical(take(self.probabilities, types, arms), self.values, self.edges)

    def only_arms(self, arms: Sequence[int]) -> Categorical:
        """Return the rewards of some arms."""
        return Categorical(self.probabilities[:, arms], self.values, self.edges)

    def with_arms(self, count: int, weights: Float[Array, "M"], law: Any = None) -> Categorical:
        """Return these arms and `count` new ones, which have the probabilities `law` (Z,) in every type."""
        if law is None:
            average = np.einsum("m,maz->z", weights, self.probabilities)
            law = average / average.sum()
        one = check_distribution("law", check_array("law", law, ndim=1))
        if len(one) != self.n_values:
            raise InvalidArgument(f"law must hold the probability of each of {self.n_values} values, got {len(one)}")
        new = np.broadcast_to(one, (self.n_types, count, self.n_values))
        return Categorical(np.concatenate([self.probabilities, new], axis=1), self.values, self.edges)

    def record(self) -> Record:
        arrays = {"probabilities": self.probabilities, "values": self.values}
        return Record("categorical", arrays=arrays if self.edges is None else {**arrays, "edges": self.edges})

    @classmethod
    def from_record(cls, record: Record) -> Categorical:
        return cls(record.arrays["probabilities"], record.arrays["values"], record.arrays.get("edges"))
