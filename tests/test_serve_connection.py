"""Connections of the service: live traffic, offers of other protocols, and limits on bytes, requests and time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import httpx
import pytest
import uvloop
from serving import HORIZON, Clock, Pipe, policy_bytes, refused, served

from lmab.serve import connection as limits
from lmab.serve.app import LIVE
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
                assert connection.waits_since() == connection.idle  # for the next request
            else:
                connection.expire(100.0 + limits.REQUEST_TIME)
                assert not connection.transport.is_closing()
                connection.expire(100.1 + limits.REQUEST_TIME)
                assert len(await _until_closed(reader)) < LARGE
            writer.close()

    go(scenario())


def test_the_connection_that_has_kept_the_service_waiting_longest_makes_room():
    class One:
        def __init__(self, since: float | None, unread: float | None = None, idle: float | None = None) -> None:
            self.since, self.unread, self.idle, self.closed = since, unread, idle, False
            self.transport = self.cycle = self
            self.response_complete = idle is not None

        def abort(self) -> None:
            self.closed = True

        waits_since = limits.Connection.waits_since

    newest: Any = One(4.0)
    for others, closed in (
        ([One(3.0), One(None, 2.0), One(None), One(None, idle=2.5)], 1),
        ([One(3.0), One(None), One(None, idle=2.5)], 2),
        ([One(None)], None),
    ):
        connections: set[Any] = {*others, newest}
        limits.drop_longest_waiting(connections, newest)
        assert [one.closed for one in others] == [place == closed for place in range(len(others))]
        assert newest.closed == (closed is None)
        assert len(connections) == len(others)


def posted(path: str, body: Any, *headers: str) -> bytes:
    """Return the bytes of a request."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = "\r\n".join([f"POST {path} HTTP/1.1", "Host: x", *headers, f"Content-Length: {len(data)}"])
    return head.encode() + b"\r\n\r\n" + data


def asked(session: str, step: int = 0, **more: Any) -> bytes:
    return posted("/v1/decide", {"session": session, "step": step, **more})


def seen(response: httpx.Response) -> tuple[int, dict[str, str], bytes]:
    """Return what a client sees of a response; the server adds the date."""
    headers = {name: value for name, value in response.headers.items() if name not in ("date", "x-request-id")}
    return response.status_code, headers, response.content


REQUESTS: dict[str, tuple[str, Any, int]] = {
    "decision": ("/v1/decide", {"session": "s", "step": 0}, 200),
    "retry": ("/v1/decide", {"session": "s", "step": 0}, 200),
    "reward and decision": ("/v1/decide", {"session": "s", "step": 1, "reward": 1.0}, 200),
    "late reward": ("/v1/rewards", {"rewards": [{"session": "s", "step": 1, "reward": 0}]}, 200),
    "other reward": ("/v1/rewards", {"rewards": [{"session": "s", "step": 1, "reward": 1}]}, 409),
    "unknown session": ("/v1/decide", {"session": "t", "step": 1}, 404),
    "beyond the horizon": ("/v1/decide", {"session": "s", "step": 10**6}, 409),
    "no JSON": ("/v1/decide", b"{", 400),
    "unknown field": ("/v1/rewards", {"reward": []}, 400),
    "no body": ("/v1/rewards", b"", 400),
    "too large": ("/v1/decide", b" " * (64 * 1024) + b"{}", 413),
    "another path": ("/v1/decide/", {}, 403),
}


@pytest.mark.parametrize("lane", ["one piece", "many pieces"])
def test_each_lane_gives_the_same_responses(tmp_path, lane):
    """Whether a request bypasses ASGI depends on how its bytes arrive, which the client must not notice."""

    async def play(client, how: str) -> list[Any]:
        if how == "ASGI":
            app = client.http._transport.app
            client.http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service")
        found = []
        for path, body, status in REQUESTS.values():
            if how == "many pieces":
                connection, pipe = client.http._transport.connect()
                data = posted(path, body, "X-Request-Id: request-1", "Authorization: Bearer secret")
                size = 7 if len(data) < 1000 else 1000
                for start in range(0, len(data), size):
                    connection.data_received(data[start : start + size])
                    await asyncio.sleep(0)
                answer = await pipe.response()
                connection.connection_lost(None)
            else:
                content = body if isinstance(body, bytes) else json.dumps(body).encode()
                headers = {"X-Request-Id": "request-1", "Authorization": "Bearer secret"}
                answer = await client.http.post(path, content=content, headers=headers)
            assert answer.status_code == status, (path, answer.text)
            assert answer.headers["x-request-id"] == "request-1"
            found.append(seen(answer))
        headers = {"Authorization": "Bearer wrong"}
        found += [seen(await client.http.post(path, content=b"{}", headers=headers)) for path in LIVE]
        found.append(dict(client.http._transport.app.metrics.requests))
        await client.http.aclose()
        return found

    async def scenario():
        found = []
        for how in ("ASGI", lane):
            name = f"{how}-{len(found)}.db"
            async with served(str(tmp_path / name), policy_bytes(), tokens=("secret decide",), clock=Clock()) as client:
                found.append(await play(client, how))
        assert found[0] == found[1]
        assert found[0][-1]["default", "/v1/decide", 200] == 3
        assert found[0][-1]["default", "/v1/decide", 401] == 1

    asyncio.run(scenario())


