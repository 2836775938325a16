"""The kernels in Numba."""

from __future__ import annotations

from numba.core import event

from .. import announce_compilation


class _Announcer(event.Listener):
    """Numba tells it about every compilation; what is loaded from its cache on disk is none."""

    def on_start(self, event: event.Event) -> None:
        announce_compilation()

    def on_end(self, event: event.Event) -> None:
        pass


event.register("numba:compile", _Announcer())
