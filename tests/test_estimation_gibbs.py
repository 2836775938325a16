"""The learned law of arms and the short Gibbs runs, against exact posteriors of tiny logs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.special import betaln, gammaln, ndtr
from seeds import generator

import lmab
from lmab.estimation import arm_law, gibbs, observe

SHORT = gibbs.Schedule(chains=4, burn=60, keep=20, thin=2)


def coded(arms, paid, n_arms):
    return observe(lmab.Episodes.from_arrays(arms, paid.astype(float), n_arms=n_arms), values=[0.0, 1.0])


def tiny(rng, n_sessions=4, n_arms=2, n_steps=3):
    shape = (n_sessions, n_steps)
    return coded(rng.integers(n_arms, size=shape), rng.integers(2, size=shape), n_arms)


def exact_posterior_mean(observations, n_contexts):
    """Mean over contexts of arm 0's mean, by enumerating all contexts of sessions, laws, centres and spreads."""
    grid, log = arm_law.beta_grid(), observations.log
    first, second = grid.strength * grid.centre, grid.strength * (1 - grid.centre)
    n_sessions, total, answer = len(log.episodes), [], []
    sessions = [(2 * episode.actions + episode.rewards).astype(int) for episode in log.episodes]
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


def means_of(draws):
    return np.stack([rewards.means for rewards in draws.rewards])


@pytest.mark.parametrize("seed", [0, 1])
def test_draws_have_the_exact_posterior_mean(seed):
    rng = generator(seed)
    log = tiny(rng)
    start = lmab.LatentBandit.bernoulli([0.5, 0.5], rng.uniform(0.2, 0.8, (2, 2)))
    long = gibbs.Schedule(chains=4, burn=100, keep=800, thin=2)
    draws = gibbs.run(log, start, rng=rng, schedule=long)
    assert means_of(draws)[:, :, 0].mean() == pytest.approx(exact_posterior_mean(log, 2), abs=0.015)


def test_a_split_comes_before_those_of_its_sides_and_leads_to_every_value():
    for n_values in range(1, 12):
        found = arm_law.splits(n_values)
        assert len(found) == n_values - 1
        reached = {(0, n_values)}
        for split in found:
            assert (split.first, split.last) in reached
            reached |= {(split.first, split.middle), (split.middle, split.last)}
        assert {(value, value + 1) for value in range(n_values)} <= reached


def test_the_prior_of_two_values_is_the_beta_itself(rng):
    arms = arm_law.CategoricalArms(5, np.array([0.0, 1.0]))
    arms.draw(rng.integers(0, 30, (5, 2, 3)).astype(float), rng)
    mean, inverse = arms.likely(rng)
    grid = arm_law.beta_grid()
    np.testing.assert_allclose(mean.sum(axis=1), 1)
    assert np.isin(mean[:, 1], grid.centre).all()
    np.testing.assert_allclose(inverse, [1 / grid.strength[arms._choice[0, a]] for a in range(5)])


def test_parents_of_splits_are_those_whose_side_they_divide():
    known = arm_law.splits(5)
    for split in known:
        parent = arm_law._parent(known, split)
        if parent is None:
            assert (split.first, split.last) == (0, 5)
        else:
            above = known[parent]
            assert (split.first, split.last) in ((above.first, above.middle), (above.middle, above.last))


def test_ordered_values_move_together(rng, monkeypatch):
    """Normal rewards cut into five values: good arms are taken for worse ones less than with unrelated splits."""
    means = rng.normal(0, 0.5, 20) + rng.normal(0, 0.8, (3, 20))
    edges = np.array([-np.inf, -1.2, -0.4, 0.4, 1.2, np.inf])
    contexts, arms = rng.integers(3, size=1500), rng.integers(20, size=(1500, 4))
    values = np.array([-2.0, -0.8, 0.0, 0.8, 2.0])
    seen = values[np.digitize(means[contexts[:, None], arms] + rng.standard_normal(arms.shape), edges[1:-1])]
    log = observe(lmab.Episodes.from_arrays(arms, seen, n_arms=20), values=values)
    below = ndtr(edges - means[:, :, None])
    truth = lmab.LatentBandit.categorical(np.full(3, 1 / 3), np.diff(below, axis=2), values)
    short, slopes = [], []
    for steepest in (2.0, 0.0):
        monkeypatch.setattr(arm_law, "_STEEPEST", steepest)
        draws = gibbs.run(log, truth, rng=generator(5), schedule=SHORT)
        found = np.mean([family.means for family in draws.rewards], axis=0)
        short.append((truth.means - found)[truth.means > 1].mean())
        slopes.append(np.polyfit(truth.means.ravel(), found.ravel(), 1)[0])
    assert short[0] < short[1]
    assert slopes[1] + 0.02 < slopes[0] < 1.05


