"""First uses of the library: they work, or the error names the argument to pass."""

from __future__ import annotations

import inspect
import typing
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import lmab
from lmab import reporting
from lmab.errors import InvalidArgument, InvalidData, LmabWarning
from lmab.evaluation import diagnostics

MEANS = [[0.9, 0.1, 0.4], [0.2, 0.7, 0.4]]
BANDIT = lmab.LatentBandit.bernoulli([0.3, 0.7], MEANS)
NAMED = lmab.LatentBandit(BANDIT.weights, BANDIT.rewards, ("Star Wars", "Fargo", 17))


@pytest.fixture(scope="module")
def log():
    return lmab.simulate(BANDIT, lmab.Uniform(3), n_sessions=300, horizon=4, rng=0)


@pytest.fixture(scope="module")
def estimate(log):
    return lmab.fit(log, n_types=2, method=lmab.EM(prior=1.0, restarts=2), rng=0)


@pytest.fixture(scope="module")
def plan(estimate):
    return lmab.plan(estimate, horizon=4)


FRAME = pd.DataFrame({"session": [1], "item": ["x"], "click": [0]})
READ = r"read it by lmab\.Sessions\.read\('x\.parquet', \.\.\.\), got a"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (FRAME, r"make it by lmab\.Sessions\.from_frame\(frame, session=\.\.\., .*got a DataFrame"),
        ("x.parquet", READ),
        (Path("x.parquet"), READ),
        ([1, 2], r"from_events or from_arrays, got a list"),
    ],
)
def test_a_log_is_asked_for_by_name(estimate, plan, given, message):
    for call in (
        lambda: lmab.fit(given, n_types=2, method=lmab.EM(prior=0.0), rng=0),
        lambda: lmab.assess(estimate, plan, given, rng=0),
        lambda: diagnostics.check(given, n_types=2, rng=0),
    ):
        with pytest.raises(InvalidArgument, match="sessions must be a log: .*" + message):
            call()


def test_a_frame_is_read_like_a_file_and_a_file_is_no_frame():
    assert lmab.Sessions.read(FRAME, arm="item", reward="click") == lmab.Sessions.from_frame(
        FRAME, session="session", arm="item", reward="click"
    )
    with pytest.raises(InvalidData, match=r"got str; a file is read by Sessions\.read"):
        lmab.Sessions.from_frame("x.csv", session="session", arm="item", reward="click")


@pytest.mark.parametrize(("method", "got"), [("em", "'em'"), (lmab.EM, "the class EM itself"), (None, "None")])
def test_methods_are_objects(log, method, got):
    with pytest.raises(InvalidArgument, match=rf"method must be an estimator such as EM\(\) .*, got {got}"):
        lmab.fit(log, n_types=2, method=method, rng=0)


def test_arguments_of_evaluate_and_assess_in_the_wrong_place(log, estimate, plan):
    with pytest.raises(InvalidArgument, match=r"policy must come before what it is evaluated on"):
        lmab.evaluate(BANDIT, plan, horizon=4)
    with pytest.raises(InvalidArgument, match=r"estimate must be what lmab\.fit returns, .*got a LatentBandit"):
        lmab.assess(BANDIT, plan, log, rng=0)
    with pytest.raises(InvalidArgument, match=r"estimate must be .*got a Plan"):
        lmab.assess(plan, estimate, log, rng=0)
    with pytest.raises(InvalidArgument, match=r"plan must be what lmab\.plan returns, .*got a "):
        lmab.assess(estimate, plan.policy, log, rng=0)


def test_what_holds_a_model_or_a_policy_is_taken_as_such(log, estimate):
    made = lmab.plan(estimate, horizon=3)
    assert lmab.evaluate(made, estimate, horizon=3).mean == lmab.evaluate(made.policy, estimate.bandit, horizon=3).mean
    assert diagnostics.check(estimate, n_types=2, rng=0).n_sessions == 300  # five folds: each session is held out once


