"""Connections of the service over real sockets: offers of other protocols, and limits on bytes, requests and time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest
import uvloop

from lmab.serve import connection as limits
from lmab.serve.run import http_server

LARGE = 32 * 2**20  # bytes of a response that no socket buffer takes


class Running(NamedTuple):
    """A server on a port of its own; the application answers with what it received."""

    server: Any
    port: int
    released: asyncio.Event  # requests for /held wait for it

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    @property
    def connections(self) -> list[Any]:
        return list(self.server.server_state.connections)

    async def ask(self, data: bytes, parts: int = 1) -> bytes:
        """Send bytes in parts, end the sending side if the service keeps the connection, and return the response."""
        reader, writer = await self.connect()
        size = -(-len(data) // parts)
        with contextlib.suppress(OSError):
            for start in range(0, len(data), size):
                writer.write(data[start : start + size])
                await writer.drain()
                await asyncio.sleep(0)
        answer = await _until_closed(reader)
        writer.close()
        return answer


def go(scenario: Any) -> None:
    """Run a coroutine on the event loop that the service has."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario)


async def _until_closed(reader: asyncio.StreamReader) -> bytes:
    found = b""
    with contextlib.suppress(OSError):
        while part := await reader.read(2**20):
            found += part
    return found


@contextlib.asynccontextmanager
async def running(**more: Any) -> AsyncIterator[Running]:
    released = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for name in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{name}.complete"})
            return
        body, message = b"", {"more_body": True}
        while message.get("more_body"):
            message = await receive()
            body += message.get("body", b"")
        if scope["path"] == "/held":
            await released.wait()
        names = sorted(name.decode() for name, _ in scope["headers"])
        seen = {"path": scope["path"], "method": scope["method"], "body": len(body), "headers": names}
        answer = b"x" * LARGE if scope["path"] == "/large" else json.dumps(seen).encode()
        size = (b"content-length", b"%d" % len(answer))
        await send({"type": "http.response.start", "status": 200, "headers": [size]})
        await send({"type": "http.response.body", "body": answer})

    server = http_server(app, "127.0.0.1", 0)
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield Running(server, server.servers[0].sockets[0].getsockname()[1], released)
    finally:
        released.set()
        server.should_exit = True
        await task


def bodies(answer: bytes) -> list[Any]:
    """Return the JSON bodies of responses that follow each other."""
    decode = json.JSONDecoder().raw_decode
    return [decode(part.partition(b"\r\n\r\n")[2].decode())[0] for part in answer.split(b"HTTP/1.1 ")[1:]]


POST = b"POST /first HTTP/1.1\r\nHost: x\r\n"
OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n"
SIZED = b"Content-Length: 5\r\n\r\nabcde"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
LAST = b"GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
WEBSOCKET = b"GET /first HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


@pytest.mark.parametrize("parts", [1, 40, 150])
@pytest.mark.parametrize(
    ("request_", "n_bodies"),
    [
        (POST + SIZED, [5]),
        (POST + OFFER + SIZED, [5]),
        (POST + OFFER + CHUNKED, [5]),
        ((POST + OFFER + SIZED) * 3, [5, 5, 5]),
        (POST + OFFER + CHUNKED + POST + SIZED, [5, 5]),
        (POST + b"Upgrade: h2c\r\n" + SIZED, [5]),
        (WEBSOCKET, [0]),
        (WEBSOCKET + POST + OFFER + SIZED, [0, 5]),
    ],
)
def test_offers_of_other_protocols_are_ignored(request_, n_bodies, parts):
    async def scenario():
        async with running() as service:
            found = bodies(await service.ask(request_ + LAST, parts))
            assert [one["body"] for one in found] == [*n_bodies, 0]
            assert [one["path"] for one in found] == ["/first"] * len(n_bodies) + ["/last"]

    go(scenario())


def test_the_other_headers_of_an_offer_are_kept():
    async def scenario():
        async with running() as service:
            (seen, _) = bodies(await service.ask(POST + b"X-One: 1\r\n" + OFFER + SIZED + LAST))
            assert seen["headers"] == ["connection", "content-length", "host", "x-one"]

    go(scenario())


@pytest.mark.parametrize(
    "data",
    [
        b"CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"nonsense\r\n\r\n",
        POST + b"Content-Length: -1\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\nnonsense\r\n",
    ],
)
def test_what_is_not_http_is_refused_as_json(data):
    async def scenario():
        async with running() as service:
            answer = await service.ask(data)
            assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
            assert bodies(answer)[0]["code"] == "malformed"

    go(scenario())


def test_a_refusal_is_not_taken_for_the_response_to_an_earlier_request():
    async def scenario():
        async with running() as service:
            assert await service.ask(b"GET /held HTTP/1.1\r\nHost: x\r\n\r\nnonsense\r\n\r\n") == b""

    go(scenario())


CHUNKS = POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"


