"""Does one more type predict better? Which sessions are held out, and what is made of their gains."""

from __future__ import annotations

import numpy as np
import pytest

import lmab
from lmab.estimation import observe
from lmab.evaluation import more_types


@pytest.fixture
def log(rng):
    arms = rng.integers(3, size=(50, 2))
    return observe(lmab.Sessions.from_arrays(arms, rng.integers(2, size=arms.shape).astype(float), n_arms=3))


def test_mean_and_standard_error_over_two_of_five_folds(log, rng, monkeypatch):
    seen = []

    def gains(observations, rows, fold, n_types, rng):
        seen.append((sorted(rows.tolist()), fold.tolist(), n_types))
        return np.arange(len(fold), dtype=float) + 100 * len(seen)

    monkeypatch.setattr(more_types, "_gains", gains)
    mean, error = more_types.one_more(log, 2, rng)
    every = np.concatenate([100 + np.arange(10.0), 200 + np.arange(10.0)])
    assert (mean, error) == (pytest.approx(every.mean()), pytest.approx(every.std() / np.sqrt(20)))
    assert [len(fold) for _, fold, _ in seen] == [10, 10]
    assert not set(seen[0][1]) & set(seen[1][1])
    assert all(rows == list(range(50)) and n == 2 for rows, _, n in seen)
    seen.clear()
    monkeypatch.setattr(more_types, "_STEPS", 99)  # of a long log one fold is enough
    more_types.one_more(log, 2, rng)
    assert len(seen) == 1
    monkeypatch.setattr(more_types, "_SESSIONS", 20)
    seen.clear()
    more_types.one_more(log, 2, rng)
    assert (len(seen[0][0]), len(seen[0][1])) == (20, 4)


def test_too_few_sessions_say_nothing(log, rng, monkeypatch):
    monkeypatch.setattr(more_types, "_gains", lambda *_: np.ones(3))
    assert more_types.one_more(log.subset(np.arange(5)), 2, rng) == (0.0, 0.0)
    assert more_types.one_more(log.subset(np.arange(6)), 2, rng)[0] == 1.0


def test_a_gain_is_that_of_sessions_which_no_fit_has_seen(rng):
    truth = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.95, 0.9, 0.9], [0.05, 0.1, 0.1]])
    log = observe(lmab.simulate(truth, lmab.Uniform(3), n_sessions=300, horizon=5, rng=rng))
    fold, rows = np.arange(0, 300, 5), np.arange(300)
    gains = more_types._gains(log, rows, fold, 1, rng)
    assert gains.shape == (60,)
    assert gains.mean() > 0.5  # two types predict far better than one
