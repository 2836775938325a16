"""Reward families over (context, arm): Categorical (Bernoulli is Categorical on 0 and 1) and Gaussian."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np

from .._shapes import Array, Float, Integer, Shaped
from ..checks import check_array, check_distribution
from ..errors import InvalidArgument
from ..files import Record


class Channel(NamedTuple):
    """The finitely many outcomes that a session can see when it plays an arm."""

    table: Float[Array, "D M"]  # row a*Z + z: probability of outcome z of arm a in every context
    rewards: Float[Array, "A Z"]  # a reward that stands for each outcome
    edges: Float[Array, "A E"] | None  # between the outcomes of continuous rewards; None: outcomes are the rewards


class Rewards(Protocol):
    """The methods and fields of every reward family, for M contexts and A arms."""

    family: ClassVar[str]  # the name in `lmab.estimate(rewards=...)`
    discrete: ClassVar[bool]  # rewards take finitely many values

    @property
    def values(self) -> Float[Array, "Z"] | None: ...  # None where rewards are continuous
    @property
    def spread(self) -> float: ...  # how far rewards of one arm can differ: the range of the values, or the scale
    @property
    def support(self) -> tuple[float, float]: ...  # the lowest and the highest reward there can be
    def channel(self, weights: Float[Array, "M"], bins: int) -> Channel: ...
    def floored(self, least: float, values: Sequence[float] | None = None) -> Self: ...
    def joined(self, others: Sequence[Self]) -> Self: ...
    @property
    def means(self) -> Float[Array, "M A"]: ...
    @property
    def n_contexts(self) -> int: ...
    @property
    def n_arms(self) -> int: ...
    @property
    def n_parameters(self) -> int: ...
    def sample(
        self, contexts: Integer[Array, "n"], actions: Integer[Array, "n"], *, rng: np.random.Generator
    ) -> Float[Array, "n"]: ...
    def likelihood(self, actions: Shaped[Array, "n"], rewards: Shaped[Array, "n"]) -> Float[Array, "n M"]: ...
    def log_likelihood(self, actions: Shaped[Array, "n"], rewards: Shaped[Array, "n"]) -> Float[Array, "n M"]: ...
    def evidence(self, actions: Shaped[Array, "n"], rewards: Shaped[Array, "n"]) -> Float[Array, "n M"]: ...
    def distances(self, other: Any) -> Float[Array, "M K"]: ...
    def relabel(self, contexts: Any = None, arms: Any = None) -> Self: ...
    def with_arms(self, count: int, weights: Float[Array, "M"], law: Any = None) -> Self: ...
    def record(self) -> Record: ...


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

    probabilities: Float[Array, "M A Z"]  # P(value z | context m, arm a): the paper's mu_m(a, z)
    values: Float[Array, "Z"]  # distinct rewards
    edges: Float[Array, "E"] | None = None  # where continuous rewards were cut: those between two edges are one value

    def __post_init__(self) -> None:
        probabilities = check_distribution("probabilities", check_array("probabilities", self.probabilities, ndim=3))
        values = check_array("values", self.values, ndim=1)
        if len(np.unique(values)) != len(values):
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
        """Rewards 0 and 1 with the given means (M, A)."""
        means = check_array("means", means, ndim=2)
        if (means < 0).any() or (means > 1).any():
            where = tuple(int(i) for i in np.argwhere((means < 0) | (means > 1))[0])
            raise InvalidArgument(f"means must lie in [0, 1], got {means[where]} at index {where}")
        return cls(np.stack([1 - means, means], axis=2), np.array([0.0, 1.0]))

    @property
    def n_contexts(self) -> int:
        return int(self.probabilities.shape[0])

    @property
    def n_arms(self) -> int:
        return int(self.probabilities.shape[1])

    @property
    def n_values(self) -> int:
        return int(self.probabilities.shape[2])

    @property
    def n_parameters(self) -> int:
        return self.n_contexts * self.n_arms * (self.n_values - 1)

    @cached_property
    def means(self) -> Float[Array, "M A"]:
        return self.probabilities @ self.values

    @cached_property
    def table(self) -> Float[Array, "D M"]:
        """Row a*Z + z holds P(value z | m, arm a) for every context m; the code of an observation is its row."""
        n_contexts, n_arms, n_values = self.probabilities.shape
        return np.ascontiguousarray(self.probabilities.reshape(n_contexts, n_arms * n_values).T)

    @property
    def spread(self) -> float:
        return float(np.ptp(self.values))

    @property
    def support(self) -> tuple[float, float]:
        return float(self.values.min()), float(self.values.max())

    def channel(self, weights: Float[Array, "M"], bins: int) -> Channel:
        """The outcomes are the values themselves; `bins` is ignored."""
        return Channel(self.table, np.tile(self.values, (self.n_arms, 1)), None)

    def joined(self, others: Sequence[Categorical]) -> Categorical:
        """These contexts and those of `others`, one after another; all have the same arms and values."""
        return replace(self, probabilities=np.concatenate([each.probabilities for each in (self, *others)]))

    def floored(self, least: float, values: Sequence[float] | None = None) -> Categorical:
        """The same rewards, with no value less likely than `least`; `values` that were never seen get `least`."""
        known = self.values if values is None else np.union1d(values, self.values)
        probabilities = np.zeros((*self.means.shape, len(known)))
        probabilities[:, :, np.searchsorted(known, self.values)] = self.probabilities
        probabilities = np.maximum(probabilities, least)
        return Categorical(probabilities / probabilities.sum(axis=2, keepdims=True), known, self.edges)

    def __str__(self) -> str:
        shown = ", ".join(f"{value:g}" for value in self.values[:8]) + (", ..." if self.n_values > 8 else "")
        return "rewards in {" + shown + "}"

    @cached_property
    def _cumulative(self) -> Float[Array, "cells Y"]:
        """Cumulative probabilities without the last column, one row per (context, arm)."""
        return np.cumsum(self.probabilities, axis=2)[:, :, :-1].reshape(-1, self.n_values - 1)

    def encode(self, rewards: Shaped[Array, "n"]) -> Integer[Array, "n"]:
        """The index of each reward among `values`; another reward raises, unless `edges` say where it belongs."""
        if self.edges is not None:
            return np.searchsorted(self.edges, rewards, side="right")
        return index_among(self.values, rewards)

    def codes(self, actions: Shaped[Array, "n"], rewards: Shaped[Array, "n"]) -> Integer[Array, "n"]:
        """One code a*Z + z in [0, D) per step, with D = A*Z, in the smallest unsigned type that can hold it."""
        codes = np.asarray(actions, np.int64) * self.n_values + self.encode(rewards)
        return codes.astype(np.min_scalar_type(self.n_arms * self.n_values - 1))

    def sample(
        self, contexts: Integer[Array, "n"], actions: Integer[Array, "n"], *, rng: np.random.Generator
    ) -> Float[Array, "n"]:
        rows = self._cumulative[contexts * self.n_arms + actions]
        index = (rng.random(len(rows))[:, None] >= rows).sum(axis=1)
        return self.values[index]

    def likelihood(self, actions: Shaped[Array, "n"], rewards: Shaped[Array, "n"]) -> Float[Array, "n M"]:
        """P(reward | context, arm) for every context."""
        return self.table[np.asarray(actions, np.int64) * self.n_values + self.encode(rewards)]

    def log_likelihood(self, actions: Shaped[Array, "n"], rewards: Shaped[Array, "n"]) -> Float[Array, "n M"]:
        """The logarithm of `likelihood`; -inf where that is zero."""
        with np.errstate(divide="ignore"):
            return np.log(self.likelihood(actions, rewards))

    def evidence(self, actions: Shaped[Array, "n"], rewards: Shaped[Array, "n"]) -> Float[Array, "n M"]:
        """The likelihood up to one factor per row; a belief needs no more."""
        return self.likelihood(actions, rewards)

    def distances(self, other: Categorical) -> Float[Array, "M K"]:
        """max over arms of the L1 distance between reward distributions, for every pair of contexts."""
        values = np.union1d(self.values, other.values)
        mine, theirs = self._on(values), other._on(values)
        return np.stack([np.abs(mine - context).sum(axis=2).max(axis=1) for context in theirs], axis=1)

    def _on(self, values: Float[Array, "Y"]) -> Float[Array, "M A Y"]:
        """The same probabilities on a larger set of values."""
        wide = np.zeros((self.n_contexts, self.n_arms, len(values)))
        wide[:, :, np.searchsorted(values, self.values)] = self.probabilities
        return wide

    def relabel(self, contexts: Sequence[int] | None = None, arms: Sequence[int] | None = None) -> Categorical:
        """Context i of the result is context `contexts[i]` of this one; the same for arms."""
        return Categorical(_take(self.probabilities, contexts, arms), self.values, self.edges)

    def with_arms(self, count: int, weights: Float[Array, "M"], law: Any = None) -> Categorical:
        """These arms and `count` new ones, which have the probabilities `law` (Z,) in every context."""
        if law is None:
            average = np.einsum("m,maz->z", weights, self.probabilities)
            law = average / average.sum()
        one = check_distribution("law", check_array("law", law, ndim=1))
        if len(one) != self.n_values:
            raise InvalidArgument(f"law must hold the probability of each of {self.n_values} values, got {len(one)}")
        new = np.broadcast_to(one, (self.n_contexts, count, self.n_values))
        return Categorical(np.concatenate([self.probabilities, new], axis=1), self.values, self.edges)

    def record(self) -> Record:
        arrays = {"probabilities": self.probabilities, "values": self.values}
        return Record("categorical", arrays=arrays if self.edges is None else {**arrays, "edges": self.edges})


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
    def n_contexts(self) -> int:
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

    def channel(self, weights: Float[Array, "M"], bins: int) -> Channel:
        """Rewards cut into `bins` bins per arm, at quantiles of their mixture over the contexts.

        A bin tells less than the reward, so a plan earns at least as much from rewards as from bins.
        """
        halves = self._quantiles(weights, 2 * bins)  # edges, and between them the rewards of the bins
        return Channel(self._bin_table(halves[:, 1::2]), halves[:, ::2], halves[:, 1::2])

    def _quantiles(self, weights: Float[Array, "M"], parts: int) -> Float[Array, "A E"]:
        """parts - 1 quantiles of every arm's rewards over all contexts, by bisection."""
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
        """Row a*Z + z: probability of bin z of arm a in every context."""
        from scipy.special import ndtr

        below = ndtr((edges[:, :, None] - self.means.T[:, None, :]) / self.scale)
        shape = (len(below), 1, below.shape[2])
        cumulative = np.concatenate([np.zeros(shape), below, np.ones(shape)], axis=1)
        return np.ascontiguousarray(np.diff(cumulative, axis=1).reshape(-1, self.n_contexts))

    def joined(self, others: Sequence[Gaussian]) -> Gaussian:
        """These contexts and those of `others`, one after another; the scale is the mean of the scales."""
        every = (self, *others)
        return Gaussian(np.concatenate([each.means for each in every]), float(np.mean([each.scale for each in every])))

    def floored(self, least: float, values: Sequence[float] | None = None) -> Gaussian:
        """The same rewards, because no normal reward is impossible."""
        return self

    def __str__(self) -> str:
        return f"normal rewards with scale {self.scale:g}"

    def sample(
        self, contexts: Integer[Array, "n"], actions: Integer[Array, "n"], *, rng: np.random.Generator
    ) -> Float[Array, "n"]:
        return self.means[contexts, actions] + self.scale * rng.standard_normal(len(contexts))

    def likelihood(self, actions: Shaped[Array, "n"], rewards: Shaped[Array, "n"]) -> Float[Array, "n M"]:
        """Density of the reward in every context."""
        return np.exp(self.log_likelihood(actions, rewards))

    def log_likelihood(self, actions: Shaped[Array, "n"], rewards: Shaped[Array, "n"]) -> Float[Array, "n M"]:
        """Log density of the reward in every context."""
        deviation = (np.asarray(rewards, np.float64)[:, None] - self.means.T[actions]) / self.scale
        return -0.5 * deviation**2 - np.log(self.scale * np.sqrt(2 * np.pi))

    def evidence(self, actions: Shaped[Array, "n"], rewards: Shaped[Array, "n"]) -> Float[Array, "n M"]:
        """The density up to one factor per row, so that a reward far from every mean still tells contexts apart."""
        logs = self.log_likelihood(actions, rewards)
        return np.exp(logs - logs.max(axis=1, keepdims=True))

    def distances(self, other: Gaussian) -> Float[Array, "M K"]:
        """max over arms of the difference of means (plus that of the scales), for every pair of contexts."""
        gaps = np.stack([np.abs(self.means - context).max(axis=1) for context in other.means], axis=1)
        return gaps + abs(self.scale - other.scale)

    def relabel(self, contexts: Sequence[int] | None = None, arms: Sequence[int] | None = None) -> Gaussian:
        """Context i of the result is context `contexts[i]` of this one; the same for arms."""
        return Gaussian(_take(self.means, contexts, arms), self.scale)

    def with_arms(self, count: int, weights: Float[Array, "M"], law: Any = None) -> Gaussian:
        """These arms and `count` new ones, which have the mean `law` in every context."""
        mean = check_array("law", [weights @ self.means.mean(axis=1) if law is None else law], ndim=1)
        return Gaussian(np.hstack([self.means, np.full((self.n_contexts, count), mean[0])]), self.scale)

    def record(self) -> Record:
        return Record("gaussian", fields={"scale": self.scale.hex()}, arrays={"means": self.means})


