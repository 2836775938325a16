"""The page of the reproduction: claims are judged by rows, and what is committed is what the rows say."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import lmab
from lmab.paper.experiment import studies
from lmab.paper.experiment.analysis import Evidence, wanted
from lmab.paper.experiment.checks import _changes, _moved, reads, three_points, width
from lmab.paper.experiment.claims import CLAIMS, FIGURES, OURS, PAPER, READING
from lmab.paper.experiment.methods import ED_MLE, L_UCRL_PUBLISHED, Line, Measurement, Setting, Trial, generator
from lmab.paper.experiment.page import (
    _rows_of,
    _verdict,
    about,
    count_verdicts,
    headline,
    levers,
    page,
    rates_page,
    readings,
    size_readings,
)
from lmab.paper.experiment.store import Row, read_table, repeated, row_of, unlike
from lmab.paper.experiment.studies import STUDIES, Study

DOCS = Path(__file__).parent.parent / "docs"


@cache
def stored_rows() -> list[Row]:
    return read_table(DOCS / "reproduction" / "rows.csv.gz")


def made_up(study: Study, share, distance=lambda trial: 0.1, size="standard", only=lambda trial: True) -> list[Row]:
    """Rows of a study in which `share(trial)` is every method's part of a genie worth 1 per step plus a bit."""
    rows = []
    for trial in filter(only, study.trials(size)):
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
    judged = {each.name for claim in CLAIMS for each in about(claim)}
    assert judged == {each.name for each in STUDIES}
    assert {claim.study for claim in CLAIMS} <= {each.name for each in STUDIES} | {FIGURES}


@pytest.mark.parametrize("each", STUDIES, ids=lambda each: each.name)
def test_without_rows_nothing_is_claimed(each):
    assert set(verdicts(each, [])) <= {None}


GOOD = {
    "genie": 1.0,
    "direct-mle": 0.999,
    "ed-mle": 0.995,
    "ed-mle-literal": 0.992,
    "l-ucrl": 0.99,
    "l-ucrl-tensor": 0.985,
    "l-ucrl-published": 0.98,
    "tensor": 0.96,
    "tensor-pairs": 0.94,
    "ucb": 0.8,
}


def poor(trial):
    return 1.0 if trial.method.name == "genie" else 0.9


def judged(name: str, share, text: str) -> bool | None:
    """The verdict of the one claim about a study whose check has `text` in its name or whose words begin with it."""
    (claim,) = (each for each in CLAIMS if each.study == name and each.text.startswith(text))
    finding = claim.check(Evidence(made_up(study(name), share)))
    return None if finding is None else finding.holds


def with_(share=None, **changes):
    """The good world with some methods changed; a change may be a number or depend on the trial."""

    def world(trial):
        name = trial.method.name.replace("-", "_")
        value = changes.get(name, GOOD[trial.method.name])
        value = value(trial) if callable(value) else value
        return value * (1 if share is None else share(trial))

    return world


def longer(trial):
    """What the methods that use types earn more with longer sessions."""
    return 1 if trial.method.name == "ucb" else 1 + trial.setting.horizon / 1000


PANELS = ("fig2a", "fig2b", "fig3a", "fig3b")


def in_figures(text: str, share, distance=lambda trial: 0.1) -> bool | None:
    """The verdict of a claim about figures 2 and 3 together."""
    (claim,) = (each for each in CLAIMS if each.study == FIGURES and each.text.startswith(text))
    rows = {row.id: row for name in PANELS for row in made_up(study(name), share, distance)}
    finding = claim.check(Evidence(list(rows.values())))
    return None if finding is None else finding.holds


def test_the_headline_is_one_claim_about_all_places_of_both_figures():
    ahead = "ED+MLE is ahead of"
    assert in_figures(ahead, with_())
    assert not in_figures(ahead, with_(ed_mle_literal=0.97))  # L-UCRL as published is ahead.
    assert not in_figures(ahead, with_(l_ucrl_published=0.992))  # Nobody is.
    assert not in_figures(ahead, with_(ucb=0.999))
    assert not in_figures(ahead, with_(tensor=0.9999))
    assert in_figures(ahead, with_(l_ucrl=0.9999, l_ucrl_tensor=0.9999))  # Our own form is not the paper's.
    once = with_(ed_mle_literal=lambda trial: 0.95 if trial.setting.n_types == 7 else 0.992)
    assert not in_figures(ahead, once)  # Behind at some places.


