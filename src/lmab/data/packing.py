"""pack: write a log of any size as a packed log."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from .._shapes import Array, Integer
from ..errors import InvalidArgument, InvalidData, InvalidFile, LmabWarning
from . import log_files, sealing
from .columns import FEATURE, Columns, Labels, arm_numbers, by_place
from .features import Features, person_ids, require_endings
from .ingest import ReadOptions, known_labels, missing_words, notes_of, several_values, ties_words
from .log_files import Paths
from .packed import CELLS, MANIFEST, Entry, Manifest, Packed, read_manifest, tallied
from .rows import Change, Rows, Several, of_sessions, read_rows, session_name
from .sealing import (
    WORK,
    Gatherer,
    PackState,
    SplitGatherer,
    Stream,
    Tables,
    Work,
    read_unit,
    remove_unit,
    replace_text,
    seal,
    writing,
)
from .sessions import Sessions, columns_of_sessions

_TEXT_ROW = 16  # bytes of a row of text, about
_STEPS = 1 << 20  # Steps of sessions in memory that are handled together.


class Files:
    """A log in files."""

    def __init__(self, files: list[Path], columns: Columns, options: ReadOptions) -> None:
        self.files, self.columns, self.options = files, columns, options
        self.notes = notes_of(files, columns, options)
        self.untyped = any(log_files.is_text(path) for path in files)

        self.by_events = options.gap is not None
        self.labels()  # tables that do not go together are told about at once

    @property
    def signature(self) -> str:
        """Which files, read how: the same for the same work."""
        found = [(str(path.resolve()), os.path.getsize(path), os.stat(path).st_mtime_ns) for path in self.files]
        text = json.dumps([found, dict(self.columns), asdict(self.options), sealing.PARTITION], default=str)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def n_rows(self) -> int:
        """About how many rows there are."""
        return sum(
            log_files.rows_of(path)
            if log_files.kind_of(path) == "Parquet"
            else os.path.getsize(path) // (_TEXT_ROW // 4 if path.suffix in (".gz", ".bz2") else _TEXT_ROW)
            for path in self.files
        )

    def rows(self, state: PackState) -> Iterator[Rows]:
        arguments = (self.columns, self.options, state.way, state.known, state.row)
        return read_rows(self.files, self.notes, *arguments)

    def require_again(self) -> None:
        """Files can be read as often as is needed."""

    def named(self, labels: Labels | None) -> Labels | None:
        """What the arms are called in the packed log."""
        return labels

    def labels(self) -> tuple[Labels | None, int]:
        """The table of labels that is known, and the least number of arms."""
        return known_labels(self.notes, self.options)

    def session_name(self, state: PackState, place: int | Integer[Array, "two"]) -> str | int | None:
        """What the log calls a session; None: it cannot be found."""
        return None if self.notes else session_name(self.files, self.columns, self.options, state.way, place)

    @property
    def feature_columns(self) -> list[str]:
        """The names of the features."""
        roles = of_sessions(self.notes, self.columns)
        return [role.removeprefix(FEATURE) for role in roles if role.startswith(FEATURE)]


class InMemory:
    """A log in memory, or one that is made bit by bit; the sessions keep their order."""

    untyped = by_events = False
    n_rows = 0

    def __init__(self, logs: Iterable[Sessions]) -> None:
        self.logs = logs
        self._first: Sessions | None = None

    @property
    def signature(self) -> str:
        return os.urandom(16).hex()  # never the same: such a log cannot be read again

    def rows(self, state: PackState) -> Iterator[Rows]:
        session = row = 0
        for log in self.logs:
            self._first = self._first or log
            self._require_alike(log)
            for low, high in log_spans(log):
                steps = slice(int(log.offsets[low]), int(log.offsets[high]))
                ids = session + np.repeat(np.arange(high - low), np.diff(log.offsets[low : high + 1]))
                arms = state.known.arm_places(log.arms[steps], None, small=state.way.small_arms)
                places = state.known.value_places(log.rewards[steps]) if state.way.listed else log.rewards[steps]
                own = None if log.propensities is None else log.propensities[steps]
                yield Rows(row, ids, None, arms, places, own, _known(log, slice(low, high), state))
                session, row = session + high - low, row + len(arms)

    def _require_alike(self, log: Sessions) -> None:
        first = self._first
        assert first is not None
        if (log.n_arms, log.arm_labels) != (first.n_arms, first.arm_labels):
            raise InvalidArgument("the logs must have the same arms and labels, got logs that differ")
        for name in ("propensities", "features", "persons", "endings"):
            if (getattr(log, name) is None) != (getattr(first, name) is None):
                raise InvalidArgument(f"all logs must have {name}, or none; got some with and some without")
        if log.features is not None and first.features is not None and log.features.columns != first.features.columns:
            raise InvalidArgument("all logs must have the same features, got logs that differ")

    def labels(self) -> tuple[Labels | None, int]:
        assert self._first is not None
        n_arms = self._first.n_arms
        return self._first.arm_labels and tuple(range(n_arms)), n_arms

    def require_again(self) -> None:
        """Sessions that come one after the other come once."""
        if isinstance(self.logs, Iterator):
            raise InvalidArgument(
                "sessions that come one after the other must have arms below 65,536 and few distinct rewards, got "
                "others: write the log to files first"
            )

    def named(self, labels: Labels | None) -> Labels | None:
        return None if self._first is None else self._first.arm_labels

    def session_name(self, state: PackState, place: int | Integer[Array, "two"]) -> str | int | None:
        """Sessions in memory have one row of features."""
        return None

    @property
    def feature_columns(self) -> list[str]:
        """The names of the features."""
        return [] if self._first is None or self._first.features is None else list(self._first.features.columns)


def _known(log: Sessions, sessions: slice, state: PackState) -> dict[str, Any]:
    """What is known of some sessions, for each of their steps."""
    found: dict[str, Any] = {}
    if log.features is not None:
        rows = log.features.table_rows
        seen = np.unique(log.features.rows[sessions])
        places = np.zeros(len(rows), np.uint32)
        places[seen] = [state.known.feature_place(tuple(rows[row])) for row in seen.tolist()]
        found["features"] = places[log.features.rows[sessions]]
    if log.persons is not None:
        found["persons"] = person_ids(log.persons[sessions])
    if log.endings is not None:
        found["endings"] = log.endings[sessions]
    return {name: np.repeat(column, log.lengths[sessions]) for name, column in found.items()}


def log_spans(log: Sessions) -> Iterator[tuple[int, int]]:
    """Ranges of sessions with a bounded number of steps."""
    low = 0
    while low < len(log):
        high = int(np.searchsorted(log.offsets, log.offsets[low] + _STEPS, side="right")) - 1
        yield low, max(high, low + 1)
        low = max(high, low + 1)


Source = Files | InMemory


def pack(
    paths: Paths | Sessions | Iterable[Sessions],
    folder: str | os.PathLike[str],
    *,
    session: str = "session",
    arm: str = "arm",
    reward: str = "reward",
    step: str | None = None,
    propensity: str | None = None,
    person: str | None = None,
    time: str | None = None,
    gap: str | float = "30m",
    arm_labels: Labels | None = None,
    missing: str = "error",
    at_most: int | None = None,
    encoding: str = "utf-8",
    features: Sequence[str] = (),
    ended: str | None = None,
    limit: int | None = None,
) -> Packed:
    """Write a log of any size into `folder`, from where `lmab.fit` reads it in place.

    A log whose rows are sorted by numbers of sessions goes through in one pass. Other logs, and sessions or steps named
    by text, are split by a hash of the session first. A run that was stopped goes on where it was, when it is started
    again.

    Args:
        paths: what `Sessions.read` takes: files or folders; or sessions in memory: `Sessions`, one or several.
        folder: where to write; it must be new, or hold what an earlier run on the same files left there.
        session: column of the session's id; the same id in two files is the same session.
        arm: column of the arm.
        reward: column of the reward.
        step: column that orders the steps of a session: numbers, times, or text of at most 48 bytes.
        propensity: column of the probability with which the arm was chosen.
        person: column of the person; with `time` sessions are made of events, and `session` is not needed.
        time: column of the time of an event.
        gap: the pause that ends a session of a person, as for `Sessions.from_events`.
        arm_labels: the table of labels, where it is known.
        missing: what to do with a step whose reward is missing: "error", "drop" or "zero".
        at_most: how many steps of a session are kept, from its first; None: all.
        encoding: of text files.
        features: columns of what is known before a session, as for `Sessions.read`; at most 1,048,576 distinct rows.
        ended: column of how a session ended, as for `Sessions.read`.
        limit: how many steps the log keeps of a session at most, as for `Sessions.read`.

    Examples:
        >>> import os, tempfile, pyarrow, pyarrow.parquet, lmab
        >>> folder = tempfile.mkdtemp()
        >>> log = pyarrow.table({"user": [7, 7, 9], "item": ["tea", "milk", "tea"], "click": [1, 0, 1]})
        >>> pyarrow.parquet.write_table(log, os.path.join(folder, "log.parquet"))
        >>> packed = lmab.pack(os.path.join(folder, "log.parquet"), os.path.join(folder, "packed"),
        ...                    session="user", arm="item", reward="click")
        >>> packed.arm_labels, len(packed)
        (('milk', 'tea'), 2)
    """
    if person is None and time is not None:
        raise InvalidArgument("time must be given with person: sessions are made of both")
    by_events = time is not None
    if by_events and (ended is not None or limit is not None):
        raise InvalidArgument("ended and limit must be None where sessions are made of events: a pause ends them")
    columns = columns_of_sessions(features, person, ended) | {"arm": arm, "reward": reward, "propensity": propensity}
    columns |= {"time": time} if by_events else {"session": session, "step": step}
    options = ReadOptions(arm_labels, missing, at_most, gap if by_events else None, encoding, limit)
    source: Source
    if isinstance(paths, str | os.PathLike) or (isinstance(paths, list | tuple) and not isinstance(paths[0], Sessions)):
        source = Files(log_files.listed(paths), columns, options)
    else:
        source = InMemory([paths] if isinstance(paths, Sessions) else paths)  # type: ignore[arg-type]
    return _packed(source, Path(folder), options, columns)


def _packed(source: Source, folder: Path, options: ReadOptions, columns: Columns) -> Packed:
    signature = source.signature
    if (folder / MANIFEST).exists():
        if read_manifest(folder).source == signature:
            return Packed(folder)
        raise InvalidFile(f"{folder}: holds another packed log: pack into a new folder")
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / WORK).is_dir())):
        raise InvalidFile(f"{folder}: must be a new folder, or hold a packing that was stopped; it holds other files")
    work = Work(folder)
    with writing(folder):
        state = _gathered(source, work, work.begin(signature), options, columns)
        manifest = _sealed(source, work, state, options, columns)
        replace_text(folder / MANIFEST, manifest.to_json())
        work.end()
    return Packed(folder, verify=False)


def _mixed(source: Source, state: PackState, several: Several, options: ReadOptions, columns: Columns) -> InvalidData:
    """What is said of a session whose rows disagree, with its name."""
    column = columns["person"] if several.feature is None else source.feature_columns[several.feature]
    name = source.session_name(state, several.place)
    return several_values(str(column), name, by_events=options.pause is not None)


def _gathered(source: Source, work: Work, state: PackState, options: ReadOptions, columns: Columns) -> PackState:
    """All rows in units; where the log is not as was assumed, all over again."""
    while not state.gathered:
        try:
            if source.by_events and not state.way.split:
                raise Change(split=True)
            gatherer: Gatherer = (
                SplitGatherer.of(work, state, source.n_rows) if state.way.split else Stream(work, state)
            )
            for rows in source.rows(state):
                gatherer.add(rows)
            gatherer.finish()
            state.gathered = True
            work.save(state)
        except Change as change:
            source.require_again()
            state.way = replace(state.way, **change.changes)
            state = work.restart(state)
        except Several as several:
            raise _mixed(source, state, several, options, columns) from None
    if not state.known.arms:
        raise InvalidData("the log must have at least one row, got none")
    return state


def _tables(source: Source, state: PackState, options: ReadOptions, columns: Columns) -> tuple[Tables, Labels | None]:
    labels, least = source.labels()
    seen: Any = state.known.arms
    arms, n_arms, labels = arm_numbers(seen, labels, least, str(columns["arm"]), untyped=source.untyped)
    arms = by_place(seen, arms) if state.way.small_arms else arms
    labels = source.named(labels)
    known = _features(source, state) if source.feature_columns else None
    if not state.way.listed:
        return Tables(arms, n_arms, None, np.empty(0, np.int64), known), labels
    if options.missing == "zero" and 0.0 not in state.known.values:
        state.known.value_places(np.zeros(1))
    values = np.setdiff1d(state.known.values, state.unused)
    places = np.minimum(np.searchsorted(values, state.known.values), max(len(values) - 1, 0))
    return Tables(arms, n_arms, values, places, known), labels


def _features(source: Source, state: PackState) -> Features:
    """The distinct rows of features."""
    rows = np.zeros(0, np.int32)
    return Features.from_rows(source.feature_columns, state.known.features, rows, untyped=source.untyped)


def _sealed(source: Source, work: Work, state: PackState, options: ReadOptions, columns: Columns) -> Manifest:
    """All units as partitions; where no step is left with some value, all over again without it."""
    while True:
        tables, labels = _tables(source, state, options, columns)
        for number in range(len(state.sealed), len(state.units)):
            try:
                unit = read_unit(work.folder, state, number, options)
            except Several as several:
                raise _mixed(source, state, several, options, columns) from None
            if tables.features is not None and len(state.known.features) > tables.features.n_rows:
                tables = replace(tables, features=_features(source, state))  # rows of features were put together
            state.sealed.append(seal(work.target, f"{number:05d}", unit, tables, options))
            work.save(state)
            if options.plain:  # nothing can be left out, so no unit is needed twice
                remove_unit(work.folder, state, number)
        written = [one for one in state.sealed if one["entry"] is not None]
        if not written:
            raise InvalidData(f"column {columns['reward']!r} must hold a reward that can be used, got none")
        cells = sum((np.fromfile(work.folder / one["cells"], np.int64) for one in written), np.zeros(tables.n_codes))
        cells = cells.astype(np.int64)
        unused = [] if tables.values is None else tables.values[cells.reshape(tables.n_arms, -1).sum(axis=0) == 0]
        if not len(unused):
            break
        state.unused += list(unused)
        state.sealed = []
        work.save(state)
    _tell(source, state, options, columns)
    ends = np.array([pair for one in written for pair in one["ends"]], np.int64).reshape(-1, 2)
    if len(ends):
        require_endings(ends[:, 0], ends[:, 1])
    cells.tofile(work.target / CELLS)
    return _manifest(source, state, tables, labels, cells)


def _manifest(source: Source, state: PackState, tables: Tables, labels: Labels | None, cells: Any) -> Manifest:
    written = [one for one in state.sealed if one["entry"] is not None]
    entries = tuple(Entry(**one["entry"]) for one in written)
    return Manifest(
        n_sessions=sum(one.n_sessions for one in entries),
        n_steps=sum(one.n_steps for one in entries),
        n_arms=tables.n_arms,
        arm_labels=labels,
        values=None if tables.values is None else tuple(tables.values.tolist()),
        code_bytes=tables.code_type.itemsize,
        lengths=tallied(pair for one in written for pair in one["lengths"]),
        checksum=f"{sum(int(one['checksum'], 16) for one in written) % 2**64:016x}",
        cells=(cells.nbytes, zlib.crc32(cells.data)),
        source=state.signature,
        features=None
        if tables.features is None
        else {
            "columns": source.feature_columns,
            "rows": state.known.features,
            "untyped": source.untyped,
        },
        partitions=entries,
        ordered=not state.way.split,
    )


def _tell(source: Source, state: PackState, options: ReadOptions, columns: Columns) -> None:
    """What a reader of the log should know about it, once for all partitions."""
    if state.way.split and not source.by_events and any(one["returns"] for one in state.sealed):
        warnings.warn(
            "the packed log has the sessions of a person in no order, because its rows are not sorted by numbers of "
            "sessions: sort the rows by session before they are packed, with numbers that rise with time",
            LmabWarning,
            stacklevel=5,
        )
    if state.disorder:
        warnings.warn(
            "the packed log has the sessions of a person in the order of their numbers, which is not that of their "
            "steps: give sessions numbers that rise with time before they are packed",
            LmabWarning,
            stacklevel=5,
        )
    ties = state.ties + sum(one["ties"] for one in state.sealed)
    if ties:
        warnings.warn(ties_words(ties, columns.get("step") or columns.get("time")), LmabWarning, stacklevel=5)
    missing, left_out = (sum(one[name] for one in state.sealed) for name in ("missing", "left_out"))
    if missing:
        said = missing_words(missing, left_out, columns["reward"], options.missing)
        warnings.warn(said, LmabWarning, stacklevel=5)
