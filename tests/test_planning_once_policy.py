"""Decisions by plans that know which arms they may use: what an arm is worth, by enumeration of what may follow."""

from __future__ import annotations

import numpy as np
import pytest
from seeds import generator
from test_planning_once_backups import case, follows, worth

from lmab.errors import InvalidArgument
from lmab.planning.no_repeats.backups import NoRepeatVectors
from lmab.planning.no_repeats.vector_policy import NoRepeatVectorPolicy, no_repeat_policy


def policy_of(seed: int, greedy_steps: int = 0) -> tuple[NoRepeatVectorPolicy, list[NoRepeatVectors]]:
    """A policy for four steps whose plans for one, two and three steps to go are given."""
    problem, later, _, _ = case(seed)
    none = NoRepeatVectors.none(problem)
    longer = NoRepeatVectors(later.vectors + 1.0, later.arms, later.used)
    plans = [none, later, longer, none]
    return no_repeat_policy(problem, plans, greedy_steps), plans


@pytest.mark.parametrize("seed", range(12))
def test_an_arm_is_worth_its_mean_and_the_best_that_may_follow(seed):
    policy, plans = policy_of(seed)
    problem, rng, history = policy._problem, generator(seed), []
    for remaining in (4, 3, 2, 1):
        state = policy.start()
        for arm, reward in history:
            state = policy.observe(state, arm, reward)
        belief, gone = state.memory[0, : len(problem.weights)], {arm for arm, _ in history}
        none = NoRepeatVectors.none(problem)
        later = plans[remaining - 2] if remaining > 1 else none
        found = policy.arm_values(state)[0]
        expected = [
            -np.inf if arm in gone
            else worth(problem, later, belief, gone, arm, remaining) if remaining > 1
            else float(belief @ problem.means[arm])
            for arm in range(5)
        ]  # fmt: skip
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        chosen = policy.act(state)
        assert chosen not in gone
        gains = [-np.inf if arm in gone else float(belief @ problem.means[arm]) for arm in range(5)]
        greedy, promise = int(np.argmax(gains)), follows(problem, plans[remaining - 1], belief, gone, remaining)
        keeps = expected[greedy] >= promise - 1e-9
        assert chosen == (greedy if keeps else np.argmax(expected))  # all five arms are compared
        left = [arm for arm in range(5) if arm not in gone]
        history.append((int(rng.choice(left)), -0.5))  # the least value


@pytest.mark.parametrize("seed", range(6))
def test_a_plan_that_promises_more_than_the_greedy_arm_is_followed_after_the_greedy_steps(seed):
    """At four steps to go, a plan that begins with the arm of the least mean promises more than anything else."""
    problem, _, _, _ = case(seed)
    means = problem.weights @ problem.means.T
    worst = int(means.argmin())
    used = np.zeros((1, 5), bool)
    used[0, [arm for arm in range(5) if arm != means.argmax()][:3]] = True
    used[0, worst] = False
    none = NoRepeatVectors.none(problem)
    rest = NoRepeatVectors(np.full((1, 3), 50.0), np.array([int(used.argmax())]), used)
    best = NoRepeatVectors(np.full((1, 3), 60.0), np.array([worst]), used | np.eye(5, dtype=bool)[[worst]])
    follows = no_repeat_policy(problem, [none, none, rest, best], 0)
    values = follows.arm_values(follows.start())[0]
    assert follows.act(follows.start()) == values.argmax()
    assert values[follows.act(follows.start())] > 40  # with the plan afterwards
    greedy = no_repeat_policy(problem, [none, none, rest, best], 1)
    assert greedy.act(greedy.start()) == means.argmax()


def test_tables_that_do_not_fit_are_refused():
    policy, _ = policy_of(0)
    parts = (policy.bandit, policy.vectors, policy.arms, policy.used)
    for starts in ([0, 0, 4, 8], [1, 0, 4, 8, 8], [0, 0, 4, 8, 7], [0, 4, 0, 8, 8]):
        with pytest.raises(InvalidArgument, match="starts must rise from 0 to 8 in 4 steps"):
            NoRepeatVectorPolicy(*parts, np.array(starts), horizon=4)
    with pytest.raises(InvalidArgument, match=r"vectors must be \(8, 3\)"):
        NoRepeatVectorPolicy(policy.bandit, policy.vectors[:, :2], *parts[2:], policy.starts, horizon=4)
    with pytest.raises(InvalidArgument, match=r"arms must be in 0\.\.4"):
        NoRepeatVectorPolicy(*parts[:2], policy.arms + 5, policy.used, policy.starts, horizon=4)
