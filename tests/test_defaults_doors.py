"""Defaults of the commands: to leave an option out is to give its documented value, and another value shows.

Every option with a default has a row; a test fails where a new one has none. A command runs up to where it hands its
question to the library, so that a row compares what is asked, what is said and which files are written.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import lmab
from lmab.cli import compare, demo, evaluate, experiments, fit, logs, plan, report, serve, serve_demo
from lmab.cli.app import app
from lmab.cli.options import Columns
from lmab.paper.commands import budget, learn, reproduce

RUNNER = CliRunner()
BANDIT = lmab.LatentBandit.bernoulli([0.4, 0.6], [[0.9, 0.2, 0.7], [0.1, 0.8, 0.3]])
LOG = lmab.simulate(BANDIT, lmab.Uniform(3), n_sessions=40, horizon=3, rng=1)
POLICY = lmab.plan(BANDIT, horizon=3).policy


class Handed(Exception):
    """The question was asked; nothing more is needed."""


class Questions(list):
    """What commands ask of the library."""

    def stop(self, name):
        """In the place of a function: keep its arguments and stop."""

        def asked(*given, **named):
            self.append((name, [plain(one) for one in given], {key: plain(one) for key, one in named.items()}))
            raise Handed

        return asked

    def keep(self, name, answer):
        """In the place of a function: keep its arguments and answer."""

        def asked(*given, **named):
            with contextlib.suppress(Handed):
                self.stop(name)(*given, **named)
            return answer(*given, **named)

        return asked


def plain(value):
    """A value that can be compared."""
    if isinstance(value, np.random.Generator):
        return value.bit_generator.state["state"]["state"]
    if isinstance(value, lmab.Sessions):
        return value.arms.tolist()
    if isinstance(value, lmab.Policy | lmab.LatentBandit):
        return type(value).__name__
    if hasattr(value, "path"):
        return str(value.path)  # a store
    if isinstance(value, lmab.experiment.RowStore):
        return str(value.folder)
    return None if callable(value) else repr(value)


class AnyStore:
    """A store that is there, and in which nobody looks."""

    def __init__(self, path: str) -> None:
        self.path = path

    async def open(self, create: bool) -> None:
        assert not create

    async def close(self) -> None: ...


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """Where commands hand over, with the files that they read."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LMAB_TOKENS", raising=False)
    BANDIT.save("truth.lmab")
    POLICY.save("policy.in")
    Path("arms.txt").write_text("a\nb\n")
    replace(LOG, propensities=np.full(LOG.n_steps, 1 / 3)).write("log.csv")
    asked, door = Questions(), serve.service_package()
    places = [
        *((demo, "run_story"), (fit, "find_types"), (plan, "make_plan"), (evaluate, "weigh"), (logs, "play")),
        *((compare, "compare_policies"), (learn, "_learn"), (budget, "_measure"), (report.reporting, "gather")),
        *((reproduce, "_run"), (reproduce, "_show"), (door, "server"), (serve_demo, "play_demo"), (door, "refit")),
        *((Columns, "pack"), (logs, "shop_log"), (logs, "split_log"), (evaluate, "assess")),
        (experiments, "_work"),
    ]
    for owner, name in places:
        monkeypatch.setattr(owner, name, asked.stop(name))
    monkeypatch.setattr(evaluate, "estimate_behind", lambda *given: ())
    monkeypatch.setattr(door, "open_store", AnyStore)
    monkeypatch.setattr(door, "configure_logs", asked.keep("configure_logs", lambda as_json: None))
    read = Columns._read
    monkeypatch.setattr(Columns, "_read", asked.keep("read", read))
    return asked


def answered(asked, words):
    """What a command asks, says and leaves behind."""
    asked.clear()
    before = set(os.listdir())
    result = RUNNER.invoke(app, words)
    files = sorted(set(os.listdir()) - before)
    for name in files:
        shutil.rmtree(name) if Path(name).is_dir() else Path(name).unlink()
    known = isinstance(result.exception, Handed | SystemExit | lmab.errors.LmabError) or result.exception is None
    assert known, f"{' '.join(words)}: {result.exception!r}"
    error = str(result.exception) if isinstance(result.exception, lmab.errors.LmabError) else ""
    return list(asked), result.output, error, files


