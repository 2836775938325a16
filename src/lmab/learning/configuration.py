"""Configurations (frozen dataclasses of plain values, bandits and other configurations) as records, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from ..errors import InvalidFile
from ..files import Record
from ..model import LatentBandit


def encode(configuration: Any) -> Record:
    """The record of a configuration; its kind is the name of the class."""
    plain: dict[str, Any] = {}
    nested: dict[str, Record] = {}
    for name in (field.name for field in fields(configuration)):
        value = getattr(configuration, name)
        if isinstance(value, LatentBandit):
            nested[name] = value.record()
        elif is_dataclass(value):
            nested[name] = encode(value)
        else:
            plain[name] = list(value) if isinstance(value, tuple) else value
    return Record(type(configuration).__name__, plain, records=nested)


def decode(record: Record, makers: Mapping[str, Callable[..., Any]]) -> Any:
    """The configuration of a record; `makers` are the classes that may be in it, by name."""
    if record.kind == "bandit":
        return LatentBandit.from_record(record)
    if record.kind not in makers:
        raise InvalidFile(f"holds a {record.kind!r}, which this lmab does not know")
    plain = {name: tuple(value) if isinstance(value, list) else value for name, value in record.fields.items()}
    nested = {name: decode(part, makers) for name, part in record.records.items()}
    return makers[record.kind](**plain, **nested)
