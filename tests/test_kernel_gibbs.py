"""The Gibbs kernels: reference against enumeration, compiled against reference, draw by draw."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import gibbs as reference
from scipy.special import betaln
from seeds import generator

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


@given(seed=st.integers(0, 2**32 - 1), n_types=st.integers(1, 5), longest=st.integers(1, 400), merged=st.booleans())
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


@pytest.mark.parametrize("kernel", KERNELS, ids=["reference", "compiled"])
@pytest.mark.parametrize("most", [5, 900, 50_000])
def test_evidence_is_beta_binomial(kernel, rng, most):
    grid = beta_grid()
    paid, missed = rng.integers(0, most, (2, 3, 2)).astype(float)
    first, second = grid.strength * grid.centre, grid.strength * (1 - grid.centre)
    evidence = np.zeros((3, len(first)))
    kernel.beta_evidence(
        paid, missed, first, second, grid.rising, np.zeros((3, 2), np.int64), len(SPREADS), evidence
    )  # fmt: skip
    own = betaln(first + paid[:, :, None], second + missed[:, :, None]) - betaln(first, second)
    np.testing.assert_allclose(evidence, own.sum(axis=1), rtol=1e-9, atol=1e-6)


@given(seed=st.integers(0, 2**32 - 1), most=st.sampled_from([3, 900, 50_000]), far=st.integers(0, 70))
def test_compiled_evidence_with_moved_centres_equals_reference(seed, most, far):
    rng, grid = generator(seed), beta_grid()
    paid, missed = rng.integers(0, most, (2, 3, 2)).astype(float)
    shift, found = rng.integers(-far, far + 1, (3, 2)), []
    first, second = grid.strength * grid.centre, grid.strength * (1 - grid.centre)
    for kernel in KERNELS:
        found.append(np.zeros((3, len(first))))
        kernel.beta_evidence(paid, missed, first, second, grid.rising, shift, len(SPREADS), found[-1])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize("kernel", KERNELS, ids=["reference", "compiled"])
def test_a_moved_centre_is_that_many_places_further_on(kernel):
    grid = beta_grid()
    first, second = grid.strength * grid.centre, grid.strength * (1 - grid.centre)
    found = {}
    for places in (0, 2, -60):
        found[places] = np.zeros((1, len(first)))
        shift = np.full((1, 1), places)
        kernel.beta_evidence(
            np.full((1, 1), 7.0), np.full((1, 1), 3.0), first, second, grid.rising, shift, len(SPREADS), found[places]
        )  # fmt: skip
    k = len(SPREADS)
    np.testing.assert_allclose(found[2][0, : -2 * k], found[0][0, 2 * k :], rtol=1e-9)
    np.testing.assert_allclose(found[-60][0], np.tile(found[0][0, :k], len(first) // k), rtol=1e-9)


@given(seed=st.integers(0, 2**32 - 1), n_arms=st.integers(1, 20), every=st.integers(1, 3))
def test_compiled_laws_equal_reference(seed, n_arms, every):
    rng = generator(seed)
    grid, judges = beta_grid(), np.arange(0, n_arms, every)
    evidence = rng.normal(0, 5, (n_arms, len(grid.centre)))
    uniforms, found = rng.random(2 + n_arms), []
    for kernel in KERNELS:
        state, choice = np.array([3, 100]), np.empty(n_arms, np.int64)
        kernel.laws(
            evidence, grid.centre_laws, grid.centre_prior, grid.spread_laws, grid.spread_prior,
            judges, state, uniforms, choice,
        )  # fmt: skip
        found.append(np.concatenate([state, choice]))
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("kernel", KERNELS, ids=["reference", "compiled"])
def test_laws_follow_their_conditional_distributions(kernel, rng):
    """Small grids: frequencies of the two drawn laws against enumeration over the arm's own pair."""
    centre_laws, spread_laws = rng.dirichlet(np.ones(3), 2), rng.dirichlet(np.ones(2), 3)
    evidence, spread_prior, centre_prior = rng.normal(size=(2, 6)), np.log([0.2, 0.3, 0.5]), np.log([0.8, 0.2])
    raised = np.exp(evidence).reshape(2, 3, 2)
    mass = np.einsum("agk,g,lk->al", raised, centre_laws[1], spread_laws)
    expected = np.exp(spread_prior) * mass.prod(axis=0)
    given = np.exp(centre_prior) * np.einsum("agk,bg,lk->lab", raised, centre_laws, spread_laws).prod(axis=1)
    counts, centres = np.zeros(3), np.zeros((3, 2))
    for _ in range(4000):
        state, choice = np.array([0, 1]), np.empty(2, np.int64)
        kernel.laws(
            evidence, centre_laws, centre_prior, spread_laws, spread_prior, np.arange(2), state, rng.random(4), choice
        )  # fmt: skip
        counts[state[0]] += 1
        centres[tuple(state)] += 1
    np.testing.assert_allclose(counts / counts.sum(), expected / expected.sum(), atol=0.03)
    found = centres / centres.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, given / given.sum(axis=1, keepdims=True), atol=0.05)


@pytest.mark.parametrize("kernel", KERNELS, ids=["reference", "compiled"])
def test_without_judges_the_laws_stay_and_arms_are_drawn(kernel, rng):
    centre_laws, spread_laws = rng.dirichlet(np.ones(3), 4), rng.dirichlet(np.ones(2), 3)
    state, choice = np.array([2, 1]), np.full(5, -1)
    kernel.laws(
        rng.normal(size=(5, 6)), centre_laws, np.zeros(4), spread_laws, np.zeros(3), np.arange(0), state,
        rng.random(7), choice,
    )  # fmt: skip
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
