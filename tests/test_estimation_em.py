"""EM: oracle, laws, invariances, published maxima."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import oracle
import pytest
import strategies
import truths
from hypothesis import given
from hypothesis import strategies as st
from policies import always
from seeds import generator

import lmab
from lmab.errors import InvalidArgument
from lmab.estimation.climb import Likelihood, climb
from lmab.estimation.em import in_order_of, packed_start, sweep
from lmab.estimation.families import observe
from lmab.estimation.log import Log
from lmab.estimation.result import StopOnce
from lmab.parallel import SERIAL

START = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.6, 0.5, 0.5], [0.5, 0.6, 0.4]])
TRUTH = lmab.LatentBandit.bernoulli([0.6, 0.4], [[0.9, 0.2, 0.4], [0.1, 0.8, 0.5]])
ONE_START = lmab.EM(restarts=1, prior=1.0)


def likelihood(log: Log, n_types: int, prior: float = 0.0) -> Likelihood:
    return Likelihood(log, n_types, log.prior(prior), SERIAL)


def expectation(log: Log, models):
    return log.expectation(models, SERIAL)


def gaussian_log(seed: int) -> lmab.Sessions:
    rng = generator(seed)
    bandit = lmab.LatentBandit.gaussian([0.4, 0.6], rng.normal(size=(2, 3)), scale=0.7)
    return lmab.simulate(bandit, lmab.Uniform(3), n_sessions=40, horizon=4, rng=rng)


@given(log=strategies.logs(max_sessions=8), seed=st.integers(0, 2**32 - 1))
def test_likelihood_and_responsibilities_equal_enumeration(log, seed):
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.ones(2), size=(2, 3))
    bandit = lmab.LatentBandit.categorical([0.3, 0.7], probabilities, [0.0, 1.0])
    data = observe(log, values=[0.0, 1.0])
    statistics, total = expectation(data, data.pack(bandit))
    rows = []
    for session in log:
        history = tuple(zip(session.arms.tolist(), session.rewards.tolist(), strict=True))
        rows.append(oracle.likelihood([0.3, 0.7], probabilities, [0.0, 1.0], history))
    joints = np.array(rows)
    shares = joints / joints.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(total[0], np.log(joints.sum(axis=1)).sum(), rtol=1e-10)
    np.testing.assert_allclose(statistics[0, 0, :2], shares.sum(axis=0), rtol=1e-10)
    np.testing.assert_allclose(lmab.model.belief.posterior(bandit, log), shares, rtol=1e-10)


def test_the_statistics_are_the_gradient(rng):
    """d log L / d log theta is the expected count (Fisher's identity), here against finite differences."""
    bandit = lmab.random_bandit(3, 4, rng=rng)
    data = observe(lmab.simulate(bandit, lmab.Uniform(4), n_sessions=30, horizon=5, rng=rng))
    model = data.random_models(1, 3, rng)
    statistics, _ = expectation(data, model)
    for row, column in [(0, 0), (1, 2), (5, 1), (8, 0)]:
        changed = np.concatenate([model, model])
        changed[:, row, column] *= np.exp([1e-5, -1e-5])
        _, logs = expectation(data, changed)
        assert (logs[0] - logs[1]) / 2e-5 == pytest.approx(statistics[0, row, column], rel=1e-6)


@given(log=strategies.logs(max_sessions=6), seed=st.integers(0, 2**32 - 1))
def test_the_gradient_equals_enumeration(log, seed):
    """Counts over parameters are the derivatives that the product rule gives, term by term."""
    rng = np.random.default_rng(seed)
    weights, probabilities = np.array([0.3, 0.7]), rng.dirichlet(np.ones(2), size=(2, 3))
    data = observe(log, values=[0.0, 1.0])
    statistics, _ = expectation(data, data.pack(lmab.LatentBandit.categorical(weights, probabilities, [0, 1])))
    by_weight, by_probability = np.zeros(2), np.zeros((2, 3, 2))
    for session in log:
        steps = [(arm, int(reward)) for arm, reward in zip(session.arms, session.rewards, strict=True)]
        products = np.array([[probabilities[m, arm, z] for arm, z in steps] for m in range(2)])
        total = weights @ products.prod(axis=1)
        by_weight += products.prod(axis=1) / total
        for t, (arm, z) in enumerate(steps):
            by_probability[:, arm, z] += weights * np.delete(products, t, axis=1).prod(axis=1) / total
    np.testing.assert_allclose(statistics[0, 0, :2] / weights, by_weight, rtol=1e-10)
    counts = statistics[0, 1:7, :2].T.reshape(2, 3, 2)
    np.testing.assert_allclose(counts / probabilities, by_probability, rtol=1e-10, atol=1e-300)


@given(
    log=strategies.logs(max_sessions=30, max_steps=6),
    seed=st.integers(0, 2**32 - 1),
    n_types=st.integers(1, 5),
    prior=st.sampled_from([0.0, 0.5, 3.0]),
    accelerate=st.booleans(),
)
def test_the_objective_never_falls(log, seed, n_types, prior, accelerate):
    data = observe(log)
    start = data.random_models(3, n_types, np.random.default_rng(seed))
    found = climb(likelihood(data, n_types, prior), start, left=0.0, max_maps=40, accelerate=accelerate)
    for trace in found.traces:
        assert (np.diff(trace) >= -1e-10 * np.abs(trace[0])).all()
    assert [len(trace) for trace in found.traces] == found.n_maps.tolist()


@given(seed=st.integers(0, 2**32 - 1), prior=st.sampled_from([0.0, 1.0]), scale=st.sampled_from([None, 0.5]))
def test_the_gaussian_objective_never_falls(seed, prior, scale):
    data = observe(gaussian_log(seed), rewards="gaussian", scale=scale)
    start = data.random_models(2, 3, np.random.default_rng(seed))
    for accelerate in (False, True):
        found = climb(likelihood(data, 3, prior), start, left=0.0, max_maps=30, accelerate=accelerate)
        for trace in found.traces:
            assert (np.diff(trace) >= -1e-9 * np.abs(trace[0])).all()


@given(log=strategies.logs(max_sessions=12, max_steps=5), seed=st.integers(0, 2**32 - 1))
def test_one_map_does_not_see_the_order_of_sessions_or_steps(log, seed):
    rng = np.random.default_rng(seed)
    shuffled = log[rng.permutation(len(log))]
    order = np.concatenate([shuffled.offsets[k] + rng.permutation(n) for k, n in enumerate(shuffled.lengths)])
    shuffled = replace(shuffled, arms=shuffled.arms[order], rewards=shuffled.rewards[order])
    first, second = observe(log, values=[0.0, 1.0]), observe(shuffled, values=[0.0, 1.0])
    start = first.random_models(2, 3, rng)
    one, another = (likelihood(data, 3).map(start) for data in (first, second))
    np.testing.assert_allclose(one[0], another[0], rtol=1e-10)
    np.testing.assert_allclose(one[1], another[1], rtol=1e-8, atol=1e-10)


@given(log=strategies.logs(max_sessions=12, max_steps=5), seed=st.integers(0, 2**32 - 1))
def test_relabelling_types_and_arms_relabels_the_map(log, seed):
    rng = np.random.default_rng(seed)
    types, arms = rng.permutation(3).tolist(), rng.permutation(3).tolist()
    data = observe(log, values=[0.0, 1.0])
    start = data.random_models(1, 3, rng)
    objective, ahead = likelihood(data, 3).map(start)
    moved = observe(replace(log, arms=np.argsort(arms)[log.arms]), values=[0.0, 1.0])
    renamed = moved.pack(data.bandit(start[0], 3).relabel(types=types, arms=arms))
    other, there = likelihood(moved, 3).map(renamed)
    np.testing.assert_allclose(other, objective, rtol=1e-10)
    expected = data.bandit(ahead[0], 3).relabel(types=types, arms=arms)
    np.testing.assert_allclose(moved.bandit(there[0], 3).means, expected.means, rtol=1e-8, atol=1e-10)


@given(log=strategies.logs(max_sessions=12, max_steps=4), seed=st.integers(0, 2**32 - 1))
def test_merging_changes_nothing(log, seed):
    """Every session five times over is merged, and is worth five times the log-likelihood."""
    repeated = log + log + log + log + log
    data, merged = observe(log, values=[0.0, 1.0]), observe(repeated, values=[0.0, 1.0])
    assert merged.n_distinct <= len(log)
    models = data.random_models(2, 3, np.random.default_rng(seed))
    one, five = expectation(data, models), expectation(merged, models)
    np.testing.assert_allclose(five[1], 5 * one[1], rtol=1e-10)
    np.testing.assert_allclose(five[0], 5 * one[0], rtol=1e-9, atol=1e-12)


def test_merging_a_large_log_and_leaving_a_diverse_one(rng):
    coin = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
    log = lmab.simulate(coin, lmab.Uniform(2), n_sessions=10_000, horizon=4, rng=rng)
    merged: Any = observe(log)
    assert merged.n_distinct <= 35  # multisets of 4 codes among 4
    assert merged.counts.sum() == 10_000
    np.testing.assert_array_equal(merged.cells.sum(axis=1), np.bincount(log.arms))
    diverse = lmab.simulate(lmab.random_bandit(3, 50, rng=rng), lmab.Uniform(50), n_sessions=10_000, horizon=7, rng=rng)
    assert observe(diverse).n_distinct == 10_000


def test_squarem_needs_half_the_maps():
    """At most 50 maps, in the median over 20 problems, for the likelihood of 100 plain maps."""
    needed = []
    for seed in range(20):
        rng = generator(seed)
        bandit = lmab.random_bandit(5, 20, rng=rng)
        data = observe(lmab.simulate(bandit, lmab.Uniform(20), n_sessions=3000, horizon=7, rng=rng))
        task, start = likelihood(data, 5), data.random_models(1, 5, rng)
        plain = climb(task, start, left=-1, max_maps=100, accelerate=False).traces[0][-1]
        fast = climb(task, start, left=-1, max_maps=100, accelerate=True).traces[0]
        reached = np.flatnonzero(np.array(fast) >= plain)
        needed.append(reached[0] + 1 if len(reached) else np.inf)
    assert np.median(needed) <= 50


def test_one_start_takes_exactly_the_maps_it_is_given(rng):
    bandit = lmab.random_bandit(4, 10, rng=rng)
    log = lmab.simulate(bandit, lmab.Uniform(10), n_sessions=2000, horizon=5, rng=rng)
    ends = []
    for accelerate in (False, True):
        method = lmab.EM(restarts=1, max_iterations=100, tolerance=0.0, accelerate=accelerate, prior=0.0)
        with pytest.warns(lmab.errors.LmabWarning, match="did not converge"):
            fit = lmab.fit(log, n_types=4, method=method, rng=generator(0), check=False)
        assert len(fit.trace) == 100
        assert str(fit.starts) == "1 of 1 starts reached the best solution"
        ends.append(fit.trace)
    assert ends[0][0] == ends[1][0]
    assert ends[1][49] >= ends[0][-1]


def test_a_prior_pulls_towards_the_marginals(rng):
    bandit = lmab.random_bandit(3, 10, rng=rng)
    log = lmab.simulate(bandit, lmab.Uniform(10), n_sessions=300, horizon=5, rng=rng)
    spread = []
    for prior in (0.0, 2.0, 1e6):
        fit = lmab.fit(log, n_types=3, method=lmab.EM(prior=prior), rng=generator(0), check=False)
        spread.append(np.ptp(fit.bandit.means, axis=0).mean())
    assert spread[0] > spread[1] > spread[2]
    assert spread[2] < 1e-3


def test_a_type_that_dies_is_reported():
    """One session type only: a second type can take no session of its own, or copy the first."""
    log = lmab.Sessions.from_arrays(np.tile([0, 1], (50, 1)), np.tile([0.0, 1.0], (50, 1)))
    data = observe(log)
    model = data.pack(lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.0, 1.0], [1.0, 0.0]]))
    found = climb(likelihood(data, 2), model, left=1e-8, max_maps=100, accelerate=True)
    assert data.bandit(found.models[0], 2).weights.tolist() == [1.0, 0.0]
    from lmab.estimation.em import fitted, tally

    message = fitted(likelihood(data, 2), 0.0, found, tally(found, 1), None).message
    assert "no session is left in type 1" in message


