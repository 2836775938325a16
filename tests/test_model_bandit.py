from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from policies import always
from strategies import bandits

import lmab
from lmab import LatentBandit
from lmab.errors import InvalidArgument


def test_constructors_and_means():
    bernoulli = LatentBandit.bernoulli([0.3, 0.7], [[0.1, 0.9], [0.5, 0.5]])
    np.testing.assert_allclose(bernoulli.means, [[0.1, 0.9], [0.5, 0.5]], rtol=1e-15)
    categorical = LatentBandit.categorical([1.0], [[[0.25, 0.75]]], [-1, 1])
    assert categorical.means[0, 0] == 0.5
    gaussian = LatentBandit.gaussian([0.5, 0.5], [[0.0], [3.0]], scale=2.0)
    assert (gaussian.n_types, gaussian.n_arms, gaussian.rewards.scale) == (2, 1, 2.0)
    assert "2 types, 2 arms, rewards in {0, 1}" in repr(bernoulli)
    assert "normal rewards with scale 2" in repr(gaussian)


def test_is_frozen():
    bandit = LatentBandit.bernoulli([1.0], [[0.5]])
    with pytest.raises(AttributeError):
        bandit.weights = np.ones(1)
    with pytest.raises(ValueError, match="read-only"):
        bandit.weights[0] = 2


def test_equality():
    bandit = LatentBandit.bernoulli([0.3, 0.7], [[0.1], [0.5]])
    assert bandit == LatentBandit.bernoulli([0.3, 0.7], [[0.1], [0.5]])
    assert bandit != LatentBandit.bernoulli([0.3, 0.7], [[0.1], [0.6]])
    assert bandit != LatentBandit.gaussian([0.3, 0.7], [[0.1], [0.5]])
    assert bandit != bandit.relabel(types=[1, 0])
    assert bandit != "a bandit"


def test_distance_of_a_known_case():
    # Half the mass moves from mean .2 to mean .6: L1 distance .8 between the distributions, times .5.
    one = LatentBandit.bernoulli([0.5, 0.5], [[0.2], [0.9]])
    two = LatentBandit.bernoulli([0.5, 0.5], [[0.6], [0.9]])
    assert one.distance(two) == pytest.approx(0.4, abs=1e-12)
    assert LatentBandit.gaussian([1.0], [[0.0, 1.0]]).distance(LatentBandit.gaussian([1.0], [[0.5, -1.0]])) == 2.0


def test_distance_between_different_numbers_of_types():
    one = LatentBandit.bernoulli([1.0], [[0.5]])
    two = LatentBandit.bernoulli([0.25, 0.75], [[0.1], [0.5]])
    assert one.distance(two) == pytest.approx(0.25 * 0.8, abs=1e-12)


@given(bandits(), bandits(), bandits())
def test_distance_is_a_metric_on_relabel_classes(a, b, c):
    if not a.n_arms == b.n_arms == c.n_arms:
        return
    assert a.distance(a.relabel(types=np.arange(a.n_types)[::-1])) == pytest.approx(0, abs=1e-9)
    assert a.distance(b) == pytest.approx(b.distance(a), abs=1e-9)
    assert a.distance(c) <= a.distance(b) + b.distance(c) + 1e-9
    if a.distance(b) < 1e-12:
        np.testing.assert_allclose(a.weights @ a.means, b.weights @ b.means, atol=1e-9)


@given(bandits(), st.randoms(use_true_random=False))
def test_relabel_permutes(bandit, random):
    types, arms = list(range(bandit.n_types)), list(range(bandit.n_arms))
    random.shuffle(types)
    random.shuffle(arms)
    other = bandit.relabel(types=types, arms=arms)
    np.testing.assert_array_equal(other.means, bandit.means[types][:, arms])
    back = other.relabel(types=np.argsort(types), arms=np.argsort(arms))
    assert back == bandit


