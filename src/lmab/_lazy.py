"""Lazy imports (PEP 562): the public names of a package, each imported when it is first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec, resolve_name


def attach(
    package: str, names: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package.

    `names` has the public names of each module, separated by spaces, by the module's name relative to the package: "."
    stands for the package itself, whose public names are modules. The same names are imported under
    `if TYPE_CHECKING:`, for type checkers and editors.
    """
    modules = {name: module for module, listed in names.items() for name in listed.split()}

    def get(name: str) -> object:
        if name in modules:
            module = modules[name]
            value = (
                import_module(f"{package}.{name}") if module == "." else getattr(import_module(module, package), name)
            )
            setattr(sys.modules[package], name, value)
            return value
        if not name.startswith("_") and find_spec(resolve_name(f".{name}", package)) is not None:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])

    return get, lambda: list(modules), list(modules)
