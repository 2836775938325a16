"""Logs as they are, by the command line: the README's own, six of different kinds, and each option of reading."""

from __future__ import annotations

import importlib.util
import itertools
import json
import re
import shlex
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from seeds import generator
from typer.testing import CliRunner

import lmab
from lmab.cli import app as application
from lmab.cli import fit
from lmab.cli import options as columns_of
from lmab.cli.app import app
from lmab.cli.logs import shop_log, write_shop
from lmab.cli.options import Columns
from lmab.errors import InvalidArgument
from lmab.estimation.result import estimate_of

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
RUNNER = CliRunner()
pytestmark = pytest.mark.usefixtures("few_draws")


def load_example(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


SIX = load_example("six_logs")


def text(*words: object) -> str:
    result = RUNNER.invoke(app, [*map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_commands_of_the_readme_run_as_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [line for block in re.findall(r"```sh\n(.*?)```", README, re.S) for line in block.splitlines()]
    said = [text(*shlex.split(line, comments=True)[1:]) for line in lines if line.startswith("lmab ")]
    assert len(said) == 4
    assert "Latent types are supported" in said[1]
    assert "Report written" in said[3]


# Where rewards have many values, most of the time goes into the number of types: the other three logs choose it.
GIVEN = {"films": ["--types", "2"], "survey": ["--types", "2"], "revenue": ["--types", "2"]}


@pytest.mark.parametrize(
    ("name", "more"),
    [(name, GIVEN.get(name, [])) for name in SIX.LOGS]
    + [pytest.param(name, [], marks=pytest.mark.slow) for name in SIX.LOGS],
)
def test_six_logs_go_the_whole_way(tmp_path, name, more, request):
    """At first try, from the file to the report, by options that the README explains; slowly with all the effort."""
    if request.node.get_closest_marker("slow") is None:
        request.getfixturevalue("light_work")
    log = SIX.LOGS[name]
    log.make(tmp_path / log.file, generator(0), 120)
    options = {word for word in (*log.columns, *log.fit, *log.plan) if word.startswith("--")}
    assert [option for option in options if not re.search(rf"{option}[ `]", README)] == []
    first, *others = SIX.way(name, tmp_path)
    said = [text(*command) for command in ([*first, *more], *others)]
    assert "Next: lmab plan" in said[0]
    fixed = "No latent types found" in said[1] or "Latent types are not supported" in said[1]
    assert ("proved bounds" in said[1]) is not fixed  # without types the plan is the best fixed choice
    assert "A session of" in said[2]
    page = (tmp_path / f"{name}-report.html").read_text()
    assert "Type 1" in page
    assert str(tmp_path) not in page  # names of files, no paths


def test_six_logs_are_what_they_are_called(tmp_path):
    """Ties, gaps in ids, missing rewards, several files, another encoding, mostly zeros."""
    for name, log in SIX.LOGS.items():
        log.make(tmp_path / log.file, generator(1), 60)
        assert (tmp_path / log.file).exists(), name
    films = (tmp_path / "films.tsv").read_text().splitlines()
    times = [line.split("\t")[3] for line in films[1:]]
    assert len(set(times)) < len(times)
    assert len(list((tmp_path / "recommendations").iterdir())) == 3
    assert "null" in (tmp_path / "answers.jsonl").read_text()
    assert ",\n" in (tmp_path / "survey.csv").read_text()
    with pytest.raises(UnicodeDecodeError):
        (tmp_path / "visits.csv").read_text(encoding="utf-8")
    paid = [line.split(",")[2] for line in (tmp_path / "revenue.csv").read_text().splitlines()[1:]]
    assert paid.count("0.00") > len(paid) / 2


def test_notes_on_reading_go_to_standard_error_and_json_stays_json(tmp_path):
    write_shop(shop_log(60), tmp_path / "shop.csv")
    lines = (tmp_path / "shop.csv").read_text().splitlines()
    lines = [f"{line},{'when' if k == 0 else (k - 1) // 2}" for k, line in enumerate(lines)]
    (tmp_path / "shop.csv").write_text("\n".join(lines))
    named = ("--session", "session", "--arm", "item", "--reward", "click", "--step", "when")
    words = ("fit", tmp_path / "shop.csv", *named, "--types", 2, "--no-check", "--json", "-o", tmp_path / "m.lmab")
    result = RUNNER.invoke(app, [*map(str, words)], catch_exceptions=False)
    assert json.loads(result.stdout)["sessions"] == 60
    assert re.search(r"note: \d+ rows have the same 'when'", result.stderr)


def test_several_files_are_one_log(tmp_path):
    for k in range(2):
        write_shop(shop_log(40, seed=k), tmp_path / f"{k}.csv")
        renamed = (tmp_path / f"{k}.csv").read_text().replace("\nv", f"\n{k}v")
        (tmp_path / f"{k}.csv").write_text(renamed)
    columns = Columns(session="session", arm="item", reward="click")
    assert len(columns.read([tmp_path / "0.csv", tmp_path / "1.csv"])) == 80
    assert columns.read(tmp_path) == columns.read([tmp_path / "0.csv", tmp_path / "1.csv"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"time": "when"}, "--time must be given with --person"),
        ({"person": "who", "time": "when", "step": "t"}, "do not give --step beside them"),
        ({"person": "who", "time": "when", "ended": "end"}, "do not give --ended beside them"),
        ({"person": "who", "time": "when", "limit": 5}, "do not give --limit beside them"),
    ],
)
def test_persons_and_times_make_sessions_together_and_alone(tmp_path, given, message):
    (tmp_path / "log.csv").write_text("visit,who,when,t,end,arm,reward\n1,x,2024-05-01,1,left,a,1\n")
    with pytest.raises(InvalidArgument, match=message):
        Columns(**given).read(tmp_path / "log.csv")


def test_what_is_known_of_sessions_is_read_by_options(tmp_path):
    (tmp_path / "log.csv").write_text("session,arm,reward,land,who,end\n1,a,1,de,x,left\n2,b,0,fr,x,left\n")
    found = Columns(features="land, who", person="who", ended="end").read(tmp_path / "log.csv")
    assert list(found.features) == ["land", "who"]
    assert found.persons.tolist() == ["x", "x"]
    assert found.ended.tolist() == ["left", "left"]
    assert Columns(limit=1).read(tmp_path / "log.csv").ended.tolist() == ["unknown", "unknown"]


@contextmanager
def interrupted_after(n: int):
    """Ctrl-C, asked for after n reports of progress."""
    asked = itertools.count(1)
    yield lambda: next(asked) > n


def test_ctrl_c_in_a_fit_writes_the_best_so_far_and_exits_with_130(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(fit, "interruptible", lambda: interrupted_after(3))
    write_shop(shop_log(200), tmp_path / "shop.csv")
    words = ["fit", tmp_path / "shop.csv", "--session", "session", "--arm", "item", "--reward", "click"]
    monkeypatch.setattr(sys, "argv", ["lmab", *map(str, words), "--types", "3", "-o", str(tmp_path / "m.lmab")])
    with pytest.raises(SystemExit) as stop:
        application.main()
    assert stop.value.code == 130
    assert "stopped: the best model so far is written to" in capsys.readouterr().err
    estimate = lmab.load(tmp_path / "m.lmab")
    assert estimate.status == "interrupted"
    assert estimate.bandit.n_types == 3


def test_ctrl_c_while_the_number_of_types_is_chosen(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(fit, "interruptible", lambda: interrupted_after(40))
    write_shop(shop_log(200), tmp_path / "shop.csv")
    words = ["fit", tmp_path / "shop.csv", "--session", "session", "--arm", "item", "--reward", "click"]
    monkeypatch.setattr(sys, "argv", ["lmab", *map(str, words), "-o", str(tmp_path / "m.lmab")])
    with pytest.raises(SystemExit) as stop:
        application.main()
    assert stop.value.code == 130
    assert lmab.load(tmp_path / "m.lmab").status == "interrupted"


def test_arms_named_by_negative_numbers_keep_their_names():
    """Numbers from 0 on may be taken for the numbers of arms; names such as -1 may not."""
    log = lmab.Sessions.from_arrays([[0, 1]], [[1.0, 0.0]])
    named, numbered = (replace(log, arm_labels=labels) for labels in ((-1, 2), (1, 2)))
    assert columns_of._by_number(named) is named
    assert columns_of._by_number(numbered).arms.tolist() == [1, 2]
    assert columns_of._by_number(replace(log, arm_labels=("a", "b"))).arm_labels == ("a", "b")


def test_rare_arms_are_left_out_before_sessions_are_cut(tmp_path, monkeypatch):
    """Of sessions in which every second step is rare, the first four steps of the other arms stay, and again later."""
    monkeypatch.chdir(tmp_path)
    rows = [
        f"{i},{arm},{(i + step) % 2}"
        for i in range(60)
        for step, arm in enumerate(["a", f"rare{i}", "b", f"odd{i}", "c", "a", "b"])
    ]
    Path("log.csv").write_text("session,arm,reward\n" + "\n".join(rows) + "\n")
    fitted = ("fit", "log.csv", "--types", 1, "--no-check", "--top-arms", 3)
    found = json.loads(text(*fitted, "--at-most", 4, "--json"))
    assert (found["sessions"], found["steps"]) == (60, 240)
    assert len(found["left_out"]) == 120
    estimate = lmab.load("model.lmab")
    log = replace(Columns(), at_most=4).read(Path("log.csv"), arms_of=estimate)
    assert log.lengths.tolist() == [4] * 60
    assert estimate.with_log(log).n_sessions == 60
    assert json.loads(text(*fitted, "--json"))["steps"] == 300


def test_rare_arms_are_left_out_said_and_left_out_again_by_the_assessment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = generator(3)
    arms = rng.choice(["tea", "milk", "cake", "rare", "never seen"], p=[0.4, 0.3, 0.27, 0.02, 0.01], size=(300, 4))
    rows = [f"{i},{arm},{int(rng.random() < 0.4)}" for i, shown in enumerate(arms) for arm in shown]
    Path("log.csv").write_text("session,arm,reward\n" + "\n".join([*rows, "900,rare,1"]) + "\n")
    fitted = ("fit", "log.csv", "--types", 2, "--restarts", 2, "--no-check")
    said = text(*fitted, "--min-plays", 100)
    assert "Left out: 2 arms with" in said
    assert "and 1 session that played nothing else (never seen, rare)" in " ".join(said.split())
    assert "with the prior mean reward of 0." in " ".join(said.split())
    model = lmab.load("model.lmab")
    assert (model.bandit.arm_labels, model.left_out) == (("cake", "milk", "tea"), ("never seen", "rare"))
    text("plan", "model.lmab", "--horizon", 3, "--anyway")
    whole = lmab.Sessions.read("log.csv")
    assert whole.n_arms == 5
    planned = lmab.load("policy.lmab")
    log = Columns().read(Path("log.csv"), arms_of=columns_of.arms_behind(planned))
    assert log.arm_labels == ("cake", "milk", "tea")
    assert (
        estimate_of(planned.source).with_log(log).n_sessions
        == estimate_of(planned.source).with_log(whole).n_sessions
        == 300
    )
    found = json.loads(text(*fitted, "--top-arms", 4, "--json"))
    assert found["left_out"] == ["never seen"]
    assert lmab.load("model.lmab").left_out == ("never seen",)
    assert "Left out" not in text(*fitted, "--min-plays", 2, "--top-arms", 5)
    with pytest.raises(InvalidArgument, match=r"--min-plays must leave some arm, got 5000: the most .* has 4"):
        text(*fitted, "--min-plays", 5000)
