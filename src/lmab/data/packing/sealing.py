"""Sealing: each unit of sessions becomes a partition of the packed log, with the final numbers of arms and values."""

from __future__ import annotations

import os
import zlib
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..._shapes import Array, Bool, Float, Integer, Shaped
from ..fingerprint import word_sums
from ..gaps import breaks, unit_of
from ..ingest import Options, dropped, step_numbers
from ..packed.manifest import Entry
from ..packed.partitions import CODES, LENGTHS, PROPENSITIES, REWARDS
from ..rows import MISSING
from .gathering import bucket
from .work import WORK, State


@dataclass(frozen=True, eq=False)
class Tables:
    """What places of the dictionaries become."""

    arms: Integer[Array, "a"]  # the number of the arm at each place
    n_arms: int
    values: Float[Array, "Z"] | None  # rising; None: rewards stay numbers
    places: Integer[Array, "v"]  # the number of the value at each place of the dictionary

    @property
    def n_codes(self) -> int:
        return self.n_arms * (1 if self.values is None else len(self.values))

    @property
    def code_type(self) -> np.dtype[Any]:
        wanted = np.min_scalar_type(max(self.n_codes - 1, 0))
        return np.dtype(wanted)

    @cached_property
    def codes(self) -> Shaped[Array, "a w"]:
        """The code of each pair of places."""
        if self.values is None:
            return self.arms[:, None].astype(self.code_type)
        return (self.arms[:, None] * len(self.values) + self.places).astype(self.code_type)


@dataclass
class Unit:
    """Whole sessions, with arms and rewards by their places."""

    lengths: Integer[Array, "n"]
    arms: Integer[Array, "s"]
    rewards: Shaped[Array, "s"]
    propensities: Float[Array, "s"] | None
    ties: int = 0  # rows with the same step as the row before

    def keep(self, kept: Bool[Array, "s"]) -> None:
        """Some of the steps; sessions that keep none are gone."""
        starts = np.cumsum(self.lengths) - self.lengths
        lengths = np.add.reduceat(kept.astype(np.int64), starts)
        self.lengths = lengths[lengths > 0]
        self.arms, self.rewards = self.arms[kept], self.rewards[kept]
        self.propensities = None if self.propensities is None else self.propensities[kept]


