"""`lmab sample`, `lmab simulate`, `lmab split` and `lmab pack`: write a log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from .._html import count
from ..checks import check_writable
from ..data.log_files import is_csv
from ..data.sessions import Sessions
from ..data.splitting import split_log
from ..errors import InvalidArgument
from ..evaluation.off_policy import with_propensities
from ..model.bandit import LatentBandit
from ..model.instances import random_bandit
from ..policies.belief_policies import Greedy, Thompson, Uniform
from ..policies.policy import Policy
from ..simulation import simulate as play
from .options import COLUMNS, Columns, Json, Seed, load_model, load_policy, with_columns
from .output import collected_warnings, remark, say, show_json

STEPS = 6  # A visitor of the sample is shown this many items.
_SESSIONS = 3_000

#: How often each kind of visitor clicks on each item. The kinds: coffee in the morning, something hot without
#: caffeine, a meal, and something sweet; every kind is a fifth to a third of the visitors.
_WEIGHTS = (0.30, 0.27, 0.23, 0.20)
_CLICKS = {
    "Espresso": (0.62, 0.06, 0.20, 0.14),
    "Cappuccino": (0.70, 0.10, 0.16, 0.30),
    "Green tea": (0.08, 0.66, 0.14, 0.10),
    "Herbal tea": (0.04, 0.58, 0.10, 0.12),
    "Lemonade": (0.10, 0.24, 0.22, 0.36),
    "Water": (0.18, 0.22, 0.34, 0.08),
    "Soup": (0.06, 0.20, 0.60, 0.06),
    "Sandwich": (0.22, 0.12, 0.72, 0.12),
    "Salad": (0.06, 0.28, 0.52, 0.06),
    "Croissant": (0.44, 0.14, 0.16, 0.56),
    "Cake": (0.16, 0.22, 0.08, 0.74),
    "Cookie": (0.28, 0.26, 0.14, 0.62),
}


def shop() -> LatentBandit:
    """Return the bandit of the simulated shop: four types of visitors, twelve items, clicks."""
    means = np.array(list(_CLICKS.values())).T
    made = LatentBandit.bernoulli(_WEIGHTS, means)
    return LatentBandit(made.weights, made.rewards, tuple(_CLICKS))


def shop_log(n_sessions: int = _SESSIONS, *, seed: int = 0) -> Sessions:
    """Simulate sessions of the shop, which showed six of its items at random, none of them twice."""
    bandit, rng = shop(), np.random.default_rng(seed)
    types = rng.choice(bandit.n_types, n_sessions, p=bandit.weights)
    arms = rng.permuted(np.tile(np.arange(bandit.n_arms), (n_sessions, 1)), axis=1)[:, :STEPS]
    clicks = rng.random(arms.shape) < bandit.means[types[:, None], arms]
    log = Sessions.from_arrays(arms, clicks.astype(float), n_arms=bandit.n_arms)
    return replace(log, arm_labels=bandit.arm_labels)


def write_shop(log: Sessions, path: Path) -> None:
    """Write the log as a shop would have it: the columns session, item and click; ids sort in the order of time."""
    names, width = [str(name) for name in log.arm_labels or ()], len(str(len(log)))
    lines = ["session,item,click"]
    for number, session in enumerate(log, start=1):
        seen = zip(session.arms.tolist(), session.rewards.tolist(), strict=True)
        lines += [f"v{number:0{width}},{names[arm]},{int(click)}" for arm, click in seen]
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")


def sample(
    output: Annotated[Path, typer.Argument(help="The log to write: a CSV file.")] = Path("shop.csv"),
    sessions: Annotated[int, typer.Option(help="Number of sessions.", min=1)] = _SESSIONS,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Write a simulated log: a shop shows six of its twelve items to each visitor, none of them twice.

    Example: lmab sample shop.csv
    """
    check_writable(output)
    log = shop_log(sessions, seed=seed)
    write_shop(log, output)
    if as_json:
        show_json({"output": str(output), "sessions": len(log), "steps": log.n_steps, "arms": log.n_arms})
        return
    say(f"{count(len(log), 'simulated session')} written to {output}: the items that were shown, and the clicks.")
    say(f"Next: lmab fit {output} --arm item --reward click")


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
    types: Annotated[int, typer.Option(help="Latent types of the bandit drawn.", min=1)] = 4,
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


@with_columns
def pack(
    log: Annotated[
        list[Path], typer.Argument(help="The log, one row per step: Parquet, CSV, JSON lines; files or folders.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write, a new one.")],
    columns: Columns = COLUMNS,
    memory: Annotated[
        str | None, typer.Option(help="Memory for sorting, such as 2GB [default: a quarter of the machine's].")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Print the query of the log, and write nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Write a log that is larger than memory into a folder, which `lmab fit` reads in place.

    A command that was stopped leaves nothing behind; run it again.

    Example: lmab pack logs -o packed --session session --arm item
    """
    if explain:
        say(columns.query(log))
        return
    with collected_warnings() as remarks:
        packed = columns.pack(log, output, memory)
    for text in remarks:
        remark(text)
    n_partitions = len(packed.manifest.partitions)
    if as_json:
        sizes = {"sessions": len(packed), "steps": packed.n_steps, "arms": packed.n_arms, "partitions": n_partitions}
        show_json({"output": str(output), **sizes})
        return
    sizes_said = (count(len(packed), "session"), count(packed.n_steps, "step"), count(packed.n_arms, "arm"))
    say(f"{', '.join(sizes_said)} written to {output}, in {count(n_partitions, 'partition')}.")
    say(f"Next: lmab fit {output} -o model.lmab")


def split(
    log: Annotated[
        list[Path], typer.Argument(help="The log, one row per step: Parquet, CSV, JSON lines; files or folders.")
    ],
    test: Annotated[
        float, typer.Option(help="Share of the sessions kept for the evaluation.", min=0.01, max=0.99)
    ] = 0.2,
    session: Annotated[str, typer.Option(help="Column of the session's id.")] = "session",
    person: Annotated[
        str | None, typer.Option(help="Column of the person: all sessions of a person go to the same log.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder of the two logs [default: that of the log].")
    ] = None,
    encoding: Annotated[str, typer.Option(help="Encoding of text files.")] = "utf-8",
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Split a log into two logs: NAME-train to fit a model to, and NAME-test to evaluate its policy on.

    Rows are copied with all of their columns. If persons return, name their column, because a model that has seen a
    person is not evaluated on new people otherwise.

    Example: lmab split shop.csv --test 0.2
    """
    made = split_log(log, by=person or session, test=test, seed=seed, folder=output, encoding=encoding)
    unit = "session" if person is None else "person"
    if as_json:
        sizes = {"unit": unit, "n_train": made.n_train, "n_test": made.n_test}
        show_json({"train": str(made.train), "test": str(made.test), **sizes})
        return
    say(f"{count(made.n_train, unit)} written to {made.train}, {count(made.n_test, unit)} to {made.test}.")
    say(f"Next: lmab fit {made.train}, and later lmab report MODEL POLICY --logs {made.test}")
