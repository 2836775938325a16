"""Sessions that DirectMLE needs on the pairs that prove the lower bound: `python -m benchmarks lower_bound`.

A pair is solved with N sessions if the learned policy is within epsilon of the optimum in at least a share 1 - eta of
the runs on either bandit. N is the first of a grid with ratio sqrt(2), so the factor is known to about 40%.
"""

from __future__ import annotations

import math

import numpy as np

import lmab
from lmab import theory
from lmab.paper.lower_bounds import Mixture, optimal_value

from .rows import Rows

ETA, EPSILON, RUNS = 0.1, 0.1, 200
CASES = ((1, 2), (1, 3), (2, 3))  # types and steps


def main() -> Rows:
    rows: Rows = {}
    for n_types, horizon in CASES:
        bound = theory.sessions_below(n_types, horizon, EPSILON, ETA)
        needed = sessions_needed(bound, n_types, horizon)
        name = f"lower_bound/{n_types}-{horizon}"
        rows |= {f"{name}/bound": float(bound), f"{name}/needed": needed, f"{name}/factor": needed / bound}
        print(f"M = {n_types}, H = {horizon}: at least {bound:.1f} sessions, DirectMLE needs {needed:,.0f}", flush=True)
    return rows


def sessions_needed(bound: theory.LowerBound, n_types: int, horizon: int) -> float:
    for step in range(40):
        n_sessions = math.ceil(float(bound) * math.sqrt(2) ** step)
        if all(_solved(each, n_types, horizon, n_sessions) for each in bound.pair):
            return n_sessions
    return math.inf


def _solved(mixture: Mixture, n_types: int, horizon: int, n_sessions: int) -> bool:
    """Whether at least a share 1 - eta of the runs is within epsilon; stops when too many have failed."""
    bandit, optimum = lmab.LatentBandit.bernoulli(mixture.weights, mixture.means), optimal_value(mixture, horizon)
    failures = 0
    for run in range(RUNS):
        rng = np.random.default_rng([n_types, horizon, n_sessions, run])
        environment = lmab.Simulator(bandit, horizon=horizon, rng=rng)
        learned = lmab.learn(environment, lmab.DirectMLE(n_types=n_types), n_sessions=n_sessions, rng=rng)
        failures += lmab.evaluate(learned.policy, bandit, horizon=horizon).mean < optimum - EPSILON
        if failures > ETA * RUNS:
            return False
    return True
