from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from seeds import generator

import lmab
from lmab import theory
from lmab.errors import LmabWarning
from lmab.model.bins import Bins
from lmab.paper import moment_matching
from lmab.paper.high_orders import core_moments
from lmab.paper.moment_matching import Fit, Matching, _best_level

# Two pairs of one arm may be a core set: then only that arm is played.
pytestmark = pytest.mark.filterwarnings("ignore:only arm .* was ever played")


def phases(n_types, n_arms, horizon, n_sessions, seed):
    """Algorithm 1's two phases on a random bandit with uneven weights: the bandit, the core set, the core plays."""
    rng = generator(seed, n_types, n_arms)
    means = lmab.random_bandit(n_types, n_arms, rng=rng).means
    bandit = lmab.LatentBandit.bernoulli(rng.dirichlet(np.full(n_types, 5.0)), means)
    environment = lmab.Simulator(bandit, horizon=horizon, rng=rng)
    core = lmab.moments.design(lmab.moments.subspace(environment.run(lmab.Uniform(n_arms), n_sessions), rank=n_types))
    pairs = np.array([arm for arm, _ in core.pairs])
    log = environment.play(pairs[rng.integers(len(pairs), size=(n_sessions, horizon))])
    return bandit, core, log, rng


def gap_and_distance(n_types, n_arms, horizon, n_sessions, seed):
    bandit, core, log, rng = phases(n_types, n_arms, horizon, n_sessions, seed)
    fit = lmab.fit(log, n_types=n_types, method=lmab.estimation.MomentMatching(design=core), rng=rng).bandit
    best = lmab.plan(bandit, horizon=horizon, method=lmab.Exact()).lower
    policy = lmab.plan(fit, horizon=horizon, method=lmab.Exact()).policy
    return best - lmab.evaluate(policy, bandit, horizon=horizon).mean, bandit.distance(fit)


def test_the_jacobian_is_the_derivative(rng):
    _, core, log, _ = phases(2, 5, 3, 2000, seed=1)
    task = Matching(core_moments(log, core, 3), core, 2, slack=0.0)
    point = task.random_start(rng)
    point[1:] = np.clip(point[1:] + 0.3, 0.05, 0.95)  # some constraints active
    numeric = approx_fprime(point, lambda p: task.residuals(p, 0.1), 1e-7)
    np.testing.assert_allclose(task.jacobian(point, 0.1), numeric, rtol=1e-3, atol=1e-2 * np.abs(numeric).max())


def test_exact_moments_give_the_exact_model(rng):
    """With the moments of the truth itself there is nothing left to explain."""
    bandit, core, log, _ = phases(2, 5, 3, 5000, seed=2)
    tensors = core_moments(log, core, 3)
    truth = bandit.rewards.table[core.support]
    exact = tuple(
        type(t)(t.indices, truth[t.indices].prod(axis=1) @ bandit.weights, t.plays, t.stderr) for t in tensors
    )
    task = Matching(exact, core, 2, slack=1.0)
    fits = [task.solve(task.random_start(rng), 0.01) for _ in range(6)]
    best = min(fits, key=lambda fit: fit.cost)
    assert best.residual < 1e-6
    order = np.argsort(best.weights)
    np.testing.assert_allclose(best.weights[order], np.sort(bandit.weights), atol=1e-3)


@pytest.mark.parametrize(("n_seeds", "limit"), [(1, 0.04), pytest.param(5, 0.012, marks=pytest.mark.slow)])
def test_identifiable_sessions(n_seeds, limit):
    results = np.array([gap_and_distance(2, 10, 3, 30_000, seed) for seed in range(n_seeds)])
    assert results[:, 0].mean() < limit  # over 24 other bandits 0.002 with a standard deviation of 0.005
    assert results[:, 1].max() < 0.4


