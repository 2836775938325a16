"""Evaluation, replay, comparison and assessments of sessions that start from what is known before them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from policies import always

import lmab
from lmab.errors import InvalidArgument
from lmab.estimation.prior import GroupWeights, weigh_groups
from lmab.evaluation import with_propensities
from lmab.evaluation.importance import WEIGHT, contributions
from lmab.evaluation.replanning import CrowdReplanner, Groups, Replanner
from lmab.model.people import MOST_PEOPLE, People
from lmab.policies import Exploring
from lmab.policies.histories import initial_memories, initial_states

BANDIT = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5, 0.2], [0.1, 0.6, 0.3]])
PRIOR = lmab.TypePrior.by_value("country", {"de": [0.8, 0.2], "fr": [0.3, 0.7]}, keep=0.6)
GREEDY = lmab.Greedy(BANDIT, type_prior=PRIOR)
SHARES = {"country": ["de", "fr", "de", "de"]}


def value_at(prior, policy_prior, horizon=3):
    """What the greedy policy earns that starts at `policy_prior`, where types have the weights `prior`."""
    made = lmab.Greedy(replace(BANDIT, weights=np.array(policy_prior)))
    return lmab.evaluate(made, replace(BANDIT, weights=np.array(prior)), horizon=horizon).mean


def test_the_value_is_the_mean_over_people():
    expected = 0.75 * value_at([0.8, 0.2], [0.8, 0.2]) + 0.25 * value_at([0.3, 0.7], [0.3, 0.7])
    found = lmab.evaluate(GREEDY, BANDIT, horizon=3, type_prior=PRIOR, features=SHARES)
    assert found.exact
    assert found.mean == pytest.approx(expected)
    drawn = lmab.evaluate(GREEDY, BANDIT, horizon=3, type_prior=PRIOR, features=SHARES, n_sessions=20_000, rng=0)
    assert abs(drawn.mean - expected) < 4 * drawn.stderr
    assert drawn.stderr > 0


def test_types_follow_the_given_prior_and_the_policy_its_own():
    truth = lmab.TypePrior.by_value("country", {"de": [0.5, 0.5], "fr": [0.1, 0.9]})
    expected = 0.75 * value_at([0.5, 0.5], [0.8, 0.2]) + 0.25 * value_at([0.1, 0.9], [0.3, 0.7])
    assert lmab.evaluate(GREEDY, BANDIT, horizon=3, type_prior=truth, features=SHARES).mean == pytest.approx(expected)
    blind = lmab.Greedy(BANDIT)  # it starts everybody alike
    expected = 0.75 * value_at([0.5, 0.5], [0.5, 0.5]) + 0.25 * value_at([0.1, 0.9], [0.5, 0.5])
    assert lmab.evaluate(blind, BANDIT, horizon=3, type_prior=truth, features=SHARES).mean == pytest.approx(expected)
    assert len(initial_states(blind, BANDIT, truth, SHARES).mass) == 1
    assert len(initial_states(GREEDY, BANDIT, truth, SHARES).mass) == 2


def test_columns_that_a_policy_does_not_know_are_passed_over():
    more = lmab.TypePrior(["age"], [[0.0, 0.0], [0.5, -0.5]])
    found = lmab.evaluate(GREEDY, BANDIT, horizon=2, type_prior=more, features={"age": [0.0, 0.0]})
    assert found.mean == pytest.approx(value_at([0.5, 0.5], [0.5, 0.5], 2))


def test_values_of_policies_that_ignore_rewards_have_one_history_per_root():
    found = lmab.evaluate(always(1, BANDIT.n_arms), BANDIT, horizon=4, type_prior=PRIOR, features=SHARES)
    weights = 0.75 * np.array([0.8, 0.2]) + 0.25 * np.array([0.3, 0.7])
    assert found.mean == pytest.approx(4 * weights @ [0.5, 0.6])


def test_on_an_estimate_people_are_those_of_its_log(fitted):
    _, _, log, estimate, plan = fitted
    people = estimate.type_prior.people
    counts = [(log.features["country"] == one).sum() for one in people.features["country"]]
    np.testing.assert_allclose(people.shares, np.array(counts) / len(log))
    np.testing.assert_allclose(estimate.bandit.weights, people.shares @ estimate.type_prior.weights(people.features))
    value = lmab.evaluate(plan, estimate, horizon=4)
    assert plan.lower - 1e-9 <= value.mean <= plan.upper + 1e-9
    found = lmab.compare([plan, always(0, estimate.bandit.n_arms)], estimate, horizon=4, rng=0)
    assert found.value == pytest.approx(value.mean)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"features": SHARES}, "features must be given with a type_prior"),
        ({"type_prior": lmab.TypePrior.constant([0.2, 0.3, 0.5])}, "type_prior must have the bandit's 2 types, got 3"),
        ({"type_prior": "country"}, "type_prior must be a TypePrior or None, got a str"),
        ({"type_prior": PRIOR, "features": {"age": [3.0]}}, "features must be among"),
        ({"type_prior": lmab.TypePrior.constant([0.5, 0.5]), "features": SHARES}, "features must be among"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, message):
    with pytest.raises(InvalidArgument, match=message):
        lmab.evaluate(GREEDY, BANDIT, horizon=2, **arguments)


def test_a_log_has_features_of_its_own():
    log = lmab.simulate(BANDIT, lmab.Uniform(3), n_sessions=5, horizon=2, rng=0)
    with pytest.raises(InvalidArgument, match="a log has features of its own"):
        lmab.evaluate(GREEDY, log, horizon=2, type_prior=PRIOR)


def test_a_log_without_the_features_that_the_policy_asks_for_is_noticed():
    log = lmab.simulate(BANDIT, lmab.Uniform(3), n_sessions=2000, horizon=2, type_prior=PRIOR, rng=0)
    plan = lmab.plan(BANDIT, horizon=2, type_prior=PRIOR)
    assert lmab.evaluate(plan, log, horizon=2).notes == ()
    with pytest.warns(lmab.errors.LmabWarning, match="from country, and the log was read without country, as if"):
        found = lmab.evaluate(plan, replace(log, features=None), horizon=2)
    assert len(found.notes) == 1
    assert lmab.evaluate(lmab.Greedy(BANDIT), replace(log, features=None), horizon=2).notes == ()


def returning():
    """Sessions of three persons, one of whom comes three times, in between the others."""
    persons = ["ann", "bob", "ann", None, "ann", "bob"]
    features = {"country": ["de", "fr", "fr", "de", None, "fr"]}
    return lmab.Sessions.from_arrays(
        [[0, 1], [0, 2], [0, 0], [1, 1], [2, -1], [0, 1]], [[1, 0], [0, 1], [1, 1], [0, 1], [1, 0], [0, 0]],
        n_arms=3, features=features, persons=persons, propensities=np.full((6, 2), 1 / 3),
    )  # fmt: skip


def test_sessions_of_a_log_start_from_features_and_the_persons_earlier_sessions():
    log = returning()
    found = initial_memories(GREEDY, log)
    last = {}  # what each person's last session told
    for i, person in enumerate(log.persons.tolist()):
        own = {"country": log.features["country"][i]}
        expected = PRIOR.after(last[person], own)[0] if person in last else PRIOR.weights(own)[0]
        np.testing.assert_allclose(found[i] / found[i].sum(), expected)
        paid = BANDIT.means[:, log[i].arms]
        told = expected * np.prod(np.where(log[i].rewards > 0, paid, 1 - paid), axis=1)
        if person is not None:
            last[person] = told / told.sum()


def test_starts_are_the_same_for_all_where_nothing_is_known():
    log = returning()
    assert initial_memories(lmab.Greedy(BANDIT), log) is None
    assert initial_memories(GREEDY, replace(log, features=None, persons=None)) is None
    stranger = lmab.Greedy(BANDIT, type_prior=replace_keep(PRIOR, None))
    np.testing.assert_allclose(initial_memories(stranger, log)[4], PRIOR.weights()[0])


def replace_keep(prior, keep):
    return lmab.TypePrior(prior.terms, prior.coefficients, keep)


def test_importance_weights_follow_the_policy_from_each_start():
    log = returning()
    ((_, parts),) = contributions(GREEDY, log, 2, None, None)
    first = np.array([GREEDY.act(GREEDY.start(features={"country": one})) for one in ("de", "fr")])
    assert first.tolist() == [0, 1]  # the two countries are shown different arms
    start = initial_memories(GREEDY, log)
    chosen = (start @ BANDIT.means).argmax(axis=1)
    arms = log.arms[log.offsets[:-1]]
    np.testing.assert_allclose(parts[:, WEIGHT, 0], np.where(chosen == arms, 3.0, 0.0))
    exploring = Exploring(GREEDY, 0.3)
    expected = np.where(chosen == arms, 0.8, 0.1)
    np.testing.assert_allclose(with_propensities(log, exploring).propensities[log.offsets[:-1]], expected)


def test_policies_are_compared_live_from_each_start():
    log = returning()
    blind = always(0, BANDIT.n_arms)
    found = lmab.compare([GREEDY, blind], log, versions=[0, 1, 0, 1, 0, 1], horizon=2)
    chosen = (initial_memories(GREEDY, log) @ BANDIT.means).argmax(axis=1)
    assert found.effective <= 3
    assert (chosen == 0).any()
    same = lmab.compare([GREEDY, GREEDY], log, versions=[0, 1, 0, 1, 0, 1], horizon=2)
    assert same.difference == 0.0


def test_people_are_remembered_in_files_and_sampled_where_they_are_many(tmp_path):
    features = lmab.data.features.Features.of({"age": np.arange(5000.0), "land": ["a", None] * 2500}, 5000)
    people = People.of(features)
    assert len(people) == MOST_PEOPLE
    few = People.of(features.take([3, 3, 1, 0]))
    assert few.shares.tolist() == [0.25, 0.25, 0.5]
    assert few.features["land"].tolist() == ["a", None, None]
    prior = lmab.TypePrior(["age"], [[0.0, 0.0], [0.1, -0.1]]).among(People.of(features.only(["age"]).take([3, 3, 1])))
    prior.save(tmp_path / "prior.lmab")
    again = lmab.load(tmp_path / "prior.lmab")
    assert again.people.shares.tolist() == prior.people.shares.tolist()
    assert again.people.features["age"].tolist() == [1.0, 3.0]
    assert set(again.draw(50, np.random.default_rng(0))["age"].tolist()) == {1.0, 3.0}


def test_weights_of_groups_are_found_where_rewards_tell_the_types():
    rng = np.random.default_rng(0)
    truth, groups = np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]]), np.repeat([0, 1, 2], 2000)
    types = (rng.random(6000) > truth[groups, 0]).astype(int)
    likelihoods = np.eye(2)[types]
    found = np.mean([weigh_groups(likelihoods, groups, np.full((3, 2), 0.5), 1.0, rng) for _ in range(20)], axis=0)
    np.testing.assert_allclose(found, truth, atol=0.03)
    drawn = GroupWeights(np.array([0.5, 0.5]), 3)
    for _ in range(20):
        drawn.draw(np.array([[900.0, 100.0], [200.0, 800.0], [0.0, 0.0]]), rng)
    assert drawn.alpha < 30  # the groups differ
    for _ in range(20):
        drawn.draw(np.array([[500.0, 500.0], [505.0, 495.0], [0.0, 0.0]]), rng)
    assert drawn.alpha > 30


@pytest.fixture(scope="module")
def fitted():
    truth = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.8, 0.5, 0.2, 0.4], [0.2, 0.5, 0.8, 0.3]])
    prior = lmab.TypePrior.by_value("country", {"de": [0.9, 0.1], "fr": [0.1, 0.9]})
    log = lmab.simulate(truth, lmab.Uniform(4), n_sessions=600, horizon=4, type_prior=prior, rng=1)
    estimate = lmab.fit(log, n_types=2, method=lmab.EM(restarts=2, prior=2.0), rng=1, check=False)
    return truth, prior, log, estimate, lmab.plan(estimate, horizon=4)


def test_assessments_are_about_the_mean_over_people(fitted):
    truth, prior, log, estimate, plan = fitted
    value = lmab.evaluate(plan, truth, horizon=4, type_prior=prior, features=log.features).mean
    best = lmab.plan(truth, horizon=4, type_prior=prior, features=log.features)
    found = lmab.assess(estimate, plan, log, n_draws=20, rng=0)
    assert found.value[0] <= value <= found.value[1]
    assert found.optimum[0] <= best.upper
    assert best.lower <= found.optimum[1]
    without = lmab.plan(estimate.bandit.with_type_prior(None), horizon=4)
    plain = lmab.assess(estimate, without, log, n_draws=20, rng=0)
    assert found.value[0] > plain.value[1]  # what is known before a session is worth a lot here


def test_a_plan_is_worth_the_same_written_out_and_played_by_a_crowd(fitted):
    _, _, log, estimate, plan = fitted
    groups = Groups.of(estimate, plan)
    assert len(groups) == 2
    assert groups.exact
    assert np.bincount(groups.of_sessions).tolist() == [
        (log.features["country"] == one).sum() for one in estimate.type_prior.people.features["country"]
    ]
    played = np.ones(4, bool)
    written = Replanner(estimate.bandit, plan, played, groups)
    exact = lmab.evaluate(plan, estimate, horizon=4).mean
    assert written.own == pytest.approx(exact)
    crowd = CrowdReplanner(estimate.bandit, plan, played, np.random.default_rng(0), groups)
    assert abs(crowd.own - exact) < 5 * crowd.stderr + 0.02
    again = written.replan(groups.priors[None], [estimate.bandit.rewards])
    assert again.value[0] == pytest.approx(exact)
    assert again.optimum[0] >= exact - 1e-9
    assert again.transferred[0] == pytest.approx(again.optimum[0])
    simulated = crowd.replan(groups.priors[None], [estimate.bandit.rewards])
    assert simulated.value[0] == pytest.approx(crowd.own)


def test_normal_rewards_are_certified_for_people_too():
    truth = lmab.LatentBandit.gaussian([0.5, 0.5], [[1.0, 0.0, 0.4], [0.0, 1.0, 0.5]], scale=0.5)
    prior = lmab.TypePrior.by_value("country", {"de": [0.9, 0.1], "fr": [0.2, 0.8]})
    log = lmab.simulate(truth, lmab.Uniform(3), n_sessions=200, horizon=3, type_prior=prior, rng=3)
    method = lmab.EM(restarts=2, prior=2.0)
    estimate = lmab.fit(log, n_types=2, method=method, rewards="gaussian", rng=3, check=False)
    plan = lmab.plan(estimate, horizon=3)
    found = lmab.assess(estimate, plan, log, n_draws=20, rng=0)
    value = lmab.evaluate(
        plan, truth, horizon=3, type_prior=prior, features=log.features, n_sessions=20_000, rng=0
    ).mean
    assert found.value[0] - 0.02 <= value <= found.value[1] + 0.02
