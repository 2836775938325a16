"""The columns of `Episodes` from batches of rows, and back; every check that a log must pass is here.

Every input (pandas, polars, pyarrow, Parquet, CSV) is a stream of pyarrow record batches. Each batch is turned into
numbers at once: arms and ids given as text become codes of a growing dictionary, so that no text is kept twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from .._shapes import Array, Float, Integer, Shaped
from ..errors import InvalidData
from . import log_files as logfiles
from .columns import Column, Labels
from .log_files import Columns


class Log(NamedTuple):
    """The columns of `Episodes`, in the same order; `Episodes` describes them."""

    actions: Integer[Array, "S"]
    rewards: Float[Array, "S"]
    offsets: Integer[Array, "N1"]
    n_arms: int
    propensities: Float[Array, "S"] | None
    arm_labels: Labels | None


def table(frame: Any, columns: Columns) -> Any:
    """The named columns of any data frame, as a pyarrow table."""
    import narwhals as nw
    import pyarrow as pa

    try:
        native = nw.from_native(frame, eager_only=True)
    except TypeError:
        raise InvalidData(f"frame must be a pandas, polars or pyarrow data frame, got {type(frame).__name__}") from None
    names = logfiles.require_columns(list(native.columns), columns)
    arrays = []
    for name in names:
        try:
            arrays.append(native.select(name).to_arrow().column(0))
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InvalidData(f"column {name!r} must hold values of one type: {error}") from None
    return pa.table(arrays, names=names)


def read(path: str | os.PathLike[str], columns: Columns, *, arm_labels: Labels | None = None) -> Log:
    """The episodes of a Parquet or CSV file, batch by batch."""
    with logfiles.opened(path, columns) as file:
        if file.note is None:
            return parse(file.batches, columns, arm_labels=arm_labels, untyped=logfiles.is_csv(path))
        noted = file.note["arm_labels"]
        labels = arm_labels or (None if noted is None else tuple(noted))
        return parse(file.batches, file.columns, arm_labels=labels, n_arms=file.note["n_arms"])


def parse(
    batches: Iterable[Any],
    columns: Columns,
    *,
    arm_labels: Labels | None = None,
    n_arms: int | None = None,
    untyped: bool = False,
) -> Log:
    """The episodes of record batches with one row per step."""
    gathered = {role: Column(name, role, untyped=untyped) for role, name in columns.items() if name is not None}
    gathered["action"].untyped &= arm_labels is None or isinstance(arm_labels[0], int)
    n_rows = 0
    for batch in batches:
        for column in gathered.values():
            column.add(batch.column(column.name), n_rows)
        n_rows += batch.num_rows
    if n_rows == 0:
        raise InvalidData("the log must have at least one row, got none")
    keys = gathered.pop("episode").ids()
    steps = gathered.pop("step").ids() if "step" in gathered else None
    order = _order(keys, steps, columns)
    del steps
    if order is not None:
        keys = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    offsets = np.append(starts, n_rows)
    del keys
    actions, labels = gathered.pop("action").arms(arm_labels)
    size = len(labels) if labels is not None else max(n_arms or 0, int(actions.max()) + 1)
    actions = actions if order is None else actions[order]
    rewards = gathered.pop("reward").numbers()
    rewards = rewards if order is None else rewards[order]
    propensities = gathered.pop("propensity").numbers() if "propensity" in gathered else None
    if propensities is not None and order is not None:
        propensities = propensities[order]
    return Log(actions, rewards, offsets, size, propensities, labels)


def write(path: str | os.PathLike[str], log: Log) -> None:
    """Write `log` as Parquet or CSV; a Parquet file also stores the table of labels and the number of arms."""
    import pyarrow as pa

    lengths = np.diff(log.offsets)
    arms: Any = pa.array(log.actions)
    if log.arm_labels is not None:
        arms = pa.DictionaryArray.from_arrays(arms, pa.array(log.arm_labels)).dictionary_decode()
    data = {
        "episode": np.repeat(np.arange(len(lengths)), lengths),
        "step": step_numbers(log.offsets),
        "action": arms,
        "reward": log.rewards,
    }
    if log.propensities is not None:
        data["propensity"] = log.propensities
    roles = {"step": "step"} | ({"propensity": "propensity"} if log.propensities is not None else {})
    labels = None if log.arm_labels is None else list(log.arm_labels)
    logfiles.write(path, pa.table(data), {"columns": roles, "n_arms": log.n_arms, "arm_labels": labels})


def step_numbers(offsets: Integer[Array, "N1"]) -> Integer[Array, "S"]:
    """The number of every step within its episode, from 0."""
    return np.arange(offsets[-1]) - np.repeat(offsets[:-1], np.diff(offsets))


def _order(keys: Shaped[Array, "S"], steps: Shaped[Array, "S"] | None, columns: Columns) -> Integer[Array, "S"] | None:
    """The permutation that sorts rows by episode and step; None where the rows are already in order."""
    rising = keys[1:] > keys[:-1]
    same = keys[1:] == keys[:-1]
    if steps is None:
        return None if bool((rising | same).all()) else np.argsort(keys, kind="stable")
    if bool((rising | (same & (steps[1:] > steps[:-1]))).all()):
        return None
    order = _sort_pairs(keys, steps)
    keys, steps = keys[order], steps[order]
    twice = (keys[1:] == keys[:-1]) & (steps[1:] == steps[:-1])
    if twice.any():
        row = int(np.maximum(order[1:], order[:-1])[twice].min())
        raise InvalidData(f"column {columns['step']!r} repeats a step of the same episode in row {row}")
    return order


def _sort_pairs(keys: Shaped[Array, "S"], steps: Shaped[Array, "S"]) -> Integer[Array, "S"]:
    """argsort by (key, step); where the pair fits into 64 bits, one integer sort, which is several times faster."""
    if keys.dtype.kind in "iu" and steps.dtype.kind in "iu":
        low_key, low_step = int(keys.min()), int(steps.min())
        width = int(steps.max()) - low_step + 1
        if (int(keys.max()) - low_key + 1) * width < 2**63:
            pairs = _above(keys, low_key)
            pairs *= width
            pairs += _above(steps, low_step)
            return np.argsort(pairs)
    return np.lexsort((steps, keys))


def _above(numbers: Integer[Array, "S"], low: int) -> Integer[Array, "S"]:
    """numbers - low: the difference fits into 64 bits even where the numbers do not."""
    wide = numbers if numbers.dtype.itemsize == 8 else numbers.astype(np.int64)
    return (wide - low).astype(np.int64)
