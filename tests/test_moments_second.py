from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from leaving_cases import every_session, left_by_reward
from seeds import generator
from strategies import logs

import lmab
from lmab.errors import InvalidArgument
from lmab.moments.second import Stays, second_moments


def brute_force(sessions, rows, n_rows, per_arm):
    """Means over ordered pairs of different steps, by three loops."""
    sums, plays = np.zeros((n_rows, n_rows)), np.zeros((sessions.n_arms, sessions.n_arms))
    for start, end in zip(sessions.offsets[:-1], sessions.offsets[1:], strict=True):
        for s in range(start, end):
            for t in range(start, end):
                if s != t:
                    plays[sessions.arms[s], sessions.arms[t]] += 1
                    sums[rows[s][0], rows[t][0]] += rows[s][1] * rows[t][1]
    return sums, np.kron(plays, np.ones((per_arm, per_arm))), plays


@given(logs(max_steps=4))
def test_second_moments_agree_with_three_loops(sessions):
    if sessions.horizon < 2:
        return
    values = np.unique(sessions.rewards)
    codes = sessions.arms * len(values) + np.searchsorted(values, sessions.rewards)
    moments = second_moments(sessions)
    sums, wide, plays = brute_force(sessions, [(c, 1.0) for c in codes], 3 * len(values), len(values))
    np.testing.assert_array_equal(moments.plays, plays)
    np.testing.assert_allclose(moments.second[wide > 0], (sums / np.maximum(wide, 1))[wide > 0])
    np.testing.assert_allclose(moments.second, moments.second.T)
    gaussian = second_moments(sessions, rewards="gaussian")
    pairs = list(zip(sessions.arms, sessions.rewards, strict=True))
    sums, wide, _ = brute_force(sessions, pairs, 3, 1)
    np.testing.assert_allclose(gaussian.second[wide > 0], (sums / np.maximum(wide, 1))[wide > 0])


