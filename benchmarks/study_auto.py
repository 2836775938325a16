"""What not knowing the number of contexts costs: `python -m benchmarks.study_auto [--instances 10]`.

DirectMLE learns with `n_contexts="auto"` and with the true number, from the same sessions; values are exact, as shares
of the genie's, and the difference is taken instance by instance.
"""

from __future__ import annotations

import argparse
from collections import Counter

import numpy as np

import lmab

# kind of instance ("one": a single context), contexts, arms, horizon, episodes
CASES = [
    ("one", 1, 20, 5, 5_000),
    ("ordinary", 3, 10, 5, 2_000),
    ("ordinary", 3, 10, 5, 20_000),
    ("spread", 5, 20, 6, 5_000),
    ("spherical", 4, 20, 5, 5_000),
    ("spherical", 4, 20, 5, 50_000),
    ("spherical", 5, 50, 7, 2_000),
    ("spherical", 5, 50, 7, 10_000),
    ("hard", 4, 20, 5, 2_000),
    ("hard", 4, 20, 5, 20_000),
    ("deep", 4, 20, 5, 5_000),
]
PLANNING_SECONDS = 10.0


def instance(kind: str, n_contexts: int, n_arms: int, number: int) -> lmab.LatentBandit:
    rng = np.random.default_rng([77, n_contexts, n_arms, number])
    if kind == "one":
        return lmab.LatentBandit.bernoulli([1.0], rng.uniform(0.1, 0.9, (1, n_arms)))
    return lmab.random_bandit(n_contexts, n_arms, kind=kind, rng=rng)


def learned(
    bandit: lmab.LatentBandit, n_contexts: int | str, horizon: int, n_episodes: int, number: int
) -> tuple[int, float]:
    """The number of contexts of the learned model, and what its policy earns."""
    environment = lmab.Simulator(bandit, horizon=horizon, rng=np.random.default_rng([1, number]))
    rng, learner = np.random.default_rng([2, number]), lmab.DirectMLE(n_contexts)
    found = lmab.learn(environment, learner, n_episodes=n_episodes, rng=rng, time_limit=PLANNING_SECONDS)
    return found.bandit.n_contexts, lmab.evaluate(found.policy, bandit, horizon=horizon).mean


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=10)
    n_instances = parser.parse_args().instances
    print("| kind, M, A, H | episodes | chosen (times) | auto | true number | difference |\n|---|---|---|---|---|---|")
    for kind, n_contexts, n_arms, horizon, n_episodes in CASES:
        chosen: Counter[int] = Counter()
        shares = np.empty((n_instances, 2))
        for number in range(n_instances):
            bandit = instance(kind, n_contexts, n_arms, number)
            plan = lmab.plan(bandit, horizon=horizon, time_limit=PLANNING_SECONDS)
            genie = lmab.evaluate(plan.policy, bandit, horizon=horizon).mean
            size, value = learned(bandit, "auto", horizon, n_episodes, number)
            chosen[size] += 1
            shares[number] = value / genie, learned(bandit, n_contexts, horizon, n_episodes, number)[1] / genie
        lost = shares[:, 0] - shares[:, 1]
        error = lost.std(ddof=1) / np.sqrt(n_instances)
        times = ", ".join(f"{size} ({count})" for size, count in sorted(chosen.items()))
        auto, given = shares.mean(axis=0)
        print(
            f"| {kind}, {n_contexts}, {n_arms}, {horizon} | {n_episodes:,} | {times} | {auto:.4f} | {given:.4f} "
            f"| {lost.mean():+.4f} ± {error:.4f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
