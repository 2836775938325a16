"""Shape annotations such as `Float[Array, "M A"]`, executed: arguments and results of functions, fields of values.

`install` has every module watched that is imported afterwards. Only annotations that name a shape are executed: the
others are mypy's business, and would raise before the package can refuse a wrong argument in its own words. The fields
of a value are looked at once it is made, because many nouns take lists and keep arrays.

Whether annotations hold depends on kinds and shapes alone, so every combination of them is looked at once: the checks
would otherwise take half of the time of all tests.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import sys
import types
from collections.abc import Callable, Collection, Iterator
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from typing import Any, Union, get_args, get_origin

import beartype.door
import jaxtyping
import numpy as np

_SHAPE = re.compile(r"\b(Bool|Float|Integer|Shaped|UInt8)\[")
_MAKERS = ("__init__", "__new__")  # they accept lists for fields that are arrays


def install(names: Collection[str]) -> None:
    """Check these modules; none of them may have been imported before."""
    early = sorted(set(names) & set(sys.modules))
    if early:
        raise RuntimeError(f"imported before their shapes could be checked: {early}")
    sys.meta_path.insert(0, _Finder(frozenset(names)))


class _Finder(MetaPathFinder):
    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def find_spec(self, name: str, path: Any = None, target: types.ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in self._names else None
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(name, spec.origin)
        return spec


class _Loader(SourceFileLoader):
    def exec_module(self, module: types.ModuleType) -> None:
        super().exec_module(module)
        for name, member in list(vars(module).items()):
            if getattr(member, "__module__", None) != module.__name__:
                continue  # another module's, or no function and no class
            if isinstance(member, type):
                _check_class(member)
            elif isinstance(member, types.FunctionType):
                setattr(module, name, _checked(member))


def _check_class(cls: type) -> None:
    for name, member in list(vars(cls).items()):
        if isinstance(member, functools.cached_property):
            member.func = _checked(member.func)
        elif isinstance(member, types.FunctionType | classmethod | staticmethod | property) and name not in _MAKERS:
            setattr(cls, name, _checked(member))
    hints = dict(_shaped(inspect.get_annotations(cls), vars(sys.modules[cls.__module__])))
    maker = "__init__" if dataclasses.is_dataclass(cls) else "__new__" if hasattr(cls, "_fields") else None
    if hints and maker:
        shapes = _Shapes(f"{cls.__module__}.{cls.__qualname__}", hints)
        setattr(cls, maker, _checked_fields(getattr(cls, maker), shapes, hints))


def _checked(member: Any) -> Any:
    """Return a function, method or property with checks if its annotations have a shape."""
    if isinstance(member, property):
        return property(_checked(member.fget), member.fset, member.fdel, member.__doc__)
    if isinstance(member, classmethod | staticmethod):
        return type(member)(_checked(member.__func__))
    hints = dict(_shaped(member.__annotations__, member.__globals__))
    return _watched(member, hints) if hints else member


def _watched(function: Callable[..., Any], hints: dict[str, Any]) -> Callable[..., Any]:
    """Return the function with a check of its arguments before the call and of arguments and result after it.

    The wrapper is generated for the function's own parameters, because most calls have kinds of arguments that passed
    before, and the cost of such a call determines the time of the tests.
    """
    shapes = _Shapes(f"{function.__module__}.{function.__qualname__}", hints)
    parameters = inspect.signature(function).parameters.values()
    hinted = [one.name for one in parameters if one.name in hints and one.kind not in _STARS]
    values = ", ".join(f"{name!r}: {name}" for name in hinted)
    lines = [
        f"def watched({_parameters(parameters)}):",
        f"    kinds_ = ({''.join(f'{_KIND.format(name)}, ' for name in hinted)})",
        "    right_ = right_results.get(kinds_)",
        "    if right_ is None:",
        f"        check({{{values}}})",
        "        right_ = right_results[kinds_] = set()",
        f"    result_ = function({_handed_on(parameters)})",
    ]
    if "return" in hints:
        lines += [
            f"    kind_ = {_KIND.format('result_')}",
            "    if kind_ not in right_:",
            f"        check({{{values}{', ' * bool(values)}'return': result_}})",
            "        right_.add(kind_)",
        ]
    defaults = {f"default_{one.name}": one.default for one in parameters}
    scope = {"function": function, "check": shapes.check, "right_results": {}, "ndarray": np.ndarray, "kind_of": _kind}
    exec("\n".join([*lines, "    return result_"]), scope | defaults, made := {})
    return functools.wraps(function)(made["watched"])


# Most arguments are arrays of NumPy's own class, which need no call.
_KIND = "(({0}.dtype, {0}.shape) if type({0}) is ndarray else kind_of({0}))"
_STARS = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


def _parameters(parameters: Collection[inspect.Parameter]) -> str:
    """Return the parameters in the form of a signature, with their own defaults."""
    plain = [one.replace(annotation=inspect.Parameter.empty) for one in parameters]
    named = [one if one.default is one.empty else one.replace(default=_Name(f"default_{one.name}")) for one in plain]
    return str(inspect.Signature(named))[1:-1]


def _handed_on(parameters: Collection[inspect.Parameter]) -> str:
    """Return the parameters in the form of a call."""
    by_name = inspect.Parameter.KEYWORD_ONLY
    return ", ".join(
        f"{one.name}={one.name}" if one.kind is by_name else _STARS.get(one.kind, "") + one.name for one in parameters
    )


class _Name(str):
    """Default value that is written as the name of its variable."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class _Shapes:
    """Annotations that share the meaning of their letters."""

    def __init__(self, owner: str, hints: dict[str, Any]) -> None:
        self._owner, self._hints = owner, hints

    def check(self, values: dict[str, Any]) -> None:
        """Raise if the values do not have the shapes."""
        with jaxtyping.jaxtyped("context"):
            for name, value in values.items():
                if not beartype.door.is_bearable(value, self._hints[name]):
                    found = {other: _kind(one) for other, one in values.items()}
                    raise jaxtyping.TypeCheckError(f"{name} of {self._owner} must be {self._hints[name]} in {found}")