def test_the_headline_waits_for_l_ucrl_as_published():
    claim = next(each for each in CLAIMS if each.study == FIGURES and each.source == PAPER)
    rows = {row.id: row for name in PANELS for row in made_up(study(name), with_())}
    left = [row for row in rows.values() if row.method != "l-ucrl-published"]
    assert claim.check(Evidence(left)) is None
    some = [row for row in rows.values() if row.method != "l-ucrl-published" or row.horizon != 7]
    assert claim.check(Evidence(some)) is None  # Half of a run is no run.


def test_parameters_are_judged_by_all_pairs_and_the_printed_form_is_told():
    def distance(trial, ours=0.1, printed=0.3):
        return {"ed-mle": ours, "ed-mle-literal": printed}.get(trial.method.name, 0.2) + 0.001 * trial.instance

    text = "In parameters"
    assert in_figures(text, with_(), distance)
    assert not in_figures(text, with_(), lambda trial: distance(trial, ours=0.25))
    assert in_figures(text, with_(), lambda trial: distance(trial, printed=0.1))
    (claim,) = (each for each in CLAIMS if each.study == FIGURES and each.text.startswith(text))
    rows = [row for name in PANELS for row in made_up(study(name), with_(), distance)]
    found = claim.check(Evidence(rows)).text
    assert re.fullmatch(
        r"ED\+MLE, all pairs: significantly nearer at (\d+) of \1 places, farther at 0; "
        r"ED\+MLE as printed: significantly nearer at 0 of \1 places, farther at \1",
        found,
    )


def test_methods_rise_with_the_horizon_and_ucb_does_not():
    assert judged("fig2a", with_(longer), "All methods but UCB")
    assert not judged("fig2a", poor, "All methods but UCB")
    assert not judged(
        "fig2a", with_(longer, ucb=lambda trial: 0.8 + trial.setting.horizon / 100), "All methods but UCB"
    )
    dips = with_(longer, tensor=lambda trial: 0.9 if trial.setting.horizon == 10 else 0.96)
    assert not judged("fig2a", dips, "All methods but UCB")  # the ends alone would not show it


def test_tensors_are_judged_at_every_horizon():
    assert judged("fig2a", with_(), "With M = 4 (full rank)")
    assert not judged(
        "fig2a", with_(tensor=lambda t: 0.97 if t.setting.horizon == 5 else 0.9), "With M = 4 (full rank)"
    )
    assert judged("fig2b", with_(tensor=0.9), "With M = 7 (rank 4)")
    only_at_seven = with_(tensor=lambda trial: 0.9 if trial.setting.horizon == 7 else 0.992)
    assert not judged("fig2b", only_at_seven, "With M = 7 (rank 4)")
    assert judged("fig2b", with_(tensor=0.9), "Only methods with EM")
    assert not judged("fig2b", with_(tensor=0.97), "Only methods with EM")
    assert judged("fig2b", with_(tensor=0.9, tensor_pairs=0.97), "Only methods with EM") is False  # a counterexample
    for name in ("fig2a", "fig2b"):
        assert judged(name, with_(), "L-UCRL from tensor")
        assert not judged(name, with_(l_ucrl_tensor=0.9), "L-UCRL from tensor")


def scattered(trial, size):
    """Noise of mean 0 over instances, the same for all methods and horizons of an instance."""
    return size * (-1) ** trial.instance


def test_a_threshold_within_two_standard_errors_decides_nothing():
    near = with_(tensor=lambda trial: 0.951 + scattered(trial, 0.02))
    assert judged("fig2a", near, "With M = 4 (full rank)") is None
    assert judged("fig2a", with_(tensor=lambda trial: 0.98 + scattered(trial, 0.001)), "With M = 4 (full rank)") is True
    assert (
        judged("fig2a", with_(tensor=lambda trial: 0.92 + scattered(trial, 0.001)), "With M = 4 (full rank)") is False
    )


def test_a_drop_from_four_to_seven_types_has_three_outcomes():
    text = "ED+MLE and L-UCRL lose nothing"

    def falling(by, noise=0.0):
        def share(trial):
            many = trial.setting.n_types == 7 and trial.setting.n_arms == 50
            return 0.98 - by * many + scattered(trial, noise)

        return with_(ed_mle_literal=share, l_ucrl_published=share)

    assert in_figures(text, falling(0.0)) is True
    assert in_figures(text, falling(0.03)) is False
    assert in_figures(text, falling(-0.03)) is True
    assert in_figures(text, falling(0.004, noise=0.03)) is None


