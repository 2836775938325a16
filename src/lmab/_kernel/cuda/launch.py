"""Upload of a log to the device, and launches of the passes over it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from ..._shapes import Array, Float
from ..arrays import LONGEST, TILE, Shelves
from . import SIMULATED, cuda
from .em import careful_kernel, clear_kernel, fast_kernel, masses_kernel
from .lanes import LOG_ONE, N_LOGS

_SHARED = 48 * 1024  # bytes of shared memory that every block may have
_RESIDENT = 2048  # maximum number of resident threads of a multiprocessor
_PER_PROCESSOR = 224 * 1024  # bytes of shared memory of a multiprocessor
_MASSES = 1 << 27  # maximum number of stored masses per launch, if types are cut into pieces
_OWN_PAGES = 1 << 20  # bytes from which an array shares no memory page of the host with another
_MEAN_BITS = (21, 27)  # bits of the share of a session in a type, on average; more bits overflow 32 bits more often
_SMALL = 49 - 27  # bits of the steps of a log up to which the most bits are used; each further bit costs one
_MOST_BITS = 50  # maximum number of bits of a whole session in a type, also for rare types


class Place(NamedTuple):
    """Launch configuration of a pass."""

    width: int  # lanes of a group
    pitch: int  # columns of table and sums in shared memory; 0: they stay in the device's memory
    threads: int  # threads of a block
    blocks: int  # for one model and one piece of the types
    shared: int  # bytes


def upload(host: Shelves, stream: Any = 0) -> Shelves:
    """Return the same sessions with arrays on the device."""
    names = Shelves._fields[3:8]
    arrays = (
        array if len(array) else np.zeros(1, array.dtype) for array in host[3:8]
    )  # kernels do not accept empty arrays
    return host._replace(**{name: cuda.to_device(one, stream=stream) for name, one in zip(names, arrays, strict=True)})


def pin(host: Shelves) -> list[Any]:
    """Pin large arrays in the host's memory while the result exists, so that the device can read them directly."""
    if SIMULATED:
        return []
    pins = cuda.current_context().mempin
    return [pins(one, one.ctypes.data, one.nbytes, mapped=False) for one in host[3:8] if one.nbytes >= _OWN_PAGES]


def two_streams() -> list[Any]:
    """Return two streams: queues of launches and copies that run concurrently."""
    return [cuda.stream(), cuda.stream()]


def why_not() -> str | None:
    """Return the reason why the device cannot be used, or None."""
    if SIMULATED or cuda.is_available():
        return None
    return "no NVIDIA GPU with its driver and CUDA's compiler libraries is available"


def free_memory() -> int:
    """Return the free bytes of the device."""
    return 1 << 30 if SIMULATED else int(cuda.current_context().get_memory_info().free)


