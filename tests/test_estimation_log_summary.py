from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import lmab
from lmab import Sessions
from lmab.cli.app import app
from lmab.errors import InvalidArgument, LmabWarning
from lmab.estimation.log_summary import LogSummary
from lmab.estimation.result import estimate_of
from lmab.reporting.contents import measure


def log_of(arms, n_arms=None):
    longest = max(map(len, arms))
    padded = np.array([[*row, *[-1] * (longest - len(row))] for row in arms])
    return Sessions.from_arrays(padded, np.zeros(padded.shape), n_arms=n_arms)


def shuffled(rng, n_sessions, n_arms, horizon):
    return np.array([rng.permutation(n_arms)[:horizon] for _ in range(n_sessions)])


def reference(arms, n_arms):
    """Count repeats, and their expected number, session by session."""
    plays = np.bincount(np.concatenate(arms), minlength=n_arms) / sum(map(len, arms))
    expected = sum(len(row) - (1 - (1 - plays) ** len(row)).sum() for row in arms)
    return sum(len(row) - len(set(row)) for row in arms), expected


def test_repeats_are_counted_and_expected_as_in_the_reference(rng, monkeypatch):
    monkeypatch.setattr("lmab.estimation.log_summary._SESSIONS", 7)  # several chunks
    arms = [rng.integers(6, size=rng.integers(1, 6)).tolist() for _ in range(50)]
    found = LogSummary.of(log_of(arms, 6))
    n_repeats, expected = reference(arms, 6)
    assert found.n_repeats == n_repeats
    assert found.expected_repeats == pytest.approx(expected)
    assert found.longest == max(map(len, arms))


@pytest.mark.parametrize(
    ("n_sessions", "n_arms", "horizon", "repeats"),
    [(500, 10, 5, False), (500, 2000, 2, True), (3, 10, 3, True), (100, 5, 1, True)],
)
def test_a_log_speaks_against_repeats_only_if_several_were_expected(n_sessions, n_arms, horizon, repeats, rng):
    found = LogSummary.of(log_of(shuffled(rng, n_sessions, n_arms, horizon), n_arms))
    assert found.n_repeats == 0
    assert found.repeats == repeats
    once_more = LogSummary.of(log_of([*shuffled(rng, n_sessions, n_arms, horizon).tolist(), [1, 1]], n_arms))
    assert once_more.repeats


def test_an_arm_without_plays_at_the_end_is_withdrawn_unless_it_is_rare(rng):
    arms = rng.choice(4, p=[0.6, 0.3, 0.08, 0.02], size=(1000, 1))  # arm 3 has about 18 plays before the end
    arms[900:] = rng.integers(2, size=(100, 1))
    arms[400:1000][arms[400:1000] == 3] = 0
    found = LogSummary.of(log_of(arms))
    assert found.withdrawn == (2,)
    assert (1 - np.mean(arms[:900] == 2)) ** 100 < 1e-3 < (1 - np.mean(arms[:900] == 3)) ** 100
    assert LogSummary.of(log_of(arms[:900])).withdrawn == ()


def test_no_play_at_the_end_that_chance_explains_in_one_log_of_a_hundred_is_no_withdrawal():
    arms = (np.arange(1000) % 2)[:, None]
    arms[:900:20] = 2  # 45 plays: .95 ** 100 = .006 at this rate
    assert 1e-3 < (1 - np.mean(arms[:900] == 2)) ** 100 < 1e-2
    assert LogSummary.of(log_of(arms)).withdrawn == ()


def fitted(arms, labels, rng, types=True):
    """An estimate of a log with these arms, whose rewards follow two types or none."""
    n_arms = len(labels)
    means = np.array([np.linspace(0.05, 0.95, n_arms), np.linspace(0.9, 0.1, n_arms)])
    means = means if types else np.tile(np.linspace(0.2, 0.7, n_arms), (2, 1))
    who = rng.integers(2, size=len(arms))
    rewards = (rng.random(arms.shape) < means[who[:, None], arms]).astype(float)
    made = Sessions.from_arrays(arms, rewards, n_arms=n_arms)
    return lmab.fit(Sessions(made.arms, made.rewards, made.offsets, n_arms, arm_labels=tuple(labels)), n_types=2, rng=0)


