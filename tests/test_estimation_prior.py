"""The prior as data: what the EM map, the objective and the rank make of a centre and a strength per arm."""

from __future__ import annotations

import importlib
import itertools
import threading
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st
from reference import gibbs as reference
from scipy.special import betaln, gammaln, ndtr, polygamma
from scipy.stats import multivariate_normal
from seeds import generator

import lmab
from lmab._kernel.compiled import gibbs
from lmab.errors import InvalidArgument, InvalidData, LmabWarning
from lmab.estimation import arm_law
from lmab.estimation import prior as prior_module
from lmab.estimation.climb import Confined, Likelihood, climb
from lmab.estimation.families import observe
from lmab.estimation.log import START, Prior
from lmab.parallel import SERIAL

LEARNED = lmab.EM(prior="learned", restarts=4, sweeps=40)
SHORT = prior_module.Schedule(chains=4, burn=60, keep=20, thin=2)


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
    models = data.random_models(1, 2, rng)
    statistics = rng.gamma(1.0, size=models.shape)
    found = data.maximise(statistics, models, prior)[0, 1:]
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
    found = data.log_prior(data.pack(bandit)[:, :, :2], prior)
    np.testing.assert_allclose(found, [expected], rtol=1e-12)


def test_gaussian_log_prior_is_the_squared_distance_from_the_centre(rng):
    data, prior = gaussian_data(0), gaussian_prior(rng)
    bandit = lmab.LatentBandit.gaussian([0.3, 0.7], 50 + rng.normal(size=(2, 3)), scale=1.7)
    expected = -0.5 * (prior.strength * (bandit.means - prior.centre) ** 2).sum() / 1.7**2
    found = data.log_prior(data.pack(bandit)[:, :, :2], prior)
    np.testing.assert_allclose(found, [expected], rtol=1e-12)


@given(log=strategies.logs(max_sessions=30, max_steps=6), seed=st.integers(0, 2**32 - 1), accelerate=st.booleans())
def test_the_objective_never_falls_under_any_prior(log, seed, accelerate):
    rng = np.random.default_rng(seed)
    data = observe(log, values=[0.0, 1.0])
    task = Likelihood(data, 3, categorical_prior(rng, (0.0, 1.0, 5.0)), SERIAL)
    found = climb(task, data.random_models(2, 3, rng), left=0.0, max_maps=30, accelerate=accelerate)
    for trace in found.traces:
        assert (np.diff(trace) >= -1e-10 * np.abs(trace[0])).all()


@pytest.mark.parametrize("rank", [None, 2])
@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([None, 0.5]), accelerate=st.booleans())
def test_the_gaussian_objective_never_falls_under_any_prior(rank, seed, scale, accelerate):
    rng = np.random.default_rng(seed)
    data, prior = gaussian_data(seed, scale), gaussian_prior(rng)
    free = Likelihood(data, 3, prior, SERIAL)
    task = free if rank is None else Confined(free, rank)
    start = data.random_models(2, 3, rng)
    if rank is not None:
        start = np.stack([task.project(model) for model in start])
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
    found = climb(task, data.random_models(1, 2, rng), left=1e-12, max_maps=3000, accelerate=True)
    bandit = data.bandit(found.models[0], 2)
    coordinates = data.information(bandit, prior).coordinates
    moves = np.concatenate([np.eye(coordinates.size), -np.eye(coordinates.size)]) * 0.01
    for weights, rewards in zip(coordinates.moved_weights(moves), coordinates.moved(moves), strict=True):
        other = data.pack(lmab.LatentBandit(weights, rewards))
        assert task.expectation(other)[1][0] < found.objectives[0]


def test_a_strong_prior_takes_an_arm_to_its_centre(rng):
    truth = lmab.LatentBandit.bernoulli([0.4, 0.6], [[0.9, 0.1, 0.5], [0.2, 0.8, 0.4]])
    data = observe(lmab.simulate(truth, lmab.Uniform(3), n_sessions=500, horizon=5, rng=rng))
    centre = np.array([[0.5, 0.5], [0.9, 0.1], [0.5, 0.5]])
    task = Likelihood(data, 2, Prior(centre, np.array([0.0, 1e9, 0.0])), SERIAL)
    found = climb(task, data.random_models(1, 2, rng), left=1e-8, max_maps=500, accelerate=True)
    means = data.bandit(found.models[0], 2).means
    np.testing.assert_allclose(means[:, 1], 0.1, atol=1e-5)
    assert np.ptp(means[:, 0]) > 0.3


def long_tail(rng, n_sessions=800):
    truth = lmab.LatentBandit.bernoulli([0.5, 0.5], rng.beta(2, 3, (2, 30)))
    popularity = 1 / np.arange(1, 31) ** 1.5
    arms = rng.choice(30, (n_sessions, 5), p=popularity / popularity.sum())
    types = rng.integers(2, size=n_sessions)
    paid = rng.random(arms.shape) < truth.means[types[:, None], arms]
    return truth, lmab.Sessions.from_arrays(arms, paid.astype(float), n_arms=30)


def test_rare_arms_are_nearer_to_the_truth_than_under_their_own_means(rng):
    truth, log = long_tail(rng)
    rare = np.argsort(np.bincount(log.arms, minlength=30))[:12]
    errors = []
    for prior in ("learned", 1.5):
        found = lmab.fit(log, n_types=2, method=lmab.EM(prior=prior, restarts=4), rng=0, check=False).bandit
        average = found.weights @ found.means
        errors.append(np.abs(average - truth.weights @ truth.means)[rare].mean())
    assert errors[0] < 0.8 * errors[1]


def test_same_seed_same_bits_for_any_number_of_threads(rng):
    _, log = long_tail(rng)
    one, two = (
        lmab.fit(log, n_types=2, method=lmab.EM(prior="learned", restarts=4, sweeps=20, threads=n), rng=3, check=False)
        for n in (1, 2)
    )
    np.testing.assert_array_equal(one.bandit.means, two.bandit.means)
    np.testing.assert_array_equal(one.arm_prior.pseudo_counts, two.arm_prior.pseudo_counts)


def test_the_trace_never_falls_and_the_prior_is_told(rng):
    _, log = long_tail(rng)
    estimate = lmab.fit(log, n_types=2, method=LEARNED, rng=rng, check=False)
    assert estimate.prior == "learned"
    assert estimate.learned is not None
    assert (np.diff(estimate.trace) >= -1e-9 * np.abs(estimate.trace[:-1])).all()
    np.testing.assert_allclose(estimate.arm_prior.centre.sum(axis=1), 1)


