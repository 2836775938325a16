"""Plans as values: through a file with their policy, their bounds and what they were planned on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import lmab
from lmab import files
from lmab.errors import InvalidFile

BANDIT = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1, 0.5], [0.2, 0.7, 0.4]])
GAUSSIAN = lmab.LatentBandit.gaussian([0.5, 0.5], [[1.0, 0.0], [0.0, 1.0]], 0.5)
PLANS = {
    "certified": lambda: lmab.plan(BANDIT, horizon=4),
    "exact": lambda: lmab.plan(BANDIT, horizon=4, method=lmab.Exact()),
    "no repeats": lambda: lmab.plan(BANDIT, horizon=3, repeats=False),
    "normal": lambda: lmab.plan(GAUSSIAN, horizon=3, bins=4),
    "open above": lambda: replace(lmab.plan(BANDIT, horizon=4, method=lmab.QMDP()), upper=np.inf),
    "no trace": lambda: replace(lmab.plan(BANDIT, horizon=4), trace=()),
    "graph": lambda: replace(lmab.plan(BANDIT, horizon=4), policy=lmab.plan(BANDIT, horizon=4).policy.graph()),
}


@pytest.fixture(params=PLANS)
def plan(request):
    return PLANS[request.param]()


@pytest.fixture(scope="module")
def fit():
    log = lmab.simulate(BANDIT, lmab.Uniform(3), n_sessions=300, horizon=3, rng=0)
    return lmab.fit(log, n_types=2, method=lmab.EM(restarts=2, prior=1.0), rng=0)


def saved(plan: lmab.Plan, folder) -> lmab.Plan:
    plan.save(folder / "plan.lmab")
    return lmab.load(folder / "plan.lmab")


def test_round_trip_to_the_bit(plan, tmp_path):
    again = saved(plan, tmp_path)
    for name in ("horizon", "lower", "upper", "status", "message", "trace", "repeats", "estimate"):
        assert getattr(again, name) == getattr(plan, name), name
    assert [type(step) for step in again.trace] == [type(step) for step in plan.trace]
    assert repr(again) == repr(plan)
    assert type(again.policy) is type(plan.policy)
    first = plan.policy.act_on([])
    for reward in (0.0, 1.0):
        assert again.policy.act_on([(first, reward)]) == plan.policy.act_on([(first, reward)])


def test_same_value_same_bytes_however_often_saved(plan, tmp_path):
    plan.save(tmp_path / "first")
    lmab.load(tmp_path / "first").save(tmp_path / "second")
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def test_a_plan_of_an_estimate_remembers_it(estimate, tmp_path):
    plan = lmab.plan(estimate, horizon=3, repeats=False)
    bare = lmab.plan(estimate.bandit, horizon=3, repeats=False)
    assert (plan.estimate, bare.estimate) == (estimate, None)
    assert (plan.lower, plan.upper, plan.repeats) == (bare.lower, bare.upper, False)
    again = saved(plan, tmp_path).estimate
    assert again.bandit == estimate.bandit
    assert (again.prior, again.log, again.starts.drawn) == (1.0, estimate.log, estimate.starts.drawn)


def test_all_options_of_a_plan_hold_for_an_estimate(estimate):
    seen = []
    lmab.plan(estimate, horizon=3, time_limit=5.0, progress=seen.append)
    assert seen
    assert lmab.plan(estimate, horizon=3, method=lmab.Exact()).status == "optimal"
    with pytest.raises(ValueError, match="bins"):
        lmab.plan(estimate, horizon=3, bins=1)


def test_evaluate_takes_a_plan_and_an_estimate(estimate):
    plan = lmab.plan(estimate, horizon=3)
    value = lmab.evaluate(plan, estimate, horizon=3).mean
    assert value == lmab.evaluate(plan.policy, estimate.bandit, horizon=3).mean


@pytest.mark.parametrize(
    "change", [{"status": "sure"}, {"lower": "4"}, {"horizon": 0}, {"repeats": None}, {"surprise": 1}]
)
def test_lies_are_refused(tmp_path, change):
    record = lmab.plan(BANDIT, horizon=3).record()
    files.write(tmp_path / "p.lmab", replace(record, fields={**record.fields, **change}))
    with pytest.raises(InvalidFile, match=r"p\.lmab"):
        lmab.load(tmp_path / "p.lmab")
