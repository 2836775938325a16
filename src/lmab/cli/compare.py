"""`lmab compare`: what several policies earn beside one another, on a log or on a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from ..errors import InvalidArgument
from ..evaluation import comparison
from .columns import COLUMNS, Columns, with_columns
from .inputs import Json, Seed, load_model, load_policy
from .output import show_json, show_table, working


@with_columns
def compare(
    policies: Annotated[
        list[Path], typer.Argument(help="Two or more policies; the others are compared with the first.")
    ],
    logs: Annotated[Path | None, typer.Option(help="Sessions no model was fitted to, with propensities.")] = None,
    model: Annotated[Path | None, typer.Option(help="A model to compare on; with --logs it reduces noise.")] = None,
    horizon: Annotated[
        int | None, typer.Option(help="Steps of a session [default: the first policy's].", min=1)
    ] = None,
    columns: Columns = COLUMNS,
    confidence: Annotated[float, typer.Option(help="Of the intervals.", min=0.5, max=0.999)] = 0.95,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Compare policies on the same sessions, so that the noise of the sessions cancels.

    Example: lmab compare new.lmab old.lmab --logs heldout.parquet --propensity p
    """
    named = {path.stem: load_policy(path) for path in policies}
    if len(named) < len(policies):
        raise InvalidArgument(f"the files must have different names, got {', '.join(path.name for path in policies)}")
    first = next(iter(named.values()))
    steps = horizon or first.horizon
    if steps is None:
        raise InvalidArgument("--horizon must be given, because the first policy works for any horizon")
    bandit = None if model is None else load_model(model)
    if logs is None and bandit is None:
        raise InvalidArgument("give --logs (held-out sessions with propensities) or --model (a model)")
    on = bandit if logs is None else columns.read(logs, arms_of=first)
    assert on is not None
    with working("comparing"):
        found = comparison.compare(
            named, on, horizon=steps, model=None if logs is None else bandit, confidence=confidence,
            rng=np.random.default_rng(seed),
        )  # fmt: skip
    if as_json:
        rows = [vars(row) for row in found]
        show_json({"horizon": steps, "method": found.method, "confidence": confidence, "policies": rows})
        return
    cells = [[row.name, f"{row.value:.4f}", f"{row.difference:+.4f}", _between(row)] for row in found]
    show_table(
        f"Reward of a session of {steps} steps ({found.method})",
        ["policy", "value", "difference", f"{confidence:.0%} interval"],
        cells,
    )


def _between(row: comparison.Rival) -> str:
    return "withheld" if row.interval is None else "{:+.4f} to {:+.4f}".format(*row.interval)
