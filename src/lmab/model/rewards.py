"""Interface of the reward families, for M types and A arms, and the mapping of reward values to indices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np

from .._shapes import Array, Float, Integer, Shaped
from ..errors import InvalidArgument
from ..files import Record

MAX_VALUES = 32  # maximum number of distinct rewards that are taken as categories
_CHUNK = 1 << 20  # number of rewards per chunk when distinct values are collected


class Channel(NamedTuple):
    """Observation model with finitely many outcomes of each arm."""

    table: Float[Array, "D M"]  # row a*Z + z: probability of outcome z of arm a in every type
    rewards: Float[Array, "A Z"]  # representative reward of each outcome
    edges: (
        Float[Array, "A E"] | None
    )  # edges between the outcomes of continuous rewards; None if the outcomes are the rewards


class Rewards(Protocol):
    """Methods and fields of every reward family, for M types and A arms."""

    family: ClassVar[str]  # the name in `lmab.fit(rewards=...)`
    discrete: ClassVar[bool]  # rewards take finitely many values
    by_value: ClassVar[bool]  # the parameters of a type are probabilities of values; otherwise means

    @property
    def values(self) -> Float[Array, "Z"] | None: ...  # None if rewards are continuous
    @property
    def spread(self) -> float: ...  # scale of the rewards: the range of the values, or a standard deviation
    @property
    def support(self) -> tuple[float, float]: ...  # the lowest and the highest possible reward
    def channel(self, weights: Float[Array, "M"], bins: int, edges: Float[Array, "A E"] | None = None) -> Channel: ...
    def floored(self, least: float, values: Sequence[float] | None = None) -> Self: ...
    def joined(self, others: Sequence[Self]) -> Self: ...
    def tilted(self, effect: float) -> Self: ...  # p(z) becomes proportional to p(z) exp(effect z)
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
    def cuts(
        self, n: int
    ) -> Float[Array, "n"] | None: ...  # n quantiles of all rewards; None if there are finitely many values
    def below(
        self, edges: Float[Array, "E"]
    ) -> Float[Array, "M A E"]: ...  # the probability of a reward below each edge
    def recentred(self, drawn: Sequence[Self]) -> Sequence[Self]: ...
    @classmethod
    def from_record(cls, record: Record) -> Self: ...
    def distances(self, other: Any) -> Float[Array, "M K"]: ...
    def relabel(self, types: Any = None, arms: Any = None) -> Self: ...
    def only_arms(self, arms: Sequence[int]) -> Self: ...
    def with_arms(self, count: int, weights: Float[Array, "M"], law: Any = None) -> Self: ...
    def record(self) -> Record: ...


def take(array: Array, types: Sequence[int] | None, arms: Sequence[int] | None) -> Array:
    """Return the array (M, A, ...) with its types and arms in another order; None means the same order."""
    if types is not None:
        array = array[permutation("types", types, array.shape[0])]
    if arms is not None:
        array = array[:, permutation("arms", arms, array.shape[1])]
    return array


def permutation(name: str, order: Sequence[int], size: int) -> Integer[Array, "n"]:
    """Return `order` as an index array; raise unless it is a permutation of range(size)."""
    array = np.asarray(order)
    if array.shape != (size,) or not np.array_equal(np.sort(array), np.arange(size)):
        raise InvalidArgument(f"{name} must be a permutation of 0..{size - 1}, got {list(order)!r}")
    return array.astype(np.intp)


def distinct_values(rewards: Float[Array, "S"] | Iterable[Float[Array, "_"]], *, limited: bool) -> Float[Array, "Z"]:
    """Return the distinct rewards, sorted; raise if there are more than 32 and `limited`, since the family is then
    unclear.

    Rewards may come in pieces, so that they need not all be in memory.
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


def encode_values(
    values: Float[Array, "Z"], rewards: Shaped[Array, "n"], *, first_step: int = 0, others: bool = False
) -> Integer[Array, "n"]:
    """Return the index of each reward among `values`; all other code gets indices of rewards from this function.

    For another reward, raise an error with its step, counted from `first_step`; with `others`, return the index Z
    instead.

    Examples:
        >>> import numpy as np
        >>> encode_values(np.array([0.0, 1.0]), np.array([1.0, 0.5]), others=True)
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
