"""Faults drawn by a machine: a line of the package at random, then one of the changes that operators know for it.

The operators are those of mutmut, as a library: functions from a node of the syntax tree to its faulty versions. Its
own runner does not serve here: it puts every version of a function behind a switch inside the function, which Numba
would compile and the shape checks would not see through, and it leaves alone what stands outside of functions, where
defaults and thresholds are. Ours add what users notice first: defaults, thresholds and constants that are off by a
factor, options that are ignored, errors that are no longer caught, digits of numbers in texts.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import libcst as cst
import numpy as np
from libcst.metadata import MetadataWrapper, PositionProvider

from .faults import SOURCE, Fault

OUTSIDE = ("_kernel/cuda/",)  # only a GPU runs these
_SKIPPED = (cst.Annotation, cst.Import, cst.ImportFrom, cst.Decorator, cst.Assert)


def scaled(node: cst.BaseNumber) -> Iterator[cst.BaseExpression]:
    """Numbers off by a factor: mutmut adds one, which is far from every small threshold."""
    if isinstance(node, cst.Integer | cst.Float) and node.evaluated_value:
        for factor in (2, 0.5):
            value = node.evaluated_value * factor
            yield cst.parse_expression(repr(int(value) if isinstance(node, cst.Integer) else value))


def ignored_option(node: cst.FunctionDef) -> Iterator[cst.FunctionDef]:
    """An option is what it is by default, whatever the caller says."""
    if not isinstance(node.body, cst.IndentedBlock):
        return
    parameters = (*node.params.params, *node.params.kwonly_params)
    for parameter in parameters:
        if parameter.default is not None:
            target = cst.AssignTarget(cst.Name(parameter.name.value))
            line = cst.SimpleStatementLine([cst.Assign([target], parameter.default)])
            first = 1 if node.get_docstring() is not None else 0
            body = [*node.body.body[:first], line, *node.body.body[first:]]
            yield node.with_changes(body=node.body.with_changes(body=body))


def not_caught(node: cst.ExceptHandler) -> Iterator[cst.ExceptHandler]:
    """The error goes on instead of being handled."""
    line = cst.SimpleStatementLine([cst.Raise()])
    if not isinstance(node.body, cst.IndentedBlock) or not node.body.body[0].deep_equals(line):
        yield node.with_changes(body=cst.IndentedBlock([line]))


def other_digits(node: cst.FormattedStringExpression) -> Iterator[cst.FormattedStringExpression]:
    """A number in a text with one digit more or fewer, or a share that is no percentage."""
    spec = "".join(part.value for part in node.format_spec or () if isinstance(part, cst.FormattedStringText))
    found = re.fullmatch(r"(.*\.)(\d)([a-z%])", spec)
    if found:
        before, digits, kind = found.groups()
        others = [f"{before}{int(digits) + 1}{kind}", f"{before}{max(int(digits) - 1, 0)}{kind}"]
        others += [f"{before}{digits}f"] if kind == "%" else []
        for other in others:
            if other != spec:
                yield node.with_changes(format_spec=[cst.FormattedStringText(other)])


def other_extreme(node: cst.Call) -> Iterator[cst.Call]:
    """The least for the largest, and the reverse."""
    swaps = {"max": "min", "min": "max", "maximum": "minimum", "minimum": "maximum", "argmax": "argmin",
             "argmin": "argmax", "any": "all", "all": "any", "floor": "ceil", "ceil": "floor"}  # fmt: skip
    name = node.func.attr if isinstance(node.func, cst.Attribute) else node.func
    if isinstance(name, cst.Name) and name.value in swaps:
        yield node.with_deep_changes(name, value=swaps[name.value])


def other_branch(node: cst.If | cst.While) -> Iterator[cst.CSTNode]:
    """The condition is turned round."""
    inner = node.test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    yield node.with_changes(test=cst.UnaryOperation(cst.Not(), inner))


def left_out(node: cst.Expr | cst.AugAssign) -> Iterator[cst.Pass]:
    """A statement that is done for its effect is not done."""
    if not isinstance(node, cst.Expr) or isinstance(node.value, cst.Call):
        yield cst.Pass()


OURS: list[tuple[Any, Callable[[Any], Iterable[cst.CSTNode]]]] = [
    (cst.BaseNumber, scaled),
    (cst.FunctionDef, ignored_option),
    (cst.ExceptHandler, not_caught),
    (cst.FormattedStringExpression, other_digits),
    (cst.Call, other_extreme),
    ((cst.If, cst.While), other_branch),
    ((cst.Expr, cst.AugAssign), left_out),
]


@cache
def operators() -> list[tuple[Any, Callable[[Any], Iterable[cst.CSTNode]]]]:
    """All operators with the kinds of nodes that they take."""
    from mutmut.mutation.mutators import mutation_operators

    theirs = [(kind, operator) for kind, operator in mutation_operators if operator.__name__ != "operator_string"]
    return [*theirs, *OURS]


@dataclass(frozen=True)
class Change:
    """One operator at one node."""

    node: cst.CSTNode
    new: cst.CSTNode
    operator: str


class _Changes(cst.CSTVisitor):
    """The changes that operators know, by the line on which the node begins."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[int, list[Change]] = {}

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, _SKIPPED) or _guards_types(node) or _is_docstring(node):
            return False
        for kind, operator in operators():
            if isinstance(node, kind):
                for new in operator(node):
                    line = self.get_metadata(PositionProvider, node).start.line
                    self.found.setdefault(line, []).append(Change(node, new, operator.__name__))
        return True


