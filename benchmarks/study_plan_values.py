"""True values of default plans in this version beside an earlier one, on simulated logs of four kinds.

git worktree add ../before COMMIT && python -m benchmarks.study_plan_values ../before [--logs 10] [--store]

Both versions fit each log and plan for it with their defaults. The value of the policy on the bandit that the log was
simulated from, divided by that of a policy planned on this bandit, is compared log by log.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from .rows import Rows, measured, store
from .speed_ratio import Version

_KINDS = ("spherical", "hard", "ordinary", "similar")

_VALUES = """
import json, warnings, numpy as np, lmab
warnings.simplefilter("ignore")
def value(kind, seed):
    rng = np.random.default_rng([seed, len(kind)])
    if kind == "similar":  # arms differ little within a type
        bandit = lmab.LatentBandit.bernoulli(np.full(3, 1 / 3), rng.beta(12, 28, (3, 10)))
    else:
        bandit = lmab.random_bandit(3, 10, kind=kind, rng=rng)
    log = lmab.simulate(bandit, lmab.Uniform(10), n_sessions=1000, horizon=5, rng=rng)
    policy = lmab.plan(lmab.fit(log, rng=0), horizon=5, repeats=True, time_limit=20).policy
    best = lmab.plan(bandit, horizon=5, repeats=True, time_limit=20).lower
    return lmab.evaluate(policy, bandit, horizon=5).mean / best
for kind in KINDS:
    for seed in range(LOGS):
        print(json.dumps([kind, seed, value(kind, seed)]), flush=True)
"""


def values(version: Version, n_logs: int) -> dict[tuple[str, int], float]:
    """Return the relative value of the default plan of each log."""
    program = _VALUES.replace("KINDS", repr(_KINDS)).replace("LOGS", str(n_logs))
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=version.environment, stdout=subprocess.PIPE, text=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    return {(kind, seed): value for kind, seed, value in lines}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="the source tree of the earlier version")
    parser.add_argument("--logs", type=int, default=10, help="logs of each kind")
    parser.add_argument("--store", action="store_true", help="keep the rows in docs/benchmarks/rows.json")
    arguments = parser.parse_args()
    trees = {"before": arguments.before.resolve(), "after": Path(__file__).parent.parent}
    found = {name: values(Version(name, tree), arguments.logs) for name, tree in trees.items()}
    rows: Rows = {"logs": len(found["after"])}
    groups = {"all": _KINDS} | {kind: (kind,) for kind in _KINDS}
    for name, kinds in groups.items():
        keys = [key for key in found["after"] if key[0] in kinds]
        old, new = (np.array([found[version][key] for key in keys]) for version in ("before", "after"))
        rows |= {
            f"{name}/before": float(old.mean()),
            f"{name}/after": float(new.mean()),
            f"{name}/difference": float((new - old).mean()),
            f"{name}/stderr": float((new - old).std(ddof=1) / np.sqrt(len(keys))),
        }
    for name, value in rows.items():
        print(f"{name}: {value:.4f}")
    if arguments.store:
        store("plan_values", measured("python -m benchmarks.study_plan_values TREE", rows))


if __name__ == "__main__":
    main()
