"""Queue in front of a store, which puts many requests into one commit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextvars import Context
from dataclasses import dataclass

from .logs import request_id
from .messages import Problem
from .stores import DEADLINE, Job, Store, public_reason

_BUSY = 8  # requests of one commit from which on the next one is delayed
_LINGER = 0.005  # seconds; with a fast disk, less meant many small commits and a third more processor time
_NAMED = 100  # ids of requests in a failed commit that are logged
_TICK = 0.1  # seconds between two checks for requests that wait too long
_log = logging.getLogger("lmab.serve")


@dataclass(slots=True)
class _Waiting:
    job: Job
    future: asyncio.Future[None]
    until: float  # by the clock of the queue
    request: str


class Commits:
    """Queue in front of a store (group commit): jobs that arrive during a commit share the next one.

    `limit` bounds how many requests may wait, `deadline` how long. `trouble` is the reason of the last failure, and
    empty while writes succeed. A batch that fails is written again job by job, so that one bad job harms no other.
    """

    def __init__(self, store: Store, limit: int, deadline: float = DEADLINE) -> None:
        self.store, self.limit, self.deadline = store, limit, deadline
        self.trouble = ""
        self.last_success = 0.0  # by the clock of the event loop
        self.n_commits = self.n_jobs = self.n_failed = 0
        self.waiting: list[_Waiting] = []  # for the next commit
        self._under_way: dict[int, list[_Waiting]] = {}
        self._task: asyncio.Task[None] | None = None
        self._alone: set[asyncio.Task[None]] = set()
        self._clock = 0.0  # seconds in which the event loop had time; while it is busy, no deadline passes
        self._ticked = 0.0
        self._ticking = False

    async def commit(self, job: Job) -> None:
        """Return when the job is durable; raise `Problem` if it cannot be stored."""
        if len(self.waiting) >= self.limit:
            raise Problem("busy", f"{self.limit} requests wait for the store: try again in a moment")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self.waiting.append(_Waiting(job, future, self._clock + self.deadline, request_id.get()))
        if self._task is None:
            self._task = asyncio.create_task(self._drain(), context=Context())  # it writes for many requests
        if not self._ticking:
            self._ticking, self._ticked = True, loop.time()
            loop.call_later(_TICK, self._tick)
        await future

    async def finish(self) -> None:
        """Wait until everything is written or refused."""
        while self._task is not None or self._alone:
            await asyncio.wait([*([] if self._task is None else [self._task]), *self._alone])

    async def probe(self) -> str:
        """Try a small write; return why it failed, or an empty text."""
        try:
            await asyncio.wait_for(self.store.probe(), self.deadline)
        except Exception as error:
            trouble = f"the store takes no writes: {public_reason(error)}"
            if trouble != self.trouble:
                _log.error("%s: %s", trouble, error)
            self.trouble = trouble
        else:
            self._succeeded()
        return self.trouble

    def _tick(self) -> None:
        """Refuse the requests that have waited too long; the store may still write the commit under way."""
        loop = asyncio.get_running_loop()
        self._clock, self._ticked = self._clock + min(loop.time() - self._ticked, 2 * _TICK), loop.time()
        for batch in (self.waiting, *self._under_way.values()):
            late = [waiting for waiting in batch if waiting.until <= self._clock]
            _answer(late, Problem("no-store", f"the store did not answer within {self.deadline:g} s: try again"))
        self._ticking = bool(self.waiting or self._under_way)
        if self._ticking:
            loop.call_later(_TICK, self._tick)

    async def _drain(self) -> None:
        try:
            last = 0
            while self.waiting:
                if last >= _BUSY:  # their clients send the next requests now: one larger commit costs less
                    await asyncio.sleep(_LINGER)
                batch, self.waiting = self.waiting, []
                last = len(batch)
                await self._write(batch)
        finally:
            self._task = None

    async def _write(self, batch: list[_Waiting], alone: bool = False) -> None:
        """Write a batch and answer it; if it fails while the store takes other writes, try each job alone."""
        asked = [waiting for waiting in batch if not waiting.future.done()]  # the others were refused or cancelled
        if not asked:
            return
        self._under_way[id(batch)], failure = batch, None
        try:
            await self.store.write([waiting.job for waiting in asked])
        except Exception as error:
            failure = error
        finally:
            del self._under_way[id(batch)]
        if failure is None:
            self.n_commits += 1
            self.n_jobs += len(asked)
            self._succeeded()
            _answer(asked, None)
        elif alone or await self.probe() or len(batch) == 1:
            self._refuse(batch, failure)
        else:
            for waiting in batch:
                task = asyncio.create_task(self._write([waiting], alone=True))
                self._alone.add(task)
                task.add_done_callback(self._alone.discard)

    def _refuse(self, batch: list[_Waiting], error: Exception) -> None:
        self.n_failed += len(batch)
        ids = [waiting.request for waiting in batch[:_NAMED] if waiting.request]
        text = "%d requests could not be stored: %s %s"
        _log.error(text, len(batch), type(error).__name__, " ".join(ids), extra={"fields": {"requests": ids}})
        _answer(batch, Problem("no-store", f"the store did not take this: {public_reason(error)}"))

    def _succeeded(self) -> None:
        self.last_success = asyncio.get_running_loop().time()
        if self.trouble:
            _log.warning("the store takes writes again")
        self.trouble = ""


def _answer(batch: Sequence[_Waiting], problem: Problem | None) -> None:
    for waiting in batch:
        if not waiting.future.done():  # a client that left has cancelled its own
            if problem is None:
                waiting.future.set_result(None)
            else:
                waiting.future.set_exception(problem)