def test_nothing_is_decided_if_the_genie_fails_the_rule():
    text = "ED+MLE is ahead of UCB"
    assert in_figures(text, with_()) is True
    assert in_figures(text, with_(ed_mle_literal=0.97, l_ucrl_published=0.98)) is False
    hidden = with_(l_ucrl_published=lambda trial: 1.0 + scattered(trial, 0.01))  # as good as the true model
    assert in_figures(text, hidden) is None
    claim = next(each for each in CLAIMS if each.text.startswith(text))
    rows = {row.id: row for name in PANELS for row in made_up(study(name), hidden)}
    assert "not decidable with this planner" in claim.check(Evidence(list(rows.values()))).text
    assert judged("fig2b", with_(tensor=1.0), "With M = 7 (rank 4)") is None


def test_vacuous_claims_and_regression_limits_are_counted_apart():
    text = count_verdicts(stored_rows(), "full")
    paper = [claim for claim in CLAIMS if claim.source == PAPER]
    vacuous = [claim for claim in paper if claim.vacuous]
    assert {claim.study for claim in vacuous} == {"fig2b", "fig3b"}
    assert f"of {len(paper) - len(vacuous)} claims of the paper agree (" in text
    assert f"{len(vacuous)} more are vacuous) and 12 of 12 regression limits hold" in text
    overview = page(stored_rows(), "full")
    assert overview.count("(rule after rows) |") == sum(claim.late for claim in CLAIMS) == 3
    assert overview.count("(vacuous) |") == 2


def test_what_the_printed_form_was_not_run_for_is_judged_by_ours_and_said():
    rows = [
        row
        for row in made_up(study("fig2a"), with_(longer))
        if row.method not in ("ed-mle-literal", "l-ucrl-tensor", "l-ucrl-published")
    ]
    (claim,) = (each for each in CLAIMS if each.study == "fig2a" and each.text.startswith("All methods"))
    finding = claim.check(Evidence(rows))
    assert finding is not None
    assert finding.holds
    assert "L-UCRL, refitted 0." in finding.text
    assert "ED+MLE as printed was not run; L-UCRL as published was not run" in finding.text


def test_the_refitted_form_from_tensors_stands_for_the_published_one():
    rows = [row for row in made_up(study("fig2a"), with_(longer)) if row.method != "l-ucrl-published"]
    (claim,) = (each for each in CLAIMS if each.study == "fig2a" and each.text.startswith("All methods"))
    text = claim.check(Evidence(rows)).text
    assert "L-UCRL, refitted, tensor start 0." in text
    assert text.endswith("; L-UCRL as published was not run")


def test_the_guarantee_is_beaten_unless_nearly_everything_is_lost():
    assert judged("fig3b", with_(), "ED+MLE and L-UCRL need a hundredth")
    rows = made_up(study("fig3b"), with_())
    (claim,) = (each for each in CLAIMS if each.study == "fig3b" and "hundredth" in each.text)
    rows = [replace(row, n_sessions=10**30 * row.n_sessions) for row in rows]
    finding = claim.check(Evidence(rows))
    assert finding is not None
    assert not finding.holds


def test_figure_3():
    def falls(trial):
        return 0.96 - 0.02 * (trial.setting.n_types - 3)

    less = "Tensor decomposition has less"
    assert judged("fig3a", with_(tensor=falls), less)
    assert not judged("fig3a", with_(), less)
    assert not judged("fig3a", with_(tensor=lambda trial: 1.9 - falls(trial)), less)  # It rises.
    bump = with_(tensor=lambda trial: falls(trial) + (0.01 if trial.setting.n_types == 7 else 0))
    assert judged("fig3a", bump, less)  # A trend may have a bump.
    noisy = with_(tensor=lambda trial: 0.9 + 0.01 * (-1) ** trial.instance * (trial.setting.n_types - 6))
    assert not judged("fig3a", noisy, less)  # Half of the instances fall.

    def approaches(trial):
        return 1 - (0 if trial.method.name == "genie" else 100 / max(trial.setting.n_sessions, 1))

    assert judged("fig3b", with_(approaches), "ED+MLE and L-UCRL rise")
    assert not judged("fig3b", poor, "ED+MLE and L-UCRL rise")
    dips = with_(approaches, l_ucrl_published=lambda trial: 0.9 if trial.setting.n_sessions == 50_000 else 0.99)
    assert not judged("fig3b", dips, "ED+MLE and L-UCRL rise")
    assert judged("fig3b", with_(approaches), "N = 10,000")
    assert judged("fig3b", with_(approaches), "N = 2,000")
    assert not judged("fig3b", poor, "N = 10,000")
    assert not judged("fig3b", poor, "N = 2,000")


