"""estimate, the door: reward families, bad input, warnings, the result."""

from __future__ import annotations

import numpy as np
import pytest
from seeds import generator

import lmab
from lmab.errors import InvalidArgument, InvalidData, LmabWarning

BANDIT = lmab.LatentBandit.bernoulli([0.4, 0.6], [[0.9, 0.1, 0.5], [0.2, 0.8, 0.4]])


@pytest.fixture
def sessions(rng):
    return lmab.simulate(BANDIT, lmab.Uniform(3), n_sessions=3000, horizon=5, rng=rng)


def fit(sessions, n_types=2, seed=0, **keywords):
    return lmab.fit(sessions, n_types=n_types, rng=generator(seed), **keywords)


def test_recovers_a_bandit(sessions):
    estimate = fit(sessions)
    assert estimate.converged
    assert estimate.status == "converged"
    assert estimate.bandit.distance(BANDIT) < 0.1
    assert estimate.n_parameters == 1 + 2 * 3
    assert estimate.bic == pytest.approx(-2 * estimate.log_likelihood + 7 * np.log(3000))
    assert estimate.aic == pytest.approx(-2 * estimate.log_likelihood + 14)


def test_a_status_may_be_given_as_text(sessions):
    from dataclasses import replace

    estimate = fit(sessions)
    assert replace(estimate, status="converged").converged
    assert not replace(estimate, status="interrupted").converged
    with pytest.raises(InvalidArgument, match=r"status must be one of 'converged', .* got 'perhaps'"):
        replace(estimate, status="perhaps")


def test_log_likelihood_is_that_of_the_returned_bandit(sessions):
    estimate = fit(sessions, method=lmab.EM(prior=2.0))
    joint = lmab.model.belief.log_joint(estimate.bandit, sessions)
    assert estimate.log_likelihood == pytest.approx(np.logaddexp.reduce(joint, axis=1).sum(), rel=1e-12)
    assert estimate.prior == 2.0


def test_trace_ends_at_the_log_likelihood_and_never_falls(sessions):
    estimate = fit(sessions)
    assert estimate.trace[-1] == pytest.approx(estimate.log_likelihood, rel=1e-12)
    assert (np.diff(estimate.trace) >= -1e-9 * abs(estimate.log_likelihood)).all()


def test_posterior_is_bayes(sessions):
    estimate = fit(sessions)
    posterior = estimate.posterior(sessions[:50])
    assert posterior.shape == (50, 2)
    np.testing.assert_allclose(posterior, lmab.model.belief.posterior(estimate.bandit, sessions[:50]))
    np.testing.assert_allclose(estimate.posterior().mean(axis=0), estimate.bandit.weights, atol=1e-4)


def test_same_seed_gives_the_same_bits_for_any_number_of_threads(rng):
    sessions = lmab.simulate(BANDIT, lmab.Uniform(3), n_sessions=60_000, horizon=8, rng=rng)
    first, second = (fit(sessions, method=lmab.EM(threads=threads, restarts=4)) for threads in (1, 2))
    assert first.bandit == second.bandit
    assert first.log_likelihood == second.log_likelihood


def test_labels_of_arms_are_kept():
    sessions = lmab.Sessions([0, 1] * 20, [0.0, 1.0] * 20, np.arange(0, 41, 2), 2, arm_labels=("tea", "milk"))
    assert fit(sessions, 1).bandit.arm_labels == ("tea", "milk")


def test_one_type_has_the_frequencies(sessions):
    estimate = fit(sessions, 1)
    means = [sessions.rewards[sessions.arms == arm].mean() for arm in range(3)]
    np.testing.assert_allclose(estimate.bandit.means[0], means, rtol=1e-10)
    assert estimate.n_parameters == 3


def test_an_arm_never_played_is_reported_and_gets_the_average(sessions):
    estimate = fit(sessions.with_arms(4))
    assert "never played" in estimate.message
    assert "arm 3" in estimate.message
    np.testing.assert_allclose(estimate.bandit.means[:, 3], sessions.rewards.mean(), atol=1e-12)
    assert estimate.n_parameters == 7


