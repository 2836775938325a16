"""The prior as data: what the EM map, the objective and the rank make of a centre and a strength per arm."""

from __future__ import annotations

import numpy as np
import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st
from seeds import generator

import lmab
from lmab.estimation import Prior, observe
from lmab.estimation.objective import Confined, Likelihood
from lmab.estimation.passes import SERIAL
from lmab.estimation.squarem import climb


def gaussian_data(seed, scale=None):
    rng = generator(seed)
    bandit = lmab.LatentBandit.gaussian([0.4, 0.6], 50 + rng.normal(size=(2, 3)), scale=0.7)
    return observe(
        lmab.simulate(bandit, lmab.Uniform(3), n_sessions=40, horizon=4, rng=rng), rewards="gaussian", scale=scale
    )


def categorical_prior(rng, strength=(0.5, 2.0, 4.0)):
    return Prior(rng.dirichlet(np.ones(2), size=3), np.array(strength))


def gaussian_prior(rng):
    return Prior(50 + 3 * rng.normal(size=3), np.array([0.5, 2.0, 6.0]))


def test_a_number_makes_pseudo_plays_at_each_arms_average(rng):
    log = lmab.Sessions.from_arrays([[0, 0], [0, 1]], [[0.0, 1.0], [1.0, 1.0]]).with_arms(3)
    prior = observe(log).prior(3.0)
    np.testing.assert_allclose(prior.centre, [[1 / 3, 2 / 3], [0, 1], [1 / 4, 3 / 4]])
    np.testing.assert_allclose(prior.pseudo_counts, [[1, 2], [0, 3], [0.75, 2.25]])
    assert prior.active
    assert not observe(log).prior(0.0).active
    data = observe(log, rewards="gaussian")
    np.testing.assert_allclose(data.prior(3.0).centre, [2 / 3, 1, 3 / 4])
    assert data.prior(3.0).strength.tolist() == [3.0, 3.0, 3.0]


def test_categorical_maxima_are_frequencies_with_pseudo_counts(rng):
    data = observe(lmab.Sessions.from_arrays([[0, 1, 2]], [[0.0, 1.0, 1.0]]), values=[0.0, 1.0])
    prior = categorical_prior(rng)
    models = data.start_models.random(1, 2, rng)
    statistics = rng.gamma(1.0, size=models.shape)
    found = data.em_map(prior).maximise(statistics, models)[0, 1:]
    for type_ in range(2):
        for arm in range(3):
            own = statistics[0, 1 + 2 * arm : 3 + 2 * arm, type_] + prior.strength[arm] * prior.centre[arm]
            np.testing.assert_allclose(found[2 * arm : 2 * arm + 2, type_], own / own.sum(), rtol=1e-12)


def test_categorical_log_prior_is_the_log_density_of_pseudo_counts(rng):
    data = observe(lmab.Sessions.from_arrays([[0, 1, 2]], [[0.0, 1.0, 1.0]]), values=[0.0, 1.0])
    prior = categorical_prior(rng)
    bandit = lmab.LatentBandit.bernoulli([0.3, 0.7], rng.uniform(0.1, 0.9, size=(2, 3)))
    expected = sum(
        prior.strength[arm] * prior.centre[arm, z] * np.log(bandit.rewards.probabilities[m, arm, z])
        for m in range(2) for arm in range(3) for z in range(2)
    )  # fmt: skip
    found = data.em_map(prior).log_prior(data.models.pack(bandit)[:, :, :2])
    np.testing.assert_allclose(found, [expected], rtol=1e-12)


def test_gaussian_log_prior_is_the_squared_distance_from_the_centre(rng):
    data, prior = gaussian_data(0), gaussian_prior(rng)
    bandit = lmab.LatentBandit.gaussian([0.3, 0.7], 50 + rng.normal(size=(2, 3)), scale=1.7)
    expected = -0.5 * (prior.strength * (bandit.means - prior.centre) ** 2).sum() / 1.7**2
    found = data.em_map(prior).log_prior(data.models.pack(bandit)[:, :, :2])
    np.testing.assert_allclose(found, [expected], rtol=1e-12)