def _kind(value: Any) -> Any:
    """Return all properties of a value that an annotation with a shape can require."""
    kind = type(value)
    if kind is np.ndarray:
        return value.dtype, value.shape
    if isinstance(value, np.ndarray):
        return kind, value.dtype, value.shape
    if isinstance(value, tuple):
        return tuple([_kind(part) for part in value])
    return kind


def _shaped(annotations: dict[str, Any], scope: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Return the annotations with a shape, as objects."""
    for name, annotation in annotations.items():
        text = getattr(annotation, "__forward_arg__", annotation)  # named tuples wrap the text
        if isinstance(text, str) and _SHAPE.search(text):
            hint = eval(text, scope)
            if _names_a_shape(hint):
                yield name, hint


def _names_a_shape(annotation: Any) -> bool:
    """Return whether an annotation is an array, an optional one, or a tuple of them.

    Lists are excluded, because their arrays may differ and beartype would check only one."""
    if isinstance(annotation, type) and issubclass(annotation, jaxtyping.AbstractArray):
        return True
    parts = get_args(annotation)
    fixed = get_origin(annotation) in (Union, types.UnionType, tuple) and ... not in parts
    return fixed and any(_names_a_shape(part) for part in parts)


def _checked_fields(make: Callable[..., Any], shapes: _Shapes, names: Collection[str]) -> Callable[..., Any]:
    """`__init__` or `__new__`, and then a look at the fields with one meaning for every letter."""

    right: set[Any] = set()  # combinations of kinds that were looked at

    @functools.wraps(make)
    def checked(self: Any, *arguments: Any, **keywords: Any) -> Any:
        made = make(self, *arguments, **keywords)
        value = self if made is None else made
        values = [getattr(value, name) for name in names]
        kinds = tuple([_kind(one) for one in values])
        if kinds not in right:
            shapes.check(dict(zip(names, values, strict=True)))
            right.add(kinds)
        return made

    return checked
