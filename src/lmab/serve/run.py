"""Start the service: its options, its first policy and arms, and the server in front of it, with its limits."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import logging
import os
import resource
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import InvalidArgument, InvalidFile, LmabError
from .app import Access, make_app
from .messages import Label, Problem
from .register import Register
from .service import Service, Settings
from .stores import open_store
from .versions import UNIFORM, Version, read_version, warm_up
from .watch import Metrics

TOKENS = "LMAB_TOKENS"  # the environment variable with tokens and roles, one a line or with ; between them
MAX_HEADERS = 32 * 1024  # bytes of the headers of a request
MAX_CONNECTIONS = 4096  # at most; fewer where the process may open fewer files
HEADER_TIME = 10.0  # seconds in which the headers of a request must come
REQUEST_TIME = 60.0  # seconds in which a request must come, its body included
_OTHER_FILES = 100  # that the process needs besides connections
_log = logging.getLogger("lmab.serve")


@dataclass(frozen=True)
class Options:
    """Where the service listens, and what it starts with."""

    store: str
    policy: Path | None = None
    arms: tuple[Label, ...] = ()
    host: str = "127.0.0.1"
    port: int = 8000
    token_file: Path | None = None
    settings: Settings = field(default_factory=Settings)
    secret: bytes | None = None  # Secret of the draws, for a store that has none yet; None: a new one.


def lines_of(path: Path) -> tuple[str, ...]:
    """The lines of a file that hold something."""
    try:
        found = tuple(line.strip() for line in path.read_text("utf-8").splitlines() if line.strip())
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidFile(f"{path}: cannot be read: {error}") from None
    if not found or len(set(found)) != len(found):
        raise InvalidFile(f"{path}: must hold one label or token on each line, none twice")
    return found


def read_tokens(token_file: Path | None) -> tuple[str, ...]:
    """The tokens of the file and of the environment, each with its roles."""
    given = os.environ.get(TOKENS, "").replace(";", "\n").splitlines()
    return (*(lines_of(token_file) if token_file else ()), *(line.strip() for line in given if line.strip()))


def make_service(options: Options, clock: Callable[[], float] = time.time) -> Service:
    """A service that puts its first policy and arms into the store as soon as the store is open."""

    async def begin(register: Register) -> None:
        if options.arms:
            await register.add_arms(options.arms)
        if options.policy is not None:
            try:
                await _first_policy(register, options.policy)
            except (Problem, OSError) as problem:
                _log.error("%s: %s", options.policy, problem)
                register.broken[str(options.policy)] = f"{options.policy}: {problem}"

    standby = options.arms, _standby(options)
    store = open_store(options.store)
    return Service(store, options.settings, clock, begin=begin, standby=standby, secret=options.secret)


def _standby(options: Options) -> Version | None:
    """The policy of the file, for as long as the store is away."""
    if options.policy is None or not options.settings.without_store:
        return None
    try:
        return read_version(options.policy.read_bytes(), options.settings.defaults).warm()
    except (Problem, OSError):
        return None


async def _first_policy(register: Register, path: Path) -> None:
    """Put a file that the store does not know in force; one that it knows was promoted or rolled back since."""
    body = path.read_bytes()
    name = (await asyncio.to_thread(read_version, body, register.defaults)).name
    known = await register.store.version(name) is not None
    if not known:
        await register.add_version(body, f"from {path.name}")
    rollouts = await register.store.rollouts(1)
    if not known or not rollouts or rollouts[0].active == UNIFORM:
        await register.promote(name, 1.0, f"started with {path.name}")


def check_address(host: str, tokens: Sequence[str]) -> None:
    """Without tokens only this machine may reach the service."""
    try:
        near = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        near = False
    if not near and not tokens:
        raise InvalidArgument(
            f"--host must be a loopback address such as 127.0.0.1 unless --token-file or {TOKENS} is given, got {host}"
        )


def http_server(app: Any, host: str, port: int) -> Any:
    """The server in front of an application, not yet running; it bounds headers, connections and time."""
    import uvicorn
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    most = min(MAX_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _OTHER_FILES)

    class Connection(HttpToolsProtocol):
        """Counts the bytes of headers and the time that a request takes to come, before anybody looks at it."""

        def connection_made(self, transport: Any) -> None:
            self.in_headers, self.header_bytes = True, 0
            self.since: float | None = self.loop.time()
            super().connection_made(transport)
            if len(self.connections) > most:
                _drop_one(self.connections, self)

        def on_message_begin(self) -> None:
            self.in_headers, self.header_bytes, self.since = True, 0, self.loop.time()
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self.in_headers = False
            super().on_headers_complete()

        def on_message_complete(self) -> None:
            self.since = None
            super().on_message_complete()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.in_headers:
                self.header_bytes += len(data)
                if self.header_bytes > MAX_HEADERS:
                    self.transport.abort()

        def expire(self, now: float) -> None:
            if self.since is not None and now - self.since > (HEADER_TIME if self.in_headers else REQUEST_TIME):
                self.transport.abort()

    class Server(uvicorn.Server):
        async def on_tick(self, counter: int) -> bool:
            if counter % 10 == 0:
                now = asyncio.get_running_loop().time()
                for connection in list(self.server_state.connections):
                    connection.expire(now)  # type: ignore[union-attr]
            return await super().on_tick(counter)

    config = uvicorn.Config(
        app, host=host, port=port, log_level="warning", access_log=False, lifespan="on", timeout_graceful_shutdown=10,
        backlog=2048, server_header=False, proxy_headers=False, http=Connection, ws="none",
    )  # fmt: skip
    return Server(config)


def _drop_one(connections: Any, newest: Any) -> None:
    """Close the connection that has kept us waiting longest for a request; the newest where none waits."""
    waiting = [one for one in connections if one.since is not None and one is not newest]
    oldest = min(waiting, key=lambda one: one.since, default=newest)
    connections.discard(oldest)
    oldest.transport.abort()


def server(options: Options, service: Service | None = None) -> Any:
    """The server of a service, not yet running."""
    tokens = read_tokens(options.token_file)
    check_address(options.host, tokens)
    access = Access(tokens)
    app = make_app(service or make_service(options), access, Metrics())
    running = http_server(app, options.host, options.port)
    running.reload_tokens = _reloading(access, options)
    return running


def _reloading(access: Access, options: Options) -> Callable[..., None]:
    """Reads the tokens again; where the new ones are wrong, the old ones stay."""

    def reload(*_: Any) -> None:
        try:
            tokens = read_tokens(options.token_file)
            check_address(options.host, tokens)
            access.replace(tokens)
        except LmabError as error:
            _log.error("the tokens stay as they are: %s", error)
        else:
            _log.warning("%d tokens were read", len(tokens))

    return reload


def run(options: Options) -> None:
    """Serve until SIGTERM or Ctrl-C; what was accepted is answered first. SIGHUP reads the tokens again."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("lmab").setLevel(logging.INFO)
    running = server(options)
    signal.signal(signal.SIGHUP, running.reload_tokens)
    warm_up()
    tame_garbage_collection()
    running.run()  # with uvloop, where it is installed


def tame_garbage_collection() -> None:
    """Sessions in memory make Python look for garbage, and each time it would look at all compiled modules, too."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
