from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from lmab.cli.app import app, main

RUNNER = CliRunner()
COMMANDS = [command.callback.__name__ for command in app.registered_commands]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_ends_with_an_example(command):
    result = RUNNER.invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert result.output.strip().splitlines()[-1].strip().startswith("Example: lmab")


def test_demo_learns_draws_and_says_where(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = RUNNER.invoke(app, ["demo", "--seed", "3"])
    assert text.exit_code == 0
    assert "DirectMLE" in text.output
    assert str(tmp_path / "lmab-demo.png") in text.output.replace("\n", "")
    assert (tmp_path / "lmab-demo.png").read_bytes().startswith(b"\x89PNG")
    assert str(tmp_path / "lmab-demo.html") in text.output.replace("\n", "")
    assert "On sessions the model has not seen" in (tmp_path / "lmab-demo.html").read_text()


def test_demo_without_matplotlib_says_what_to_install(tmp_path, monkeypatch):
    from lmab.cli import demo

    row = demo.Row("genie", 1.0, 0, 0.0, [])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "_compare", lambda *_: ([row], 1.0, None))
    for name in ("_compile", "_draw", "_report"):
        monkeypatch.setattr(demo, name, lambda *_: False)
    assert "no figure: pip install 'lmab[plot]'" in RUNNER.invoke(app, ["demo"]).output


def test_demo_as_json(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answer = json.loads(RUNNER.invoke(app, ["demo", "--json", "--figure", str(tmp_path / "demo.svg")]).output)
    values = {row["name"]: row["value"] for row in answer["rows"]}
    assert list(values) == ["best fixed arm", "UCB", "ED+MLE", "DirectMLE", "genie"]
    assert values["UCB"] <= values["best fixed arm"] < values["ED+MLE"]
    assert 0.98 * values["genie"] <= values["DirectMLE"]
    optimum = answer["optimum"]
    assert optimum["lower"] == values["genie"]
    assert max(values.values()) <= optimum["upper"] <= 1.01 * optimum["lower"]
    assert [row["sessions"] for row in answer["rows"]] == [0, 20_000, 20_000, 20_000, 0]
    assert b"<svg" in (tmp_path / "demo.svg").read_bytes()


def test_no_progress_bar_in_a_pipe(tmp_path):
    command = [sys.executable, "-m", "lmab", "demo"]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert result.stderr == ""


def test_version():
    result = RUNNER.invoke(app, ["--version"])
    assert result.output.startswith("lmab 0.")


def test_a_problem_is_one_line_and_exit_code_one(monkeypatch, capsys):
    from lmab.cli import demo
    from lmab.errors import InvalidArgument

    def fail(*args, **kwargs):
        raise InvalidArgument("horizon must be at least 1, got 0")

    monkeypatch.setattr(demo, "random_bandit", fail)
    monkeypatch.setattr(sys, "argv", ["lmab", "demo"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 1
    assert capsys.readouterr().err == "error: --horizon must be at least 1, got 0\n"


def test_reproduce_runs_resumes_and_draws(tmp_path):
    command = ["reproduce", "planning", "--quick", "--jobs", "1", "--out", str(tmp_path), "--json"]
    (first,) = json.loads(RUNNER.invoke(app, command).output)
    assert first["done"] == first["trials"] > 0
    assert first["failed"] == []
    rows = (tmp_path / "rows.jsonl").read_text()
    (again,) = json.loads(RUNNER.invoke(app, [*command, "--plot-only"]).output)
    assert again == first
    assert (tmp_path / "rows.jsonl").read_text() == rows
    assert (tmp_path / "figures" / "planning.svg").exists()
    share = {line[0]: float(line[2].split()[0]) for line in first["tables"][0]["cells"]}  # on hard instances
    assert share["Q-MDP"] < 0.9 < share["certified"] <= 1


def test_reproduce_lists_and_refuses():
    listed = json.loads(RUNNER.invoke(app, ["reproduce", "--list", "--json"]).output)
    assert "planning" in [study["name"] for study in listed]
    assert "planning" in RUNNER.invoke(app, ["reproduce", "--list"]).output
    unknown = RUNNER.invoke(app, ["reproduce", "nonsense"])
    assert "NAME must be" in str(unknown.exception)
    both = RUNNER.invoke(app, ["reproduce", "planning", "--quick", "--full"])
    assert "must not be given together" in str(both.exception)


def test_learn_compares_with_the_genie_and_writes_the_policy(tmp_path):
    import numpy as np

    import lmab

    truth, policy = tmp_path / "truth.lmab", tmp_path / "policy.lmab"
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.2, 0.5], [0.1, 0.3, 0.6]])
    bandit.save(truth)
    options = ["learn", str(truth), "--horizon", "4", "--types", "2", "--sessions", "2000"]
    answer = json.loads(RUNNER.invoke(app, [*options, "--json", "-o", str(policy)]).output)
    assert answer["sessions_used"] == 2000
    assert 0.98 * answer["genie"] <= answer["value"] <= answer["genie"] * 1.01
    assert lmab.evaluate(lmab.load(policy), bandit, horizon=4).mean == answer["value"]
    text = RUNNER.invoke(app, [*options, "--learner", "ucb"])
    assert "the genie's" in text.output
    refused = RUNNER.invoke(app, [*options, "--learner", "ed-mle", "--types", "auto"])
    assert "whole number" in str(refused.exception)
    wrong = RUNNER.invoke(app, ["learn", str(policy), "--horizon", "4"])
    assert "must hold a model, holds a policy" in str(wrong.exception)
    gaussian = lmab.LatentBandit.gaussian([0.5, 0.5], np.eye(2) * 3)
    gaussian.save(truth)
    answer = json.loads(RUNNER.invoke(app, [*options, "--json"]).output)
    assert answer["value_stderr"] > 0
