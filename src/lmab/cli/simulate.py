"""`lmab simulate`: play sessions of a bandit and write them as a log with propensities."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from .._html import count
from ..checks import check_writable
from ..data.log_files import is_csv
from ..errors import InvalidArgument
from ..evaluation.off_policy import with_propensities
from ..model.bandit import LatentBandit
from ..model.instances import random_bandit
from ..policies.policy import Policy
from ..policies.small import Greedy, Thompson, Uniform
from ..simulation import simulate as play
from .options import Json, Seed, load_model, load_policy
from .output import say, show_json

_POLICIES: dict[str, Callable[[LatentBandit], Policy]] = {
    "uniform": lambda bandit: Uniform(bandit.n_arms),
    "greedy": Greedy,
    "thompson": Thompson,
}
Kind = StrEnum("Kind", {name: name for name in ("spherical", "ordinary", "spread", "hard", "deep")})  # type: ignore[misc]
_SPHERICAL = Kind("spherical")


def simulate(
    output: Annotated[Path, typer.Option("--output", "-o", help="The log to write: .parquet, .pq or .csv.")],
    model: Annotated[Path | None, typer.Argument(help="The bandit to play; without one, a bandit is drawn.")] = None,
    policy: Annotated[str, typer.Option(help="Policy: uniform, greedy, thompson, or a file.")] = "uniform",
    sessions: Annotated[int, typer.Option(help="How many sessions.", min=1)] = 10_000,
    horizon: Annotated[int, typer.Option(help="Steps of a session.", min=1)] = 5,
    kind: Annotated[Kind, typer.Option(help="Kind of the bandit drawn.")] = _SPHERICAL,
    types: Annotated[int, typer.Option(help="Hidden types of the bandit drawn.", min=1)] = 4,
    arms: Annotated[int, typer.Option(help="Arms of the bandit drawn.", min=1)] = 20,
    save_model: Annotated[Path | None, typer.Option(help="Where to write the bandit drawn.")] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Play sessions and write them as a log: session, step, arm, reward, propensity.

    Example: lmab simulate --arms 20 -o logs.parquet --save-model truth.lmab
    """
    for path in (output, save_model):
        if path is not None:
            check_writable(path)
    is_csv(output)
    rng = np.random.default_rng(seed)
    bandit = random_bandit(types, arms, kind=kind, rng=rng) if model is None else load_model(model)
    player = _player(policy, bandit)
    log = play(bandit, player, n_sessions=sessions, horizon=horizon, rng=rng)
    with_propensities(log, player).write(output)
    if save_model is not None:
        bandit.save(save_model)
    average = log.rewards.sum() / len(log)
    if as_json:
        show_json({"output": str(output), "sessions": len(log), "steps": log.n_steps, "reward": average})
        return
    sizes = f"{count(len(log), 'session')} of {count(horizon, 'step')}"
    say(f"{sizes} by {policy} written to {output}; a session earned {average:.4f}.")
    say(f"Next: lmab fit {output} --step step -o model.lmab")


def _player(name: str, bandit: LatentBandit) -> Policy:
    if name in _POLICIES:
        return _POLICIES[name](bandit)
    if not Path(name).exists():
        raise InvalidArgument(f"--policy must be {', '.join(_POLICIES)} or a file, got {name!r}")
    return load_policy(Path(name))
