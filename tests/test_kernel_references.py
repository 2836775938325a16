"""Every compiled kernel has a reference implementation in `tests/reference` with the same arguments."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

import lmab._kernel.compiled as compiled

MODULES = sorted(path.stem for path in Path(compiled.__file__).parent.glob("*.py") if path.stem != "__init__")


def kernels(module: ModuleType) -> dict[str, FunctionType]:
    """Return the public functions that a module of kernels defines, without Numba's wrappers."""
    functions = {name: getattr(member, "py_func", member) for name, member in vars(module).items() if name[0] != "_"}
    return {
        name: function
        for name, function in functions.items()
        if isinstance(function, FunctionType) and function.__module__ == module.__name__
    }


def differences(module: ModuleType, reference: ModuleType) -> list[str]:
    """Return the kernels of `module` for which `reference` has no function with the same arguments."""
    parameters = {name: list(inspect.signature(function).parameters) for name, function in kernels(module).items()}
    references = {name: getattr(reference, name, None) for name in parameters}
    return [
        name
        for name, expected in parameters.items()
        if references[name] is None or list(inspect.signature(references[name]).parameters) != expected
    ]


@pytest.mark.parametrize("name", MODULES)
def test_every_compiled_kernel_has_a_reference_implementation(name):
    module = import_module(f"lmab._kernel.compiled.{name}")
    assert kernels(module)
    assert differences(module, import_module(f"reference.{name}")) == []


def test_a_kernel_without_a_reference_implementation_is_reported():
    module = import_module("lmab._kernel.compiled.sums")
    complete = import_module("reference.sums")
    partial = ModuleType("partial")
    partial.missing, partial.fill = complete.missing, lambda codes: None
    assert differences(module, partial) == ["moment_sums", "fill"]
