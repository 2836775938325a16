"""assess: its intervals from hand-made draws, and the shares that it tells of a log with thin and unplayed arms."""

from __future__ import annotations

import importlib
from dataclasses import replace

import numpy as np
import pytest
from seeds import generator

import lmab
from lmab.estimation import arm_law
from lmab.estimation.families import observe
from lmab.evaluation.decision_tree import unroll
from lmab.evaluation.replanning import FLOOR, LEARNED_FLOOR, Replanned, laplace

assessing = importlib.import_module("lmab.evaluation.assess")


def drawn(rng, unplayed: float) -> Replanned:
    value = rng.normal(2.0, 0.2, 400)
    optimum = value + rng.exponential(0.3, 400)
    return Replanned(
        optimum, value, rng.normal(1.9, 0.1, 400), value - rng.normal(0.3, 0.2, 400),
        value - rng.normal(0.5, 0.1, 400), np.full(400, unplayed),
    )  # fmt: skip


class Bounds:
    upper = 2.6


@pytest.mark.parametrize("unplayed", [0.0, 0.4])
def test_intervals_are_unions_of_quantiles_over_the_ways_to_draw(unplayed):
    rng = generator(0)
    sets, miss, own = [drawn(rng, 0.0), drawn(rng, unplayed)], 0.1, 2.05
    value, optimum, regret, gain, undone = assessing._intervals(Bounds(), own, sets, miss)

    def union(samples, most=0.98):
        return min(np.quantile(one, 0.05) for one in samples), max(np.quantile(one, most) for one in samples)

    best = max([own, *(one.transferred.max() for one in sets)])
    assert undone == pytest.approx(2.6 - best)
    assert value == pytest.approx(union([one.value for one in sets], 0.95))
    guessed = [sets[1].value] if unplayed else []  # arms never played may be worth nothing
    low, high = union([*(one.optimum for one in sets), *guessed])
    assert optimum == pytest.approx((low, high + undone))
    assert gain == pytest.approx(union([one.value - fixed for one in sets for fixed in (one.fixed, one.fixed_played)]))
    losses = [loss for one in sets for loss in (one.optimum - one.value, best - one.transferred)]
    assert regret[0] == 0
    assert regret[1] == pytest.approx(undone + max(np.quantile(loss, 0.95) for loss in losses))
    assert assessing._intervals(Bounds(), 3.0, sets, miss)[-1] == 0.0


def test_value_and_optimum_reach_further_down_where_the_log_reacts_and_nothing_else_moves():
    sets = [drawn(generator(0), 0.0), drawn(generator(1), 0.0)]
    value, optimum, regret, gain, _ = assessing._intervals(Bounds(), 2.0, sets, 0.1)
    low_value, low_optimum, *others, _ = assessing._intervals(Bounds(), 2.0, sets, 0.1, 0.1)
    assert low_value == pytest.approx((min(np.quantile(one.value, 0.005) for one in sets), value[1]))
    assert low_optimum == pytest.approx((min(np.quantile(one.optimum, 0.005) for one in sets), optimum[1]))
    assert others == [regret, gain]


def test_upper_ends_reach_further_from_the_median_where_types_are_hardly_told_apart():
    sets = [drawn(generator(0), 0.0), drawn(generator(1), 0.0)]
    plain = assessing._intervals(Bounds(), 3.0, sets, 0.1)
    wider = assessing._intervals(Bounds(), 3.0, sets, 0.1, 1.0, 0.0, 1.5)
    gains = [one.value - fixed for one in sets for fixed in (one.fixed, one.fixed_played)]
    samples = [one.value for one in sets], [one.optimum for one in sets], gains
    for narrow, wide, each in zip((plain[0], plain[1], plain[3]), (wider[0], wider[1], wider[3]), samples, strict=True):
        middle = max(np.median(one) for one in each)
        assert wide == pytest.approx((narrow[0], middle + 1.5 * (narrow[1] - middle)))
    assert wider[2] == pytest.approx((0.0, 1.5 * plain[2][1]))


@pytest.mark.parametrize(("n_sessions", "hardly"), [(60, True), (2000, False)])
def test_what_a_log_tells_about_types_decides_how_far_up_an_assessment_reaches(n_sessions, hardly, monkeypatch):
    truth = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.2, 0.5], [0.2, 0.9, 0.5]])
    log = lmab.simulate(truth, lmab.Uniform(3), n_sessions=n_sessions, horizon=3, rng=0)
    method = lmab.EM(restarts=2, tolerance=1e-4, prior="learned")
    estimate = lmab.fit(log, n_types=2, method=method, rng=0, check=False)
    posterior = estimate.posterior()
    expected = (posterior * np.log(posterior / estimate.bandit.weights)).sum() / 7  # parameters
    assert assessing._told(estimate, 7) == pytest.approx(expected)
    monkeypatch.setattr(assessing, "_LOOKED_AT", 10)
    assert assessing._told(estimate, 7) == pytest.approx(expected, rel=0.5)
    plan = lmab.plan(estimate, horizon=3)
    found = lmab.assess(estimate, plan, log, n_draws=20, rng=0)
    assert found.hardly_told is hardly
    assert ("weak identification" in found.table) is hardly
    monkeypatch.setattr(assessing, "_FURTHER", 1.0)
    plain = lmab.assess(estimate, plan, log, n_draws=20, rng=0)
    assert (found.value[1] > plain.value[1]) is hardly
    assert found.value[0] == plain.value[0]


