"""How often moment matching recovers the types' weights: `python -m benchmarks.study_moments [SETTING] [--logs 16]`.

Six settings, among them small weights, three types, and plays of a core set. On each fresh log `MomentMatching()` and
`EM()` get the same sessions. A log counts as recovered if all weights are within .05 of the true ones. Distances are
`bandit.distance` to the truth; seconds are of the processor.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import NamedTuple

import numpy as np

import lmab

from . import rows as stored

LABELS = ("setting", "method")
CLOSE = 0.05  # largest error of a weight
METHODS: dict[str, lmab.estimation.Estimator] = {
    "EM": lmab.EM(threads=1),
    "moment matching": lmab.estimation.MomentMatching(),
}


class Setting(NamedTuple):
    """Weights, arms, steps and sessions; half of the sessions play the core set if `core`."""

    weights: tuple[float, ...]
    n_arms: int
    horizon: int
    n_sessions: int
    core: bool = False

    def draw(self, number: int) -> tuple[lmab.LatentBandit, lmab.Sessions]:
        """Return a bandit of random types, and its log."""
        rng = np.random.default_rng([number, 77])
        means = lmab.random_bandit(len(self.weights), self.n_arms, rng=rng).means
        bandit = lmab.LatentBandit.bernoulli(self.weights, means)
        environment = lmab.Simulator(bandit, horizon=self.horizon, rng=rng)
        uniform = rng.integers(self.n_arms, size=(self.n_sessions // (1 + self.core), self.horizon))
        log = environment.play(uniform)
        if not self.core:
            return bandit, log
        pairs = lmab.moments.design(lmab.moments.subspace(log, rank=len(self.weights))).pairs
        arms = np.array([arm for arm, _ in pairs])
        return bandit, log + environment.play(arms[rng.integers(len(arms), size=uniform.shape)])


SETTINGS = {
    "15 arms": Setting((0.1, 0.9), 15, 5, 20_000),
    "10 arms": Setting((0.1, 0.9), 10, 4, 50_000),
    "core plays": Setting((0.1, 0.9), 8, 3, 100_000, core=True),
    "quarter": Setting((0.25, 0.75), 10, 4, 50_000),
    "even": Setting((0.5, 0.5), 10, 4, 50_000),
    "three types": Setting((0.1, 0.3, 0.6), 8, 5, 50_000),
}


def measure(setting: Setting, number: int) -> dict[str, tuple[float, float, float]]:
    """Return the largest error of a weight, the distance to the truth, and the seconds, by method."""
    bandit, log = setting.draw(number)
    found = {}
    for name, method in METHODS.items():
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", lmab.errors.LmabWarning)
            fit = lmab.fit(log, n_types=len(setting.weights), method=method, check=False, rng=1).bandit
        seconds = time.process_time() - start
        error = np.abs(np.sort(fit.weights) - np.sort(setting.weights)).max()
        found[name] = float(error), bandit.distance(fit), seconds
    return found


def main() -> None:
    """Print the table, and store it on demand."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings", nargs="*", help=f"of {', '.join(SETTINGS)}; none: all of them")
    parser.add_argument("--logs", type=int, default=16)
    parser.add_argument("--first", type=int, default=500, help="number of the first log")
    parser.add_argument("--store", action="store_true")
    args = parser.parse_args()
    lines = [
        "| setting | method | recovered | logs | error of a weight | distance | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in args.settings or SETTINGS:
        runs = [measure(SETTINGS[name], number) for number in range(args.first, args.first + args.logs)]
        for method in METHODS:
            error, distance, seconds = np.array([run[method] for run in runs]).T
            cells = [f"{error.mean():.3f}", f"{distance.mean():.3f}", f"{seconds.mean():.2f}"]
            lines.append(f"| {name} | {method} | {(error <= CLOSE).sum()} | {len(error)} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    if args.store and not args.settings:
        command = f"python -m benchmarks.study_moments --logs {args.logs} --first {args.first}"
        table = "\n".join(lines)
        stored.store("study_moments", stored.measured(command, stored.of_table(table, LABELS), {"": table}))


if __name__ == "__main__":
    main()
