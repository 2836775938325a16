from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from seeds import generator

import lmab
from lmab.moments.second import Subspace


def support_limit(k: int) -> float:
    return 4 * k * math.log(math.log(k)) + 16 if k >= 3 else 16


@st.composite
def feature_matrices(draw):
    """Tall matrices, some rank-deficient, some with duplicated or zero rows."""
    k, extra = draw(st.integers(1, 12)), draw(st.integers(0, 300))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    features = rng.standard_normal((k + extra, k)) * rng.exponential(size=(k + extra, 1))
    if draw(st.booleans()) and k > 1:
        features[:, -1] = features[:, 0]
    if draw(st.booleans()):
        features = np.vstack([features, features[: k // 2 + 1]])
    if draw(st.booleans()):
        features[:: max(len(features) // 3, 2)] = 0
    return features if features.any() else features + 1.0


@given(feature_matrices())
def test_theorem_2_4_g_is_at_most_2k_on_a_small_support(features):
    design = lmab.moments.design(features)
    k = np.linalg.matrix_rank(features)
    assert design.rank == k
    assert design.g <= 2 * k + 1e-9
    assert len(design.support) <= support_limit(k)
    assert design.rho.sum() == pytest.approx(1)
    assert (design.rho > 0).all()
    information = features[design.support].T @ (design.rho[:, None] * features[design.support])
    norms = np.einsum("ij,jk,ik->i", features, np.linalg.pinv(information, rcond=1e-12), features)
    assert norms.max() == pytest.approx(design.g, rel=1e-6)


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 20))])
def test_many_shapes_keep_the_limits(seed):
    rng = generator(seed)
    for _ in range(10):
        d, k = int(rng.integers(1, 2000)), int(rng.integers(1, 40))
        features = rng.standard_normal((d, k)) @ rng.standard_normal((k, k)) * rng.pareto(1.5, size=(d, 1))
        features[rng.random(d) < 0.2] = 0
        features[rng.integers(d, size=d // 3)] = features[0]
        if not features.any():
            continue
        design = lmab.moments.design(features)
        assert design.g <= 2 * design.rank + 1e-9
        assert len(design.support) <= support_limit(design.rank)


def best_g(features: np.ndarray, rows: np.ndarray) -> float:
    """The least g that weights on `rows` can reach, nearly: the multiplicative algorithm of optimal design."""
    weights = np.full(len(rows), 1 / len(rows))
    for _ in range(1000):
        inverse = np.linalg.inv(features[rows].T @ (weights[:, None] * features[rows]))
        scores = np.einsum("ij,jk,ik->i", features, inverse, features)
        weights *= scores[rows] / features.shape[1]
    return float(scores.max())


@pytest.mark.parametrize("seed", range(4))
def test_no_row_of_the_support_can_be_spared(seed):
    """What the optimal weights on the other rows reach is above 2k, whichever row of the support is left out."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((400, 10)) * rng.exponential(size=(400, 1))
    support = lmab.moments.design(features).support
    for row in support:
        others = np.setdiff1d(support, row)
        if np.linalg.matrix_rank(features[others]) == 10:
            assert best_g(features, others) > 2 * 10


def test_twins_are_not_both_kept():
    """Neighbours on a fine grid say nearly the same: at a tight target one of them is enough for each root."""
    grid = np.linspace(-1, 1, 1000)  # the roots of the cubic lie between points of this grid
    features = np.vander(grid, 4, increasing=True)
    assert len(lmab.moments.design(features, tolerance=1e-3).support) == 4
    assert len(lmab.moments.design(np.repeat(np.eye(3), 5, axis=0)).support) == 3


@pytest.mark.parametrize(
    ("degree", "determinant"), [(1, 1), (2, 0.148148), (3, 0.00512), (4, 4.29722e-5), (5, 8.87350e-8)]
)
def test_polynomial_regression_has_its_published_design(degree, determinant):
    """Support on the roots of (1 - x^2) P_d'(x), equal weights, g = d + 1 (Guest 1958, Hoel 1958)."""
    grid = np.linspace(-1, 1, 2001)
    features = np.vander(grid, degree + 1, increasing=True)
    design = lmab.moments.design(features, tolerance=1e-6)
    inner = np.polynomial.legendre.Legendre.basis(degree).deriv().roots()
    roots = np.sort(np.concatenate([[-1, 1], inner.real]))
    nearest = np.abs(grid[design.support][:, None] - roots).argmin(axis=1)
    assert np.abs(grid[design.support] - roots[nearest]).max() <= 0.001 + 1e-12
    np.testing.assert_allclose(np.bincount(nearest, design.rho), 1 / (degree + 1), atol=1e-4)
    assert design.g == pytest.approx(degree + 1, abs=1e-4)
    assert design.g <= (1 + 1e-6) * (degree + 1)
    information = features[design.support].T @ (design.rho[:, None] * features[design.support])
    assert np.linalg.det(information) == pytest.approx(determinant, rel=1e-4)


@given(feature_matrices(), st.integers(0, 1000))
def test_lemma_3_1_reconstruction_is_exact_on_the_span_and_stable(features, seed):
    design = lmab.moments.design(features)
    transform = design.reconstruction
    assert np.abs(transform).sum(axis=1).max() <= np.sqrt(2 * design.rank) + 1e-9
    rng = np.random.default_rng(seed)
    u, v = (
        features @ rng.standard_normal((features.shape[1], 2)).T[0],
        features @ rng.standard_normal(features.shape[1]),
    )
    scale = max(np.abs(u).max(), 1e-9)
    np.testing.assert_allclose(transform @ u[design.support] / scale, u / scale, atol=1e-7)
    worst = np.abs((u - v)[design.support]).max()
    assert np.abs(u - v).max() <= np.sqrt(2 * design.rank) * worst * (1 + 1e-7) + 1e-12


@given(st.integers(2, 5), st.integers(3, 15), st.integers(2, 4), st.integers(0, 10**6))
@example(5, 4, 2, 2)  # where a row could be spared by its rank but not by its condition
def test_corollary_3_2_core_pairs_bound_the_distance_of_whole_models(n_types, n_arms, n_values, seed):
    from lmab import theory

    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.ones(n_values), size=(n_types, n_arms)).reshape(n_types, -1)
    basis = np.linalg.qr(probabilities.T)[0]
    design = lmab.moments.design(Subspace(basis, np.ones(n_types), n_arms, np.arange(float(n_values))))
    other = rng.dirichlet(np.ones(n_types)) @ probabilities  # another element of the span
    difference = (probabilities[0] - other).reshape(n_arms, n_values)
    left = np.abs(difference).sum(axis=1).max()
    core = float(np.abs((probabilities[0] - other)[design.support]).max())
    assert left <= theory.model_distance(n_types, n_values, core) + 1e-12


def test_pairs_name_arms_and_values(rng):
    bandit = lmab.LatentBandit.categorical([0.5, 0.5], rng.dirichlet(np.ones(3), size=(2, 6)), [-1, 0, 2])
    basis = np.linalg.qr(bandit.rewards.table)[0]
    space = Subspace(basis, np.ones(2), 6, bandit.rewards.values)
    design = lmab.moments.design(space)
    assert design.pairs == [(row // 3, [-1, 0, 2][row % 3]) for row in design.support.tolist()]
    assert design.arms == sorted({arm for arm, _ in design.pairs})
    arms = lmab.moments.design(space, events="arms")
    assert len(arms.pairs) == 3 * len(arms.arms)
    np.testing.assert_allclose(
        arms.reconstruction @ bandit.rewards.table[arms.support], bandit.rewards.table, atol=1e-9
    )


def test_remark_a_1_events_bound_the_l1_distance(rng):
    probabilities = rng.dirichlet(np.ones(3), size=(2, 8))
    basis = np.linalg.qr(probabilities.reshape(2, -1).T)[0]
    space = Subspace(basis, np.ones(2), 8, np.arange(3.0))
    design = lmab.moments.design(space, events="events")
    assert len(design.coordinates) == 8 * 7
    difference = probabilities[0] - probabilities[1]
    core = max(abs(sum(difference[arm, int(v)] for v in event)) for arm, event in design.pairs)
    assert 0.5 * np.abs(difference).sum(axis=1).max() <= np.sqrt(2 * 2) * core + 1e-12


def test_rows_of_gaussian_subspaces_are_arms(rng):
    design = lmab.moments.design(Subspace(np.linalg.qr(rng.standard_normal((30, 3)))[0], np.ones(3), 30, None))
    assert design.pairs == [(arm, None) for arm in design.arms]


def test_the_basis_does_not_matter(rng):
    features = rng.standard_normal((200, 4))
    first = lmab.moments.design(features, tolerance=1e-6)
    second = lmab.moments.design(features @ rng.standard_normal((4, 4)) * 1e5, tolerance=1e-6)
    np.testing.assert_array_equal(first.support, second.support)
    np.testing.assert_allclose(first.rho, second.rho, atol=1e-6)


def test_round_trip_through_a_file(rng, tmp_path):
    design = lmab.moments.design(
        Subspace(np.linalg.qr(rng.standard_normal((20, 3)))[0], np.ones(3), 10, np.array([0.0, 1.0]))
    )
    design.save(tmp_path / "core.lmab")
    again = lmab.load(tmp_path / "core.lmab")
    assert (again.g, again.pairs) == (design.g, design.pairs)
    np.testing.assert_array_equal(again.reconstruction, design.reconstruction)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lmab.moments.design(np.zeros((5, 2))), "a row that is not zero"),
        (lambda: lmab.moments.design(np.ones((5, 2)), tolerance=0), "tolerance must be a positive number, got 0"),
        (
            lambda: lmab.moments.design(np.ones((5, 2)), events="all"),
            "events must be 'pairs', 'events' or 'arms', got 'all'",
        ),
        (
            lambda: lmab.moments.design(np.ones((5, 2)), events="arms"),
            "events must be 'pairs' for a raw feature matrix",
        ),
        (lambda: lmab.moments.design(np.array([[1.0, np.nan]])), "subspace must be finite"),
        (lambda: lmab.moments.design(np.ones((5, 2))).pairs, "pairs are known for the design of a Subspace"),
        (
            lambda: lmab.moments.design(Subspace(np.ones((26, 1)), np.ones(1), 2, np.arange(13.0)), events="events"),
            "events must be 'pairs' for more than 12 values",
        ),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_default_tolerance_is_the_papers_factor_two(rng):
    features = rng.standard_normal((300, 5))
    assert lmab.moments.design(features).g == lmab.moments.design(features, tolerance=1.0).g
    assert 5 <= lmab.moments.design(features, tolerance=0.01).g <= 5.05
    assert lmab.moments.design(features).g > 5.05


def test_all_pairs_of_the_core_arms_keep_the_weights(rng):
    space = Subspace(np.linalg.qr(rng.standard_normal((20, 3)))[0], np.ones(3), 10, np.array([0.0, 1.0]))
    pairs, arms = lmab.moments.design(space), lmab.moments.design(space, events="arms")
    kept = dict(zip(arms.support.tolist(), arms.rho.tolist(), strict=True))
    assert sorted(kept) == sorted({2 * (row // 2) + z for row in pairs.support.tolist() for z in (0, 1)})
    for row, weight in kept.items():
        expected = dict(zip(pairs.support.tolist(), pairs.rho.tolist(), strict=True)).get(row, 0.0)
        assert weight == pytest.approx(expected)
    np.testing.assert_allclose(arms.reconstruction @ space.basis[arms.support], space.basis, atol=1e-9)


def test_a_design_of_rows_that_do_not_exist_is_refused(rng):
    from dataclasses import replace

    record = lmab.moments.design(rng.standard_normal((20, 3))).record()
    for row in (-1, 20):
        support = np.array([0, 1, row])
        with pytest.raises(ValueError, match="names rows that do not exist"):
            lmab.moments.Design.from_record(replace(record, arrays={**record.arrays, "support": support}))


def test_columns_that_nearly_depend_on_each_other_are_told_from_those_that_do(rng):
    features = rng.standard_normal((50, 3))
    assert lmab.moments.design(np.column_stack([features, features @ [1.0, 2.0, 3.0]])).rank == 3
    assert lmab.moments.design(np.column_stack([features, features[:, 0] + 1e-5 * rng.standard_normal(50)])).rank == 4


def test_an_event_of_several_values_may_be_as_wrong_as_all_of_them_together(rng):
    basis = np.linalg.qr(rng.random((6, 2)))[0]
    space = Subspace(basis, np.ones(2), 2, np.array([0.0, 1.0, 2.0]), error=0.1)
    errors = {events: lmab.moments.design(space, events=events).error for events in ("pairs", "arms", "events")}
    assert errors == pytest.approx({"pairs": 0.1, "arms": 0.1, "events": 0.3})
