"""Options that several commands share: the columns of a log, how its rows become sessions, and the files they read."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import numpy as np
import typer

from ..data.loading import COPIES, MISSING, explained
from ..data.log_files import is_log
from ..data.packed import Packed, is_packed
from ..data.packing import pack
from ..data.sessions import Sessions
from ..errors import InvalidArgument, InvalidData, InvalidFile
from ..estimation.check import Check
from ..estimation.result import Estimate, estimate_of
from ..evaluation.assessment import Assessment
from ..loading import load
from ..model.bandit import LatentBandit
from ..planning.problem import Plan, policy_of
from ..policies.policy import Policy
from .output import collected_warnings, note, remark, say

Missing = StrEnum("Missing", {name: name for name in MISSING})  # type: ignore[misc]
_ERROR = Missing("error")
Copies = StrEnum("Copies", {name: name for name in COPIES})  # type: ignore[misc]
_KEEP = Copies("keep")


@dataclass(frozen=True)
class Columns:
    """The names of the columns of a log, and how to read it; the annotation of a field is the option that sets it."""

    session: Annotated[str | None, typer.Option("--session", help="Column of the session's id [default: session].")] = (
        None
    )
    arm: Annotated[str, typer.Option("--arm", help="Column of the arm that was played.")] = "arm"
    reward: Annotated[str, typer.Option("--reward", help="Column of the reward.")] = "reward"
    step: Annotated[
        str | None, typer.Option("--step", help="Column that orders the steps; without it, rows are in order.")
    ] = None
    propensity: Annotated[
        str | None, typer.Option("--propensity", help="Column of the probability with which the arm was chosen.")
    ] = None
    features: Annotated[
        str | None, typer.Option("--features", help="Columns known before a session, such as country,device,age.")
    ] = None
    person: Annotated[
        str | None, typer.Option("--person", help="Column of the person; with --time, sessions are made of events.")
    ] = None
    ended: Annotated[
        str | None, typer.Option("--ended", help="Column with the end of a session: left, went on, or unknown.")
    ] = None
    limit: Annotated[
        int | None,
        typer.Option("--limit", help="Maximum length of a session in the log; visitors left shorter sessions.", min=1),
    ] = None
    time: Annotated[
        str | None,
        typer.Option("--time", help="Column of times: of sessions' starts with --session, of events with --person."),
    ] = None
    gap: Annotated[str, typer.Option("--gap", help="Pause that ends a session of a person: 90s, 30m, 2h, 1d.")] = "30m"
    at_most: Annotated[
        int | None,
        typer.Option(
            "--at-most", help="Keep this many first steps of each session (of the arms that are kept).", min=1
        ),
    ] = None
    missing: Annotated[
        Missing, typer.Option("--missing", help="Steps without reward or arm: error, drop, or zero (rewards).")
    ] = _ERROR
    copies: Annotated[
        Copies, typer.Option("--copies", help="Rows that repeat an earlier row: keep, drop, or error.")
    ] = _KEEP
    encoding: Annotated[str, typer.Option("--encoding", help="Encoding of text files.")] = "utf-8"
    given: frozenset[str] = field(default=frozenset(), compare=False, repr=False)  # names that the command line gave
    stored: frozenset[str] = field(default=frozenset(), compare=False, repr=False)  # names that were taken from a model

    def for_model(self) -> tuple[tuple[str, str | int], ...]:
        """Return the options that a model file stores, so that later commands do not need them."""
        changed = {name: getattr(self, name) for name in OPTIONS if getattr(self, name) != getattr(COLUMNS, name)}
        return tuple((name, value if isinstance(value, int) else str(value)) for name, value in changed.items())

    def of_model(self, model: Any) -> Columns:
        """Return these options, with the options of the fit if the command line does not set them."""
        known: dict[str, Any] = dict(model.columns) if isinstance(model, Estimate) else {}
        if "missing" in known:
            known["missing"] = Missing(known["missing"])
        if "copies" in known:
            known["copies"] = Copies(known["copies"])
        if self.given & {"session", "step", "ended", "limit"} and "session" not in known:
            known = {name: value for name, value in known.items() if name not in ("time", "gap")}
        elif "time" in self.given:
            known = {name: value for name, value in known.items() if name not in ("session", "step", "ended", "limit")}
        taken = {name: value for name, value in known.items() if name in OPTIONS and name not in self.given}
        return replace(self, **taken, given=frozenset(OPTIONS), stored=self.stored | taken.keys())

    def read(self, path: Path | list[Path], *, arms_of: LatentBandit | Policy | Estimate | None = None) -> Sessions:
        """Read the log at `path`, with the arms of a model or policy; raise if it does not have an arm.

        If `arms_of` is an estimate, options that are not set have the values of its fit, and steps of the rare arms
        that the fit excluded are excluded.
        """
        if isinstance(arms_of, Estimate) and arms_of.columns:
            self = self.of_model(arms_of)
        if isinstance(arms_of, Estimate) and arms_of.left_out:
            whole = arms_of.bandit.with_arms(arms_of.left_out)
            log = arms_of.without_rare(replace(self, at_most=None).read(path, arms_of=whole)).load()
            return log if self.at_most is None else log.first_steps(self.at_most)
        arms_of = arms_of.bandit if isinstance(arms_of, Estimate) else arms_of
        labels = None if arms_of is None else arms_of.arm_labels
        if arms_of is not None and labels is None and arms_of.n_arms is not None:
            labels = tuple(range(arms_of.n_arms))
        with collected_warnings() as remarks:
            log = self._read(path, labels)  # A packed log is read into memory as a whole here.
        for text in remarks:
            remark(text)
        return log if arms_of is None or labels is not None else _by_number(log)

    def open(self, path: list[Path]) -> Sessions | Packed:
        """Open the log at `path`; a packed log stays in its files."""
        return self.read(path) if _packed_folder(path) is None else self._opened(path[0])

    def pack(self, path: list[Path], folder: Path, memory: str | None = None) -> Packed:
        """Pack the log at `path` into a folder."""
        return pack(path, folder, memory=memory, **self._named, **self._shared(None))

    def query(self, path: list[Path]) -> str:
        """Return the query that turns the log at `path` into sessions."""
        return explained(path, **self._named, **self._shared(None))

    def _read(self, path: Path | list[Path], labels: tuple[str | int, ...] | None) -> Sessions:
        folder = _packed_folder(path)
        if folder is not None:
            return _relabelled(self._opened(folder).load(), labels)
        return Sessions.read(path, **self._named, **self._shared(labels))

    @property
    def _named(self) -> dict[str, Any]:
        """The options of which sessions are made."""
        if self._by_events:
            return {"person": self.person, "time": self.time, "gap": self.gap}
        names = ("session", "step", "person", "ended", "limit", "time")
        return {name: getattr(self, name) for name in names}

    def _opened(self, folder: Path) -> Packed:
        if any(getattr(self, name) != getattr(COLUMNS, name) for name in set(OPTIONS) - self.stored):
            raise InvalidArgument(
                f"{folder} is a packed log, whose columns were named when it was packed: give `lmab pack` the options "
                f"of columns"
            )
        return Packed(folder)

    def _shared(self, labels: tuple[str | int, ...] | None) -> dict[str, Any]:
        names = ("arm", "reward", "propensity", "at_most", "encoding")
        features = tuple(name.strip() for name in (self.features or "").split(",") if name.strip())
        shared = {name: getattr(self, name) for name in names}
        return shared | {
            "missing": str(self.missing),
            "copies": str(self.copies),
            "arm_labels": labels,
            "features": features,
        }

    @property
    def _by_events(self) -> bool:
        if self.time is None or self.session is not None:
            return False
        if self.person is None:
            raise InvalidArgument("--time must be given with --person: sessions are made of both; or with --session")
        options = {"--step": "step", "--ended": "ended", "--limit": "limit"}
        wrong = [option for option, name in options.items() if getattr(self, name) != getattr(COLUMNS, name)]
        if wrong:
            raise InvalidArgument(f"--person and --time make sessions: do not give {wrong[0]} beside them")
        return True


def _packed_folder(path: Path | list[Path]) -> Path | None:
    """Return the folder of a packed log, None for other logs; raise if it is one of several logs."""
    paths = [path] if isinstance(path, Path) else path
    found = [one for one in paths if is_packed(one)]
    if found and len(paths) > 1:
        raise InvalidArgument(f"{found[0]} is a packed log, and must be given alone")
    return found[0] if found else None


def _relabelled(log: Sessions, labels: tuple[str | int, ...] | None) -> Sessions:
    """Return the log with the arms of a model; raise if the model does not have an arm."""
    if labels is None:
        return log
    place = {label: arm for arm, label in enumerate(labels)}
    names = log.arm_labels or tuple(range(log.n_arms))
    unknown = [names[arm] for arm in np.flatnonzero(log.plays) if names[arm] not in place]
    if unknown:
        raise InvalidData(f"the packed log names an unknown arm, {unknown[0]!r}; {len(labels)} are known")
    numbers = np.array([place.get(name, 0) for name in names], np.int32)
    return replace(log, arms=numbers[log.arms], n_arms=len(labels), arm_labels=labels)


def _by_number(log: Sessions) -> Sessions:
    """Return the log with arms as numbers, for a policy that has neither labels nor a number of arms."""
    labels = log.arm_labels
    if labels is None or not all(isinstance(label, int) and label >= 0 for label in labels):
        return log
    numbers = np.array(labels, np.int32)
    return replace(log, arms=numbers[log.arms], n_arms=int(numbers.max()) + 1, arm_labels=None)


COLUMNS = Columns()
OPTIONS = tuple(one.name for one in fields(Columns) if one.name not in ("given", "stored"))


_FIRST = ("session", "arm", "reward")  # These options stand among the first; the others have a group of their own.
_PANEL = "Format of the log"


def with_columns(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter `columns` of a command by one option per field of `Columns`."""
    of_columns = get_type_hints(Columns, include_extras=True)
    options = {name: _grouped(name, of_columns[name]) for name in OPTIONS}
    hints = get_type_hints(command, include_extras=True)
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name == "columns":
            parameters += [parameter.replace(name=f.name, annotation=options[f.name], default=f.default)
                           for f in fields(Columns) if f.name in OPTIONS]  # fmt: skip
        else:
            parameters.append(parameter.replace(annotation=hints[name]))

    @wraps(command)
    def expanded(**given: Any) -> None:
        context: typer.Context = given.pop("context")
        said = frozenset(name for name in options if is_given(context, name))
        read = {name: given.pop(name) for name in options}
        columns = Columns(**{name: value for name, value in read.items() if value != ""}, given=said)  # "": the default
        command(columns=columns, **given)

    parameters.append(context)
    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    expanded.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return expanded


