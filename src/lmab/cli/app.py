"""The command `lmab`: the menu of its commands, each of which is imported when it is run."""

from __future__ import annotations

import inspect
import os
import signal
import sys
from collections.abc import Callable, Iterable
from copy import copy
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from rich.markup import escape

from .. import __version__
from ..errors import LmabError, first_line
from .output import announce_compilation, error, warnings_as_notes

if TYPE_CHECKING:
    app: typer.Typer

_HELP = {"help_option_names": ["-h", "--help"]}
_FLOW, _LIVE, _RESEARCH = "From a log to a policy", "In production", "Without a log, and research"

#: Every command in the order of the flow: its group, and its line in the menu.
MENU = {
    "demo": (_FLOW, "Run the whole workflow on a simulated log, and compare the result with the truth."),
    "sample": (_FLOW, "Write a simulated log to try the other commands on."),
    "split": (_FLOW, "Split a log in two: one to fit a model to, one to evaluate its policy on."),
    "pack": (_FLOW, "Pack a log that is larger than memory, for `lmab fit`."),
    "fit": (_FLOW, "Fit latent types to a log of sessions, and check them on held-out sessions."),
    "plan": (_FLOW, "Plan a session policy for a model, with bounds on the best policy."),
    "evaluate": (_FLOW, "Estimate the value of a policy: from a log, on a model, or with an assessment."),
    "compare": (_FLOW, "Estimate the difference of two policies, and how many live sessions would show it."),
    "report": (_FLOW, "Write an HTML page about a model and a policy."),
    "serve": (_LIVE, "Serve decisions for live sessions over HTTP."),
    "experiments": (_LIVE, "List, create, change and archive the experiments of a store."),
    "export": (_LIVE, "Export the decisions of a store for analysts."),
    "refit": (_LIVE, "Fit the next policy to the sessions that the service kept."),
    "simulate": (_RESEARCH, "Simulate sessions of a bandit and write them as a log."),
}
#: The commands of `lmab.paper`, in the menu if that package is installed.
_PAPER = {
    "learn": (_RESEARCH, "Run a learner on a bandit that it does not know."),
    "budget": (_RESEARCH, "Compute how many sessions the theory requires, and how many are enough."),
    "reproduce": (_RESEARCH, "Run the studies of the paper and of this library."),
}
if find_spec("lmab.paper") is not None:
    MENU |= _PAPER
_MODULES = {
    "sample": "logs",
    "simulate": "logs",
    "pack": "logs",
    "split": "logs",
    "refit": "serve",
}  # Commands that share a module.


_CONFIGURED = ("serve", "refit")  # commands whose options may be variables such as LMAB_STORE
_NEVER_CONFIGURED = ("seed", "as_json", "check", "demo")


def command(name: str) -> Callable[..., None]:
    """Return the function of a command."""
    package = "lmab.paper.commands" if name in _PAPER else __package__
    return getattr(import_module(f"{package}.{_MODULES.get(name, name)}"), name)


def application(names: Iterable[str]) -> typer.Typer:
    """Return the command line; only the commands `names` are imported, the others appear in the menu only."""
    made = typer.Typer(
        name="lmab",
        help="Choose what to show next in a short session from the answers so far: fit latent types to a log, plan a "
        "policy, and estimate its gain with confidence intervals.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings=_HELP,
    )
    made.callback()(_options)
    imported = set(names)
    for name, (group, line) in MENU.items():
        if name not in imported:
            made.command(name, help=escape(line), rich_help_panel=group, context_settings=_HELP)(_placeholder)
            continue
        function = command(name)
        text, example = inspect.cleandoc(function.__doc__ or "").split("Example: ")
        described: dict[str, Any] = {"help": escape(text.strip()), "epilog": escape(f"Example: {example}")}
        described |= {"short_help": escape(line), "rich_help_panel": group, "context_settings": _HELP}
        made.command(name, **described)(_escaped(function))
    return made


def __getattr__(name: str) -> Any:
    """`app`: the command line with all of its commands, made when it is first asked for."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = globals()["app"] = application(MENU)
    return made


def main() -> None:
    """Run the command line; a problem with the input gives one line on standard error and exit code 1.

    Other exit codes: 2 for options that make no sense, 70 for a mistake of ours, 78 for a misconfigured
    service, 130 when stopped by Ctrl-C.
    """
    asked = next((word for word in sys.argv[1:] if not word.startswith("-")), None)
    if asked == "serve":  # until the service reads its tokens again, a reload has nothing to do
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        if asked in MENU:
            _announce()
        with warnings_as_notes():
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
        if type(problem).__module__.partition(".")[0] in ("sqlite3", "asyncpg"):  # a full disk, a database that stops
            error(f"the store failed: {first_line(problem)} ({type(problem).__name__}); check its address and its disk")
            sys.exit(1)
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


def _placeholder() -> None:
    """Stand for a command of the menu that is not imported."""


def _announce() -> None:
    """Announce the compilation of kernels, which are imported here because the menu does not need them."""
    from .._kernel import on_compilation

    on_compilation(announce_compilation)


def _escaped(function: Callable[..., None]) -> Callable[..., None]:
    """The command with help texts in which square brackets are no markup."""
    hints = get_type_hints(function, include_extras=True)
    parameters = []
    for name, parameter in inspect.signature(function).parameters.items():
        if hints[name] is typer.Context:
            parameters.append(parameter)
            continue
        info = copy(hints[name].__metadata__[0])
        info.help = escape(info.help or "")
        if function.__name__ in _CONFIGURED and name not in _NEVER_CONFIGURED:
            info.envvar, info.show_envvar = f"LMAB_{name.upper()}", False
        parameters.append(parameter.replace(annotation=Annotated[hints[name].__origin__, info]))

    @wraps(function)
    def shown(**given: Any) -> None:
        function(**given)

    shown.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    shown.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return shown
