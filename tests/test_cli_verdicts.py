"""The held-out check of a fit, as the commands after it repeat it: among the results, or as a note."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import lmab
from lmab.cli.options import check_of, check_summary, tell_check
from lmab.estimation.check import Calibration, Check, Gain

SOLID = Calibration(np.zeros(1), np.zeros(1), np.zeros(1), np.ones(1, int), 1.0, 0.1)
YES, NO = Gain(0.1, 0.01), Gain(0.01, 0.01)


@pytest.fixture(scope="module")
def plan():
    log = lmab.Sessions.from_arrays([[0, 1], [1, 0]] * 20, [[1.0, 0.0], [1.0, 1.0]] * 20)
    return lmab.plan(lmab.fit(log, n_types=1, method=lmab.EM(prior=0.0), rng=0), horizon=2)


@pytest.mark.parametrize(("one", "agrees"), [(YES, True), (NO, False)])
def test_a_check_that_agrees_is_a_result_and_another_one_a_note(plan, capsys, one, agrees):
    check = Check(2, 100, -1.0, one, YES, SOLID)
    checked = replace(plan, estimate=replace(plan.estimate, check=check))
    assert check.agrees is agrees
    assert check_of(checked) is check
    assert check_summary(checked) == {"agrees": agrees, "verdict": check.verdict}
    tell_check(checked)
    said = capsys.readouterr()
    text = f"Held-out check of the fit: {check.verdict}\n"
    assert (said.out, said.err) == (text if agrees else f"note: {text}", "")


def test_a_model_that_was_not_checked_says_so(plan, capsys):
    unchecked = replace(plan, estimate=replace(plan.estimate, check=None))
    tell_check(unchecked)
    assert "were not checked on held-out sessions" in capsys.readouterr().out
    assert check_summary(unchecked) is None


def test_without_a_fit_nothing_is_said(plan, capsys):
    for planned in (plan.policy, replace(plan, estimate=None)):
        assert check_of(planned) is None
        assert check_summary(planned) is None
        tell_check(planned)
    assert capsys.readouterr() == ("", "")
