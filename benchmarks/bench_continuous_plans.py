"""Certified plans for normal rewards and counts: how many of 30 + 20 random bandits close to 1% within 10 seconds.

`python -m benchmarks.bench_continuous_plans [gaussian | counts | fresh | leaving | once]` prints one row per plan.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import numpy as np

import lmab

LIMIT = 10.0  # seconds for each plan


def gaussian(
    n: int, first: int, most_types: int = 6, most_arms: int = 30, most_steps: int = 8
) -> Iterator[tuple[str, int, lmab.LatentBandit]]:
    """Bandits with 2 to 6 types, 3 to 30 arms, 2 to 8 steps and scales from 0.2 to 1."""
    for seed in range(first, first + n):
        rng = np.random.default_rng(seed)
        n_types = int(rng.integers(2, most_types + 1))
        n_arms = int(np.exp(rng.uniform(np.log(3), np.log(most_arms + 0.99))))
        horizon, scale = int(rng.integers(2, most_steps + 1)), float(rng.uniform(0.2, 1))
        weights, means = rng.dirichlet(np.full(n_types, 3.0)), rng.uniform(0, 1, (n_types, n_arms))
        yield (
            f"normal {n_types} {n_arms} {horizon} {scale:.2f}",
            horizon,
            lmab.LatentBandit.gaussian(weights, means, scale=scale),
        )


def counts(n: int, first: int, leaving: bool = False) -> Iterator[tuple[str, int, lmab.LatentBandit]]:
    """The same sizes with counts of means from 0 to 3, and sessions that may end."""
    for seed in range(first, first + n):
        rng = np.random.default_rng(seed)
        n_types, n_arms = int(rng.integers(2, 7)), int(np.exp(rng.uniform(np.log(3), np.log(30.99))))
        horizon = int(rng.integers(2, 9))
        weights, means = rng.dirichlet(np.full(n_types, 3.0)), rng.uniform(0, 3, (n_types, n_arms))
        chances = rng.beta(1, 8, (n_types, n_arms, 3)) if leaving else None
        bandit = lmab.LatentBandit.counts(weights, means, leaving=chances)
        yield f"counts {n_types} {n_arms} {horizon}{' leaving' if leaving else ''}", horizon, bandit


def main(which: list[str]) -> None:
    parts = {
        "gaussian": lambda: gaussian(30, 1000),
        "fresh": lambda: gaussian(20, 7000),
        "counts": lambda: counts(20, 8000),
        "leaving": lambda: counts(20, 9000, leaving=True),
    }
    lmab.plan(lmab.LatentBandit.gaussian([0.5, 0.5], [[0.0, 1], [1, 0]]), horizon=3)
    for name in [part for part in which if part in parts] or list(parts):
        for repeats in (True,) if "once" not in which else (False,):
            gaps, seconds, statuses = [], [], []
            for label, horizon, bandit in parts[name]():
                steps = horizon if repeats else min(horizon, bandit.n_arms)
                start = time.perf_counter()
                plan = lmab.plan(bandit, horizon=steps, time_limit=LIMIT, repeats=repeats)
                seconds.append(time.perf_counter() - start)
                gaps.append(plan.gap)
                statuses.append(str(plan.status))
                bounds = f"{plan.lower:.5f} {plan.upper:.5f}, gap {100 * plan.gap:.3f}%"
                print(f"{label}: {bounds}, {plan.status}, {seconds[-1]:.2f} s")
            closed = sum(gap <= 0.01 for gap in gaps)
            print(
                f"{name}{'' if repeats else ' without repeats'}: {closed} of {len(gaps)} at 1%, mean gap "
                f"{100 * np.mean(gaps):.3f}%, longest {max(seconds):.2f} s, {sorted(set(statuses))}",
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1:])