@pytest.mark.parametrize("n_arms", [1, 2])
def test_one_arm_or_two_fall_back_and_say_so(rng, n_arms):
    arms = rng.integers(n_arms, size=(200, 3))
    log = lmab.Sessions.from_arrays(arms, rng.integers(2, size=arms.shape).astype(float), n_arms=n_arms)
    estimate = lmab.fit(log, n_types=1, method=LEARNED, rng=rng)
    assert estimate.prior == START
    assert f"no prior was learned, since {n_arms} of the arms were played" in estimate.message
    same = lmab.fit(log, n_types=1, method=lmab.EM(prior=START), rng=rng)
    np.testing.assert_allclose(estimate.bandit.means, same.bandit.means, atol=1e-6)


def test_equal_rewards_fall_back_and_say_so(rng):
    log = lmab.Sessions.from_arrays(rng.integers(4, size=(50, 3)), np.ones((50, 3)), n_arms=4)
    with pytest.warns(LmabWarning, match="every reward is 1"):
        estimate = lmab.fit(log, n_types=2, method=LEARNED, rng=rng, check=False)
    assert "every reward is the same" in estimate.message
    assert (estimate.bandit.means == 1).all()


def test_an_arm_without_plays_is_taken_for_an_arm(rng):
    _, log = long_tail(rng)
    wide = lmab.Sessions(log.arms, log.rewards, log.offsets, n_arms=31)
    estimate = lmab.fit(wide, n_types=2, method=LEARNED, rng=rng, check=False)
    assert 0.15 < estimate.bandit.means[:, 30].mean() < 0.65
    assert np.ptp(estimate.bandit.means[:, 30]) < 1e-6


def test_missing_rewards_are_refused(rng):
    with pytest.raises(InvalidData, match="rewards must be finite"):
        lmab.Sessions.from_arrays([[0, 1]], [[1.0, np.nan]], n_arms=3)


@pytest.mark.parametrize("prior", ["other", -1.0, None])
def test_other_priors_are_refused(prior):
    with pytest.raises(InvalidArgument, match="prior must be"):
        lmab.EM(prior=prior)


def test_a_low_rank_keeps_the_learned_prior(rng):
    _, log = long_tail(rng)
    estimate = lmab.fit(log, n_types=3, method=LEARNED, rng=rng, check=False)
    polished = LEARNED.polish(estimate, rank=2)
    assert polished.prior == "learned"
    np.testing.assert_array_equal(polished.arm_prior.pseudo_counts, estimate.arm_prior.pseudo_counts)


def test_a_large_log_learns_from_a_sample(rng, monkeypatch):
    monkeypatch.setattr("lmab.estimation.em._PILOT", 200)
    monkeypatch.setattr("lmab.estimation.em._PILOT_PER_PARAMETER", 1)
    truth, log = long_tail(rng, 3000)
    estimate = lmab.fit(log, n_types=2, method=LEARNED, rng=rng, check=False)
    assert estimate.prior == "learned"
    assert estimate.converged
    played = np.bincount(log.arms, minlength=30) > 300
    error = np.abs(estimate.bandit.weights @ estimate.bandit.means - truth.weights @ truth.means)
    assert error[played].max() < 0.08


@pytest.mark.parametrize("rewards", ["categorical", "gaussian"])
def test_an_estimate_comes_back_from_its_file_with_its_prior(rng, tmp_path, rewards):
    truth = lmab.LatentBandit.gaussian([0.5, 0.5], rng.normal(0, 1, (2, 5)), scale=1.0)
    log = lmab.simulate(truth, lmab.Uniform(5), n_sessions=300, horizon=4, rng=rng)
    if rewards == "categorical":
        log = lmab.Sessions(log.arms, np.sign(log.rewards), log.offsets, log.n_arms)
    estimate = lmab.fit(log, n_types=2, rewards=rewards, method=LEARNED, rng=rng, check=False)
    estimate.save(tmp_path / "estimate.lmab")
    again = lmab.load(tmp_path / "estimate.lmab")
    assert again.prior == "learned"
    np.testing.assert_array_equal(again.learned.centre, estimate.learned.centre)
    np.testing.assert_array_equal(again.arm_prior.strength, estimate.arm_prior.strength)


def test_three_values_and_normal_rewards_are_learned(rng):
    for truth in (
        lmab.LatentBandit.categorical([0.5, 0.5], rng.dirichlet(np.ones(3), size=(2, 8)), [0.0, 1.0, 2.0]),
        lmab.LatentBandit.gaussian([0.5, 0.5], rng.normal(5, 1, (2, 8)), scale=0.5),
    ):
        log = lmab.simulate(truth, lmab.Uniform(8), n_sessions=1500, horizon=5, rng=rng)
        estimate = lmab.fit(log, n_types=2, rewards=truth.rewards.family, method=LEARNED, rng=rng, check=False)
        assert estimate.bandit.distance(truth) < 0.35


def asked_for(monkeypatch, n_arms, sweeps, n_steps=1):
    """The schedule and the threads that the chains get."""
    asked = []

    class Found:
        prior = "the prior"

    def run(log, bandit, *, rng, schedule, threads):
        asked.append((schedule, threads))
        return Found

    monkeypatch.setattr(prior_module, "run", run)
    log = SimpleNamespace(sessions=SimpleNamespace(n_arms=n_arms, n_steps=n_steps))
    assert prior_module.learn(log, "bandit", sweeps, np.random.default_rng(0), 7) == "the prior"
    return asked


@pytest.mark.parametrize(
    ("sweeps", "burn", "keep", "thin"),
    [(1, 0, 1, 1), (2, 1, 1, 1), (4, 2, 1, 2), (7, 5, 2, 1), (16, 8, 4, 2), (40, 20, 10, 2), (100, 70, 10, 3)],
)
def test_of_the_sweeps_the_last_ones_are_kept_and_none_is_added(monkeypatch, sweeps, burn, keep, thin):
    schedule = prior_module.Schedule(chains=4, burn=burn, keep=keep, thin=thin, frees=True)
    assert asked_for(monkeypatch, 500, sweeps) == [(schedule, 7)]
    assert burn + keep * thin == sweeps


