"""`lmab experiments` lists, creates, changes and archives the experiments of a store."""

from __future__ import annotations

import asyncio
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import InvalidArgument
from .options import Json
from .output import say, show_json
from .serve import seconds_of, service_package, values_of


class Action(StrEnum):
    """What the command does."""

    list = "list"
    create = "create"
    set = "set"
    archive = "archive"


def experiments(
    action: Annotated[Action, typer.Argument(help="list, create, set or archive.")],
    name: Annotated[str | None, typer.Argument(help="Name of the experiment: a to z, 0 to 9, _ and -.")] = None,
    store: Annotated[str, typer.Option(help="The store: a file, or postgresql://...")] = "events.db",
    arms: Annotated[Path | None, typer.Option(help="The open arms, one label a line; set withdraws others.")] = None,
    horizon: Annotated[int | None, typer.Option(help="Steps of a session without a policy.", min=1)] = None,
    repeats: Annotated[bool | None, typer.Option(help="May a session play an arm twice, without a policy?")] = None,
    rewards: Annotated[str | None, typer.Option(help="Possible rewards, such as 0,1; any: every number.")] = None,
    floor: Annotated[float | None, typer.Option(help="Share of decisions that explore.", min=0.0, max=1.0)] = None,
    default_reward: Annotated[float | None, typer.Option(help="Reward of a step for which none came in time.")] = None,
    window: Annotated[float | None, typer.Option(help="Seconds in which a reward may come.", min=0.0)] = None,
    keep: Annotated[str | None, typer.Option(help="Age at which sessions are deleted: 400d, never.")] = None,
    holdout: Annotated[
        float | None, typer.Option(help="Share of new sessions that get the popularity ranking.", min=0.0, max=1.0)
    ] = None,
    apprentice: Annotated[bool | None, typer.Option(help="Answer the baseline of the request?")] = None,
    as_json: Json = False,
) -> None:
    """List the experiments of a store, create one, change its settings, or archive it.

    Running services follow within seconds. An archived experiment is not served, and its rows stay; `create` with its
    name serves it again. Options that are not given stay as they are.

    Example: lmab experiments create checkout --arms arms.txt --horizon 5
    """
    door = service_package()
    options = {
        "horizon": horizon,
        "repeats": repeats,
        "floor": floor,
        "default_reward": default_reward,
        "window": window,
    }
    options |= {"holdout": holdout, "apprentice": apprentice}
    given: dict[str, Any] = {option: value for option, value in options.items() if value is not None}
    if keep is not None:
        given["keep"] = seconds_of(keep)
    if rewards is not None:
        values = values_of(rewards)
        given["rewards"] = None if values is None else list(values)
    labels = None if arms is None else door.lines_of(arms)
    if (name is None) != (action is Action.list):
        raise InvalidArgument(f"`lmab experiments {action}` takes {'no name' if name else 'the name of an experiment'}")
    door.check_store(store)
    rows = asyncio.run(_work(door, store, action, name, given, labels))
    if as_json:
        show_json({"experiments": rows})
        return
    for row in rows:
        state = "archived" if row["archived"] else f"in force: {row['active']}, canary: {row['canary'] or 'none'}"
        say(f"{row['name']}: {row['arms']} open arms, {state}")


async def _work(
    door: Any, where: str, action: Action, name: str | None, given: dict[str, Any],
    labels: tuple[str, ...] | None,
) -> list[dict[str, Any]]:  # fmt: skip
    """Do what the action says; return the rows of the experiments that it is about."""
    store = door.open_store(where)
    await store.open(create=action is Action.create)
    try:
        if name is not None:
            await _change(door, store, action, name, given, labels)
        return [await _described(store, row) for row in await store.experiments() if name in (None, row.name)]
    finally:
        await store.close()


async def _change(
    door: Any, store: Any, action: Action, name: str, given: dict[str, Any], labels: tuple[str, ...] | None
) -> None:
    known = {row.name: row for row in await store.experiments()}
    if action is Action.create and name in known and not known[name].archived:
        raise InvalidArgument(f"experiment {name!r} exists: change it with `lmab experiments set {name}`")
    if action is not Action.create and name not in known:
        raise InvalidArgument(f"the store has no experiment {name!r}: it has {', '.join(known)}")
    if action is Action.archive:
        if name == "default":
            raise InvalidArgument("the experiment default cannot be archived: it is the one of paths without a name")
        await store.archive_experiment(name)
        return
    is_new = await store.create_experiment(name, time.time()) if action is Action.create else False
    view = store.of(name)
    settings = door.Settings().record() | given if is_new else given
    await view.set_service_settings(settings, signal=True)
    if labels is not None:
        await (view.add_arms(labels) if is_new else view.set_arms(labels))
    await store.archive_experiment(name, False)


async def _described(store: Any, row: Any) -> dict[str, Any]:
    view = store.of(row.name)
    rollouts = await view.rollouts(1)
    return {
        "name": row.name,
        "archived": row.archived,
        "arms": sum(arm.is_open for arm in await view.arms()),
        "active": rollouts[0].active if rollouts else "uniform",
        "canary": rollouts[0].canary if rollouts else None,
        "settings": await view.service_settings(),
    }
