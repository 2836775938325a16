"""Kernels compiled by Numba."""

from __future__ import annotations

from numba.core import event

from .. import announce_compilation


class _Announcer(event.Listener):
    """Listener that Numba calls for every compilation; loading from Numba's cache on disk is not a compilation."""

    def on_start(self, event: event.Event) -> None:
        announce_compilation()

    def on_end(self, event: event.Event) -> None:
        pass


event.register("numba:compile", _Announcer())
