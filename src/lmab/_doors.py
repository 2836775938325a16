"""Front doors: the public names of a package, each imported when it is first used.

The `__init__` of a package lists its public names as imports under `if TYPE_CHECKING:`, where type checkers and editors
read them. `door` reads the same statements, so that a program pays only for the modules that it needs.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec


def door(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package."""
    homes = _homes(package)

    def find(name: str) -> object:
        if name in homes:
            module, inside = homes[name]
            found = import_module(module) if inside is None else getattr(import_module(module), inside)
            setattr(sys.modules[package], name, found)
            return found
        if not name.startswith("_") and find_spec(f"{package}.{name}") is not None:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])

    return find, lambda: list(homes), list(homes)


def _homes(package: str) -> dict[str, tuple[str, str | None]]:
    """Every public name with its module, and its name there; None: the name is that of the module itself."""
    spec = sys.modules[package].__spec__
    assert spec is not None
    source = spec.loader.get_source(package)  # type: ignore[union-attr]
    imports = [node for block in ast.parse(source).body if isinstance(block, ast.If) for node in block.body]
    homes: dict[str, tuple[str, str | None]] = {}
    for node in imports:
        assert isinstance(node, ast.ImportFrom)
        base = package if node.level == 1 else package.rpartition(".")[0]
        for alias in node.names:
            home = (f"{base}.{alias.name}", None) if node.module is None else (f"{base}.{node.module}", alias.name)
            homes[alias.asname or alias.name] = home
    return homes
