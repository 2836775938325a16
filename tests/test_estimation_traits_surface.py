"""The points at which the types of a traits model lie integrate over normal factors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import qmc
from seeds import generator

import lmab
from lmab.estimation.families import observe
from lmab.estimation.log import padded
from lmab.estimation.traits import surface as surface_module
from lmab.estimation.traits.rounds import TraitsTask
from lmab.estimation.traits.sobol import MOST_DIMENSIONS, scrambled_sobol
from lmab.estimation.traits.surface import Points, TraitArms
from lmab.parallel import SERIAL

POINTS = Points.of(2, 25)
SETTINGS: dict[str, dict[str, Any]] = {
    "two values": {"values": [0.0, 1.0]},
    "four values": {"values": [-1.0, 0.0, 1.0, 3.0]},
    "normal": {"rewards": "gaussian"},
}


@pytest.mark.parametrize("n_factors", [1, 2])
def test_few_factors_have_a_product_of_gauss_hermite_rules(n_factors):
    points = Points.of(n_factors, 21**n_factors)
    assert len(points) == 21**n_factors
    powers = points.places[:, -1][:, None] ** np.arange(9)
    np.testing.assert_allclose(points.weights @ powers, [1, 0, 1, 0, 3, 0, 15, 0, 105], atol=1e-9)
    if n_factors == 2:
        assert abs(points.weights @ (points.places[:, 0] ** 2 * points.places[:, 1] ** 4) - 3) < 1e-9


def test_nodes_along_one_factor_are_limited():
    assert len(Points.of(1, 512)) == 64
    assert len(Points.of(2, 512)) == 22**2


@pytest.mark.parametrize(("n_factors", "n_points"), [(3, 100), (8, 512), (8, 128), (5, 3)])
def test_many_factors_have_points_with_the_moments_of_a_normal_distribution(n_factors, n_points):
    points = Points.of(n_factors, n_points)
    assert points.n_factors == n_factors
    assert len(points) == max(n_points, n_factors + 1)  # fewer cannot have the covariance
    np.testing.assert_allclose(points.weights, 1 / len(points))
    np.testing.assert_allclose(points.places.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(points.places.T @ points.places / len(points), np.eye(n_factors), atol=1e-10)


def test_the_points_of_many_factors_are_spread_like_normal_draws():
    places = Points.of(8, 512).places
    np.testing.assert_allclose((places**4).mean(axis=0), 3, atol=0.5)
    assert len(np.unique(places.round(6), axis=0)) == 512
    np.testing.assert_array_equal(places, Points.of(8, 512).places)  # no draw is involved


def test_no_factors_have_one_point():
    points = Points.of(0, 512)
    assert points.places.shape == (1, 0)
    assert points.weights.tolist() == [1.0]


def test_wide_models_avoid_powers_of_two():
    assert [padded(n) for n in (1, 8, 9, 64, 120)] == [8, 8, 16, 64, 120]
    assert [padded(n) for n in (121, 128, 256, 512, 520)] == [136, 136, 264, 520, 520]


def log_of(kind: str, rng: np.random.Generator) -> lmab.Sessions:
    arms = rng.integers(3, size=(40, 4))
    rewards = rng.normal(5.0, 2.0, arms.shape) if kind == "normal" else rng.choice(SETTINGS[kind]["values"], arms.shape)
    return lmab.Sessions.from_arrays(arms, rewards, n_arms=4)  # the last arm is never played


def case(kind: str, seed: int = 0):
    rng = generator(seed)
    data = observe(log_of(kind, rng), **SETTINGS[kind])
    p = data.surface.n_intercepts + 2
    return data, rng.normal(size=(4, p)), 1.3


def logits(parameters: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Of the four values -1, 0, 1, 3, as the docstring says."""
    steps = np.array([0, 0.25, 0.5, 1.0])
    return np.array([0, *parameters[:3]]) + steps * (parameters[3:] @ place)


def test_values_have_logits_of_their_own_and_share_the_loadings():
    data, parameters, scale = case("four values")
    model = data.surface.model(parameters, scale, POINTS)
    for arm, k in ((0, 3), (2, 17)):
        expected = np.exp(logits(parameters[arm], POINTS.places[k]))
        found = model[0, 1 + 4 * arm : 5 + 4 * arm, k]
        np.testing.assert_allclose(found, expected / expected.sum(), rtol=1e-12)
    np.testing.assert_allclose(model[0, 0, : len(POINTS)], POINTS.weights)
    assert (model[0, :, len(POINTS) :] == 0).all()


def test_two_values_are_the_two_parameter_logistic_model():
    data, parameters, _ = case("two values")
    means = data.surface.bandit(TraitArms(parameters, np.zeros((4, 3, 3)), parameters[0], parameters[0]), POINTS).means
    expected = 1 / (1 + np.exp(-(parameters[:, 0] + POINTS.places @ parameters[:, 1:].T)))
    np.testing.assert_allclose(means, expected, rtol=1e-9)


def test_normal_means_are_linear_and_measured_from_the_mean_of_all_rewards():
    data, parameters, scale = case("normal")
    model = data.surface.model(parameters, scale, POINTS)
    bandit = data.bandit(model[0], len(POINTS))
    expected = data.sessions.rewards.mean() + parameters[:, 0] + POINTS.places @ parameters[:, 1:].T
    np.testing.assert_allclose(bandit.means, expected, rtol=1e-12)
    assert bandit.rewards.scale == scale


