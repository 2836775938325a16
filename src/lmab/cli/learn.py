"""`lmab learn`: let a learner play a bandit that it cannot look into, and say what became of it."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from .. import learning
from ..checks import check_writable
from ..errors import InvalidArgument, InvalidFile
from ..evaluation import Evaluation, value_of
from ..learning import Learned, Learner
from ..loading import load
from ..model import LatentBandit
from ..simulation import Simulator
from .output import console, progress, show_json, show_table

_LEARNERS: dict[str, Callable[[int | str], Learner]] = {
    "direct-mle": learning.DirectMLE,
    "ed-mle": lambda n_contexts: learning.EDMLE(_number(n_contexts)),
    "ed-moments": lambda n_contexts: learning.EDMoments(_number(n_contexts)),
    "tensor": lambda n_contexts: learning.Tensor(_number(n_contexts)),
    "l-ucrl": lambda n_contexts: learning.LUCRL(_number(n_contexts)),
    "ucb": lambda n_contexts: learning.UCB(),
    "history-ucbvi": lambda n_contexts: learning.HistoryUCBVI(),
}
Name = StrEnum("Name", {name: name for name in _LEARNERS})  # type: ignore[misc]
_DEFAULT = Name("direct-mle")


def learn(
    bandit: Annotated[Path, typer.Argument(help="File of the true bandit; the learner only plays it.")],
    horizon: Annotated[int, typer.Option(help="Steps of a session.", min=1)],
    contexts: Annotated[str, typer.Option(help="How many hidden types to look for, or auto.")] = "auto",
    learner: Annotated[Name, typer.Option(help="Who learns.")] = _DEFAULT,
    episodes: Annotated[int, typer.Option(help="Sessions that it may play.", min=1)] = 20_000,
    seed: Annotated[int, typer.Option(help="Seed of the sessions and of the learner.", min=0)] = 0,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where to write the policy.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Let a learner play sessions with a bandit, and compare its policy with that of a genie who knows the truth.

    Example: lmab learn bandit.lmab --horizon 5 --contexts 4 -o policy.lmab
    """
    if output is not None:
        check_writable(output)
    truth, rng = _bandit(bandit), np.random.default_rng(seed)
    learned = _learn(truth, _LEARNERS[learner](_number_or_auto(contexts)), horizon, episodes, rng)
    genie = _learn(truth, learning.Genie(truth), horizon, episodes, rng)
    values = [value_of(result.policy, truth, horizon=horizon, rng=rng) for result in (learned, genie)]
    if output is not None:
        learned.policy.save(output)
    if as_json:
        show_json(_summary(learned, *values))
        return
    cells = [[phase.name, f"{phase.n_episodes:,}", f"{phase.seconds:.2f}"] for phase in learned.diagnostics]
    show_table(f"{learner}: what it spent", ["phase", "episodes", "seconds"], cells)
    mine, best = (value.mean for value in values)
    console.print(f"A session earns [bold]{mine:.4f}[/], the genie's {best:.4f}: {mine / best:.2%} of it.")
    if output is not None:
        console.print(f"Policy written to {output}.")


def _bandit(path: Path) -> LatentBandit:
    value = load(path)
    if not isinstance(value, LatentBandit):
        raise InvalidFile(f"{path}: must hold a bandit, but holds a {type(value).__name__}")
    return value


def _number_or_auto(text: str) -> int | str:
    if text == "auto":
        return text
    if not text.isascii() or not text.isdigit():
        raise InvalidArgument(f"--contexts must be a whole number or auto, got {text!r}")
    return int(text)


def _number(n_contexts: int | str) -> int:
    if isinstance(n_contexts, str):
        raise InvalidArgument("--contexts must be a whole number for this learner, got auto")
    return n_contexts


def _learn(truth: LatentBandit, learner: Learner, horizon: int, n_episodes: int, rng: np.random.Generator) -> Learned:
    environment = Simulator(truth, horizon=horizon, rng=rng.spawn(1)[0])
    with progress() as bar:
        task = bar.add_task("episodes", total=n_episodes)
        return learning.learn(
            environment,
            learner,
            n_episodes=n_episodes,
            rng=rng,
            rewards=truth.rewards.family,
            values=None if truth.rewards.values is None else truth.rewards.values.tolist(),
            progress=lambda run: bar.update(task, completed=run.episodes_used),
        )


def _summary(learned: Learned, value: Evaluation, genie: Evaluation) -> dict[str, Any]:
    phases = [
        {"name": phase.name, "episodes": phase.n_episodes, "seconds": phase.seconds, "reward": phase.reward}
        for phase in learned.diagnostics
    ]
    names = ("value", "genie")
    values = {name: result.mean for name, result in zip(names, (value, genie), strict=True)}
    errors = {f"{name}_stderr": result.stderr for name, result in zip(names, (value, genie), strict=True)}
    return {**values, **errors, "episodes_used": learned.episodes_used, "phases": phases}
