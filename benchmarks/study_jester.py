"""What `examples/jester.py` finds on real people, kept: `python -m benchmarks.study_jester PATH [--splits] [--store]`.

With `--splits`, five splits of the people (replays of the first were seen while the example's sizes, ranks and
priors were chosen): the gain of types over popularity in each.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from . import rows as stored

EXAMPLE = Path(__file__).parent.parent / "examples" / "jester.py"
LABELS = ("reward", "L", "H")
SPLITS = range(5)
_GAIN = "types, greedy"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", help="the ratings, as the example takes them")
    parser.add_argument("--store", action="store_true", help="keep the table in docs/benchmarks/rows.json")
    parser.add_argument("--splits", action="store_true", help="five splits of the people, and types alone")
    arguments = parser.parse_args()
    name, command = "study_jester", "python -m benchmarks.study_jester PATH"
    if arguments.splits:
        name, command = f"{name}_splits", f"{command} --splits"
        table = by_split([found(arguments.path, split) for split in SPLITS])
        print(table)
    else:
        table = found(arguments.path, 0)
    if arguments.store:
        stored.store(name, stored.measured(command, stored.of_table(table, LABELS), {"": table}))


def found(path: str, split: int) -> str:
    """The example's table for one split; the jokes shown are those of the seed after it."""
    command = [sys.executable, str(EXAMPLE), path, "--split", str(split), "--seed", str(split + 1)]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    print(printed, flush=True)
    return "\n".join(line for line in printed.splitlines() if line.startswith("|"))


def by_split(tables: Sequence[str]) -> str:
    """The gain of types over popularity: a row per place, a column per split, and the mean."""
    parts = [[[cell.strip() for cell in line.strip("| ").split("|")] for line in one.splitlines()] for one in tables]
    heads = parts[0][0]
    labels, column = [heads.index(label) for label in LABELS], heads.index(_GAIN)
    lines = [f"| {' | '.join(LABELS)} | {' | '.join(f'split {split}' for split in SPLITS)} | mean |"]
    lines.append("|---" * (len(LABELS) + len(tables) + 1) + "|")
    for rows in zip(*(part[2:] for part in parts), strict=True):
        gains = [row[column] for row in rows]
        mean = sum(float(gain.split()[0]) for gain in gains) / len(gains)
        lines.append(f"| {' | '.join(rows[0][label] for label in labels)} | {' | '.join(gains)} | {mean:+.3f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
