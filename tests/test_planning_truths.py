"""Instances with exact optimal values, and larger ones with certified values: more in a folder named by LMAB_TRUTHS."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from truths import LARGER, TRUTHS, Bracket, Truth

import lmab
from lmab.planning import Lookahead

FOLDER = Path(os.environ.get("LMAB_TRUTHS", ".")) / "planning"
SLOW = {"hard_M10_A200_H10_s0", "deep_M7_A50_H20_s0", "hard_M7_A50_H20_s0"}  # seconds to a minute each


@pytest.mark.parametrize("truth", TRUTHS.values(), ids=TRUTHS)
class TestExact:
    def test_certified_brackets_the_optimum(self, truth: Truth):
        plan = lmab.plan(truth.bandit, horizon=truth.horizon)
        assert plan.gap <= 0.01
        assert plan.lower - 1e-9 <= truth.optimum <= plan.upper + 1e-9

    def test_exact_is_the_optimum(self, truth: Truth):
        plan = lmab.plan(truth.bandit, horizon=truth.horizon, method=lmab.Exact())
        assert plan.lower == plan.upper == pytest.approx(truth.optimum, rel=1e-9)

    def test_values_of_greedy_and_lookahead(self, truth: Truth):
        for method, value in ((lmab.QMDP(), truth.greedy), (Lookahead(1), truth.lookahead)):
            policy = lmab.plan(truth.bandit, horizon=truth.horizon, method=method).policy
            assert lmab.evaluate(policy, truth.bandit, horizon=truth.horizon).mean == pytest.approx(value, rel=1e-9)


def brackets() -> list[Any]:
    """The larger instances of the tests, and those of the folder."""
    found = [pytest.param(bracket, id=name) for name, bracket in LARGER.items()]
    for path in sorted(FOLDER.glob("*.json")):
        truth = json.loads(path.read_text())
        bracket = Bracket(truth["w"], truth["mu"], truth["H"], truth["lower"], truth["upper"])
        found.append(pytest.param(bracket, marks=[pytest.mark.slow] * (path.stem in SLOW), id=path.stem))
    return found


@pytest.mark.parametrize("truth", brackets())
def test_certified_brackets_the_optimum_of_larger_ones(truth: Bracket):
    bandit = lmab.LatentBandit.bernoulli(truth.weights, truth.means)
    plan = lmab.plan(bandit, horizon=truth.horizon, time_limit=60)
    assert plan.gap <= 0.01
    assert plan.lower <= truth.upper + 1e-9
    assert plan.upper >= truth.lower - 1e-9
    if truth.horizon <= 10:
        value = lmab.evaluate(plan.policy, bandit, horizon=truth.horizon).mean
        assert plan.lower - 1e-9 <= value <= truth.upper + 1e-9
