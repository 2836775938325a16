"""File format of the package: a zip archive that holds numbers and text, never code.

A file is a zip archive of stored (uncompressed) members: `lmab.json`, the header, and one `NAME.npy` per array.
The header is `{"format": "lmab", "version": 1, "kind": ..., "fields": {...}}`; arrays are in NumPy's own format,
written and read with pickling off. The archive's checksums detect damage. Files are replaced atomically and the same
value always gives the same bytes.

`encode` converts a frozen dataclass into a record, and `decode` restores the dataclass. Plain values (numbers, text,
tuples of them, None) are fields of the record, arrays are its arrays, and a value that has its own `record`, or another
dataclass, is a nested record. When a record is read, its fields are checked against the annotations of the class,
because a file may hold anything.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import secrets
import zipfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

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
    """Contents of a file: its kind, plain fields (JSON), arrays, and nested records by name."""

    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, Array] = field(default_factory=dict)
    records: Mapping[str, Record] = field(default_factory=dict)


def write(path: str | os.PathLike[str], record: Record) -> None:
    """Write `record` to `path` atomically: a reader sees the old file or the new one, never a partial one.

    Permissions of the file follow the umask of the process.
    """
    check_writable(path)
    folder = os.path.dirname(os.path.abspath(path))
    temporary = os.path.join(folder, f".lmab-{secrets.token_hex(8)}")
    handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
    try:
        with os.fdopen(handle, "wb") as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
            _write_record(archive, record, prefix="")
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
    except Exception as error:  # the file may hold anything, and a parser may raise any error on it
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


Value = TypeVar("Value")
Makers = Mapping[str, Callable[..., Any]]  # the constructor of each kind of record

_SPECIAL = "float"  # the key under which a number that JSON does not know is written: {"float": "inf"}


def encode(value: Any, kind: str | None = None, *, without: Collection[str] = ()) -> Record:
    """Return the record of a dataclass except for the fields `without`; `kind` defaults to the name of the class."""
    plain: dict[str, Any] = {}
    arrays: dict[str, Any] = {}
    nested: dict[str, Record] = {}
    for name in (one.name for one in fields(value) if one.name not in without):
        part = getattr(value, name)
        if isinstance(part, np.ndarray):
            arrays[name] = part
        elif hasattr(part, "record"):
            nested[name] = part.record()
        elif is_dataclass(part):
            nested[name] = encode(part)
        else:
            plain[name] = as_plain(part)
    return Record(kind or type(value).__name__, plain, arrays, nested)


def decode(record: Record, maker: type[Value], makers: Makers | None = None, **given: Any) -> Value:
    """Return the dataclass `maker` that a record describes.

    Args:
        record: a result of `encode`.
        maker: the class.
        makers: constructors of nested records, by kind.
        given: fields that the caller has read by other means.
    """
    hints = get_type_hints(maker)
    parts = {name: from_plain(value) for name, value in record.fields.items() if name not in given}
    parts |= {name: array for name, array in record.arrays.items() if name not in given}
    nested = {name: part for name, part in record.records.items() if name not in given}
    parts |= {name: decode_any(part, makers or {}) for name, part in nested.items()}
    unknown = parts.keys() - hints.keys()
    if unknown:
        raise InvalidFile(f"holds a {record.kind} with {min(unknown)!r}, which this lmab does not know")
    checked = {name: _checked(f"{name} of a {record.kind}", part, hints[name]) for name, part in parts.items()}
    return maker(**checked, **given)


def decode_any(record: Record, makers: Makers) -> Any:
    """Return the value of a record whose kind is one of `makers`."""
    if record.kind not in makers:
        raise InvalidFile(f"holds a {record.kind!r}, which this lmab does not know")
    maker = makers[record.kind]
    return decode(record, maker, makers) if isinstance(maker, type) else maker(record)


def as_plain(value: Any) -> Any:
    """Return the value in a form that JSON can represent."""
    if isinstance(value, Enum):
        return as_plain(value.value)
    if isinstance(value, np.generic):
        return as_plain(value.item())
    if isinstance(value, tuple | list):
        return [as_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {_SPECIAL: repr(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a {type(value).__name__} has no file form")


def from_plain(plain: Any) -> Any:
    """Return the value that `as_plain` wrote."""
    if isinstance(plain, list):
        return tuple(from_plain(part) for part in plain)
    if isinstance(plain, dict):
        if plain.keys() != {_SPECIAL}:
            raise InvalidFile(f"damaged: {plain!r} is not a number")
        return float(plain[_SPECIAL])
    return plain


def _checked(name: str, value: Any, hint: Any) -> Any:
    """Return the value if it agrees with its annotation; convert the value of an enumeration into its member."""
    for kind in get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,):
        if isinstance(kind, type) and issubclass(kind, Enum):
            if any(value == member.value for member in kind):
                return kind(value)
        elif _fits(value, kind):
            return value
    raise InvalidFile(f"damaged: {name} is {value!r}")


def _fits(value: Any, kind: Any) -> bool:
    if get_origin(kind) is tuple:
        kinds = get_args(kind)
        if not isinstance(value, tuple):
            return False
        if kinds[-1] is Ellipsis:
            return all(_fits_any(part, kinds[0]) for part in value)
        return len(value) == len(kinds) and all(map(_fits_any, value, kinds))
    if kind is None or kind is NoneType:
        return value is None
    if kind in (int, float):
        allowed = int if kind is int else int | float
        return isinstance(value, allowed) and not isinstance(value, bool)
    try:
        return isinstance(value, kind)
    except TypeError:  # Any, and protocols, which promise methods and not a class
        return True


def _fits_any(value: Any, hint: Any) -> bool:
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return any(_fits(value, kind) for kind in kinds)
