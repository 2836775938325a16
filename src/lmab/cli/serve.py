"""`lmab serve` decides for live sessions over HTTP; `lmab refit` fits the next policy to its stored sessions."""

from __future__ import annotations

import asyncio
import importlib
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import InvalidArgument, LmabError
from .options import COLUMNS, Columns, Json, Seed, is_given, n_types, with_columns
from .output import collected_warnings, error, note, say, show_json

_ALL = "all"  # value of --experiment
MISCONFIGURED = 78  # exit status EX_CONFIG of sysexits.h, after which the systemd unit does not start the service again


class LogForm(StrEnum):
    """Form of log lines."""

    text = "text"
    json = "json"


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
    keep: Annotated[str | None, typer.Option(help="Age at which sessions are deleted: 400d, never.")] = None,
    apprentice: Annotated[bool, typer.Option("--apprentice", help="Answer the baseline of the request.")] = False,
    without_store: Annotated[
        bool, typer.Option("--without-store", help="Answer also while the store is away; nothing is kept then.")
    ] = False,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at.", min=0, max=65535)] = 8000,
    token_file: Annotated[
        Path | None, typer.Option(help="Tokens with their roles, one a line: TOKEN operate name=ann until=2027-01-31.")
    ] = None,
    holdout: Annotated[
        float, typer.Option(help="Share of new sessions that always get the popularity ranking.", min=0.0, max=1.0)
    ] = 0.0,
    arms_sync: Annotated[
        bool, typer.Option("--arms-sync", help="Withdraw open arms that the file of --arms does not name.")
    ] = False,
    memory: Annotated[float, typer.Option(help="Megabytes of sessions in memory.", min=1.0)] = 512.0,
    log: Annotated[LogForm, typer.Option(help="Form of the log on standard error.")] = LogForm.text,
    queue: Annotated[int, typer.Option(help="Requests that may wait for the store.", min=1)] = 10_000,
    demo: Annotated[bool, typer.Option("--demo", help="Play a simulated population against the service.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Validate options and files, then exit.")] = False,
    *,
    context: typer.Context,
) -> None:
    """Decide for live sessions over HTTP: POST /v1/decide. The page at / shows how it goes.

    Every experiment of the store is served. Policy, arms, horizon, repeats, rewards, floor, default reward, window,
    keep, apprentice and holdout are those of the experiment `default`; the store keeps them, and an option that is not
    given is as the store has it. Every option may also be a variable: LMAB_STORE, LMAB_DEFAULT_REWARD and so on. If an
    option or a file cannot be served, the exit status is 78 and nothing is started.

    Example: lmab serve policy.lmab --store events.db --port 8000
    """
    try:
        door = service_package()
        defaults = door.Defaults(horizon, floor, values_of(rewards), repeats)
        settings = door.Settings(
            defaults, default_reward, window, apprentice=apprentice, without_store=without_store, queue=queue,
            keep=seconds_of(keep), holdout=holdout, memory=memory,
        )  # fmt: skip
        if arms_sync and arms is None:
            raise InvalidArgument("--arms-sync needs --arms with the arms that are open")
        labels = () if arms is None else door.lines_of(arms)
        given = given_settings(context, settings)
        options = door.Options(
            store, policy, labels, host, port, token_file, settings, given=given, sync_arms=arms_sync
        )
        door.check_store(store)
        if demo and not check:
            importlib.import_module(".serve_demo", __package__).play_demo(options, say)
            return
        door.configure_logs(log is LogForm.json)
        running = door.server(options, say=say)
    except LmabError as problem:
        error(str(problem))
        raise typer.Exit(MISCONFIGURED) from None
    if check:
        say("The configuration is valid. Nothing was started.")
        return
    if policy is None and horizon is None:
        say("No policy and no horizon were given: the service answers once the store has a policy.")
    door.run(running)


def service_package() -> Any:
    """Import the package `lmab.serve`, which needs the extra of that name."""
    try:
        return importlib.import_module("lmab.serve")
    except ModuleNotFoundError as error:
        raise InvalidArgument(f"the service needs {error.name}: pip install '.[serve]'") from None


def given_settings(context: typer.Context, settings: Any) -> frozenset[str]:
    """Return the settings of an experiment that the command line or the environment sets."""
    return frozenset(name for name in settings.record() if is_given(context, name))


def values_of(text: str) -> tuple[float, ...] | None:
    if text == "any":
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InvalidArgument(f"--rewards must be numbers with commas between them, or any; got {text!r}") from None


