"""What lanes tell each other, in two forms: instructions of the GPU, and what the simulator can run.

A group is `width` neighbouring lanes (8, 16 or 32). All lanes of a warp call these functions together. The simulator
knows no shuffles; there a block is one warp, and its threads are threads of Python that meet at a barrier.
"""

from __future__ import annotations

import threading

from . import SIMULATED, cuda

_ALL = 0xFFFFFFFF
_PATIENCE = 60.0  # seconds after which a lane of the simulator gives up on the others

if SIMULATED:
    from numba.cuda.simulator.kernelapi import FakeCUDAAtomic

    atomic_add = FakeCUDAAtomic().add

    def compiled(**options):
        return cuda.jit

    def device(function):
        return function

    def group_sum(value, width):
        offset = width // 2
        while offset:
            value = value + _partner(value, offset)
            offset //= 2
        return value

    def group_max(value, width):
        offset = width // 2
        while offset:
            value = max(value, _partner(value, offset))
            offset //= 2
        return value

    def warp_any(condition):
        return any(_exchanged(bool(condition)).values())

    def _partner(value, offset):
        """The value of the lane whose number differs by the bit `offset`."""
        return _exchanged(value)[threading.current_thread().threadIdx.x ^ offset]

    def _exchanged(value):
        """The values of all lanes, by the number of the lane."""
        thread = threading.current_thread()
        board, meeting = thread._manager.__dict__.setdefault("board", ({}, threading.Barrier(32)))
        board[thread.threadIdx.x] = value
        meeting.wait(_PATIENCE)
        found = dict(board)
        meeting.wait(_PATIENCE)
        return found

else:
    compiled = cuda.jit  # type: ignore[assignment]
    device = cuda.jit(device=True, forceinline=True)  # type: ignore[call-arg]

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