FIT = "fit log.csv"
LOG_OF = {
    "pack": "pack log.csv -o packed",
    "fit": FIT,
    "evaluate": "evaluate policy.in --logs log.csv --fit-propensities",
    "compare": "compare policy.in policy.in --logs log.csv",
    "report": "report truth.lmab policy.in --logs log.csv",
    "refit": "refit --store e.db --policies p --history log.csv",
}
EVENTS = " --person session --time step"
COLUMNS = [  # the log's options are the same in all commands that read one
    ("", "--arm", "arm", "step"),
    ("", "--reward", "reward", "step"),
    (EVENTS, "--gap", "30m", "1s"),
    ("", "--missing", "error", "zero"),
    ("", "--copies", "keep", "drop"),
    ("", "--encoding", "utf-8", "utf-16"),
]
#: A command, an option, its value by default, and another one; None: the option is a flag that is not given.
ROWS: list[tuple[str, str, str | None, str | None]] = [
    *((words + more, option, value, other) for words in LOG_OF.values() for more, option, value, other in COLUMNS),
    ("demo", "--output", "lmab-demo", "other"),
    ("demo", "--seed", "0", "1"),
    ("sample", "--sessions", "3000", "5"),
    ("sample", "--seed", "0", "1"),
    ("split log.csv", "--test", "0.2", "0.3"),
    ("split log.csv", "--session", "session", "step"),
    ("split log.csv", "--encoding", "utf-8", "utf-16"),
    ("split log.csv", "--seed", "0", "1"),
    (FIT, "--types", "auto", "2"),
    (FIT, "--output", "model.lmab", "nowhere/model.lmab"),
    (FIT, "--traits", None, ""),
    (f"{FIT} --traits", "--factors", "8", "7"),
    (FIT, "--prior", "learned", "1"),
    (FIT, "--min-plays", "1", "40"),
    (FIT, "--restarts", "20", "19"),
    (FIT, "--leaving", "auto", "none"),
    (FIT, "--selected", "auto", "true"),
    (FIT, "--device", "cpu", "gpu"),
    (FIT, "--seed", "0", "1"),
    ("plan truth.lmab --horizon 3", "--anyway", None, ""),
    ("plan truth.lmab --horizon 3", "--time-limit", "60", "61"),
    ("plan truth.lmab --horizon 3", "--output", "policy.lmab", "nowhere/policy.lmab"),
    ("evaluate policy.in --logs log.csv", "--fit-propensities", "--no-fit-propensities", ""),
    ("evaluate policy.in --logs log.csv --fit-propensities", "--confidence", "0.95", "0.9"),
    ("evaluate policy.in --logs log.csv --fit-propensities", "--seed", "0", "1"),
    ("evaluate policy.in --assess log.csv", "--time-limit", "60", "61"),
    ("compare policy.in policy.in --model truth.lmab", "--confidence", "0.95", "0.9"),
    ("compare policy.in policy.in --model truth.lmab", "--seed", "0", "1"),
    ("report truth.lmab policy.in", "--time-limit", "60", "61"),
    ("report truth.lmab policy.in", "--output", "report.html", "nowhere/report.html"),
    ("serve", "--store", "events.db", "other.db"),
    ("serve", "--repeats", "", "--no-repeats"),
    ("serve", "--rewards", "0,1", "any"),
    ("serve", "--floor", "0.05", "0.06"),
    ("serve", "--window", "3600", "3601"),
    ("serve", "--apprentice", None, ""),
    ("serve", "--without-store", None, ""),
    ("serve", "--host", "127.0.0.1", "127.0.0.2"),
    ("serve", "--port", "8000", "8001"),
    ("serve", "--queue", "10000", "9999"),
    ("serve", "--log", "text", "json"),
    ("serve", "--holdout", "0", "0.1"),
    ("serve", "--memory", "512", "511"),
    ("serve --arms arms.txt", "--arms-sync", None, ""),
    ("serve", "--demo", None, ""),
    ("experiments list", "--store", "events.db", "other.db"),
    ("refit --store e.db --policies p", "--canary", "0.05", "0.06"),
    ("refit --store e.db --policies p", "--types", "auto", "2"),
    ("refit --store e.db --policies p", "--keep-versions", "14", "15"),
    ("refit --store e.db --policies p", "--remove-days", None, ""),
    ("refit --store e.db --policies p", "--least", "200", "201"),
    ("refit --store e.db --policies p", "--ties", "newer", "older"),
    ("refit --store e.db --policies p", "--time-limit", "30", "31"),
    ("refit --store e.db --policies p", "--seed", "0", "1"),
    ("simulate -o l.csv", "--policy", "uniform", "greedy"),
    ("simulate -o l.csv", "--sessions", "10000", "9999"),
    ("simulate -o l.csv", "--horizon", "5", "6"),
    ("simulate -o l.csv", "--kind", "spherical", "hard"),
    ("simulate -o l.csv", "--types", "4", "5"),
    ("simulate -o l.csv", "--arms", "20", "21"),
    ("simulate -o l.csv", "--seed", "0", "1"),
    ("learn truth.lmab --horizon 3", "--types", "auto", "2"),
    ("learn truth.lmab --horizon 3", "--learner", "direct-mle", "ucb"),
    ("learn truth.lmab --horizon 3", "--sessions", "20000", "19999"),
    ("learn truth.lmab --horizon 3", "--seed", "0", "1"),
    ("budget --types 2 --arms 3 --horizon 4", "--epsilon", "0.1", "0.2"),
    ("budget --types 2 --arms 3 --horizon 4", "--eta", "0.1", "0.2"),
    ("budget --types 2 --arms 3 --horizon 4", "--gaussian", None, ""),
    ("budget --types 2 --arms 3 --horizon 4", "--measure", "0", "1"),
    ("budget --types 2 --arms 3 --horizon 4 --measure 2", "--seed", "0", "1"),
    ("budget --types 2 --arms 3 --horizon 4", "--json", None, ""),
    ("reproduce sessions", "--list", None, ""),
    ("reproduce sessions", "--quick", None, ""),
    ("reproduce sessions", "--full", None, ""),
    ("reproduce sessions", "--jobs", str(os.cpu_count()), "99"),
    ("reproduce sessions", "--out", "results", "other"),
    ("reproduce sessions", "--plot-only", None, ""),
    ("reproduce sessions", "--again", "0", "3"),
]
#: Options that change what is said at the end; the tests of their commands read it.
ELSEWHERE = {
    ("sample", "output"): "test_where_files_go_that_nobody_named",
    ("fit", "--check"): "test_cli_practice.py",
    ("serve", "--check"): "test_cli_serve.py",
    ("experiments", "--json"): "test_serve_experiments.py",
    ("export", "--experiment"): "test_cli_export.py",
    ("export", "--format"): "test_cli_export.py",
    ("refit", "--experiment"): "test_serve_experiments.py",
    ("fit", "--verbose"): "test_cli_verdicts.py",
    ("pack", "--explain"): "test_cli_pack.py",
    ("compare", "--gain"): "test_a_gain_of_two_percent_is_counted_for",
    **dict.fromkeys(
        [
            (name, "--json")
            for name in ("demo", "sample", "split", "pack", "fit", "plan", "evaluate", "compare", "report")
        ],
        "tests of the command",
    ),
    **dict.fromkeys([(name, "--json") for name in ("refit", "simulate", "learn", "reproduce")], "tests of the command"),
}


