"""Weights and control variates of every session, against the definition worked out session by session."""

from __future__ import annotations

import math

import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from policies import always, in_turn
from seeds import generator

import lmab
from lmab import LatentBandit, Sessions
from lmab.errors import LmabWarning
from lmab.evaluation import importance, off_policy
from lmab.evaluation.importance import REACHED, REWARD, ROBUST, WEIGHT
from lmab.evaluation.value import weigh

MODEL = LatentBandit.bernoulli([0.3, 0.7], [[0.9, 0.2], [0.15, 0.6]])
TWO = LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.2], [0.1, 0.7]])


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


POLICIES = [lmab.Greedy(MODEL), lmab.Thompson(MODEL), lmab.Uniform(2), in_turn(1, 0, 1, 0)]


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


def alike(n_alike: int, n_other: int, reward: float) -> Sessions:
    """Sessions of one step: some play arm 0 and earn `reward`, the others arm 1 and earn the rest of 1."""
    n = n_alike + n_other
    chances = np.repeat([n_alike / n, n_other / n], [n_alike, n_other])[:, None]
    arms, paid = (
        np.repeat([0, 1], [n_alike, n_other])[:, None],
        np.repeat([reward, 1 - reward], [n_alike, n_other])[:, None],
    )
    return Sessions.from_arrays(arms, paid, propensities=chances, n_arms=2)


def test_no_session_that_follows_gives_no_interval():
    """Many arms, and no session plays the policy's arm: 0.1 gave the doubly robust estimate an interval of width 0."""
    arms = generator(0).integers(1, 20, size=(500, 5))
    log = Sessions.from_arrays(arms, np.ones((500, 5)), propensities=np.full((500, 5), 1 / 20), n_arms=20)
    model = LatentBandit.bernoulli([1.0], [np.linspace(0.9, 0.1, 20)])
    for rng in (None, 0):
        evidence = weigh(always(0, 20), log, horizon=5, model=model, rng=rng)
        assert evidence.doubly_robust.interval is None
        assert math.isnan(evidence.doubly_robust.stderr)
        assert not evidence.enough
        assert evidence.n_followed.tolist() == [0] * 5
        assert evidence.self_normalised is None
    assert "a live test is needed" in evidence.notes[0]
    assert "no interval is given" in evidence.notes[0]
    assert "needs far more than 15,000 sessions logged like these" in evidence.notes[0]
    with pytest.warns(LmabWarning, match="no interval is given"):
        value = lmab.evaluate(always(0, 20), log, horizon=5, model=model)
    assert value.interval is None
    assert value.mean == pytest.approx(4.5)  # the model's own
    assert repr(value) == "Evaluation(4.5, error unknown, over 5 steps, 500 sessions)"


@pytest.mark.parametrize("method", off_policy.METHODS)
def test_an_interval_needs_thirty_effective_sessions_at_every_step(method):
    for n_alike, given_ in ((29, False), (30, True)):
        value = weigh(always(0), alike(n_alike, 70, 1.0), horizon=1, model=TWO, rng=1).by(method)
        assert (value.interval is not None) == given_
        assert math.isnan(value.stderr) != given_


def test_the_note_says_how_many_sessions_the_log_would_need():
    (note, *_) = weigh(always(0), alike(10, 990, 1.0), horizon=1).notes
    assert note.startswith("a live test is needed, because too few of these sessions agree with the policy: about ")
    assert "(2% of the " in note
    assert "10 of 1,000 sessions agree with the policy up to step 1, an effective sample of 10.0 (30 needed)" in note
    assert "an interval for sessions of this length needs about 3,000 sessions logged like these" in note
    assert "30 in which it always does are enough" in note


@given(seed=st.integers(0, 2**32 - 1), values=st.sampled_from([(0.0, 1.0), (-2.0, 3.0), (0.0, 1.0, 10.0)]))
def test_no_mean_and_no_interval_leaves_the_possible_range(seed, values):
    """Propensities that are far too small, and a model that is far too sure, push the estimates out of the range."""
    rng = np.random.default_rng(seed)
    arms, rewards = rng.integers(2, size=(200, 3)), rng.choice(values, size=(200, 3))
    log = Sessions.from_arrays(arms, rewards, propensities=rng.uniform(0.05, 1, size=(200, 3)), n_arms=2)
    model = LatentBandit.categorical([1.0], rng.dirichlet(np.full(len(values), 0.1), (1, 2)), list(values))
    policy = lmab.Uniform(2)
    low, high = 3 * min(values), 3 * max(values)
    for draws in (None, 3):
        evidence = weigh(policy, log, horizon=3, model=model, rng=draws or rng, n_bootstrap=50)
        for value in evidence.values.values():
            assert value is not None
            assert low <= value.mean <= high
            if value.interval is not None:
                assert low <= value.interval[0] <= value.mean <= value.interval[1] <= high


def test_the_doubly_robust_mean_stays_within_the_range():
    """A model that expects 1 where 0 is paid, and weights of 10: without the bound the mean would be negative."""
    log = Sessions.from_arrays([[0]] * 50 + [[1]] * 50, [[0.0]] * 100, propensities=[[0.1]] * 100, n_arms=2)
    value = weigh(always(0), log, horizon=1, model=LatentBandit.bernoulli([1.0], [[1.0, 0.5]])).doubly_robust
    assert value is not None
    assert value.per_step[0] == pytest.approx(1 - 10 * 0.5)
    assert value.mean == 0.0
    assert value.interval == (0.0, pytest.approx(0.0, abs=1))


