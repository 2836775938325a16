"""How often pooled posterior draws cover the truth: `python -m benchmarks.study_calibration`.

Truths are drawn from the prior that the samplers assume (weights Dirichlet(1), arms from the law of arms), logs have
uniformly random arms. For each log the study stores where the true value, optimum and gain lie among the draws of both
samplers pooled: the distance from the median, in units of the distance of the plain quantile at 50, 80, 90 and 99%.
The factor of a cell is the quantile of these distances at the level itself. `--cores 16` runs that many processes;
`--rows FILE` keeps the rows, and a later run goes on where an earlier one stopped.
"""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import lmab
from lmab.estimation.arm_law import beta_grid

LEVELS = (0.5, 0.8, 0.9, 0.99)
ARMS, TYPES, HORIZON = 10, 3, 4
SIZES = (150, 500, 1500, 5000)  # sessions: 18 to 600 steps per parameter
CLAIMS = ("value", "optimum", "gain")


def truth(rng: np.random.Generator) -> lmab.LatentBandit:
    """Draw a bandit from the prior of weights and arms."""
    grid = beta_grid(-4.0, 2.5, -0.7)
    laws = (grid.centre_laws, grid.centre_prior), (grid.spread_laws, grid.spread_prior)
    centre, spread = (
        rng.choice(law.shape[1], ARMS, p=law[row] / law[row].sum())
        for law, prior in laws
        for row in [rng.choice(len(prior), p=_normalised(prior))]
    )
    cell = centre * grid.n_spreads + spread
    shapes = grid.strength[cell] * grid.centre[cell], grid.strength[cell] * (1 - grid.centre[cell])
    means = np.clip(rng.beta(*shapes, (TYPES, ARMS)), 1e-4, 1 - 1e-4)
    return lmab.LatentBandit.bernoulli(rng.dirichlet(np.ones(TYPES)), means)


def _normalised(logs: Any) -> Any:
    shares = np.exp(logs - logs.max())
    return shares / shares.sum()


def row(case: tuple[int, int]) -> dict[str, Any]:
    """Return, for one log, the distances of the true values from the medians of the draws."""
    size, number = case
    rng = np.random.default_rng([52, size, number])
    bandit = truth(rng)
    log = lmab.simulate(bandit, lmab.Uniform(ARMS), n_sessions=size, horizon=HORIZON, rng=rng)
    estimate = lmab.fit(log, n_types=TYPES, method=lmab.EM(threads=1), check=False, rng=number)
    plan = lmab.plan(estimate, horizon=HORIZON, time_limit=1.0, anyway=True)
    found = lmab.assess(estimate, plan, log, rng=number)
    best = lmab.plan(bandit, horizon=HORIZON, time_limit=1.0)
    value = lmab.evaluate(plan.policy, bandit, horizon=HORIZON).mean
    true = {
        "value": value, "optimum": (best.lower + best.upper) / 2, "gain": value - bandit.best_fixed(HORIZON)
    }  # fmt: skip
    optimum, drawn, _, fixed = found.draws.T
    samples = {"value": drawn, "optimum": optimum, "gain": drawn - fixed}
    parameters = TYPES - 1 + TYPES * ARMS
    distances = {name: [distance(samples[name], true[name], level) for level in LEVELS] for name in CLAIMS}
    width = (
        None if found.value is None else float(np.diff(np.quantile(drawn, [0.05, 0.95]))[0] / np.diff(found.value)[0])
    )
    fires = [name for name, one in found.assumptions.items() if one.fires]
    ratio = size * HORIZON / parameters
    return {"size": size, "log": number, "ratio": ratio, "distances": distances, "width": width, "fires": fires}


def distance(sample: Any, true: float, level: float) -> float:
    """Return how far the truth lies from the median of a sample, in units of the quantile's distance on its side."""
    low, middle, high = np.quantile(sample, [(1 - level) / 2, 0.5, (1 + level) / 2])
    gap = true - middle
    reach = high - middle if gap > 0 else middle - low
    return float(abs(gap) / reach) if reach > 0 else float(abs(gap) > 1e-9) * 1e6


def main() -> None:
    """Run the cells, and print coverage and factor of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=50)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--rows", type=Path, default=Path("docs/coverage/calibration.jsonl"))
    chosen = parser.parse_args()
    rows = [json.loads(line) for line in chosen.rows.read_text().splitlines()] if chosen.rows.exists() else []
    done = {(one["size"], one["log"]) for one in rows}
    cases = [(size, number) for number in range(chosen.logs) for size in SIZES if (size, number) not in done]
    chosen.rows.parent.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(chosen.cores) as pool, chosen.rows.open("a") as file:
        for one in pool.map(row, cases):
            file.write(json.dumps(one) + "\n")
            file.flush()
            rows.append(one)
    for size in SIZES:
        some = [one for one in rows if one["size"] == size]
        for claim in CLAIMS:
            found = np.array([one["distances"][claim] for one in some])
            covered = ", ".join(
                f"{level:.0%}: {share:.2f}" for level, share in zip(LEVELS, (found <= 1).mean(axis=0), strict=True)
            )
            factor = np.quantile(found[:, 2], 0.9)
            print(f"{size} sessions, {len(some)} logs, {claim}: covered {covered}; factor at 90%: {factor:.2f}")


if __name__ == "__main__":
    main()