def read_unit(folder: Path, state: State, number: int, options: Options) -> Unit:
    """The sessions of a unit: as they were written, or those of a bucket, sorted."""
    unit = state.units[number]
    if not state.way.split:
        columns = {name: np.fromfile(folder / f"{number:05d}.{name}", np.dtype(kind)) for name, kind in unit.items()}
        return Unit(
            columns["lengths"].astype(np.int64), columns["arms"], columns["rewards"], columns.get("propensities")
        )
    if not unit["bytes"]:
        return Unit(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), None)
    rows = np.fromfile(bucket(folder, number), np.dtype([tuple(entry) for entry in unit["record"]]))
    names = rows.dtype.names or ()
    high, low = rows["high"], rows["low"]
    keys = (rows["step"], low, high) if "step" in names else (low, high)
    order = np.lexsort(keys)
    high, low = high[order], low[order]
    fresh = np.ones(len(rows), bool)
    fresh[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    ties = 0
    if "step" in names:
        steps = rows["step"][order]
        ties = int(((steps[1:] == steps[:-1]) & ~fresh[1:]).sum())
        if options.pause is not None:
            fresh = breaks(np.cumsum(fresh), steps, options.pause, _seconds(state, options))
    lengths = np.diff(np.append(np.flatnonzero(fresh), len(rows)))
    propensities = rows["propensity"][order] if "propensity" in names else None
    return Unit(lengths, rows["arm"][order], rows["reward"][order], propensities, ties)


def _seconds(state: State, options: Options) -> float:
    if state.known.seconds is not None:
        return state.known.seconds
    assert options.pause is not None
    return unit_of(np.array([state.known.latest]), options.pause)[0]


def remove_unit(folder: Path, state: State, number: int) -> None:
    """Give the space of a unit back."""
    names = [bucket(folder, number)]
    if not state.way.split:
        names = [folder / f"{number:05d}.{name}" for name in state.units[number]]
    for path in names:
        path.unlink(missing_ok=True)


def seal(target: Path, name: str, unit: Unit, tables: Tables, options: Options) -> dict[str, Any]:
    """Write the partition, and say what it holds."""
    if options.at_most is not None and len(unit.lengths):
        offsets = np.concatenate([[0], np.cumsum(unit.lengths)])
        unit.keep(step_numbers(offsets) < options.at_most)
    missing, n_missing = np.zeros(0, bool), 0
    if options.missing != "error":
        missing = unit.rewards == MISSING if tables.values is not None else np.isnan(unit.rewards)
        n_missing = int(missing.sum())
    before = len(unit.arms)
    if n_missing and options.missing == "zero":
        unit.rewards = np.where(missing, _place_of_zero(tables), unit.rewards)
    elif n_missing:
        starts = np.concatenate([[0], np.cumsum(unit.lengths)])
        unit.keep(~dropped(missing, starts, ends_session=unit.propensities is not None))
    told = {"ties": unit.ties, "missing": n_missing, "left_out": before - len(unit.arms)}
    if not len(unit.lengths):
        return {"entry": None, **told}
    return _write(target, name, unit, tables) | told


def _place_of_zero(tables: Tables) -> float | int:
    if tables.values is None:
        return 0.0
    return int(np.flatnonzero(tables.places == np.searchsorted(tables.values, 0.0))[0])


def _write(target: Path, name: str, unit: Unit, tables: Tables) -> dict[str, Any]:
    codes = _codes(unit, tables)
    lengths = unit.lengths.astype(np.min_scalar_type(int(unit.lengths.max())))
    columns: dict[str, Shaped[Array, "..."]] = {LENGTHS: lengths, CODES: codes}
    if tables.values is None:
        columns[REWARDS] = unit.rewards.astype(np.float64)
    if unit.propensities is not None:
        columns[PROPENSITIES] = unit.propensities
    files = {column: _write_file(target / f"{name}.{column}", array) for column, array in columns.items()}
    entry = Entry(name, len(lengths), len(codes), lengths.itemsize, files)
    found, counts = np.unique(lengths, return_counts=True)
    return {
        "entry": asdict(entry),
        "lengths": list(zip(found.tolist(), counts.tolist(), strict=True)),
        "checksum": f"{_checksum(unit, codes, tables):016x}",
        "cells": _tallied(target / WORK / f"{name}.cells", codes, tables.n_codes),
    }


def _codes(unit: Unit, tables: Tables) -> Shaped[Array, "s"]:
    """Arithmetic where places are numbers already, and a table elsewhere."""
    if tables.values is None:
        return tables.codes[:, 0][unit.arms]
    if not all(np.array_equal(table, np.arange(len(table))) for table in (tables.arms, tables.places)):
        return tables.codes[unit.arms, unit.rewards]
    codes = unit.arms.astype(tables.code_type)
    codes *= tables.code_type.type(len(tables.values) % 2 ** (8 * codes.itemsize))  # of one arm, whose number is 0
    codes += unit.rewards.astype(tables.code_type)
    return codes


def _tallied(path: Path, codes: Shaped[Array, "s"], n_codes: int) -> str:
    """Write how often each code occurs."""
    cells = np.zeros(n_codes, np.int64)
    for start in range(0, len(codes), 1 << 20):
        cells += np.bincount(codes[start : start + (1 << 20)], minlength=n_codes)
    cells.tofile(path)
    return path.name


def _checksum(unit: Unit, codes: Shaped[Array, "s"], tables: Tables) -> int:
    """The sum over sessions that `Fingerprint` makes of the same log in memory."""
    rewards = unit.rewards if tables.values is None else None
    return word_sums(codes, unit.lengths, tables.values, rewards)


def _write_file(path: Path, array: Shaped[Array, "..."]) -> tuple[int, int]:
    """Write a file as a whole; its bytes and checksum."""
    array = np.ascontiguousarray(array)
    temporary = path.with_name(path.name + ".partial")
    with open(temporary, "wb") as file:
        array.tofile(file)
    if os.path.getsize(temporary) != array.nbytes:
        raise OSError(f"{temporary} was not written as a whole")
    os.replace(temporary, path)
    return array.nbytes, zlib.crc32(array.data)
