"""The narrow waist: the few hot functions, each in plain NumPy (`reference`, the specification) and Numba (`compiled`).

Which of the two runs is decided here and nowhere else: `kernel("em")` is the module of that name, compiled unless the
environment says `LMAB_KERNEL=reference`. Numba is imported with the first compiled module, not with the package. What
the planner hands to its kernel, and finds changed afterwards, are the named tuples below.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from functools import cache
from types import ModuleType

from .reference.planning_search import CLOSED as CLOSED
from .reference.planning_search import FULL as FULL
from .reference.planning_search import TINY as TINY
from .reference.planning_search import Arms as Arms
from .reference.planning_search import Lower as Lower
from .reference.planning_search import Nodes as Nodes
from .reference.planning_search import Price as Price
from .reference.planning_search import Upper as Upper
from .reference.planning_search import add_node as add_node

_on_compilation: list[Callable[[], None]] = []


def on_compilation(callback: Callable[[], None]) -> None:
    """Have `callback` called, once, when a kernel is compiled because this machine has not kept it from before."""
    _on_compilation.append(callback)


def announce_compilation() -> None:
    """A compilation begins: tell everybody who asked."""
    while _on_compilation:
        _on_compilation.pop()()


@cache
def kernel(name: str) -> ModuleType:
    """The kernel module `name` ("em", "planning_search", ...) of the chosen implementation."""
    implementation = os.environ.get("LMAB_KERNEL", "compiled")
    return importlib.import_module(f"{__name__}.{implementation}.{name}")
