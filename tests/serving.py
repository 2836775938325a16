"""Helpers of the service's tests: stores, a service with a simulated clock, and clients with and without HTTP bytes."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httptools
import httpx

import lmab
from lmab.serve.app import Application, make_app
from lmab.serve.clock import AGREED
from lmab.serve.connection import Connection
from lmab.serve.run import http_server
from lmab.serve.service import Service, Settings
from lmab.serve.stores import open_store
from lmab.serve.versions import Defaults

BANDIT = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5, 0.2], [0.1, 0.6, 0.3]])
LABELS = ("red", "green", "blue")
HORIZON = 4


class Clock:
    """Clock that a test advances."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


@functools.cache
def policy_bytes(floor: float | None = None, seed: int = 0, horizon: int = HORIZON, exact: bool = False) -> bytes:
    """Return a policy file for arms with labels."""
    import tempfile

    bandit = lmab.LatentBandit(BANDIT.weights, BANDIT.rewards, LABELS)
    if seed:
        made = lmab.random_bandit(2, 3, rng=seed)
        bandit = lmab.LatentBandit(made.weights, made.rewards, LABELS)
    method = lmab.Exact() if exact else lmab.Certified()
    policy: lmab.Policy = lmab.plan(bandit, horizon=horizon, method=method).policy
    if floor is not None:
        policy = lmab.policies.Exploring(policy, floor)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "p.lmab"
        policy.save(path)
        return path.read_bytes()


class Pipe(asyncio.Transport):
    """Transport to a client in memory: parses the responses that a connection writes."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.responses: list[httpx.Response] = []
        self.head: dict[str, Any] = {}
        self.arrived, self.closed, self.to_head = asyncio.Event(), False, False
        self.parser = httptools.HttpResponseParser(self)

    def on_message_begin(self) -> None:
        self.head = {"headers": [], "content": b""}

    def on_header(self, name: bytes, value: bytes) -> None:
        self.head["headers"].append((name, value))

    def on_headers_complete(self) -> None:
        if self.to_head:  # the response to HEAD ends here, whatever its length header
            self.on_message_complete()

    def on_body(self, body: bytes) -> None:
        self.head["content"] += body

    def on_message_complete(self) -> None:
        self.responses.append(httpx.Response(self.parser.get_status_code(), **self.head))
        self.arrived.set()

    def write(self, data: Any) -> None:
        assert not self.closed
        self.writes.append(bytes(data))
        self.parser.feed_data(data)

    def close(self) -> None:
        self.closed = True
        self.arrived.set()

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        """Do nothing: a test controls its own messages."""

    resume_reading = pause_reading

    async def response(self, number: int = 0) -> httpx.Response:
        """Wait for a response; raise `OSError` if the connection is closed before."""
        while len(self.responses) <= number:
            if self.closed:
                raise OSError("the connection was closed")
            self.arrived.clear()
            await self.arrived.wait()
        return self.responses[number]


class Wire(httpx.AsyncBaseTransport):
    """Transport of httpx that gives every request as bytes to a new connection of the service, without a socket."""

    def __init__(self, app: Application) -> None:
        self.app = app

    def connect(self) -> tuple[Connection, Pipe]:
        """Return a new connection and its transport."""
        server, pipe = http_server(self.app, "127.0.0.1", 0), Pipe()
        server.config.load()
        connection = server.config.http_protocol_class(server.config, server.server_state, {})
        connection.connection_made(pipe)
        return connection, pipe

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = await request.aread()
        lines = [b"%b: %b\r\n" % header for header in request.headers.raw]
        line = b"%b %b HTTP/1.1\r\n" % (request.method.encode(), request.url.raw_path)
        connection, pipe = self.connect()
        pipe.to_head = request.method == "HEAD"
        connection.data_received(line + b"".join(lines) + b"\r\n" + body)
        try:
            return await pipe.response()
        finally:
            connection.connection_lost(None)


class Client:
    """Client of a service that sends the bytes of HTTP, without a network."""

    def __init__(self, service: Service, http: httpx.AsyncClient) -> None:
        self.service, self.http = service, http

    async def decide(self, session: str, step: int, reward: float | None = None, **more: Any) -> httpx.Response:
        body = {"session": session, "step": step, **({} if reward is None else {"reward": reward}), **more}
        return await self.http.post("/v1/decide", json=body)

    async def told(self, session: str, step: int, reward: float | None = None, **more: Any) -> dict[str, Any]:
        answer = await self.decide(session, step, reward, **more)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def reward(self, session: str, step: int, reward: float) -> httpx.Response:
        rows = {"rewards": [{"session": session, "step": step, "reward": reward}]}
        return await self.http.post("/v1/rewards", json=rows)


@contextlib.asynccontextmanager
async def served(
    where: str,
    policy: bytes | None = None,
    *,
    tokens: tuple[str, ...] = (),
    clock: Clock | None = None,
    **settings: Any,
) -> AsyncIterator[Client]:
    """Return a running service with its client; arms red, green, blue."""
    settings.setdefault("defaults", Defaults(HORIZON))
    store = patient(open_store(where))
    service = Service(store, Settings(**settings), clock or Clock(), secret=b"the same draws in every run")
    service.clock.started -= AGREED  # sweeps wait for the first minutes of a process to pass
    await service.start(watch=False)
    try:
        if service.register.ready and not service.register.arms:
            await service.register.set_arms(LABELS)
        if policy is not None:
            version = await service.register.add_version(policy)
            await service.register.promote(version.name, 1.0)
        transport = Wire(make_app(service, tokens))
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as http:
            yield Client(service, http)
    finally:
        await service.stop()


def patient(store: Any) -> Any:
    """Give a store time to answer on a machine that is busy with other tests; deadlines have tests of their own."""
    for links in (getattr(store, "_writers", None), getattr(store, "_readers", None)):
        for each in () if links is None else (links, *links.links):
            each.deadline = 20.0
    return store


def empty_database(address: str) -> str:
    """Return the address of an empty schema on the server; a new database would take a second."""
    name = f"t{uuid.uuid4().hex}"

    async def make() -> None:
        import asyncpg

        db = await asyncpg.connect(address)
        await db.execute(f"CREATE SCHEMA {name}")
        await db.close()

    asyncio.run(make())
    return f"{address}?search_path={name}"


def refused(answer: httpx.Response, status: int, code: str) -> None:
    """Assert that the response is an error with this status and code."""
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert len(answer.json()["error"]) > 10


def go(scenario: Any) -> None:
    """Run a coroutine."""
    asyncio.run(scenario)
