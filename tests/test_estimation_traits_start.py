"""The start of a traits model: covariances over pairs of different steps, and their leading directions."""

from __future__ import annotations

import numpy as np

import lmab
from lmab.estimation import observe, traits_start
from lmab.estimation.traits_start import start_loadings


def test_covariances_are_those_of_pairs_of_different_steps(rng):
    arms, rewards = rng.integers(4, size=(60, 3)), rng.integers(2, size=(60, 3)) * 1.0
    data = observe(lmab.Sessions.from_arrays(arms, rewards, n_arms=4), values=[0.0, 1.0])
    sums, plays, unit = data.surface.deviations()
    found = traits_start._covariance(sums, plays, data.multiplicity)
    mean = np.array([(rewards[arms == a].sum() + rewards.mean()) / ((arms == a).sum() + 1) for a in range(4)])
    for a in range(4):
        for b in range(a):
            products = [
                (rewards[i, t] - mean[a]) * (rewards[i, u] - mean[b])
                for i in range(60) for t in range(3) for u in range(3) if arms[i, t] == a and arms[i, u] == b
            ]  # fmt: skip
            assert np.isclose(found[a, b], sum(products) / (len(products) + 5))
    np.testing.assert_allclose(unit, np.maximum(mean * (1 - mean), 0.05))


def test_merged_sessions_count_as_often_as_they_came(rng):
    arms = np.tile([0, 1, 2], (600, 1))
    rewards = (rng.random((600, 3)) < 1 / (1 + np.exp(-2 * rng.normal(size=(600, 1))))) * 1.0
    log = lmab.Sessions.from_arrays(arms, rewards)
    data = observe(log)
    assert data.n_distinct == 8
    centred = rewards - (rewards.sum(axis=0) + rewards.mean()) / 601
    expected = (centred.T @ centred / 605)[0, 1]
    found = traits_start._covariance(*data.surface.deviations()[:2], data.multiplicity)
    assert np.isclose(found[0, 1], expected)


def test_the_diagonal_is_filled_in_from_the_leading_directions(rng):
    loadings = rng.normal(size=(30, 2))
    matrix = loadings @ loadings.T + np.diag(rng.uniform(5, 20, 30))  # noise of single plays
    found = traits_start._leading(matrix.copy(), 2)
    error = found @ found.T - loadings @ loadings.T
    assert np.abs(error).max() < 0.35 * np.abs(loadings @ loadings.T).max()
    assert (error**2).mean() < 0.02 * ((loadings @ loadings.T) ** 2).mean()


def test_many_arms_have_the_same_directions_as_few(rng, monkeypatch):
    matrix = rng.normal(size=(30, 30))
    matrix = matrix @ matrix.T
    dense = traits_start._eigen(matrix, 3)
    monkeypatch.setattr(traits_start, "_DENSE", 10)
    sparse = traits_start._eigen(matrix, 3)
    np.testing.assert_allclose(dense[0], sparse[0])
    np.testing.assert_allclose(np.abs(dense[1]), np.abs(sparse[1]), atol=1e-8)


def test_only_the_most_played_arms_start_with_loadings(rng, monkeypatch):
    arms = np.column_stack([rng.integers(4, size=300), rng.integers(2, 6, size=300)])
    log = lmab.Sessions.from_arrays(arms, rng.integers(2, size=(300, 2)) * 1.0, n_arms=6)
    monkeypatch.setattr(traits_start, "_MOST", 2)
    loadings = start_loadings(observe(log), 3)
    assert loadings.shape == (6, 3)
    assert np.flatnonzero(loadings.any(axis=1)).tolist() == np.sort(np.argsort(-np.bincount(arms.ravel()))[:2]).tolist()
    assert (loadings.sum(axis=0) >= 0).all()
