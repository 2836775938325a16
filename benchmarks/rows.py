"""Rows: what a benchmark measured, by name, with the command, the day, the version and the machine.

A benchmark's `main` prints and returns its rows. `python -m benchmarks NAME --store` keeps them in
`docs/benchmarks/rows.json`, and README and pages take their figures from there (see `figures`).
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lmab.paper.experiment.store import Lines, performed

Rows = dict[str, float]
StudyRow = dict[str, Any]  # one run of a study, by column

STORE = Path(__file__).parent.parent / "docs" / "benchmarks" / "rows.json"
NUMBER = r"[+-]?(?:\d[\d,]*)?\.?\d+"


@dataclass(frozen=True)
class Measured:
    """One run of a benchmark."""

    command: str
    date: str
    version: str  # of lmab
    machine: str
    rows: Rows
    tables: dict[str, str] = field(default_factory=dict)  # as printed, by name: Markdown


def measured(command: str, rows: Rows, tables: Mapping[str, str] | None = None, where: str | None = None) -> Measured:
    """These rows and tables, measured now and, unless another machine is named, here."""
    import lmab

    today = datetime.date.today().isoformat()
    short = {name: float(f"{value:.6g}") for name, value in rows.items()}
    return Measured(command, today, lmab.__version__, where or machine(), short, dict(tables or {}))


def machine() -> str:
    """The processor and the number of cores."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} cores"


def of_table(table: str, labels: Sequence[str]) -> Rows:
    """The numbers of a Markdown table: a row is named by its cells under `labels`, and by the head of the column.

    Examples:
        >>> of_table("| N | found |\\n|---|---|\\n| 1,000 | .9 ± .1 |", ["N"])
        {'1000/found': 0.9, '1000/found/2': 0.1}
    """
    lines = [[cell.strip() for cell in line.strip("| ").split("|")] for line in table.splitlines() if line[:1] == "|"]
    heads, rows = lines[0], {}
    for cells in lines[2:]:
        named = dict(zip(heads, cells, strict=True))
        name = "-".join(_slug(named[label]) for label in labels if named[label])
        for head in heads:
            numbers = [] if head in labels else re.findall(NUMBER, named[head])
            for place, number in enumerate(numbers, 1):
                rows[f"{name}/{_slug(head)}" + (f"/{place}" if place > 1 else "")] = float(number.replace(",", ""))
    return rows


def _slug(text: str) -> str:
    return re.sub(r"[^\w+.]+", "-", text.replace(",", "")).strip("-")


def read(path: Path = STORE) -> dict[str, Measured]:
    """The stored runs, by the name of the benchmark."""
    if not path.exists():
        return {}
    return {name: Measured(**record) for name, record in json.loads(path.read_text()).items()}


def store(name: str, run: Measured, path: Path = STORE) -> None:
    """Keep a run in place of the one before."""
    runs = read(path) | {name: run}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({key: asdict(runs[key]) for key in sorted(runs)}, indent=1, ensure_ascii=False) + "\n")


def resumed(
    path: Path,
    wanted: Mapping[Any, tuple[Any, ...]],
    key_of: Callable[[StudyRow], Hashable],
    run: Callable[..., StudyRow],
    mine: Callable[[StudyRow], bool] = lambda row: True,
) -> list[StudyRow]:
    """The rows of a long study: those that `path` holds, one JSON object a line, then those that are still wanted.

    `wanted` has the arguments of `run` for every row, by its key. The engine of the paper's studies runs and stores
    them: a new row is in the file before the next one is begun, so that a study goes on where it stopped. Rows that are
    not `mine` belong to another study: they stay in the file and are not returned.
    """
    lines = Lines(path)
    rows = [row for row in lines.records() if mine(row)]
    done = {key_of(row) for row in rows}
    for row in performed(run, [call for key, call in wanted.items() if key not in done], jobs=None):
        lines.append(row)
        rows.append(row)
    return rows


def seeded(
    description: str | None, many: str, default: int, path: Path, cases: Sequence[Any],
    case_of: Callable[[StudyRow], tuple[Any, ...]], run: Callable[..., StudyRow],
) -> tuple[list[StudyRow], bool]:  # fmt: skip
    """The rows of a study whose rows are cases (dataclasses) times seeds, and whether its tables are to be stored.

    The command line has the number of seeds (--`many`), the file of the rows (--rows) and --store.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(f"--{many}", dest="many", type=int, default=default, help=f"{many} per case")
    parser.add_argument("--rows", type=Path, default=path, help="where the rows are kept")
    parser.add_argument("--store", action="store_true", help="keep the tables in docs/benchmarks/rows.json")
    arguments = parser.parse_args()
    wanted = {(*case_of(asdict(case)), seed): (case, seed) for seed in range(arguments.many) for case in cases}
    rows = resumed(arguments.rows, wanted, lambda row: (*case_of(row), row["seed"]), run)
    return rows, arguments.store


def flat(runs: dict[str, Measured]) -> Rows:
    """All rows by their full names, `benchmark/row`."""
    return {f"{name}/{key}": value for name, run in runs.items() for key, value in run.rows.items()}
