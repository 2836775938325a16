"""Checks of arguments: constraints as data, one validator and one wording for all messages.

A constraint tests a value, and its text is the requirement in messages. Every message reads
`NAME must be REQUIREMENT, got VALUE`.
"""

from __future__ import annotations

import math
import os
import stat
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ._shapes import Array
from .errors import InvalidArgument, InvalidFile

Rng = np.random.Generator | int  # a source of randomness: a generator, or the seed of one


class Constraint(Protocol):
    """Requirement on a value; `str(constraint)` is its text in messages."""

    def holds(self, value: Any) -> bool: ...


@dataclass(frozen=True)
class Count:
    """An integer of at least `minimum`."""

    minimum: int = 1

    def holds(self, value: Any) -> bool:
        value = whole(value)
        return bool(isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= self.minimum)

    def __str__(self) -> str:
        return f"an integer of at least {self.minimum}"


@dataclass(frozen=True)
class Number:
    """A finite number in an interval, which includes its lower end only if `closed`."""

    low: float = 0.0
    high: float = math.inf
    closed: bool = False

    def holds(self, value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
            return False
        return bool((self.low <= value if self.closed else self.low < value) and value < self.high)

    def __str__(self) -> str:
        if math.isfinite(self.high):
            return f"a number between {self.low:g} and {self.high:g}"
        if self.closed:
            return f"a finite number of at least {self.low:g}"
        return "a positive number" if self.low == 0 else f"a finite number above {self.low:g}"


@dataclass(frozen=True)
class OneOf:
    """One of a few names."""

    names: Sequence[str]

    def holds(self, value: Any) -> bool:
        return isinstance(value, str) and value in self.names

    def __str__(self) -> str:
        return choices(self.names)


@dataclass(frozen=True)
class Or:
    """One constraint or another."""

    first: Constraint
    second: Constraint

    def holds(self, value: Any) -> bool:
        return self.first.holds(value) or self.second.holds(value)

    def __str__(self) -> str:
        return f"{self.first} or {self.second}"


@dataclass(frozen=True)
class Nothing:
    """None."""

    def holds(self, value: Any) -> bool:
        return value is None

    def __str__(self) -> str:
        return "None"


COUNT = Count()
POSITIVE = Number()
NOT_NEGATIVE = Number(closed=True)
FRACTION = Number(high=1.0)  # strictly between 0 and 1


def whole(value: Any) -> Any:
    """Return a float without a fraction as an int, because R passes integers as floats; anything else as it is.

    Examples:
        >>> whole(6.0), whole(6.5)
        (6, 6.5)
    """
    return int(value) if isinstance(value, float | np.floating) and float(value).is_integer() else value


def whole_array(values: Array) -> Array:
    """Return an array of floats without fractions as integers; any other array as it is."""
    if values.dtype.kind != "f" or not np.isfinite(values).all() or (values != np.floor(values)).any():
        return values
    return values.astype(np.int64)


def optional(constraint: Constraint) -> Or:
    """Return a constraint that also accepts None."""
    return Or(constraint, Nothing())


def check(name: str, value: Any, constraint: Constraint) -> Any:
    """Return `value`, or raise an error with the argument, the requirement and the value if it is not met."""
    if not constraint.holds(value):
        raise InvalidArgument(f"{name} must be {constraint}, got {value!r}")
    return whole(value) if _is_count(constraint, value) else value


def _is_count(constraint: Constraint, value: Any) -> bool:
    """Return whether the value meets a constraint because it is an integer."""
    if isinstance(constraint, Or):
        return _is_count(constraint.first if constraint.first.holds(value) else constraint.second, value)
    return isinstance(constraint, Count)


def check_fields(configuration: Any, constraints: Mapping[str, Constraint]) -> None:
    """Check the named fields of a configuration when it is made; floats that stand for integers become integers."""
    for name, constraint in constraints.items():
        value = getattr(configuration, name)
        checked = check(name, value, constraint)
        if checked is not value:
            object.__setattr__(configuration, name, checked)


def check_count(name: str, value: Any, *, minimum: int = 1) -> int:
    """Return `value` as an int of at least `minimum`, or raise."""
    return int(check(name, value, Count(minimum)))


def check_rng(rng: Any, why: str) -> np.random.Generator:
    """Return the given generator, or a generator with the given seed; no other function makes generators from seeds."""
    if isinstance(rng, np.random.Generator):
        return rng
    if Count(0).holds(rng):
        return np.random.default_rng(int(rng))
    if rng is None:
        raise InvalidArgument(f"rng must be given, because {why}: a seed such as rng=0, or a numpy.random.Generator")
    raise InvalidArgument(f"rng must be a numpy.random.Generator or an integer seed ({why}), got {rng!r}")


def check_array(name: str, value: Any, *, ndim: int) -> Array:
    """Return a read-only, contiguous float64 copy of `value` with `ndim` axes and finite entries."""
    try:
        array = np.array(value, dtype=np.float64, order="C")
    except (TypeError, ValueError):
        raise InvalidArgument(f"{name} must be an array of numbers, got {_short(value)}") from None
    if array.ndim != ndim or array.size == 0:
        raise InvalidArgument(f"{name} must be a non-empty array with {ndim} axes, got shape {array.shape}")
    bad = ~np.isfinite(array)
    if bad.any():
        index = tuple(int(i) for i in np.argwhere(bad)[0])
        raise InvalidArgument(f"{name} must be finite, got {array[index]} at index {index}")
    array.flags.writeable = False
    return array


def check_distribution(name: str, array: Array) -> Array:
    """Require non-negative entries that sum to 1 along the last axis (to 1e-8)."""
    if (array < 0).any() or (array > 1 + 1e-8).any():
        index = tuple(int(i) for i in np.argwhere((array < 0) | (array > 1 + 1e-8))[0])
        raise InvalidArgument(f"{name} must lie in [0, 1], got {array[index]} at index {index}")
    total = array.sum(axis=-1)
    wrong = np.abs(total - 1) > 1e-8
    if wrong.any():
        index = tuple(int(i) for i in np.argwhere(wrong)[0])
        position = f" at index {index}" if index else ""
        raise InvalidArgument(f"{name} must sum to 1 along the last axis, got {total[index]}{position}")
    return array


def check_same_length(name: str, *parts: Sequence[Any] | Array) -> None:
    """Raise unless all parts have as many entries."""
    lengths = [len(part) for part in parts]
    if len(set(lengths)) > 1:
        raise InvalidArgument(f"the parts of {name} must have the same length, got {lengths}")


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise if a file at `path` cannot be written or replaced; called before work, so that none is lost."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise InvalidFile(f"{os.fspath(path)}: cannot write here: the folder {folder} does not exist")
    if os.path.isdir(path):
        raise InvalidFile(f"{os.fspath(path)}: cannot write here: this is a folder")
    if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
        raise InvalidFile(f"{os.fspath(path)}: cannot write here: this is a device or a pipe; give an ordinary file")
    try:
        handle, probe = tempfile.mkstemp(dir=folder, prefix=".lmab-")
    except OSError as error:
        raise InvalidFile(f"{os.fspath(path)}: cannot write here: {error.strerror}") from None
    os.close(handle)
    os.unlink(probe)


def choices(options: Sequence[str]) -> str:
    """Return quoted options for a message, such as `'a', 'b' or 'c'`."""
    quoted = [repr(option) for option in options]
    return quoted[0] if len(quoted) == 1 else ", ".join(quoted[:-1]) + " or " + quoted[-1]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
