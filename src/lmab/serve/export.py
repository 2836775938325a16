"""Logs from the store: Parquet files by day that `lmab fit` reads, and one packed log for the refit.

Rows are read in batches of about 100,000 steps, because a row takes 430 bytes of memory and a packed step 1 to 20.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import math
import shutil
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .._shapes import Array, Integer
from ..data.features import ENDED, LEFT, STRANGER, UNKNOWN, WENT_ON
from ..data.packed import Packed
from ..data.packing import pack
from ..data.parts import CHUNK, Layout, Parts, column_of, replace_packed, without_persons
from ..data.sessions import Sessions
from ..data.tables import Table, read_note, read_table, stacked, sync, write_table
from ..errors import InvalidArgument, InvalidData
from .canary import RECENT
from .messages import Label
from .stores import GAP, LogRow, Removals, Store, person_mark
from .versions import HOLDOUT

HISTORY = "history"  # folder of the packed log that was made before the service
OTHERS = "other_features"  # column of an exported day with the features that the refit does not use, as JSON
_DAY, _EPOCH = 86_400.0, datetime.date(1970, 1, 1)
_BATCH = 100_000  # steps that are read at once, about
_IN_MEMORY = 1 << 22  # steps up to which the log of a refit is loaded: 20 bytes a step, and fits have every option


async def spans(store: Store, since: float, until: float) -> list[tuple[float, float]]:
    """Return spans of time in which sessions began, each of at most a day and of about `_BATCH` steps."""
    steps = Counter[int]()
    for one in await store.buckets(0.0, _DAY):
        steps[one.began] += one.steps
    found = []
    for day, n in sorted(steps.items()):
        edges = np.linspace(day, day + 1, 1 + math.ceil(n / _BATCH)) * _DAY
        found += [(max(since, low), min(until, high)) for low, high in pairwise(edges)]
    return [(float(low), float(high)) for low, high in found if low < high]


async def batches(store: Store, since: float = 0.0, until: float = math.inf) -> AsyncIterator[list[LogRow]]:
    """Yield the rows of whole sessions that began in a span of time, in the order of `Store.rows`."""
    for span in await spans(store, since, until):
        yield await store.rows(*span)


class Ending(NamedTuple):
    """What tells how a session ended."""

    policy: str  # version of its first step
    length: int
    n_rewarded: int  # steps
    goes_on: bool  # it is not idle yet, or its last step has no reward


@dataclass
class Survey:
    """Counts over all rows of a store, which one pass over its batches makes."""

    now: float = 0.0  # who was idle for `GAP` seconds left
    n_sessions: int = 0
    horizon: int = 0  # steps of the longest session
    limit: int = 0  # most rewarded steps of a session
    rewarded: set[int] = field(default_factory=set)  # arms with a reward
    plays: Counter[int] = field(default_factory=Counter)
    paid: dict[int, tuple[int, float]] = field(default_factory=dict)  # rewards of each arm: number and sum
    chosen: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))  # by version, not explored
    longest: dict[str, int] = field(default_factory=dict)  # steps of the longest session of each version
    ends: Counter[tuple[int, Ending]] = field(default_factory=Counter)  # sessions by day
    earned: dict[tuple[str, int], tuple[int, float]] = field(default_factory=dict)  # (version, steps): n, total
    columns: Counter[str] = field(default_factory=Counter)  # sessions with a value of each feature
    texts: set[str] = field(default_factory=set)  # features that are text in some session
    persons: bool = False
    latest: deque[list[LogRow]] = field(default_factory=lambda: deque(maxlen=RECENT))  # sessions

    @classmethod
    async def of(cls, store: Store, until: float = math.inf, now: float = 0.0) -> Survey:
        """Read the whole store once."""
        found = cls(now)
        async for rows in batches(store, until=until):
            for session in sessions_of(rows):
                found.add(session)
        return found

    def add(self, steps: list[LogRow]) -> None:
        """Count one session."""
        first, paid = steps[0], [row.reward for row in steps if row.reward is not None]
        self.n_sessions += 1
        self.ends[int(first.began // _DAY), self.ending(steps)] += 1
        self.limit, length = max(self.limit, len(paid)), steps[-1].step + 1
        self.horizon = max(self.horizon, length)
        self.longest[first.policy] = max(self.longest.get(first.policy, 0), length)
        n, total = self.earned.get((first.policy, len(paid)), (0, 0.0))
        self.earned[first.policy, len(paid)] = n + 1, total + sum(paid)
        for row in steps:
            self.plays[row.arm] += 1
            self.chosen[row.policy][row.arm] += not row.explored
            if row.reward is not None:
                n, total = self.paid.get(row.arm, (0, 0.0))
                self.paid[row.arm] = n + 1, total + row.reward
        self.rewarded.update(row.arm for row in steps if row.reward is not None)
        for name, value in features_of(first).items():
            if value is not None:
                self.columns[name] += 1
                if isinstance(value, str):
                    self.texts.add(name)
        self.persons |= first.person is not None
        self.latest.append(steps)

    def popularity(self, arms: Sequence[Label]) -> list[Label]:
        """Return the labels of the rewarded arms, that of the largest mean reward first.

        Each mean has one more reward, which is the mean of all, so that an arm with one reward is not at an end.
        """
        number, total = (sum(column) for column in zip(*self.paid.values(), strict=True)) if self.paid else (1, 0.0)
        means = {arm: (own + total / number) / (n + 1) for arm, (n, own) in self.paid.items()}
        return [arms[arm] for arm in sorted(means, key=lambda arm: (-means[arm], arm))]

    def ending(self, steps: Sequence[LogRow]) -> Ending:
        """Return what tells how a session ended."""
        last, n_paid = steps[-1], sum(row.reward is not None for row in steps)
        goes_on = last.reward is None or self.now - max(last.at, last.told or 0.0) < GAP
        return Ending(steps[0].policy, last.step + 1, n_paid, goes_on)

    def how_it_ended(self, end: Ending) -> str:
        """Return how a session ended, as far as its rewarded steps go: idle for the gap, the person left.

        A session that got as far as any of its version was cut by the service: at the limit of the whole log its end is
        unknown, and before it the person went on. So did those who are not idle yet, or whose last step has no reward.
        """
        cut = end.goes_on or end.length >= self.longest.get(end.policy, 0)
        return ENDED[UNKNOWN if end.n_rewarded == self.limit else WENT_ON if cut else LEFT]


def sessions_of(rows: Sequence[LogRow]) -> Iterator[list[LogRow]]:
    """Yield the steps of each session."""
    return (list(steps) for _, steps in groupby(rows, key=lambda row: row.session))


def features_of(row: LogRow) -> dict[str, Any]:
    """Return the features of a session's first step."""
    return {} if row.features is None else dict(json.loads(row.features))


