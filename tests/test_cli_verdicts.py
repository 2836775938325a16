"""The held-out check of a fit, as the commands after it repeat it: among the results, or as a note."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from seeds import generator

import lmab
from lmab.cli.fit import _print_results
from lmab.cli.options import check_of, check_summary, tell_check
from lmab.estimation.assumptions import Assumption, Assumptions
from lmab.estimation.check import Calibration, Check, Gain
from lmab.estimation.result import Curve, estimate_of
from lmab.evaluation.diagnostics import Identifiability

SOLID = Calibration(np.zeros(1), np.zeros(1), np.zeros(1), np.ones(1, int), 1.0, 0.1)
YES, NO = Gain(0.1, 0.01), Gain(0.01, 0.01)


def fitted(plan):
    """Return the estimate of a plan."""
    estimate = estimate_of(plan.source)
    assert estimate is not None
    return estimate


@pytest.fixture(scope="module")
def plan():
    log = lmab.Sessions.from_arrays([[0, 1], [1, 0]] * 20, [[1.0, 0.0], [1.0, 1.0]] * 20)
    return lmab.plan(lmab.fit(log, n_types=1, method=lmab.EM(prior=0.0), rng=0), horizon=2)


@pytest.mark.parametrize(("one", "agrees"), [(YES, True), (NO, False)])
def test_a_check_that_agrees_is_a_result_and_another_one_a_note(plan, capsys, one, agrees):
    check = Check(2, 100, -1.0, one, YES, SOLID)
    checked = replace(plan, source=replace(fitted(plan), check=check))
    assert check.agrees is agrees
    assert check_of(checked) is check
    assert check_summary(checked) == {"agrees": agrees, "verdict": check.verdict}
    tell_check(checked)
    said = capsys.readouterr()
    text = f"Held-out check of the fit: {check.verdict}\n"
    assert (said.out, said.err) == (text if agrees else f"note: {text}", "")


def test_a_model_that_was_not_checked_says_so(plan, capsys):
    unchecked = replace(plan, source=replace(fitted(plan), check=None))
    tell_check(unchecked)
    assert "were not tested on held-out sessions" in capsys.readouterr().out
    assert check_summary(unchecked) is None


def test_without_a_fit_nothing_is_said(plan, capsys):
    for planned in (plan.policy, replace(plan, source=None)):
        assert check_of(planned) is None
        assert check_summary(planned) is None
        tell_check(planned)
    assert capsys.readouterr() == ("", "")


def made_up(kind: str, n_sessions: int = 500) -> lmab.Sessions:
    """Logs like real ones that were once promised a gain: without types, of arms that have nothing to do with each
    other, of sessions that like everything more or less; and one with types.
    """
    rng, (n_arms, n_steps) = generator(5, *kind.encode()), (3, 8) if kind == "unrelated" else (8, 5)
    arms = rng.integers(n_arms, size=(n_sessions, n_steps))
    chances = np.tile(rng.uniform(0.2, 0.7, n_arms), (n_sessions, 1))
    if kind == "unrelated":
        chances = rng.beta(0.4, 0.6, (n_sessions, n_arms))
    if kind == "generosity":
        chances = 1 / (1 + np.exp(-np.linspace(-1, 1, n_arms) - 1.5 * rng.standard_normal((n_sessions, 1))))
    if kind == "types":
        chances = np.array([[0.9] * 4 + [0.1] * 4, [0.1] * 4 + [0.9] * 4])[rng.integers(2, size=n_sessions)]
    paid = rng.random(arms.shape) < np.take_along_axis(chances, arms, axis=1)
    return lmab.Sessions.from_arrays(arms, paid.astype(float), n_arms=n_arms)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("nothing", "No latent types found: 3 types do not predict held-out sessions better than one type"),
        (
            "unrelated",
            "Latent types are not supported: 3 types predict held-out sessions better than one type, but",
        ),
        ("generosity", "Latent types are not supported: sessions differ in their overall level of reward"),
        ("types", "Latent types are supported: "),
    ],
)
def test_plan_and_assessment_follow_the_verdict_of_the_fit(kind, said):
    log = made_up(kind)
    method = lmab.EM(restarts=2, tolerance=1e-3, prior="learned", sweeps=8)
    estimate = lmab.fit(log, n_types=3, method=method, rng=1)
    supported = kind == "types"
    assert estimate.check.verdict.startswith(said)
    plan = lmab.plan(estimate, horizon=4, time_limit=2.0)
    assert plan.fixed is not supported
    assert plan.verdict == estimate.check.verdict
    found = lmab.assess(estimate, plan, log, n_draws=20, rng=1)
    assert (found.gain is not None) is supported
    assert ("No gain over the best fixed arm was demonstrated: held-out" in found.sentence) is not supported
    assert found.table["held-out check"] == estimate.check.verdict
    assert len(found.sentence.split(". ")) == (3 if supported else 2)


def told(estimate, capsys, **options) -> list[str]:
    known = Identifiability(2, 4, 1.0, 2, "8 starts agree", (), (), None)
    _print_results(estimate, known, None, [], **{"verbose": False, **options})
    return capsys.readouterr().out.splitlines()


def test_fit_says_its_verdict_first_and_details_where_asked(plan, capsys):
    check = Check(2, 100, -1.0, YES, YES, SOLID, over_traits=Gain(-0.1, 0.01))
    fine = Assumption(fires=False, score=0.4, sentence="All is well.")
    drift = Assumption(fires=True, score=9.0, sentence="The shares changed.")
    curve = Curve((1, 2), np.array([-2.0, -1.0]), np.zeros(2), np.zeros(2), 2)
    estimate = replace(fitted(plan), check=check, curve=curve, tested=Assumptions(fine, fine, drift))
    lines = told(estimate, capsys)
    assert lines[0].startswith("Latent types are supported")
    text = " ".join(" ".join(lines).split())
    assert "note: The shares changed." in text
    assert "All is well" not in text
    assert "2 types selected: highest held-out log-likelihood." in text
    assert "Continuous latent traits predict held-out sessions better than these types: try" in text
    for word in ("1: -2.0000", "direction", "starts agree", "standard deviations"):
        assert word not in text
    details = " ".join(" ".join(told(estimate, capsys, verbose=True)).split())
    for word in (
        "over one type",
        "+0.1000",
        "1: -2.0000, 2: -1.0000",
        "rank of the second moments of rewards: 2.",
        "Test of selective exposure (z = 0.4)",
    ):
        assert word in details
    plain = " ".join(told(replace(estimate, check=None), capsys))
    assert "latent to learn" not in plain


def test_types_that_the_check_does_not_support_are_not_said_to_predict_best(plan, capsys):
    curve = Curve((1, 2), np.array([-2.0, -1.0]), np.zeros(2), np.zeros(2), 2)
    check = Check(2, 100, -1.0, NO, YES, SOLID)
    estimate = replace(fitted(plan), check=check, curve=curve)
    text = " ".join(" ".join(told(estimate, capsys)).split())
    assert "No latent types found: 2 types do not predict held-out sessions better than one type" in text
    assert "2 types were fitted, but held-out sessions do not support them." in text
    assert "predicted best" not in text
    one = replace(estimate, curve=replace(curve, log_likelihood=np.array([-1.0, -2.0]), chosen=1))
    assert "1 type selected: highest held-out log-likelihood." in " ".join(told(one, capsys))


def test_types_without_sessions_are_counted_and_not_shown(plan, capsys):
    bandit = lmab.LatentBandit.bernoulli([0.0003, 0.6, 0.3997, 0.0], np.full((4, 2), 0.5))
    text = " ".join(" ".join(told(replace(fitted(plan), bandit=bandit), capsys)).split())
    assert "type 2" in text
    assert "type 3" not in text
    assert "Not shown: 2 types with a share below 0.05%." in text