def test_many_arms_need_fewer_and_shorter_chains(monkeypatch):
    assert asked_for(monkeypatch, 501, 130) == [(prior_module.Schedule(2, 20, 8, 2, frees=True), 7)]
    assert asked_for(monkeypatch, 501, 16) == [(prior_module.Schedule(2, 8, 4, 2, frees=True), 7)]


@pytest.mark.parametrize(
    ("n_arms", "n_steps", "many"),
    [(500, 300_000, False), (501, 1, True), (101, 300_001, True), (100, 10**9, False), (101, 300_000, False)],
)
def test_arms_are_many_above_500_or_above_100_of_a_large_log(monkeypatch, n_arms, n_steps, many):
    (found,) = asked_for(monkeypatch, n_arms, 130, n_steps)
    assert found[0].chains == (2 if many else 4)


def coded(arms, paid, n_arms):
    return observe(lmab.Sessions.from_arrays(arms, paid.astype(float), n_arms=n_arms), values=[0.0, 1.0])


def tiny(rng, n_sessions=4, n_arms=2, n_steps=3):
    shape = (n_sessions, n_steps)
    return coded(rng.integers(n_arms, size=shape), rng.integers(2, size=shape), n_arms)


def exact_posterior_mean(log, n_types):
    """Mean over types of arm 0's mean, by enumerating all types of sessions, laws, centres and spreads."""
    paid = np.bincount(log.sessions.arms, log.sessions.rewards, minlength=log.n_arms)
    grid = arm_law.grid_of(paid, np.bincount(log.sessions.arms, minlength=log.n_arms) - paid, n_types)
    first, second = grid.strength * grid.centre, grid.strength * (1 - grid.centre)
    n_sessions, total, answer = len(log.sessions), [], []
    sessions = [(2 * session.arms + session.rewards).astype(int) for session in log.sessions]
    for types in itertools.product(range(n_types), repeat=n_sessions):
        counts = np.zeros((log.n_arms, 2, n_types))
        for type_, codes in zip(types, sessions, strict=True):
            np.add.at(counts[:, :, type_], (codes // 2, codes % 2), 1.0)
        sizes = np.bincount(types, minlength=n_types)
        prior = gammaln(sizes + 1.0).sum()  # Dirichlet(1) weights, summed out
        missed, paid = counts[:, 0, :, None], counts[:, 1, :, None]
        evidence = (betaln(first + paid, second + missed) - betaln(first, second)).sum(axis=1)  # (A, J)
        mean = ((first + paid[0]) / (first + second + paid[0] + missed[0])).mean(axis=0)  # of arm 0 over types
        raised = np.exp(evidence).reshape(log.n_arms, len(grid.centre_laws[0]), -1)
        by_law = np.einsum("agk,bg,lk->abl", raised, grid.centre_laws, grid.spread_laws)
        weighted = np.einsum(
            "gk,bg,lk->bl", raised[0] * mean.reshape(raised[0].shape), grid.centre_laws, grid.spread_laws
        )
        law = np.exp(grid.centre_prior[:, None] + grid.spread_prior)
        total.append(np.exp(prior) * (by_law.prod(axis=0) * law).sum())
        answer.append(np.exp(prior) * (weighted * by_law[1:].prod(axis=0) * law).sum())
    return sum(answer) / sum(total)


def means_of(draws):
    return np.stack([rewards.means for rewards in draws.rewards])


@pytest.mark.parametrize("seed", [0, 1])
def test_draws_have_the_exact_posterior_mean(seed):
    rng = generator(seed)
    log = tiny(rng)
    start = lmab.LatentBandit.bernoulli([0.5, 0.5], rng.uniform(0.2, 0.8, (2, 2)))
    long = prior_module.Schedule(chains=4, burn=100, keep=800, thin=2)
    draws = prior_module.run(log, start, rng=rng, schedule=long)
    assert means_of(draws)[:, :, 0].mean() == pytest.approx(exact_posterior_mean(log, 2), abs=0.015)


def test_a_split_comes_before_those_of_its_sides_and_leads_to_every_value():
    for n_values in range(1, 12):
        found = arm_law.splits(n_values)
        assert len(found) == n_values - 1
        reached = {(0, n_values)}
        for split in found:
            assert (split.first, split.last) in reached
            reached |= {(split.first, split.middle), (split.middle, split.last)}
        assert {(value, value + 1) for value in range(n_values)} <= reached


def test_the_prior_of_two_values_is_the_beta_itself(rng):
    arms = arm_law.CategoricalArms(5, np.array([0.0, 1.0]))
    arms.draw(rng.integers(0, 30, (5, 2, 3)).astype(float), rng)
    mean, inverse = arms.likely(rng)
    grid = arms._grids[0]
    np.testing.assert_allclose(mean.sum(axis=1), 1)
    assert np.isin(mean[:, 1], grid.centre).all()
    np.testing.assert_allclose(inverse, [1 / grid.strength[arms._choice[0, a]] for a in range(5)])


def test_parents_of_splits_are_those_whose_side_they_divide():
    known = arm_law.splits(5)
    for split in known:
        parent = arm_law._parent(known, split)
        if parent is None:
            assert (split.first, split.last) == (0, 5)
        else:
            above = known[parent]
            assert (split.first, split.last) in ((above.first, above.middle), (above.middle, above.last))


def test_ordered_values_move_together(rng, monkeypatch):
    """Normal rewards cut into five values: good arms are taken for worse ones less than with unrelated splits."""
    means = rng.normal(0, 0.5, 20) + rng.normal(0, 0.8, (3, 20))
    edges = np.array([-np.inf, -1.2, -0.4, 0.4, 1.2, np.inf])
    types, arms = rng.integers(3, size=1500), rng.integers(20, size=(1500, 4))
    values = np.array([-2.0, -0.8, 0.0, 0.8, 2.0])
    seen = values[np.digitize(means[types[:, None], arms] + rng.standard_normal(arms.shape), edges[1:-1])]
    log = observe(lmab.Sessions.from_arrays(arms, seen, n_arms=20), values=values)
    below = ndtr(edges - means[:, :, None])
    truth = lmab.LatentBandit.categorical(np.full(3, 1 / 3), np.diff(below, axis=2), values)
    short, slopes = [], []
    for steepest in (2.0, 0.0):
        monkeypatch.setattr(arm_law, "_STEEPEST", steepest)
        draws = prior_module.run(log, truth, rng=generator(5), schedule=SHORT)
        found = np.mean([family.means for family in draws.rewards], axis=0)
        short.append((truth.means - found)[truth.means > 1].mean())
        slopes.append(np.polyfit(truth.means.ravel(), found.ravel(), 1)[0])
    assert short[0] < short[1]
    assert slopes[1] + 0.02 < slopes[0] < 1.05


def test_a_single_value_is_certain(rng):
    arms = arm_law.CategoricalArms(3, np.array([1.0]))
    assert (arms.draw(np.ones((3, 1, 2)), rng) == 1).all()
    mean, inverse = arms.likely(rng)
    assert (mean == 1).all()
    assert (inverse > 0).all()


def simulated(rng, means, n_sessions, n_steps, popularity):
    types = rng.integers(len(means), size=n_sessions)
    arms = rng.choice(means.shape[1], size=(n_sessions, n_steps), p=popularity)
    return arms, rng.random(arms.shape) < means[types[:, None], arms]


def test_an_arm_hardly_played_is_what_arms_are_like_here(rng):
    means = np.repeat(rng.beta(4, 6, (1, 40)), 2, axis=0)
    arms, paid = simulated(rng, means, 800, 5, np.r_[np.full(38, 1 / 38), 0, 0])
    arms[0, 0], paid[0, 0] = 38, True
    start = lmab.LatentBandit.bernoulli([0.5, 0.5], np.clip(means, 0.05, 0.95))
    draws = prior_module.run(coded(arms, paid, 40), start, rng=rng, schedule=SHORT)
    assert 0.25 < draws.prior.centre[38, 1] < 0.6  # one play that paid
    assert 0.25 < draws.prior.centre[39, 1] < 0.55  # never played
    assert means_of(draws)[:, :, 39].std() > 0.08  # and it may be anything that arms are


@pytest.mark.parametrize(("spread", "low", "high"), [(0.0, 30.0, 1e5), (2.0, 0.3, 3.0)])
def test_strength_tells_arms_that_differ_over_types_from_those_that_do_not(rng, spread, low, high):
    logits = rng.normal(0, 0.5, (1, 30)) + spread * rng.standard_normal((3, 30))
    means = 1 / (1 + np.exp(-logits))
    arms, paid = simulated(rng, means, 2000, 6, np.full(30, 1 / 30))
    log = coded(arms, paid, 30)
    draws = prior_module.run(log, lmab.LatentBandit.bernoulli(np.full(3, 1 / 3), means), rng=rng, schedule=SHORT)
    assert low < np.median(draws.prior.strength) < high


def test_a_run_is_the_same_for_the_same_seed(rng):
    log, start = tiny(rng, 30), lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.4, 0.6], [0.5, 0.5]])
    one, other = (prior_module.run(log, start, rng=generator(3), schedule=SHORT) for _ in "ab")
    np.testing.assert_array_equal(one.weights, other.weights)
    np.testing.assert_array_equal(means_of(one), means_of(other))
    np.testing.assert_array_equal(one.prior.pseudo_counts, other.prior.pseudo_counts)


