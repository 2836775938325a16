"""Connections of the service: HTTP/1.1 with limits on bytes, on pipelined requests and on time."""

from __future__ import annotations

import contextlib
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from .app import refusal
from .messages import Problem

MAX_HEADERS = 32 * 1024  # bytes of a request besides its body: headers, trailers, sizes and extensions of chunks
MAX_PIPELINE = 8  # requests of one connection that wait for the response to an earlier one
HEADER_TIME = 10.0  # seconds in which the headers of a request must arrive
REQUEST_TIME = 60.0  # seconds in which a whole request must arrive, and in which its response must be read
_SLICE = 4096  # bytes that are parsed before the limits are checked again
_FRAMING = 64  # bytes of body that allow one more byte of chunk framing
_OFFERS = (b"upgrade", b"http2-settings")


class Connection(HttpToolsProtocol):
    """One client connection: every limit holds before the application, and so before any token, is asked."""

    def connection_made(self, transport: Any) -> None:
        self.in_headers, self.extra = True, 0
        self.since: float | None = self.loop.time()  # since when the rest of a request is missing
        self.unread: float | None = None  # since when bytes of a response wait for the client
        self.earlier: list[Any] = []  # requests without a complete response before the last one that has begun
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        for cycle in self.earlier:  # the base class does so for the last one only: the others would write, and fail
            cycle.disconnected = True
        super().connection_lost(exc)

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        self.in_headers, self.since = True, self.loop.time()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():  # the parser stops here, and `_feed` repeats the request without the offer
            return
        before, self.in_headers = self.cycle, False
        super().on_headers_complete()
        self.headers = []  # trailers arrive here, and must not become headers of the request
        if self.pipeline:
            self.earlier = [cycle for cycle in (*self.earlier, before) if not cycle.response_complete]

    def on_body(self, body: bytes) -> None:
        size = len(body)
        self.extra -= size + size // _FRAMING
        if self.extra < 0:
            self.extra = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if not self.in_headers:
            self.since, self.extra = None, 0
            super().on_message_complete()

    # Bytes

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        for start in range(0, len(data), _SLICE):
            part = data[start : start + _SLICE]
            self.extra += len(part)
            self._feed(part)
            if self.since is None and not self.pipeline:  # the request is complete
                continue
            if len(self.pipeline) > MAX_PIPELINE or (self.extra > MAX_HEADERS and self.since is not None):
                self.transport.abort()
            if self.transport.is_closing():
                return

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
        earlier = self.in_headers or self.since is None  # whether the cycle belongs to a request before this one
        busy = cycle is not None and (not cycle.response_complete if earlier else cycle.response_started)
        if busy or self.pipeline or self.transport.is_closing():
            self.transport.abort()
            return
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[problem.status] + head + body)
        self.transport.close()

    # Time

    def waits_since(self) -> float | None:
        """Return since when the service waits for this client; None if it does not."""
        return self.since if self.unread is None else self.unread

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
    """Close the connection whose client the service has waited for longest, the newest one if it waits for no other."""
    waiting = [one for one in connections if one.waits_since() is not None and one is not newest]
    longest = min(waiting, key=lambda one: one.waits_since(), default=newest)
    connections.discard(longest)  # at once: its loss is reported only after other connections have been accepted
    longest.transport.abort()
