"""Checks on held-out sessions: their folds, rivals, calibration and masked replay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from seeds import generator

import lmab
from lmab import LatentBandit, Sessions
from lmab.errors import InvalidArgument
from lmab.estimation import cross_validation
from lmab.estimation.categorical import _dirichlet
from lmab.estimation.cross_validation import masked_gains, popularity_of
from lmab.estimation.families import observe
from lmab.estimation.gaussian import _log_normal
from lmab.evaluation import diagnostics
from lmab.model import belief


@pytest.fixture(scope="module")
def bandit():
    return lmab.random_bandit(3, 6, rng=generator(3))


@pytest.fixture(scope="module")
def log(bandit):
    return lmab.simulate(bandit, lmab.Uniform(6), n_sessions=6000, horizon=6, rng=generator(4))


@pytest.fixture(scope="module")
def checked(log):
    return diagnostics.check(log, n_types=3, rng=generator(5))


def test_a_latent_log_is_found_out(checked, bandit, log):
    assert checked.over_one_type.sure
    assert checked.over_independent_arms.sure
    assert checked.calibration.slope == pytest.approx(1, abs=4 * checked.calibration.slope_stderr + 0.1)
    assert checked.verdict.startswith("Latent types are supported")
    truth = belief.log_joint(bandit, log)
    best = np.logaddexp.reduce(truth, axis=1).mean()
    assert checked.log_likelihood == pytest.approx(best, abs=0.1)


def test_a_log_without_types_shows_none(rng):
    flat = LatentBandit.bernoulli([1.0], [np.linspace(0.2, 0.8, 6)])
    log = lmab.simulate(flat, lmab.Uniform(6), n_sessions=4000, horizon=6, rng=rng)
    result = diagnostics.check(log, n_types=3, rng=rng)
    assert not result.over_one_type.sure
    assert result.verdict.startswith("No latent types found")


def test_unrelated_arms_are_told_from_types(rng):
    """Every session draws anew what each arm pays: there is much to learn about an arm, nothing about others."""
    n, h = 6000, 6
    arms = rng.integers(2, size=(n, h))
    means = rng.beta(0.5, 0.5, size=(n, 2))
    log = Sessions.from_arrays(arms, (rng.random((n, h)) < np.take_along_axis(means, arms, axis=1)).astype(float))
    result = diagnostics.check(log, n_types=2, rng=rng)
    assert result.over_one_type.sure
    assert not result.over_independent_arms.sure
    assert result.verdict.startswith("Latent types are not supported: 2 types predict")


def test_independent_arms_score_against_the_formula(rng):
    """Beta-binomial with a fixed precision, by the product of predictive probabilities."""
    counts = np.array([[2.0, 1.0], [0.0, 3.0], [1.0, 0.0]])
    marginal = np.array([[0.4, 0.6], [0.5, 0.5], [0.9, 0.1]])
    got = _dirichlet(counts, marginal, np.array([2.0]))
    for row, (n, p) in enumerate(zip(counts, marginal, strict=True)):
        sequence = [0] * int(n[0]) + [1] * int(n[1])
        expected, seen = 1.0, np.zeros(2)
        for value in sequence:
            expected *= (2 * p[value] + seen[value]) / (2 + seen.sum())
            seen[value] += 1
        assert got[row] == pytest.approx(np.log(expected))


def test_normal_arms_score_against_the_density(rng):
    from scipy.stats import multivariate_normal

    log = Sessions.from_arrays([[0, 1, 0], [1, 1, -1]], rng.standard_normal((2, 3)))
    means, variance, ratio = np.array([0.3, -0.2]), 0.7, 0.5
    got = _log_normal(log, means, variance, ratio)
    for k, session in enumerate(log):
        same = session.arms[:, None] == session.arms[None]
        covariance = variance * (np.eye(len(session.arms)) + ratio * same)
        expected = multivariate_normal.logpdf(session.rewards, means[session.arms], covariance)
        assert got[k] == pytest.approx(expected)


def test_normal_rewards(rng):
    bandit = LatentBandit.gaussian([0.5, 0.5], [[1.0, 0.0, 0.5], [0.0, 1.0, 0.5]], scale=0.5)
    log = lmab.simulate(bandit, lmab.Uniform(3), n_sessions=2000, horizon=5, rng=rng)
    result = diagnostics.check(log, n_types=2, rewards="gaussian", rng=rng)
    assert result.over_one_type.sure
    assert result.over_independent_arms.sure


def test_predictions_are_posterior_means(bandit, log):
    predicted, average = cross_validation.predictions(bandit, log[:50])
    for k in range(5):
        session = log[k]
        for t in range(6):
            weights = bandit.weights.copy()
            for arm, reward in zip(session.arms[:t], session.rewards[:t], strict=True):
                weights = weights * np.where(reward == 1, bandit.means[:, arm], 1 - bandit.means[:, arm])
            expected = weights / weights.sum() @ bandit.means[:, session.arms[t]]
            assert predicted[6 * k + t] == pytest.approx(expected)
            assert average[6 * k + t] == pytest.approx(bandit.weights @ bandit.means[:, session.arms[t]])


def test_calibration_of_the_truth_and_of_a_model_too_sure(bandit, log):
    fair = diagnostics.calibrate(bandit, log)
    assert abs(fair.slope - 1) < 4 * fair.slope_stderr
    assert (np.abs(fair.observed - fair.predicted) < 4.5 * fair.stderr).all()
    assert fair.n_steps.sum() == log.n_steps
    wild = LatentBandit.bernoulli(bandit.weights, np.clip(2 * bandit.means - 0.5, 0.01, 0.99))
    assert diagnostics.calibrate(wild, log).slope < 0.8


def test_one_type_has_nothing_to_calibrate(log):
    single = LatentBandit.bernoulli([1.0], [np.full(6, 0.5)])
    assert diagnostics.calibrate(single, log).slope == 0.0


def test_too_few_sessions_to_hold_out(log, rng):
    with pytest.raises(InvalidArgument, match="at least 10"):
        diagnostics.check(log[:5], n_types=2, rng=rng)


def test_sure_is_more_than_two_standard_errors():
    from lmab.estimation.check import Gain

    assert Gain(0.21, 0.1).sure
    assert not Gain(0.2, 0.1).sure
    assert not Gain(-1.0, 0.1).sure
    assert str(Gain(0.125, 0.5)) == "+0.1250 ± 0.5000"


def test_every_session_is_held_out_and_a_small_log_is_split_twice(rng):
    held = cross_validation._held_out(303, 5, rng)
    assert [len(test) for test in held] == [61, 61, 61, 60, 60]
    np.testing.assert_array_equal(np.sort(np.concatenate(held)), np.arange(303))
    twice = cross_validation._held_out(300, 5, rng)
    assert len(twice) == 10
    np.testing.assert_array_equal(np.sort(np.concatenate(twice)), np.repeat(np.arange(300), 2))
    assert [len(test) for test in cross_validation._held_out(303, 2, rng)] == [61, 61]
    assert [len(test) for test in cross_validation._held_out(20_001, 5, rng)] == [4001]  # of many one fifth is enough


def test_a_session_held_out_twice_counts_once_by_its_average():
    found = cross_validation._gain(np.array([0, 1, 1, 0]), [np.array([1.0, 2.0]), np.array([4.0, 3.0])])
    assert found.mean == pytest.approx(2.5)
    assert found.stderr == pytest.approx(np.std([2.0, 3.0]) / np.sqrt(2))


def gains(one, arms, generosity):
    from lmab.estimation.check import Calibration, Check, Gain

    nothing = Calibration(np.zeros(1), np.zeros(1), np.zeros(1), np.ones(1, int), 1.0, 0.1)
    also = None if generosity is None else Gain(generosity, 1.0)
    return Check(3, 100, -1.0, Gain(one, 1.0), Gain(arms, 1.0), nothing, also)


@pytest.mark.parametrize(
    ("one", "arms", "generosity", "agrees", "begins"),
    [
        (2.1, 1.1, 1.1, True, "Latent types are supported: "),
        (2.1, 1.1, None, True, "Latent types are supported: "),
        (1.9, 9.0, None, False, "No latent types found: 3 types do not predict held-out sessions better than one type"),
        (
            9.0,
            0.9,
            None,
            False,
            "Latent types are not supported: 3 types predict held-out sessions better than one type, but",
        ),
        (9.0, 9.0, 0.1, True, "Latent types are supported"),
        (9.0, 9.0, 0.0, False, "Latent types are not supported: sessions differ in their overall level of reward"),
    ],
)
def test_types_are_supported_where_one_is_surely_worse_and_no_other_explanation_is_likelier(
    one, arms, generosity, agrees, begins
):
    found = gains(one, arms, generosity)
    assert found.agrees is agrees
    assert found.verdict.startswith(begins)
    assert ("over one response level per session" in found.details) is (generosity is not None)


def test_calibration_bins_are_averages_of_equally_many_steps(bandit, log):
    part = log[:57]
    found = diagnostics.calibrate(bandit, part)
    predicted, average = cross_validation.predictions(bandit, part)
    order = np.argsort(predicted, kind="stable")
    for k, rows in enumerate(np.array_split(order, 10)):
        assert found.predicted[k] == pytest.approx(predicted[rows].mean())
        assert found.observed[k] == pytest.approx(part.rewards[rows].mean())
        assert found.stderr[k] == pytest.approx(part.rewards[rows].std() / np.sqrt(len(rows)))
        assert found.n_steps[k] == len(rows)
    x, y = predicted - average, part.rewards - average
    assert found.slope == pytest.approx(x @ y / (x @ x))
    sums = [(x * (y - found.slope * x))[6 * k : 6 * k + 6].sum() for k in range(57)]
    assert found.slope_stderr == pytest.approx(np.sqrt(np.square(sums).sum()) / (x @ x))


def test_predictions_of_ragged_sessions_in_chunks(bandit, monkeypatch, rng):
    arms = rng.integers(6, size=(23, 4))
    arms[np.arange(4) >= rng.integers(1, 5, size=23)[:, None]] = -1
    ragged = Sessions.from_arrays(arms, rng.integers(2, size=(23, 4)).astype(float), n_arms=6)
    whole = cross_validation.predictions(bandit, ragged)[0]
    monkeypatch.setattr("lmab.model.belief._SESSIONS", 5)
    np.testing.assert_allclose(cross_validation.predictions(bandit, ragged)[0], whole)
    alone = [cross_validation.predictions(bandit, session)[0] for session in ragged]
    np.testing.assert_allclose(np.concatenate(alone), whole)


def test_unrelated_arms_take_the_best_precision_for_each_arm(rng):
    """Arm 0 differs from session to session, arm 1 never does: one has a small precision, the other a large one."""
    n, h = 3000, 8
    arms = np.tile([0, 1] * 4, (n, 1))
    chances = np.where(arms == 0, rng.beta(0.5, 0.5, size=(n, 1)), 0.5)
    log = Sessions.from_arrays(arms, (rng.random((n, h)) < chances).astype(float))
    train, test = log[:2000], log[2000:]
    scores = observe(train, values=[0.0, 1.0]).unrelated(test)
    assert scores.shape == (1000,)
    from scipy.special import betaln

    shown, rewards = test.to_arrays()
    hits = (rewards * (shown == 0)).sum(axis=1)
    truth = betaln(0.5 + hits, 0.5 + 4 - hits) - betaln(0.5, 0.5) + 4 * np.log(0.5)
    assert scores.mean() == pytest.approx(truth.mean(), abs=0.02)


def test_normal_arms_take_the_best_ratio(rng):
    n, h = 2000, 6
    arms = np.tile([0, 1] * 3, (n, 1))
    means = np.array([1.0, -2.0]) + rng.normal(size=(n, 2)) * 0.8
    log = Sessions.from_arrays(arms, np.take_along_axis(means, arms, axis=1) + 0.5 * rng.normal(size=(n, h)))
    train, test = log[:1500], log[1500:]
    scores = observe(train, rewards="gaussian").unrelated(test)
    truth = _log_normal(test, np.array([1.0, -2.0]), 0.25, 0.64 / 0.25)
    assert scores.mean() == pytest.approx(truth.mean(), abs=0.02)


def people(n, rng, *, loadings):
    arms = np.array([rng.permutation(len(loadings))[:6] for _ in range(n)])
    logits = np.einsum("nd,nhd->nh", rng.normal(size=(n, loadings.shape[1])), loadings[arms])
    return Sessions.from_arrays(arms, (rng.random(arms.shape) < 1 / (1 + np.exp(-logits))) * 1.0, n_arms=len(loadings))


def test_traits_are_checked_with_every_session_held_out_once(rng):
    log = people(1500, rng, loadings=rng.normal(0, 1.2, (10, 2)))
    estimate = lmab.fit(log, method=lmab.Traits(n_factors=3, n_points=64), rng=rng)
    found = diagnostics.check(estimate, rng=rng)
    assert found.n_sessions == 1500
    assert found.n_types == 64
    assert found.n_factors == 2
    assert found.over_one_type.sure
    assert found.over_generosity is not None
    assert found.over_generosity.sure
    assert found.over_traits is None
    assert found.replay is not None
    assert found.replay.n_sessions == 1500
    assert found.replay.sure
    assert "earns more than popularity" in " ".join(found.sentences)
    assert "over one response level per session" in found.details


def test_generosity_alone_changes_nobodys_best_arm(rng):
    log = people(3000, rng, loadings=np.full((8, 1), 1.5))
    found = diagnostics.check(log, method=lmab.Traits(n_factors=2, n_points=49), rng=rng)
    assert found.over_one_type.sure
    assert found.over_generosity is not None
    assert not found.over_generosity.sure
    assert found.replay is not None
    assert abs(found.replay.mean) < 3 * found.replay.stderr + 0.01
    assert "No gain over the most popular arms was demonstrated." in found.verdict
    assert not found.agrees


def test_types_are_compared_with_traits(rng, checked):
    assert checked.n_factors is None
    assert checked.over_traits is not None
    assert not any("Continuous types" in sentence for sentence in checked.sentences)
    log = people(4000, rng, loadings=rng.normal(0, 1.5, (10, 2)))
    found = diagnostics.check(log, n_types=2, rng=rng)
    assert found.over_traits is not None
    assert any("Continuous latent traits predict held-out sessions better" in sentence for sentence in found.sentences)


def test_one_type_is_replayed_against_nothing(rng):
    log = people(200, rng, loadings=np.ones((6, 1)))
    found = diagnostics.check(log, n_types=1, rng=rng)
    assert found.replay is None
    assert found.over_generosity is None
    assert found.sentences == ()


def by_hand(bandit: lmab.LatentBandit, popularity: np.ndarray, session: list[tuple[int, float]]) -> float | None:
    """One session by its definition."""
    paid: dict[int, float] = {}
    for arm, reward in session:
        paid.setdefault(arm, reward)
    steps, history, total = len(paid) // 2, [], 0.0
    if not steps:
        return None
    for _ in range(steps):
        weights = bandit.weights.copy()
        for arm, reward in history:
            weights = weights * (bandit.means[:, arm] if reward else 1 - bandit.means[:, arm])
        left = [arm for arm in sorted(paid) if arm not in dict(history)]
        best = max(left, key=lambda arm: weights @ bandit.means[:, arm])
        history.append((best, paid[best]))
        total += paid[best]
    popular = sorted(paid, key=lambda arm: -popularity[arm])[:steps]
    return total - sum(paid[arm] for arm in popular)


@pytest.mark.parametrize("cells", [1 << 22, 20])
def test_gains_are_those_of_the_definition(rng, monkeypatch, cells):
    monkeypatch.setattr(cross_validation, "_CELLS", cells)  # in one part, or in many
    bandit = lmab.random_bandit(3, 6, rng=rng)
    log = lmab.Sessions.from_arrays(rng.integers(6, size=(80, 7)), rng.integers(2, size=(80, 7)) * 1.0, n_arms=6)
    log += lmab.Sessions.from_arrays([[2, 2, 2]], [[1.0, 0.0, 1.0]], n_arms=6)  # one arm leaves no choice
    log += lmab.Sessions.from_arrays(rng.integers(6, size=(40, 3)), rng.integers(2, size=(40, 3)) * 1.0, n_arms=6)
    popularity = popularity_of(log)
    expected = []
    for i in range(len(log)):
        steps = slice(log.offsets[i], log.offsets[i + 1])
        session = list(zip(log.arms[steps].tolist(), log.rewards[steps].tolist(), strict=True))
        expected.append(by_hand(bandit, popularity, session))
    np.testing.assert_allclose(masked_gains(bandit, popularity, log), [gain for gain in expected if gain is not None])
    assert expected[80] is None


def test_popularity_has_one_pseudo_play_of_the_average_arm():
    log = lmab.Sessions.from_arrays([[0, 0, 1]], [[1.0, 0.0, 1.0]], n_arms=3)
    np.testing.assert_allclose(popularity_of(log), [(1 + 2 / 3) / 3, (1 + 2 / 3) / 2, 2 / 3])


def test_a_session_earns_more_where_types_differ(rng):
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.8, 0.1, 0.2], [0.1, 0.1, 0.9, 0.9]])
    arms = np.array([rng.permutation(4) for _ in range(2000)])
    type_ = rng.integers(2, size=(2000, 1))
    log = lmab.Sessions.from_arrays(arms, (rng.random(arms.shape) < bandit.means[type_, arms]) * 1.0)
    gains = masked_gains(bandit, popularity_of(log), log)
    assert gains.mean() > 5 * gains.std() / np.sqrt(len(gains))


@pytest.mark.parametrize(
    ("n_sessions", "n_folds", "folds", "held"),
    [(300, 5, 10, 600), (301, 5, 5, 301), (300, 2, 2, 120), (20_000, 5, 5, 20_000), (20_001, 5, 1, 4001), (3, 5, 6, 6)],
)
def test_small_logs_are_split_twice_and_of_large_ones_a_fifth_is_held_out(n_sessions, n_folds, folds, held):
    found = cross_validation._held_out(n_sessions, n_folds, generator(0))
    assert (len(found), sum(map(len, found))) == (folds, held)
    assert all((np.diff(one) > 0).all() for one in found)


def test_a_check_that_a_fit_made_is_only_compared_with_traits_afterwards(monkeypatch):
    """The command line asks nothing twice: a second answer could contradict the number of types."""
    truth = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1, 0.6], [0.1, 0.9, 0.4]])
    log = lmab.simulate(truth, lmab.Uniform(3), n_sessions=200, horizon=4, rng=generator(0))
    method = lmab.EM(restarts=1, tolerance=1e-3, sweeps=4)
    fit = lmab.fit(log, n_types=2, method=method, rng=generator(1))
    found = cross_validation.beside_traits(fit, rng=generator(2))
    assert found.over_traits.stderr > 0
    assert (found.verdict, found.over_one_type) == (fit.check.verdict, fit.check.over_one_type)
    told = cross_validation.beside_traits(replace(fit, known=(0.5, 0.0)), rng=generator(2))
    assert told.over_traits.mean == pytest.approx(found.over_traits.mean + 0.5)
    assert told.over_one_type == fit.check.over_one_type  # to which `fit` added it before
    monkeypatch.setattr(cross_validation, "_COMPARED", 2)
    assert cross_validation.beside_traits(fit, rng=generator(2)) is fit.check
    with pytest.raises(InvalidArgument, match="estimate must have a check to add to, got one without"):
        cross_validation.beside_traits(replace(fit, check=None), rng=generator(2))
