"""Connections of the service: HTTP/1.1 with limits on bytes, on pipelined requests and on time."""

from __future__ import annotations

import asyncio
import contextlib
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from .app import MAX_BODY, Application, Reply, fixed_headers, live_path, refusal
from .messages import Problem

MAX_HEADERS = 32 * 1024  # bytes of a request besides its body: headers, trailers, sizes and extensions of chunks
MAX_PIPELINE = 8  # requests of one connection that wait for the response to an earlier one
HEADER_TIME = 10.0  # seconds in which the headers of a request must arrive
REQUEST_TIME = 60.0  # seconds in which a whole request must arrive, and in which its response must be read
_SLICE = 4096  # bytes that are parsed before the limits are checked again
_FRAMING = 64  # bytes of body that allow one more byte of chunk framing
_OFFERS = (b"upgrade", b"http2-settings")


class LiveRequest:
    """Request of live traffic, with the attributes that the base class reads of the last request of a connection."""

    __slots__ = ("body", "disconnected", "headers", "keep_alive", "path", "response_complete", "response_started")
    message_event = SimpleNamespace(set=lambda: None)  # the body has arrived: no task waits for it

    def __init__(self, path: str, headers: dict[bytes, bytes]) -> None:
        self.path, self.headers, self.body = path, headers, bytearray()
        self.keep_alive, self.disconnected, self.response_started, self.response_complete = True, False, False, False


@lru_cache(maxsize=32)
def _first_lines(status: int, changing: tuple[tuple[bytes, bytes], ...]) -> bytes:
    """Return the status line of a reply, the headers that change once a second, and the constant ones."""
    headers = [*changing, *fixed_headers(status)]
    return STATUS_LINE[status] + b"".join([b"%b: %b\r\n" % header for header in headers])