def test_em_serves_logs_of_adaptive_policies(rng):
    """The arms below depend on the session's own rewards; the likelihood does not mind."""
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1, 0.5], [0.1, 0.8, 0.4]])
    logging = lmab.Thompson(lmab.LatentBandit.bernoulli([0.6, 0.4], [[0.7, 0.2, 0.4], [0.3, 0.6, 0.5]]))
    log = lmab.simulate(bandit, logging, n_sessions=20_000, horizon=6, rng=rng)
    fit = lmab.fit(log, n_types=2, method=lmab.EM(prior=0.0), rng=rng)
    played = fit.bandit.means[:, :2]
    order = np.argsort(-played[:, 0])
    np.testing.assert_allclose(played[order], bandit.means[:, :2], atol=0.03)
    np.testing.assert_allclose(fit.bandit.weights[order], bandit.weights, atol=0.03)


def hilly_log(seed: int) -> lmab.Sessions:
    """A small log of many types: its likelihood has many local maxima."""
    rng = np.random.default_rng(seed)
    bandit = lmab.random_bandit(6, 8, kind="spread", rank=6, rng=rng)
    return lmab.simulate(bandit, lmab.Uniform(8), n_sessions=150, horizon=5, rng=rng)


@pytest.mark.parametrize("seed", [0, 2])
def test_the_better_half_of_the_starts_goes_on(seed, monkeypatch):
    """Four of 16 starts climb to the end, and these end as high as the best of all 16 would; the worst do not."""
    log = hilly_log(seed)

    def fit() -> lmab.Estimate:
        return lmab.fit(log, n_types=6, method=lmab.EM(restarts=16, prior=0.0), rng=np.random.default_rng(1))

    few = fit()
    assert (few.starts.drawn, few.starts.finished) == (16, 4)
    monkeypatch.setattr("lmab.estimation.em._FINISHERS", 16)
    every = fit()
    assert every.starts.finished == 16
    assert every.starts.best < 16  # else any of them would do
    assert few.log_likelihood == pytest.approx(every.log_likelihood, abs=0.01)


