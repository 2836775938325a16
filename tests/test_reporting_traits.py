"""The report on a traits model: factors, people on them, and how fast a session is located."""

from __future__ import annotations

import numpy as np
import pytest
from seeds import generator

import lmab
from lmab import reporting
from lmab.reporting import page
from lmab.reporting.contents import groups_of, in_groups, look_at


@pytest.fixture(scope="module")
def log():
    rng, loadings = generator(31), generator(32).normal(0, 1.5, (7, 2))
    arms = np.array([rng.permutation(7)[:6] for _ in range(800)])
    logits = np.einsum("nd,nhd->nh", rng.normal(size=(800, 2)), loadings[arms])
    return lmab.Sessions.from_arrays(arms, (rng.random(arms.shape) < 1 / (1 + np.exp(-logits))) * 1.0, n_arms=7)


@pytest.fixture(scope="module")
def estimate(log):
    return lmab.fit(log, method=lmab.Traits(n_factors=2, n_points=64), rng=0)


@pytest.fixture(scope="module")
def plan(estimate):
    return lmab.plan(estimate, horizon=4, repeats=False)


def test_the_page_shows_factors_and_people_instead_of_types(estimate, plan, log):
    text = page.render(reporting.gather(estimate.bandit, plan, sessions=log))
    assert "Latent traits: 2 factors" in text
    assert "high end" in text
    assert "Density of factor scores" in text
    assert "Scores of 800 sessions" in text
    assert "Uncertainty of factor scores" in text
    assert "fifths of all sessions along factor 1" in text
    assert "Arms by types" not in text
    assert "64 latent types" not in text
    assert ">type 5<" in text
    assert ">type 6<" not in text


def test_people_are_where_their_posteriors_are(estimate, plan, log):
    found = look_at(estimate.factors, estimate.bandit, plan.policy, 4, log)
    assert found.density.sum() == pytest.approx(1)
    places = estimate.posterior() @ estimate.factors.points
    right = (places[:, 0] > 0).mean()
    assert found.density[8:].sum() == pytest.approx(right, abs=1e-9)
    assert found.n_sessions == 800
    model = look_at(estimate.factors, estimate.bandit, plan.policy, 4, None)
    assert model.n_sessions == 0
    assert model.density.sum() == pytest.approx(1)


def test_every_step_locates_a_session_better(estimate, plan):
    found = look_at(estimate.factors, estimate.bandit, plan.policy, 4, None)
    np.testing.assert_allclose(found.spread[0], 1.0, atol=0.02)  # before anything is seen
    assert found.spread.shape == (5, 2)
    assert (np.diff(found.spread[:, 0]) < 0).all()
    assert (found.spread > 0.2).all()


def test_groups_are_fifths_along_the_first_factor(estimate, plan):
    groups = groups_of(estimate.factors, estimate.bandit)
    shares = np.bincount(groups, estimate.bandit.weights)
    np.testing.assert_allclose(shares.sum(), 1)
    places = estimate.factors.points[:, 0]
    assert all(places[groups == g].max() <= places[groups == g + 1].min() + 1e-9 for g in range(4))
    tree = in_groups(plan.policy.tree(2), groups)
    np.testing.assert_allclose(tree.belief, shares)
    assert all(branch.tree.belief.shape == (5,) for branch in tree.branches)


def test_a_log_without_factors_says_so(rng):
    log = lmab.Sessions.from_arrays(rng.integers(3, size=(200, 1)), rng.integers(2, size=(200, 1)) * 1.0, n_arms=3)
    with pytest.warns(lmab.errors.LmabWarning):
        flat = lmab.fit(log, method=lmab.Traits(), rng=0)
    text = page.render(reporting.gather(flat.bandit, lmab.plan(flat, horizon=1)))
    assert "The log supports no latent factor" in text
    assert "Density of factor scores" not in text
