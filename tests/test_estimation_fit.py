"""estimate, the door: reward families, bad input, warnings, the result."""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from seeds import generator

import lmab
from lmab.errors import InvalidArgument, InvalidData, LmabWarning
from lmab.estimation.check import Calibration, Check, Gain
from lmab.estimation.families import observe
from lmab.estimation.fit import _curve
from lmab.estimation.result import Curve, Selection

fit_module = sys.modules["lmab.estimation.fit"]  # the package shows the function of this name

BANDIT = lmab.LatentBandit.bernoulli([0.4, 0.6], [[0.9, 0.1, 0.5], [0.2, 0.8, 0.4]])
SEPARATED = lmab.LatentBandit.bernoulli(
    [0.3, 0.3, 0.4], [[0.9, 0.1, 0.1, 0.5], [0.1, 0.9, 0.1, 0.5], [0.1, 0.1, 0.9, 0.5]]
)


@pytest.fixture
def sessions(rng):
    return lmab.simulate(BANDIT, lmab.Uniform(3), n_sessions=3000, horizon=5, rng=rng)


def fit(sessions, n_types=2, seed=0, **keywords):
    return lmab.fit(sessions, n_types=n_types, rng=generator(seed), **{"method": lmab.EM(prior=0.0), **keywords})


def test_recovers_a_bandit(sessions):
    estimate = fit(sessions)
    assert estimate.converged
    assert estimate.status == "converged"
    assert estimate.bandit.distance(BANDIT) < 0.1
    assert estimate.n_parameters == 1 + 2 * 3
    assert estimate.bic == pytest.approx(-2 * estimate.log_likelihood + 7 * np.log(3000))
    assert estimate.aic == pytest.approx(-2 * estimate.log_likelihood + 14)


def test_a_status_may_be_given_as_text(sessions):
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
    first, second = (fit(sessions, method=lmab.EM(threads=threads, restarts=4, prior=0.0)) for threads in (1, 2))
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


@pytest.mark.parametrize("n_types", [0, -1, 2.5, True, "many"])
def test_number_of_types_must_be_a_count(sessions, n_types):
    with pytest.raises(InvalidArgument, match="n_types must be"):
        fit(sessions, n_types)


def test_more_types_than_sessions(sessions):
    with pytest.raises(InvalidArgument, match=r"at most the number of sessions \(3\), got 4"):
        fit(sessions[:3], 4)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        (
            {"rewards": "poisson"},
            "rewards must be 'categorical', 'gaussian', 'binned' or 'counts' or None, got 'poisson'",
        ),
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
    with pytest.raises(InvalidArgument, match="rng must be given, because the starts are random: a seed such as rng=0"):
        lmab.fit(sessions, n_types=2, rng=None)


def test_a_seed_is_a_generator(sessions):
    first = lmab.fit(sessions, n_types=2, method=lmab.EM(prior=0.0), rng=7)
    second = lmab.fit(sessions, n_types=2, method=lmab.EM(prior=0.0), rng=np.random.default_rng(7))
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
    with pytest.warns(
        LmabWarning, match=r"did not converge: stopped by max_iterations after 5 EM iterations.*raise it"
    ) as seen:
        estimate = fit(sessions, 3, method=lmab.EM(restarts=1, max_iterations=5, prior=0.0))
    assert seen[0].filename == __file__  # the warning points to the caller
    assert estimate.status == "iteration limit"
    assert not estimate.converged
    assert "raise it" in estimate.message
    assert "max_iterations" not in fit(sessions).message


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
    method = lmab.EM(prior=0.0)
    assert (method.restarts, method.tolerance, method.max_iterations) == (20, 1e-8, 5000)
    assert (method.accelerate, method.prior, method.rank, method.threads) == (True, 0.0, None, None)


def test_auto_finds_separated_types(rng):
    log = lmab.simulate(SEPARATED, lmab.Uniform(4), n_sessions=2000, horizon=8, rng=rng)
    fit = lmab.fit(log, n_types="auto", rng=rng, check=False)
    assert fit.n_types in (3, 4)  # it errs high
    curve = fit.curve
    assert curve.n_types == tuple(range(1, len(curve.n_types) + 1))
    assert curve.chosen == fit.n_types
    assert len(curve.gain) == len(curve.stderr) == len(curve.n_types)
    assert (curve.gain[1:3] > 5 * curve.stderr[1:3]).all()
    np.testing.assert_allclose(np.diff(curve.log_likelihood), curve.gain[1:], atol=1e-12)
    assert "types selected" in fit.message
    assert len(curve.n_types) <= 7  # stopped early


