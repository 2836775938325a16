"""How often off-policy intervals hold: `python -m benchmarks.study_off_policy [--logs 100] [--rows FILE]`.

Every row of the study draws a truth, fits a model to some sessions, and asks other sessions what a policy made from
this model earns. The three intervals are compared with the true value. Rows go to FILE as they are done (one JSON
object per line), and those already there are not done again.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import lmab
from lmab.evaluation.off_policy import METHODS, with_propensities
from lmab.evaluation.value import value_of, weigh

from . import rows as stored

LABELS = ("rewards", "A", "H", "N", "logged by", "policy")
COMMAND = "python -m benchmarks.study_off_policy"
TRAINING = 1000  # sessions that the model is fitted to
BEFORE = 200  # sessions behind the policy that logs
FLOOR = 0.1  # share of steps at which a policy with a floor plays any arm


@dataclass(frozen=True)
class Case:
    """What is drawn, who logs it, and which policy is asked about; each log has a seed and a truth of its own."""

    rewards: str  # "even", "sparse", "three values", "normal"
    n_arms: int
    horizon: int
    n_sessions: int
    logger: str  # "uniform", "by rank", "greedy + 10%", "Thompson + 10%"
    policy: str = "greedy"  # or "Thompson", "greedy + 10%"
    ragged: bool = False  # a session ends after each step with probability 0.1


CASES = [
    Case("even", 4, 3, 2_000, "uniform"),
    Case("even", 4, 3, 4_000, "uniform"),
    Case("even", 4, 3, 20_000, "uniform"),
    Case("even", 10, 2, 4_000, "uniform"),
    Case("even", 50, 1, 2_000, "uniform"),
    Case("even", 4, 3, 4_000, "uniform", ragged=True),
    Case("even", 4, 3, 4_000, "uniform", policy="Thompson"),
    Case("even", 4, 4, 2_000, "by rank"),
    Case("even", 10, 2, 4_000, "by rank"),
    Case("even", 6, 4, 1_000, "greedy + 10%"),
    Case("even", 6, 4, 10_000, "greedy + 10%"),
    Case("even", 6, 4, 10_000, "greedy + 10%", policy="greedy + 10%"),
    Case("even", 6, 4, 2_000, "Thompson + 10%"),
    Case("even", 6, 4, 10_000, "Thompson + 10%"),
    Case("sparse", 4, 3, 4_000, "uniform"),
    Case("sparse", 10, 2, 10_000, "uniform"),
    Case("sparse", 6, 4, 10_000, "greedy + 10%"),
    Case("three values", 4, 3, 4_000, "uniform"),
    Case("three values", 6, 4, 10_000, "Thompson + 10%"),
    Case("normal", 4, 3, 4_000, "uniform"),
    Case("normal", 6, 4, 10_000, "greedy + 10%"),
]


class ByRank(lmab.Policy):
    """Plays arm a with a chance proportional to 1 / (a + 1), whatever the session was."""

    kind = "benchmarks.by-rank"
    deterministic = False
    adaptive = False

    def __init__(self, n_arms: int) -> None:
        self.n_arms = n_arms

    def distribution(self, state: lmab.policies.State, *, n_arms: int) -> Any:
        shares = 1 / np.arange(1.0, n_arms + 1)
        return np.tile(shares / shares.sum(), (len(state.memory), 1))

    def _choose(self, state: lmab.policies.State, allowed: Any, rng: Any) -> Any:
        return _drawn(self.distribution(state, n_arms=self.n_arms or 0), rng)

    def record(self) -> Any:
        raise NotImplementedError

    @classmethod
    def from_record(cls, record: Any) -> lmab.Policy:
        raise NotImplementedError


def _drawn(chances: Any, rng: np.random.Generator) -> Any:
    return (chances.cumsum(axis=1) > rng.random((len(chances), 1))).argmax(axis=1)


def main() -> None:
    rows, store = stored.seeded(__doc__, "logs", 100, Path("off_policy.jsonl"), CASES, _case, run)
    text = table(rows)
    print(text)
    if store:
        stored.store("study_off_policy", stored.measured(COMMAND, stored.of_table(text, LABELS), {"": text}))


def run(case: Case, seed: int) -> dict[str, Any]:
    """One log: what the three methods said, and what is true."""
    rng = np.random.default_rng([seed, *json.dumps(asdict(case)).encode()])
    truth = _truth(case, rng)
    model, before = _fitted(case, truth, TRAINING, rng), _fitted(case, truth, BEFORE, rng)
    policy, logger = _policy(case.policy, model), _policy(case.logger, before)
    log = lmab.simulate(truth, logger, n_sessions=case.n_sessions, horizon=case.horizon, rng=rng)
    log = with_propensities(log, logger)
    if case.ragged:
        log = _cut(log, rng)
    true = value_of(policy, truth, horizon=case.horizon, n_sessions=100_000, rng=rng).mean
    evidence = weigh(policy, log, horizon=case.horizon, model=model, n_bootstrap=400, rng=rng)
    return asdict(case) | {
        "seed": seed,
        "true": true,
        "means": [None if value is None else value.mean for value in evidence.values.values()],
        "intervals": [None if value is None else value.interval for value in evidence.values.values()],
        "effective": float(evidence.effective_sizes.min()),
        "notes": [note for note in evidence.notes if "end before step" not in note],
    }


def _truth(case: Case, rng: np.random.Generator) -> lmab.LatentBandit:
    weights = rng.dirichlet(np.full(3, 5.0))
    shape = (3, case.n_arms)
    if case.rewards == "three values":
        return lmab.LatentBandit.categorical(weights, rng.dirichlet(np.ones(3), shape), [0.0, 1.0, 5.0])
    if case.rewards == "normal":
        return lmab.LatentBandit.gaussian(weights, rng.normal(size=shape), scale=1.0)
    low, high = (0.01, 0.1) if case.rewards == "sparse" else (0.05, 0.95)
    return lmab.LatentBandit.bernoulli(weights, rng.uniform(low, high, shape))


def _fitted(case: Case, truth: lmab.LatentBandit, n_sessions: int, rng: np.random.Generator) -> lmab.LatentBandit:
    log = lmab.simulate(truth, lmab.Uniform(case.n_arms), n_sessions=n_sessions, horizon=5, rng=rng)
    method = lmab.EM(restarts=4, prior=2.0, tolerance=1e-5, threads=1)
    return lmab.fit(log, n_types=3, method=method, rewards=truth.rewards.family, rng=rng).bandit


def _policy(name: str, model: lmab.LatentBandit) -> lmab.Policy:
    if name == "uniform":
        return lmab.Uniform(model.n_arms)
    if name == "by rank":
        return ByRank(model.n_arms)
    inner = lmab.Greedy(model) if name.startswith("greedy") else lmab.Thompson(model)
    return lmab.policies.Exploring(inner, FLOOR) if name.endswith("+ 10%") else inner


def _cut(log: lmab.Sessions, rng: np.random.Generator) -> lmab.Sessions:
    arms, rewards = log.to_arrays()
    assert log.propensities is not None
    gone = np.cumsum(rng.random(arms.shape) < 0.1, axis=1) > 0
    arms[:, 1:][gone[:, :-1]] = -1
    chances = log.propensities.reshape(arms.shape)
    return lmab.Sessions.from_arrays(arms, rewards, propensities=chances, n_arms=log.n_arms)


def table(rows: list[dict[str, Any]]) -> str:
    """Coverage and width per case and method, over the logs where an interval is given without a note."""
    groups = defaultdict(list)
    for row in rows:
        groups[_case(row)].append(row)
    heads = [*LABELS, "logs", "interval given", "noted", "effective", *(f"{name}, width" for name in METHODS)]
    lines = [" | ".join(heads), "|".join(["---"] * len(heads))]
    for case in CASES:
        some = groups[_case(asdict(case))]
        policy = case.policy + (", ragged" if case.ragged else "")
        labels = [case.rewards, case.n_arms, case.horizon, f"{case.n_sessions:,}", case.logger, policy]
        if some:
            lines.append(" | ".join([*map(str, labels), *_cells(some)]))
    lines.append(" | ".join(["**all**", *[""] * 5, *_cells(rows)]))
    return "\n".join(f"| {line} |" if "---" not in line else f"|{line}|" for line in lines)


def _cells(rows: list[dict[str, Any]]) -> list[str]:
    given = [row for row in rows if row["intervals"][0] is not None and row["effective"] >= 30]
    plain = [row for row in given if not row["notes"]]
    sizes = np.median([row["effective"] for row in rows])
    cells = [str(len(rows)), str(len(given)), str(len(given) - len(plain)), f"{sizes:.0f}"]
    for place in range(3):
        said = [(row["true"], *row["intervals"][place]) for row in plain if row["intervals"][place] is not None]
        held = np.mean([low <= true <= high for true, low, high in said]) if said else np.nan
        width = np.mean([high - low for _, low, high in said]) if said else np.nan
        cells.append(f"{held:.3f}, {width:.2f}" if said else "")
    return cells


def _case(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in Case.__dataclass_fields__)


if __name__ == "__main__":
    main()
