"""Operations of a warp in two versions: instructions of the GPU, and Python code for the simulator.

Shared memory is addressed by bytes on the GPU, so that a constant distance between rows costs nothing, and by array
indices in the simulator.

A group is `width` neighbouring lanes (8, 16 or 32). All lanes of a warp call these functions together. The simulator
has no shuffles; there a block is one warp, and its threads are Python threads that wait for each other.
"""

from __future__ import annotations

import math
import operator
import threading
from typing import Any

from llvmlite import ir
from numba import int64, uint32, uint64
from numba.core import cgutils, types
from numba.cuda.extending import intrinsic

from ..arrays import FIRST_SESSION, FIRST_STEP, FIRST_TILE, FIRST_WORD, LENGTH, SIZE, TILE
from . import SIMULATED, cuda

_ALL = 0xFFFFFFFF
_DOUBLE, _WORD, _LONG = ir.DoubleType(), ir.IntType(32), ir.IntType(64)
WHOLE, FRACTION, IMPOSSIBLE, LEFT = range(4)  # columns of every model in `logs`; the first two are a sum of logarithms
N_LOGS = 4
LOG_BITS = 36  # bits of the fraction of a tile's log-likelihood, with room for the fractions of 2**27 tiles
LOG_ONE = float(1 << LOG_BITS)


