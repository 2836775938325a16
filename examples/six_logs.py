"""Six logs like those that people bring, made up here and taken the whole way by the command line.

Each log has the marks of a kind of log that is public: film ratings with seconds that tie and ids with gaps, visits to
the areas of a web site, a shop's recommendations with propensities in one file a day, answers of pupils with some
missing, a survey, and revenue. Nothing is fetched. `python examples/six_logs.py FOLDER` makes them, finds the types,
plans, certifies and writes the reports there.
"""

from __future__ import annotations

import csv
import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Row = dict[str, Any]


@dataclass(frozen=True)
class Log:
    """A log and how it is read."""

    file: str  # a file or a folder
    make: Callable[[Path, np.random.Generator, int], None]  # (place, rng, number of people)
    columns: tuple[str, ...]  # options that say which column is what
    horizon: int
    fit: tuple[str, ...] = ()  # more options of `lmab fit`
    plan: tuple[str, ...] = ()  # more options of `lmab plan`


def people(rng: np.random.Generator, n: int, chances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """n people with their types and their chances (n, A) of liking each arm; rows of `chances` are types."""
    types = rng.choice(len(chances), size=n, p=[0.5, 0.3, 0.2][: len(chances)])
    return types, chances[types]


def films(place: Path, rng: np.random.Generator, n: int) -> None:
    """Tab-separated events: user_id, item_id, rating, timestamp; a page of films is rated in the same second."""
    ids = np.array([1, 7, 12, 50, 56, 98, 100, 121, 181, 222, 258, 286])
    _, tastes = people(rng, n, rng.uniform(0.05, 0.95, (3, len(ids))))
    rows = []
    for user in range(n):
        time = 880_000_000 + int(rng.integers(10**7))
        for page in range(int(rng.integers(1, 4))):
            time += int(rng.integers(20, 200)) + (0 if page < 2 else 86_400)
            for film in rng.permutation(len(ids))[:4]:
                rating = 1 + int(rng.binomial(4, tastes[user, film]))
                rows.append((user + 1, ids[film], rating, time))
    order = rng.permutation(len(rows))
    with place.open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerow(["user_id", "item_id", "rating", "timestamp"])
        writer.writerows(rows[k] for k in order)


def visits(place: Path, rng: np.random.Generator, n: int) -> None:
    """A CSV file with semicolons in Latin-1: which areas of a web site were offered, and whether they were visited."""
    areas = [
        "Téléchargements",
        "Aide",
        "Produits",
        "Développement",
        "Actualités",
        "Support technique",
        "Jeux",
        "Emploi",
    ]
    _, tastes = people(rng, n, rng.uniform(0.05, 0.9, (3, len(areas))))
    lines = ["case;area;visited"]
    for case in range(n):
        offered = rng.permutation(len(areas))[:5]
        lines += [f"{10_001 + case};{areas[area]};{int(rng.random() < tastes[case, area])}" for area in offered]
    place.write_text("\n".join(lines) + "\n", encoding="latin-1")


def recommendations(place: Path, rng: np.random.Generator, n: int) -> None:
    """A folder with a compressed CSV file a day: items by number, chosen at random, with the probability."""
    place.mkdir(exist_ok=True)
    items = np.array([0, 3, 4, 8, 11, 15])
    _, tastes = people(rng, n, rng.uniform(0.02, 0.6, (3, len(items))))
    for day in range(3):
        lines = ["timestamp,session,item_id,position,click,propensity_score"]
        for session in range(day, n, 3):
            for position in range(3):
                item = int(rng.integers(len(items)))
                click = int(rng.random() < tastes[session, item])
                time = f"2019-11-2{4 + day} {session % 24:02d}:00:00"
                lines.append(f"{time},s{session},{items[item]},{position + 1},{click},{1 / len(items):.6f}")
        with gzip.open(place / f"2019-11-2{4 + day}.csv.gz", "wt") as file:
            file.write("\n".join(lines) + "\n")


def answers(place: Path, rng: np.random.Generator, n: int) -> None:
    """JSON lines: which skill a pupil was asked about, and whether the answer was right; some were never marked."""
    skills = ["Addition", "Area of a circle", "Fractions", "Percent of", "Probability", "Pythagorean theorem"]
    _, able = people(rng, n, rng.uniform(0.15, 0.95, (3, len(skills))))
    with place.open("w") as file:
        for pupil in range(n):
            for order in range(int(rng.integers(4, 9))):
                skill = int(rng.integers(len(skills)))
                row: Row = {"order_id": order, "user_id": 64_000 + 7 * pupil, "skill_name": skills[skill]}
                row["correct"] = None if rng.random() < 0.03 else int(rng.random() < able[pupil, skill])
                file.write(json.dumps(row) + "\n")


def survey(place: Path, rng: np.random.Generator, n: int) -> None:
    """A CSV file: which question a voter was asked, and the answer from 1 to 4; some did not answer."""
    questions = [f"{trait} ({who})" for who in ("Gore", "Bush") for trait in ("moral", "caring", "knows", "leads")]
    _, agree = people(rng, n, rng.uniform(0.1, 0.9, (3, len(questions))))
    lines = ["voter,question,answer"]
    for voter in range(n):
        for k in rng.permutation(len(questions))[:6]:
            answer = "" if rng.random() < 0.04 else str(1 + rng.binomial(3, agree[voter, k]))
            lines.append(f"{voter},{questions[k]},{answer}")
    place.write_text("\n".join(lines) + "\n")


def revenue(place: Path, rng: np.random.Generator, n: int) -> None:
    """A CSV file: which offer a customer saw, and what was paid: nothing, mostly."""
    offers = ["bundle", "coffee", "gift card", "subscription", "tea"]
    types, buys = people(rng, n, rng.uniform(0.02, 0.35, (3, len(offers))))
    prices = np.exp(rng.normal(2.5, 0.6, (3, len(offers))))
    lines = ["visit,offer,paid"]
    for visit in range(n):
        for _ in range(6):
            offer = int(rng.integers(len(offers)))
            price = prices[types[visit], offer] * np.exp(rng.normal(0, 0.4))
            paid = price if rng.random() < buys[visit, offer] else 0.0
            lines.append(f"v{visit},{offers[offer]},{paid:.2f}")
    place.write_text("\n".join(lines) + "\n")


LOGS = {
    "films": Log(
        "films.tsv",
        films,
        (
            "--person",
            "user_id",
            "--time",
            "timestamp",
            "--gap",
            "30m",
            "--at-most",
            "10",
            "--arm",
            "item_id",
            "--reward",
            "rating",
        ),
        5,
        plan=("--no-repeats",),
    ),
    "visits": Log(
        "visits.csv",
        visits,
        ("--session", "case", "--arm", "area", "--reward", "visited", "--encoding", "latin-1"),
        5,
        plan=("--no-repeats",),
    ),
    "recommendations": Log(
        "recommendations",
        recommendations,
        (
            "--session",
            "session",
            "--arm",
            "item_id",
            "--reward",
            "click",
            "--step",
            "timestamp",
            "--propensity",
            "propensity_score",
        ),
        3,
    ),
    "answers": Log(
        "answers.jsonl",
        answers,
        (
            "--session",
            "user_id",
            "--arm",
            "skill_name",
            "--reward",
            "correct",
            "--step",
            "order_id",
            "--missing",
            "drop",
        ),
        5,
    ),
    "survey": Log(
        "survey.csv",
        survey,
        ("--session", "voter", "--arm", "question", "--reward", "answer", "--missing", "drop"),
        4,
        plan=("--no-repeats",),
    ),
    "revenue": Log(
        "revenue.csv",
        revenue,
        ("--session", "visit", "--arm", "offer", "--reward", "paid"),
        6,
        fit=("--rewards", "binned"),
    ),
}


def way(name: str, folder: Path) -> list[list[str]]:
    """The commands that take a log the whole way, from its file to its report."""
    log, place = LOGS[name], folder / LOGS[name].file
    model, policy, proof, page = (
        str(folder / f"{name}-{part}") for part in ("model.lmab", "policy.lmab", "assessment.lmab", "report.html")
    )
    return [
        ["fit", str(place), *log.columns, *log.fit, "-o", model],
        ["plan", model, "--horizon", str(log.horizon), *log.plan, "-o", policy],
        ["evaluate", policy, "--assess", str(place), *log.columns, "--save-assessment", proof],
        ["report", model, policy, "--assessment", proof, "-o", page],
    ]


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, (name, log) in enumerate(LOGS.items()):
        log.make(folder / log.file, np.random.default_rng(number), 2000)
        for command in way(name, folder):
            print("$ lmab", " ".join(command), flush=True)
            subprocess.run([sys.executable, "-m", "lmab", *command], check=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: python {sys.argv[0]} FOLDER")
    main(Path(sys.argv[1]))