def test_our_numbers():
    assert judged("fig2a", with_(), "H = 5")
    assert not judged("fig2a", poor, "H = 5")
    for text in ("H = 7: ED+MLE minus", "H = 7: DirectMLE", "L-UCRL is within"):
        assert judged("fig2b", with_(tensor=0.9), text)
    assert not judged("fig2b", with_(tensor=0.99), "H = 7: ED+MLE minus")
    assert not judged("fig2b", poor, "H = 7: DirectMLE")
    assert not judged("fig2b", with_(l_ucrl=0.9), "L-UCRL is within")


def test_every_claim_of_the_paper_is_quoted():
    for claim in CLAIMS:
        assert (claim.source == PAPER) == bool(claim.quotation), claim.text
    assert {claim.source for claim in CLAIMS} == {PAPER, OURS, READING}
    for claim in CLAIMS:
        if claim.source == PAPER:
            assert re.match(r'".{30,}" \((section|the abstract|Theorem|Lemma|Remark|appendix).*\)$', claim.quotation), (
                claim.quotation
            )


def order(changes=(), laws=("spherical", "spread", "clipped"), **planners):
    """Verdicts of all readings in a world where only the named methods differ from .9 of the genie."""
    shares = dict(changes)

    def few(trial):
        return trial.setting.kind in laws

    rows = made_up(
        study("order"),
        lambda trial: 1.0 if trial.method.name == "genie" else shares.get(trial.method.name, 0.9),
        only=few,
    )
    found = {claim.text: claim.check(Evidence(rows)) for claim in CLAIMS if claim.study == "order"}
    return {text: None if finding is None else finding.holds for text, finding in found.items()}


def test_readings_are_judged_each_by_its_own_forms():
    assert not any(order().values())  # All are level.
    known = order({"ed-mle-known": 0.95})
    assert [text for text, holds in known.items() if holds] == [text for text in known if "true subspace" in text]
    published = order({"l-ucrl-published": 0.85, "l-ucrl-tensor": 0.95})
    ahead = [text for text, holds in published.items() if holds]
    assert ahead
    assert all("as published" in text for text in ahead)
    assert not any("refitted" in text for text in ahead)
    passes = order({"l-ucrl-passes-75": 0.95})
    assert [text for text, holds in passes.items() if holds] == [
        text for text in passes if text.startswith("75 passes")
    ]


def test_a_reading_that_is_behind_under_one_law_does_not_agree():
    def share(trial):
        behind = trial.method.name == "ed-mle" and trial.setting.kind == "clipped"
        return {"genie": 1.0, "ed-mle": 0.8 if behind else 0.95}.get(trial.method.name, 0.9)

    (claim,) = (each for each in CLAIMS if each.text.startswith("ED+MLE from all pairs, L-UCRL as published (Q-MDP)"))
    finding = claim.check(Evidence(made_up(study("order"), share)))
    assert not finding.holds
    assert finding.text.count("significantly above at 2 of 2 places") == 2
    assert "clipped: -0.1000 to -0.1000, significantly above at 0 of 2 places and below at 2" in finding.text


def test_the_order_is_judged_on_instances_that_nobody_looked_at():
    assert {trial.instance for trial in study("order").trials("full")} == set(range(200, 220))
    others = [each for each in STUDIES if each.name not in ("order", "order-sizes")]
    assert all(trial.instance < 100 for each in others for trial in each.trials("full"))


def test_what_was_named_before_the_run_is_judged_when_the_run_is_complete():
    """A verdict on a part of the run could be awaited until it pleases."""
    rows = made_up(study("order"), lambda trial: 0.95 if trial.method.name == "ed-mle-known" else 0.9, size="quick")
    claims = [claim for claim in CLAIMS if claim.study == "order"]
    assert all(claim.ahead for claim in claims)
    assert not any(_verdict(claim, rows, "quick")[0] == "not measured" for claim in claims)
    assert all(_verdict(claim, rows[:-1], "quick") == ("not measured", "rows are missing") for claim in claims)


