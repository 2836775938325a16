"""Louis' information of a traits model is minus the second derivative of the log posterior."""

from __future__ import annotations

import numpy as np
import pytest
from seeds import generator

import lmab
from lmab.estimation.traits import coordinates as coordinates_module

SETTINGS = {
    "two values": {},
    "three values": {"values": [0.0, 1.0, 2.0]},
    "normal": {"rewards": "gaussian", "scale": 1.0},
}


def fitted(kind: str, n: int = 300) -> lmab.Estimate:
    rng = generator(11)
    arms = rng.integers(4, size=(n, 5))
    along = rng.normal(size=(n, 1)) * np.array([0.5, 1.0, 1.5, 2.0])[arms]
    if kind == "normal":
        rewards = along + rng.normal(size=arms.shape)
    else:
        rewards = (rng.random(arms.shape) < 1 / (1 + np.exp(-along))) * 1.0
        if kind == "three values":
            rewards += (rng.random(arms.shape) < 1 / (1 + np.exp(-along))) * 1.0
    log = lmab.Sessions.from_arrays(arms, rewards, n_arms=5)  # the last arm is never played
    return lmab.fit(log, method=lmab.Traits(n_factors=1, n_points=15), rng=0, **SETTINGS[kind], check=False)


def posterior(estimate: lmab.Estimate, coordinates, move: np.ndarray) -> float:
    """log-likelihood plus log density of the law of arms, after a move."""
    family = coordinates.moved(move[None])[0]
    model = lmab.LatentBandit(estimate.bandit.weights, family)
    logs = np.logaddexp.reduce(lmab.model.belief.log_joint(model, estimate.sessions), axis=1).sum()
    deviations = coordinates.arms.parameters + move.reshape(coordinates.arms.parameters.shape) - estimate.factors.centre
    return float(logs - 0.5 * np.einsum("ai,ij,aj->", deviations, np.linalg.inv(estimate.factors.spread), deviations))


@pytest.mark.parametrize("kind", SETTINGS)
def test_information_is_that_of_finite_differences(kind):
    estimate = fitted(kind)
    assert estimate.factors.n_alive == 1
    information = estimate.information()
    size, step = information.coordinates.size, 2e-3
    assert information.matrix.shape == (size, size)
    places = [0, 1, size // 2, size // 2 + 1, size - 1]
    for i in places:
        for j in places:
            total = 0.0
            for one, other in ((1, 1), (-1, -1), (1, -1), (-1, 1)):
                move = np.zeros(size)
                move[i] += one * step
                move[j] += other * step
                total += one * other * posterior(estimate, information.coordinates, move)
            assert information.matrix[i, j] == pytest.approx(-total / (4 * step**2), rel=0.02, abs=0.1)


def test_a_sample_of_a_large_log_tells_what_is_missing(monkeypatch):
    estimate = fitted("two values", 1200)
    whole = estimate.information().matrix
    monkeypatch.setattr(coordinates_module, "_SESSIONS", 600)
    some = estimate.information().matrix
    assert not np.array_equal(whole, some)
    np.testing.assert_allclose(np.diag(some), np.diag(whole), rtol=0.25)


@pytest.mark.parametrize("kind", SETTINGS)
def test_means_move_as_their_derivatives_say(kind):
    coordinates = fitted(kind).information().coordinates
    size, step = coordinates.size, 1e-5
    slopes = coordinates.means_along(np.eye(size))
    for i in (0, 1, size - 1):
        move = np.zeros(size)
        move[i] = step
        up, down = (family.means for family in coordinates.moved(np.array([move, -move])))
        np.testing.assert_allclose(slopes[:, :, i], (up - down) / (2 * step), atol=1e-5)


def test_standard_errors():
    errors = fitted("two values").standard_errors()
    assert errors.means.shape == (15, 5)
    assert np.isfinite(errors.means[:, :4]).all()
    assert (errors.means[7, :4] > 0.001).all()
    assert np.isnan(errors.means[:, 4]).all()  # never played
