"""Experiments: the services of one store, which follow its records."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from .messages import Problem
from .service import Service
from .stores import DEFAULT

_LOOK = 1.0  # seconds between two looks at the records
_log = logging.getLogger("lmab.serve")


class Experiments:
    """Services by experiment. `first` serves `default`; `make` returns the service of another experiment.

    Without `make`, `first` is the only one.
    """

    def __init__(self, first: Service, make: Callable[[str], Service] | None = None) -> None:
        self.first, self._make = first, make
        self.services = {DEFAULT: first}
        self._task: asyncio.Task[None] | None = None

    def service(self, name: str) -> Service:
        """Return the service of an experiment; raise `Problem` if none has this name."""
        try:
            return self.services[name]
        except KeyError:
            raise Problem("unknown-experiment", f"experiment {name[:40]!r} is not served here") from None

    async def start(self, watch: bool = True) -> None:
        """Start the service of every experiment, and follow the records from then on."""
        await self.first.start(watch)
        if self._make is not None:
            await self.refresh()
            self._task = asyncio.create_task(self._watch()) if watch else None

    async def stop(self) -> None:
        """Stop all services; the store is closed last."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        for service in reversed(self.services.values()):
            await service.stop()

    async def refresh(self) -> None:
        """Start services of new experiments, and stop services of archived ones."""
        if self._make is None or not self.first.register.ready:
            return
        rows = await self.first.register.asked(self.first.store.experiments())
        wanted = {row.name for row in rows if not row.archived} | {DEFAULT}
        for name in [name for name in self.services if name not in wanted]:
            _log.info("experiment %s is archived and not served any more", name)
            await self.services.pop(name).stop()
        for name in sorted(wanted - self.services.keys()):
            service = self._make(name)
            await service.start()
            self.services[name] = service
            _log.info("experiment %s is served", name)

    async def unable(self) -> str:
        """Return why an experiment cannot be decided; an experiment without arms or policy is not counted."""
        for name, service in self.services.items():
            counts = not service.is_empty or len(self.services) == 1
            if counts and (reason := await service.unable()):
                return reason if name == DEFAULT else f"experiment {name}: {reason}"
        return ""

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK)
            try:
                await self.refresh()
            except Exception as error:  # the next look tries again
                _log.debug("the experiments could not be read: %s", error)
