"""The columns of a log, as five options that several commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from ..data import Episodes
from ..model import LatentBandit
from ..policies import Policy


@dataclass(frozen=True)
class Columns:
    """Which column of a log is what. The annotation of a field is the option that fills it."""

    episode: Annotated[str, typer.Option("--episode", help="Column of the session's id.")] = "episode"
    action: Annotated[str, typer.Option("--action", help="Column of the arm that was played.")] = "action"
    reward: Annotated[str, typer.Option("--reward", help="Column of the reward.")] = "reward"
    step: Annotated[str | None, typer.Option("--step", help="Column that orders a session; else the rows do.")] = None
    propensity: Annotated[
        str | None, typer.Option("--propensity", help="Column of the probability with which the arm was chosen.")
    ] = None

    def read(self, path: Path, *, arms_of: LatentBandit | Policy | None = None) -> Episodes:
        """The log at `path`, in the arms of a model or policy: an arm that it does not know is an error."""
        labels = None if arms_of is None else arms_of.arm_labels
        if arms_of is not None and labels is None and arms_of.n_arms is not None:
            labels = tuple(range(arms_of.n_arms))
        return Episodes.read(path, **asdict(self), arm_labels=labels)


COLUMNS = Columns()


def with_columns(command: Callable[..., None]) -> Callable[..., None]:
    """The command with one option per field of `Columns` in the place of its parameter `columns`."""
    options = get_type_hints(Columns, include_extras=True)
    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name == "columns":
            parameters += [parameter.replace(name=f.name, annotation=options[f.name], default=f.default)
                           for f in fields(Columns)]  # fmt: skip
        else:
            parameters.append(parameter.replace(annotation=hints[name]))

    @wraps(command)
    def expanded(**given: Any) -> None:
        columns = Columns(**{name: given.pop(name) for name in options})
        command(columns=columns, **given)

    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
    expanded.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return expanded