def test_what_a_pilot_never_saw_stays_possible(monkeypatch):
    """The starts of a large log are fitted to a sample; an arm that first pays outside of it must not be ruled out.

    Without softening the models of the sample give such sessions probability 0, and EM cannot leave a 0.
    """
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1, 0.2, 0.0], [0.2, 0.8, 0.7, 0.0]])
    log = lmab.simulate(bandit, lmab.Uniform(4), n_sessions=3000, horizon=5, rng=np.random.default_rng(3))
    rewards = log.rewards.copy()
    rewards[np.flatnonzero(log.arms == 3)[0]] = 1.0  # arm 3 pays once
    log = replace(log, rewards=rewards)
    whole = lmab.fit(log, n_types=2, method=lmab.EM(prior=0.0), rng=np.random.default_rng(0))
    monkeypatch.setattr("lmab.estimation.em._PILOT", 60)
    monkeypatch.setattr("lmab.estimation.em._PILOT_PER_PARAMETER", 1)
    piloted = lmab.fit(log, n_types=2, method=lmab.EM(prior=0.0), rng=np.random.default_rng(0))
    assert piloted.log_likelihood == pytest.approx(whole.log_likelihood, abs=1e-3)
    assert piloted.bandit.weights @ piloted.bandit.means[:, 3] == pytest.approx(1 / (log.arms == 3).sum(), rel=0.2)


