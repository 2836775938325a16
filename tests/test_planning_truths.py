"""Instances with exact optimal values, and larger ones with certified values from a folder named by LMAB_TRUTHS."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from truths import TRUTHS, Truth

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


@pytest.mark.skipif(not FOLDER.is_dir(), reason="LMAB_TRUTHS names no folder of larger instances")
@pytest.mark.parametrize(
    "path",
    [pytest.param(p, marks=[pytest.mark.slow] * (p.stem in SLOW), id=p.stem) for p in sorted(FOLDER.glob("*.json"))],
)
def test_certified_brackets_the_optimum_of_larger_ones(path):
    truth = json.loads(path.read_text())
    bandit = lmab.LatentBandit.bernoulli(truth["w"], truth["mu"])
    plan = lmab.plan(bandit, horizon=truth["H"], time_limit=60)
    assert plan.gap <= 0.01
    assert plan.lower <= truth["upper"] + 1e-9
    assert plan.upper >= truth["lower"] - 1e-9
    if truth["H"] <= 10:
        value = lmab.evaluate(plan.policy, bandit, horizon=truth["H"]).mean
        assert plan.lower - 1e-9 <= value <= truth["upper"] + 1e-9