def test_a_run_is_the_same_for_any_number_of_threads(rng):
    data, bandit = tiny(rng, 40, 3, 4), lmab.random_bandit(2, 3, rng=rng)
    alone, shared = (prior_module.run(data, bandit, rng=generator(5), schedule=SHORT, threads=n) for n in (1, 3))
    np.testing.assert_array_equal(alone.weights, shared.weights)
    np.testing.assert_array_equal(alone.prior.pseudo_counts, shared.prior.pseudo_counts)
    np.testing.assert_array_equal(means_of(alone), means_of(shared))


def test_chains_end_when_one_of_them_fails(rng, monkeypatch):
    data, bandit, failed = tiny(rng), lmab.random_bandit(2, 2, rng=rng), threading.Event()
    chains, sweeps_after = [], []

    class Chain:
        prior, weights, rewards = None, 0, 0

        def sweep(self, own):
            if self is chains[0]:
                failed.set()
                raise RuntimeError
            if failed.is_set():
                time.sleep(0.001)  # the failing thread gets its turn
                sweeps_after.append(own)

        def likely(self, own):
            return 0, 0

    def chain(self, bandit):
        chains.append(Chain())
        return chains[-1]

    monkeypatch.setattr(type(data), "chain", chain)
    with pytest.raises(RuntimeError):
        prior_module.run(data, bandit, rng=rng, schedule=prior_module.Schedule(2, 100_000, 1, 1), threads=2)
    assert len(sweeps_after) < 50_000  # of 100,000


def test_merged_sessions_have_the_same_law(rng):
    arms, paid = rng.integers(2, size=(3, 3)), rng.integers(2, size=(3, 3))
    often = np.repeat(np.arange(3), [4000, 2500, 6000])
    merged = coded(arms[often], paid[often], 2)
    assert merged.n_distinct == 3
    draws = prior_module.run(merged, lmab.LatentBandit.bernoulli([1.0], [[0.5, 0.5]]), rng=rng, schedule=SHORT)
    average = [paid[often][arms[often] == arm].mean() for arm in range(2)]
    np.testing.assert_allclose(means_of(draws).mean(axis=0)[0], average, atol=0.01)


def test_normal_rewards_find_means_scale_and_spread(rng):
    means = rng.normal(0, 1, (2, 12)) + rng.normal(3, 1, 12)
    bandit = lmab.LatentBandit.gaussian([0.5, 0.5], means, scale=0.5)
    log = lmab.simulate(bandit, lmab.Uniform(12), n_sessions=1500, horizon=5, rng=rng)
    draws = prior_module.run(observe(log, rewards="gaussian"), bandit, rng=rng, schedule=SHORT)
    np.testing.assert_allclose(means_of(draws).mean(axis=0), means, atol=0.15)
    assert np.mean([rewards.scale for rewards in draws.rewards]) == pytest.approx(0.5, abs=0.02)
    assert 0.1 < np.median(draws.prior.strength) < 1.0  # scale^2 / spread^2 = 0.25
    assert np.corrcoef(draws.prior.centre, means.mean(axis=0))[0, 1] > 0.95


