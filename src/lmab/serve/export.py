"""Logs from the store: Parquet files by day that `lmab fit` reads, and the same sessions in memory."""

from __future__ import annotations

import datetime
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .._shapes import Array, Float
from ..data.features import ENDED, LEFT, UNKNOWN, WENT_ON, Features, person_values
from ..data.sessions import Sessions
from ..errors import InvalidData
from .messages import Label, as_text
from .stores import GAP, LogRow, Store

_DAY = 86_400.0
_STATE = b"lmab.day"  # the key of a file's metadata that says what it holds


@dataclass(frozen=True, eq=False)
class ServedLog:
    """The sessions of the store: all rewarded steps, and those that an off-policy comparison can use."""

    sessions: Sessions  # every rewarded step
    began: Float[Array, "N"]
    whole: Sessions | None  # sessions up to their first step without a reward or propensity; None: there is none
    whole_began: Float[Array, "K"]
    unrewarded: int  # steps


def read_log(rows: Sequence[LogRow], arms: Sequence[Label], more: Sequence[int] = ()) -> ServedLog:
    """The log of the rows that `Store.rows` gives; only arms that were played are in it, and those of `more`."""
    found = {row.arm for row in rows if row.reward is not None}
    if not found:
        raise InvalidData("the store must hold a rewarded step, got none")
    played = sorted(found | set(more))
    place = {number: index for index, number in enumerate(played)}
    labels = tuple(arms[number] for number in played)
    kept = [row for row in rows if row.reward is not None]
    whole = _prefixes(rows)
    sessions, began = _sessions(kept, place, labels, with_propensities=False)
    if not whole:
        return ServedLog(sessions, began, None, np.empty(0), len(rows) - len(kept))
    return ServedLog(sessions, began, *_sessions(whole, place, labels, with_propensities=True), len(rows) - len(kept))


def _prefixes(rows: Sequence[LogRow]) -> list[LogRow]:
    """The steps before the first one of their session that is missing, unrewarded or of unknown probability."""
    found, session, following = [], None, 0
    for row in rows:
        if row.session != session:
            session, following = row.session, 0
        if row.step == following and row.reward is not None and row.propensity is not None:
            found.append(row)
            following += 1
        else:
            following = -1
    return found


def _sessions(
    rows: Sequence[LogRow], place: dict[int, int], labels: tuple[Label, ...], *, with_propensities: bool
) -> tuple[Sessions, Float[Array, "N"]]:
    starts = [i for i, row in enumerate(rows) if i == 0 or row.session != rows[i - 1].session]
    known = known_features([rows[i].features for i in starts])
    persons = [rows[i].person for i in starts]
    return (
        Sessions(
            np.array([place[row.arm] for row in rows], np.int32),
            np.array([row.reward for row in rows], np.float64),
            np.array([*starts, len(rows)], np.int64),
            len(labels),
            np.array([row.propensity for row in rows], np.float64) if with_propensities else None,
            None if labels == tuple(range(len(labels))) else labels,
            Features.of(known, len(starts)) if known else None,
            person_values(persons, len(starts)) if any(one is not None for one in persons) else None,
        ),
        np.array([rows[i].began for i in starts]),
    )


def known_features(rows: Sequence[str | None]) -> dict[str, list[Any]]:
    """What was known before sessions, by column; a column that has texts for some and numbers for others is text."""
    read: dict[str, dict[str, Any]] = {text: json.loads(text) for text in set(rows) if text is not None}
    names = sorted({name for one in read.values() for name in one})
    found: dict[str, list[Any]] = {}
    for name in names:
        values = [None if text is None else read[text].get(name) for text in rows]
        if any(isinstance(value, str) for value in values):
            values = [None if value is None else as_text(value) for value in values]
        if any(value is not None for value in values):
            found[name] = values
    return found