def test_tables_of_readings_and_levers_come_from_rows():
    shares = {"ed-mle-known": 0.95, "genie": 1.0}
    rows = made_up(study("order"), lambda trial: shares.get(trial.method.name, 0.9), size="quick")
    lines = readings(rows, "quick").splitlines()
    assert len(lines) == 2 + 16
    ahead, level = (
        "| 1 ahead, 0 behind of 1 " * 3 + "| agrees |",
        "| 0 ahead, 0 behind of 1 " * 3 + "| does not agree |",
    )
    assert [line.endswith(ahead if "true subspace" in line else level) for line in lines[2:]] == [True] * 16
    assert readings(rows[1:], "quick").count("|  |  |  | not measured |") == 16
    told = levers(rows, "quick", n_sessions=2_000).splitlines()
    assert told[-1] == "| ED+MLE, true subspace" + " | 0.9500 ± 0.0000" * 3 + " |"
    assert told[2] == "| L-UCRL as published" + " | 0.9000 ± 0.0000" * 3 + " |"


def test_the_headline_is_stated_in_three_sentences_from_rows():
    """The table at the sizes of figure 2 has the genie in the place of ED+MLE, too."""
    rows = stored_rows()
    sentences = headline(rows, "full").splitlines()
    assert [line[:2] for line in sentences] == ["1.", "2.", "3."]
    lines = size_readings(rows, "full").splitlines()[2:]
    assert [line.split(" | ")[0] for line in lines[-2:]] == ["| the genie, L-UCRL as published"] * 2
    for line in lines[1:-2:2]:  # the certified planner
        few, many, verdict = line.removesuffix(" |").split(" | ")[2:]
        assert f"{few} (M = 4), {many} (M = 7): {verdict}" in sentences[1]


def test_the_history_mdp():
    def share(trial, power=3):
        size = trial.setting.n_arms**trial.setting.horizon
        needed = {"history-ucbvi": 100 * size ** (power / 3), "genie": 0}.get(
            trial.method.name, 300 * trial.setting.n_arms
        )
        return 1.0 if trial.setting.n_sessions >= needed else 0.9

    assert judged("naive", share, "The history MDP")
    assert not judged("naive", lambda trial: share(trial, power=0), "The history MDP")


def test_sessions_needed():
    def share(trial, factor=20):
        needed = {"direct-mle": 2_000, "ed-mle": 20_000, "ed-mle-literal": factor * 2_000, "genie": 0}[
            trial.method.name
        ]
        return 1.0 if trial.setting.n_sessions >= needed else 0.9

    rows = made_up(study("sessions"), share)
    assert verdicts(study("sessions"), rows) == [True]
    assert verdicts(study("sessions"), made_up(study("sessions"), lambda trial: share(trial, 5))) == [False]
    assert "| DirectMLE, uniform play |" in page(rows).split("Sessions needed (5%")[1]


def on_the_line(rate_below=0.0, rate_above=0.5):
    """Distances that fall as N^-rate on both sides of H = 5, from .3 at N = 1,000."""

    def distance(trial):
        rate = rate_above if trial.setting.horizon >= 5 else rate_below
        return 0.3 * (1000 / max(trial.setting.n_sessions, 1000)) ** rate

    return distance


def test_parameters_have_a_floor_at_every_short_horizon():
    def verdict(distance, share=lambda trial: 0.999):
        rows = made_up(study("identifiability"), share, distance)
        return [claim.check(Evidence(rows)).holds for claim in CLAIMS if claim.study == "identifiability"]

    assert verdict(on_the_line()) == [True, True]
    assert verdict(on_the_line(rate_above=0.1)) == [False, True]  # nothing is learned
    assert verdict(on_the_line(rate_below=0.5)) == [False, True]  # everything is
    one = on_the_line()

    def broken(trial):
        return 0.001 if trial.setting.horizon == 3 and trial.setting.n_sessions > 10**4 else one(trial)

    assert verdict(broken) == [False, True]

    def stuck(trial):  # the first horizon at which parameters can be found
        return 0.3 if trial.setting.horizon == 5 else one(trial)

    assert verdict(stuck) == [False, True]
    assert verdict(on_the_line(), poor) == [True, False]


@pytest.mark.parametrize("horizon", [2, 3, 4])
def test_the_ambiguity_of_short_sessions(horizon):
    """Other bandits on the line have the same moments up to H, and the widest is that far away."""
    line = Line.draw(3, 8, generator(1, "bandit"))
    moments = np.array([line.weights @ line.positions**order for order in range(5)])
    others = list(zip(*three_points(moments, np.linspace(-1.2, 1.2, 25)), strict=True))
    assert len(others) > 3
    for points, weights in others:
        np.testing.assert_allclose([weights @ points**order for order in range(5)], moments, atol=1e-9)
    assert 0.02 < width(8, 4, 1) <= width(8, 3, 1) <= width(8, 2, 1) < 2
    assert width(8, 5, 1) == 0
    truth = Setting("line", 3, 8, horizon).draw(1)
    steep = np.abs(line.slopes).max()
    inside = [one for one in others if np.abs(one[0]).max() * steep <= 0.49]
    distances = [
        truth.distance(lmab.LatentBandit.bernoulli(w / w.sum(), 0.5 + x[:, None] * line.slopes)) for x, w in inside
    ]
    assert max(distances) <= width(8, 4, 1) + 0.01