@pytest.fixture(scope="module")
def without_repeats():
    rng = np.random.default_rng(0)
    return fitted(shuffled(rng, 600, 6, 4), "abcdef", rng)


@pytest.fixture(scope="module", params=[True, False])
def with_withdrawn(request):
    """Arm d is the best one for both types together, and has no play at the end."""
    rng = np.random.default_rng(1)
    arms = rng.integers(4, size=(1000, 4))
    arms[900:] = rng.integers(3, size=(100, 4))
    return fitted(arms, "abcd", rng, request.param)


def test_a_plan_repeats_arms_if_its_log_does(without_repeats, tmp_path):
    without_repeats.save(tmp_path / "model.lmab")
    for estimate in (without_repeats, lmab.load(tmp_path / "model.lmab")):
        made = lmab.plan(estimate, horizon=4)
        assert not made.repeats
        assert not made.policy.repeats
        assert "no arm is played twice, because no session of the log plays an arm twice" in made.message
        assert lmab.plan(estimate, horizon=4, repeats=True).repeats
    assert lmab.plan(without_repeats.bandit, horizon=4).repeats


def test_plan_prints_the_reason_for_no_repeats_once(without_repeats, tmp_path):
    without_repeats.save(tmp_path / "model.lmab")
    words = ["plan", str(tmp_path / "model.lmab"), "--horizon", "4", "-o", str(tmp_path / "policy.lmab")]
    said = CliRunner().invoke(app, words)
    assert said.exit_code == 0, said.output
    assert said.output.count("because no session of the log plays an arm twice") == 1
    assert "--repeats allows it." in said.output


def test_the_expected_repeats_are_written_without_an_exponent():
    assert "would give 3,362 repeats" in LogSummary(0, 3362.4, 6, ()).reason
    assert "would give 0.31 repeats" in LogSummary(0, 0.31, 6, ()).reason


def test_a_horizon_above_the_arms_or_the_longest_session(without_repeats):
    with pytest.raises(InvalidArgument, match="at most the 6 arms without repeats, got 7: plan fewer steps, or let"):
        lmab.plan(without_repeats, horizon=7)
    with pytest.warns(LmabWarning, match="horizon must be at most 4, the steps of the longest session of the log"):
        lmab.plan(without_repeats, horizon=5)


def test_withdrawn_arms_are_planned_only_by_name(with_withdrawn):
    estimate = with_withdrawn
    assert estimate.log_summary.withdrawn == (3,)
    made = lmab.plan(estimate, horizon=4)
    assert "1 arm withdrawn: 'd'. No session in the last 10% of the log plays it, which" in made.message
    log = lmab.simulate(estimate.bandit, made.policy, n_sessions=200, horizon=4, rng=0)
    assert 3 not in log.arms
    assert lmab.evaluate(made, estimate, horizon=4).mean == pytest.approx(made.lower, rel=0.02)
    assert made.policy.act_on([], allowed=[False, False, False, True]) == 3
    named = lmab.plan(estimate, horizon=4, arms="abcd")
    assert named.lower > made.lower
    assert 3 in lmab.simulate(estimate.bandit, named.policy, n_sessions=200, horizon=4, rng=0).arms
    assert lmab.plan(estimate, horizon=4, arms=["a", "b", "c"]).lower == pytest.approx(made.lower)


def test_arms_that_the_model_does_not_know(with_withdrawn):
    for arms, got in ((["a", "z"], "'z'"), ([], "none")):
        with pytest.raises(InvalidArgument, match=f"arms must be labels of the model, such as 'a', got {got}"):
            lmab.plan(with_withdrawn, horizon=2, arms=arms)


