"""Replanning: fixed choices among arms that the log plays, and the share of the best that rests on the others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from policies import in_turn
from seeds import generator
from test_estimation_information import categorical_case, gaussian_case

import lmab
from lmab.errors import InvalidArgument, TooLarge
from lmab.estimation.families import observe
from lmab.estimation.traits.coordinates import hidden_size
from lmab.evaluation import decision_tree, replanning
from lmab.evaluation.replanning import Crowd, Laplace, Replanner, laplace
from lmab.model import Categorical
from lmab.planning.problem import Plan, Status

BANDIT = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.2, 0.5, 0.4], [0.7, 0.2, 0.5, 0.4]])
PLAYED = np.array([False, True, True, True])
METHOD = lmab.Traits(n_factors=2, n_points=36)


def replanned(bandit, model, horizon, played, repeats=True):
    replanner = Replanner(bandit, lmab.plan(bandit, horizon=horizon, repeats=repeats), played)
    return replanner.replan(model.weights[None], [model.rewards])


@pytest.mark.parametrize(
    ("repeats", "fixed", "among_played"), [(True, 2 * 0.8, 2 * 0.5), (False, 0.8 + 0.5, 0.5 + 0.4)]
)
def test_fixed_choices_with_and_without_arms_that_were_never_played(repeats, fixed, among_played):
    found = replanned(BANDIT, BANDIT, 2, PLAYED, repeats)
    assert (found.fixed[0], found.fixed_played[0]) == (pytest.approx(fixed), pytest.approx(among_played))
    whole = replanned(BANDIT, BANDIT, 2, np.ones(4, bool), repeats)
    assert whole.fixed_played[0] == whole.fixed[0] == pytest.approx(fixed)
    few = replanned(BANDIT, BANDIT, 2, np.array([False, False, True, False]), repeats)  # no list of two such arms
    assert few.fixed_played[0] == pytest.approx(2 * 0.5 if repeats else fixed)


def test_the_share_of_arms_never_played_in_the_best():
    assert replanned(BANDIT, BANDIT, 2, PLAYED).unplayed[0] == pytest.approx(1.0)
    assert replanned(BANDIT, BANDIT, 2, np.array([True, True, False, True])).unplayed[0] == pytest.approx(0.0)
    assert replanned(BANDIT, BANDIT, 2, np.ones(4, bool)).unplayed[0] == 0.0
    # Without repeats the two best arms are played, and one of them never was.
    assert replanned(BANDIT, BANDIT, 2, PLAYED, False).unplayed[0] == pytest.approx(0.8 / 1.3)


def test_a_model_that_turns_the_arms_round_is_replanned_for():
    turned = lmab.LatentBandit.bernoulli([0.5, 0.5], BANDIT.means[:, ::-1])
    found = replanned(BANDIT, turned, 1, np.ones(4, bool))
    assert found.value[0] == pytest.approx(0.4)  # the plan goes on with arm 0
    assert found.optimum[0] == pytest.approx(0.8)
    assert found.transferred[0] == pytest.approx(0.4)  # arm 3 on the estimate


def test_of_many_arms_the_best_of_every_type_and_those_that_tell_most_are_planned_with(rng):
    bandit = lmab.LatentBandit.bernoulli([0.3, 0.7], rng.uniform(0.05, 0.95, (2, 250)))
    plan = lmab.plan(bandit, horizon=3, method=lmab.planning.Lookahead(0))
    replanner = Replanner(bandit, plan, np.ones(250, bool))
    found = set(replanner._useful(bandit.weights, bandit.means).tolist())
    average = bandit.weights @ bandit.means
    telling = bandit.weights @ bandit.means**2 - average**2
    best = {int(arm) for score in (*bandit.means, average, telling) for arm in np.argsort(-score)[: 24 + 3]}
    assert found == best | set(replanner._branches.arms.tolist())
    few = lmab.LatentBandit.bernoulli([0.3, 0.7], bandit.means[:, :200])
    fewer = Replanner(few, lmab.plan(few, horizon=3, method=lmab.planning.Lookahead(0)), np.ones(200, bool))
    assert len(fewer._useful(few.weights, few.means)) == 200  # not many yet


@pytest.mark.parametrize("repeats", [True, False])
def test_the_crowd_earns_what_the_policy_is_worth(rng, monkeypatch, repeats):
    monkeypatch.setattr(replanning, "_CROWD", 30_000)
    bandit = lmab.random_bandit(3, 5, rng=rng)
    plan = lmab.plan(bandit, horizon=4, repeats=repeats)
    found = Crowd.of(3, 4, rng).play(plan.policy, bandit, repeats=repeats)
    exact = lmab.evaluate(plan.policy, bandit, horizon=4).mean
    assert found.value == pytest.approx(exact, abs=0.01)
    assert found.plays.sum() == pytest.approx(4)
    assert repeats or found.plays.max() <= 1 + 1e-9


def test_a_fixed_choice_has_no_noise_at_all(rng):
    drawn = lmab.random_bandit(7, 5, rng=rng)
    bandit = lmab.LatentBandit(rng.dirichlet(np.ones(7)), drawn.rewards)
    found = Crowd.of(7, 3, rng).play(in_turn(4, 0, 2), bandit, repeats=False)
    average = bandit.weights @ bandit.means
    np.testing.assert_allclose(found.by_arm, average * [1, 0, 1, 0, 1], atol=1e-12)


def test_an_arm_is_left_out_after_it_was_played(rng):
    bandit = lmab.LatentBandit.bernoulli([1.0], [[0.9, 0.5, 0.1]])
    found = Crowd.of(1, 2, rng).play(lmab.Greedy(bandit), bandit, repeats=False)
    np.testing.assert_allclose(found.plays, [1, 1, 0])
    again = Crowd.of(1, 2, rng).play(lmab.Greedy(bandit), bandit, repeats=True)
    np.testing.assert_allclose(again.plays, [2, 0, 0])


def test_rewards_are_quantiles():
    bandit = lmab.LatentBandit.categorical([1.0], [[[0.2, 0.3, 0.5]]], [0.0, 1.0, 5.0])
    nothing = np.zeros(4, int)
    found = bandit.rewards.quantile(nothing, nothing, np.array([0.1, 0.3, 0.6, 0.9999]))
    assert found.tolist() == [0.0, 1.0, 5.0, 5.0]
    normal = lmab.LatentBandit.gaussian([1.0], [[3.0]], scale=2.0)
    np.testing.assert_allclose(
        normal.rewards.quantile(nothing[:2], nothing[:2], np.array([0.5, 0.8413447])), [3.0, 5.0], atol=1e-5
    )


def test_every_type_comes_equally_often_and_luck_is_reversed(rng, monkeypatch):
    monkeypatch.setattr(replanning, "_CROWD", 12)
    people = Crowd.of(4, 3, rng)
    assert np.bincount(people.types).tolist() == [3, 3, 3, 3]
    luck = people.luck.reshape(3, 4, 3)
    np.testing.assert_allclose(luck[0] + luck[1], 1)
    assert not np.allclose(luck[0] + luck[2], 1)
    assert len(Crowd.of(50, 3, rng).types) == 50


@pytest.fixture(scope="module")
def log():
    rng = generator(21)
    arms = np.array([rng.permutation(8)[:6] for _ in range(3000)])
    loadings = np.array([2.0, 1.5, 1.0, 0.5, -0.5, -1.0, -1.5, -2.0])
    logits = loadings[arms] * rng.normal(size=(3000, 1))
    return lmab.Sessions.from_arrays(arms, (rng.random(arms.shape) < 1 / (1 + np.exp(-logits))) * 1.0, n_arms=8)


@pytest.fixture(scope="module")
def estimate(log):
    return lmab.fit(log, method=METHOD, rng=0, check=False)


@pytest.fixture(scope="module")
def assessment(log, estimate):
    plan = lmab.plan(estimate, horizon=4, repeats=False, method=lmab.QMDP())
    return lmab.assess(estimate, plan, log, n_draws=30, rng=0)


def test_the_assessment_holds_what_the_truth_is_worth(assessment, estimate):
    low, high = assessment.value
    assert low < high
    assert assessment.gain[0] > 0  # one strong factor: probing pays
    assert low <= lmab.evaluate(lmab.Greedy(estimate.bandit, horizon=4), estimate.bandit, horizon=4).mean + 1
    assert assessment.optimum[1] >= assessment.value[0]
    assert assessment.regret[0] == 0.0
    assert assessment.n_factors == estimate.factors.n_alive == 1
    assert assessment.n_parameters == 16
    assert assessment.draws.shape == (60, 4)
    assert "number of types" not in assessment.table
    assert "if sessions differ in at most 1 latent factor" in assessment.table["confidence"]
    assert "sparse data" not in assessment.table


def test_a_file_keeps_the_assessment(assessment, tmp_path):
    assessment.save(tmp_path / "assessment.lmab")
    assert lmab.load(tmp_path / "assessment.lmab").n_factors == 1


def test_maximum_likelihood_has_no_assessment(log):
    fit = lmab.fit(log, method=lmab.Traits(n_factors=1, n_points=15, prior=None), rng=0, check=False)
    with pytest.raises(InvalidArgument, match="must be a maximum a posteriori one"):
        lmab.assess(fit, lmab.plan(fit, horizon=2), log, rng=0)


def test_more_sessions_hide_smaller_factors(log, estimate):
    data = estimate.encoded
    small, large = (hidden_size(each, 1.0) for each in (data.subset(np.arange(300)), data))
    assert small == pytest.approx(large * 10**0.25, rel=0.05)


def test_a_factor_near_the_noise_may_be_smaller_in_truth(estimate):
    coordinates = estimate.information().coordinates
    moves = np.zeros((2, coordinates.size))
    shrunk = coordinates.shrunk(moves, np.array([[1.0], [0.25]]))
    np.testing.assert_allclose(shrunk[0], 0)
    parameters = coordinates.arms.parameters + shrunk[1].reshape(coordinates.arms.parameters.shape)
    np.testing.assert_allclose(parameters[:, 0], coordinates.arms.parameters[:, 0])
    np.testing.assert_allclose(parameters[:, 1], 0.25 * coordinates.arms.parameters[:, 1])


def test_one_more_factor_moves_types_apart(estimate):
    coordinates = estimate.information().coordinates
    moves, none = np.zeros((1, coordinates.size)), np.zeros((1, 8))
    places = estimate.factors.points[:, 1]
    (same,) = coordinates.with_one_more(moves, none, places)
    np.testing.assert_allclose(same.means, coordinates.moved(moves)[0].means, atol=1e-9)
    (wider,) = coordinates.with_one_more(moves, none + 1.0, places)
    assert ((wider.means > same.means) == (places > 0)[:, None]).all()


def test_a_thin_log_has_wide_intervals(estimate, log, monkeypatch):
    monkeypatch.setattr(replanning, "_CROWD", 100)
    few = log[np.arange(60)]
    fit = lmab.fit(few, method=METHOD, rng=0, check=False)
    plan = lmab.plan(fit, horizon=3, repeats=False, method=lmab.QMDP())
    found = lmab.assess(fit, plan, few, n_draws=20, rng=0)
    assert found.n_parameters == 8 * (1 + fit.factors.n_alive)
    assert found.value[1] - found.value[0] > 0.2


def approximation(bandit, sessions, strength=1.0, **family):
    data = observe(sessions, **family)
    return laplace(data.information(bandit, data.prior(strength)))


def test_relabelling_types_arms_or_values_changes_no_eigenvalue(rng):
    bandit, sessions, _ = categorical_case(3, 4, 3, 50, rng)
    arms = [2, 0, 3, 1]
    other = bandit.relabel(types=[1, 2, 0], arms=arms)
    values = Categorical(other.rewards.probabilities[:, :, [1, 0, 2]], np.array([1.0, 0.0, 2.0]))
    moved = lmab.Sessions(np.argsort(arms)[sessions.arms], sessions.rewards, sessions.offsets, 4)
    before = approximation(bandit, sessions).eigenvalues
    after = approximation(lmab.LatentBandit(other.weights, values), moved).eigenvalues
    np.testing.assert_allclose(after, before, atol=1e-9)


def test_draws_have_the_covariance_of_the_information(rng):
    bandit, sessions, _ = categorical_case(1, 2, 2, 400, rng)
    found = approximation(bandit, sessions)
    assert found.n_floored == 0
    weights, families = found.draw(4000, rng)
    assert (weights == 1).all()
    means = np.array([family.means[0] for family in families])
    logits = np.log(means / (1 - means))
    plays = np.bincount(sessions.arms)
    expected = 1 / ((plays + 1) * bandit.means[0] * (1 - bandit.means[0]))
    np.testing.assert_allclose(logits.var(axis=0), expected, rtol=0.1)
    np.testing.assert_allclose(logits.mean(axis=0), np.log(bandit.means[0] / (1 - bandit.means[0])), atol=0.02)


def test_gaussian_draws_have_the_covariance_of_the_information(rng):
    truth, sessions, _ = gaussian_case(1, 2, 400, rng)
    bandit = lmab.fit(sessions, n_types=1, rewards="gaussian", method=lmab.EM(prior=0.0), rng=rng).bandit
    found = approximation(bandit, sessions, 0.0, rewards="gaussian")
    _, families = found.draw(4000, rng)
    means, scales = np.array([family.means[0] for family in families]), np.array([family.scale for family in families])
    expected = bandit.rewards.scale / np.sqrt(np.bincount(sessions.arms))
    np.testing.assert_allclose(means.std(axis=0), expected, rtol=0.1)
    np.testing.assert_allclose(np.log(scales).std(), 1 / np.sqrt(2 * sessions.n_steps), rtol=0.1)
    assert truth.n_types == 1


def test_what_the_log_says_nothing_about_is_floored_and_the_impossible_stays_impossible(rng):
    bandit = lmab.LatentBandit.categorical([1.0, 0.0], [[[0.5, 0.5, 0.0]] * 2, [[0.2, 0.8, 0.0]] * 2], [0, 1, 2])
    sessions = lmab.Sessions.from_arrays([[0, 0]] * 50, [[0.0, 1.0]] * 50, n_arms=2)
    found = approximation(bandit, sessions, values=[0, 1, 2])
    # All but the played arm's logit of value 0 against 1 in the type that is left: 9 coordinates less 1.
    assert (found.n_parameters, found.n_floored) == (9, 8)
    weights, families = found.draw(400, rng)
    assert weights[:, 1].max() < 1e-9
    unplayed = np.array([family.probabilities[0, 1] for family in families])
    assert np.log(unplayed[:, 1] / unplayed[:, 0]).std() == pytest.approx(1, rel=0.15)
    assert max(family.probabilities[:, :, 2].max() for family in families) < 1e-9


def test_draws_spread_along_the_eigenvectors(rng):
    """Two logits of one type, known well along one diagonal and badly along the other."""
    bandit = lmab.LatentBandit.bernoulli([1.0], [[0.5, 0.5]])
    log = lmab.Sessions.from_arrays([[0, 1]] * 2, [[0.0, 1.0], [1.0, 0.0]])
    data = observe(log)
    turned = np.array([[0.8, -0.6], [0.6, 0.8]])
    found = Laplace(data.information(bandit, data.prior(1.0)), np.array([2.0, 50.0]), turned)
    means = np.array([one.means[0] for one in found.draw(20_000, rng)[1]])
    expected = turned @ np.diag([1 / 2, 1 / 50]) @ turned.T
    np.testing.assert_allclose(np.cov(np.log(means / (1 - means)).T), expected, atol=0.02)


@pytest.fixture
def replanner(estimate):
    plan = lmab.plan(estimate, horizon=4, repeats=False, method=lmab.QMDP())
    return replanning.TraitsReplanner(estimate, plan, np.ones(8, bool), generator(5))


def test_a_factor_of_the_size_of_the_noise_may_be_anything_between_all_of_it_and_nothing(replanner, estimate):
    size = estimate.factors.size[estimate.factors.alive] * estimate.require_log().surface.unit
    left = replanner._shares(0.5 * float(size.min()), 4000, generator(6)) ** 2
    ratio = (0.5 * size.min() / size) ** 2
    np.testing.assert_allclose(left.mean(axis=0), 1 - ratio, atol=0.01)  # on average as much is missing as the noise is
    np.testing.assert_allclose(left.min(axis=0), 1 - 2 * ratio, atol=0.01)
    np.testing.assert_allclose(left.max(axis=0), 1, atol=0.01)


def test_the_optimum_of_a_traits_model_is_no_less_than_its_best_fixed_choice(replanner, estimate, monkeypatch):
    poor = replace(replanner._simulated._played_plan, by_arm=np.full(8, 0.1 / 8), plays=np.full(8, 0.5), stderr=0.0)
    monkeypatch.setattr(replanning.Crowd, "play", lambda *_, **__: poor)
    monkeypatch.setattr(replanning.Earned, "on", lambda *_: poor)
    optimum, value, _, fixed, *_ = replanner._simulated._one(estimate.bandit.weights, estimate.bandit.rewards)
    assert value == pytest.approx(0.1)
    assert optimum == fixed == estimate.bandit.best_fixed(4, repeats=False) > 0.1


def small_case():
    truth = lmab.LatentBandit.bernoulli([0.6, 0.4], [[0.9, 0.5, 0.2], [0.1, 0.4, 0.8]])
    log = lmab.simulate(truth, lmab.Uniform(3), n_sessions=600, horizon=4, rng=generator(1))
    estimate = lmab.fit(log, n_types=2, method=lmab.EM(prior="learned", restarts=4), rng=2, check=False)
    return log, estimate, lmab.plan(estimate, horizon=4)


def test_a_simulated_plan_is_worth_what_the_one_written_out_is_within_its_error():
    _, estimate, plan = small_case()
    played, bandit = np.ones(3, bool), estimate.bandit
    exact, simulated = Replanner(bandit, plan, played), replanning.CrowdReplanner(bandit, plan, played, generator(3))
    assert exact.stderr == 0
    assert 0 < simulated.stderr < 0.1
    crowds = [replanning.CrowdReplanner(bandit, plan, played, generator(seed)).own for seed in range(20)]
    assert np.mean(crowds) == pytest.approx(exact.own, abs=3 * simulated.stderr / np.sqrt(20))
    np.testing.assert_allclose(simulated.plays, exact.plays, atol=0.1)
    stays = np.array([0.5, 0.9])
    assert simulated.started(stays) == pytest.approx(exact.started(stays), abs=0.1)
    assert exact.started(np.ones(2)) == pytest.approx(exact.own)
    models = [lmab.random_bandit(2, 3, rng=generator(seed)) for seed in range(5)]
    weights, families = np.stack([one.weights for one in models]), [one.rewards for one in models]
    both = [one.replan(weights, families) for one in (exact, simulated)]
    np.testing.assert_allclose(both[1].value, both[0].value, atol=0.1)
    np.testing.assert_allclose(both[1].fixed, both[0].fixed)
    np.testing.assert_allclose(both[1].optimum, both[0].optimum, atol=0.1)


@pytest.mark.parametrize("leaves", [False, True])
def test_sessions_of_one_model_are_weighted_for_another_without_bias(leaves, rng):
    left = [rng.uniform(0, 0.4, (2, 3, 2)) if leaves else None for _ in range(2)]
    bandit = lmab.LatentBandit.bernoulli([0.6, 0.4], [[0.9, 0.5, 0.2], [0.1, 0.4, 0.8]], leaving=left[0])
    other = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.8, 0.4, 0.3], [0.2, 0.45, 0.7]], leaving=left[1])
    plan = lmab.plan(bandit, horizon=4)
    exact = Replanner(bandit, plan, np.ones(3, bool)).replan(other.weights[None], [other.rewards], [other.leaving])
    crowd = Crowd.of(2, 4, rng, size=40_000)
    played = crowd.play(plan.policy, bandit, repeats=True)
    found = played.on(other, other.weights[None], bandit, bandit.weights[None])
    assert found.value == pytest.approx(exact.value[0], abs=0.01)
    assert abs(found.value - played.value) > 0.05
    np.testing.assert_allclose(found.by_arm, crowd.play(plan.policy, other, repeats=True).by_arm, atol=0.02)
    same = played.on(bandit, bandit.weights[None], bandit, bandit.weights[None])
    np.testing.assert_allclose(same.by_arm, played.by_arm)


def test_sessions_of_one_model_are_not_weighted_for_a_very_different_one(rng):
    bandit, other = (lmab.LatentBandit.bernoulli([1.0], [[mean, 0.1]]) for mean in (0.5, 0.95))
    played = Crowd.of(1, 6, rng).play(lmab.plan(bandit, horizon=6).policy, bandit, repeats=True)
    assert played.on(other, np.ones((1, 1)), bandit, np.ones((1, 1))) is None


def test_a_plan_with_too_many_histories_is_certified_by_simulation(monkeypatch):
    log, estimate, plan = small_case()
    exact = lmab.assess(estimate, plan, log, n_draws=20, rng=generator(4))
    monkeypatch.setattr(replanning, "WRITTEN_OUT", 3)
    simulated = lmab.assess(estimate, plan, log, n_draws=20, rng=generator(4))
    for name in ("value", "gain", "optimum", "regret"):
        np.testing.assert_allclose(getattr(simulated, name), getattr(exact, name), atol=0.25)
    assert simulated.regret[1] < exact.regret[1] + 0.15  # of which twice the standard error is 0.1
    assert simulated.value[1] - simulated.value[0] > 0.9 * (exact.value[1] - exact.value[0])


def test_the_error_of_a_simulated_value_is_that_of_its_crowd():
    """Over many crowds, values spread no more than the error says; luck reversed in pairs makes them spread less."""
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.8, 0.3], [0.2, 0.6]])
    found = [
        replanning.Crowd.of(2, 3, generator(seed)).play(lmab.Greedy(bandit, horizon=3), bandit, repeats=True)
        for seed in range(60)
    ]
    spread, said = np.std([one.value for one in found]), np.mean([one.stderr for one in found])
    assert 0.2 * said < spread < 1.2 * said


def ratings(n_arms: int, rng: np.random.Generator, n_types: int = 2) -> lmab.LatentBandit:
    """Arms that are rated 1 to 5."""
    family = Categorical(rng.dirichlet(np.full(5, 2.0), (n_types, n_arms)), np.arange(1.0, 6.0))
    return lmab.LatentBandit(rng.dirichlet(np.ones(n_types)), family)


def test_a_plan_that_ignores_rewards_is_replanned_in_few_histories(rng):
    """Five ratings over eight steps have 5^7 histories, which a plan for each drawn model once wrote out."""
    bandit = ratings(12, rng)
    arms = bandit.best_fixed_arms(8, False)
    policy = lmab.policies.Ranking([*arms, *np.setdiff1d(np.arange(12), arms)], horizon=8, repeats=False)
    plan = Plan(policy, 8, 0.0, 1.0, Status.OPTIMAL, "", repeats=False, fixed=True)
    replanner = Replanner(bandit, plan, np.ones(12, bool))
    assert replanner.exact
    assert replanner.own == pytest.approx(bandit.best_fixed(8, False), rel=1e-12)
    assert replanner.started(np.ones(5)) == pytest.approx(replanner.own)
    assert replanner.started(np.full(5, 0.5)) < replanner.own
    tree = replanner._improved(bandit.weights, replanner._bandit, replanner.tree.branches(replanner._bandit.rewards))
    assert max(len(level.arms) for level in tree.levels) <= decision_tree._COARSE
    found = replanner.replan(bandit.weights[None], [bandit.rewards])
    assert found.value[0] == pytest.approx(replanner.own)
    assert found.optimum[0] > found.value[0]


def test_joined_ratings_cost_a_plan_little(rng, monkeypatch):
    bandit, optima = ratings(6, rng), []
    arms = bandit.best_fixed_arms(4, False)
    policy = lmab.policies.Ranking([*arms, *np.setdiff1d(np.arange(6), arms)], horizon=4, repeats=False)
    plan = Plan(policy, 4, 0.0, 1.0, Status.OPTIMAL, "", repeats=False, fixed=True)
    for most in (20, 10**6):
        monkeypatch.setattr(decision_tree, "_COARSE", most)
        replanner = Replanner(bandit, plan, np.ones(6, bool))
        optima.append(replanner.replan(bandit.weights[None], [bandit.rewards]).optimum[0])
    assert 0.98 * optima[1] <= optima[0] <= optima[1] + 1e-12


@pytest.fixture
def hurried():
    """Return a small estimate with its plan and its log."""
    truth = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.2, 0.5], [0.2, 0.9, 0.5]])
    log = lmab.simulate(truth, lmab.Uniform(3), n_sessions=400, horizon=3, rng=0)
    estimate = lmab.fit(log, n_types=2, method=lmab.EM(restarts=2, prior="learned"), rng=0, check=False)
    return estimate, lmab.plan(estimate, horizon=3), log


class SlowPolicy:
    """A clock that only decisions of the plan's policy move, by some seconds for each row."""

    def __init__(self, seconds: float, monkeypatch: pytest.MonkeyPatch, kind: type) -> None:
        self.now, act = 0.0, kind.act

        def slow(policy, state, *given, **named):
            self.now += seconds * len(state.memory)
            return act(policy, state, *given, **named)

        monkeypatch.setattr(kind, "act", slow)
        monkeypatch.setattr(replanning, "perf_counter", lambda: self.now)