@pytest.mark.parametrize(
    ("n_seeds", "limit", "wrong"), [(1, 0.02, 0.01), pytest.param(3, 0.005, 0.03, marks=pytest.mark.slow)]
)
def test_short_sessions_give_the_value_not_the_parameters(n_seeds, limit, wrong):
    """H = 2 < 2M - 1: the value gap vanishes while the parameters stay wrong (section 3.3)."""
    results = np.array([gap_and_distance(2, 10, 2, 100_000, seed) for seed in range(n_seeds)])
    assert results[:, 0].mean() < limit
    assert results[:, 1].mean() > wrong


def test_the_message_tells_regime_and_residual(rng):
    _, core, log, _ = phases(2, 5, 2, 2000, seed=3)
    fit = lmab.fit(log, n_types=2, method=lmab.estimation.MomentMatching(design=core, restarts=3), rng=rng)
    assert "largest residual" in fit.message
    assert "delta_tsr" in fit.message
    assert "do not identify parameters" in fit.message
    assert "least weight" not in fit.message  # Sessions of two steps do not tell it.


def weight_of(seed, n_sessions):
    """The least weight that the moments of an uneven log give, and its interval."""
    _, core, log, rng = uneven(seed, n_sessions)
    task = Matching(core_moments(log, core, 3), core, 2, core.leeway)
    best = min((task.solve(task.random_start(rng), 0.001) for _ in range(3)), key=lambda one: one.cost)
    return best, task


def test_the_interval_of_the_least_weight_holds_the_truth():
    """Types that hardly differ leave their weights open, and the interval is wide there."""
    held, widths = [], []
    for seed in range(8):
        best, task = weight_of(seed, 20_000)
        low, high = task.least_weight(best)
        assert low <= best.weights.min() <= high
        held.append(low <= 0.1 <= high)
        widths.append(high / low)
    assert sum(held) >= 7
    assert min(widths) < 3 < 10 < max(widths)


def test_the_interval_does_not_depend_on_the_least_weight_that_was_asked(rng):
    best, task = weight_of(3, 20_000)
    free = task.least_weight(best)
    same = replace(best, point=task.restart(task.solve(task.random_start(rng), 0.05)))
    assert task.least_weight(same) == free  # It follows from weights and core values alone.
    with_weights = replace(best, weights=best.weights[::-1].copy(), core=best.core[:, ::-1].copy())
    np.testing.assert_allclose(task.least_weight(with_weights), free, rtol=1e-6)


def test_the_weight_of_types_that_are_the_same_is_not_known():
    best, task = weight_of(3, 2000)
    same = replace(best, core=np.repeat(best.core @ best.weights[:, None], 2, axis=1))
    low, high = task.least_weight(same)
    assert low < 1e-6
    assert high > 1 - 1e-6


def test_of_levels_that_neither_moments_nor_likelihood_tell_apart_the_lowest_cost_is_taken():
    """Costs .4, .3, .2 and 5 with log-likelihoods 0, -1, -9 and 0: the second is chosen."""
    _, core, log, _ = uneven(0, 2000)
    truth = np.array([[0.2, 0.8], [0.6, 0.3]])

    def level(cost, least):
        weights = np.array([least, 1 - least])
        return [Fit(weights, truth, cost, 0.0, 0.0, 0.0, np.zeros(5), True)]

    class Told:
        sessions = log

        def heldout(self, bandit):
            return np.array([{0.5: 0.0, 0.25: -1.0, 0.125: -9.0, 0.0625: 0.0}[float(bandit.weights[0])]])

    levels = [level(0.4, 0.5), level(0.3, 0.25), level(0.2, 0.125), level(5.0, 0.0625)]
    fits, bandit = _best_level(levels, core, Told())
    assert fits is levels[1]
    assert bandit.weights[0] == 0.25


def test_a_weight_that_the_log_hardly_tells_is_named(rng):
    _, core, log, _ = uneven(6, 20_000)
    fit = lmab.fit(log, n_types=2, method=lmab.estimation.MomentMatching(design=core, restarts=2), rng=rng)
    assert re.search(
        r"least weight 0\.\d+ \(95%: .* to .*, which is nearly nothing: types that differ little", fit.message
    )


