"""Launches: a log on the device, and passes over it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from ..._shapes import Array, Float
from ..reference.shelves import TILE, Shelves
from . import SIMULATED, cuda
from .em import careful_kernel, clear_kernel, fast_kernel, masses_kernel
from .short import short_kernel
from .steps import LOG_ONE, share_one

_SHARED = 48 * 1024  # bytes of shared memory that every block may have
_RESIDENT = 2048  # threads that a multiprocessor holds
_PER_PROCESSOR = 224 * 1024  # bytes of shared memory of a multiprocessor
_MASSES = 1 << 27  # numbers kept for the sessions of one launch, where contexts are cut into pieces
_LONGEST = 32  # steps of a session that single precision is trusted with
_LEAST_SINGLE = 1e-37  # single precision holds no smaller numbers in full


class Place(NamedTuple):
    """How a pass is spread over the device."""

    width: int  # lanes of a group
    pitch: int  # columns of table and sums in shared memory; 0: they stay in the device's memory
    threads: int  # of a block
    blocks: int  # for one model and one piece of the contexts
    shared: int  # bytes


def upload(host: Shelves, stream: Any = 0) -> Shelves:
    """The same with arrays of the device."""
    arrays = (array if len(array) else np.zeros(1, array.dtype) for array in host[3:])  # a kernel takes no empty ones
    return Shelves(*host[:3], *(cuda.to_device(array, stream=stream) for array in arrays))


def two_streams() -> list[Any]:
    """Queues of launches and copies that run beside each other."""
    return [cuda.stream(), cuda.stream()]


def why_not() -> str | None:
    """Why the device cannot be used; None: it can."""
    if SIMULATED or cuda.is_available():
        return None
    return "no NVIDIA GPU with its driver and CUDA's compiler libraries was found"


def free_memory() -> int:
    """Bytes of the device that nothing occupies."""
    return 1 << 30 if SIMULATED else int(cuda.current_context().get_memory_info().free)


def spread(n_models: int, n_contexts: int, n_rows: int, n_sums: int, gaussian: bool, blocks: int | None) -> Place:
    """How many lanes, threads and blocks: as many contexts on lanes as shared memory allows."""
    cell = 4 * (n_sums + (0 if gaussian else n_rows))  # bytes for one column
    width = 8 if n_contexts <= 8 else 16 if n_contexts <= 16 else 32
    while width > 8 and cell * width > _SHARED:
        width //= 2
    pitch = 32 if cell * 32 <= _SHARED else width if cell * width <= _SHARED else 0
    shared = cell * pitch
    threads = 32 if SIMULATED else 256 if shared * (_RESIDENT // 256) <= _PER_PROCESSOR else 512
    pieces = -(-n_contexts // width)
    if blocks is None:
        processors = 1 if SIMULATED else cuda.get_current_device().MULTIPROCESSOR_COUNT
        blocks = max(processors * _RESIDENT // threads // (pieces if pieces > 1 else n_models), 1)
    return Place(width, pitch, threads, blocks, shared)


def expectation(
    chunks: Iterable[tuple[Shelves, Any]],
    models: Float[Array, "R K P"],
    *,
    n_sums: int,
    gaussian: bool = False,
    top: float = 1.0,
    exact: bool = False,
    blocks: int | None = None,
) -> tuple[Float[Array, "R Q P"], Float[Array, "R"]]:
    """Statistics and log-likelihood under every model, of all chunks of the log together.

    Args:
        chunks: parts of the log on the device, each with the stream of its launches.
        models: as the CPU's kernel takes them.
        n_sums: rows of the statistics.
        gaussian: whether rewards are normal; then rows of sums of rewards follow those of plays.
        top: no reward is larger than this, nor smaller than its opposite.
        exact: whether every session is done in double precision.
        blocks: of the grid; None: as many as fill the device. The outcome does not depend on it.
    """
    n_models, n_rows, n_contexts = models.shape
    place = spread(n_models, n_contexts, n_rows, n_sums, gaussian, blocks)
    columns = -(-n_contexts // place.width) * place.width
    single, double = _tables(models, columns, exact or gaussian)
    out, logs = np.zeros(n_models * n_sums * columns, np.uint64), np.zeros(2 * n_models, np.int64)
    on_device = [cuda.to_device(array) for array in (single.ravel(), double.ravel(), out, logs)]
    longest = 0 if exact or gaussian else _LONGEST
    this = _Pass(place, gaussian, top, longest, (n_models, n_rows, n_sums, columns), *on_device)
    for chunk, stream in chunks:
        this.launch(chunk, stream)
    cuda.synchronize()
    sums = on_device[2].copy_to_host().reshape(n_models, n_sums, columns)[:, :, :n_contexts] / share_one(place.width)
    total, impossible = on_device[3].copy_to_host().reshape(n_models, 2).T
    if gaussian:
        n_arms = n_rows - 2
        sums[:, 1 + n_arms :] = (2 * sums[:, 1 + n_arms :] - sums[:, 1 : 1 + n_arms]) * top
    likelihood = np.where(impossible > 0, -np.inf, total / LOG_ONE)
    return sums, likelihood + (0.0 if gaussian else _lost_by_rounding(models, double, sums))


class _Pass(NamedTuple):
    """What the launches of one pass share."""

    place: Place
    gaussian: bool
    top: float
    longest: int  # steps of a session that single precision is trusted with
    sizes: tuple[int, int, int, int]  # models, rows of a model, rows of the statistics, columns
    single: Any
    double: Any
    out: Any
    logs: Any

    def launch(self, chunk: Shelves, stream: Any) -> None:
        """All models in one launch where every context has a lane, else one model after the other."""
        n_models, n_rows, n_sums, columns = self.sizes
        n_tiles = len(chunk.tile_shelf)
        left = cuda.device_array(4 * n_models * n_tiles, np.uint32, stream=stream)
        clear_kernel[_blocks(self.place, n_models * n_tiles), self.place.threads, stream](left)
        if columns == self.place.width:
            self._add(chunk, stream, (0, n_tiles), (n_models, 1), self, self.double, left)
            return
        n_pieces = columns // self.place.width
        at_once = min(max(_MASSES // (n_pieces * TILE), 1), n_tiles)
        masses = cuda.device_array(at_once * TILE * n_pieces, np.float64)
        for model in range(n_models):
            one = self._replace(
                single=self.single[model * n_rows * columns : (model + 1) * n_rows * columns],
                double=self.double[model * n_rows * columns : (model + 1) * n_rows * columns],
                out=self.out[model * n_sums * columns : (model + 1) * n_sums * columns],
                logs=self.logs[2 * model : 2 * model + 2],
            )
            flags = left[4 * model * n_tiles : 4 * (model + 1) * n_tiles]
            for first in range(0, n_tiles, at_once):
                tiles = (first, min(first + at_once, n_tiles))
                self._weigh(chunk, stream, tiles, n_pieces, one, masses)
                self._add(chunk, stream, tiles, (1, n_pieces), one, masses, flags)

    def _weigh(
        self, chunk: Shelves, stream: Any, tiles: tuple[int, int], n_pieces: int, one: _Pass, masses: Any
    ) -> None:
        place = self.place
        grid = (_blocks(place, tiles[1] - tiles[0]), 1, n_pieces)
        kernel = masses_kernel(place.width, chunk.bits, place.pitch, self.gaussian)
        kernel[grid, place.threads, stream, place.shared](
            chunk.words, chunk.rewards, chunk.shelves, chunk.tile_shelf, *tiles, one.single, one.double, self.sizes[1],
            masses, self.longest,
        )  # fmt: skip

    def _add(
        self,
        chunk: Shelves,
        stream: Any,
        tiles: tuple[int, int],
        shape: tuple[int, int],
        one: _Pass,
        masses: Any,
        left: Any,
    ) -> None:
        """What single precision can do, and then the rest with care."""
        place, (_, n_rows, n_sums, _) = self.place, self.sizes
        grid = (_blocks(place, tiles[1] - tiles[0]), *shape)
        sliced = shape[1] > 1
        where = (chunk.shelves, chunk.tile_shelf, *tiles)
        if self.longest > 0:
            begin = tiles[0] if sliced else self._add_short(chunk, stream, one, left)
            if begin < tiles[1]:
                fast = fast_kernel(place.width, chunk.bits, place.pitch, chunk.merged, sliced)
                fast[grid, place.threads, stream, place.shared](
                    chunk.words, chunk.counts, *where[:2], begin, tiles[1], one.single, n_rows, masses, self.longest,
                    one.out, one.logs, left,
                )  # fmt: skip
        careful = careful_kernel(place.width, chunk.bits, place.pitch, self.gaussian, sliced)
        careful[grid, place.threads, stream, 4 * n_sums * place.pitch](
            chunk.words, chunk.rewards, chunk.counts, chunk.merged, *where, one.double, n_rows, n_sums, masses,
            self.longest, self.top, one.out, one.logs, left,
        )  # fmt: skip

    def _add_short(self, chunk: Shelves, stream: Any, one: _Pass, left: Any) -> int:
        """Sessions of a few words; the first tile after them."""
        place, (n_models, n_rows, _, _), done = self.place, self.sizes, 0
        if place.pitch == 0 or chunk.merged:
            return done
        for n_words, last, first, done in chunk.short:
            kernel = short_kernel(place.width, chunk.bits, place.pitch, n_words, last)
            kernel[(_blocks(place, done - first), n_models), place.threads, stream, place.shared](
                chunk.words, chunk.shelves, chunk.tile_shelf, first, done, one.single, n_rows, one.out, one.logs, left
            )
        return done


def _blocks(place: Place, n_tiles: int) -> int:
    return max(min(place.blocks, -(-n_tiles * 32 // place.threads)), 1)


def _tables(
    models: Float[Array, "R K P"], columns: int, exact: bool
) -> tuple[Float[Array, "R K C"], Float[Array, "R K C"]]:
    """The models in single and in double precision; both hold the same numbers where single precision has them."""
    double = np.zeros((*models.shape[:2], columns))
    double[:, :, : models.shape[2]] = models
    single = double.astype(np.float32)
    if not exact:
        double = np.where(single >= _LEAST_SINGLE, single.astype(np.float64), double)
    return single, double


def _lost_by_rounding(
    models: Float[Array, "R K P"], double: Float[Array, "R K C"], sums: Float[Array, "R K P"]
) -> Float[Array, "R"]:
    """What the log-likelihood lost when the models were rounded: statistics are its slope in the logarithms."""
    rounded = double[:, :, : models.shape[2]]
    ratio = np.divide(models, rounded, out=np.ones_like(models), where=rounded > 0)
    return np.einsum("rkp,rkp->r", sums, np.log(ratio))