def is_given(context: typer.Context, name: str) -> bool:
    """Return whether the command line or the environment sets an option."""
    source = context.get_parameter_source(name)
    return source is not None and source.name not in ("DEFAULT", "DEFAULT_MAP")


def _grouped(name: str, hint: Any) -> Any:
    """Return the annotation of a field, with the help panel of its option."""
    if name in _FIRST:
        return hint
    info = copy(hint.__metadata__[0])
    info.rich_help_panel = _PANEL
    return Annotated[hint.__origin__, info]


PLACE, MORE = "Execution", "More"  # Groups of options in the help of several commands.

Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.", rich_help_panel=MORE)]
ClusterAddress = Annotated[
    str | None,
    typer.Option(
        "--cluster", help="Run on the Dask cluster with this scheduler: tcp://host:8786.", rich_help_panel=PLACE
    ),
]
Seed = Annotated[int, typer.Option(help="Random seed.", min=0, rich_help_panel=MORE)]

INTERRUPTED = 130  # A command that Ctrl-C stopped exits with this code.
NOT_CHECKED = (
    "the types of this model were not tested on held-out sessions, because `lmab fit` was stopped early or run with "
    "--no-check. Fit again with the check before you rely on them."
)

_NOUNS: dict[type, str] = {
    LatentBandit: "model",
    Estimate: "model",
    Policy: "policy",
    Plan: "policy",
    Assessment: "assessment",
}