def test_one_value_alone_has_draws_and_a_prior(rng):
    log = observe(lmab.Sessions.from_arrays([[0, 1], [1, 2]], [[1.0, 1.0], [1.0, 1.0]], n_arms=3))
    start = lmab.LatentBandit.categorical([0.5, 0.5], np.ones((2, 3, 1)), [1.0])
    draws = prior_module.run(log, start, rng=rng, schedule=SHORT)
    assert (means_of(draws) == 1).all()
    assert np.isfinite(draws.prior.pseudo_counts).all()


def test_draws_are_about_as_many_as_asked_for(rng):
    assert prior_module.Schedule.of(tiny(rng), 100).keep * prior_module.Schedule.of(tiny(rng), 100).chains == 100
    assert [prior_module.Schedule.of(tiny(rng), n).keep for n in (20, 21, 25, 26)] == [4, 5, 5, 6]  # never fewer
    assert (
        prior_module.Schedule.of(tiny(rng), 100)
        == prior_module.Schedule(chains=5, burn=120, keep=20, thin=3)
        == prior_module.Schedule()
    )


def test_a_sweep_that_takes_long_gets_fewer_and_shorter_chains(rng, monkeypatch):
    log = tiny(rng)
    work = log.sessions.n_steps + 100 * log.sessions.n_arms
    for large, wanted in ((work, (5, 120)), (work - 1, (3, 60))):
        monkeypatch.setattr(prior_module, "_LARGE", large)
        found = prior_module.Schedule.of(log, 30)
        assert (found.chains, found.burn) == wanted
        assert found.chains * found.keep == 30


class Counting:
    """A chain that counts its sweeps: draw b of chain c is the number of the sweep."""

    made: list[Counting] = []  # noqa: RUF012
    leaving = freedom = None

    def __init__(self) -> None:
        self.sweeps = 0
        Counting.made.append(self)

    @property
    def weights(self):
        return np.array([self.sweeps, len(Counting.made)], float)

    @property
    def rewards(self):
        return f"rewards {self.sweeps}"

    def sweep(self, rng):
        self.sweeps += 1

    def likely(self, rng):
        return np.array([self.sweeps, 2.0]), np.array([1.0 / self.sweeps, 0.25])

    def prior(self, centre, strength):
        return centre, strength


def test_draws_are_the_last_sweep_of_every_span_after_the_burn_in(rng, monkeypatch):
    Counting.made = []
    monkeypatch.setattr(prior_module, "_told", lambda sessions, weights, rewards: np.ones(len(weights)))
    log = type("Log", (), {"chain": lambda self, bandit: Counting(), "sessions": SimpleNamespace(plays=np.zeros(2))})()
    draws = prior_module.run(
        log, None, rng=rng, schedule=prior_module.Schedule(chains=2, burn=4, keep=3, thin=2), threads=1
    )
    assert draws.weights.tolist() == [[6, 1], [8, 1], [10, 1], [6, 2], [8, 2], [10, 2]]
    assert (draws.rewards[0], len(draws)) == ("rewards 6", 6)
    assert [chain.sweeps for chain in Counting.made] == [10, 10]
    prior: Any = draws.prior
    np.testing.assert_allclose(prior[0], [8.0, 2.0], rtol=1e-3)
    np.testing.assert_allclose(prior[1], [3 / (1 / 6 + 1 / 8 + 1 / 10), 4.0], rtol=1e-3)  # harmonic means