def test_values_that_only_the_core_plays_pay_are_allowed_for(rng):
    _, core, log, _ = phases(2, 5, 3, 500, seed=4)
    rewards = log.rewards.copy()
    rewards[0] = 7.0
    odd = replace(log, rewards=rewards)
    fit = lmab.fit(odd, n_types=2, method=lmab.estimation.MomentMatching(design=core, restarts=2), rng=rng)
    assert fit.bandit.rewards.values.tolist() == [0, 1, 7]
    assert np.isfinite(fit.log_likelihood)


def test_arm_events_serve_as_well_as_pairs():
    """Remark A.1: a core set of events, three values, Algorithm 1 end to end."""
    rng = generator(5)
    bandit = lmab.LatentBandit.categorical([0.4, 0.6], rng.dirichlet(np.full(3, 0.5), size=(2, 6)), [0, 0.5, 1])
    environment = lmab.Simulator(bandit, horizon=3, rng=rng)
    core = lmab.moments.design(lmab.moments.subspace(environment.run(lmab.Uniform(6), 50_000), rank=2), events="events")
    log = environment.play(rng.choice(core.arms, size=(50_000, 3)))
    fit = lmab.fit(log, n_types=2, method=lmab.estimation.MomentMatching(design=core, restarts=4), rng=rng).bandit
    assert fit.distance(bandit) < 0.15


def test_stopping_and_iteration_limits_are_said(rng, monkeypatch):
    _, core, log, _ = phases(2, 5, 3, 500, seed=4)
    method = lmab.estimation.MomentMatching(design=core, restarts=2)
    assert lmab.fit(log, n_types=2, method=method, rng=rng).status == "converged"
    stopped = lmab.fit(log, n_types=2, method=method, rng=rng, progress=lambda _: True)
    assert (stopped.status, stopped.starts.drawn) == ("interrupted", 1)
    monkeypatch.setattr("lmab.paper.moment_matching._MAX_EVALUATIONS", 2)
    with pytest.warns(LmabWarning, match=r"did not converge.*raise restarts"):
        assert lmab.fit(log, n_types=2, method=method, rng=rng).status == "iteration limit"


def test_weights_keep_their_least_value(rng):
    _, core, log, _ = phases(2, 5, 3, 2000, seed=4)
    fit = lmab.fit(log, n_types=2, method=lmab.estimation.MomentMatching(design=core, w_min=0.4), rng=rng)
    assert fit.bandit.weights.min() >= 0.4 - 1e-9
    with pytest.raises(ValueError, match=r"w_min must be at most 1/2, got 0\.6"):
        lmab.fit(log, n_types=2, method=lmab.estimation.MomentMatching(design=core, w_min=0.6), rng=rng)


def test_a_core_set_is_found_from_the_log(rng):
    bandit = lmab.random_bandit(2, 6, rng=rng)
    log = lmab.simulate(bandit, lmab.Uniform(6), n_sessions=50_000, horizon=3, rng=rng)
    method = lmab.estimation.MomentMatching(restarts=4)
    assert lmab.fit(log, n_types=2, method=method, rng=rng).bandit.distance(bandit) < 0.3


def test_short_sessions_with_normal_rewards_are_cut(rng):
    bandit = lmab.LatentBandit.gaussian([0.5, 0.5], [[1.0, -1.0, 0.5], [-1.0, 1.0, 0.0]])
    log = lmab.simulate(bandit, lmab.Uniform(3), n_sessions=5000, horizon=2, rng=rng)
    fit = lmab.fit(log, n_types=2, method=lmab.estimation.MomentMatching(restarts=4), rewards="gaussian", rng=rng)
    assert fit.bins is not None
    assert fit.bandit.rewards.n_values == 17  # the cube root of 5000
    np.testing.assert_allclose(fit.bandit.weights @ fit.bandit.means, bandit.weights @ bandit.means, atol=0.15)


