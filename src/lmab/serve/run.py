"""Start the service: its options, its first policy and arms, and the server in front of it."""

from __future__ import annotations

import gc
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import InvalidArgument
from .app import make_app
from .messages import Label
from .metrics import Metrics
from .problems import Problem
from .register import Register
from .service import Service
from .settings import Settings
from .stores import open_store
from .versions import UNIFORM, Version, read_version


@dataclass(frozen=True)
class Options:
    """Where the service listens, and what it starts with."""

    store: str
    policy: Path | None = None
    arms: tuple[Label, ...] = ()
    host: str = "127.0.0.1"
    port: int = 8000
    tokens: tuple[str, ...] = ()
    settings: Settings = field(default_factory=Settings)
    secret: bytes | None = None  # of the draws, for a store that has none yet; None: a new one


def make_service(options: Options) -> Service:
    """A service that puts its first policy and arms into the store as soon as the store is open."""

    async def begin(register: Register) -> None:
        if options.arms:
            await register.set_arms(options.arms)
        if options.policy is not None:
            try:
                await _first_policy(register, options.policy)
            except (Problem, OSError) as problem:
                register.broken[str(options.policy)] = f"{options.policy}: {problem}"

    spare = options.arms, _spare(options)
    return Service(open_store(options.store), options.settings, begin=begin, spare=spare, secret=options.secret)


def _spare(options: Options) -> Version | None:
    """The policy of the file, for as long as the store is away."""
    if options.policy is None or not options.settings.without_store:
        return None
    try:
        return read_version(options.policy.read_bytes(), options.settings.defaults)
    except (Problem, OSError):
        return None


async def _first_policy(register: Register, path: Path) -> None:
    """Put a file that the store does not know in force; one that it knows was promoted or rolled back since."""
    body = path.read_bytes()
    name = read_version(body, register.defaults).name
    known = await register.store.version(name) is not None
    if not known:
        await register.add_version(body, f"from {path.name}")
    turns = await register.store.turns(1)
    if not known or not turns or turns[0].active == UNIFORM:
        await register.promote(name, 1.0, f"started with {path.name}")


def check_address(host: str, tokens: Sequence[str]) -> None:
    """Without tokens only this machine may reach the service."""
    try:
        near = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        near = False
    if not near and not tokens:
        raise InvalidArgument(
            f"--host must be a loopback address such as 127.0.0.1 unless --token-file is given, got {host}"
        )


def http_server(app: Any, host: str, port: int) -> Any:
    """The server in front of an application, not yet running."""
    import uvicorn

    config = uvicorn.Config(
        app, host=host, port=port, log_level="warning", access_log=False, lifespan="on", timeout_graceful_shutdown=10,
        backlog=2048, server_header=False, proxy_headers=False,
    )  # fmt: skip
    return uvicorn.Server(config)


def server(options: Options, service: Service | None = None) -> Any:
    """The server of a service, not yet running."""
    check_address(options.host, options.tokens)
    app = make_app(service or make_service(options), options.tokens, Metrics())
    return http_server(app, options.host, options.port)


def run(options: Options) -> None:
    """Serve until SIGTERM or Ctrl-C; what was accepted is answered first."""
    running = server(options)
    spare_garbage_collection()
    running.run()  # with uvloop, where it is installed


def spare_garbage_collection() -> None:
    """Sessions in memory make Python look for garbage, and each time it would look at all compiled modules, too."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
