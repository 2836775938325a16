"""A pytest plugin that leaves out the tests of `lmab.paper`: `make without-paper` runs the others without that folder.

A test needs the paper's code if its own source, or a helper of its file that it uses, names something of it: the
package `lmab.paper`, a name that a public entry point takes from it, or one of its commands. Whatever else fails
without the folder is a dependency that must not exist. A file that needs the paper's code to be imported at all is
left out as a whole; these files are printed.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import house
import pytest

COMMANDS = ("learn", "budget", "reproduce")
MODULES = ("theory", "experiment")  # public entry points that hold nothing else


@cache
def pattern() -> re.Pattern[str]:
    """Return a pattern that matches every mention of the paper's code."""
    names = {name for entry in house.modules() if entry not in MODULES for name in _taken_from_paper(entry)}
    modules = "|".join(MODULES)
    quoted = "|".join(f"""["']{name}["']""" for name in COMMANDS)
    return re.compile(
        rf"\b(?:{'|'.join(sorted(names))})\b|\blmab[./]paper\b|{quoted}"
        rf"|\blmab\.(?:{modules})\b|\bfrom lmab import .*\b(?:{modules})\b|\b(?:{modules})\.\w"
    )


def _taken_from_paper(entry: str) -> set[str]:
    """Return the names that a module outside `paper` takes from it."""
    if entry.partition(".")[0] == "paper":
        return set()
    return {name for source, name in house.imports_of(entry) if source.startswith("paper.") and name is not None}


def needs_paper(source: str) -> tuple[bool, frozenset[str]]:
    """Return whether a test file needs the paper's code at its import, and the names of the functions that do."""
    definitions, others = {}, []
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            definitions[node.name] = _text(source, node)
        elif not _is_text(node):
            others.append(_text(source, node))
    if any(pattern().search(text) for text in others) or any(map(_is_papers, _imported(source))):
        return True, frozenset(definitions)
    found = {name for name, text in definitions.items() if pattern().search(text)}
    while more := {name for name, text in definitions.items() if found & set(re.findall(r"\w+", text))} - found:
        found |= more
    return False, frozenset(found)


def _imported(source: str) -> set[str]:
    """Return the modules that a file imports when it is imported itself."""
    return set(re.findall(r"^(?:from|import) (\w+)", source, re.MULTILINE))


@cache
def _is_papers(module: str) -> bool:
    """Return whether a module of the tests or benchmarks needs the paper's code."""
    path = Path(__file__).parent / f"{module}.py"
    if not path.is_file():
        return module == "benchmarks"
    source = path.read_text()
    lines = "\n".join(re.findall(r"^(?:from|import) .*", source, re.MULTILINE))
    return pattern().search(lines) is not None or any(map(_is_papers, _imported(source)))


def _text(source: str, node: ast.stmt) -> str:
    first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
    return "\n".join(source.splitlines()[first - 1 : node.end_lineno])


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


@cache
def _of_file(path: Path) -> tuple[bool, frozenset[str]]:
    return needs_paper(path.read_text())


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the files that need the paper's code at their import."""
    if collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    if not _of_file(collection_path)[0]:
        return None
    print(f"left out: {collection_path.name}")
    return True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that name the paper's code, themselves or through a helper."""
    left_out = [item for item in items if _top(item) in _of_file(item.path)[1]]
    config.hook.pytest_deselected(items=left_out)
    kept = set(items) - set(left_out)
    items[:] = [item for item in items if item in kept]


def _top(item: pytest.Item) -> str:
    """Return the name of the function or class of the file that a test belongs to."""
    return re.split(r"[.\[]", item.nodeid.split("::", 2)[1])[0] if "::" in item.nodeid else item.name
