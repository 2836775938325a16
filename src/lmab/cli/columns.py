"""The columns of a log and how its rows become sessions, as options that several commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import numpy as np
import typer

from ..data import MISSING, Episodes
from ..errors import InvalidArgument
from ..model import LatentBandit
from ..policies import Policy
from .output import collected_warnings, remark

Missing = StrEnum("Missing", {name: name for name in MISSING})  # type: ignore[misc]
_ERROR = Missing("error")


@dataclass(frozen=True)
class Columns:
    """The names of the columns of a log, and how to read it; the annotation of a field is the option that sets it."""

    episode: Annotated[str, typer.Option("--episode", help="Column of the session's id.")] = "episode"
    action: Annotated[str, typer.Option("--action", help="Column of the arm that was played.")] = "action"
    reward: Annotated[str, typer.Option("--reward", help="Column of the reward.")] = "reward"
    step: Annotated[str | None, typer.Option("--step", help="Column that orders steps; else rows are in order.")] = None
    propensity: Annotated[
        str | None, typer.Option("--propensity", help="Column of the probability with which the arm was chosen.")
    ] = None
    person: Annotated[
        str | None, typer.Option("--person", help="Column of the person, to make sessions of events; with --time.")
    ] = None
    time: Annotated[str | None, typer.Option("--time", help="Column of the time of an event; with --person.")] = None
    gap: Annotated[str, typer.Option("--gap", help="Pause that ends a session of a person: 90s, 30m, 2h, 1d.")] = "30m"
    at_most: Annotated[
        int | None, typer.Option("--at-most", help="Keep this many steps of a session, from its first.", min=1)
    ] = None
    missing: Annotated[Missing, typer.Option("--missing", help="Steps without a reward: error, drop, or zero.")] = (
        _ERROR
    )
    encoding: Annotated[str, typer.Option("--encoding", help="Encoding of text files.")] = "utf-8"

    def read(self, path: Path | list[Path], *, arms_of: LatentBandit | Policy | None = None) -> Episodes:
        """The log at `path`, with the arms of a model or policy: an arm that the model does not know is an error."""
        labels = None if arms_of is None else arms_of.arm_labels
        if arms_of is not None and labels is None and arms_of.n_arms is not None:
            labels = tuple(range(arms_of.n_arms))
        with collected_warnings() as remarks:
            log = self._read(path, labels)
        for text in remarks:
            remark(text)
        return log if arms_of is None or labels is not None else _by_number(log)

    def _read(self, path: Path | list[Path], labels: tuple[str | int, ...] | None) -> Episodes:
        shared: dict[str, Any] = {
            name: getattr(self, name) for name in ("action", "reward", "propensity", "at_most", "encoding")
        }
        shared |= {"missing": str(self.missing), "arm_labels": labels}
        if self.person is None and self.time is None:
            return Episodes.read(path, episode=self.episode, step=self.step, **shared)
        if self.person is None or self.time is None:
            raise InvalidArgument("--person and --time must be given together: sessions are made of both")
        if self.episode != "episode" or self.step is not None:
            raise InvalidArgument("--person and --time make sessions: do not give --episode or --step beside them")
        return Episodes.from_events(path, person=self.person, time=self.time, gap=self.gap, **shared)


def _by_number(log: Episodes) -> Episodes:
    """The log with arms by their numbers, for a policy that knows arms by number and not how many there are."""
    labels = log.arm_labels
    if labels is None or not all(isinstance(label, int) and label >= 0 for label in labels):
        return log
    numbers = np.array(labels, np.int32)
    return replace(log, actions=numbers[log.actions], n_arms=int(numbers.max()) + 1, arm_labels=None)


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
