"""Files of version 0.1 load as what they were, and the commands still take them; strangers are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from seeds import generator
from typer.testing import CliRunner

import lmab
from lmab.cli.app import app
from lmab.cli.inputs import load_fitted, load_planned
from lmab.errors import InvalidFile
from lmab.policies import restore_policy

OLD = Path(__file__).parent / "files_0_1"  # made by version 0.1: `lmab fit log.csv`, `lmab plan fit.lmab`, and `.save`
LOG = ["--step", "step"]
RUNNER = CliRunner()


def run(*arguments: object) -> dict:
    result = RUNNER.invoke(app, [*map(str, arguments), "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def test_files_of_0_1_are_what_they_were():
    truth = lmab.random_bandit(2, 4, rng=generator(3))
    assert lmab.load(OLD / "bandit.lmab").distance(truth) < 1e-12
    assert isinstance(lmab.load(OLD / "fit.lmab"), lmab.LatentBandit)
    for name in ("policy.lmab", "plan.lmab"):
        policy = lmab.load(OLD / name)
        assert isinstance(policy, lmab.Policy)
        assert policy.act_on([(2, 0.0)]) in range(4)
    going = lmab.load(OLD / "run.lmab")
    assert (going.sessions_used, going.ask().n_sessions, going.task.values) == (40, 20, (0.0, 1.0))


def test_the_notes_of_0_1_are_read_by_the_commands():
    estimate, plan = load_fitted(OLD / "fit.lmab"), load_planned(OLD / "plan.lmab")
    assert estimate.bandit == lmab.load(OLD / "fit.lmab") == plan.estimate.bandit
    assert (estimate.prior, estimate.n_sessions, estimate.status) == (1.0, 300, "converged")
    assert estimate.log_likelihood == plan.estimate.log_likelihood == pytest.approx(-503.6949403679306, rel=1e-12)
    assert plan.lower <= plan.upper == 2.4238561144254103
    assert isinstance(load_fitted(OLD / "bandit.lmab"), lmab.LatentBandit)
    assert isinstance(load_planned(OLD / "policy.lmab"), lmab.Policy)


@pytest.mark.parametrize("model", ["bandit.lmab", "fit.lmab"])
def test_every_command_takes_models_of_0_1(tmp_path, model):
    bandit = lmab.load(OLD / model)
    run("simulate", OLD / model, "-o", tmp_path / "log.csv", "--sessions", 20, "--horizon", 3)
    log = lmab.Sessions.read(tmp_path / "log.csv", step="step")
    assert (len(log), log.n_steps) == (20, 60)
    planned = run("plan", OLD / model, "--horizon", 3, "-o", tmp_path / "policy.lmab")
    plan = lmab.plan(bandit, horizon=3)
    assert (planned["lower"], planned["upper"]) == (pytest.approx(plan.lower), pytest.approx(plan.upper))
    assert planned["fixed"] == pytest.approx(bandit.best_fixed(3))
    told = run("evaluate", OLD / "policy.lmab", "--model", OLD / model)["model"]
    value = lmab.evaluate(lmab.load(OLD / "policy.lmab"), bandit, horizon=3).mean
    assert (told["mean"], told["stderr"]) == (pytest.approx(value), 0.0)
    report = run("report", OLD / model, "-o", tmp_path / "report.html", "--horizon", 3)
    assert report["known"] == pytest.approx(bandit.known_type(3))
    assert "best fixed" in (tmp_path / "report.html").read_text()
    learned = run("learn", OLD / model, "--horizon", 3, "--sessions", 200, "--types", 2)
    assert learned["value"] <= learned["genie"] + 1e-9 <= plan.upper + 2e-9
    assert learned["sessions_used"] == 200


@pytest.mark.parametrize("policy", ["policy.lmab", "plan.lmab"])
def test_every_command_takes_policies_of_0_1(tmp_path, policy):
    bandit, old = lmab.load(OLD / "fit.lmab"), lmab.load(OLD / policy)
    run("simulate", OLD / "fit.lmab", "--policy", OLD / policy, "-o", tmp_path / "log.csv", "--sessions", 20,
        "--horizon", 3)  # fmt: skip
    log = lmab.Sessions.read(tmp_path / "log.csv", step="step")
    for session in log:
        steps = list(zip(session.arms.tolist(), session.rewards.tolist(), strict=True))
        played = [log.arm_labels[arm] if log.arm_labels else arm for arm, _ in steps]
        history = list(zip(played, [reward for _, reward in steps], strict=True))
        assert played == [old.act_on(history[:step]) for step in range(3)]
    value = lmab.evaluate(old, bandit, horizon=3).mean
    assert run("evaluate", OLD / policy, "--model", OLD / "fit.lmab")["model"]["mean"] == pytest.approx(value)
    report = run("report", OLD / "fit.lmab", OLD / policy, "-o", tmp_path / "report.html")
    assert (report["policy"], report["horizon"]) == (pytest.approx(value), 3)


def test_a_plan_of_0_1_is_certified_by_its_log_and_no_other(tmp_path):
    found = run("evaluate", OLD / "plan.lmab", "--certify", OLD / "log.csv", *LOG)["certificate"]
    low, high = found["value"]
    assert low < 2.4238561144254103 < high
    run("report", OLD / "fit.lmab", OLD / "plan.lmab", "--certify", OLD / "log.csv", *LOG, "-o", tmp_path / "r.html")
    run("plan", OLD / "fit.lmab", "--horizon", 3, "-o", tmp_path / "new.lmab")  # ... and through a file of today
    again = run("evaluate", tmp_path / "new.lmab", "--certify", OLD / "log.csv", *LOG)["certificate"]
    assert again["value"] == found["value"]
    lines = (OLD / "log.csv").read_text().splitlines()
    (tmp_path / "other.csv").write_text("\n".join(lines[:-3]))
    refused = RUNNER.invoke(app, ["evaluate", str(OLD / "plan.lmab"), "--certify", str(tmp_path / "other.csv"), *LOG])
    assert "must be the log that the estimate was fitted to (300 sessions)" in str(refused.exception)


def test_a_damaged_note_is_an_error_that_names_the_file(tmp_path):
    from dataclasses import replace

    from lmab import files

    record = files.read(OLD / "fit.lmab")
    files.write(tmp_path / "bad.lmab", replace(record, fields={**record.fields, "fit": {"prior": 1.0}}))
    with pytest.raises(InvalidFile, match=r"bad\.lmab: damaged: its note lacks 'log_likelihood'"):
        load_fitted(tmp_path / "bad.lmab")


def test_a_subclass_does_not_take_the_files_of_its_parent(tmp_path):
    class Shy(lmab.Greedy):
        """Has no kind of its own."""

    bandit = lmab.load(OLD / "bandit.lmab")
    assert type(restore_policy(lmab.Greedy(bandit).record())) is lmab.Greedy


def test_policies_of_others_load_once_their_class_is_there(tmp_path):
    class Lazy(lmab.Stationary):
        kind = "lazy-of-a-test"

    Lazy(2).save(tmp_path / "lazy.lmab")
    assert type(lmab.load(tmp_path / "lazy.lmab")) is Lazy


def test_certificates_round_trip_to_the_bit(tmp_path):
    plan = load_planned(OLD / "plan.lmab")
    log = lmab.Sessions.read(OLD / "log.csv", step="step")
    made = lmab.certify(plan.estimate, plan, log, n_draws=20, rng=0)
    made.save(tmp_path / "c.lmab")
    again = lmab.load(tmp_path / "c.lmab")
    assert isinstance(again, lmab.Certificate)
    assert {**vars(again), "draws": 0} == {**vars(made), "draws": 0}
    assert again.draws.tobytes() == made.draws.tobytes()
    assert (again.sentence, again.note, again.thin) == (made.sentence, made.note, made.thin)
    assert again.is_about(plan)
    assert not again.is_about(lmab.plan(plan.estimate, horizon=2))
