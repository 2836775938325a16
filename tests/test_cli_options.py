from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import lmab
from lmab.cli.app import app
from lmab.cli.options import COLUMNS, Columns, Missing
from lmab.errors import InvalidArgument

RUNNER = CliRunner()
ODD = ["--session", "visit", "--arm", "item", "--reward", "click", "--step", "n", "--propensity", "p"]


def run(*arguments):
    done = RUNNER.invoke(app, [str(one) for one in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A log with names of its own, the model and the policy that were made from it, and a second log."""
    made = tmp_path_factory.mktemp("options")
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5, 0.1], [0.1, 0.4, 0.9]])
    for name, seed in (("log", 0), ("other", 1)):
        log = lmab.simulate(bandit, lmab.Uniform(3), n_sessions=400, horizon=4, rng=seed)
        names = {"session": "visit", "arm": "item", "reward": "click", "step": "n", "propensity": "p"}
        frame = pd.DataFrame(
            {
                "session": np.repeat(np.arange(400), 4),
                "step": np.tile(np.arange(4), 400),
                "arm": np.array(["a", "b", "c"])[log.arms],
                "reward": log.rewards,
                "propensity": 1 / 3,
            }
        )
        frame.rename(columns=names).to_csv(made / f"{name}.csv", index=False)
        frame.drop(columns="propensity").to_csv(made / f"{name}-plain.csv", index=False)  # names of its own, too
    run("fit", made / "log.csv", *ODD, "-o", made / "model.lmab", "--types", 2)
    run("plan", made / "model.lmab", "--horizon", 4, "-o", made / "policy.lmab")
    return made


def test_a_model_stores_the_names_of_the_columns_that_were_given(folder):
    stored = dict(lmab.load(folder / "model.lmab").columns)
    assert stored == {"session": "visit", "arm": "item", "reward": "click", "step": "n", "propensity": "p"}


@pytest.mark.parametrize("option", ["--assess", "--logs"])
def test_evaluate_needs_no_names_again(folder, option):
    log = folder / ("log.csv" if option == "--assess" else "other.csv")
    found = json.loads(run("evaluate", folder / "policy.lmab", option, log, "--json"))
    named = json.loads(run("evaluate", folder / "policy.lmab", option, log, *ODD, "--json"))
    assert found == named


def test_report_and_compare_need_no_names_again(folder, tmp_path):
    model, policy = folder / "model.lmab", folder / "policy.lmab"
    page = tmp_path / "report.html"
    run("report", model, policy, "--logs", folder / "other.csv", "--assess", folder / "log.csv", "-o", page)
    assert page.exists()
    run("compare", policy, policy, "--logs", folder / "other.csv")


def test_options_that_are_given_override_the_model(folder):
    plain = ["--session", "session", "--arm", "arm", "--reward", "reward", "--step", "step"]
    run("evaluate", folder / "policy.lmab", "--assess", folder / "log-plain.csv", *plain, "--propensity", "")
    missing = RUNNER.invoke(app, ["evaluate", str(folder / "policy.lmab"), "--logs", str(folder / "other-plain.csv")])
    assert "visit" in str(missing.exception)


def test_a_packed_log_is_read_by_its_own_names(folder, tmp_path):
    run("pack", folder / "other.csv", *ODD, "-o", tmp_path / "packed")
    run("evaluate", folder / "policy.lmab", "--logs", tmp_path / "packed")
    with pytest.raises(InvalidArgument, match="is a packed log, whose columns were named when it was packed"):
        RUNNER.invoke(
            app,
            ["evaluate", str(folder / "policy.lmab"), "--logs", str(tmp_path / "packed"), "--arm", "item"],
            catch_exceptions=False,
        )


class Model:
    """What the options need of an estimate."""

    def __init__(self, **columns):
        self.columns = tuple(columns.items())


@pytest.mark.parametrize(
    ("stored", "given", "read"),
    [
        ({"arm": "item", "at_most": 10}, {}, Columns(arm="item", at_most=10)),
        ({"arm": "item"}, {"arm": "arm"}, COLUMNS),
        ({"missing": "drop"}, {}, Columns(missing=Missing("drop"))),
        ({"person": "who", "time": "at", "gap": "2h"}, {"session": "visit"}, Columns(person="who", session="visit")),
        ({"session": "visit", "step": "n"}, {"time": "at", "person": "who"}, Columns(time="at", person="who")),
    ],
)
def test_what_is_given_goes_before_what_is_stored(stored, given, read, monkeypatch):
    monkeypatch.setattr("lmab.cli.options.Estimate", Model)
    assert Columns(**given, given=frozenset(given)).of_model(Model(**stored)) == read


def test_what_a_model_stores_of_the_options():
    assert COLUMNS.for_model() == ()
    columns = Columns(arm="item", missing=Missing("zero"), limit=3)
    assert columns.for_model() == (("arm", "item"), ("limit", 3), ("missing", "zero"))


@pytest.mark.parametrize("command", [[], ["plan"], ["fit"]])
def test_the_short_option_of_help(command):
    assert run(*command, "-h") == run(*command, "--help")
    assert "-h" in run(*command, "--help")
