from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from strategies import bandits

import lmab
from lmab.errors import InvalidArgument
from lmab.model import Bins
from lmab.model.bandit import FAMILIES
from lmab.model.categorical import Categorical
from lmab.model.gaussian import Gaussian
from lmab.model.rewards import distinct_values, encode_values


def test_categorical_sample_has_the_right_frequencies(rng):
    family = Categorical(np.array([[[0.2, 0.5, 0.3]], [[0.0, 0.0, 1.0]]]), np.array([-1.0, 0.0, 2.0]))
    rewards = family.sample(np.zeros(100_000, int), np.zeros(100_000, int), rng=rng)
    frequencies = [(rewards == value).mean() for value in family.values]
    np.testing.assert_allclose(frequencies, [0.2, 0.5, 0.3], atol=5 * 0.5 / np.sqrt(100_000))
    assert (family.sample(np.ones(100, int), np.zeros(100, int), rng=rng) == 2.0).all()


def test_gaussian_sample_has_the_right_moments(rng):
    family = Gaussian(np.array([[0.5, -1.0]]), 2.0)
    rewards = family.sample(np.zeros(100_000, int), np.ones(100_000, int), rng=rng)
    assert abs(rewards.mean() + 1) < 5 * 2 / np.sqrt(100_000)
    assert abs(rewards.std() - 2) < 5 * 2 / np.sqrt(200_000)


@given(bandits())
def test_codes_and_table_agree_with_likelihood(bandit):
    family = bandit.rewards
    arms = np.repeat(np.arange(family.n_arms), family.n_values)
    rewards = np.tile(family.values, family.n_arms)
    codes = family.codes(arms, rewards)
    np.testing.assert_array_equal(codes, np.arange(family.n_arms * family.n_values))
    np.testing.assert_array_equal(family.table[codes], family.likelihood(arms, rewards))
    np.testing.assert_allclose(family.means, (family.probabilities * family.values).sum(axis=2))


def test_codes_take_the_smallest_type():
    def dtype(n_arms: int) -> np.dtype:
        family = Categorical.bernoulli(np.full((1, n_arms), 0.5))
        return family.codes(np.array([n_arms - 1]), np.array([1.0])).dtype

    assert [dtype(128), dtype(129), dtype(32768), dtype(32769)] == [np.uint8, np.uint16, np.uint16, np.uint32]


def test_values_keep_their_order():
    family = Categorical(np.array([[[0.1, 0.9]]]), np.array([1.0, 0.0]))
    np.testing.assert_array_equal(family.encode(np.array([0.0, 1.0])), [1, 0])
    assert family.means[0, 0] == pytest.approx(0.1)


def test_gaussian_likelihood_is_the_normal_density():
    from scipy.stats import norm

    family = Gaussian(np.array([[0.0, 1.0], [2.0, 3.0]]), 1.5)
    got = family.likelihood(np.array([0, 1]), np.array([0.3, -2.0]))
    expected = [[norm.pdf(0.3, 0, 1.5), norm.pdf(0.3, 2, 1.5)], [norm.pdf(-2, 1, 1.5), norm.pdf(-2, 3, 1.5)]]
    np.testing.assert_allclose(got, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Categorical(np.array([[[0.5, 0.6]]]), np.array([0.0, 1.0])), "probabilities must sum to 1"),
        (lambda: Categorical(np.array([[[-0.1, 1.1]]]), np.array([0.0, 1.0])), r"probabilities must lie in \[0, 1\]"),
        (lambda: Categorical(np.array([[[0.5, 0.5]]]), np.array([1.0, 1.0])), "values must be distinct"),
        (lambda: Categorical(np.array([[[0.5, 0.5]]]), np.array([0.0, 1.0, 2.0])), "values must have one entry"),
        (lambda: Categorical(np.array([[0.5, 0.5]]), np.array([0.0, 1.0])), "probabilities must be .* 3 axes"),
        (lambda: Categorical(np.array([[[0.5, np.nan]]]), np.array([0.0, 1.0])), "probabilities must be finite"),
        (lambda: Categorical.bernoulli([[1.5]]), r"means must lie in \[0, 1\], got 1.5 at index \(0, 0\)"),
        (lambda: Gaussian(np.array([[0.0]]), 0.0), "scale must be one positive number"),
        (lambda: Gaussian(np.array([[np.inf]]), 1.0), "means must be finite"),
        (lambda: Categorical.bernoulli([[0.5]]).encode(np.array([0.0, 0.5])), "among the values .* got 0.5 at step 1"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(InvalidArgument, match=message):
        make()


def test_relabel_wants_a_permutation():
    with pytest.raises(ValueError, match="types must be a permutation"):
        lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.1], [0.2]]).relabel(types=[0, 0])


