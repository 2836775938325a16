"""The practitioner's path, command by command, and every bad input at the door."""

from __future__ import annotations

import html
import json
import os
import stat
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from seeds import SEED, generator
from typer.testing import CliRunner

import lmab
from lmab.cli import app as application
from lmab.cli import output
from lmab.cli.app import app
from lmab.estimation.result import estimate_of

RUNNER = CliRunner()
pytestmark = pytest.mark.usefixtures("few_draws")
COLUMNS = ["--session", "session", "--arm", "item", "--reward", "click", "--step", "t"]


def run(*arguments: object) -> dict:
    """The JSON of a command that must succeed."""
    result = RUNNER.invoke(app, [*map(str, arguments), "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def text(*arguments: object) -> str:
    result = RUNNER.invoke(app, [*map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def fails(capsys, monkeypatch, *arguments: object, code: int = 1) -> str:
    """The one line that a failing command prints, through the same door as a user's."""
    monkeypatch.setattr(sys, "argv", ["lmab", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        application.main()
    shown = capsys.readouterr()
    assert stop.value.code == code, shown
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert shown.err.count("\n") == 1
    assert "Traceback" not in shown.err
    return shown.err


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Logs with names of their own, a model and a policy, all made by the commands."""
    place = tmp_path_factory.mktemp("practice")
    run("simulate", "-o", place / "raw.parquet", "--save-model", place / "truth.lmab", "--arms", 5, "--types", 2,
        "--horizon", 4, "--sessions", 3000, "--seed", 2 * SEED)  # fmt: skip
    run("simulate", place / "truth.lmab", "-o", place / "raw2.parquet", "--horizon", 4, "--sessions", 40_000,
        "--seed", 2 * SEED + 1)  # fmt: skip
    for source, target in (("raw", "train"), ("raw2", "heldout")):
        raw = pyarrow.parquet.read_table(place / f"{source}.parquet").replace_schema_metadata(None)
        items = pa.array([f"item {arm}" for arm in raw["arm"].to_pylist()])
        table = pa.table(
            {"session": raw["session"], "t": raw["step"], "item": items, "click": raw["reward"], "p": raw["propensity"]}
        )
        pyarrow.parquet.write_table(table, place / f"{target}.parquet")
    run("fit", place / "train.parquet", *COLUMNS, "--types", 2, "-o", place / "model.lmab")
    run("plan", place / "model.lmab", "--horizon", 4, "--gap", 0.001, "-o", place / "policy.lmab")
    return place


def test_simulate_logs_propensities_of_any_policy(tmp_path, folder):
    for policy in ("uniform", "thompson", "greedy", folder / "policy.lmab"):
        model = folder / ("model.lmab" if policy == folder / "policy.lmab" else "truth.lmab")
        answer = run(
            "simulate", model, "-o", tmp_path / "log.csv", "--policy", policy, "--horizon", 4, "--sessions", 50
        )
        assert answer["sessions"] == 50
        log = lmab.Sessions.read(tmp_path / "log.csv", step="step", propensity="propensity")
        expected = {"uniform": 0.2, "greedy": 1.0}.get(str(policy))
        if expected is not None:
            np.testing.assert_allclose(np.asarray(log.propensities), expected)
        assert log.propensities.max() <= 1


def test_fit_finds_the_types_and_says_what_the_log_can_tell(folder):
    answer = run("fit", folder / "train.parquet", *COLUMNS, "-o", folder / "auto.lmab")
    assert answer["sessions"] == 3000
    assert answer["arms"] == 5
    assert answer["types"] in (2, 3)
    assert answer["check"]["over_one_type"]["mean"] > 0
    assert answer["heldout_by_types"]["2"] > answer["heldout_by_types"]["1"]
    assert answer["identifiability"]["long_enough"] in (0.0, 1.0)
    estimate, truth = lmab.load(folder / "model.lmab"), lmab.load(folder / "truth.lmab")
    fitted = estimate.bandit
    assert estimate.check.over_one_type.sure
    assert fitted.arm_labels == tuple(f"item {arm}" for arm in range(5))
    assert lmab.LatentBandit(fitted.weights, fitted.rewards).distance(truth) < 0.3
    shown = text("fit", folder / "train.parquet", *COLUMNS, "--types", 2, "-o", folder / "again.lmab")
    assert "Latent types are supported" in shown
    assert "item" in shown
    assert f"Next: lmab plan {folder / 'again.lmab'} --horizon 4" in shown
    assert (folder / "again.lmab").read_bytes() == (folder / "model.lmab").read_bytes()


def test_fit_says_how_many_more_sessions(folder):
    arguments = ("fit", folder / "train.parquet", *COLUMNS, "--types", 2, "--no-check", "-o", folder / "w.lmab")
    few, many = (run(*arguments, "--regret", regret)["sessions_wanted"] for regret in (0.5, 0.001))
    assert few["sessions"] == 0
    assert many["sessions"] == 0 if many["bound"] <= 0.001 else many["sessions"] > 3000
    assert few["bound"] == many["bound"]


def test_plan_proves_its_bounds_and_keeps_labels(folder, tmp_path):
    answer = run("plan", folder / "model.lmab", "--horizon", 4, "-o", tmp_path / "policy.lmab")
    plan, estimate = lmab.load(tmp_path / "policy.lmab"), lmab.load(folder / "model.lmab")
    policy, value = plan.policy, lmab.evaluate(plan, estimate, horizon=4).mean
    assert (plan.lower, plan.upper) == (answer["lower"], answer["upper"])
    assert estimate_of(plan.source).bandit == estimate.bandit
    assert answer["fixed"] <= value
    assert answer["lower"] - 1e-9 <= value <= answer["upper"] + 1e-9
    assert answer["first_arm"] == f"item {policy.act_on([])}"
    shown = text("plan", folder / "model.lmab", "--horizon", 4, "--no-repeats", "-o", tmp_path / "once.lmab")
    assert "Policy written to" in shown
    assert not lmab.load(tmp_path / "once.lmab").repeats
    once = lmab.load(tmp_path / "once.lmab").policy
    first = once.act_on([])
    assert once.act_on([(first, 1.0)]) != first


def test_evaluate_from_logs_on_a_model_and_with_an_assessment(folder):
    logged = (
        "--logs",
        folder / "heldout.parquet",
        *COLUMNS,
        "--propensity",
        "p",
        "--assess",
        folder / "train.parquet",
    )
    answer = run("evaluate", folder / "policy.lmab", *logged, "--model", folder / "model.lmab")
    policy, truth = lmab.load(folder / "policy.lmab"), lmab.load(folder / "truth.lmab")
    value = lmab.evaluate(policy, truth, horizon=4).mean
    robust = answer["logs"]["estimates"]["doubly-robust"]
    assert abs(robust["mean"] - value) < 5 * robust["stderr"]
    assert robust["interval"][0] < robust["mean"] < robust["interval"][1]
    assert answer["logs"]["logged"] == pytest.approx(4 * (truth.weights @ truth.means).mean(), abs=0.1)
    assert answer["model"]["mean"] == lmab.evaluate(policy, lmab.load(folder / "model.lmab"), horizon=4).mean
    low, high = answer["assessment"]["value"]
    assert low - 0.1 < value < high + 0.1
    shown = text("evaluate", folder / "policy.lmab", *logged)
    assert "doubly-robust" in shown
    assert "A session of 4 steps earns " in shown


def test_sessions_without_repeats_are_certified_too(folder, tmp_path):
    run("plan", folder / "model.lmab", "--horizon", 3, "--no-repeats", "-o", tmp_path / "once.lmab")
    model = lmab.load(folder / "model.lmab").bandit
    asked = ("--assess", folder / "train.parquet", "--model", folder / "model.lmab")
    answer = run("evaluate", tmp_path / "once.lmab", *asked, *COLUMNS)
    assert answer["model"]["fixed"] == model.best_fixed(3, repeats=False) < model.best_fixed(3)
    low, high = answer["assessment"]["value"]
    value = lmab.evaluate(lmab.load(tmp_path / "once.lmab"), lmab.load(folder / "truth.lmab"), horizon=3).mean
    assert low - 0.1 < value < high + 0.1


def test_a_log_that_cannot_tell_says_so_plainly(folder):
    small = pyarrow.parquet.read_table(folder / "heldout.parquet").slice(0, 400)
    pyarrow.parquet.write_table(small, folder / "small.parquet")
    arguments = ("evaluate", folder / "policy.lmab", "--logs", folder / "small.parquet", *COLUMNS, "--propensity", "p")
    shown = text(*arguments)
    assert "a live test is needed" in shown
    assert "log sessions in which the policy chooses the arms" in shown
    assert "sessions logged like these" in shown
    assert shown.count("withheld") + shown.count("fewer than 2 sessions agree") == 3
    answer = run(*arguments)["logs"]
    assert answer["enough"] is False
    for value in filter(None, answer["estimates"].values()):
        assert value["interval"] is None
        assert value["stderr"] is None


def test_fitted_propensities_are_an_explicit_option(folder, capsys, monkeypatch):
    arguments = ("evaluate", folder / "policy.lmab", "--logs", folder / "heldout.parquet", *COLUMNS)
    assert "use --fit-propensities, got neither" in fails(capsys, monkeypatch, *arguments)
    logged = run(*arguments, "--propensity", "p")["logs"]["estimates"]["doubly-robust"]
    fitted = run(*arguments, "--fit-propensities")["logs"]["estimates"]["doubly-robust"]
    assert fitted["mean"] == pytest.approx(logged["mean"], abs=3 * logged["stderr"])


def a_log(folder, **changes) -> str:
    """A small log with some columns replaced."""
    data = {"session": [1, 1, 2, 2], "t": [0, 1, 0, 1], "item": ["a", "b", "a", "b"], "click": [0, 1, 1, 0]} | changes
    path = folder / "bad.parquet"
    pyarrow.parquet.write_table(pa.table({name: column for name, column in data.items() if column is not None}), path)
    return str(path)


BAD_LOGS = [
    (
        {"click": None},
        "its columns are 'session', 't', 'item'; name the column of the reward with reward= or --reward",
    ),
    ({"click": None, "clicks": [0, 1, 1, 0]}, "'item', 'clicks'; the reward may be 'clicks'"),
    (
        {"click": ["0", "1", "yes", "no"]},
        "column 'click' must hold numbers, got string ('0' in row 0): write yes as 1 and no as 0, and",
    ),
    (
        {"click": [0.0, 1.0, float("nan"), 1.0]},
        "'click' has a missing value in row 2: leave such steps out (missing='drop', --missing drop)",
    ),
    ({"item": [0.5, 1.0, 2.0, 3.0]}, "column 'item' must hold integers or text, got double (0.5 in row 0)"),
    ({"session": [1, 2, 3, 4]}, "column 'session' gives every session one step"),
    ({"session": [1, 1, None, 2]}, "column 'session' has a missing value in row 2"),
]


@pytest.mark.parametrize(("changes", "message"), BAD_LOGS, ids=[message[:30] for _, message in BAD_LOGS])
def test_bad_logs(tmp_path, capsys, monkeypatch, changes, message):
    path = a_log(tmp_path, **changes)
    shown = fails(capsys, monkeypatch, "fit", path, *COLUMNS, "-o", tmp_path / "model.lmab")
    assert message in shown
    assert sorted(os.listdir(tmp_path)) == ["bad.parquet"]


def test_sessions_out_of_order_are_put_in_order(folder, tmp_path):
    table = pyarrow.parquet.read_table(folder / "train.parquet")
    mixed = table.take(pa.array(generator(0).permutation(len(table))))
    pyarrow.parquet.write_table(mixed, tmp_path / "mixed.parquet")
    run("fit", tmp_path / "mixed.parquet", *COLUMNS, "--types", 2, "-o", tmp_path / "model.lmab", "--no-check")
    assert lmab.load(tmp_path / "model.lmab").bandit == lmab.load(folder / "model.lmab").bandit


def test_many_distinct_rewards_must_be_named(tmp_path, capsys, monkeypatch):
    n = 8_000
    rng = generator(0)
    path = a_log(tmp_path, session=np.arange(n) // 4, t=np.arange(n) % 4, item=np.arange(n) % 3, click=rng.random(n))
    shown = fails(capsys, monkeypatch, "fit", path, *COLUMNS, "-o", tmp_path / "model.lmab")
    assert "more than 32 distinct rewards: use --rewards binned for amounts" in shown
    answer = run("fit", path, *COLUMNS, "--rewards", "gaussian", "--types", 2, "-o", tmp_path / "model.lmab")
    assert answer["types"] == 2


def test_unknown_arms_at_evaluation(folder, tmp_path, capsys, monkeypatch):
    path = a_log(tmp_path, item=["item 0", "item 9", "item 0", "item 1"], p=[0.5] * 4)
    shown = fails(
        capsys, monkeypatch, "evaluate", folder / "policy.lmab", "--logs", path, *COLUMNS, "--propensity", "p"
    )
    assert "names an unknown arm, 'item 9', in row 1; 5 are known: 'item 0'" in shown


def test_unknown_numbers_are_unknown_arms_too(tmp_path, capsys, monkeypatch):
    lmab.Greedy(lmab.LatentBandit.bernoulli([1.0], [[0.5, 0.6]]), horizon=2).save(tmp_path / "policy.lmab")
    path = a_log(tmp_path, item=[0, 1, 0, 7], p=[0.5] * 4)
    shown = fails(
        capsys, monkeypatch, "evaluate", tmp_path / "policy.lmab", "--logs", path, *COLUMNS, "--propensity", "p"
    )
    assert "unknown arm, 7, in row 3" in shown


def test_files_of_the_wrong_kind(folder, tmp_path, capsys, monkeypatch):
    shown = fails(capsys, monkeypatch, "evaluate", folder / "model.lmab", "--model", folder / "model.lmab")
    assert "must hold a policy, holds a model: `lmab plan" in shown
    shown = fails(capsys, monkeypatch, "plan", folder / "policy.lmab", "--horizon", 3)
    assert "must hold a model, holds a" in shown
    cut = (folder / "policy.lmab").read_bytes()[:-40]
    (tmp_path / "cut.lmab").write_bytes(cut)
    assert "cut.lmab: not a file of lmab, or incomplete" in fails(
        capsys, monkeypatch, "evaluate", tmp_path / "cut.lmab", "--model", folder / "model.lmab"
    )
    (tmp_path / "cut.parquet").write_bytes((folder / "train.parquet").read_bytes()[:-40])
    assert "cut.parquet: cannot be read as Parquet" in fails(capsys, monkeypatch, "fit", tmp_path / "cut.parquet")
    assert "no such file" in fails(capsys, monkeypatch, "fit", tmp_path / "none.parquet")
    assert "must end in .parquet" in fails(capsys, monkeypatch, "fit", folder / "model.lmab")


def test_first_mistakes_are_answered_with_a_remedy(folder, tmp_path, capsys, monkeypatch):
    (tmp_path / "empty.csv").write_text("")
    shown = fails(capsys, monkeypatch, "fit", tmp_path / "empty.csv")
    assert "empty.csv: empty: a log has the names of its columns and one row per step" in shown
    assert "nowhere: no such file" in fails(capsys, monkeypatch, "fit", tmp_path / "nowhere")
    log = folder / "train.parquet"
    shown = fails(capsys, monkeypatch, "plan", log, "--horizon", 3)
    assert "train.parquet: must hold a model, is a log: `lmab fit` makes a model from it" in shown
    shown = fails(capsys, monkeypatch, "evaluate", log, "--model", folder / "model.lmab")
    assert "must hold a policy, is a log: `lmab fit` makes a model from it, and `lmab plan` a policy" in shown
    assert "none.csv: no such file" in fails(capsys, monkeypatch, "plan", tmp_path / "none.csv", "--horizon", 3)


def test_unwritable_output_is_found_before_the_work(folder, tmp_path, capsys, monkeypatch):
    def never(*args, **kwargs):
        raise AssertionError("work was started")

    monkeypatch.setattr(lmab.Sessions, "read", never)
    monkeypatch.setattr("lmab.cli.plan.make_plan", never)
    monkeypatch.setattr("lmab.cli.logs.play", never)
    for command in (
        ["fit", folder / "train.parquet", "-o", tmp_path / "no" / "model.lmab"],
        ["fit", folder / "train.parquet", "-o", tmp_path],
        ["fit", folder / "train.parquet", "-o", "/proc/model.lmab"],
        ["plan", folder / "model.lmab", "--horizon", 3, "-o", tmp_path / "no" / "policy.lmab"],
        ["simulate", "-o", tmp_path / "no" / "log.parquet"],
    ):
        assert "cannot write here" in fails(capsys, monkeypatch, *command)
    assert "must end in .parquet" in fails(capsys, monkeypatch, "simulate", "-o", tmp_path / "log.txt")


@pytest.mark.parametrize("command", ["fit", "plan", "simulate", "report", "learn", "evaluate"])
def test_devices_are_no_output(folder, capsys, monkeypatch, command):
    monkeypatch.setattr(os, "replace", lambda *_: pytest.fail("something was replaced"))
    arguments = {
        "fit": [folder / "train.parquet", *COLUMNS, "-o", os.devnull],
        "plan": [folder / "model.lmab", "--horizon", 3, "-o", os.devnull],
        "simulate": ["-o", folder / "log.csv", "--save-model", os.devnull],
        "report": [folder / "model.lmab", "-o", os.devnull],
        "learn": [folder / "truth.lmab", "--horizon", 3, "-o", os.devnull],
        "evaluate": [folder / "policy.lmab", "--assess", folder / "train.parquet", "--save-assessment", os.devnull],
    }[command]
    assert "this is a device or a pipe; give an ordinary file" in fails(capsys, monkeypatch, command, *arguments)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_a_saved_assessment_is_quoted_and_not_made_again(folder, tmp_path, capsys, monkeypatch):
    saved, page = tmp_path / "assessment.lmab", tmp_path / "report.html"
    assess = ("--assess", folder / "train.parquet", *COLUMNS)
    made = run("evaluate", folder / "policy.lmab", *assess, "--save-assessment", saved)["assessment"]
    assert made["output"] == str(saved)
    assert lmab.load(saved).sentence == made["sentence"]
    shown = text("evaluate", folder / "policy.lmab", *assess, "--save-assessment", tmp_path / "again.lmab")
    assert f"--assessment {tmp_path / 'again.lmab'}" in shown
    assert (tmp_path / "again.lmab").read_bytes() == saved.read_bytes()

    monkeypatch.setattr("lmab.cli.report.assess", lambda *_, **__: pytest.fail("made again"))
    quoting = ("report", folder / "model.lmab", folder / "policy.lmab", "-o", page, "--assessment")
    told = " ".join(text(*quoting, saved).split())
    assert lmab.load(saved).claims in told
    assert made["sentence"] in html.unescape(page.read_text())
    assert "must not be given together" in fails(capsys, monkeypatch, *quoting, saved, *assess)
    run("plan", folder / "model.lmab", "--horizon", 3, "-o", tmp_path / "other.lmab")
    other = ("report", folder / "model.lmab", tmp_path / "other.lmab", "--assessment", saved, "-o", page)
    assert "must be an assessment of the plan in" in fails(capsys, monkeypatch, *other)
    alone = ("report", folder / "model.lmab", "--assessment", saved, "-o", page)
    assert "--assessment needs the policy" in fails(capsys, monkeypatch, *alone)
    wrong = fails(capsys, monkeypatch, *quoting, folder / "model.lmab")
    assert "must hold an assessment, holds a model: `lmab evaluate --assess" in wrong
    needs = ("evaluate", folder / "policy.lmab", "--model", folder / "model.lmab", "--save-assessment", saved)
    assert "--save-assessment needs --assess" in fails(capsys, monkeypatch, *needs)


def test_the_report_quotes_the_bounds_of_the_plan_where_they_hold(folder, tmp_path, monkeypatch):
    page, plan = tmp_path / "report.html", lmab.load(folder / "policy.lmab")
    run("report", folder / "model.lmab", folder / "policy.lmab", "--horizon", 3, "-o", page)
    assert "held-out check of the fit" in page.read_text()
    plan.policy.save(tmp_path / "policy.lmab")
    again = run("report", folder / "model.lmab", tmp_path / "policy.lmab", "-o", page)  # a policy alone has no bounds
    monkeypatch.setattr("lmab.reporting.contents.plan", lambda *_, **__: pytest.fail("planned again"))
    answer = run("report", folder / "model.lmab", folder / "policy.lmab", "-o", page)
    assert answer["upper"] == plan.upper <= again["upper"]
    assert lmab.load(folder / "model.lmab").check.verdict in html.unescape(page.read_text())
    run("fit", folder / "train.parquet", *COLUMNS, "--types", 3, "--no-check", "-o", tmp_path / "other.lmab")
    for model, options in ((folder / "model.lmab", ["--horizon", 3]), (tmp_path / "other.lmab", [])):
        with pytest.raises(pytest.fail.Exception, match="planned again"):
            run("report", model, folder / "policy.lmab", "-o", page, *options)


def test_the_report_shows_how_the_number_of_types_was_chosen(folder, tmp_path):
    run("fit", folder / "train.parquet", *COLUMNS, "--no-check", "-o", tmp_path / "auto.lmab")
    run("report", tmp_path / "auto.lmab", "-o", tmp_path / "report.html", "--horizon", 3)
    assert "Number of types" in (tmp_path / "report.html").read_text()


def test_bandits_and_policies_alone_do_as_well(folder, tmp_path):
    plan = lmab.load(folder / "policy.lmab")
    plan.policy.save(tmp_path / "policy.lmab")
    estimate_of(plan.source).bandit.save(tmp_path / "model.lmab")
    values = [
        run("evaluate", place / "policy.lmab", "--model", place / "model.lmab")["model"] for place in (folder, tmp_path)
    ]
    assert values[0] == values[1]
    run("plan", tmp_path / "model.lmab", "--horizon", 4, "--gap", 0.001, "-o", tmp_path / "plan.lmab")
    assert lmab.load(tmp_path / "plan.lmab").lower == plan.lower


def test_the_log_is_read_and_encoded_once(folder, tmp_path, monkeypatch):
    from lmab.estimation.log import ValuesLog

    reads, encoded = [], []
    read, encode = lmab.Sessions.read.__func__, ValuesLog.encode.__func__

    def reading(cls, path, **columns):
        reads.append(path)
        return read(cls, path, **columns)

    def encoding(cls, sessions, *given, **named):
        encoded.append(len(sessions))
        return encode(cls, sessions, *given, **named)

    monkeypatch.setattr(lmab.Sessions, "read", classmethod(reading))
    monkeypatch.setattr(ValuesLog, "encode", classmethod(encoding))
    log = (folder / "train.parquet", *COLUMNS)  # What was shown is explained with codes of its own.
    run("fit", *log, "--types", 2, "--selected", "false", "--regret", 0.5, "-o", tmp_path / "model.lmab")
    assert (len(reads), encoded.count(3000)) == (1, 1)
    run("plan", tmp_path / "model.lmab", "--horizon", 4, "-o", tmp_path / "policy.lmab")
    run("evaluate", tmp_path / "policy.lmab", "--assess", *log, "--save-assessment", tmp_path / "c.lmab")
    assert (len(reads), encoded.count(3000)) == (2, 2)
    files = (tmp_path / "model.lmab", tmp_path / "policy.lmab")
    run("report", *files, "--assessment", tmp_path / "c.lmab", "-o", tmp_path / "r.html")
    assert (len(reads), encoded.count(3000)) == (2, 2)


def test_a_check_that_is_stopped_leaves_the_estimate(folder, tmp_path, monkeypatch):
    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("lmab.evaluation.diagnostics.check", stop)
    arguments = ["lmab", "fit", str(folder / "train.parquet"), *COLUMNS, "--types", "2"]
    monkeypatch.setattr(sys, "argv", [*arguments, "-o", str(tmp_path / "model.lmab")])
    with pytest.raises(SystemExit) as stopped:
        application.main()
    assert stopped.value.code == 130
    estimate = lmab.load(tmp_path / "model.lmab")
    assert estimate.check is None
    assert estimate.bandit == lmab.load(folder / "model.lmab").bandit


def test_assessments_are_refused_with_a_reason(folder, tmp_path, capsys, monkeypatch):
    assess = ("--assess", folder / "train.parquet", *COLUMNS)
    other = ("--assess", folder / "heldout.parquet", *COLUMNS)
    assert "sessions must be the log that the estimate was fitted to (3,000 sessions" in fails(
        capsys, monkeypatch, "evaluate", folder / "policy.lmab", *other
    )
    lmab.Greedy(lmab.load(folder / "model.lmab").bandit, horizon=4).save(tmp_path / "greedy.lmab")
    assert "does not hold the estimate of its plan" in fails(
        capsys, monkeypatch, "evaluate", tmp_path / "greedy.lmab", *assess
    )
    run(
        "fit",
        folder / "train.parquet",
        *COLUMNS,
        "--types",
        2,
        "--prior",
        0,
        "--no-check",
        "-o",
        tmp_path / "m.lmab",
    )
    run("plan", tmp_path / "m.lmab", "--horizon", 4, "-o", tmp_path / "p.lmab")
    assert "maximum a posteriori" in fails(capsys, monkeypatch, "evaluate", tmp_path / "p.lmab", *assess)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate", "policy.lmab"], "give --logs"),
        (["fit", "train.parquet", "--types", "many"], "--types must be a whole number of at least 1, or auto"),
        (["fit", "train.parquet", "--types", "0"], "--types must be a whole number of at least 1, or auto"),
        (["simulate", "-o", "x.csv", "--policy", "best"], "--policy must be uniform, greedy, thompson or a file"),
        (["plan", "model.lmab", "--horizon", "9", "--no-repeats"], "horizon must be at most the 5 arms"),
    ],
)
def test_options_that_make_no_sense(folder, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(folder)
    assert message in fails(capsys, monkeypatch, *arguments)
    assert not (folder / "x.csv").exists()


def test_usage_errors_have_exit_code_two():
    assert RUNNER.invoke(app, ["plan", "model.lmab"]).exit_code == 2
    assert RUNNER.invoke(app, ["fit", "x.parquet", "--prior", "-1"]).exit_code == 2


def test_a_mistake_of_ours_is_one_line_too(folder, capsys, monkeypatch):
    def fail(*args, **kwargs):
        raise ZeroDivisionError("[oops]\nsecond line")

    monkeypatch.setattr("lmab.cli.plan.make_plan", fail)
    arguments = ("plan", folder / "model.lmab", "--horizon", 3, "-o", folder / "never.lmab")
    shown = fails(capsys, monkeypatch, *arguments, code=70)
    assert "a mistake in lmab (ZeroDivisionError: [oops])" in shown
    assert not (folder / "never.lmab").exists()
    monkeypatch.setenv("LMAB_TRACEBACK", "1")
    monkeypatch.setattr(sys, "argv", ["lmab", *map(str, arguments)])
    with pytest.raises(ZeroDivisionError):
        application.main()


def test_ctrl_c_has_its_own_exit_code_and_leaves_nothing(folder, tmp_path, monkeypatch):
    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("lmab.cli.fit.find_types", stop)
    arguments = ["lmab", "fit", str(folder / "train.parquet"), *COLUMNS, "-o", str(tmp_path / "model.lmab")]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit) as stopped:
        application.main()
    assert stopped.value.code == 130
    assert os.listdir(tmp_path) == []


def test_a_full_disk_leaves_the_old_file(folder, tmp_path, capsys, monkeypatch):
    (tmp_path / "policy.lmab").write_bytes(b"old")

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("lmab.files._write_record", full)
    arguments = ("plan", folder / "model.lmab", "--horizon", 3, "-o", tmp_path / "policy.lmab")
    assert "No space left on device" in fails(capsys, monkeypatch, *arguments)
    assert (tmp_path / "policy.lmab").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["policy.lmab"]


def test_the_first_compilation_is_announced_on_a_terminal_only(monkeypatch, capsys):
    from lmab import _kernel

    calls = []
    _kernel.on_compilation(lambda: calls.append(1))
    _kernel.announce_compilation()
    _kernel.announce_compilation()
    assert calls == [1]
    output.announce_compilation()
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    output.announce_compilation()
    assert "compiling the kernels" in capsys.readouterr().err


def test_compilation_is_noticed_and_loading_is_not(tmp_path):
    program = """
import numpy as np
from lmab import _kernel
_kernel.on_compilation(lambda: print("compiling"))
_kernel.kernel("planning").updated(np.ones(2), np.ones(2))
print("done")
"""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    outputs = [
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
        ).stdout.split()
        for _ in range(2)
    ]
    assert outputs == [["compiling", "done"], ["done"]]


def test_a_learner_that_is_named_is_the_one_that_learns():
    from lmab import learning
    from lmab.paper.commands.learn import _LEARNERS

    made = {name: make(3) for name, make in _LEARNERS.items()}
    assert {name: type(learner) for name, learner in made.items()} == {
        "direct-mle": learning.DirectMLE,
        "ed-mle": learning.EDMLE,
        "ed-moments": learning.EDMoments,
        "tensor": learning.Tensor,
        "l-ucrl": learning.LUCRL,
        "l-ucrl-published": learning.LUCRL,
        "ucb": learning.UCB,
        "clustering": learning.Clustering,
        "history-ucbvi": learning.HistoryUCBVI,
    }
    assert (made["l-ucrl"].refit, made["l-ucrl-published"].refit) == (True, False)
    assert all(made[name].n_types == 3 for name in ("direct-mle", "ed-mle", "ed-moments", "tensor", "l-ucrl"))
