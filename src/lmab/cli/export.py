"""`lmab export` writes the decisions of a store for analysts: CSV or Parquet, streamed, without changing the store."""

from __future__ import annotations

import asyncio
import csv
import datetime
import math
import sys
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from ..errors import InvalidArgument
from .output import note
from .serve import service_package


class Format(StrEnum):
    """Form of the exported file."""

    csv = "csv"
    parquet = "parquet"


def export(
    store: Annotated[str, typer.Argument(help="The store: a file, or postgresql://...")],
    experiment: Annotated[str, typer.Option(help="Experiment to export.")] = "default",
    since: Annotated[str | None, typer.Option(help="Sessions since this day (UTC), such as 2027-01-31.")] = None,
    until: Annotated[str | None, typer.Option(help="Sessions that began before this day (UTC).")] = None,
    format: Annotated[Format, typer.Option(help="Form of the file.")] = Format.csv,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; CSV goes to standard output without it.")
    ] = None,
) -> None:
    """Export the decisions of an experiment, one row each, with their sessions, rewards and versions.

    The columns are those of the view `exported` of the store. Times are seconds since 1970 (UTC), and features and
    allowed arms are JSON. The store is only read, in short transactions, so a service may run beside the command.

    Example: lmab export events.db --since 2027-01-31 -o decisions.csv
    """
    door = service_package()
    if format is Format.parquet and output is None:
        raise InvalidArgument("--format parquet needs --output FILE")
    door.check_store(store)
    span = _day(since, "--since", -math.inf), _day(until, "--until", math.inf)
    if output is None:
        asyncio.run(_write(door, store, experiment, span, sys.stdout))
        return
    with tempfile.TemporaryDirectory(dir=output.absolute().parent, prefix=".lmab-export-") as folder:
        draft = Path(folder) / "rows.csv"
        with draft.open("w", encoding="utf-8", newline="") as text:
            n_rows = asyncio.run(_write(door, store, experiment, span, text))
        if format is Format.parquet:
            write_parquet(draft, draft := Path(folder) / "rows.parquet")
        draft.replace(output)
    note(f"{n_rows:,} decisions were written to {output}.")


async def _write(door: Any, where: str, experiment: str, span: tuple[float, float], text: TextIO) -> int:
    """Write the rows of an experiment as CSV, some thousands at a time; return their number."""
    from ..serve.export import spans
    from ..serve.stores import EXPORTED

    store, n_rows = door.open_store(where), 0
    await store.open_to_read()
    try:
        await store.check_tables()
        known = [row.name for row in await store.experiments()]
        if experiment not in known:
            raise InvalidArgument(f"--experiment must be one of {', '.join(known)}; got {experiment!r}")
        view, table = store.of(experiment), csv.writer(text, lineterminator="\n")
        table.writerow(EXPORTED)
        for part in await spans(view, *span):
            rows = await view.exported(*part)
            table.writerows(rows)
            n_rows += len(rows)
    finally:
        await store.close()
    return n_rows


def write_parquet(rows: Path, path: Path) -> None:
    """Write a CSV file of exported rows as Parquet, with bounded memory."""
    import duckdb

    texts = dict.fromkeys(("session", "person", "features", "arm", "preferred", "version", "allowed"), "VARCHAR")
    numbers = dict.fromkeys(("began", "propensity", "decided", "reward", "rewarded"), "DOUBLE")
    flags = dict.fromkeys(("step", "explored", "fallback", "forced", "defaulted"), "INTEGER")
    with duckdb.connect() as db:
        kinds = texts | numbers | flags
        table = db.read_csv(str(rows), header=True, all_varchar=True, quotechar='"', escapechar='"')
        columns = [f"{name}::{kinds[name]} AS {name}" for name in table.columns]
        table.project(", ".join(columns)).write_parquet(str(path))


def _day(text: str | None, option: str, missing: float) -> float:
    """Return the first second of a day."""
    if text is None:
        return missing
    try:
        day = datetime.date.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(f"{option} must be a day such as 2027-01-31, got {text!r}") from None
    return datetime.datetime(day.year, day.month, day.day, tzinfo=datetime.UTC).timestamp()