if SIMULATED:
    from numba.cuda.simulator.kernelapi import FakeCUDAAtomic

    DOUBLE = WORD = 1  # distance between the addresses of neighbours
    atomic_add = FakeCUDAAtomic().add

    def address(array, place):
        return place

    def load(array, address):
        return array[address]

    def add_at(array, address, amount):
        return atomic_add(array, address, amount)

    def reciprocal(value):
        return 1.0 / value

    def compiled(**options):
        return cuda.jit

    def device(function):
        return function

    def group_sum(value, width):
        return _folded(value, width, operator.add)

    def group_max(value, width):
        return _folded(value, width, max)

    def warp_any(condition):
        return any(_exchanged(bool(condition)).values())

    def _folded(value, width, function):
        """Reduce the values of a group by repeated halving, as the GPU's lanes do it together."""
        values, lane = _exchanged(value), threading.current_thread().threadIdx.x
        folded = [values[lane // width * width + one] for one in range(width)]
        while len(folded) > 1:
            half = len(folded) // 2
            folded = [function(folded[one], folded[one + half]) for one in range(half)]
        return folded[0]

    def _exchanged(value):
        """Return the values of all lanes, by the number of the lane.

        Two boards alternate: a lane that writes on one has seen all lanes leave it.
        """
        thread = threading.current_thread()
        boards = thread._manager.__dict__.setdefault("boards", ({}, {}))
        thread.turn = 1 - getattr(thread, "turn", 0)
        boards[thread.turn][thread.threadIdx.x] = value
        thread.syncthreads()
        return boards[thread.turn]

else:
    compiled = cuda.jit  # type: ignore[assignment]
    device = cuda.jit(device=True, forceinline=True)  # type: ignore[call-arg]

    DOUBLE, WORD = 8, 4

    @device
    def address(array, place):
        """Return the address of an entry of an array in shared memory."""
        return uint32(first(array) + uint32(place * array.itemsize))

    @device
    def load(array, address):
        """Return the float64 at an address in shared memory."""
        return load_shared(address)

    @device
    def add_at(array, address, amount):
        """Add 32 bits at an address in shared memory; return the previous value."""
        return add(address, amount)

    @device
    def reciprocal(value):
        """Return 1 / value to about 12 digits, faster than a division."""
        rough = rough_reciprocal(value)
        return rough + rough * (1.0 - value * rough)

    @device
    def atomic_add(array, index, value):
        return cuda.atomic.add(array, index, value)

    @device
    def group_sum(value, width):
        offset = width // 2
        while offset:
            value += cuda.shfl_xor_sync(_ALL, value, offset)
            offset //= 2
        return value

    @device
    def group_max(value, width):
        offset = width // 2
        while offset:
            value = max(value, cuda.shfl_xor_sync(_ALL, value, offset))
            offset //= 2
        return value

    @device
    def warp_any(condition):
        return cuda.any_sync(_ALL, condition)


def _line(builder: Any, text: str, kinds: str, result: Any, *arguments: Any) -> Any:
    """Return the value of an inline assembly instruction, given by its text and the kinds of its operands."""
    function = ir.FunctionType(result, [one.type for one in arguments])
    return builder.call(ir.InlineAsm(function, text, kinds, side_effect=True), arguments)


@intrinsic
def first(type_, array):
    """Return the address of the first entry of an array in shared memory."""

    def generate(target, builder, signature, arguments):
        held = cgutils.create_struct_proxy(signature.args[0])(target, builder, value=arguments[0])
        anywhere = builder.ptrtoint(held.data, _LONG)
        return builder.trunc(_line(builder, "cvta.to.shared.u64 $0, $1;", "=l,l", _LONG, anywhere), _WORD)

    return types.uint32(array), generate


@intrinsic
def load_shared(type_, address):
    """Return the float64 at an address."""

    def generate(target, builder, signature, arguments):
        return _line(builder, "ld.shared.f64 $0, [$1];", "=d,r", _DOUBLE, *arguments)

    return types.float64(types.uint32), generate


@intrinsic
def add(type_, address, amount):
    """Add to the 32 bits at an address; return the previous value."""

    def generate(target, builder, signature, arguments):
        return _line(builder, "atom.shared.add.u32 $0, [$1], $2;", "=r,r,r", _WORD, *arguments)

    return types.uint32(types.uint32, types.uint32), generate


@intrinsic
def rough_reciprocal(type_, value):
    """Return 1 / value to about 6 digits."""

    def generate(target, builder, signature, arguments):
        return _line(builder, "rcp.approx.ftz.f64 $0, $1;", "=d,d", _DOUBLE, *arguments)

    return types.float64(types.float64), generate


@device
def load_table(table, source, first, columns, n_rows, pitch, width, thread, n_threads):
    """Copy a piece of the table to shared memory, repeated for every group if `pitch` is 32."""
    for i in range(thread, n_rows * pitch, n_threads):
        table[i] = source[first + uint64(i // pitch) * columns + uint64(i % width)]


@device
def clear_sums(sums, offset, n_rows, pitch, thread, n_threads):
    for i in range(thread, n_rows * pitch, n_threads):
        sums[offset + i] = 0


@device
def give_sums(sums, offset, out, first, columns, n_rows, pitch, width, thread, n_threads):
    """Add the sums of shared memory, over all groups, to `out`."""
    for i in range(thread, n_rows * width, n_threads):
        total = uint64(0)
        for column in range(i % width, pitch, width):
            total += uint64(sums[offset + i // width * pitch + column])
        if total > 0:
            atomic_add(out, first + uint64(i // width) * columns + uint64(i % width), total)


@device
def tile_of(shelves, tile_shelf, tile):
    """Return the steps of a tile's sessions, their number, word distance, first word, step and session."""
    shelf = tile_shelf[tile]
    begin = (tile - shelves[shelf, FIRST_TILE]) * TILE
    return (
        uint32(shelves[shelf, LENGTH]),
        uint32(min(TILE, shelves[shelf, SIZE] - begin)),
        uint64(shelves[shelf, SIZE]),
        uint64(shelves[shelf, FIRST_WORD] + begin),
        uint64(shelves[shelf, FIRST_STEP] + begin),
        uint64(shelves[shelf, FIRST_SESSION] + begin),
    )


@device
def flags_of(model, n_tiles, tile):
    """Return the index of a tile's four words of flags, with a bit for every round."""
    return (uint64(model) * uint64(n_tiles) + uint64(tile)) * uint64(4)


@device
def give_logs(logs, model, whole, fraction):
    atomic_add(logs, N_LOGS * model + WHOLE, whole)
    atomic_add(logs, N_LOGS * model + FRACTION, fraction)


@device
def in_units(total):
    """Return a sum of logarithms as two integers, so that further sums do not depend on their order."""
    whole = math.floor(total)
    return int64(whole), int64(math.floor((total - whole) * LOG_ONE + 0.5))
