"""How often held-out sessions confirm types: `python -m benchmarks.study_check [--logs 5] [--one-type 40] [--store]`.

Five logs each of four families with types, and forty with one type in truth, are fitted with the default method and
checked as `lmab.fit` does. A log of one type that is confirmed is a false alarm. Rows go to `docs/coverage/check.jsonl`
as they are done, and those already there are not done again. Thresholds and the law of arms were chosen on other seeds.
A first run with other seeds confirmed 9 of 20: there generosity had to be worse by a standard error, now it has to be
worse; a second one confirmed 14 of 20.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import lmab

from . import rows as stored
from .study_coverage import Truth, beta, hard, independent, probe

ROWS = Path(__file__).parent.parent / "docs" / "coverage" / "check.jsonl"
_SEED = 81_000
_METHOD = lmab.EM(restarts=8, tolerance=1e-6, prior="learned", threads=1)
FAMILIES: dict[str, tuple[Truth, int, int, int, int]] = {  # truth, types, arms, steps, sessions
    "independent, A = 8, N = 3,000": (independent, 3, 8, 5, 3000),
    "Beta(2, 3), A = 20, N = 2,000": (beta(2, 3), 3, 20, 5, 2000),
    "hard, A = 20, N = 500": (hard, 4, 20, 5, 500),
    "probe, A = 12, N = 1,000": (probe, 4, 12, 4, 1000),
    "one type, A = 20, N = 2,000": (beta(2, 3), 1, 20, 5, 2000),
}


def run(family: str, log_number: int) -> dict[str, Any]:
    """One log: whether its types were confirmed, and what the fit and its check took."""
    truth, n_types, n_arms, horizon, n_sessions = FAMILIES[family]
    rng = np.random.default_rng([_SEED, log_number, *family.encode()])
    bandit = truth(rng, n_types, n_arms)
    log = lmab.simulate(bandit, lmab.Uniform(n_arms), n_sessions=n_sessions, horizon=horizon, rng=rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.process_time()
        plain = lmab.fit(log, n_types=max(n_types, 3), method=_METHOD, rng=log_number, check=False)
        fitted = time.process_time()
        found = lmab.estimation.cross_validation.check(plain, traits=False, rng=log_number)
        checked = time.process_time()
    return {
        "family": family,
        "log": log_number,
        "agrees": found.agrees,
        "verdict": found.verdict.split(":")[0],
        "over_one_type": [found.over_one_type.mean, found.over_one_type.stderr],
        "over_unrelated_arms": [found.over_independent_arms.mean, found.over_independent_arms.stderr],
        "seconds": [fitted - start, checked - fitted],
    }


def table(rows: list[dict[str, Any]]) -> str:
    """How many logs of each family were confirmed, as Markdown."""
    lines = [
        "| family | logs | confirmed | fit, check: seconds | check in fits: median, most |",
        "|---|---|---|---|---|",
    ]
    for family in FAMILIES:
        mine = [row for row in rows if row["family"] == family]
        if mine:
            seconds = np.array([row["seconds"] for row in mine])
            fit, check = np.median(seconds, axis=0)
            fits = seconds[:, 1] / seconds[:, 0]
            confirmed = sum(row["agrees"] for row in mine)
            cost = f"{fit:.2f}, {check:.2f} | {np.median(fits):.1f}, {fits.max():.1f}"
            lines.append(f"| {family} | {len(mine)} | {confirmed} | {cost} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=5, help="logs of each family with types")
    parser.add_argument("--one-type", type=int, default=40, help="logs with one type")
    parser.add_argument("--rows", type=Path, default=ROWS, help="where the rows are kept")
    parser.add_argument("--store", action="store_true", help="keep the table in docs/benchmarks/rows.json")
    arguments = parser.parse_args()
    pairs = [
        (family, log)
        for family, (_, n_types, *_) in FAMILIES.items()
        for log in range(arguments.one_type if n_types == 1 else arguments.logs)
    ]
    rows = stored.resumed(arguments.rows, {pair: pair for pair in pairs}, lambda row: (row["family"], row["log"]), run)
    found = table(rows)
    print(found)
    if arguments.store:
        command = "python -m benchmarks.study_check"
        stored.store("study_check", stored.measured(command, stored.of_table(found, ("family",)), {"": found}))


if __name__ == "__main__":
    main()
