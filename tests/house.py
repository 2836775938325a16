"""The house, read from its sources: modules with their sentences, floors, and imports from room to room.

`python tests/house.py` (`make map`) writes the map into docs/design.md.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "lmab"
PAGE = ROOT / "docs" / "design.md"
MAP = re.compile(r"(?<=<!-- map -->\n).*?(?=<!-- end of map -->)", re.S)


def modules() -> dict[str, ast.Module]:
    """Every module by its dotted name below the package; a package goes by its own name, and the whole by ''."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(path.read_text())
    return found


def sentence(module: ast.Module) -> str:
    """The first line of the docstring."""
    return (ast.get_docstring(module) or "").partition("\n")[0]


def floors() -> list[list[str]]:
    """The rooms of each floor, from the ground up, as the contract in pyproject.toml has them."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = next(contract["layers"] for contract in settings["contracts"] if contract["type"] == "layers")
    return [re.split(r"\s*[|:]\s*", layer) for layer in reversed(layers)]


def chart() -> str:
    """The map: for every floor its rooms, for every room its modules with one sentence each."""
    known, lines = modules(), []
    for number, rooms in enumerate(floors()):
        lines += ["", f"### Floor {number}: {', '.join(f'`{room}`' for room in rooms)}", ""]
        lines += ["| module | what it holds |", "|---|---|"]
        for room in rooms:
            names = [name for name in known if name == room or name.startswith(f"{room}.")]
            lines += [f"| `{name}` | {sentence(known[name])} |" for name in names]
    return "\n".join([*lines, "", ""])


def past_the_door() -> Iterator[str]:
    """Imports of a name that the package it belongs to does not show."""
    known = modules()
    packages = {name.rpartition(".")[0] for name in known}
    for name, module in known.items():
        package = name if name in packages else name.rpartition(".")[0]
        for node in ast.walk(module):
            for target, names in _targets(node, package):
                room, _, inside = target.partition(".")
                if room == name.partition(".")[0] or room not in packages:
                    continue
                hidden = names if inside else [one for one in names if one not in _shown(known[room])]
                if hidden:
                    yield f"{name or 'lmab'}: from {target} import {', '.join(hidden)}"


def _targets(node: ast.AST, package: str) -> Iterator[tuple[str, list[str]]]:
    """Modules of ours that a statement imports, below the whole, and the names it takes from each."""
    if isinstance(node, ast.Import):
        yield from ((alias.name.removeprefix("lmab."), ["*"]) for alias in node.names if alias.name.startswith("lmab."))
    elif isinstance(node, ast.ImportFrom):
        base = _base(node, package)
        names = [alias.name for alias in node.names]
        if base:
            yield base, names
        elif base == "":  # `from . import files`, at the top
            yield from ((name, []) for name in names)


def _base(node: ast.ImportFrom, package: str) -> str | None:
    """The module that names are taken from; None where it is not ours."""
    if not node.level:
        module = node.module or ""
        return module.removeprefix("lmab").removeprefix(".") if re.match(r"lmab(\.|$)", module) else None
    parts = package.split(".") if package else []
    above = parts[: len(parts) - node.level + 1]
    return ".".join([*above, *([node.module] if node.module else [])])


def _shown(door: ast.Module) -> set[str]:
    """The names that a package's `__init__` binds."""
    found: set[str] = set()
    for node in door.body:
        if isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


if __name__ == "__main__":
    text = PAGE.read_text()
    PAGE.write_text(MAP.sub(lambda _: chart(), text))
    if PAGE.read_text() != text:
        print(f"{PAGE.relative_to(ROOT)}: the map is brought up to date")
