"""`Certified` beside SARSOP on exported instances: both sets of bounds must contain the optimum, so they must overlap.

`POMDPSOL` names SARSOP's binary (docs/planning.md says how to build it); it reads the files of `lmab.export_pomdp` and
shares no code with this library. The instances have two to four reward values, normal rewards in bins, or sessions that
may end early.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

import lmab

from .rows import Rows

GAP = 0.005  # relative gap that both solvers are asked for
LIMIT = 20  # seconds for each
SEEDS = range(6)
EDGES = np.linspace(-0.5, 1.5, 6)  # of the bins of normal rewards; the outer two are open
ROUNDING = 1e-6  # relative: the discount of the files is below 1, and SARSOP prints six digits


class Instance(NamedTuple):
    name: str
    bandit: lmab.LatentBandit
    horizon: int


def instances() -> Iterator[Instance]:
    """Yield instances that SARSOP reads and solves in seconds."""
    for seed in SEEDS:
        rng = np.random.default_rng([47, seed])
        n_types, horizon = int(rng.integers(2, 6)), int(rng.integers(3, 7))
        n_arms = n_types + int(rng.integers(4, 7))
        weights = rng.dirichlet(np.full(n_types, 3.0))
        for kind in ("ordinary", "spread", "hard"):
            yield Instance(f"{kind}-{seed}", lmab.random_bandit(n_types, n_arms, kind=kind, rng=seed), horizon)
        values = np.sort(rng.normal(size=4))
        yield Instance(f"values-{seed}", lmab.LatentBandit.categorical(
            weights, rng.dirichlet(np.full(4, 0.7), (n_types, n_arms)), values), horizon)  # fmt: skip
        means, scale = rng.uniform(0, 1, (n_types, n_arms)), float(rng.uniform(0.2, 0.6))
        yield Instance(f"normal-{seed}", binned_gaussian(weights, means, scale), horizon)
        leaving = rng.beta(1, 6, (n_types, n_arms, 2))
        rates = rng.random((n_types, n_arms))
        yield Instance(f"leaving-{seed}", lmab.LatentBandit.bernoulli(weights, rates, leaving=leaving), horizon)


def binned_gaussian(weights: np.ndarray, means: np.ndarray, scale: float) -> lmab.LatentBandit:
    """Return the bandit of normal rewards that are rounded to the midpoints of bins."""
    from scipy.special import ndtr

    below = ndtr((EDGES - means[..., None]) / scale)
    probabilities = np.diff(below, axis=2, prepend=0.0, append=1.0)
    width = EDGES[1] - EDGES[0]
    values = np.concatenate([EDGES - width / 2, [EDGES[-1] + width / 2]])
    return lmab.LatentBandit.categorical(weights, probabilities, values)


def sarsop_bounds(binary: str, instance: Instance, precision: float) -> tuple[float, float]:
    """Return the last bounds that SARSOP prints for the exported instance."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bandit.pomdp"
        lmab.export_pomdp(instance.bandit, instance.horizon, path)
        command = [binary, "--timeout", str(LIMIT), "--precision", str(precision), "--output", os.devnull, str(path)]
        out = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    rows = [line.split() for line in out.splitlines() if re.match(r"\s*[\d.]+(\s+[-\d.e+]+){6}", line)]
    if not rows:
        raise RuntimeError(f"SARSOP printed no bounds for {instance.name}: {out[-500:]}")
    return float(rows[-1][3]), float(rows[-1][4])


def main() -> Rows:
    binary = os.environ.get("POMDPSOL")
    if not binary:
        print("POMDPSOL does not name a binary: no comparison")
        return {}
    rows: Rows = {}
    for instance in instances():
        plan = lmab.plan(
            instance.bandit, horizon=instance.horizon, method=lmab.Certified(gap=GAP), time_limit=LIMIT, repeats=True
        )
        value = lmab.evaluate(plan.policy, instance.bandit, horizon=instance.horizon).mean
        lower, upper = sarsop_bounds(binary, instance, GAP * abs(plan.lower))
        slack = ROUNDING * max(abs(plan.upper), abs(upper))
        agree = max(plan.lower, lower, value) <= min(plan.upper, upper) + slack and value >= plan.lower - slack
        found = {"lower": plan.lower, "upper": plan.upper, "value": value, "sarsop-lower": lower, "sarsop-upper": upper}
        rows |= {f"{instance.name}/{name}": number for name, number in found.items()}
        rows[f"{instance.name}/agrees"] = float(agree)
        shown = f"[{plan.lower:.5f}, {plan.upper:.5f}], value {value:.5f}, SARSOP [{lower:.5f}, {upper:.5f}]"
        print(f"{instance.name}: {shown}{'' if agree else '  DISAGREE'}", flush=True)
    agreed = [value for name, value in rows.items() if name.endswith("/agrees")]
    rows |= {"instances": float(len(agreed)), "agree": float(sum(agreed))}
    print(f"{rows['agree']:.0f} of {rows['instances']:.0f} agree")
    return rows


if __name__ == "__main__":
    main()
