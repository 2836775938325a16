from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

import lmab
from lmab.cli.app import app, main
from lmab.errors import InvalidArgument

ROOT = Path(__file__).parent.parent

RUNNER = CliRunner()
COMMANDS = [command.callback.__name__ for command in app.registered_commands]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_ends_with_an_example(command):
    result = RUNNER.invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert result.output.strip().splitlines()[-1].strip().startswith("Example: lmab")


def test_help_keeps_square_brackets_and_puts_the_five_that_matter_first():
    text = RUNNER.invoke(app, ["fit", "--help"], env={"COLUMNS": "200", "TERMINAL_WIDTH": "200"}).output
    assert "gpu needs the extra [gpu]." in text
    assert "[default: categorical if few]" in text
    first = text.split("─ Options ")[1].split("─ Format of the log ")[0]
    assert re.findall(r"--[a-z]+", first) == ["--session", "--arm", "--reward", "--types", "--output", "--help"]
    assert [name for name in ("Fit", "Checks and output", "Execution", "More") if name not in text] == []


def test_the_menu_lists_every_command_and_imports_none():
    program = (
        "import sys; sys.argv = ['lmab', '--help']\nfrom lmab.cli import main\ntry: main()\nexcept SystemExit: pass\n"
    )
    program += "print(sorted({'numpy', 'scipy', 'lmab.data', 'lmab.cli.fit'} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == "[]"
    assert [name for name in COMMANDS if not re.search(rf"^│ {name} ", out, re.M)] == []


