"""Backends: where the passes of a fit run, by name."""

from __future__ import annotations

from contextlib import AbstractContextManager

from ..checks import OneOf, check, optional
from ..errors import InvalidArgument
from .passes import Passes, Threads

BACKENDS = ("gpu",)


def require_backend(backend: str | None) -> None:
    """Fail, with the reason, where the named backend cannot be used on this machine; None is the CPU.

    A backend that is asked for is used or refused: a fit never falls back to the CPU, where it could take hours.
    """
    check("backend", backend, optional(OneOf(BACKENDS)))
    if backend is None:
        return
    from .gpu import missing

    why_not = missing()
    if why_not is not None:
        raise InvalidArgument(f"backend must be None where no GPU can be used ({why_not}), got {backend!r}")


def opened(backend: str | None, threads: int | None) -> AbstractContextManager[Passes]:
    """Passes on the named backend, or on `threads` threads of the CPU; to be closed after the fit."""
    require_backend(backend)
    if backend is None:
        return Threads(threads)
    from .gpu import Gpu

    return Gpu(threads)