class Watched:
    """An ascent that notes what its extrapolations were before and after they were made valid."""

    def __init__(self, task: Likelihood) -> None:
        self.task, self.log, self.seen = task, task.log, []

    def map(self, models):
        return self.task.map(models)

    def repair(self, trial, near):
        valid = self.task.repair(trial, near)
        self.seen.append((trial.copy(), near.copy(), valid.copy()))
        return valid


@pytest.mark.parametrize("family", ["categorical", "gaussian"])
def test_extrapolation_never_takes_what_is_possible_to_zero(family):
    """Jumps overshoot below zero; of what the plain map had, the repair keeps a fiftieth, before all is normalised."""
    log = gaussian_log(0) if family == "gaussian" else hilly_log(1)
    data = observe(log, rewards=family)
    n_types = 3 if family == "gaussian" else 6
    watched = Watched(likelihood(data, n_types))
    models = data.random_models(6, n_types, np.random.default_rng(0))
    climb(watched, models, left=0.0, max_maps=150, accelerate=True)
    overshot = 0
    for trial, near, valid in watched.seen:
        rows = slice(0, 1) if family == "gaussian" else slice(None)
        overshot += int((trial[:, rows] < 0.02 * near[:, rows]).sum())
        assert (valid[:, rows] >= 0.02 / 10 * near[:, rows]).all()
        np.testing.assert_allclose(valid[:, 0].sum(axis=1), 1)
        if family == "gaussian":
            assert (valid[:, -1] >= 0.5 * near[:, -1]).all()
        else:
            sums = data.bandit(valid[0], n_types).rewards.probabilities.sum(axis=2)
            np.testing.assert_allclose(sums, 1)
    assert overshot > 0


def test_an_extrapolated_scale_stays_above_half_of_what_it_was():
    data = observe(gaussian_log(0), rewards="gaussian")
    near = data.random_models(2, 3, np.random.default_rng(0))
    trial = near.copy()
    trial[:, -1] *= np.array([[-3.0], [0.8]])
    valid = likelihood(data, 3).repair(trial, near)
    np.testing.assert_allclose(valid[:, -1], near[:, -1] * [[0.5], [0.8]])


