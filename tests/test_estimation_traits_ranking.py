"""How arms rank where no factor tells them apart: by their mean rewards, unless the fit is sure that this loses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import lmab
from lmab.estimation import observe
from lmab.estimation.points import Points
from lmab.estimation.surface import Arms
from lmab.estimation.traits_ranking import _variance_of_difference, apart, ranked
from lmab.evaluation.diagnostics import popularity_of

SMALL = lmab.Traits(n_factors=2, n_points=25)
N_ARMS = 20


def generous(n: int, rng: np.random.Generator, *, normal: bool = False) -> lmab.Sessions:
    """Sessions that like all arms more or less, and log six of them at random."""
    levels, shift = rng.normal(0, 0.5, N_ARMS), rng.normal(size=(n, 1))
    arms = rng.random((n, N_ARMS)).argsort(axis=1)[:, :6]
    logits = levels[arms] + shift
    rewards = logits + rng.normal(size=arms.shape) if normal else (rng.random(arms.shape) < 1 / (1 + np.exp(-logits)))
    return lmab.Sessions.from_arrays(arms, rewards * 1.0, n_arms=N_ARMS)


def popular(log: lmab.Sessions) -> np.ndarray:
    return np.argsort(-popularity_of(log), kind="stable")


@pytest.mark.parametrize("normal", [False, True])
def test_every_session_is_told_the_arms_of_highest_mean_reward(rng, normal):
    log = generous(700, rng, normal=normal)
    found = lmab.fit(log, method=SMALL, rewards="gaussian" if normal else None, rng=0)
    assert found.factors.by_mean
    assert not found.factors.tell_arms_apart
    for means in found.bandit.means:
        np.testing.assert_array_equal(np.argsort(-means, kind="stable"), popular(log))
    assert "no factor tells arms apart, so that what a session paid does not say which arms suit it" in found.message
    assert "arms rank by their mean rewards in the log" in found.message


def test_without_this_the_list_would_differ_by_noise(rng):
    log = generous(700, rng)
    alone = lmab.fit(log, method=replace(SMALL, equal_loadings=True), rng=0)
    assert not alone.factors.by_mean  # the model that was asked for stays as it is
    fitted = np.argsort(-(alone.bandit.weights @ alone.bandit.means))
    assert (fitted != popular(log)).any()


def test_the_levels_stay_those_of_the_fit(rng):
    """Only who has which level changes, so that predictions hardly do."""
    log = generous(700, rng)
    ranking, alone = (lmab.fit(log, method=one, rng=0) for one in (SMALL, replace(SMALL, equal_loadings=True)))
    np.testing.assert_allclose(
        np.sort(ranking.bandit.weights @ ranking.bandit.means),
        np.sort(alone.bandit.weights @ alone.bandit.means),
        atol=0.01,
    )
    assert abs(ranking.log_likelihood - alone.log_likelihood) < 0.005 * len(log)


def test_a_fit_that_is_sure_of_its_own_order_keeps_it(rng):
    """Generous sessions are shown other arms than mean ones, so that mean rewards mislead."""
    n, levels = 2000, np.tile(np.linspace(-1, 1, N_ARMS // 2), 2)
    shift, arms = rng.normal(0, 1.5, (n, 1)), np.empty((n, 6), int)
    arms[:, :2] = rng.random((n, N_ARMS)).argsort(axis=1)[:, :2]
    first = rng.random((n, 2)) < 1 / (1 + np.exp(-levels[arms[:, :2]] - shift))
    half = np.where(first.all(axis=1), N_ARMS // 2, 0)  # those who liked both are shown the other half of the arms
    arms[:, 2:] = half[:, None] + rng.random((n, N_ARMS // 2)).argsort(axis=1)[:, :4]
    rest = rng.random((n, 4)) < 1 / (1 + np.exp(-levels[arms[:, 2:]] - shift))
    log = lmab.Sessions.from_arrays(arms, np.hstack([first, rest]) * 1.0, n_arms=N_ARMS)
    found = lmab.fit(log, method=SMALL, rng=0)
    assert not found.factors.tell_arms_apart
    assert not found.factors.by_mean
    assert "mean rewards" not in found.message
    assert levels[np.argsort(-found.bandit.means[0])[:6]].sum() > levels[popular(log)[:6]].sum()


def test_an_arm_played_once_does_not_lead_the_list(rng):
    once = lmab.Sessions.from_arrays([[N_ARMS, 0]], [[1.0, 1.0]], n_arms=N_ARMS + 1)
    log = generous(700, rng).with_arms(N_ARMS + 1) + once
    found = lmab.fit(log, method=SMALL, rng=0)
    order = np.argsort(-found.bandit.means[0])
    assert popular(log).tolist().index(N_ARMS) < 4
    assert order.tolist().index(N_ARMS) > 4  # of what is known of it most is the law
    others = popular(log)
    np.testing.assert_array_equal(order[order < N_ARMS], others[others < N_ARMS])


def test_the_plan_says_so_and_its_file_too(rng, tmp_path):
    found = lmab.fit(generous(300, rng), method=SMALL, rng=0)
    lmab.plan(found, horizon=3, repeats=False, method=lmab.QMDP()).save(tmp_path / "plan.lmab")
    plan = lmab.load(tmp_path / "plan.lmab")
    assert plan.message.endswith(f"; {found.factors.ranking}")
    assert plan.estimate.factors.by_mean
    assert found.factors is not None
    apart_enough = replace(found, factors=replace(found.factors, apart=1.0))
    told = lmab.plan(apart_enough, horizon=3, repeats=False, method=lmab.QMDP())
    assert "no factor tells arms apart" not in told.message


# -------------------------------------------------------------------------------- the parts


def case(values: list[float], loadings: np.ndarray, rng: np.random.Generator):
    arms = rng.integers(4, size=(200, 3))
    data = observe(lmab.Sessions.from_arrays(arms, rng.choice(values, arms.shape), n_arms=5), values=values)
    q = len(values) - 1
    parameters = np.column_stack([rng.normal(size=(5, q)), loadings])
    p = parameters.shape[1]
    given = Arms(parameters, np.tile(0.01 * np.eye(p), (5, 1, 1)), parameters.mean(axis=0), np.ones(p))
    return data.surface, given, Points.of(loadings.shape[1], 9)


def test_how_much_loadings_differ_is_measured_over_the_arms_that_were_played(rng):
    loadings = np.array([[1.0, 0.0], [2.0, 0.0], [1.0, 0.0], [2.0, 0.0], [100.0, 50.0]])
    surface, _, _ = case([0.0, 1.0], loadings, rng)
    assert apart(surface, loadings) == pytest.approx(0.5)
    turn = np.array([[0.6, 0.8], [-0.8, 0.6]])
    assert apart(surface, loadings @ turn) == pytest.approx(0.5)
    assert apart(surface, np.zeros((5, 0))) == 0.0


def test_arms_that_factors_tell_apart_stay_as_they_are(rng):
    surface, given, points = case([0.0, 1.0], np.array([[1.0], [1.4], [1.0], [1.4], [1.2]]), rng)
    found = ranked(surface, given, points)
    assert found.arms is given
    assert not found.by_mean


def test_arms_on_more_than_two_values_stay_as_they_are(rng):
    surface, given, points = case([0.0, 1.0, 3.0], np.ones((5, 1)), rng)
    found = ranked(surface, given, points)
    assert found.arms is given
    assert not found.by_mean


def test_the_list_of_mean_rewards_itself_loses_nothing(rng):
    surface, given, points = case([0.0, 1.0], np.ones((5, 1)), rng)
    parameters = given.parameters.copy()
    parameters[np.argsort(-surface.popularity(), kind="stable"), 0] = np.linspace(1, -1, 5)
    sure = replace(given, parameters=parameters, covariance=1e-9 * given.covariance)
    found = ranked(surface, sure, points)
    assert found.by_mean
    np.testing.assert_array_equal(found.arms.parameters, parameters)


def test_two_standard_errors_decide(rng):
    """Two arms whose mean rewards are in the other order: the fit has to be sure of its own."""
    surface, given, points = case([0.0, 1.0], np.ones((5, 1)), rng)
    parameters = given.parameters.copy()
    order = np.argsort(-surface.popularity()[:4], kind="stable")
    parameters[order, 0] = [0.3, 0.7, -1.0, -2.0]
    parameters[4, 0] = -3.0
    for error, by_mean in ((0.4 / np.sqrt(2) / 2.2, False), (0.4 / np.sqrt(2) / 1.8, True)):
        covariance = 1e-9 * given.covariance
        covariance[:, 0, 0] = error**2
        found = ranked(surface, replace(given, parameters=parameters, covariance=covariance), points)
        assert found.by_mean == by_mean
        assert found.arms.parameters[order[0], 0] == (0.7 if by_mean else 0.3)


def test_arms_in_both_lists_fall_out_of_their_difference(rng):
    one, other, variance = rng.permutation(8), rng.permutation(8), rng.random(8)
    expected = [sum(variance[list(set(one[:n]) ^ set(other[:n]))]) for n in range(1, 9)]
    np.testing.assert_allclose(_variance_of_difference(one, other, variance), expected, atol=1e-12)
