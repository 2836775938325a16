"""Features known before a session, in the report and at the command line: shares of types by value, and their worth."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import lmab
from lmab.cli.app import app
from lmab.cli.fit import _unused_columns
from lmab.reporting.contents import gather
from lmab.reporting.page import render

RUNNER = CliRunner()
TRUTH = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5, 0.1], [0.1, 0.5, 0.9]])
PRIOR = lmab.TypePrior.by_value("country", {"de": [0.9, 0.1], "fr": [0.2, 0.8]}, keep=0.4)


@pytest.fixture(scope="module")
def log():
    persons = np.repeat(np.arange(100), 2)
    features = {"country": np.array(["de", "fr"], object)[np.repeat(np.arange(100), 2) % 2]}
    return lmab.simulate(
        TRUTH, lmab.Uniform(3), n_sessions=200, horizon=4, type_prior=PRIOR, features=features, persons=persons, rng=0
    )


def test_the_report_shows_shares_of_types_by_value_and_what_they_are_worth():
    plan = lmab.plan(TRUTH, horizon=3, type_prior=PRIOR)
    found = gather(TRUTH, plan)
    assert found.worth.policy.mean == pytest.approx(plan.lower, abs=0.02)
    alone = lmab.evaluate(plan, TRUTH, horizon=3).mean
    assert found.known.worth == pytest.approx(found.worth.policy.mean - alone)
    assert found.known.worth > 0.1
    np.testing.assert_allclose(found.known.shares["country"]["de"], [0.9, 0.1])
    page = render(found)
    for words in ("Features known before a session", "The figure starts from the average prior",
                  "<th>country</th>", "<th>fr</th>", "<td>80%</td>",
                  "keep their type with probability 0.40",
                  f"Gain from features: {found.known.worth:+.4g} per session"):  # fmt: skip
        assert words in page, words


def test_the_report_says_that_values_are_left_out():
    many = lmab.TypePrior.by_value("city", {f"c{i}": [0.5 + i / 80, 0.5 - i / 80] for i in range(30)})
    page = render(gather(TRUTH, lmab.plan(TRUTH, horizon=2, type_prior=many)))
    assert "Feature city: the 12 most frequent of 30 values are shown." in page
    assert "<th>c11</th>" in page


def test_bounds_are_for_the_people_of_the_report(log):
    """A plan that knows nothing of people proves what such plans can earn; with features one can earn more."""
    estimate = lmab.fit(log, n_types=2, check=False, rng=0)
    assert estimate.type_prior is not None
    alone, people = lmab.plan(estimate.bandit.with_type_prior(None), horizon=3), lmab.plan(estimate, horizon=3)
    found = gather(estimate, alone)
    assert found.worth.policy.mean == pytest.approx(lmab.evaluate(alone, estimate, horizon=3).mean)
    assert found.worth.upper >= lmab.evaluate(people, estimate, horizon=3).mean > alone.upper
    assert gather(estimate, people).worth.upper == people.upper


def test_a_plot_starts_people_where_the_plan_does():
    plan = lmab.plan(TRUTH, horizon=3, type_prior=PRIOR)
    bars = lmab.reporting.plot_worth(TRUTH, plan).patches
    assert bars[1].get_width() == pytest.approx(lmab.evaluate(plan, TRUTH, horizon=3, type_prior=PRIOR).mean)


def test_without_features_the_report_says_nothing_of_them():
    plan = lmab.plan(TRUTH, horizon=3)
    assert gather(TRUTH, plan).known is None
    assert "known before" not in render(gather(TRUTH, plan))
    assert "Nothing is known here" not in render(gather(TRUTH, plan))
    blind = lmab.plan(TRUTH, horizon=3, type_prior=lmab.TypePrior.constant([0.5, 0.5]))
    assert gather(TRUTH, blind).known is None
    again = lmab.plan(TRUTH, horizon=3, type_prior=lmab.TypePrior.constant([0.5, 0.5], keep=0.7))
    known = gather(TRUTH, again).known
    assert (known.keep, known.worth, known.shares) == (0.7, None, {})


def test_the_command_line_goes_from_features_to_an_assessment(log, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = ["session,arm,reward,land,who"]
    for i in range(len(log)):
        one = log[i]
        for arm, reward in zip(one.arms, one.rewards, strict=True):
            rows.append(f"s{i},{arm},{reward:g},{log.features['country'][i]},p{log.persons[i]}")
    (tmp_path / "log.csv").write_text("\n".join(rows) + "\n")
    known = ["--features", "land", "--person", "who"]
    said = RUNNER.invoke(app, ["fit", "log.csv", *known, "--types", "2", "--no-check", "--prior", "2"])
    assert said.exit_code == 0, said.output
    assert "Shares of the types by feature" in said.output
    assert "land" in said.output
    made = RUNNER.invoke(app, ["plan", "model.lmab", "--horizon", "4"])
    assert made.exit_code == 0, made.output
    found = RUNNER.invoke(app, ["evaluate", "policy.lmab", "--model", "model.lmab", "--json"])
    plan = lmab.load(tmp_path / "policy.lmab")
    value = json.loads(found.stdout)["model"]["mean"]
    assert plan.lower - 1e-6 <= value <= plan.upper + 1e-6
    shown = RUNNER.invoke(app, ["report", "model.lmab", "policy.lmab"])
    assert shown.exit_code == 0, shown.output
    assert "Features known before a session" in (tmp_path / "report.html").read_text()
    assert "held-out log-likelihood +" not in said.output
    detailed = RUNNER.invoke(app, ["fit", "log.csv", *known, "--types", "2", "--no-check", "--prior", "2", "--verbose"])
    assert "held-out log-likelihood +" in " ".join(detailed.output.split())


def test_fit_says_which_columns_are_unused_columns(log):
    estimate = lmab.fit(log, n_types=2, method=lmab.EM(prior=2.0), check=False, rng=0)
    assert estimate.type_prior.columns
    assert [sentence[:9] for sentence in _unused_columns(estimate)] == ["The perso"]
    without = _unused_columns(replace(estimate, bandit=estimate.bandit.with_type_prior(None)))
    assert [sentence[:12] for sentence in without] == ["The features", "The persons "]