@contextlib.asynccontextmanager
async def connected(store: Any, **settings: Any) -> AsyncIterator[tuple[Any, Any, Pipe]]:
    """Serve a policy, and open one connection to it."""
    async with served(str(store), policy_bytes(), **settings) as client:
        connection, pipe = client.http._transport.connect()
        yield client.service, connection, pipe
        if not pipe.closed:
            connection.connection_lost(None)


def test_a_decision_is_answered_in_one_write_and_by_one_task(tmp_path):
    async def scenario():
        async with connected(tmp_path / "e.db") as (_, connection, pipe):
            connection.data_received(asked("s"))
            worker = connection.worker
            assert connection.tasks == {worker}  # a shutdown waits for it
            await pipe.response()
            for step in range(1, HORIZON):
                assert connection.tasks == set()
                connection.data_received(asked("s", step, reward=1))
                assert (await pipe.response(step)).json()["step"] == step
                assert connection.worker is worker
            assert len(pipe.writes) == HORIZON
            assert connection.server_state.total_requests == HORIZON

    asyncio.run(scenario())


def test_pipelined_decisions_are_answered_in_order(tmp_path):
    async def scenario():
        async with connected(tmp_path / "e.db") as (_, connection, pipe):
            data = b"".join(asked("s", step) for step in range(HORIZON))
            connection.data_received(data + b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" + asked("t"))
            answers = [await pipe.response(number) for number in range(HORIZON + 2)]
            assert [answer.json()["step"] for answer in answers[:HORIZON]] == list(range(HORIZON))
            assert answers[HORIZON].text == "ok\n"
            assert answers[HORIZON + 1].json()["session"] == "t"
            assert len({answer.headers["x-request-id"] for answer in answers}) == len(answers)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("line", "closed"),
    [
        (b"HTTP/1.1\r\nHost: x\r\n", False),
        (b"HTTP/1.1\r\nHost: x\r\nConnection: close\r\n", True),
        (b"HTTP/1.0\r\n", True),
    ],
)
def test_a_connection_is_kept_if_the_client_keeps_it(tmp_path, line, closed):
    async def scenario():
        async with connected(tmp_path / "e.db") as (_, connection, pipe):
            data = asked("s").replace(b"HTTP/1.1\r\nHost: x\r\n", line)
            connection.data_received(data)
            answer = await pipe.response()
            assert (answer.status_code, pipe.closed) == (200, closed)
            assert ("connection" in answer.headers) == closed
            if closed:
                connection.connection_lost(None)
                with pytest.raises(asyncio.CancelledError):
                    await connection.worker

    asyncio.run(scenario())


def test_a_decision_in_chunks_and_one_that_waits_for_100_continue(tmp_path):
    async def scenario():
        async with connected(tmp_path / "e.db") as (_, connection, pipe):
            head = b"POST /v1/decide HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
            body = b'{"session":"s","step":0}'
            trailer = b"X-Request-Id: forged\r\n\r\n"
            connection.data_received(head + b"%x\r\n%b\r\n0\r\n" % (len(body), body) + trailer)
            assert (await pipe.response()).headers["x-request-id"] != "forged"
            connection.data_received(posted("/v1/decide", body, "Expect: 100-continue")[: -len(body)])
            while not any(b"100 Continue" in data for data in pipe.writes):
                await asyncio.sleep(0)
            connection.data_received(body)
            assert (await pipe.response(2)).json()["session"] == "s"  # the parser counts 100 as a response

    asyncio.run(scenario())


def test_a_client_that_leaves_before_its_answer_costs_nobody_anything(tmp_path):
    """What it sent is stored, and neither its task nor a response to a lost connection remains."""

    async def scenario():
        async with connected(tmp_path / "e.db") as (service, connection, pipe):
            connection.data_received(asked("s"))
            await asyncio.sleep(0)
            pipe.close()
            connection.connection_lost(None)
            await connection.worker
            assert pipe.writes == []
            assert connection.tasks == set()
            assert len(await service.store.session("s")) == 1

    asyncio.run(scenario())


def test_a_mistake_of_the_service_is_a_response_and_the_connection_goes_on(tmp_path, caplog):
    async def scenario():
        async with connected(tmp_path / "e.db") as (service, connection, pipe):
            decide = service.decide

            async def fail(question):
                raise ZeroDivisionError("a mistake")

            service.decide = fail
            connection.data_received(asked("s"))
            refused(await pipe.response(), 500, "internal")
            service.decide = decide
            connection.data_received(asked("s"))
            assert (await pipe.response(1)).status_code == 200
            assert "a mistake" in caplog.text
            assert "a mistake" not in (await pipe.response()).text

    asyncio.run(scenario())


def test_a_fault_within_the_body_of_a_decision_is_refused(tmp_path):
    async def scenario():
        async with connected(tmp_path / "e.db") as (_, connection, pipe):
            connection.data_received(asked("s"))
            await pipe.response()
            connection.data_received(b"POST /v1/decide HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n")
            refused(await pipe.response(1), 400, "malformed")
            assert pipe.closed

    asyncio.run(scenario())
