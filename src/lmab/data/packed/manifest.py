"""The manifest of a packed log: what its files hold, how large they are, and their checksums."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..._shapes import Array, Integer
from ...errors import InvalidFile, first_line

MANIFEST = "manifest.json"
CELLS = "cells"  # the file that counts how often each code occurs, 8 bytes a code
FORMAT = "lmab packed log"
VERSION = 1
_BLOCK = 1 << 24  # bytes of a file that are looked at together
_READERS = 4  # checksums release the interpreter's lock


@dataclass(frozen=True)
class Entry:
    """One partition: its sizes, and size and checksum of each of its files."""

    name: str  # of its files, before the dot
    n_sessions: int
    n_steps: int
    length_bytes: int  # of each length
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
    checksum: str  # of the log, as `Fingerprint` makes it
    cells: tuple[int, int]  # bytes and CRC-32 of the counts of the codes
    source: str  # which files, read how, were packed
    partitions: tuple[Entry, ...]

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
    fields = {name: found[name] for name in Manifest.__dataclass_fields__}
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
            raise InvalidFile(f"{path}: this part of the packed log is missing: pack the log again") from None
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
