"""`lmab report`: a model and a policy as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .. import report as reporting
from ..errors import InvalidFile, check_writable
from ..loading import load
from ..model import LatentBandit
from ..policy import Policy
from .output import console, show_json


def report(
    model: Annotated[Path, typer.Argument(help="The model: a file from `lmab fit` or `LatentBandit.save`.")],
    policy: Annotated[Path | None, typer.Argument(help="The policy; without one, a policy is planned.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write.")] = Path("report.html"),
    horizon: Annotated[
        int | None, typer.Option(help="Steps per session; by default the policy's, or 5.", min=1)
    ] = None,
    time_limit: Annotated[float, typer.Option(help="Most seconds spent on planning.", min=0.1)] = 20.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Write a report: the types, what personalisation is worth, the policy's first steps, how well the model predicts.

    Example: lmab report model.lmab policy.lmab -o report.html
    """
    check_writable(output)
    bandit = _load(model, LatentBandit, "a model")
    chosen = None if policy is None else _load(policy, Policy, "a policy")
    settings = {"model file": str(model)} | ({} if policy is None else {"policy file": str(policy)})
    contents = reporting.gather(bandit, chosen, horizon=horizon, time_limit=time_limit, settings=settings)
    reporting.write(contents, output)
    worth = contents.worth
    if as_json:
        values = {"fixed": worth.fixed, "policy": worth.policy.mean, "upper": worth.upper, "known": worth.known}
        show_json({"output": str(output), "horizon": contents.horizon, **values})
        return
    console.print(
        f"best single arm {worth.fixed:.4g}, this policy {worth.policy.mean:.4g}, no policy more than {worth.upper:.4g}"
    )
    console.print(f"report: {output.resolve()}", soft_wrap=True)


def _load(path: Path, kind: type, name: str) -> Any:
    value = load(path)
    if not isinstance(value, kind):
        raise InvalidFile(f"{path}: must hold {name}, holds a {type(value).__name__}")
    return value
