"""Simulation speed, and how fast a log of 10^7 steps becomes sessions, in processor time."""

from __future__ import annotations

import resource
import time

import numpy as np
import pyarrow as pa

import lmab

from .rows import Rows

STEPS = 10**7


def main() -> Rows:
    rng, rows = np.random.default_rng(0), {}
    bandit = lmab.random_bandit(7, 50, rng=rng)
    for policy in (lmab.Uniform(50), lmab.Greedy(bandit), lmab.Thompson(bandit)):
        start = time.process_time()
        log = lmab.simulate(bandit, policy, n_sessions=200_000, horizon=7, rng=rng)
        rate = log.n_steps / (time.process_time() - start)
        print(f"simulate, M=7 A=50 H=7, {policy.kind:8}: {rate / 1e6:6.1f} million steps/s")
        rows[f"simulate/{policy.kind}"] = rate
    table = _log(rng)
    rows["from-frame/in-order"] = _ingest("in order", table)
    rows["from-frame/shuffled"] = _ingest("shuffled", table.take(pa.array(rng.permutation(STEPS))))
    return rows


def _log(rng: np.random.Generator) -> pa.Table:
    steps = np.arange(STEPS)
    return pa.table(
        {"e": steps // 7, "t": steps % 7, "a": rng.integers(200, size=STEPS), "r": rng.integers(2, size=STEPS) * 1.0}
    )


def _ingest(name: str, table: pa.Table) -> float:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    lmab.Sessions.from_frame(table, session="e", arm="a", reward="r", step="t")
    seconds = time.process_time() - start
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    print(
        f"from_frame, 10^7 steps {name}: {seconds:.2f} s, peak grew by {grown / table.nbytes:.2f}x the columns' memory"
    )
    return seconds


if __name__ == "__main__":
    main()
