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
    assert f"Difference: {found.difference:+.4f}, exactly." in said
    needed = f"{found.needed():,.0f} sessions, and a gain of 2% ({0.02 * found.other:.4f}) after "
    assert f"A live test with half of the sessions for each policy shows this difference after {needed}" in said
    told = json.loads(run(folder / "new.lmab", folder / "old.lmab", "--model", folder / "model.lmab", "--json"))
    assert told["difference"] == pytest.approx(found.difference)
    assert (told["effective"], told["method"]) == (None, "model")
    assert told["needed_for_difference"] == pytest.approx(found.needed(found.difference))
    same = run(folder / "new.lmab", folder / "new.lmab", "--model", folder / "model.lmab")
    assert "A live test with half of the sessions for each policy shows a gain of 2%" in same


@pytest.fixture
def known(tmp_path):
    """Return an estimate of a log with features, a plan for it, and a plan for its model without features."""
    countries = lmab.TypePrior.by_value("country", {"de": [0.95, 0.05], "fr": [0.05, 0.95]})
    log = lmab.simulate(BANDIT, lmab.Uniform(2), n_sessions=2000, horizon=3, type_prior=countries, rng=0)
    estimate = lmab.fit(log, n_types=2, check=False, rng=0)
    alone = estimate.bandit.with_type_prior(None)
    plans = lmab.plan(estimate, horizon=3), lmab.plan(alone, horizon=3)
    for name, one in zip(("model", "new", "old"), (estimate, *plans), strict=True):
        one.save(tmp_path / f"{name}.lmab")
    alone.relabel(types=[1, 0]).save(tmp_path / "other.lmab")
    alone.save(tmp_path / "alone.lmab")
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
    other = lmab.load(folder / "other.lmab")  # its types are in another order than in the prior of the plan
    assert said("other", "new") == pytest.approx(lmab.evaluate(new, other, horizon=3).mean)


def test_from_a_log_with_propensities(files):
    folder, *_ = files
    uniform = lmab.Uniform(2)
    log = lmab.simulate(BANDIT, uniform, n_sessions=2000, horizon=3, rng=0)
    lmab.evaluation.with_propensities(log, uniform).write(folder / "log.csv")
    words = ["--logs", folder / "log.csv", "--step", "step", "--propensity", "propensity"]
    said = run(folder / "new.lmab", folder / "old.lmab", *words)
    assert "On 2,000 logged sessions (self-normalised) the new policy earns" in said
    assert "(95% CI " in said


@pytest.mark.parametrize("with_model", [False, True])
def test_without_enough_overlap_a_live_test_is_asked_for_first(tmp_path, with_model):
    bandit = lmab.random_bandit(3, 30, rng=0)
    log = lmab.simulate(bandit, lmab.Uniform(30), n_sessions=500, horizon=4, rng=0)
    lmab.evaluation.with_propensities(log, lmab.Uniform(30)).write(tmp_path / "log.csv")
    bandit.save(tmp_path / "model.lmab")
    lmab.plan(bandit, horizon=4, time_limit=2).policy.save(tmp_path / "new.lmab")
    lmab.Greedy(bandit, horizon=4).save(tmp_path / "old.lmab")
    words = ["--logs", tmp_path / "log.csv", "--step", "step", "--propensity", "propensity"]
    if with_model:
        words += ["--model", tmp_path / "model.lmab"]
    answer = CliRunner().invoke(app, ["compare", *map(str, [tmp_path / "new.lmab", tmp_path / "old.lmab", *words])])
    if answer.exit_code:  # no session agrees with one of the policies: nothing can be estimated without a model
        assert not with_model
        assert "none for one of them" in str(answer.exception)
        return
    first = answer.output.splitlines()[0]
    assert first.startswith("A live test is needed: too few of these 500 sessions agree with both policies")
    assert "shows a gain of 2% (" in first or "shows this difference after" in first
    evaluated = CliRunner().invoke(app, ["evaluate", str(tmp_path / "new.lmab"), *map(str, words)])
    live = evaluated.output.index("note: a live test is needed, because too few of these sessions agree")
    assert live < evaluated.output.index("Estimated reward per session")
    assert "sessions, half of them with this policy, show a gain of" in evaluated.output
    if with_model:
        words = ["evaluate", tmp_path / "new.lmab", *words, "--json"]
        found = json.loads(CliRunner().invoke(app, [*map(str, words)]).stdout)["logs"]["estimates"]["doubly-robust"]
        assert f"(the doubly robust estimate of {found['mean']:.4g}, less" in evaluated.output


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
    assert "In 2,400 live sessions of both policies the new policy earns" in said
    assert "The interval holds at all 3 nights together." in said
    assert (folder / "nights.svg").read_text().startswith("<svg")
    told = json.loads(run(*words, "--version", "policy", "--night", "day", "--json"))
    assert len(told["looks"]) == 3
    assert told["interval"][0] < lmab.compare([new, old], BANDIT, rng=0).difference < told["interval"][1]
    wrong = CliRunner().invoke(app, ["compare", *map(str, words), "--version", "policy", "--labels", "new"])
    assert isinstance(wrong.exception, InvalidArgument)


