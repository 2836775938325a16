"""Kernels compiled by Numba."""

from __future__ import annotations

from typing import Any

import numba
from numba.core import event

from .. import announce_compilation

_settings: Any = numba.config  # which sets its attributes when it is imported
_IN_LANES = frozenset(f"{__name__}.{module}" for module in ("em", "gibbs"))  # modules that name their lanes one by one


class _Announcer(event.Listener):
    """Listener that Numba calls for every compilation; loading from Numba's cache on disk is not a compilation."""

    def on_start(self, event: event.Event) -> None:
        announce_compilation()

    def on_end(self, event: event.Event) -> None:
        pass


class _StraightLine(event.Listener):
    """Let LLVM vectorise straight-line code while modules in lanes are compiled; Numba leaves that off by default."""

    def __init__(self) -> None:
        self._before: list[int] = []

    def on_start(self, event: event.Event) -> None:
        if event.data["dispatcher"].py_func.__module__ in _IN_LANES:
            self._before.append(_settings.SLP_VECTORIZE)
            _settings.SLP_VECTORIZE = 1

    def on_end(self, event: event.Event) -> None:
        if event.data["dispatcher"].py_func.__module__ in _IN_LANES:
            _settings.SLP_VECTORIZE = self._before.pop()


event.register("numba:compile", _Announcer())
event.register("numba:compile", _StraightLine())