def test_a_plan_without_withdrawn_arms_is_certified_and_reported(with_withdrawn, tmp_path):
    made = lmab.plan(with_withdrawn, horizon=3)
    assessment = lmab.assess(with_withdrawn, made, with_withdrawn.sessions, n_draws=20, rng=0)
    assert assessment.sentence
    made.save(tmp_path / "plan.lmab")
    again = lmab.load(tmp_path / "plan.lmab")
    assert again.policy.act_on([]) == made.policy.act_on([])
    lmab.report(estimate_of(again.source), again, tmp_path / "report.html")
    assert "withdrawn" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("repeats", [True, False])
def test_withdrawn_arms_are_neither_a_baseline_nor_part_of_the_optimum(with_withdrawn, repeats, monkeypatch):
    estimate = with_withdrawn
    made = lmab.plan(estimate, horizon=3, repeats=repeats)
    assert made.kept_arms == (0, 1, 2)
    without = estimate.bandit.only_arms([0, 1, 2])
    for written_out, error in ((10_000, 1e-9), (1, 0.01)):  # exactly, and from simulated sessions
        monkeypatch.setattr("lmab.evaluation.replanning.WRITTEN_OUT", written_out)
        found = lmab.assess(estimate, made, estimate.sessions, n_draws=20, rng=0)
        optimum, value, _, fixed = found.draws.mean(axis=0)
        assert fixed == pytest.approx(without.best_fixed(3, repeats), abs=0.05)
        assert estimate.bandit.best_fixed(3, repeats) > fixed + 0.05
        assert optimum < without.known_type(3, repeats) + 0.05
        assert estimate.bandit.known_type(3, repeats) > optimum + 0.05
        assert value >= fixed - error
        assert "unplayed arms" not in found.table
    shown = measure(estimate.bandit, made.policy, made.upper, 3, repeats=repeats, arms=made.kept_arms)
    assert shown.fixed == pytest.approx(without.best_fixed(3, repeats))
    assert 3 not in shown.fixed_arms


def test_traits_are_certified_among_the_arms_planned_with(with_withdrawn):
    log = with_withdrawn.sessions
    estimate = lmab.fit(log, method=lmab.Traits(n_factors=1), check=False, rng=0)
    made = lmab.plan(estimate, horizon=3)
    assert made.kept_arms == (0, 1, 2)
    found = lmab.assess(estimate, made, log, n_draws=20, rng=0)
    assert found.draws[:, 3].mean() == pytest.approx(made.of_kept_arms(estimate.bandit).best_fixed(3), abs=0.1)


def test_fit_and_plan_name_withdrawn_arms(with_withdrawn, tmp_path):
    log = with_withdrawn.sessions
    rows = zip(np.repeat(np.arange(len(log)), 4), log.arms, log.rewards, strict=True)
    text = "".join(f"{session},{'abcd'[arm]},{int(reward)}\n" for session, arm, reward in rows)
    (tmp_path / "log.csv").write_text("session,arm,reward\n" + text)
    model = str(tmp_path / "model.lmab")
    arguments = ["fit", str(tmp_path / "log.csv"), "--types", "1", "--no-check", "-o", model]
    assert "1 arm withdrawn: 'd'." in " ".join(CliRunner().invoke(app, arguments).output.split())
    assert json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)["withdrawn"] == ["d"]
    planned = ["plan", model, "--horizon", "3", "-o", str(tmp_path / "policy.lmab"), "--json"]
    shown = json.loads(CliRunner().invoke(app, planned).stdout)
    assert shown["fixed"] == pytest.approx(shown["lower"])  # the best arm of those that are left


def test_arms_without_labels_are_named_by_number(rng):
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5, 0.1, 0.8], [0.1, 0.4, 0.9, 0.8]])
    made = lmab.plan(bandit, horizon=3, arms=[0, 1, 2])
    assert 3 not in lmab.simulate(bandit, made.policy, n_sessions=200, horizon=3, rng=rng).arms
    assert made.policy.act_on([], allowed=[False, False, False, True]) == 3
