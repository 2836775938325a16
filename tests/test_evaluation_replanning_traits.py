"""The certificate of a traits model: its draws, its intervals and its words."""

from __future__ import annotations

import numpy as np
import pytest
from seeds import generator

import lmab
from lmab.errors import InvalidArgument
from lmab.estimation import hidden_size
from lmab.evaluation import crowd

METHOD = lmab.Traits(n_factors=2, n_points=36)


@pytest.fixture(scope="module")
def log():
    rng = generator(21)
    arms = np.array([rng.permutation(8)[:6] for _ in range(3000)])
    loadings = np.array([2.0, 1.5, 1.0, 0.5, -0.5, -1.0, -1.5, -2.0])
    logits = loadings[arms] * rng.normal(size=(3000, 1))
    return lmab.Sessions.from_arrays(arms, (rng.random(arms.shape) < 1 / (1 + np.exp(-logits))) * 1.0, n_arms=8)


@pytest.fixture(scope="module")
def fit(log):
    return lmab.fit(log, method=METHOD, rng=0)


@pytest.fixture(scope="module")
def certificate(log, estimate):
    plan = lmab.plan(estimate, horizon=4, repeats=False, method=lmab.QMDP())
    return lmab.certify(estimate, plan, log, n_draws=30, rng=0)


def test_the_certificate_holds_what_the_truth_is_worth(certificate, estimate):
    low, high = certificate.value
    assert low < high
    assert certificate.gain[0] > 0  # one strong factor: probing pays
    assert low <= lmab.evaluate(lmab.Greedy(estimate.bandit, horizon=4), estimate.bandit, horizon=4).mean + 1
    assert certificate.optimum[1] >= certificate.value[0]
    assert certificate.regret[0] == 0.0
    assert certificate.n_factors == estimate.factors.n_alive == 1
    assert certificate.n_parameters == 16
    assert certificate.draws.shape == (60, 4)
    assert not certificate.too_few
    assert "sessions differ by degrees in no more than 1 factor in truth" in certificate.note
    assert not certificate.thin


def test_a_file_keeps_the_certificate(certificate, tmp_path):
    certificate.save(tmp_path / "certificate.lmab")
    assert lmab.load(tmp_path / "certificate.lmab").n_factors == 1


def test_maximum_likelihood_has_no_certificate(log):
    fit = lmab.fit(log, method=lmab.Traits(n_factors=1, n_points=15, prior=None), rng=0)
    with pytest.raises(InvalidArgument, match="must be a maximum a posteriori one"):
        lmab.certify(fit, lmab.plan(fit, horizon=2), log, rng=0)


def test_more_sessions_hide_smaller_factors(log, estimate):
    data = estimate.observations
    small, large = (hidden_size(each, 1.0) for each in (data.subset(np.arange(300)), data))
    assert small == pytest.approx(large * 10**0.25, rel=0.05)


def test_a_factor_near_the_noise_may_be_smaller_in_truth(estimate):
    coordinates = estimate.information().coordinates
    moves = np.zeros((2, coordinates.size))
    shrunk = coordinates.shrunk(moves, np.array([[1.0], [0.25]]))
    np.testing.assert_allclose(shrunk[0], 0)
    parameters = coordinates.arms.parameters + shrunk[1].reshape(coordinates.arms.parameters.shape)
    np.testing.assert_allclose(parameters[:, 0], coordinates.arms.parameters[:, 0])
    np.testing.assert_allclose(parameters[:, 1], 0.25 * coordinates.arms.parameters[:, 1])


def test_one_more_factor_moves_types_apart(estimate):
    coordinates = estimate.information().coordinates
    moves, none = np.zeros((1, coordinates.size)), np.zeros((1, 8))
    places = estimate.factors.points[:, 1]
    (same,) = coordinates.with_one_more(moves, none, places)
    np.testing.assert_allclose(same.means, coordinates.moved(moves)[0].means, atol=1e-9)
    (wider,) = coordinates.with_one_more(moves, none + 1.0, places)
    assert ((wider.means > same.means) == (places > 0)[:, None]).all()


def test_a_thin_log_is_called_thin(estimate, log, monkeypatch):
    monkeypatch.setattr(crowd, "_SESSIONS", 100)
    few = log[np.arange(60)]
    fit = lmab.fit(few, method=METHOD, rng=0)
    plan = lmab.plan(fit, horizon=3, repeats=False, method=lmab.QMDP())
    found = lmab.certify(fit, plan, few, n_draws=20, rng=0)
    assert found.n_parameters == 8 * (1 + fit.factors.n_alive)
    assert found.value[1] - found.value[0] > 0.2
