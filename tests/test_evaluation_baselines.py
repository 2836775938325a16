"""Baselines beside the best fixed choice: a list without repeats, and a list per value of a feature."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from typer.testing import CliRunner

import lmab
from lmab.cli.app import app
from lmab.evaluation.baselines import LIST, Baselines, segments_of

BANDIT = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.8, 0.4, 0.5, 0.3], [0.3, 0.7, 0.4, 0.6]])
COUNTRIES = lmab.TypePrior.by_value("country", {"de": [0.95, 0.05], "fr": [0.05, 0.95]})
LEAVING = replace(BANDIT, leaving=np.random.default_rng(0).uniform(0.05, 0.5, (2, 4, 2)))


def best(weights, bandit, horizon, *, repeats):
    """The best fixed choice by trying all of them."""
    own = replace(bandit, weights=weights)
    orders = [lmab.policies.Ranking(order, horizon=horizon, repeats=repeats) for order in permutations(range(4))]
    return max(lmab.evaluate(one, own, horizon=horizon).mean for one in orders)


@pytest.mark.parametrize("bandit", [BANDIT, LEAVING], ids=["stay", "leave"])
@pytest.mark.parametrize("repeats", [True, False])
def test_baselines_are_the_best_of_all_fixed_choices(bandit, repeats):
    found = Baselines.of(COUNTRIES, 4, 3, repeats=repeats).table(bandit, COUNTRIES)
    people = COUNTRIES.resolve_features()
    of_each = [best(weights, bandit, 3, repeats=repeats) for weights in COUNTRIES.weights(people.features)]
    each = people.shares @ of_each
    kind = "arm" if repeats else "list"
    assert found[f"the best {kind} per value of country"] == pytest.approx(each)
    assert (LIST in found) == repeats
    if repeats:
        everybody = people.shares @ COUNTRIES.weights(people.features)
        assert found[LIST] == pytest.approx(best(everybody, bandit, 3, repeats=False))


def test_without_features_and_repeats_there_is_no_further_baseline():
    assert Baselines.of(None, 4, 3, repeats=False).names == ()
    assert Baselines.of(None, 2, 3, repeats=True).names == (), "a list of three needs three arms"
    assert Baselines.of(lmab.TypePrior.constant([0.5, 0.5]), 4, 3, repeats=False).names == ()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of a log whose country says nearly all: model, policy, the log itself and other sessions."""
    place = tmp_path_factory.mktemp("known")
    for name, seed in (("log", 0), ("other", 1)):
        played = lmab.simulate(BANDIT, lmab.Uniform(4), n_sessions=2000, horizon=3, type_prior=COUNTRIES, rng=seed)
        played.write(place / f"{name}.csv")
    log = lmab.Sessions.read(place / "log.csv", step="step", features=("country",))
    estimate = lmab.fit(log, n_types=2, rng=0)
    estimate.save(place / "model.lmab")
    lmab.plan(estimate, horizon=3, repeats=False).save(place / "policy.lmab")
    return place


WORDS = ["--step", "step", "--features", "country"]


def told(*words) -> dict:
    answer = CliRunner().invoke(app, [*map(str, words), "--json"])
    assert answer.exit_code == 0, (answer.output, answer.exception)
    return json.loads(answer.stdout)


