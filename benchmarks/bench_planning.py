"""Time to a certified 1%, compile and load times, and pomdp-py on the same problems at equal time.

Wall-clock seconds, and in brackets those the processor spent on it: on a busy machine the two differ.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import lmab

CASES = [
    *(((7, 50, 7), kind, 1.0) for kind in ("ordinary", "spread", "hard", "deep", "spherical")),
    ((10, 200, 10), "ordinary", 1.5),
    ((10, 200, 10), "spread", 1.5),
    ((7, 50, 20), "hard", 20.0),
    ((10, 200, 10), "hard", 60.0),
]


def main() -> None:
    _compilation()
    tiny = lmab.random_bandit(2, 5, kind="hard", rng=np.random.default_rng(0))
    for method in (lmab.Certified(), lmab.Exact()):
        lmab.plan(tiny, horizon=4, method=method)  # kernels loaded
    print("time to a certified gap of 1%:")
    for (n_contexts, n_arms, horizon), kind, goal in CASES:
        bandit = lmab.random_bandit(n_contexts, n_arms, kind=kind, rng=np.random.default_rng(0))
        plan, wall, used = _timed(
            lambda bandit=bandit, horizon=horizon: lmab.plan(bandit, horizon=horizon, time_limit=300)
        )
        greedy = lmab.plan(bandit, horizon=horizon, method=lmab.QMDP()).policy
        worth = _value(greedy, bandit, horizon)
        print(
            f"  M={n_contexts:2} A={n_arms:3} H={horizon:2} {kind:9}: {wall:6.2f} s ({used:6.2f}), goal {goal:4.1f}; "
            f"optimum in [{plan.lower:.4f}, {plan.upper:.4f}], Q-MDP {worth:.4f} ({1 - worth / plan.upper:+.1%} lost)",
            flush=True,
        )
    _peer()


def _timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    wall, used = time.perf_counter(), time.process_time()
    result = work()
    return result, time.perf_counter() - wall, time.process_time() - used


def _value(policy: lmab.Policy, bandit: lmab.LatentBandit, horizon: int) -> float:
    if horizon <= 10:
        return lmab.evaluate(policy, bandit, horizon=horizon).mean
    return lmab.evaluate(policy, bandit, horizon=horizon, n_episodes=20_000, rng=np.random.default_rng(0)).mean


def _compilation() -> None:
    """A first process compiles into an empty cache, a second one loads from it."""
    program = """
import time; start = time.perf_counter(), time.process_time()
import lmab
for method in (lmab.Certified(), lmab.Exact()):
    lmab.plan(lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]]), horizon=5, method=method)
print(time.perf_counter() - start[0], time.process_time() - start[1])
"""
    with tempfile.TemporaryDirectory() as cache:
        for name in ("first process, kernels compiled", "second process, kernels loaded"):
            environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
            command = [sys.executable, "-c", program]
            run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            wall, used = (float(number) for number in run.stdout.split())
            print(f"{name}, and a first plan: {wall:.2f} s ({used:.2f})", flush=True)


def _peer() -> None:
    try:
        from .peer_pomdp import pouct, value_iteration
    except ImportError:
        print("pomdp-py is not installed: no comparison")
        return
    print("pomdp-py's exact value iteration beside Exact:")
    for n_contexts, n_arms, horizon in ((2, 2, 3), (3, 3, 3), (2, 2, 4)):
        bandit = lmab.random_bandit(n_contexts, n_arms, kind="ordinary", rng=np.random.default_rng(0))
        ours, wall, _ = _timed(lambda b=bandit, h=horizon: lmab.plan(b, horizon=h, method=lmab.Exact()))
        arm, theirs, _ = _timed(lambda b=bandit, h=horizon: value_iteration(b, h))
        first = "same first arm" if arm == ours.policy.act_on([]) else "another first arm (a tie, or an error)"
        print(
            f"  M={n_contexts} A={n_arms} H={horizon}: {wall * 1e3:.2f} ms, pomdp-py {theirs * 1e3:.0f} ms, "
            f"{theirs / wall:.0f} times as long; {first}",
            flush=True,
        )
    print("pomdp-py's POUCT with, for each decision, the time our whole plan took:")
    for kind, sessions in (("ordinary", 100), ("hard", 30), ("deep", 30)):
        bandit, horizon = lmab.random_bandit(7, 50, kind=kind, rng=np.random.default_rng(0)), 7
        plan, wall, _ = _timed(lambda b=bandit: lmab.plan(b, horizon=7))
        value = lmab.evaluate(plan.policy, bandit, horizon=horizon).mean
        totals, took, _ = _timed(lambda b=bandit, t=wall, n=sessions: pouct(b, 7, max(t, 0.02), n))
        stderr = np.std(totals) / np.sqrt(len(totals))
        print(
            f"  M=7 A=50 H=7 {kind:9}: ours {value:.3f} exactly, planned in {wall:.2f} s; "
            f"POUCT {np.mean(totals):.3f} ± {stderr:.3f}, {took / sessions:.2f} s per session",
            flush=True,
        )


if __name__ == "__main__":
    main()
