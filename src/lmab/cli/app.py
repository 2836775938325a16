"""The command `lmab`: the menu of its commands, each of which is imported when it is run."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable
from copy import copy
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from rich.markup import escape

from .. import __version__
from ..errors import LmabError, first_line
from .output import announce_compilation, error

if TYPE_CHECKING:
    app: typer.Typer

_FLOW, _LIVE, _RESEARCH = "From a log to a policy", "In production", "Without a log, and research"

#: Every command in the order of the flow: its group, and its line in the menu.
MENU = {
    "demo": (_FLOW, "The whole way on a made-up log, beside the truth."),
    "sample": (_FLOW, "Write a sample log to try the other commands on."),
    "pack": (_FLOW, "Pack a log that is larger than memory, for `lmab fit`."),
    "fit": (_FLOW, "Find the hidden types behind a log of sessions."),
    "plan": (_FLOW, "Make a session policy, and prove how close it is to the best one."),
    "evaluate": (_FLOW, "Say what a policy is worth: from a log, on a model, or with a certificate."),
    "compare": (_FLOW, "Say what one policy earns more than another, and how many live sessions would tell."),
    "report": (_FLOW, "Write one HTML page about a model and a policy."),
    "serve": (_LIVE, "Decide for live sessions over HTTP."),
    "refit": (_LIVE, "Make the next policy from what the service kept."),
    "simulate": (_RESEARCH, "Play sessions of a bandit and write them as a log."),
    "learn": (_RESEARCH, "Let a learner play a bandit that is hidden from it."),
    "budget": (_RESEARCH, "How many sessions the theory asks for, and how many are needed."),
    "reproduce": (_RESEARCH, "Run the studies of the paper and of ours."),
}
_ROOM = {"sample": "logs", "simulate": "logs", "pack": "logs", "refit": "serve"}  # Commands that share a module.


def command(name: str) -> Callable[..., None]:
    """The function behind a command."""
    return getattr(import_module(f"{__package__}.{_ROOM.get(name, name)}"), name)


def application(names: Iterable[str]) -> typer.Typer:
    """The command line; only the commands `names` are imported, and the others are lines of the menu."""
    made = typer.Typer(
        name="lmab",
        help="Short sessions with people of hidden type: from a log to a session policy, and proof of how good it is.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
    )
    made.callback()(_options)
    imported = set(names)
    for name, (group, line) in MENU.items():
        if name not in imported:
            made.command(name, help=escape(line), rich_help_panel=group)(_nothing)
            continue
        function = command(name)
        text, example = inspect.cleandoc(function.__doc__ or "").split("Example: ")
        described = {"help": escape(text.strip()), "epilog": escape(f"Example: {example}")}
        made.command(name, short_help=escape(line), rich_help_panel=group, **described)(_escaped(function))  # type: ignore[arg-type]
    return made


def __getattr__(name: str) -> Any:
    """`app`: the command line with all of its commands, made when it is first asked for."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = globals()["app"] = application(MENU)
    return made


def main() -> None:
    """Run the command line; a problem with the input gives one line on standard error and exit code 1.

    Other exit codes: 2 for options that make no sense, 70 for a mistake of ours, 130 when stopped by Ctrl-C.
    """
    asked = next((word for word in sys.argv[1:] if not word.startswith("-")), None)
    try:
        if asked in MENU:
            _announce()
        application([] if asked is None else [asked])()
    except LmabError as problem:
        error(str(problem))
        sys.exit(1)
    except BrokenPipeError:  # the reader of our output has seen enough
        sys.stderr.close()
        sys.exit(1)
    except OSError as problem:
        error(str(problem))
        sys.exit(1)
    except KeyboardInterrupt:
        error("stopped; finished results are kept")
        sys.exit(130)
    except Exception as problem:
        if os.environ.get("LMAB_TRACEBACK"):
            raise
        what = f"{type(problem).__name__}: {first_line(problem)}"
        error(f"a mistake in lmab ({what}): please report it; LMAB_TRACEBACK=1 shows where it happened")
        sys.exit(70)


def _version(value: bool) -> None:
    if value:
        print(f"lmab {__version__}")
        raise typer.Exit


def _options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    pass


def _nothing() -> None:
    """A line of the menu, whose command is not run."""


def _announce() -> None:
    """Say on a terminal why a first run is slow; the kernels are imported here, because the menu does without them."""
    from .._kernel import on_compilation

    on_compilation(announce_compilation)


def _escaped(function: Callable[..., None]) -> Callable[..., None]:
    """The command with help texts in which square brackets are no markup."""
    hints = get_type_hints(function, include_extras=True)
    parameters = []
    for name, parameter in inspect.signature(function).parameters.items():
        info = copy(hints[name].__metadata__[0])
        info.help = escape(info.help or "")
        parameters.append(parameter.replace(annotation=Annotated[hints[name].__origin__, info]))

    @wraps(function)
    def shown(**given: Any) -> None:
        function(**given)

    shown.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
    shown.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return shown
