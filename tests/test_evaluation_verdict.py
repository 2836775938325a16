"""A verdict that travels: plan, evaluate, certificate and report repeat what held-out sessions said about the fit."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from seeds import generator
from typer.testing import CliRunner

import lmab
from lmab import reporting
from lmab.cli.app import app
from lmab.estimation import Calibration, Check, Gain
from lmab.evaluation import Verdict, diagnostics

SOLID = Calibration(np.zeros(1), np.zeros(1), np.zeros(1), np.ones(1, int), 1.0, 0.1)
YES, NO = Gain(0.1, 0.01), Gain(0.01, 0.01)
AGREES, LITTLE, NOTHING = (Check(2, 100, -1.0, one, arms, SOLID) for one, arms in ((YES, YES), (YES, NO), (NO, YES)))


@pytest.mark.parametrize(
    ("gain", "check", "sure", "said"),
    [
        ((0.1, 0.3), AGREES, True, "Count on a gain"),
        ((0.0, 0.3), AGREES, False, "may earn no more than the best fixed choice"),
        ((-0.1, 0.3), LITTLE, False, "may earn no more than the best fixed choice"),
        ((0.1, 0.3), LITTLE, False, "Do not count on the gain"),
        ((0.1, 0.3), NOTHING, False, "Do not count on the gain"),
        ((0.1, 0.3), None, False, "Do not count on the gain"),
        (None, AGREES, False, "Without a certificate"),
    ],
)
def test_a_gain_counts_only_where_interval_and_both_checks_agree(gain, check, sure, said):
    verdict = Verdict(gain, check)
    assert verdict.sure is sure
    assert verdict.sentence.startswith(said) or said in verdict.sentence
    assert (check.verdict if check else "No held-out sessions were asked") in verdict.sentence


def sticky(rng: np.random.Generator, n_sessions: int = 1500, n_steps: int = 8) -> lmab.Sessions:
    """Sessions that draw anew what each of three arms pays: plays of one arm are alike, arms tell nothing of others."""
    pays = rng.beta(0.4, 0.6, size=(n_sessions, 3))
    arms = rng.integers(3, size=(n_sessions, n_steps))
    rewards = rng.random((n_sessions, n_steps)) < np.take_along_axis(pays, arms, axis=1)
    return lmab.Sessions.from_arrays(arms, rewards.astype(float), n_arms=3)


def typed(rng: np.random.Generator) -> lmab.Sessions:
    """Sessions of two plain types."""
    truth = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5, 0.2], [0.1, 0.5, 0.8]])
    return lmab.simulate(truth, lmab.Uniform(3), n_sessions=1500, horizon=5, rng=rng)


@pytest.fixture(scope="module", params=["sticky", "typed"])
def road(request, tmp_path_factory):
    """The whole road by the commands' own means: a log, an estimate with its check, a plan, a certificate."""
    rng = generator(3)
    log = sticky(rng) if request.param == "sticky" else typed(rng)
    method = lmab.EM(prior="learned", restarts=5)
    estimate = lmab.fit(log, n_types=2, method=method, rng=rng)
    estimate = replace(estimate, check=diagnostics.check(log, n_types=2, rng=rng))
    plan = lmab.plan(estimate, horizon=4)
    certificate = lmab.certify(estimate, plan, log, n_draws=20, rng=rng)
    folder = tmp_path_factory.mktemp("road")
    estimate.save(folder / "model.lmab")
    plan.save(folder / "policy.lmab")
    certificate.save(folder / "certificate.lmab")
    return request.param == "typed", estimate, plan, certificate, folder


def test_the_certificate_repeats_the_check_and_keeps_it(road):
    real, estimate, _, certificate, folder = road
    assert estimate.check.agrees is real
    assert certificate.gain[0] > 0  # on the fitted types, in both cases
    assert certificate.sure is real
    assert estimate.check.verdict in certificate.sentence
    assert ("Do not count on the gain" in certificate.sentence) is not real
    assert ("not to be counted on" in certificate._repr_html_()) is not real
    again = lmab.load(folder / "certificate.lmab")
    assert again.check.verdict == estimate.check.verdict
    assert again.sure is real


def test_the_report_is_green_and_calls_types_real_only_where_all_agree(road):
    real, estimate, plan, certificate, _ = road
    held = typed(generator(4)) if real else sticky(generator(4))
    for known in (certificate, None):
        page = reporting.render(reporting.gather(estimate.bandit, plan, sessions=held, certificate=known))
        green = real and known is not None
        assert ('class="good"' in page) is green
        assert ("more)" in page) is green
        assert ("The types are real" in page) is green
        assert "session so far helps to predict" in page  # in both cases: memory alone does not show types
        assert estimate.check.verdict.split(":")[0] in page
    page = reporting.render(reporting.gather(estimate.bandit, plan, certificate=certificate))
    assert ("Count on a gain" in page) is real


def test_the_commands_repeat_the_check(road, tmp_path):
    real, estimate, _, _, folder = road
    policy = str(tmp_path / "policy.lmab")
    asked = {
        "plan": ["plan", str(folder / "model.lmab"), "--horizon", "3", "-o", policy],
        "evaluate": ["evaluate", str(folder / "policy.lmab"), "--model", str(folder / "model.lmab")],
    }
    for arguments in asked.values():
        shown = CliRunner().invoke(app, arguments, catch_exceptions=False)
        assert shown.exit_code == 0, shown.output
        assert estimate.check.verdict in shown.output
        assert ("note: Held-out check" in shown.output) is not real
        answer = json.loads(CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False).output)
        assert answer["check"] == {"agrees": real, "verdict": estimate.check.verdict}
    page = ["report", str(folder / "model.lmab"), str(folder / "policy.lmab"), "-o", str(tmp_path / "page.html")]
    told = CliRunner().invoke(app, [*page, "--certificate", str(folder / "certificate.lmab"), "--json"])
    assert json.loads(told.output)["sure"] is real
    assert ('class="good"' in (tmp_path / "page.html").read_text()) is real


def test_a_plan_shows_the_check_of_its_estimate(road):
    _, estimate, plan, _, _ = road
    assert estimate.check.verdict.split("(")[0].split("+")[0][:30] in plan._repr_html_()
