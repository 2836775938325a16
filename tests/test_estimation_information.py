"""The observed information: against second derivatives for both families, and the compiled kernel against the plain."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import sums as reference
from seeds import generator

import lmab
from lmab._kernel.compiled import sums as compiled
from lmab.errors import TooLarge
from lmab.estimation.families import observe
from lmab.estimation.information import check_size, contrasts, standard_errors, within_support
from lmab.estimation.log import Prior
from lmab.parallel import SERIAL, Threads


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
    monkeypatch.setattr("lmab.parallel._WORTH", 0)
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
    with_prior = fit.encoded.information(fit.bandit, fit.encoded.prior(3.0)).matrix
    without = fit.encoded.information(fit.bandit, fit.encoded.prior(0.0)).matrix
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
    assert len(merged.counts)
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


def test_one_type_has_binomial_errors(rng):
    bandit = lmab.LatentBandit.bernoulli([1.0], [[0.3, 0.6]])
    log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=500, horizon=1, rng=rng)
    fit = lmab.fit(log, n_types=1, method=lmab.EM(prior=0.0), rng=rng)
    errors = fit.standard_errors()
    plays, means = np.bincount(log.arms), fit.bandit.means[0]
    np.testing.assert_allclose(errors.means[0], np.sqrt(means * (1 - means) / plays), rtol=1e-6)
    assert errors.weights.tolist() == [0.0]


def test_one_gaussian_type_has_the_error_of_a_mean(rng):
    bandit = lmab.LatentBandit.gaussian([1.0], [[0.3, 5.0]], scale=2.0)
    log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=3000, horizon=1, rng=rng)
    fit = lmab.fit(log, n_types=1, rewards="gaussian", scale=2.0, method=lmab.EM(prior=0.0), rng=rng)
    np.testing.assert_allclose(fit.standard_errors().means[0], 2 / np.sqrt(np.bincount(log.arms)), rtol=0.05)


@pytest.mark.parametrize("strength", [0.0, 40.0])
def test_the_prior_adds_its_plays_to_one_type(strength, rng):
    """With types known the errors have closed forms, of plays and pseudo-plays together."""
    coins = lmab.LatentBandit.bernoulli([1.0], [[0.3, 0.6]])
    log = lmab.simulate(coins, lmab.Uniform(2), n_sessions=100, horizon=2, rng=rng)
    plays, method = np.bincount(log.arms) + strength, lmab.EM(prior=strength)
    fit = lmab.fit(log, n_types=1, method=method, rng=rng)
    means = fit.bandit.means[0]
    np.testing.assert_allclose(fit.standard_errors().means[0], np.sqrt(means * (1 - means) / plays), rtol=1e-9)
    with pytest.warns(lmab.errors.LmabWarning, match="normal rewards do not fit"):
        normal = lmab.fit(log, n_types=1, rewards="gaussian", scale=0.7, method=method, rng=rng)
    np.testing.assert_allclose(normal.standard_errors().means[0], 0.7 / np.sqrt(plays), rtol=1e-9)


def test_three_values_one_type(rng):
    probabilities = np.array([0.2, 0.5, 0.3])
    truth = lmab.LatentBandit.categorical([1.0], [[probabilities]], [0.0, 1.0, 5.0])
    log = lmab.simulate(truth, lmab.Uniform(1), n_sessions=400, horizon=1, rng=rng)
    fit = lmab.fit(log, n_types=1, method=lmab.EM(prior=0.0), rng=rng)
    assert fit.standard_errors().means[0, 0] == pytest.approx(log.rewards.std() / np.sqrt(400), rel=1e-9)


def test_a_weight_at_its_boundary_has_none(rng):
    log = lmab.Sessions.from_arrays(np.tile([0, 1], (50, 1)), rng.integers(2, size=(50, 2)).astype(float))
    data = lmab.estimation.families.observe(log)
    bandit = lmab.LatentBandit.bernoulli([0.6, 0.4, 0.0], [[0.4, 0.5], [0.6, 0.3], [0.5, 0.5]])
    errors = standard_errors(data.information(bandit, data.prior(1.0)))
    assert np.isnan(errors.weights).tolist() == [False, False, True]
    assert np.isfinite(errors.means[2]).all()  # the prior knows them
    alone = standard_errors(data.information(bandit, data.prior(0.0)))
    assert np.isinf(alone.means[2]).all()


def test_what_the_log_does_not_determine_is_infinite(rng):
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.2], [0.2, 0.6]])
    log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=300, horizon=1, rng=rng)
    with pytest.warns(lmab.errors.LmabWarning, match="cannot be identified"):
        fit = lmab.fit(log, n_types=2, method=lmab.EM(prior=0.0), rng=rng)
    errors = fit.standard_errors()
    assert not np.isfinite(errors.weights).any() or not np.isfinite(errors.means).all()


def test_boundaries_and_unplayed_arms_have_none(rng):
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[1.0, 0.2], [0.0, 0.6]])
    log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=2000, horizon=6, rng=rng).with_arms(3)
    fit = lmab.fit(log, n_types=2, method=lmab.EM(prior=0.0), rng=rng)
    errors = fit.standard_errors().means
    np.testing.assert_allclose(np.sort(fit.bandit.means[:, 0]), [0, 1], atol=1e-12)
    assert np.isnan(errors[:, [0, 2]]).all()
    assert np.isfinite(errors[:, 1]).all()


def test_a_prior_sharpens(rng):
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.2], [0.2, 0.6]])
    log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=300, horizon=4, rng=rng)
    free, tight = (
        lmab.fit(log, n_types=2, method=lmab.EM(prior=prior), rng=generator(0), check=False).standard_errors()
        for prior in (0.0, 50.0)
    )
    assert tight.means.max() < free.means.max()
    assert free.weights[0] == pytest.approx(free.weights[1])  # they sum to 1
    assert free.weights[0] > np.sqrt(0.5 * 0.5 / 300)  # the types of the sessions are not even seen


@pytest.mark.parametrize("prior", [0.0, 3.0, 100.0])
def test_pseudo_counts_count_like_plays(prior, rng):
    """One type, three values: the prior sits at the arm's own frequencies, so it only adds to the sample size."""
    bandit = lmab.LatentBandit.categorical([1.0], [[[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]]], [0.0, 1.0, 3.0])
    log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=400, horizon=1, rng=rng)
    fit = lmab.fit(log, n_types=1, method=lmab.EM(prior=prior), rng=rng)
    spread = [log.rewards[log.arms == arm] for arm in range(2)]
    expected = [np.sqrt(paid.var() / (len(paid) + prior)) for paid in spread]
    np.testing.assert_allclose(fit.standard_errors().means[0], expected, rtol=1e-6)


