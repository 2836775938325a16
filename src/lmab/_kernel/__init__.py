"""The functions that need speed: compiled for the processor by Numba (`compiled`), and for NVIDIA GPUs (`cuda`).

Numba is imported with the first kernel that is used, not with the package. A kernel is given named tuples of arrays
(`arrays`), which it changes in place. `tests/reference` specifies each compiled kernel in plain NumPy.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from types import ModuleType

_on_compilation: list[Callable[[], None]] = []


def on_compilation(callback: Callable[[], None]) -> None:
    """Call `callback` once, when a kernel is compiled because this machine has no compiled copy of it."""
    _on_compilation.append(callback)


def announce_compilation() -> None:
    """Call all callbacks, because a compilation begins."""
    while _on_compilation:
        _on_compilation.pop()()


@cache
def compiles() -> bool:
    """Return whether Numba is installed."""
    return find_spec("numba") is not None


@cache
def kernel(name: str) -> ModuleType:
    """Return the compiled module `name`: "em", "gibbs", "planning", "planning_search" or "sums".

    Without Numba, "planning" is `acting`, which has what a saved policy acts with.
    """
    if name == "planning" and not compiles():
        return importlib.import_module(f"{__name__}.acting")
    return importlib.import_module(f"{__name__}.compiled.{name}")


def on_gpu() -> ModuleType:
    """Return the module that launches kernels on a GPU; the first call imports numba-cuda."""
    return importlib.import_module(f"{__name__}.cuda.launch")
