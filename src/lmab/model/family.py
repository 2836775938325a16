"""Rewards: what every reward family offers, for M types and A arms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np

from .._shapes import Array, Float, Integer, Shaped
from ..errors import InvalidArgument
from ..files import Record


class Channel(NamedTuple):
    """The finitely many outcomes that a session can see when it plays an arm."""

    table: Float[Array, "D M"]  # row a*Z + z: probability of outcome z of arm a in every type
    rewards: Float[Array, "A Z"]  # a reward that stands for each outcome
    edges: Float[Array, "A E"] | None  # between the outcomes of continuous rewards; None: outcomes are the rewards


class Rewards(Protocol):
    """The methods and fields of every reward family, for M types and A arms."""

    family: ClassVar[str]  # the name in `lmab.fit(rewards=...)`
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
    def n_types(self) -> int: ...
    @property
    def n_arms(self) -> int: ...
    @property
    def n_parameters(self) -> int: ...
    def sample(
        self, types: Integer[Array, "n"], arms: Integer[Array, "n"], *, rng: np.random.Generator
    ) -> Float[Array, "n"]: ...
    def likelihood(self, arms: Shaped[Array, "n"], rewards: Shaped[Array, "n"]) -> Float[Array, "n M"]: ...
    def log_likelihood(self, arms: Shaped[Array, "n"], rewards: Shaped[Array, "n"]) -> Float[Array, "n M"]: ...
    def evidence(self, arms: Shaped[Array, "n"], rewards: Shaped[Array, "n"]) -> Float[Array, "n M"]: ...
    def distances(self, other: Any) -> Float[Array, "M K"]: ...
    def relabel(self, types: Any = None, arms: Any = None) -> Self: ...
    def with_arms(self, count: int, weights: Float[Array, "M"], law: Any = None) -> Self: ...
    def record(self) -> Record: ...


def take(array: Array, types: Sequence[int] | None, arms: Sequence[int] | None) -> Array:
    """The array (M, A, ...) with its types and arms in another order; None: as they are."""
    if types is not None:
        array = array[permutation("types", types, array.shape[0])]
    if arms is not None:
        array = array[:, permutation("arms", arms, array.shape[1])]
    return array


def permutation(name: str, order: Sequence[int], size: int) -> Integer[Array, "n"]:
    """`order` as an index array; raises unless it is a permutation of range(size)."""
    array = np.asarray(order)
    if array.shape != (size,) or not np.array_equal(np.sort(array), np.arange(size)):
        raise InvalidArgument(f"{name} must be a permutation of 0..{size - 1}, got {list(order)!r}")
    return array.astype(np.intp)