def test_an_assessment_claims_no_gain_where_a_list_per_country_earns_as_much(folder):
    words = ("evaluate", folder / "policy.lmab", "--assess", folder / "log.csv", *WORDS)
    saved = ("--save-assessment", folder / "assessment.lmab")
    found = told(*words, *saved)["assessment"]
    low, high = found["baselines"]["the best list per value of country"]
    assert low <= 0 <= high + 1e-9
    assert found["gain"][0] > 0.02, "over one list for everybody there is a gain"
    assessment = lmab.load(folder / "assessment.lmab")
    assert "No gain over the best list per value of country was demonstrated." in assessment.sentence
    assert assessment.table["gain over the best list per value of country"].startswith("-0.0")
    log = lmab.Sessions.read(folder / "log.csv", step="step")
    assert found["logged"] == pytest.approx(log.mean_session(3))
    assert assessment.table["as logged"].startswith("a session of 3 steps earned 1.5")
    truth = lmab.evaluate(lmab.load(folder / "policy.lmab"), BANDIT, horizon=3, type_prior=COUNTRIES,
                          features={"country": ["de", "fr"]})  # fmt: skip
    each = Baselines.of(COUNTRIES, 4, 3, repeats=False).table(BANDIT, COUNTRIES)
    assert low - 1e-9 <= truth.mean - each["the best list per value of country"] <= high + 1e-9


@pytest.mark.parametrize("name", ["log", "other"])
def test_the_report_knows_the_log_of_the_fit(folder, name):
    words = ("report", folder / "model.lmab", folder / "policy.lmab", "--logs", folder / f"{name}.csv", *WORDS,
             "-o", folder / "page.html")  # fmt: skip
    found = told(*words)
    fitted = name == "log"
    assert found["held_out"] == {"is_log_of_fit": fitted}
    assert found["logged"] == pytest.approx(lmab.Sessions.read(folder / f"{name}.csv", step="step").mean_session(3))
    assert "the best list per value of country" in found["baselines"]
    page = (folder / "page.html").read_text()
    assert ("Evaluation on held-out sessions" in page) is not fitted
    assert ("The model was fitted to these sessions" in page) is fitted
    for row in ("as logged", "best list per value of country", "Masked replay on"):
        assert row in page
    said = CliRunner().invoke(app, [*map(str, words)]).output
    assert ("The model was fitted to these sessions" in said) is fitted
    assert "As logged, a session earned" in said


def test_fit_prints_the_masked_replay_without_being_asked(folder):
    words = ("fit", folder / "log.csv", *WORDS, "--types", "2", "-o", folder / "again.lmab")
    said = CliRunner().invoke(app, [*map(str, words)])
    assert said.exit_code == 0, said.output
    assert "held-out sessions: the greedy policy of the model earns" in said.output
    assert "The gain of a plan can be larger, because" in said.output


def test_the_report_of_a_fixed_plan_shows_the_log_beside_it(tmp_path):
    log = lmab.simulate(lmab.LatentBandit.bernoulli([1.0], [[0.7, 0.2, 0.4]]), lmab.Uniform(3), n_sessions=300,
                        horizon=3, rng=0)  # fmt: skip
    estimate = lmab.fit(log, n_types=2, rng=0)
    plan = lmab.plan(estimate, horizon=3)
    assert plan.fixed
    lmab.report(estimate, plan, tmp_path / "page.html", sessions=log)
    page = (tmp_path / "page.html").read_text()
    assert f"As logged, a session of 3 steps earned {log.mean_session(3):.4g} on average." in page
    assert "The best list without repeats earns" in page
    assert "Masked replay on" in page
    assert "The replay relies on no model" in page
    assert "The gain of a plan can be larger" not in page


@pytest.fixture(scope="module")
def unused(folder):
    """A model of the same log that was fitted without the country, and its policy."""
    estimate = lmab.fit(lmab.Sessions.read(folder / "log.csv", step="step"), n_types=2, rng=0)
    estimate.save(folder / "without.lmab")
    lmab.plan(estimate, horizon=3, repeats=False).save(folder / "plan.lmab")
    return folder


