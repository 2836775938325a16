"""Gpu: passes whose expectation step runs on a GPU; everything else runs on the CPU's threads."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ..._kernel import on_gpu
from ..._shapes import Array, Float
from ...errors import TooLarge
from ..passes import Arrays, CodedLog, Passes, Threads
from .chunks import Chunks

_NO_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"
_WORTH = 1 << 20  # steps times models of a pass below which the CPU is as fast


class Gpu(Passes):
    """Passes on one GPU: `with Gpu() as passes: em_map.expectation(models, passes)`.

    The codes of a log go to the device with the first pass and stay there. Those that do not fit are brought anew for
    every pass, one part while the part before is worked on.

    Args:
        threads: of the CPU, for everything that does not run on the device; None: all cores.
        memory: bytes of the device that codes may occupy; None: most of what is free.
    """

    def __init__(self, threads: int | None = None, *, memory: int | None = None) -> None:
        self._threads, self._memory = Threads(threads), memory
        self._held: WeakKeyDictionary[CodedLog, Chunks] = WeakKeyDictionary()

    @property
    def processor(self) -> Threads:
        """The CPU's threads."""
        return self._threads

    def ordered(self, function: Callable[..., Arrays], n_parts: int, *arguments: Any, work: int) -> Arrays:
        return self._threads.ordered(function, n_parts, *arguments, work=work)

    def expectation(
        self, log: CodedLog, models: Float[Array, "R K P"]
    ) -> tuple[Float[Array, "R Q P"], Float[Array, "R"]] | None:
        """Statistics and log-likelihood under every model; None where the pass is not worth the way to the device."""
        if log.n_steps * len(models) < _WORTH:
            return None
        try:
            return self._on_device(log, models)
        except Exception as error:  # the driver's class differs between versions, its words do not
            if _NO_MEMORY not in str(error):
                raise
            raise TooLarge(
                f"the GPU must have room for two parts of the log and for {len(models)} models, got too little free "
                f"memory: end other programs that use the GPU, fit with fewer restarts, or use the CPU"
            ) from error

    def _on_device(
        self, log: CodedLog, models: Float[Array, "R K P"]
    ) -> tuple[Float[Array, "R Q P"], Float[Array, "R"]]:
        chunks = self._held.get(log)
        if chunks is None:
            chunks = self._held[log] = Chunks(log, self._memory)
        found: tuple[Float[Array, "R Q P"], Float[Array, "R"]] = on_gpu().expectation(
            chunks,
            models,
            n_sums=log.n_sums,
            n_steps=chunks.n_steps,
            weight=chunks.weight,
            gaussian=log.largest is not None,
            top=1.0 if log.largest is None else log.largest,
        )
        return found

    def __enter__(self) -> Gpu:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._held.clear()
        self._threads.__exit__(kind, error, traceback)


def missing() -> str | None:
    """Why no GPU can be used here; None: one can."""
    try:
        reason: str | None = on_gpu().why_not()
    except ImportError as error:
        reason = f"numba-cuda cannot be imported: {error}"
    except AttributeError as error:  # it asks NumPy for what a newer version has dropped
        return f"numba-cuda does not work with NumPy {np.__version__}: {error}"
    except TypeError as error:  # Numba's own, older part for GPUs knows fewer options
        reason = f"numba-cuda is not installed: {error}"
    return None if reason is None else f"{reason}; pip install 'lmab[gpu]'"