def rate(scale):
    return 0.1 + 0.4 * min(scale, 1.0)


def falls_as(fast, size="full"):
    """The verdict on a world in which ED+MLE's distance falls as N to the power -fast(gamma, H, N)."""

    def distance(trial):
        setting = trial.setting
        power = fast(setting.separation, setting.horizon, setting.n_sessions)
        return (10 + 0.1 * trial.instance) / max(setting.n_sessions, 1) ** power

    def few(trial):
        return trial.method.name == "ed-mle-fit" and trial.instance < 4

    rows = made_up(study("separation"), lambda trial: 1.0, distance, size, few)
    (claim,) = (each for each in CLAIMS if each.study == "separation")
    return claim.check(Evidence(rows)).holds


@pytest.mark.parametrize("size", ["standard", "full"])
def test_separation_is_a_collapse_in_gamma_squared_h(size):
    assert falls_as(lambda gamma, horizon, n: rate(gamma**2 * horizon / 2), size)
    assert not falls_as(lambda gamma, horizon, n: rate(horizon / 32), size)  # H alone decides
    assert not falls_as(lambda gamma, horizon, n: rate(gamma), size)  # gamma alone decides
    assert not falls_as(lambda gamma, horizon, n: 0.5, size)
    assert not falls_as(lambda gamma, horizon, n: 0.1, size)
    assert not falls_as(lambda gamma, horizon, n: 0.6 * rate(gamma**2 * horizon / 2), size)  # never parametric
    assert not falls_as(lambda gamma, horizon, n: 0.6 - rate(gamma**2 * horizon / 2), size)  # the wrong way round


def test_separation_is_judged_over_the_whole_curve():
    def corners(gamma, horizon, n):
        scale = gamma**2 * horizon
        return rate(scale / 2) if scale < 0.2 or scale > 10 else (0.5 if gamma < 0.3 else 0.1)

    def stops(gamma, horizon, n):
        """Parametric up to 10,000 sessions; then the distance stays."""
        return rate(gamma**2 * horizon / 2) * np.log(min(n, 10_000)) / np.log(n)

    def slows(gamma, horizon, n):
        """Faster than parametric up to 10,000 sessions, and then half as fast as that: the ends alone look well."""
        return (
            rate(gamma**2 * horizon / 2) * (1.5 * np.log(min(n, 10_000)) + 0.5 * np.log(max(n / 10_000, 1))) / np.log(n)
        )

    def scatters(gamma, horizon, n):
        """gamma^2 H decides at both ends; between them every second horizon is slow."""
        scale = gamma**2 * horizon
        return rate(scale / 2) if scale < 0.2 or scale > 10 else (0.5 if np.log2(horizon) % 2 else 0.1)

    assert not falls_as(corners)
    assert not falls_as(scatters)
    assert not falls_as(stops)
    assert not falls_as(slows)
    assert not falls_as(lambda gamma, horizon, n: 0.4 + rate(gamma**2 * horizon / 2) / 5)  # fast everywhere
    assert not falls_as(lambda gamma, horizon, n: rate(gamma * horizon / 16))  # another power of gamma decides
    assert not falls_as(lambda gamma, horizon, n: rate(gamma**4 * horizon))


def test_separation_asks_for_rows_of_ed_mle_and_for_a_curve():
    rows = made_up(study("separation"), lambda trial: 1.0)
    (claim,) = (each for each in CLAIMS if each.study == "separation")
    assert claim.check(Evidence([row for row in rows if row.method != "ed-mle-fit"])) is None
    assert claim.check(Evidence([row for row in rows if row.separation < 0.3])) is None  # three cells
    alone = claim.check(Evidence([row for row in rows if row.method == "ed-mle-fit"]))
    assert alone is not None
    assert "DirectMLE" not in alone.text


def test_planning_and_arms():
    def probing(trial):
        return 0.6 if trial.method.name == "plan-qmdp" and trial.setting.kind == "hard" else 0.99

    assert verdicts(study("planning"), made_up(study("planning"), probing)) == [True]
    assert verdicts(study("planning"), made_up(study("planning"), lambda trial: 0.99)) == [False]
    assert verdicts(study("arms"), made_up(study("arms"), lambda trial: GOOD[trial.method.name])) == [True]
    assert verdicts(study("arms"), made_up(study("arms"), poor)) == [False]


