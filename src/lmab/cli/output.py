"""What the commands share: tables, JSON, errors, progress bars that stay out of pipes."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

console = Console()
errors = Console(stderr=True)


def error(message: str) -> None:
    """One line on standard error."""
    errors.print(f"[bold red]error:[/] {message}", highlight=False, soft_wrap=True)


def progress() -> Progress:
    """A progress bar on a terminal, nothing in a pipe."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=errors, transient=True, disable=not sys.stderr.isatty())


def show_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A small table; the first column is text, the others numbers."""
    table = Table(title=title, title_justify="left")
    for index, name in enumerate(header):
        table.add_column(name, justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def show_json(value: Any) -> None:
    """One JSON document on standard output, for machines."""
    print(json.dumps(value, indent=2, allow_nan=False))
