from __future__ import annotations

import json
import math

from typer.testing import CliRunner

from lmab import theory
from lmab.cli.app import app

RUNNER = CliRunner()
CASE = ["budget", "--types", "3", "--arms", "50", "--horizon", "5", "--epsilon", "0.1"]


def answer(*options: str) -> dict:
    result = RUNNER.invoke(app, [*CASE, *options, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_table_names_its_sources_and_its_constants():
    text = RUNNER.invoke(app, CASE).output
    for words in ("Theorem 3.8", "Lemma 3.7", "Lemma 4.1", "delta_sub", "delta_tsr", "N0", "N1", "taken as 1"):
        assert words in text


def test_json_holds_the_numbers_of_the_theory():
    numbers, asked = answer(), theory.budget(3, 50, 5, 0.1)
    assert numbers["total"] == asked.total
    assert numbers["delta_tsr"] == asked.delta_tsr
    assert "separated_horizon" not in numbers


def test_normal_rewards_and_separation():
    assert answer("--gaussian")["total"] == theory.gaussian_budget(3, 50, 5, 0.1).total
    apart = answer("--gamma", "0.5")
    steps = math.ceil(apart["separated_horizon"])
    assert apart["separated_sessions"] == theory.separated_sessions(apart["core_size"], 3, steps, 0.1, 1 / 3, 0.1)
    refused = RUNNER.invoke(app, [*CASE, "--gamma", "0"])
    assert "--gamma must be in (0, 2]" in str(refused.exception)


def test_numbers_beyond_range_are_said_to_be_so():
    large = ["budget", "--types", "12", "--arms", "50", "--horizon", "30"]
    assert "more than 1e308" in RUNNER.invoke(app, large).output
    assert json.loads(RUNNER.invoke(app, [*large, "--json"]).stdout)["total"] is None


def test_practice_is_measured():
    """A few hundred sessions where the theory asks for 1e18 and more."""
    small = [
        "budget",
        "--types",
        "2",
        "--arms",
        "4",
        "--horizon",
        "2",
        "--epsilon",
        "0.3",
        "--measure",
        "2",
        "--json",
    ]
    numbers = json.loads(RUNNER.invoke(app, small).stdout)
    assert 100 <= numbers["measured"] <= 3000 < 1e6 < numbers["total"]


def test_maximum_likelihood_needs_the_subspace_too():
    """The row of Lemma 4.1 counts N0, as the row of Theorem 3.8 does."""
    numbers, asked = answer(), theory.budget(3, 50, 5, 0.1)
    assert numbers["likelihood_total"] == asked.subspace_sessions + asked.likelihood_sessions
    line = next(line for line in RUNNER.invoke(app, CASE).output.splitlines() if "Lemma 4.1" in line)
    assert f"{numbers['likelihood_total']:.3g}" in line


def test_normal_rewards_have_no_values():
    refused = RUNNER.invoke(app, [*CASE, "--gaussian", "--values", "3"])
    assert "--values must not be given with --gaussian" in str(refused.exception)


def test_a_separation_that_sessions_are_too_short_for_is_told():
    text = " ".join(RUNNER.invoke(app, [*CASE, "--gamma", "0.5"]).output.split())
    steps = theory.separated_horizon(theory.core_set_size(3), 3, 2, 0.5, 0.1, 1 / 3)
    assert (
        f"Sessions of 5 steps are too short for --gamma 0.5: Lemma C.2 promises nothing below {steps:.3g} steps" in text
    )
    long = [*CASE[:-4], "--horizon", "100000", "--epsilon", "0.1", "--gamma", "0.5"]
    assert "too short" not in RUNNER.invoke(app, long).output


def test_the_lower_bound_stands_beside_the_budget_with_its_pair():
    numbers = answer()
    bound = theory.sessions_below(3, 5, 0.1, 0.1, n_arms=50)
    assert numbers["sessions_below"] == float(bound) < numbers["total"]
    assert numbers["sessions_below_pair"][0]["means"] == bound.pair[0].means.tolist()
    assert f"{float(bound):.3g}" in RUNNER.invoke(app, CASE).output
    assert answer("--eta", "0.3")["sessions_below"] is None
    one_arm = ["budget", "--types", "2", "--arms", "1", "--horizon", "3", "--json"]
    assert json.loads(RUNNER.invoke(app, one_arm).stdout)["sessions_below"] is None
    long = ["budget", "--types", "2", "--arms", "5", "--horizon", "1000", "--json"]
    assert json.loads(RUNNER.invoke(app, long).stdout)["sessions_below"] is None
