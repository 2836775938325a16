"""The command `lmab` and its list of commands."""

from __future__ import annotations

import inspect
import sys

import typer

from .. import __version__
from ..errors import LmabError
from . import budget, demo, learn, report, reproduce
from .output import error

app = typer.Typer(
    name="lmab",
    help="Episodic latent bandits: from session logs to a provably near-optimal session policy.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _version(value: bool) -> None:
    if value:
        print(f"lmab {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    pass


for command in (budget.budget, demo.demo, learn.learn, report.report, reproduce.reproduce):
    text, example = inspect.cleandoc(command.__doc__ or "").split("Example: ")
    app.command(help=text.strip(), epilog=f"Example: {example}")(command)


def main() -> None:
    """Run the command line; a problem with the input becomes one line on standard error and exit code 1."""
    try:
        app()
    except LmabError as problem:
        error(str(problem))
        sys.exit(1)
    except KeyboardInterrupt:
        error("stopped; what was finished is kept")
        sys.exit(130)