def given(words: str, option: str, value: str | None) -> list[str]:
    if value is None:
        return words.split()
    if value.startswith("--"):
        return [*words.split(), value]
    return [*words.split(), option, *([value] if value else [])]


@pytest.mark.parametrize(("words", "option", "value", "other"), ROWS, ids=[f"{w.split()[0]}{o}" for w, o, *_ in ROWS])
def test_a_command_without_an_option_asks_with_its_documented_value(asked, words, option, value, other):
    left_out = answered(asked, words.split())
    assert answered(asked, given(words, option, value)) == left_out, f"{option} is not {value} by default"
    assert answered(asked, given(words, option, other)) != left_out, f"{option} {other} changes nothing"


def test_every_option_with_a_default_has_a_row():
    root = typer.main.get_command(app)
    rows = {(words.split()[0], option) for words, option, *_ in ROWS} | ELSEWHERE.keys()
    missing = [
        (name, option.opts[0])
        for name in root.commands
        for option in root.get_command(None, name).params
        if option.default not in (None, ()) and not option.required and not rows & {(name, opt) for opt in option.opts}
    ]
    assert missing == []
    known = {(name, opt) for name in root.commands for one in root.get_command(None, name).params for opt in one.opts}
    assert sorted(rows - known) == []


def test_where_files_go_that_nobody_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert RUNNER.invoke(app, ["sample", "--sessions", "30"]).exit_code == 0
    words = "fit shop.csv --arm item --reward click --types 1 --prior 1 --restarts 1 --no-check"
    assert RUNNER.invoke(app, words.split()).exit_code == 0
    assert RUNNER.invoke(app, ["plan", "model.lmab", "--horizon", "2"]).exit_code == 0
    assert RUNNER.invoke(app, ["report", "model.lmab", "policy.lmab"]).exit_code == 0
    assert sorted(os.listdir()) == ["model.lmab", "policy.lmab", "report.html", "shop.csv"]


def test_a_gain_of_two_percent_is_counted_for(asked, monkeypatch):
    found = lmab.compare([lmab.Greedy(BANDIT), lmab.Uniform(3)], BANDIT, horizon=3, rng=0)
    monkeypatch.setattr(compare, "compare_policies", lambda *given, **named: found)
    words = ["compare", "policy.in", "policy.in", "--model", "truth.lmab"]
    left_out, said, other = (RUNNER.invoke(app, [*words, *more]).output for more in ([], ["--gain", "0.02"],
                                                                                  ["--gain", "0.03"]))  # fmt: skip
    assert left_out == said != other
    assert f"a gain of 2% ({0.02 * found.other:.4f}) after" in left_out