@pytest.mark.parametrize("restarts", [20, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("name", "n_types"), [(name, n) for name, one in truths.SURVEYS.items() for n in one.maxima])
def test_published_maxima(name, n_types, restarts):
    survey = truths.SURVEYS[name]
    method = lmab.EM(restarts=restarts, prior=0.0)
    fit = lmab.fit(survey.sessions, n_types=n_types, method=method, rng=generator(0), check=False)
    assert fit.converged
    assert fit.log_likelihood == pytest.approx(survey.maxima[n_types], abs=1e-3)
    if (name, n_types) == ("carcinoma", 3):
        assert fit.bic == pytest.approx(697.1357, abs=2e-3)
        np.testing.assert_allclose(np.sort(fit.bandit.weights), [0.1817, 0.3736, 0.4447], atol=1e-3)


def test_two_coins_of_known_mixture():
    """Two tosses of one coin per session: the maximum fits the frequencies of 0, 1, 2 heads exactly."""
    heads = np.repeat([0, 1, 2], [36, 28, 36])
    rewards = np.stack([heads >= 1, heads == 2], axis=1).astype(float)
    log = lmab.Sessions.from_arrays(np.zeros((100, 2), int), rewards)
    with pytest.warns(lmab.errors.LmabWarning, match="only arm 0"):
        fit = lmab.fit(log, n_types=2, method=lmab.EM(prior=0.0), rng=generator(0))
    expected = 36 * np.log(0.36) + 28 * np.log(0.14) + 36 * np.log(0.36)
    assert fit.log_likelihood == pytest.approx(expected, abs=1e-5)


@pytest.fixture
def climbs(monkeypatch):
    """What `climb` is asked for, one entry per call: models, left, max_maps."""
    from lmab.estimation import em

    asked = []

    def spy(task, models, **options):
        asked.append((len(models), options["left"], options["max_maps"]))
        return climb(task, models, **options)

    monkeypatch.setattr(em, "climb", spy)
    return asked


def test_starts_compete_in_rounds_of_20_40_and_80_maps(climbs):
    lmab.fit(hilly_log(0), n_types=6, method=lmab.EM(restarts=40, prior=0.0), rng=0)
    assert [(models, maps) for models, _, maps in climbs[:3]] == [(40, 20), (20, 40), (10, 80)]
    models, _, maps = climbs[3]
    assert models == 5
    assert 4860 <= maps < 5000  # what 140 maps or a few more leave of 5000
    climbs.clear()
    lmab.fit(hilly_log(0), n_types=6, method=lmab.EM(restarts=4, prior=0.0), rng=0)
    assert [(models, maps) for models, _, maps in climbs] == [(4, 5000)]
    climbs.clear()
    lmab.fit(hilly_log(0), n_types=1, method=lmab.EM(prior=0.0), rng=0)
    assert [models for models, _, _ in climbs] == [1]


def test_what_may_be_left_grows_with_the_distinct_sessions_and_faster_where_they_are_few(climbs, monkeypatch):
    log = hilly_log(0)
    size = observe(log).n_distinct
    lmab.fit(log, n_types=2, method=lmab.EM(restarts=1, tolerance=1e-6, prior=0.0), rng=0)
    monkeypatch.setattr("lmab.estimation.em._CHEAP", size // 2)
    lmab.fit(log, n_types=2, method=lmab.EM(restarts=1, tolerance=1e-6, prior=0.0), rng=0)
    assert [left for _, left, _ in climbs] == pytest.approx([1e-6 * size * size / 10_000, 1e-6 * size])


def test_many_arms_are_searched_briefly_and_climbed_to_a_tolerance_per_parameter(climbs, monkeypatch):
    log, method = hilly_log(0), lmab.EM(restarts=8, sweeps=8)
    few = lmab.fit(log, n_types=3, method=method, check=False, selected=False, rng=0)
    assert max(maps for _, _, maps in climbs) == 5000
    climbs.clear()
    monkeypatch.setattr("lmab.estimation.prior._MANY_ARMS", log.n_arms - 1)
    many = lmab.fit(log, n_types=3, method=method, check=False, selected=False, rng=0)
    left = 1e-5 * observe(log).n_parameters(3)
    assert {one for _, one, _ in climbs} == {left}
    assert [(models, maps) for models, _, maps in climbs[:2]] == [(8, 20), (4, 40)]
    assert climbs[2][0] == 2  # finishers under the first prior, within 150 maps
    assert climbs[2][2] <= 150
    assert [(models, maps) for models, _, maps in climbs[3:]] == [(2, 5000)]  # the same two under the learned one
    assert many.log_likelihood > few.log_likelihood - 20


def test_a_large_log_is_searched_in_a_sample_first(climbs, monkeypatch):
    log = hilly_log(0)
    for name, value in (("_PILOT", 40), ("_PILOT_PER_PARAMETER", 0)):
        monkeypatch.setattr(f"lmab.estimation.em.{name}", value)
    size = observe(log).n_distinct
    assert size > 80
    fit = lmab.fit(log, n_types=3, method=lmab.EM(restarts=16, prior=0.0), rng=0)
    assert fit.converged
    assert [(models, maps) for models, _, maps in climbs[:3]] == [(16, 20), (8, 40), (4, 20)]
    assert climbs[0][1] == pytest.approx(1e-8 * 40 * 40 / 10_000)
    assert climbs[2][1] == pytest.approx(1e-8 * size * size / 10_000)
    assert climbs[-1][0] == 2  # finishers on the whole log
    climbs.clear()
    monkeypatch.setattr("lmab.estimation.em._PILOT", -(-size // 2))
    lmab.fit(log, n_types=3, method=lmab.EM(restarts=16, prior=0.0), rng=0)
    assert climbs[0][1] == pytest.approx(1e-8 * size * size / 10_000)  # twice the pilot is no large log


def test_starts_that_end_within_a_hundredth_reached_the_same_solution():
    from lmab.estimation.climb import Climb
    from lmab.estimation.em import tally

    ends = np.array([-5.0, -5.009, -5.011, -7.0])
    outcome = Climb(np.zeros((4, 1, 1)), ends, np.ones(4, int), np.ones(4, bool), ((0.0,),) * 4, False)
    starts = tally(outcome, 20)
    assert (starts.drawn, starts.finished, starts.best) == (20, 4, 2)
    assert str(starts) == "2 of 4 starts reached the best solution, 16 dropped early"


def test_many_unplayed_arms_are_counted_not_listed(rng):
    log = lmab.simulate(lmab.random_bandit(2, 3, rng=rng), lmab.Uniform(3), n_sessions=50, horizon=3, rng=rng)
    message = lmab.fit(log.with_arms(10), n_types=1, method=lmab.EM(prior=0.0), rng=rng).message
    assert message.endswith("arm 3, 4, 5, 6, 7 and 2 more")
    assert "more" not in lmab.fit(log.with_arms(8), n_types=1, method=lmab.EM(prior=0.0), rng=rng).message
    assert "never played" not in lmab.fit(log, n_types=1, method=lmab.EM(prior=0.0), rng=rng).message


@given(seed=st.integers(0, 10**6), prior=st.sampled_from([0.0, 2.5]))
def test_one_type_is_fitted_in_closed_form(seed, prior):
    """The prior sits at each arm's own frequencies, so one type has these whatever it weighs."""
    rng = np.random.default_rng(seed)
    log = lmab.Sessions.from_arrays(
        rng.integers(3, size=(20, 3)), rng.integers(3, size=(20, 3)).astype(float), n_arms=3
    )
    fit = lmab.fit(log, n_types=1, method=lmab.EM(prior=prior), rng=0)
    for arm in range(3):
        paid = log.rewards[log.arms == arm]
        expected = [np.mean(paid == value) for value in fit.bandit.rewards.values]
        np.testing.assert_allclose(fit.bandit.rewards.probabilities[0, arm], expected, atol=1e-12)
    with pytest.warns(lmab.errors.LmabWarning, match="normal rewards do not fit"):
        normal = lmab.fit(log, n_types=1, rewards="gaussian", method=lmab.EM(prior=prior), rng=0)
    means = np.array([log.rewards[log.arms == arm].mean() for arm in range(3)])
    np.testing.assert_allclose(normal.bandit.means[0], means, atol=1e-9)
    assert normal.bandit.rewards.scale == pytest.approx(np.sqrt(np.mean((log.rewards - means[log.arms]) ** 2)))


@pytest.mark.parametrize("family", ["categorical", "gaussian"])
def test_one_map_is_the_textbook_map(family):
    """Posterior shares of the sessions, then weighted frequencies (or means) with the prior's pseudo-plays."""
    log = gaussian_log(2) if family == "gaussian" else hilly_log(2)
    data = observe(log, rewards=family)
    n_types, prior, rng = 3, 1.7, np.random.default_rng(4)
    start = data.random_models(1, n_types, rng)
    bandit = data.bandit(start[0], n_types)
    objective, ahead = likelihood(data, n_types, prior).map(start)
    after = data.bandit(ahead[0], n_types)
    shares = lmab.model.belief.posterior(bandit, log)
    np.testing.assert_allclose(after.weights, shares.mean(axis=0), rtol=1e-9)
    by_step = np.repeat(shares, log.lengths, axis=0)
    total = np.logaddexp.reduce(lmab.model.belief.log_joint(bandit, log), axis=1).sum()
    if family == "categorical":
        for arm, (z, value) in itertools.product(range(log.n_arms), enumerate(bandit.rewards.values)):
            here = log.arms == arm
            frequency = np.mean(log.rewards[here] == value)
            hits = by_step[here & (log.rewards == value)].sum(axis=0) + prior * frequency
            np.testing.assert_allclose(
                after.rewards.probabilities[:, arm, z], hits / (by_step[here].sum(axis=0) + prior), rtol=1e-9
            )
            if frequency > 0:
                total += prior * frequency * np.log(bandit.rewards.probabilities[:, arm, z]).sum()
    else:
        squares = 0.0
        for arm in range(log.n_arms):
            here, centre = log.arms == arm, log.rewards[log.arms == arm].mean()
            plays, sums = by_step[here].sum(axis=0) + prior, by_step[here].T @ (log.rewards[here] - centre)
            np.testing.assert_allclose(after.means[:, arm], centre + sums / plays, rtol=1e-9)
            deviations = (log.rewards[here][:, None] - after.means[:, arm]) ** 2
            squares += (by_step[here] * deviations).sum() + prior * ((after.means[:, arm] - centre) ** 2).sum()
            total -= 0.5 * prior * ((bandit.means[:, arm] - centre) ** 2).sum() / bandit.rewards.scale**2
        assert after.rewards.scale == pytest.approx(np.sqrt(squares / log.n_steps), rel=1e-9)
    assert objective[0] == pytest.approx(total, rel=1e-9)


def worth(n_types: int, n_sessions: int, method: lmab.EM, n_instances: int) -> float:
    """Mean over spherical instances with 50 arms and 7 steps; both policies look one step ahead, values are exact."""
    ratios = []
    for seed in range(n_instances):
        rng = generator(seed, n_types, n_sessions)
        bandit = lmab.random_bandit(n_types, 50, rank=4, kind="spherical", rng=rng)
        log = lmab.simulate(bandit, lmab.Uniform(50), n_sessions=n_sessions, horizon=7, rng=rng)
        fit = lmab.fit(log, n_types=n_types, method=method, rng=rng, check=False)
        learned, genie = (
            lmab.evaluate(lmab.plan(model, horizon=7, method=lmab.planning.Lookahead()).policy, bandit, horizon=7).mean
            for model in (fit.bandit, bandit)
        )
        ratios.append(learned / genie)
    return float(np.mean(ratios))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_types", "n_sessions", "method", "least"),
    [
        (5, 2_000, lmab.EM(prior=2.0), 0.945),
        (5, 10_000, lmab.EM(prior=2.0), 0.98),
        (7, 100_000, lmab.EM(prior=1.0, rank=4), 0.993),
    ],
)
def test_planning_on_the_fit_is_nearly_planning_on_the_truth(n_types, n_sessions, method, least):
    value = worth(n_types, n_sessions, method, n_instances=20)
    print(f"{n_types} types, {n_sessions} sessions: {value:.4f} of the genie's value")
    assert value >= least


def test_planning_on_a_small_fit_beats_the_best_arm(rng):
    """The same on one small instance, to keep the study above honest between its runs."""
    bandit = lmab.random_bandit(3, 12, rank=3, rng=rng)
    log = lmab.simulate(bandit, lmab.Uniform(12), n_sessions=3000, horizon=6, rng=rng)
    fit = lmab.fit(log, n_types=3, method=lmab.EM(prior=1.0), rng=rng)
    best = always(int((bandit.weights @ bandit.means).argmax()), bandit.n_arms)
    learned, genie, alone = (
        lmab.evaluate(policy, bandit, horizon=6).mean
        for policy in (
            lmab.plan(fit.bandit, horizon=6, method=lmab.planning.Lookahead()).policy,
            lmab.plan(bandit, horizon=6, method=lmab.planning.Lookahead()).policy,
            best,
        )
    )
    assert learned >= 0.97 * genie
    assert learned > alone


@pytest.fixture
def log(rng):
    bandit = lmab.LatentBandit.bernoulli([0.4, 0.6], [[0.9, 0.1, 0.5], [0.2, 0.8, 0.4]])
    return lmab.simulate(bandit, lmab.Uniform(3), n_sessions=300, horizon=4, rng=rng)


def test_one_sweep_is_bayes_and_counting(log):
    """Against responsibilities and smoothed frequencies written out."""
    found, likelihood = sweep(START, log, sweeps=1, prior=2.0)
    shares = lmab.model.belief.posterior(START, log)
    np.testing.assert_allclose(found.weights, shares.mean(axis=0), rtol=1e-10)
    assert likelihood == pytest.approx(np.logaddexp.reduce(lmab.model.belief.log_joint(START, log), axis=1).sum())
    owner = np.repeat(np.arange(len(log)), log.lengths)
    for arm in range(3):
        steps = log.arms == arm
        mine, paid = shares[owner[steps]], log.rewards[steps]
        expected = (mine.T @ paid + 2 * paid.mean()) / (mine.sum(axis=0) + 2)
        np.testing.assert_allclose(found.means[:, arm], expected, rtol=1e-10)


def test_sweeps_follow_each_other(log):
    three, likelihood = sweep(START, log, sweeps=3, prior=1.0)
    bandit = START
    for _ in range(3):
        bandit, last = sweep(bandit, log, sweeps=1, prior=1.0)
    np.testing.assert_allclose(three.means, bandit.means, rtol=1e-9)
    assert likelihood == pytest.approx(last, rel=1e-12)
    assert observe(log).log_likelihood(three) > likelihood


def test_normal_rewards_and_given_values(log, rng):
    bandit = lmab.LatentBandit.gaussian([0.5, 0.5], [[0.0, 1.0], [1.0, 0.0]])
    normal = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=100, horizon=4, rng=rng)
    assert sweep(bandit, normal, sweeps=2, prior=1.0)[0].rewards.scale == pytest.approx(1.0, abs=0.2)
    wide = lmab.LatentBandit.categorical([1.0], [[[0.5, 0.4, 0.1]] * 3], [0.0, 1.0, 2.0])
    assert sweep(wide, log, sweeps=1, prior=1.0, values=[0.0, 1.0, 2.0])[0].rewards.n_values == 3


@pytest.mark.parametrize(
    ("keywords", "message"), [({"sweeps": 0}, "sweeps must be"), ({"prior": -1.0}, "prior must be")]
)
def test_bad_arguments(log, keywords, message):
    with pytest.raises(InvalidArgument, match=message):
        sweep(START, log, **{"sweeps": 1, "prior": 1.0, **keywords})


def logged(n_sessions: int, seed: int, bandit: lmab.LatentBandit = TRUTH) -> lmab.Sessions:
    uniform = lmab.Uniform(bandit.n_arms)
    return lmab.simulate(bandit, uniform, n_sessions=n_sessions, horizon=4, rng=generator(seed))


@pytest.mark.parametrize("prior", [0.0, 1.0, "learned"])
def test_a_fit_starts_where_it_is_told_and_keeps_the_order_of_types(prior):
    log = logged(400, 0)
    for start in (TRUTH, TRUTH.relabel(types=[1, 0])):
        found = lmab.fit(log, n_types=2, method=lmab.EM(restarts=1, prior=prior), start=start, rng=0, check=False)
        assert np.abs(found.bandit.means - start.means).max() < 0.2
        assert found.starts.drawn == 1
        assert len(found.trace) < 40  # a random start takes more maps to find the types


@pytest.mark.parametrize("method", [ONE_START, lmab.EM(restarts=4, prior="learned"), lmab.EM(restarts=2, prior=0.0)])
def test_the_objective_never_ends_below_that_of_the_start(method):
    """The start is a fit to the same log with many starts, so that other starts alone may do worse."""
    bandit = lmab.random_bandit(4, 8, rng=3)
    log = logged(200, 1, bandit)
    best = lmab.fit(log, n_types=4, method=lmab.EM(restarts=40, prior=method.prior), rng=1, check=False)
    for seed in range(3):
        found = lmab.fit(log, n_types=4, method=method, start=best.bandit, rng=seed, check=False)
        assert _objective(found, found.bandit) >= _objective(found, best.bandit) - 1e-9


def _objective(fit: lmab.Estimate, bandit: lmab.LatentBandit) -> float:
    """Log-likelihood and log prior of a model, under the prior of the fit."""
    value = fit.require_log().log_likelihood(bandit)
    if fit.arm_prior.active:
        value += float((fit.arm_prior.pseudo_counts * np.log(bandit.rewards.probabilities)).sum())
    return float(value)


def test_a_start_that_loses_on_the_sample_still_counts_on_the_whole_log(monkeypatch):
    """Where the search ends lower than the start, the fit goes on from the start itself."""
    log = logged(300, 2)
    best = lmab.fit(log, n_types=2, method=lmab.EM(prior=1.0), rng=0)
    worse = packed_start(lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.5] * 3] * 2), best.encoded)
    monkeypatch.setattr("lmab.estimation.em.packed_start", lambda *_: worse)  # stays where it is: types are alike
    found = lmab.fit(log, n_types=2, method=ONE_START, start=best.bandit, rng=0, check=False)
    assert found.trace[-1] >= best.trace[-1] - 1e-6