def test_something_to_compare_on_is_needed(files, tmp_path):
    folder, new, old = files
    found = lmab.compare([new, old], BANDIT, rng=0)
    assert f"Difference: {found.difference:+.4f}" in run(folder / "new.lmab", folder / "old.lmab"), "its own model"
    lmab.Uniform(2, horizon=3).save(folder / "uniform.lmab")
    answer = CliRunner().invoke(app, ["compare", str(folder / "uniform.lmab"), str(folder / "old.lmab")])
    assert isinstance(answer.exception, InvalidArgument)
    assert "give --logs" in str(answer.exception)


@pytest.fixture
def named(tmp_path):
    """A model with labels, and a plan for it without repeats."""
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.8, 0.4, 0.5, 0.1], [0.3, 0.7, 0.4, 0.2]])
    bandit = replace(bandit, arm_labels=("tea", "cake", "soup", "water"))
    bandit.save(tmp_path / "model.lmab")
    lmab.plan(bandit, horizon=3, repeats=False).save(tmp_path / "plan.lmab")
    return tmp_path, bandit


def test_a_ranking_from_a_file_is_a_policy(named):
    folder, bandit = named
    (folder / "products.csv").write_text("product,price\nsoup,3\ntea,2\npie,9\ncake,4\n")
    told = json.loads(CliRunner().invoke(app, [
        "compare", str(folder / "plan.lmab"), "--ranking", str(folder / "products.csv"), "--json",
    ]).stdout)  # fmt: skip
    average = bandit.weights @ bandit.means
    assert told["other"] == pytest.approx(average[[2, 0, 1]].sum()), "without repeats, as the plan"
    assert told["value"] == pytest.approx(lmab.evaluate(lmab.load(folder / "plan.lmab"), bandit, horizon=3).mean)
    answer = CliRunner().invoke(app, ["compare", str(folder / "plan.lmab"), "--ranking", str(folder / "products.csv")])
    assert "and the ranking in products.csv " in answer.stdout
    assert "names 1 arm that the model does not have: pie" in answer.output.replace("\n", " ")
    assert "1 arm of the model is not in" in answer.output.replace("\n", " ")


def test_a_model_and_a_ranking_are_enough(named):
    folder, bandit = named
    (folder / "order.csv").write_text("water\ncake\nsoup\ntea\n")
    words = [folder / "model.lmab", "--ranking", folder / "order.csv"]
    told = json.loads(run(*words, "--horizon", 2, "--json"))
    assert told["value"] == pytest.approx(lmab.plan(bandit, horizon=2).lower)
    assert told["other"] == pytest.approx(2 * (bandit.weights @ bandit.means)[3])
    refused = CliRunner().invoke(app, ["compare", *map(str, words)])
    assert "--horizon must be given to plan for the model" in str(refused.exception)


@pytest.mark.parametrize(("content", "message"), [
    ("pie\n", "must have arms of the model, such as tea, cake, soup, in its first column"),
    ("", "got none of them"),
    (None, "cannot be read as CSV"),
    (b"\xff\xfe\x00", "cannot be read as CSV in UTF-8"),
])  # fmt: skip
def test_a_ranking_that_cannot_be_used_is_refused(named, content, message):
    folder, _ = named
    if content is not None:
        (folder / "bad.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    answer = CliRunner().invoke(app, ["compare", str(folder / "plan.lmab"), "--ranking", str(folder / "bad.csv")])
    assert message in str(answer.exception)


def test_two_policies_are_needed(named):
    folder, _ = named
    for more, got in (([], "neither"), ([str(folder / "plan.lmab"), "--ranking", "x.csv"], "both")):
        answer = CliRunner().invoke(app, ["compare", str(folder / "plan.lmab"), *more])
        assert f"give a second policy or --ranking (a CSV file), got {got}" in str(answer.exception)