@dataclass(frozen=True, eq=False)
class ServedLog:
    """The sessions that a refit learns from, and those that an off-policy comparison can use."""

    sessions: Sessions | Packed  # every rewarded step of the store, and the history before it
    whole: Sessions | None  # sessions of the store up to their first step without reward or propensity; None: none


def person_numbers(persons: Iterable[str | int | None]) -> Integer[Array, "n"]:
    """Return a number for each person, which `Removals.persons` has too once the person is erased."""
    return np.array([STRANGER if one is None else _number(person_mark(str(one))) for one in persons], np.int64)


def _number(mark: str) -> int:
    return int.from_bytes(bytes.fromhex(mark)[:8], "big", signed=True)


def _part(layout: Layout, rows: Sequence[LogRow], numbers: Mapping[int, int], propensities: bool) -> Sessions:
    """Return sessions of rows of the store; `numbers` are the places of its arms in the layout."""
    starts = [i for i, row in enumerate(rows) if i == 0 or row.session != rows[i - 1].session]
    known = [features_of(rows[i]) for i in starts]
    return layout.sessions(
        np.array([numbers[row.arm] for row in rows], np.int32),
        np.array([row.reward for row in rows], np.float64),
        np.array([*starts, len(rows)], np.int64),
        propensities=np.array([row.propensity for row in rows], np.float64) if propensities else None,
        features={name: [one.get(name) for one in known] for name in layout.columns},
        persons=person_numbers(rows[i].person for i in starts),
    )