def test_the_page_tells_how_checks_were_made():
    text = page(made_up(study("fig3a"), with_()))
    assert "The rule of this check was changed twice after its verdict had been seen." in text
    assert "The rule was fixed when rows of DirectMLE were known and none of ED+MLE; those" in text


def test_the_page_has_both_bounds_of_lemma_c_2_beside_what_was_measured():
    rows = made_up(study("separation"), lambda trial: 1.0, lambda trial: trial.setting.horizon / 100)
    text = page(rows)
    lines = [line for line in text.splitlines() if line.startswith(("| 1,000 |", "| 10,000 |"))]
    longest = max(row.horizon for row in rows)
    variation = ((53 * np.log(17 * longest * 10_000) + np.log(10)) / 10_000) ** 0.5  # n M + M - 1 = 53 parameters
    epsilon = 2 * variation * 3  # over w_min
    bounds = (epsilon, epsilon / 3, 2 * epsilon, epsilon + 4 * 6**0.5 * 2 * epsilon)
    expected = " | ".join(f"{bound:.3f}" for bound in bounds)
    measured = "ED+MLE, all pairs 0.3200, DirectMLE, fixed prior 0.3200"
    assert epsilon > 1
    assert lines[1] == f"| 10,000 | no guarantee (46) | {expected} | {measured} |"
    assert len(lines) == 2


def test_the_page_tells_what_is_missing_and_what_disagrees():
    rows = made_up(study("planning"), lambda trial: 0.99)
    text = page(rows[:-3])
    assert "3 of 200 trials are missing." in text
    assert "| does not hold |" in text
    assert "**Not measured**: rows are missing." in text
    assert "![Planners on the true model](figures/planning.svg)" in text
    assert "figures/fig2a.svg" not in text


def test_the_page_tells_which_commit_made_the_rows():
    rows = made_up(study("planning"), lambda trial: 0.99)
    rows = [replace(row, commit="" if number < 50 else "0123456789") for number, row in enumerate(rows)]
    text = page(rows)
    assert "| planning | 150 rows: 0123456789; 50 rows: not recorded |" in text
    assert "| fig2a | no rows yet |" in text


def test_the_page_of_measured_numbers_counts_what_the_rows_say():
    rows = stored_rows()
    for path in (DOCS.parent / "README.md", DOCS / "measured.md"):
        assert f"{count_verdicts(rows, 'full')}, 20 instances each" in path.read_text()


def test_the_committed_page_is_what_the_committed_rows_say():
    rows = stored_rows()
    assert (DOCS / "reproduction.md").read_text() == page(rows, "full")
    assert (DOCS / "rates.md").read_text() == rates_page(rows, "full")
    panels = {each.name for figure in studies.FIGURES for each in figure.studies}
    together = panels | {each.name for each in studies.RATES}
    drawn = {each.name for each in STUDIES if wanted(each, rows, "full")} - together
    drawn |= {figure.name for figure in studies.FIGURES} | {"regimes", "rates"}
    assert drawn <= {path.stem for path in (DOCS / "figures").glob("*.svg")}