def test_parameters_count_only_values_an_arm_paid():
    arms = np.tile([0, 1], (30, 1))
    rewards = np.stack([np.arange(30) % 3, np.arange(30) % 2], axis=1).astype(float)
    estimate = fit(lmab.Sessions.from_arrays(arms, rewards))
    assert estimate.n_parameters == 1 + 2 * (2 + 1)
    np.testing.assert_array_equal(estimate.bandit.rewards.probabilities[:, 1, 2], 0)


def test_given_values_may_be_unobserved(sessions):
    estimate = fit(sessions, values=[0.0, 0.5, 1.0])
    assert estimate.bandit.rewards.values.tolist() == [0.0, 0.5, 1.0]
    with pytest.raises(InvalidArgument, match=r"among the values \[0.0, 0.5\]"):
        fit(sessions, values=[0.0, 0.5])


def test_gaussian_recovers_means_and_scale(rng):
    truth = lmab.LatentBandit.gaussian([0.3, 0.7], [[1000.0, 1002.0], [1003.0, 999.0]], scale=0.7)
    sessions = lmab.simulate(truth, lmab.Uniform(2), n_sessions=4000, horizon=4, rng=rng)
    estimate = fit(sessions, rewards="gaussian")
    assert estimate.converged
    assert estimate.bandit.distance(truth) < 0.1
    assert estimate.n_parameters == 1 + 4 + 1
    joint = lmab.model.belief.log_joint(estimate.bandit, sessions)
    assert estimate.log_likelihood == pytest.approx(np.logaddexp.reduce(joint, axis=1).sum(), rel=1e-10)
    known = fit(sessions, rewards="gaussian", scale=0.7)
    assert known.bandit.rewards.scale == 0.7
    assert known.n_parameters == 5
    assert known.log_likelihood <= estimate.log_likelihood + 1e-6


def test_many_values_need_a_name(rng):
    truth = lmab.LatentBandit.gaussian([1.0], [[0.0]])
    sessions = lmab.simulate(truth, lmab.Uniform(1), n_sessions=50, horizon=2, rng=rng)
    with pytest.raises(InvalidArgument, match=r"more than 32 distinct rewards.*rewards='gaussian'"):
        fit(sessions, 1)
    assert fit(sessions, 1, rewards="categorical").bandit.rewards.n_values == 100


@pytest.mark.parametrize("n_types", [0, -1, 2.0, True, "many"])
def test_number_of_types_must_be_a_count(sessions, n_types):
    with pytest.raises(InvalidArgument, match="n_types must be"):
        fit(sessions, n_types)


def test_more_types_than_sessions(sessions):
    with pytest.raises(InvalidArgument, match=r"at most the number of sessions \(3\), got 4"):
        fit(sessions[:3], 4)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"rewards": "poisson"}, "rewards must be 'categorical', 'gaussian' or 'binned' or None, got 'poisson'"),
        ({"rewards": "gaussian", "scale": -1.0}, "scale must be a positive number"),
        ({"scale": 1.0}, "scale must be None unless"),
        ({"rewards": "gaussian", "values": [0.0, 1.0]}, "values must be None for gaussian"),
        ({"values": [0.0, np.nan, 1.0]}, "values must be finite"),
    ],
)
def test_bad_families(sessions, keywords, message):
    with pytest.raises(InvalidArgument, match=message):
        fit(sessions, **keywords)


def test_rng_is_needed(sessions):
    with pytest.raises(InvalidArgument, match=r"rng must be a numpy\.random\.Generator"):
        lmab.fit(sessions, n_types=2, rng=-7)


def test_a_seed_is_a_generator(sessions):
    first = lmab.fit(sessions, n_types=2, rng=7)
    second = lmab.fit(sessions, n_types=2, rng=np.random.default_rng(7))
    assert first.bandit == second.bandit


def test_nan_rewards_are_refused():
    with pytest.raises(InvalidData, match="rewards must be finite, got nan"):
        lmab.Sessions.from_arrays([[0, 1]], [[np.nan, 1.0]])


