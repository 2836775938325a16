from __future__ import annotations

import numpy as np
import pytest

import lmab
from lmab import LatentBandit
from lmab.model import belief
from lmab.policies.policy import best_allowed


def test_greedy_takes_the_best_mean_under_the_belief(rng):
    bandit = lmab.random_bandit(4, 6, rng=rng)
    policy = lmab.Greedy(bandit)
    history = [(2, 1.0), (0, 0.0), (5, 1.0)]
    now = belief.prior(bandit)
    for arm, reward in history:
        now = belief.update(bandit, now, arm, reward)
    assert policy.act_on(history) == int((belief.normalise(now) @ bandit.means).argmax())


def test_thompson_draws_types_from_the_belief(rng):
    bandit = LatentBandit.bernoulli([0.2, 0.3, 0.5], np.eye(3) * 0.8 + 0.1)
    policy = lmab.Thompson(bandit)
    state = policy.observe(policy.start(100_000), np.zeros(100_000, int), np.ones(100_000))
    posterior = np.array([0.2 * 0.9, 0.3 * 0.1, 0.5 * 0.1])
    frequencies = np.bincount(policy.act(state, rng=rng), minlength=3) / 100_000
    np.testing.assert_allclose(frequencies, posterior / posterior.sum(), atol=0.008)


def test_uniform_is_uniform_over_the_allowed_arms(rng):
    policy = lmab.Uniform(4)
    arms = policy.act(policy.start(40_000), allowed=[True, False, True, True], rng=rng)
    np.testing.assert_allclose(np.bincount(arms, minlength=4) / 40_000, [1 / 3, 0, 1 / 3, 1 / 3], atol=0.012)


def test_mucb_starts_optimistic_and_drops_types_that_broke_their_promise():
    bandit = LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
    policy = lmab.policies.MUCB(bandit)
    assert policy.act_on([]) == 0
    assert policy.act_on([(0, 0.0)] * 6) == 1
    assert policy.act_on([(0, 1.0)] * 6) == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: lmab.Uniform(0), "n_arms must be an integer of at least 1, got 0"),
        (lambda: lmab.Greedy(LatentBandit.bernoulli([1.0], [[0.5]]), horizon=0), "horizon must be an integer"),
        (lambda: lmab.policies.MUCB(LatentBandit.bernoulli([1.0], [[0.5]]), width=np.nan), "width must be finite"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_equal_scores_take_the_first_allowed_arm():
    scores = np.array([[0.5, 1.0, 1.0 + 1e-15, 1.0 - 1e-15], [0.3, 0.2, 0.3, 0.1]])
    assert best_allowed(scores).tolist() == [1, 0]
    assert best_allowed(scores, np.array([[True, False, True, True], [False, True, True, False]])).tolist() == [2, 2]
    assert best_allowed(np.array([[1.0, 1.0 + 1e-9]])).tolist() == [1]
    nothing = np.array([[-np.inf, -np.inf, -np.inf]])
    assert best_allowed(nothing, np.array([[False, False, True]])).tolist() == [2]


def test_an_arm_beyond_the_last_is_refused():
    policy = lmab.Greedy(LatentBandit.bernoulli([1.0], [[0.5, 0.4]]))
    with pytest.raises(ValueError, match=r"arm must be an integer in 0\.\.1, got 2"):
        policy.observe(policy.start(), 2, 1.0)
    with pytest.raises(ValueError, match="arm must be an integer"):
        policy.observe(policy.start(), 0.5, 1.0)


def mucb_by_hand(bandit: LatentBandit, history, width: float = 0.25, allowed=None) -> int:
    """Algorithm mUCB, one step at a time in plain loops."""
    debt = [0.0] * bandit.n_types

    def believed(step: int, mask) -> tuple[int, int]:
        limit = width * np.ptp(bandit.rewards.values) * np.sqrt(6 * step * np.log(step + 1))
        candidates = [m for m in range(bandit.n_types) if debt[m] <= limit] or list(range(bandit.n_types))
        arms = [a for a in range(bandit.n_arms) if mask is None or mask[a]]
        return max(
            ((m, a) for m in candidates for a in arms), key=lambda pair: (bandit.means[pair], -pair[0], -pair[1])
        )

    for step, (arm, reward) in enumerate(history):
        type_, _ = believed(step, None)
        debt[type_] += bandit.means[type_, arm] - reward
    return believed(len(history), allowed)[1]


def test_mucb_is_the_published_rule(rng):
    for seed in range(60):
        draw = np.random.default_rng(seed)
        bandit = LatentBandit.categorical(
            draw.dirichlet(np.ones(3)), draw.dirichlet(np.full(3, 0.3), size=(3, 4)), [-1.0, 0.5, 2.0]
        )
        n_steps = int(draw.integers(0, 12))
        history = [(int(draw.integers(4)), float(draw.choice([-1.0, 0.5, 2.0]))) for _ in range(n_steps)]
        mask = draw.random(4) < 0.6
        mask[draw.integers(4)] = True
        for width in (0.05, 0.25, 1.0):
            policy = lmab.policies.MUCB(bandit, width=width)
            assert policy.act_on(history) == mucb_by_hand(bandit, history, width)
            assert policy.act_on(history, allowed=mask) == mucb_by_hand(bandit, history, width, mask)
    assert lmab.policies.MUCB(bandit).width == 0.25


def test_greedy_and_thompson_with_masks_act_on_the_belief(rng):
    bandit = LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.6, 0.1], [0.1, 0.2, 0.8]])
    mask = [False, True, True]
    assert lmab.Greedy(bandit).act_on([(0, 1.0)] * 3, allowed=mask) == 1
    assert lmab.Greedy(bandit).act_on([(0, 0.0)] * 3, allowed=mask) == 2
    policy = lmab.Thompson(bandit)
    state = policy.observe(policy.start(4000), np.zeros(4000, int), np.ones(4000))
    chosen = policy.act(state, allowed=mask, rng=rng)
    assert np.mean(chosen == 1) == pytest.approx(0.9, abs=0.025)
    assert set(chosen.tolist()) == {1, 2}
