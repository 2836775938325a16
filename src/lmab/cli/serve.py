"""`lmab serve` decides for live sessions over HTTP; `lmab refit` makes the next policy from what it kept, for cron."""

from __future__ import annotations

import asyncio
import importlib
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import InvalidArgument
from .options import Json, Seed, n_types
from .output import collected_warnings, note, say, show_json


class Ties(StrEnum):
    """Which of two equal plans stays in force."""

    newer = "newer"
    older = "older"


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
    keep: Annotated[str | None, typer.Option(help="Age at which sessions are deleted, such as 400d.")] = None,
    apprentice: Annotated[bool, typer.Option("--apprentice", help="Answer the baseline of the request.")] = False,
    without_store: Annotated[
        bool, typer.Option("--without-store", help="Answer also while the store is away; nothing is kept then.")
    ] = False,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at.", min=0, max=65535)] = 8000,
    token_file: Annotated[
        Path | None, typer.Option(help="Tokens with their roles (decide, watch, operate, erase), one a line.")
    ] = None,
    queue: Annotated[int, typer.Option(help="Requests that may wait for the store.", min=1)] = 10_000,
    demo: Annotated[bool, typer.Option("--demo", help="Play a simulated population against the service.")] = False,
) -> None:
    """Decide for live sessions over HTTP: POST /v1/decide. The page at / shows how it goes.

    Example: lmab serve policy.lmab --store events.db --port 8000
    """
    door = service_package()
    defaults = door.Defaults(horizon, floor, _values(rewards), repeats)
    settings = door.Settings(
        defaults,
        default_reward,
        window,
        apprentice=apprentice,
        without_store=without_store,
        queue=queue,
        keep=_seconds(keep),
    )
    labels = () if arms is None else door.lines_of(arms)
    options = door.Options(store, policy, labels, host, port, token_file, settings)
    if policy is None and horizon is None and not demo:
        say("No policy and no horizon were given: the service answers once the store has a policy.")
    say(f"Serving at http://{host}:{port}/ (Ctrl-C stops); decisions are kept in {door.without_secrets(store)}.")
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


def _seconds(text: str | None) -> float | None:
    """An age such as 400d, 12h, 90m or 30s."""
    if text is None:
        return None
    units = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
    try:
        seconds = float(text[:-1]) * units[text[-1:]]
    except (ValueError, KeyError):
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise InvalidArgument(f"--keep must be a number above 0 and a unit (d, h, m or s), such as 400d; got {text!r}")
    return seconds


def refit(
    store: Annotated[str, typer.Option(help="The store of the service: a file, or postgresql://...")],
    policies: Annotated[Path, typer.Option(help="Folder for the versions, their models and the log by day.")],
    canary: Annotated[float, typer.Option(help="Share of new sessions at first.", min=0.001, max=1.0)] = 0.05,
    window: Annotated[float, typer.Option(help="Seconds in which rewards may come, as in serve.", min=0.0)] = 3600.0,
    types: Annotated[str, typer.Option(help="Number of hidden types; auto takes what predicts best.")] = "auto",
    horizon: Annotated[int | None, typer.Option(help="Steps of a session [default: the longest one].", min=1)] = None,
    floor: Annotated[float, typer.Option(help="Share of decisions that explore.", min=0.0, max=1.0)] = 0.1,
    least: Annotated[int, typer.Option(help="Sessions that a fit needs.", min=10)] = 200,
    ties: Annotated[
        Ties, typer.Option(help="Plan that stays where two surely earn the same, but for 2%.")
    ] = Ties.newer,
    time_limit: Annotated[float, typer.Option(help="Seconds at most for planning.", min=0.1)] = 30.0,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Refit the policy to what the service kept; the new plan is tested as a canary, unless it is surely worse.

    The canary of earlier nights is looked at first: it is promoted, withdrawn, or tested further.

    Example: lmab refit --store events.db --policies policies --canary 0.05
    """
    door = service_package()
    options = door.RefitOptions(
        canary, window, types=n_types(types), horizon=horizon, floor=floor, least=least, time_limit=time_limit,
        ties=ties.value,
    )  # fmt: skip
    with collected_warnings() as remarks:
        night = asyncio.run(_work(door, store, policies, options, seed))
    if as_json:
        show_json({**asdict(night), "notes": remarks})
        return
    for line in night.lines:
        say(line)
    for remark in remarks:
        note(remark)


async def _work(door: Any, where: str, folder: Path, options: Any, seed: int) -> Any:
    store = door.open_store(where)
    await store.open()
    try:
        return await door.refit(store, folder, options, rng=seed)
    finally:
        await store.close()
