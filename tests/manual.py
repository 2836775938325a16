"""The page on the command line, made from the commands themselves: `python tests/manual.py > docs/cli.md`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, get_type_hints

import typer
from typer.models import ArgumentInfo, OptionInfo

from lmab.cli.app import MENU, command

_INTRODUCTION = """# Command line

<!-- Made by `python tests/manual.py > docs/cli.md`; a test compares. -->

`lmab COMMAND --help` says the same on a terminal. With `--json` a command prints one JSON document for machines. A
problem with the input is one line on standard error and exit code 1; wrong usage is exit code 2; Ctrl-C is 130.
"""


def manual() -> str:
    """Return the page in Markdown."""
    commands = [command(name) for name in MENU]
    return "\n".join([_INTRODUCTION, *map(_section, commands)])


def _name(command: Callable[..., Any]) -> str:
    return command.__name__.strip("_").replace("_", "-")


def _section(command: Callable[..., Any]) -> str:
    text, example = inspect.cleandoc(command.__doc__ or "").split("Example: ")
    rows = list(_rows(command))
    usage = " ".join(["lmab", _name(command), *(name for name, _, kind in rows if kind is ArgumentInfo), "[OPTIONS]"])
    lines = [f"| {_code(name, kind)} | {described} |" for name, described, kind in rows]
    table = ["| argument, option | meaning |", "|---|---|", *lines]
    return "\n".join(
        [
            f"## lmab {_name(command)}",
            "",
            f"`{usage}`",
            "",
            text.strip(),
            "",
            *table,
            "",
            "```sh",
            example.strip(),
            "```",
            "",
        ]
    )


def _code(name: str, kind: type) -> str:
    return f"`{name}`" if kind is ArgumentInfo else ", ".join(f"`{part}`" for part in name.split(", "))


def _rows(command: Callable[..., Any]) -> Iterator[tuple[str, str, type]]:
    """Name, description and kind of every argument and option."""
    hints = get_type_hints(command, include_extras=True)
    for name, parameter in inspect.signature(command).parameters.items():
        if hints[name] is typer.Context:
            continue
        info = next(part for part in hints[name].__metadata__ if isinstance(part, ArgumentInfo | OptionInfo))
        described = " ".join((info.help or "").split())
        default = _default(parameter.default, info.show_default)
        if isinstance(info, ArgumentInfo):
            shown = name.upper() if parameter.default is inspect.Parameter.empty else f"[{name.upper()}]"
        else:
            shown = ", ".join(_flags(name, hints[name].__origin__, info))
        yield shown, described + (f" Default: {default}." if default else ""), type(info)


def _flags(name: str, kind: Any, info: OptionInfo) -> list[str]:
    # In Annotated, typer keeps the first name given in the position of a default.
    declared = [str(part) for part in (info.default, *(info.param_decls or ())) if str(part).startswith("-")]
    given = [one for part in declared for one in part.split("/")]
    option = name.replace("_", "-")
    return given or ([f"--{option}", f"--no-{option}"] if kind is bool else [f"--{option}"])


def _default(value: Any, shown: bool | str) -> str:
    if isinstance(shown, str):
        return shown
    hidden = value in (None, "", inspect.Parameter.empty) or isinstance(value, bool) or not shown
    return "" if hidden else f"`{value}`"


if __name__ == "__main__":
    print(manual(), end="")