def test_the_value_of_a_traits_model_is_raised_and_keeps_its_width():
    assert assessing._raised((2.0, 2.8)) == pytest.approx((2.14, 2.94))


def test_one_type_has_nothing_to_be_told():
    log = lmab.simulate(
        lmab.LatentBandit.bernoulli([1.0], [[0.2, 0.4]]), lmab.Uniform(2), n_sessions=40, horizon=2, rng=0
    )
    estimate = lmab.fit(log, n_types=1, method=lmab.EM(restarts=1, prior="learned"), rng=0)
    assert assessing._told(estimate, 2) is None
    assert not lmab.assess(estimate, lmab.plan(estimate, horizon=2), log, n_draws=20, rng=0).hardly_told


def test_models_that_may_miss_more_claim_less():
    sure, wide = drawn(generator(0), 0.0), replace(drawn(generator(1), 0.0), misses=2.0)
    value, _, _, gain, _ = assessing._intervals(Bounds(), 2.0, [sure, wide], 0.1)
    lows = np.quantile(sure.value, 0.05), np.quantile(wide.value, 0.1)
    highs = np.quantile(sure.value, 0.95), np.quantile(wide.value, 0.9)
    assert value == pytest.approx((min(lows), max(highs)))
    most = [np.quantile(one.value - fixed, 1 - 0.02 * one.misses)
            for one in (sure, wide) for fixed in (one.fixed, one.fixed_played)]  # fmt: skip
    assert gain[1] == pytest.approx(max(most))


@pytest.mark.parametrize(("values", "misses"), [([0.0, 1.0], 1.0), ([0.0, 0.5, 1.0], 2.0)])
def test_models_around_an_estimate_may_miss_more_where_there_are_more_than_two_values(values, misses, monkeypatch):
    rng, seen = generator(0), []
    chances = rng.dirichlet(np.ones(len(values)), (2, 4))
    truth = lmab.LatentBandit.categorical([0.5, 0.5], chances, values)
    log = lmab.simulate(truth, lmab.Uniform(4), n_sessions=300, horizon=3, rng=rng)
    estimate = lmab.fit(
        log, n_types=2, method=lmab.EM(prior="learned", restarts=4), values=values, rng=rng, check=False
    )
    whole = assessing._intervals

    def watched(*given):
        seen.append(given)
        return whole(*given)

    monkeypatch.setattr(assessing, "_intervals", watched)
    lmab.assess(estimate, lmab.plan(estimate.bandit, horizon=3), log, n_draws=20, rng=rng)
    assert [one.misses for one in seen[0][2][:2]] == [1.0, misses]


@pytest.fixture(scope="module")
def lopsided():
    """A log of two types in which arm 2, the best, is played 30 times, and arm 3 never."""
    rng = generator(3)
    arms = rng.integers(2, size=(600, 4))
    arms[:30, 0] = 2
    means = np.array([[0.6, 0.3, 0.95, 0.5], [0.3, 0.6, 0.95, 0.5]])
    types = rng.integers(2, size=600)
    rewards = (rng.random(arms.shape) < means[types[:, None], arms]).astype(float)
    log = lmab.Sessions.from_arrays(arms, rewards, n_arms=4)
    fitted = {
        prior: lmab.fit(log, n_types=2, method=lmab.EM(prior=prior, restarts=4), rng=rng, check=False)
        for prior in ("learned", 2.0)
    }
    return log, fitted


@pytest.mark.parametrize("prior", ["learned", 2.0])
def test_thin_arms_are_counted_per_type_and_directions_by_the_floor_of_the_prior(lopsided, prior):
    log, fitted = lopsided
    estimate = fitted[prior]
    plan = lmab.plan(estimate.bandit, horizon=3)
    found = lmab.assess(estimate, plan, log, n_draws=20, rng=generator(0))
    steps = unroll(plan.policy, estimate.bandit, 3).plays(4)
    assert steps.sum() == pytest.approx(3)
    assert found.thin_share == pytest.approx(steps[[2, 3]].sum() / 3)  # 30 plays are fewer than 25 in each of 2 types
    assert found.thin_share > 0.5
    posterior = laplace(estimate.information(), LEARNED_FLOOR if prior == "learned" else FLOOR)
    assert found.n_floored == posterior.n_floored
    assert found.n_parameters == 1 + 8
    assert (found.n_unplayed, found.n_sessions, found.n_steps) == (1, 600, 2400)
    assert (found.confidence, found.bounds) == (0.9, (plan.lower, plan.upper))
    assert found.is_about(plan)
    assert not found.is_about(replace(plan, lower=plan.lower - 0.1))
    assert not found.is_about(lmab.plan(estimate.bandit, horizon=2))


