"""Policies around a policy: the base class, Exploring and Relabelled."""

from __future__ import annotations

import numpy as np
import pytest
from policies import always, of_any_arms

import lmab
from lmab.errors import InvalidArgument
from lmab.evaluation.off_policy import with_propensities
from lmab.policies.policy import mask_unplayed
from lmab.policies.wrappers import Relabelled
from lmab.testing.policies import check_policy

BANDIT = lmab.LatentBandit.bernoulli(
    [0.3, 0.3, 0.4], [[0.9, 0.1, 0.4, 0.5], [0.2, 0.7, 0.5, 0.3], [0.3, 0.4, 0.8, 0.1]]
)
BANDIT_RELABELLED = lmab.LatentBandit.bernoulli([0.4, 0.6], [[0.8, 0.4, 0.3], [0.2, 0.5, 0.7]])
PLANNED = lmab.plan(BANDIT_RELABELLED, horizon=4).policy


def test_the_probability_of_what_it_played_by_hand():
    greedy = lmab.Greedy(BANDIT)
    best = greedy.act_on([])
    policy = lmab.policies.Exploring(greedy, floor=0.2)
    expected = np.full(4, 0.05)
    expected[best] += 0.8
    np.testing.assert_allclose(policy.probabilities(policy.start()), expected, rtol=1e-15)
    others = np.arange(4) != best
    second = greedy.act(greedy.start(), allowed=others)
    masked = np.where(others, 0.2 / 3, 0.0)
    masked[second] += 0.8
    np.testing.assert_allclose(policy.probabilities(policy.start(), allowed=others), masked, rtol=1e-15)


def test_floors_by_arm_and_what_a_withdrawn_arm_gives_back():
    greedy = lmab.Greedy(BANDIT)
    assert greedy.act_on([]) == 2
    policy = lmab.policies.Exploring(greedy, floor=[0.0, 0.1, 0.05, 0.3])
    np.testing.assert_allclose(policy.probabilities(policy.start()), [0.0, 0.1, 0.6, 0.3], rtol=1e-12)
    allowed = [True, True, True, False]
    np.testing.assert_allclose(policy.probabilities(policy.start(), allowed=allowed), [0, 0.1, 0.9, 0], rtol=1e-12)


@pytest.mark.parametrize("floor", [0.0, 1.0, 0.35, [0.1, 0.0, 0.3, 0.05]])
def test_arms_are_played_as_often_as_it_says_under_a_mask(floor):
    policy, n = lmab.policies.Exploring(lmab.Thompson(BANDIT), floor=floor), 40_000
    allowed = np.array([True, False, True, True])
    told = policy.probabilities(policy.start(), allowed=allowed)
    shares = np.bincount(policy.act(policy.start(n), allowed=allowed, rng=3), minlength=4) / n
    assert (np.abs(shares - told) <= 5 * np.sqrt(told * (1 - told) / n) + 1e-12).all(), (shares, told)


def test_without_repeats_it_explores_arms_not_yet_played():
    plan = lmab.plan(BANDIT, horizon=4, repeats=False)
    policy = lmab.policies.Exploring(plan.policy, floor=0.5)
    assert not policy.repeats
    check_policy(policy, BANDIT)
    state = policy.observe(policy.start(), 3, None)
    chances = policy.probabilities(state)
    assert chances[3] == 0
    np.testing.assert_allclose(np.sort(chances)[1:3], 0.5 / 3)
    sessions = lmab.simulate(BANDIT, policy, n_sessions=200, horizon=4, rng=0)
    assert all(len(set(session.arms.tolist())) == 4 for session in sessions)


def test_arms_not_yet_played_and_what_is_left_where_none_is_allowed():
    played = np.array([[True, False, False], [False, True, True]])
    np.testing.assert_array_equal(mask_unplayed(played, None), ~played)
    allowed = np.array([[True, True, False], [False, True, False]])
    np.testing.assert_array_equal(mask_unplayed(played, allowed), [[False, True, False], [False, True, False]])


@pytest.mark.parametrize("make", [lambda b: lmab.Uniform(4), lmab.Greedy, lmab.Thompson, lmab.policies.MUCB])
def test_keeps_the_laws_around_any_policy(make):
    check_policy(lmab.policies.Exploring(make(BANDIT), floor=[0.05, 0.1, 0.0, 0.2]), BANDIT)


def test_logs_of_it_say_what_another_policy_earns():
    explored = lmab.policies.Exploring(lmab.Greedy(BANDIT), floor=0.4)
    log = with_propensities(lmab.simulate(BANDIT, explored, n_sessions=20_000, horizon=2, rng=1), explored)
    found = lmab.evaluate(always(0, BANDIT.n_arms), log, horizon=2, rng=0)
    truth = lmab.evaluate(always(0, BANDIT.n_arms), BANDIT, horizon=2).mean
    assert abs(found.mean - truth) < 5 * found.stderr


