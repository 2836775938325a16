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
    total = np.zeros(())
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


@given(st.integers(1, 6), st.integers(1, 60), st.floats(0, 0.2), st.floats(0, 0.2), st.integers(0, 10**6))
def test_proposition_2_5_vectors_near_the_subspace_are_rebuilt(rank, extra, off, noise, seed):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((rank + extra, rank)) * rng.exponential(size=(rank + extra, 1))
    design = lmab.design(features)
    vector = features @ rng.standard_normal(rank) + off * rng.uniform(-1, 1, len(features))
    seen = vector[design.support] + noise * rng.choice([-1, 1], len(design.support))
    error = np.abs(design.reconstruction @ seen - vector).max()
    assert error <= theory.reconstruction_error(rank, off, noise) * (1 + 1e-9) + 1e-9


@given(st.integers(1, 3), st.integers(2, 8), st.integers(1, 3), st.integers(0, 10**6))
def test_lemma_a_4_any_core_parameters_agree_after_reconstruction(rank, n_rows, order, seed):
    """The core parameters need not lie in the subspace: only the rows of T matter."""
    rng = np.random.default_rng(seed)
    design = lmab.design(rng.standard_normal((n_rows + rank, rank)))
    weights, others = rng.dirichlet(np.ones(2)), rng.dirichlet(np.ones(3))
    nu, guess = rng.random((2, len(design.support))), rng.random((3, len(design.support)))
    core = moment(weights, nu, order) - moment(others, guess, order)
    transform = design.reconstruction.T
    every = moment(weights, nu @ transform, order) - moment(others, guess @ transform, order)
    assert np.abs(every).max() <= theory.moments_from_core(rank, order, np.abs(core).max()) * (1 + 1e-9) + 1e-12


@given(st.integers(1, 4), st.integers(0, 8), st.floats(1e-6, 1.0), st.integers(0, 10**6))
def test_lemma_3_7_contexts_are_near_the_leading_subspace(n_contexts, extra, error, seed):
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(n_contexts))
    contexts = rng.random((n_contexts, n_contexts + extra))
    second = contexts.T @ (weights[:, None] * contexts)
    noise = rng.standard_normal(second.shape)
    noise = error * (noise + noise.T) / np.linalg.norm(noise + noise.T, 2)
    leading = np.linalg.eigh(second + noise)[1][:, -n_contexts:]
    for weight, context in zip(weights, contexts, strict=True):
        missed = np.linalg.norm(context - leading @ (leading.T @ context))
        assert missed <= theory.off_subspace(error, weight) + 1e-9


@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 10**6))
def test_lemma_4_1_total_variation_bounds_the_moments(n_core, horizon, seed):
    """Its proof: with uniformly random core plays, moments of order l differ by at most n^l times the variation."""
    rng = np.random.default_rng(seed)
    one, two = (lmab.LatentBandit.bernoulli(rng.dirichlet([1, 1]), rng.random((2, n_core))) for _ in range(2))
    codes = 2 * n_core  # (core pair, hit or not), so that a whole episode is an entry of the moment of order H
    laws = [moment(bandit.weights, bandit.rewards.table.T, horizon) / n_core**horizon for bandit in (one, two)]
    assert laws[0].size == codes**horizon
    variation = np.abs(laws[0] - laws[1]).sum()
    for order in range(1, horizon + 1):
        gap = moment(one.weights, one.means, order) - moment(two.weights, two.means, order)
        assert np.abs(gap).max() <= n_core**order * variation + 1e-12


@given(st.integers(2, 4), st.integers(2, 10), st.integers(2, 4), st.integers(0, 10**6))
def test_lemma_c_2_separated_contexts_are_separated_on_the_core_set(n_contexts, n_arms, n_values, seed):
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.ones(n_values), size=(n_contexts, n_arms))
    bandit = lmab.LatentBandit.categorical(np.full(n_contexts, 1 / n_contexts), probabilities, np.arange(n_values))
    table = bandit.rewards.table
    design = lmab.design(table)
    gamma = theory.separation(bandit.rewards.distances(bandit.rewards))
    core = table[design.support]
    apart = [np.abs(core[:, i] - core[:, j]).max() for i in range(n_contexts) for j in range(i)]
    assert min(apart) >= theory.core_separation(n_contexts, n_values, gamma) * (1 - 1e-9)


@given(st.floats(0.02, 0.3), st.integers(1, 4), st.lists(st.floats(-1, 1), min_size=1, max_size=3))
def test_lemma_b_5_rewards_on_a_grid_keep_the_value(epsilon, horizon, means):
    """For a fixed arm both values are known: |V - V~| <= 10 epsilon."""
    from scipy.stats import norm

    grid = theory.gaussian_grid(horizon, epsilon)
    middles = (grid[1:] + grid[:-1]) / 2  # the density is constant between two points
    total = 0.0
    for mean in means:
        mass = np.diff(norm.cdf(grid - mean))
        total += horizon * float(mass @ middles) * mass.sum() ** (horizon - 1) / len(means)
    assert abs(total - horizon * np.mean(means)) <= 10 * epsilon


@given(st.integers(1, 40), st.integers(1, 200), st.floats(1e-6, 0.9))
def test_budgets_beyond_the_numeric_range_are_infinite_not_errors(n_contexts, horizon, epsilon):
    for asked in (theory.budget, theory.gaussian_budget):
        assert asked(n_contexts, 50, horizon, epsilon).total > 0


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
