"""Plans for people who leave: every planner against the definition, and what others proved."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from leaving_cases import bandit_people_leave, earned, optimum
from planning_cases import optimal_at

import lmab
from lmab import LatentBandit
from lmab.model.dominance import undominated_arms
from lmab.planning.lookahead import Lookahead
from lmab.planning.point_based import PointBased
from lmab.planning.problem import Problem
from lmab.planning.search import Search

METHODS = {
    "certified": lmab.Certified(gap=1e-5, absolute=1e-6),
    "loose": lmab.Certified(gap=0.05),
    "exact": lmab.Exact(),
    "points": PointBased(n_beliefs=30),
    "fixed": Lookahead(0),
    "lookahead": Lookahead(1),
    "deep": Lookahead(2),
    "qmdp": lmab.QMDP(),
}


def violations(seed: int) -> tuple[int, list[str]]:
    """How many bounds were compared with the definition, and those that do not hold."""
    bandit, steps = bandit_people_leave(seed)
    n_checks, wrong = 0, []
    for repeats in (True, False):
        horizon = steps if repeats else min(steps, bandit.n_arms)
        best = optimum(bandit, horizon, repeats=repeats)
        holds = {
            "known type": bandit.known_type(horizon, repeats=repeats) >= best - 1e-9,
            "fixed choice": bandit.best_fixed(horizon, repeats=repeats) <= best + 1e-9,
        }
        for name, method in METHODS.items():
            plan = lmab.plan(bandit, horizon=horizon, method=method, repeats=repeats)
            value = earned(plan.policy, bandit, horizon)
            holds[name] = plan.lower - 1e-9 <= value <= best + 1e-9 and best <= plan.upper + 1e-9
            if name == "exact":
                holds[name] &= abs(plan.lower - best) < 1e-9 and abs(value - best) < 1e-9
            if name == "certified":
                holds[name] &= best - value <= 1e-5 * abs(best) + 2e-6
        n_checks += len(holds)
        wrong += [f"{name}, seed {seed}, repeats {repeats}" for name, right in holds.items() if not right]
    return n_checks, wrong


@pytest.mark.parametrize("seed", range(10))
def test_all_planners_hold_what_they_prove(seed):
    assert violations(seed)[1] == []


@pytest.mark.slow
def test_two_thousand_bounds_hold():
    found = [violations(seed) for seed in range(100, 205)]
    assert sum(n_checks for n_checks, _ in found) >= 2_000
    assert [text for _, wrong in found for text in wrong] == []


def test_nobody_leaving_changes_no_bit():
    bandit = lmab.random_bandit(4, 8, kind="hard", rng=2)
    never = dataclasses.replace(bandit, leaving=np.zeros((4, 8, 2)))
    for method in (lmab.Certified(gap=1e-3), PointBased(), Lookahead(1), lmab.QMDP()):
        for repeats in (True, False):
            one, other = (lmab.plan(b, horizon=4, method=method, repeats=repeats) for b in (bandit, never))
            assert (one.lower, one.upper, one.status) == (other.lower, other.upper, other.status)


def test_one_type_is_worth_its_index():
    """Ben-Porat et al. (2022): an arm for ever is worth P / (Lambda (1 - P)) where people leave after a failure."""
    rng = np.random.default_rng(0)
    pays, leaves = rng.uniform(0.2, 0.8, 6), rng.uniform(0.2, 1, 6)
    leaving = np.zeros((1, 6, 2))
    leaving[0, :, 0] = leaves
    bandit = LatentBandit.bernoulli([1.0], pays[None], leaving=leaving)
    plan = lmab.plan(bandit, horizon=400, method=lmab.Certified(gap=1e-6))
    index = pays / (leaves * (1 - pays))
    assert index.max() == pytest.approx(14.6535, abs=5e-5)
    assert plan.lower == pytest.approx(index.max(), rel=1e-6)
    assert plan.policy.act_on([]) == index.argmax()


@pytest.mark.parametrize("horizon", [5, 15])
def test_independent_arms_over_at_the_first_failure(horizon):
    """Berry and Viscusi (1981): staying with a winner is optimal, so one arm is played throughout."""
    first, second = np.array([0.2, 0.5, 0.9]), np.array([0.1, 0.45, 0.85])
    shares = np.array([0.3, 0.4, 0.3]), np.array([0.2, 0.4, 0.4])
    means = np.array([[x, y] for x in first for y in second])
    leaving = np.zeros((9, 2, 2))
    leaving[..., 0] = 1
    bandit = LatentBandit.bernoulli(np.outer(*shares).ravel(), means, leaving=leaving)
    alone = [float(share @ sum(arm**t for t in range(1, horizon + 1))) for share, arm in zip(shares, (first, second))]  # noqa: B905
    plan = lmab.plan(bandit, horizon=horizon, method=lmab.Certified(gap=1e-9))
    assert plan.lower == pytest.approx(max(alone), rel=1e-8)
    assert bandit.best_fixed(horizon) == pytest.approx(max(alone), rel=1e-12)


def test_constant_leaving_is_a_discount():
    rng = np.random.default_rng(3)
    means, weights = rng.random((3, 3)), rng.dirichlet(np.ones(3))
    bandit = LatentBandit.bernoulli(weights, means, leaving=np.full((3, 3, 2), 0.2))

    def discounted(mass, steps):
        if steps == 0:
            return 0.0
        shown = np.stack([1 - means, means], axis=2)
        return max(
            float(mass @ means[:, arm]) + 0.8 * sum(discounted(mass * shown[:, arm, z], steps - 1) for z in (0, 1))
            for arm in range(3)
        )

    plan = lmab.plan(bandit, horizon=5, method=lmab.Exact())
    assert plan.lower == pytest.approx(discounted(weights, 5), rel=1e-12)


def test_an_arm_that_drives_people_away_is_not_played_first():
    """It pays most, but whoever is shown it goes: it is the last arm of a session, where nothing is lost."""
    leaving = np.zeros((2, 2, 2))
    leaving[:, 0] = 1.0
    bandit = LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.9, 0.6]], leaving=leaving)
    for method in (lmab.Certified(), lmab.Exact(), PointBased(), Lookahead(1), lmab.QMDP()):
        policy = lmab.plan(bandit, horizon=4, method=method).policy
        assert policy.act_on([]) == 1
        assert policy.act_on([(1, 1.0)] * 3) == 0


def test_whoever_is_asked_for_the_next_arm_has_stayed():
    leaving = np.zeros((2, 1, 2))
    leaving[0] = 0.5
    bandit = LatentBandit.bernoulli([0.5, 0.5], [[0.6], [0.6]], leaving=leaving)
    policy = lmab.plan(bandit, horizon=3).policy
    seen = policy.observe(policy.start(), 0, 1.0)
    np.testing.assert_allclose(policy.belief(seen), [1 / 3, 2 / 3])
    waiting = policy.observe(policy.start(), 0, None)
    np.testing.assert_allclose(policy.belief(waiting), [1 / 3, 2 / 3])
    np.testing.assert_allclose(policy.belief(policy.tell(waiting, 0, 1.0)), [1 / 3, 2 / 3])


def test_an_arm_that_tells_nothing_may_not_wait():
    """Nobody leaves it and everybody leaves the others, so it comes first, and one of them at the last step."""
    leaving = np.ones((2, 3, 2))
    leaving[:, 0] = 0.0
    shown = np.array([[0.5, 0.5], [0.1, 0.9], [0.9, 0.1]])[None].repeat(2, axis=0)
    shown[1, 1:] = shown[0, 1:][::-1]
    bandit = LatentBandit.categorical([0.5, 0.5], shown, [0.0, 2.0], leaving=leaving)
    best = optimum(bandit, 4, repeats=True)
    plan = lmab.plan(bandit, horizon=4, method=lmab.Certified(gap=1e-9))
    search = Search(Problem.of(bandit, 4), seed=0)
    assert not search.arms.flat.any()
    assert plan.lower == pytest.approx(best)
    assert plan.upper == pytest.approx(best)


def test_q_mdp_may_earn_less_than_a_fixed_arm_and_does_not_claim_it():
    """It keeps people for what it would earn if it knew their type, which it does not find out."""
    bandit, horizon = bandit_people_leave(361)
    plan = lmab.plan(bandit, horizon=horizon, method=lmab.QMDP())
    value = earned(plan.policy, bandit, horizon)
    assert value < bandit.best_fixed(horizon) - 0.02
    assert plan.lower <= value + 1e-12


@pytest.mark.parametrize("seed", range(6))
def test_late_rewards_tell_what_prompt_ones_tell(seed):
    bandit, _ = bandit_people_leave(5 * seed + 4)
    values = bandit.rewards.values.tolist()
    for method, repeats in (
        (lmab.Certified(), True),
        (lmab.Exact(), True),
        (lmab.Exact(), False),
        (Lookahead(1), False),
    ):
        policy = lmab.plan(bandit, horizon=2, method=method, repeats=repeats).policy
        prompt = policy.observe(policy.start(), 1, values[0])
        late = policy.tell(policy.observe(policy.start(), 1, None), 1, values[0])
        np.testing.assert_allclose(policy.belief(prompt), policy.belief(late), rtol=1e-9)
        assert policy.act(prompt) == policy.act(late)


@pytest.mark.parametrize("seed", range(12))
def test_arms_that_are_dropped_are_not_missed(seed):
    """Where people leave a mixture must keep those whom the arm keeps; with negative means, no more than those."""
    rng = np.random.default_rng([seed, 7])
    n_types, shown = 2, np.empty((4, 2, 2))
    shown[:3] = rng.dirichlet(np.ones(2), (3, n_types)).transpose(0, 2, 1) * (1 - rng.beta(0.5, 2, (3, 2, n_types)))
    shown[3] = shown[:2].mean(axis=0) * (0.9 if seed % 2 else 1.0)  # half of two arms, or what remains of it
    means = rng.random((4, n_types)) - (0.3 if seed % 3 == 0 else 0.0)
    means[3] = means[:2].mean(axis=0) - 0.01
    kept = undominated_arms(shown.reshape(8, n_types), means, has_attrition=True)
    if seed % 2 == 0 or (means >= 0).all():
        assert 3 not in kept
    for belief in rng.dirichlet(np.ones(n_types), 5):
        whole = optimal_at(shown.reshape(8, n_types), means, belief[None], 3)[0]
        fewer = optimal_at(shown[kept].reshape(-1, n_types), means[kept], belief[None], 3)[0]
        assert fewer == pytest.approx(whole, abs=1e-12)
