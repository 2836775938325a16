"""Passes on a GPU: the log stays on the device, and the expectation step runs there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from .._kernel import kernel, on_gpu
from .._kernel.arrays import (
    FIRST_SESSION,
    FIRST_STEP,
    FIRST_TILE,
    FIRST_WORD,
    LENGTH,
    LONGEST,
    SIZE,
    TILE,
    Shelves,
    Short,
    per_word,
)
from .._shapes import Array, Float, Integer, Shaped
from ..errors import TooLarge
from ..parallel import Arrays, CodedLog, Passes, Threads

_NO_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"
_WORTH_THE_WAY = 1 << 20  # Steps times models of a pass below which the CPU is as fast.
_SHARE = 0.8  # Part of the free memory that may hold codes, less room for two parts that come and go.
_NONE = np.empty(0)
_WORTH_COMPILING = 1 << 22  # Sessions for which it pays to compile kernels for short ones.
_MOST_WORDS = 4  # Most words of short sessions.


class Gpu(Passes):
    """Passes on one GPU: `with Gpu() as passes: log.expectation(models, passes)`.

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
        if log.n_steps * len(models) < _WORTH_THE_WAY:
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
    return None if reason is None else f"{reason}; pip install '.[gpu]'"


class Chunks:
    """The parts of a log, each with the stream of its launches; iterate for every pass.

    Parts are kept on the device while there is room. Of the others the host keeps the sorted codes, and every pass
    copies them to the device on two streams in turn, so that one part is copied while the part before is worked on.
    Their memory is pinned: the device then copies by itself, several times faster.
    """

    def __init__(self, log: CodedLog, memory: int | None = None) -> None:
        self._resident: list[Shelves] = []
        self._waiting: list[Shelves] = []
        self._pins: list[Any] = []
        self.n_steps = 0
        self.weight = 0  # the same where a merged session counts as often as it stands for others
        left = int(_SHARE * on_gpu().free_memory()) if memory is None else memory
        for partition in log.partitions():
            part = shelve(*partition)
            self.n_steps += len(partition[0])
            self.weight += part.weight
            fits = not self._waiting and 3 * part.nbytes <= left  # two more may have to come and go
            if fits:
                left -= part.nbytes
                self._resident.append(on_gpu().upload(part))
            else:
                self._waiting.append(part)
                self._pins += on_gpu().pin(part)

    def __iter__(self) -> Iterator[tuple[Shelves, Any]]:
        for part in self._resident:
            yield part, 0
        streams: list[Any] = on_gpu().two_streams() if self._waiting else []
        held: list[Shelves | None] = [None, None]
        for number, part in enumerate(self._waiting):
            stream = streams[number % 2]
            stream.synchronize()  # the part that held this place is done
            held[number % 2] = None  # its memory may be needed
            held[number % 2] = brought = on_gpu().upload(part, stream)
            yield brought, stream
        for stream in streams:
            stream.synchronize()


def shelve(
    codes: Shaped[Array, "S"],
    lengths: Shaped[Array, "N"],
    counts: Shaped[Array, "n"] = _NONE,
    rewards: Float[Array, "s"] = _NONE,
) -> Shelves:
    """A part of a log, its sessions sorted by length.

    Args:
        codes: of all steps, session after session; unsigned.
        lengths: of the sessions.
        counts: sessions that each one stands for; empty: one.
        rewards: of all steps, where the codes are arms alone.
    """
    bits = 8 * codes.dtype.itemsize
    per = per_word(bits)
    shelves, n_words, n_tiles = _shelves(lengths, per)
    words = np.empty(n_words, np.uint32 if bits == 8 else np.uint64)
    side, order = np.empty(len(rewards)), np.empty(len(lengths), np.int64)
    kernel("sums").fill(codes, rewards, lengths, shelves, bits, per, words, side, order)
    many = counts[order].astype(np.int64) if len(counts) else np.empty(0, np.int64)
    tiles = np.repeat(np.arange(len(shelves), dtype=np.int32), n_tiles)
    short = _short(shelves[:, LENGTH], per, n_tiles) if len(lengths) >= _WORTH_COMPILING and not len(rewards) else ()
    long_tile = int(n_tiles[shelves[:, LENGTH] <= LONGEST].sum())
    weight = int(lengths @ counts) if len(counts) else int(lengths.sum(dtype=np.int64))
    return Shelves(bits, len(counts) > 0, short, words, side, many, shelves, tiles, long_tile, weight)


def _short(lengths: Integer[Array, "C"], per: int, n_tiles: Integer[Array, "C"]) -> tuple[Short, ...]:
    """The tiles of sessions of one word, of two, and so on, for a kernel of their own."""
    ends, n_words, found = np.cumsum(n_tiles), -(-lengths // per), []
    for number in np.unique(n_words[n_words <= _MOST_WORDS]).tolist():
        own = np.flatnonzero(n_words == number)
        last = int(lengths[own[0]]) - (number - 1) * per if len(own) == 1 else 0
        found.append(Short(number, last, int(ends[own[0]] - n_tiles[own[0]]), int(ends[own[-1]])))
    return tuple(found)


def _shelves(lengths: Shaped[Array, "N"], per: int) -> tuple[Integer[Array, "C 6"], int, Integer[Array, "C"]]:
    """A row for each length, the number of words, and the tiles of each length."""
    sizes = np.bincount(lengths)
    present = np.flatnonzero(sizes)
    sizes = sizes[present]
    shelves = np.zeros((len(present), 6), np.int64)
    shelves[:, LENGTH], shelves[:, SIZE] = present, sizes
    n_words, n_tiles = -(-present // per) * sizes, -(-sizes // TILE)
    sums = {FIRST_WORD: n_words, FIRST_STEP: present * sizes, FIRST_SESSION: sizes, FIRST_TILE: n_tiles}
    for column, amounts in sums.items():
        shelves[1:, column] = np.cumsum(amounts)[:-1]
    return shelves, int(n_words.sum()), n_tiles