def _cheap_ones(n: int) -> list[Trial]:
    """Of every method, by its revision, `n` stored trials drawn from the cheaper half of those that the clock left."""
    stored = {row.id: row for row in stored_rows() if row.done and row.note != "time limit"}
    trials = {trial.id: trial for each in STUDIES for trial in each.trials("full") if trial.id in stored}
    methods: dict[str, list[str]] = {}
    for name in sorted(trials, key=lambda each: (stored[each].seconds_learning or 0, each)):
        methods.setdefault(name.rpartition("/")[2], []).append(name)
    rng = np.random.default_rng(1)
    chosen = [rng.choice(names[: max(len(names) // 2, n)], n, replace=False).tolist() for names in methods.values()]
    return [trials[name] for names in chosen for name in names]


@pytest.mark.slow
def test_stored_rows_are_what_the_code_gives():
    """A method whose results change needs a higher revision: then its stored rows no longer count."""
    found = repeated(_cheap_ones(4), stored_rows())
    assert {pair.found.method for pair in found} == {row.method for row in stored_rows()}
    assert unlike(found) == []


@pytest.mark.parametrize("seed", range(5))
def test_what_moves_on_a_line_is_the_wasserstein_distance(seed):
    rng = np.random.default_rng(seed)
    points, others = rng.uniform(-1, 1, 3), rng.uniform(-1, 1, 2)
    weights, shares = rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(2))
    expected = lmab.model.wasserstein(weights, points[:, None], shares, others[:, None])
    assert _moved(points, weights, others, shares) == pytest.approx(expected, abs=1e-9)


def test_the_width_is_the_distance_to_the_farthest_bandit_with_the_same_moments():
    line, truth = Line.draw(3, 8, generator(1, "bandit")), Setting("line", 3, 8, 4).draw(1)
    moments = np.array([line.weights @ line.positions**order for order in range(5)])
    distances = []
    for points, weights in zip(*three_points(moments, np.linspace(-1.3, 1.3, 53)), strict=True):
        if np.abs(points[:, None] * line.slopes).max() <= 0.5:  # means are probabilities
            means = np.clip(0.5 + points[:, None] * line.slopes, 0, 1)
            distances.append(truth.distance(lmab.LatentBandit.bernoulli(weights / weights.sum(), means)))
    assert width(8, 4, 1) == pytest.approx(max(distances), rel=1e-6)


def test_moments_that_sessions_do_not_show_may_change():
    for horizon, n_free in ((4, 0), (3, 1), (2, 2)):
        changes = _changes(horizon)
        assert len(changes) == 7**n_free
        assert (changes[:, : horizon + 1] == 0).all()


def test_shares_just_at_the_threshold():
    for share, holds in ((0.9501, True), (0.9499, False)):
        assert judged("fig2a", with_(tensor=share), "With M = 4 (full rank)") is holds

    def rises_to(share):
        return lambda trial: share if trial.setting.n_sessions > 10_000 else 0.9

    for share, holds in ((0.9701, True), (0.9699, False)):
        world = with_(ed_mle_literal=rises_to(share), l_ucrl_published=rises_to(0.99))
        assert judged("fig3b", world, "ED+MLE and L-UCRL rise") is holds


@pytest.mark.parametrize(
    "text",
    [
        "ED+MLE is ahead of UCB",
        "In parameters",
        "Tensor decomposition has less",
        "ED+MLE as printed, L-UCRL refitted (Q",
    ],
)
def test_the_page_that_explains_the_figures_says_what_the_rows_say(text):
    rows = stored_rows()
    claim = next(each for each in CLAIMS if each.text.startswith(text))
    finding = claim.check(Evidence(_rows_of(claim, rows, "full")))
    words = " ".join((DOCS / "figures-explained.md").read_text().split())
    numbers = re.findall(
        r"(?:nearer|above) at \d+ of \d+ places,? (?:and below|farther) at \d+|-\d\.\d+ ± \d\.\d+", finding.text
    )
    assert numbers
    for number in numbers:
        assert number in words, number


def test_the_same_page_tells_what_tensor_decomposition_reaches():
    claim = next(each for each in CLAIMS if each.text.startswith("Only methods with EM"))
    found = claim.check(Evidence(_rows_of(claim, stored_rows(), "full"))).text
    words = " ".join((DOCS / "figures-explained.md").read_text().split())
    reached = re.search(r"tensor (\d\.\d+ to \d\.\d+) of.*on pairs (\d\.\d+ to \d\.\d+) of", found)
    assert reached is not None
    assert f"tensor {reached[1]} of the genie" in words
    assert f"which is ours, gives {reached[2]}." in words


@pytest.mark.parametrize("measure", ["fraction_qmdp", "fraction"])
def test_the_same_page_tells_the_order_of_all_pairs_and_the_published_form(measure):
    rows = stored_rows()
    claim = next(each for each in CLAIMS if each.text.startswith("In parameters"))
    finding = reads(ED_MLE, L_UCRL_PUBLISHED, measure)(Evidence(_rows_of(claim, rows, "full")))
    words = " ".join((DOCS / "figures-explained.md").read_text().split())
    assert finding.text.partition("significantly ")[2].partition(";")[0] in words


def test_the_same_page_names_the_readings_that_agree():
    told = [line.split(" | ") for line in readings(stored_rows(), "full").splitlines()[2:]]
    good = {(line[0].removeprefix("| "), line[1]) for line in told if line[-1] == "agrees |"}
    words = " ".join((DOCS / "figures-explained.md").read_text().split())
    assert "Of the 16 headline readings three agree, all with the certified planner" in words
    assert {planner for _, planner in good} == {"certified planner"}
    assert len(good) == 3
    assert all(f'"{text}"' in words for text, _ in good)
