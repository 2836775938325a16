"""EM with the learned prior: what it does to arms hardly played, where it falls back, and that it can be saved."""

from __future__ import annotations

import numpy as np
import pytest

import lmab
from lmab.errors import InvalidArgument, InvalidData, LmabWarning
from lmab.estimation import gibbs, learned_prior
from lmab.estimation.prior import START

LEARNED = lmab.EM(prior="learned", restarts=4, sweeps=40)


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
        found = lmab.fit(log, n_types=2, method=lmab.EM(prior=prior, restarts=4), rng=0).bandit
        average = found.weights @ found.means
        errors.append(np.abs(average - truth.weights @ truth.means)[rare].mean())
    assert errors[0] < 0.8 * errors[1]


def test_same_seed_same_bits_for_any_number_of_threads(rng):
    _, log = long_tail(rng)
    one, two = (
        lmab.fit(log, n_types=2, method=lmab.EM(prior="learned", restarts=4, sweeps=20, threads=n), rng=3)
        for n in (1, 2)
    )
    np.testing.assert_array_equal(one.bandit.means, two.bandit.means)
    np.testing.assert_array_equal(one.arm_prior.pseudo_counts, two.arm_prior.pseudo_counts)


def test_the_trace_never_falls_and_the_prior_is_told(rng):
    _, log = long_tail(rng)
    estimate = lmab.fit(log, n_types=2, method=LEARNED, rng=rng)
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
        estimate = lmab.fit(log, n_types=2, method=LEARNED, rng=rng)
    assert "every reward is the same" in estimate.message
    assert (estimate.bandit.means == 1).all()


def test_an_arm_without_plays_is_taken_for_an_arm(rng):
    _, log = long_tail(rng)
    wide = lmab.Sessions(log.arms, log.rewards, log.offsets, n_arms=31)
    estimate = lmab.fit(wide, n_types=2, method=LEARNED, rng=rng)
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
    estimate = lmab.fit(log, n_types=3, method=LEARNED, rng=rng)
    polished = LEARNED.polish(estimate, rank=2)
    assert polished.prior == "learned"
    np.testing.assert_array_equal(polished.arm_prior.pseudo_counts, estimate.arm_prior.pseudo_counts)


def test_a_large_log_learns_from_a_sample(rng, monkeypatch):
    monkeypatch.setattr("lmab.estimation.em._PILOT", 200)
    monkeypatch.setattr("lmab.estimation.em._PILOT_PER_PARAMETER", 1)
    truth, log = long_tail(rng, 3000)
    estimate = lmab.fit(log, n_types=2, method=LEARNED, rng=rng)
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
    estimate = lmab.fit(log, n_types=2, rewards=rewards, method=LEARNED, rng=rng)
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
        estimate = lmab.fit(log, n_types=2, rewards=truth.rewards.family, method=LEARNED, rng=rng)
        assert estimate.bandit.distance(truth) < 0.35


@pytest.mark.parametrize(
    ("sweeps", "burn", "keep", "thin"),
    [(1, 0, 1, 1), (2, 1, 1, 1), (4, 2, 1, 2), (7, 5, 2, 1), (16, 8, 4, 2), (40, 20, 10, 2), (100, 70, 10, 3)],
)
def test_of_the_sweeps_the_last_ones_are_kept_and_none_is_added(monkeypatch, sweeps, burn, keep, thin):
    asked = []

    class Found:
        prior = "the prior"

    def run(log, bandit, *, rng, schedule, threads):
        asked.append((schedule, threads))
        return Found

    monkeypatch.setattr(gibbs, "run", run)
    assert learned_prior.learn("log", "bandit", sweeps, np.random.default_rng(0), 7) == "the prior"
    assert asked == [(gibbs.Schedule(chains=4, burn=burn, keep=keep, thin=thin), 7)]
    assert burn + keep * thin == sweeps