def test_one_type_is_seen_as_one_or_two(rng):
    log = lmab.simulate(
        lmab.LatentBandit.bernoulli([1.0], [[0.3, 0.6]]), lmab.Uniform(2), n_sessions=1000, horizon=5, rng=rng
    )
    fit = lmab.fit(log, n_types="auto", rng=rng)
    assert fit.n_types <= 2
    assert len(fit.curve.n_types) <= 5


def test_auto_for_gaussian_rewards(rng):
    bandit = lmab.LatentBandit.gaussian([0.5, 0.5], [[0.0, 2.0], [2.0, 0.0]], scale=0.7)
    log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=500, horizon=4, rng=rng)
    assert lmab.fit(log, n_types="auto", rewards="gaussian", rng=rng).n_types in (2, 3)


def behind(best, errors, noise=0.1):
    """Scores behind the best by so many standard errors."""
    noise = np.tile([-noise, noise], len(best) // 2)
    return best - errors * 0.1 / np.sqrt(len(best)) + noise


def test_in_doubt_up_to_three_more_but_never_beyond_the_best():
    best = generator(0).normal(size=400)
    about, behind_by_one, clearly, far = (behind(best, errors) for errors in (0.8, 1.2, 2.2, 3.5))
    doubtful = behind(best, 1.2, -0.1)  # not clearly behind `about`
    for scores, chosen in (
        ([doubtful, about, clearly, clearly, best, about], 5),  # two are enough, in doubt three more
        ([doubtful, about, clearly, clearly, about, best], 5),  # and not four
        ([far, about, best], 3),
        ([best, clearly, about], 1),  # nobody supports more than what predicts best
        ([behind_by_one, best, about], 2),
        ([best], 1),
    ):
        assert _curve(scores).chosen == chosen


def test_where_one_type_is_enough_none_is_added_unless_something_was_known_before():
    """On a log of one type some number of types is often the best by chance."""
    best = generator(0).normal(size=400)
    about, clearly = behind(best, 0.8), behind(best, 2.2)
    for forgiving in (True, False):
        for scores in ([about, best], [about, clearly, clearly, best, about]):
            assert _curve(scores, forgiving).chosen == 1
    assert _curve([behind(best, 1.2), best]).chosen == 2
    assert _curve([about, clearly, clearly, best, about], told=True).chosen == 4
    assert _curve([best, clearly, about], told=True).chosen == 1


def test_a_learner_keeps_types_to_spare_beyond_the_best():
    best = generator(0).normal(size=400)
    about, clearly = behind(best, 0.8), behind(best, 2.2)
    for scores, chosen in (
        ([best, clearly, about], 3),
        ([best, about, about, about, about], 4),  # three more than what is enough
        ([about, best, clearly], 2),
    ):
        assert _curve(scores, spare=True).chosen == chosen
    spare = _curve([best, clearly, about], spare=True)
    assert spare.reason.startswith("3 types selected: 1 have the highest held-out log-likelihood, but one type too")


def test_the_fit_of_a_learner_has_its_curve_and_no_check(monkeypatch):
    asked = []

    def choose(log, **options):
        asked.append(options)
        return _curve([np.zeros(4), np.zeros(4), np.zeros(4)], spare=options["spare"])

    monkeypatch.setattr(fit_module, "choose", choose)
    log = lmab.simulate(SEPARATED, lmab.Uniform(4), n_sessions=40, horizon=3, rng=0)
    method = lmab.EM(restarts=1, tolerance=1e-3, prior="learned", sweeps=2)
    found = fit_module.fit_with_spare(log, method=method, rng=generator(0), values=[0.0, 1.0])
    assert (found.n_types, found.curve.chosen, found.check) == (3, 3, None)
    assert found.message.endswith(str(found.curve))
    assert (asked[0]["forgiving"], asked[0]["spare"]) == (True, True)


def test_one_more_where_the_gain_was_clear_or_fits_do_not_forgive():
    best = generator(0).normal(size=400)
    about, clearly, far = (behind(best, errors) for errors in (0.8, 2.2, 1.2))
    assert _curve([behind(best, 3.5), about, best]).chosen == 3
    assert _curve([behind(best, 3.5), about, clearly, clearly, best]).chosen == 2
    assert _curve([far, about, clearly, clearly, best], forgiving=False).chosen == 2
    assert _curve([far, about, best, clearly], forgiving=False).chosen == 3
    assert lmab.EM(prior="learned").capabilities.tolerates_extra_types
    assert not lmab.EM(prior=1.0).capabilities.tolerates_extra_types
    assert not lmab.estimation.MomentMatching().capabilities.tolerates_extra_types


def test_held_out_rewards_never_seen_in_training_are_not_impossible(rng):
    log = lmab.Sessions.from_arrays([[0, 1], [0, 1]], [[0.0, 1.0], [1.0, 0.0]])
    data = observe(log)
    sure = lmab.LatentBandit.bernoulli([1.0], [[0.0, 1.0]])
    scores = data.heldout(sure)
    assert np.isfinite(scores).all()
    assert scores[0] > scores[1]


def test_stopping_during_the_selection_returns_the_best_so_far(rng):
    log = lmab.simulate(SEPARATED, lmab.Uniform(4), n_sessions=300, horizon=6, rng=rng)
    seen = []

    def observer(progress):
        seen.append(progress.stage)
        return len(seen) >= 12

    fit = lmab.fit(log, n_types="auto", rng=rng, progress=observer)
    assert fit.status == "interrupted"
    assert fit.curve is not None
    assert any(stage.startswith("1 types: ") or stage.startswith("2 types: ") for stage in seen)


def test_any_other_word_is_an_error(rng):
    log = lmab.simulate(SEPARATED, lmab.Uniform(4), n_sessions=30, horizon=3, rng=rng)
    with pytest.raises(ValueError, match="n_types must be an integer of at least 1 or 'auto', got 'automatic'"):
        lmab.fit(log, n_types="automatic", method=lmab.EM(prior=0.0), rng=rng)


@pytest.mark.parametrize(
    ("means", "tried"),
    [
        ([0.0, 1.0, 0.9, 2.0, 1.9, 1.8, 5.0], 6),  # one dip is lived through, two in a row are not
        ([0.0, 1.0, 0.9, 0.8, 9.0], 4),
        ([3.0, 2.0, 1.0, 0.5, 9.0], 3),  # one is enough, and two in a row are clearly worse
        ([0.0, 1.0, 2.0, 3.0], 4),  # the log holds no more
        ([0.0, 10.0, 10.05, 10.1, 10.15, 10.2, 10.25, 99.0], 6),  # a model that does not fit gains a little for ever
        ([0.0, 10.0, 10.05, 10.2, 10.1, 10.0, 99.0], 6),  # more than a hundredth of it is worth it
    ],
)
def test_the_search_goes_two_numbers_beyond_the_best(means, tried, monkeypatch, rng):
    """Held-out scores are given here: what is tested is how many numbers of types are tried."""
    scores = iter([(np.full(20, mean), np.full(20, mean)) for mean in means])
    monkeypatch.setattr(fit_module, "_score", lambda *arguments: next(scores))
    monkeypatch.setattr(fit_module, "MAX_TYPES", len(means))
    log = lmab.simulate(SEPARATED, lmab.Uniform(4), n_sessions=40, horizon=3, rng=rng)
    curve = fit_module.choose(observe(log), rng=rng)
    assert curve.n_types == tuple(range(1, tried + 1))
    np.testing.assert_allclose(curve.log_likelihood, means[:tried])


def test_the_curve_is_that_of_paired_differences():
    rng = np.random.default_rng(1)
    scores = [rng.normal(size=50) + shift for shift in (0.0, 2.0, 2.1)]
    curve = _curve(scores)
    np.testing.assert_allclose(curve.log_likelihood, [score.mean() for score in scores])
    np.testing.assert_allclose(curve.gain, [0, (scores[1] - scores[0]).mean(), (scores[2] - scores[1]).mean()])
    errors = [np.std(scores[1] - scores[0]), np.std(scores[2] - scores[1])]
    np.testing.assert_allclose(curve.stderr, [0, *np.array(errors) / np.sqrt(50)])


@pytest.mark.parametrize(("n_sessions", "n_folds"), [(30, 5), (5000, 2), (30_000, 1)])
def test_large_logs_hold_out_fewer_folds(n_sessions, n_folds, monkeypatch, rng):
    """A log of 10,000 needs one fold of a fifth, one of 5,000 two, a small one all five."""
    seen = []

    def score(*arguments):
        seen.append(arguments[2])
        return np.zeros(3), np.zeros(3)

    monkeypatch.setattr(fit_module, "_score", score)
    monkeypatch.setattr(fit_module, "MAX_TYPES", 1)
    log = lmab.simulate(SEPARATED, lmab.Uniform(4), n_sessions=n_sessions, horizon=2, rng=rng)
    fit_module.choose(observe(log), rng=rng)
    (folds,) = seen
    assert len(folds) == n_folds
    assert sum(map(len, folds)) == pytest.approx(n_folds * n_sessions / 5, abs=5)
    assert len(np.unique(np.concatenate(folds))) == sum(map(len, folds))


@pytest.mark.parametrize("many", [False, True])
def test_the_number_of_types_of_many_arms_comes_from_briefer_fits(many, monkeypatch, rng):
    monkeypatch.setattr(fit_module, "many_arms", lambda log: many)
    log = observe(lmab.simulate(SEPARATED, lmab.Uniform(4), n_sessions=40, horizon=3, rng=rng))
    asked = []

    def brief(self, train, **options):
        asked.append(self)
        return SimpleNamespace(bandit=SEPARATED)

    monkeypatch.setattr(lmab.EM, "fit", brief)
    monkeypatch.setattr(fit_module, "MAX_TYPES", 1)
    fit_module.choose(log, rng=rng)
    assert {(one.restarts, one.sweeps) for one in asked} == {(3, 12) if many else (6, 24)}


def test_one_session_is_one_type():
    log = lmab.Sessions.from_arrays([[0, 1, 0]], [[1.0, 0.0, 1.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lmab.errors.LmabWarning)  # one session says next to nothing
        assert lmab.fit(log, n_types="auto", rng=0).bandit.n_types == 1


def test_the_reason_of_a_choice_is_true_to_its_list():
    best = generator(0).normal(size=400)
    assert _curve([behind(best, 1.2), best]).reason == "2 types selected: highest held-out log-likelihood"
    few = _curve([behind(best, 0.8), *[behind(best, 2.2)] * 3, best])
    assert few.reason == "1 type selected: 5 have a held-out log-likelihood that is not clearly higher"
    assert (few.best, few.best_of_several) == (5, 5)
    one = _curve([best, behind(best, 2.2), behind(best, 0.8)])
    assert (one.chosen, one.best, one.best_of_several) == (1, 1, 3)
    assert _curve([best]).best_of_several == 1


def verdict(z_one, z_arms=3.0):
    """A check whose gains are so many standard errors."""
    line = Calibration(np.zeros(1), np.zeros(1), np.zeros(1), np.ones(1, int), 1.0, 0.1)
    return Check(3, 60, -1.0, Gain(z_one, 1.0), Gain(z_arms, 1.0), line)


@pytest.mark.parametrize(
    ("chosen", "found", "settled", "reason"),
    [
        (3, verdict(2.0), 1, "1 type selected: the check on held-out sessions does not support 3"),
        (1, verdict(2.1), 3, "3 types selected: the check on held-out sessions supports them"),
        (3, verdict(2.1), 3, "3 types selected: highest held-out log-likelihood"),
        (1, verdict(2.0), 1, "1 type selected: 3 have a held-out log-likelihood that is not clearly higher"),
        (3, verdict(2.1, 1.0), 3, "3 types selected: highest held-out log-likelihood"),  # little
        (1, verdict(2.1, 1.0), 1, "1 type selected: 3 have a held-out log-likelihood that is not clearly higher"),
    ],
)
def test_the_check_has_the_last_word_about_one_type(chosen, found, settled, reason, monkeypatch):
    """The curve and the check are given here: what is tested is which number is fitted, and what is said of it."""
    curve = Curve((1, 2, 3), np.array([-2.0, -3.0, -1.0]), np.zeros(3), np.zeros(3), chosen)
    asked = []

    def check(log, **options):
        asked.append(options["n_types"])
        return found

    monkeypatch.setattr(fit_module, "choose", lambda log, **options: curve)
    monkeypatch.setattr(fit_module, "held_out_check", check)
    log = lmab.simulate(SEPARATED, lmab.Uniform(4), n_sessions=40, horizon=3, rng=0)
    method = lmab.EM(restarts=1, tolerance=1e-3, sweeps=2)
    fit = lmab.fit(log, n_types="auto", method=method, rng=0, selected=False)
    assert asked == [3]
    assert (fit.n_types, fit.curve.chosen, fit.curve.reason) == (settled, settled, reason)
    assert fit.check is found
    assert reason in fit.message


def test_a_number_is_not_settled_where_something_else_may_tell_types(monkeypatch):
    """With features, in sessions whose arms are alike, or in too few sessions, the check comes after the fit."""
    curve = Curve((1, 2), np.array([-2.0, -1.0]), np.zeros(2), np.zeros(2), 2)
    monkeypatch.setattr(fit_module, "held_out_check", lambda log, **options: verdict(0.0))
    log = lmab.simulate(SEPARATED, lmab.Uniform(4), n_sessions=200, horizon=4, rng=0)
    own = np.repeat(np.arange(200) % 4, 4).reshape(200, 4)  # each session has one arm
    alike = lmab.Sessions.from_arrays(own, generator(0).integers(2, size=own.shape).astype(float), n_arms=4)
    known = lmab.Sessions.from_arrays(
        log.arms.reshape(200, 4), log.rewards.reshape(200, 4), features={"a": np.arange(200) % 2}
    )
    for sessions, number in ((log, 1), (alike, 2), (known, 2), (log[:9], 2)):
        found, _ = fit_module._settled(curve, observe(sessions), generator(0))
        assert found.chosen == number
    alone = Curve((1,), np.zeros(1), np.zeros(1), np.zeros(1), 1)
    assert fit_module._settled(alone, observe(log), generator(0)) == (alone, None)


def three_types(rng):
    bandit = lmab.LatentBandit.bernoulli(
        [0.2, 0.5, 0.3], [[0.9, 0.1, 0.4, 0.1], [0.1, 0.8, 0.1, 0.5], [0.3, 0.2, 0.9, 0.9]]
    )
    return lmab.simulate(bandit, lmab.Uniform(4), n_sessions=800, horizon=6, rng=rng)


def test_types_come_largest_first_and_posteriors_number_them_so(rng):
    log = three_types(rng)
    estimate = lmab.fit(log, n_types=3, rng=0)
    assert estimate.check is not None
    assert estimate.bandit.types_by_weight == [0, 1, 2]
    shares = estimate.posterior(log).mean(axis=0)
    np.testing.assert_allclose(shares, estimate.bandit.weights, atol=0.02)
    assert (np.diff(shares) < 0).all()
    found = lmab.fit(log, n_types=3, rng=0, check=False)  # a learner's fit is as it was found
    assert sorted(found.bandit.weights) == sorted(estimate.bandit.weights)
    start = estimate.bandit.relabel(types=[2, 0, 1])
    again = lmab.fit(log, n_types=3, start=start, rng=0)
    assert again.bandit.distance(start) < 0.1
    np.testing.assert_allclose(again.bandit.weights, start.weights, atol=0.05)


def test_whatever_has_an_entry_per_type_follows_their_order(rng):
    log = three_types(rng)
    found = lmab.fit(log, n_types=3, method=lmab.EM(prior=1.0), rng=0)
    order = [1, 2, 0] if found.bandit.types_by_weight == [0, 1, 2] else [0, 1, 2]
    bandit = found.bandit.relabel(types=order)
    prior = lmab.TypePrior(["age"], [bandit.weights, [0.1, 0.2, 0.3]], keep=0.4)
    favour = np.arange(12.0).reshape(4, 3)
    shown = Selection("free", favour, 0.0, 32.0, False, 1.0, 1.0, Gain(0.1, 0.1))
    leaving = np.arange(24.0).reshape(3, 4, 2) / 24
    learned = replace(log_prior := observe(log).prior(1.0), leaving=leaving, freedom=np.ones(4))
    bandit = bandit.with_type_prior(prior)
    estimate = replace(found, bandit=bandit, selection=shown, learned=learned)
    sorted_one = fit_module.largest_first(estimate)
    places = bandit.types_by_weight
    assert sorted_one.bandit == bandit.relabel(types=places)
    np.testing.assert_array_equal(sorted_one.type_prior.coefficients, prior.coefficients[:, places])
    assert sorted_one.type_prior.keep == 0.4
    np.testing.assert_array_equal(sorted_one.selection.favour, favour[:, places])
    np.testing.assert_array_equal(sorted_one.learned.leaving, leaving[places])
    assert fit_module.largest_first(sorted_one) is sorted_one
    common = replace(estimate, learned=replace(log_prior, leaving=leaving[:1], freedom=np.ones(4)))
    assert len(fit_module.largest_first(common).learned.leaving) == 1


def test_the_study_of_auto_counts_numbers_empty_types_and_plans():
    from benchmarks import study_auto

    family = next(iter(study_auto.FAMILIES))
    row = {"family": family, "chosen": 1, "empty": 0, "fixed": True, "share": 0.9}
    rows = [row, row, {**row, "chosen": 3, "empty": 2, "fixed": False, "share": 0.96}]
    assert study_auto.table(rows).splitlines()[2] == f"| {family} | 1 | 3 | 1 (2), 3 (1) | 1 | 1 | 0.920 |"
    assert len(study_auto.table(rows).splitlines()) == 3