def _load(path: Path, noun: str, remedy: str) -> Any:
    """Load a file; raise `InvalidFile` with a remedy if it is a log."""
    if is_log(path) and path.exists():
        raise InvalidFile(f"{path}: must hold {_with_article(noun)}, is a log: {remedy}")
    return load(path)


def load_fitted(path: Path) -> LatentBandit | Estimate:
    """Load a model: an estimate, or a bandit alone."""
    value = _load(path, "model", "`lmab fit` makes a model from it")
    if not isinstance(value, LatentBandit | Estimate):
        raise _wrong(path, value, "model", "`lmab fit` makes a model from a log")
    return value


def load_model(path: Path) -> LatentBandit:
    """Load the bandit of a model."""
    return bandit_of(load_fitted(path))


def load_planned(path: Path) -> Policy | Plan:
    """Load a policy: a plan, or a policy alone."""
    value = _load(path, "policy", "`lmab fit` makes a model from it, and `lmab plan` a policy from the model")
    if not isinstance(value, Policy | Plan):
        model = path if isinstance(value, LatentBandit | Estimate) else "MODEL"
        raise _wrong(path, value, "policy", f"`lmab plan {model}` makes a policy from a model")
    return value


def load_either(path: Path) -> LatentBandit | Estimate | Policy | Plan:
    """Return the model or the policy in a file."""
    value = _load(path, "policy or a model", "`lmab fit` makes a model from it")
    if not isinstance(value, LatentBandit | Estimate | Policy | Plan):
        raise _wrong(path, value, "policy or a model", "`lmab fit` makes a model from a log")
    return value


