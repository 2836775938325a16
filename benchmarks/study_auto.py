"""How many types `n_types="auto"` fits: `python -m benchmarks.study_auto [--logs 20] [--store]`.

Logs of one type, as clicks and groceries are, and logs of families with types are fitted, planned and compared with
the truth. A type is empty if fewer than one session in a hundred has it. Rows go to `docs/coverage/auto.jsonl` as they
are done, and those already there are not done again. The rule was chosen on other seeds.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import lmab

from . import rows as stored
from .study_coverage import Truth, alike, beta, hard, independent, probe

ROWS = Path(__file__).parent.parent / "docs" / "coverage" / "auto.jsonl"
_SEED = 98_000
_EMPTY = 0.01
_METHOD = lmab.EM(tolerance=1e-6, threads=1)
FAMILIES: dict[str, tuple[Truth, int, int, int, int]] = {  # truth, types, arms, steps, sessions
    "one type: clicks of .05": (alike(0.05, 0.3), 1, 46, 3, 4000),
    "one type: clicks of .005": (alike(0.005, 0.3), 1, 46, 3, 4000),
    "one type: clicks of .05, arms alike": (alike(0.05, 0.0), 1, 46, 3, 4000),
    "one type: Beta(1, 8), as groceries": (beta(1, 8), 1, 30, 6, 1500),
    "one type: Beta(2, 3)": (beta(2, 3), 1, 20, 5, 2000),
    "independent, A = 8, N = 3,000": (independent, 3, 8, 5, 3000),
    "Beta(2, 3), A = 20, N = 2,000": (beta(2, 3), 3, 20, 5, 2000),
    "hard, A = 20, N = 500": (hard, 4, 20, 5, 500),
    "hard, A = 20, N = 2,000": (hard, 4, 20, 5, 2000),
    "probe, A = 12, N = 1,000": (probe, 4, 12, 4, 1000),
}


def run(family: str, log_number: int) -> dict[str, Any]:
    """One log: the number of types that was fitted, what was said about it, and what the plan earns."""
    truth, n_types, n_arms, horizon, n_sessions = FAMILIES[family]
    rng = np.random.default_rng([_SEED, log_number, *family.encode()])
    bandit = truth(rng, n_types, n_arms)
    log = lmab.simulate(bandit, lmab.Uniform(n_arms), n_sessions=n_sessions, horizon=horizon, rng=rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimate = lmab.fit(log, method=_METHOD, rng=log_number)
    plan = lmab.plan(estimate, horizon=horizon, time_limit=2.0)
    best = lmab.plan(bandit, horizon=horizon, time_limit=5.0)
    curve, check = estimate.curve, estimate.check
    return {
        "family": family,
        "log": log_number,
        "true": n_types,
        "chosen": estimate.n_types,
        "best": None if curve is None else curve.best,
        "empty": int((estimate.bandit.weights < _EMPTY).sum()),
        "reason": None if curve is None else curve.reason,
        "verdict": None if check is None else check.verdict.split(":")[0],
        "fixed": plan.fixed,
        "share": lmab.evaluate(plan.policy, bandit, horizon=horizon).mean / best.lower,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """How often each number was fitted, and what came of it, as Markdown."""
    lines = [
        "| family | true types | logs | fitted (times) | with an empty type | planned with types | share of optimum |",
        "|---|---|---|---|---|---|---|",
    ]
    for family, (_, n_types, *_) in FAMILIES.items():
        mine = [row for row in rows if row["family"] == family]
        if mine:
            numbers, times = np.unique([row["chosen"] for row in mine], return_counts=True)
            fitted = ", ".join(f"{number} ({count})" for number, count in zip(numbers, times, strict=True))
            empty, planned = sum(row["empty"] > 0 for row in mine), sum(not row["fixed"] for row in mine)
            share = np.mean([row["share"] for row in mine])
            lines.append(f"| {family} | {n_types} | {len(mine)} | {fitted} | {empty} | {planned} | {share:.3f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=20, help="logs of each family")
    parser.add_argument("--rows", type=Path, default=ROWS, help="where the rows are kept")
    parser.add_argument("--store", action="store_true", help="keep the table in docs/benchmarks/rows.json")
    arguments = parser.parse_args()
    pairs = [(family, log) for log in range(arguments.logs) for family in FAMILIES]
    rows = stored.resumed(arguments.rows, {pair: pair for pair in pairs}, lambda row: (row["family"], row["log"]), run)
    found = table(rows)
    print(found)
    if arguments.store:
        command = "python -m benchmarks.study_auto"
        stored.store("study_auto", stored.measured(command, stored.of_table(found, ("family",)), {"": found}))


if __name__ == "__main__":
    main()
