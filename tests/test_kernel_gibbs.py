"""The Gibbs kernels: reference against enumeration, compiled against reference, draw by draw."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import gibbs as reference
from scipy.special import betaln
from seeds import generator

from lmab._kernel.arrays import BetaGrid
from lmab._kernel.compiled import gibbs as compiled
from lmab.estimation.arm_law import SPREADS, CategoricalArms, beta_grid

KERNELS = [reference, compiled]


def log_of(rng, n_sessions, n_codes, longest):
    lengths = rng.integers(1, longest + 1, size=n_sessions)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return rng.integers(n_codes, size=offsets[-1]).astype(np.uint16), offsets


def table_of(rng, n_codes, n_types):
    return np.concatenate([rng.dirichlet(np.ones(n_types))[None], rng.uniform(0.01, 1, (n_codes, n_types))])


@pytest.mark.parametrize("kernel", KERNELS, ids=["reference", "compiled"])
def test_types_are_drawn_from_their_posterior(kernel, rng):
    codes, offsets = log_of(rng, 1, 6, 5)
    table = table_of(rng, 6, 3)
    posterior = table[0] * table[codes.astype(int) + 1].prod(axis=0)
    n = 20_000
    statistics = np.empty_like(table)
    kernel.categorical(codes, offsets, np.array([float(n)]), table, rng.random(n), statistics)
    np.testing.assert_allclose(statistics[0] / n, posterior / posterior.sum(), atol=0.015)
    for code in range(6):
        np.testing.assert_array_equal(statistics[1 + code], (codes == code).sum() * statistics[0])


@given(
    seed=st.integers(0, 2**32 - 1),
    n_types=st.sampled_from([1, 2, 5, 8, 9, 17]),
    longest=st.integers(1, 400),
    merged=st.booleans(),
)
def test_compiled_types_equal_reference(seed, n_types, longest, merged):
    rng = generator(seed)
    codes, offsets = log_of(rng, 12, 8, longest)
    table = table_of(rng, 8, n_types)
    counts = rng.integers(1, 4, size=12).astype(float) if merged else np.empty(0)
    uniforms = rng.random(int(counts.sum()) if merged else 12)
    found = []
    for kernel in KERNELS:
        found.append(np.full_like(table, np.nan))
        kernel.categorical(codes, offsets, counts, table, uniforms, found[-1])
    np.testing.assert_array_equal(*found)


@given(seed=st.integers(0, 2**32 - 1), n_types=st.integers(1, 5), longest=st.integers(1, 60))
def test_compiled_normal_types_equal_reference(seed, n_types, longest):
    rng = generator(seed)
    arms, offsets = log_of(rng, 12, 4, longest)
    table = np.concatenate([rng.dirichlet(np.ones(n_types))[None], rng.standard_normal((4, n_types))])
    rewards, uniforms, found = rng.standard_normal(len(arms)), rng.random(12), []
    for kernel in KERNELS:
        found.append(np.full((9, n_types), np.nan))
        kernel.gaussian(arms, rewards, offsets, table, 0.7, uniforms, found[-1])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12, atol=1e-12)


def logs_of(kernel, grid, paid, missed, shift):
    masses = np.full((len(paid), len(grid.centre)), np.nan)
    kernel.beta_masses(grid, paid, missed, shift, masses)
    assert (masses.max(axis=1) == 1).all()
    return np.log(masses)


@pytest.mark.parametrize("kernel", KERNELS, ids=["reference", "compiled"])
@pytest.mark.parametrize("most", [1, 5, 16, 17, 900, 50_000])
def test_masses_are_beta_binomial(kernel, rng, most):
    grid = beta_grid()
    paid, missed = rng.integers(0, most, (2, 3, 2)).astype(float)
    first, second = grid.strength * grid.centre, grid.strength * (1 - grid.centre)
    logs = logs_of(kernel, grid, paid, missed, np.zeros((3, 2), np.int64))
    own = (betaln(first + paid[:, :, None], second + missed[:, :, None]) - betaln(first, second)).sum(axis=1)
    expected = np.maximum(own - own.max(axis=1, keepdims=True), -80)
    np.testing.assert_allclose(logs, expected, rtol=1e-9, atol=1e-6)


@given(
    seed=st.integers(0, 2**32 - 1), most=st.sampled_from([3, 9, 900, 50_000]), far=st.integers(0, 70),
    n_types=st.sampled_from([1, 2, 5, 60]), alone=st.booleans(),
)  # fmt: skip
def test_compiled_masses_with_moved_centres_equal_the_reference(seed, most, far, n_types, alone):
    rng, grid = generator(seed), beta_grid(alone=alone)
    paid, missed = rng.integers(0, most, (2, 3, n_types)).astype(float)
    shift = rng.integers(-far, far + 1, (3, n_types))
    found = [logs_of(kernel, grid, paid, missed, shift) for kernel in KERNELS]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9, atol=1e-6)


def test_contradictory_types_of_few_plays_do_not_vanish():
    """Products of many small chances would be zero: their logarithms are added instead."""
    grid = beta_grid(-12.0, 12.0)
    paid, missed = np.tile([[16.0, 0.0]], (1, 40)), np.tile([[0.0, 16.0]], (1, 40))
    shift = np.zeros(paid.shape, np.int64)
    found = [logs_of(kernel, grid, paid, missed, shift) for kernel in KERNELS]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize("kernel", KERNELS, ids=["reference", "compiled"])
@pytest.mark.parametrize("plays", [(2.0, 1.0), (7.0, 3.0), (40.0, 30.0), (3000.0, 2000.0)])
def test_a_moved_centre_is_that_many_places_further_on(kernel, plays):
    grid, k = beta_grid(), len(SPREADS)
    paid, missed = (np.full((1, 1), n) for n in plays)
    found = {places: logs_of(kernel, grid, paid, missed, np.full((1, 1), places))[0] for places in (0, 2, -60)}
    part = found[0][2 * k :]
    expected = np.maximum(part - part.max(), -80)
    inside = (part > -79) & (expected > -79)  # where neither is cut off
    np.testing.assert_allclose(found[2][: -2 * k][inside] - found[2][: -2 * k].max(), expected[inside], atol=1e-6)
    first = found[0][:k] - found[0][:k].max()
    far = (found[0][:k] > -79) & (first > -79)
    whole = np.tile(first, len(grid.centre) // k)[np.tile(far, len(grid.centre) // k)]
    np.testing.assert_allclose(found[-60][np.tile(far, len(grid.centre) // k)], whole, atol=1e-6)


@given(seed=st.integers(0, 2**32 - 1), n_arms=st.integers(1, 20), every=st.integers(1, 3), alone=st.booleans())
def test_compiled_laws_equal_reference(seed, n_arms, every, alone):
    rng = generator(seed)
    grid, judges = beta_grid(alone=alone), np.arange(0, n_arms, every)
    masses = np.exp(np.maximum(rng.normal(0, 5, (n_arms, len(grid.centre))) - 20, -80))
    uniforms, found = rng.random(2 + n_arms), []
    for kernel in KERNELS:
        state, choice = np.array([0 if alone else 3, 100]), np.empty(n_arms, np.int64)
        kernel.laws(grid, masses, judges, state, uniforms, choice)
        found.append(np.concatenate([state, choice]))
    np.testing.assert_array_equal(*found)


@given(seed=st.integers(0, 2**32 - 1), n_types=st.integers(1, 4), slope=st.sampled_from([0.0, 0.7, -2.0]))
def test_a_compiled_split_equals_the_reference(seed, n_types, slope):
    rng, grid, found = generator(seed), beta_grid(table=64), []
    paid, missed = rng.integers(0, 30, (2, 6, n_types)).astype(float)
    before = rng.uniform(0.01, 0.99, (6, n_types))
    for kernel in KERNELS:
        state, choice, shares = np.array([3, 100]), np.empty(6, np.int64), np.empty((6, n_types))
        kernel.draw_split(
            grid, paid, missed, before, slope, np.arange(6), state, choice, shares, np.random.default_rng(seed)
        )  # fmt: skip
        found.append(np.concatenate([state, choice, shares.ravel()]))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12)


@given(seed=st.integers(0, 2**32 - 1), n_values=st.integers(1, 7))
def test_compiled_slopes_and_joined_shares_equal_the_reference(seed, n_values):
    rng, ends = generator(seed), CategoricalArms(4, np.arange(float(n_values)))._ends
    counts = rng.integers(0, 9, (4, 5, 3)).astype(float)
    a, b, c, d = counts
    assert compiled.slope(a, b, c, d, 2.0) == pytest.approx(reference.slope(a, b, c, d, 2.0))
    shares, found = rng.random((n_values - 1, 4, 3)), []
    for kernel in KERNELS:
        found.append(np.full((4, n_values, 3), np.nan))
        kernel.join(ends, shares, found[-1])
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(found[0].sum(axis=1), 1)


def small_grid(rng, n_laws, n_centres, n_spreads, n_spread_laws):
    """A grid of which only the laws are looked at."""
    nothing, laws = np.zeros(n_centres * n_spreads), rng.dirichlet(np.ones(n_centres), n_laws)
    spread_laws = rng.dirichlet(np.ones(n_spreads), n_spread_laws)
    tables = np.zeros((3, 1, len(nothing))), np.zeros((1, 1, len(nothing)))
    return BetaGrid(1.0, nothing, nothing, laws, np.zeros(n_laws), spread_laws, np.zeros(n_spread_laws), *tables)


@pytest.mark.parametrize("kernel", KERNELS, ids=["reference", "compiled"])
def test_laws_follow_their_conditional_distributions(kernel, rng):
    """Small grids: frequencies of the two drawn laws against enumeration over the arm's own pair."""
    grid = small_grid(rng, 2, 4, 2, 3)._replace(
        spread_prior=np.log([0.2, 0.3, 0.5]), centre_prior=np.log([0.8, 0.2])
    )  # fmt: skip
    masses = np.exp(rng.normal(size=(2, 8)))
    raised = masses.reshape(2, 4, 2)
    mass = np.einsum("agk,g,lk->al", raised, grid.centre_laws[1], grid.spread_laws)
    expected = np.exp(grid.spread_prior) * mass.prod(axis=0)
    given = np.exp(grid.centre_prior) * np.einsum("agk,bg,lk->lab", raised, grid.centre_laws, grid.spread_laws).prod(
        axis=1
    )
    counts, centres = np.zeros(3), np.zeros((3, 2))
    for _ in range(4000):
        state, choice = np.array([0, 1]), np.empty(2, np.int64)
        kernel.laws(grid, masses, np.arange(2), state, rng.random(4), choice)
        counts[state[0]] += 1
        centres[tuple(state)] += 1
    np.testing.assert_allclose(counts / counts.sum(), expected / expected.sum(), atol=0.03)
    found = centres / centres.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, given / given.sum(axis=1, keepdims=True), atol=0.05)


