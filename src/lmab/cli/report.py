"""`lmab report`: a model and a policy as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from .. import report as reporting
from ..checks import check_writable
from ..data import Episodes
from ..errors import InvalidArgument
from ..evaluation import certify
from ..model import LatentBandit
from . import notes
from .inputs import (
    ActionColumn,
    EpisodeColumn,
    Json,
    PropensityColumn,
    RewardColumn,
    StepColumn,
    load_model,
    load_policy,
)
from .output import say, show_json


def report(
    model: Annotated[Path, typer.Argument(help="The model: a file from `lmab fit` or `LatentBandit.save`.")],
    policy: Annotated[Path | None, typer.Argument(help="The policy; without one, a policy is planned.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write.")] = Path("report.html"),
    logs: Annotated[Path | None, typer.Option(help="Sessions the model was not fitted to, to check it on.")] = None,
    certified: Annotated[Path | None, typer.Option("--certify", help="The log the model was fitted to.")] = None,
    episode: EpisodeColumn = "episode",
    action: ActionColumn = "action",
    reward: RewardColumn = "reward",
    step: StepColumn = None,
    propensity: PropensityColumn = None,
    horizon: Annotated[
        int | None, typer.Option(help="Steps per session; by default the policy's, or 5.", min=1)
    ] = None,
    time_limit: Annotated[float, typer.Option(help="Most seconds spent on planning.", min=0.1)] = 20.0,
    as_json: Json = False,
) -> None:
    """Write a report: the types, what personalisation is worth, the policy's first steps, how well the model predicts.

    Example: lmab report model.lmab policy.lmab --logs heldout.parquet
    """
    check_writable(output)
    columns = {"episode": episode, "action": action, "reward": reward, "step": step, "propensity": propensity}
    bandit, chosen = load_model(model), None if policy is None else load_policy(policy)
    certificate = None
    if certified is not None:
        if policy is None or chosen is None:
            raise InvalidArgument("--certify needs the policy that is to be certified, as the second argument")
        log = _read(certified, bandit, columns)
        certificate = certify(*notes.restore(policy, chosen, log), log, rng=np.random.default_rng(0))
    given = {"model file": model, "policy file": policy, "held-out log": logs, "log of the fit": certified}
    contents = reporting.gather(
        bandit,
        chosen,
        horizon=horizon,
        episodes=None if logs is None else _read(logs, bandit, columns),
        certificate=certificate,
        time_limit=time_limit,
        settings={name: str(path) for name, path in given.items() if path is not None},
    )
    reporting.write(contents, output)
    _tell(contents, output, as_json)


def _read(path: Path, bandit: LatentBandit, columns: dict[str, str | None]) -> Episodes:
    """A log in the model's arms."""
    labels = bandit.arm_labels or tuple(range(bandit.n_arms))
    return Episodes.read(path, **columns, arm_labels=labels)  # type: ignore[arg-type]


def _tell(contents: reporting.Contents, output: Path, as_json: bool) -> None:
    worth = contents.worth
    if as_json:
        values = {"fixed": worth.fixed, "policy": worth.policy.mean, "upper": worth.upper, "known": worth.known}
        show_json({"output": str(output), "horizon": contents.horizon, **values})
        return
    say(f"Best fixed choice {worth.fixed:.4g}, this policy {worth.policy.mean:.4g}, none more than {worth.upper:.4g}.")
    say(f"Report written to {output.resolve()}")