@pytest.fixture
def log(rng):
    arms = rng.integers(3, size=(50, 2))
    return observe(lmab.Sessions.from_arrays(arms, rng.integers(2, size=arms.shape).astype(float), n_arms=3))


def test_mean_and_standard_error_over_two_of_five_folds(log, rng, monkeypatch):
    seen = []

    def gains(observations, rows, fold, n_types, rng):
        seen.append((sorted(rows.tolist()), fold.tolist(), n_types))
        return np.arange(len(fold), dtype=float) + 100 * len(seen)

    monkeypatch.setattr(assessing, "_one_more_gains", gains)
    mean, error = assessing.one_more(log, 2, rng)
    every = np.concatenate([100 + np.arange(10.0), 200 + np.arange(10.0)])
    assert (mean, error) == (pytest.approx(every.mean()), pytest.approx(every.std() / np.sqrt(20)))
    assert [len(fold) for _, fold, _ in seen] == [10, 10]
    assert not set(seen[0][1]) & set(seen[1][1])
    assert all(rows == list(range(50)) and n == 2 for rows, _, n in seen)
    seen.clear()
    monkeypatch.setattr(assessing, "_STEPS", 99)  # of a long log one fold is enough
    assessing.one_more(log, 2, rng)
    assert len(seen) == 1
    monkeypatch.setattr(assessing, "_LOOKED_AT", 20)
    seen.clear()
    assessing.one_more(log, 2, rng)
    assert (len(seen[0][0]), len(seen[0][1])) == (20, 4)


def test_too_few_sessions_say_nothing(log, rng, monkeypatch):
    monkeypatch.setattr(assessing, "_one_more_gains", lambda *_: np.ones(3))
    assert assessing.one_more(log.subset(np.arange(5)), 2, rng) == (0.0, 0.0)
    assert assessing.one_more(log.subset(np.arange(6)), 2, rng)[0] == 1.0


def test_a_gain_is_that_of_sessions_which_no_fit_has_seen(rng):
    truth = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.95, 0.9, 0.9], [0.05, 0.1, 0.1]])
    log = observe(lmab.simulate(truth, lmab.Uniform(3), n_sessions=300, horizon=5, rng=rng))
    fold, rows = np.arange(0, 300, 5), np.arange(300)
    gains = assessing._one_more_gains(log, rows, fold, 1, rng)
    assert gains.shape == (60,)
    assert gains.mean() > 0.5  # two types predict far better than one


def test_if_the_mixture_of_types_changed_nothing_is_claimed():
    means = np.array([[0.9, 0.8, 0.1, 0.2], [0.1, 0.3, 0.6, 0.5]])
    halves = [lmab.LatentBandit.bernoulli(weights, means) for weights in ([0.8, 0.2], [0.2, 0.8])]
    first, second = (lmab.simulate(half, lmab.Uniform(4), n_sessions=300, horizon=4, rng=3) for half in halves)
    log = first + second
    estimate = lmab.fit(log, n_types=2, method=lmab.EM(prior="learned", restarts=2, sweeps=8), rng=1, check=False)
    found = lmab.assess(estimate, lmab.plan(estimate.bandit, horizon=4), log, n_draws=20, rng=1)
    assert found.assumptions["drift"].fires
    assert (found.value, found.optimum, found.regret, found.gain) == (None, None, None, None)
    assert "No confidence interval for this policy: the mixture of types changed" in found.sentence


def test_claims_about_one_type_believe_less_that_arms_are_alike(monkeypatch):
    rng = generator(4)
    arms, chances = rng.integers(20, size=(600, 3)), 0.05 * np.exp(0.3 * rng.standard_normal(20))
    log = lmab.Sessions.from_arrays(arms, (rng.random(arms.shape) < chances[arms]).astype(float), n_arms=20)
    estimate = lmab.fit(log, n_types=1, method=lmab.EM(prior="learned", restarts=1, sweeps=8), rng=1, check=False)
    plan = lmab.plan(estimate.bandit, horizon=3)
    found = lmab.assess(estimate, plan, log, n_draws=40, rng=1)
    monkeypatch.setattr(arm_law, "CAUTIOUS", -2.0)
    bold = lmab.assess(estimate, plan, log, n_draws=40, rng=1)
    assert found.regret[1] > 1.1 * bold.regret[1]
    assert np.diff(found.optimum) > np.diff(bold.optimum)
