"""What the commands read: options that several share, models, policies, logs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..data import Episodes
from ..errors import InvalidArgument, InvalidFile
from ..loading import load
from ..model import LatentBandit
from ..policies import Policy

Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Seed = Annotated[int, typer.Option(help="Seed of everything that is random.", min=0)]
EpisodeColumn = Annotated[str, typer.Option("--episode", help="Column of the session's id.")]
ActionColumn = Annotated[str, typer.Option("--action", help="Column of the arm that was played.")]
RewardColumn = Annotated[str, typer.Option("--reward", help="Column of the reward.")]
StepColumn = Annotated[str | None, typer.Option("--step", help="Column that orders a session; else the rows do.")]
PropensityColumn = Annotated[
    str | None, typer.Option("--propensity", help="Column of the probability with which the arm was chosen.")
]


def load_model(path: Path) -> LatentBandit:
    """A model; a policy is told apart."""
    value = load(path)
    if not isinstance(value, LatentBandit):
        raise InvalidFile(f"{path}: must hold a model, holds a {type(value).__name__}: `lmab fit` makes models")
    return value


def load_policy(path: Path) -> Policy:
    """A policy; a model is told apart."""
    value = load(path)
    if not isinstance(value, Policy):
        what = "model" if isinstance(value, LatentBandit) else type(value).__name__
        raise InvalidFile(f"{path}: must hold a policy, holds a {what}: `lmab plan {path}` makes a policy of a model")
    return value


def load_log_for(policy: Policy, path: Path, columns: dict[str, Any]) -> Episodes:
    """A log whose arms are those of the policy: an arm that the policy does not know is an error."""
    labels = policy.arm_labels
    if labels is None and policy.n_arms is not None:
        labels = tuple(range(policy.n_arms))
    return Episodes.read(path, **columns, arm_labels=labels)


def n_contexts(text: str) -> int | str:
    """The option --contexts."""
    if text == "auto":
        return text
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise InvalidArgument(f"--contexts must be a whole number of at least 1, or auto; got {text!r}")
    return int(text)


def label(arm: int, labels: tuple[str | int, ...] | None) -> str:
    """What an arm is called."""
    return f"arm {arm}" if labels is None else str(labels[arm])
