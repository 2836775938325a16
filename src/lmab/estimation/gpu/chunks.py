"""Chunks: a log on the device, in parts; what does not fit is brought anew for every pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..._kernel import Shelves, on_gpu
from ..passes import CodedLog
from .shelving import shelve

_SHARE = 0.8  # of the free memory may hold codes, less room for two parts that come and go


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