def load_policy(path: Path) -> Policy:
    """Load a policy, or the policy of a plan."""
    return policy_of(load_planned(path))


def estimate_behind(path: Path, planned: Policy | Plan) -> tuple[Estimate, Plan]:
    """Return the estimate of a plan and the plan, which an assessment needs; raise if there is none."""
    estimate = estimate_of(planned.source) if isinstance(planned, Plan) else None
    if not isinstance(planned, Plan) or estimate is None:
        raise InvalidFile(f"{path}: does not hold the estimate of its plan: make it with `lmab fit` and `lmab plan`")
    return estimate, planned


def arms_behind(planned: Policy | Plan) -> Estimate | Policy:
    """Return the estimate of a plan, or a policy alone, for the labels of its arms."""
    if isinstance(planned, Plan):
        return estimate_of(planned.source) or planned.policy
    return planned


def load_assessment(path: Path) -> Assessment:
    """Load a saved assessment."""
    value = load(path)
    if not isinstance(value, Assessment):
        raise _wrong(path, value, "assessment", "`lmab evaluate --assess LOG --save-assessment` makes one")
    return value


def bandit_of(model: LatentBandit | Estimate) -> LatentBandit:
    """Return the bandit of a model."""
    return model.bandit if isinstance(model, Estimate) else model


def n_types(text: str) -> int | str:
    """Parse the option --types."""
    if text == "auto":
        return text
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise InvalidArgument(f"--types must be a whole number of at least 1, or auto; got {text!r}")
    return int(text)


def check_of(planned: Policy | Plan) -> Check | None:
    """Return the held-out check of the estimate of a plan; None if there is none."""
    estimate = estimate_of(planned.source) if isinstance(planned, Plan) else None
    return None if estimate is None else estimate.check


def check_summary(planned: Policy | Plan) -> dict[str, Any] | None:
    """Return the held-out check for JSON."""
    check = check_of(planned)
    return None if check is None else {"agrees": check.agrees, "verdict": check.verdict}


def contradicted(planned: Policy | Plan) -> dict[str, str]:
    """Return the assumptions that the log of the fit contradicts, each with its sentence."""
    estimate = estimate_of(planned.source) if isinstance(planned, Plan) else None
    return {} if estimate is None else estimate.contradicted


def tell_check(planned: Policy | Plan) -> None:
    """Print the held-out check of the fit, and a note on each assumption that the log of the fit contradicts."""
    for sentence in contradicted(planned).values():
        note(sentence)
    check = check_of(planned)
    if check is None:
        if isinstance(planned, Plan) and planned.source is not None:
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
    return InvalidFile(f"{path}: must hold {_with_article(wanted)}, holds {_with_article(_noun(value))}: {remedy}")


def _with_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"
