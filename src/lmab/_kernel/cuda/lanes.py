"""What lanes do and tell each other, in two forms: instructions of the GPU, and what the simulator can run.

Shared memory is read and added to at addresses: bytes on the GPU, where a known distance between rows then costs
nothing, and places in the array in the simulator.

A group is `width` neighbouring lanes (8, 16 or 32). All lanes of a warp call these functions together. The simulator
knows no shuffles; there a block is one warp, and its threads are threads of Python that meet at a barrier.
"""

from __future__ import annotations

import operator
import threading

from numba import uint32

from . import SIMULATED, cuda

_ALL = 0xFFFFFFFF
_PATIENCE = 60.0  # seconds after which a lane of the simulator gives up on the others

if SIMULATED:
    from numba.cuda.simulator.kernelapi import FakeCUDAAtomic

    DOUBLE = WORD = 1  # how far addresses of neighbours are apart
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
        """The values of a group, folded in half again and again, as the GPU's lanes do it together."""
        values, lane = _exchanged(value), threading.current_thread().threadIdx.x
        own = [values[lane // width * width + one] for one in range(width)]
        while len(own) > 1:
            half = len(own) // 2
            own = [function(own[one], own[one + half]) for one in range(half)]
        return own[0]

    def _exchanged(value):
        """The values of all lanes, by the number of the lane.

        There are two boards in turn: whoever writes on one has seen all lanes leave it.
        """
        thread = threading.current_thread()
        boards, meeting = thread._manager.__dict__.setdefault("boards", (({}, {}), threading.Barrier(32)))
        thread.turn = 1 - getattr(thread, "turn", 0)
        boards[thread.turn][thread.threadIdx.x] = value
        meeting.wait(_PATIENCE)
        return boards[thread.turn]

else:
    from .assembly import add as _add
    from .assembly import first as _first
    from .assembly import load as _load
    from .assembly import rough_reciprocal as _rough

    compiled = cuda.jit  # type: ignore[assignment]
    device = cuda.jit(device=True, forceinline=True)  # type: ignore[call-arg]

    DOUBLE, WORD = 8, 4

    @device
    def address(array, place):
        """Where an entry of an array in shared memory is."""
        return uint32(_first(array) + uint32(place * array.itemsize))

    @device
    def load(array, address):
        """The float64 at an address in shared memory."""
        return _load(address)

    @device
    def add_at(array, address, amount):
        """Add 32 bits at an address in shared memory; what was there before."""
        return _add(address, amount)

    @device
    def reciprocal(value):
        """1 / value to about 12 digits, for less than a division."""
        rough = _rough(value)
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
