"""The command `lmab` and its list of commands."""

from __future__ import annotations

import inspect
import os
import sys

import typer

from .. import __version__
from .._kernel import on_compilation
from ..errors import LmabError, first_line
from . import budget, demo, evaluate, fit, learn, pack, plan, refit, report, reproduce, serve, simulate
from .output import announce_compilation, error

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


COMMANDS = (
    budget.budget,
    demo.demo,
    simulate.simulate,
    pack.pack,
    fit.fit,
    plan.plan,
    evaluate.evaluate,
    learn.learn,
    serve.serve,
    refit.refit,
    report.report,
    reproduce.reproduce,
)
for command in COMMANDS:
    text, example = inspect.cleandoc(command.__doc__ or "").split("Example: ")
    app.command(help=text.strip(), epilog=f"Example: {example}")(command)


def main() -> None:
    """Run the command line; a problem with the input gives one line on standard error and exit code 1.

    Other exit codes: 2 for options that make no sense, 70 for a mistake of ours, 130 when stopped by Ctrl-C.
    """
    on_compilation(announce_compilation)
    try:
        app()
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
