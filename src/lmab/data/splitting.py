"""Split a log into two logs, so that a policy can be evaluated on sessions that no model was fitted to."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..checks import FRACTION, check, check_writable
from ..errors import InvalidArgument, InvalidData
from .columns import require_columns
from .engine import literal, quoted, temporary_engine
from .log_files import Paths, delimiter_of, kind_of, known_encoding, listed, move, opened, reading

_SIDES = ("train", "test")
_SUFFIX = {"CSV": ".csv", "Parquet": ".parquet", "JSON lines": ".jsonl"}


@dataclass(frozen=True)
class LogSplit:
    """The two logs that `split_log` wrote."""

    train: Path
    test: Path
    n_train: int  # sessions, or persons
    n_test: int


def split_log(
    path: Paths,
    *,
    by: str = "session",
    test: float = 0.2,
    seed: int = 0,
    folder: str | os.PathLike[str] | None = None,
    encoding: str = "utf-8",
) -> LogSplit:
    """Write two logs: one to fit a model to, and one of other sessions to evaluate its policy on.

    Rows and columns are copied as they are. All rows with the same id go to the same log, which depends on the id and
    the seed alone: a longer log of later days is split in the same way. The log is never in memory as a whole.

    Args:
        path: a log: a file, a folder, or several files of one kind.
        by: the column of the session, or of the person if persons return.
        test: share of the sessions (persons) that are kept for the evaluation, on average.
        seed: another seed makes another split.
        folder: the folder of the two logs, NAME-train and NAME-test; None: the folder of the log.
        encoding: of text files.

    Examples:
        >>> import pathlib, tempfile
        >>> log = pathlib.Path(tempfile.mkdtemp()) / "log.csv"
        >>> rows = [f"v{i},{arm},1" for i in range(1000) for arm in ("cake", "tea")]
        >>> _ = log.write_text("\\n".join(["session,arm,reward", *rows, ""]))
        >>> made = split_log(log)
        >>> made.test.name, made.n_train + made.n_test, 150 < made.n_test < 250
        ('log-test.csv', 1000, True)
    """
    share = check("test", test, FRACTION)
    files = listed(path)
    kinds = {kind_of(file) for file in files}
    if len(kinds) > 1:
        raise InvalidArgument(f"path must name files of one kind, got {' and '.join(sorted(kinds))}: split each alone")
    kind, first = kinds.pop(), Path(next(iter([path] if isinstance(path, str | os.PathLike) else path)))
    stem = first.name.split(".")[0] or "log"
    outputs = [Path(folder or first.parent) / f"{stem}-{side}{_SUFFIX[kind]}" for side in _SIDES]
    for output in outputs:
        check_writable(output)
    chosen = _Sides(share, seed)
    with ExitStack() as stack:
        halves = [stack.enter_context(_replacing(output)) for output in outputs]
        _COPY[kind](files, by, halves, chosen, known_encoding(encoding))
        if not chosen.train or not chosen.test:
            raise InvalidData(
                f"column {by!r} must hold enough ids for both logs, got {len(chosen.train) + len(chosen.test)}, all of "
                f"them in one log: give another seed or share"
            )
    return LogSplit(outputs[0], outputs[1], len(chosen.train), len(chosen.test))


class _Sides:
    """Assign each id to a log by a hash of seed and id."""

    def __init__(self, share: float, seed: int) -> None:
        self._limit, self._key = int(share * 2**64), str(seed).encode()
        self.train, self.test = set[int](), set[int]()

    def __call__(self, text: str) -> int:
        """Return 1 if the rows of this id are for the evaluation, else 0."""
        word = int.from_bytes(hashlib.blake2b(text.encode(), key=self._key, digest_size=8).digest(), "big")
        (self.test if word < self._limit else self.train).add(word)
        return int(word < self._limit)


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path that takes the place of `path` when everything was written."""
    half = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield half
        half.replace(path)
    finally:
        half.unlink(missing_ok=True)


def _copy_csv(files: list[Path], by: str, outputs: list[Path], chosen: _Sides, encoding: str) -> None:
    header: list[str] = []
    with ExitStack() as stack:
        targets = [stack.enter_context(output.open("w", encoding=encoding, newline="")) for output in outputs]
        for file in files:
            separator = delimiter_of(file, {"session": by}, encoding)
            with reading(file), io.TextIOWrapper(opened(file), encoding=encoding, newline="") as text:
                rows = csv.reader(text, delimiter=separator)
                names = [name.removeprefix("\ufeff") for name in next(rows, [])]
                require_columns(names, {"session": by})
                writers = [csv.writer(target, delimiter=separator, lineterminator="\n") for target in targets]
                if not header:
                    for writer in writers:
                        writer.writerow(names)
                header = header or names
                if names != header:
                    raise InvalidData(f"{file}: must have the columns of the other files, {header}, got {names}")
                place = names.index(by)
                for row in rows:
                    if len(row) > place:
                        writers[chosen(row[place])].writerow(row)


def _copy_json(files: list[Path], by: str, outputs: list[Path], chosen: _Sides, encoding: str) -> None:
    with ExitStack() as stack:
        targets = [stack.enter_context(output.open("w", encoding=encoding, newline="")) for output in outputs]
        for file in files:
            with reading(file), io.TextIOWrapper(opened(file), encoding=encoding) as lines:
                for line in filter(str.strip, lines):
                    row = json.loads(line.removeprefix("\ufeff"))
                    require_columns(list(row), {"session": by})
                    targets[chosen(str(row[by]))].write(line.rstrip("\n") + "\n")


def _copy_parquet(files: list[Path], by: str, outputs: list[Path], chosen: _Sides, encoding: str) -> None:
    with temporary_engine(files) as engine, reading(files[0]):
        sources = []
        for file in files:
            with reading(file):
                source = f"read_parquet({literal(str(engine.name_of(file)))})"
                require_columns([row[0] for row in engine.rows(f"DESCRIBE SELECT * FROM {source}")], {"session": by})
                sources.append(f"SELECT * FROM {source}")
        union = " UNION ALL BY NAME ".join(sources)
        ids = engine.rows(f"SELECT DISTINCT {quoted(by)}::VARCHAR FROM ({union})")
        held = [None if one is None else str(one) for (one,) in ids if chosen(str(one))]
        engine.register("held", {"one": np.array([one for one in held if one is not None] or [""], object)})
        missing = f"{quoted(by)} IS NULL AND {None in held}"
        test = f"({missing} OR {quoted(by)}::VARCHAR IN (SELECT one FROM held WHERE {len(held) > 0}))"
        for side, output in enumerate(outputs):
            made = engine.folder / f"side{side}"
            wanted = test if side else f"NOT coalesce({test}, false)"
            engine.run(f"COPY (SELECT * FROM ({union}) WHERE {wanted}) TO {literal(str(made))} (FORMAT parquet)")
            move(made, output)


_COPY: dict[str, Callable[..., None]] = {"CSV": _copy_csv, "JSON lines": _copy_json, "Parquet": _copy_parquet}
