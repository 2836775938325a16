"""What the commands read: options that several share, models, policies, certificates, the check behind a policy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import InvalidArgument, InvalidFile
from ..estimation.check import Check
from ..estimation.result import Estimate
from ..evaluation.certificate import Certificate
from ..loading import load
from ..model.bandit import LatentBandit
from ..planning.problem import Plan, policy_of
from ..policies.policy import Policy
from .output import note, say

PLACE, MORE = "Where it runs", "More"  # Groups of options in the help of several commands.

Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.", rich_help_panel=MORE)]
ClusterAddress = Annotated[
    str | None,
    typer.Option(
        "--cluster", help="Run on the Dask cluster with this scheduler: tcp://host:8786.", rich_help_panel=PLACE
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of everything that is random.", min=0, rich_help_panel=MORE)]

INTERRUPTED = 130  # A command that Ctrl-C stopped exits with this code.
NOT_CHECKED = (
    "the types of this model were not checked on held-out sessions: `lmab fit` was stopped before its check, or told "
    "--no-check. Fit again with the check before you rely on them."
)

_NOUNS: dict[type, str] = {
    LatentBandit: "model",
    Estimate: "model",
    Policy: "policy",
    Plan: "policy",
    Certificate: "certificate",
}


def load_fitted(path: Path) -> LatentBandit | Estimate:
    """A model: an estimate, or a bandit alone."""
    value = load(path)
    if not isinstance(value, LatentBandit | Estimate):
        raise _wrong(path, value, "model", "`lmab fit` makes a model from a log")
    return value


def load_model(path: Path) -> LatentBandit:
    """The bandit of a model."""
    return bandit_of(load_fitted(path))


def load_planned(path: Path) -> Policy | Plan:
    """A policy: a plan, or a policy alone."""
    value = load(path)
    if not isinstance(value, Policy | Plan):
        model = path if isinstance(value, LatentBandit | Estimate) else "MODEL"
        raise _wrong(path, value, "policy", f"`lmab plan {model}` makes a policy from a model")
    return value


def load_policy(path: Path) -> Policy:
    """The policy, or the policy of the plan."""
    return policy_of(load_planned(path))


def estimate_behind(path: Path, planned: Policy | Plan) -> tuple[Estimate, Plan]:
    """The plan with the estimate that it was made for; a certificate needs both."""
    if not isinstance(planned, Plan) or planned.estimate is None:
        raise InvalidFile(f"{path}: does not hold the estimate of its plan: make it with `lmab fit` and `lmab plan`")
    return planned.estimate, planned


def load_certificate(path: Path) -> Certificate:
    """A certificate that was saved."""
    value = load(path)
    if not isinstance(value, Certificate):
        raise _wrong(path, value, "certificate", "`lmab evaluate --certify LOG --save-certificate` makes one")
    return value


def bandit_of(model: LatentBandit | Estimate) -> LatentBandit:
    """The bandit, or the bandit of an estimate."""
    return model.bandit if isinstance(model, Estimate) else model


def n_types(text: str) -> int | str:
    """The value of the option --types."""
    if text == "auto":
        return text
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise InvalidArgument(f"--types must be a whole number of at least 1, or auto; got {text!r}")
    return int(text)


def check_of(planned: Policy | Plan) -> Check | None:
    """The held-out check of the fit behind a plan; None where there is none."""
    estimate = planned.estimate if isinstance(planned, Plan) else None
    return None if estimate is None else estimate.check


def check_summary(planned: Policy | Plan) -> dict[str, Any] | None:
    """The check for machines."""
    check = check_of(planned)
    return None if check is None else {"agrees": check.agrees, "verdict": check.verdict}


def tell_check(planned: Policy | Plan) -> None:
    """The check for people: a note where it does not confirm the types, or where none was made."""
    check = check_of(planned)
    if check is None:
        if isinstance(planned, Plan) and planned.estimate is not None:
            note(NOT_CHECKED)
        return
    text = f"Held-out check of the fit: {check.verdict}"
    if check.agrees:
        say(text)
    else:
        note(text)


def _noun(value: Any) -> str:
    return next((noun for kind, noun in _NOUNS.items() if isinstance(value, kind)), type(value).__name__)


def _wrong(path: Path, value: Any, wanted: str, remedy: str) -> InvalidFile:
    return InvalidFile(f"{path}: must hold a {wanted}, holds a {_noun(value)}: {remedy}")
