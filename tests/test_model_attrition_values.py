"""Bandits that people leave: validation, files, relabelling, and what fixed choices and known types earn."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from leaving_cases import bandit_people_leave, best_fixed_sequence
from policies import always

import lmab
from lmab import LatentBandit
from lmab.errors import InvalidArgument
from lmab.model import attrition_values as module


@pytest.mark.parametrize("seed", range(20))
def test_fixed_choices_and_known_types_by_enumeration(seed):
    bandit, horizon = bandit_people_leave(seed)
    for repeats in (True, False):
        steps = horizon if repeats else min(horizon, bandit.n_arms)
        fixed = best_fixed_sequence(bandit, bandit.weights, steps, repeats=repeats, constant=repeats)
        assert bandit.best_fixed(steps, repeats) == pytest.approx(fixed, abs=1e-12)
        each = [best_fixed_sequence(bandit, one, steps, repeats=repeats) for one in np.eye(bandit.n_types)]
        assert bandit.known_type(steps, repeats) == pytest.approx(float(bandit.weights @ each), abs=1e-12)
        arms = bandit.best_fixed_arms(steps, repeats)
        assert len(set(arms)) == len(arms) == (1 if repeats else steps)


def test_the_list_of_many_arms_is_pruned_to_a_good_one(monkeypatch):
    bandit, _ = bandit_people_leave(9)
    many = bandit.with_arms(["a", "b", "c"])
    best = many.best_fixed(4, repeats=False)
    monkeypatch.setattr(module, "_WIDTH", 2)
    arms, value = module.best_fixed_sequence(many.means.T, many.stays.T, many.weights, 4, width=2)
    assert len(set(arms.tolist())) == 4
    assert value <= best + 1e-12


def test_arms_already_played_are_left_out():
    means, stays = np.array([[0.5], [0.9], [0.4]]), np.array([[1.0], [0.1], [0.9]])
    played = np.array([[True, False, False], [True, True, True], [False, False, False]])
    found = module.known_type_values_without_repeats(means, stays, played, 2)
    np.testing.assert_allclose(found[:, 0], [0.4 + 0.9 * 0.9, 0.0, 0.5 + 0.9])


def test_the_channel_sums_to_those_who_stay():
    bandit, _ = bandit_people_leave(4)
    expected = bandit.rewards.probabilities * (1 - bandit.leaving)
    np.testing.assert_array_equal(bandit.channel(), expected)
    np.testing.assert_allclose(bandit.stays, expected.sum(axis=2))
    plain = LatentBandit(bandit.weights, bandit.rewards)
    np.testing.assert_array_equal(plain.channel(), bandit.rewards.probabilities)
    assert (plain.stays == 1).all()


def test_saved_and_loaded(tmp_path):
    bandit, _ = bandit_people_leave(4)
    bandit.save(tmp_path / "bandit.lmab")
    loaded = lmab.load(tmp_path / "bandit.lmab")
    assert loaded == bandit
    np.testing.assert_array_equal(loaded.leaving, bandit.leaving)
    assert dataclasses.replace(bandit, leaving=None) != bandit
    plan = lmab.plan(bandit, horizon=3, method=lmab.QMDP())
    plan.save(tmp_path / "plan.lmab")
    again = lmab.load(tmp_path / "plan.lmab")
    assert again.policy.optimistic
    assert again.policy.act_on([]) == plan.policy.act_on([])


def test_relabelled_with_types_and_arms():
    bandit, _ = bandit_people_leave(4)
    types, arms = np.arange(bandit.n_types)[::-1].tolist(), np.roll(np.arange(bandit.n_arms), 1).tolist()
    other = bandit.relabel(types=types, arms=arms)
    np.testing.assert_array_equal(other.leaving, bandit.leaving[types][:, arms])
    assert bandit.distance(other.relabel(types=types, arms=np.argsort(arms).tolist())) == pytest.approx(0, abs=1e-12)
    assert bandit.distance(dataclasses.replace(bandit, leaving=None)) > 0.01
    assert lmab.plan(other, horizon=3, method=lmab.Exact()).lower == pytest.approx(
        lmab.plan(bandit, horizon=3, method=lmab.Exact()).lower
    )


def test_new_arms_are_left_as_the_others_are_on_average():
    leaving = np.array([[[0.2, 0.0], [0.4, 0.1]]])
    bandit = LatentBandit.bernoulli([1.0], [[0.5, 0.5]], leaving=leaving).with_arms(["new"])
    np.testing.assert_allclose(bandit.leaving[0, 2], [0.3, 0.05])


@pytest.mark.parametrize(
    ("leaving", "wanted"),
    [
        (np.zeros((1, 2)), "leaving must"),
        (np.zeros((1, 2, 3)), r"one probability for each type, arm and value, \(1, 2, 2\), got shape \(1, 2, 3\)"),
        (np.full((1, 2, 2), 1.5), r"leaving must lie in \[0, 1\], got 1.5 at index \(0, 0, 0\)"),
        (np.full((1, 2, 2), np.nan), "leaving must"),
    ],
)
def test_what_leaving_may_be(leaving, wanted):
    with pytest.raises(InvalidArgument, match=wanted):
        LatentBandit.bernoulli([1.0], [[0.5, 0.5]], leaving=leaving)


def test_normal_rewards_are_refused():
    bandit = LatentBandit.gaussian([1.0], [[0.5, 0.5]])
    with pytest.raises(InvalidArgument, match=r"leaving must be None for normal rewards .* cut the rewards into bins"):
        dataclasses.replace(bandit, leaving=np.zeros((1, 2, 2)))
    assert LatentBandit.gaussian([1.0], [[0.5, 0.5]], leaving=None).leaving is None
    with pytest.raises(InvalidArgument, match=r"leaving must be None for .* cut the rewards into bins"):
        LatentBandit.gaussian([1.0], [[0.5, 0.5]], leaving=np.zeros((1, 2, 2)))
    assert LatentBandit.counts([1.0], [[0.5, 0.5]], leaving=np.zeros((1, 2, 3))).leaving.shape == (1, 2, 3)
    with pytest.raises(InvalidArgument, match="finitely many values"):
        bandit.channel()


def test_simulated_sessions_end_when_people_leave():
    bandit, _ = bandit_people_leave(4)
    n, horizon = 40_000, 3
    policy = always(1, bandit.n_arms, horizon=horizon)
    for log in (
        lmab.simulate(bandit, policy, n_sessions=n, horizon=horizon, rng=0),
        lmab.simulate(bandit, np.ones((n, horizon), int), rng=0),
    ):
        assert set(log.ended[log.lengths < horizon]) == {"left"}
        assert set(log.ended[log.lengths == horizon]) == {"unknown"}
        stays = bandit.stays[:, 1]
        reached = [float(bandit.weights @ stays**step) for step in range(horizon)]
        shares = [float((log.lengths > step).mean()) for step in range(horizon)]
        np.testing.assert_allclose(shares, reached, atol=5 * 0.5 / np.sqrt(n))
    value = lmab.evaluate(policy, bandit, horizon=horizon)
    assert value.mean == pytest.approx(float(bandit.weights @ (bandit.means[:, 1] * (1 + stays + stays**2))))
    drawn = lmab.evaluate(policy, bandit, horizon=horizon, n_sessions=20_000, rng=1)
    assert drawn.mean == pytest.approx(value.mean, abs=5 * drawn.stderr + 1e-9)


def test_a_session_that_everybody_leaves_ends_at_once():
    bandit = LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.2], [0.3, 0.6]], leaving=np.ones((2, 2, 2)))
    assert lmab.evaluate(lmab.Greedy(bandit), bandit, horizon=4).mean == pytest.approx(0.6)
    assert set(lmab.simulate(bandit, lmab.Greedy(bandit), n_sessions=9, horizon=4, rng=0).lengths) == {1}