def test_weights_by_value_are_those_of_the_people(folder):
    log = lmab.Sessions.read(folder / "log.csv", step="step", features=("country",))
    (found,) = segments_of(BANDIT, log)
    assert found.column == "country"
    np.testing.assert_allclose(found.shares, 0.5, atol=0.03)
    people = COUNTRIES.resolve_features()
    truth = COUNTRIES.weights(people.features) / 0.5
    np.testing.assert_allclose(found.ratios, truth[np.argsort(people.features["country"])], atol=0.12)
    np.testing.assert_allclose(found.shares @ (found.ratios * 0.5), 0.5, atol=1e-9)
    assert segments_of(BANDIT, log, used=("country",)) == ()
    assert segments_of(BANDIT, lmab.Sessions.read(folder / "log.csv", step="step")) == ()


def test_columns_of_many_values_are_left_out_and_rare_values_are_pooled():
    values = {"id": [f"{i}" for i in range(200)], "age": np.arange(200.0), "same": ["x"] * 200,
              "device": ["phone"] * 120 + ["tablet"] * 40 + ["watch"] * 20 + [None] * 20}  # fmt: skip
    log = lmab.simulate(BANDIT, lmab.Uniform(4), n_sessions=200, horizon=3, rng=3)
    found = segments_of(BANDIT, replace(log, features=lmab.data.features.Features.of(values, 200)))
    assert [one.column for one in found] == ["device"]
    np.testing.assert_allclose(sorted(found[0].shares), [0.2, 0.2, 0.6])


def test_a_column_without_information_gives_no_better_lists():
    log = lmab.simulate(BANDIT, lmab.Uniform(4), n_sessions=4000, horizon=3, rng=4)
    noise = np.where(np.random.default_rng(5).random(4000) < 0.5, "a", "b")
    segments = segments_of(BANDIT, replace(log, features=lmab.data.features.Features.of({"noise": noise}, 4000)))
    table = Baselines.of(None, 4, 3, repeats=False, segments=segments).table(BANDIT, None)
    assert 0 <= table["the best list per value of noise"] - BANDIT.best_fixed(3, repeats=False) < 0.02


def test_a_model_with_another_number_of_types_has_no_value_by_segment(folder):
    log = lmab.Sessions.read(folder / "log.csv", step="step", features=("country",))
    segments = segments_of(BANDIT, log)
    three = lmab.LatentBandit.bernoulli([0.4, 0.3, 0.3], [[0.5] * 4] * 3)
    assert np.isnan(Baselines.of(None, 4, 3, repeats=False, segments=segments).values(three.weights[None], three)).all()


def test_an_assessment_compares_with_lists_per_value_of_a_column_that_the_fit_does_not_use(unused):
    """Here the country tells more than two answers do, so a list per country earns more than the policy."""
    words = ("evaluate", unused / "plan.lmab", "--assess", unused / "log.csv", *WORDS)
    found = told(*words)["assessment"]
    low, high = found["baselines"]["the best list per value of country"]
    each = Baselines.of(COUNTRIES, 4, 3, repeats=False).table(BANDIT, COUNTRIES)["the best list per value of country"]
    policy = lmab.load(unused / "plan.lmab").policy
    assert low <= lmab.evaluate(policy, BANDIT, horizon=3).mean - each <= high
    assert high < 0
    assert "country" not in str(told(*words[:4], "--step", "step")["assessment"]["baselines"])


def test_report_and_evaluate_show_lists_per_value_of_a_column_of_other_sessions(unused):
    each = Baselines.of(COUNTRIES, 4, 3, repeats=False).table(BANDIT, COUNTRIES)["the best list per value of country"]
    report = told("report", unused / "without.lmab", unused / "plan.lmab", "--logs", unused / "other.csv", *WORDS,
                  "-o", unused / "page.html")  # fmt: skip
    assert report["baselines"]["the best list per value of country"] == pytest.approx(each, abs=0.08)
    assert "best list per value of country" in (unused / "page.html").read_text()
    evaluated = told("evaluate", unused / "plan.lmab", "--model", unused / "without.lmab", "--logs",
                     unused / "other.csv", "--fit-propensities", *WORDS)  # fmt: skip
    assert evaluated["model"]["baselines"] == pytest.approx(report["baselines"])