def test_a_bad_start_does_not_hold_the_fit_back():
    log = logged(500, 3)
    alike = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.5, 0.5, 0.5], [0.5, 0.5, 0.5]])  # its types never part
    cold = lmab.fit(log, n_types=2, method=lmab.EM(restarts=4, prior=1.0), rng=0)
    held = lmab.fit(log, n_types=2, method=ONE_START, start=alike, rng=0, check=False)
    warm = lmab.fit(log, n_types=2, method=lmab.EM(restarts=4, prior=1.0), start=alike, rng=0)
    assert warm.starts.drawn == 4  # the given start is one of them
    assert held.trace[-1] < cold.trace[-1] - 10  # one start is not enough here
    assert warm.trace[-1] >= cold.trace[-1] - 1e-3


def test_types_of_a_new_fit_follow_those_that_they_resemble():
    three = lmab.LatentBandit.bernoulli([0.2, 0.3, 0.5], [[0.9, 0.1], [0.5, 0.5], [0.1, 0.9]])
    log = lmab.Sessions.from_arrays([[0, 1]], [[1.0, 0.0]])
    for order in ([0, 1, 2], [2, 0, 1], [1, 0, 2]):
        found = in_order_of(three, three.relabel(types=order), log)
        np.testing.assert_array_equal(found.means, three.means)
    # Only arm 1 was ever played, so that arm 0 says nothing about which type is which.
    once = lmab.Sessions.from_arrays([[1]], [[1.0]], n_arms=2)
    start = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.2], [0.1, 0.6]])
    other = lmab.LatentBandit.bernoulli([0.4, 0.6], [[0.9, 0.6], [0.1, 0.2]])
    assert in_order_of(start, other, once).weights.tolist() == [0.6, 0.4]


