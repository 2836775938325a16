"""Group commit: what comes while one commit runs is written by the next, and answered once it is durable."""

from __future__ import annotations

import asyncio

from .problems import Problem
from .stores import Job, Store

_BUSY = 8  # requests of one commit from which on the next one waits a little
_LINGER = 0.005  # seconds; with a fast disk, less meant many small commits and a third more processor time


class Commits:
    """A queue in front of a store. `limit` bounds how many requests may wait."""

    def __init__(self, store: Store, limit: int) -> None:
        self.store, self.limit = store, limit
        self.n_commits = self.n_jobs = self.n_failed = 0
        self._waiting: list[tuple[Job, asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def depth(self) -> int:
        """How many requests wait for the next commit."""
        return len(self._waiting)

    async def commit(self, job: Job) -> None:
        """Return when the job is durable; raise `Problem` where it is not."""
        if len(self._waiting) >= self.limit:
            raise Problem("busy", f"{self.limit} requests wait for the store: try again in a moment")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((job, future))
        if self._task is None:
            self._task = asyncio.create_task(self._drain())
        await future

    async def finish(self) -> None:
        """Wait until everything is written."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _drain(self) -> None:
        try:
            last = 0
            while self._waiting:
                if last >= _BUSY:  # those who were just answered are about to ask again: one larger commit costs less
                    await asyncio.sleep(_LINGER)
                batch, self._waiting = self._waiting, []
                last = len(batch)
                await self._write(batch)
        finally:
            self._task = None

    async def _write(self, batch: list[tuple[Job, asyncio.Future[None]]]) -> None:
        try:
            await self.store.write([job for job, _ in batch])
        except Exception as error:
            self.n_failed += len(batch)
            for _, future in batch:
                if not future.done():
                    future.set_exception(Problem("no-store", f"the store did not take this: {type(error).__name__}"))
            return
        self.n_commits += 1
        self.n_jobs += len(batch)
        for _, future in batch:
            if not future.done():  # a client that went away has cancelled its own
                future.set_result(None)
