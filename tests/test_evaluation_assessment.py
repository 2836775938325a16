"""Assessments: every number in them by other means, the orderings they must obey, and what they refuse."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from seeds import generator
from typer.testing import CliRunner

import lmab
from lmab import reporting
from lmab.cli.app import app
from lmab.errors import InvalidArgument
from lmab.estimation.assumptions import TESTS, Assumption, Assumptions
from lmab.estimation.check import Calibration, Check, Gain
from lmab.evaluation import diagnostics
from lmab.evaluation.assessment import HeldOutTests, Verdict
from lmab.evaluation.decision_tree import Branches, improved, unroll
from lmab.evaluation.replanning import Replanner, laplace

PROBING = lmab.LatentBandit.bernoulli([0.4, 0.35, 0.25], np.random.default_rng(11).uniform(0.05, 0.95, (3, 8)))
SOLID = Calibration(np.zeros(1), np.zeros(1), np.zeros(1), np.ones(1, int), 1.0, 0.1)
YES, NO = Gain(0.1, 0.01), Gain(0.01, 0.01)
AGREES, LITTLE, NOTHING = (Check(2, 100, -1.0, one, arms, SOLID) for one, arms in ((YES, YES), (YES, NO), (NO, YES)))


def fitted(bandit, n_sessions, horizon, *, seed=0, prior="learned", gap=0.01):
    rng = generator(seed)
    log = lmab.simulate(bandit, lmab.Uniform(bandit.n_arms), n_sessions=n_sessions, horizon=horizon, rng=rng)
    method = lmab.EM(prior=prior, restarts=8)
    estimate = lmab.fit(log, n_types=bandit.n_types, method=method, rng=rng, check=False)
    return estimate, lmab.plan(estimate.bandit, horizon=horizon, method=lmab.Certified(gap=gap)), log


@pytest.fixture(scope="module")
def case():
    return fitted(PROBING, 600, 4)


@pytest.fixture(scope="module")
def assessment(case):
    return lmab.assess(*case, rng=generator(1))


def test_the_draws_are_what_evaluator_and_exact_planner_say(case):
    estimate, plan, _ = case
    weights, families = laplace(estimate.information()).draw(20, generator(1))
    drawn = Replanner(estimate.bandit, plan, np.ones(8, bool)).replan(weights, families)
    best = lmab.plan(estimate.bandit, horizon=4, method=lmab.Exact()).lower
    ratios = []
    for k, (weight, family) in enumerate(zip(weights, families, strict=True)):
        model = lmab.LatentBandit(weight, family)
        exact = lmab.plan(model, horizon=4, method=lmab.Exact())
        assert drawn.value[k] == pytest.approx(lmab.evaluate(plan.policy, model, horizon=4).mean, rel=1e-9)
        assert max(drawn.value[k], 0.96 * exact.lower) <= drawn.optimum[k] <= exact.lower + 1e-9
        assert drawn.transferred[k] <= best + 1e-9
        assert drawn.fixed[k] == pytest.approx(model.best_fixed(4))
        ratios.append(drawn.optimum[k] / exact.lower)
    assert np.mean(ratios) > 0.99  # replanning is nearly optimal
    assert (drawn.unplayed == 0).all()


@pytest.mark.parametrize("repeats", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_replanning_is_no_worse_than_the_plan_nor_than_what_a_lookahead_promises(seed, repeats):
    rng = generator(seed)
    bandit, other = (lmab.random_bandit(3, 8, kind="hard", rng=rng) for _ in range(2))
    tree = unroll(lmab.plan(bandit, horizon=5, repeats=repeats).policy, bandit, 5)
    for model in (bandit, other):
        policy = improved(model, Branches.of(tree), tree.branches(model.rewards), 5, repeats=repeats)
        replanned = unroll(policy, model, 5)
        value = replanned.value(model.weights, model.rewards)
        assert value >= tree.value(model.weights, model.rewards) - 1e-12
        assert value >= lmab.plan(model, horizon=5, method=lmab.planning.Lookahead(), repeats=repeats).lower - 1e-12
        if not repeats:
            assert _most_plays(replanned) == 1


def test_a_branch_of_the_plan_or_one_arm_to_the_end_may_follow():
    """What these are worth in every type, with each number of steps to go."""
    bandit, model = (lmab.random_bandit(3, 8, kind="hard", rng=generator(seed)) for seed in (0, 1))
    tree = unroll(lmab.plan(bandit, horizon=5).policy, bandit, 5)
    values = tree.branches(model.rewards)
    policy = improved(model, Branches.of(tree), values, 5, repeats=True)
    for steps in range(1, 5):
        rows = {tuple(row) for row in policy._later[steps - 1].round(9)}
        fixed = {tuple(row) for row in (steps * model.means.T).round(9)}
        assert len(rows & fixed) >= 3  # an arm that is best in some type is there, for all steps that are left
        branches = {tuple(row) for row in values[5 - steps].round(9)} if steps > 1 else set()
        assert rows <= fixed | branches
        assert steps == 1 or rows & branches


def _most_plays(tree, row=0, depth=0, seen=()):
    """The most often that one history of the tree plays the same arm."""
    level = tree.levels[depth]
    seen = (*seen, int(level.arms[row]))
    below = [child for child in level.children[row] if child >= 0]
    return max([max(seen.count(arm) for arm in seen), *(_most_plays(tree, child, depth + 1, seen) for child in below)])


@pytest.mark.parametrize("repeats", [True, False])
def test_of_many_arms_few_are_planned_with_and_little_is_lost(rng, monkeypatch, repeats):
    bandit, other = (lmab.LatentBandit.bernoulli([0.3, 0.3, 0.4], rng.beta(2, 3, (3, 300))) for _ in range(2))
    plan = lmab.plan(bandit, horizon=3, repeats=repeats, time_limit=2.0)
    found = []
    for many in (200, 1000):
        monkeypatch.setattr("lmab.evaluation.replanning._MANY", many)
        replanner = Replanner(bandit, plan, np.ones(300, bool))
        found.append(replanner.replan(np.array([other.weights]), [other.rewards]))
    assert len(replanner._useful(other.weights, other.means)) == 300
    assert found[0].optimum[0] == pytest.approx(found[1].optimum[0], rel=0.005)
    assert found[0].value[0] == found[1].value[0]


def test_same_seed_same_bits_on_an_equal_copy_of_the_log(case, assessment):
    estimate, plan, log = case
    copy = lmab.Sessions(log.arms.copy(), log.rewards.copy(), log.offsets.copy(), log.n_arms)
    again = lmab.assess(estimate, plan, copy, rng=generator(1))
    np.testing.assert_array_equal(again.draws, assessment.draws)


def test_more_confidence_never_narrows(case, assessment):
    surer = lmab.assess(*case, confidence=0.98, rng=generator(1))
    for name in ("value", "optimum", "regret"):
        (low, high), (lower, higher) = getattr(assessment, name), getattr(surer, name)
        assert lower <= low
        assert high < higher


def test_more_data_narrows_all_three(assessment):
    richer = lmab.assess(*fitted(PROBING, 20_000, 4), rng=generator(1))
    for name in ("value", "optimum", "regret"):
        assert np.diff(getattr(richer, name)) < 0.5 * np.diff(getattr(assessment, name))


@pytest.mark.parametrize(("number", "least"), [(2, 1), pytest.param(8, 5, marks=pytest.mark.slow)])
def test_with_much_data_the_truth_is_inside_narrow_intervals(number, least):
    optimum = lmab.plan(PROBING, horizon=4, method=lmab.Exact()).lower
    held = []
    for seed in range(number):
        estimate, plan, log = fitted(PROBING, 10_000, 4, seed=seed, gap=1e-4)
        assessment = lmab.assess(estimate, plan, log, rng=generator(1))
        value = lmab.evaluate(plan.policy, PROBING, horizon=4).mean
        assert assessment.value[1] - assessment.value[0] < 0.3
        assert assessment.regret[1] < 0.1
        held.append([
            assessment.value[0] <= value <= assessment.value[1],
            assessment.optimum[0] <= optimum <= assessment.optimum[1],
            optimum - value <= assessment.regret[1],
        ])  # fmt: skip
    assert np.sum(held, axis=0).min() >= least  # at 90% each, fewer happen once in 100 or 200 times


def test_the_planning_gap_is_what_better_planning_removes(case, monkeypatch):
    estimate, _, log = case
    done = lmab.plan(estimate.bandit, horizon=4, method=lmab.Exact())
    undone = lmab.plan(estimate.bandit, horizon=4, method=lmab.QMDP())
    finished = lmab.assess(estimate, done, log, n_draws=20, rng=generator(1))
    known = lmab.assess(estimate, undone, log, n_draws=20, rng=generator(1))
    assert finished.planning_gap == pytest.approx(0, abs=1e-12)
    assert "more planning cannot reduce it" in finished.table["regret"]
    monkeypatch.setattr(importlib.import_module("lmab.evaluation.assess"), "_EXACT_STATES", 1)
    started = lmab.assess(estimate, undone, log, n_draws=20, rng=generator(1))
    assert started.planning_gap > 0.05  # the greedy plan's upper bound is the information price
    assert known.planning_gap < 0.5 * started.planning_gap  # it is loose, as the exact optimum shows
    assert known.bounds == started.bounds == (undone.lower, undone.upper)
    assert finished.regret[1] < started.regret[1]


def test_the_sentence_tells_the_numbers(assessment):
    sentence = str(assessment)
    assert sentence == assessment.sentence
    for number in (*assessment.value, *assessment.optimum, assessment.regret[1], *np.abs(assessment.gain)):
        assert f"{number:.2f}" in sentence
    assert assessment.table["confidence"] == (
        "each interval contains the true value for 90% of logs on average, if the true number of types is at most 3"
    )
    assert len(sentence.split(". ")) <= 3
    assert "contains almost no information about 2 of the 26 directions" in with_finding(
        assessment, "unknown directions", 2, 26
    )


def with_finding(assessment, code, *data):
    """Return the row of a finding in the table of an assessment that has it."""
    return replace(assessment, found=((code, data),)).table[code]


def test_findings_are_rows_of_the_table(assessment):
    assert "sparse data" not in assessment.table
    thin = replace(assessment, found=(("sparse data", (0.34, 25)),))
    for text in (thin.table["sparse data"], thin._repr_html_()):
        assert "34% of the plan" in text
        assert "go to arms played fewer than 25 times per type" in text
    assert thin.findings[0].severity == "warning"
    few = replace(assessment, found=(("number of types", (4, 3)),))
    assert few.table["number of types"].startswith("4 types predict held-out sessions better than 3;")
    assert "number of types" not in replace(few, check=NOTHING).table  # never beside: no better than one
    assert "10% of the sessions repeat" in with_finding(assessment, "copies", 0.1, 1.05)
    assert "intervals are 1.5 times as wide" in with_finding(assessment, "dependent sessions", 1.5)
    assert with_finding(assessment, "unplayed arms", 2, 0.25).startswith("2 arms were never played; 25% of the value")


def test_every_assessment_names_the_next_test_and_what_no_log_reveals(assessment):
    assert "live sessions estimate the value to within 5%" in assessment.table["live test"]
    assert "rewards that are missing because they were low" in assessment.table["not testable"]


@pytest.mark.parametrize(
    ("gap", "planned", "said"),
    [
        (
            0.51,
            "certified",
            "more planning could remove at most 51% of the bound, the rest needs data; plan again with a smaller gap",
        ),
        (
            0.51,
            "time limit",
            "more planning could remove at most 51% of the bound, the rest needs data; plan again with a longer time",
        ),
        (0.51, "heuristic", "more planning could remove at most 51% of the bound, the rest needs data"),
        (0.5, "certified", "more planning could remove at most 50% of the bound, the rest needs data"),
        (0.0049, "certified", "limited data accounts for all of the bound; more planning cannot reduce it"),
    ],
)
def test_the_remedy_is_better_planning_only_if_an_option_of_the_planner_can_help(assessment, gap, planned, said):
    told = replace(assessment, planning_gap=gap, planned=planned).table["regret"]
    assert told.startswith(said)
    assert ("plan again" in told) is ("plan again" in said)


def test_the_sentence_has_as_many_decimals_as_its_shortest_interval_needs(assessment):
    changes = {"value": (2.0, 2.5), "optimum": (2.2, 3.0), "regret": (0.0, 0.3), "gain": (-0.25, 0.5)}
    told = replace(assessment, **changes).sentence
    assert (
        "earns 2.00 to 2.50 under this policy, -0.25 to +0.50 over the best fixed arm (90% confidence intervals)."
        in told
    )
    assert "The best possible policy earns 2.20 to 3.00, at most 0.30 more than this one (10.0%)." in told
    fine = replace(assessment, **{**changes, "value": (2.0, 2.0123)}).sentence
    assert "earns 2.000 to 2.012 under" in fine
    nothing = {**changes, "regret": (0.0, 0.004), "gain": (-0.0001, 0.0001)}
    told = replace(assessment, **nothing).sentence
    assert (
        "earns 2.00 to 2.50 under this policy, +0.00 to +0.00 over the best fixed arm (90% confidence intervals)."
        in told
    )
    assert "The best possible policy earns 2.20 to 3.00, at most 0.00 more than this one (0.1%)." in told
    assert "at most 0.017 more" in replace(assessment, **{**changes, "regret": (0.0, 0.017)}).sentence
    coarse = {"value": (200.0, 250.0), "optimum": (220.0, 300.0), "regret": (0.0, 30.0), "gain": (-25.0, 50.0)}
    assert "earns 200 to 250 under" in replace(assessment, **coarse).sentence
    assert "%)" not in replace(assessment, **{**changes, "optimum": (-3.0, -1.0)}).sentence
    exact = {"value": (2.0, 2.0), "optimum": (2.0, 2.0), "regret": (0.0, 0.0), "gain": (0.0, 0.0)}
    assert "earns 2.0000 to 2.0000 under" in replace(assessment, **exact).sentence  # no more than four decimals


def test_an_assumption_that_does_not_hold_is_said_in_the_first_sentence_and_in_full_below(assessment):
    fine, broken = Assumption(False, 0.3, "All is well."), Assumption(True, 9.0, "Something depends; log more.")
    nothing = {"value": None, "regret": None, "gain": None}
    calm = replace(assessment, tested=Assumptions(fine, fine, fine, fine), held_out=HeldOutTests(*[fine] * 6))
    for i in range(4):
        fires = replace(calm, tested=Assumptions(*[broken if i == k else fine for k in range(4)]), **nothing)
        assert fires.sentence.startswith("No confidence interval for this policy: something depends; log more.")
        assert next(iter(fires.table.items())) == (list(TESTS.values())[i], broken.sentence)
    assert not set(TESTS.values()) & set(calm.table)
    silent = replace(calm, held_out=HeldOutTests(fine, fine, fine, fine, fine, broken), **nothing)
    assert silent.sentence.startswith("No confidence interval for this policy: something depends; log more.")
    assert set(calm.assumptions) == {
        "exposure", "leaving", "drift", "step", "repeats", "previous", "pairs", "calendar", "silent"
    }  # fmt: skip


def test_a_policy_pays_only_if_nothing_contradicts_the_claim(assessment):
    fine, broken = Assumption(False, 0.3, "All is well."), Assumption(True, 9.0, "Something depends; log more.")
    calm = replace(
        assessment, tested=Assumptions(*[fine] * 4), held_out=HeldOutTests(*[fine] * 6), gain=(0.1, 0.3), check=AGREES
    )
    assert calm.verdict.word == "pays"
    doubtful = replace(calm, held_out=HeldOutTests(fine, broken, fine, fine, fine, fine), corrected=True)
    assert doubtful.verdict.word == "may pay"
    assert "is likely: its confidence interval is above 0, but the log contradicts" in doubtful.verdict.sentence
    assert replace(calm, gain=(-0.1, 0.3)).verdict.word == "may pay"
    assert replace(calm, check=None).verdict.word == "may pay"
    for gain, check in [((-0.3, 0.1), AGREES), (None, AGREES), ((0.1, 0.3), NOTHING)]:
        assert replace(calm, gain=gain, check=check).verdict.word == "no gain demonstrated"


def test_a_claim_that_is_refused_is_not_told(assessment):
    half = replace(assessment, value=None, regret=None, gain=None)
    assert half.sentence.startswith("No confidence interval for this policy")
    assert "The best possible policy earns" in half.sentence
    assert "more than this one" not in half.sentence
    assert "regret" not in half.table
    assert "not claimed" in half._repr_html_()
    assert "confidence" in half.table
    nothing = replace(half, optimum=None)
    assert "confidence" not in replace(nothing, baselines=()).table  # it gives no interval
    assert "The best possible policy" not in nothing.sentence
    assert "No gain over the best fixed arm was demonstrated, because the log contradicts" in nothing.sentence
    assert nothing.verdict.word == "no gain demonstrated"


def test_one_arm_never_played_is_said_in_the_singular(assessment):
    one = with_finding(assessment, "unplayed arms", 1, 0.25)
    assert one == "1 arm was never played; 25% of the value of the best policy is based on assumed mean rewards"


def test_too_few_types_widen_the_assessment():
    """Of 8 arms, one type for two that differ in all of them: held-out sessions show it."""
    rng = generator(4)
    means = np.stack([np.linspace(0.1, 0.9, 8), np.linspace(0.9, 0.1, 8)])
    truth = lmab.LatentBandit.bernoulli([0.5, 0.5], means)
    log = lmab.simulate(truth, lmab.Uniform(8), n_sessions=1500, horizon=4, rng=rng)
    estimate = lmab.fit(log, n_types=1, method=lmab.EM(prior="learned"), rng=rng)
    assessment = lmab.assess(estimate, lmab.plan(estimate.bandit, horizon=4), log, rng=rng)
    assert "number of types" in {one.code for one in assessment.findings}
    best = lmab.plan(truth, horizon=4, method=lmab.Exact()).lower
    assert assessment.optimum[0] <= best <= assessment.optimum[1]
    assert best - truth.best_fixed(4) <= assessment.regret[1]


@pytest.mark.parametrize("prior", ["learned", 1.0, 2.0, 5.0])
def test_an_arm_shown_once_that_paid_promises_nothing(prior):
    rng = generator(5)
    arms = rng.integers(2, size=(2000, 5))
    rewards = (rng.random(arms.shape) < np.array([0.6, 0.55])[arms]).astype(float)
    arms[0, 0], rewards[0, 0] = 2, 1.0
    log = lmab.Sessions.from_arrays(arms, rewards, n_arms=3)
    estimate = lmab.fit(log, n_types=1, method=lmab.EM(prior=prior), rng=rng)
    assessment = lmab.assess(estimate, lmab.plan(estimate.bandit, horizon=5), log, n_draws=20, rng=rng)
    assert assessment.value[0] < 3.0
    if estimate.bandit.means[0].argmax() == 2:
        assert "sparse data" in assessment.table
        assert assessment.gain[0] < 0


def test_normal_rewards_are_certified():
    rng = generator(6)
    truth = lmab.LatentBandit.gaussian([0.5, 0.5], rng.normal(0, 1, (2, 8)), scale=1.0)
    log = lmab.simulate(truth, lmab.Uniform(8), n_sessions=1500, horizon=4, rng=rng)
    estimate = lmab.fit(log, n_types=2, rewards="gaussian", method=lmab.EM(prior="learned"), rng=rng, check=False)
    plan = lmab.plan(estimate.bandit, horizon=4)
    assessment = lmab.assess(estimate, plan, log, rng=rng)
    value = lmab.evaluate(plan.policy, truth, horizon=4, n_sessions=50_000, rng=1).mean
    assert assessment.value[0] <= value <= assessment.value[1]
    error = 0.02  # of the simulated value
    assert assessment.gain[0] - error <= value - truth.best_fixed(4) <= assessment.gain[1] + error
    assert np.diff(assessment.value) < 0.3 * value


def test_large_models_are_certified_without_second_derivatives(monkeypatch, case, assessment):
    monkeypatch.setattr(importlib.import_module("lmab.evaluation.assess"), "PARAMETER_LIMIT", 10)
    alone = lmab.assess(*case, rng=generator(1))
    more = [any(one.code == "number of types" for one in found.findings) for found in (assessment, alone)]
    assert len(assessment.draws) == 200 + 100 * more[0]
    assert len(alone.draws) == 100 + 100 * more[1]
    assert "unknown directions" not in alone.table


def test_recentred_draws_raise_no_mean_on_average(case):
    rng = generator(7)
    sparse = lmab.LatentBandit.bernoulli([0.5, 0.5], rng.uniform(0.01, 0.05, (2, 6)))
    log = lmab.simulate(sparse, lmab.Uniform(6), n_sessions=300, horizon=4, rng=rng)
    estimate = lmab.fit(log, n_types=2, method=lmab.EM(prior=2.0), rng=rng)
    _, families = laplace(estimate.information()).draw(400, rng)
    before, after = (np.mean([one.means for one in some], axis=0)
                     for some in (families, estimate.bandit.rewards.recentred(families)))  # fmt: skip
    assert (before > 1.2 * estimate.bandit.means).any()
    assert (after < 1.15 * estimate.bandit.means + 1e-3).all()


def test_arms_never_played_are_mentioned(case, assessment):
    log = case[2]
    assert "unplayed arms" not in assessment.table
    wide = lmab.Sessions(np.minimum(log.arms, 5), log.rewards, log.offsets, n_arms=8)
    estimate = lmab.fit(wide, n_types=2, method=lmab.EM(prior=2.0, restarts=2), rng=generator(0))
    missing = lmab.assess(estimate, lmab.plan(estimate.bandit, horizon=2), wide, n_draws=20, rng=generator(0))
    n_arms, share = next(one.data for one in missing.findings if one.code == "unplayed arms")
    assert n_arms == 2
    assert "2 arms were never played" in missing.table["unplayed arms"]
    assert 0 < share < 1


def test_sessions_without_repeats(rng):
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.2, 0.8, 0.3], [0.1, 0.7, 0.3, 0.6]])
    log = lmab.simulate(bandit, lmab.Uniform(4), n_sessions=3000, horizon=3, rng=rng)
    estimate = lmab.fit(log, n_types=2, method=lmab.EM(prior=2.0, restarts=4), rng=rng)
    plan = lmab.plan(estimate.bandit, horizon=3, repeats=False)
    assessment = lmab.assess(estimate, plan, log, rng=rng)
    best = lmab.plan(bandit, horizon=3, repeats=False, method=lmab.Exact())
    assert assessment.optimum[0] <= best.lower <= assessment.optimum[1]
    assert assessment.optimum[1] < lmab.plan(bandit, horizon=3, method=lmab.Exact()).lower  # which repeats


def test_three_values_and_sessions_of_one_step():
    rng = generator(2)
    bandit = lmab.LatentBandit.categorical([0.6, 0.4], rng.dirichlet(np.ones(3), size=(2, 3)), [0.0, 1.0, 3.0])
    log = lmab.simulate(bandit, lmab.Uniform(3), n_sessions=3000, horizon=4, rng=rng)
    estimate = lmab.fit(log, n_types=2, method=lmab.EM(prior=2.0, restarts=4), rng=rng)
    for horizon in (1, 3):
        plan = lmab.plan(estimate.bandit, horizon=horizon)
        assessment = lmab.assess(estimate, plan, log, n_draws=50, rng=rng)
        value = lmab.evaluate(plan.policy, bandit, horizon=horizon).mean
        assert assessment.value[0] < value < assessment.value[1]
        assert assessment.horizon == horizon


def test_one_type_and_a_dead_one():
    rng = generator(3)
    bandit = lmab.LatentBandit.bernoulli([1.0], [[0.3, 0.7]])
    log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=500, horizon=3, rng=rng)
    estimate = lmab.fit(log, n_types=1, method=lmab.EM(prior=1.0), rng=rng)
    plan = lmab.plan(estimate.bandit, horizon=3)
    alone = lmab.assess(estimate, plan, log, n_draws=20, rng=generator(0))
    assert alone.value[0] < 2.1 < alone.value[1]
    two = lmab.LatentBandit.bernoulli([1.0, 0.0], np.vstack([estimate.bandit.means, [[0.5, 0.5]]]))
    plan = lmab.plan(two, horizon=3)
    dead = lmab.assess(replace(estimate, bandit=two), plan, log, n_draws=20, rng=generator(0))
    assert dead.value[0] < 2.1 < dead.value[1]
    assert np.isfinite(dead.draws).all()


def test_refuses_plain_maximum_likelihood_and_says_why(case):
    estimate, plan, log = case
    with pytest.raises(InvalidArgument, match=r"EM\(prior='learned'\).*got prior 0.*overfits"):
        lmab.assess(replace(estimate, prior=0.0, learned=None), plan, log, rng=generator(0))


def test_refuses_what_does_not_belong_together(case):
    estimate, plan, log = case
    rng = generator(0)
    with pytest.raises(InvalidArgument, match="sessions must be the log"):
        lmab.assess(estimate, plan, log[:-1], rng=rng)
    with pytest.raises(InvalidArgument, match=r"plan must be a plan for estimate\.bandit"):
        lmab.assess(estimate, replace(plan, lower=plan.upper + 0.1, upper=plan.upper + 0.2), log, rng=rng)
    with pytest.raises(InvalidArgument, match="deterministic"):
        lmab.assess(estimate, replace(plan, policy=lmab.Thompson(estimate.bandit)), log, rng=rng)
    with pytest.raises(InvalidArgument, match="arms"):
        lmab.assess(estimate, lmab.plan(lmab.random_bandit(3, 9, rng=rng), horizon=4), log, rng=rng)


def test_an_assessment_is_about_the_horizon_of_its_plan(case, assessment):
    plan = case[1]
    assert assessment.is_about(plan)
    assert not assessment.is_about(replace(plan, horizon=plan.horizon + 1))
    assert not assessment.is_about(replace(plan, upper=plan.upper + 0.1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"confidence": 1.0}, "confidence must be a number between 0 and 1, got 1.0"),
        ({"confidence": 0.0}, "confidence must be"),
        ({"n_draws": 19}, "n_draws must be an integer of at least 20, got 19"),
    ],
)
def test_refuses_bad_arguments(case, changes, message):
    arguments = {"rng": generator(0), **changes}
    with pytest.raises(InvalidArgument, match=message):
        lmab.assess(*case, **arguments)


@pytest.fixture
def study(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent))
    return importlib.import_module("benchmarks.study_certificate")


def test_the_study_resumes_where_it_stopped(study, monkeypatch, tmp_path, capsys):
    rows = tmp_path / "rows.jsonl"
    monkeypatch.setattr(study, "CASES", [study.Case("probing", 4, 300)])
    for sets in (1, 2):
        monkeypatch.setattr("sys.argv", ["study", "--sets", str(sets), "--rows", str(rows)])
        before = rows.read_text() if rows.exists() else ""
        study.main()
        assert rows.read_text().startswith(before)
        assert len(rows.read_text().splitlines()) == sets
    assert "| probing | 4 | 300 | prior 2 | 2 |" in capsys.readouterr().out


@pytest.mark.slow
def test_each_interval_holds_as_often_as_claimed(study):
    claimed = [case for case in study.CASES if case.claimed]
    rows = [study.run(case, seed) for seed in range(1000, 1015) for case in claimed]
    assert len(rows) >= 100
    told = [row for row in rows if row["value"] is not None]
    assert len(rows) - len(told) <= 4  # refused without need: a rate of 1% gives more in one of a hundred runs
    for name in ("value", "optimum", "regret"):
        assert np.mean([row[name] for row in told]) >= 0.85


@pytest.mark.parametrize(
    ("gain", "check", "sure", "said"),
    [
        ((0.1, 0.3), AGREES, True, "A gain over the best fixed arm or list was demonstrated: "),
        ((0.0, 0.3), AGREES, False, "demonstrated: its confidence interval is not entirely above 0."),
        ((-0.1, 0.3), LITTLE, False, "No gain over the best fixed arm or list was demonstrated. "),
        ((0.1, 0.3), LITTLE, False, "No gain over the best fixed arm or list was demonstrated. "),
        ((0.1, 0.3), NOTHING, False, "No gain over the best fixed arm or list was demonstrated. "),
        ((0.1, 0.3), None, False, "because the latent types were not tested"),
        (None, AGREES, False, "is predicted by the model"),
    ],
)
def test_a_gain_counts_only_where_interval_and_both_checks_agree(gain, check, sure, said):
    verdict = Verdict(gain, check)
    assert verdict.sure is sure
    assert verdict.sentence.startswith(said) or said in verdict.sentence
    told = (
        "The latent types were not tested on held-out sessions"
        if check is None
        else ""
        if check.agrees
        else check.verdict
    )
    assert told in verdict.sentence


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
    """The whole road by the commands' own means: a log, an estimate with its check, a plan, an assessment."""
    rng = generator(3)
    log = sticky(rng) if request.param == "sticky" else typed(rng)
    method = lmab.EM(prior="learned", restarts=5)
    estimate = lmab.fit(log, n_types=2, method=method, rng=rng)
    estimate = replace(estimate, check=diagnostics.check(log, n_types=2, rng=rng))
    plan = lmab.plan(estimate, horizon=4)
    assessment = lmab.assess(estimate, plan, log, n_draws=20, rng=rng)
    folder = tmp_path_factory.mktemp("road")
    estimate.save(folder / "model.lmab")
    plan.save(folder / "policy.lmab")
    assessment.save(folder / "assessment.lmab")
    return request.param == "typed", estimate, plan, assessment, folder