@given(log=strategies.logs(max_sessions=30, max_steps=6), seed=st.integers(0, 2**32 - 1), accelerate=st.booleans())
def test_the_objective_never_falls_under_any_prior(log, seed, accelerate):
    rng = np.random.default_rng(seed)
    data = observe(log, values=[0.0, 1.0])
    task = Likelihood(data, 3, categorical_prior(rng, (0.0, 1.0, 5.0)), SERIAL)
    found = climb(task, data.start_models.random(2, 3, rng), left=0.0, max_maps=30, accelerate=accelerate)
    for trace in found.traces:
        assert (np.diff(trace) >= -1e-10 * np.abs(trace[0])).all()


@pytest.mark.parametrize("rank", [None, 2])
@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([None, 0.5]), accelerate=st.booleans())
def test_the_gaussian_objective_never_falls_under_any_prior(rank, seed, scale, accelerate):
    rng = np.random.default_rng(seed)
    data, prior = gaussian_data(seed, scale), gaussian_prior(rng)
    free = Likelihood(data, 3, prior, SERIAL)
    task = free if rank is None else Confined(free, rank)
    start = data.start_models.random(2, 3, rng)
    if rank is not None:
        start = np.stack([task.confinement.project(model) for model in start])
    found = climb(task, start, left=0.0, max_maps=30, accelerate=accelerate)
    for trace in found.traces:
        assert (np.diff(trace) >= -1e-9 * np.abs(trace[0])).all()


@pytest.mark.parametrize("family", ["categorical", "gaussian"])
def test_the_end_of_the_climb_is_a_maximum_of_likelihood_plus_prior(family, rng):
    """No small change of weights, means or scale raises the objective."""
    if family == "categorical":
        truth = lmab.LatentBandit.bernoulli([0.4, 0.6], [[0.9, 0.1, 0.5], [0.2, 0.8, 0.4]])
        log = lmab.simulate(truth, lmab.Uniform(3), n_sessions=200, horizon=5, rng=rng)
        data, prior = observe(log), categorical_prior(rng)
    else:
        data, prior = gaussian_data(3), gaussian_prior(rng)
    task = Likelihood(data, 2, prior, SERIAL)
    found = climb(task, data.start_models.random(1, 2, rng), left=1e-12, max_maps=3000, accelerate=True)
    bandit = data.models.bandit(found.models[0], 2)
    coordinates = data.information(bandit, prior).coordinates
    moves = np.concatenate([np.eye(coordinates.size), -np.eye(coordinates.size)]) * 0.01
    for weights, rewards in zip(coordinates.moved_weights(moves), coordinates.moved(moves), strict=True):
        other = data.models.pack(lmab.LatentBandit(weights, rewards))
        assert task.expectation(other)[1][0] < found.objectives[0]


def test_a_strong_prior_takes_an_arm_to_its_centre(rng):
    truth = lmab.LatentBandit.bernoulli([0.4, 0.6], [[0.9, 0.1, 0.5], [0.2, 0.8, 0.4]])
    data = observe(lmab.simulate(truth, lmab.Uniform(3), n_sessions=500, horizon=5, rng=rng))
    centre = np.array([[0.5, 0.5], [0.9, 0.1], [0.5, 0.5]])
    task = Likelihood(data, 2, Prior(centre, np.array([0.0, 1e9, 0.0])), SERIAL)
    found = climb(task, data.start_models.random(1, 2, rng), left=1e-8, max_maps=500, accelerate=True)
    means = data.models.bandit(found.models[0], 2).means
    np.testing.assert_allclose(means[:, 1], 0.1, atol=1e-5)
    assert np.ptp(means[:, 0]) > 0.3