def test_short_sessions_with_normal_rewards_give_a_policy_that_earns(rng, tmp_path):
    """Appendix B.2 end to end: the policy plans on bins, and plays the real thing."""
    bandit = lmab.LatentBandit.gaussian([0.5, 0.5], [[2.0, -2.0, 0.3], [-2.0, 2.0, 0.3]])
    log = lmab.simulate(bandit, lmab.Uniform(3), n_sessions=20_000, horizon=2, rng=rng)
    fit = lmab.fit(log, n_types=2, method=lmab.estimation.MomentMatching(restarts=4), rewards="gaussian", rng=rng)
    policy = lmab.plan(fit.bandit, horizon=2, method=lmab.Exact()).policy
    policy.save(tmp_path / "policy.lmab")
    loaded = lmab.load(tmp_path / "policy.lmab")
    assert loaded.act_on([(0, 1.7)]) == policy.act_on([(0, 1.7)]) == 0
    assert loaded.act_on([(0, -1.7)]) == policy.act_on([(0, -1.7)]) == 1
    value = lmab.evaluate(policy, bandit, horizon=2, n_sessions=20_000, rng=rng)
    best = lmab.evaluate(lmab.Greedy(bandit), bandit, horizon=2, n_sessions=20_000, rng=rng)
    assert value.mean > best.mean - 0.1
    assert value.mean > 1.7  # the best fixed arm earns 0.6


def test_the_fine_grid_of_the_appendix(rng):
    bandit = lmab.LatentBandit.gaussian([0.5, 0.5], [[0.8, -0.8], [-0.8, 0.8]])
    log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=2000, horizon=2, rng=rng)
    method = lmab.estimation.MomentMatching(restarts=2, bins=None, epsilon=0.6)
    fit = lmab.fit(log, n_types=2, method=method, rewards="gaussian", rng=rng)
    family: Any = fit.bandit.rewards
    assert len(family.edges) == family.n_values - 1 > 20
    inside = log.rewards[(log.rewards > family.edges[0]) & (log.rewards < family.edges[-1])]
    assert len(inside) > 0.99 * log.n_steps
    assert np.abs(family.values[family.encode(inside)] - inside).max() <= 0.6 / 4 + 1e-9


def test_bins(rng):
    rewards = rng.standard_normal(1000)
    bins = Bins.at_quantiles(rewards, 4)
    cut = bins.apply(rewards)
    assert cut.mean() == pytest.approx(rewards.mean(), abs=1e-12)
    np.testing.assert_allclose(np.unique(cut, return_counts=True)[1], 250, atol=1)
    grid = Bins.appendix_grid(3, 0.5)
    assert np.abs(grid.apply(rewards) - rewards).max() <= 0.5 / 9 + 1e-12


def test_rewards_beyond_the_grid_stay_at_its_ends():
    grid = Bins.appendix_grid(3, 0.5)
    points = theory.gaussian_grid(3, 0.5)
    assert grid.apply(np.array([-100.0, points[0], points[3] + 1e-9, points[-1], 100.0])).tolist() == [
        points[0], points[0], points[3], points[-1], points[-1],
    ]  # fmt: skip
    wide = Bins.appendix_grid(3, 0.5, scale=2.0)
    np.testing.assert_allclose(wide.values, 2 * points)


def test_rewards_beyond_the_grid_are_zero_as_in_the_paper():
    printed, points = Bins.appendix_grid(3, 0.5, beyond="zero"), theory.gaussian_grid(3, 0.5)
    low, high = points[0], points[-1]
    rewards = np.array([low - 0.01, low, points[3] + 1e-9, high - 1e-9, high, 100.0])
    assert printed.apply(rewards).tolist() == [0.0, low, points[3], points[-2], 0.0, 0.0]
    with pytest.raises(ValueError, match="bins must have rising values to be cut by a policy"):
        printed.edges_between(printed.values)
    with pytest.raises(ValueError, match="beyond must be 'ends' or 'zero', got 'nothing'"):
        Bins.appendix_grid(3, 0.5, beyond="nothing")


