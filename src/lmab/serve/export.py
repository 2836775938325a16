"""Logs from the store: Parquet files by day that `lmab fit` reads, and the same sessions in memory."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .._shapes import Array, Float
from ..data import Sessions
from ..errors import InvalidData
from .messages import Label

_DAY = 86_400.0
_LATE_DAYS = 2  # days that are written again, because late rewards may have come


@dataclass(frozen=True, eq=False)
class Log:
    """The sessions of the store: all rewarded steps, and those that an off-policy comparison can use."""

    sessions: Sessions  # every rewarded step
    began: Float[Array, "N"]
    whole: Sessions | None  # sessions up to their first step without a reward or propensity; None: there is none
    whole_began: Float[Array, "K"]
    unrewarded: int  # steps


def read_log(rows: Sequence[tuple[Any, ...]], arms: Sequence[Label], more: Sequence[int] = ()) -> Log:
    """The log of the rows that `Store.rows` gives; only arms that were played are in it, and those of `more`."""
    found = {row[2] for row in rows if row[3] is not None}
    if not found:
        raise InvalidData("the store must hold a rewarded step, got none")
    played = sorted(found | set(more))
    place = {number: index for index, number in enumerate(played)}
    labels = tuple(arms[number] for number in played)
    kept = [row for row in rows if row[3] is not None]
    whole = _prefixes(rows)
    sessions, began = _sessions(kept, place, labels, with_propensities=False)
    if not whole:
        return Log(sessions, began, None, np.empty(0), len(rows) - len(kept))
    return Log(sessions, began, *_sessions(whole, place, labels, with_propensities=True), len(rows) - len(kept))


def _prefixes(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The steps before the first one of their session that is missing, unrewarded or of unknown probability."""
    found, session, following = [], None, 0
    for row in rows:
        if row[0] != session:
            session, following = row[0], 0
        if row[1] == following and row[3] is not None and row[4] is not None:
            found.append(row)
            following += 1
        else:
            following = -1
    return found


def _sessions(
    rows: Sequence[tuple[Any, ...]], place: dict[int, int], labels: tuple[Label, ...], *, with_propensities: bool
) -> tuple[Sessions, Float[Array, "N"]]:
    starts = [i for i, row in enumerate(rows) if i == 0 or row[0] != rows[i - 1][0]]
    return (
        Sessions(
            np.array([place[row[2]] for row in rows], np.int32),
            np.array([row[3] for row in rows], np.float64),
            np.array([*starts, len(rows)], np.int64),
            len(labels),
            np.array([row[4] for row in rows], np.float64) if with_propensities else None,
            None if labels == tuple(range(len(labels))) else labels,
        ),
        np.array([rows[i][9] for i in starts]),
    )


def write_days(rows: Sequence[tuple[Any, ...]], arms: Sequence[Label], folder: Path) -> list[Path]:
    """One Parquet file for each day on which sessions began; older days that are there already stay as they are.

    Readers want one type of a column, so a number is a text as soon as one arm has a name. Days that were written
    before that are then written again.
    """
    import pyarrow as pa

    folder.mkdir(parents=True, exist_ok=True)
    kind = pa.int64() if all(isinstance(label, int) for label in arms) else pa.string()
    days: dict[int, list[tuple[Any, ...]]] = {}
    for row in rows:
        days.setdefault(int(row[9] // _DAY), []).append(row)
    written = []
    for day, part in sorted(days.items()):
        path = folder / f"{datetime.date(1970, 1, 1) + datetime.timedelta(days=day)}.parquet"
        if day > max(days) - _LATE_DAYS or not _holds(path, kind):
            _write_day(path, [row for row in part if row[3] is not None], arms, kind)
            written.append(path)
    return written


def _holds(path: Path, kind: Any) -> bool:
    """Whether a day is written already, with arms of this type."""
    import pyarrow.parquet as pq

    return path.exists() and bool(pq.read_schema(path).field("arm").type == kind)


def _write_day(path: Path, rewarded: Sequence[tuple[Any, ...]], arms: Sequence[Label], kind: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [arms[row[2]] for row in rewarded]
    columns = {
        "session": pa.array([row[0] for row in rewarded], pa.string()),
        "step": pa.array([row[1] for row in rewarded], pa.int32()),
        "arm": pa.array(names if kind == pa.int64() else [str(name) for name in names], kind),
        "reward": pa.array([row[3] for row in rewarded], pa.float64()),
        "propensity": pa.array([row[4] for row in rewarded], pa.float64()),
        "policy": pa.array([row[5] for row in rewarded], pa.string()),
    }
    temporary = path.with_suffix(".tmp")
    pq.write_table(pa.table(columns), temporary)
    temporary.replace(path)
