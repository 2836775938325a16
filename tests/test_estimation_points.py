"""The points at which the types of a traits model lie integrate over normal factors."""

from __future__ import annotations

import numpy as np
import pytest

from lmab.estimation.arrays import padded
from lmab.estimation.points import Points


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