def test_the_assessment_repeats_the_check_and_keeps_it(road):
    real, estimate, _, assessment, folder = road
    assert estimate.check.agrees is real
    assert (assessment.gain is not None) is real  # withheld where the check fails
    assert (assessment.verdict.word == "pays") is real
    assert assessment.table["held-out check"] == estimate.check.verdict
    assert len(assessment.sentence.split(". ")) == (3 if real else 2)  # no bound on the optimum without types
    assert ("No gain over the best fixed arm was demonstrated" in assessment.sentence) is not real
    assert ("No gain over the best fixed arm was demonstrated" in assessment._repr_html_()) is not real
    again = lmab.load(folder / "assessment.lmab")
    assert again.check.verdict == estimate.check.verdict
    assert again.verdict.word == assessment.verdict.word


def test_the_report_is_green_and_calls_types_real_only_where_all_agree(road):
    real, estimate, plan, assessment, _ = road
    held = typed(generator(4)) if real else sticky(generator(4))
    for known in (assessment, None):
        page = reporting.render(reporting.gather(estimate.bandit, plan, sessions=held, assessment=known))
        green = real and known is not None
        assert ('class="good"' in page) is green
        assert ("more)" in page) is green
        assert ("These sessions confirm the types" in page) is green
        assert "past of a session improves the prediction" in page  # in both cases: memory alone does not show types
        assert estimate.check.verdict.split(":")[0] in page
        assert page.index("</h1>") < page.index(estimate.check.verdict.split(":")[0]) < page.index("<h2>")  # it leads
        assert ('class="ours"' in page) is real  # the bar of an unsupported gain is grey
    assert (
        "A gain over the best fixed arm was demonstrated"
        in reporting.render(reporting.gather(estimate.bandit, plan, assessment=assessment))
    ) is real


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
        answer = json.loads(CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False).stdout)
        assert answer["check"] == {"agrees": real, "verdict": estimate.check.verdict}
    page = ["report", str(folder / "model.lmab"), str(folder / "policy.lmab"), "-o", str(tmp_path / "page.html")]
    told = CliRunner().invoke(app, [*page, "--assessment", str(folder / "assessment.lmab"), "--json"])
    assert (json.loads(told.stdout)["word"] == "pays") is real
    assert ('class="good"' in (tmp_path / "page.html").read_text()) is real


def test_a_plan_shows_the_check_of_its_estimate(road):
    _, estimate, plan, _, _ = road
    assert estimate.check.verdict.split("(")[0].split("+")[0][:30] in plan._repr_html_()


def test_where_nothing_can_be_lost_nothing_is_left_undone(rng):
    """A single arm: the regret is 0, and no part of it is for want of planning."""
    bandit = lmab.LatentBandit.bernoulli([1.0], [[0.4]])
    log = lmab.simulate(bandit, lmab.Uniform(1), n_sessions=60, horizon=3, rng=rng)
    estimate = lmab.fit(log, n_types=1, method=lmab.EM(restarts=2, prior=1.0), check=False, rng=rng)
    found = lmab.assess(estimate, lmab.plan(estimate, horizon=1), log, n_draws=20, rng=rng)
    assert found.regret == (0.0, 0.0)
    assert found.planning_gap == 0.0