def test_cut_rewards_take_any_reward():
    family = Categorical([[[0.2, 0.3, 0.5]]], [-1.0, 0.0, 2.0], [-0.4, 1.0])
    assert family.encode(np.array([-9.0, -0.5, -0.4, 0.9, 1.0, 7.0])).tolist() == [0, 0, 1, 1, 2, 2]
    again = FAMILIES[family.family].from_record(family.record())
    assert again.edges.tolist() == [-0.4, 1.0]
    assert family.relabel(arms=[0]).edges is not None


@pytest.mark.parametrize(("values", "edges"), [([0, 1, 2], [0.5]), ([0, 1, 2], [1.5, 0.5]), ([2, 1, 0], [0.5, 1.5])])
def test_edges_must_rise_between_rising_values(values, edges):
    with pytest.raises(ValueError, match="edges must rise, one between any two rising values"):
        Categorical([[[0.2, 0.3, 0.5]]], values, edges)


def test_floored_probabilities_are_raised_and_values_join():
    family = Categorical([[[0.0, 1.0]], [[0.5, 0.5]]], [1.0, 2.0])
    raised = family.floored(0.01)
    np.testing.assert_allclose(raised.probabilities[0, 0], [0.01 / 1.01, 1 / 1.01])
    np.testing.assert_allclose(raised.probabilities[1, 0], [0.5, 0.5])
    joined = family.floored(0.01, [0.0, 2.0])
    assert joined.values.tolist() == [0.0, 1.0, 2.0]
    np.testing.assert_allclose(joined.probabilities[1, 0], np.array([0.01, 0.5, 0.5]) / 1.01)
    normal = Gaussian(np.array([[0.5]]), 1.0)
    assert normal.floored(0.1) is normal


def test_joined_families_have_the_types_of_all():
    one, other = Categorical([[[0.2, 0.8]]], [0.0, 1.0]), Categorical([[[0.5, 0.5]], [[0.9, 0.1]]], [0.0, 1.0])
    np.testing.assert_allclose(one.joined([other]).means[:, 0], [0.8, 0.5, 0.1])
    assert one.joined([]).n_types == 1
    normal = Gaussian(np.array([[1.0]]), 1.0).joined([Gaussian(np.array([[2.0]]), 3.0)])
    np.testing.assert_allclose(normal.means, [[1.0], [2.0]])
    assert normal.scale == 2.0


def test_up_to_32_distinct_rewards_are_categories():
    np.testing.assert_array_equal(distinct_values(np.arange(32.0)[::-1], limited=True), np.arange(32.0))
    with pytest.raises(ValueError, match="more than 32 distinct rewards"):
        distinct_values(np.arange(33.0), limited=True)
    assert len(distinct_values(np.arange(33.0), limited=False)) == 33


def test_rewards_become_indexes_whatever_the_order_of_the_values():
    values = np.array([2.0, -1.0, 0.5])
    assert encode_values(values, np.array([0.5, 2.0, -1.0])).tolist() == [2, 0, 1]
    assert encode_values(values, np.array([0.5, 9.0, -2.0, 0.4]), others=True).tolist() == [2, 3, 3, 3]
    with pytest.raises(ValueError, match=r"among the values \[2.0, -1.0, 0.5\], got 9.0 at step 12"):
        encode_values(values, np.array([0.5, 2.0, 9.0]), first_step=10)


