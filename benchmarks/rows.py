"""Rows: what a benchmark measured, by name, with the command, the day, the version and the machine.

A benchmark's `main` prints and returns its rows. `python -m benchmarks NAME --store` keeps them in
`docs/benchmarks/rows.json`, and README and pages take their figures from there (see `figures`).
"""

from __future__ import annotations

import datetime
import json
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path

Rows = dict[str, float]

STORE = Path(__file__).parent.parent / "docs" / "benchmarks" / "rows.json"


@dataclass(frozen=True)
class Measured:
    """One run of a benchmark."""

    command: str
    date: str
    version: str  # of lmab
    machine: str
    rows: Rows


def measured(command: str, rows: Rows) -> Measured:
    """These rows, measured here and now."""
    import lmab

    today = datetime.date.today().isoformat()
    short = {name: float(f"{value:.6g}") for name, value in rows.items()}
    return Measured(command, today, lmab.__version__, machine(), short)


def machine() -> str:
    """The processor and the number of cores."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} cores"


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


def flat(runs: dict[str, Measured]) -> Rows:
    """All rows by their full names, `benchmark/row`."""
    return {f"{name}/{key}": value for name, run in runs.items() for key, value in run.rows.items()}