def test_a_start_must_fit_the_log():
    log = logged(50, 4)
    wrong = lmab.LatentBandit.bernoulli([1.0], [[0.5, 0.5, 0.5]])
    with pytest.raises(InvalidArgument, match="start must have 2 types and 3 arms, got 1 types and 3 arms"):
        lmab.fit(log, n_types=2, start=wrong, method=lmab.EM(prior=0.0), rng=0)
    with pytest.raises(InvalidArgument, match="start must know every reward of the log"):
        lmab.fit(log, n_types=1, start=lmab.LatentBandit.gaussian([1.0], [[0.0] * 3]), method=lmab.EM(prior=0.0), rng=0)
    values = lmab.LatentBandit.categorical([1.0], [[[0.5, 0.5]] * 3], [0.0, 2.0])
    with pytest.raises(InvalidArgument, match="start must know every reward of the log"):
        lmab.fit(log, n_types=1, start=values, method=lmab.EM(prior=0.0), rng=0)
    with pytest.raises(InvalidArgument, match="start must be None for the method MomentMatching"):
        lmab.fit(log, n_types=2, method=lmab.estimation.MomentMatching(), start=TRUTH, rng=0)
    chosen = lmab.fit(log, n_types="auto", method=lmab.EM(prior=1.0), start=TRUTH, rng=0)
    assert chosen.n_types == chosen.curve.chosen  # whatever the start has