class Connection(HttpToolsProtocol):
    """One client connection: every limit holds before the application, and so before any token, is asked.

    A request of live traffic that has arrived as a whole is answered without ASGI, by one task of the connection and in
    one write, which halves the time that the connection takes for it. All others take the way of the base class.
    """

    def connection_made(self, transport: Any) -> None:
        self.in_headers, self.extra = True, 0
        self.since: float | None = self.loop.time()  # since when the rest of a request is missing
        self.unread: float | None = None  # since when bytes of a response wait for the client
        self.idle = self.since  # time of the end of the last response
        self.earlier: list[Any] = []  # requests without a complete response before the last one that has begun
        self.live: LiveRequest | None = None  # live traffic with a body that is arriving
        self.worker: asyncio.Task[None] | None = None  # responds to live traffic
        self.next_live: asyncio.Future[LiveRequest]  # the next request for the worker
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        for cycle in self.earlier:  # the base class does so for the last one only: the others would write, and fail
            cycle.disconnected = True
        super().connection_lost(exc)
        if self.worker is not None and self.worker not in self.tasks:
            self.worker.cancel()

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        self.in_headers, self.since = True, self.loop.time()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():  # the parser stops here, and `_feed` repeats the request without the offer
            return
        self.in_headers = False
        is_next = self.cycle is None or self.cycle.response_complete
        path = live_path(self.url) if is_next and isinstance(self.app, Application) else ""
        if path and self.parser.get_method() == b"POST":
            self.live = LiveRequest(path, dict(self.headers))
        else:
            self._begin_cycle()
        self.headers = []  # trailers arrive here, and must not become headers of the request

    def _begin_cycle(self) -> None:
        """Begin a request as the base class does, if it is live traffic with the part of its body that has arrived."""
        before, live, self.live = self.cycle, self.live, None
        super().on_headers_complete()
        if self.pipeline:
            self.earlier = [cycle for cycle in (*self.earlier, before) if not cycle.response_complete]
        if len(self.pipeline) > MAX_PIPELINE:
            raise OverflowError("too many pipelined requests")  # the parser stops, and `refuse` closes the connection
        if live is not None:
            super().on_body(bytes(live.body))

    def on_body(self, body: bytes) -> None:
        size = len(body)
        self.extra -= size + size // _FRAMING
        if self.extra < 0:
            self.extra = 0
        if self.live is None:
            super().on_body(body)
        else:
            self.live.body += body

    def on_message_complete(self) -> None:
        if self.in_headers:
            return
        self.since, self.extra = None, 0
        if self.live is not None and len(self.live.body) <= MAX_BODY:
            self._begin_live(self.live)
            return
        if self.live is not None:
            self._begin_cycle()
        super().on_message_complete()

    # Live traffic

    def _begin_live(self, request: LiveRequest) -> None:
        """Hand a request to the worker, which is in `tasks` while it is busy, so that a shutdown waits for it."""
        request.keep_alive = self.parser.should_keep_alive() and self.parser.get_http_version() != "1.0"
        self.cycle, self.live = request, None  # type: ignore[assignment]
        if self.worker is None:
            self.worker = self.loop.create_task(self._work(request))
            self.worker.add_done_callback(self.tasks.discard)
        else:
            self.next_live.set_result(request)
        self.tasks.add(self.worker)

    async def _work(self, request: LiveRequest) -> None:
        """Respond to live traffic until the client leaves; a task for each request costs as much as parsing it."""
        app: Any = self.app
        while not request.disconnected:
            reply = await app.respond("POST", request.path, request.headers, request.body)
            if self.flow.write_paused and not request.disconnected:
                await self.flow.drain()
            self.next_live = self.loop.create_future()
            self.tasks.discard(self.worker)
            if not request.disconnected:
                self._write(reply, request)
                request = await self.next_live

    def on_response_complete(self) -> None:
        self.idle = self.loop.time()
        super().on_response_complete()

    def _write(self, reply: Reply, request: LiveRequest) -> None:
        request.response_complete = request.response_started = True
        first = _first_lines(reply.status, tuple(self.server_state.default_headers))
        close = b"" if request.keep_alive else b"connection: close\r\n"
        text = b"%b%bcontent-length: %d\r\nx-request-id: %b\r\n\r\n%b"
        self.transport.write(text % (first, close, len(reply.body), reply.request_id, reply.body))
        if not request.keep_alive:
            self.transport.close()
        self.on_response_complete()

    # Bytes

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        for start in range(0, len(data), _SLICE):
            part = data[start : start + _SLICE]
            self.extra += len(part)
            self._feed(part)
            if self.since is None and not self.pipeline:  # the request is complete
                continue
            if self.extra > MAX_HEADERS and self.since is not None:
                self.transport.abort()
            if self.transport.is_closing():
                return
        if self.live is not None:  # the rest of its body comes later
            self._begin_cycle()

    def _feed(self, data: bytes) -> None:
        """Parse bytes; a request that offers another protocol is repeated without the offer, as RFC 9110 7.8 allows."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as stopped:
            method = self.parser.get_method()
            if method == b"CONNECT":
                self.refuse(Problem("malformed", "the method CONNECT is not supported: the service is no proxy"))
                return
            head = b"%s %s HTTP/%s\r\n" % (method, self.url, self.parser.get_http_version().encode())
            head += b"".join(b"%s: %s\r\n" % pair for pair in self.headers if pair[0] not in _OFFERS) + b"\r\n"
            self.parser = httptools.HttpRequestParser(self)
            with contextlib.suppress(AttributeError):  # as the base class does, for httptools before 0.6.3
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            self._feed(head + data[stopped.args[0] :])
        except httptools.HttpParserError:
            self.refuse(Problem("malformed", "the request is not valid HTTP/1.1"))

    def refuse(self, problem: Problem) -> None:
        """Respond and close; only close if an earlier request has no response yet or this one has a part of it."""
        cycle, body = self.cycle, refusal(problem)
        earlier = self.in_headers or self.since is None or self.live is not None  # the cycle is of a request before
        busy = cycle is not None and (not cycle.response_complete if earlier else cycle.response_started)
        if busy or self.pipeline or self.transport.is_closing():
            self.transport.abort()
            return
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[problem.status] + head + body)
        self.transport.close()

    # Time

    def waits_since(self) -> float | None:
        """Return since when the service waits for this client to read, to send or to ask again; None if it does not."""
        if self.unread is not None or self.since is not None:
            return self.since if self.unread is None else self.unread
        return self.idle if self.cycle.response_complete else None

    def expire(self, now: float) -> None:
        """End the connection if a request or the reading of its response takes too long; called every second."""
        if self.transport.get_write_buffer_size() == 0:
            self.unread = None
        elif self.unread is None:
            self.unread = now
        limit = HEADER_TIME if self.in_headers else REQUEST_TIME
        if self.unread is not None and now - self.unread > REQUEST_TIME:
            self.transport.abort()
        elif self.since is not None and now - self.since > limit:
            self.refuse(Problem("too-slow", f"the request must arrive within {limit:g} s"))


def drop_longest_waiting(connections: set[Any], newest: Connection) -> None:
    """Close the connection that the service has waited for longest, the newest one if it waits for no other."""
    waiting = [one for one in connections if one.waits_since() is not None and one is not newest]
    longest = min(waiting, key=lambda one: one.waits_since(), default=newest)
    connections.discard(longest)  # at once: its loss is reported only after other connections have been accepted
    longest.transport.abort()
