"""The house, read from its sources: modules with their sentences, floors, and imports from room to room.

`python tests/house.py` writes docs/modules.md, a page of the site that is not kept: `make docs` runs it first.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "lmab"
PAGE = ROOT / "docs" / "modules.md"


@cache
def modules() -> Mapping[str, ast.Module]:
    """Every module by its dotted name below the package; a package goes by its own name, and the whole by ''."""
    return {name_of(path): ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}


def name_of(path: Path) -> str:
    """Return the dotted name of a source file."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_package(name: str) -> bool:
    return (SOURCE / name.replace(".", "/")).is_dir()


def sentence(module: ast.Module) -> str:
    """Return the first line of the docstring."""
    return (ast.get_docstring(module) or "").partition("\n")[0]


def floors() -> list[list[str]]:
    """Return the modules of each layer, from the lowest, as listed in the contract in pyproject.toml."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = next(contract["layers"] for contract in settings["contracts"] if contract["type"] == "layers")
    return [re.split(r"\s*[|:]\s*", layer) for layer in reversed(layers)]


def chart() -> str:
    """Return the page of modules: the packages of each layer, and their modules with one sentence each."""
    known, lines = modules(), ["# Modules", "", "From the ground up; the first line of every module."]
    for number, rooms in enumerate(floors()):
        lines += ["", f"## Floor {number}: {', '.join(f'`{room}`' for room in rooms)}", ""]
        lines += ["| module | what it holds |", "|---|---|"]
        for room in rooms:
            names = [name for name in known if name == room or name.startswith(f"{room}.")]
            lines += [f"| `{name}` | {sentence(known[name])} |" for name in names]
    return "\n".join([*lines, ""])


def imports(tree: ast.Module, package: str = "") -> Iterator[tuple[str, str | None]]:
    """Return the imports from `lmab` in a file: pairs of a module and a name in it (None: the module itself)."""
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if re.match(r"lmab(\.|$)", alias.name):
                    yield alias.name.removeprefix("lmab").removeprefix("."), None
        elif isinstance(node, ast.ImportFrom) and (base := _base(node, package)) is not None:
            for alias in node.names:
                inside = f"{base}.{alias.name}".strip(".")
                yield (inside, None) if inside in modules() else (base, alias.name)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Return all statements of a file, nested ones included, without expressions."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(node, name, ()):
            yield inner
            yield from _statements(inner)


def _base(node: ast.ImportFrom, package: str) -> str | None:
    """Return the module that names are imported from, or None if it is not part of `lmab`."""
    if not node.level:
        module = node.module or ""
        return module.removeprefix("lmab").removeprefix(".") if re.match(r"lmab(\.|$)", module) else None
    parts = package.split(".") if package else []
    above = parts[: len(parts) - node.level + 1]
    return ".".join([*above, *([node.module] if node.module else [])])


@cache
def imports_of(name: str) -> tuple[tuple[str, str | None], ...]:
    """Return the imports from `lmab` in one of its modules."""
    return tuple(imports(modules()[name], name if is_package(name) else name.rpartition(".")[0]))


def definer(module: str, name: str) -> str:
    """Return the module that defines a name, which packages may re-export."""
    for source, taken in imports_of(module):
        if taken == name and source != module:
            return definer(source, name)
    return module


def through_a_door(name: str) -> Iterator[str]:
    """Imports of this module that take a name from the front door of another package instead of its own module."""
    room = name.partition(".")[0]
    for source, taken in imports_of(name):
        if taken is not None and is_package(source) and source.partition(".")[0] != room:
            home = definer(source, taken)
            if home != source:
                yield f"{name}: {taken} comes from {source or 'lmab'}, and is defined in {home}"


if __name__ == "__main__":
    PAGE.write_text(chart())