def _guards_types(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.If) and isinstance(node.test, cst.Name) and node.test.value == "TYPE_CHECKING"


def _is_docstring(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Expr) and isinstance(node.value, cst.SimpleString | cst.ConcatenatedString)


@dataclass(frozen=True)
class _File:
    text: str
    tree: cst.Module
    changes: dict[int, list[Change]]

    @classmethod
    def read(cls, path: Path) -> _File:
        text = path.read_text()
        wrapper = MetadataWrapper(cst.parse_module(text))
        visitor = _Changes()
        wrapper.visit(visitor)
        return cls(text, wrapper.module, visitor.found)

    @cached_property
    def _before(self) -> str:
        return _code(self.text)

    def fault(self, file: str, line: int, change: Change) -> Fault | None:
        """The change as a fault; None where the program stays the same."""
        after = self.tree.deep_replace(change.node, change.new).code
        try:
            if _code(after) == self._before:
                return None
        except SyntaxError:
            return None
        name = f"{file}:{line}:{change.operator.removeprefix('operator_')}"
        return difference(name, file, self.text, after)


def difference(name: str, file: str, before: str, after: str) -> Fault:
    """The fault that turns one text into the other, as whole lines."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    head = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    old, new, begin = old[head:], new[head:], sum(map(len, old[:head]))
    while old and new and old[-1] == new[-1]:
        old, new = old[:-1], new[:-1]
    return Fault(name, file, begin, "".join(old), "".join(new), ())


def _code(text: str) -> str:
    """What a text does, whatever its layout."""
    return ast.dump(ast.parse(text))


def lines(source: Path = SOURCE) -> list[tuple[str, int]]:
    """Every line of the package on which a statement or a part of one begins."""
    found = []
    for path in sorted(source.rglob("*.py")):
        file = str(path.relative_to(source))
        if not file.startswith(OUTSIDE):
            nodes = ast.walk(ast.parse(path.read_text()))
            found += [(file, line) for line in sorted({node.lineno for node in nodes if isinstance(node, ast.expr)})]
    return found


def draw(number: int, rng: np.random.Generator, source: Path = SOURCE) -> list[Fault]:
    """So many different faults; every line is as likely as any other."""
    places, read, found = lines(source), cache(lambda file: _File.read(source / file)), {}
    while len(found) < number:
        file, line = places[rng.integers(len(places))]
        changes = read(file).changes.get(line, [])
        if not changes:
            continue
        fault = read(file).fault(file, line, changes[rng.integers(len(changes))])
        if fault is not None:
            found[fault.file, fault.begin, fault.new] = fault
    return list(found.values())
