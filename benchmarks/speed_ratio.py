"""Processor time of fits, plans and commands in this version beside an earlier one, in one run.

git worktree add ../before COMMIT && python -m benchmarks.speed_ratio ../before [--store]

The earlier version must be one with `lmab report --certify`. Every row is measured in processes of both versions in
turn, so that other programs on the machine slow both down. A row is the least processor time of its repeats; of the
default fits, the longest of the seeds. The environment sets no number of BLAS threads, as for a user.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .rows import Rows, measured, store

_EM = ((7, 7, 50, 300_000), (5, 5, 20, 300_000), (32, 7, 50, 100_000), (3, 60, 20, 50_000))  # types, steps, arms, N
_FITS = (300, 2_000, 20_000, 200_000)  # sessions
_PLANS = ((20, 1000, 7), (50, 100, 10))  # types, arms, steps
_STEPS = 6  # of the sessions of `lmab sample`

_LOG = """
import json, time, numpy as np, lmab, warnings
warnings.simplefilter("ignore")
def log_of(n_types, horizon, n_arms, n, seed):
    rng = np.random.default_rng(seed)
    bandit = lmab.random_bandit(n_types, n_arms, rng=rng)
    return lmab.simulate(bandit, lmab.Uniform(n_arms), n_sessions=n, horizon=horizon, rng=rng)
def best(work, repeats):
    work()
    spent = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        spent.append(time.process_time() - start)
    return min(spent)
"""

_ITERATION = """
from lmab.estimation.climb import Likelihood
from lmab.estimation.families import observe
from lmab.estimation.passes import opened
n_types, horizon, n_arms, n = CASE
log = observe(log_of(n_types, horizon, n_arms, n, 0))
with opened(None, 1) as passes:
    task = Likelihood(log, n_types, log.prior(0.0), passes)
    model = log.random_models(1, n_types, np.random.default_rng(1))
    print(json.dumps(best(lambda: task.map(model), 7) / n * 1e9))
"""

_FIT = """
n, seed = CASE
lmab.fit(log_of(2, 3, 3, 60, 1), n_types=2, rng=0)
log = log_of(5, 5, 20, n, seed)
start = time.process_time()
lmab.fit(log, rng=0)
print(json.dumps(time.process_time() - start))
"""

_PLAN = """
from benchmarks.planning_instances import instance
n_types, n_arms, horizon = CASE
bandit = instance("hard", n_types, n_arms, 0)
lmab.plan(instance("hard", 2, 5, 0), horizon=4)
print(json.dumps(best(lambda: lmab.plan(bandit, horizon=horizon), 1)))
"""


@dataclass(frozen=True)
class Version:
    """One version of the package: its name in the rows, and its source tree."""

    name: str
    tree: Path

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a user who has this version."""
        kept = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
        return kept | {"PYTHONPATH": os.pathsep.join([str(self.tree / "src"), str(Path(__file__).parent.parent)])}

    def compute(self, program: str, case: tuple[int, ...]) -> float:
        """Return the number that a program prints."""
        command = [sys.executable, "-c", (_LOG + program).replace("CASE", repr(case))]
        done = subprocess.run(command, env=self.environment, stdout=subprocess.PIPE, text=True, check=True)
        return float(json.loads(done.stdout.splitlines()[-1]))

    def run(self, folder: Path, *words: str) -> tuple[float, float]:
        """Return the processor time of a command in seconds, and the most memory it held in MB."""
        child = os.fork()
        if child == 0:
            os.chdir(folder)
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            os.execve(sys.executable, [sys.executable, "-m", "lmab", *words], self.environment)
        _, status, used = os.wait4(child, 0)
        if status != 0:
            raise RuntimeError(f"{' '.join(words)} of the version {self.name} must succeed, got status {status}")
        return used.ru_utime + used.ru_stime, used.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def measure(before: Version, after: Version, rounds: int, seeds: int) -> Rows:
    """Return the rows of both versions."""
    rows: Rows = {}
    for case in _EM:
        _in_turn(rows, f"em/{'-'.join(map(str, case[:3]))}", before, after, _ITERATION, case, rounds)
    for sizes in _PLANS:
        _in_turn(rows, f"plan/{'-'.join(map(str, sizes))}", before, after, _PLAN, sizes, rounds)
    for n in _FITS:
        for seed in range(seeds):
            _in_turn(rows, f"fit/{n}/{seed}", before, after, _FIT, (n, seed), 1)
        for version in (before, after):
            worst = max(rows[f"fit/{n}/{seed}/{version.name}"] for seed in range(seeds))
            rows[f"fit/{n}/worst/{version.name}"] = worst
    return rows | _commands(before, after, rounds)


def _in_turn(
    rows: Rows, name: str, before: Version, after: Version, program: str, case: tuple[int, ...], rounds: int
) -> None:
    """Add the least of some rounds for both versions, and their ratio."""
    found = [[version.compute(program, case) for version in (before, after)] for _ in range(rounds)]
    old, new = (min(column) for column in zip(*found, strict=True))
    rows |= {f"{name}/{before.name}": old, f"{name}/{after.name}": new, f"{name}/ratio": old / new}
    print(f"{name}: {old:.4g} before, {new:.4g} now, ratio {old / new:.2f}", flush=True)


def _commands(before: Version, after: Version, rounds: int) -> Rows:
    """Return processor time and memory of `lmab fit shop.csv`, and of the way from the log to the report."""
    rows: Rows = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        after.run(folder, "sample", "shop.csv")
        fit = ["fit", "shop.csv", "--arm", "item", "--reward", "click"]
        for version in (before, after) * rounds:
            seconds, megabytes = version.run(folder, *fit)
            helped, _ = version.run(folder, "--help")
            if version is after:
                whole, _ = version.run(folder, *fit, "--then", "plan,report")
            else:
                planned, _ = version.run(folder, "plan", "model.lmab", "--horizon", str(_STEPS))
                report = ["report", "model.lmab", "policy.lmab", "--certify", "shop.csv"]
                reported, _ = version.run(folder, *report, *fit[2:])
                whole = seconds + planned + reported
            found = {"shop": seconds, "shop-MB": megabytes, "help": helped, "report": whole}
            for row, value in found.items():
                key = f"{row}/{version.name}"
                rows[key] = min(value, rows.get(key, value))
            print(version.name, found, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="the source tree of the earlier version")
    parser.add_argument("--rounds", type=int, default=3, help="repeats of each row but the fits")
    parser.add_argument("--seeds", type=int, default=4, help="logs of the default fits of each size")
    parser.add_argument("--store", action="store_true", help="keep the rows in docs/benchmarks/rows.json")
    arguments = parser.parse_args()
    print(f"load of the machine {os.getloadavg()[0]:.1f}; cores {os.cpu_count()}", flush=True)
    versions = Version("before", arguments.before.resolve()), Version("after", Path(__file__).parent.parent)
    rows = measure(*versions, arguments.rounds, arguments.seeds) | {"load": os.getloadavg()[0]}
    if arguments.store:
        store("speed_ratio", measured("python -m benchmarks.speed_ratio TREE", rows))


if __name__ == "__main__":
    main()