async def read_log(
    store: Store, folder: Path, survey: Survey, arms: Sequence[Label], *, more: Sequence[int] = (),
    columns: Mapping[str, bool] | None = None, history: Packed | None = None, until: float = math.inf,
) -> ServedLog:  # fmt: skip
    """Pack the sessions of the history and of the store into a new folder.

    Args:
        store: the store, which is read in batches.
        folder: the folder to write, which is replaced.
        survey: the counts of the same store.
        arms: the labels of all arms of the store.
        more: numbers of arms that belong to the log although nobody played them.
        columns: features to use, and whether they are text; None: all.
        history: the log that was made before the service.
        until: time before which sessions began.
    """
    if not survey.rewarded and history is None:
        raise InvalidData("the store must hold a rewarded step, got none")
    labels = {number: arms[number] for number in sorted(survey.rewarded | set(more))}
    numbers = {number: place for place, number in enumerate(labels)}
    columns = {name: name in survey.texts for name in sorted(survey.columns)} if columns is None else columns
    persons = survey.persons or (history is not None and history.persons is not None)
    layout, loop = Layout(tuple(labels.values()), columns, persons), asyncio.get_running_loop()
    whole: list[Sessions] = []
    where = await spans(store, 0.0, until)

    def parts() -> Iterator[Sessions]:
        whole.clear()
        yield from () if history is None else layout.of(history)
        for span in where:
            rows = asyncio.run_coroutine_threadsafe(store.rows(*span), loop).result()
            kept = [row for row in rows if row.reward is not None and row.arm in numbers]
            if kept:
                yield _part(layout, kept, numbers, False)
            if prefixes := [row for row in _prefixes(rows) if row.arm in numbers]:
                whole.append(_part(layout, prefixes, numbers, True))

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    packed = await asyncio.to_thread(pack, Parts(parts), folder / "sessions")
    loaded = packed.load() if packed.n_steps <= _IN_MEMORY else packed
    if not whole:
        return ServedLog(loaded, None)
    return ServedLog(loaded, (await asyncio.to_thread(pack, whole, folder / "whole")).load())


def _prefixes(rows: Sequence[LogRow]) -> list[LogRow]:
    """Return the steps before the first one of their session that is missing, unrewarded or of unknown probability.

    The holdout plays one arm with certainty, so importance weights of other policies would be wrong.
    """
    found = list[LogRow]()
    for steps in sessions_of(rows):
        for step, row in enumerate(steps):
            if row.step != step or row.reward is None or row.propensity is None or row.policy == HOLDOUT:
                break
            found.append(row)
    return found


# The history


def keep_history(log: Sessions | Packed, folder: Path) -> Packed:
    """Keep a log that was made before the service as `folder`/history; it replaces an earlier one."""
    if isinstance(log, Packed) and log.persons is not None:
        raise InvalidArgument(
            "--history must be files if it has persons, got a packed log: it does not keep their names, so that the "
            "sessions of somebody who is erased could not be found"
        )

    def parts() -> Iterator[Sessions]:
        for chunk in log.chunks(CHUNK):
            persons = None if chunk.persons is None else person_numbers(chunk.persons.tolist())
            yield replace(chunk, propensities=None, endings=None, persons=persons)

    return replace_packed(Parts(parts), folder / HISTORY)


def read_history(folder: Path, erased: Iterable[str]) -> Packed | None:
    """Return the history in a folder without the sessions of erased persons, which are removed from its files."""
    return without_persons(folder / HISTORY, [_number(mark) for mark in erased])


# The log by day


class OtherStore(InvalidArgument):
    """The folder of the log belongs to another store."""


class Exported(NamedTuple):
    """What an export did."""

    written: list[Path]
    kept: int  # exported rows that the store lacks without having forgotten or erased them