def test_a_spread_is_about_that_of_logits_and_laws_of_centres_have_their_means():
    grid = arm_law.beta_grid()
    spreads = np.tile(arm_law.SPREADS, len(grid.centre) // len(arm_law.SPREADS))
    small = spreads <= 0.2
    variance = polygamma(1, grid.strength * grid.centre) + polygamma(1, grid.strength * (1 - grid.centre))
    np.testing.assert_allclose(np.sqrt(variance)[small], spreads[small], rtol=0.03)  # Var(logit) of a beta law
    np.testing.assert_allclose(grid.centre_laws.sum(axis=1), 1)
    grid = arm_law.beta_grid(-2.0, 2.0, 0.5)
    logits = np.log(grid.centre / (1 - grid.centre)).reshape(-1, len(arm_law.SPREADS))[:, 0]
    mean, deviation = _moments(grid.centre_laws, logits)
    prior = grid.centre_prior.reshape(-1, len(arm_law._SCALES))
    scales = np.tile(arm_law._SCALES, len(prior))
    inside = (np.abs(mean) < 1) & (scales > 1.5 * grid.step) & (scales < 0.3)  # within the grid, wider than a step
    assert inside.sum() > 20
    np.testing.assert_allclose(deviation[inside], scales[inside], rtol=0.06)
    np.testing.assert_allclose(
        np.diff(prior, axis=1), np.diff(arm_law._SCALE_POWER * np.log(arm_law._SCALES))[None].repeat(31, 0)
    )
    assert (np.diff(mean.reshape(prior.shape)[:, 6]) > 0).all()  # places rise


def _moments(laws, points):
    """Mean and deviation of laws on points."""
    mean = laws @ points
    return mean, np.sqrt(np.maximum(laws @ points**2 - mean**2, 0.0))


def test_the_grid_lies_where_the_arms_of_the_log_lie():
    """Rare clicks were off the edge of a grid for all logs; an arm that was hardly played does not stretch it."""
    paid, missed = np.array([4.0, 6.0, 5.0, 0.0]), np.array([996.0, 994.0, 995.0, 3.0])
    grid = arm_law.grid_of(paid, missed, 2)
    logits = np.log(grid.centre / (1 - grid.centre))
    pooled = np.log((15 + 0.5) / (2988 + 0.5))
    error = np.sqrt(1 / (paid + 0.5) + 1 / (missed + 0.5))
    seems = np.log((paid + 0.5) / (missed + 0.5))
    lowest, highest = min((seems + error).min(), pooled) - 2, (seems - error).max() + 2
    ends = np.floor(2 * lowest) / 2, np.ceil(2 * highest) / 2  # outwards, to a half
    np.testing.assert_allclose((logits[0], logits[-1]), ends)
    assert grid.rising is arm_law.grid_of(paid + 0.1, missed, 2).rising  # so that logs share what takes long
    assert logits[-1] < seems.max() + 1  # the last arm would end it there plus 2
    nothing = arm_law.grid_of(np.zeros(2), np.zeros(2), 2)  # was played
    assert nothing is arm_law.beta_grid(alone=False, power=arm_law._SCALE_POWER)
    assert grid.n_spreads == len(arm_law.SPREADS)
    assert arm_law.grid_of(paid, missed, 1).n_spreads == 1  # one type does not spread over types
    farthest = arm_law.grid_of(np.array([1e9]), np.zeros(1), 2).centre.max()
    assert np.log(farthest / (1 - farthest)) == pytest.approx(12)


def test_the_middle_is_the_random_effects_mean_or_the_pooled_logit():
    logit, variance = np.array([-1.0, 0.0, 2.0]), np.array([0.1, 0.2, 0.1])
    weight = 1 / variance
    mean = (weight * logit).sum() / weight.sum()
    between = ((weight * (logit - mean) ** 2).sum() - 2) / (weight.sum() - (weight**2).sum() / weight.sum())
    expected = (logit / (variance + between)).sum() / (1 / (variance + between)).sum()
    assert arm_law._random_effects_mean(logit, variance, 7.0) == pytest.approx(expected)
    assert arm_law._random_effects_mean(logit / 10, variance, 7.0) == 7.0  # no more than chance
    assert arm_law._random_effects_mean(logit[:1], variance[:1], 7.0) == 7.0


@pytest.mark.parametrize("n_types", [1, 2])
def test_arms_that_pay_alike_are_believed_alike(n_types):
    """Shrink the mean of the best of 40 equal arms, which seems 1.6 times as good as it is."""
    rng = generator(3)
    arms = rng.integers(40, size=(3000, 3))
    log = observe(lmab.Sessions.from_arrays(arms, (rng.random(arms.shape) < 0.05).astype(float), n_arms=40))
    raw = np.bincount(arms.ravel(), log.sessions.rewards, minlength=40) / log.sessions.plays
    fit = lmab.EM(prior="learned", restarts=4, threads=1).fit(log, n_types=n_types, rng=rng).bandit
    assert raw.max() > 0.075
    assert (fit.weights @ fit.means).max() - 0.05 < 0.4 * (raw.max() - 0.05)


def test_a_prior_pulls_an_arm_as_the_draws_do_on_average():
    centres, inverses = np.array([[[0.9, 0.1]], [[0.5, 0.5]]]), np.array([[0.1], [0.001]])
    centre, strength = prior_module._averaged(centres, inverses, np.array([0.0]))
    np.testing.assert_allclose(centre, [[0.7, 0.3]], atol=1e-4)
    assert strength[0] == pytest.approx(1 / 0.0505, rel=1e-3)  # harmonic mean
    centre, strength = prior_module._averaged(centres, inverses, np.array([100.0]))
    pulls = np.array([10 / 110, 1000 / 1100])
    assert strength[0] / (strength[0] + 100) == pytest.approx(pulls.mean())
    np.testing.assert_allclose(centre[0], (pulls[:, None] * centres[:, 0]).sum(axis=0) / pulls.sum())


def test_plays_count_as_of_one_type_as_far_as_one_type_has_the_weight():
    weights = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.4, 0.3, 0.3]])
    told = np.ones(3)
    assert prior_module._alone(weights[:1], told[:1]) == pytest.approx(1.0)
    assert prior_module._alone(weights[1:2], told[1:2]) == pytest.approx(0.0, abs=1e-4)
    assert prior_module._alone(weights[2:], told[2:]) == pytest.approx(0.0, abs=1e-4)
    assert prior_module._alone(weights, told) == pytest.approx(1 / 3, abs=1e-4)
    assert prior_module._alone(weights, 0 * told) == 1.0  # sessions tell no types apart
    half = np.full(3, prior_module._HARDLY_TOLD)
    assert prior_module._alone(weights[1:2], half[:1]) == pytest.approx(0.5)


def test_what_is_told_of_types_is_nothing_where_they_are_alike_and_all_where_a_step_tells():
    log = lmab.Sessions.from_arrays([[0, 1]] * 4, [[1.0, 0.0], [0.0, 1.0]] * 2)
    alike, apart = (
        lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.3, 0.6], row]).rewards for row in ([0.3, 0.6], [0.7, 0.6])
    )
    sure = lmab.LatentBandit.bernoulli([0.5, 0.5], [[1.0, 0.5], [0.0, 0.5]]).rewards
    weights = np.array([[0.5, 0.5]] * 3)
    found = prior_module._told(log, weights, [alike, apart, sure])
    np.testing.assert_allclose(found, [0.0, (0.7**2 + 0.3**2 - 0.5) / 0.5, 1.0], atol=1e-9)
    assert prior_module._told(log, np.ones((2, 1)), [alike, apart]).tolist() == [0.0, 0.0]
    one_sure = prior_module._told(log, np.array([[1.0, 0.0]]), [apart])
    np.testing.assert_allclose(one_sure, [0.0], atol=1e-6)


def test_half_of_the_spread_laws_prior_says_that_all_arms_are_alike():
    laws, log_prior = arm_law.spread_laws(0.0)
    alike = (laws > 1e-6).sum(axis=1) == 1
    assert alike.sum() == len(arm_law.SPREADS)
    assert np.exp(log_prior)[alike].sum() == pytest.approx(0.5)
    assert np.exp(log_prior).sum() == pytest.approx(1.0)
    np.testing.assert_allclose(laws.sum(axis=1), 1, atol=1e-9)
    wide = laws[~alike][:, 4:].sum(axis=1)
    assert sorted(np.unique(wide.round(6))) == [0.12, 0.3, 0.6]  # the share of telling arms
    tilted = arm_law.spread_laws(-1.0)[1]
    ratio = tilted - log_prior + 0.5 * np.log(laws @ arm_law.SPREADS**2)
    np.testing.assert_allclose(ratio, ratio[0])  # falls with the root mean square spread


def test_a_slope_is_that_of_the_weighted_line():
    x = np.linspace(-1.5, 1.5, 40).reshape(8, 5)
    plays = np.where(np.arange(40).reshape(8, 5) % 3 == 0, 1e6, 3e6)

    def counts(logits):
        share = 1 / (1 + np.exp(-logits))
        return plays * share, plays * (1 - share)

    def slope_to(logits):
        return gibbs.slope(before[0], before[1], *counts(logits), 2.0)  # type: ignore[call-arg]

    before = counts(x)
    for slope in (0.8, -0.5, 0.0):
        assert slope_to(1 + slope * x) == pytest.approx(slope, abs=1e-3)
    assert (slope_to(9.0 * x), slope_to(-9.0 * x)) == (2.0, -2.0)
    nothing = np.zeros((8, 5))
    assert gibbs.slope(before[0], before[1], nothing, nothing, 2.0) == 0.0
    paid, missed = counts(0.8 * x)
    paid[0, 0], missed[0, 0] = 0.0, 1.0  # far off the line, but one play of millions
    assert gibbs.slope(before[0], before[1], paid, missed, 2.0) == pytest.approx(0.8, abs=1e-3)


