"""Packed: a log in a folder of files that are read in place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

import numpy as np

from ..._shapes import Array, Float, Integer
from ...checks import check_count
from ...errors import InvalidArgument
from ..sessions import Sessions
from .cutting import Cutting, Recoding
from .manifest import MANIFEST, Manifest, check_files, read_cells, read_manifest
from .partitions import CODES, PROPENSITIES, REWARDS, Partitions

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
        log = self._sessions(*self.partitions.pick(wanted, *self._columns))
        return log if np.array_equal(back, np.arange(len(wanted))) else log[back]

    def _between(self, low: int, high: int) -> Sessions:
        return self._sessions(*self.partitions.part(low, high, *self._columns))

    @property
    def _columns(self) -> tuple[str, ...]:
        return tuple(name for name in self.manifest.partitions[0].files if name != "lengths")

    def _sessions(self, offsets: Integer[Array, "n1"], *columns: Array) -> Sessions:
        found = dict(zip(self._columns, columns, strict=True))
        codes, values = found[CODES], self.values
        if values is None:
            arms, rewards = codes, found[REWARDS]
        else:
            arms, places = np.divmod(codes, np.array(len(values)).astype(np.int64 if codes.itemsize > 2 else np.int32))
            rewards = values[places]
        return Sessions(arms, rewards, offsets, self.n_arms, found.get(PROPENSITIES), self.arm_labels)

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