def expected_log_likelihood(data, statistics, parameters, scale):
    """Of the statistics, by the plain formula."""
    model = data.surface.model(parameters, scale, POINTS)[0]
    if data.values is not None:
        return float((statistics[1:, : len(POINTS)] * np.log(model[1:, : len(POINTS)])).sum())
    plays, sums = statistics[1:5], statistics[5:]
    means = model[1:-1]
    return float((sums * means - plays * means**2 / 2).sum() / scale**2)


@pytest.mark.parametrize("kind", SETTINGS)
def test_derivatives_are_those_of_the_expected_log_likelihood(kind):
    data, parameters, scale = case(kind)
    arms = TraitArms(parameters, np.zeros((4, *parameters.shape[1:] * 2)), parameters[0], parameters[0], scale)
    statistics, _ = TraitsTask(data, SERIAL).expectation(arms, POINTS)
    gradient, information = data.surface.derivatives(statistics, parameters, scale, POINTS)
    step = 1e-5
    for arm in range(4):
        for j in range(parameters.shape[1]):
            up, down = parameters.copy(), parameters.copy()
            up[arm, j] += step
            down[arm, j] -= step
            slope = expected_log_likelihood(data, statistics, up, scale) - expected_log_likelihood(
                data, statistics, down, scale
            )
            assert gradient[arm, j] == pytest.approx(slope / (2 * step), rel=1e-5, abs=1e-5)
            change = data.surface.derivatives(statistics, up, scale, POINTS)[0][arm]
            change = change - data.surface.derivatives(statistics, down, scale, POINTS)[0][arm]
            np.testing.assert_allclose(-information[arm, j], change / (2 * step), rtol=1e-4, atol=1e-5)
    assert (gradient[3] == 0).all()  # the arm that was never played


@pytest.mark.parametrize("kind", SETTINGS)
def test_blocks_of_arms_change_nothing(kind, monkeypatch):
    data, parameters, scale = case(kind)
    arms = TraitArms(parameters, np.zeros((4, *parameters.shape[1:] * 2)), parameters[0], parameters[0], scale)
    statistics, _ = TraitsTask(data, SERIAL).expectation(arms, POINTS)
    whole = data.surface.derivatives(statistics, parameters, scale, POINTS)
    model = data.surface.model(parameters, scale, POINTS)
    monkeypatch.setattr(surface_module, "CELLS", 120)
    assert len(surface_module.blocks(4, 100)) == 4
    for one, other in zip(whole, data.surface.derivatives(statistics, parameters, scale, POINTS), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(model, data.surface.model(parameters, scale, POINTS), rtol=1e-12)


@pytest.mark.parametrize("kind", ["two values", "four values"])
def test_averages_are_those_over_what_is_unsure_about_an_arm(kind):
    data, parameters, scale = case(kind)
    n_draws, (n_arms, p) = 20_000, parameters.shape
    rng = generator(1)
    roots = 0.7 * rng.normal(size=(n_arms, p, p)) / np.sqrt(p)
    arms = TraitArms(parameters, roots @ roots.swapaxes(1, 2), parameters[0], parameters[0], scale)
    found = data.surface.averaged(arms, POINTS).rewards.probabilities
    plain = data.surface.bandit(arms, POINTS).rewards.probabilities
    steps = (data.values - data.values[0]) / (data.values[-1] - data.values[0])
    for arm, k in ((0, 6), (1, 12), (2, 18)):
        drawn = parameters[arm] + rng.normal(size=(n_draws, p)) @ roots[arm].T
        along = drawn[:, -2:] @ POINTS.places[k]
        raised = np.exp(np.column_stack([np.zeros(n_draws), drawn[:, :-2]]) + steps * along[:, None])
        expected = (raised / raised.sum(axis=1, keepdims=True)).mean(axis=0)
        assert np.abs(found[k, arm] - expected).max() < 0.02
        assert np.abs(found[k, arm] - expected).max() < np.abs(plain[k, arm] - expected).max() + 0.005
    assert np.abs(found - plain).max() > 0.05


def test_the_best_scale_is_that_of_the_residuals():
    data, parameters, scale = case("normal")
    arms = TraitArms(parameters, np.zeros((4, 3, 3)), parameters[0], parameters[0], scale)
    statistics, _ = TraitsTask(data, SERIAL).expectation(arms, POINTS)
    shares = data.expectation(data.surface.model(parameters, scale, POINTS), SERIAL)[0]
    np.testing.assert_array_equal(shares[0], statistics)
    bandit = data.bandit(data.surface.model(parameters, scale, POINTS)[0], len(POINTS))
    posterior = lmab.model.belief.posterior(bandit, data.sessions)
    steps = np.repeat(posterior, data.sessions.lengths, axis=0)
    squares = (data.sessions.rewards[:, None] - bandit.means.T[data.sessions.arms]) ** 2
    expected = np.sqrt((steps * squares).sum() / data.sessions.n_steps)
    assert data.surface.best_scale(statistics, parameters, scale, POINTS) == pytest.approx(expected)
    known = observe(data.sessions, rewards="gaussian", scale=2.5)
    assert known.surface.scale() == known.surface.best_scale(statistics, parameters, 2.5, POINTS) == 2.5


@pytest.mark.parametrize("n_dimensions", [1, 3, MOST_DIMENSIONS])
@pytest.mark.parametrize("seed", [0, 7])
def test_sobol_sequences_are_those_of_scipy(n_dimensions, seed):
    expected = qmc.Sobol(n_dimensions, seed=seed).random_base2(7)
    np.testing.assert_array_equal(scrambled_sobol(n_dimensions, 7, seed), expected)


def test_more_dimensions_come_from_scipy():
    assert len(Points.of(MOST_DIMENSIONS + 1, 40)) == 40
