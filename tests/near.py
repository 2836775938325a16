"""Test files of one module: `python tests/near.py src/lmab/planning/search.py` (`make near FILE=...`).

The rule: the file named after the module; otherwise the files with most imports from it; otherwise the files that use
most of its names through a package; otherwise the test files of modules that import it, that it imports, or that are in
the same package, its own package first. `make near` omits the same tests as `make quick`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import chain
from pathlib import Path

import house

TESTS = Path(__file__).parent
MOST = 5  # files, so that the answer comes in seconds


def near(path: Path) -> list[str]:
    """Names of test files, in order; a test file is its own."""
    path = path.resolve()
    if path.parent == TESTS and path.name.startswith("test_"):
        return [path.name]
    if not path.is_file() or not path.is_relative_to(house.SOURCE):
        raise SystemExit(f"FILE must be a Python file below src/lmab or a test file, got {path}")
    return sorted(tests_of(house.name_of(path)))


def tests_of(name: str) -> set[str]:
    """Return the test files of a module by its dotted name, or of its neighbours if it has none of its own."""
    for ring in chain([[name]], _rings(name, _importers), _rings(name, _imported), _rings(name, _family)):
        found = Counter(test for module in ring for test in _own(module))
        if found:
            package = f"test_{name.partition('.')[0].strip('_')}"
            return set(sorted(found, key=lambda test: (not test.startswith(package), -found[test], test))[:MOST])
    return set()


def _own(name: str) -> set[str]:
    named = TESTS / f"test_{name.replace('.', '_').strip('_')}.py"
    if named.is_file():
        return {named.name}
    for counts in _uses():
        users = sorted((test for test in counts if counts[test][name]), key=lambda test: -counts[test][name])
        if users:
            return set(users[:MOST])
    return set()


def _rings(name: str, neighbours: Callable[[str], Iterable[str]]) -> Iterator[list[str]]:
    """Return the modules at import distance one, two, ..."""
    ring, seen = [name], {name}
    while ring:
        ring = sorted({other for module in ring for other in neighbours(module)} - seen)
        seen |= set(ring)
        yield ring


def _importers(name: str) -> list[str]:
    return [other for other in house.modules() if name in _imported(other)]


def _family(name: str) -> list[str]:
    package = name if house.is_package(name) else name.rpartition(".")[0]
    return [other for other in house.modules() if f"{other}.".startswith(f"{package}.")]


@cache
def _imported(name: str) -> frozenset[str]:
    """Return the modules that a module imports, and the packages that contain them."""
    sources = {source for source, _ in house.imports_of(name)}
    return frozenset(sources | {source.rpartition(".")[0] for source in sources} - {""})


@cache
def _uses() -> tuple[dict[str, Counter[str]], dict[str, Counter[str]]]:
    """Count the names that each test file uses of each module: imported from it, and through a package."""
    texts = {path.name: path.read_text() for path in sorted(TESTS.glob("test_*.py"))}
    taken = {test: set(house.imports(ast.parse(text))) for test, text in texts.items()}
    direct = {test: Counter(module for module, _ in pairs) for test, pairs in taken.items()}
    used = {test: Counter(_definers(taken[test] | set(_attributes(text)))) for test, text in texts.items()}
    return direct, used


def _definers(pairs: Iterable[tuple[str, str | None]]) -> Iterator[str]:
    for module, name in pairs:
        if name is not None and module in house.modules():
            yield house.definer(module, name)


def _attributes(text: str) -> Iterator[tuple[str, str]]:
    """Names such as `lmab.plan` and `lmab.moments.subspace`, by module and name, from the longest on."""
    for dotted in set(re.findall(r"\blmab((?:\.\w+)+)", text)):
        *modules, name = dotted[1:].split(".")
        yield ".".join(modules), name
        if modules:  # `lmab.Sessions.from_arrays` uses `lmab.Sessions`
            yield ".".join(modules[:-1]), modules[-1]


if __name__ == "__main__":
    print(*(f"tests/{name}" for name in near(Path(sys.argv[1] if sys.argv[1:] else ""))))
