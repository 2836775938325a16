"""Errors of the package, and the few checks every door shares."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from ._shapes import Array


class LmabError(Exception):
    """Root of the package's own errors, so that a door can catch them all."""


class InvalidArgument(LmabError, ValueError):
    """An argument is not what the function needs: the message names it, the requirement and the value."""


class InvalidData(LmabError, ValueError):
    """A column of a log is not usable: the message names the column and the first offending row."""


class InvalidFile(LmabError, ValueError):
    """A file is not one of ours, is damaged, or comes from a newer version."""


class TooLarge(LmabError, ValueError):
    """An exact computation would need more states than the stated limit."""


class LmabWarning(UserWarning):
    """The result is valid, but less can be learned from the input than one may think: the message says why."""


def check_count(name: str, value: Any, *, minimum: int = 1) -> int:
    """Return `value` as an int, or raise naming the argument: it must be an integer >= minimum."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < minimum:
        raise InvalidArgument(f"{name} must be an integer of at least {minimum}, got {value!r}")
    return int(value)


def check_rng(rng: Any, why: str) -> np.random.Generator:
    """Return `rng`, or raise saying why a generator is needed."""
    if not isinstance(rng, np.random.Generator):
        raise InvalidArgument(f"rng must be a numpy.random.Generator ({why}), got {rng!r}")
    return rng


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
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise InvalidArgument(f"{name} must be finite, got {array[where]} at index {where}")
    array.flags.writeable = False
    return array


def check_distribution(name: str, array: Array) -> Array:
    """Require non-negative entries that sum to 1 along the last axis (to 1e-8)."""
    if (array < 0).any() or (array > 1 + 1e-8).any():
        where = tuple(int(i) for i in np.argwhere((array < 0) | (array > 1 + 1e-8))[0])
        raise InvalidArgument(f"{name} must lie in [0, 1], got {array[where]} at index {where}")
    total = array.sum(axis=-1)
    wrong = np.abs(total - 1) > 1e-8
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        at = f" at index {where}" if where else ""
        raise InvalidArgument(f"{name} must sum to 1 along the last axis, got {total[where]}{at}")
    return array


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise before any work is lost when `path` cannot be written."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise InvalidFile(f"{os.fspath(path)}: cannot write here: the folder {folder} does not exist")
    if os.path.isdir(path):
        raise InvalidFile(f"{os.fspath(path)}: cannot write here: this is a folder")
    try:
        handle, probe = tempfile.mkstemp(dir=folder, prefix=".lmab-")
    except OSError as error:
        raise InvalidFile(f"{os.fspath(path)}: cannot write here: {error.strerror}") from None
    os.close(handle)
    os.unlink(probe)


def choices(options: Sequence[str]) -> str:
    """`a, b or c`, for messages."""
    quoted = [repr(option) for option in options]
    return quoted[0] if len(quoted) == 1 else ", ".join(quoted[:-1]) + " or " + quoted[-1]


def first_line(error: BaseException) -> str:
    """What an error of another library says, in one line."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
