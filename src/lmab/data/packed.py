"""Packed logs: sessions in files that are read in place, for logs larger than memory.

The manifest says what the files hold, how large they are, and their checksums. `Partitions` knows where sessions lie:
it is small, so that it can be sent to other processes and machines. `Cutting` turns rewards into values when they are
read, while the files stay as they are.
"""

from __future__ import annotations

import json
import os
import platform
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cached_property, reduce
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from .._shapes import Array, Float, Integer, Shaped
from ..checks import check_count
from ..errors import InvalidArgument, InvalidFile, first_line
from .features import ENDED, Features
from .loading import UNORDERED, ranks
from .sessions import Sessions

MANIFEST = "manifest.json"
CELLS = "cells"  # the file that counts how often each code occurs, 8 bytes a code
FORMAT = "lmab packed log"
VERSION = 2
_BLOCK = 1 << 24  # bytes of a file that are looked at together
_READERS = 4  # checksums release the interpreter's lock


@dataclass(frozen=True)
class Entry:
    """One partition: its sizes, and size and checksum of each of its files."""

    name: str  # What its files are called, before the dot.
    n_sessions: int
    n_steps: int
    length_bytes: int  # Bytes of each length.
    files: dict[str, tuple[int, int]]  # column -> (bytes, CRC-32)


@dataclass(frozen=True)
class Manifest:
    """What a packed log holds. Codes are arm * Z + value, or arms where there are too many values to be listed."""

    n_sessions: int
    n_steps: int
    n_arms: int
    arm_labels: tuple[str | int, ...] | None
    values: tuple[float, ...] | None  # distinct rewards, rising; None: the column `rewards` holds them
    code_bytes: int
    lengths: tuple[tuple[int, int], ...]  # (length, how many sessions have it), rising
    checksum: str  # The checksum of the log, as `Fingerprint` makes it.
    cells: tuple[int, int]  # bytes and CRC-32 of the counts of the codes
    source: str  # which files, read how, were packed
    features: dict[str, Any] | None  # "columns", their distinct "rows", and whether texts are "untyped"
    partitions: tuple[Entry, ...]
    ordered: bool = True  # whether sessions have the order of their ids; False: that of hashes, without a meaning

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, "version": VERSION, **asdict(self)}, indent=1, allow_nan=False)


def read_manifest(folder: Path) -> Manifest:
    """The manifest in the folder; a folder without one, or with another version, raises."""
    path = folder / MANIFEST
    try:
        found = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise InvalidFile(
            f"{folder}: not a packed log, or its packing was not finished (no {MANIFEST}): run `lmab pack` again"
        ) from None
    except (OSError, ValueError) as error:
        raise InvalidFile(f"{path}: damaged: {first_line(error)}") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise InvalidFile(f"{path}: not the manifest of a packed log")
    if found.get("version") != VERSION:
        raise InvalidFile(
            f"{path}: the packed log has version {found.get('version')!r}, and this lmab reads version {VERSION}: "
            f"pack the log again, or upgrade lmab"
        )
    try:
        return _manifest(found)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidFile(f"{path}: damaged: {first_line(error)}") from None


def _manifest(found: dict[str, Any]) -> Manifest:
    fields = {name: found[name] for name in Manifest.__dataclass_fields__ if name != "ordered"}
    fields["ordered"] = bool(found.get("ordered", True))  # folders of older versions do not have it
    for name in ("arm_labels", "values"):
        fields[name] = None if fields[name] is None else tuple(fields[name])
    fields["lengths"] = tuple((int(length), int(count)) for length, count in fields["lengths"])
    fields["cells"] = tuple(fields["cells"])
    fields["partitions"] = tuple(
        Entry(**{**one, "files": {name: tuple(pair) for name, pair in one["files"].items()}})
        for one in fields["partitions"]
    )
    manifest = Manifest(**fields)
    sessions, steps = (sum(getattr(one, name) for one in manifest.partitions) for name in ("n_sessions", "n_steps"))
    if (sessions, steps) != (manifest.n_sessions, manifest.n_steps):
        raise ValueError(f"its partitions hold {sessions} sessions and {steps} steps, and not what it says")
    return manifest


