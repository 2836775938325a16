"""The number of contexts by held-out likelihood."""

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


def test_auto_finds_separated_contexts(rng):
    log = lmab.simulate(SEPARATED, lmab.Uniform(4), n_episodes=2000, horizon=8, rng=rng)
    fit = lmab.estimate(log, n_contexts="auto", rng=rng)
    assert fit.n_contexts in (3, 4)  # it errs high
    curve = fit.curve
    assert curve.n_contexts == tuple(range(1, len(curve.n_contexts) + 1))
    assert curve.chosen == fit.n_contexts
    assert len(curve.gain) == len(curve.stderr) == len(curve.n_contexts)
    assert (curve.gain[1:3] > 5 * curve.stderr[1:3]).all()
    np.testing.assert_allclose(np.diff(curve.log_likelihood), curve.gain[1:], atol=1e-12)
    assert "chosen by held-out log-likelihood" in fit.message
    assert len(curve.n_contexts) <= 7  # stopped early


def test_one_context_is_seen_as_one_or_two(rng):
    log = lmab.simulate(
        lmab.LatentBandit.bernoulli([1.0], [[0.3, 0.6]]), lmab.Uniform(2), n_episodes=1000, horizon=5, rng=rng
    )
    fit = lmab.estimate(log, n_contexts="auto", rng=rng)
    assert fit.n_contexts <= 2
    assert len(fit.curve.n_contexts) <= 4


def test_auto_for_gaussian_rewards(rng):
    bandit = lmab.LatentBandit.gaussian([0.5, 0.5], [[0.0, 2.0], [2.0, 0.0]], scale=0.7)
    log = lmab.simulate(bandit, lmab.Uniform(2), n_episodes=500, horizon=4, rng=rng)
    assert lmab.estimate(log, n_contexts="auto", rewards="gaussian", rng=rng).n_contexts in (2, 3)


def test_in_doubt_one_more():
    rng = generator(0)
    base = rng.normal(size=400)
    better = base + 1.0 + 0.1 * rng.normal(size=400)
    about = better - 0.005 + rng.permuted(np.repeat([-0.1, 0.1], 200))
    worse = better - 0.05 + rng.permuted(np.repeat([-0.1, 0.1], 200))
    assert _curve([base, better, about]).chosen == 3
    assert _curve([base, better, worse]).chosen == 2
    assert _curve([base, better, about, about + 0.006]).chosen == 4  # perhaps by chance: a context more costs little
    assert _curve([base]).chosen == 1


@pytest.mark.parametrize(("lag", "chosen"), [(0.15, 3), (0.25, 2), (0.35, 2)])
def test_one_more_within_two_standard_errors_only(lag, chosen):
    spread, best = np.repeat([-1.0, 1.0], 50), np.zeros(100)  # a standard error of 0.1
    assert _curve([best - 1.0, best, best - lag + spread]).chosen == chosen


def test_two_numbers_beyond_the_best_are_tried(rng, monkeypatch):
    """A dip at two contexts does not end the search; two numbers without gain do."""
    means = [0.0, -1.0, 1.0, 0.5, 0.9, 5.0]
    monkeypatch.setattr(selection, "_score", lambda data, rows, folds, n, *_: means[n - 1] + np.array([-0.01, 0.01]))
    log = lmab.simulate(SEPARATED, lmab.Uniform(4), n_episodes=40, horizon=3, rng=rng)
    curve = selection.choose(observe(log), rng=rng)
    assert curve.n_contexts == (1, 2, 3, 4, 5)
    assert curve.chosen == 3
    np.testing.assert_allclose(curve.log_likelihood, means[:5])


def test_fewer_contexts_are_not_taken_because_they_are_nearly_as_good():
    """Behind the best by 0.1 and 2.5 standard errors: the best is chosen, since a context too few costs more."""
    spread, best = np.repeat([-1.0, 1.0], 50), np.zeros(100)  # a standard error of 0.1
    for lag in (0.01, 0.25):
        assert _curve([best - lag + spread, best - 1.0, best, best - 1.0]).chosen == 3


