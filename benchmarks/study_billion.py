"""Up to 1e9 sessions of 7 steps, simulated straight into a pack and fitted with 8 types, on one machine.

`python -m benchmarks.study_billion FOLDER [SESSIONS ...]` runs 1e8 and 1e9 sessions unless it is told others. Each size
runs in a process of its own and prints seconds of the processor and on the clock, and the peak of its own memory. 1e9
sessions need about 16 GB of disk in FOLDER, which are given back at the end. With --store the rows are kept, and
`python -m benchmarks.figures` brings them into the page on large logs.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from . import rows as stored
from .bench_pack import run

SESSIONS = (10**8, 10**9)
COMMAND = "python -m benchmarks.study_billion FOLDER"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the packed logs are written")
    parser.add_argument("sessions", type=float, nargs="*", default=list(SESSIONS))
    parser.add_argument("--store", action="store_true", help="keep the rows in docs/benchmarks/rows.json")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    found: stored.Rows = {}
    for n_sessions in map(int, arguments.sessions):
        found |= measured(arguments.folder, n_sessions)
        if arguments.store:  # after each size, since the next may take an hour
            stored.store("study_billion", stored.measured(COMMAND, found))


def measured(folder: Path, n_sessions: int) -> stored.Rows:
    """The rows of one size, printed too; its files are removed."""
    try:
        found = run("grow", folder, n_sessions)
    finally:
        shutil.rmtree(folder / f"grow-{n_sessions}", ignore_errors=True)
    seconds, wall, own = (found[f"grow/{n_sessions}/{name}"] for name in ("seconds", "wall", "own-MB"))
    print(
        f"{n_sessions:,} sessions packed and fitted: {seconds:,.0f} s of processor time, {wall:,.0f} s on the clock, "
        f"{own:,.0f} MB of its own at the peak",
        flush=True,
    )
    return found


if __name__ == "__main__":
    main()