def check_files(folder: Path, manifest: Manifest, *, contents: bool) -> None:
    """Raise, with the name of the file, where one is missing, cut or changed; `contents`: read all of them."""
    wanted = [(folder / CELLS, *manifest.cells)]
    for one in manifest.partitions:
        wanted += [(folder / f"{one.name}.{column}", *found) for column, found in one.files.items()]
    for path, size, _ in wanted:
        try:
            found = os.path.getsize(path)
        except OSError:
            raise InvalidFile(
                f"{path}: this part of the packed log is missing, or {platform.node()} cannot see this part: pack the "
                f"log again, or put the folder under the same name wherever passes run"
            ) from None
        if found != size:
            raise InvalidFile(
                f"{path}: this part of the packed log was changed: it has {found:,} bytes instead of {size:,}; pack "
                f"the log again"
            )
    if contents:
        with ThreadPoolExecutor(_READERS) as pool:
            sums = pool.map(checksum, [path for path, _, _ in wanted])
            for (path, _, expected), found in zip(wanted, sums, strict=True):
                if found != expected:
                    raise InvalidFile(
                        f"{path}: this part of the packed log was changed: its checksum is {found:08x} instead of "
                        f"{expected:08x}; pack the log again"
                    )


def checksum(path: Path) -> int:
    """CRC-32 of a file."""
    found = 0
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            found = zlib.crc32(block, found)
    return found


def read_cells(folder: Path) -> Integer[Array, "D"]:
    """How often each code occurs."""
    return np.fromfile(folder / CELLS, np.int64)


