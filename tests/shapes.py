"""Shape annotations such as `Float[Array, "M A"]`, executed: arguments and results of functions, fields of values.

`install` has every module watched that is imported afterwards. Only annotations that name a shape are executed: the
others are mypy's business, and would raise before the package can refuse a wrong argument in its own words. The fields
of a value are looked at once it is made, because many nouns take lists and keep arrays.
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

import beartype
import beartype.door
import jaxtyping
import numpy as np

_SHAPE = re.compile(r"\b(Bool|Float|Integer|Shaped|UInt8)\[")


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
        elif isinstance(member, types.FunctionType | classmethod | staticmethod | property) and name != "__init__":
            setattr(cls, name, _checked(member))
    shaped = dict(_fields(cls))
    maker = "__init__" if dataclasses.is_dataclass(cls) else "__new__" if hasattr(cls, "_fields") else None
    if shaped and maker:
        setattr(cls, maker, _checked_fields(getattr(cls, maker), shaped))


def _checked(member: Any) -> Any:
    """A function, method or property, checked if it names a shape."""
    function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
    named = any(_SHAPE.search(str(text)) for text in function.__annotations__.values())
    return jaxtyping.jaxtyped(member, typechecker=_check) if named else member


def _check(function: Callable[..., Any]) -> Callable[..., Any]:
    """The type checker that `jaxtyped` applies to the signature."""
    for name, annotation in function.__annotations__.items():
        if not _names_a_shape(annotation):
            function.__annotations__[name] = Any
    return beartype.beartype(function)


def _names_a_shape(annotation: Any) -> bool:
    """An array, one or nothing, or a tuple of them; arrays in a list may differ, and beartype would look at one."""
    if isinstance(annotation, type) and issubclass(annotation, jaxtyping.AbstractArray):
        return True
    parts = get_args(annotation)
    fixed = get_origin(annotation) in (Union, types.UnionType, tuple) and ... not in parts
    return fixed and any(_names_a_shape(part) for part in parts)


def _fields(cls: type) -> Iterator[tuple[str, Any]]:
    """The fields with a shape, and their annotations as objects."""
    for name, annotation in inspect.get_annotations(cls).items():
        text = getattr(annotation, "__forward_arg__", annotation)  # named tuples wrap the text
        if isinstance(text, str) and _SHAPE.search(text):
            hint = eval(text, vars(sys.modules[cls.__module__]))
            if _names_a_shape(hint):
                yield name, hint


def _checked_fields(make: Callable[..., Any], shaped: dict[str, Any]) -> Callable[..., Any]:
    """`__init__` or `__new__`, and then a look at the fields with one meaning for every letter."""

    @functools.wraps(make)
    def checked(self: Any, *arguments: Any, **keywords: Any) -> Any:
        made = make(self, *arguments, **keywords)
        value = self if made is None else made
        with jaxtyping.jaxtyped("context"):
            for name, hint in shaped.items():
                if not beartype.door.is_bearable(getattr(value, name), hint):
                    raise jaxtyping.TypeCheckError(f"{type(value).__name__}.{name} must be {hint} in {_text(value)}")
        return made

    return checked


def _text(value: Any) -> str:
    """The fields of a value, arrays by their kind and shape."""
    fields = {name: getattr(value, name) for name in inspect.get_annotations(type(value))}
    return str({name: f"{x.dtype}{x.shape}" if isinstance(x, np.ndarray) else x for name, x in fields.items()})
