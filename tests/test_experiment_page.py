"""The page of the reproduction: claims are judged by rows, and what is committed is what the rows say."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmab.experiment import STUDIES, page, read_table, wanted
from lmab.experiment.checks import Evidence
from lmab.experiment.claims import CLAIMS
from lmab.experiment.setting import Measurement
from lmab.experiment.store import Row, row_of
from lmab.experiment.study import Study

DOCS = Path(__file__).parent.parent / "docs"


def made_up(study: Study, share, distance=lambda trial: 0.1) -> list[Row]:
    """Rows of a study in which `share(trial)` is every method's part of a genie worth 1 per step plus a bit."""
    rows = []
    for trial in study.trials("standard"):
        best = trial.setting.horizon * (0.5 + 0.01 * trial.instance)
        value = best * share(trial)
        found = Measurement(value, value_qmdp=value, upper=best, distance=distance(trial), seconds_planning=0.1)
        rows.append(row_of(trial, found, "done", "2022-10-03T00:00:00+00:00"))
    return rows


def verdicts(study: Study, rows: list[Row]) -> list[bool | None]:
    findings = [claim.check(Evidence(rows)) for claim in CLAIMS if claim.study == study.name]
    return [None if finding is None else finding.holds for finding in findings]


def study(name: str) -> Study:
    return next(each for each in STUDIES if each.name == name)


def test_every_study_has_a_claim_and_every_claim_a_study():
    assert {claim.study for claim in CLAIMS} == {each.name for each in STUDIES}


@pytest.mark.parametrize("each", STUDIES, ids=lambda each: each.name)
def test_without_rows_nothing_is_claimed(each):
    assert set(verdicts(each, [])) == {None}


GOOD = {
    "genie": 1.0,
    "direct-mle": 0.999,
    "ed-mle": 0.992,
    "l-ucrl": 0.99,
    "tensor": 0.96,
    "tensor-pairs": 0.96,
    "ucb": 0.8,
}


def poor(trial):
    return 1.0 if trial.method.name == "genie" else 0.9


def test_figure_2_left():
    def good(trial):
        return GOOD[trial.method.name] * (1 if trial.method.name == "ucb" else 1 + trial.setting.horizon / 1000)

    assert verdicts(study("fig2a"), made_up(study("fig2a"), good)) == [True, True, True]
    assert verdicts(study("fig2a"), made_up(study("fig2a"), poor)) == [False, False, False]


def test_figure_2_right():
    def share(trial):
        return {**GOOD, "tensor": 0.9}[trial.method.name]

    assert verdicts(study("fig2b"), made_up(study("fig2b"), share)) == [True] * 5
    assert verdicts(study("fig2b"), made_up(study("fig2b"), lambda trial: {**GOOD, "tensor": 0.99, "l-ucrl": 0.94}[
        trial.method.name])) == [False, False, False, True, False]  # fmt: skip


def test_figure_3():
    def falls(trial):
        lost = 0.02 * trial.setting.n_contexts if trial.method.name in ("tensor", "tensor-pairs") else 0.0
        return GOOD[trial.method.name] - lost

    assert verdicts(study("fig3a"), made_up(study("fig3a"), falls)) == [True]
    assert verdicts(study("fig3a"), made_up(study("fig3a"), lambda trial: GOOD[trial.method.name])) == [False]

    def approaches(trial):
        return GOOD[trial.method.name] - (0 if trial.method.name == "genie" else 100 / max(trial.setting.n_episodes, 1))

    assert verdicts(study("fig3b"), made_up(study("fig3b"), approaches)) == [True, True, True]
    assert verdicts(study("fig3b"), made_up(study("fig3b"), poor)) == [False, False, False]


def test_episodes_needed():
    def share(trial, factor=20):
        needed = {"direct-mle": 2_000, "ed-mle": 20_000, "ed-mle-literal": factor * 2_000, "genie": 0}[
            trial.method.name
        ]
        return 1.0 if trial.setting.n_episodes >= needed else 0.9

    rows = made_up(study("episodes"), share)
    assert verdicts(study("episodes"), rows) == [True]
    assert verdicts(study("episodes"), made_up(study("episodes"), lambda trial: share(trial, 5))) == [False]
    assert "| DirectMLE |" in page(rows).split("Episodes needed (5%")[1]


def test_identifiability_and_separation():
    def distance(trial):
        falls = trial.setting.horizon >= 5
        return 10 / trial.setting.n_episodes**0.5 if falls and trial.setting.n_episodes else 0.3

    rows = made_up(study("identifiability"), lambda trial: 0.999, distance)
    assert verdicts(study("identifiability"), rows) == [True, True]
    rows = made_up(study("identifiability"), poor)
    assert verdicts(study("identifiability"), rows) == [False, False]

    def separated(trial):
        fast = trial.setting.separation**2 * trial.setting.horizon > 1
        return 10 / trial.setting.n_episodes ** (0.5 if fast else 0.1)

    assert verdicts(study("separation"), made_up(study("separation"), lambda trial: 1.0, separated)) == [True]
    assert verdicts(study("separation"), made_up(study("separation"), lambda trial: 1.0)) == [False]


def test_planning_and_arms():
    def probing(trial):
        return 0.6 if trial.method.name == "plan-qmdp" and trial.setting.kind == "hard" else 0.99

    assert verdicts(study("planning"), made_up(study("planning"), probing)) == [True]
    assert verdicts(study("planning"), made_up(study("planning"), lambda trial: 0.99)) == [False]
    assert verdicts(study("arms"), made_up(study("arms"), lambda trial: GOOD[trial.method.name])) == [True]
    assert verdicts(study("arms"), made_up(study("arms"), poor)) == [False]


def test_the_page_tells_what_is_missing_and_what_disagrees():
    rows = made_up(study("planning"), lambda trial: 0.99)
    text = page(rows[:-3])
    assert "3 of 200 trials are missing." in text
    assert "| does not hold |" in text
    assert "**Not measured**: rows are missing." in text
    assert "![Planners on the true model](figures/planning.svg)" in text
    assert "figures/fig2a.svg" not in text


def test_the_committed_page_is_what_the_committed_rows_say():
    rows = read_table(DOCS / "reproduction" / "rows.csv.gz")
    assert (DOCS / "reproduction.md").read_text() == page(rows, "full")
    drawn = {each.name for each in STUDIES if wanted(each, rows, "full")}
    assert drawn <= {path.stem for path in (DOCS / "figures").glob("*.svg")}
