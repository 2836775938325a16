from __future__ import annotations

import numpy as np
import pytest

import lmab
from lmab import LatentBandit
from lmab.model import belief


def test_greedy_takes_the_best_mean_under_the_belief(rng):
    bandit = lmab.random_bandit(4, 6, rng=rng)
    policy = lmab.Greedy(bandit)
    history = [(2, 1.0), (0, 0.0), (5, 1.0)]
    now = belief.prior(bandit)
    for arm, reward in history:
        now = belief.update(bandit, now, arm, reward)
    assert policy.act_on(history) == int((belief.normalise(now) @ bandit.means).argmax())


def test_thompson_draws_contexts_from_the_belief(rng):
    bandit = LatentBandit.bernoulli([0.2, 0.3, 0.5], np.eye(3) * 0.8 + 0.1)
    policy = lmab.Thompson(bandit)
    state = policy.observe(policy.start(100_000), np.zeros(100_000, int), np.ones(100_000))
    posterior = np.array([0.2 * 0.9, 0.3 * 0.1, 0.5 * 0.1])
    frequencies = np.bincount(policy.act(state, rng=rng), minlength=3) / 100_000
    np.testing.assert_allclose(frequencies, posterior / posterior.sum(), atol=0.008)


def test_uniform_is_uniform_over_the_allowed_arms(rng):
    policy = lmab.Uniform(4)
    arms = policy.act(policy.start(40_000), allowed=[True, False, True, True], rng=rng)
    np.testing.assert_allclose(np.bincount(arms, minlength=4) / 40_000, [1 / 3, 0, 1 / 3, 1 / 3], atol=0.012)


def test_mucb_starts_optimistic_and_drops_contexts_that_broke_their_promise():
    bandit = LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
    policy = lmab.MUCB(bandit)
    assert policy.act_on([]) == 0
    assert policy.act_on([(0, 0.0)] * 6) == 1
    assert policy.act_on([(0, 1.0)] * 6) == 0


def test_blind_policies_fall_back_to_allowed_arms():
    assert lmab.FixedSequence([2, 1]).act_on([], allowed=[True, True, False]) == 1
    assert lmab.Stationary(2).act_on([], allowed=[False, True, False]) == 1
    with pytest.raises(ValueError, match="allowed must cover arm 2"):
        lmab.Stationary(2).act_on([], allowed=[True, True])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: lmab.Uniform(0), "n_arms must be an integer of at least 1, got 0"),
        (lambda: lmab.FixedSequence([]), "the number of arms must be an integer of at least 1"),
        (lambda: lmab.FixedSequence([0, -1]), r"arms\[1\] must be an integer of at least 0, got -1"),
        (lambda: lmab.Stationary(True), "arm must be an integer"),
        (lambda: lmab.Greedy(LatentBandit.bernoulli([1.0], [[0.5]]), horizon=0), "horizon must be an integer"),
        (lambda: lmab.MUCB(LatentBandit.bernoulli([1.0], [[0.5]]), width=np.nan), "width must be finite"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()