def test_relabel_moves_the_labels_of_arms():
    bandit = LatentBandit([1.0], LatentBandit.bernoulli([1.0], [[0.1, 0.2]]).rewards, ("tea", "milk"))
    assert bandit.relabel(arms=[1, 0]).arm_labels == ("milk", "tea")


@pytest.mark.parametrize(
    ("weights", "means", "message"),
    [
        ([-0.5, 1.5], [[0.1], [0.2]], r"weights must lie in \[0, 1\], got -0.5 at index \(0,\)"),
        ([0.5, 0.4], [[0.1], [0.2]], "weights must sum to 1 along the last axis, got 0.9"),
        ([np.nan, 1.0], [[0.1], [0.2]], "weights must be finite, got nan"),
        ([1.0], [[0.1], [0.2]], r"weights must have one entry per type of the rewards \(2\), got 1"),
        ([0.5, 0.5], [[0.1], [1.2]], r"means must lie in \[0, 1\], got 1.2"),
        ([0.5, 0.5], [0.1, 0.2], "means must be a non-empty array with 2 axes"),
        ([], [[0.1]], "weights must be a non-empty array"),
        ("ab", [[0.1]], "weights must be an array of numbers"),
    ],
)
def test_bad_input(weights, means, message):
    with pytest.raises(ValueError, match=message):
        LatentBandit.bernoulli(weights, means)


def test_distance_wants_the_same_family_and_arms():
    with pytest.raises(ValueError, match="other must have the same reward family"):
        LatentBandit.bernoulli([1.0], [[0.5]]).distance(LatentBandit.gaussian([1.0], [[0.5]]))
    with pytest.raises(ValueError, match="number of arms"):
        LatentBandit.bernoulli([1.0], [[0.5]]).distance(LatentBandit.bernoulli([1.0], [[0.5, 0.5]]))


@given(st.integers(0, 10**6), st.integers(1, 3))
def test_proposition_3_4_values_differ_by_at_most_horizon_squared_times_distance(seed, horizon):
    rng = np.random.default_rng(seed)
    means = rng.random((2, 3))
    a = LatentBandit.bernoulli(rng.dirichlet([1, 1]), means)
    b = LatentBandit.bernoulli(rng.dirichlet([1, 1]), np.clip(means + rng.normal(0, 0.1, (2, 3)), 0, 1))
    for policy in (lmab.Greedy(a), lmab.Greedy(b), always(0, a.n_arms)):
        gap = abs(lmab.evaluate(policy, a, horizon=horizon).mean - lmab.evaluate(policy, b, horizon=horizon).mean)
        assert gap <= horizon**2 * a.distance(b) + 1e-9


def test_normal_rewards_of_another_scale_are_another_model():
    """The cost of moving a type is the difference of its means plus that of the scales."""
    one, two = (lmab.LatentBandit.gaussian([0.5, 0.5], [[0.0, 1.0], [1.0, 0.0]], scale) for scale in (1.0, 1.5))
    assert one.distance(two) == pytest.approx(0.5)
    assert one.distance(one) == 0.0
    moved = lmab.LatentBandit.gaussian([0.5, 0.5], [[0.0, 1.2], [1.0, 0.0]], 1.5)
    assert one.distance(moved) == pytest.approx(0.5 + 0.5 * 0.2)


def test_labels_are_a_part_of_a_bandit():
    rewards = LatentBandit.bernoulli([1.0], [[0.1, 0.2]]).rewards
    named = LatentBandit([1.0], rewards, ("tea", "milk"))
    assert named != LatentBandit([1.0], rewards)
    assert named != LatentBandit([1.0], rewards, ("milk", "tea"))
    assert named == LatentBandit([1.0], rewards, ["tea", "milk"])
    for wrong in (("tea",), ("tea", "tea"), ("a", "b", "c")):
        with pytest.raises(ValueError, match="arm_labels must be 2 distinct labels"):
            LatentBandit([1.0], rewards, wrong)


