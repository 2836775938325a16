"""What a log can identify."""

from __future__ import annotations

import numpy as np
import pytest
from seeds import generator

import lmab
from lmab import LatentBandit, Sessions
from lmab.evaluation import diagnostics


@pytest.fixture(scope="module")
def bandit():
    return lmab.random_bandit(3, 6, rng=generator(3))


@pytest.fixture(scope="module")
def log(bandit):
    return lmab.simulate(bandit, lmab.Uniform(6), n_sessions=6000, horizon=6, rng=generator(4))


def test_what_a_log_can_identify(log, rng):
    estimate = lmab.fit(log, n_types=3, method=lmab.EM(restarts=4, prior=1.0), rng=rng)
    note = diagnostics.identify(estimate, rng=rng)
    assert note.long_enough == 1.0
    assert note.rank is not None
    assert 1 <= note.rank <= 6
    assert set(note.core_arms) <= set(range(6))
    assert note.core_arms
    assert note.rare_arms == ()
    assert any("5 steps, which always identify 3 types" in line for line in note.sentences)
    short = lmab.fit(log[:40].with_arms(7), n_types=4, method=lmab.EM(restarts=4, prior=1.0), rng=rng)
    poor = diagnostics.identify(short, rng=rng)
    assert 6 in poor.rare_arms
    assert poor.long_enough == 0.0
    assert any("several models may be equally likely" in line for line in poor.sentences)


def test_arms_with_fewer_than_thirty_plays_in_the_rarest_type_are_rare(rng):
    """A type of a tenth: an arm needs 300 plays."""
    bandit = LatentBandit.bernoulli([0.1, 0.9], [[0.9, 0.1, 0.5], [0.1, 0.8, 0.5]])
    arms = np.repeat([0, 1, 2], [299, 300, 301])[rng.permutation(900)].reshape(300, 3)
    log = lmab.simulate(bandit, arms, rng=rng)
    estimate = lmab.fit(log, n_types=2, method=lmab.EM(restarts=2, prior=1.0), rng=rng)
    from dataclasses import replace

    note = diagnostics.identify(replace(estimate, bandit=bandit), rng=rng)
    assert note.rare_arms == (0,)
    assert note.horizon == 3
    assert note.long_enough == 1.0  # 2 M - 1 steps exactly


def people(n, rng, *, loadings):
    arms = np.array([rng.permutation(len(loadings))[:6] for _ in range(n)])
    logits = np.einsum("nd,nhd->nh", rng.normal(size=(n, loadings.shape[1])), loadings[arms])
    return Sessions.from_arrays(arms, (rng.random(arms.shape) < 1 / (1 + np.exp(-logits))) * 1.0, n_arms=len(loadings))


def test_the_note_on_traits_speaks_of_no_rare_types(rng):
    log = people(300, rng, loadings=np.ones((6, 1))).with_arms(7)
    estimate = lmab.fit(log, method=lmab.Traits(n_factors=1, n_points=15), rng=rng)
    text = " ".join(diagnostics.identify(estimate, rng=rng).sentences)
    assert "1 arm with fewer than 30 plays" in text
    assert "rarest type" not in text
    assert "steps that identify" not in text
