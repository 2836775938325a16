"""Rewards: what every reward family offers, for M types and A arms, and the values that rewards take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np

from .._shapes import Array, Float, Integer, Shaped
from ..errors import InvalidArgument
from ..files import Record

MAX_VALUES = 32  # distinct rewards up to which they are taken as categories
_CHUNK = 1 << 20  # rewards whose distinct values are collected at once


class Channel(NamedTuple):
    """The finitely many outcomes that a session can see when it plays an arm."""

    table: Float[Array, "D M"]  # row a*Z + z: probability of outcome z of arm a in every type
    rewards: Float[Array, "A Z"]  # a reward that stands for each outcome
    edges: Float[Array, "A E"] | None  # between the outcomes of continuous rewards; None: outcomes are the rewards


class Rewards(Protocol):
    """The methods and fields of every reward family, for M types and A arms."""

    family: ClassVar[str]  # the name in `lmab.fit(rewards=...)`
    discrete: ClassVar[bool]  # rewards take finitely many values
    by_value: ClassVar[bool]  # a type is a probability of every value of an arm; otherwise a mean of every arm

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
    def quantile(
        self, types: Integer[Array, "n"], arms: Integer[Array, "n"], shares: Float[Array, "n"]
    ) -> Float[Array, "n"]: ...
    def cuts(self, n: int) -> Float[Array, "n"] | None: ...  # n quantiles of all rewards; None: finitely many values
    def below(self, edges: Float[Array, "E"]) -> Float[Array, "M A E"]: ...  # the chance of a reward below each edge
    def recentred(self, drawn: Sequence[Self]) -> Sequence[Self]: ...
    @classmethod
    def from_record(cls, record: Record) -> Self: ...
    def distances(self, other: Any) -> Float[Array, "M K"]: ...
    def relabel(self, types: Any = None, arms: Any = None) -> Self: ...
    def only_arms(self, arms: Sequence[int]) -> Self: ...
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


def distinct_values(rewards: Float[Array, "S"] | Iterable[Float[Array, "_"]], *, limited: bool) -> Float[Array, "Z"]:
    """The distinct rewards, sorted; more than 32 raise where `limited`, because the caller must say what they are.

    Rewards may come in pieces, so that not all of them are in memory.
    """
    values = np.empty(0)
    pieces = [rewards] if isinstance(rewards, np.ndarray) else rewards
    for part in (piece[start : start + _CHUNK] for piece in pieces for start in range(0, len(piece), _CHUNK)):
        values = np.union1d(values, part)
        if limited and len(values) > MAX_VALUES:
            raise InvalidArgument(
                f"rewards must be named where the log holds more than {MAX_VALUES} distinct rewards: "
                f"rewards='binned' for amounts such as money or seconds, rewards='counts' for counts such as items or "
                f"pages, rewards='gaussian' for measurements around a mean, rewards='categorical' for categories; got "
                f"None"
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