def test_the_distance_of_types_is_that_of_their_most_different_arm():
    """L1 over the values, the largest over the arms, on the union of the values."""
    one = LatentBandit.categorical([1.0], [[[0.5, 0.5], [0.2, 0.8]]], [0.0, 1.0])
    two = LatentBandit.categorical([1.0], [[[0.5, 0.5], [0.1, 0.9]]], [0.0, 2.0])
    np.testing.assert_allclose(one.rewards.distances(two.rewards), [[0.1 + 0.8 + 0.9]])
    assert one.distance(two) == pytest.approx(1.8)


@given(bandits(max_arms=4), st.integers(1, 4), st.booleans())
def test_fixed_choices_and_known_types_by_brute_force(bandit, horizon, repeats):
    sequences = list(itertools.product(range(bandit.n_arms), repeat=horizon))
    if not repeats:
        sequences = [arms for arms in sequences if len(set(arms)) == horizon]
    if not sequences:
        with pytest.raises(ValueError, match=f"horizon must be at most the {bandit.n_arms} arms without repeats"):
            bandit.best_fixed(horizon, repeats)
        return
    earned = {arms: sum(bandit.weights @ bandit.means[:, arm] for arm in arms) for arms in sequences}
    assert bandit.best_fixed(horizon, repeats) == pytest.approx(max(earned.values()), abs=1e-12)
    chosen = bandit.best_fixed_arms(horizon, repeats)
    assert len(chosen) == (1 if repeats else horizon)
    assert earned[chosen * horizon if repeats else chosen] == pytest.approx(max(earned.values()), abs=1e-12)
    each = [max(sum(row[arm] for arm in arms) for arms in sequences) for row in bandit.means]
    assert bandit.known_type(horizon, repeats) == pytest.approx(bandit.weights @ each, abs=1e-12)
    order = bandit.ranked_arms(horizon, repeats)
    assert order[: len(chosen)] == chosen
    assert sorted(order) == list(range(bandit.n_arms))
    policy = lmab.policies.Ranking(order, horizon=horizon, repeats=repeats)
    assert lmab.evaluate(policy, bandit, horizon=horizon).mean == pytest.approx(bandit.best_fixed(horizon, repeats))


def test_new_arms_pay_the_average_of_the_arms_there_are():
    bandit = lmab.LatentBandit.categorical(
        [0.25, 0.75], [[[0.2, 0.8], [0.4, 0.6]], [[1.0, 0.0], [0.6, 0.4]]], [0.0, 2.0]
    )
    wide = bandit.with_arms(["c", "d"])
    assert wide.arm_labels == (0, 1, "c", "d")
    np.testing.assert_array_equal(wide.rewards.probabilities[:, :2], bandit.rewards.probabilities)
    # by hand: mean over arms and types of P(2) is .25 * (.8 + .6) / 2 + .75 * (0 + .4) / 2
    np.testing.assert_allclose(wide.rewards.probabilities[:, 2:, 1], 0.325, rtol=1e-12)
    given = bandit.with_arms(["c"], law=[0.9, 0.1])
    np.testing.assert_allclose(given.means[:, 2], 0.2)
    state = lmab.Greedy(wide).observe(lmab.Greedy(wide).start(), 2, 2.0)
    np.testing.assert_allclose(lmab.Greedy(wide).belief(state), bandit.weights)  # a new arm tells nothing


def test_new_arms_of_normal_rewards_and_refusals():
    bandit = lmab.LatentBandit.gaussian([0.5, 0.5], [[1.0, 0.0], [0.0, 2.0]], scale=0.5)
    assert bandit.with_arms(["new"]).means[:, 2].tolist() == [0.75, 0.75]
    assert bandit.with_arms(["new"], law=-1.0).means[:, 2].tolist() == [-1.0, -1.0]
    for wrong in ([], [0], ["a", "a"]):
        with pytest.raises(InvalidArgument, match="labels must be new and distinct"):
            bandit.with_arms(wrong)
    with pytest.raises(InvalidArgument, match="law must hold the probability of each of 2 values, got 3"):
        lmab.LatentBandit.bernoulli([1.0], [[0.5]]).with_arms(["b"], law=[0.2, 0.3, 0.5])