@pytest.mark.parametrize("rng", [None, 0], ids=["normal", "bootstrap"])
@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_forty_sessions_that_earned_the_same_prove_little(reward, rng):
    """The exact 95% interval for 40 of 40 begins at 0.912; a bootstrap of the log alone has width 0."""
    value = weigh(always(0), alike(40, 40, reward), horizon=1, rng=rng).self_normalised
    assert value is not None
    assert value.interval is not None
    low, high = value.interval
    assert (low == 0.0) if reward == 0 else (high == 1.0)
    assert 0.04 < high - low < 0.2


def test_weights_that_average_less_than_one_widen_the_interval():
    """A tenth of what the policy does was never logged: the log cannot know what it pays."""
    rewards = generator(1).integers(2, size=(1000, 1)).astype(float)
    arms = np.repeat([[0], [1]], [900, 100], axis=0)
    known = Sessions.from_arrays(np.zeros_like(arms), rewards, propensities=np.ones((1000, 1)), n_arms=2)
    lacking = Sessions.from_arrays(arms, rewards, propensities=np.ones((1000, 1)), n_arms=2)
    widths = []
    for log in (known, lacking):
        value = weigh(always(0), log, horizon=1, rng=0).self_normalised
        assert value is not None
        assert value.interval is not None
        widths.append(value.interval[1] - value.interval[0])
    assert widths[0] < 0.08
    assert widths[1] > 0.15


def test_the_session_that_the_log_lacks_has_the_largest_weight_seen():
    sums = np.zeros((4, 4, 1))
    sums[:, WEIGHT, 0], sums[:, REACHED, 0] = [0.0, 0.0, 1.0, 3.0], 1.0
    rewards = importance.Range(0.0, 2.0, 0.0, 2.0)
    tails = importance.Tails.of(sums, np.array([3.0]), 2.0, rewards)
    assert tails.weights.tolist() == [3.0]
    low, high = tails.sessions(np.array([0.5]))
    assert low[[REWARD, WEIGHT, REACHED, ROBUST], 0].tolist() == [0.0, 3.0, 1.0, 0.5 - 1.5]
    assert high[[REWARD, WEIGHT, REACHED, ROBUST], 0].tolist() == [6.0, 3.0, 1.0, 0.5 + 4.5]
    assert tails.bounds == (0.0, 2.0)
    sums[:, WEIGHT, 0] = 0.25  # no spread at all: three quarters of the weight are lacking
    assert importance.Tails.of(sums, np.array([0.25]), 4.0, rewards).weights.tolist() == [3.0]


def test_range_of_rewards():
    def found(rewards, model=None) -> tuple[float, ...]:
        log = Sessions.from_arrays(np.zeros((1, len(rewards)), int), [rewards], n_arms=2)
        shown = importance.Range.of(log, model)
        return shown.least, shown.most, shown.low, shown.high

    assert found([1.0, 1.0]) == (0.0, 1.0, 0.0, 1.0)
    assert found([5.0, 5.0]) == (5.0, 5.0, 5.0, 5.0)
    assert found([0.0, 3.0], TWO) == (0.0, 3.0, 0.0, 3.0)
    assert found([2.0], LatentBandit.categorical([1.0], [[[0.5, 0.5]] * 2], [-1.0, 4.0])) == (-1.0, 4.0, -1.0, 4.0)
    assert found([1.5], LatentBandit.gaussian([1.0], [[9.0, 9.0]])) == (1.5, 1.5, 1.5, 1.5)
    many = found(np.linspace(0.0, 100.0, 101).tolist())
    assert many == (0.0, 100.0, pytest.approx(1.0), pytest.approx(99.0))  # continuous: extremes grow with the log


def test_a_session_of_normal_rewards_is_bounded_by_what_was_seen(rng):
    bandit = LatentBandit.gaussian([0.5, 0.5], [[1.0, 0.0], [0.0, 2.0]])
    log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=400, horizon=2, rng=rng)
    value = weigh(always(0), log, horizon=2, rng=rng).self_normalised
    assert value is not None
    assert value.interval is not None
    assert 2 * log.rewards.min() < value.interval[0] < value.interval[1] < 2 * log.rewards.max()


def test_student_widens_where_few_sessions_tell():
    assert importance.student_reach(1e9, 0.025) == pytest.approx(1.959964, abs=1e-5)
    assert importance.student_reach(30, 0.025) == pytest.approx(2.04523 * math.sqrt(30 / 29), abs=1e-4)
    assert importance.student_reach(30, 0.1) == pytest.approx(1.31143 * math.sqrt(30 / 29), abs=1e-4)


@pytest.mark.slow
def test_intervals_hold_where_heavy_weights_are_rare():
    """Logged by another greedy policy with a tenth of chance: at least 93% of the intervals without a note hold."""
    from benchmarks.study_off_policy import Case, run

    case = Case("even", 6, 4, 2_000, "greedy + 10%")
    rows = [run(case, seed) for seed in range(1000, 1250)]
    plain = [row for row in rows if row["intervals"][0] is not None and not row["notes"]]
    assert len(plain) > 60
    for place in range(3):
        held = np.mean([row["intervals"][place][0] <= row["true"] <= row["intervals"][place][1] for row in plain])
        assert held >= 0.93 - 2 * np.sqrt(0.93 * 0.07 / len(plain)), off_policy.METHODS[place]
