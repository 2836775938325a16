"""What is packed: a log in files, or sessions in memory."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np

from ...errors import InvalidArgument
from .. import log_files
from ..columns import Labels
from ..ingest import Options, known_labels, notes_of
from ..naming import Columns
from ..rows import Rows, read_rows
from ..sessions import Sessions
from . import gathering
from .work import State

_TEXT_ROW = 16  # bytes of a row of text, about
_STEPS = 1 << 20  # of `Sessions`, handled together


class Files:
    """A log in files."""

    def __init__(self, files: list[Path], columns: Columns, options: Options) -> None:
        self.files, self.columns, self.options = files, columns, options
        self.notes = notes_of(files, columns, options)
        self.untyped = any(log_files.is_text(path) for path in files)

        self.by_events = options.gap is not None
        self.labels()  # tables that do not go together are told about at once

    @property
    def signature(self) -> str:
        """Which files, read how: the same for the same work."""
        found = [(str(path.resolve()), os.path.getsize(path), os.stat(path).st_mtime_ns) for path in self.files]
        text = json.dumps([found, dict(self.columns), asdict(self.options), gathering.PARTITION], default=str)
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

    def rows(self, state: State) -> Iterator[Rows]:
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

    def rows(self, state: State) -> Iterator[Rows]:
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
                yield Rows(row, ids, None, arms, places, own)
                session, row = session + high - low, row + len(arms)

    def _require_alike(self, log: Sessions) -> None:
        first = self._first
        assert first is not None
        if (log.n_arms, log.arm_labels) != (first.n_arms, first.arm_labels):
            raise InvalidArgument("the logs must have the same arms and labels, got logs that differ")
        if (log.propensities is None) != (first.propensities is None):
            raise InvalidArgument("all logs must have propensities, or none; got some with and some without")

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


def log_spans(log: Sessions) -> Iterator[tuple[int, int]]:
    """Ranges of sessions with a bounded number of steps."""
    low = 0
    while low < len(log):
        high = int(np.searchsorted(log.offsets, log.offsets[low] + _STEPS, side="right")) - 1
        yield low, max(high, low + 1)
        low = max(high, low + 1)


Source = Files | InMemory
