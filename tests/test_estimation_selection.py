"""The number of types by held-out likelihood."""

from __future__ import annotations

import numpy as np
import pytest
from seeds import generator

import lmab
from lmab.estimation import observe, selection
from lmab.estimation.selection import _curve

SEPARATED = lmab.LatentBandit.bernoulli(
    [0.3, 0.3, 0.4], [[0.9, 0.1, 0.1, 0.5], [0.1, 0.9, 0.1, 0.5], [0.1, 0.1, 0.9, 0.5]]
)


def test_auto_finds_separated_types(rng):
    log = lmab.simulate(SEPARATED, lmab.Uniform(4), n_sessions=2000, horizon=8, rng=rng)
    fit = lmab.fit(log, n_types="auto", rng=rng)
    assert fit.n_types in (3, 4)  # it errs high
    curve = fit.curve
    assert curve.n_types == tuple(range(1, len(curve.n_types) + 1))
    assert curve.chosen == fit.n_types
    assert len(curve.gain) == len(curve.stderr) == len(curve.n_types)
    assert (curve.gain[1:3] > 5 * curve.stderr[1:3]).all()
    np.testing.assert_allclose(np.diff(curve.log_likelihood), curve.gain[1:], atol=1e-12)
    assert "chosen by held-out log-likelihood" in fit.message
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


def behind(best, errors):
    """Scores behind the best by so many standard errors."""
    noise = np.tile([-0.1, 0.1], len(best) // 2)
    return best - errors * 0.1 / np.sqrt(len(best)) + noise


def test_in_doubt_up_to_three_more():
    best = generator(0).normal(size=400)
    about, behind_by_one, clearly = behind(best, 0.8), behind(best, 1.2), behind(best, 2.2)
    for scores, chosen in (
        ([best, clearly, about], 3),
        ([best, about, clearly], 2),
        ([best, clearly, clearly, behind_by_one, about], 4),
        ([behind_by_one, best, about], 3),
        ([about, clearly, clearly, best, about], 4),  # one is enough, in doubt three more
        ([best], 1),
    ):
        assert _curve(scores).chosen == chosen


def test_one_more_where_the_gain_was_clear_or_fits_do_not_forgive():
    best = generator(0).normal(size=400)
    about = behind(best, 0.8)
    assert _curve([behind(best, 2.5), best, about, about]).chosen == 3
    assert _curve([behind(best, 1.5), best, about, about]).chosen == 4
    assert _curve([behind(best, 1.5), best, about, about], forgiving=False).chosen == 3
    assert _curve([behind(best, 1.5), best, behind(best, 1.2)], forgiving=False).chosen == 2
    assert lmab.EM(prior="learned").forgiving
    assert not lmab.EM(prior=1.0).forgiving
    assert not lmab.estimation.MomentMatching().forgiving


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
        lmab.fit(log, n_types="automatic", rng=rng)


@pytest.mark.parametrize(
    ("means", "tried"),
    [
        ([0.0, 1.0, 0.9, 2.0, 1.9, 1.8, 5.0], 6),  # one dip is lived through, two in a row are not
        ([0.0, 1.0, 0.9, 0.8, 9.0], 4),
        ([3.0, 2.0, 1.0, 0.5, 9.0], 4),  # one is enough: three more are looked at
        ([0.0, 1.0, 2.0, 3.0], 4),  # the log holds no more
        ([0.0, 10.0, 10.05, 10.1, 10.15, 10.2, 10.25, 99.0], 6),  # a model that does not fit gains a little for ever
        ([0.0, 10.0, 10.05, 10.2, 10.1, 10.0, 99.0], 6),  # more than a hundredth of it is worth it
    ],
)
def test_the_search_goes_two_numbers_beyond_the_best(means, tried, monkeypatch, rng):
    """Held-out scores are given here: what is tested is how many numbers of types are tried."""
    scores = iter([np.full(20, mean) for mean in means])
    monkeypatch.setattr(selection, "_score", lambda *arguments: next(scores))
    monkeypatch.setattr(selection, "MAX_CONTEXTS", len(means))
    log = lmab.simulate(SEPARATED, lmab.Uniform(4), n_sessions=40, horizon=3, rng=rng)
    curve = selection.choose(observe(log), rng=rng)
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
        return np.zeros(3)

    monkeypatch.setattr(selection, "_score", score)
    monkeypatch.setattr(selection, "MAX_CONTEXTS", 1)
    log = lmab.simulate(SEPARATED, lmab.Uniform(4), n_sessions=n_sessions, horizon=2, rng=rng)
    selection.choose(observe(log), rng=rng)
    (folds,) = seen
    assert len(folds) == n_folds
    assert sum(map(len, folds)) == pytest.approx(n_folds * n_sessions / 5, abs=5)
    assert len(np.unique(np.concatenate(folds))) == sum(map(len, folds))
