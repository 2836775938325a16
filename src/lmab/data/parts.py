"""Parts of one log that come from several places, with the same arms and columns, and a packed log that is replaced.

The parts go through `lmab.pack` one after the other, so that they never are in memory together.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .._shapes import Array, Float, Integer, Shaped
from .features import STRANGER, Features
from .packed import Packed, is_packed
from .packing import pack
from .sessions import Sessions

CHUNK = 50_000  # sessions that are in memory together


class Parts(Iterable[Sessions]):
    """Parts that can be iterated over again, which packing needs if rewards have very many values."""

    def __init__(self, parts: Callable[[], Iterator[Sessions]]) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[Sessions]:
        return self._parts()


@dataclass(frozen=True)
class Layout:
    """Arms and columns that all parts of a log share."""

    labels: tuple[str | int, ...]
    columns: Mapping[str, bool] = field(default_factory=dict)  # features, and whether they are text
    persons: bool = False  # whether the log has persons, as integers

    def sessions(
        self, arms: Integer[Array, "S"], rewards: Float[Array, "S"], offsets: Integer[Array, "N1"], *,
        propensities: Float[Array, "S"] | None = None, features: Mapping[str, Any] | None = None,
        persons: Integer[Array, "N"] | None = None,
    ) -> Sessions:  # fmt: skip
        """Return sessions with the arms and columns of all parts; what is not given is missing in every session."""
        n, given = len(offsets) - 1, features or {}
        columns = {name: column_of(given.get(name, [None] * n), text) for name, text in self.columns.items()}
        labels = None if self.labels == tuple(range(len(self.labels))) else self.labels
        known = Features.of(columns, n) if columns else None
        own = (np.full(n, STRANGER) if persons is None else persons) if self.persons else None
        return Sessions(arms, rewards, offsets, len(self.labels), propensities, labels, known, own)

    def of(self, log: Sessions | Packed) -> Iterator[Sessions]:
        """Yield a log in parts, with arms matched by the text of their labels; steps of other arms are left out."""
        numbers = {str(label): place for place, label in enumerate(self.labels)}
        for chunk in log.chunks(CHUNK):
            names = chunk.arm_labels or tuple(range(chunk.n_arms))
            places = np.array([numbers.get(str(name), -1) for name in names], np.int32)
            known = np.flatnonzero(places >= 0)
            if chunk.plays[known].any():
                part = chunk.only_arms(known)
                arms = places[known][part.arms]
                yield self.sessions(arms, part.rewards, part.offsets, features=part.features, persons=part.persons)


def as_text(value: str | float) -> str:
    """Return the text of a value of a column that has texts for some sessions and numbers for others."""
    if isinstance(value, str):
        return value
    return str(int(value)) if value == int(value) else repr(float(value))


def column_of(values: Iterable[Any], text: bool) -> Shaped[Array, "n"]:
    """Return a column of text or of numbers; numbers among texts are text.

    Examples:
        >>> column_of([3.0, "x", None], text=True).tolist()
        ['3', 'x', None]
        >>> column_of([3, None], text=False).tolist()
        [3.0, nan]
    """
    listed = [None if value is None or value != value else value for value in values]
    if text:
        return np.array([None if value is None else as_text(value) for value in listed], object)
    return np.array([math.nan if value is None else value for value in listed], np.float64)


def plays_twice(sessions: Sessions | Packed) -> bool:
    """Return whether some session plays an arm twice."""
    for part in sessions.chunks(CHUNK):
        keys = np.repeat(np.arange(len(part)), part.lengths) * part.n_arms + part.arms
        if len(np.unique(keys)) < len(keys):
            return True
    return False


def replace_packed(parts: Parts, folder: Path) -> Packed:
    """Pack beside a packed log, then put the new one in its place."""
    fresh, old = _beside(folder)
    for one in (fresh, old):
        shutil.rmtree(one, ignore_errors=True)
    fresh.mkdir(parents=True)
    pack(parts, fresh)
    if folder.exists():
        folder.rename(old)
    return opened(folder)  # type: ignore[return-value]  # it is there


def opened(folder: Path) -> Packed | None:
    """Return the packed log in a folder, also if a kill came while it was replaced; None if there is none."""
    fresh, old = _beside(folder)
    if not folder.exists() and is_packed(fresh):
        fresh.rename(folder)
    for one in (fresh, old):
        shutil.rmtree(one, ignore_errors=True)
    return Packed(folder) if is_packed(folder) else None


def _beside(folder: Path) -> tuple[Path, Path]:
    """Return where a new log is written and where the old one goes."""
    return folder.with_name(f".{folder.name}.new"), folder.with_name(f".{folder.name}.old")


def without_persons(folder: Path, persons: Iterable[int]) -> Packed | None:
    """Return the packed log in a folder after the sessions of some persons were removed from its files."""
    found = opened(folder)
    if found is None or found.persons is None:
        return found
    gone = np.isin(found.persons, list(persons))
    if not gone.any():
        return found
    if gone.all():
        shutil.rmtree(folder)
        return None
    kept = np.flatnonzero(~gone)
    return replace_packed(Parts(lambda: (found[kept[low : low + CHUNK]] for low in range(0, len(kept), CHUNK))), folder)