@pytest.mark.parametrize("kernel", KERNELS, ids=["reference", "compiled"])
def test_pairs_follow_their_conditional_distribution(kernel, rng):
    grid = small_grid(rng, 1, 4, 2, 1)
    masses = np.exp(rng.normal(size=(1, 8)))
    expected = masses.reshape(4, 2) * grid.centre_laws[0][:, None] * grid.spread_laws[0]
    counts, choice = np.zeros(8), np.empty(1, np.int64)
    for _ in range(6000):
        kernel.laws(grid, masses, np.arange(0), np.array([0, 0]), rng.random(3), choice)
        counts[choice[0]] += 1
    np.testing.assert_allclose(counts / counts.sum(), expected.ravel() / expected.sum(), atol=0.025)


@pytest.mark.parametrize("kernel", KERNELS, ids=["reference", "compiled"])
def test_without_judges_the_laws_stay_and_arms_are_drawn(kernel, rng):
    grid = small_grid(rng, 4, 4, 2, 3)
    state, choice = np.array([2, 1]), np.full(5, -1)
    kernel.laws(grid, np.exp(rng.normal(size=(5, 8))), np.arange(0), state, rng.random(7), choice)
    assert state.tolist() == [2, 1]
    assert (choice >= 0).all()


def test_laws_of_many_splits_of_many_arms_are_drawn_in_turn_by_arms_that_were_played():
    def drawn(n_arms: int, n_values: int, sweep: int) -> list[int]:
        arms = CategoricalArms(n_arms, np.arange(float(n_values)))
        arms._sweep = sweep
        plays = np.ones((n_arms, 2))
        plays[0] = 0.0
        return [len(arms._judges(i, plays)) for i in range(n_values - 1)]

    assert drawn(200, 10, 0) == [199, 0, 0] * 3
    assert drawn(200, 10, 1) == [0, 0, 199] * 3
    assert drawn(100, 5, 0) == [99] * 4
    assert drawn(600, 2, 3) == [599]
