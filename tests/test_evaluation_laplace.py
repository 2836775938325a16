"""The information about a fitted bandit: against second derivatives, and the compiled kernel against the plain."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lmab
from lmab._kernel.compiled import information as compiled
from lmab._kernel.reference import information as reference
from lmab.errors import TooLarge
from lmab.evaluation.laplace import Laplace, contrasts, information, laplace
from lmab.model.rewards import Categorical


def random_case(n_contexts, n_arms, n_values, n_episodes, rng):
    bandit = lmab.LatentBandit.categorical(
        rng.dirichlet(np.full(n_contexts, 3.0)),
        rng.dirichlet(np.full(n_values, 2.0), size=(n_contexts, n_arms)),
        np.arange(n_values),
    )
    actions = rng.integers(n_arms, size=(n_episodes, 5))
    actions[:, 2:][rng.random((n_episodes, 3)) < 0.3] = -1  # sessions of different lengths
    rewards = rng.integers(n_values, size=actions.shape).astype(float)
    return bandit, lmab.Episodes.from_arrays(actions, rewards, n_arms=n_arms)


def log_posterior(x, shape, episodes, prior, marginals):
    """log-likelihood plus log prior at the logits x, with nothing of the package but the coordinates."""
    n_contexts, n_arms, n_values = shape
    weights = softmax(contrasts(n_contexts) @ x[: n_contexts - 1])
    logits = x[n_contexts - 1 :].reshape(n_arms, n_contexts, n_values - 1) @ contrasts(n_values).T
    probabilities = softmax(logits)
    total = prior * (marginals[:, None] * np.log(probabilities)).sum()
    for k in range(len(episodes)):
        joint = weights.copy()
        for step in range(episodes.offsets[k], episodes.offsets[k + 1]):
            joint *= probabilities[episodes.actions[step], :, int(episodes.rewards[step])]
        total += np.log(joint.sum())
    return total


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


@pytest.mark.parametrize(("n_contexts", "n_arms", "n_values"), [(2, 2, 2), (3, 2, 3), (1, 3, 2), (2, 1, 4)])
def test_information_is_minus_the_second_derivatives(n_contexts, n_arms, n_values, rng):
    bandit, episodes = random_case(n_contexts, n_arms, n_values, 12, rng)
    x = np.concatenate(
        [
            2 * contrasts(n_contexts).T @ np.log(bandit.weights),  # the columns of the contrasts have length 1/sqrt(2)
            (2 * np.log(bandit.rewards.probabilities.swapaxes(0, 1)) @ contrasts(n_values)).ravel(),
        ]
    )
    marginals = rng.dirichlet(np.ones(n_values), size=n_arms)
    shape = (n_contexts, n_arms, n_values)
    expected = -second_derivatives(lambda y: log_posterior(y, shape, episodes, 1.5, marginals), x)
    np.testing.assert_allclose(information(bandit, bandit.rewards, episodes, prior=1.5), expected, atol=2e-4)


@given(seed=st.integers(0, 1000), n_contexts=st.integers(1, 4), n_arms=st.integers(1, 4), n_values=st.integers(1, 4))
def test_compiled_kernel_equals_the_specification(seed, n_contexts, n_arms, n_values):
    rng = np.random.default_rng(seed)
    _, episodes = random_case(n_contexts, n_arms, n_values, 8, rng)
    codes = (episodes.actions * n_values + episodes.rewards.astype(int)).astype(np.uint8)
    shares = rng.dirichlet(np.ones(n_contexts), size=len(episodes))
    scores = rng.standard_normal((n_arms * n_values, n_contexts, n_values - 1))
    size = n_contexts * (1 + n_arms * (n_values - 1))
    results = np.full((2, size, size), np.nan)
    for module, result in zip((reference, compiled), results, strict=True):
        module.missing(codes, episodes.offsets, shares, scores, result)
    np.testing.assert_allclose(results[1], results[0], atol=1e-12)


def test_relabelling_contexts_arms_or_values_changes_no_eigenvalue(rng):
    bandit, episodes = random_case(3, 4, 3, 50, rng)
    arms = [2, 0, 3, 1]
    other = bandit.relabel(contexts=[1, 2, 0], arms=arms)
    values = Categorical(other.rewards.probabilities[:, :, [1, 0, 2]], np.array([1.0, 0.0, 2.0]))
    moved = lmab.Episodes(np.argsort(arms)[episodes.actions], episodes.rewards, episodes.offsets, 4)
    before = laplace(bandit, bandit.rewards, episodes, prior=1.0).eigenvalues
    after = laplace(lmab.LatentBandit(other.weights, values), values, moved, prior=1.0).eigenvalues
    np.testing.assert_allclose(after, before, atol=1e-9)


def test_draws_have_the_covariance_of_the_information(rng):
    bandit, episodes = random_case(1, 2, 2, 400, rng)
    approximation = laplace(bandit, bandit.rewards, episodes, prior=1.0)
    assert approximation.n_floored == 0
    weights, families = approximation.draw(4000, rng)
    assert (weights == 1).all()
    means = np.array([family.means[0] for family in families])
    logits = np.log(means / (1 - means))
    plays = np.bincount(episodes.actions)
    expected = 1 / ((plays + 1) * bandit.means[0] * (1 - bandit.means[0]))
    np.testing.assert_allclose(logits.var(axis=0), expected, rtol=0.1)
    np.testing.assert_allclose(logits.mean(axis=0), np.log(bandit.means[0] / (1 - bandit.means[0])), atol=0.02)


def test_what_the_log_says_nothing_about_is_floored_and_the_impossible_stays_impossible(rng):
    bandit = lmab.LatentBandit.categorical([1.0, 0.0], [[[0.5, 0.5, 0.0]] * 2, [[0.2, 0.8, 0.0]] * 2], [0, 1, 2])
    episodes = lmab.Episodes.from_arrays([[0, 0]] * 50, [[0.0, 1.0]] * 50, n_arms=2)
    approximation = laplace(bandit, bandit.rewards, episodes, prior=1.0)
    # All but the played arm's logit of value 0 against 1 in the context that is left: 9 coordinates less 1.
    assert (approximation.n_parameters, approximation.n_floored) == (9, 8)
    weights, families = approximation.draw(400, rng)
    assert weights[:, 1].max() < 1e-9
    unplayed = np.array([family.probabilities[0, 1] for family in families])
    assert np.log(unplayed[:, 1] / unplayed[:, 0]).std() == pytest.approx(1, rel=0.15)
    assert max(family.probabilities[:, :, 2].max() for family in families) < 1e-9


def test_too_many_parameters_are_refused_with_their_number(rng):
    bandit, episodes = random_case(3, 2, 2, 5, rng)
    wide = Categorical(np.full((3, 2000, 2), 0.5), np.arange(2.0))
    with pytest.raises(TooLarge, match="6003 parameters"):
        information(lmab.LatentBandit(bandit.weights, wide), wide, episodes, prior=1.0)


def test_a_large_log_takes_well_under_a_second(rng):
    import time

    bandit = lmab.random_bandit(5, 50, rng=rng)
    log = lmab.simulate(bandit, lmab.Uniform(50), n_episodes=10_000, horizon=7, rng=rng)
    information(bandit, bandit.rewards, log[:10], prior=1.0)  # compiles
    start = time.perf_counter()
    assert information(bandit, bandit.rewards, log, prior=1.0).shape == (254, 254)
    assert time.perf_counter() - start < 1.0


def test_draws_spread_along_the_eigenvectors(rng):
    """Two logits of one context, known well along one diagonal and badly along the other."""
    family = Categorical(np.full((1, 2, 2), 0.5), np.array([0.0, 1.0]))
    turned = np.array([[0.8, -0.6], [0.6, 0.8]])
    _, families = Laplace(np.ones(1), family, np.array([2.0, 50.0]), turned).draw(20_000, rng)
    means = np.array([one.means[0] for one in families])
    expected = turned @ np.diag([1 / 2, 1 / 50]) @ turned.T
    np.testing.assert_allclose(np.cov(np.log(means / (1 - means)).T), expected, atol=0.02)
