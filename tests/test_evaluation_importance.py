"""Weights and control variates of every session, against the definition worked out session by session."""

from __future__ import annotations

import numpy as np
import oracle
import pytest

import lmab
from lmab import LatentBandit, Sessions
from lmab.evaluation import importance
from lmab.evaluation.importance import REACHED, REWARD, ROBUST, WEIGHT

MODEL = LatentBandit.bernoulli([0.3, 0.7], [[0.9, 0.2], [0.15, 0.6]])


def ragged_log(seed: int) -> Sessions:
    rng = np.random.default_rng(seed)
    arms = rng.integers(2, size=(60, 4))
    arms[np.arange(4) >= rng.integers(1, 5, size=60)[:, None]] = -1
    rewards = rng.integers(2, size=(60, 4)).astype(float)
    return Sessions.from_arrays(arms, rewards, propensities=rng.uniform(0.3, 1.0, size=(60, 4)), n_arms=2)


def by_hand(policy, session: Sessions, horizon: int, outlook: np.ndarray) -> np.ndarray:
    """What one session adds: weight rho_t, rho_t r_t, its doubly robust version, and whether it has the step.

    The control variate of step t collects, at every step s <= t that the session has, what the model expects of step t
    before the arm of step s is known, less the same once it is known (Jiang and Li, 2016).
    """
    part = np.zeros((4, horizon))
    state, weight = policy.start(1), 1.0
    history: tuple[tuple[int, float], ...] = ()
    assert session.propensities is not None
    for step in range(min(len(session.arms), horizon)):
        arm, reward = int(session.arms[step]), float(session.rewards[step])
        joint = oracle.likelihood(MODEL.weights, MODEL.rewards.probabilities, [0.0, 1.0], history)
        belief = joint / joint.sum()
        chances = policy.distribution(state, n_arms=2)[0]
        after = weight * chances[arm] / session.propensities[step]
        part[REACHED, step], part[WEIGHT, step], part[REWARD, step] = 1, after, after * reward
        part[ROBUST, step] += weight * chances @ (belief @ MODEL.means) - after * (belief @ MODEL.means)[arm]
        part[ROBUST, step + 1 :] += (weight - after) * (outlook[step + 1 :] @ belief)
        state = policy.observe(state, np.array([arm]), np.array([reward]))
        weight, history = after, (*history, (arm, reward))
    part[REACHED, : len(session.arms)] = 1
    part[ROBUST] = (part[ROBUST] + part[REWARD]) * part[REACHED]
    return part


POLICIES = [lmab.Greedy(MODEL), lmab.Thompson(MODEL), lmab.Uniform(2), lmab.policies.FixedSequence([1, 0, 1, 0])]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
@pytest.mark.parametrize("horizon", [1, 3, 4])
def test_contributions_are_those_of_the_definition(policy, horizon, monkeypatch):
    monkeypatch.setattr(importance, "CHUNK", 25)  # the last chunk is a part of one
    log, outlook = ragged_log(7), np.random.default_rng(1).random((horizon, 2))
    found = list(importance.contributions(policy, log, horizon, MODEL, outlook))
    rows, parts = (np.concatenate(columns) for columns in zip(*found, strict=True))
    np.testing.assert_array_equal(rows, np.arange(len(log)))
    expected = np.array([by_hand(policy, session, horizon, outlook) for session in log])
    np.testing.assert_allclose(parts, expected, atol=1e-12)


def test_without_a_model_there_is_no_control_variate():
    (_, part), *_ = importance.contributions(lmab.Uniform(2), ragged_log(3), 4, None, None)
    np.testing.assert_array_equal(part[:, ROBUST], part[:, REWARD])


def test_a_model_that_knows_the_type_leaves_no_noise_after_the_first_step():
    """Types that one reward reveals: from the second step on, every session's control variate knows the truth.

    The doubly robust reward of step 2 is then the same for all sessions that began alike, whatever arm the log played.
    """
    sure = LatentBandit.bernoulli([0.5, 0.5], [[1.0, 0.0], [0.0, 1.0]])
    policy = lmab.Greedy(sure)
    arms = [[0, 0], [0, 1]]
    log = Sessions.from_arrays(arms, [[1.0, 1.0], [1.0, 0.0]], propensities=[[1.0, 0.5], [1.0, 0.5]], n_arms=2)
    (_, part), *_ = importance.contributions(policy, log, 2, sure, np.full((2, 2), 0.5))
    np.testing.assert_allclose(part[:, ROBUST, 1], 1.0)
