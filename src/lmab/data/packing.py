"""pack: write a log of any size as a packed log, sorted by the query engine within a limit of memory."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .._shapes import Array, Float, Integer, Shaped
from ..errors import InvalidArgument, InvalidData, InvalidFile, first_line
from . import loading, log_files
from .columns import Columns, Labels
from .engine import Engine, machine_memory
from .features import Features, person_ids, require_endings
from .fingerprint import known_words, word_sums
from .loading import LogArrays, LogQuery, ReadOptions, named_columns
from .packed import (
    CELLS,
    CODES,
    LENGTHS,
    MANIFEST,
    OF_SESSIONS,
    PROPENSITIES,
    REWARDS,
    Entry,
    Manifest,
    Packed,
    read_manifest,
    tallied,
)
from .sessions import Sessions

WORK = ".packing"
PARTITION = 1 << 24  # steps of a partition, about
STEPS = 1 << 20  # steps of sessions in memory that are handled together
MAX_VALUES = 4096  # distinct rewards up to which they are listed; above, rewards are kept as numbers
MAX_FEATURE_ROWS = 1 << 20  # distinct rows of features of a packed log
_FEW = 6  # values that are compared one by one
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def pack(
    paths: Any,
    folder: str | os.PathLike[str],
    *,
    session: str | None = None,
    arm: str = "arm",
    reward: str = "reward",
    step: str | None = None,
    propensity: str | None = None,
    features: Sequence[str] = (),
    person: str | None = None,
    ended: str | None = None,
    time: str | None = None,
    gap: str | float = "30m",
    limit: int | None = None,
    arm_labels: Labels | None = None,
    missing: str = "error",
    copies: str = "keep",
    at_most: int | None = None,
    encoding: str = "utf-8",
    memory: int | str | None = None,
) -> Packed:
    """Write a log of any size into `folder`, from where `lmab.fit` reads it in place.

    The engine sorts the log within a limit of memory and spills into the folder. A run that was stopped leaves nothing
    behind; after a kill, the next run starts again. A folder that holds the same log packed from the same files is
    opened as it is.

    Args:
        paths: input of `Sessions.read`: files, folders or a data frame; or sessions in memory: `Sessions`, one or
            several.
        folder: where to write; it must be new.
        session: column of the session's id; the same id in two files is the same session.
        arm: column of the arm.
        reward: column of the reward.
        step: column that orders the steps of a session: numbers, times or text.
        propensity: column of the probability with which the arm was chosen.
        features: columns of features, as for `Sessions.read`; at most 1,048,576 distinct rows.
        person: column of the person; with `time` and no `session`, sessions are made of events.
        ended: column of how a session ended, as for `Sessions.read`.
        time: column of times: of the first step of each session, or of events.
        gap: the pause that ends a session of a person, as for `Sessions.from_events`.
        limit: maximum length of a session in the log, as for `Sessions.read`.
        arm_labels: the table of labels, if it is known.
        missing: treatment of steps without reward or arm: "error", "drop" or "zero".
        copies: treatment of rows that repeat an earlier row: "keep", "drop" or "error".
        at_most: number of first steps of each session that are kept; None: all.
        encoding: encoding of text files.
        memory: bytes that sorting may use, such as "500MB"; None: a quarter of the machine's memory.

    Examples:
        >>> import os, pathlib, tempfile, lmab
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "log.csv").write_text("user,item,click\\n7,tea,1\\n7,milk,0\\n9,tea,1\\n")
        >>> packed = lmab.pack(folder / "log.csv", folder / "packed", session="user", arm="item", reward="click")
        >>> packed.arm_labels, len(packed)
        (('milk', 'tea'), 2)
    """
    columns, pause = named_columns(
        session=session, arm=arm, reward=reward, step=step, propensity=propensity, features=features, person=person,
        ended=ended, time=time, gap=gap, limit=limit,
    )  # fmt: skip
    options, limit_bytes = (
        ReadOptions(arm_labels, missing, at_most, pause, encoding, limit, copies),
        memory_bytes(memory),
    )
    target = Path(folder)
    files = log_files.listed(paths) if loading.is_path(paths) else []
    signature = _signature(files, columns, options) if files else os.urandom(16).hex()
    if (target / MANIFEST).exists():
        if read_manifest(target).source == signature:
            return Packed(target)
        raise InvalidFile(f"{target}: holds another packed log: pack into a new folder")
    if target.exists() and (not target.is_dir() or any(path.name != WORK for path in target.iterdir())):
        raise InvalidFile(f"{target}: must be a new folder; it holds other files")
    with _work(target) as work:
        writer = Writer(work)
        if files:
            _add_files(writer, files, columns, options, limit_bytes)
        elif _in_memory(paths):
            for log in [paths] if isinstance(paths, Sessions | Packed) else paths:
                for chunk in log.chunks(max(1, len(log) * STEPS // log.n_steps)):
                    writer.add(chunk)
        else:
            from . import relations

            with _engine(work, [], limit_bytes) as engine, loading.messages():
                writer.add_query(LogQuery(relations.of_frame(engine, paths, columns), columns, options))
        manifest = writer.seal(signature)
        for path in (work / "sealed").iterdir():
            path.rename(target / path.name)
        _replace_text(target / MANIFEST, manifest.to_json())
    return Packed(target, verify=False)


def _in_memory(paths: Any) -> bool:
    """Return whether sessions were given, one log or several."""
    if isinstance(paths, Sessions | Packed):
        return True
    frame = ("collect_schema", "keys", "__arrow_c_stream__", "to_native", "iloc")
    return not any(hasattr(type(paths), name) for name in frame)


def _signature(files: list[Path], columns: Columns, options: ReadOptions) -> str:
    """Return a text that is the same for the same files, read in the same way."""
    found = [(str(path.resolve()), os.path.getsize(path), os.stat(path).st_mtime_ns) for path in files if path.exists()]
    text = json.dumps([found, dict(columns), asdict(options), PARTITION], default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def memory_bytes(memory: int | str | None) -> int:
    """Return the bytes of a limit of memory; by default a quarter of the machine's memory.

    Examples:
        >>> memory_bytes("500MB"), memory_bytes(1 << 30)
        (524288000, 1073741824)
    """
    if memory is None:
        return machine_memory() // 4
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*", str(memory).lower())
    size = 0 if match is None or isinstance(memory, bool) else int(float(match[1]) * _UNITS[match[2]])
    if size < 1 << 20:
        raise InvalidArgument(f"memory must be at least 1 MB, such as '500MB' or '2GB', got {memory!r}")
    return size


@contextlib.contextmanager
def _engine(work: Path, files: list[Path], memory: int) -> Iterator[Engine]:
    folder = work / "engine"
    folder.mkdir()
    engine = Engine(folder, files=files, memory=memory, on_disk=True)
    try:
        yield engine
    finally:
        engine.close()
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _work(target: Path) -> Iterator[Path]:
    """Yield a folder inside the target, which is removed at the end; after an error the target is as it was."""
    fresh, work = not target.exists(), target / WORK
    try:
        shutil.rmtree(work, ignore_errors=True)
        (work / "sealed").mkdir(parents=True)
        yield work
    except BaseException as error:
        shutil.rmtree(target if fresh else work, ignore_errors=True)
        if isinstance(error, OSError) or log_files.FULL.search(str(error)):
            reason = first_line(error) if isinstance(error, OSError) else "the disk is full"
            raise InvalidFile(f"{target}: cannot write here: {reason}; nothing half-written is ever read") from None
        raise
    shutil.rmtree(work, ignore_errors=True)


def _replace_text(path: Path, text: str) -> None:
    """Write a file as a whole: a reader sees the old file or the new one."""
    temporary = path.with_name(path.name + ".partial")
    with open(temporary, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def _add_files(writer: Writer, files: list[Path], columns: Columns, options: ReadOptions, memory: int) -> None:
    """Add the log of files; each of our own files is a log of its own, with the labels of all."""
    with _engine(writer.work, files, memory) as engine:
        notes = loading.notes_of(engine, files, columns, options)
    if notes is None:
        with _engine(writer.work, files, memory) as engine:
            writer.add_query(loading.query_files(engine, files, columns, options, None))
        return
    labels, least = notes[0].arm_labels, max(note.n_arms for note in notes)
    for note in notes[1:]:
        labels = loading.merged_labels(labels, note.arm_labels)
    for file, note in zip(files, notes, strict=True):
        note = note._replace(arm_labels=labels, n_arms=least if labels is None else len(labels))
        with _engine(writer.work, [file], memory) as engine:
            writer.add_query(loading.query_files(engine, [file], columns, options, note))


@dataclass
class Writer:
    """Writer of the partitions of a packed log: units of steps first, and codes when all rewards are known."""

    work: Path
    n_arms: int = 0
    labels: Labels | None = None
    ordered: bool = True
    values: list[float] | None = field(default_factory=list)  # distinct rewards; None: too many to be listed
    feature_columns: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None  # which columns the log has
    _feature_rows: dict[tuple[Any, ...], int] = field(default_factory=dict)
    _units: list[list[str]] = field(default_factory=list)
    _waiting: list[dict[str, Shaped[Array, "n"]]] = field(default_factory=list)
    _ends: set[tuple[int, int]] = field(default_factory=set)

    def add_query(self, query: LogQuery) -> None:
        """Add the log of a query."""
        self.ordered &= query.ordered
        for chunk in query.chunks():
            self.add(chunk)

    def add(self, log: LogArrays | Sessions) -> None:
        """Add whole sessions."""
        self._require_alike(log)
        if isinstance(log, Sessions):
            self.ordered &= log.positions is None
        lengths = np.diff(log.offsets)
        part = {"lengths": lengths, "arms": log.arms, "rewards": log.rewards}
        if log.propensities is not None:
            part["propensities"] = log.propensities
        if log.features is not None:
            part["features"] = self._places_of_features(log.features)
        if log.persons is not None:
            part["persons"] = person_ids(log.persons)
        if log.endings is not None:
            part["endings"] = log.endings
            self._ends |= {(int(a), int(b)) for a, b in np.unique(np.stack([lengths, log.endings], axis=1), axis=0)}
        if log.times is not None:
            part["times"] = log.times
        self._waiting.append(self._narrow(part))
        if sum(len(one["arms"]) for one in self._waiting) >= PARTITION:
            self._flush()

    def _require_alike(self, log: LogArrays | Sessions) -> None:
        names = ("propensities", "features", "persons", "endings", "times")
        columns = tuple(name for name in names if getattr(log, name) is not None)
        features = None if log.features is None else tuple(log.features.columns)
        if self.columns is None:
            self.n_arms, self.labels, self.columns, self.feature_columns = log.n_arms, log.arm_labels, columns, features
        if (log.n_arms, log.arm_labels) != (self.n_arms, self.labels):
            raise InvalidArgument("the logs must have the same arms and labels, got logs that differ")
        for name in set(columns) ^ set(self.columns):
            raise InvalidArgument(f"all logs must have {name}, or none; got some with and some without")
        if features != self.feature_columns:
            raise InvalidArgument("all logs must have the same features, got logs that differ")

    def _places_of_features(self, features: Features) -> Integer[Array, "n"]:
        """Return the place of the row of features of each session among the distinct rows."""
        rows, seen = features.table_rows, np.unique(features.rows)
        places = np.zeros(len(rows), np.uint32)
        for row in seen.tolist():
            places[row] = self._feature_rows.setdefault(tuple(rows[row]), len(self._feature_rows))
        if len(self._feature_rows) > MAX_FEATURE_ROWS:
            raise InvalidData(
                f"features must have at most {MAX_FEATURE_ROWS:,} distinct rows to be packed, got more: cut numbers "
                f"into a few values, or leave a column out"
            )
        return places[features.rows]

    def _narrow(self, part: dict[str, Shaped[Array, "n"]]) -> dict[str, Shaped[Array, "n"]]:
        """Return the part with small types, and with places of rewards while their values are listed."""
        for name in ("lengths", "arms"):
            part[name] = part[name].astype(np.min_scalar_type(int(part[name].max())))
        if self.values is not None:
            places, known = _places(part["rewards"], self.values)
            if not known.all():
                self.values += (np.unique(part["rewards"][~known]) + 0.0).tolist()
                places, _ = _places(part["rewards"], self.values)
            if len(self.values) <= MAX_VALUES:
                part["rewards"] = places
            else:
                for one in self._waiting:
                    one["rewards"] = self._as_numbers(one["rewards"])
                self._listed, self.values = self.values, None
        return part

    def _as_numbers(self, rewards: Shaped[Array, "n"]) -> Float[Array, "n"]:
        """Return rewards of which a unit may hold the places."""
        listed = self.values if self.values is not None else getattr(self, "_listed", [])
        return rewards if rewards.dtype.kind == "f" else np.array(listed)[rewards]

    def _flush(self) -> None:
        """Write the waiting parts as a unit."""
        if not self._waiting:
            return
        names = list(self._waiting[0])
        for name in names:
            column = np.concatenate([part[name] for part in self._waiting])
            np.save(self._unit(len(self._units), name), column)
        self._units.append(names)
        self._waiting = []

    def _unit(self, number: int, name: str) -> Path:
        return self.work / f"{number:05d}.{name}.npy"

    def seal(self, signature: str) -> Manifest:
        """Write all partitions and return the manifest."""
        self._flush()
        if self.columns is None:
            raise InvalidData("the log must have at least one row, got none")
        if self._ends:
            pairs = np.array(sorted(self._ends), np.int64)
            require_endings(pairs[:, 0], pairs[:, 1])
        order = None if self.values is None else np.argsort(self.values)
        values = None if order is None or self.values is None else np.array(self.values)[order]
        rank = None if order is None else np.argsort(order)
        n_codes = self.n_arms * (1 if values is None else len(values))
        code_type = np.dtype(np.min_scalar_type(max(n_codes - 1, 0)))
        cells, entries, lengths, total = np.zeros(n_codes, np.int64), [], [], 0
        known = None
        if self.feature_columns is not None:
            rows = list(map(list, self._feature_rows))
            known = Features.from_rows(self.feature_columns, rows, np.zeros(0, np.int32), untyped=False)
        for number, names in enumerate(self._units):
            unit = {name: np.load(self._unit(number, name)) for name in names}
            codes = unit["arms"].astype(code_type)
            if values is not None and rank is not None:
                codes *= code_type.type(len(values) % 2 ** (8 * codes.itemsize))  # the product of the only arm is 0
                codes += rank.astype(code_type)[unit["rewards"]]
            own = unit["lengths"].astype(np.min_scalar_type(int(unit["lengths"].max())))
            columns: dict[str, Shaped[Array, "..."]] = {LENGTHS: own, CODES: codes}
            if values is None:
                columns[REWARDS] = self._as_numbers(unit["rewards"])
            if PROPENSITIES in unit:
                columns[PROPENSITIES] = unit[PROPENSITIES]
            columns |= {name: unit[name].astype(dtype) for name, dtype in OF_SESSIONS.items() if name in unit}
            name = f"{number:05d}"
            files = {
                column: _write_file(self.work / "sealed" / f"{name}.{column}", array)
                for column, array in columns.items()
            }
            entries.append(Entry(name, len(own), len(codes), own.itemsize, files))
            lengths += list(zip(*(one.tolist() for one in np.unique(own, return_counts=True)), strict=True))
            for start in range(0, len(codes), STEPS):
                cells += np.bincount(codes[start : start + STEPS], minlength=n_codes)
            features = (
                None if known is None else Features(known.columns, known.table, unit["features"].astype(np.int32))
            )
            more = known_words(features, unit.get("persons"), unit.get("endings"), unit.get("times"))
            total += word_sums(codes, own, values, columns.get(REWARDS), more)
            for column in names:
                self._unit(number, column).unlink()
        cells.tofile(self.work / "sealed" / CELLS)
        return Manifest(
            n_sessions=sum(one.n_sessions for one in entries),
            n_steps=sum(one.n_steps for one in entries),
            n_arms=self.n_arms,
            arm_labels=self.labels,
            values=None if values is None else tuple(values.tolist()),
            code_bytes=code_type.itemsize,
            lengths=tallied(lengths),
            checksum=f"{total % 2**64:016x}",
            cells=(cells.nbytes, zlib.crc32(cells.data)),
            source=signature,
            features=None
            if self.feature_columns is None
            else {"columns": list(self.feature_columns), "rows": list(map(list, self._feature_rows)), "untyped": False},
            partitions=tuple(entries),
            ordered=self.ordered,
        )


def _places(rewards: Float[Array, "n"], values: list[float]) -> tuple[Integer[Array, "n"], Shaped[Array, "n"]]:
    """Return the places of rewards among values, and which rewards are among them; few values are compared each."""
    if len(values) <= _FEW:
        known, places = np.zeros(len(rewards), bool), np.zeros(len(rewards), np.uint8)
        for place, value in enumerate(values):
            here = rewards == value
            known |= here
            if place:
                places += here * np.uint8(place)
        return places, known
    listed = np.array(values)
    order = np.argsort(listed)
    index = order[np.minimum(np.searchsorted(listed, rewards, sorter=order), len(listed) - 1)]
    return index.astype(np.uint16), listed[index] == rewards


def _write_file(path: Path, array: Shaped[Array, "..."]) -> tuple[int, int]:
    """Write a file; return its bytes and checksum."""
    array = np.ascontiguousarray(array)
    with open(path, "wb") as file:
        array.tofile(file)
    if os.path.getsize(path) != array.nbytes:
        raise OSError(f"{path} was not written as a whole")
    return array.nbytes, zlib.crc32(array.data)