def test_equal_rewards_warn():
    sessions = lmab.Sessions.from_arrays(np.tile([0, 1], (10, 1)), np.ones((10, 2)))
    with pytest.warns(LmabWarning, match="every reward is 1"):
        estimate = fit(sessions)
    assert estimate.log_likelihood == 0.0


def test_equal_normal_rewards_have_no_scale():
    sessions = lmab.Sessions.from_arrays(np.tile([0, 1], (10, 1)), np.ones((10, 2)))
    with pytest.raises(InvalidArgument, match="scale must be given where no arm's rewards ever differ"):
        fit(sessions, rewards="gaussian")
    with pytest.warns(LmabWarning, match="every reward is 1"):
        assert fit(sessions, rewards="gaussian", scale=0.5).bandit.rewards.scale == 0.5


def test_sessions_of_one_step_warn(rng):
    sessions = lmab.simulate(BANDIT, lmab.Uniform(3), n_sessions=100, horizon=1, rng=rng)
    with pytest.warns(LmabWarning, match="weights of the types cannot be identified"):
        estimate = fit(sessions)
    assert np.isfinite(estimate.log_likelihood)


def test_one_arm_warns(rng):
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9], [0.2]])
    sessions = lmab.simulate(bandit, lmab.Uniform(1), n_sessions=100, horizon=4, rng=rng)
    with pytest.warns(LmabWarning, match="only arm 0 was ever played"):
        fit(sessions)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"restarts": 0}, "restarts must be an integer of at least 1, got 0"),
        ({"max_iterations": 0}, "max_iterations must be"),
        ({"tolerance": -1.0}, "tolerance must be a finite number of at least 0"),
        ({"prior": np.nan}, "prior must be"),
        ({"rank": 0}, "rank must be"),
        ({"threads": 0}, "threads must be"),
    ],
)
def test_bad_settings(keywords, message):
    with pytest.raises(InvalidArgument, match=message):
        lmab.EM(**keywords)


def test_progress_is_told_and_can_stop(sessions):
    seen = []

    def observer(progress):
        seen.append(progress)
        return len(seen) == 3

    estimate = fit(sessions, progress=observer)
    assert estimate.status == "interrupted"
    assert not estimate.converged
    assert len(seen) <= 5
    assert {progress.stage for progress in seen} <= {"starts", "climb"}
    assert np.isfinite(estimate.log_likelihood)


def test_the_iteration_limit_is_reported(sessions):
    with pytest.warns(LmabWarning, match=r"did not converge: stopped by max_iterations after 5 maps.*raise it") as seen:
        estimate = fit(sessions, 3, method=lmab.EM(restarts=1, max_iterations=5))
    assert seen[0].filename == __file__  # the warning points to the caller
    assert estimate.status == "iteration limit"
    assert not estimate.converged
    assert "raise it" in estimate.message
    assert "iteration" not in fit(sessions).message


def test_criteria_count_sessions_and_parameters(sessions):
    from dataclasses import replace

    estimate = replace(fit(sessions, 1), log_likelihood=-100.0, n_parameters=5)
    assert estimate.aic == pytest.approx(210.0)
    assert estimate.bic == pytest.approx(200 + 5 * np.log(3000))


def test_warnings_are_for_several_types_only(recwarn):
    one_step = lmab.Sessions.from_arrays([[0], [1]], [[0.0], [1.0]])
    fit(one_step, 1)
    fit(lmab.Sessions.from_arrays([[0, 0]], [[1.0, 1.0]]), 1)
    assert len(recwarn) == 0


def test_as_many_types_as_sessions(sessions):
    assert fit(sessions[:3], 3).n_types == 3


def test_defaults_of_em():
    method = lmab.EM()
    assert (method.restarts, method.tolerance, method.max_iterations) == (20, 1e-8, 5000)
    assert (method.accelerate, method.prior, method.rank, method.threads) == (True, 0.0, None, None)