def test_a_command_that_does_not_exist_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["lmab", "fitt"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert "No such command 'fitt'" in capsys.readouterr().err


@pytest.fixture(scope="module")
def demonstration(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "new"
    return folder, json.loads(RUNNER.invoke(app, ["demo", "--json", "-o", str(folder)]).stdout)


def test_the_demo_goes_the_whole_way_and_gains_in_truth(demonstration):
    folder, told = demonstration
    assert sorted(file.name for file in folder.iterdir()) == ["model.lmab", "policy.lmab", "report.html", "shop.csv"]
    assert told["types"] == 4
    values = [told[name] for name in ("items at random", "the most popular items", "the learned policy")]
    assert values == sorted(values)
    assert 0.97 * told["upper"] < told["the learned policy"] <= told["a policy planned on the truth"] <= told["upper"]
    gain = told["the learned policy"] - told["the most popular items"]
    assert told["word"] == "pays"
    assert told["gain"][0] <= gain <= told["gain"][1]
    page = (folder / "report.html").read_text()
    assert "Confidence intervals" in page
    assert "Cappuccino" in page


def test_the_demo_prints_the_commands_that_do_the_same(demonstration, tmp_path, monkeypatch):
    from lmab.cli import demo

    folder, _ = demonstration
    story = SimpleNamespace(assessment=SimpleNamespace(sentence="A sentence."))
    monkeypatch.setattr(demo, "run_story", lambda *_: story)
    monkeypatch.setattr(demo, "_truth", lambda _: ([demo.EarningsRow("the learned policy", 2.5)], 2.6))
    text = RUNNER.invoke(app, ["demo", "-o", str(tmp_path)]).output
    said = [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    assert [line for line in said if line not in readme] == []
    assert (folder / "shop.csv").read_text().startswith("session,item,click\nv0001,")


def test_the_fit_command_finds_the_model_of_the_demo(demonstration, tmp_path):
    """README shows the numbers of one and the commands of the other."""
    folder, _ = demonstration
    asked = ["fit", str(folder / "shop.csv"), "--arm", "item", "--reward", "click", "-o", str(tmp_path / "model.lmab")]
    assert RUNNER.invoke(app, asked).exit_code == 0
    mine, shown = lmab.load(tmp_path / "model.lmab"), lmab.load(folder / "model.lmab")
    assert mine.bandit == shown.bandit
    assert mine.columns == shown.columns == (("arm", "item"), ("reward", "click"))


def test_fit_continues_with_the_plan_and_the_report_in_one_process(tmp_path, monkeypatch):
    """The files and the numbers are those of the three commands, with the median length of the sessions as horizon."""
    bandit = lmab.random_bandit(2, 4, rng=1)
    log = lmab.simulate(bandit, lmab.Uniform(4), n_sessions=150, horizon=3, rng=1)
    fit = ["fit", "log.csv", "--types", "2", "--restarts", "2"]
    commands = {
        "together": [[*fit, "--then", "plan,report"]],
        "apart": [
            fit,
            ["plan", "model.lmab", "--horizon", "3"],
            ["report", "model.lmab", "policy.lmab", "--assess", "log.csv"],
        ],
    }
    for folder, lines in commands.items():
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        log.write("log.csv")
        for line in lines:
            result = RUNNER.invoke(app, line, catch_exceptions=False)
            assert result.exit_code == 0, result.output
        assert "Report written to" in result.output
    plans = [lmab.load(tmp_path / folder / "policy.lmab") for folder in commands]
    assert plans[0].lower == plans[1].lower
    assert plans[0].horizon == plans[1].horizon == 3
    assert len({(tmp_path / folder / "report.html").read_text() for folder in commands}) == 1


def test_fit_continues_with_the_plan_alone_and_with_another_horizon(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log = lmab.simulate(lmab.random_bandit(2, 4, rng=1), lmab.Uniform(4), n_sessions=60, horizon=3, rng=1)
    log.write("log.csv")
    fit = ["fit", "log.csv", "--types", "1", "--no-check", "--json"]
    text = RUNNER.invoke(app, [*fit, "--then", "plan", "--horizon", "2"], catch_exceptions=False).stdout
    assert json.JSONDecoder().raw_decode(text)[0]["output"] == "model.lmab"
    assert json.loads(text[json.JSONDecoder().raw_decode(text)[1] :])["horizon"] == 2
    assert not Path("report.html").exists()
    for wrong in ("report", "report,plan", "plan,serve", ""):
        result = RUNNER.invoke(app, [*fit, "--then", wrong])
        assert isinstance(result.exception, InvalidArgument)
        assert f"--then must be plan or plan,report; got {wrong}" in str(result.exception)


def test_the_sample_is_the_same_on_every_machine_and_says_that_it_is_made_up(tmp_path):
    text = RUNNER.invoke(app, ["sample", str(tmp_path / "shop.csv"), "--sessions", "2"]).output
    assert "2 simulated sessions" in text
    rows = (tmp_path / "shop.csv").read_text().splitlines()
    assert len(rows) == 1 + 2 * 6
    assert {len(row.split(",")) for row in rows} == {3}


def test_no_progress_bar_in_a_pipe(tmp_path):
    command = [sys.executable, "-m", "lmab", "sample", "shop.csv"]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert result.stderr == ""


def test_version():
    result = RUNNER.invoke(app, ["--version"])
    assert result.output.startswith("lmab 0.")


def test_a_problem_is_one_line_and_exit_code_one(monkeypatch, capsys):
    from lmab.cli import logs as sample
    from lmab.errors import InvalidArgument

    def fail(*args, **kwargs):
        raise InvalidArgument("horizon must be at least 1, got 0")

    monkeypatch.setattr(sample, "shop_log", fail)
    monkeypatch.setattr(sys, "argv", ["lmab", "sample"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 1
    assert capsys.readouterr().err == "error: horizon must be at least 1, got 0\n"


def test_reproduce_runs_resumes_and_draws(tmp_path):
    command = ["reproduce", "planning", "--quick", "--jobs", "1", "--out", str(tmp_path), "--json"]
    (first,) = json.loads(RUNNER.invoke(app, command).stdout)
    assert first["done"] == first["trials"] > 0
    assert first["failed"] == []
    rows = (tmp_path / "rows.jsonl").read_text()
    (again,) = json.loads(RUNNER.invoke(app, [*command, "--plot-only"]).stdout)
    assert again == first
    assert (tmp_path / "rows.jsonl").read_text() == rows
    assert (tmp_path / "figures" / "planning.svg").exists()
    share = {line[0]: float(line[2].split()[0]) for line in first["tables"][0]["cells"]}  # on hard instances
    assert share["Q-MDP"] < 0.9 < share["certified"] <= 1
    _runs_stored_trials_again(tmp_path, command)


def _runs_stored_trials_again(folder, command):
    told = json.loads(RUNNER.invoke(app, [*command, "--again", "3"]).stdout)
    assert told["unlike"] == []
    assert sum(line["rows"] for line in told["methods"]) == 3
    assert all(line["equal to the bit"] == line["of this machine"] == line["rows"] for line in told["methods"])
    lines = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    wrong = [json.dumps(line | {"value": line["value"] + 1e-9}) for line in lines]
    (folder / "rows.jsonl").write_text("\n".join(wrong) + "\n")
    (folder / "rows.csv.gz").unlink()
    refused = RUNNER.invoke(app, [*command[:-1], "--again", "3"])
    assert "within 1e-06" in refused.output
    assert "raise the revision of these methods" in str(refused.exception)
    (folder / "rows.jsonl").unlink()
    assert "--again needs stored rows" in str(RUNNER.invoke(app, [*command, "--again", "3"]).exception)


def test_reproduce_draws_the_figures_of_the_paper(tmp_path):
    """A figure is its two studies, drawn together and not one by one; Figure 1 needs no trials."""
    rows = Path(__file__).parent.parent / "docs" / "reproduction" / "rows.csv.gz"
    (tmp_path / "rows.csv.gz").write_bytes(rows.read_bytes())
    command = ["reproduce", "figure3", "regimes", "--full", "--plot-only", "--out", str(tmp_path), "--json"]
    answers = json.loads(RUNNER.invoke(app, command).stdout)
    assert [answer["study"] for answer in answers] == ["fig3a", "fig3b", "figure3", "regimes"]
    assert answers[0]["figures"] == answers[1]["figures"] == []
    drawn = {path.name for path in (tmp_path / "figures").iterdir()}
    assert drawn == {"figure3.png", "figure3.svg", "regimes.png", "regimes.svg"}


def test_reproduce_runs_a_contender_of_the_user(tmp_path, monkeypatch):
    """The module is found in the current folder, also by the processes that run trials."""
    (tmp_path / "mymethods.py").write_text(
        "import lmab\nfrom lmab.experiment import Contender, Learning, typed\n"
        "QUICK = Contender('quick', 'DirectMLE, 1 round', Learning(typed(lmab.DirectMLE, thompson_rounds=1)))\n"
        "ALL, NONE = [QUICK], 3\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    command = ["reproduce", "naive", "--quick", "--plot-only", "--out", str(tmp_path / "results"), "--json"]
    for given in ("mymethods:QUICK", "mymethods:ALL"):
        (answer,) = json.loads(RUNNER.invoke(app, [*command, "--with", given]).output)
        (without,) = json.loads(RUNNER.invoke(app, command).output)
        assert answer["trials"] > without["trials"]
    for given, message in (
        ("mymethods", "--with must be MODULE:CONTENDER"),
        ("mymethods:MINE", "has no attribute 'MINE'"),
        ("nomethods:MINE", "No module named 'nomethods'"),
        ("mymethods:NONE", "--with must name an lmab.experiment.Contender or a list of them, got 3"),
    ):
        assert message in str(RUNNER.invoke(app, [*command, "--with", given]).exception)


def test_reproduce_lists_and_refuses():
    listed = json.loads(RUNNER.invoke(app, ["reproduce", "--list", "--json"]).stdout)
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
    answer = json.loads(RUNNER.invoke(app, [*options, "--json", "-o", str(policy)]).stdout)
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
    answer = json.loads(RUNNER.invoke(app, [*options, "--json"]).stdout)
    assert answer["value_stderr"] > 0


def test_a_study_is_of_its_standard_size_unless_told_otherwise():
    from lmab.paper.commands.reproduce import _size

    assert [_size(quick, full) for quick, full in ((False, False), (True, False), (False, True))] == [
        "standard",
        "quick",
        "full",
    ]
