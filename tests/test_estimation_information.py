"""The observed information: against second derivatives for both families, and the compiled kernel against the plain."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lmab
from lmab._kernel.compiled import information as compiled
from lmab._kernel.reference import information as reference
from lmab.errors import TooLarge
from lmab.estimation import Prior, observe
from lmab.estimation.coordinates import contrasts, within_support
from lmab.estimation.passes import SERIAL, Threads


def random_log(n_arms, n_sessions, draw, rng):
    """Sessions of different lengths."""
    arms = rng.integers(n_arms, size=(n_sessions, 5))
    arms[:, 2:][rng.random((n_sessions, 3)) < 0.3] = -1
    return lmab.Sessions.from_arrays(arms, draw(arms.shape), n_arms=n_arms)


def categorical_case(n_types, n_arms, n_values, n_sessions, rng):
    bandit = lmab.LatentBandit.categorical(
        rng.dirichlet(np.full(n_types, 3.0)),
        rng.dirichlet(np.full(n_values, 2.0), size=(n_types, n_arms)),
        np.arange(n_values),
    )
    log = random_log(n_arms, n_sessions, lambda shape: rng.integers(n_values, size=shape).astype(float), rng)
    prior = Prior(rng.dirichlet(np.ones(n_values), size=n_arms), rng.uniform(0.5, 3.0, size=n_arms))
    return bandit, log, prior


def gaussian_case(n_types, n_arms, n_sessions, rng):
    weights = rng.dirichlet(np.full(n_types, 3.0))
    bandit = lmab.LatentBandit.gaussian(weights, 100 + 3 * rng.normal(size=(n_types, n_arms)), scale=2.5)
    log = random_log(n_arms, n_sessions, lambda shape: 100 + 4 * rng.normal(size=shape), rng)
    return bandit, log, Prior(100 + rng.normal(size=n_arms), rng.uniform(0.5, 3.0, size=n_arms))


def log_likelihood(weights, density, sessions):
    """With nothing of the package: `density(arm, reward)` is a vector over the types."""
    total = 0.0
    for k in range(len(sessions)):
        joint = weights.copy()
        for step in range(sessions.offsets[k], sessions.offsets[k + 1]):
            joint *= density(sessions.arms[step], sessions.rewards[step])
        total += np.log(joint.sum())
    return total


def categorical_posterior(x, shape, sessions, prior):
    """log-likelihood plus log prior at the logits x, with nothing of the package but the coordinates."""
    n_types, n_arms, n_values = shape
    weights = softmax(contrasts(n_types) @ x[: n_types - 1])
    table = softmax(x[n_types - 1 :].reshape(n_arms, n_types, n_values - 1) @ contrasts(n_values).T)
    total = (prior.strength[:, None] * prior.centre * np.log(table).sum(axis=1)).sum()
    return total + log_likelihood(weights, lambda arm, reward: table[arm, :, int(reward)], sessions)


def gaussian_posterior(x, bandit, sessions, prior):
    """The same for means in units of the scale and, if there is one coordinate more, the scale's logarithm."""
    n_types, n_arms = bandit.means.shape
    weights = softmax(np.log(bandit.weights) + contrasts(n_types) @ x[: n_types - 1])
    moves = x[n_types - 1 : n_types - 1 + n_types * n_arms].reshape(n_arms, n_types)
    means, scale = bandit.means + bandit.rewards.scale * moves.T, bandit.rewards.scale
    scale *= np.exp(x[-1]) if len(x) == n_types - 1 + means.size + 1 else 1.0
    total = -0.5 * (prior.strength * (means - prior.centre) ** 2).sum() / scale**2

    def density(arm, reward):
        return np.exp(-0.5 * ((reward - means[:, arm]) / scale) ** 2) / scale

    return total + log_likelihood(weights, density, sessions)


def softmax(logits):
    raised = np.exp(logits)
    return raised / raised.sum(axis=-1, keepdims=True)


def second_derivatives(function, x, h=1e-3):
    size = len(x)
    steps = h * np.eye(size)
    result = np.empty((size, size))
    for i in range(size):
        for j in range(i + 1):
            corners = [function(x + a * steps[i] + b * steps[j]) for a in (1, -1) for b in (1, -1)]
            result[i, j] = result[j, i] = (corners[0] - corners[1] - corners[2] + corners[3]) / (4 * h * h)
    return result