@pytest.mark.parametrize("prior", [0.0, 3.0, 100.0])
def test_pseudo_plays_of_normal_rewards_count_like_plays(prior, rng):
    """One type and a known scale: the error of a mean of as many plays."""
    bandit = lmab.LatentBandit.gaussian([1.0], [[0.3, 5.0]], scale=2.0)
    log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=300, horizon=1, rng=rng)
    fit = lmab.fit(
        log, n_types=1, rewards="gaussian", scale=2.0, method=lmab.EM(prior=prior), rng=rng
    ).standard_errors()
    np.testing.assert_allclose(fit.means[0], 2.0 / np.sqrt(np.bincount(log.arms) + prior), rtol=1e-6)


@pytest.mark.parametrize("family", ["categorical", "gaussian"])
def test_the_prior_is_a_part_of_the_information(family, rng):
    """Two types, at any model: its information with a prior, less that without, is that of as many plays."""
    if family == "categorical":
        bandit = lmab.LatentBandit.bernoulli([0.4, 0.6], rng.uniform(0.1, 0.9, size=(2, 2)))
        curvature = (bandit.means * (1 - bandit.means)).T.ravel()  # of a logit, in the order (arm, type)
        arguments = {}
    else:
        bandit = lmab.LatentBandit.gaussian([0.4, 0.6], rng.normal(size=(2, 2)), scale=0.8)
        curvature = np.ones(4)  # of a mean in units of the scale
        arguments = {"rewards": "gaussian", "scale": 0.8}
    log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=60, horizon=4, rng=rng)
    data = lmab.estimation.families.observe(log, **arguments)
    added = data.information(bandit, data.prior(7.0)).matrix - data.information(bandit, data.prior(0.0)).matrix
    np.testing.assert_allclose(added, np.diag([0.0, *(7.0 * curvature)]), atol=1e-9)


