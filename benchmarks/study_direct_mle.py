"""What DirectMLE's options are worth: `python -m benchmarks.study_direct_mle auto|thompson|simple [--instances 10]`.

auto: `n_types="auto"` against the true number, after uniform play. thompson: rounds of Thompson sampling against
uniform play alone. simple: the learned prior against 1.5 pseudo-plays at each arm's own mean, one type, UCB, and the
best fixed arm.
All learn from the same sessions as far as they play the same; values are exact, as shares of the genie's, and
differences are taken instance by instance.
"""

from __future__ import annotations

import argparse
from collections import Counter
from typing import NamedTuple

import numpy as np

import lmab

from . import rows as stored
from .study_coverage import Truth, independent, probe, sparse

KINDS: dict[str, Truth] = {"probe": probe, "sparse": sparse, "independent": independent}
LABELS = ("kind, M, A, H", "sessions")
PLANNING_SECONDS = 10.0


class Case(NamedTuple):
    kind: str  # of `random_bandit`, or "one": a single type, or one of `KINDS`
    n_types: int
    n_arms: int
    horizon: int
    n_sessions: int

    def __str__(self) -> str:
        return "{}, {}, {}, {} | {:,}".format(*self)

    def draw(self, number: int) -> lmab.LatentBandit:
        rng = np.random.default_rng([77, self.n_types, self.n_arms, number])
        if self.kind == "one":
            return lmab.LatentBandit.bernoulli([1.0], rng.uniform(0.1, 0.9, (1, self.n_arms)))
        if self.kind in KINDS:
            return KINDS[self.kind](rng, self.n_types, self.n_arms)
        return lmab.random_bandit(self.n_types, self.n_arms, kind=self.kind, rng=rng)


AUTO = [
    Case("one", 1, 20, 5, 5_000),
    Case("ordinary", 3, 10, 5, 2_000),
    Case("ordinary", 3, 10, 5, 20_000),
    Case("spread", 5, 20, 6, 5_000),
    Case("spherical", 4, 20, 5, 5_000),
    Case("spherical", 4, 20, 5, 50_000),
    Case("spherical", 5, 50, 7, 2_000),
    Case("spherical", 5, 50, 7, 10_000),
    Case("hard", 4, 20, 5, 2_000),
    Case("hard", 4, 20, 5, 20_000),
    Case("deep", 4, 20, 5, 5_000),
    Case("hard", 4, 20, 5, 500),
    Case("probe", 4, 20, 5, 2_000),
    Case("independent", 6, 20, 7, 1_000),
    Case("sparse", 4, 20, 7, 2_000),
    Case("one", 1, 20, 7, 500),
]
SIMPLE = [
    Case("sparse", 4, 20, 7, 2_000),
    Case("sparse", 4, 20, 7, 20_000),
    Case("hard", 4, 20, 5, 500),
    Case("probe", 4, 20, 5, 2_000),
    Case("spherical", 5, 50, 7, 2_000),
    Case("spherical", 5, 50, 7, 10_000),
]
THOMPSON = [*SIMPLE, Case("spherical", 5, 200, 7, 20_000), Case("spherical", 5, 1_000, 7, 20_000)]
ROUNDS = (0, 2)


def genie(case: Case, bandit: lmab.LatentBandit) -> float:
    plan = lmab.plan(bandit, horizon=case.horizon, time_limit=PLANNING_SECONDS)
    return lmab.evaluate(plan.policy, bandit, horizon=case.horizon).mean


def learned(case: Case, bandit: lmab.LatentBandit, learner: lmab.DirectMLE, number: int) -> tuple[int, float]:
    """The number of types of the learned model, and what its policy earns."""
    environment = lmab.Simulator(bandit, horizon=case.horizon, rng=np.random.default_rng([1, number]))
    rng = np.random.default_rng([2, number])
    found = lmab.learn(environment, learner, n_sessions=case.n_sessions, rng=rng, time_limit=PLANNING_SECONDS)
    assert found.bandit is not None  # DirectMLE fits one
    return found.bandit.n_types, lmab.evaluate(found.policy, bandit, horizon=case.horizon).mean


