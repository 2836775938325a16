"""`lmab pack`: write a log of any size as a packed log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .._html import count
from .options import COLUMNS, Columns, Json, with_columns
from .output import collected_warnings, remark, say, show_json


@with_columns
def pack(
    log: Annotated[
        list[Path], typer.Argument(help="The log, one row per step: Parquet, CSV, JSON lines; files or folders.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write, a new one.")],
    columns: Columns = COLUMNS,
    as_json: Json = False,
) -> None:
    """Write a log that is larger than memory into a folder, from where `lmab fit` reads it in place.

    A command that was stopped or killed goes on where it was, when it is run again.

    Example: lmab pack logs -o packed --session session --arm item
    """
    with collected_warnings() as remarks:
        packed = columns.pack(log, output)
    for text in remarks:
        remark(text)
    n_partitions = len(packed.manifest.partitions)
    if as_json:
        sizes = {"sessions": len(packed), "steps": packed.n_steps, "arms": packed.n_arms, "partitions": n_partitions}
        show_json({"output": str(output), **sizes})
        return
    sizes_said = (count(len(packed), "session"), count(packed.n_steps, "step"), count(packed.n_arms, "arm"))
    say(f"{', '.join(sizes_said)} written to {output}, in {count(n_partitions, 'partition')}.")
    say(f"Next: lmab fit {output} -o model.lmab")
