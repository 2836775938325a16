"""`lmab serve`: decide for live sessions over HTTP, and keep every decision with its probability."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import InvalidArgument, InvalidFile
from .output import say


def serve(
    policy: Annotated[Path | None, typer.Argument(help="The policy to start with; without one, all arms.")] = None,
    store: Annotated[str, typer.Option(help="Where decisions are kept: a file, or postgresql://...")] = "events.db",
    arms: Annotated[Path | None, typer.Option(help="The arms that are open, one label a line.")] = None,
    horizon: Annotated[int | None, typer.Option(help="Steps of a session, where no policy says so.", min=1)] = None,
    repeats: Annotated[bool, typer.Option(help="May a session play an arm twice, without a policy?")] = True,
    rewards: Annotated[str, typer.Option(help="Rewards there can be, such as 0,1; any: every number.")] = "0,1",
    floor: Annotated[float, typer.Option(help="Share of decisions that explore.", min=0.0, max=1.0)] = 0.05,
    default_reward: Annotated[float | None, typer.Option(help="Reward of a step for which none came in time.")] = None,
    window: Annotated[float, typer.Option(help="Seconds in which a reward may come.", min=0.0)] = 3600.0,
    apprentice: Annotated[bool, typer.Option("--apprentice", help="Answer the baseline of the request.")] = False,
    without_store: Annotated[
        bool, typer.Option("--without-store", help="Answer also while the store is away; nothing is kept then.")
    ] = False,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at.", min=0, max=65535)] = 8000,
    token_file: Annotated[Path | None, typer.Option(help="Tokens, one a line; a request must name one.")] = None,
    queue: Annotated[int, typer.Option(help="Requests that may wait for the store.", min=1)] = 10_000,
    demo: Annotated[bool, typer.Option("--demo", help="Play a simulated population against the service.")] = False,
) -> None:
    """Decide for live sessions over HTTP: POST /v1/decide. The page at / shows how it goes.

    Example: lmab serve policy.lmab --store events.db --port 8000
    """
    door = service_package()
    defaults = door.Defaults(horizon, floor, _values(rewards), repeats)
    settings = door.Settings(
        defaults, default_reward, window, apprentice=apprentice, without_store=without_store, queue=queue
    )
    options = door.Options(store, policy, _lines(arms), host, port, _lines(token_file), settings)
    if policy is None and horizon is None and not demo:
        say("No policy and no horizon were given: the service answers once the store has a policy.")
    say(f"Serving at http://{host}:{port}/ (Ctrl-C stops); decisions are kept in {store}.")
    if demo:
        door.play_demo(options, say)
    else:
        door.run(options)


def service_package() -> Any:
    """The package `lmab.serve`, which needs the extra of that name."""
    try:
        return importlib.import_module("lmab.serve")
    except ModuleNotFoundError as error:
        raise InvalidArgument(f"the service needs {error.name}: pip install 'lmab[serve]'") from None


def _values(text: str) -> tuple[float, ...] | None:
    if text == "any":
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InvalidArgument(f"--rewards must be numbers with commas between them, or any; got {text!r}") from None


def _lines(path: Path | None) -> tuple[str, ...]:
    """The lines of a file that hold something."""
    if path is None:
        return ()
    try:
        found = tuple(line.strip() for line in path.read_text("utf-8").splitlines() if line.strip())
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidFile(f"{path}: cannot be read: {error}") from None
    if not found or len(set(found)) != len(found):
        raise InvalidFile(f"{path}: must hold one label or token on each line, none twice")
    return found