@pytest.mark.parametrize(("n_types", "n_arms", "n_values"), [(2, 2, 2), (3, 2, 3), (1, 3, 2), (2, 1, 4)])
def test_categorical_information_is_minus_the_second_derivatives(n_types, n_arms, n_values, rng):
    bandit, sessions, prior = categorical_case(n_types, n_arms, n_values, 12, rng)
    x = np.concatenate(
        [
            2 * contrasts(n_types).T @ np.log(bandit.weights),  # the columns of the contrasts have length 1/sqrt(2)
            (2 * np.log(bandit.rewards.probabilities.swapaxes(0, 1)) @ contrasts(n_values)).ravel(),
        ]
    )
    shape = (n_types, n_arms, n_values)
    expected = -second_derivatives(lambda y: categorical_posterior(y, shape, sessions, prior), x)
    data = observe(sessions, values=np.arange(n_values))
    np.testing.assert_allclose(data.information(bandit, prior).matrix, expected, atol=2e-4)


@pytest.mark.parametrize("scale", [None, 2.5])
@pytest.mark.parametrize(("n_types", "n_arms"), [(1, 2), (2, 2), (3, 2)])
def test_gaussian_information_is_minus_the_second_derivatives(n_types, n_arms, scale, rng):
    bandit, sessions, prior = gaussian_case(n_types, n_arms, 12, rng)
    found = observe(sessions, rewards="gaussian", scale=scale).information(bandit, prior)
    x = np.zeros(n_types - 1 + n_types * n_arms + (scale is None))
    expected = -second_derivatives(lambda y: gaussian_posterior(y, bandit, sessions, prior), x)
    np.testing.assert_allclose(found.matrix, expected, rtol=1e-5, atol=1e-3)
    assert found.coordinates.size == len(x)


def test_values_that_the_log_does_not_show_have_their_place(rng):
    """A bandit may know values that the log never paid, and in any order."""
    bandit, sessions, prior = categorical_case(2, 2, 3, 20, rng)
    shown = lmab.Sessions(sessions.arms, np.minimum(sessions.rewards, 1.0), sessions.offsets, 2)
    wide = observe(shown, values=[0.0, 1.0, 2.0]).information(bandit, prior)
    narrow = observe(shown, values=[0.0, 1.0]).information(bandit, prior)
    np.testing.assert_allclose(narrow.matrix, wide.matrix, atol=1e-10)


@pytest.mark.parametrize("family", ["categorical", "gaussian"])
def test_derivatives_and_moves_agree(family, rng):
    bandit, sessions, prior = (
        categorical_case(3, 2, 3, 9, rng) if family == "categorical" else gaussian_case(3, 2, 9, rng)
    )
    coordinates = observe(sessions, rewards=family).information(bandit, prior).coordinates
    moves = np.concatenate([np.eye(coordinates.size), -np.eye(coordinates.size)]) * 1e-5
    weights, means = coordinates.moved_weights(moves), np.array([one.means for one in coordinates.moved(moves)])
    half = coordinates.size
    found = coordinates.weights_along(np.eye(half)), coordinates.means_along(np.eye(half))
    np.testing.assert_allclose(found[0], (weights[:half] - weights[half:]).T / 2e-5, atol=1e-8)
    np.testing.assert_allclose(found[1], np.moveaxis(means[:half] - means[half:], 0, 2) / 2e-5, atol=1e-7)
    still = coordinates.moved(np.zeros((1, half)))[0]
    np.testing.assert_allclose(still.means, bandit.means, rtol=1e-12)
    np.testing.assert_allclose(coordinates.moved_weights(np.zeros((1, half)))[0], bandit.weights, rtol=1e-12)


def test_the_scale_moves_by_its_logarithm(rng):
    bandit, sessions, prior = gaussian_case(2, 2, 9, rng)
    free = observe(sessions, rewards="gaussian").information(bandit, prior).coordinates
    known = observe(sessions, rewards="gaussian", scale=2.5).information(bandit, prior).coordinates
    assert free.moved(np.eye(free.size)[-1:])[0].scale == pytest.approx(2.5 * np.e)
    assert known.moved(np.eye(known.size)[-1:])[0].scale == 2.5


