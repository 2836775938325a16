"""The learned law of arms and the short Gibbs runs, against exact posteriors of tiny logs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.special import betaln, gammaln

from lmab.estimation import arm_law, gibbs


def tiny(rng, n_sessions=4, n_arms=2, n_steps=3):
    codes = rng.integers(2 * n_arms, size=n_sessions * n_steps).astype(np.uint8)
    return gibbs.CodedSteps(codes, np.arange(n_sessions + 1) * n_steps, np.empty(0), n_arms, 2)


def exact_posterior_mean(log, n_contexts):
    """Mean over contexts of arm 0's mean, by enumerating all contexts of sessions, laws, centres and spreads."""
    grid = arm_law.beta_grid()
    first, second = grid.strength * grid.centre, grid.strength * (1 - grid.centre)
    n_sessions, total, answer = len(log.offsets) - 1, [], []
    sessions = [log.codes[log.offsets[i] : log.offsets[i + 1]].astype(int) for i in range(n_sessions)]
    for contexts in itertools.product(range(n_contexts), repeat=n_sessions):
        counts = np.zeros((log.n_arms, 2, n_contexts))
        for context, codes in zip(contexts, sessions, strict=True):
            np.add.at(counts[:, :, context], (codes // 2, codes % 2), 1.0)
        sizes = np.bincount(contexts, minlength=n_contexts)
        prior = gammaln(sizes + 1.0).sum()  # Dirichlet(1) weights, summed out
        missed, paid = counts[:, 0, :, None], counts[:, 1, :, None]
        evidence = (betaln(first + paid, second + missed) - betaln(first, second)).sum(axis=1)  # (A, J)
        mean = ((first + paid[0]) / (first + second + paid[0] + missed[0])).mean(axis=0)  # of arm 0 over contexts
        raised = np.exp(evidence).reshape(log.n_arms, len(grid.centre_laws[0]), -1)
        by_law = np.einsum("agk,bg,lk->abl", raised, grid.centre_laws, grid.spread_laws)
        weighted = np.einsum(
            "gk,bg,lk->bl", raised[0] * mean.reshape(raised[0].shape), grid.centre_laws, grid.spread_laws
        )
        law = np.exp(grid.log_prior)
        total.append(np.exp(prior) * (by_law.prod(axis=0) * law).sum())
        answer.append(np.exp(prior) * (weighted * by_law[1:].prod(axis=0) * law).sum())
    return sum(answer) / sum(total)


@pytest.mark.parametrize("seed", [0, 1])
def test_draws_have_the_exact_posterior_mean(seed):
    rng = np.random.default_rng(seed)
    log = tiny(rng)
    start = np.full((2, 2, 2), 0.5)
    start[:, :, 1] = rng.uniform(0.2, 0.8, (2, 2))
    start[:, :, 0] = 1 - start[:, :, 1]
    long = gibbs.Schedule(chains=4, burn=100, keep=800, thin=2)
    draws = gibbs.run(log, np.array([0.5, 0.5]), start, rng=rng, schedule=long)
    assert draws.rewards[:, :, 0, 1].mean() == pytest.approx(exact_posterior_mean(log, 2), abs=0.015)


def test_a_split_comes_before_those_of_its_sides_and_leads_to_every_value():
    for n_values in range(1, 12):
        found = arm_law.splits(n_values)
        assert len(found) == n_values - 1
        reached = {(0, n_values)}
        for split in found:
            assert (split.first, split.last) in reached
            reached |= {(split.first, split.middle), (split.middle, split.last)}
        assert {(value, value + 1) for value in range(n_values)} <= reached


def test_the_dirichlet_of_two_values_is_the_beta_itself(rng):
    centre, strength = rng.uniform(0.1, 0.9, (1, 5)), rng.uniform(0.5, 50, (1, 5))
    mean, found = arm_law.dirichlet(centre, strength, 2)
    np.testing.assert_allclose(mean, np.stack([1 - centre[0], centre[0]], axis=1))
    np.testing.assert_allclose(found, strength[0])


def test_the_dirichlet_of_consistent_splits_is_found_again(rng):
    alpha = rng.uniform(0.5, 5, (3, 5))
    centre, strength = [], []
    for split in arm_law.splits(5):
        total = alpha[:, split.first : split.last].sum(axis=1)
        centre.append(alpha[:, split.middle : split.last].sum(axis=1) / total)
        strength.append(total)
    mean, found = arm_law.dirichlet(np.array(centre), np.array(strength), 5)
    np.testing.assert_allclose(mean * found[:, None], alpha, rtol=1e-9)


def simulated(rng, means, n_sessions, n_steps, popularity):
    contexts = rng.integers(len(means), size=n_sessions)
    arms = rng.choice(means.shape[1], size=(n_sessions, n_steps), p=popularity)
    paid = rng.random(arms.shape) < means[contexts[:, None], arms]
    codes = (2 * arms + paid).astype(np.uint16).ravel()
    return gibbs.CodedSteps(codes, np.arange(n_sessions + 1) * n_steps, np.empty(0), means.shape[1], 2)


def bernoulli(means):
    return np.stack([1 - means, means], axis=2)


def test_an_arm_hardly_played_is_what_arms_are_like_here(rng):
    means = np.repeat(rng.beta(4, 6, (1, 40)), 2, axis=0)
    log = simulated(rng, means, 800, 5, np.r_[np.full(38, 1 / 38), 0, 0])
    once = gibbs.CodedSteps(np.r_[log.codes, 2 * 38 + 1].astype(np.uint16), np.r_[log.offsets, 4001], *_rest(log))
    draws = gibbs.run(once, np.array([0.5, 0.5]), bernoulli(np.clip(means, 0.05, 0.95)), rng=rng)
    assert 0.25 < draws.centre[38, 1] < 0.6  # one play that paid
    assert 0.25 < draws.centre[39, 1] < 0.55  # never played
    assert draws.rewards[:, :, 39, 1].std() > 0.08  # and it may be anything that arms are


def _rest(log):
    return log.counts, log.n_arms, log.n_values


@pytest.mark.parametrize(("spread", "low", "high"), [(0.0, 30.0, 1e5), (2.0, 0.3, 3.0)])
def test_strength_tells_arms_that_differ_over_contexts_from_those_that_do_not(rng, spread, low, high):
    logits = rng.normal(0, 0.5, (1, 30)) + spread * rng.standard_normal((3, 30))
    means = 1 / (1 + np.exp(-logits))
    log = simulated(rng, means, 2000, 6, np.full(30, 1 / 30))
    draws = gibbs.run(log, np.full(3, 1 / 3), bernoulli(means), rng=rng)
    assert low < np.median(draws.strength) < high


def test_a_run_is_the_same_for_the_same_seed(rng):
    log = tiny(rng, 30)
    runs = [gibbs.run(log, np.array([0.5, 0.5]), np.full((2, 2, 2), 0.5), rng=np.random.default_rng(3)) for _ in "ab"]
    for name in ("weights", "rewards", "centre", "strength"):
        np.testing.assert_array_equal(getattr(runs[0], name), getattr(runs[1], name))


def test_merged_sessions_have_the_same_law(rng):
    log = tiny(rng, 3)
    counts = np.array([40.0, 25.0, 60.0])
    pieces = [np.tile(log.codes[3 * i : 3 * i + 3], int(n)) for i, n in enumerate(counts)]
    apart = gibbs.CodedSteps(np.concatenate(pieces), np.arange(126) * 3, np.empty(0), 2, 2)
    merged = gibbs.CodedSteps(log.codes, log.offsets, counts, 2, 2)
    schedule = gibbs.Schedule(chains=8, burn=50, keep=200, thin=2)
    start = (np.ones(1), np.full((1, 2, 2), 0.5))
    one, other = (gibbs.run(each, *start, rng=np.random.default_rng(3), schedule=schedule) for each in (apart, merged))
    np.testing.assert_allclose(one.rewards.mean(axis=0), other.rewards.mean(axis=0), atol=0.01)


def test_normal_rewards_find_means_scale_and_spread(rng):
    means = rng.normal(0, 1, (2, 12)) + rng.normal(3, 1, 12)
    contexts, arms = rng.integers(2, size=1500), rng.integers(12, size=(1500, 5))
    rewards = means[contexts[:, None], arms] + 0.5 * rng.standard_normal(arms.shape)
    log = gibbs.NormalSteps(arms.ravel().astype(np.uint8), rewards.ravel(), np.arange(1501) * 5, 12, None)
    draws = gibbs.run(log, np.array([0.5, 0.5]), means[:, :, None], rng=rng)
    np.testing.assert_allclose(draws.rewards[..., 0].mean(axis=0), means, atol=0.15)
    assert draws.scales.mean() == pytest.approx(0.5, abs=0.02)
    assert 0.1 < np.median(draws.strength) < 1.0  # scale^2 / spread^2 = 0.25
    assert np.corrcoef(draws.centre[:, 0], means.mean(axis=0))[0, 1] > 0.95
