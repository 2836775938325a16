"""`lmab refit`: make the next version of the policy from what the service kept, for cron."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from .options import Json, Seed, n_types
from .output import collected_warnings, note, say, show_json
from .serve import service_package


def refit(
    store: Annotated[str, typer.Option(help="The store of the service: a file, or postgresql://...")],
    policies: Annotated[Path, typer.Option(help="Folder for the versions, their models and the log by day.")],
    canary: Annotated[float, typer.Option(help="Share of new sessions at first.", min=0.001, max=1.0)] = 0.05,
    window: Annotated[float, typer.Option(help="Seconds in which rewards may come, as in serve.", min=0.0)] = 3600.0,
    types: Annotated[str, typer.Option(help="Number of hidden types; auto takes what predicts best.")] = "auto",
    horizon: Annotated[int | None, typer.Option(help="Steps of a session [default: the longest one].", min=1)] = None,
    floor: Annotated[float, typer.Option(help="Share of decisions that explore.", min=0.0, max=1.0)] = 0.1,
    least: Annotated[int, typer.Option(help="Sessions that a fit needs.", min=10)] = 200,
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