def test_the_law_of_arms_is_the_mean_centre_and_unknown_without_a_learned_prior():
    log = logged(200, 5)
    learned = lmab.fit(log, n_types=2, method=lmab.EM(prior="learned"), rng=0, check=False)
    np.testing.assert_allclose(learned.law_of_arms, learned.learned.centre.mean(axis=0))
    assert lmab.fit(log, n_types=2, method=lmab.EM(prior=0.0), rng=0).law_of_arms is None
    normal = lmab.LatentBandit.gaussian([0.5, 0.5], [[1.0, 0.0, 2.0], [0.0, 1.0, 2.0]])
    fit = lmab.fit(
        logged(200, 6, normal), n_types=2, method=lmab.EM(prior="learned"), rewards="gaussian", rng=0, check=False
    )
    assert fit.law_of_arms == pytest.approx(float(fit.learned.centre.mean()))
    assert fit.bandit.with_arms(["new"], law=fit.law_of_arms).means[0, 3] == pytest.approx(fit.law_of_arms)


@pytest.mark.parametrize(("stopped", "maps"), [(True, 1), (False, 5000)])
def test_after_a_stop_a_given_start_is_not_climbed_from(climbs, stopped, maps):
    """A search that was stopped may have missed the given model, which then gets one map and no climb."""
    log = logged(300, 0)
    task = likelihood(observe(log), TRUTH.n_types, 1.0)
    other = task.log.pack(lmab.random_bandit(TRUTH.n_types, TRUTH.n_arms, rng=5))
    poor = climb(task, other, left=0.0, max_maps=1, accelerate=False)
    climbs.clear()
    method = lmab.EM(prior=1.0)
    method._no_lower(task, replace(poor, stopped=stopped), TRUTH, StopOnce(None))
    assert [asked[2] for asked in climbs] == [maps]