def _bootstrap(fit: lmab.Estimate, n_draws: int, rng: np.random.Generator, **family):
    weights, means = [], []
    size, horizon = len(fit.sessions), fit.sessions.horizon
    for _ in range(n_draws):
        log = lmab.simulate(fit.bandit, lmab.Uniform(3), n_sessions=size, horizon=horizon, rng=rng)
        again = lmab.fit(log, n_types=2, method=lmab.EM(restarts=3, prior=0.0), rng=rng, **family).bandit
        same = (
            [0, 1]
            if np.abs(again.means - fit.bandit.means).sum() < np.abs(again.means[::-1] - fit.bandit.means).sum()
            else [1, 0]
        )
        weights.append(again.weights[same])
        means.append(again.means[same])
    return np.std(weights, axis=0), np.std(means, axis=0)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["categorical", "gaussian"])
def test_standard_errors_agree_with_the_parametric_bootstrap(family):
    """300 draws: a bootstrap standard error is itself known to about 4 percent."""
    rng = generator(1)
    means = [[0.9, 0.1, 0.4], [0.2, 0.7, 0.5]]
    if family == "categorical":
        bandit = lmab.LatentBandit.bernoulli([0.3, 0.7], means)
    else:
        bandit = lmab.LatentBandit.gaussian([0.3, 0.7], means, 0.5)
    log = lmab.simulate(bandit, lmab.Uniform(3), n_sessions=3000, horizon=5, rng=rng)
    fit = lmab.fit(log, n_types=2, rewards=family, method=lmab.EM(prior=0.0), rng=rng)
    weights, spread = _bootstrap(fit, 300, rng, rewards=family)
    errors = fit.standard_errors()
    np.testing.assert_allclose(errors.weights, weights, rtol=0.15)
    np.testing.assert_allclose(errors.means, spread, rtol=0.2)


def test_directions_that_the_log_is_silent_about_are_infinite():
    """Two means of which only the sum is known, and a third, known to within a half."""
    from lmab.estimation.gaussian import GaussianCoordinates
    from lmab.estimation.information import Information, standard_errors

    rewards = lmab.LatentBandit.gaussian([1.0], [[0.0, 0.0, 0.0, 0.0]], scale=3.0).rewards
    coordinates = GaussianCoordinates(np.ones(1), rewards, np.array([True, True, True, False]), True)
    matrix = np.array([[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 4.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    found = standard_errors(Information(matrix, coordinates)).means[0]
    assert found[:2].tolist() == [np.inf, np.inf]
    assert found[2] == pytest.approx(3.0 / 2)  # in units of the scale it is known to within a half
    assert np.isnan(found[3])  # never played


def test_too_many_parameters_are_refused(rng, monkeypatch):
    monkeypatch.setattr("lmab.estimation.information.MAX_PARAMETERS", 6)
    log = lmab.simulate(lmab.random_bandit(2, 2, rng=rng), lmab.Uniform(2), n_sessions=200, horizon=3, rng=rng)
    assert lmab.fit(log, n_types=2, method=lmab.EM(prior=0.0), rng=rng).standard_errors().means.shape == (
        2,
        2,
    )  # six exactly
    monkeypatch.setattr("lmab.estimation.information.MAX_PARAMETERS", 5)
    with pytest.raises(lmab.errors.TooLarge, match="about 6 parameters of 2 types was asked for, more than 5"):
        lmab.fit(log, n_types=2, method=lmab.EM(prior=0.0), rng=rng).standard_errors()


@pytest.mark.parametrize(("smallest", "free"), [(1e-5, 2), (1e-8, 1)])
def test_small_probabilities_are_inside_until_a_ten_millionth(smallest, free):
    assert within_support(np.array([smallest, 0.5, 0.5 - smallest])).shape[1] == free


def test_six_thousand_parameters_are_not_too_many():
    check_size(2, 6000)
    with pytest.raises(TooLarge, match="about 6001 parameters of 2 types was asked for, more than 6000: fit fewer"):
        check_size(2, 6001)