def spread(n_models: int, n_types: int, n_rows: int, n_sums: int, gaussian: bool, blocks: int | None) -> Place:
    """Choose the numbers of lanes, threads and blocks: as many types on lanes as shared memory allows."""
    cell = 4 * n_sums + (0 if gaussian else 8 * n_rows)  # bytes for one column
    width = 8 if n_types <= 8 else 16 if n_types <= 16 else 32
    while width > 8 and cell * width > _SHARED:
        width //= 2
    pitch = 32 if cell * 32 <= _SHARED else width if cell * width <= _SHARED else 0
    shared = cell * pitch
    threads = 32 if SIMULATED else 256 if shared * (_RESIDENT // 256) <= _PER_PROCESSOR else 512
    pieces = -(-n_types // width)
    if blocks is None:
        processors = 1 if SIMULATED else cuda.get_current_device().MULTIPROCESSOR_COUNT
        blocks = max(processors * _RESIDENT // threads // (pieces if pieces > 1 else n_models), 1)
    return Place(width, pitch, threads, blocks, shared)


def expectation(
    chunks: Iterable[tuple[Shelves, Any]],
    models: Float[Array, "R K P"],
    *,
    n_sums: int,
    n_steps: int,
    weight: int,
    gaussian: bool = False,
    top: float = 1.0,
    blocks: int | None = None,
) -> tuple[Float[Array, "R Q P"], Float[Array, "R"]]:
    """Return the statistics and the log-likelihood under every model, over all chunks of the log.

    Args:
        chunks: parts of the log on the device, each with the stream of its launches.
        models: as for the CPU kernel.
        n_sums: rows of the statistics.
        n_steps: of the log.
        weight: steps of all sessions that merged sessions represent.
        gaussian: whether rewards are normal; then rows of sums of rewards follow the rows of plays.
        top: largest absolute value of a reward.
        blocks: of the grid; None: as many as fill the device. The result does not depend on it.
    """
    n_models, n_rows, n_types = models.shape
    place = spread(n_models, n_types, n_rows, n_sums, gaussian, blocks)
    columns = -(-n_types // place.width) * place.width
    double = np.zeros((n_models, n_rows, columns))
    double[:, :, :n_types] = models
    scales = _scales(double[:, 0], n_steps, weight)
    out, logs = np.zeros(n_models * n_sums * columns, np.uint64), np.zeros(n_models * N_LOGS, np.int64)
    on_device = [cuda.to_device(array) for array in (double.ravel(), scales.ravel(), out, logs)]
    longest = 0 if gaussian else LONGEST
    this = _Pass(place, gaussian, top, longest, (n_models, n_rows, n_sums, columns), *on_device)
    for chunk, stream in chunks:
        this.launch(chunk, stream)
    cuda.synchronize()
    sums = (on_device[2].copy_to_host().reshape(n_models, n_sums, columns) / scales[:, None])[:, :, :n_types]
    whole, fraction, impossible, _ = on_device[3].copy_to_host().reshape(n_models, N_LOGS).T
    if gaussian:
        n_arms = n_rows - 2
        sums[:, 1 + n_arms :] = (2 * sums[:, 1 + n_arms :] - sums[:, 1 : 1 + n_arms]) * top
    return sums, np.where(impossible > 0, -np.inf, whole + fraction / LOG_ONE)


def _scales(weights: Float[Array, "R C"], n_steps: int, total: int) -> Float[Array, "R C"]:
    """Return the integer weight of a session in each type: larger for rare types, so that their shares keep their
    digits.

    The weights are powers of two; no sum over the log exceeds 64 bits.
    """
    few, many = _MEAN_BITS
    mean = min(max(many + _SMALL - n_steps.bit_length(), few), many)
    wanted = np.floor(mean - np.log2(np.maximum(weights, 2.0**-_MOST_BITS)))
    return 2.0 ** np.minimum(wanted, min(_MOST_BITS, 63 - total.bit_length()))


class _Part(NamedTuple):
    """Arguments shared by the launches of one chunk."""

    chunk: Shelves
    stream: Any
    masses: Any  # mass of each session in each piece of the types, if they are cut into pieces
    left: Any  # a bit for every round of sessions that needs logarithms


class _Pass(NamedTuple):
    """Arguments shared by the launches of one pass."""

    place: Place
    gaussian: bool
    top: float
    longest: int  # steps of a session up to which probabilities are multiplied
    sizes: tuple[int, int, int, int]  # models, rows of a model, rows of the statistics, columns
    double: Any
    scales: Any
    out: Any
    logs: Any

    def launch(self, chunk: Shelves, stream: Any) -> None:
        """Launch all models at once if every type has a lane, else one model after the other."""
        n_models, n_rows, n_sums, columns = self.sizes
        n_tiles = len(chunk.tile_shelf)
        left = cuda.device_array(4 * n_models * n_tiles, np.uint32, stream=stream)
        clear_kernel[_blocks(self.place, n_models * n_tiles), self.place.threads, stream](left)
        if columns == self.place.width:
            self._add(_Part(chunk, stream, self.double, left), (0, n_tiles), (n_models, 1))  # no masses are needed
            return
        n_pieces = columns // self.place.width
        at_once = min(max(_MASSES // (n_pieces * TILE), 1), n_tiles)
        masses = cuda.device_array(at_once * TILE * n_pieces, np.float64)
        for model in range(n_models):
            one = self._replace(
                double=self.double[model * n_rows * columns : (model + 1) * n_rows * columns],
                scales=self.scales[model * columns : (model + 1) * columns],
                out=self.out[model * n_sums * columns : (model + 1) * n_sums * columns],
                logs=self.logs[N_LOGS * model : N_LOGS * (model + 1)],
            )
            part = _Part(chunk, stream, masses, left[4 * model * n_tiles : 4 * (model + 1) * n_tiles])
            for first in range(0, n_tiles, at_once):
                tiles = (first, min(first + at_once, n_tiles))
                one._weigh(part, tiles, n_pieces)
                one._add(part, tiles, (1, n_pieces))

    def _weigh(self, part: _Part, tiles: tuple[int, int], n_pieces: int) -> None:
        place, chunk = self.place, part.chunk
        grid = (_blocks(place, tiles[1] - tiles[0]), 1, n_pieces)
        kernel = masses_kernel(place.width, chunk.bits, place.pitch, self.gaussian)
        kernel[grid, place.threads, part.stream, place.shared](
            chunk.words, chunk.rewards, chunk.shelves, chunk.tile_shelf, *tiles, self.double, self.sizes[1],
            part.masses, self.longest,
        )  # fmt: skip

    def _add(self, part: _Part, tiles: tuple[int, int], shape: tuple[int, int]) -> None:
        """Launch the kernels with products, then those with logarithms; `shape`: models and pieces of the types."""
        place, chunk, (_, n_rows, n_sums, _) = self.place, part.chunk, self.sizes
        sliced = shape[1] > 1
        if self.longest > 0:
            begin = tiles[0] if sliced else self._add_short(part, shape)
            end = min(tiles[1], chunk.long_tile)
            if begin < end:
                kernel = fast_kernel(place.width, chunk.bits, place.pitch, chunk.merged, sliced)
                self._add_fast(kernel, part, (begin, end), shape)
        careful = careful_kernel(place.width, chunk.bits, place.pitch, self.gaussian, sliced)
        grid = (_blocks(place, tiles[1] - tiles[0]), *shape)
        careful[grid, place.threads, part.stream, 4 * n_sums * place.pitch](
            chunk.words, chunk.rewards, chunk.counts, chunk.merged, chunk.shelves, chunk.tile_shelf, *tiles,
            chunk.long_tile if self.longest > 0 else 0, self.double, self.scales, n_rows, n_sums, part.masses,
            self.longest, self.top, self.out, self.logs, part.left,
        )  # fmt: skip

    def _add_short(self, part: _Part, shape: tuple[int, int]) -> int:
        """Launch the kernels for sessions of a few words; return the first tile after them."""
        place, chunk, done = self.place, part.chunk, 0
        if place.pitch == 0 or chunk.merged:
            return done
        for n_words, last, first, done in chunk.short:
            kernel = fast_kernel(place.width, chunk.bits, place.pitch, False, False, n_words, last)
            self._add_fast(kernel, part, (first, done), shape)
        return done

    def _add_fast(self, kernel: Any, part: _Part, tiles: tuple[int, int], shape: tuple[int, int]) -> None:
        chunk, grid = part.chunk, (_blocks(self.place, tiles[1] - tiles[0]), *shape)
        kernel[grid, self.place.threads, part.stream, self.place.shared](
            chunk.words, chunk.counts, chunk.shelves, chunk.tile_shelf, *tiles, self.double, self.scales, self.sizes[1],
            part.masses, self.out, self.logs, part.left,
        )  # fmt: skip


def _blocks(place: Place, n_tiles: int) -> int:
    return max(min(place.blocks, -(-n_tiles * 32 // place.threads)), 1)