def earned(case: Case, bandit: lmab.LatentBandit, learner: lmab.learning.Learner, number: int) -> float:
    """What the policy of any learner earns."""
    environment = lmab.Simulator(bandit, horizon=case.horizon, rng=np.random.default_rng([1, number]))
    rng = np.random.default_rng([2, number])
    found = lmab.learn(environment, learner, n_sessions=case.n_sessions, rng=rng, time_limit=PLANNING_SECONDS)
    return lmab.evaluate(found.policy, bandit, horizon=case.horizon).mean


def difference(ours: np.ndarray, theirs: np.ndarray) -> str:
    error = (ours - theirs).std(ddof=1) / np.sqrt(len(ours))
    return f"{(ours - theirs).mean():+.4f} ± {error:.4f}"


def study_auto(n_instances: int, first: int = 0) -> str:
    lines = [
        "| kind, M, A, H | sessions | chosen (times) | auto | true number | difference |",
        "|---|---|---|---|---|---|",
    ]
    for case in AUTO:
        chosen: Counter[int] = Counter()
        shares = np.empty((n_instances, 2))
        for row, number in enumerate(range(first, first + n_instances)):
            bandit = case.draw(number)
            size, auto = learned(case, bandit, lmab.DirectMLE("auto", thompson_rounds=0), number)
            _, given = learned(case, bandit, lmab.DirectMLE(case.n_types, thompson_rounds=0), number)
            chosen[size] += 1
            shares[row] = np.array([auto, given]) / genie(case, bandit)
        times = ", ".join(f"{size} ({count})" for size, count in sorted(chosen.items()))
        auto, given = shares.mean(axis=0)
        lines.append(f"| {case} | {times} | {auto:.4f} | {given:.4f} | {difference(*shares.T)} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def study_simple(n_instances: int, first: int = 0) -> str:
    lines = [
        "| kind, M, A, H | sessions | learned prior | over own means | over one type | over UCB | over the best arm |",
        "|---|---|---|---|---|---|---|",
    ]
    own_means = lmab.EM(restarts=8, tolerance=1e-6, prior=1.5)
    for case in SIMPLE:
        shares = np.empty((n_instances, 5))
        for row, number in enumerate(range(first, first + n_instances)):
            bandit = case.draw(number)
            learners = (
                lmab.DirectMLE(case.n_types),
                lmab.DirectMLE(case.n_types, method=own_means),
                lmab.DirectMLE(1),
                lmab.learning.UCB(),
            )
            values = [earned(case, bandit, learner, number) for learner in learners]
            shares[row] = np.array([*values, bandit.best_fixed(case.horizon)]) / genie(case, bandit)
        over = " | ".join(difference(shares[:, 0], column) for column in shares.T[1:])
        lines.append(f"| {case} | {shares[:, 0].mean():.4f} | {over} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def study_thompson(n_instances: int, first: int = 0) -> str:
    gains = " | ".join(f"{n} rounds, gain" for n in ROUNDS[1:])
    lines = [f"| kind, M, A, H | sessions | uniform | {gains} |", "|---" * (2 + len(ROUNDS)) + "|"]
    for case in THOMPSON:
        shares = np.empty((n_instances, len(ROUNDS)))
        for row, number in enumerate(range(first, first + n_instances)):
            bandit = case.draw(number)
            learners = [lmab.DirectMLE(case.n_types, thompson_rounds=rounds) for rounds in ROUNDS]
            values = [learned(case, bandit, learner, number)[1] for learner in learners]
            shares[row] = np.array(values) / genie(case, bandit)
        gains = " | ".join(difference(column, shares[:, 0]) for column in shares.T[1:])
        lines.append(f"| {case} | {shares[:, 0].mean():.4f} | {gains} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


STUDIES = {"auto": study_auto, "thompson": study_thompson, "simple": study_simple}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("option", choices=list(STUDIES))
    parser.add_argument("--instances", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="number of the first instance: others are fresh")
    parser.add_argument("--store", arm="store_true", help="keep the table in docs/benchmarks/rows.json")
    arguments = parser.parse_args()
    table = STUDIES[arguments.option](arguments.instances, arguments.first)
    if arguments.store:
        command = f"python -m benchmarks.study_direct_mle {arguments.option} --instances {arguments.instances}"
        command += f" --first {arguments.first}" if arguments.first else ""
        rows = stored.of_table(table, LABELS)
        stored.store(f"study_direct_mle_{arguments.option}", stored.measured(command, rows, {"": table}))


if __name__ == "__main__":
    main()
