"""Replanning: fixed choices among arms that the log plays, and the share of the best that rests on the others."""

from __future__ import annotations

import numpy as np
import pytest

import lmab
from lmab.evaluation.replanning import Replanner

BANDIT = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.2, 0.5, 0.4], [0.7, 0.2, 0.5, 0.4]])
PLAYED = np.array([False, True, True, True])


def replanned(bandit, model, horizon, played, repeats=True):
    replanner = Replanner(bandit, lmab.plan(bandit, horizon=horizon, repeats=repeats), played)
    return replanner.replan(model.weights[None], [model.rewards])


@pytest.mark.parametrize(
    ("repeats", "fixed", "among_played"), [(True, 2 * 0.8, 2 * 0.5), (False, 0.8 + 0.5, 0.5 + 0.4)]
)
def test_fixed_choices_with_and_without_arms_that_were_never_played(repeats, fixed, among_played):
    found = replanned(BANDIT, BANDIT, 2, PLAYED, repeats)
    assert (found.fixed[0], found.fixed_played[0]) == (pytest.approx(fixed), pytest.approx(among_played))
    whole = replanned(BANDIT, BANDIT, 2, np.ones(4, bool), repeats)
    assert whole.fixed_played[0] == whole.fixed[0] == pytest.approx(fixed)
    few = replanned(BANDIT, BANDIT, 2, np.array([False, False, True, False]), repeats)  # no list of two such arms
    assert few.fixed_played[0] == pytest.approx(2 * 0.5 if repeats else fixed)


def test_the_share_of_arms_never_played_in_the_best():
    assert replanned(BANDIT, BANDIT, 2, PLAYED).unplayed[0] == pytest.approx(1.0)
    assert replanned(BANDIT, BANDIT, 2, np.array([True, True, False, True])).unplayed[0] == pytest.approx(0.0)
    assert replanned(BANDIT, BANDIT, 2, np.ones(4, bool)).unplayed[0] == 0.0
    # Without repeats the two best arms are played, and one of them never was.
    assert replanned(BANDIT, BANDIT, 2, PLAYED, False).unplayed[0] == pytest.approx(0.8 / 1.3)


def test_a_model_that_turns_the_arms_round_is_replanned_for():
    turned = lmab.LatentBandit.bernoulli([0.5, 0.5], BANDIT.means[:, ::-1])
    found = replanned(BANDIT, turned, 1, np.ones(4, bool))
    assert found.value[0] == pytest.approx(0.4)  # the plan goes on with arm 0
    assert found.optimum[0] == pytest.approx(0.8)
    assert found.transferred[0] == pytest.approx(0.4)  # arm 3 on the estimate


def test_of_many_arms_the_best_of_every_type_and_those_that_tell_most_are_planned_with(rng):
    bandit = lmab.LatentBandit.bernoulli([0.3, 0.7], rng.uniform(0.05, 0.95, (2, 250)))
    plan = lmab.plan(bandit, horizon=3, method=lmab.planning.Lookahead(0))
    replanner = Replanner(bandit, plan, np.ones(250, bool))
    found = set(replanner._useful(bandit.weights, bandit.means).tolist())
    average = bandit.weights @ bandit.means
    telling = bandit.weights @ bandit.means**2 - average**2
    best = {int(arm) for score in (*bandit.means, average, telling) for arm in np.argsort(-score)[: 24 + 3]}
    assert found == best | set(replanner._branches.arms.tolist())
    few = lmab.LatentBandit.bernoulli([0.3, 0.7], bandit.means[:, :200])
    fewer = Replanner(few, lmab.plan(few, horizon=3, method=lmab.planning.Lookahead(0)), np.ones(200, bool))
    assert len(fewer._useful(few.weights, few.means)) == 200  # not many yet