@pytest.mark.parametrize(
    ("start", "more"),
    [
        (POST + b"A: ", b"v" * 4096),
        (POST, b"A: v\r\n" * 1000),
        (CHUNKS + b"0\r\nA: ", b"v" * 4096),
        (CHUNKS + b"0\r\n", b"A: v\r\n" * 1000),
        (CHUNKS + b"1;", b"e" * 4096),
        (CHUNKS, b"1\r\nx\r\n" * 1000),
    ],
    ids=["header", "headers", "trailer", "trailers", "extension", "tiny chunks"],
)
def test_bytes_that_are_not_body_are_limited(start, more):
    """A gigabyte of them would be sent here, if nobody closed the connection."""

    async def scenario():
        async with running() as service:
            reader, writer = await service.connect()
            writer.write(start)
            sent = 0
            with contextlib.suppress(OSError):
                while sent < 2**30 and not reader.at_eof():
                    writer.write(more)
                    await writer.drain()
                    sent += len(more)
                    await asyncio.sleep(0)
            assert sent < 2**26  # what buffers of the system took after the limit
            assert await _until_closed(reader) == b""
            writer.close()
            assert bodies(await service.ask(LAST))[0]["path"] == "/last"

    go(scenario())


def test_a_large_body_in_chunks_of_usual_size_is_taken():
    chunk = b"200\r\n" + b"b" * 512 + b"\r\n"

    async def scenario():
        async with running() as service:
            data = POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 10_000 + b"0\r\n\r\n"
            assert [one["body"] for one in bodies(await service.ask(data + LAST, 20))] == [5_120_000, 0]

    go(scenario())


def test_trailers_do_not_become_headers():
    async def scenario():
        async with running() as service:
            (seen, _) = bodies(await service.ask(CHUNKS + b"0\r\nAuthorization: Bearer t\r\n\r\n" + LAST))
            assert seen["headers"] == ["host", "transfer-encoding"]

    go(scenario())


@pytest.mark.parametrize(("waiting", "answered"), [(limits.MAX_PIPELINE, True), (limits.MAX_PIPELINE + 1, False)])
def test_pipelined_requests_are_limited(waiting, answered, monkeypatch):
    complaints: list[Any] = []
    monkeypatch.setattr(logging.getLogger("uvicorn.error"), "error", lambda *words, **_: complaints.append(words))

    async def scenario():
        async with running() as service:
            reader, writer = await service.connect()
            writer.write(b"GET /held HTTP/1.1\r\nHost: x\r\n\r\n")
            writer.write(b"GET /next HTTP/1.1\r\nHost: x\r\n\r\n" * (waiting - 1) + LAST)
            if answered:
                while not (service.connections and len(service.connections[0].pipeline) == waiting):
                    await asyncio.sleep(0.01)
                service.released.set()
            found = bodies(await _until_closed(reader))
            paths = ["/held", *["/next"] * (waiting - 1), "/last"]
            assert [one["path"] for one in found] == (paths if answered else [])
            writer.close()

    go(scenario())
    assert complaints == []  # the request that was held cannot be answered any more, and does not try


@pytest.mark.parametrize(
    ("data", "limit"),
    [(b"GET / HT", limits.HEADER_TIME), (b"", limits.HEADER_TIME), (POST + SIZED[:-1], limits.REQUEST_TIME)],
)
def test_a_request_that_takes_too_long_to_arrive_is_told_so(data, limit):
    async def scenario():
        async with running() as service:
            reader, writer = await service.connect()
            writer.write(data)
            while not (service.connections and service.connections[0].extra >= min(len(data), 8)):
                await asyncio.sleep(0.01)
            (connection,) = service.connections
            connection.since = 100.0
            connection.expire(100.0 + limit)
            assert not connection.transport.is_closing()
            connection.expire(100.1 + limit)
            answer = await _until_closed(reader)
            assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
            assert bodies(answer)[0]["code"] == "too-slow"
            writer.close()

    go(scenario())


@pytest.mark.parametrize("reads", [False, True])
def test_a_response_that_is_not_read_ends_the_connection(reads):
    async def scenario():
        async with running() as service:
            reader, writer = await service.connect()
            writer.write(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
            while not (service.connections and service.connections[0].transport.get_write_buffer_size()):
                await asyncio.sleep(0.01)
            (connection,) = service.connections
            connection.expire(100.0)
            assert connection.waits_since() == 100.0
            if reads:
                await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(LARGE)
                connection.expire(1e9)
                assert connection.waits_since() is None
            else:
                connection.expire(100.0 + limits.REQUEST_TIME)
                assert not connection.transport.is_closing()
                connection.expire(100.1 + limits.REQUEST_TIME)
                assert len(await _until_closed(reader)) < LARGE
            writer.close()

    go(scenario())


def test_the_connection_that_has_kept_the_service_waiting_longest_makes_room():
    class One:
        def __init__(self, since: float | None, unread: float | None = None) -> None:
            self.since, self.unread, self.closed = since, unread, False
            self.transport = self

        def abort(self) -> None:
            self.closed = True

        waits_since = limits.Connection.waits_since

    newest: Any = One(4.0)
    for others, closed in (([One(3.0), One(None, 2.0), One(None)], 1), ([One(None)], None)):
        connections: set[Any] = {*others, newest}
        limits.drop_longest_waiting(connections, newest)
        assert [one.closed for one in others] == [place == closed for place in range(len(others))]
        assert newest.closed == (closed is None)
        assert len(connections) == len(others)
