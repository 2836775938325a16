from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lmab
from lmab import theory


def test_regimes():
    assert theory.identifiable(3, 5)
    assert not theory.identifiable(3, 4)
    assert theory.budget(3, 10, 5, 0.1).order == 5
    assert theory.budget(3, 10, 4, 0.1).order == 4
    assert theory.budget(3, 10, 40, 0.1).order == 5


def test_core_set_size():
    assert [theory.core_set_size(k) for k in (1, 2, 3, 10)] == [16, 16, 17, 49]


def test_accuracies_as_printed():
    assert theory.delta_sub(2, 2, 3, 0.1, 0.5) == pytest.approx(0.1 / (2 * 2 * 2 * 9))
    assert theory.delta_tsr(2, 2, 3, 0.1, 16) == pytest.approx((0.1 / (2 * 9 * 2**3.5 * 16)) ** 3)
    smallest = 0.3 + 0.1 / (2 * 4 * (2 * 2) ** 2)
    expected = min(math.sqrt(smallest), 0.1 / (2 * math.sqrt(2))) / (2 * 2 * math.sqrt(2) * 2)
    assert theory.delta_sub(2, 2, 2, 0.1, 0.3) == pytest.approx(expected)
    assert theory.delta_tsr(2, 2, 2, 0.1, 16) == pytest.approx(0.05 / 16)


@given(st.integers(2, 4), st.integers(2, 50), st.integers(2, 8), st.floats(0.01, 0.5))
def test_theorem_3_8_asks_for_more_when_more_is_asked(n_contexts, n_arms, horizon, epsilon):
    asked = theory.budget(n_contexts, n_arms, horizon, epsilon)
    assert theory.budget(n_contexts, n_arms + 1, horizon, epsilon).subspace_episodes > asked.subspace_episodes
    assert theory.budget(n_contexts, n_arms + 1, horizon, epsilon).tensor_episodes == asked.tensor_episodes
    assert theory.budget(n_contexts, n_arms, horizon, epsilon / 2).total > asked.total
    assert asked.total == asked.subspace_episodes + asked.tensor_episodes


def test_polynomial_in_the_number_of_arms():
    totals = [theory.budget(2, a, 2, 0.1).subspace_episodes for a in (10, 100)]
    assert totals[1] / totals[0] < 100**4 / 10**4 * 2


def test_lemma_4_1_is_solved():
    n = theory.likelihood_episodes(16, 2, 3, 0.01, 0.1)
    factor = 16**7 / 0.01**2
    assert n == pytest.approx(factor * math.log(n / 0.1), rel=1e-9)


def test_gaussian_budgets():
    long, short = theory.gaussian_budget(2, 10, 3, 0.1), theory.gaussian_budget(2, 10, 2, 0.1)
    assert long.grid_size is None
    assert short.grid_size == math.floor(8 * 4 * math.sqrt(math.log(20)) / 0.1)
    grid = theory.gaussian_grid(2, 0.1)
    assert len(grid) == short.grid_size
    np.testing.assert_allclose(np.diff(grid), 0.1 / 4)


def test_separation_of_a_known_case():
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.25, 0.25], [[0.1, 0.5], [0.4, 0.5], [0.4, 0.9]])
    assert theory.separation(bandit.rewards.distances(bandit.rewards)) == pytest.approx(0.6)
    assert theory.separated_horizon(16, 3, 2, 0.6, 0.1, 0.25) == pytest.approx(16 * 3 * 4 * math.log(40) / 0.36)
    n = theory.separated_episodes(16, 0.1, 0.25, 0.1)
    assert n == pytest.approx(16 / 0.025**2 * math.log(n / 0.1), rel=1e-9)


def moment(weights, vectors, order):
    """sum_m w_m v_m^{tensor order}, by brute force."""
    total = 0.0
    for weight, vector in zip(weights, vectors, strict=True):
        power = np.array(weight)
        for _ in range(order):
            power = np.multiply.outer(power, vector)
        total = total + power
    return total


@given(st.integers(1, 3), st.integers(0, 10**6))
def test_lemma_3_5_values_follow_from_moments_of_order_h(horizon, seed):
    rng = np.random.default_rng(seed)
    one = lmab.LatentBandit.bernoulli(rng.dirichlet([1, 1]), rng.random((2, 2)))
    two = lmab.LatentBandit.bernoulli(rng.dirichlet([1, 1]), np.clip(one.means + rng.normal(0, 0.05, (2, 2)), 0, 1))
    gap = moment(one.weights, one.rewards.table.T, horizon) - moment(two.weights, two.rewards.table.T, horizon)
    for policy in (lmab.Greedy(one), lmab.Greedy(two), lmab.Stationary(0)):
        values = [lmab.evaluate(policy, bandit, horizon=horizon).mean for bandit in (one, two)]
        assert abs(values[0] - values[1]) <= theory.value_gap_of_moments(horizon, 2, np.abs(gap).max()) + 1e-12


@given(st.integers(2, 3), st.integers(3, 8), st.integers(1, 3), st.integers(0, 10**6))
def test_proposition_3_6_moments_follow_from_the_core_set(n_contexts, n_rows, order, seed):
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((n_rows, n_contexts)))[0] if n_rows >= n_contexts else np.eye(n_rows)
    design = lmab.design(basis)
    weights, others = rng.dirichlet(np.ones(n_contexts)), rng.dirichlet(np.ones(n_contexts))
    true, close = (basis @ rng.standard_normal((basis.shape[1], n_contexts)) for _ in range(2))
    core = moment(weights, true[design.support].T, order) - moment(others, close[design.support].T, order)
    every = moment(weights, true.T, order) - moment(others, close.T, order)
    limit = theory.moments_from_core(basis.shape[1], order, np.abs(core).max())
    assert np.abs(every).max() <= limit * (1 + 1e-9) + 1e-12


@given(st.integers(0, 10**6))
def test_lemma_3_3_parameters_follow_from_moments(seed):
    """With the exponent +1/(2M - 1): small moment gaps mean small distances. The constant is taken as 1."""
    rng = np.random.default_rng(seed)
    one = lmab.LatentBandit.bernoulli(rng.dirichlet([5, 5]), rng.random((2, 2)))
    two = lmab.LatentBandit.bernoulli(rng.dirichlet([5, 5]), np.clip(one.means + rng.normal(0, 0.02, (2, 2)), 0, 1))
    gaps = [moment(one.weights, one.means, i) - moment(two.weights, two.means, i) for i in (1, 2, 3)]
    delta = max(np.abs(gap).max() for gap in gaps)
    assert one.distance(two) / 2 <= theory.distance_of_moments(2, 2, delta)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.budget(0, 10, 3, 0.1), "n_contexts must be"),
        (lambda: theory.budget(2, 10, 3, 0.0), r"epsilon must be in \(0, horizon\), got 0.0"),
        (lambda: theory.budget(2, 10, 3, 0.1, eta=1.5), r"eta must be in \(0, 1\), got 1.5"),
        (lambda: theory.budget(2, 10, 3, 0.1, w_min=0.6), r"w_min must be in \(0, 1/2\], got 0.6"),
        (lambda: theory.budget(2, 10, 3, 0.1, n_values=1), "n_values must be"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_value_gap_is_proposition_3_4():
    assert theory.value_gap(3, 0.5) == 4.5
