"""The partitions of a packed log: sessions by number, read in place from whichever files hold them.

The object is small and knows only where files lie, so that it can be sent to other processes and machines.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

from ..._shapes import Array, Integer, Shaped
from ...errors import InvalidFile
from .cutting import Recoding
from .manifest import Manifest

LENGTHS, CODES, REWARDS, PROPENSITIES = "lengths", "codes", "rewards", "propensities"
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

    def _column(self, number: int, column: str, steps: slice) -> Shaped[Array, "s"]:
        found = self._map(number, column)[steps]
        if column != CODES or self.recoding is None:
            return found
        return self.recoding.codes(found, self._map(number, REWARDS)[steps] if self.recoding.beside else None)

    def _map(self, number: int, column: str) -> Shaped[Array, "..."]:
        """One file, mapped into memory."""
        path = Path(self.folder, f"{self.names[number]}.{column}")
        sizes = {CODES: self.code_bytes, LENGTHS: self.length_bytes[number]}
        dtype = _UNSIGNED[sizes[column]] if column in sizes else np.float64
        size = int(np.diff(self.sessions if column == LENGTHS else self.steps)[number])
        try:
            return np.asarray(np.memmap(path, dtype, "r", shape=(size,)))
        except (OSError, ValueError):
            raise InvalidFile(
                f"{path}: {platform.node()} cannot see this part of the packed log, or it was cut: the folder must lie "
                f"under the same name wherever passes run"
            ) from None


def _joined(pieces: list[Shaped[Array, "..."]]) -> Shaped[Array, "..."]:
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