def test_refusals_name_the_argument(tmp_path):
    greedy = lmab.Greedy(BANDIT)
    for floor in (-0.1, 1.1, float("nan"), True, "much"):
        with pytest.raises(InvalidArgument, match="floor must be a number from 0 to 1, or one for each arm"):
            lmab.policies.Exploring(greedy, floor)
    for floors in ([0.1] * 3, [0.5, 0.6, 0, 0], [-0.1, 0, 0, 0]):
        with pytest.raises(InvalidArgument, match="floor must be 4 numbers of at least 0 that sum to at most 1"):
            lmab.policies.Exploring(greedy, floors)
    with pytest.raises(InvalidArgument, match="policy must not explore already"):
        lmab.policies.Exploring(lmab.policies.Exploring(greedy))
    with pytest.raises(InvalidArgument, match="policy must know how many arms there are"):
        lmab.policies.Exploring(of_any_arms())
    with pytest.raises(InvalidArgument, match="policy must be deterministic to be compact"):
        lmab.policies.Exploring(greedy).compact()
    with pytest.raises(InvalidArgument, match="n_arms must be the policy's 4, got 5"):
        lmab.policies.Exploring(greedy).distribution(greedy.start(), n_arms=5)


def test_one_decision_in_twenty_explores_unless_it_is_said():
    policy = lmab.policies.Exploring(lmab.Greedy(BANDIT))
    assert policy.floor == 0.05
    np.testing.assert_allclose(np.sort(policy.probabilities(policy.start())), [0.0125] * 3 + [0.9625])


def test_floors_may_leave_nothing_to_the_policy():
    policy = lmab.policies.Exploring(lmab.Greedy(BANDIT), [0.25] * 4)
    np.testing.assert_allclose(policy.probabilities(policy.start()), 0.25)
    tenths = lmab.policies.Exploring(lmab.Greedy(BANDIT), [0.7, 0.1, 0.1, 0.1])  # a sum of 1 up to rounding
    assert tenths.probabilities(tenths.start()).min() >= 0


def test_files_keep_one_floor_and_floors_by_arm(tmp_path):
    for floor in (0.3, [0.1, 0.0, 0.2, 0.05]):
        policy = lmab.policies.Exploring(lmab.Greedy(BANDIT), floor)
        policy.save(tmp_path / "p.lmab")
        again = lmab.load(tmp_path / "p.lmab")
        np.testing.assert_array_equal(again.probabilities(again.start()), policy.probabilities(policy.start()))


def test_a_skipped_or_late_step_leaves_the_marks_of_arms_played(rng):
    inner = lmab.plan(BANDIT, horizon=4, repeats=False).policy
    policy = lmab.policies.Exploring(inner, floor=0.4)
    state = policy.observe(policy.start(), 3, None)
    for after in (policy.skip(state), policy.tell(state, 3, 1.0)):
        assert policy.probabilities(after)[3] == 0
    told = policy.tell(state, 3, 1.0)
    np.testing.assert_allclose(policy.belief(told), inner.belief(inner.observe(inner.start(), 3, 1.0)))


def test_a_permutation_plays_the_same_labels(rng):
    order = [2, 0, 1]
    policy = Relabelled(PLANNED, order)
    for _ in range(20):
        history = [(int(rng.integers(3)), float(rng.integers(2))) for _ in range(3)]
        moved = [(order.index(arm), reward) for arm, reward in history]
        assert order[policy.act_on(moved)] == PLANNED.act_on(history)
        np.testing.assert_allclose(
            policy.belief(policy.start(history=moved)), PLANNED.belief(PLANNED.start(history=history))
        )


def test_new_arms_tell_nothing_and_missing_arms_are_not_played():
    policy = Relabelled(PLANNED, ["x", 1, 2])
    assert policy.act_on([(0, 1.0), (0, None)]) == [None, 1, 2].index(
        PLANNED.act(PLANNED.skip(PLANNED.skip(PLANNED.start())), allowed=[False, True, True])
    )
    assert policy.act(policy.start(), allowed=[True, False, False]) == 0
    told = policy.tell(policy.start(), 0, 1.0)
    np.testing.assert_array_equal(told.memory, policy.start().memory)
    many = policy.observe(policy.start(2), np.array([0, 1]), np.array([1.0, 1.0]))
    np.testing.assert_allclose(policy.belief(many)[0], BANDIT_RELABELLED.weights)
    np.testing.assert_allclose(policy.belief(many)[1], PLANNED.belief(PLANNED.observe(PLANNED.start(), 1, 1.0)))
    assert policy.skip(policy.start()).step == 1
    check_policy(policy, lmab.LatentBandit.bernoulli([1.0], [[0.5, 0.5, 0.5]]))


