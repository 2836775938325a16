"""Logs that react to rewards are told from those that do not, and certificates say so."""

from __future__ import annotations

import numpy as np
import pytest
from seeds import generator

import lmab
from lmab.estimation import assumptions as module
from lmab.estimation.assumptions import reaction, reacts

TRUTH = lmab.LatentBandit.bernoulli([0.6, 0.4], [[0.9, 0.5, 0.2], [0.1, 0.4, 0.8]])


def logged(policy, n_sessions=800, seed=0):
    return lmab.simulate(TRUTH, policy, n_sessions=n_sessions, horizon=5, rng=generator(seed))


def by_pairs(log):
    """The same from all pairs of steps, one by one."""
    steps = [(one.arms[t], one.arms[t + 1], one.rewards[t]) for one in log for t in range(len(one.arms) - 1)]
    means = {arm: np.mean([reward for now, _, reward in steps if now == arm]) for arm, _, _ in steps}
    total = variance = 0.0
    for i, (arm, after, reward) in enumerate(steps):
        for j, (other, next_one, paid) in enumerate(steps):
            if i != j and (arm, after) == (other, next_one):
                product = (reward - means[arm]) * (paid - means[other])
                total += product
                variance += 2 * product**2
    return total / np.sqrt(variance)


def test_it_is_the_sum_over_pairs_of_steps_over_its_deviation():
    for policy in (lmab.Uniform(3), lmab.Greedy(TRUTH)):
        log = logged(policy, 30)
        assert reaction(log) == pytest.approx(by_pairs(log))


def test_logs_without_reaction_are_about_0_and_seldom_above(rng):
    found = [reaction(logged(lmab.Uniform(3), seed=seed)) for seed in range(60)]
    assert abs(np.mean(found)) < 1.0
    assert 0.5 < np.std(found) < 1.5
    assert not reacts(max(found))


def test_arms_of_unequal_shares_do_not_react(rng):
    arms = rng.choice(3, (800, 5), p=[0.7, 0.2, 0.1])
    rewards = (rng.random(arms.shape) < TRUTH.means[rng.integers(2, size=800)[:, None], arms]).astype(float)
    assert not reacts(reaction(lmab.Sessions.from_arrays(arms, rewards, n_arms=3)))


def test_greedy_and_thompson_react_with_and_without_repeats():
    for policy in (lmab.Greedy(TRUTH), lmab.Thompson(TRUTH)):
        assert reacts(reaction(logged(policy)))
    plan = lmab.plan(TRUTH, horizon=2, repeats=False, method=lmab.QMDP())
    log = lmab.simulate(TRUTH, plan.policy, n_sessions=800, horizon=2, rng=generator(0))
    assert reacts(reaction(log))


def test_one_step_or_one_reward_says_nothing():
    assert reaction(lmab.Sessions.from_arrays([[0], [1]], [[1.0], [0.0]])) == 0.0
    assert reaction(lmab.Sessions.from_arrays([[0, 1], [1, 0]], [[1.0, 1.0], [1.0, 1.0]])) == 0.0


def test_of_a_large_log_some_sessions_are_looked_at(monkeypatch):
    log = logged(lmab.Greedy(TRUTH), 100)
    monkeypatch.setattr(module, "_SESSIONS", 25)
    assert reaction(log) == reaction(log[::4])


def test_a_packed_log_reacts_as_the_same_log_in_memory(tmp_path):
    log = logged(lmab.Greedy(TRUTH), 200)
    lmab.pack(log, tmp_path / "packed")
    assert reaction(lmab.Packed(tmp_path / "packed")) == reaction(log)


def test_a_certificate_says_that_its_log_reacts_and_reaches_further_down():
    certificates = []
    for policy in (lmab.policies.Exploring(lmab.Greedy(TRUTH), 0.3), lmab.Uniform(3)):
        log, rng = logged(policy, 400), generator(3)
        estimate = lmab.fit(log, n_types=2, method=lmab.EM(prior="learned", restarts=4), rng=rng)
        certificates.append(lmab.certify(estimate, lmab.plan(estimate.bandit, horizon=5), log, rng=rng))
    reacting, not_reacting = certificates
    assert reacting.reacts
    assert not not_reacting.reacts
    assert "depends on the reward before it" in reacting.sentence
    assert "depends on the reward before it" not in not_reacting.sentence
    ends = [np.quantile(part[:, 1], 0.0025) for part in np.split(reacting.draws, len(reacting.draws) // 100)]
    assert reacting.value[0] == pytest.approx(min(ends))


@pytest.mark.parametrize(("deviations", "expected"), [(5.0, False), (5.01, True)])
def test_five_standard_deviations_are_no_chance(deviations, expected):
    assert reacts(deviations) is expected