def test_slopes_are_learned_in_the_first_sweeps_alone_and_move_centres(rng):
    arms = arm_law.CategoricalArms(6, np.arange(4.0))
    rising = np.array([[8.0, 2.0, 2.0, 1.0], [1.0, 2.0, 3.0, 9.0]] * 3)[:, :, None] * np.array([100.0, 120.0])
    for _ in range(10):
        drawn = arms.draw(rising, rng)
        np.testing.assert_allclose(drawn.sum(axis=1), 1)
    learned = arms._slopes.copy()
    assert learned[0] == 0  # the first split has none before it
    assert (np.abs(learned[1:]) > 0.1).all()
    arms.draw(rising[::-1, ::-1], rng)
    arms.draw(np.roll(rising, 1, axis=1), rng)
    np.testing.assert_array_equal(arms._slopes, learned)
    np.testing.assert_allclose(np.abs(drawn.mean(axis=2) - rising[:, :, 0] / rising[:, :, 0].sum(axis=1)[:, None]), 0,
                               atol=0.08)  # fmt: skip


def test_the_strength_of_a_dirichlet_law_from_a_variance():
    most, strength = np.array([0.2, 0.5, 1.0]), np.array([3.0, 10.0, 0.5])
    np.testing.assert_allclose(arm_law._inverse(most / (strength + 1), most), 1 / strength)
    assert arm_law._inverse(np.zeros(1), np.ones(1))[0] == 1e-5  # no more than 100,000 pseudo-plays


def test_more_values_have_a_prior_between_that_of_the_values_and_that_of_the_mean(rng):
    """Laws that are Dirichlet laws in truth: both ways to see the strength agree with it."""
    arms = arm_law.CategoricalArms(100, np.array([0.0, 1.0, 2.0]))
    counts = 1e3 * rng.dirichlet([6.0, 3.0, 3.0], size=(100, 8)).transpose(0, 2, 1)
    inverses, centres = [], []
    for sweep in range(30):
        arms.draw(counts.round(), rng)
        if sweep >= 10:
            mean, inverse = arms.likely(rng)
            inverses.append(inverse)
            centres.append(mean)
    np.testing.assert_allclose(np.mean(centres, axis=(0, 1)), [0.5, 0.25, 0.25], atol=0.04)
    assert 6 < 1 / np.mean(inverses) < 24  # 12 in truth


def gaussian_arms():
    return arm_law.GaussianArms(0.8, -1.0, 2.0)


def test_evidence_of_normal_arms_is_the_normal_marginal_likelihood(rng):
    """Rewards of an arm over types: means are normal around the centre, and the centre is normal over arms."""
    arms, scale = gaussian_arms(), 0.7
    plays, sums = np.array([[3.0, 0.0, 5.0], [1.0, 2.0, 4.0]]), rng.normal(size=(2, 3)) * 3
    sums[0, 1] = 0.0
    logs, precision, centre = arms._summaries(plays, sums, scale)
    found = logs[:, :, None] + arm_law._normal(
        centre[:, :, None], arms._places, arms._deviations, precision[:, :, None]
    )
    for arm in range(2):
        seen = plays[arm] > 0
        n, mean = plays[arm, seen], sums[arm, seen] / plays[arm, seen]
        exact = np.array(
            [
                [
                    multivariate_normal(
                        np.full(len(n), place), np.diag(spread**2 + scale**2 / n) + deviation**2
                    ).logpdf(mean)
                    for place, deviation in zip(arms._places, arms._deviations, strict=True)
                ]
                for spread in arms._spreads
            ]
        )
        np.testing.assert_allclose(found[arm] - found[arm, 0, 0], exact - exact[0, 0], atol=1e-8)


class Still:
    """A generator without noise: uniform numbers are `share`, normal ones 0."""

    def __init__(self, share):
        self.share = share

    def random(self, shape):
        return np.full(shape, self.share)

    def standard_normal(self, shape):
        return np.zeros(shape)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_centres_and_means_of_normal_arms_are_drawn_around_their_posterior_means(share, rng):
    arms, scale = gaussian_arms(), 0.7
    plays, sums = rng.integers(1, 9, (4, 3)).astype(float), rng.normal(size=(4, 3)) * 4
    means = arms.draw(plays, sums, scale, Still(share))
    place, deviation = arms._places[arms._state[1]], arms._deviations[arms._state[1]]
    own = 1 / (arms.variance[:, None] + scale**2 / plays)
    centre = ((own * sums / plays).sum(axis=1) + place / deviation**2) / (own.sum(axis=1) + 1 / deviation**2)
    np.testing.assert_allclose(arms.centre, centre)
    weight = plays / scale**2 + 1 / arms.variance[:, None]
    np.testing.assert_allclose(means, (sums / scale**2 + (centre / arms.variance)[:, None]) / weight)
    assert np.isin(np.sqrt(arms.variance).round(12), (arm_law.SPREADS * 0.4).round(12)).all()


def test_a_known_scale_stays_and_rewards_without_noise_keep_a_least_one(rng):
    truth = lmab.LatentBandit.gaussian([0.5, 0.5], rng.normal(0, 1, (2, 5)), scale=0.5)
    log = lmab.simulate(truth, lmab.Uniform(5), n_sessions=100, horizon=3, rng=rng)
    short = prior_module.Schedule(chains=1, burn=5, keep=5, thin=1)
    known = prior_module.run(observe(log, rewards="gaussian", scale=0.5), truth, rng=rng, schedule=short)
    assert [rewards.scale for rewards in known.rewards] == [0.5] * 5
    free = prior_module.run(observe(log, rewards="gaussian"), truth, rng=rng, schedule=short)
    assert len({rewards.scale for rewards in free.rewards}) == 5
    types = np.repeat(rng.integers(2, size=100), 3)
    flat = observe(lmab.Sessions(log.arms, log.arms + 9.0 * types, log.offsets, 5), rewards="gaussian")
    start = lmab.LatentBandit.gaussian([0.5, 0.5], [np.arange(5.0), 9 + np.arange(5.0)], scale=0.5)
    certain = prior_module.run(flat, start, rng=rng, schedule=prior_module.Schedule(chains=1, burn=60, keep=5, thin=1))
    np.testing.assert_allclose([rewards.scale for rewards in certain.rewards], flat.least_scale, rtol=0.5)
    np.testing.assert_allclose(means_of(certain).mean(axis=0), start.means, atol=1e-3)