def test_bins_refine_until_their_bias_vanishes(rng):
    """A type of mean 1 among others reads too low, because a bin has one value for all; less so in longer logs."""
    rewards = np.concatenate([rng.normal(1, 1, 200_000), rng.normal(-1, 1, 200_000)]).reshape(2, -1).T
    log = lmab.Sessions.from_arrays(np.zeros(rewards.shape, int), rewards)
    assert [len(Bins.refined(log[:n]).values) for n in (300, 8_000, 200_000)] == [8, 20, 58]
    biases = [1 - bins.apply(rewards[:, 0]).mean() for bins in (Bins.at_quantiles(log.rewards, 8), Bins.refined(log))]
    assert biases[0] > 0.01
    assert biases[0] > 4 * abs(biases[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_types", "n_arms", "horizon", "n_sessions", "limit"),
    [(2, 10, 3, 1_000, 0.06), (2, 10, 3, 100_000, 0.005), (2, 10, 2, 100_000, 0.005), (3, 8, 5, 100_000, 0.01)],
)
def test_value_gaps_of_algorithm_1(n_types, n_arms, horizon, n_sessions, limit):
    results = np.array([gap_and_distance(n_types, n_arms, horizon, n_sessions, seed) for seed in range(10)])
    print(f"M={n_types} A={n_arms} H={horizon} N={n_sessions}: gap {results[:, 0].mean():.4f}, "
          f"distance {results[:, 1].mean():.3f}")  # fmt: skip
    assert results[:, 0].mean() <= limit
    if horizon < 2 * n_types - 1:
        assert results[:, 1].mean() > 0.03


@pytest.mark.slow
def test_gaussian_moments_and_em_both_recover_and_em_is_closer():
    distances = []
    for seed in range(5):
        rng = generator(seed)
        bandit = lmab.LatentBandit.gaussian(rng.dirichlet([5, 5, 5]), rng.uniform(-1, 1, (3, 20)))
        environment = lmab.Simulator(bandit, horizon=5, rng=rng)
        core = lmab.moments.design(
            lmab.moments.subspace(environment.run(lmab.Uniform(20), 15_000), rank=3, rewards="gaussian")
        )
        plays = environment.play(rng.choice(core.arms, size=(15_000, 5)))
        logs: dict[Any, lmab.Sessions] = {
            lmab.estimation.MomentMatching(design=core): plays,
            lmab.EM(prior=0.0): environment.run(lmab.Uniform(20), 30_000),
        }
        fits = [
            lmab.fit(log, n_types=3, method=method, rewards="gaussian", scale=1.0, rng=rng).bandit
            for method, log in logs.items()
        ]
        distances.append([bandit.distance(fit) for fit in fits])
    moments, likelihood = np.mean(distances, axis=0)
    print(f"Gaussian M=3 A=20 H=5 30000 sessions each: moments {moments:.3f}, EM {likelihood:.3f}")
    assert likelihood < moments < 0.5


def test_smaller_least_weights_are_tried_while_they_help():
    """A rare type: weights of 1/2 do not fit, and halving the least weight goes on until the cost stays."""
    rng = np.random.default_rng(0)
    bandit = lmab.LatentBandit.bernoulli([0.9, 0.1], [[0.9, 0.2, 0.6], [0.1, 0.8, 0.3]])
    log = lmab.simulate(bandit, lmab.Uniform(3), n_sessions=40_000, horizon=4, rng=rng)
    free = lmab.fit(log, n_types=2, method=lmab.estimation.MomentMatching(restarts=4), rng=1)
    assert free.bandit.weights.min() == pytest.approx(0.1, abs=0.03)
    with pytest.warns(LmabWarning, match="does not match the moments"):
        tied = lmab.fit(log, n_types=2, method=lmab.estimation.MomentMatching(restarts=4, w_min=0.5), rng=1)
    np.testing.assert_allclose(tied.bandit.weights, 0.5)


def test_a_search_that_is_stopped_keeps_the_least_weights_it_has_finished(rng, monkeypatch):
    calls, tried = itertools.count(1), []

    def spy(levels, core, log):
        tried.extend(map(len, levels))
        return _best_level(levels, core, log)

    monkeypatch.setattr("lmab.paper.moment_matching._best_level", spy)
    log = lmab.simulate(lmab.random_bandit(2, 4, rng=rng), lmab.Uniform(4), n_sessions=800, horizon=3, rng=rng)
    method = lmab.estimation.MomentMatching(restarts=2)
    found = lmab.fit(log, n_types=2, method=method, rng=rng, progress=lambda _: next(calls) == 3)
    assert (found.status, tried) == ("interrupted", [2, 1])


@pytest.mark.parametrize(("horizon", "order"), [(2, 2), (3, 3), (5, 3)])
def test_moments_up_to_order_2m_minus_1_are_matched(horizon, order, rng):
    log = lmab.simulate(lmab.random_bandit(2, 4, rng=rng), lmab.Uniform(4), n_sessions=800, horizon=horizon, rng=rng)
    fit = lmab.fit(log, n_types=2, method=lmab.estimation.MomentMatching(restarts=1), rng=rng)
    assert f"moments up to order {order} over" in fit.message
    assert ("do not identify" in fit.message) == (horizon < 3)


def test_weights_are_a_softmax_above_the_least_one(rng):
    _, core, log, _ = phases(2, 5, 3, 500, seed=4)
    task = Matching(core_moments(log, core, 2), core, 3, slack=0.0)
    point = np.concatenate([[1.0, -0.5], np.full(3 * task.n_core, 0.4)])
    weights, values = task.unpack(point, 0.1)
    raised = np.exp([1.0, -0.5, 0.0])
    np.testing.assert_allclose(weights, 0.1 + 0.7 * raised / raised.sum())
    assert values.shape == (task.n_core, 3)
    residuals = task.residuals(point, 0.1)
    expected = np.concatenate([(0.4**t.order - t.entries) / t.stderr for t in task.tensors])
    np.testing.assert_allclose(residuals[: len(expected)], expected)


def test_leaving_the_probabilities_is_penalised_beyond_the_slack_of_the_type():
    """Equation (valid_param_2): the slack of a type is slack / sqrt(weight), Z times that for sums."""
    core = lmab.moments.design(lmab.moments.Subspace(np.eye(2), np.ones(2), 1, np.array([0.0, 1.0])))
    log = lmab.Sessions.from_arrays(np.zeros((20, 2), int), np.tile([0.0, 1.0], (20, 1)))
    weights = np.array([0.25, 0.75])
    for slack in (0.0, 0.02):
        task = Matching(core_moments(log, core, 1), core, 2, slack=slack)
        beyond, side = task._violations(weights, np.array([[1.2, 1.2], [-0.1, -0.1]]))
        own = slack / np.sqrt(weights)
        np.testing.assert_allclose(beyond, [0.2 - own, -0.1 + own, np.maximum(0.1 - 2 * own, 0)], atol=1e-12)
        np.testing.assert_array_equal(side, [[1, 1], [-1, -1], [1, 1]])
        inside, _ = task._violations(weights, np.array([[0.3, 0.3], [0.7, 0.7]]))
        np.testing.assert_allclose(inside, 0, atol=1e-12)


def uneven(seed, n_sessions=20_000):
    """Algorithm 1's phases on two types of weights .1 and .9."""
    rng = generator(seed, 31)
    bandit = lmab.LatentBandit.bernoulli([0.1, 0.9], lmab.random_bandit(2, 8, rng=rng).means)
    environment = lmab.Simulator(bandit, horizon=3, rng=rng)
    core = lmab.moments.design(lmab.moments.subspace(environment.run(lmab.Uniform(8), n_sessions), rank=2))
    log = environment.play(
        np.array([arm for arm, _ in core.pairs])[rng.integers(len(core.pairs), size=(n_sessions, 3))]
    )
    return bandit, core, log, rng


def test_the_truth_keeps_its_bounds_on_uneven_weights():
    """Lemma 3.7, equation (valid_param_2): rebuilt types leave probabilities by what their weight allows."""
    for seed in range(20):
        bandit, core, *_ = uneven(seed, 3000)
        truth = bandit.rewards.table
        assert core.leeway is not None
        off = np.abs(core.onto_pairs @ truth[core.support] - truth).max(axis=0)
        assert (off <= core.leeway / np.sqrt(bandit.weights)).all()


def test_uneven_weights_are_matched():
    """A bound that does not allow for the error of the subspace cannot be kept, and costs the match."""
    matched, tied = [], []
    for seed in range(2):
        bandit, core, log, rng = uneven(seed, 50_000)
        fit = lmab.fit(log, n_types=2, method=lmab.estimation.MomentMatching(design=core, restarts=3), rng=rng)
        assert fit.status == "converged"
        matched.append(fit.bandit.distance(bandit))
        same = replace(core, error=1e-4)  # nearly no leeway
        with pytest.warns(LmabWarning, match="does not match the moments"):
            tight = lmab.fit(log, n_types=2, method=lmab.estimation.MomentMatching(design=same, restarts=3), rng=rng)
        assert (tight.status, tight.converged) == ("unmatched", False)
        tied.append(tight.bandit.distance(bandit))
    assert np.mean(matched) < np.mean(tied) - 0.03


def test_moments_of_more_types_than_allowed_are_not_matched(rng):
    """Two types cannot have the moments of three: the status says so, and a warning says by how much."""
    bandit = lmab.LatentBandit.bernoulli([0.4, 0.3, 0.3], [[0.9, 0.1, 0.1], [0.1, 0.9, 0.1], [0.1, 0.1, 0.9]])
    log = lmab.simulate(bandit, lmab.Uniform(3), n_sessions=20_000, horizon=3, rng=rng)
    core = lmab.moments.design(lmab.moments.subspace(log, rank=3))
    with pytest.warns(LmabWarning, match=r"does not match the moments.*more than .* standard errors"):
        fit = lmab.fit(log, n_types=2, method=lmab.estimation.MomentMatching(design=core, restarts=2), rng=rng)
    assert fit.status == "unmatched"
    few = lmab.fit(log, n_types=3, method=lmab.estimation.MomentMatching(design=core, restarts=2), rng=rng)
    assert few.status == "converged"


def test_bounds_become_firmer_until_they_are_kept(rng):
    """Moments pull beyond the bounds here: a soft penalty gives way, the search does not."""
    _, core, log, _ = uneven(2, 300)
    task = Matching(core_moments(log, core, 2), core, 2, slack=0.05)
    start = task.random_start(rng)
    assert task.solve(start, 0.1).beyond <= 1e-3 < task._solve(start, 0.1).beyond


def test_the_error_of_a_subspace_is_measured_and_saved(tmp_path):
    core = uneven(0)[1]
    assert core.error is not None
    core.save(tmp_path / "core.lmab")
    assert lmab.load(tmp_path / "core.lmab").leeway == core.leeway
    by_hand = lmab.moments.design(np.eye(3))
    assert by_hand.leeway is None


@pytest.mark.parametrize(
    ("rewards", "means", "variance"),
    [
        ([[1.0, 3.0], [2.0, 6.0], [0.0, 3.0]], [[1.0, 1.0], [2.0, 4.0]], 59 / 6 - (1.0 + 10.0) / 2),
        ([[1.0, 3.0], [1.0, 3.0], [1.0, 3.0]], [[1.0, 1.0], [3.0, 3.0]], 1e-4),  # of the rewards' own, which is 1
        ([[2.0, 2.0], [2.0, 2.0], [2.0, 2.0]], [[2.0, 2.0], [2.0, 2.0]], 1e-12),
    ],
)
def test_the_scale_is_what_the_means_leave(rewards, means, variance, monkeypatch):
    """A ten-thousandth of the variance of all rewards at least; the log is looked at in parts."""
    monkeypatch.setattr(moment_matching, "_SESSIONS", 2)
    log = lmab.Sessions.from_arrays([[0, 1]] * 3, rewards)
    found = moment_matching._scale(log, np.array([0.5, 0.5]), np.array(means))
    assert found**2 == pytest.approx(variance, rel=1e-9)
