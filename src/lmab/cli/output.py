"""Output of the commands: sentences, tables, JSON, errors, and progress bars on terminals."""

from __future__ import annotations

import json
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from types import FrameType
from typing import Any, TextIO

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from ..errors import LmabWarning

_EVERY, _BRIEF, _FIRST = 10.0, 20.0, 3  # seconds between lines, seconds without any, steps before the first estimate
console = Console()
errors = Console(stderr=True)


def error(message: str) -> None:
    """Print an error as one line on standard error."""
    errors.print(f"[bold red]error:[/] {escape(message)}", highlight=False, soft_wrap=True)


def say(message: str) -> None:
    """Print a sentence on standard output."""
    console.print(escape(message), highlight=False, soft_wrap=True)


def note(message: str) -> None:
    """Print a note that the user should read before using the result."""
    console.print(f"[yellow]note:[/] {escape(message)}", highlight=False, soft_wrap=True)


def remark(message: str) -> None:
    """Print a note on standard error, so that it does not mix with JSON."""
    errors.print(f"[yellow]note:[/] {escape(message)}", highlight=False, soft_wrap=True)


def announce_compilation() -> None:
    """Announce on a terminal that kernels are compiled, because the first run is slow."""
    if sys.stderr.isatty():
        errors.print("compiling the kernels: this takes some seconds, on the first run only", style="dim")


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Collect the warnings of the library in a list, so that the command can print them as notes."""
    messages: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", LmabWarning)
        yield messages
    messages += dict.fromkeys(str(item.message) for item in caught)


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Print warnings of the library as notes on standard error, without the place in the code that raised them."""
    with warnings.catch_warnings():
        others = warnings.showwarning

        def show(
            message: Warning | str, category: type[Warning], filename: str, lineno: int,
            file: TextIO | None = None, line: str | None = None,
        ) -> None:  # fmt: skip
            if issubclass(category, LmabWarning):
                remark(str(message))
            else:
                others(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        yield


def progress() -> Progress:
    """Return a progress bar, which is hidden if standard error is not a terminal."""
    return _bar(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show a task and its elapsed time on a terminal, if its duration is unknown."""
    with _bar(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()) as bar:
        bar.add_task(what, total=None)
        yield


@contextmanager
def counting(what: str) -> Iterator[Callable[[int, int, float], None]]:
    """Yield a function that shows how many of how many steps are done and about how many seconds are left.

    On a terminal it is a bar. Elsewhere it is a line on standard error at the start and every ten seconds, unless all
    takes less than twenty.
    """
    with progress() as bar:
        task, began, said = bar.add_task(what, total=None), perf_counter(), [-_EVERY]

        def show(done: int, total: int, left: float) -> None:
            bar.update(task, completed=done, total=total)
            now = perf_counter() - began
            if not bar.disable or done < _FIRST or now - said[0] < _EVERY or (said[0] < 0 and now + left < _BRIEF):
                return
            said[0] = now
            errors.print(f"{what}: {done:,} of {total:,}, about {left:.0f} s left", style="dim", soft_wrap=True)

        yield show


def _bar(*columns: ProgressColumn) -> Progress:
    shown = sys.stderr.isatty()
    silent = Console(stderr=True, quiet=True)  # rich before 15 ends even a disabled bar with an empty line
    return Progress(*columns, console=errors if shown else silent, transient=True, disable=not shown)


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether Ctrl-C was pressed; a second Ctrl-C ends the command at once."""
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # only the main thread receives Ctrl-C
        yield lambda: False
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        errors.print("stopping with the best result so far; press Ctrl-C again to end at once", style="dim")

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGINT, before)


def show_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a small table; the first column is text, the others are numbers."""
    table = Table(title=title, title_justify="left")
    for index, name in enumerate(header):
        table.add_column(name, justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table)


def show_json(value: Any) -> None:
    """Print one JSON document on standard output."""
    print(json.dumps(value, indent=2, allow_nan=False))