async def export_days(
    store: Store, folder: Path, survey: Survey | None = None, *, columns: Mapping[str, bool] | None = None,
    remove: bool = False,
) -> Exported:  # fmt: skip
    """Make the folder hold what the store holds: one Parquet file for each day on which rewarded sessions began.

    A day is written where the store holds other rows of it than the file says, whenever that day was, and where the
    file cannot be read. Rows that the store forgot or erased are removed; others that it lacks stay. Readers want one
    type of a column, so a number is a text as soon as one arm has a name.

    Args:
        store: the store; a folder that belongs to another one raises `OtherStore`.
        folder: the folder of the log.
        survey: the counts of the store; None: they are made.
        columns: features that get a column each, and whether they are text; None: all. The others share one column.
        remove: also remove rows that the store lacks without having forgotten or erased them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    survey = await Survey.of(store) if survey is None else survey
    columns = {name: name in survey.texts for name in sorted(survey.columns)} if columns is None else columns
    labels, removals = [arm.label for arm in await store.arms()], await store.removals()
    kind = "int64" if all(isinstance(label, int) for label in labels) else "string"
    states = {f"{_EPOCH + datetime.timedelta(days=state.day)}": state for state in await store.days()}
    files = {path.stem: path for path in folder.glob("????-??-??.parquet")}
    await _claim(store, folder, files, removals)
    result, changed = Exported([], 0), False
    for name in sorted({*states, *files}):
        path, state = folder / f"{name}.parquet", states.get(name)
        says: dict[str, Any] = {"arms": kind, "columns": dict(columns), "kept": 0, "rows": 0}
        if state is not None:
            by_word = Counter[str]()
            for (day, end), n in survey.ends.items():
                if day == state.day:
                    by_word[survey.how_it_ended(end)] += n
            says |= {"rows": state.rows, "newest": state.newest, "ended": [by_word[word] for word in ENDED]}
        found = read_note(path)
        if found is not None and found.get("kept"):
            says |= {"kept": 0 if remove else found["kept"], "erasures": removals.erasures}
        if found != says:
            rows = [] if state is None else await store.rows(_began(path), _began(path) + _DAY)
            says["kept"] = _write_day(path, rows, labels, says, survey, removals, remove)
            changed = True
            if path.exists():
                result.written.append(path)
        result = result._replace(kept=result.kept + says["kept"])
    if changed:
        sync(folder)
    return result


async def _claim(store: Store, folder: Path, files: Mapping[str, Path], removals: Removals) -> None:
    """Raise `OtherStore` if the folder belongs to another store; note in it that it belongs to this one.

    A folder without a note belongs to this store if it holds a row that the store has, or has removed.
    """
    path, own = folder / ".store", await store.store_id()
    remedy = "correct --store, or give this store a folder of its own with --policies"
    if path.exists():
        found = path.read_text("utf-8").strip()
        if found != own:
            raise OtherStore(f"{folder} holds the log of another store ({found}), and this store is {own}: {remedy}")
        return
    agrees = not files
    for file in files.values():
        if not agrees and (table := read_table(file)) is not None:
            began = _began(file)
            have = {(row.session, row.step, row.reward) for row in await store.rows(began, began + _DAY)}
            rows = zip(*(table[name] for name in ("session", "step", "reward")), strict=True)
            agrees = any(row in have or removals.covers(row[0], began) for row in rows)
    if not agrees:
        raise OtherStore(f"{folder} holds a log of which this store has no row: {remedy}")
    path.write_text(own, "utf-8")
    sync(path)


def _began(path: Path) -> float:
    """Return when the day of a file began."""
    return (datetime.date.fromisoformat(path.stem) - _EPOCH).days * _DAY


def _write_day(
    path: Path, rows: Sequence[LogRow], labels: Sequence[Label], says: dict[str, Any], survey: Survey,
    removals: Removals, remove: bool,
) -> int:  # fmt: skip
    """Write the file of a day.

    Rows of the old file that the store lacks without having removed them stay; return how many there are.
    """
    rewarded = [row for row in rows if row.reward is not None]
    old = None if remove else read_table(path)
    lost: list[bool] = []
    if old is not None:
        have, began = {(row.session, row.step) for row in rewarded}, _began(path)
        persons = old.get("person", [None] * len(old["session"]))
        erased = {one for one in set(persons) if one is not None and person_mark(one) in removals.persons}
        keys = zip(old["session"], old["step"], persons, strict=True)
        lost = [
            (session, step) not in have and person not in erased and not removals.covers(session, began)
            for session, step, person in keys
        ]
    if not rewarded and not any(lost):
        path.unlink(missing_ok=True)
        return 0
    ended = {steps[0].session: survey.how_it_ended(survey.ending(steps)) for steps in sessions_of(rows)}
    whole_arms = says["arms"] == "int64"
    names = [labels[row.arm] if whole_arms else str(labels[row.arm]) for row in rewarded]
    columns: Table = {
        "session": [row.session for row in rewarded],
        "step": [row.step for row in rewarded],
        "arm": names,
        "reward": [row.reward for row in rewarded],
        "propensity": [row.propensity for row in rewarded],
        "policy": [row.policy for row in rewarded],
        "day": [path.stem] * len(rewarded),
        "ended": [ended[row.session] for row in rewarded],
    }
    kinds = dict.fromkeys((*columns, "person", OTHERS), "text")
    kinds |= {"step": "int", "arm": "int" if whole_arms else "text", "reward": "float", "propensity": "float"}
    if any(row.person is not None for row in rewarded):
        columns["person"] = [row.person for row in rewarded]
    known = {row.session: features_of(row) for row in rewarded if row.features is not None}
    for name, text in says["columns"].items():
        values = column_of([known.get(row.session, {}).get(name) for row in rewarded], text).tolist()
        place = f"feature_{name}" if name in (*columns, "person", OTHERS) else name
        columns[place], kinds[place] = (
            [None if value != value else value for value in values],
            "text" if text else "float",
        )
    more = {session: {name: one[name] for name in one if name not in says["columns"]} for session, one in known.items()}
    others = {session: json.dumps(one) for session, one in more.items() if one}
    if others:
        columns[OTHERS] = [others.get(row.session) for row in rewarded]
    if any(lost) and old is not None:
        says |= {"kept": sum(lost), "erasures": removals.erasures}
        kept = {
            name: [value for value, stays in zip(values, lost, strict=True) if stays] for name, values in old.items()
        }
        columns = stacked(columns, kept, kinds)
    write_table(path, columns, kinds, says)
    return sum(lost)
