"""Models of low rank: projection, improvement, the polish of EM."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from seeds import generator

import lmab
from lmab.estimation import low_rank
from lmab.estimation.climb import Confined, Likelihood, climb
from lmab.estimation.families import observe
from lmab.parallel import SERIAL


def affine_rank(bandit: lmab.LatentBandit) -> int:
    table = bandit.rewards.table if hasattr(bandit.rewards, "table") else bandit.means.T
    return int(np.linalg.matrix_rank(table, tol=1e-7))


def test_projection_finds_a_table_that_has_the_rank(rng):
    bandit = lmab.random_bandit(6, 12, rank=3, rng=rng)
    table = bandit.rewards.table
    np.testing.assert_allclose(low_rank.project(table, bandit.weights, 3).table, table, atol=1e-12)
    assert np.abs(low_rank.project(table, bandit.weights, 2).table - table).max() > 0.01


@given(seed=st.integers(0, 2**32 - 1), rank=st.integers(1, 4), n_values=st.integers(2, 4))
def test_improvement_raises_the_likelihood_and_keeps_rank_and_sums(seed, rank, n_values):
    rng = np.random.default_rng(seed)
    n_arms, n_types = 5, 5
    table = rng.dirichlet(np.ones(n_values), size=(n_arms, n_types)).transpose(0, 2, 1)
    cells = rng.gamma(1.0, size=table.shape) * 10
    cells[0, 0] = 0.0  # arm 0 never pays its first value
    table[0, 0] = 0.0
    table /= table.sum(axis=1, keepdims=True)
    flat = table.reshape(-1, n_types)
    fit = low_rank.positive(low_rank.project(flat, np.full(n_types, 0.2), rank))
    for _ in range(3):
        better = low_rank.improve_probabilities(fit, cells)
        now, then = better.table.reshape(cells.shape), fit.table.reshape(cells.shape)
        np.testing.assert_allclose(now.sum(axis=1), 1, rtol=1e-9)
        np.testing.assert_allclose(now[0, 0], 0, atol=1e-12)
        possible = cells > 0
        assert (now[possible] > 0).all()
        gain = (cells[possible] * (np.log(now[possible]) - np.log(then[possible]))).sum()
        assert gain >= -1e-9 * cells.sum()
        assert np.linalg.matrix_rank(better.table, tol=1e-9) <= rank
        fit = better


def test_improvement_of_full_rank_finds_the_frequencies(rng):
    cells = rng.gamma(2.0, size=(4, 2, 3)) * 10
    start = low_rank.project(rng.dirichlet(np.ones(2), size=(4, 3)).transpose(0, 2, 1).reshape(8, 3), np.ones(3) / 3, 3)
    fit = low_rank.positive(start)
    for _ in range(30):
        fit = low_rank.improve_probabilities(fit, cells)
    expected = cells / cells.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(fit.table.reshape(cells.shape), expected, rtol=1e-6)


@pytest.mark.parametrize("rewards", [None, "gaussian"])
def test_the_objective_never_falls_under_a_rank(rewards, rng):
    if rewards is None:
        bandit = lmab.random_bandit(5, 10, rank=3, rng=rng)
    else:
        means = rng.normal(size=(5, 2)) @ rng.normal(size=(2, 10))
        bandit = lmab.LatentBandit.gaussian(np.full(5, 0.2), means, scale=0.8)
    log = lmab.simulate(bandit, lmab.Uniform(10), n_sessions=400, horizon=5, rng=rng)
    data = observe(log, rewards=rewards)
    task = Confined(Likelihood(data, 5, data.prior(1.0), SERIAL), 3)
    start = np.stack([task.project(model) for model in data.random_models(2, 5, rng)])
    for accelerate in (False, True):
        found = climb(task, start, left=0.0, max_maps=40, accelerate=accelerate)
        for trace, model in zip(found.traces, found.models, strict=True):
            assert (np.diff(trace) >= -1e-9 * np.abs(trace[0])).all()
            assert affine_rank(data.bandit(model, 5)) <= 3


def test_polish_gives_a_valid_model_of_the_rank_nearer_to_the_truth(rng):
    bandit = lmab.random_bandit(6, 20, rank=3, rng=rng)
    log = lmab.simulate(bandit, lmab.Uniform(20), n_sessions=5000, horizon=7, rng=rng)
    free, confined = (
        lmab.fit(log, n_types=6, method=lmab.EM(prior=1.0, rank=rank), rng=generator(0)) for rank in (None, 3)
    )
    assert affine_rank(confined.bandit) == 3
    assert affine_rank(free.bandit) == 6
    assert confined.converged
    assert confined.log_likelihood < free.log_likelihood
    assert confined.bandit.distance(bandit) < free.bandit.distance(bandit)
    assert confined.n_parameters == 5 + 20 + 2 * (5 + 20 - 2)
    assert free.n_parameters == 5 + 6 * 20


def test_a_rank_that_does_not_bind_changes_nothing(rng):
    bandit = lmab.random_bandit(3, 10, rng=rng)
    log = lmab.simulate(bandit, lmab.Uniform(10), n_sessions=500, horizon=5, rng=rng)
    free, loose = (
        lmab.fit(log, n_types=3, method=lmab.EM(rank=rank, prior=0.0), rng=generator(0)) for rank in (None, 3)
    )
    assert free.bandit == loose.bandit
    assert free.n_parameters == loose.n_parameters
    assert lmab.EM(prior=0.0).polish(free, rank=3) is free
    assert lmab.EM(prior=0.0).polish(free, rank=2) is not free


def test_gaussian_polish_has_the_rank(rng):
    means = rng.normal(size=(5, 2)) @ rng.normal(size=(2, 12))
    bandit = lmab.LatentBandit.gaussian(np.full(5, 0.2), means, scale=0.5)
    log = lmab.simulate(bandit, lmab.Uniform(12), n_sessions=2000, horizon=6, rng=rng)
    fit = lmab.fit(log, n_types=5, rewards="gaussian", method=lmab.EM(rank=3, prior=0.0), rng=rng)
    centred = fit.bandit.means - fit.bandit.means.mean(axis=0)
    assert np.linalg.matrix_rank(centred, tol=1e-7) == 2
    assert fit.bandit.rewards.scale == pytest.approx(0.5, abs=0.03)


def test_projection_is_the_best_for_the_weights(rng):
    """Eckart and Young: no table of the rank is nearer, types weighted; the base is the weighted average."""
    table, weights = rng.normal(size=(8, 5)), rng.dirichlet(np.ones(5))
    fit = low_rank.project(table, weights, 3)
    assert fit.loadings.shape == (8, 3)
    np.testing.assert_allclose(fit.table @ weights, table @ weights, atol=1e-9)
    centred = (table - (table @ weights)[:, None]) * np.sqrt(weights)
    left = ((table - fit.table) ** 2 * weights).sum()
    assert left == pytest.approx((np.linalg.svd(centred)[1][2:] ** 2).sum())


def test_tables_are_drawn_to_the_base_until_nothing_is_negative():
    base, move = np.array([0.5, 0.5]), np.array([0.6, -0.6])
    fit = low_rank.LowRank(np.column_stack([base, move]), np.array([[1.0, 1.0], [1.0, -0.5]]))
    drawn = low_rank.positive(fit)
    np.testing.assert_allclose(drawn.table[:, 1], fit.table[:, 1])  # this one was positive
    np.testing.assert_allclose(drawn.table[:, 0], [1 - 0.5e-4, 0.5e-4])


def test_gaussian_improvement_is_weighted_least_squares(rng):
    plays, means = rng.uniform(1, 9, size=(6, 4)), rng.normal(size=(6, 4))
    fit = low_rank.project(means, np.full(4, 0.25), 2)

    def loss(one):
        return (plays * (one.table - means) ** 2).sum()

    losses = [loss(fit)]
    for _ in range(200):
        fit = low_rank.improve_means(fit, plays, plays * means)
        losses.append(loss(fit))
    assert (np.diff(losses) <= 1e-9).all()
    assert losses[-1] < losses[0]
    assert np.linalg.matrix_rank(fit.table - fit.table[:, :1], tol=1e-8) == 1
    full = low_rank.project(means, np.full(4, 0.25), 4)
    full = low_rank.improve_means(full, plays, plays * (means + 1))
    np.testing.assert_allclose(full.table, means + 1, atol=1e-6)


def test_moves_are_halved_until_they_do_no_harm_at_most_twelve_times():
    """From (1/2, 1/2) with counts (1, 3) a move of (-1/4, 1/4) helps, and one of (-1/2, 1/2) does not."""
    sizes = np.array([0.25, 1.0, 1024.0, 2048.0])
    moves = np.append(sizes[:, None] * [-1.0, 1.0], [[-0.1, -0.1]], axis=0)
    table, cells = np.full((5, 2), 0.5), np.tile([1.0, 3.0], (5, 1))
    found = low_rank._line_search(table, moves, cells, np.ones(5), axis=1)
    assert found.tolist() == [1.0, 0.25, 2.0**-12, 0.0, 0.0]