def test_arms_by_label():
    policy = lmab.Greedy(NAMED, horizon=4)
    assert policy.label(policy.act_on([])) == "Fargo"
    assert policy.label(policy.act_on([("Fargo", 0.0), ("Fargo", 0.0)])) == "Star Wars"
    assert policy.act_on([("Fargo", 0.0)]) == policy.act_on([(1, 0.0)])
    one = policy.observe(policy.start(), "Star Wars", 1.0)
    two = policy.observe(policy.start(), 0, 1.0)
    np.testing.assert_array_equal(one.memory, two.memory)
    many = policy.observe(policy.start(2), ["Star Wars", "Fargo"], [1.0, 0.0])
    np.testing.assert_array_equal(many.memory, policy.observe(policy.start(2), [0, 1], [1.0, 0.0]).memory)
    earlier = policy.start(history=[("Star Wars", 1.0)])
    np.testing.assert_array_equal(earlier.memory, one.memory)
    assert (policy.arm_of("Fargo"), policy.arm_of(17), policy.label(2)) == (1, 2, 17)


def test_numbers_are_arm_numbers_even_where_labels_are_numbers():
    bandit = lmab.LatentBandit(BANDIT.weights, BANDIT.rewards, (2, 0, 1))
    policy = lmab.Greedy(bandit)
    np.testing.assert_array_equal(
        policy.observe(policy.start(), 0, 1.0).memory, lmab.Greedy(BANDIT).observe(policy.start(), 0, 1.0).memory
    )
    assert (policy.label(0), policy.arm_of(0)) == (2, 1)


def test_wrong_labels():
    named, plain = lmab.Greedy(NAMED), lmab.Greedy(BANDIT)
    with pytest.raises(InvalidArgument, match=r"a label of the policy \('Star Wars', 'Fargo', 17\), got 'Alien'"):
        named.act_on([("Alien", 1.0)])
    with pytest.raises(InvalidArgument, match=r"the arms of this policy have numbers only\), got 'Fargo'"):
        plain.act_on([("Fargo", 1.0)])
    with pytest.raises(InvalidArgument, match=r"arm must be an integer in 0\.\.2, got 3"):
        named.label(3)
    assert plain.label(2) == 2


def test_a_tree_is_a_picture_in_a_notebook():
    policy = lmab.plan(NAMED, horizon=4).policy
    tree = policy.tree(3)
    assert str(policy.tree()) == str(tree)  # three steps by default
    assert tree._repr_svg_() == reporting.tree_svg(tree)
    assert tree._repr_svg_().startswith("<svg")
    assert "type 1" in tree._repr_svg_()


def test_a_check_shows_its_verdict_and_its_plot(log):
    found = diagnostics.check(log, n_types=2, rng=0)
    shown = found._repr_html_()
    assert "<svg" in shown
    assert shown.count("<circle") == len(found.calibration.predicted)
    assert found.verdict.split("(")[0].replace("'", "&#x27;") in shown


def test_a_policy_has_a_card():
    policy = lmab.plan(NAMED, horizon=3, repeats=False).policy
    shown = policy._repr_html_()
    assert "Policy: " in shown
    assert str(policy.label(policy.act_on([]))) in shown
    assert "never" in shown
    assert "at random" in lmab.Thompson(BANDIT)._repr_html_()


def test_the_model_comes_first(plan):
    pytest.importorskip("matplotlib").use("Agg")
    assert len(reporting.plot_worth(BANDIT, plan).patches) == 4
    for wrong in ((BANDIT, BANDIT), (plan, BANDIT)):
        with pytest.raises(InvalidArgument, match="plot_worth must get a LatentBandit and a Plan, got a"):
            reporting.plot_worth(*wrong)


def test_types_are_numbered_by_size_in_plots_too():
    pytest.importorskip("matplotlib").use("Agg")
    ax = reporting.plot_means(BANDIT)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["type 1 (70%)", "type 2 (30%)"]
    assert ax.images[0].get_array()[0].max() == 0.7  # of the larger type


def revenue(n: int, rng: np.random.Generator) -> tuple[lmab.Sessions, float]:
    """Return sessions of two customer types with mostly zero revenue, and the value of knowing the type."""
    buys, size = np.array([[0.2, 0.02, 0.1], [0.02, 0.2, 0.1]]), np.array([[20.0, 50.0, 8.0], [60.0, 15.0, 8.0]])
    kind, arms = rng.integers(2, size=(n, 1)), rng.integers(3, size=(n, 6))
    paid = (rng.random((n, 6)) < buys[kind, arms]) * size[kind, arms] * np.exp(rng.normal(0, 0.3, (n, 6)))
    return lmab.Sessions.from_arrays(arms, paid), 6 * float((buys * size).max(axis=1).mean()) * np.exp(0.045)