def test_a_single_value_is_certain(rng):
    arms = arm_law.CategoricalArms(3, np.array([1.0]))
    assert (arms.draw(np.ones((3, 1, 2)), rng) == 1).all()
    mean, inverse = arms.likely(rng)
    assert (mean == 1).all()
    assert (inverse > 0).all()


def simulated(rng, means, n_sessions, n_steps, popularity):
    contexts = rng.integers(len(means), size=n_sessions)
    arms = rng.choice(means.shape[1], size=(n_sessions, n_steps), p=popularity)
    return arms, rng.random(arms.shape) < means[contexts[:, None], arms]


def test_an_arm_hardly_played_is_what_arms_are_like_here(rng):
    means = np.repeat(rng.beta(4, 6, (1, 40)), 2, axis=0)
    arms, paid = simulated(rng, means, 800, 5, np.r_[np.full(38, 1 / 38), 0, 0])
    arms[0, 0], paid[0, 0] = 38, True
    start = lmab.LatentBandit.bernoulli([0.5, 0.5], np.clip(means, 0.05, 0.95))
    draws = gibbs.run(coded(arms, paid, 40), start, rng=rng, schedule=SHORT)
    assert 0.25 < draws.prior.centre[38, 1] < 0.6  # one play that paid
    assert 0.25 < draws.prior.centre[39, 1] < 0.55  # never played
    assert means_of(draws)[:, :, 39].std() > 0.08  # and it may be anything that arms are


@pytest.mark.parametrize(("spread", "low", "high"), [(0.0, 30.0, 1e5), (2.0, 0.3, 3.0)])
def test_strength_tells_arms_that_differ_over_contexts_from_those_that_do_not(rng, spread, low, high):
    logits = rng.normal(0, 0.5, (1, 30)) + spread * rng.standard_normal((3, 30))
    means = 1 / (1 + np.exp(-logits))
    arms, paid = simulated(rng, means, 2000, 6, np.full(30, 1 / 30))
    log = coded(arms, paid, 30)
    draws = gibbs.run(log, lmab.LatentBandit.bernoulli(np.full(3, 1 / 3), means), rng=rng, schedule=SHORT)
    assert low < np.median(draws.prior.strength) < high


def test_a_run_is_the_same_for_the_same_seed(rng):
    log, start = tiny(rng, 30), lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.4, 0.6], [0.5, 0.5]])
    one, other = (gibbs.run(log, start, rng=generator(3), schedule=SHORT) for _ in "ab")
    np.testing.assert_array_equal(one.weights, other.weights)
    np.testing.assert_array_equal(means_of(one), means_of(other))
    np.testing.assert_array_equal(one.prior.pseudo_counts, other.prior.pseudo_counts)


def test_merged_sessions_have_the_same_law(rng):
    arms, paid = rng.integers(2, size=(3, 3)), rng.integers(2, size=(3, 3))
    often = np.repeat(np.arange(3), [4000, 2500, 6000])
    merged = coded(arms[often], paid[often], 2)
    assert merged.n_distinct == 3
    draws = gibbs.run(merged, lmab.LatentBandit.bernoulli([1.0], [[0.5, 0.5]]), rng=rng, schedule=SHORT)
    average = [paid[often][arms[often] == arm].mean() for arm in range(2)]
    np.testing.assert_allclose(means_of(draws).mean(axis=0)[0], average, atol=0.01)


def test_normal_rewards_find_means_scale_and_spread(rng):
    means = rng.normal(0, 1, (2, 12)) + rng.normal(3, 1, 12)
    bandit = lmab.LatentBandit.gaussian([0.5, 0.5], means, scale=0.5)
    log = lmab.simulate(bandit, lmab.Uniform(12), n_episodes=1500, horizon=5, rng=rng)
    draws = gibbs.run(observe(log, rewards="gaussian"), bandit, rng=rng, schedule=SHORT)
    np.testing.assert_allclose(means_of(draws).mean(axis=0), means, atol=0.15)
    assert np.mean([rewards.scale for rewards in draws.rewards]) == pytest.approx(0.5, abs=0.02)
    assert 0.1 < np.median(draws.prior.strength) < 1.0  # scale^2 / spread^2 = 0.25
    assert np.corrcoef(draws.prior.centre, means.mean(axis=0))[0, 1] > 0.95


def test_one_value_alone_has_draws_and_a_prior(rng):
    log = observe(lmab.Episodes.from_arrays([[0, 1], [1, 2]], [[1.0, 1.0], [1.0, 1.0]], n_arms=3))
    start = lmab.LatentBandit.categorical([0.5, 0.5], np.ones((2, 3, 1)), [1.0])
    draws = gibbs.run(log, start, rng=rng, schedule=SHORT)
    assert (means_of(draws) == 1).all()
    assert np.isfinite(draws.prior.pseudo_counts).all()


def test_draws_are_about_as_many_as_asked_for(rng):
    assert gibbs.Schedule.of(tiny(rng), 100).keep * gibbs.Schedule.of(tiny(rng), 100).chains == 100
