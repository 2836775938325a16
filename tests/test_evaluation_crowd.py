"""A crowd of simulated sessions agrees with exact values, and is the same for every model."""

from __future__ import annotations

import numpy as np
import pytest

import lmab
from lmab.evaluation import crowd
from lmab.evaluation.crowd import Crowd, rewards_of


@pytest.mark.parametrize("repeats", [True, False])
def test_the_crowd_earns_what_the_policy_is_worth(rng, monkeypatch, repeats):
    monkeypatch.setattr(crowd, "_SESSIONS", 30_000)
    bandit = lmab.random_bandit(3, 5, rng=rng)
    plan = lmab.plan(bandit, horizon=4, repeats=repeats)
    found = Crowd.of(3, 4, rng).play(plan.policy, bandit, repeats=repeats)
    exact = lmab.evaluate(plan.policy, bandit, horizon=4).mean
    assert found.value == pytest.approx(exact, abs=0.01)
    assert found.plays.sum() == pytest.approx(4)
    assert repeats or found.plays.max() <= 1 + 1e-9


def test_a_fixed_choice_has_no_noise_at_all(rng):
    drawn = lmab.random_bandit(7, 5, rng=rng)
    bandit = lmab.LatentBandit(rng.dirichlet(np.ones(7)), drawn.rewards)
    found = Crowd.of(7, 3, rng).play(lmab.policies.FixedSequence([4, 0, 2]), bandit, repeats=False)
    average = bandit.weights @ bandit.means
    np.testing.assert_allclose(found.by_arm, average * [1, 0, 1, 0, 1], atol=1e-12)


def test_an_arm_is_left_out_after_it_was_played(rng):
    bandit = lmab.LatentBandit.bernoulli([1.0], [[0.9, 0.5, 0.1]])
    found = Crowd.of(1, 2, rng).play(lmab.Greedy(bandit), bandit, repeats=False)
    np.testing.assert_allclose(found.plays, [1, 1, 0])
    again = Crowd.of(1, 2, rng).play(lmab.Greedy(bandit), bandit, repeats=True)
    np.testing.assert_allclose(again.plays, [2, 0, 0])


def test_rewards_are_quantiles():
    bandit = lmab.LatentBandit.categorical([1.0], [[[0.2, 0.3, 0.5]]], [0.0, 1.0, 5.0])
    nothing = np.zeros(4, int)
    found = rewards_of(bandit, nothing, nothing, np.array([0.1, 0.3, 0.6, 0.9999]))
    assert found.tolist() == [0.0, 1.0, 5.0, 5.0]
    normal = lmab.LatentBandit.gaussian([1.0], [[3.0]], scale=2.0)
    np.testing.assert_allclose(
        rewards_of(normal, nothing[:2], nothing[:2], np.array([0.5, 0.8413447])), [3.0, 5.0], atol=1e-5
    )


def test_every_type_comes_equally_often_and_luck_is_reversed(rng, monkeypatch):
    monkeypatch.setattr(crowd, "_SESSIONS", 12)
    people = Crowd.of(4, 3, rng)
    assert np.bincount(people.types).tolist() == [3, 3, 3, 3]
    luck = people.luck.reshape(3, 4, 3)
    np.testing.assert_allclose(luck[0] + luck[1], 1)
    assert not np.allclose(luck[0] + luck[2], 1)
    assert len(Crowd.of(50, 3, rng).types) == 50
