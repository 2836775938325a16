"""Fits that start from a model: it is used, it never loses, and a bad one does no harm."""

from __future__ import annotations

import numpy as np
import pytest
from seeds import generator

import lmab
from lmab.errors import InvalidArgument
from lmab.estimation.warm import in_order_of, packed_start

TRUTH = lmab.LatentBandit.bernoulli([0.6, 0.4], [[0.9, 0.2, 0.4], [0.1, 0.8, 0.5]])
ONE_START = lmab.EM(restarts=1, prior=1.0)


def logged(n_sessions: int, seed: int, bandit: lmab.LatentBandit = TRUTH) -> lmab.Sessions:
    uniform = lmab.Uniform(bandit.n_arms)
    return lmab.simulate(bandit, uniform, n_sessions=n_sessions, horizon=4, rng=generator(seed))


@pytest.mark.parametrize("prior", [0.0, 1.0, "learned"])
def test_a_fit_starts_where_it_is_told_and_keeps_the_order_of_types(prior):
    log = logged(400, 0)
    for start in (TRUTH, TRUTH.relabel(types=[1, 0])):
        found = lmab.fit(log, n_types=2, method=lmab.EM(restarts=1, prior=prior), start=start, rng=0)
        assert np.abs(found.bandit.means - start.means).max() < 0.2
        assert found.starts.drawn == 1
        assert len(found.trace) < 40  # a random start takes more maps to find the types


@pytest.mark.parametrize("method", [ONE_START, lmab.EM(restarts=4, prior="learned"), lmab.EM(restarts=2)])
def test_the_objective_never_ends_below_that_of_the_start(method):
    """The start is a fit to the same log with many starts, so that other starts alone may do worse."""
    bandit = lmab.random_bandit(4, 8, rng=3)
    log = logged(200, 1, bandit)
    best = lmab.fit(log, n_types=4, method=lmab.EM(restarts=40, prior=method.prior), rng=1)
    for seed in range(3):
        found = lmab.fit(log, n_types=4, method=method, start=best.bandit, rng=seed)
        assert _objective(found, found.bandit) >= _objective(found, best.bandit) - 1e-9


def _objective(fit: lmab.Estimate, bandit: lmab.LatentBandit) -> float:
    """Log-likelihood and log prior of a model, under the prior of the fit."""
    value = fit.require_log().log_likelihood(bandit)
    if fit.arm_prior.active:
        value += float((fit.arm_prior.pseudo_counts * np.log(bandit.rewards.probabilities)).sum())
    return float(value)


def test_a_start_that_loses_on_the_sample_still_counts_on_the_whole_log(monkeypatch):
    """Where the search ends lower than the start, the fit goes on from the start itself."""
    log = logged(300, 2)
    best = lmab.fit(log, n_types=2, method=lmab.EM(prior=1.0), rng=0)
    worse = packed_start(lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.5] * 3] * 2), best.observations)
    monkeypatch.setattr("lmab.estimation.em.packed_start", lambda *_: worse)  # stays where it is: types are alike
    found = lmab.fit(log, n_types=2, method=ONE_START, start=best.bandit, rng=0)
    assert found.trace[-1] >= best.trace[-1] - 1e-6


def test_a_bad_start_does_not_hold_the_fit_back():
    log = logged(500, 3)
    alike = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.5, 0.5, 0.5], [0.5, 0.5, 0.5]])  # its types never part
    cold = lmab.fit(log, n_types=2, method=lmab.EM(restarts=4, prior=1.0), rng=0)
    held = lmab.fit(log, n_types=2, method=ONE_START, start=alike, rng=0)
    warm = lmab.fit(log, n_types=2, method=lmab.EM(restarts=4, prior=1.0), start=alike, rng=0)
    assert warm.starts.drawn == 4  # the given start is one of them
    assert held.trace[-1] < cold.trace[-1] - 10  # one start is not enough here
    assert warm.trace[-1] >= cold.trace[-1] - 1e-3


def test_types_of_a_new_fit_follow_those_that_they_resemble():
    three = lmab.LatentBandit.bernoulli([0.2, 0.3, 0.5], [[0.9, 0.1], [0.5, 0.5], [0.1, 0.9]])
    log = lmab.Sessions.from_arrays([[0, 1]], [[1.0, 0.0]])
    for order in ([0, 1, 2], [2, 0, 1], [1, 0, 2]):
        found = in_order_of(three, three.relabel(types=order), log)
        np.testing.assert_array_equal(found.means, three.means)
    # Only arm 1 was ever played, so that arm 0 says nothing about which type is which.
    once = lmab.Sessions.from_arrays([[1]], [[1.0]], n_arms=2)
    start = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.2], [0.1, 0.6]])
    other = lmab.LatentBandit.bernoulli([0.4, 0.6], [[0.9, 0.6], [0.1, 0.2]])
    assert in_order_of(start, other, once).weights.tolist() == [0.6, 0.4]


def test_a_start_must_fit_the_log():
    log = logged(50, 4)
    wrong = lmab.LatentBandit.bernoulli([1.0], [[0.5, 0.5, 0.5]])
    with pytest.raises(InvalidArgument, match="start must have 2 types and 3 arms, got 1 types and 3 arms"):
        lmab.fit(log, n_types=2, start=wrong, rng=0)
    with pytest.raises(InvalidArgument, match="start must know every reward of the log"):
        lmab.fit(log, n_types=1, start=lmab.LatentBandit.gaussian([1.0], [[0.0] * 3]), rng=0)
    values = lmab.LatentBandit.categorical([1.0], [[[0.5, 0.5]] * 3], [0.0, 2.0])
    with pytest.raises(InvalidArgument, match="start must know every reward of the log"):
        lmab.fit(log, n_types=1, start=values, rng=0)
    with pytest.raises(InvalidArgument, match="start must be None for the method MomentMatching"):
        lmab.fit(log, n_types=2, method=lmab.estimation.MomentMatching(), start=TRUTH, rng=0)
    chosen = lmab.fit(log, n_types="auto", method=lmab.EM(prior=1.0), start=TRUTH, rng=0)
    assert chosen.n_types == chosen.curve.chosen  # whatever the start has


def test_the_law_of_arms_is_the_mean_centre_and_unknown_without_a_learned_prior():
    log = logged(200, 5)
    learned = lmab.fit(log, n_types=2, method=lmab.EM(prior="learned"), rng=0)
    np.testing.assert_allclose(learned.law_of_arms, learned.learned.centre.mean(axis=0))
    assert lmab.fit(log, n_types=2, rng=0).law_of_arms is None
    normal = lmab.LatentBandit.gaussian([0.5, 0.5], [[1.0, 0.0, 2.0], [0.0, 1.0, 2.0]])
    fit = lmab.fit(logged(200, 6, normal), n_types=2, method=lmab.EM(prior="learned"), rewards="gaussian", rng=0)
    assert fit.law_of_arms == pytest.approx(float(fit.learned.centre.mean()))
    assert fit.bandit.with_arms(["new"], law=fit.law_of_arms).means[0, 3] == pytest.approx(fit.law_of_arms)