def how_they_ended(rows: Sequence[LogRow], now: float, gap: float = GAP) -> dict[str, str]:
    """How each session ended, as far as its rewarded steps go: idle for the gap, the person left.

    Whoever got as far as the version of the policy ever asked was cut by us: at the limit of the whole log that is
    unknown, and before it the person went on. So did those who are not idle yet, or whose last step has no reward.
    """
    last: dict[str, LogRow] = {}
    first, paid = dict[str, str](), Counter[str]()
    for row in rows:
        first.setdefault(row.session, row.policy)
        last[row.session] = max(last.get(row.session, row), row, key=lambda one: one.step)
        paid[row.session] += row.reward is not None
    asked: dict[str, int] = {}  # the longest session of each version
    for session, row in last.items():
        asked[first[session]] = max(asked.get(first[session], 0), row.step + 1)
    limit = max(paid.values(), default=0)
    found = {}
    for session, row in last.items():
        cut = row.step + 1 == asked[first[session]] or row.reward is None or now - max(row.at, row.told or 0.0) < gap
        code = UNKNOWN if paid[session] == limit else WENT_ON if cut else LEFT
        found[session] = ENDED[code]
    return found


async def export_days(
    store: Store, folder: Path, *, rows: Sequence[LogRow] | None = None, now: float = 0.0
) -> list[Path]:
    """Make the folder hold what the store holds: one Parquet file for each day on which rewarded sessions began.

    A day is written where the store holds other rows of it than the file says, whenever that day was, and where the
    file cannot be read. Days that the store does not have any more (erased, or older than it keeps) are removed.
    Readers want one type of a column, so a number is a text as soon as one arm has a name. With all `rows` of the store
    and the present time the files also say how sessions ended, and a day is written again when this changes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    labels = [arm.label for arm in await store.arms()]
    kind = "int64" if all(isinstance(label, int) for label in labels) else "string"
    wanted = {folder / f"{_date(state.day)}.parquet": state for state in await store.days()}
    ended = None if rows is None else how_they_ended(rows, now)
    by_day = Counter((int(row.began // _DAY), ended[row.session]) for row in rows or () if ended and row.step == 0)
    written = []
    for path, state in wanted.items():
        says = {"rows": state.rows, "newest": state.newest, "arms": kind}
        if ended is not None:
            says["ended"] = [by_day[state.day, word] for word in ENDED]
        if _says(path) != says:
            own = await store.rows(state.day * _DAY, (state.day + 1) * _DAY)
            _write_day(path, [row for row in own if row.reward is not None], labels, says, ended)
            written.append(path)
    gone = [path for path in folder.glob("????-??-??.parquet") if path not in wanted]
    for path in gone:
        path.unlink()
    if written or gone:
        _sync(folder)
    return written


def _date(day: int) -> datetime.date:
    return datetime.date(1970, 1, 1) + datetime.timedelta(days=day)


def _says(path: Path) -> dict[str, Any] | None:
    """What a file says that it holds; None where there is no file that can be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return dict(json.loads((pq.read_schema(path).metadata or {})[_STATE]))
    except (OSError, KeyError, ValueError, pa.ArrowException):
        return None


def _write_day(
    path: Path,
    rewarded: Sequence[LogRow],
    labels: Sequence[Label],
    says: dict[str, Any],
    ended: Mapping[str, str] | None = None,
) -> None:
    """Write a day beside its place, then put it there: the file is whole, or the old one is there."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kind = pa.int64() if says["arms"] == "int64" else pa.string()
    names = [labels[row.arm] for row in rewarded]
    columns = {
        "session": pa.array([row.session for row in rewarded], pa.string()),
        "step": pa.array([row.step for row in rewarded], pa.int32()),
        "arm": pa.array(names if says["arms"] == "int64" else [str(name) for name in names], kind),
        "reward": pa.array([row.reward for row in rewarded], pa.float64()),
        "propensity": pa.array([row.propensity for row in rewarded], pa.float64()),
        "policy": pa.array([row.policy for row in rewarded], pa.string()),
        "day": pa.array([path.stem] * len(rewarded), pa.string()),
    }
    if ended is not None:
        columns["ended"] = pa.array([ended.get(row.session, ENDED[WENT_ON]) for row in rewarded], pa.string())
    if any(row.person is not None for row in rewarded):
        columns["person"] = pa.array([row.person for row in rewarded], pa.string())
    for name, values in known_features([row.features for row in rewarded]).items():
        kind = pa.string() if any(isinstance(value, str) for value in values) else pa.float64()
        columns[f"feature_{name}" if name in (*columns, "person") else name] = pa.array(values, kind)
    temporary = path.with_suffix(".tmp")
    pq.write_table(pa.table(columns).replace_schema_metadata({_STATE: json.dumps(says)}), temporary)
    os.chmod(temporary, 0o600)
    _sync(temporary)
    temporary.replace(path)


def _sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
