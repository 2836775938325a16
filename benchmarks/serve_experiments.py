"""Memory of a service with many idle experiments, each with a policy in force.

python -m benchmarks.serve_experiments --experiments 30
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from .serve_load import Served, write_policy
from .serve_ratio import add_experiments

LIMIT = 400  # megabytes of 30 experiments


def memory(process: int) -> float:
    """Return the megabytes of physical memory of a process."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))


def study(folder: Path, n_experiments: int) -> tuple[float, float]:
    """Return the memory of a service with one experiment, and with all of them after a new start."""
    policy = folder / "policy.lmab"
    write_policy(policy)
    served = Served(str(folder / "events.db"), str(policy))
    found = []
    for number in (n_experiments, 0):
        served.start()
        try:
            assert served.process is not None
            found.append(memory(served.process.pid))
            if number:
                add_experiments(served, policy, number)
        finally:
            served.kill()
    return found[0], found[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=30)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lmab-experiments-") as name:
        one, many = study(Path(name), given.experiments)
    print(f"1 experiment: {one:.0f} MB; {given.experiments} idle experiments: {many:.0f} MB (at most {LIMIT})")
    sys.exit(many > LIMIT)


if __name__ == "__main__":
    main()
