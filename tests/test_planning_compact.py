"""CompactPolicy decides what its policy decides, and so does the short way of one session."""

from __future__ import annotations

import numpy as np
import pytest

import lmab
from lmab._kernel.compiled import planning as compiled
from lmab._kernel.reference import planning as reference
from lmab.errors import InvalidArgument


def test_the_same_arm_in_a_hundred_thousand_random_decisions():
    bandit = lmab.random_bandit(7, 50, kind="hard", rng=0)
    policy, rng = lmab.plan(bandit, horizon=10, method=lmab.planning.PointBased()).policy, np.random.default_rng(1)
    compact, n = policy.compact(), 10_000
    arms, rewards = rng.integers(50, size=(10, n)), rng.integers(2, size=(10, n)).astype(float)
    state, alone = policy.start(n), [compact.start()] * n
    for step in range(10):
        assert [compact.act(one) for one in alone] == policy.act(state).tolist()
        if step < 9:
            # Half of the sessions play what the policy says, the others anything.
            played = np.where(np.arange(n) % 2, policy.act(state), arms[step])
            state = policy.observe(state, played, rewards[step])
            told = zip(alone, played.tolist(), rewards[step].tolist(), strict=True)
            alone = [compact.observe(one, arm, reward) for one, arm, reward in told]


def test_one_session_takes_a_short_way_to_the_same_belief():
    bandit = lmab.random_bandit(4, 6, rng=2)
    policy = lmab.plan(bandit, horizon=6).policy
    single, many = policy.start(), policy.start(1)
    for arm, reward in [(1, 1.0), (1, 1.0), (1, 0), (1, 0.0), (2, np.float64(1.0)), (2, 1.0)]:
        single = policy.observe(single, arm, reward)
        many = policy.observe(many, np.array([arm]), np.array([float(reward)]))
        np.testing.assert_array_equal(single.memory, many.memory)
    for bad in ((6, 1.0), (-1, 1.0), (0, 0.5), (True, 1.0), (0, float("nan"))):
        for _ in range(2):
            with pytest.raises(InvalidArgument):
                policy.observe(policy.start(), *bad)


def test_impossible_and_tiny_beliefs_are_left_to_the_policy():
    bandit = lmab.LatentBandit.bernoulli(np.full(3, 1 / 3), np.eye(3) * (1 - 1e-300) + 1e-300 * 0)
    policy = lmab.plan(bandit, horizon=6).policy
    compact = policy.compact()
    state, whole = compact.start(), policy.start()
    for arm, reward in [(0, 1.0), (0, 0.0), (1, 1.0), (0, 0.0), (0, 1.0)]:
        state, whole = compact.observe(state, arm, reward), policy.observe(whole, arm, reward)
        np.testing.assert_array_equal(state.belief, whole.memory[0])
    assert compact.act(state) == policy.act(whole)
    with pytest.raises(InvalidArgument, match="state must be before the horizon of 6 steps"):
        compact.act(compact.observe(state, 0, 1.0))


def test_normal_rewards():
    bandit = lmab.LatentBandit.gaussian([0.5, 0.5], [[1.0, 0.0, 0.6], [0.0, 1.0, -0.6]], scale=0.7)
    policy = lmab.plan(bandit, horizon=4).policy
    state = policy.compact().observe(policy.compact().start(), 2, 0.31)
    assert policy.compact().act(state) == policy.act_on([(2, 0.31)])


@pytest.mark.parametrize("seed", range(10))
def test_the_kernels_agree(seed):
    rng = np.random.default_rng(seed)
    belief, row, vectors = rng.random(5), rng.random(5), rng.normal(size=(30, 5))
    vectors[7] = vectors[3]  # a tie: the first wins
    for one, other in zip(reference.updated(belief, row), compiled.updated(belief, row), strict=True):
        np.testing.assert_array_equal(one, other)
    scores = np.empty(30)
    for start, stop in ((0, 30), (3, 8), (7, 8)):
        found = reference.best_plan(belief, vectors, start, stop, scores)
        assert found == compiled.best_plan(belief, vectors, start, stop, scores)
