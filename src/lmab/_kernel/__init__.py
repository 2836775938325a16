"""The kernels: the few functions that need speed, each in plain NumPy (`reference`) and in Numba (`compiled`).

Only this module decides which of the two runs: `kernel("em")` is the compiled module of that name, or the reference
where the environment variable `LMAB_KERNEL` is "reference". Numba is imported with the first compiled module, not with
the package. The planner gives the named tuples below to its kernel, which changes their arrays in place.
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
from .reference.sums import FIRST_SESSION as FIRST_SESSION
from .reference.sums import FIRST_STEP as FIRST_STEP
from .reference.sums import FIRST_TILE as FIRST_TILE
from .reference.sums import FIRST_WORD as FIRST_WORD
from .reference.sums import LENGTH as LENGTH
from .reference.sums import LONGEST as LONGEST
from .reference.sums import SIZE as SIZE
from .reference.sums import TILE as TILE
from .reference.sums import Shelves as Shelves
from .reference.sums import Short as Short
from .reference.sums import per_word as per_word

_on_compilation: list[Callable[[], None]] = []


def on_compilation(callback: Callable[[], None]) -> None:
    """Call `callback` once, when a kernel is compiled because this machine has no compiled copy of it."""
    _on_compilation.append(callback)


def announce_compilation() -> None:
    """Call all callbacks, because a compilation begins."""
    while _on_compilation:
        _on_compilation.pop()()


@cache
def kernel(name: str) -> ModuleType:
    """The kernel module `name` ("em", "moments", "planning_search", ...) of the chosen implementation."""
    implementation = os.environ.get("LMAB_KERNEL", "compiled")
    return importlib.import_module(f"{__name__}.{implementation}.{name}")


def on_gpu() -> ModuleType:
    """The launches of the GPU's kernels; numba-cuda is imported with the first call."""
    return importlib.import_module(f"{__name__}.cuda.launch")
