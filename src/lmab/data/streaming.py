"""Logs that are sorted by session are read in one pass into arrays that grow in place: no id is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from .._shapes import Array, Shaped
from ..errors import LmabError
from . import ingest, log_files
from .arm_numbers import arm_numbers, by_place
from .ingest import Log, Options
from .log_files import Paths
from .naming import Columns
from .rows import Change, Dictionaries, Last, Way, beginnings, read_rows

_ROWS = 1 << 20  # rows for which arrays grow at least


class _Growing:
    """An array that grows in place, so that it is in memory once."""

    def __init__(self, dtype: type, n_rows: int) -> None:
        self._array: Array = np.empty(n_rows, dtype)
        self._size = 0

    def add(self, values: Shaped[Array, "n"]) -> None:
        end = self._size + len(values)
        if end > len(self._array):
            self._array.resize(max(end, len(self._array) + max(len(self._array) // 8, _ROWS)), refcheck=False)
        self._array[self._size : end] = values
        self._size = end

    def end(self) -> Shaped[Array, "s"]:
        self._array.resize(self._size, refcheck=False)
        return self._array


def read(paths: Paths, columns: Columns, options: Options) -> list[Log]:
    """What `ingest.read` gives, with less memory where the log allows it.

    Whatever is unusual about a log, errors included, is left to `ingest.read`.
    """
    files = log_files.listed(paths)
    way = Way(listed=False)
    for _ in range(2):
        try:
            return [_sorted(files, columns, options, way)]
        except Change as change:
            if change.changes != {"small_arms": False}:
                break
            way = replace(way, small_arms=False)
        except LmabError:
            break
    return ingest.read(paths, columns, options)


def _sorted(files: Sequence[Path], columns: Columns, options: Options, way: Way) -> Log:
    notes = ingest.notes_of(files, columns, options)
    untyped = any(log_files.is_text(path) for path in files)
    expected = 0 if untyped else sum(log_files.rows_of(path) for path in files if log_files.kind_of(path) == "Parquet")
    labels, least = ingest.known_labels(notes, options)
    known, ties = Dictionaries(), 0
    last: Last | None = None
    arms, rewards, starts = _Growing(np.int32, expected), _Growing(np.float64, expected), _Growing(np.int64, 0)
    own = _Growing(np.float64, 0)
    has_own = False
    for rows in read_rows(files, notes, columns, options, way, known, 0):
        fresh, tied, last = beginnings(rows, last)
        ties += int(tied.sum())
        arms.add(rows.arms)
        rewards.add(rows.rewards)
        starts.add(rows.first + np.flatnonzero(fresh))
        has_own = rows.propensities is not None
        if rows.propensities is not None:
            own.add(rows.propensities)
    if last is None:
        raise Change(split=True)  # no rows: said elsewhere
    numbers, n_arms, labels = arm_numbers(known.arms, labels, least, str(columns["arm"]), untyped=untyped)
    found = _renumbered(arms.end(), known, numbers, way)
    starts.add(np.array([len(found)]))
    step = notes[0].columns.get("step") if notes else columns.get("step")
    ingest.tell_ties(ties, step)
    log = Log(found, rewards.end(), starts.end(), n_arms, own.end() if has_own else None, labels)
    return ingest.finished(log, columns, options)


def _renumbered(
    places: Shaped[Array, "s"], known: Dictionaries, numbers: Shaped[Array, "a"], way: Way
) -> Shaped[Array, "s"]:
    """Arms by their numbers, in place."""
    table = by_place(known.arms, numbers) if way.small_arms else numbers  # type: ignore[arg-type]
    if not np.array_equal(table, np.arange(len(table))):
        for start in range(0, len(places), _ROWS):
            chunk = places[start : start + _ROWS]
            chunk[:] = table[chunk]
    return places