MAX_VALUES = 32  # distinct rewards up to which they are taken as categories
_CHUNK = 1 << 20  # rewards whose distinct values are collected at once


def distinct_values(rewards: Float[Array, "S"], *, limited: bool) -> Float[Array, "Z"]:
    """The distinct rewards, sorted; more than 32 raise where `limited`, because the caller must say what they are."""
    values = np.empty(0)
    for start in range(0, len(rewards), _CHUNK):
        values = np.union1d(values, rewards[start : start + _CHUNK])
        if limited and len(values) > MAX_VALUES:
            raise InvalidArgument(
                f"rewards must be named where the log holds more than {MAX_VALUES} distinct rewards: "
                f"rewards='binned' for amounts such as money or seconds, rewards='gaussian' for measurements around a "
                f"mean, rewards='categorical' for categories; got None"
            )
    return values


def index_among(
    values: Float[Array, "Z"], rewards: Shaped[Array, "n"], *, first_step: int = 0, others: bool = False
) -> Integer[Array, "n"]:
    """The index of each reward among `values`; only this function turns rewards into indices.

    Another reward raises an error that names its step, counted from `first_step`; with `others` it gets the index Z.

    Examples:
        >>> import numpy as np
        >>> index_among(np.array([0.0, 1.0]), np.array([1.0, 0.5]), others=True)
        array([1, 2])
    """
    order = np.argsort(values)
    index = order[np.minimum(np.searchsorted(values, rewards, sorter=order), len(values) - 1)]
    wrong = values[index] != rewards
    if others:
        return np.where(wrong, len(values), index)
    if wrong.any():
        first = int(np.flatnonzero(wrong)[0])
        raise InvalidArgument(
            f"rewards must be among the values {values.tolist()}, got {rewards[first]} at step {first_step + first}"
        )
    return index


def restore(record: Record) -> Categorical | Gaussian:
    """The family that `record` describes."""
    if record.kind == "categorical":
        return Categorical(record.arrays["probabilities"], record.arrays["values"], record.arrays.get("edges"))
    if record.kind == "gaussian":
        return Gaussian(record.arrays["means"], float.fromhex(record.fields["scale"]))
    raise InvalidArgument(f"rewards must be 'categorical' or 'gaussian', got {record.kind!r}")


def _take(array: Array, contexts: Sequence[int] | None, arms: Sequence[int] | None) -> Array:
    if contexts is not None:
        array = array[permutation("contexts", contexts, array.shape[0])]
    if arms is not None:
        array = array[:, permutation("arms", arms, array.shape[1])]
    return array


def permutation(name: str, order: Sequence[int], size: int) -> Integer[Array, "n"]:
    """`order` as an index array; raises unless it is a permutation of range(size)."""
    array = np.asarray(order)
    if array.shape != (size,) or not np.array_equal(np.sort(array), np.arange(size)):
        raise InvalidArgument(f"{name} must be a permutation of 0..{size - 1}, got {list(order)!r}")
    return array.astype(np.intp)