def test_held_out_rewards_never_seen_in_training_are_not_impossible(rng):
    log = lmab.Episodes.from_arrays([[0, 1], [0, 1]], [[0.0, 1.0], [1.0, 0.0]])
    data = observe(log)
    sure = lmab.LatentBandit.bernoulli([1.0], [[0.0, 1.0]])
    scores = data.heldout(sure)
    assert np.isfinite(scores).all()
    assert scores[0] > scores[1]


def test_stopping_during_the_selection_returns_the_best_so_far(rng):
    log = lmab.simulate(SEPARATED, lmab.Uniform(4), n_episodes=300, horizon=6, rng=rng)
    seen = []

    def observer(progress):
        seen.append(progress.stage)
        return len(seen) >= 12

    fit = lmab.estimate(log, n_contexts="auto", rng=rng, progress=observer)
    assert fit.status == "interrupted"
    assert fit.curve is not None
    assert any(stage.startswith("1 contexts: ") or stage.startswith("2 contexts: ") for stage in seen)


def test_any_other_word_is_an_error(rng):
    log = lmab.simulate(SEPARATED, lmab.Uniform(4), n_episodes=30, horizon=3, rng=rng)
    with pytest.raises(ValueError, match="n_contexts must be an integer of at least 1 or 'auto', got 'automatic'"):
        lmab.estimate(log, n_contexts="automatic", rng=rng)


@pytest.mark.parametrize(
    ("means", "tried"),
    [
        ([0.0, 1.0, 0.9, 2.0, 1.9, 1.8, 5.0], 6),  # one dip is lived through, two in a row are not
        ([0.0, 1.0, 0.9, 0.8, 9.0], 4),
        ([3.0, 2.0, 1.0, 9.0], 3),
        ([0.0, 1.0, 2.0, 3.0], 4),  # the log holds no more
    ],
)
def test_the_search_goes_two_numbers_beyond_the_best(means, tried, monkeypatch, rng):
    """Held-out scores are given here: what is tested is how many numbers of contexts are tried."""
    scores = iter([np.full(20, mean) for mean in means])
    monkeypatch.setattr(selection, "_score", lambda *arguments: next(scores))
    monkeypatch.setattr(selection, "MAX_CONTEXTS", len(means))
    log = lmab.simulate(SEPARATED, lmab.Uniform(4), n_episodes=40, horizon=3, rng=rng)
    curve = selection.choose(observe(log), rng=rng)
    assert curve.n_contexts == tuple(range(1, tried + 1))
    np.testing.assert_allclose(curve.log_likelihood, means[:tried])


def test_the_curve_is_that_of_paired_differences():
    rng = np.random.default_rng(1)
    scores = [rng.normal(size=50) + shift for shift in (0.0, 2.0, 2.1)]
    curve = _curve(scores)
    np.testing.assert_allclose(curve.log_likelihood, [score.mean() for score in scores])
    np.testing.assert_allclose(curve.gain, [0, (scores[1] - scores[0]).mean(), (scores[2] - scores[1]).mean()])
    errors = [np.std(scores[1] - scores[0]), np.std(scores[2] - scores[1])]
    np.testing.assert_allclose(curve.stderr, [0, *np.array(errors) / np.sqrt(50)])


@pytest.mark.parametrize(("n_episodes", "n_folds"), [(30, 5), (5000, 4), (30_000, 1)])
def test_large_logs_hold_out_fewer_folds(n_episodes, n_folds, monkeypatch, rng):
    """About 20,000 held-out sessions are enough: a fifth of 30,000, four fifths of 5,000, all of 30."""
    seen = []

    def score(*arguments):
        seen.append(arguments[2])
        return np.zeros(3)

    monkeypatch.setattr(selection, "_score", score)
    monkeypatch.setattr(selection, "MAX_CONTEXTS", 1)
    log = lmab.simulate(SEPARATED, lmab.Uniform(4), n_episodes=n_episodes, horizon=2, rng=rng)
    selection.choose(observe(log), rng=rng)
    (folds,) = seen
    assert len(folds) == n_folds
    assert sum(map(len, folds)) == pytest.approx(n_folds * n_episodes / 5, abs=5)
    assert len(np.unique(np.concatenate(folds))) == sum(map(len, folds))
