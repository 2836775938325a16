"""`lmab sample`: a log of a shop whose visitors are made up, so that the truth behind the log is known."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from .._html import count
from ..checks import check_writable
from ..data.sessions import Sessions
from ..model.bandit import LatentBandit
from ..policies.small import Uniform
from ..simulation import simulate
from .options import Json, Seed
from .output import say, show_json

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
    """The visitors of the sample: four types, twelve items, clicks."""
    means = np.array(list(_CLICKS.values())).T
    made = LatentBandit.bernoulli(_WEIGHTS, means)
    return LatentBandit(made.weights, made.rewards, tuple(_CLICKS))


def shop_log(n_sessions: int = _SESSIONS, *, seed: int = 0) -> Sessions:
    """Sessions of the shop, which showed its items at random."""
    bandit = shop()
    return simulate(bandit, Uniform(bandit.n_arms), n_sessions=n_sessions, horizon=STEPS, rng=seed)


def write_shop(log: Sessions, path: Path) -> None:
    """Write the log as a shop would have it: the columns session, item and click."""
    names = [str(name) for name in log.arm_labels or ()]
    lines = ["session,item,click"]
    for number, session in enumerate(log, start=1):
        seen = zip(session.arms.tolist(), session.rewards.tolist(), strict=True)
        lines += [f"v{number},{names[arm]},{int(click)}" for arm, click in seen]
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")


def sample(
    output: Annotated[Path, typer.Argument(help="The log to write: a CSV file.")] = Path("shop.csv"),
    sessions: Annotated[int, typer.Option(help="How many sessions.", min=1)] = _SESSIONS,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Write a sample log: a shop shows six of its twelve items to each visitor. The visitors are made up.

    Example: lmab sample shop.csv
    """
    check_writable(output)
    log = shop_log(sessions, seed=seed)
    write_shop(log, output)
    if as_json:
        show_json({"output": str(output), "sessions": len(log), "steps": log.n_steps, "arms": log.n_arms})
        return
    say(f"{count(len(log), 'session')} of made-up visitors written to {output}: what each was shown and clicked on.")
    say(f"Next: lmab fit {output} --arm item --reward click")
