"""How often the assessment of a traits fit holds: `python -m benchmarks.study_traits_coverage [--logs 60] [--store]`.

Every row draws a fresh truth (two factors, 30 arms) and a log of five random arms per session, fits, plans greedily
without repeats, certifies, and compares the intervals for the value and the gain over the best fixed list, claimed at
90%, with what 20,000 people of the truth earn. Rows go to FILE as they are done, and those already there are not done
again. The seeds are other ones than those that the rule of the assessment was chosen on.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import lmab
from lmab.estimation.traits.surface import Points

from . import rows as stored

ROWS = Path(__file__).parent.parent / "docs" / "coverage" / "traits.jsonl"
N_ARMS, HORIZON, N_PEOPLE = 30, 5, 20_000
METHOD = lmab.Traits(n_factors=3, n_points=64, threads=1)
_SEED = 84_000


@dataclass(frozen=True)
class Case:
    n_sessions: int


CASES = [Case(2000), Case(500)]


@dataclass(frozen=True, eq=False)
class Truth:
    """Log-odds b + w.u with u normal."""

    levels: np.ndarray  # (A,)
    loadings: np.ndarray  # (A, 2)

    def chances(self, factors: np.ndarray) -> np.ndarray:
        """(N, A) of people with these factors."""
        return np.asarray(1 / (1 + np.exp(-(self.levels + factors @ self.loadings.T))))

    def means(self) -> np.ndarray:
        """(A,) over all people."""
        points = Points.of(2, 1024)
        return np.asarray(points.weights @ self.chances(points.places))


def main() -> None:
    rows, store = stored.seeded(__doc__, "logs", 60, ROWS, CASES, lambda row: (row["n_sessions"],), run)
    found = table(rows)
    print(found)
    if store:
        command = "python -m benchmarks.study_traits_coverage"
        stored.store("traits_coverage", stored.measured(command, stored.of_table(found, ("sessions",)), {"": found}))


def run(case: Case, seed: int) -> dict[str, Any]:
    """One log, with its assessment and the truth."""
    rng = np.random.default_rng([_SEED, case.n_sessions, seed])
    truth = Truth(rng.normal(0, 0.7, N_ARMS), rng.normal(0, 0.7, (N_ARMS, 2)))
    arms = rng.random((case.n_sessions, N_ARMS)).argsort(axis=1)[:, :HORIZON]
    chances = np.take_along_axis(truth.chances(rng.normal(size=(case.n_sessions, 2))), arms, axis=1)
    log = lmab.Sessions.from_arrays(arms, (rng.random(arms.shape) < chances) * 1.0, n_arms=N_ARMS)
    start = time.process_time()
    estimate = lmab.fit(log, method=METHOD, rng=rng, check=False)
    plan = lmab.plan(estimate, horizon=HORIZON, repeats=False, method=lmab.QMDP())
    found = lmab.assess(estimate, plan, log, rng=rng)
    seconds = time.process_time() - start
    value, gain = earned(plan.policy, truth, rng)
    assert estimate.factors is not None
    assert found.gain is not None
    assert found.value is not None
    return asdict(case) | {
        "seed": seed, "alive": estimate.factors.n_alive, "by_mean": estimate.factors.by_mean, "value": value,
        "gain": gain, "value_interval": list(found.value), "gain_interval": list(found.gain), "seconds": seconds,
    }  # fmt: skip


def earned(policy: lmab.Policy, truth: Truth, rng: np.random.Generator) -> tuple[float, float]:
    """The value of a policy where the truth is known, and how much it is above the best fixed list.

    Expected rewards are added up, and those of the list on the same people are taken away, against noise.
    """
    chances, everyone = truth.chances(rng.normal(size=(N_PEOPLE, 2))), np.arange(N_PEOPLE)
    state, left, total = policy.start(N_PEOPLE), np.ones(chances.shape, bool), np.zeros(N_PEOPLE)
    for _ in range(HORIZON):
        arms = np.asarray(policy.act(state, allowed=left))
        left[everyone, arms] = False
        total += chances[everyone, arms]
        state = policy.observe(state, arms, (rng.random(N_PEOPLE) < chances[everyone, arms]) * 1.0)
    means = truth.means()
    fixed = np.argsort(-means)[:HORIZON]
    gain = float((total - chances[:, fixed].sum(axis=1)).mean())
    return float(means[fixed].sum()) + gain, gain


def table(rows: list[dict[str, Any]]) -> str:
    heads = ("sessions", "logs", "value held", "its width", "gain held", "width of the gain", "true gain", "sure gain")
    head = f"| {' | '.join(heads)} | seconds a log |"
    lines = [head, "|---" * (head.count("|") - 1) + "|"]
    for case in CASES:
        mine = [row for row in rows if row["n_sessions"] == case.n_sessions]
        parts = [f"{case.n_sessions:,}", str(len(mine))]
        for claim in ("value", "gain"):
            low, high = np.array([row[f"{claim}_interval"] for row in mine]).T
            true = np.array([row[claim] for row in mine])
            parts += [f"{((low <= true) & (true <= high)).mean():.0%}", f"{(high - low).mean():.2f}"]
        sure = np.mean([row["gain_interval"][0] > 0 for row in mine])
        parts += [f"{np.mean([row['gain'] for row in mine]):+.3f}", f"{sure:.0%}"]
        lines.append(f"| {' | '.join(parts)} | {np.mean([row['seconds'] for row in mine]):.1f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
