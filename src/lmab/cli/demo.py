"""`lmab demo`: what knowing the context is worth, on a bandit drawn for the occasion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import typer

from .. import evaluation, instances
from ..model import LatentBandit
from ..policy import Policy
from ..small_policies import Greedy, Stationary
from .output import console, progress, show_json, show_table

_CONTEXTS, _ARMS, _HORIZON, _SESSIONS, _BATCHES = 4, 20, 7, 200_000, 20


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    value: float  # expected reward of a session
    simulated: float  # the same, from simulated sessions
    stderr: float


def demo(
    seed: Annotated[int, typer.Option(help="Seed of the bandit and of the sessions.", min=0)] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Draw a latent bandit and show what finding out who one is talking to is worth.

    Example: lmab demo --seed 3
    """
    rng = np.random.default_rng(seed)
    bandit = instances.random_bandit(_CONTEXTS, _ARMS, rng=rng)
    best_arm = int((bandit.weights @ bandit.means).argmax())
    rows = [
        _measure("best fixed arm", Stationary(best_arm), bandit, rng),
        _measure("greedy on the true model", Greedy(bandit), bandit, rng),
        _full_information(bandit),
    ]
    if as_json:
        settings = {"seed": seed, "contexts": _CONTEXTS, "arms": _ARMS, "horizon": _HORIZON, "sessions": _SESSIONS}
        show_json({**settings, "rows": [vars(row) for row in rows]})
        return
    console.print(f"[bold]A latent bandit[/]: {_CONTEXTS} hidden types, {_ARMS} arms, sessions of {_HORIZON} steps.")
    cells = [[row.name, f"{row.value:.4f}", f"{row.simulated:.4f} ± {row.stderr:.4f}"] for row in rows]
    show_table(f"Reward of a session (seed {seed})", ["policy", "exact", f"{_SESSIONS:,} simulated sessions"], cells)


def _measure(name: str, policy: Policy, bandit: LatentBandit, rng: np.random.Generator) -> Row:
    exact = evaluation.evaluate(policy, bandit, horizon=_HORIZON)
    means, variances = [], []
    with progress() as bar:
        for _ in bar.track(range(_BATCHES), description=name):
            batch = evaluation.evaluate(policy, bandit, horizon=_HORIZON, n_episodes=_SESSIONS // _BATCHES, rng=rng)
            means.append(batch.mean)
            variances.append(batch.stderr**2)
    return Row(name, exact.mean, float(np.mean(means)), float(np.sqrt(np.sum(variances)) / _BATCHES))


def _full_information(bandit: LatentBandit) -> Row:
    value = _HORIZON * float(bandit.weights @ bandit.means.max(axis=1))
    return Row("full information (context known)", value, value, 0.0)
