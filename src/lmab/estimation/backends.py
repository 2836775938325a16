"""Backends: where the passes of a fit run, by name."""

from __future__ import annotations

from contextlib import AbstractContextManager

from .passes import Passes, Threads

BACKENDS = ("gpu",)


def opened(backend: str | None, threads: int | None) -> AbstractContextManager[Passes]:
    """Passes on the named backend, or on `threads` threads of the CPU; to be closed after the fit."""
    if backend is None:
        return Threads(threads)
    from .gpu import Gpu

    return Gpu(threads)
