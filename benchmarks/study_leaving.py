"""What it is worth to know who leaves: `python -m benchmarks.study_leaving [--instances 4] [--store]`.

Every row draws a truth that people leave and a log of uniform play, fits as if nobody left and with `leaving="auto"`,
plans for at most 10 steps with each fit, and compares what the plans earn in truth until people leave, as shares of the
best plan. Rows go to `docs/benchmarks/leaving.jsonl` as they are done. A last row fits 200,000 sessions of three types,
of weights .5, .3 and .2, that leave at different rates. A third table has the processor time of plans to a gap of 1%,
with people who leave and without, in one thread (`OPENBLAS_NUM_THREADS=1`): threads that wait for each other count as
processor time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import lmab

from . import rows as stored

ROWS = Path(__file__).parent.parent / "docs" / "benchmarks" / "leaving.jsonl"
LABELS = ("kind", "sessions")
HORIZON, TYPES, ARMS = 10, 4, 10
PLANNING_SECONDS = 10.0
FORMS = ("none", "auto")
_SEED = 71_000
PLANNED = ((4, 50, 20), (8, 50, 10), (20, 200, 7))  # types, arms and steps of timed plans
FORMS_LEFT = ("reward", "type and arm")  # of timed plans
INSTANCES, _FIRST_PLAN, _REPEATS = 5, 300, 2  # bandits of each kind, the seed of the first, and plans of each
PATIENCE = 120.0  # Seconds, on a busy machine.
WEIGHTS = (0.5, 0.3, 0.2)


def own_arm(rng: np.random.Generator, n_arms: int = ARMS) -> lmab.LatentBandit:
    """Arm m suits type m, and drives the others away; other arms pay little, tell types apart and offend nobody."""
    weights, means = rng.dirichlet(np.full(TYPES, 8.0)), rng.uniform(0.05, 0.55, (TYPES, n_arms))
    leaving = np.full((TYPES, n_arms, 2), 0.05)
    for m in range(TYPES):
        means[:, m], leaving[:, m] = 0.7, 0.5
        means[m, m], leaving[m, m] = 0.9, 0.02
    return lmab.LatentBandit.bernoulli(weights, means, leaving=leaving)


def clickbait(rng: np.random.Generator) -> lmab.LatentBandit:
    """One arm pays everybody now, and drives all types but one away."""
    weights, means = rng.dirichlet(np.full(TYPES, 5.0)), rng.uniform(0.1, 0.7, (TYPES, ARMS))
    leaving = np.empty((TYPES, ARMS, 2))
    leaving[:] = [0.10, 0.03]
    means[:, 0], leaving[:-1, 0] = 0.85, 0.6
    return lmab.LatentBandit.bernoulli(weights, means, leaving=leaving)


def hard(form: str) -> Callable[[np.random.Generator], lmab.LatentBandit]:
    """The hard instances, left by reward, by type, or by type and arm."""
    return lambda rng: left(form, "hard", TYPES, ARMS, rng)


def left(form: str, kind: str, n_types: int, n_arms: int, rng: np.random.Generator) -> lmab.LatentBandit:
    """A random bandit of a kind, left by reward, by type, or by type and arm."""
    base = lmab.random_bandit(n_types, n_arms, kind=kind, rng=rng)
    leaving = np.empty((n_types, n_arms, 2))
    if form == "reward":
        leaving[:] = [0.25, 0.03]
    elif form == "type":
        leaving[:] = rng.permutation(np.geomspace(0.02, 0.4, n_types))[:, None, None]
    else:
        leaving[:] = rng.beta(0.6, 4.0, (n_types, n_arms))[..., None]
    return lmab.LatentBandit.bernoulli(base.weights, base.means, leaving=leaving)


KINDS: dict[str, Callable[[np.random.Generator], lmab.LatentBandit]] = {
    "clickbait": clickbait,
    "hard, by type and arm": hard("type and arm"),
    "own arm": own_arm,
    "hard, by reward": hard("reward"),
    "hard, by type": hard("type"),
}


@dataclass(frozen=True)
class Case:
    kind: str
    sessions: int


CASES = [Case(kind, n) for n in (1_000, 5_000) for kind in KINDS]


def run(case: Case, seed: int) -> stored.StudyRow:
    """One truth and log: the shares of the best plan, what plans promised, and the form that was taken."""
    rng = np.random.default_rng([_SEED, seed, case.sessions, *case.kind.encode()])
    truth = KINDS[case.kind](rng)
    log = lmab.simulate(truth, lmab.Uniform(ARMS), n_sessions=case.sessions, horizon=HORIZON, rng=rng)
    best = lmab.plan(truth, horizon=HORIZON, time_limit=PLANNING_SECONDS).lower
    row: dict[str, Any] = {**asdict(case), "seed": seed, "length": log.n_steps / len(log)}
    for form in FORMS:
        begin = time.process_time()
        method = lmab.EM(tolerance=1e-6, threads=1)
        found = lmab.fit(log, n_types=TYPES, leaving=form, method=method, check=False, rng=rng)
        row[f"seconds {form}"] = time.process_time() - begin
        plan = lmab.plan(found.bandit, horizon=HORIZON, time_limit=PLANNING_SECONDS)
        value = lmab.evaluate(plan.policy, truth, horizon=HORIZON).mean
        row[f"share {form}"], row[f"promise {form}"] = value / best, plan.lower / value
        row["by type"] = found.bandit.has_informative_attrition
    return row


def weights_found(n_sessions: int = 200_000) -> dict[str, list[float]]:
    """The weights that a large log gives, ignoring who leaves and with leaving by type, in falling order of truth."""
    rng = np.random.default_rng(3)
    means = rng.uniform(0.1, 0.9, (3, 6))
    chances = np.broadcast_to(np.array([0.45, 0.15, 0.02])[:, None, None], (3, 6, 2))
    truth = lmab.LatentBandit.bernoulli(WEIGHTS, means, leaving=chances)
    log = lmab.simulate(truth, lmab.Uniform(6), n_sessions=n_sessions, horizon=8, rng=rng)
    found = {}
    for form in FORMS:
        bandit = lmab.fit(log, n_types=3, leaving=form, method=lmab.EM(threads=1), check=False, rng=0).bandit
        order = [int(np.abs(bandit.means - means[m]).sum(axis=1).argmin()) for m in range(3)]
        found[form] = bandit.weights[order].tolist()
    return found


def plans() -> str:
    """Processor time to a gap of 1%, with people who leave and as if nobody left, as Markdown.

    A row has five bandits; `ratio` is that of the mean times, `largest` that of the bandit where it is largest.
    """
    drawn = [("own arm", "own arm", 20, [own_arm(np.random.default_rng(seed), n_arms=50) for seed in range(INSTANCES)])]
    for kind in ("hard", "ordinary"):
        for n_types, n_arms, horizon in PLANNED:
            for form in FORMS_LEFT:
                seeds = range(_FIRST_PLAN, _FIRST_PLAN + INSTANCES)
                some = [left(form, kind, n_types, n_arms, np.random.default_rng(seed)) for seed in seeds]
                drawn.append((kind, form, horizon, some))
    lines = [
        "| bandits | left by | types, arms, steps | plans | seconds | without leaving | ratio | largest | "
        "knowing the type adds | without leaving, it adds | worst gap |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for kind, form, horizon, bandits in drawn:
        leave = [_timed(one, horizon) for one in bandits]
        stayed = [replace(one, leaving=None) for one in bandits]
        stay = [_timed(one, horizon) for one in stayed]
        shape = f"{bandits[0].n_types}, {bandits[0].n_arms}, {horizon}"
        spent, without = (np.array([seconds for seconds, _ in some]) for some in (leave, stay))
        worst = max(gap for _, gap in leave)
        lines.append(
            f"| {kind} | {form} | {shape} | {len(leave)} | {spent.mean():.3f} | {without.mean():.3f} "
            f"| {spent.mean() / without.mean():.2f} | {(spent / without).max():.1f} "
            f"| {_to_learn(bandits, horizon):.0%} | {_to_learn(stayed, horizon):.0%} | {worst:.2%} |"
        )
    return "\n".join(lines)


def _to_learn(bandits: list[lmab.LatentBandit], horizon: int) -> float:
    """What knowing the type adds to the best fixed arm, on average: what a search starts with, and has to close."""
    return float(np.mean([one.known_type(horizon) / one.best_fixed(horizon) - 1 for one in bandits]))


def _timed(bandit: lmab.LatentBandit, horizon: int) -> tuple[float, float]:
    """Processor time of a plan, the least of some, and its gap."""
    spent = []
    for _ in range(_REPEATS):
        begin = time.process_time()
        plan = lmab.plan(bandit, horizon=horizon, time_limit=PATIENCE)
        spent.append(time.process_time() - begin)
    return min(spent), plan.gap


def table(rows: list[stored.StudyRow]) -> str:
    """The mean share of the best plan by kind and size of the log, as Markdown."""
    lines = [
        "| kind | sessions | logs | steps of a session | ignored | with leaving | promised / earned, ignored | promised / earned, with leaving | by type |",  # noqa: E501
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for case in CASES:
        own = [row for row in rows if (row["kind"], row["sessions"]) == (case.kind, case.sessions)]
        if not own:
            continue

        def mean(name: str, own: list[stored.StudyRow] = own) -> float:
            return float(np.mean([row[name] for row in own]))

        lines.append(
            f"| {case.kind} | {case.sessions:,} | {len(own)} | {mean('length'):.1f} | {mean('share none'):.3f} "
            f"| {mean('share auto'):.3f} | {mean('promise none'):.2f} | {mean('promise auto'):.2f} "
            f"| {mean('by type'):.2f} |"
        )
    return "\n".join(lines)


def weights_table(found: dict[str, list[float]]) -> str:
    lines = ["| fit | weight .5 | weight .3 | weight .2 |", "|---|---|---|---|"]
    for form, name in (("none", "ignored"), ("auto", "with leaving")):
        lines.append(f"| {name} | " + " | ".join(f"{weight:.3f}" for weight in found[form]) + " |")
    return "\n".join(lines)


def main() -> None:
    rows, keep = stored.seeded(__doc__, "instances", 4, ROWS, CASES, lambda row: (row["kind"], row["sessions"]), run)
    lmab.plan(own_arm(np.random.default_rng(0)), horizon=3)  # compiles
    tables = {"shares": table(rows), "weights": weights_table(weights_found()), "plans": plans()}
    print("\n\n".join(tables.values()))
    if keep:
        numbers = stored.of_table(tables["shares"], LABELS) | {
            f"weights/{name}": value for name, value in stored.of_table(tables["weights"], ["fit"]).items()
        }
        numbers |= {
            f"plans/{name}": value
            for name, value in stored.of_table(tables["plans"], ["bandits", "left by", "types, arms, steps"]).items()
        }
        stored.store("study_leaving", stored.measured("python -m benchmarks.study_leaving", numbers, tables))


if __name__ == "__main__":
    main()