@pytest.mark.parametrize("method", [lmab.Exact(), lmab.Certified(), lmab.planning.Lookahead(1)])
@pytest.mark.parametrize("repeats", [True, False])
def test_every_planned_policy_goes_on_after_an_unknown_arm(method, repeats):
    inner = lmab.plan(BANDIT_RELABELLED, horizon=3, method=method, repeats=repeats).policy
    policy = Relabelled(inner, [0, 1, 2, "new"])
    check_policy(policy, BANDIT_RELABELLED.with_arms(["new"]))


def test_refusals():
    for labels in (["x", "y"], [0, 0, 1], []):
        with pytest.raises(InvalidArgument, match="labels must be distinct and name an arm"):
            Relabelled(PLANNED, labels)
    with pytest.raises(InvalidArgument, match="policy must be deterministic and know its arms"):
        Relabelled(lmab.Uniform(3), [0, 1])


def test_late_and_missing_rewards_of_many_sessions_go_to_their_own_arms():
    policy = Relabelled(PLANNED, ["x", 2, 0])
    arms = np.array([0, 1, 2])
    waiting = policy.observe(policy.start(3), arms, None)
    told = policy.tell(waiting, arms, np.array([1.0, 1.0, 0.0]))
    np.testing.assert_allclose(policy.belief(waiting), [BANDIT_RELABELLED.weights] * 3)
    expected = [PLANNED.start(), *(PLANNED.observe(PLANNED.start(), arm, r) for arm, r in ((2, 1.0), (0, 0.0)))]
    np.testing.assert_allclose(policy.belief(told), [PLANNED.belief(state) for state in expected])


def test_masks_of_many_sessions_are_each_their_own():
    policy = Relabelled(PLANNED, [2, "x", 0])
    allowed = np.array([[True, True, True], [True, True, False], [False, True, False], [False, True, True]])
    inner = [None, [False, False, True], None, [True, False, False]]
    found = np.asarray(policy.act(policy.start(4), allowed=allowed))
    best = PLANNED.act(PLANNED.start(), allowed=[True, False, True])
    assert found.tolist() == [[2, None, 0].index(best), 0, 1, 2]
    for row in (1, 3):
        assert [2, None, 0][found[row]] == PLANNED.act(PLANNED.start(), allowed=inner[row])


def test_files_keep_the_labels(tmp_path):
    Relabelled(PLANNED, ["x", 2, 0]).save(tmp_path / "p.lmab")
    again = lmab.load(tmp_path / "p.lmab")
    assert again.arm_labels == ("x", 2, 0)
    assert again.act_on([(1, 1.0)]) == Relabelled(PLANNED, ["x", 2, 0]).act_on([(1, 1.0)])


class Avoiding(lmab.policies.PolicyWrapper):
    """Policy of a third party: it plays `policy`, but one arm only if no other arm is allowed."""

    kind, parameters, marks_played = "avoiding", ("arm", "names"), True

    def __init__(self, policy, arm, names=()):
        super().__init__(policy)
        self.arm, self.names = arm, tuple(names)

    def _choose(self, state, allowed, rng):
        mask = self._allowed(state, allowed).copy()
        several = mask.sum(axis=1) > 1
        mask[several, self.arm] = False
        return self.policy.act(self._inner(state), allowed=mask, rng=rng)


@pytest.mark.parametrize("repeats", [True, False])
def test_a_wrapper_only_defines_how_it_chooses(repeats, tmp_path):
    inner = lmab.plan(BANDIT, horizon=4, repeats=repeats).policy
    policy = Avoiding(inner, 2, ("a", "b"))
    check_policy(policy, BANDIT)
    state = policy.observe(policy.start(2), np.array([0, 3]), None)
    np.testing.assert_allclose(
        policy.belief(policy.tell(state, [0, 3], [1.0, 0.0])),
        policy.belief(policy.observe(policy.start(2), np.array([0, 3]), [1.0, 0.0])),
    )
    log = lmab.simulate(BANDIT, policy, n_sessions=200, horizon=4, rng=0)
    last = np.array([session.arms[-1] for session in log])
    assert (last == 2).all() == (not repeats)
    policy.save(tmp_path / "policy.lmab")
    loaded = lmab.load(tmp_path / "policy.lmab")
    assert (loaded.arm, loaded.names) == (2, ("a", "b"))
    assert loaded.act_on([(0, 1.0)]) == policy.act_on([(0, 1.0)])
