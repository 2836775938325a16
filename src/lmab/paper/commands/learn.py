"""`lmab learn`: let a learner play a bandit that is hidden from it, and print the value of its policy."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ... import learning
from ...checks import check_writable
from ...cli.options import Json, Seed, load_model, n_types
from ...cli.output import console, progress, show_json, show_table
from ...errors import InvalidArgument
from ...evaluation.value import Evaluation, value_of
from ...learning.learner import Learned, Learner
from ...model.bandit import LatentBandit
from ...simulation import Simulator

_LEARNERS: dict[str, Callable[[int | str], Learner]] = {
    "direct-mle": learning.DirectMLE,
    "ed-mle": lambda number: learning.EDMLE(_number(number)),
    "ed-moments": lambda number: learning.EDMoments(_number(number)),
    "tensor": lambda number: learning.Tensor(_number(number)),
    "clustering": lambda number: learning.Clustering(_number(number)),
    "l-ucrl": lambda number: learning.LUCRL(_number(number)),
    "l-ucrl-published": lambda number: learning.LUCRL(_number(number), refit=False),
    "ucb": lambda number: learning.UCB(),
    "history-ucbvi": lambda number: learning.HistoryUCBVI(),
}
Name = StrEnum("Name", {name: name for name in _LEARNERS})  # type: ignore[misc]
_DEFAULT = Name("direct-mle")


def learn(
    bandit: Annotated[Path, typer.Argument(help="The true bandit, as a model file; the learner only plays it.")],
    horizon: Annotated[int, typer.Option(help="Steps of a session.", min=1)],
    types: Annotated[str, typer.Option(help="How many hidden types to look for, or auto.")] = "auto",
    learner: Annotated[Name, typer.Option(help="Who learns.")] = _DEFAULT,
    sessions: Annotated[int, typer.Option(help="Sessions that the learner may play.", min=1)] = 20_000,
    seed: Seed = 0,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where to write the policy.")] = None,
    as_json: Json = False,
) -> None:
    """Let a learner play sessions with a bandit, and compare its policy with that of a genie, which knows the bandit.

    Example: lmab learn bandit.lmab --horizon 5 --types 4 -o policy.lmab
    """
    if output is not None:
        check_writable(output)
    truth, rng = load_model(bandit), np.random.default_rng(seed)
    learned = _learn(truth, _LEARNERS[learner](n_types(types)), horizon, sessions, rng)
    genie = _learn(truth, learning.Genie(truth), horizon, sessions, rng)
    values = [value_of(result.policy, truth, horizon=horizon, rng=rng) for result in (learned, genie)]
    if output is not None:
        learned.policy.save(output)
    if as_json:
        show_json(_summary(learned, *values))
        return
    cells = [[phase.name, f"{phase.n_sessions:,}", f"{phase.seconds:.2f}"] for phase in learned.diagnostics]
    show_table(f"{learner}: sessions and time by phase", ["phase", "sessions", "seconds"], cells)
    mine, best = (value.mean for value in values)
    console.print(f"A session earns [bold]{mine:.4f}[/], with the genie's policy {best:.4f}: {mine / best:.2%} of it.")
    if output is not None:
        console.print(f"Policy written to {output}.")


def _number(asked: int | str) -> int:
    if isinstance(asked, str):
        raise InvalidArgument("--types must be a whole number for this learner, got auto")
    return asked


def _learn(truth: LatentBandit, learner: Learner, horizon: int, n_sessions: int, rng: np.random.Generator) -> Learned:
    environment = Simulator(truth, horizon=horizon, rng=rng.spawn(1)[0])
    with progress() as bar:
        task = bar.add_task("sessions", total=n_sessions)
        return learning.learn(
            environment,
            learner,
            n_sessions=n_sessions,
            rng=rng,
            rewards=truth.rewards.family,
            values=None if truth.rewards.values is None else truth.rewards.values.tolist(),
            progress=lambda run: bar.update(task, completed=run.sessions_used),
        )


def _summary(learned: Learned, value: Evaluation, genie: Evaluation) -> dict[str, Any]:
    phases = [
        {"name": phase.name, "sessions": phase.n_sessions, "seconds": phase.seconds, "reward": phase.reward}
        for phase in learned.diagnostics
    ]
    names = ("value", "genie")
    values = {name: result.mean for name, result in zip(names, (value, genie), strict=True)}
    errors = {f"{name}_stderr": result.stderr for name, result in zip(names, (value, genie), strict=True)}
    return {**values, **errors, "sessions_used": learned.sessions_used, "phases": phases}
