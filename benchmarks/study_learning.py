"""What learners reach on random spherical instances, V / V genie with the certified planner for both.

`python -m benchmarks.study_learning [--store]` prints the table of docs/learning.md; `make slow` checks its claims. Two
numbers choose other instances: `python -m benchmarks.study_learning 100 200`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import cache

import numpy as np

import lmab

from . import rows as stored

COMMAND = "python -m benchmarks.study_learning"
NUMBERS = range(20)  # of the instances
LEARNERS: dict[str, Callable[[int], lmab.learning.Learner]] = {
    "DirectMLE": lambda n_types: lmab.DirectMLE(n_types, thompson_rounds=0),  # uniform play, as EDMLE begins
    "EDMLE": lmab.learning.EDMLE,
    "EDMLE literal": lambda n_types: lmab.learning.EDMLE(n_types, pairs="first-two"),
    "Tensor": lmab.learning.Tensor,
    "Tensor on pairs": lambda n_types: lmab.learning.Tensor(n_types, method=lmab.TensorDecomposition(features="pairs")),
    "LUCRL": lmab.learning.LUCRL,
    "UCB": lambda n_types: lmab.learning.UCB(),
}
# types, arms, horizon, sessions, learner: least mean fraction of the genie (None: only shown)
CASES: dict[tuple[int, int, int, int, str], float | None] = {
    (4, 20, 5, 50_000, "DirectMLE"): 0.997,
    (4, 20, 5, 50_000, "EDMLE"): 0.988,
    (5, 50, 7, 2_000, "DirectMLE"): 0.945,
    (5, 50, 7, 4_000, "DirectMLE"): 0.97,
    (5, 50, 7, 10_000, "DirectMLE"): 0.98,
    (5, 50, 7, 10_000, "EDMLE"): 0.957,
    (5, 50, 7, 60_000, "EDMLE literal"): None,
    (7, 50, 7, 100_000, "DirectMLE"): 0.993,
    (7, 50, 7, 100_000, "EDMLE"): 0.987,
    (7, 50, 7, 100_000, "LUCRL"): None,
    (7, 50, 7, 100_000, "Tensor"): None,
    (7, 50, 7, 100_000, "Tensor on pairs"): None,
    (7, 50, 7, 100_000, "UCB"): None,
}


@cache
def instance(n_types: int, n_arms: int, horizon: int, number: int) -> tuple[lmab.LatentBandit, float]:
    """A bandit, and what the genie earns on it."""
    bandit = lmab.random_bandit(n_types, n_arms, rng=np.random.default_rng([2022, n_types, n_arms, number]))
    return bandit, value(lmab.plan(bandit, horizon=horizon).policy, bandit, horizon)


def value(policy: lmab.Policy, bandit: lmab.LatentBandit, horizon: int) -> float:
    return lmab.evaluate(policy, bandit, horizon=horizon).mean


@cache
def fractions(
    n_types: int, n_arms: int, horizon: int, n_sessions: int, name: str, numbers: range = NUMBERS
) -> np.ndarray:
    """The learner's value as a fraction of the genie's, for every instance; sessions are shared between learners."""
    found = []
    for number in numbers:
        bandit, best = instance(n_types, n_arms, horizon, number)
        environment = lmab.Simulator(bandit, horizon=horizon, rng=np.random.default_rng([1, number]))
        rng = np.random.default_rng([2, number])
        learned = lmab.learn(environment, LEARNERS[name](n_types), n_sessions=n_sessions, rng=rng)
        found.append(value(learned.policy, bandit, horizon) / best)
    return np.array(found)


def table(numbers: range) -> str:
    lines = ["| types, arms, horizon | sessions | learner | fraction of the genie |", "|---|---|---|---|"]
    for case in CASES:
        found = fractions(*case, numbers)
        error = found.std(ddof=1) / np.sqrt(len(found))
        n_types, n_arms, horizon, n_sessions, learner = case
        head = f"{n_types}, {n_arms}, {horizon} | {n_sessions:,} | {learner}"
        lines.append(f"| {head} | {found.mean():.4f} ± {error:.4f} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("range", nargs="*", type=int, help="first and last number of the instances")
    parser.add_argument("--store", arm="store_true", help="keep the table in docs/benchmarks/rows.json")
    arguments = parser.parse_args()
    text = table(range(*arguments.range) if arguments.range else NUMBERS)
    if arguments.store:
        rows = stored.of_table(text, text.splitlines()[0].strip("| ").split(" | ")[:3])
        stored.store("study_learning", stored.measured(COMMAND, rows, {"": text}))


if __name__ == "__main__":
    main()
