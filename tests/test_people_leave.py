"""People who leave, from the log to the words: fit, plan, assessment, report and commands."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import lmab
from lmab._html import percent
from lmab.cli.app import app
from lmab.estimation import assumptions
from lmab.evaluation.replanning import CrowdReplanner, Replanner
from lmab.planning.advice import Advice
from lmab.reporting.contents import gather
from lmab.reporting.page import render

plan_module = sys.modules["lmab.planning.plan"]  # whose name the function has in the package
MEANS = [[0.9, 0.2, 0.5, 0.6], [0.1, 0.8, 0.6, 0.3], [0.5, 0.5, 0.1, 0.9]]
BY_TYPE = np.broadcast_to(np.array([0.5, 0.15, 0.02])[:, None, None], (3, 4, 2)) * [[[1.0, 0.5]]]
TRUTH = lmab.LatentBandit.bernoulli([0.5, 0.3, 0.2], MEANS, leaving=BY_TYPE)
SHOWN = replace(TRUTH, leaving=np.broadcast_to([[0.4, 0.1]], (3, 4, 2)))
QUICK = lmab.EM(restarts=3, tolerance=1e-4, sweeps=6, threads=1)


@pytest.fixture(scope="module")
def log() -> lmab.Sessions:
    return lmab.simulate(TRUTH, lmab.Uniform(4), n_sessions=1200, horizon=5, rng=2)


@pytest.fixture(scope="module")
def estimate(log):
    return lmab.fit(log, n_types=3, leaving="type", method=QUICK, check=False, rng=0)


@pytest.fixture(scope="module")
def assessment(log, estimate):
    return lmab.assess(estimate, lmab.plan(estimate.bandit, horizon=4), log, n_draws=20, rng=1)


def test_an_assessment_claims_the_value_until_people_leave(assessment, estimate):
    plan = lmab.plan(estimate.bandit, horizon=4)
    value = lmab.evaluate(plan.policy, TRUTH, horizon=4).mean
    best = lmab.plan(TRUTH, horizon=4)
    sure = lmab.assess(estimate, plan, estimate.sessions, confidence=0.99, rng=1)
    assert sure.value[0] <= value <= sure.value[1] < 4 * 0.6
    assert sure.optimum[0] <= best.upper
    assert best.lower <= sure.optimum[1]
    assert assessment.people_leave
    assert assessment.sentence.startswith("A session of at most 4 steps earns ")
    assert (
        assessment.assumptions["leaving"].sentence == "Leaving depends on the latent type, and the model includes this."
    )
    assert "per started session" not in assessment.table


def test_a_fit_that_knows_who_leaves_by_type_does_not_warn_of_it(log, estimate):
    ignored = replace(estimate.bandit, leaving=None)
    assert assumptions.tested(ignored, log).leaving.fires
    assert not assumptions.tested(estimate.bandit, log).leaving.fires
    assert not assumptions.tested(estimate.bandit, log).shown.fires


def test_a_rule_of_the_site_is_not_taken_for_taste(rng):
    """Two right answers in a row end a session: types that leave do not explain it, and nothing is claimed."""
    base = replace(TRUTH, leaving=None)
    arms, rewards = lmab.simulate(base, lmab.Uniform(4), n_sessions=1000, horizon=6, rng=rng).to_arrays()
    row = np.cumsum((rewards[:, 1:] * rewards[:, :-1]) > 0, axis=1) > 0
    arms[:, 2:][row[:, :-1]] = -1
    ended = np.where((arms >= 0).sum(axis=1) < 6, "left", "unknown")
    ruled = lmab.Sessions.from_arrays(arms, rewards, ended=ended)
    found = lmab.fit(ruled, n_types=3, leaving="type", method=QUICK, check=False, rng=0)
    said = found.assumptions["leaving"]
    assert said.fires
    assert "a rule of the site ends sessions" in said.sentence
    honest = lmab.assess(found, lmab.plan(found.bandit, horizon=3), ruled, n_draws=20, rng=1)
    assert honest.value is None


@pytest.mark.parametrize("bandit", [TRUTH, SHOWN], ids=["by type", "shown"])
def test_plans_are_worth_on_drawn_models_what_they_are_worth_there(bandit, rng):
    """The tree of a plan on another model with other chances to leave, against the exact value; and a crowd, too."""
    plan = lmab.plan(bandit, horizon=4)
    other = lmab.LatentBandit.bernoulli([0.2, 0.3, 0.5], np.array(MEANS)[::-1], leaving=BY_TYPE * 1.5)
    found = Replanner(bandit, plan, np.ones(4, bool)).replan(other.weights[None], [other.rewards], [other.leaving])
    assert found.value[0] == pytest.approx(lmab.evaluate(plan.policy, other, horizon=4).mean, rel=1e-12)
    assert found.fixed[0] == pytest.approx(other.best_fixed(4), rel=1e-12)
    best = lmab.plan(other, horizon=4)
    assert found.value[0] <= found.optimum[0] <= best.upper + 1e-9
    assert found.optimum[0] >= 0.97 * best.lower
    crowd = CrowdReplanner(bandit, plan, np.ones(4, bool), rng)
    again = crowd.replan(other.weights[None], [other.rewards], [other.leaving])
    assert again.value[0] == pytest.approx(found.value[0], rel=0.05)
    assert crowd.own == pytest.approx(lmab.evaluate(plan.policy, bandit, horizon=4).mean, rel=0.05)


def test_arms_that_the_log_plays_have_their_own_best_fixed_choice():
    plan, played = lmab.plan(TRUTH, horizon=3), np.array([True, False, True, False])
    found = Replanner(TRUTH, plan, played).replan(TRUTH.weights[None], [TRUTH.rewards], [TRUTH.leaving])
    some = lmab.LatentBandit.bernoulli(TRUTH.weights, TRUTH.means[:, played], leaving=TRUTH.leaving[:, played])
    assert found.fixed_played[0] == pytest.approx(some.best_fixed(3))


def test_plans_say_at_most(estimate):
    fixed = plan_module._fixed_choice(estimate.bandit, np.arange(estimate.bandit.n_arms), 3, True, Advice())
    fixed = replace(fixed, source=estimate)
    assert "over at most 3 steps" in repr(fixed)  # its policy knows no bandit
    plan = lmab.plan(TRUTH, horizon=3)
    assert plan.people_leave
    assert "over at most 3 steps" in repr(plan)
    assert "over at most 3 steps" in plan._repr_html_()
    stay = lmab.plan(replace(TRUTH, leaving=None), horizon=3)
    assert not stay.people_leave
    assert "at most" not in repr(stay)


@pytest.mark.parametrize(("bandit", "said"), [(TRUTH, "type 1"), (SHOWN, "after 0")], ids=["by type", "shown"])
def test_the_report_shows_who_leaves_after_what(bandit, said):
    page = render(gather(bandit, lmab.plan(bandit, horizon=3), title="t"))
    assert "Attrition" in page
    assert "per session of at most 3 steps on the model" in page
    left = (1 - bandit.stays)[0, 1] if bandit is TRUTH else 0.4
    assert f"arm 1, {said}: {percent(left)} leave" in page
    assert "Attrition" not in render(gather(replace(bandit, leaving=None), None, title="t"))


def test_commands_follow_those_who_leave(log, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log[:400].write("log.csv")

    def run(*words: str) -> str:
        found = CliRunner().invoke(app, words)
        assert found.exit_code == 0, found.output
        return " ".join(found.output.split())

    fit = ("fit", "log.csv", "--types", "2", "--restarts", "2", "--no-check", "-o", "m.lmab")
    said = run(*fit, "--ended", "ended", "--leaving", "type")
    assert "the probability of leaving is modelled by type, arm and reward;" in said
    said = run(*fit, "--ended", "ended", "--leaving", "shown")
    shown = lmab.load("m.lmab").bandit
    assert shown.leaving is not None
    assert "the probability of leaving is modelled by arm and reward;" in said
    assert f"{1 - shown.stays[shown.types_by_weight[0]].mean():.1%}" in said
    assert "per session of at most 4 steps, and no policy earns more than" in run(
        "plan", "m.lmab", "--horizon", "4", "-o", "p.lmab"
    )
    assert "On the model a session of at most 4 steps earns" in run("evaluate", "p.lmab", "--model", "m.lmab")
    said = run("report", "m.lmab", "p.lmab", "--logs", "log.csv", "--ended", "ended")
    assert "On the model a session of at most 4 steps earns" in said
    assert "As logged, a session of at most 4 steps earned" in (tmp_path / "report.html").read_text()
    assert "the arm and the reward." not in run(*fit, "--limit", "5", "--leaving", "none")
    assert lmab.load("m.lmab").bandit.leaving is None
    wrong = CliRunner().invoke(app, [*fit, "--leaving", "type"])
    assert wrong.exit_code != 0
    assert "leaving must be 'auto' or 'none' where the log does not say" in " ".join(
        str(wrong.exception or wrong.output).split()
    )
