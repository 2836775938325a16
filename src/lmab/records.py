"""Values as records: a frozen dataclass of plain values, arrays and other such values, and back.

Plain values (numbers, text, tuples of them, None) are fields of the record, arrays are its arrays, and a value with a
file form of its own, or another dataclass, is a nested record. What comes back is checked against the annotations of
the class, because a file may hold anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from .errors import InvalidFile
from .files import Record

Value = TypeVar("Value")
Makers = Mapping[str, Callable[..., Any]]  # by kind of record: a dataclass, or a function that takes the record

_SPECIAL = "float"  # the key under which a number that JSON does not know is written: {"float": "inf"}


def encode(value: Any, kind: str | None = None, *, without: Collection[str] = ()) -> Record:
    """The record of a dataclass, less the fields `without`; its kind is the name of the class, or the one given."""
    plain: dict[str, Any] = {}
    arrays: dict[str, Any] = {}
    nested: dict[str, Record] = {}
    for name in (field.name for field in fields(value) if field.name not in without):
        part = getattr(value, name)
        if isinstance(part, np.ndarray):
            arrays[name] = part
        elif hasattr(part, "record"):
            nested[name] = part.record()
        elif is_dataclass(part):
            nested[name] = encode(part)
        else:
            plain[name] = _plain(part)
    return Record(kind or type(value).__name__, plain, arrays, nested)


def decode(record: Record, maker: type[Value], makers: Makers | None = None, **given: Any) -> Value:
    """The dataclass `maker` that a record describes.

    Args:
        record: what `encode` made.
        maker: the class.
        makers: what may be nested in it, by kind.
        given: fields that the caller has read by other means.
    """
    hints = get_type_hints(maker)
    parts = {name: _value(value) for name, value in record.fields.items() if name not in given}
    parts |= {name: array for name, array in record.arrays.items() if name not in given}
    nested = {name: part for name, part in record.records.items() if name not in given}
    parts |= {name: decode_any(part, makers or {}) for name, part in nested.items()}
    unknown = parts.keys() - hints.keys()
    if unknown:
        raise InvalidFile(f"holds a {record.kind} with {min(unknown)!r}, which this lmab does not know")
    checked = {name: _checked(f"{name} of a {record.kind}", part, hints[name]) for name, part in parts.items()}
    return maker(**checked, **given)


def decode_any(record: Record, makers: Makers) -> Any:
    """The value of a record whose kind is one of `makers`."""
    if record.kind not in makers:
        raise InvalidFile(f"holds a {record.kind!r}, which this lmab does not know")
    maker = makers[record.kind]
    return decode(record, maker, makers) if isinstance(maker, type) else maker(record)


def _plain(value: Any) -> Any:
    """The value as JSON has it."""
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {_SPECIAL: repr(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a {type(value).__name__} has no file form")


def _value(plain: Any) -> Any:
    """The value that `_plain` wrote."""
    if isinstance(plain, list):
        return tuple(_value(part) for part in plain)
    if isinstance(plain, dict):
        if plain.keys() != {_SPECIAL}:
            raise InvalidFile(f"damaged: {plain!r} is no number")
        return float(plain[_SPECIAL])
    return plain


def _checked(name: str, value: Any, hint: Any) -> Any:
    """The value, if it is what the annotation says; a member of an enumeration is made from its value."""
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
