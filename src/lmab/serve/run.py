"""Start of the service: options, first policy and arms, and the server with its limits."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ipaddress
import json
import logging
import os
import resource
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ..errors import InvalidArgument, InvalidFile, LmabError
from .access import Access
from .app import make_app
from .experiments import Experiments
from .messages import Label, Problem
from .metrics import Metrics
from .register import HISTORY, Register
from .service import Service, Settings
from .stores import POSTGRES, open_store, without_secrets
from .versions import UNIFORM, Version, read_version, warm_up

TOKENS = "LMAB_TOKENS"  # the environment variable with tokens and roles, one a line or with ; between them
MAX_CONNECTIONS = 4096  # at most; fewer if the process may open fewer files
_OTHER_FILES = 100  # that the process needs besides connections
_log = logging.getLogger("lmab.serve")


@dataclass(frozen=True)
class Options:
    """Address, store, first policy and arms of a service."""

    store: str
    policy: Path | None = None
    arms: tuple[Label, ...] = ()
    host: str = "127.0.0.1"
    port: int = 8000
    token_file: Path | None = None
    settings: Settings = field(default_factory=Settings)
    secret: bytes | None = None  # Secret of the draws, for a store that has none yet; None: a new one.
    # Settings of `default` that override the store; None: all.
    given: frozenset[str] | None = field(default=None, compare=False, repr=False)
    sync_arms: bool = False  # `arms` are the open arms: the other open ones are withdrawn


def lines_of(path: Path) -> tuple[str, ...]:
    """Return the lines of a file that are not blank."""
    try:
        found = tuple(line.strip() for line in path.read_text("utf-8").splitlines() if line.strip())
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidFile(f"{path}: cannot be read: {error}") from None
    if not found or len(set(found)) != len(found):
        raise InvalidFile(f"{path}: must hold one label or token on each line, none twice")
    return found


def read_tokens(token_file: Path | None) -> tuple[str, ...]:
    """Return the lines of the token file and of the environment, each a token with its roles."""
    given = os.environ.get(TOKENS, "").replace(";", "\n").splitlines()
    return (*(lines_of(token_file) if token_file else ()), *(line.strip() for line in given if line.strip()))


def make_service(options: Options, clock: Callable[[], float] = time.time) -> Service:
    """Return a service that puts its first policy and arms into the store as soon as the store is open.

    Raise `InvalidFile` or `InvalidArgument` if the policy cannot be served or the store has no valid address.
    """
    store, first = open_store(options.store), _read_policy(options)

    async def begin(register: Register) -> None:
        if options.arms:
            if options.sync_arms:
                await register.set_arms(options.arms)
            else:
                await register.add_arms(options.arms)
        if first is not None:
            await _first_policy(register, *first)

    version = None if first is None or not options.settings.without_store else first[0].warm()
    return Service(store, options.settings, clock, begin, (options.arms, version), options.secret, options.given)


def make_experiments(options: Options, clock: Callable[[], float] = time.time) -> Experiments:
    """Return the services of all experiments of the store; the options belong to the experiment `default`."""
    first = make_service(options, clock)
    process = Settings(
        without_store=options.settings.without_store, memory=options.settings.memory, queue=options.settings.queue
    )

    def make(name: str) -> Service:
        return Service(first.store.of(name), process, clock, given=(), beside=first)

    return Experiments(first, make)


def _read_policy(options: Options) -> tuple[Version, bytes, str] | None:
    """Return the version in the policy file, its bytes and the name of the file."""
    path = options.policy
    if path is None:
        return None
    try:
        body = path.read_bytes()
        return read_version(body, options.settings.defaults), body, path.name
    except OSError as error:
        raise InvalidFile(f"{path}: cannot be read: {error.strerror}") from None
    except Problem as problem:
        raise InvalidFile(f"{path}: {problem}") from None


async def _first_policy(register: Register, version: Version, body: bytes, file: str) -> None:
    """Put a file that is new here in force; one that had sessions before was promoted, rolled back or retired since."""
    rollouts, stored = await register.store.rollouts(HISTORY), await register.store.version(version.name) is not None
    is_new = not stored and all(version.name not in entry[:2] for entry in rollouts)
    if is_new or not rollouts or rollouts[0].active == UNIFORM:
        if not stored:
            await register.add_version(body, f"from {file}")
        await register.promote(version.name, 1.0, f"started with {file}")


def check_store(where: str) -> None:
    """Raise `InvalidArgument` if the address of a store is invalid, without connecting to it."""
    asked = f"--store {without_secrets(where)}"
    try:
        store = open_store(where)
        if not where.startswith(POSTGRES):
            return
        import asyncpg

        address = store.address
        _ = urlsplit(address).port if "," not in address else None
        asyncio.run(asyncpg.connect(address, host=os.devnull, port=1, timeout=5))  # the driver reads the address first
    except LmabError:
        raise
    except ModuleNotFoundError as error:
        raise InvalidArgument(f"{asked} needs {error.name}: pip install '.[postgres]'") from None
    except NotADirectoryError:  # a valid address: no server can listen below the null device
        pass
    except Exception as error:  # only texts about options of the connection are shown: others may quote a password
        reason = f": {error}" if type(error).__name__ == "ClientConfigurationError" else ""
        raise InvalidArgument(
            f"{asked} is no valid address{reason}. Check port, sslmode and the files that it names; "
            "the characters ? % of a password must be percent-encoded"
        ) from None


def check_address(host: str, tokens: Sequence[str]) -> None:
    """Raise `InvalidArgument` if other machines could reach a service without tokens."""
    try:
        near = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        near = False
    if not near and not tokens:
        text = f"--host must be a loopback address such as 127.0.0.1 unless --token-file or {TOKENS} is given"
        raise InvalidArgument(f"{text}, got {host}")


def http_server(app: Any, host: str, port: int) -> Any:
    """Return the server of an application, not yet running; it bounds headers, connections and time."""
    import uvicorn

    from .connection import Connection, drop_longest_waiting

    most = min(MAX_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _OTHER_FILES)

    class Limited(Connection):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > most:
                drop_longest_waiting(self.connections, self)

    class Server(uvicorn.Server):
        announce: Callable[[str], None] | None = None  # called with the address once requests are accepted

        async def startup(self, *given: Any, **more: Any) -> None:
            await super().startup(*given, **more)
            if self.started and self.announce is not None:
                name = f"[{host}]" if ":" in host else host
                self.announce(f"http://{name}:{self.servers[0].sockets[0].getsockname()[1]}/")

        async def on_tick(self, counter: int) -> bool:
            if counter % 10 == 0:
                now = asyncio.get_running_loop().time()
                for connection in list(self.server_state.connections):
                    connection.expire(now)  # type: ignore[union-attr]
            return await super().on_tick(counter)

    config = uvicorn.Config(
        app, host=host, port=port, log_level="warning", log_config=None, access_log=False, lifespan="on",
        timeout_graceful_shutdown=10, backlog=2048, server_header=False, proxy_headers=False, http=Limited, ws="none",
    )  # fmt: skip
    return Server(config)


def configuration(options: Options, n_tokens: int) -> dict[str, Any]:
    """Return the effective options of the process, without secrets."""
    settings = {name: getattr(options.settings, name) for name in ("without_store", "memory", "queue")}
    given = {name: value for name, value in options.settings.record().items() if name in (options.given or ())}
    own = {"store": without_secrets(options.store), "policy": options.policy, "arms": len(options.arms) or None}
    own |= {"arms_sync": options.sync_arms, "host": options.host, "port": options.port, "tokens": n_tokens}
    return {name: str(value) if isinstance(value, Path) else value for name, value in (own | settings | given).items()}


def server(options: Options, service: Service | None = None, say: Callable[[str], None] | None = None) -> Any:
    """Return the server of a service, not yet running; raise `LmabError` if the options cannot be served.

    `say` gets the address as soon as requests are accepted.
    """
    tokens = read_tokens(options.token_file)
    check_address(options.host, tokens)
    _log.info("configuration: %s", json.dumps(configuration(options, len(tokens))))
    access = Access(tokens)
    app = make_app(make_experiments(options) if service is None else service, access, Metrics())
    running = http_server(app, options.host, options.port)
    if say is not None:
        kept = f"(Ctrl-C stops); decisions are kept in {without_secrets(options.store)}."
        running.announce = lambda address: say(f"Serving at {address} {kept}")

    def reload_tokens(*_: Any) -> None:
        try:
            tokens = read_tokens(options.token_file)
            check_address(options.host, tokens)
            access.replace(tokens)
        except LmabError as error:
            _log.error("the tokens stay as they are: %s", error)
        else:
            _log.warning("%d tokens were read", len(tokens))

    running.reload_tokens = reload_tokens
    return running


def run(running: Any) -> None:
    """Run a server until SIGTERM or Ctrl-C; accepted requests are answered first. SIGHUP reads the tokens again."""
    signal.signal(signal.SIGHUP, running.reload_tokens)
    warm_up()
    tame_garbage_collection()
    inner = running.announce

    def announce(address: str) -> None:
        notify_manager("READY=1")
        if inner is not None:
            inner(address)

    running.announce = announce
    running.run()  # with uvloop, if it is installed
    notify_manager("STOPPING=1")


def notify_manager(state: str) -> None:
    """Send the state of the process to systemd, if the unit has `Type=notify`."""
    if not (address := os.environ.get("NOTIFY_SOCKET", "")):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.connect("\0" + address[1:] if address.startswith("@") else address)
        manager.send(state.encode())


def tame_garbage_collection() -> None:
    """Collect garbage rarely, and never among the modules: sessions in memory are many objects without cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
