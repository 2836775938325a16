"""What a certificate costs once the kernels are loaded; no peer has one. How often it holds: `study_certificate`."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np

import lmab
from benchmarks.study_certificate import PROBING
from lmab.evaluation.laplace import information

CASES = [("probing", 500, 4), ("probing", 10_000, 4), ("spherical 5 50", 500, 7), ("spherical 5 50", 10_000, 7)]


def main() -> None:
    for name, n_episodes, horizon in CASES:
        rng = np.random.default_rng(0)
        truth = PROBING if name == "probing" else lmab.random_bandit(*map(int, name.split()[1:]), rng=rng)
        log = lmab.simulate(truth, lmab.Uniform(truth.n_arms), n_episodes=n_episodes, horizon=horizon, rng=rng)
        estimate = lmab.estimate(log, n_contexts=truth.n_contexts, method=lmab.EM(prior=2.0), rng=rng)
        plan = lmab.plan(estimate.bandit, horizon=horizon)
        derivatives = _timed(partial(information, estimate.bandit, estimate.bandit.rewards, log, prior=2.0))
        whole = _timed(partial(lmab.certify, estimate, plan, log, rng=rng))
        print(
            f"{name}, {n_episodes} episodes of {horizon} steps, 100 draws: {whole[0]:.3f} s ({whole[1]:.3f} s of one "
            f"core), of which second derivatives {derivatives[0]:.3f} s"
        )


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    """The least wall and processor time of five runs."""
    seconds = []
    for _ in range(5):
        wall, processor = time.perf_counter(), time.process_time()
        work()
        seconds.append((time.perf_counter() - wall, time.process_time() - processor))
    return min(wall for wall, _ in seconds), min(processor for _, processor in seconds)


if __name__ == "__main__":
    main()
