"""Estimation of counts: the EM map, chains, information, ranks and traits, against brute force."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import gammaln
from scipy.stats import poisson

import lmab
from lmab.errors import InvalidArgument, LmabWarning
from lmab.estimation import Prior
from lmab.estimation import counts as module
from lmab.estimation.climb import Confined, Likelihood, climb
from lmab.estimation.families import observe
from lmab.estimation.log import Beside, CodeBlock
from lmab.estimation.traits.surface import Points, TraitArms
from lmab.model import belief
from lmab.parallel import SERIAL

TRUTH = lmab.LatentBandit.counts([0.6, 0.4], [[3.0, 0.4, 1.0, 0.2], [0.5, 2.5, 1.2, 0.2]])


@pytest.fixture
def sessions(rng):
    return lmab.simulate(TRUTH, lmab.Uniform(4), n_sessions=400, horizon=4, rng=rng)


def small(rng, n=12):
    return lmab.simulate(TRUTH, lmab.Uniform(4), n_sessions=n, horizon=3, rng=rng)


def test_the_expectation_is_that_of_every_session_alone(rng):
    sessions = small(rng)
    log = observe(sessions, rewards="counts")
    statistics, total = log.expectation(log.pack(TRUTH), SERIAL)
    joint = belief.log_joint(TRUTH, sessions)
    shares = belief.posterior(TRUTH, sessions)
    assert total[0] == pytest.approx(np.logaddexp.reduce(joint, axis=1).sum(), rel=1e-12)
    np.testing.assert_allclose(statistics[0, 0, :2], shares.sum(axis=0), rtol=1e-9)
    plays, sums = np.zeros((4, 2)), np.zeros((4, 2))
    owner = np.repeat(np.arange(len(sessions)), sessions.lengths)
    np.add.at(plays, sessions.arms, shares[owner])
    np.add.at(sums, sessions.arms, shares[owner] * sessions.rewards[:, None])
    np.testing.assert_allclose(statistics[0, 1:5, :2], plays, atol=1e-9)
    np.testing.assert_allclose(statistics[0, 5:9, :2], sums, atol=1e-9)


@pytest.mark.parametrize("prior", [0.0, 2.0])
def test_the_map_finds_the_best_means_for_its_statistics(prior, rng):
    log = observe(small(rng), rewards="counts")
    pseudo, model = log.prior(prior), log.pack(TRUTH)
    statistics = log.expectation(model, SERIAL)[0]
    best = log.maximise(statistics, model, pseudo)

    def expected(means):
        plays, sums = statistics[0, 1:5, :2], statistics[0, 5:9, :2]
        seen = (sums * np.log(means) - plays * means).sum()
        changed = best.copy()
        log.means_of(changed)[0, :, :2] = means
        return seen + log.log_prior(changed[:, :, :2], pseudo)[0]

    top = log.means_of(best)[0, :, :2]
    assert (log.means_of(best)[0, :, :2] > 0).all() or prior == 0.0
    for arm, kind in np.argwhere(top > 1e-3):
        for factor in (0.97, 1.03):
            moved = np.maximum(top, 1e-12).copy()
            here = expected(moved)
            moved[arm, kind] *= factor
            assert expected(moved) < here


@pytest.mark.parametrize("prior", [0.0, 1.0])
@pytest.mark.parametrize("accelerate", [True, False])
def test_the_objective_never_falls(prior, accelerate, rng):
    log = observe(small(rng, 60), rewards="counts")
    task = Likelihood(log, 3, log.prior(prior), SERIAL)
    found = climb(task, log.random_models(3, 3, rng), left=0.0, max_maps=40, accelerate=accelerate)
    for trace in found.traces:
        assert (np.diff(trace) >= -1e-9 * np.abs(trace[0])).all()


def test_a_rank_is_kept_and_the_objective_never_falls(rng):
    log = observe(small(rng, 80), rewards="counts")
    task = Confined(Likelihood(log, 4, log.prior(0.5), SERIAL), 2)
    start = np.stack([task.project(model) for model in log.random_models(2, 4, rng)])
    found = climb(task, start, left=0.0, max_maps=30, accelerate=True)
    for trace, model in zip(found.traces, found.models, strict=True):
        assert (np.diff(trace) >= -1e-9 * np.abs(trace[0])).all()
        means = log.bandit(model, 4).means
        assert np.linalg.matrix_rank(means - means.mean(axis=0), tol=1e-6) <= 1
    assert found.traces[0][-1] > found.traces[0][0] + 0.1


@pytest.mark.parametrize("prior", [0.0, 1.0, "learned"])
def test_recovers_a_bandit(prior, rng):
    log = lmab.simulate(TRUTH, lmab.Uniform(4), n_sessions=3000, horizon=5, rng=rng)
    method = lmab.EM(prior=prior, restarts=6, sweeps=30)
    estimate = lmab.fit(log, n_types=2, rewards="counts", method=method, rng=0, check=False)
    assert estimate.converged
    assert estimate.bandit.distance(TRUTH) < 0.2
    assert estimate.n_parameters == 1 + 8
    assert estimate.log_likelihood >= observe(log, rewards="counts").log_likelihood(TRUTH) - 5.0


def test_a_packed_log_gives_the_same_bits(sessions, tmp_path):
    packed = lmab.pack(sessions, tmp_path / "packed")
    method = lmab.EM(prior="learned", restarts=3, sweeps=12)
    one, other = (
        lmab.fit(data, n_types=2, rewards="counts", method=method, rng=1, check=False) for data in (sessions, packed)
    )
    assert one.log_likelihood == other.log_likelihood
    np.testing.assert_array_equal(one.bandit.means, other.bandit.means)
    np.testing.assert_array_equal(one.information().matrix, other.information().matrix)


def test_saved_and_loaded_it_knows_its_log(sessions, tmp_path):
    estimate = lmab.fit(sessions, n_types=2, rewards="counts", method=lmab.EM(prior=1.0, restarts=3), rng=1)
    estimate.save(tmp_path / "fit.lmab")
    again = lmab.load(tmp_path / "fit.lmab").with_log(sessions)
    assert again.bandit == estimate.bandit
    assert again.encoded.log_likelihood(again.bandit) == pytest.approx(estimate.log_likelihood, rel=1e-12)


def test_rewards_that_are_no_counts_are_refused(rng):
    log = lmab.Sessions.from_arrays([[0, 1], [1, 0]], [[1.0, 0.5], [2.0, 3.0]])
    with pytest.raises(InvalidArgument, match=r"whole numbers of at least 0, got 0\.5"):
        lmab.fit(log, n_types=1, rewards="counts", rng=rng)
    many = lmab.Sessions.from_arrays(np.zeros((1200, 1), int), np.arange(1200.0)[:, None])
    with pytest.raises(InvalidArgument, match="at most 1000 different values to be counts, got 1200"):
        lmab.fit(many, n_types=1, rewards="counts", rng=rng)
    with pytest.raises(InvalidArgument, match="values and scale must be None for counts"):
        lmab.fit(log, n_types=1, rewards="counts", scale=1.0, rng=rng)
    with pytest.raises(InvalidArgument, match="bandit must have counts as rewards"):
        observe(small(rng), rewards="counts").pack(lmab.LatentBandit.bernoulli([1.0], [[0.5] * 4]))


def test_counts_that_vary_too_much_are_told(rng):
    arms, means = rng.integers(3, size=(800, 4)), np.array([1.0, 2.0, 4.0])
    wild = rng.poisson(means[arms] * rng.gamma(0.3, 1 / 0.3, size=arms.shape)).astype(float)
    method = lmab.EM(prior=1.0, restarts=2)
    with pytest.warns(LmabWarning, match=r"Poisson's law does not fit the counts: .* pass rewards='binned'"):
        lmab.fit(lmab.Sessions.from_arrays(arms, wild), n_types=1, rewards="counts", method=method, rng=0)
    tame = lmab.Sessions.from_arrays(arms, rng.poisson(means[arms]).astype(float))
    fit = lmab.fit(tame, n_types=1, rewards="counts", method=method, rng=0)
    assert fit.encoded.misfit(fit.bandit) == []


def test_the_information_is_minus_the_second_derivative(rng):
    log, prior = observe(small(rng, 40), rewards="counts"), 0.7
    pseudo = log.prior(prior)
    information = log.information(TRUTH, pseudo)

    def objective(move):
        coordinates = information.coordinates
        rewards, weights = coordinates.moved(move[None])[0], coordinates.moved_weights(move[None])[0]
        bandit = replace(TRUTH, weights=weights, rewards=rewards)
        return log.log_likelihood(bandit) + log.log_prior(log.pack(bandit)[:, :, :2], pseudo)[0]

    size, step = information.coordinates.size, 1e-3
    found, eye = np.empty((size, size)), np.eye(size) * step
    for i in range(size):
        for j in range(size):
            corners = [objective(a * eye[i] + b * eye[j]) for a, b in ((1, 1), (1, -1), (-1, 1), (-1, -1))]
            found[i, j] = -(corners[0] - corners[1] - corners[2] + corners[3]) / (4 * step**2)
    np.testing.assert_allclose(information.matrix, found, rtol=1e-3, atol=1e-3)


def test_standard_errors_of_a_single_type_are_those_of_a_mean(rng):
    log = lmab.simulate(
        lmab.LatentBandit.counts([1.0], [[2.0, 5.0]]), lmab.Uniform(2), n_sessions=500, horizon=2, rng=rng
    )
    estimate = lmab.fit(log, n_types=1, rewards="counts", method=lmab.EM(prior=0.0), rng=0)
    plays = np.bincount(log.arms)
    expected = np.sqrt(estimate.bandit.means[0] / plays)
    np.testing.assert_allclose(estimate.standard_errors().means[0], expected, rtol=1e-6)


def test_the_law_of_arms_is_the_integral_over_its_grid(rng):
    """Evidence of an arm at a centre and a spread: gamma-Poisson, by numerical integration over the mean."""
    arms = module.GammaArms(np.array([1.0, 3.0, 0.5]), np.ones(3, bool))
    plays, sums = np.array([[4.0, 2.0]]), np.array([[7.0, 1.0]])
    evidence = arms._evidence(plays, sums)
    grid = np.exp(np.linspace(-14, 5, 40_001))
    for g, k in ((0, 0), (20, 3), (40, 6)):
        centre, shape = np.exp(arms._logs[g]), 1 / module._SPREADS[k] ** 2
        log_density = (
            shape * np.log(shape / centre) - gammaln(shape) + (shape - 1) * np.log(grid) - shape / centre * grid
        )
        total = 0.0
        for n, y in zip(plays[0], sums[0], strict=True):
            total += np.log(np.trapezoid(np.exp(log_density + y * np.log(grid) - n * grid) * grid, np.log(grid)))
        assert evidence[0, g, k] == pytest.approx(total, abs=1e-3)


def test_a_chain_stays_where_the_log_is_sure(rng):
    log = observe(lmab.simulate(TRUTH, lmab.Uniform(4), n_sessions=4000, horizon=5, rng=rng), rewards="counts")
    chain = log.chain(TRUTH)
    drawn = []
    for sweep in range(40):
        chain.sweep(rng)
        if sweep >= 10:
            drawn.append(chain.rewards.means)
            centre, inverse = chain.likely(rng)
            assert (inverse > 0).all()
            assert centre.shape == (4,)
    np.testing.assert_allclose(np.mean(drawn, axis=0), TRUTH.means, atol=0.15)
    assert chain.weights.sum() == pytest.approx(1.0)


def test_an_arm_played_once_is_taken_for_an_arm(rng):
    """Thirty arms of mean about 1, and one that paid 9 in its only play: the learned prior draws it to the others."""
    arms = rng.integers(30, size=(600, 3))
    rewards = rng.poisson(1.0, size=arms.shape).astype(float)
    arms[0, 0], rewards[0, 0] = 30, 9.0
    log = lmab.Sessions.from_arrays(arms, rewards, n_arms=31)
    plain, learned = (
        lmab.fit(log, n_types=1, rewards="counts", method=lmab.EM(prior=prior, restarts=2, sweeps=30), rng=0)
        for prior in (0.0, "learned")
    )
    assert plain.bandit.means[0, 30] == 9.0
    assert learned.bandit.means[0, 30] < 4.0
    assert learned.learned.strength[30] > 0.3


def test_unrelated_arms_take_the_best_shape_for_each_arm(rng):
    n = 2000
    arms = np.tile([0, 1, 0, 1, 0, 1], (n, 1))
    means = np.where(arms == 0, rng.gamma(2.0, 1.0, size=(n, 1)), 2.0)
    log = lmab.Sessions.from_arrays(arms, rng.poisson(means).astype(float))
    train, test = log[:1500], log[1500:]
    scores = observe(train, rewards="counts").unrelated(test)
    rewards = test.to_arrays()[1]
    own, other = rewards[:, ::2], rewards[:, 1::2]
    total = own.sum(axis=1)
    truth = gammaln(2 + total) - gammaln(2.0) - (2 + total) * np.log(1 + 3) - gammaln(own + 1).sum(axis=1)
    truth = truth + poisson.logpmf(other, 2.0).sum(axis=1)
    assert scores.mean() == pytest.approx(truth.mean(), abs=0.02)


def test_codes_beside_the_arms_give_groups_weights_of_their_own(rng):
    sessions = small(rng, 60)
    plain, groups = observe(sessions, rewards="counts"), rng.integers(2, size=60)
    log, ratios = (
        type(plain).encode(sessions, plain.listed, Beside.of(CodeBlock("more", 2, front=groups))),
        np.array([[1.5, 0.25], [0.5, 1.75]]),
    )
    model = log.pack(TRUTH)
    model[0, -2:, :2] = ratios
    own = [replace(TRUTH, weights=TRUTH.weights * ratio) for ratio in ratios]
    expected = sum(plain.subset(np.flatnonzero(groups == g)).log_likelihood(one) for g, one in enumerate(own))
    assert log.expectation(model, SERIAL)[1][0] == pytest.approx(expected, rel=1e-12)


def test_the_surface_of_traits_has_the_derivatives_of_its_likelihood(rng):
    log = observe(small(rng, 50), rewards="counts")
    surface, points = log.surface, Points.of(1, 5)
    parameters = np.column_stack([surface.intercepts(), rng.normal(size=(4, 1)) * 0.3])
    statistics = log.expectation(surface.model(parameters, 1.0, points), SERIAL)[0][0]

    def value(at):
        means = surface._means(at, points)
        plays, sums = statistics[1:5, :5], statistics[5:9, :5]
        return (sums * np.log(means) - plays * means).sum(axis=1)

    gradient, information = surface.derivatives(statistics, parameters, 1.0, points)
    for p in range(2):
        move = np.zeros_like(parameters)
        move[:, p] = 1e-4
        up, here, down = value(parameters + move), value(parameters), value(parameters - move)
        np.testing.assert_allclose(gradient[:, p], (up - down) / 2e-4, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(information[:, p, p], -(up - 2 * here + down) / 1e-8, rtol=1e-2, atol=1e-2)
    arms = TraitArms(parameters, np.tile(0.04 * np.eye(2), (4, 1, 1)), np.zeros(2), np.ones(2))
    draws = rng.normal(size=(200_000, 2)) * 0.2
    for k, place in enumerate(points.places[:, 0]):
        expected = np.exp(parameters[1, 0] + parameters[1, 1] * place + draws @ [1.0, place]).mean()
        assert surface.averaged(arms, points).means[k, 1] == pytest.approx(expected, rel=0.02)


def test_traits_and_methods_of_moments_fit_counts(rng):
    log = lmab.simulate(TRUTH, lmab.Uniform(4), n_sessions=4000, horizon=5, rng=rng)
    traits = lmab.fit(log, rewards="counts", method=lmab.Traits(n_factors=1, n_points=9), rng=0, check=False)
    assert traits.factors.n_alive == 1
    assert (traits.standard_errors().means > 0).all()
    tensor = lmab.estimation.TensorDecomposition()
    found = lmab.fit(log, n_types=2, rewards="counts", method=tensor, rng=0)
    assert found.bandit.distance(TRUTH) < 0.6


def test_a_prior_is_pseudo_plays_at_the_mean(rng):
    log = observe(small(rng), rewards="counts")
    prior = Prior(np.array([1.0, 2.0, 0.0, 3.0]), np.array([2.0, 0.0, 1.0, 4.0]))
    model = log.pack(TRUTH)
    means = TRUTH.means.T
    expected = sum(
        strength * (poisson.logpmf(centre, mean) + gammaln(centre + 1))
        for strength, centre, row in zip(prior.strength, prior.centre, means, strict=True)
        for mean in row
    )
    assert log.log_prior(model[:, :, :2], prior)[0] == pytest.approx(expected)
    assert prior.active


# People who leave.

LEFT_AFTER = np.broadcast_to([0.5, 0.3, 0.05], (2, 3, 3)) * np.array([1.0, 0.4, 0.8])[None, :, None]
LEFT = lmab.LatentBandit.counts([0.6, 0.4], [[0.5, 3.0, 1.0], [2.0, 0.4, 1.5]], leaving=LEFT_AFTER)


@pytest.fixture(scope="module")
def left_log() -> lmab.Sessions:
    return lmab.simulate(LEFT, lmab.Uniform(3), n_sessions=3000, horizon=5, rng=3)


def test_who_leaves_after_counts_is_counted(left_log):
    """The last chance is that of all larger counts, and the types stay what they are without it."""
    method = lmab.EM(restarts=3, tolerance=1e-4, sweeps=6, threads=1)
    found, ignored = (
        lmab.fit(left_log, n_types=2, rewards="counts", leaving=form, method=method, check=False, rng=0)
        for form in ("auto", "none")
    )
    assert replace(found.bandit, leaving=None) == ignored.bandit
    assert found.bandit.leaving.shape == (2, 3, 4)
    for count in range(4):
        np.testing.assert_allclose(found.bandit.leaving[0, :, count], LEFT_AFTER[0, :, min(count, 2)], atol=0.06)
    assert "leaving is modelled by arm and reward" in found.message
    plan = lmab.plan(found.bandit, horizon=4)
    assessment = lmab.assess(found, plan, left_log, n_draws=20, rng=1)
    value = lmab.evaluate(plan.policy, LEFT, horizon=4, n_sessions=20_000, rng=2).mean
    assert assessment.people_leave
    assert assessment.value[0] <= value <= assessment.value[1]
    assert "at most 4 steps" in assessment.sentence


def test_plans_for_counts_that_people_leave_earn_what_they_prove():
    """Against histories written out: what is seen in bins goes on as often as its counts do."""
    table = LEFT.outcomes(6).table.reshape(3, 6, 2)
    np.testing.assert_allclose(table.sum(axis=1), LEFT.stays.T, atol=1e-12)
    plan = lmab.plan(LEFT, horizon=4)
    earned = lmab.evaluate(plan.policy, LEFT, horizon=4, n_sessions=40_000, rng=5)
    assert plan.lower <= earned.mean + 3 * earned.stderr
    assert plan.upper >= earned.mean - 3 * earned.stderr
    ignored = lmab.plan(replace(LEFT, leaving=None), horizon=4)
    assert ignored.lower > 1.1 * earned.mean
    assert LEFT.stays[0, 0] == pytest.approx(
        1
        - sum(chance * share for chance, share in zip([0.5, 0.3], [np.exp(-0.5), 0.5 * np.exp(-0.5)], strict=True))
        - 0.05 * (1 - 1.5 * np.exp(-0.5))
    )


def test_a_session_that_goes_on_updates_the_belief_by_its_counts():
    apart = replace(LEFT, leaving=LEFT_AFTER * np.array([1.0, 0.2])[:, None, None])
    policy = lmab.plan(apart, horizon=3).policy
    state = policy.observe(policy.start(), 0, 4.0)
    seen = np.array([0.6, 0.4]) * apart.rewards.likelihood(np.array([0]), np.array([4.0]))[0] * [0.95, 0.99]
    np.testing.assert_allclose(policy.belief(state), seen / seen.sum(), rtol=1e-9)


APART = replace(LEFT, leaving=np.stack([LEFT_AFTER[0] * 1.6, LEFT_AFTER[1] * 0.2]))


@pytest.fixture(scope="module")
def apart_log() -> lmab.Sessions:
    return lmab.simulate(APART, lmab.Uniform(3), n_sessions=6000, horizon=6, rng=4)


def test_letters_of_counts_have_the_likelihood_of_the_definition(apart_log):
    log = observe(apart_log, rewards="counts").with_letters()
    by_session = np.logaddexp.reduce(belief.log_joint(APART, apart_log), axis=1)
    assert log.log_likelihood(APART) == pytest.approx(by_session.sum(), rel=1e-12)
    assert log.without_letters().log_likelihood(APART) == pytest.approx(
        np.logaddexp.reduce(belief.log_joint(replace(APART, leaving=None), apart_log), axis=1).sum(), rel=1e-12
    )
    model = log.pack(APART)
    assert log.bandit(model[0], 2).leaving.shape == (2, 3, 4)
    np.testing.assert_allclose(log.bandit(model[0], 2).leaving, APART.leaving[:, :, [0, 1, 2, 2]])


def test_one_map_counts_who_left_by_type_arm_and_count(apart_log):
    """Written out: every step counts in each type by the posterior of its session; ends that nobody knows do not."""
    log = observe(apart_log, rewards="counts").with_letters()
    shares = np.exp(belief.log_joint(APART, apart_log))
    shares /= shares.sum(axis=1, keepdims=True)
    left, known = np.zeros((2, 3, 4, 2))
    for i, session in enumerate(shares):
        for step in range(apart_log.offsets[i], apart_log.offsets[i + 1]):
            last = step == apart_log.offsets[i + 1] - 1
            cell = apart_log.arms[step], int(min(apart_log.rewards[step], 3))
            left[cell] += session * (last and apart_log.ended[i] == "left")
            known[cell] += session * (not last or apart_log.ended[i] != "unknown")
    statistics, before = log.expectation(log.pack(APART), SERIAL)
    found = log.maximise(statistics, log.pack(APART), Prior.equal(log.centres, 0.0))
    np.testing.assert_allclose(log.leaving_of(found)[0, ..., :2], left / known, rtol=1e-9)
    assert log.expectation(found, SERIAL)[1][0] > before[0]
    prior = log.prior(3.0)  # chances to leave then have pseudo-steps, too
    pulled = log.leaving_of(log.maximise(statistics, log.pack(APART), prior))[0, ..., :2]
    np.testing.assert_allclose(pulled, (left + 10 * log.shown[..., None]) / (known + 10), rtol=1e-9)
    objective = [log.log_prior(found[:, :, :2], prior)[0]]
    best = log.maximise(statistics, log.pack(APART), prior)
    objective.append(log.log_prior(best[:, :, :2], prior)[0])
    assert objective[1] > objective[0]


def test_types_that_leave_differently_are_found_in_counts(apart_log, tmp_path):
    method = lmab.EM(restarts=4, tolerance=1e-6, sweeps=12, threads=1)
    found, ignored = (
        lmab.fit(apart_log, n_types=2, rewards="counts", leaving=form, method=method, check=False, rng=0)
        for form in ("auto", "none")
    )
    assert "leaving is modelled by type, arm and reward: held-out" in found.message
    assert np.diff(found.trace).min() > -1e-7
    order = np.argsort(found.bandit.means[:, 0])
    np.testing.assert_allclose(found.bandit.weights[order], [0.6, 0.4], atol=0.03)
    assert abs(ignored.bandit.weights[np.argsort(ignored.bandit.means[:, 0])][0] - 0.6) > 0.1
    np.testing.assert_allclose(found.bandit.means[order], APART.means, atol=0.25)
    seen = found.bandit.leaving[order][:, :, :3]
    np.testing.assert_allclose(seen, APART.leaving, atol=0.15)
    found.save(tmp_path / "found")
    assert lmab.load(tmp_path / "found").bandit == found.bandit


def test_an_assessment_of_types_that_leave_counts_holds(apart_log):
    method = lmab.EM(restarts=3, tolerance=1e-4, sweeps=6, threads=1)
    some = apart_log[:1500]
    found = lmab.fit(some, n_types=2, rewards="counts", leaving="type", method=method, check=False, rng=0)
    plan = lmab.plan(found.bandit, horizon=4)
    value = lmab.evaluate(plan.policy, APART, horizon=4, n_sessions=20_000, rng=2).mean
    assessment = lmab.assess(found, plan, some, n_draws=20, rng=1)
    assert assessment.value[0] <= value <= assessment.value[1]
    assert (found.standard_errors().means > 0).all()


def test_extrapolated_chances_to_leave_stay_chances(apart_log):
    log = observe(apart_log, rewards="counts").with_letters()
    near = log.pack(APART)
    for size in (-3.0, 3.0):
        trial = near.copy()
        log.leaving_of(trial)[:] += size
        repaired = log.leaving_of(log.repair(trial, near))
        assert (repaired > 0).all()
        assert (repaired < 1).all()


@pytest.mark.parametrize(("shape", "wanted"), [((2, 3, 0), "1 or more"), ((2, 2, 3), "2, 3, 1 or more")])
def test_chances_to_leave_after_counts_have_a_shape(shape, wanted):
    with pytest.raises(InvalidArgument, match="leaving must"):
        replace(LEFT, leaving=np.zeros(shape))