def test_amounts_go_the_whole_way_in_bins_and_normal_rewards_warn(rng):
    log, known = revenue(3000, rng)
    estimate = lmab.fit(log, n_types=2, rewards="binned", method=lmab.EM(prior=1.0, restarts=4), rng=rng)
    assert estimate.bins.values[0] == 0.0
    assert estimate.bandit.rewards.edges is not None
    assert estimate.bins.cut(log).rewards.mean() == pytest.approx(log.rewards.mean())
    plan = lmab.plan(estimate, horizon=6)
    assert plan.upper < 1.15 * known
    assessment = lmab.assess(estimate, plan, log, n_draws=20, rng=rng)
    assert assessment.value[0] <= plan.upper
    policy = plan.policy
    assert policy.act_on([(0, 23.4567)]) in range(3)  # any amount has its bin
    with pytest.warns(LmabWarning, match=r"normal rewards do not fit: 8\d% of the rewards are exactly 0: .*'binned'"):
        lmab.fit(log, n_types=2, rewards="gaussian", method=lmab.EM(restarts=2, prior=0.0), rng=rng)


def test_normal_rewards_that_fit_do_not_warn_and_skewed_ones_do(rng):
    bandit = lmab.LatentBandit.gaussian([0.5, 0.5], [[0.0, 2.0], [2.0, 0.0]], scale=0.5)
    log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=500, horizon=4, rng=rng)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lmab.fit(log, n_types=2, rewards="gaussian", method=lmab.EM(restarts=2, prior=0.0), rng=rng)
    skewed = lmab.Sessions(log.arms, rng.exponential(size=log.n_steps) ** 2, log.offsets, 2)
    with pytest.warns(LmabWarning, match="normal rewards do not fit: the shares of rewards below a value differ by up"):
        lmab.fit(skewed, n_types=1, rewards="gaussian", method=lmab.EM(restarts=1, prior=0.0), rng=rng)


def test_the_number_of_types_is_found_in_few_steps_where_normal_rewards_do_not_fit(rng):
    log, _ = revenue(600, rng)
    with pytest.warns(LmabWarning, match="normal rewards do not fit"):
        estimate = lmab.fit(log, n_types="auto", rewards="gaussian", method=lmab.EM(restarts=2, prior=0.0), rng=rng)
    assert len(estimate.curve.n_types) <= 20


def test_what_people_try_first_is_answered_by_what_to_say():
    with pytest.raises(InvalidArgument, match=r"act_on"):
        lmab.Greedy(BANDIT, horizon=4).act([(0, 1.0)])
    for call in (
        lambda: lmab.random_bandit(2, 3, rng=None),
        lambda: lmab.simulate(BANDIT, lmab.Uniform(3), n_sessions=2, horizon=2, rng=None),  # type: ignore[call-overload]
        lambda: lmab.fit(lmab.Sessions.from_arrays([[0, 1]], [[0.0, 1.0]]), rng=None),
    ):
        with pytest.raises(InvalidArgument, match=r"rng must be given, because .*: a seed such as rng=0"):
            call()


@pytest.mark.parametrize(
    ("function", "required"),
    [
        (lmab.plan, {"bandit", "horizon"}),
        (lmab.fit, {"sessions", "rng"}),
        (lmab.random_bandit, {"n_types", "n_arms", "rng"}),
        (lmab.Simulator, {"bandit", "horizon", "rng"}),
        (lmab.learn, {"environment", "learner", "n_sessions", "rng"}),
        (lmab.learning.Run, {"learner", "rng"}),
        (lmab.assess, {"estimate", "plan", "sessions", "rng"}),
        (lmab.evaluate, {"policy", "source", "horizon"}),
    ],
)
def test_a_signature_requires_what_every_call_needs(function, required):
    """Require that a type checker rejects calls that would always fail."""
    parameters = inspect.signature(function).parameters.values()
    plain = [one for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    assert {one.name for one in plain if one.default is one.empty} == required


def test_simulate_requires_its_numbers_with_a_policy_and_not_with_arms():
    with_policy, with_arms = map(inspect.signature, typing.get_overloads(lmab.simulate))
    for name in ("n_sessions", "horizon"):
        assert with_policy.parameters[name].default is inspect.Parameter.empty
        assert with_arms.parameters[name].default is None
    assert all(one.parameters["rng"].default is inspect.Parameter.empty for one in (with_policy, with_arms))
