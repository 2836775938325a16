"""`lmab demo`: the workflow from a simulated log to a report, and the true values of its policies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from ..checks import check_writable
from ..data.sessions import Sessions
from ..estimation.fit import fit
from ..estimation.result import Estimate
from ..evaluation.assess import assess
from ..evaluation.assessment import Assessment
from ..evaluation.value import evaluate
from ..planning.plan import plan
from ..planning.problem import Plan
from ..reporting.page import report
from .logs import STEPS, shop, shop_log, write_shop
from .options import Json, Seed
from .output import say, show_json, show_table, working

_COLUMNS = (("arm", "item"), ("reward", "click"))  # as `lmab fit` stores them, so that `lmab report` needs no names


@dataclass(frozen=True)
class Story:
    """Results of the four steps of the demonstration."""

    log: Sessions
    estimate: Estimate
    plan: Plan
    assessment: Assessment


@dataclass(frozen=True)
class EarningsRow:
    """Name of a policy, and its true value per session."""

    name: str
    value: float


def demo(
    folder: Annotated[
        Path, typer.Option("--output", "-o", help="The folder for the log, the model, the policy and the report.")
    ] = Path("lmab-demo"),
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Run the workflow on the log of a simulated shop: fit, plan, assess and report.

    The truth is known because the visitors are simulated, so the last table compares the true values of the policies.

    Example: lmab demo --seed 3
    """
    folder.mkdir(parents=True, exist_ok=True)
    check_writable(folder / "report.html")
    story = run_story(folder, seed)
    rows, upper = _truth(story)
    if as_json:
        gain = {"gain": story.assessment.gain, "word": story.assessment.verdict.word}
        values = {row.name: row.value for row in rows}
        show_json(
            {"output": str(folder), "seed": seed, "types": story.estimate.n_types, "upper": upper, **gain, **values}
        )
        return
    for command in _commands():
        say(f"$ {command}")
    say(story.assessment.sentence)
    cells = [[row.name, f"{row.value:.3f}", f"{row.value / upper:.1%}"] for row in rows]
    cells.append(["upper bound on any policy", f"{upper:.3f}", "100.0%"])
    show_table("True clicks per session", ["policy", "clicks", "of the bound"], cells)
    say(f"Report written to {(folder / 'report.html').resolve()}")


def _commands() -> list[str]:
    """Return the commands that have the same results as the demonstration."""
    return [
        "lmab sample shop.csv",
        f"lmab fit shop.csv {' '.join(f'--{name} {column}' for name, column in _COLUMNS)} --then plan,report",
    ]


def run_story(folder: Path, seed: int) -> Story:
    """Run the four steps, each with its file in the folder; the four commands give the same numbers."""
    write_shop(shop_log(seed=seed), folder / "shop.csv")
    log = Sessions.read(folder / "shop.csv", arm="item", reward="click")
    with working("fitting the types"):
        estimate = replace(fit(log, rng=seed), columns=_COLUMNS)
    estimate.save(folder / "model.lmab")
    with working("planning"):
        made = plan(estimate, horizon=STEPS, repeats=False)
    made.save(folder / "policy.lmab")
    with working("assessing and writing the report"):
        assessment = assess(estimate, made, log, rng=seed)
        report(estimate, made, folder / "report.html", assessment=assessment, title="A shop with simulated visitors")
    return Story(log, estimate, made, assessment)


def _truth(story: Story) -> tuple[list[EarningsRow], float]:
    """Return the true values of several policies, and an upper bound on every policy."""
    truth, items = shop(), story.log.arm_labels or ()
    names = list(truth.arm_labels or ())
    truth = truth.relabel(arms=[names.index(item) for item in items])  # in the order of the file
    best = plan(truth, horizon=STEPS, repeats=False)
    learned = evaluate(story.plan.policy, truth, horizon=STEPS).mean
    rows = [
        EarningsRow("items at random", STEPS * float(truth.weights @ truth.means.mean(axis=1))),
        EarningsRow("the most popular items", truth.best_fixed(STEPS, repeats=False)),
        EarningsRow("the learned policy", learned),
        EarningsRow("a policy planned on the truth", best.lower),
    ]
    return rows, best.upper
