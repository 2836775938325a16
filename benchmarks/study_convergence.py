"""Log-likelihood that remains to be gained after a fit has converged, beside a much longer run, on 40 logs.

python -m benchmarks.study_convergence [--store]

For each log EM climbs from one start, with SQUAREM alone and with L-BFGS after 100 iterations, until its tolerance is
reached. A run of L-BFGS with a tolerance 10,000 times smaller continues from there; its gain is what remained.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np

import lmab
from lmab.estimation.climb import Likelihood, climb
from lmab.estimation.families import observe
from lmab.estimation.quasi_newton import maximise
from lmab.parallel import Threads

from .rows import Rows, measured, store

_SIZES = (1_000, 3_000, 10_000, 30_000)
_SEEDS = 10
_PRIOR = 1.5  # pseudo-plays per type and arm
_TOLERANCE = 1e-8  # per distinct session, as `lmab.EM` has it


@dataclass(frozen=True)
class Remaining:
    """One climb: how it ended, and what a longer run gained."""

    n_maps: int
    tolerated: float
    remained: float


def remaining(n_sessions: int, seed: int) -> dict[str, Remaining]:
    """Return what remained after the climb with each method, from the same start."""
    rng = np.random.default_rng([seed, n_sessions])
    n_types, n_arms = int(rng.integers(3, 7)), int(rng.integers(8, 25))
    bandit = lmab.random_bandit(n_types, n_arms, rng=rng)
    log = observe(lmab.simulate(bandit, lmab.Uniform(n_arms), n_sessions=n_sessions, horizon=5, rng=rng))
    left = _TOLERANCE * log.n_distinct * min(1.0, log.n_distinct / 10_000)
    found = {}
    with Threads(1) as passes:
        task = Likelihood(log, n_types, log.prior(_PRIOR), passes)
        start = log.soften(log.pack(bandit))
        for name, smooth in (("squarem", None), ("lbfgs", task.smooth)):
            outcome = climb(task, start, left=left, max_maps=5_000, accelerate=True, smooth=smooth)
            longer = maximise(
                task.smooth(outcome.models[0]), outcome.models[0], left=left * 1e-4, max_evaluations=5_000
            )
            found[name] = Remaining(int(outcome.n_maps[0]), left, longer.objective - float(outcome.objectives[0]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", action="store_true", help="keep the rows in docs/benchmarks/rows.json")
    arguments = parser.parse_args()
    runs = [remaining(n, seed) for n in _SIZES for seed in range(_SEEDS)]
    slow = [run for run in runs if run["squarem"].n_maps > 100]
    rows: Rows = {"logs": len(runs), "slow": len(slow)}
    for group, members in (("all", runs), ("slow", slow)):
        for name in ("squarem", "lbfgs"):
            own = [run[name] for run in members]
            ratios = [max(one.remained, 0.0) / one.tolerated for one in own]
            rows |= {
                f"{group}/{name}/within": sum(ratio <= 1 for ratio in ratios),
                f"{group}/{name}/median-ratio": float(np.median(ratios)),
                f"{group}/{name}/worst-ratio": max(ratios),
                f"{group}/{name}/worst": max(one.remained for one in own),
                f"{group}/{name}/maps": float(np.mean([one.n_maps for one in own])),
            }
    for name, value in rows.items():
        print(f"{name}: {value:.4g}")
    if arguments.store:
        store("convergence", measured("python -m benchmarks.study_convergence", rows))


if __name__ == "__main__":
    main()