@pytest.mark.parametrize("limit", [20.0, 100.0, 500.0])
@pytest.mark.parametrize("alike", [0.0, 0.5, 1.0])
def test_an_assessment_with_slow_decisions_keeps_its_time_limit(hurried, limit, alike, monkeypatch):
    """Each decision takes 10 ms: 1,024 sessions of 3 steps take 31 s, and with `alike` 1 so does each drawn model."""
    monkeypatch.setattr(replanning, "WRITTEN_OUT", 1)  # so that the plan is simulated
    monkeypatch.setattr(replanning, "_ALIKE", alike)
    clock = SlowPolicy(0.01, monkeypatch, type(hurried[1].policy))
    found = lmab.assess(*hurried, n_draws=30, rng=0, time_limit=limit)
    assert clock.now <= 1.1 * limit  # each of three ways plans for one model in any case
    assert clock.now > 0.5 * limit or found.left_out == 0
    assert (len(found.draws) + found.left_out) % 30 == 0
    assert found.left_out == 0 or alike > 0
    assert (found.value is None) == (len(found.draws) < 20)


def test_a_hopeless_time_limit_leaves_one_model_of_each_way_and_no_claim(hurried, monkeypatch):
    monkeypatch.setattr(replanning, "WRITTEN_OUT", 1)  # so that the plan is simulated
    clock, seen = SlowPolicy(1.0, monkeypatch, type(hurried[1].policy)), []
    found = lmab.assess(*hurried, n_draws=30, rng=0, time_limit=1.0, progress=lambda *given: seen.append(given))
    whole = len(found.draws) + found.left_out
    assert (len(found.draws), whole % 30) == (whole // 30, 0)
    assert clock.now < 2000
    assert (found.value, found.optimum, found.regret, found.gain) == (None,) * 4
    assert found.sentence.startswith(
        f"No confidence interval for this policy: the time limit left {len(found.draws)} drawn models, and an interval "
        "requires 20"
    )
    assert "because the time limit was too short" in found.verdict.sentence
    assert found.table["time limit"].startswith(f"{len(found.draws)} of {whole} drawn models were planned for")
    assert [done for done, _, _ in seen] == list(range(1, len(found.draws) + 1))


def test_a_time_limit_that_is_not_positive_is_refused(hurried):
    with pytest.raises(InvalidArgument, match="time_limit"):
        lmab.assess(*hurried, rng=0, time_limit=0)


def test_decisions_that_would_take_too_long_are_refused_before_they_are_made(hurried, monkeypatch):
    policy = hurried[1].policy
    clock = SlowPolicy(0.5, monkeypatch, type(policy))
    timed = replanning.TimedDecisions(policy, 10.0)
    timed.act(policy.start(4))
    with pytest.raises(TooLarge, match="17 histories take more than the 10 s"):
        timed.act(policy.start(17))
    assert clock.now == 2.0
    timed.act(policy.start(16))
    assert clock.now == 10.0


def test_work_is_cut_so_that_half_of_the_time_is_enough_for_the_least_models(monkeypatch):
    clock = iter([0.0, 10.0, 10.0, 100.0, 0.0, 0.0]).__next__
    monkeypatch.setattr(replanning, "perf_counter", clock)
    pace = replanning.Pace(90.0, None, 2, 100)  # begins at 0, so 80 seconds are left at 10
    assert pace.affordable(1.0) == 1.0  # 2 sets of 20 models take 40 seconds
    assert pace.affordable(4.0) == pytest.approx(0.25)
    assert pace.affordable(0.01) == 0.0  # after the limit
    assert replanning.Pace().affordable(1e9) == 1.0


@pytest.mark.parametrize(("time_limit", "simulated"), [(1e-6, True), (np.inf, False)])
def test_a_short_time_limit_simulates_fewer_sessions(time_limit, simulated, monkeypatch):
    sizes = []
    of = Crowd.of.__func__

    def counted(cls, *given):
        made = of(cls, *given)
        sizes.append(len(made.types))
        return made

    monkeypatch.setattr(Crowd, "of", classmethod(counted))
    truth = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5, 0.2], [0.1, 0.6, 0.8]])
    log = lmab.simulate(truth, lmab.Uniform(3), n_sessions=600, horizon=3, rng=0)
    estimate = lmab.fit(log, n_types=2, method=lmab.EM(prior="learned", restarts=2), check=False, rng=1)
    found = lmab.assess(estimate, lmab.plan(estimate, horizon=3), log, n_draws=30, rng=2, time_limit=time_limit)
    assert (sizes[-1:] == [64]) is simulated
    assert ("time limit" in found.table) is simulated
    assert (found.value is None) is simulated
