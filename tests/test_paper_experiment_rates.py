"""Rates: the estimators that are measured, the exponents of made-up rows, and what the checks say of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import lmab
from lmab.paper.experiment import checks, rate_checks, rates
from lmab.paper.experiment.analysis import Evidence
from lmab.paper.experiment.methods import Measurement, Setting
from lmab.paper.experiment.page import rates_page
from lmab.paper.experiment.plots import draw_measured_rates
from lmab.paper.experiment.slopes import measured_rates, successes
from lmab.paper.experiment.store import row_of
from lmab.paper.experiment.studies import (
    GAUSSIAN,
    ORDER_SIZES,
    RATE_ARMS,
    RATE_PARAMETERS,
    RATE_PERTURBED,
    RATE_SAMPLING,
    RATES,
    SEPARATION,
    SEPARATION_2,
    SEPARATION_4,
    VALUES,
)


def made_up(study, found, size="standard"):
    """Rows of a study with the measurement that `found` gives for each trial."""
    return [row_of(trial, found(trial), "done", "2022-10-03T00:00:00+00:00") for trial in study.trials(size)]


@pytest.mark.parametrize("n_types", [2, 3])
def test_moments_of_one_arm_give_back_the_mixture(n_types):
    bandit = rates.apart(n_types, 1, 0.2)
    outcomes = rates.Outcomes.of(1, 2 * n_types - 1)
    exact = np.exp(outcomes.log_probabilities(bandit.weights, bandit.means))
    assert exact.sum() == pytest.approx(1)
    weights, points = rates.one_arm_mixture(exact, n_types)
    assert weights == pytest.approx(bandit.weights, abs=1e-6)
    assert points == pytest.approx(bandit.means[:, 0], abs=1e-6)


def test_impossible_moments_give_as_many_points_as_they_allow():
    weights, points = rates.one_arm_mixture(np.array([0, 50.0, 50.0, 0]), 2)  # less spread than one binomial
    assert (weights.tolist(), points.tolist()) == ([1.0], [0.5])
    weights, points = rates.one_arm_mixture(np.array([30.0, 0, 0, 0, 0, 70.0]), 3)  # two points, not three
    assert len(points) <= 2
    assert weights @ points == pytest.approx(0.7)


def test_outcomes_of_two_arms_are_those_of_simulated_sessions():
    bandit = lmab.LatentBandit.bernoulli([0.3, 0.7], [[0.2, 0.9], [0.6, 0.4]])
    outcomes = rates.Outcomes.of(2, 3)
    law = np.exp(outcomes.log_probabilities(bandit.weights, bandit.means))
    assert law.sum() == pytest.approx(1)
    log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=40_000, horizon=3, rng=1)
    arms, paid = log.arms.reshape(-1, 3), log.rewards.reshape(-1, 3)
    seen = [
        ((arms == 0).sum(1) == plays[0])
        & ((paid * (arms == 0)).sum(1) == ones[0])
        & ((paid * (arms == 1)).sum(1) == ones[1])
        for plays, ones in zip(outcomes.plays, outcomes.paid, strict=True)
    ]
    assert np.mean(seen, axis=1) == pytest.approx(law, abs=0.012)


def test_the_most_likely_mixture_gives_back_the_law_of_outcomes():
    bandit = rates.apart(2, 2, 0.25)
    outcomes = rates.Outcomes.of(2, 2)
    law = np.exp(outcomes.log_probabilities(bandit.weights, bandit.means))
    found = rates.most_likely(outcomes, law, 2, np.random.default_rng(0))
    assert np.exp(outcomes.log_probabilities(*found)) == pytest.approx(law, abs=1e-5)
    assert rates.largest_value_difference(bandit.weights, bandit.means, *found, 2) < 1e-4  # Lemma 3.5


def test_the_largest_difference_of_values_is_that_of_the_best_deterministic_policy():
    """With one step a policy is an arm; two bandits with the same types have the same values."""
    weights, means, other = np.array([0.5, 0.5]), np.array([[0.2, 0.9], [0.4, 0.1]]), np.array([[0.3, 0.3]])
    assert rates.largest_value_difference(weights, means, np.ones(1), other, 1) == pytest.approx(0.2)
    assert rates.largest_value_difference(weights, means, weights, means, 3) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("order", [1, 2])
def test_standard_errors_of_coordinates_are_those_of_sampled_sessions(order):
    bandit = Setting("uniform", 2, 6, 3).draw(3)
    table, basis = rates._spanned(bandit)
    sizes = np.abs(basis).reshape(6, 2, -1).sum(axis=1)
    rng = np.random.default_rng(5)
    errors = []
    for index in np.ndindex(*(basis.shape[1],) * order):
        types = rng.choice(2, 200_000, p=bandit.weights)
        product = np.ones(len(types))
        for j in index:
            arms = rng.choice(6, len(types), p=sizes[:, j] / sizes[:, j].sum())
            paid = (rng.random(len(types)) < bandit.means[types, arms]).astype(int)
            product *= sizes[:, j].sum() * basis[2 * arms + paid, j] / sizes[arms, j]
        errors.append(product.std() / 10)  # of 100 sessions
        assert product.mean() == pytest.approx(
            float(bandit.weights @ np.prod([table @ basis[:, j] for j in index], axis=0)), abs=0.1
        )
    assert rates.coordinate_error(bandit, order, 100, rebuilt=False) == pytest.approx(max(errors), rel=0.02)


def test_core_plays_of_two_values_have_the_standard_errors_of_indicators():
    """Arms of probability 1/2 have the largest variance, 1/4, and rebuilding them enlarges it by the design."""
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.8, 0.5, 0.2], [0.2, 0.5, 0.8]])
    assert rates.core_error(bandit, 1, 10_000) <= 0.5 / 100 * np.sqrt(2 * 2)
    assert rates.core_error(bandit, 2, 10_000) <= 0.5 / 100 * 2 * 2


def parameters(fall, fixed=-0.5, values=-0.5):
    """Rows in which errors fall by these powers of N; the worst case is at the middle separation."""

    def found(trial):
        setting = trial.setting
        power = values if setting.n_arms == 2 else fixed if setting.separation == 0.45 else fall(setting.n_types)
        scale = {0.1: 10.0, 0.45: 1.0}.get(setting.separation, 0.1)
        return Measurement(None, error=scale * setting.n_sessions**power * (1 + 0.001 * trial.instance))

    return made_up(RATE_PARAMETERS, found)


def test_rates_of_parameters_and_values_are_judged_against_the_paper():
    argued = parameters(lambda m: -1 / (4 * m - 2))
    finding = rate_checks.parameters_fall_slowly(Evidence(argued))
    assert finding.holds, finding
    assert not rate_checks.parameters_fall_slowly(Evidence(parameters(lambda m: -0.5))).holds
    assert not rate_checks.parameters_fall_slowly(Evidence(parameters(lambda m: -1 / (4 * m - 2), fixed=-0.3))).holds
    assert rate_checks.values_fall_fast(Evidence(argued)).holds
    assert not rate_checks.values_fall_fast(Evidence(parameters(lambda m: -0.1, values=-0.25))).holds


@pytest.mark.parametrize(("power", "core", "holds"), [(1.0, 0.0, True), (0.2, 0.0, False), (1.0, 0.3, False)])
def test_sampling_is_judged_by_exponents(power, core, holds):
    """The standard error grows with the root of the sessions: an exponent of A in errors counts twice."""

    def found(trial):
        order = int(trial.method.name[-1])
        exponent = core / 2 if trial.method.name.startswith("core") else order * power / 2
        noise = 1 + 0.001 * trial.instance
        return Measurement(None, error=0.01 * noise * trial.setting.n_arms**exponent)

    assert rate_checks.sampling_needs_more_with_arms(Evidence(made_up(RATE_SAMPLING, found))).holds is holds


@pytest.mark.parametrize(("many", "holds"), [(300, True), (30_000, False)])
def test_sessions_of_algorithm_1_are_judged_by_their_power(many, holds):
    """From 5 to 10 arms, 100 sessions become 300 (A^1.6) or 30,000 (A^8)."""

    def found(trial):
        if trial.method.name == "genie":
            return Measurement(1.0)
        reached = trial.setting.n_sessions >= {5: 100, 10: many}.get(trial.setting.n_arms, 0)
        return Measurement((0.99 if reached else 0.9) + 0.0001 * trial.instance)

    rows = [row for row in made_up(RATE_ARMS, found, "full") if row.n_arms <= 10]
    finding = rate_checks.sessions_are_polynomial(Evidence(rows))
    assert finding.holds is holds, finding


@pytest.mark.parametrize(("near", "maximal", "holds"), [(0.02, 0, True), (0.3, 0, False), (0.02, 1.0, False)])
def test_perturbations_are_judged_by_both_parts_of_the_conjecture(near, maximal, holds):
    def found(trial):
        return Measurement(None, distance=near if trial.setting.separation else 0.5, error=maximal)

    rows = made_up(RATE_PERTURBED, found)
    assert rate_checks.perturbations_help(Evidence(rows)).holds is holds
    assert {one.n_instances for one in successes(rows)} == {10}


@pytest.mark.parametrize(("short", "holds"), [(0.99, True), (0.9, False), (0.95, None)])
def test_normal_rewards_are_judged_at_every_horizon(short, holds):
    def found(trial):
        noise = 0.002 * (-1) ** trial.instance
        share = 1.0 if trial.method.name == "genie" else (short if trial.setting.horizon == 2 else 0.99) + noise
        return Measurement(share, distance=0.1)

    finding = rate_checks.normal_rewards_are_learned(Evidence(made_up(GAUSSIAN, found)))
    assert finding.holds is holds, finding


@pytest.mark.parametrize(("gain", "holds"), [(0.05, True), (-0.05, False), (0.0, None)])
def test_events_are_judged_in_pairs(gain, holds):
    def found(trial):
        is_events = trial.method.name == "ed-mle-events"
        noise = 0.01 * (-1) ** trial.instance * is_events
        return Measurement(1.0, distance=0.2 + noise - gain * (is_events and trial.setting.kind == "values-5"))

    assert rate_checks.events_save_a_factor(Evidence(made_up(VALUES, found))).holds is holds


def test_the_page_and_the_figure_show_what_was_measured(tmp_path):
    rows = parameters(lambda m: -1 / (4 * m - 2))
    text = rates_page(rows, "standard")
    assert "| parameters, worst case, M = 2 | -0.167 ± 0.000 | -0.167 |" in text
    assert text.count("trials are missing") == 3
    (png, svg) = draw_measured_rates(rows, tmp_path, "standard")
    assert png.stat().st_size > 10_000
    assert "parameters, worst case, M = 2: -0.17" in svg.read_text()
    assert draw_measured_rates([], tmp_path / "none", "quick")  # no rows yet
    assert {rate.study for rate in measured_rates(rows)} == {"rate-parameters"}
    assert all(f"## ({letter})" in text for letter, _ in zip("abcd", RATES, strict=True))


def test_a_trial_of_each_new_kind_gives_a_number():
    for study in (*RATES, GAUSSIAN, VALUES):
        trials = {trial.method.name: trial for trial in study.trials("quick") if trial.setting.n_sessions <= 10_000}
        for trial in list(trials.values())[:4]:
            small = trial.setting if not trial.setting.n_sessions else replace(trial.setting, n_sessions=300)
            found = trial.method.measure(small, small.draw(0), 0)
            assert found.error is not None or found.value is not None, trial.id


def test_types_that_are_perturbed_are_identified_by_short_sessions_and_types_on_a_line_are_not():
    line, moved = (Setting("perturbed", 3, 8, 3, separation=size).draw(0) for size in (0.0, 0.2))
    assert np.linalg.matrix_rank(line.means - 0.5) == 1
    assert np.linalg.matrix_rank(moved.means) == 3


def test_the_sizes_of_figure_2_are_drawn_from_instances_of_their_own():
    instances = {trial.instance for trial in ORDER_SIZES.trials("full")}
    assert instances == set(range(600, 620))
    learned = {(t.setting.n_types, t.setting.n_arms, t.setting.horizon, t.setting.n_sessions)
               for t in ORDER_SIZES.trials("full") if t.setting.n_sessions}  # fmt: skip
    assert learned == {(4, 20, 5, 50_000), (7, 50, 7, 100_000)}


@pytest.mark.parametrize("study", [SEPARATION_2, SEPARATION, SEPARATION_4], ids=lambda study: study.name)
def test_separation_has_a_place_within_the_regime_of_lemma_c_2(study):
    inside = []
    for trial in study.trials("full"):
        setting = trial.setting
        if trial.method.name == "ed-mle-core-fit":
            lemma = checks.promise(setting.n_types, setting.n_sessions, setting.horizon)
            inside.append(lemma.errors.epsilon < 1 and setting.separation**2 * setting.horizon >= lemma.scale)
    assert len(inside) == 20
    assert all(inside)
