"""assess: its intervals from hand-made draws, and its findings about a log with rare and unplayed arms."""

from __future__ import annotations

import importlib
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from seeds import generator

import lmab
from lmab.estimation import arm_law
from lmab.estimation.families import observe
from lmab.evaluation.calibration import CALIBRATION
from lmab.evaluation.decision_tree import unroll
from lmab.evaluation.replanning import FLOOR, LEARNED_FLOOR, Replanned, laplace

assessing = importlib.import_module("lmab.evaluation.assess")


def drawn(rng, unplayed: float) -> Replanned:
    value = rng.normal(2.0, 0.2, 400)
    optimum = value + rng.exponential(0.3, 400)
    return Replanned(
        optimum, value, rng.normal(1.9, 0.1, 400), value - rng.normal(0.3, 0.2, 400),
        value - rng.normal(0.5, 0.1, 400), np.full(400, unplayed), baselines=value[:, None] - 0.2,
    )  # fmt: skip


def test_intervals_are_calibrated_quantiles_of_all_draws_together():
    rng = generator(0)
    sets = [drawn(rng, 0.0), drawn(rng, 0.4)]
    found = SimpleNamespace(sets=sets, own=2.05, stderr=0.01, baselines=("a list",))
    claims = assessing._intervals(SimpleNamespace(upper=2.6), found, 0.9, 62.5, 1.5)
    factor = 1.5 * CALIBRATION.factor(62.5)

    def expected(sample):
        low, middle, high = np.quantile(sample, [0.05, 0.5, 0.95])
        return middle - factor * (middle - low) - 0.02, middle + factor * (high - middle) + 0.02

    value, optimum = (np.concatenate([getattr(one, name) for one in sets]) for name in ("value", "optimum"))
    undone = max(2.6 - max(2.05, *(one.transferred.max() for one in sets)), 0.0)
    assert claims.undone == pytest.approx(undone)
    assert claims.value == pytest.approx(expected(value))
    low, high = expected(optimum)
    assert claims.optimum == pytest.approx((low, high + undone))
    assert claims.regret == pytest.approx((0.0, expected(optimum - value)[1] + undone))
    assert claims.gain == pytest.approx(expected(value - np.concatenate([one.fixed for one in sets])))
    ((name, *ends),) = claims.baselines
    assert name == "a list"
    assert ends == pytest.approx([0.18, 0.22])


def test_the_factor_is_interpolated_between_the_cells_of_the_study():
    (first, most), *_, (last, least) = CALIBRATION.cells
    assert CALIBRATION.factor(first / 10) == most
    assert CALIBRATION.factor(10 * last) == least
    assert least < CALIBRATION.factor(2 * first) < most


@pytest.mark.parametrize(("n_sessions", "hardly"), [(60, True), (2000, False)])
def test_weak_identification_of_types_is_reported(n_sessions, hardly, monkeypatch):
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
    assert ("weak identification" in found.table) is hardly


def test_one_type_is_never_weakly_identified():
    log = lmab.simulate(
        lmab.LatentBandit.bernoulli([1.0], [[0.2, 0.4]]), lmab.Uniform(2), n_sessions=40, horizon=2, rng=0
    )
    estimate = lmab.fit(log, n_types=1, method=lmab.EM(restarts=1, prior="learned"), rng=0)
    assert assessing._told(estimate, 2) is None
    found = lmab.assess(estimate, lmab.plan(estimate, horizon=2), log, n_draws=20, rng=0)
    assert "weak identification" not in found.table
    assert found.assumptions["repeats"].sentence.startswith("Not tested: the log has fewer than 100 sessions")


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
    findings = {one.code: one.data for one in found.findings}
    share, least, _ = findings["sparse data"]
    assert share == pytest.approx(steps[[2, 3]].sum() / 3)  # 30 plays are fewer than 25 in each of 2 types
    assert (share > 0.5, least) == (True, 25)
    posterior = laplace(estimate.information(), LEARNED_FLOOR if prior == "learned" else FLOOR)
    assert findings.get("unknown directions", (0, 9)) == (posterior.n_floored, 9)
    assert found.n_parameters == 1 + 8
    assert (findings["unplayed arms"][0], found.n_sessions, found.n_steps) == (1, 600, 2400)
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
