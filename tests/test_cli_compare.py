"""`lmab compare`: on a model, from a log, and from a log that both policies made."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

import lmab
from lmab.cli.app import app
from lmab.errors import InvalidArgument

BANDIT = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.8, 0.4], [0.3, 0.7]])


@pytest.fixture
def files(tmp_path):
    new, old = lmab.plan(BANDIT, horizon=3).policy, lmab.plan(replace(BANDIT, weights=[1.0, 0.0]), horizon=3).policy
    for name, policy in (("new", new), ("old", old)):
        policy.save(tmp_path / f"{name}.lmab")
    BANDIT.save(tmp_path / "model.lmab")
    return tmp_path, new, old


def run(*words) -> str:
    answer = CliRunner().invoke(app, ["compare", *map(str, words)])
    assert answer.exit_code == 0, (answer.output, answer.exception)
    return answer.output


def test_on_a_model(files):
    folder, new, old = files
    said = run(folder / "new.lmab", folder / "old.lmab", "--model", folder / "model.lmab")
    found = lmab.compare([new, old], BANDIT, rng=0)
    assert f"Difference {found.difference:+.4f}, exactly." in said
    assert "A live test of half and half would see a gain of 2%" in said
    told = json.loads(run(folder / "new.lmab", folder / "old.lmab", "--model", folder / "model.lmab", "--json"))
    assert told["difference"] == pytest.approx(found.difference)
    assert (told["effective"], told["method"]) == (None, "model")


@pytest.fixture
def known(tmp_path):
    """An estimate of a log with features, a plan for it, one for the same people of whom nothing is known."""
    countries = lmab.TypePrior.by_value("country", {"de": [0.95, 0.05], "fr": [0.05, 0.95]})
    log = lmab.simulate(BANDIT, lmab.Uniform(2), n_sessions=2000, horizon=3, type_prior=countries, rng=0)
    estimate = lmab.fit(log, n_types=2, check=False, rng=0)
    plans = lmab.plan(estimate, horizon=3), lmab.plan(estimate.bandit, horizon=3)
    for name, one in zip(("model", "new", "old"), (estimate, *plans), strict=True):
        one.save(tmp_path / f"{name}.lmab")
    estimate.bandit.relabel(types=[1, 0]).save(tmp_path / "other.lmab")
    estimate.bandit.save(tmp_path / "alone.lmab")
    return tmp_path, estimate, plans


def test_on_a_model_the_people_start_from_what_is_known(known):
    folder, estimate, plans = known
    told = json.loads(run(folder / "new.lmab", folder / "old.lmab", "--model", folder / "model.lmab", "--json"))
    assert told["difference"] == pytest.approx(lmab.compare(list(plans), estimate, rng=0).difference)
    assert told["difference"] > 0.1


@pytest.mark.parametrize("command", ["evaluate", "report"])
def test_where_people_start_depends_on_the_model_and_not_on_the_policy(known, command):
    folder, estimate, (new, old) = known

    def said(model: str, policy: str) -> float:
        words = [folder / f"{policy}.lmab", "--model", folder / f"{model}.lmab", "--json"]
        if command == "report":
            words = [folder / f"{model}.lmab", folder / f"{policy}.lmab", "-o", folder / "page.html", "--json"]
        answer = CliRunner().invoke(app, [command, *map(str, words)])
        assert answer.exit_code == 0, answer.output
        found = json.loads(answer.stdout)
        return found["policy"] if command == "report" else found["model"]["mean"]

    for name, plan in (("new", new), ("old", old)):
        assert said("model", name) == pytest.approx(lmab.evaluate(plan, estimate, horizon=3).mean)
    assert said("alone", "new") == said("model", "new")  # this is the bandit that the plan is for
    other = estimate.bandit.relabel(types=[1, 0])  # whose types have other numbers than those of the plan's prior
    assert said("other", "new") == pytest.approx(lmab.evaluate(new, other, horizon=3).mean)


def test_from_a_log_with_propensities(files):
    folder, *_ = files
    uniform = lmab.Uniform(2)
    log = lmab.simulate(BANDIT, uniform, n_sessions=2000, horizon=3, rng=0)
    lmab.evaluation.with_propensities(log, uniform).write(folder / "log.csv")
    words = ["--logs", folder / "log.csv", "--step", "step", "--propensity", "propensity"]
    said = run(folder / "new.lmab", folder / "old.lmab", *words)
    assert "On 2,000 sessions of the log (self-normalised) the new policy earns" in said
    assert "at 95%)." in said


def test_from_a_log_of_both_with_a_picture(files):
    folder, new, old = files
    parts, versions, days = [], [], []
    for day in range(3):
        for name, policy in (("new", new), ("old", old)):
            parts.append(
                lmab.simulate(BANDIT, policy, n_sessions=400, horizon=3, rng=10 * day + len(name) + ord(name[0]))
            )
            versions += [hashlib.sha256((folder / f"{name}.lmab").read_bytes()).hexdigest()[:12]] * 400
            days += [f"2026-01-0{day + 1}"] * 400
    log = parts[0]
    for part in parts[1:]:
        log = log + part
    replace(log, features={"policy": versions, "day": days}).write(folder / "both.csv")
    words = [folder / "new.lmab", folder / "old.lmab", "--logs", folder / "both.csv", "--step", "step"]
    said = run(*words, "--version", "policy", "--night", "day", "--picture", folder / "nights.svg")
    assert "In 2,400 sessions of both the new policy earns" in said
    assert "The bounds hold at all 3 nights together." in said
    assert (folder / "nights.svg").read_text().startswith("<svg")
    told = json.loads(run(*words, "--version", "policy", "--night", "day", "--json"))
    assert len(told["looks"]) == 3
    assert told["interval"][0] < lmab.compare([new, old], BANDIT, rng=0).difference < told["interval"][1]
    wrong = CliRunner().invoke(app, ["compare", *map(str, words), "--version", "policy", "--labels", "new"])
    assert isinstance(wrong.exception, InvalidArgument)


def test_something_to_compare_on_is_needed(files):
    folder, *_ = files
    answer = CliRunner().invoke(app, ["compare", str(folder / "new.lmab"), str(folder / "old.lmab")])
    assert isinstance(answer.exception, InvalidArgument)
    assert "give --logs" in str(answer.exception)