@pytest.mark.parametrize("implementation", ["reference", "lmab._kernel.compiled"])
def test_a_start_that_calls_the_log_impossible_is_no_end(rng, monkeypatch, implementation):
    module = importlib.import_module(f"{implementation}.gibbs")
    monkeypatch.setattr("lmab.estimation.categorical.kernel", lambda name: module)
    log = tiny(rng, n_sessions=60, n_arms=3, n_steps=12)
    start = lmab.LatentBandit.bernoulli([1.0, 0.0], [[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    draws = prior_module.run(log, start, rng=rng, schedule=prior_module.Schedule(chains=1, burn=20, keep=10, thin=1))
    assert np.isfinite(draws.weights).all()
    np.testing.assert_allclose(draws.weights.sum(axis=1), 1)
    assert (draws.weights > 0).all()
    assert 0.2 < means_of(draws).mean() < 0.8


def test_weights_have_equal_pseudo_sessions_before_the_log(rng):
    """One session of two types: its type is drawn, and the weight of a type is uniform then."""
    log = coded(np.array([[0, 1, 2]]), np.array([[1, 0, 1]]), 3)
    start = lmab.LatentBandit.bernoulli([0.5, 0.5], np.full((2, 3), 0.5))
    draws = prior_module.run(log, start, rng=rng, schedule=prior_module.Schedule(chains=4, burn=10, keep=150, thin=1))
    assert np.abs(np.diff(draws.weights, axis=1)).mean() == pytest.approx(0.5, abs=0.1)


def test_every_session_has_a_draw_of_its_own_where_equal_ones_are_one(rng, monkeypatch):
    drawn = []

    class Noting:
        def __getattr__(self, name):
            return getattr(reference, name)

        def categorical(self, codes, offsets, counts, table, uniforms, statistics):
            drawn.append(len(uniforms))
            reference.categorical(codes, offsets, counts, table, uniforms, statistics)

    monkeypatch.setattr("lmab.estimation.categorical.kernel", lambda name: Noting())
    log = coded(np.tile([[0, 1, 2]], (50, 1)), np.tile([[1, 0, 1]], (50, 1)), 3)
    assert log.n_distinct == 1
    log.chain(lmab.LatentBandit.bernoulli([0.5, 0.5], np.full((2, 3), 0.5))).sweep(rng)
    assert drawn == [50]


def test_the_scale_is_that_of_what_the_means_leave(rng):
    class Sure:
        """The generator, with the mean of a chi-squared draw in its place."""

        def __getattr__(self, name):
            return getattr(rng, name)

        def chisquare(self, n):
            return float(n)

    truth = lmab.LatentBandit.gaussian([1.0], [[5.0, 6.0, 8.0]], scale=2.0)
    log = lmab.simulate(truth, lmab.Uniform(3), n_sessions=4, horizon=3, rng=rng)
    chain = observe(log, rewards="gaussian").chain(truth)
    for _ in range(3):
        chain.sweep(Sure())
        means = chain.rewards.means[0][log.arms]
        assert chain.scale == pytest.approx(np.sqrt(((log.rewards - means) ** 2).mean()))
        centre, inverse = chain.likely(rng)
        np.testing.assert_allclose(inverse, chain._arms.variance / chain.scale**2)
        np.testing.assert_allclose(centre - chain._arms.centre, log_centre(log))


def log_centre(log) -> float:
    """The mean over arms of what each of them paid on average."""
    return float(np.mean([log.rewards[log.arms == arm].mean() for arm in np.unique(log.arms)]))


@pytest.mark.parametrize(("means", "freed"), [([[0.9, 0.1, 0.8], [0.1, 0.9, 0.2]], 4), ([[0.05] * 3, [0.05] * 3], 0)])
def test_laws_of_arms_are_freed_only_where_sessions_tell_their_types(monkeypatch, means, freed):
    bandit, calls = lmab.LatentBandit.bernoulli([0.5, 0.5], means), []
    log = observe(lmab.simulate(bandit, lmab.Uniform(3), n_sessions=600, horizon=5, rng=generator(4)))
    monkeypatch.setattr(arm_law.CategoricalArms, "free", lambda arms: calls.append(arms))
    prior_module.learn(log, bandit, 20, generator(1), 1)
    assert len(calls) == freed  # each chain once, or none
    calls.clear()
    prior_module.run(log, bandit, rng=generator(1), schedule=SHORT)
    assert not calls  # draws for claims keep their laws


@pytest.mark.parametrize(("told", "freed"), [(0.0199, 0), (0.0201, 4)])
def test_a_fiftieth_of_a_type_told_by_sessions_frees_the_laws(monkeypatch, told, freed):
    bandit, calls = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1, 0.8], [0.1, 0.9, 0.2]]), []
    log = observe(lmab.simulate(bandit, lmab.Uniform(3), n_sessions=50, horizon=3, rng=generator(4)))
    monkeypatch.setattr(arm_law.CategoricalArms, "free", lambda arms: calls.append(arms))
    monkeypatch.setattr(prior_module, "_told", lambda _, weights, *__: np.full(len(weights), told))
    prior_module.learn(log, bandit, 8, generator(1), 1)
    assert len(calls) == freed


def test_freed_laws_have_the_priors_of_no_power():
    for alone in (False, True):
        grid = arm_law.beta_grid(-3.0, 1.0, -1.0, alone=alone, table=64)
        flat = arm_law.beta_grid(-3.0, 1.0, -1.0, alone=alone, table=64, power=0.0)
        freed = arm_law.freed(grid, arm_law._SCALE_POWER)
        assert not np.allclose(np.diff(grid.centre_prior), np.diff(flat.centre_prior))
        np.testing.assert_allclose(np.diff(freed.centre_prior), np.diff(flat.centre_prior), atol=1e-12)
        np.testing.assert_array_equal(freed.spread_prior, [0.0] if alone else arm_law.spread_laws(0.0)[1])
