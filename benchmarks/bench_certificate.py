"""What an assessment costs once the kernels are loaded; no peer has one. How often it holds: `study_certificate`."""

from __future__ import annotations

from functools import partial

import numpy as np

import lmab

from .rows import Rows
from .study_certificate import PROBING
from .timing import fastest

CASES = {
    "probing-500": ("probing", 500, 4),
    "probing-10000": ("probing", 10_000, 4),
    "spherical-500": ("spherical 5 50", 500, 7),
    "spherical-10000": ("spherical 5 50", 10_000, 7),
    "long": ("spherical 4 20", 2_000, 20),
}


def main() -> Rows:
    rows: Rows = {}
    for key, (name, n_sessions, horizon) in CASES.items():
        rng = np.random.default_rng(0)
        truth = PROBING if name == "probing" else lmab.random_bandit(*map(int, name.split()[1:]), rng=rng)
        log = lmab.simulate(truth, lmab.Uniform(truth.n_arms), n_sessions=n_sessions, horizon=horizon, rng=rng)
        estimate = lmab.fit(log, n_types=truth.n_types, method=lmab.EM(prior=2.0), rng=rng)
        plan = lmab.plan(estimate.bandit, horizon=horizon)
        second = fastest(estimate.information, repeats=5)
        whole = fastest(partial(lmab.assess, estimate, plan, log, rng=rng), repeats=1 if key == "long" else 5)
        print(
            f"{name}, {n_sessions} sessions of {horizon} steps, 100 draws: {whole.wall:.3f} s ({whole.used:.3f} s of "
            f"one core), of which second derivatives {second.wall:.3f} s"
        )
        rows |= {f"{key}/wall": whole.wall, f"{key}/used": whole.used, f"{key}/information": second.used}
    return rows


if __name__ == "__main__":
    main()