def tallied(lengths: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Counts of lengths, those of the same length added up."""
    found: dict[int, int] = {}
    for length, count in lengths:
        found[length] = found.get(length, 0) + count
    return tuple(sorted(found.items()))


_FEW = 32  # edges


@dataclass(frozen=True, eq=False)
class Cutting:
    """Edges between rewards, and the value that stands for what lies between two of them."""

    edges: Float[Array, "E"]  # rising; an edge belongs to the value above it
    values: Float[Array, "Z"]  # Z = E + 1, rising

    def places(self, rewards: Float[Array, "s"]) -> Shaped[Array, "s"]:
        """The place of each reward's value; few edges are compared one by one, which is six times as fast."""
        if len(self.edges) > _FEW:
            return np.searchsorted(self.edges, rewards, side="right")
        found = np.zeros(len(rewards), np.uint8)
        for edge in self.edges.tolist():
            found += rewards >= edge
        return found

    def after(self, first: Cutting) -> Cutting:
        """The cutting that does what `first` does, and then this to its values."""
        places = self.places(first.values)
        ends = np.flatnonzero(places[1:] != places[:-1])
        return Cutting(first.edges[ends], self.values[places[np.append(ends, -1)]])


@dataclass(frozen=True, eq=False)
class Recoding:
    """The codes of cut rewards, made of what the files hold."""

    cutting: Cutting
    table: Shaped[Array, "c"]  # the code of each code in the files; that of its lowest value where rewards lie beside
    beside: bool  # whether the files hold rewards beside their codes, which are arms then

    @classmethod
    def of(cls, cutting: Cutting, n_arms: int, values: Float[Array, "V"] | None) -> Recoding:
        """For files whose codes are arm * V + value, or arms."""
        n_values = len(cutting.values)
        table = np.arange(n_arms)[:, None] * n_values + (0 if values is None else cutting.places(values))
        return cls(cutting, table.ravel().astype(np.min_scalar_type(n_arms * n_values - 1)), values is None)

    def codes(self, codes: Shaped[Array, "s"], rewards: Float[Array, "s"] | None) -> Shaped[Array, "s"]:
        found = self.table.take(codes)
        return found if rewards is None else found + self.cutting.places(rewards).astype(found.dtype)


LENGTHS, CODES, REWARDS, PROPENSITIES = "lengths", "codes", "rewards", "propensities"
OF_SESSIONS = {  # columns with one entry per session
    "features": np.uint32, "persons": np.int64, "endings": np.uint8, "times": np.float64,
}  # fmt: skip
_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@dataclass(frozen=True, eq=False)
class Partitions:
    """Where sessions and steps lie."""

    folder: str
    names: tuple[str, ...]
    sessions: Integer[Array, "P1"]  # sessions before each partition, and all
    steps: Integer[Array, "P1"]  # steps before each partition, and all
    code_bytes: int
    length_bytes: tuple[int, ...]
    recoding: Recoding | None = None  # None: codes are as in the files
    marks: dict[int, int] = field(default_factory=dict, repr=False)  # steps before some sessions, where parts begin

    @classmethod
    def of(cls, folder: Path, manifest: Manifest, recoding: Recoding | None = None) -> Partitions:
        parts = manifest.partitions
        sessions, steps = (
            np.cumsum([0, *(getattr(one, name) for one in parts)], dtype=np.int64) for name in ("n_sessions", "n_steps")
        )
        names, sizes = tuple(one.name for one in parts), tuple(one.length_bytes for one in parts)
        return cls(str(folder.resolve()), names, sessions, steps, manifest.code_bytes, sizes, recoding)

    @property
    def bytes_per_step(self) -> int:
        """Bytes of a code, as `part` gives it."""
        return self.code_bytes if self.recoding is None else int(self.recoding.table.itemsize)

    @property
    def n_sessions(self) -> int:
        return int(self.sessions[-1])

    @property
    def n_steps(self) -> int:
        return int(self.steps[-1])

    def cuts(self, targets: Shaped[Array, "n"]) -> Integer[Array, "n"]:
        """For each number of steps, above 0, the first session with at least as many steps before it."""
        place = np.searchsorted(self.steps, targets) - 1
        cuts = np.empty(len(targets), np.int64)
        for number in np.unique(place).tolist():
            offsets = self.steps[number] + np.cumsum(self._map(number, LENGTHS), dtype=np.int64)
            here = place == number
            found = np.searchsorted(offsets, targets[here])
            cuts[here] = self.sessions[number] + 1 + found
            self.marks.update(zip(cuts[here].tolist(), offsets[found].tolist(), strict=True))
        return cuts

    def part(
        self, low: int, high: int, *columns: str, room: Integer[Array, "m"] | None = None
    ) -> tuple[Shaped[Array, "..."], ...]:
        """The offsets of sessions low to high - 1, from 0, and columns of their steps; copied only where files meet.

        The offsets lie in `room`, where it is given, because fresh memory costs more than adding up lengths does.
        """
        offsets = np.empty(high - low + 1, np.int64) if room is None else room[: high - low + 1]
        offsets[0], total = 0, 0
        found = []
        start, end = np.searchsorted(self.sessions, [low + 1, high]).tolist()
        for number in range(start - 1, end):
            first, last = (int(np.clip(edge - self.sessions[number], 0, None)) for edge in (low, high))
            lengths = self._map(number, LENGTHS)
            own = offsets[1 + max(int(self.sessions[number]) - low, 0) :][: len(lengths[first:last])]
            np.cumsum(lengths[first:last], out=own)
            before = self._before(number, first, lengths)
            steps = slice(before, before + int(own[-1]))
            found.append([self._column(number, column, steps) for column in columns])
            if total:
                own += total
            total = int(own[-1])
        return offsets, *(_joined(list(pieces)) for pieces in zip(*found, strict=True))

    def _before(self, number: int, first: int, lengths: Shaped[Array, "n"]) -> int:
        """Steps of a partition before its session `first`."""
        known = self.marks.get(int(self.sessions[number]) + first)
        return int(lengths[:first].sum(dtype=np.int64)) if known is None else known - int(self.steps[number])

    def pick(self, rows: Integer[Array, "n"], *columns: str) -> tuple[Shaped[Array, "..."], ...]:
        """Offsets and columns as of `part`, of the sessions `rows`, which rise; one partition after the other."""
        found = []
        for low, high in pairwise(self.sessions.tolist()):
            here = rows[np.searchsorted(rows, low) : np.searchsorted(rows, high)] - low
            if len(here):
                offsets, *own = self.part(low, high, *columns)
                lengths = np.diff(offsets)[here]
                starts = np.cumsum(lengths) - lengths
                steps = np.arange(lengths.sum()) + np.repeat(offsets[here] - starts, lengths)
                found.append((lengths, *(column[steps] for column in own)))
        lengths, *picked = (np.concatenate(pieces) for pieces in zip(*found, strict=True))
        return np.concatenate([[0], np.cumsum(lengths)]), *picked

    def of_sessions(self, column: str, low: int = 0, high: int | None = None) -> Shaped[Array, "N"]:
        """A column with one entry a session, of sessions low to high - 1; by default of all."""
        high = self.n_sessions if high is None else high
        start, end = np.searchsorted(self.sessions, [low + 1, high]).tolist()
        pieces = []
        for number in range(start - 1, end):
            first, last = (int(max(edge - self.sessions[number], 0)) for edge in (low, high))
            pieces.append(self._map(number, column)[first:last])
        return _joined(pieces)

    def _column(self, number: int, column: str, steps: slice) -> Shaped[Array, "s"]:
        found = self._map(number, column)[steps]
        if column != CODES or self.recoding is None:
            return found
        return self.recoding.codes(found, self._map(number, REWARDS)[steps] if self.recoding.beside else None)

    def _map(self, number: int, column: str) -> Shaped[Array, "..."]:
        """One file, mapped into memory."""
        path = Path(self.folder, f"{self.names[number]}.{column}")
        sizes = {CODES: self.code_bytes, LENGTHS: self.length_bytes[number]}
        dtype = _UNSIGNED[sizes[column]] if column in sizes else OF_SESSIONS.get(column, np.float64)
        whole = column == LENGTHS or column in OF_SESSIONS
        size = int(np.diff(self.sessions if whole else self.steps)[number])
        try:
            return np.asarray(np.memmap(path, dtype, "r", shape=(size,)))
        except (OSError, ValueError):
            raise InvalidFile(
                f"{path}: {platform.node()} cannot see this part of the packed log, or it was cut: the folder must lie "
                f"under the same name wherever passes run"
            ) from None


def _joined(pieces: list[Shaped[Array, "..."]]) -> Shaped[Array, "..."]:
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


_SESSIONS = 1 << 16  # looked at together


def is_packed(path: str | os.PathLike[str]) -> bool:
    """Whether `path` is the folder of a packed log."""
    return (Path(path) / MANIFEST).is_file()


@dataclass(frozen=True, eq=False)
class Packed:
    """A log that `lmab.pack` wrote, for logs larger than memory; it goes wherever `Sessions` goes in `fit`.

    Opening it reads the manifest and checks that every file is whole and unchanged.

    Args:
        folder: where the log was packed.
        verify: read all files once to compare their checksums; False compares only their sizes.
        cutting: how rewards are cut when they are read, as `cut` says it; None: they are not.

    Examples:
        >>> import os, tempfile, lmab
        >>> log = lmab.Sessions.from_arrays([[0, 1], [2, -1]], [[1.0, 0.0], [1.0, 0.0]])
        >>> folder = os.path.join(tempfile.mkdtemp(), "packed")
        >>> packed = lmab.pack(log, folder)
        >>> packed
        Packed(2 sessions, 3 steps, 3 arms, 1 partition)
        >>> packed.load() == log
        True
    """

    folder: str | os.PathLike[str]
    verify: bool = True
    cutting: Cutting | None = field(default=None, repr=False)
    manifest: Manifest = field(init=False, repr=False)
    travels = True  # a pickle of it is small, and finds the files wherever they are seen

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder))
        object.__setattr__(self, "manifest", read_manifest(self._path))
        check_files(self._path, self.manifest, contents=self.verify)

    def __reduce__(self) -> tuple[Any, ...]:
        return Packed, (str(self._path.resolve()), False, self.cutting)

    @property
    def _path(self) -> Path:
        return Path(self.folder)

    def __len__(self) -> int:
        return self.manifest.n_sessions

    @property
    def n_steps(self) -> int:
        """The number of steps of all sessions together."""
        return self.manifest.n_steps

    @property
    def n_arms(self) -> int:
        return self.manifest.n_arms

    @cached_property
    def features(self) -> Features | None:
        """What is known of each session before its first step."""
        known = self.manifest.features
        if known is None:
            return None
        rows = self.partitions.of_sessions("features").astype(np.int32)
        return Features.from_rows(known["columns"], known["rows"], rows, untyped=known["untyped"])

    @cached_property
    def persons(self) -> Integer[Array, "N"] | None:
        """Whose session it was: integers themselves, a hash of names, and STRANGER where nobody knows."""
        return self.partitions.of_sessions("persons") if self._has("persons") else None

    @cached_property
    def endings(self) -> Integer[Array, "N"] | None:
        """The code of how each session ended."""
        return self.partitions.of_sessions("endings") if self._has("endings") else None

    @property
    def ended(self) -> Shaped[Array, "N"] | None:
        """How each session ended: "left", "went on" or "unknown"; None: the log does not say."""
        return None if self.endings is None else np.array(ENDED)[self.endings]

    @cached_property
    def times(self) -> Float[Array, "N"] | None:
        """The time of the first step of each session, in seconds; None if the log has no times."""
        return self.partitions.of_sessions("times") if self._has("times") else None

    def _has(self, column: str) -> bool:
        return column in self.manifest.partitions[0].files

    @property
    def arm_labels(self) -> tuple[str | int, ...] | None:
        """What the arms are called; None: their numbers."""
        return self.manifest.arm_labels

    @cached_property
    def values(self) -> Float[Array, "Z"] | None:
        """The distinct rewards, rising; None where there are too many to be listed."""
        return self._filed_values if self.cutting is None else self.cutting.values

    @property
    def _filed_values(self) -> Float[Array, "V"] | None:
        return None if self.manifest.values is None else np.array(self.manifest.values)

    def cut(self, edges: Float[Array, "E"], values: Float[Array, "Z"]) -> Packed:
        """The same log with other rewards: `values[k]` for those from `edges[k - 1]` to below `edges[k]`; both rise.

        The files stay as they are. Rewards are cut whenever some of them are read.
        """
        cutting = Cutting(edges, values)
        return Packed(self.folder, False, cutting if self.cutting is None else cutting.after(self.cutting))

    @cached_property
    def partitions(self) -> Partitions:
        """Where the sessions lie."""
        recoding = None if self.cutting is None else Recoding.of(self.cutting, self.n_arms, self._filed_values)
        return Partitions.of(self._path, self.manifest, recoding)

    @cached_property
    def cells(self) -> Integer[Array, "A Z"]:
        """How often each arm paid each value; one column where rewards are not listed."""
        filed = read_cells(self._path).reshape(self.n_arms, -1)
        if self.cutting is None:
            return filed
        cells = np.zeros(self.n_arms * len(self.cutting.values), np.int64)
        for low in range(0, len(self), _SESSIONS):
            _, codes = self.partitions.part(low, min(low + _SESSIONS, len(self)), CODES)
            cells += np.bincount(codes, minlength=len(cells))
        return cells.reshape(self.n_arms, -1)

    @property
    def plays(self) -> Integer[Array, "A"]:
        """How often each arm was played."""
        return self.cells.sum(axis=1)

    @property
    def horizon(self) -> int:
        """The number of steps of the longest session."""
        return self.manifest.lengths[-1][0]

    def share_of_length(self, least: int) -> float:
        """The share of the sessions with at least so many steps."""
        return sum(count for length, count in self.manifest.lengths if length >= least) / len(self)

    @property
    def median_length(self) -> float:
        """The median number of steps of a session."""
        lengths, counts = np.array(self.manifest.lengths).T
        middle = np.searchsorted(np.cumsum(counts), [(len(self) - 1) // 2, len(self) // 2], side="right")
        return float(lengths[middle].mean())

    @property
    def one_reward(self) -> float | None:
        """The reward of every step, where all are the same."""
        return None if self.values is None or len(self.values) > 1 else float(self.values[0])

    def __getitem__(self, indices: Any) -> Sessions:
        """The sessions at `indices`, in memory: an integer, a slice, or an index array."""
        if isinstance(indices, slice):
            low, high, step = indices.indices(len(self))
            if step == 1 and high > low:
                return self._between(low, high)
            indices = np.arange(low, high, step)
        rows = np.atleast_1d(np.asarray(indices))
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows
        rows = np.where(rows < 0, rows + len(self), rows)
        if len(rows) == 0:
            raise InvalidArgument("indices must pick at least one session, got none")
        if rows.min() < 0 or rows.max() >= len(self):
            raise InvalidArgument(f"indices must be in 0..{len(self) - 1}, got {rows.max()}")
        return self._picked(rows)

    def _picked(self, rows: Integer[Array, "n"]) -> Sessions:
        wanted, back = np.unique(rows, return_inverse=True)
        log = self._sessions(wanted, *self.partitions.pick(wanted, *self._columns))
        return log if np.array_equal(back, np.arange(len(wanted))) else log[back]

    def _between(self, low: int, high: int) -> Sessions:
        return self._sessions(slice(low, high), *self.partitions.part(low, high, *self._columns))

    @property
    def _columns(self) -> tuple[str, ...]:
        files = self.manifest.partitions[0].files
        return tuple(name for name in files if name != LENGTHS and name not in OF_SESSIONS)

    def _sessions(self, rows: Any, offsets: Integer[Array, "n1"], *columns: Array) -> Sessions:
        found = dict(zip(self._columns, columns, strict=True))
        codes, values = found[CODES], self.values
        if values is None:
            arms, rewards = codes, found[REWARDS]
        else:
            arms, places = np.divmod(codes, np.array(len(values)).astype(np.int64 if codes.itemsize > 2 else np.int32))
            rewards = values[places]
        times = None if self.times is None else self.times[rows]
        unordered = None if self.manifest.ordered else np.full(len(offsets) - 1, UNORDERED)
        known = (
            None if self.features is None else self.features.take(rows),
            None if self.persons is None else self.persons[rows],
            None if self.endings is None else self.endings[rows],
            unordered if times is None else ranks(times),
            times,
        )
        return Sessions(arms, rewards, offsets, self.n_arms, found.get(PROPENSITIES), self.arm_labels, *known)

    @property
    def some_rewards(self) -> Float[Array, "S"]:
        """Rewards among which each reward of the log is: each once, where they are listed."""
        if self.values is not None:
            return self.values
        return reduce(np.union1d, (np.unique(chunk.rewards) for chunk in self.chunks(_SESSIONS)))

    def chunks(self, n_sessions: int) -> Iterator[Sessions]:
        """The log in pieces of so many sessions, each of them in memory."""
        for low in range(0, len(self), n_sessions):
            yield self[low : low + n_sessions]

    def load(self) -> Sessions:
        """The whole log in memory, sessions in the order of the files."""
        return self._between(0, len(self))

    def with_arms(self, n_arms: int) -> Sessions:
        """The whole log in memory, with more arms; the new arms were never played."""
        return self.load().with_arms(check_count("n_arms", n_arms))

    def __repr__(self) -> str:
        n = len(self.manifest.partitions)
        sizes = f"{len(self)} sessions, {self.n_steps} steps, {self.n_arms} arms"
        return f"Packed({sizes}, {n} partition{'s' if n > 1 else ''})"
