"""What is known before a session: `python -m benchmarks.study_people [coverage] [gain] [keep] ...`.

Every row draws a fresh truth and a log whose types depend on features, or whose persons come back, and compares what is
learned with the truth. `coverage`: how often the claims of assessments hold, which are means over people. `gain`: what
policies earn with and without features. `short`: the error of the means where sessions are too short for the types.
`useless`: what columns that tell nothing cost. `keep`: the probability that a type is kept; `keep-given`: the same
where the types are known, and its standard error. `plans`: the time of one plan for 64 priors beside that of one plan,
and what it earns at priors that it was not made for beside a plan for each of them. `election`: what features of real
people are worth, where the package polca is installed, which ships them; only on demand. Rows go to
`docs/coverage/people.jsonl` as they are done, and those already there are not done again, so that the study can be
stopped and continued. `--table` only makes the tables of coverage and of times. Set OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import lmab
from lmab.components.features import Design
from lmab.estimation import type_priors
from lmab.estimation.climb import climb
from lmab.planning.policies import VectorPolicy

ROWS = Path(__file__).parent.parent / "docs" / "coverage" / "people.jsonl"
CLAIMS = ("value", "optimum", "regret", "gain")
LOGS = 60  # of each cell
_SEED = 73_000  # 71,000 was used before empty types were looked for again with features
WORDS = {  # what the table of times calls the kinds of bandits, and how many people there are of each type
    "spherical .3": "*spherical*: information is cheap | much (Dirichlet weights of .3)",
    "spherical 2": "*spherical* | little (2)",
    "hard .3": "*hard*: information must be paid for | much",
    "hard 2": "*hard* | little",
}
Row = dict[str, Any]
Array = Any


@dataclass(frozen=True)
class Cell:
    """What is drawn and fitted."""

    n_types: int
    n_arms: int
    horizon: int
    n_sessions: int
    levels: tuple[int, ...]  # of each column
    strength: float  # of the columns: the spread of their coefficients


CELLS = {
    "one column of 6": Cell(3, 10, 4, 1000, (6,), 2.0),
    "three columns": Cell(3, 10, 4, 1000, (2, 3, 4), 1.0),
    "weak": Cell(2, 8, 4, 600, (4,), 0.5),
    "short sessions": Cell(3, 8, 2, 2000, (6,), 2.0),
}


def known_people(cell: Cell, rng: np.random.Generator) -> tuple[lmab.LatentBandit, lmab.TypePrior]:
    """A bandit, and a prior whose weights are a softmax of the columns."""
    means = rng.beta(2, 3, (cell.n_types, cell.n_arms))
    terms = [lmab.model.type_prior.Category(f"c{i}", tuple(f"v{j}" for j in range(n)), (1 / n,) * n)
             for i, n in enumerate(cell.levels)]  # fmt: skip
    coefficients = rng.normal(0, cell.strength, (1 + sum(cell.levels), cell.n_types))
    coefficients[0] *= 0.5 / cell.strength
    return lmab.LatentBandit.bernoulli(np.full(cell.n_types, 1 / cell.n_types), means), lmab.TypePrior(
        terms, coefficients
    )


def coverage(name: str, number: int) -> Row:
    """Whether the four claims of an assessment hold on one log."""
    cell = CELLS[name]
    rng = np.random.default_rng([_SEED, list(CELLS).index(name), number])
    truth, prior = known_people(cell, rng)
    log = lmab.simulate(
        truth, lmab.Uniform(cell.n_arms), n_sessions=cell.n_sessions, horizon=cell.horizon, type_prior=prior, rng=rng
    )
    began = time.process_time()
    estimate = lmab.fit(log, n_types=cell.n_types, method=lmab.EM(restarts=8), check=False, rng=rng)
    plan = lmab.plan(estimate, horizon=cell.horizon)
    assessment = lmab.assess(estimate, plan, log, n_draws=50, rng=rng)
    seconds = time.process_time() - began
    everybody: dict[str, Any] = {"type_prior": prior, "features": log.features}
    value = lmab.evaluate(plan, truth, horizon=cell.horizon, **everybody).mean
    best = lmab.plan(truth, horizon=cell.horizon, method=lmab.Certified(gap=0.001), time_limit=5.0, **everybody)
    people = prior.resolve_features(log.features)
    assert people is not None
    weights = people.shares @ prior.weights(people.features)
    fixed = cell.horizon * float((weights @ truth.means).max())
    truths = {"value": (value, value), "optimum": (best.lower, best.upper), "gain": (value - fixed, value - fixed),
              "regret": (best.lower - value, best.upper - value)}  # fmt: skip
    held = {}
    for claim, (low, high) in truths.items():
        interval = getattr(assessment, claim)
        held[claim] = interval is None or bool(interval[0] <= high + 1e-9 and low - 1e-9 <= interval[1])
    kept = estimate.type_prior is not None
    width = None if assessment.value is None else assessment.value[1] - assessment.value[0]
    return {**held, "kept": kept, "earned": value, "best": best.upper, "fixed": fixed, "width": width,
            "seconds": round(seconds, 2)}  # fmt: skip


def gain(name: str, number: int) -> Row:
    """What is earned per session with features and without, from logs of the given size."""
    n = int(name)
    rng = np.random.default_rng([_SEED, 100, number])
    truth = lmab.random_bandit(4, 20, kind="hard", rng=rng)
    weights = {f"v{i}": row for i, row in enumerate(rng.dirichlet(np.full(4, 0.4), 8))}
    prior = lmab.TypePrior.by_value("segment", weights)
    log = lmab.simulate(truth, lmab.Uniform(20), n_sessions=n, horizon=7, type_prior=prior, rng=rng)
    found = {}
    for label, sessions in (("with", log), ("without", lmab.Sessions.from_arrays(
        log.arms.reshape(n, 7), log.rewards.reshape(n, 7), n_arms=20))):  # fmt: skip
        estimate = lmab.fit(sessions, n_types=4, method=lmab.EM(restarts=8), check=False, rng=rng)
        plan = lmab.plan(estimate, horizon=7, time_limit=5.0)
        found[label] = lmab.evaluation.value.value_of(plan, truth, horizon=7, type_prior=prior, rng=0).mean
    return found


def short(name: str, number: int) -> Row:
    """The error of the means of 5 types from sessions of 2 steps."""
    n = int(name)
    rng = np.random.default_rng([_SEED, 200, number])
    truth = lmab.LatentBandit.bernoulli(np.full(5, 0.2), rng.uniform(0.1, 0.9, (5, 10)))
    prior = lmab.TypePrior.by_value("segment", {f"v{i}": w for i, w in enumerate(rng.dirichlet(np.full(5, 0.3), 20))})
    log = lmab.simulate(truth, lmab.Uniform(10), n_sessions=n, horizon=2, type_prior=prior, rng=rng)
    method = lmab.EM(restarts=8, prior=1.0)
    known = lmab.fit(log, n_types=5, method=method, check=False, rng=rng)
    blind = lmab.Sessions.from_arrays(log.arms.reshape(n, 2), log.rewards.reshape(n, 2), n_arms=10)
    unknown = lmab.fit(blind, n_types=5, method=method, check=False, rng=rng)
    return {"with": error_of_means(truth, known.bandit), "without": error_of_means(truth, unknown.bandit)}


def error_of_means(truth: lmab.LatentBandit, found: lmab.LatentBandit) -> float:
    """The mean absolute error of the means, under the best match of the types."""
    from scipy.optimize import linear_sum_assignment

    cost = np.abs(truth.means[:, None] - found.means[None]).mean(axis=2)
    return float(cost[linear_sum_assignment(cost)].mean())


def useless(name: str, number: int) -> Row:
    """Held-out log-likelihood per session with useless columns beside that without any."""
    rng = np.random.default_rng([_SEED, 300, number])
    truth = lmab.LatentBandit.bernoulli([0.4, 0.3, 0.3], rng.uniform(0.1, 0.9, (3, 10)))
    logs = [lmab.simulate(truth, lmab.Uniform(10), n_sessions=n, horizon=5, rng=rng) for n in (500, 4000)]
    columns = [{f"c{i}": rng.normal(size=len(log)) for i in range(int(name))} for log in logs]
    train, test = (
        lmab.Sessions.from_arrays(log.arms.reshape(-1, 5), log.rewards.reshape(-1, 5), n_arms=10, features=more)
        for log, more in zip(logs, columns, strict=True)
    )
    method = lmab.EM(restarts=8, prior=1.0)
    estimate = lmab.fit(train, n_types=3, method=method, check=False, rng=0)
    plain = lmab.fit(logs[0], n_types=3, method=method, check=False, rng=0)
    scores = [lmab.model.belief.log_joint(one.bandit, test) for one in (estimate, plain)]
    if estimate.type_prior is not None and estimate.type_prior.columns and test.features is not None:
        own = estimate.type_prior.weights(test.features.only(estimate.type_prior.columns))
        scores[0] += np.log(own) - np.log(estimate.bandit.weights)
    with_, without = (float(np.logaddexp.reduce(score, axis=1).mean()) for score in scores)
    return {"lost": without - with_, "kept": estimate.type_prior is not None}


def keep(name: str, number: int) -> Row:
    """The probability that a type is kept, learned from 10,000 persons of 4 sessions."""
    rng = np.random.default_rng([_SEED, 400, number])
    truth = lmab.LatentBandit.bernoulli([0.4, 0.3, 0.3], rng.uniform(0.1, 0.9, (3, 10)))
    prior = lmab.TypePrior.constant(truth.weights, keep=float(name))
    persons = np.repeat(np.arange(10_000), 4)
    log = lmab.simulate(
        truth, lmab.Uniform(10), n_sessions=40_000, horizon=5, type_prior=prior, persons=persons, rng=rng
    )
    estimate = lmab.fit(log, n_types=3, method=lmab.EM(restarts=8, prior=1.0), check=False, rng=rng)
    return {"keep": None if estimate.type_prior is None else estimate.type_prior.keep}


def keep_given(name: str, number: int) -> Row:
    """The same from the likelihoods of the true types: no fit can know more. The standard error is by curvature."""
    rng = np.random.default_rng([_SEED, 400, number])
    truth = lmab.LatentBandit.bernoulli([0.4, 0.3, 0.3], rng.uniform(0.1, 0.9, (3, 10)))
    prior = lmab.TypePrior.constant(truth.weights, keep=float(name))
    persons = np.repeat(np.arange(10_000), 4)
    log = lmab.simulate(
        truth, lmab.Uniform(10), n_sessions=40_000, horizon=5, type_prior=prior, persons=persons, rng=rng
    )
    like, design = type_priors._likelihoods(truth, log)[0], Design.of((), None, len(log), ridge=0.0)
    given = type_priors.Task(3, persons, like=like).model(design)
    first = np.vstack([np.log(truth.weights) - np.log(truth.weights).mean(), np.zeros(3)])
    found = climb(given, first[None], left=1e-4, max_maps=2000, accelerate=True).models[0]
    kept = float(1 / (1 + np.exp(-found[-1, 0])))
    near = np.repeat(found[None], 3, axis=0)
    for model, share in zip(near, (kept - 0.01, kept, kept + 0.01), strict=True):
        model[-1] = np.log(share / (1 - share))
    below, at, above = given.map(near)[0]
    return {"keep": kept, "stderr": float((2 * at - below - above) ** -0.5 * 0.01)}


def plans(name: str, number: int) -> Row:
    """One plan for 64 priors of 7 types, 50 arms and 7 steps, drawn as `strength` times the weights of the types."""
    kind, strength = name.split()
    rng = np.random.default_rng([_SEED, 500, number])
    bandit = lmab.random_bandit(7, 50, kind=kind, rng=rng)
    drawn = np.maximum(rng.dirichlet(float(strength) * 7 * bandit.weights, size=72), 1e-6)
    drawn /= drawn.sum(axis=1, keepdims=True)
    priors, unseen = drawn[:64], drawn[64:]
    mean = replace(bandit, weights=priors.mean(axis=0) / priors.mean(axis=0).sum())
    prior = lmab.TypePrior.by_value("segment", {f"v{i}": row for i, row in enumerate(priors)})
    seconds, processor = np.array([[_timed(mean, given) for given in (None, prior)] for _ in range(5)]).min(axis=0).T
    policy = lmab.plan(mean, horizon=7, type_prior=prior).policy
    assert isinstance(policy, VectorPolicy)
    earned, own = [], []
    for row in unseen:
        person = replace(bandit, weights=row)
        there = VectorPolicy(person, policy.vectors, policy.arms, policy.starts, horizon=7, looks=policy.looks)
        earned.append(lmab.evaluate(there, person, horizon=7, rng=0).mean)
        own.append(lmab.evaluate(lmab.plan(person, horizon=7), person, horizon=7, rng=0).mean)
    share = float(np.sum(earned) / np.sum(own))
    return {
        "one": seconds[0],
        "many": seconds[1],
        "times": seconds[1] / seconds[0],
        "processor one": processor[0],
        "processor many": processor[1],
        "share at unseen priors": share,
    }


def _timed(bandit: lmab.LatentBandit, prior: lmab.TypePrior | None) -> tuple[float, float]:
    """Seconds by the clock, and of processor time."""
    began = time.perf_counter(), time.process_time()
    lmab.plan(bandit, horizon=7, type_prior=prior)
    return time.perf_counter() - began[0], time.process_time() - began[1]


def election(name: str, number: int) -> Row:
    """What 5 of 12 questions earn of voters kept back: popular ones, those of 6 types, and of types with features."""
    answers, known = voters()
    seeds = np.random.default_rng([_SEED, 600, number])
    earned: dict[str, list[Array]] = {"popular": [], "types": [], "features": []}
    order = seeds.permutation(len(answers))
    for held in np.array_split(order, 5):
        train = np.setdiff1d(order, held)
        arms = np.tile(np.arange(12), (len(train), 1))
        columns = {column: values[train] for column, values in known.items()}
        for label, features in (("types", None), ("features", columns)):
            log = lmab.Sessions.from_arrays(arms, answers[train].astype(float), n_arms=12, features=features)
            found = lmab.fit(log, n_types=6, method=lmab.EM(restarts=8, prior=1.0), check=False, rng=seeds)
            weights = np.tile(found.bandit.weights, (len(held), 1))
            if features is not None and found.type_prior is not None:
                weights = found.type_prior.weights({one: known[one][held] for one in found.type_prior.columns})
            table = found.bandit.rewards.probabilities  # type: ignore[union-attr]
            earned[label].append(asked(answers[held], weights, table, int(name)))
        best = np.argsort(-(answers[train] < 2).mean(axis=0))[: int(name)]
        earned["popular"].append((answers[held][:, best] < 2).sum(axis=1))
    totals = {label: np.concatenate(parts) for label, parts in earned.items()}
    gain_ = totals["features"] - totals["types"]
    return {**{label: float(total.mean()) for label, total in totals.items()}, "gain": float(gain_.mean()),
            "stderr": float(gain_.std() / np.sqrt(len(gain_))), "people": len(answers)}  # fmt: skip


def asked(answers: Array, weights: Array, table: Array, n_questions: int) -> Array:
    """How often people say yes (0 or 1 of 0 to 3) to the questions that are likeliest to get it, each asked once."""
    rows, belief, total = np.arange(len(answers)), weights.copy(), np.zeros(len(answers))
    yes, left = table[:, :, :2].sum(axis=2), np.ones(answers.shape, bool)
    for _ in range(n_questions):
        arm = np.where(left, belief @ yes, -np.inf).argmax(axis=1)
        value = answers[rows, arm]
        total += value < 2
        belief *= table[:, arm, value].T
        belief /= belief.sum(axis=1, keepdims=True)
        left[rows, arm] = False
    return total


def voters() -> tuple[Array, dict[str, Array]]:
    """Answers 0 to 3 of all who gave 12, and what is known of them: the data set election of the package polca."""
    package = find_spec("pypolca")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("the study of the election needs the package polca (Python 3.12), which ships its data")
    with open(Path(package.submodule_search_locations[0]) / "data" / "election.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if "NA" not in list(row.values())[:12]]
    answers = np.array([[int(text[0]) - 1 for text in list(row.values())[:12]] for row in rows])
    known = {name: np.array([float(row[name]) if row[name] != "NA" else np.nan for row in rows])
             for name in ("PARTY", "AGE", "EDUC")}  # fmt: skip
    return answers, {**known, "GENDER": np.array([row["GENDER"] for row in rows])}


STUDIES: dict[str, tuple[Callable[[str, int], Row], Sequence[str], int]] = {
    "coverage": (coverage, tuple(CELLS), LOGS),
    "gain": (gain, ("500", "10000"), 10),
    "short": (short, ("50000",), 3),
    "useless": (useless, ("30",), 10),
    "keep": (keep, (".3", ".6", ".9"), 1),
    "keep-given": (keep_given, (".3", ".6", ".9"), 4),
    "election": (election, ("5",), 8),
    "plans": (plans, tuple(WORDS), 18),  # search and policy were tuned on the first 12 of each
}


def stored(path: Path = ROWS) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(rows: Sequence[Row]) -> str:
    """How often each claim held, by cell."""
    cells = defaultdict(list)
    for row in rows:
        if row["study"] == "coverage":
            cells[row["cell"]].append(row)
    lines = ["| log | logs | features kept | value | optimum | regret | gain |", "|---|---|---|---|---|---|---|"]
    for name, found in cells.items():
        shares = " | ".join(f"{np.mean([row[claim] for row in found]):.2f}" for claim in CLAIMS)
        lines.append(f"| {name} | {len(found)} | {np.mean([row['kept'] for row in found]):.2f} | {shares} |")
    return "\n".join(lines)


def times_table(rows: Sequence[Row]) -> str:
    """As how many plans for one prior a plan for 64 takes, by cell: by the clock, and in processor time."""
    lines = ["| instances | people differ | least | median | most | processor: median | most |", "|---" * 7 + "|"]
    for cell, words in WORDS.items():
        found = [row for row in rows if (row["study"], row["cell"]) == ("plans", cell)]
        if found:
            clock = [row["times"] for row in found]
            spent = [row["processor many"] / row["processor one"] for row in found]
            numbers = (min(clock), np.median(clock), max(clock), np.median(spent), max(spent))
            lines.append(f"| {words} | " + " | ".join(f"{number:.1f}" for number in numbers) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("studies", nargs="*", default=[name for name in STUDIES if name != "election"])
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--rows", type=Path, default=ROWS)
    given = parser.parse_args()
    done = {(row["study"], row["cell"], row["log"]) for row in stored(given.rows)}
    for study in [] if given.table else given.studies:
        run, cells, n_logs = STUDIES[study]
        for number in range(n_logs):
            for cell in cells:
                if (study, cell, number) in done:
                    continue
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    row = {"study": study, "cell": cell, "log": number, **run(cell, number)}
                with given.rows.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    print(table(stored(given.rows)), times_table(stored(given.rows)), sep="\n\n")


if __name__ == "__main__":
    main()
