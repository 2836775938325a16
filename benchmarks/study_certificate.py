"""How often assessments hold on fresh data: `python -m benchmarks.study_certificate [--sets 60] [--rows FILE]`.

Every row of the study draws a truth and a log, fits, plans and certifies, and compares the three intervals with the
truth. Rows go to FILE as they are done (one JSON object per line), and those already there are not done again.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import lmab

from . import rows as stored

PROBING = lmab.LatentBandit.bernoulli([0.4, 0.35, 0.25], np.random.default_rng(11).uniform(0.05, 0.95, (3, 8)))

LABELS = ("truth", "H", "N", "fit")
COMMAND = "python -m benchmarks.study_certificate"


@dataclass(frozen=True)
class Case:
    """What is drawn and fitted; each of `n_sets` logs has a seed of its own, and so has a spherical truth."""

    truth: str  # "probing", or "spherical M A"
    horizon: int
    n_sessions: int
    prior: float = 2.0
    more_types: int = 0  # fitted beyond those of the truth
    claimed: bool = True  # the claim is about these; the others show where it ends


CASES = [
    *(Case("probing", 4, n) for n in (500, 2_000, 10_000)),
    *(Case("spherical 4 20", 7, n) for n in (500, 2_000, 10_000)),
    *(Case("spherical 5 50", 7, n) for n in (500, 2_000, 10_000)),
    Case("spherical 4 20", 7, 2_000, prior=1.0, claimed=False),
    Case("spherical 4 20", 7, 2_000, more_types=2, claimed=False),
    Case("spherical 4 20", 7, 2_000, more_types=-1, claimed=False),
    Case("probing", 4, 10_000, more_types=2, claimed=False),
    Case("probing", 4, 10_000, more_types=-1, claimed=False),
]


def main() -> None:
    rows, store = stored.seeded(__doc__, "sets", 60, Path("certificate.jsonl"), CASES, _case, run)
    tables = {"": table(rows, claimed=True), "beside": table(rows, claimed=False)}
    print(*tables.values(), sep="\n\n")
    if store:
        found = [stored.of_table(text, LABELS) for text in tables.values()]
        stored.store("study_certificate", stored.measured(COMMAND, found[0] | found[1], tables))


def run(case: Case, seed: int) -> dict[str, Any]:
    """One data set: what the assessment said, and what is true."""
    rng = np.random.default_rng([seed, case.n_sessions, case.horizon, *case.truth.encode()])
    truth = PROBING if case.truth == "probing" else lmab.random_bandit(*map(int, case.truth.split()[1:]), rng=rng)
    log = lmab.simulate(truth, lmab.Uniform(truth.n_arms), n_sessions=case.n_sessions, horizon=case.horizon, rng=rng)
    n_types = truth.n_types + case.more_types
    estimate = lmab.fit(log, n_types=n_types, method=lmab.EM(prior=case.prior, threads=1), rng=rng)
    plan = lmab.plan(estimate.bandit, horizon=case.horizon)
    start = time.perf_counter()
    assessment = lmab.assess(estimate, plan, log, rng=rng)
    seconds = time.perf_counter() - start
    if assessment.value is None or assessment.optimum is None or assessment.regret is None:  # a false alarm
        return asdict(case) | {"seed": seed, "value": None, "optimum": None, "regret": None}
    best = lmab.plan(truth, horizon=case.horizon, method=lmab.Certified(gap=0.001))
    value = lmab.evaluate(plan.policy, truth, horizon=case.horizon).mean
    optimum = (best.lower, best.upper)  # held only if both ends are
    return asdict(case) | {
        "seed": seed,
        "value": assessment.value[0] <= value <= assessment.value[1],
        "optimum": assessment.optimum[0] <= optimum[0] and optimum[1] <= assessment.optimum[1],
        "regret": optimum[1] - value <= assessment.regret[1],
        "true": [value, *optimum],
        "said": [*assessment.value, *assessment.optimum, assessment.regret[1]],
        "planning_gap": assessment.planning_gap,
        "floored": dict(assessment.found).get("unknown directions", (0.0,))[0] / assessment.n_parameters,
        "steps_per_parameter": log.n_steps / assessment.n_parameters,
        "seconds": seconds,
    }


def table(rows: list[dict[str, Any]], *, claimed: bool) -> str:
    """Coverage per case and over all cases of the claim, or per case beside it, as Markdown."""
    groups = defaultdict(list)
    for row in rows:
        if row["value"] is not None:  # a refused claim neither holds nor fails
            groups[_case(row)].append(row)
    lines = [
        "| truth | H | N | fit | sets | value | optimum | regret | all three | width of value | true regret, bound | steps per parameter | seconds |",  # noqa: E501
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    together = []
    for case in CASES:
        some = groups[_case(asdict(case))] if case.claimed == claimed else []
        together += some
        fit = f"prior {case.prior:g}" + (f", {case.more_types:+d} types" if case.more_types else "")
        if some:
            lines.append(f"| {case.truth} | {case.horizon} | {case.n_sessions:,} | {fit} | {_cells(some)} |")
    if claimed:
        lines.append(f"| **all with the claim** | | | | {_cells(together)} |")
    return "\n".join(lines)


def _cells(rows: list[dict[str, Any]]) -> str:
    def mean(function: Any) -> float:
        return float(np.mean([function(row) for row in rows]))

    held = [f"{mean(lambda row, name=name: row[name]):.2f}" for name in ("value", "optimum", "regret")]
    together = mean(lambda row: row["value"] and row["optimum"] and row["regret"])
    width = mean(lambda row: row["said"][1] - row["said"][0])
    regret = mean(lambda row: row["true"][1] - row["true"][0])
    bound = mean(lambda row: row["said"][4])
    steps = mean(lambda row: row["steps_per_parameter"])
    seconds = float(np.median([row["seconds"] for row in rows]))
    return " | ".join(
        [
            str(len(rows)),
            *held,
            f"{together:.2f}",
            f"{width:.2f}",
            f"{regret:.3f}, {bound:.3f}",
            f"{steps:.0f}",
            f"{seconds:.2f}",
        ]
    )


def _case(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("truth", "horizon", "n_sessions", "prior", "more_types"))


if __name__ == "__main__":
    main()