def test_arms_that_never_met_get_the_product_of_their_marginals():
    """Arms 0 and 2 are never in one session, nor is arm 2 there twice; 0 would say that they exclude each other."""
    log = lmab.Sessions.from_arrays([[0, 1], [0, 0], [1, 2], [1, 2]], [[1.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    moments = second_moments(log).second.reshape(3, 2, 3, 2)
    shares = np.array([[1 / 3, 2 / 3], [2 / 3, 1 / 3], [0.0, 1.0]])
    np.testing.assert_allclose(moments[0, :, 2], np.outer(shares[0], shares[2]))
    np.testing.assert_allclose(moments[2, :, 0], np.outer(shares[2], shares[0]))
    np.testing.assert_allclose(moments[2, :, 2], np.outer(shares[2], shares[2]))
    np.testing.assert_allclose(moments[0, :, 0], [[0.0, 0.5], [0.5, 0.0]])  # these did meet, once
    normal = second_moments(log, rewards="gaussian").second
    assert normal[0, 2] == normal[2, 0] == pytest.approx(2 / 3 * 1.0)
    assert normal[2, 2] == pytest.approx(1.0)
    assert normal[0, 1] == pytest.approx(0.0)


def test_moments_converge_to_the_truth(rng):
    bandit = lmab.random_bandit(3, 5, rng=rng)
    log = lmab.simulate(bandit, lmab.Uniform(5), n_sessions=100_000, horizon=6, rng=rng)
    table = bandit.rewards.table
    for pairs, tolerance in (("all", 0.01), ("first-two", 0.04)):
        moments = second_moments(log, pairs=pairs)
        np.testing.assert_allclose(moments.second, table @ (bandit.weights[:, None] * table.T), atol=tolerance)


def test_the_logging_policy_drops_out(rng):
    bandit = lmab.random_bandit(3, 4, rng=rng)
    arms = rng.choice(4, p=[0.7, 0.1, 0.1, 0.1], size=(100_000, 5))
    log = lmab.simulate(bandit, arms, rng=rng)
    table = bandit.rewards.table
    np.testing.assert_allclose(second_moments(log).second, table @ (bandit.weights[:, None] * table.T), atol=0.03)


def test_noise_of_normal_rewards_never_enters(rng):
    bandit = lmab.LatentBandit.gaussian([0.5, 0.5], rng.uniform(-1, 1, (2, 4)), scale=1.0)
    log = lmab.simulate(bandit, lmab.Uniform(4), n_sessions=100_000, horizon=5, rng=rng)
    truth = bandit.means.T @ (bandit.weights[:, None] * bandit.means)
    np.testing.assert_allclose(second_moments(log, rewards="gaussian").second, truth, atol=0.05)


@pytest.mark.parametrize("n_types", [1, 4, 7])
def test_the_rank_is_found(rng, n_types):
    bandit = lmab.random_bandit(n_types, 20, rng=rng)
    log = lmab.simulate(bandit, lmab.Uniform(20), n_sessions=50_000, horizon=7, rng=rng)
    values = np.linalg.eigvalsh((bandit.rewards.table * bandit.weights) @ bandit.rewards.table.T)
    space = lmab.moments.subspace(log)
    # Eigenvalues are off by about the noise: what is twice as large is seen, and what is not there never is.
    assert space.noise is not None
    assert (values > 2 * space.noise).sum() <= space.rank <= (values > 1e-9).sum() == min(n_types, 4)


def sup_distance(bandit, space) -> float:
    means = bandit.rewards.table
    return float(np.abs(means - space.basis @ (space.basis.T @ means)).max())


def test_all_pairs_beat_the_first_two_steps():
    """Paired on the same logs: about .16 against .37 at this size."""
    distances = []
    for seed in range(4):
        rng = generator(seed)
        bandit = lmab.random_bandit(5, 50, rng=rng)
        log = lmab.simulate(bandit, lmab.Uniform(50), n_sessions=10_000, horizon=7, rng=rng)
        distances.append(
            [sup_distance(bandit, lmab.moments.subspace(log, rank=4, pairs=p)) for p in ("all", "first-two")]
        )
    for every, first in distances:
        assert every < first
    assert np.mean(distances, axis=0)[0] < 0.25


def test_basis_is_orthonormal_and_eigenvalues_fall(rng):
    log = lmab.simulate(lmab.random_bandit(3, 6, rng=rng), lmab.Uniform(6), n_sessions=500, horizon=4, rng=rng)
    space = lmab.moments.subspace(log, rank=3)
    np.testing.assert_allclose(space.basis.T @ space.basis, np.eye(3), atol=1e-12)
    assert (np.diff(space.eigenvalues) <= 1e-12).all()


def test_large_matrices_take_the_leading_eigenvectors_only(rng, monkeypatch):
    log = lmab.simulate(lmab.random_bandit(3, 30, rng=rng), lmab.Uniform(30), n_sessions=5000, horizon=5, rng=rng)
    dense = lmab.moments.subspace(log, rank=3)
    monkeypatch.setattr("lmab.moments.second._DENSE", 10)
    lean = lmab.moments.subspace(log, rank=3)
    np.testing.assert_allclose(lean.basis @ lean.basis.T, dense.basis @ dense.basis.T, atol=1e-8)
    assert lmab.moments.subspace(log).rank == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pairs": "some"}, "pairs must be 'all' or 'first-two', got 'some'"),
        ({"rank": 0}, "rank must be an integer of at least 1"),
        ({"rank": 9}, r"rank must be at most the number of rows \(8\), got 9"),
        ({"rewards": "poisson"}, "rewards must be 'categorical', 'gaussian' or 'counts' or None, got 'poisson'"),
    ],
)
def test_bad_input(arguments, message, rng):
    log = lmab.simulate(lmab.random_bandit(2, 4, rng=rng), lmab.Uniform(4), n_sessions=50, horizon=3, rng=rng)
    with pytest.raises(ValueError, match=message):
        lmab.moments.subspace(log, **arguments)


def test_one_step_sessions_have_no_correlations():
    with pytest.raises(ValueError, match="at least 2 steps"):
        lmab.moments.subspace(lmab.Sessions.from_arrays([[0], [1]], [[0.0], [1.0]]))


def test_many_distinct_rewards_ask_for_a_family(rng):
    log = lmab.Sessions.from_arrays(rng.integers(3, size=(50, 2)), rng.random((50, 2)))
    with pytest.raises(ValueError, match="rewards must be named"):
        lmab.moments.subspace(log)


def test_pairs_are_counted_in_chunks(rng, monkeypatch):
    log = lmab.simulate(lmab.random_bandit(2, 4, rng=rng), lmab.Uniform(4), n_sessions=50, horizon=4, rng=rng)
    whole = second_moments(log).second
    monkeypatch.setattr("lmab.moments.second._CHUNK", 7)
    np.testing.assert_allclose(second_moments(log).second, whole, rtol=1e-12)


def test_the_first_two_steps_are_the_first_two(rng):
    log = lmab.simulate(lmab.random_bandit(2, 3, rng=rng), lmab.Uniform(3), n_sessions=200, horizon=5, rng=rng)
    arms, rewards = log.to_arrays()
    cut = lmab.Sessions.from_arrays(arms[:, :2], rewards[:, :2])
    np.testing.assert_allclose(second_moments(log, pairs="first-two").second, second_moments(cut).second)


def test_the_rank_counts_what_stands_out_of_half_the_difference_of_halves(rng):
    bandit = lmab.random_bandit(3, 6, rng=rng)
    log = lmab.simulate(bandit, lmab.Uniform(6), n_sessions=3000, horizon=5, rng=rng)
    space = lmab.moments.subspace(log)
    halves = [second_moments(log[start::2]).second for start in (0, 1)]
    assert space.noise == pytest.approx(np.abs(np.linalg.eigvalsh((halves[0] - halves[1]) / 2)).max())
    values = np.linalg.eigvalsh(second_moments(log).second)[::-1]
    np.testing.assert_allclose(space.eigenvalues, values, atol=1e-12)
    assert space.rank == (values > space.noise).sum()
    np.testing.assert_allclose(second_moments(log).second @ space.basis, space.basis * values[: space.rank], atol=1e-10)
    assert lmab.moments.subspace(log, rank=12).rank == 12  # as many as rows there are
    assert (
        lmab.moments.subspace(log, rank=2).noise == space.noise
    )  # the rank is given, the noise is measured all the same


def test_pure_noise_still_has_one_direction():
    """Five sessions: nothing stands out, and a subspace has at least one direction."""
    rng = np.random.default_rng(0)
    log = lmab.Sessions.from_arrays(rng.integers(6, size=(5, 2)), rng.integers(2, size=(5, 2)).astype(float), n_arms=6)
    assert lmab.moments.subspace(log, rewards="gaussian").rank >= 1
    with pytest.raises(ValueError, match="rank must be given for a log of fewer than 4 sessions"):
        lmab.moments.subspace(log[:3])


def test_a_value_that_one_half_never_saw_is_noise_too():
    log = lmab.Sessions.from_arrays([[0, 1]] * 6, [[0.0, 1.0]] * 5 + [[2.0, 1.0]])
    halves = [second_moments(log[start::2], values=np.array([0.0, 1.0, 2.0])).second for start in (0, 1)]
    assert lmab.moments.subspace(log).noise == pytest.approx(np.linalg.norm((halves[0] - halves[1]) / 2, 2))


def test_lemma_3_7_types_are_as_far_off_the_subspace_as_was_measured(rng):
    """The measured delta_sub / sqrt(w_m) bounds every type's distance, and is of its size for the rare one."""
    shares = []
    for _ in range(10):
        bandit = lmab.LatentBandit.bernoulli([0.1, 0.3, 0.6], lmab.random_bandit(3, 10, rng=rng).means)
        log = lmab.simulate(bandit, lmab.Uniform(10), n_sessions=20_000, horizon=4, rng=rng)
        space = lmab.moments.subspace(log, rank=3)
        table = bandit.rewards.table
        off = np.abs(table - space.basis @ (space.basis.T @ table)).max(axis=0)
        shares.append(off / [space.off_by(weight) for weight in bandit.weights])
    assert np.max(shares) <= 1
    assert np.mean(shares, axis=0)[0] > 0.05
    with pytest.raises(ValueError, match="log of at least 4 sessions"):
        lmab.moments.subspace(log[:3], rank=1).off_by(0.5)


def test_four_sessions_are_enough_for_two_halves():
    log = lmab.Sessions.from_arrays([[0, 1]] * 4, [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
    assert lmab.moments.subspace(log).noise is not None
    assert lmab.moments.subspace(log[:3], rank=1).noise is None


@pytest.mark.parametrize("pairs", ["all", "first-two"])
def test_second_moments_make_up_for_those_who_left_by_reward(pairs):
    """On every session that may be seen, as often as it is probable: nothing is missing, and the rank is M again."""
    bandit = left_by_reward()
    log = every_session(bandit, 3)
    rows = bandit.rewards.probabilities.reshape(2, -1)
    expected = np.einsum("m,mi,mj->ij", bandit.weights, rows, rows)
    np.testing.assert_allclose(second_moments(log, pairs=pairs).second, expected, atol=1e-12)
    values = second_moments(log, pairs=pairs, rewards="gaussian").second
    np.testing.assert_allclose(values, bandit.means.T @ np.diag(bandit.weights) @ bandit.means, atol=1e-12)
    ignored = second_moments(replace(log, endings=None), pairs=pairs).second
    assert np.abs(ignored - expected).max() > 0.01
    assert np.linalg.matrix_rank(expected) == 2 < np.linalg.matrix_rank(ignored, tol=1e-6)
    assert lmab.moments.subspace(log, rank=2, pairs=pairs).rank == 2


def test_weights_of_steps_are_one_over_the_chance_to_have_stayed():
    """Three of four went on after arm 0 paid 0, and nobody is known to have left after it paid 1."""
    arms = [[0, 0, 0]] + [[0, 0, -1]] * 2 + [[0, -1, -1]]
    rewards = [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    log = lmab.Sessions.from_arrays(arms, rewards, ended=["unknown", "went on", "went on", "left"])
    found = Stays.of(log)
    np.testing.assert_allclose(found.weights(log), [1, 4 / 3, 16 / 9, 1, 4 / 3, 1, 1, 1])
    assert Stays.of(replace(log, endings=None)) is None
    assert Stays.of(log[:3]) is None


def test_moments_of_many_rewards_refuse_those_who_left(rng):
    log = lmab.Sessions.from_arrays(np.zeros((20, 2), int), rng.normal(size=(20, 2)), ended=["left"] * 20)
    with pytest.raises(InvalidArgument, match="left by people for moments of more than 32 distinct rewards"):
        second_moments(log, rewards="gaussian")
