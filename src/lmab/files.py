"""The file format of the package: a zip archive that holds numbers and text, never code.

A file is a zip archive of stored (uncompressed) members: `lmab.json`, the header, and one `NAME.npy` per array.
The header is `{"format": "lmab", "version": 1, "kind": ..., "fields": {...}}`; arrays are in NumPy's own format,
written and read with pickling off. The archive's checksums find damage. Files are replaced atomically and the same
value always gives the same bytes.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ._shapes import Array
from .checks import check_writable
from .errors import InvalidFile, first_line

VERSION = 1
HEADER = "lmab.json"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # zip's earliest date, so that the same value gives the same bytes
_ALLOWED_KINDS = "biuf"  # booleans, integers, floats: none of them can hold an object


@dataclass(frozen=True)
class Record:
    """What a file holds: its kind, plain fields (JSON), arrays, and other records by name."""

    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, Array] = field(default_factory=dict)
    records: Mapping[str, Record] = field(default_factory=dict)


def write(path: str | os.PathLike[str], record: Record) -> None:
    """Write `record` to `path`, atomically: a reader sees the old file or the new one, never half of one."""
    check_writable(path)
    folder = os.path.dirname(os.path.abspath(path))
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".lmab-")
    try:
        with os.fdopen(handle, "wb") as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
            _write_record(archive, record, prefix="")
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _write_record(archive: zipfile.ZipFile, record: Record, prefix: str) -> None:
    header = {"format": "lmab", "version": VERSION, "kind": record.kind, "fields": dict(record.fields)}
    header |= {"arrays": sorted(record.arrays), "records": sorted(record.records)}
    text = json.dumps(header, indent=1, sort_keys=True, allow_nan=False)
    archive.writestr(zipfile.ZipInfo(prefix + HEADER, _EPOCH), text)
    for name in sorted(record.arrays):
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, np.ascontiguousarray(record.arrays[name]), allow_pickle=False)
        archive.writestr(zipfile.ZipInfo(f"{prefix}{name}.npy", _EPOCH), buffer.getvalue())
    for name in sorted(record.records):
        _write_record(archive, record.records[name], prefix=f"{prefix}{name}/")


def read(path: str | os.PathLike[str]) -> Record:
    """Read a file written by `write`; any other file raises `InvalidFile` with its name."""
    name = os.fspath(path)
    try:
        with zipfile.ZipFile(path) as archive:
            _check_members(archive, os.path.getsize(path))
            return _read_record(archive, prefix="", depth=0)
    except FileNotFoundError:
        raise InvalidFile(f"{name}: no such file") from None
    except InvalidFile as error:
        raise InvalidFile(f"{name}: {error}") from None
    except zipfile.BadZipFile:
        raise InvalidFile(f"{name}: not a file of lmab, or incomplete") from None
    except Exception as error:  # any file may come in, and its parser may raise any error
        raise InvalidFile(f"{name}: damaged or not a file of lmab ({first_line(error)})") from None


def _check_members(archive: zipfile.ZipFile, size: int) -> None:
    """Refuse compressed members, so that reading never needs more memory than the file's size."""
    infos = archive.infolist()
    if any(info.compress_type != zipfile.ZIP_STORED for info in infos):
        raise InvalidFile("not a file of lmab: its members are compressed")
    if sum(info.file_size for info in infos) > size:
        raise InvalidFile("damaged: its members are larger than the file")


def _read_record(archive: zipfile.ZipFile, prefix: str, depth: int) -> Record:
    if depth > 4:
        raise InvalidFile("damaged: records nested too deep")
    if prefix + HEADER not in archive.namelist():
        raise InvalidFile(f"not a file of lmab: no {prefix + HEADER} inside")
    header = json.loads(archive.read(prefix + HEADER))
    if not isinstance(header, dict) or header.get("format") != "lmab":
        raise InvalidFile("not a file of lmab: its header names another format")
    version = header.get("version")
    if not isinstance(version, int) or version < 1:
        raise InvalidFile(f"damaged: its version is {version!r}")
    if version > VERSION:
        raise InvalidFile(f"written by a newer lmab (format {version}; this one reads up to {VERSION}): upgrade lmab")
    arrays = {name: _read_array(archive, f"{prefix}{name}.npy") for name in header["arrays"]}
    records = {name: _read_record(archive, f"{prefix}{name}/", depth + 1) for name in header["records"]}
    return Record(str(header["kind"]), dict(header["fields"]), arrays, records)


def _read_array(archive: zipfile.ZipFile, member: str) -> Array:
    array = np.lib.format.read_array(io.BytesIO(archive.read(member)), allow_pickle=False)
    if array.dtype.kind not in _ALLOWED_KINDS:
        raise InvalidFile(f"damaged: {member} holds {array.dtype}")
    array.flags.writeable = False
    return array
