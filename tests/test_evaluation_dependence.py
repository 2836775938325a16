"""Dependence between sessions: copies, alike neighbours, and logs without either."""

from __future__ import annotations

import numpy as np
import pytest
from seeds import generator

import lmab
from lmab.evaluation.dependence import dependence

TRUTH = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1, 0.4, 0.5], [0.2, 0.8, 0.6, 0.3]])


def simulated(n_sessions: int, seed: int) -> lmab.Sessions:
    return lmab.simulate(TRUTH, lmab.Uniform(4), n_sessions=n_sessions, horizon=5, rng=generator(seed))


def test_independent_sessions_have_the_factor_one():
    assert [dependence(simulated(800, seed)).factor for seed in range(10)] == [1.0] * 10


def test_copies_are_reported_with_their_share_and_widen_intervals():
    log = simulated(300, 1)
    found = dependence(log[np.repeat(np.arange(300), 10)])
    assert found.copies == pytest.approx(0.9, abs=0.01)
    assert found.factor == pytest.approx(np.sqrt(10), rel=0.3)


def test_alike_neighbours_widen_intervals():
    rng = generator(2)
    level = np.repeat(rng.uniform(0.2, 0.8, 20), 50)
    rewards = (rng.random((1000, 4)) < level[:, None]).astype(float)
    log = lmab.Sessions.from_arrays(rng.integers(4, size=(1000, 4)), rewards, n_arms=4)
    assert dependence(log).variance_ratio > 3
    assert dependence(log[rng.permutation(1000)]).variance_ratio == 1.0
