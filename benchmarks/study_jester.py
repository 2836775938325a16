"""What `examples/jester.py` finds on real people, kept: `python -m benchmarks.study_jester PATH [--store]`."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from . import rows as stored

EXAMPLE = Path(__file__).parent.parent / "examples" / "jester.py"
LABELS = ("reward", "L", "H")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", help="the ratings, as the example takes them")
    parser.add_argument("--store", action="store_true", help="keep the table in docs/benchmarks/rows.json")
    arguments = parser.parse_args()
    command = [sys.executable, str(EXAMPLE), arguments.path]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    print(printed)
    table = "\n".join(line for line in printed.splitlines() if line.startswith("|"))
    if arguments.store:
        rows = stored.of_table(table, LABELS)
        stored.store("study_jester", stored.measured("python -m benchmarks.study_jester PATH", rows, {"": table}))


if __name__ == "__main__":
    main()