def seconds_of(text: str | None, option: str = "--keep") -> float | None:
    """Parse a duration such as 400d, 12h, 90m or 30s."""
    if text is None or text == "never":
        return None
    units = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
    try:
        seconds = float(text[:-1]) * units[text[-1:]]
    except (ValueError, KeyError):
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise InvalidArgument(
            f"{option} must be a number above 0 and a unit (d, h, m or s), such as 400d; got {text!r}"
        )
    return seconds


@with_columns
def refit(
    store: Annotated[str, typer.Option(help="The store of the service: a file, or postgresql://...")],
    policies: Annotated[Path, typer.Option(help="Folder for the versions, their models and the log by day.")],
    experiment: Annotated[
        str, typer.Option(help="Experiment to refit; all: each of them, in folders of their names.")
    ] = "default",
    history: Annotated[
        list[Path] | None,
        typer.Option(help="Log from before the service, kept in the folder for later refits too; may be repeated."),
    ] = None,
    columns: Columns = COLUMNS,
    canary: Annotated[float, typer.Option(help="Share of new sessions at first.", min=0.001, max=1.0)] = 0.05,
    window: Annotated[
        float | None, typer.Option(help="Seconds in which rewards may come [default: as in serve].", min=0.0)
    ] = None,
    types: Annotated[str, typer.Option(help="Number of hidden types; auto takes what predicts best.")] = "auto",
    horizon: Annotated[int | None, typer.Option(help="Steps of a session [default: as in serve].", min=1)] = None,
    floor: Annotated[
        float | None,
        typer.Option(help="Share of decisions that explore [default: as in serve].", min=0.0, max=1.0),
    ] = None,
    least: Annotated[int, typer.Option(help="Sessions that a fit needs.", min=10)] = 200,
    ties: Annotated[
        Ties, typer.Option(help="Plan that stays where two surely earn the same, but for 2%.")
    ] = Ties.newer,
    keep_versions: Annotated[int, typer.Option(help="Versions that stay, beside those in use.", min=1)] = 14,
    remove_days: Annotated[
        bool, typer.Option("--remove-days", help="Remove exported rows that the store lost without erasing them.")
    ] = False,
    time_limit: Annotated[float, typer.Option(help="Seconds at most for planning.", min=0.1)] = 30.0,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Fit the next policy to the sessions of the service, and test it as a canary unless it is clearly worse.

    A running canary is analysed first: it is promoted, withdrawn, or tested further. --features names the
    features to use; the other options of columns are about --history.

    Example: lmab refit --store events.db --policies policies --canary 0.05
    """
    door = service_package()
    features = tuple(name.strip() for name in (columns.features or "").split(",") if name.strip())
    options = door.RefitOptions(
        canary, window, types=n_types(types), horizon=horizon, floor=floor, features=features, least=least,
        time_limit=time_limit, ties=ties.value, keep_versions=keep_versions, remove_days=remove_days,
    )  # fmt: skip
    if not history and replace(columns, features=None) != COLUMNS:
        raise InvalidArgument("--history must be given with options of columns other than --features")
    door.check_store(store)
    if history and experiment == _ALL:
        raise InvalidArgument("--history must be given with one --experiment, got all")
    with collected_warnings() as remarks:
        log = columns.open(history) if history else None
        try:
            nights = asyncio.run(_work(door, store, policies, options, seed, log, experiment))
        except door.OtherStore as problem:
            error(str(problem))
            raise typer.Exit(2) from None
    if as_json:
        found = {name: asdict(night) for name, night in nights.items()}
        show_json({**(found if experiment == _ALL else found[experiment]), "notes": remarks})
        return
    for name, night in nights.items():
        for line in night.lines:
            say(f"{name}: {line}" if experiment == _ALL else line)
    for remark in remarks:
        note(remark)


async def _work(
    door: Any, where: str, folder: Path, options: Any, seed: int, history: Any, experiment: str
) -> dict[str, Any]:
    """Refit one experiment or all of them; return the results by experiment."""
    store = door.open_store(where)
    await store.open(create=False)
    try:
        known = ["default"]
        if experiment != "default":
            known = [row.name for row in await store.experiments() if not row.archived]
        if experiment not in (_ALL, *known):
            raise InvalidArgument(f"--experiment must be one of {', '.join(known)}, or all; got {experiment!r}")
        found = {}
        for name in known if experiment == _ALL else [experiment]:
            own = folder if name == "default" else folder / name
            one = store if name == "default" else store.of(name)
            found[name] = await door.refit(one, own, options, rng=seed, history=history)
        return found
    finally:
        await store.close()
