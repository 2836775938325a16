"""Instances with published or certified optimal values, from the folder that LMAB_TRUTHS names."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import lmab

FOLDER = Path(os.environ.get("LMAB_TRUTHS", "")) / "planning"
INSTANCES = sorted(FOLDER.glob("*.json")) if "LMAB_TRUTHS" in os.environ else []
SLOW = {"hard_M10_A200_H10_s0", "deep_M7_A50_H20_s0", "hard_M7_A50_H20_s0"}  # seconds to a minute each

pytestmark = pytest.mark.skipif(not INSTANCES, reason="the environment variable LMAB_TRUTHS names no folder of truths")


@pytest.fixture(
    params=[pytest.param(p, marks=[pytest.mark.slow] if p.stem in SLOW else [], id=p.stem) for p in INSTANCES]
)
def truth(request):
    return json.loads(request.param.read_text())


def test_certified_brackets_the_optimum(truth):
    bandit = lmab.LatentBandit.bernoulli(truth["w"], truth["mu"])
    plan = lmab.plan(bandit, horizon=truth["H"], time_limit=60)
    assert plan.gap <= 0.01
    assert plan.lower <= truth["upper"] + 1e-9
    assert plan.upper >= truth["lower"] - 1e-9
    if truth["H"] <= 10:
        value = lmab.evaluate(plan.policy, bandit, horizon=truth["H"]).mean
        assert plan.lower - 1e-9 <= value <= truth["upper"] + 1e-9


def test_values_of_greedy_and_lookahead(truth):
    bandit = lmab.LatentBandit.bernoulli(truth["w"], truth["mu"])
    if truth["H"] > 10:
        pytest.skip("too many histories to walk quickly")
    for name, method in (("qmdp", lmab.QMDP()), ("look1", lmab.planning.Lookahead(1))):
        policy = lmab.plan(bandit, horizon=truth["H"], method=method).policy
        value = lmab.evaluate(policy, bandit, horizon=truth["H"]).mean
        assert value == pytest.approx(truth["policy_values_exact"][name], rel=1e-9)


def test_exact_where_it_fits(truth):
    bandit = lmab.LatentBandit.bernoulli(truth["w"], truth["mu"])
    try:
        plan = lmab.plan(bandit, horizon=truth["H"], method=lmab.Exact(max_states=2_000_000))
    except lmab.errors.TooLarge:
        pytest.skip("too many counts")
    assert truth["lower"] - 1e-9 <= plan.lower <= truth["upper"] + 1e-9
