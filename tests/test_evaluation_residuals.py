"""Residual tests: none fires on logs of the model, each on its effect; corrections against the truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from seeds import generator

import lmab
from lmab.evaluation.messages import BLOCKS, CALENDAR, PREVIOUS, REPEATS, SILENT, STEP
from lmab.evaluation.replanning import Crowd
from lmab.evaluation.residuals import FIRES, Correction, Residuals, Steps, _tilted, held_out_tests

TRUTH = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.8, 0.5, 0.3, 0.6], [0.2, 0.6, 0.5, 0.5]])
METHOD = lmab.EM(prior="learned", restarts=4, tolerance=1e-6, sweeps=16, threads=1)


def played(rng, effect=lambda mean, plays, step, quarter: mean, n_sessions=2000, horizon=5) -> lmab.Sessions:
    """Simulate uniformly random arms whose mean rewards an effect changes."""
    types, arms = rng.integers(2, size=n_sessions), rng.integers(4, size=(n_sessions, horizon))
    quarter, rewards = np.arange(n_sessions) * 4 // n_sessions, np.zeros(arms.shape)
    for step in range(horizon):
        plays = (arms[:, :step] == arms[:, [step]]).sum(axis=1)
        mean = effect(TRUTH.means[types, arms[:, step]], plays, step, quarter)
        rewards[:, step] = rng.random(n_sessions) < mean
    return lmab.Sessions.from_arrays(arms, rewards, n_arms=4)


def residuals_of(log) -> tuple[lmab.Estimate, Residuals]:
    estimate = lmab.fit(log, n_types=2, method=METHOD, rng=generator(1), check=False)
    found = Residuals.of(estimate, log, generator(2))
    assert found is not None
    return estimate, found


def fired(found: Residuals) -> set[str]:
    return {name for name in BLOCKS if found.p_value(name) * len(BLOCKS) < FIRES}


def test_no_test_fires_on_a_log_of_the_model():
    assert fired(residuals_of(played(generator(0)))[1]) == set()


def test_each_effect_fires_its_test():
    tiring = played(generator(0), lambda mean, plays, step, quarter: mean * 0.8**step)
    estimate, found = residuals_of(tiring)
    assert estimate.bandit.step_effects is not None
    assert STEP not in fired(found)  # the model has this effect
    without = replace(estimate, bandit=replace(estimate.bandit, step_effects=None))
    assert STEP in fired(Residuals.of(without, tiring, generator(2)))
    assert CALENDAR in fired(
        residuals_of(played(generator(0), lambda mean, p, s, quarter: mean * (1 - 0.1 * quarter)))[1]
    )
    log = played(generator(0), n_sessions=4000)
    some = np.add.reduceat(log.rewards, log.offsets[:-1]) > 0
    assert SILENT in fired(residuals_of(log[np.flatnonzero(some)])[1])


def test_a_correction_finds_what_an_arm_pays_when_it_is_played_again():
    def satiated(mean, plays, step, quarter):
        return mean * 0.6**plays

    log = played(generator(0), satiated)
    estimate, found = residuals_of(log)
    assert REPEATS in fired(found)
    correction = Correction.learn(found)
    assert -0.8 < correction.change(found, REPEATS) < -0.3
    policy = lmab.policies.Ranking([0, 3, 1, 2], horizon=3)  # arm 0 at every step
    crowd = Crowd.of(2, 3, generator(3), size=4000).play(policy, estimate.bandit, repeats=True)
    model, corrected, *_ = correction.values(crowd, estimate.bandit, estimate.bandit.weights[None])
    truth = 0.5 * sum(0.6**step for step in range(3))
    assert model > 1.2 * truth  # the model claims that all plays pay alike
    assert corrected == pytest.approx(truth, rel=0.12)
    tests = held_out_tests({name: found.p_value(name) for name in BLOCKS}, {REPEATS: -0.4})
    assert tests.repeats.fires
    assert "pays -40%" in tests.repeats.sentence
    assert "--no-repeats" in tests.repeats.sentence


def test_an_assessment_is_corrected_and_covers_the_truth():
    log = played(generator(4), lambda mean, plays, step, quarter: mean * 0.6**plays)
    estimate = lmab.fit(log, n_types=2, method=METHOD, rng=generator(1), check=False)
    plan = lmab.plan(estimate.bandit, horizon=5)
    found = lmab.assess(estimate, plan, log, rng=generator(5))
    assert found.corrected
    assert (found.optimum, found.regret) == (None, None)
    assert found.verdict.word != "pays"
    rng, types, state, counts = generator(6), generator(7).integers(2, size=20_000), None, np.zeros((20_000, 4))
    state, total = plan.policy.start(20_000), 0.0
    for _ in range(5):
        arms = np.asarray(plan.policy.act(state))
        mean = TRUTH.means[types, arms] * 0.6 ** counts[np.arange(20_000), arms]
        total += float(mean.mean())
        counts[np.arange(20_000), arms] += 1
        state = plan.policy.observe(state, arms, (rng.random(20_000) < mean).astype(float))
    assert found.value[0] - 0.02 <= total <= found.value[1] + 0.02
    assert plan.lower > found.value[1]  # the model alone claims more


def test_small_logs_and_equal_rewards_are_not_tested():
    log = played(generator(0), n_sessions=99)
    estimate = lmab.fit(log, n_types=2, method=METHOD, rng=generator(1), check=False)
    assert Residuals.of(estimate, log, generator(2)) is None


def test_steps_hold_what_happened_before_them():
    arms, shares = np.array([[2, 2, 0, 2], [1, 0, -1, -1]]), np.array([[0.0, 0.0, 1.0, 0.0], [1.0, 1.0, 0.0, 0.0]])
    found = Steps.of(arms, shares, arms >= 0, np.array([0, 3]))
    assert found.step.tolist() == [0, 1, 2, 3, 0, 1]
    assert found.before.tolist() == [-1, 2, 2, 0, -1, 1]
    assert found.plays.tolist() == [0, 1, 0, 2, 0, 0]
    assert found.reward.tolist() == [0.0, 0.0, 0.0, 1.0, 0.0, 1.0]
    assert found.none.tolist() == [False, True, True, False, False, False]
    assert found.every.tolist() == [False, False, False, False, False, True]
    assert found.quarter.tolist() == [0, 0, 0, 0, 3, 3]
    again = found.columns(REPEATS, 3, 2).toarray()
    assert again.tolist() == [[0, 0, 0], [1, 1, 1], [0, 0, 0], [1, 2, 0], [0, 0, 0], [0, 0, 0]]
    assert found.columns(PREVIOUS, 3, 2).toarray()[:, 0].tolist() == [0, 1, 1, 1, 0, 1]


def test_tilted_distributions_have_the_means_asked_for(rng):
    values, chances = np.array([0.0, 1.0, 4.0]), rng.dirichlet(np.ones(3), (5, 2))
    means = rng.uniform(0.5, 3.5, (5, 2))
    found = _tilted(chances, values, means)
    np.testing.assert_allclose(found @ values, means, rtol=1e-6)
    np.testing.assert_allclose(found.sum(axis=-1), 1)
    np.testing.assert_allclose(_tilted(chances, values, chances @ values), chances, atol=1e-6)