def test_directions_within_the_support_leave_the_boundary_alone():
    inside = contrasts(4) @ within_support(np.array([0.3, 0.0, 0.5, 0.2]))
    assert inside.shape == (4, 2)
    np.testing.assert_allclose(inside[1], 0, atol=1e-15)
    np.testing.assert_allclose(inside.sum(axis=0), 0, atol=1e-15)
    assert np.linalg.matrix_rank(inside) == 2
    assert within_support(np.array([0.0, 1.0])).shape == (1, 0)
    np.testing.assert_allclose(within_support(np.array([0.2, 0.3, 0.5])), np.eye(2), atol=1e-15)


@pytest.mark.parametrize("family", ["categorical", "gaussian"])
def test_information_has_the_same_bits_for_any_number_of_threads(family, rng, monkeypatch):
    monkeypatch.setattr("lmab.estimation.passes._PART", 100)
    monkeypatch.setattr("lmab.estimation.passes._WORTH", 0)
    monkeypatch.setattr("lmab.estimation.information._STEPS", 60)
    case = categorical_case(2, 3, 2, 4000, rng) if family == "categorical" else gaussian_case(2, 3, 4000, rng)
    bandit, sessions, prior = case
    data = observe(sessions, rewards=family)
    alone = data.information(bandit, prior, SERIAL).matrix
    for threads in (2, 3):
        with Threads(threads) as passes:
            np.testing.assert_array_equal(data.information(bandit, prior, passes).matrix, alone)
    monkeypatch.undo()
    np.testing.assert_allclose(data.information(bandit, prior).matrix, alone, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("family", ["categorical", "gaussian"])
def test_an_estimates_information_includes_its_prior(family, rng):
    case = categorical_case(2, 2, 2, 60, rng) if family == "categorical" else gaussian_case(2, 2, 60, rng)
    fit = lmab.fit(case[1], n_types=2, rewards=family, method=lmab.EM(prior=3.0), rng=rng)
    with_prior = fit.observations.information(fit.bandit, fit.observations.prior(3.0)).matrix
    without = fit.observations.information(fit.bandit, fit.observations.prior(0.0)).matrix
    np.testing.assert_array_equal(fit.information().matrix, with_prior)
    assert np.diag(with_prior - without)[1:5].min() > 0


@given(seed=st.integers(0, 1000), n_types=st.integers(1, 4), n_arms=st.integers(1, 4), n_entries=st.integers(0, 3))
def test_compiled_kernel_equals_the_specification(seed, n_types, n_arms, n_entries):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 6, size=8)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    arms = rng.integers(n_arms, size=offsets[-1])
    rows = rng.integers(6, size=offsets[-1])
    counts, shares = rng.integers(1, 4, size=8).astype(float), rng.dirichlet(np.ones(n_types), size=8)
    scores = rng.standard_normal((6, n_types, n_entries))
    size = n_types * (1 + n_arms * n_entries)
    results = np.full((2, size, size), np.nan)
    for module, result in zip((reference, compiled), results, strict=True):
        module.missing(arms, rows, offsets, counts, shares, scores, result)
    np.testing.assert_allclose(results[1], results[0], atol=1e-12)


def test_merged_sessions_count_as_often_as_they_occur(rng):
    bandit, sessions, prior = categorical_case(2, 2, 2, 15, rng)
    repeated = sessions + sessions + sessions + sessions
    merged = observe(repeated, values=[0.0, 1.0])
    assert len(merged.log.counts)
    once, nothing = observe(sessions, values=[0.0, 1.0]), Prior(prior.centre, np.zeros(2))
    four = merged.information(bandit, nothing).matrix
    np.testing.assert_allclose(four, 4 * once.information(bandit, nothing).matrix, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("rewards", "size"), [("categorical", 6003), ("gaussian", 6004)])
def test_too_many_parameters_are_refused_with_their_number(rewards, size, rng):
    sessions = lmab.Sessions.from_arrays([[0, 1]] * 5, [[0.0, 1.0]] * 4 + [[1.0, 0.0]]).with_arms(2000)
    data = observe(sessions, rewards=rewards)
    means = np.full((3, 2000), 0.5)
    make = lmab.LatentBandit.bernoulli if rewards == "categorical" else lmab.LatentBandit.gaussian
    with pytest.raises(TooLarge, match=f"{size} parameters"):
        data.information(make([0.2, 0.3, 0.5], means), data.prior(1.0))