def test_spread_and_support():
    assert Categorical([[[0.5, 0.2, 0.3]]], [3.0, -1.0, 0.0]).spread == 4.0
    assert Categorical([[[0.5, 0.2, 0.3]]], [3.0, -1.0, 0.0]).support == (-1.0, 3.0)
    assert (Gaussian(np.array([[5.0]]), 0.5).spread, Gaussian(np.array([[5.0]]), 0.5).support) == (
        0.5,
        (-np.inf, np.inf),
    )


def test_quantile_bins_hold_equally_many_and_stand_for_their_mean():
    rewards = np.array([3.0, 1.0, 2.0, 8.0, 4.0, 6.0, 7.0, 5.0])
    bins = Bins.at_quantiles(rewards, 4)
    assert bins.values.tolist() == [1.5, 3.5, 5.5, 7.5]
    assert bins.apply(np.array([-9.0, 2.0, 4.4, 4.6, 99.0])).tolist() == [1.5, 1.5, 3.5, 5.5, 7.5]
    assert bins.apply(bins.edges).tolist() == bins.values[1:].tolist()  # an edge belongs to the bin above
    with pytest.raises(ValueError, match="bins must be an integer of at least 2"):
        Bins.at_quantiles(rewards, 1)


def test_the_grid_of_the_paper_rounds_down_and_keeps_what_is_beyond_at_its_ends():
    from lmab import theory

    grid, bins = theory.gaussian_grid(2, 0.5), Bins.appendix_grid(2, 0.5)
    step = 0.5 / 4
    assert len(bins.values) == len(grid)
    np.testing.assert_allclose(bins.apply(grid + step / 3), grid)
    np.testing.assert_allclose(bins.apply(np.array([-99.0, 99.0])), [grid[0], grid[-1]])


def test_zero_has_a_bin_of_its_own_and_large_amounts_are_not_one_bin():
    rewards = np.array([0.0] * 50 + [1.0, 1.1, 1.2, 1.3] * 5 + [100.0, 900.0] + [-2.0] * 3)
    bins = Bins.with_zero_bin(rewards, 4)
    cut = bins.apply(rewards)
    assert (cut[rewards == 0] == 0).all()
    assert (cut[rewards != 0] != 0).all()
    assert (np.sign(cut) == np.sign(rewards)).all()
    assert cut.mean() == pytest.approx(rewards.mean())  # the mean of the log stays what it is
    assert len(np.unique(cut[rewards >= 100])) == 2  # half of each quantile counts money
    assert (np.diff(bins.values) > 0).all()
    assert np.isin(bins.values, cut).all()  # no bin is empty
    assert len(Bins.with_zero_bin(rewards).values) <= 10  # 0, negative ones, and eight by default
    assert Bins.with_zero_bin(np.zeros(5)).values.tolist() == [0.0]
    assert Bins.with_zero_bin(np.array([0.0, 1e-300, 5.0]), 2).apply(np.array([0.0, 1e-300])).tolist()[0] == 0


def test_edges_between_bins_that_are_not_empty():
    bins = Bins(np.array([1.0, 2.0, 3.0]), np.array([0.5, 1.5, 2.5, 3.5]))
    assert bins.edges_between(np.array([0.5, 2.5, 3.5])).tolist() == [2.0, 3.0]
    assert bins.edges_between(bins.values).tolist() == [1.0, 2.0, 3.0]


def test_bins_without_rewards_are_left_out():
    """The least amount is an edge here, so that nothing lies between 0 and that edge."""
    bins = Bins.with_zero_bin(np.array([0.0] * 9 + [2.0] * 9 + [3.0]), 4)
    assert bins.values.tolist() == pytest.approx([0.0, 2.1])
    assert len(bins.edges) == 1
