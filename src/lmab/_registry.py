"""Registry of saved kinds: the class of each kind of record in files, imported when it is first needed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

_modules: dict[str, str] = {}  # the module that registers a kind, by kind
_classes: dict[str, Any] = {}  # the class of a kind; it has a class method `from_record`


def declare(package: str, modules: Mapping[str, str]) -> None:
    """Declare the kinds that modules of a package register, separated by spaces, by the name of the module."""
    for module, kinds in modules.items():
        _modules.update(dict.fromkeys(kinds.split(), f"{package}.{module}"))


def register(kind: str, cls: Any) -> None:
    """Make `cls` the class that restores records of this kind; a later class replaces an earlier one."""
    _classes[kind] = cls


def registered(kind: str) -> Any:
    """Return the class of a kind if its module was imported; None otherwise."""
    return _classes.get(kind)


def class_of(kind: str) -> Any:
    """Return the class of a kind, after an import of the module that registers it; None for an unknown kind."""
    if kind not in _classes and kind in _modules:
        import_module(_modules[kind])
    return registered(kind)


def declared() -> dict[str, str]:
    """Return the module of every declared kind."""
    return dict(_modules)
