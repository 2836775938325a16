"""The prior over types from features and from people who come back: truths, laws, and columns that tell nothing."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import sys
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from seeds import generator
from truths import CHEATING

import lmab
from lmab import EM, Sessions, TypePrior, Uniform, simulate
from lmab.components.features import FeatureWeights
from lmab.components.latent_class_model import LatentClassModel
from lmab.components.persons import LinkedSessions, Persons
from lmab.components.rewards import Rewards
from lmab.data.features import Features
from lmab.errors import LmabWarning
from lmab.estimation import type_priors
from lmab.estimation.climb import climb
from lmab.estimation.cross_validation import check
from lmab.estimation.families import observe
from lmab.estimation.fit import choose
from lmab.model import belief
from lmab.model.type_prior import make_columns
from lmab.parallel import SERIAL

fit_module = sys.modules[choose.__module__]  # the package shows the function of this name
fit = partial(lmab.fit, check=False)  # what held-out sessions say of the types is tested elsewhere
COUNTRY = {"de": [0.85, 0.15], "fr": [0.2, 0.8], "it": [0.5, 0.5]}


def two_types(n=1500, horizon=4, seed=0, **more) -> tuple[lmab.LatentBandit, Sessions]:
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.2, 0.5, 0.3], [0.2, 0.8, 0.4, 0.6]])
    more = {"type_prior": TypePrior.by_value("country", COUNTRY)} | more
    return bandit, simulate(bandit, Uniform(4), n_sessions=n, horizon=horizon, rng=generator(seed), **more)


def with_features(log: Sessions, features) -> Sessions:
    return dataclasses.replace(log, features=None if features is None else Features.of(features, len(log)))


def error_of_means(found, bandit) -> float:
    distance = np.abs(bandit.means[:, None] - found.bandit.means[None]).mean(axis=2)
    return float(distance[linear_sum_assignment(distance)].mean())


def test_a_prior_that_features_tell_is_found():
    bandit, log = two_types()
    found = fit(log, n_types=2, method=EM(restarts=5, threads=1), rng=1, check=False)
    order = linear_sum_assignment(np.abs(bandit.means[:, None] - found.bandit.means[None]).sum(axis=2))[1]
    for country, weights in COUNTRY.items():
        np.testing.assert_allclose(found.type_prior.weights({"country": country})[0, order], weights, atol=0.09)
    assert found.type_prior.keep is None
    assert found.converged
    assert "country: used, held-out log-likelihood +" in found.message
    shares = np.mean([found.type_prior.weights({"country": one})[0] for one in log.features["country"]], axis=0)
    np.testing.assert_allclose(found.bandit.weights, shares, atol=1e-9)  # those of the log on average
    by_hand = belief.log_joint(found.bandit, log) - np.log(found.bandit.weights)
    by_hand = np.logaddexp.reduce(by_hand + np.log(found.type_prior.weights(log.features)), axis=1)
    assert found.log_likelihood == pytest.approx(by_hand.sum(), abs=1e-6)
    assert (np.diff(found.trace) >= -1e-7).all()
    plain = fit(with_features(log, None), n_types=2, method=EM(restarts=5, threads=1), rng=1, check=False)
    assert plain.type_prior is None
    assert found.n_parameters == plain.n_parameters + 2
    assert found.log_likelihood > plain.log_likelihood + 50


def test_types_of_other_methods_stay_and_get_a_prior():
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1, 0.4], [0.2, 0.8, 0.5]])
    prior = TypePrior.by_value("country", COUNTRY)
    log = simulate(bandit, Uniform(3), n_sessions=1500, horizon=4, type_prior=prior, rng=generator(4))
    settings = {"n_types": 3, "method": EM(restarts=3, prior=1.0, rank=2, threads=1), "rng": 1, "check": False}
    found, plain = fit(log, **settings), fit(with_features(log, None), **settings)
    np.testing.assert_array_equal(found.bandit.means, plain.bandit.means)
    assert found.type_prior is not None


def test_the_posterior_starts_from_the_features_and_survives_a_file(tmp_path):
    _, log = two_types(400)
    found = fit(log, n_types=2, method=EM(restarts=3, threads=1), rng=1, check=False)
    joint = np.exp(belief.log_joint(found.bandit, log)) / found.bandit.weights * found.type_prior.weights(log.features)
    np.testing.assert_allclose(found.posterior(), joint / joint.sum(axis=1, keepdims=True), atol=1e-9)
    found.save(tmp_path / "fit.lmab")
    again = lmab.load(tmp_path / "fit.lmab").with_log(log)
    assert again.type_prior == found.type_prior
    np.testing.assert_array_equal(again.posterior(), found.posterior())
    assert found.posterior(with_features(log, None)).shape == (400, 2)  # without features all start alike


def test_without_features_and_persons_nothing_changes():
    _, log = two_types(300)
    log = with_features(log, None)
    assert type_priors.learn(observe(log), lmab.random_bandit(2, 4, rng=0), None, ridge=True, tolerance=1e-6,
                             rng=generator(0), passes=SERIAL) is None  # fmt: skip
    assert fit(log, n_types=1, rng=0).type_prior is None


def test_cheating_by_grades_has_the_published_likelihood():
    """poLCA's latent class regression of its data set `cheating`, two classes."""
    table = np.repeat([[int(digit) for digit in row] for row in CHEATING], list(CHEATING.values()), axis=0).astype(
        float
    )
    answers, grades = table[:, :4], table[:, 4]
    log = Sessions.from_arrays(np.tile(np.arange(4), (len(answers), 1)), answers - 1.0, features={"GPA": grades})
    for seed in range(2):
        found = fit(log, n_types=2, method=EM(prior=0.0, threads=1), rng=seed)
        assert found.log_likelihood == pytest.approx(-429.6384, abs=1e-4)
        assert found.n_parameters == 10


def test_election_by_party_has_the_published_likelihood():
    """poLCA's latent class regression of its data set `election`, three classes; the package polca ships the data."""
    package = find_spec("pypolca")
    if package is None or not package.submodule_search_locations:
        pytest.skip("the data is in the package polca, which is not installed")
    with open(Path(package.submodule_search_locations[0]) / "data" / "election.csv", newline="") as file:
        rows = [[*list(row.values())[:12], row["PARTY"]] for row in csv.DictReader(file)]
    table = np.array([[float(text[0]) for text in row] for row in rows if "NA" not in row])
    answers, party = table[:, :12], table[:, 12]
    log = Sessions.from_arrays(np.tile(np.arange(12), (len(answers), 1)), answers - 1.0, features={"PARTY": party})
    found = fit(log, n_types=3, method=EM(prior=0.0, threads=1), rng=0, check=False)
    assert len(log) == 1300
    assert found.log_likelihood == pytest.approx(-16222.32, abs=0.005)
    assert found.n_parameters == 112


@pytest.mark.parametrize("returning", [False, True])
def test_maps_never_lower_the_objective(returning, rng):
    _, log = two_types(200)
    encoded = observe(log)
    terms, _ = make_columns(log.features)
    design = type_priors.Design.of(terms, log.features, len(log), ridge=0.5)
    persons = np.arange(200) // (4 if returning else 1)
    ascent = type_priors.Task(2, persons, encoded, arm_prior=encoded.prior(1.0)).model(design)
    models = np.zeros((3, design.size + returning + encoded.n_own, 8))
    models[:, : design.size, :2] = rng.normal(size=(3, design.size, 2))
    models[:, design.size + returning :, :2] = encoded.random_models(3, 2, rng)[:, 1:, :2]
    done = climb(ascent, models, left=0.0, max_maps=40, accelerate=False)
    for trace in done.traces:
        assert (np.diff(trace) >= -1e-9 * abs(trace[0])).all()
        assert trace[-1] > trace[0]


def test_both_kernels_agree_where_nobody_comes_back(rng):
    """The fused kernel with a group code in front, and the walk over persons of one session each."""
    _, log = two_types(150)
    encoded = observe(log)
    design = type_priors.Design.of(make_columns(log.features)[0], log.features, len(log), ridge=0.5)
    d, prior = design.size, encoded.prior(1.0)
    model = np.zeros((1, d + encoded.n_own, 8))
    model[0, :d, :2] = rng.normal(size=(d, 2))
    model[0, d:, :2] = encoded.random_models(1, 2, rng)[0, 1:, :2]
    objective, ahead = type_priors.Task(2, np.arange(150), encoded, arm_prior=prior).model(design).map(model)
    linked = LinkedSessions.of(encoded, {}, design.groups, np.arange(151), len(design.x), 2)
    rewards = Rewards(linked.independent.log, 2, prior)
    other, further = LatentClassModel((FeatureWeights(design, 2), Persons(), rewards), linked).map(
        np.insert(model, d, 0.3, axis=1)
    )
    assert objective[0] == pytest.approx(other[0], abs=1e-8)
    np.testing.assert_allclose(np.delete(further, d, axis=1)[0, :, :2], ahead[0, :, :2], atol=1e-9)


def by_definition(bandit, log, design, coefficients, keep, persons):
    """Sum over all sequences of types of each person, of the probability of types and rewards."""
    weights, total = design.weights(coefficients)[design.groups], 0.0
    like = np.exp(belief.log_joint(replace(bandit, weights=np.full(2, 0.5)), log)) * 2
    for person in np.unique(persons):
        rows = np.flatnonzero(persons == person)
        mass = 0.0
        for types in itertools.product(range(2), repeat=len(rows)):
            chance, before = 1.0, None
            for row, own in zip(rows, types, strict=True):
                fresh = weights[row, own]
                chance *= (fresh if before is None else keep * (own == before) + (1 - keep) * fresh) * like[row, own]
                before = own
            mass += chance
        total += np.log(mass)
    return total


@pytest.mark.parametrize("family", ["categorical", "gaussian", "counts"])
def test_the_likelihood_of_returning_persons_is_a_sum_over_their_types(family, rng):
    _, log = two_types(40)
    log = dataclasses.replace(
        log, rewards=np.asarray(log.rewards, float) + (family == "gaussian") * rng.normal(size=log.n_steps)
    )
    encoded, persons = observe(log, rewards=family), np.arange(40) // 3
    design = type_priors.Design.of(make_columns(log.features)[0], log.features, 40, ridge=0.0)
    task = type_priors.Task(2, persons, encoded, arm_prior=encoded.prior(0.0))
    start = encoded.random_models(1, 2, rng)
    fitted = type_priors.Fitted(design, rng.normal(size=(design.size, 2)), 0.35, start[0, 1:, :2])
    found = task.model(design).map(task.packed(design, fitted)[None])[0][0]
    bandit = encoded.bandit(start[0], 2)
    assert found == pytest.approx(by_definition(bandit, log, design, fitted.coefficients, 0.35, persons), rel=1e-9)


def test_people_who_come_back_keep_their_type():
    bandit, log = two_types(
        6000, type_prior=TypePrior.constant([0.6, 0.4], keep=0.6), persons=np.repeat(np.arange(1500), 4)
    )
    found = fit(log, n_types=2, method=EM(restarts=4, threads=1), rng=1, check=False)
    assert found.type_prior.keep == pytest.approx(0.6, abs=0.06)
    assert found.type_prior.columns == ()
    assert "the type is kept with probability 0." in found.message
    strangers = fit(
        dataclasses.replace(log, persons=np.arange(6000)),
        n_types=2,
        method=EM(restarts=4, threads=1),
        rng=1,
        check=False,
    )
    assert strangers.type_prior is None
    assert error_of_means(found, bandit) < error_of_means(strangers, bandit) + 0.003


def test_people_who_come_back_as_others_are_strangers():
    _, log = two_types(1200, type_prior=TypePrior.constant([0.6, 0.4], keep=0.0), persons=np.repeat(np.arange(300), 4))
    found = fit(log, n_types=2, method=EM(restarts=4, threads=1), rng=1, check=False)
    assert found.type_prior is None or found.type_prior.keep < 0.1


def test_useless_columns_are_left_out():
    _, log = two_types(500, type_prior=None)
    noise = generator(9)
    features = {f"x{i}": noise.standard_normal(500) for i in range(30)}
    plain = fit(log, n_types=2, method=EM(restarts=4, threads=1), rng=1, check=False)
    found = fit(with_features(log, features), n_types=2, method=EM(restarts=4, threads=1), rng=1, check=False)
    assert found.type_prior is None
    assert found.bandit == plain.bandit
    assert "not used, because held-out log-likelihood does not improve" in found.message


@pytest.mark.parametrize(
    ("column", "remark"),
    [
        (np.full(300, 7.0), "'x' is the same in all sessions"),
        (["one"] * 300, "'x' is the same in all sessions"),
        (["one", None, None] * 100, "'x' has one value only, and where it is missing stands the average person"),
        ([f"level {i}" for i in range(300)], "'x' has no two values with at least 10 sessions each"),
        (np.full(300, np.nan), "'x' is missing in all sessions"),
        ([None] * 300, "'x' is missing in all sessions"),
    ],
)
def test_columns_that_tell_nothing_are_said(column, remark):
    _, log = two_types(300)
    found = fit(with_features(log, {"x": column}), n_types=2, method=EM(restarts=2, threads=1), rng=1, check=False)
    assert found.type_prior is None
    assert remark in found.message


def test_many_levels_and_missing_values_drop_nobody():
    _, log = two_types(2000)
    levels = [f"level {i % 700}" if i % 3 else None for i in range(2000)]  # few sessions of each
    ages = np.where(np.arange(2000) % 2, generator(3).normal(40, 9, 2000), np.nan)
    features = {"country": log.features["country"], "many": levels, "age": ages}
    terms, remarks = make_columns(Features.of(features, 2000))
    assert [term.name for term in terms] + [remark.split("'")[1] for remark in remarks] == ["country", "age", "many"]
    age = next(term for term in terms if term.name == "age")
    assert len(age.values) == 16
    assert age.missing
    found = fit(with_features(log, features), n_types=2, method=EM(restarts=2, threads=1), rng=1, check=False)
    assert found.type_prior is not None
    assert found.type_prior.weights({"country": "xx", "age": None}).shape == (1, 2)


def test_ten_thousand_levels_keep_the_most_frequent():
    rows = [f"level {i}" for i in range(10_000)] + [f"level {i}" for i in range(1200) for _ in range(9)]
    (term,), _ = make_columns(Features.of({"x": rows}, len(rows)))
    assert len(term.levels) == 1000


def test_a_column_made_of_rewards_is_suspected():
    _, log = two_types(400, type_prior=None)
    sums = np.add.reduceat(log.rewards, log.offsets[:-1])
    with pytest.warns(LmabWarning, match="column 'total' explains 100% of the rewards.*leave it out"):
        fit(with_features(log, {"total": sums}), n_types=2, method=EM(restarts=2, threads=1), rng=1, check=False)


@pytest.mark.parametrize("made", [np.add, np.maximum, "mean", "last"])
def test_columns_made_of_rewards_of_unequal_sessions_are_suspected(made, rng):
    """They are, even where the arms were chosen so evenly that such a column tells nothing of the type."""
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.8, 0.1, 0.2], [0.1, 0.8, 0.2]])
    arms, rewards = simulate(bandit, Uniform(3), n_sessions=600, horizon=6, rng=generator(4)).to_arrays()
    arms[np.arange(6) >= rng.integers(1, 7, 600)[:, None]] = -1
    log = Sessions.from_arrays(arms, rewards)
    if made == "last":
        column = log.rewards[log.offsets[1:] - 1]
    elif made == "mean":
        column = np.add.reduceat(log.rewards, log.offsets[:-1]) / log.lengths
    else:
        column = made.reduceat(log.rewards, log.offsets[:-1])
    with pytest.warns(LmabWarning, match="column 'leak' explains (9[5-9]|100)% of the rewards.*leave it out"):
        fit(with_features(log, {"leak": column}), n_types=2, method=EM(restarts=2, threads=1), rng=1)


@pytest.mark.parametrize("prior", ["learned", 0.0])
def test_a_log_of_one_person_is_fitted(prior):
    """Nobody can be held out, so that neither features nor returns can be tested."""
    _, log = two_types(60, persons=np.zeros(60, int))
    found = fit(log, n_types=2, method=EM(restarts=2, threads=1, prior=prior), rng=1)
    assert np.isfinite(found.log_likelihood)
    if prior == "learned":
        assert "returning persons: not used, because a single person cannot be held out" in found.message


@pytest.mark.parametrize("n", [2, 6, 8, 12])
def test_a_gain_that_is_rounding_keeps_nothing(n):
    """Where types are not told apart, all candidates predict alike."""
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.8, 0.2, 0.1, 0.5], [0.1, 0.2, 0.8, 0.9, 0.5]])
    log = simulate(bandit, Uniform(5), n_sessions=1000, horizon=4, rng=3, persons=np.repeat(np.arange(250), 4),
                   type_prior=TypePrior.by_value("seg", {"a": [0.9, 0.1], "b": [0.1, 0.9]}, keep=0.6))[:n]  # fmt: skip
    assert fit(log, n_types=2, rng=0).type_prior is None


def test_the_posterior_of_a_log_with_other_columns_is_that_of_the_average_person():
    _, log = two_types(600)
    found = fit(log, n_types=2, method=EM(restarts=3, threads=1), rng=1)
    few = log[:5]
    others = [
        found.posterior(with_features(few, given)) for given in ({"city": list("abcde")}, {"country": [None] * 5})
    ]
    np.testing.assert_array_equal(*others)
    both = {"city": list("abcde"), "country": few.features["country"]}
    np.testing.assert_array_equal(found.posterior(with_features(few, both)), found.posterior(few))


def test_a_log_whose_columns_have_other_names_is_not_that_of_the_fit(tmp_path):
    _, log = two_types(300)
    fit(log, n_types=2, method=EM(restarts=3, threads=1), rng=1).save(tmp_path / "estimate.lmab")
    loaded = lmab.load(tmp_path / "estimate.lmab")
    assert loaded.with_log(log).sessions == log
    with pytest.raises(lmab.errors.InvalidArgument, match=r"the feature 'country' of the fit, got \['land'\]"):
        loaded.with_log(with_features(log, {"land": log.features["country"]}))


def test_normal_rewards_and_features_are_fitted_together():
    bandit = lmab.LatentBandit.gaussian([0.5, 0.5], [[1.0, 0.0], [0.0, 1.0]], scale=0.5)
    prior = TypePrior.by_value("country", COUNTRY)
    log = simulate(bandit, Uniform(2), n_sessions=1500, horizon=4, type_prior=prior, rng=generator(4))
    settings = {"n_types": 2, "rewards": "gaussian", "method": EM(restarts=3, threads=1)}
    found, plain = (
        fit(log, **settings, rng=1, check=False),
        fit(with_features(log, None), **settings, rng=1, check=False),
    )
    assert found.bandit.distance(bandit) < plain.bandit.distance(bandit)
    order = linear_sum_assignment(np.abs(bandit.means[:, None] - found.bandit.means[None]).sum(axis=2))[1]
    np.testing.assert_allclose(found.type_prior.weights({"country": "de"})[0, order], COUNTRY["de"], atol=0.08)
    assert found.log_likelihood > plain.log_likelihood + 50


def test_features_and_persons_together():
    _, log = two_types(
        4000, type_prior=TypePrior(*_parts(TypePrior.by_value("country", COUNTRY)), keep=0.7),
        persons=np.repeat(np.arange(1000), 4),
    )  # fmt: skip
    found = fit(log, n_types=2, method=EM(restarts=3, threads=1), rng=1, check=False)
    assert found.type_prior.columns == ("country",)
    assert found.type_prior.keep == pytest.approx(0.7, abs=0.08)
    assert "country: used" in found.message
    assert "returning persons" in found.message


def _parts(prior: TypePrior):
    return prior.terms, prior.coefficients


def test_ridges_tell_useful_columns_from_useless_ones():
    _, log = two_types(1000)
    features = {"country": log.features["country"], "noise": generator(5).standard_normal(1000)}
    log = with_features(log, features)
    encoded, found = (
        observe(log),
        fit(with_features(log, None), n_types=2, method=EM(restarts=3, threads=1), rng=1, check=False),
    )
    terms, _ = make_columns(log.features)
    design = type_priors.Design.of(terms, log.features, len(log), ridge=5.0)
    task, _ = type_priors._task(log, encoded, found.bandit, None, SERIAL)
    learned = type_priors._first_ridge(task, design, type_priors._plain(task, found.bandit, encoded))
    assert learned.ridge[0] == 0
    assert learned.ridge[1:4].max() < 5
    assert learned.ridge[4] > 20


def test_sparse_rows_are_the_same_as_dense_ones(rng):
    groups = np.repeat(np.arange(80), 10)
    features = Features.of({"x": [f"{g:02d}" for g in groups], "y": groups % 3 * 1.0}, len(groups))
    terms, _ = make_columns(features)
    sparse = type_priors.Design.of(terms, features, len(groups), ridge=1.0)
    assert sparse._sparse is not None
    dense = dataclasses.replace(sparse)
    dense.__dict__["_sparse"] = None
    coefficients = rng.normal(size=(sparse.size, 3))
    shares = rng.dirichlet(np.ones(3), len(sparse.x)) * sparse.sizes[:, None]
    weights = sparse.weights(coefficients)
    np.testing.assert_allclose(weights, dense.weights(coefficients), atol=1e-12)
    np.testing.assert_allclose(
        sparse.improved(coefficients, weights, shares), dense.improved(coefficients, weights, shares), atol=1e-12
    )


@pytest.mark.slow
def test_short_sessions_are_told_apart_by_features():
    """Two steps of five types: without features the types are wrong whatever the size of the log."""
    rng = np.random.default_rng(1)
    means, shares = rng.uniform(0.05, 0.95, (5, 8)), rng.dirichlet(np.full(5, 0.7), 8)
    bandit = lmab.LatentBandit.bernoulli(np.full(5, 0.2), means)
    prior = TypePrior.by_value("segment", {f"s{i}": row / row.sum() for i, row in enumerate(shares)})
    log = simulate(bandit, Uniform(8), n_sessions=50_000, horizon=2, type_prior=prior, rng=rng)
    found = fit(log, n_types=5, method=EM(prior=1.0), rng=1)
    assert error_of_means(found, bandit) < 0.04


@pytest.mark.slow
@pytest.mark.parametrize("keep", [0.3, 0.6, 0.9])
def test_keep_is_found_within_two_hundredths(keep):
    rng = np.random.default_rng(0)
    weights = np.array([0.4, 0.3, 0.2, 0.1])
    bandit = lmab.LatentBandit.bernoulli(weights, rng.uniform(0.1, 0.9, (4, 10)))
    log = simulate(
        bandit, Uniform(10), n_sessions=40_000, horizon=5, type_prior=TypePrior.constant(weights, keep=keep),
        persons=np.repeat(np.arange(10_000), 4), rng=100,
    )  # fmt: skip
    assert fit(log, n_types=4, method=EM(restarts=8), rng=1, check=False).type_prior.keep == pytest.approx(
        keep, abs=0.02
    )


def test_rows_of_nobody_are_left_out_where_most_are(rng):
    features = Features.of({"age": np.arange(100.0)}, 100)
    design = type_priors.Design.of(make_columns(features)[0], features, 100, ridge=1.0)
    some = design.part(np.array([3, 7, 3]))
    assert len(some.x) < len(design.x)
    np.testing.assert_array_equal(some.x[some.groups], design.x[design.groups[[3, 7, 3]]])
    most = design.part(np.arange(60))
    assert most.x is design.x


def test_a_column_that_is_not_known_is_that_of_the_average_person(rng):
    features = Features.of({"a": rng.normal(size=40).round(1), "b": ["x", "y"] * 20}, 40)
    design = type_priors.Design.of(make_columns(features)[0], features, 40, ridge=1.0)
    task = type_priors.Task(2, np.arange(40), like=rng.random((40, 2)))
    fitted = type_priors.Fitted(design, rng.normal(size=(design.size, 2)), None, None)
    found = dict(task.without_each(fitted, design))
    assert list(found) == ["a", "b"]
    for name, block in zip(found, design.blocks, strict=True):
        less = replace(design, x=design.x.copy())
        less.x[:, block] = 0.0
        np.testing.assert_allclose(found[name], task.scores(fitted, less))


def test_groups_of_people_are_codes_in_front_of_sessions(rng):
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]])
    prior = lmab.TypePrior.by_value("land", {"a": [0.9, 0.1], "b": [0.2, 0.8]})
    log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=50, horizon=3, type_prior=prior, rng=rng)
    encoded = observe(log)
    known, n_groups = type_priors.group_log(encoded, prior)
    assert n_groups == 2
    assert known.n_beside == 2
    groups = np.add.reduceat(known.held.codes >= encoded.n_own, known.held.offsets[:-1], dtype=int)
    assert (groups == 1).all()  # one code for each session, wherever it stands after merging
    assert known.held.counts.sum() == 50
    assert type_priors.group_log(observe(replace(log, features=None)), prior) is None
    normal = observe(log, rewards="gaussian")
    assert type_priors.group_log(normal, prior) is None


@pytest.mark.slow
def test_types_that_short_sessions_leave_empty_are_found_with_features():
    rng = np.random.default_rng([71_000, 3, 0])
    means = rng.beta(2, 3, (3, 8))
    weights = {f"v{i}": row for i, row in enumerate([[0.9, 0.05, 0.05], [0.05, 0.9, 0.05], [0.05, 0.05, 0.9]])}
    prior = lmab.TypePrior.by_value("land", weights)
    truth = lmab.LatentBandit.bernoulli([1 / 3] * 3, means)
    log = lmab.simulate(truth, lmab.Uniform(8), n_sessions=600, horizon=2, type_prior=prior, rng=rng)
    plain = lmab.fit(replace(log, features=None), n_types=3, method=lmab.EM(restarts=4), check=False, rng=0)
    assert plain.bandit.weights.min() < 1e-3  # sessions of two steps do not tell three types apart
    estimate = lmab.fit(log, n_types=3, method=lmab.EM(restarts=4), check=False, rng=0)
    assert estimate.type_prior.columns == ("land",)
    assert estimate.bandit.weights.min() > 0.2
    assert estimate.known[0] > estimate.known[1] > 0


def test_a_check_counts_what_is_known_before_a_session():
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
    log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=60, horizon=3, rng=0)
    estimate = lmab.fit(log, n_types=2, method=lmab.EM(restarts=1, prior=1.0), check=False, rng=0)
    method = lmab.EM(restarts=1, prior=1.0)
    one, other = (
        check(replace(estimate, known=known), method=method, n_types=2, traits=False, rng=1)
        for known in (None, (0.5, 0.3))
    )
    assert other.log_likelihood == pytest.approx(one.log_likelihood + 0.5)
    assert other.over_one_type.mean == pytest.approx(one.over_one_type.mean + 0.5)
    assert other.over_one_type.stderr == pytest.approx(np.hypot(one.over_one_type.stderr, 0.3))
    assert other.over_independent_arms.mean == pytest.approx(one.over_independent_arms.mean + 0.5)


def short_log(strength, n=4000):
    """Four types in sessions of two steps, which rewards alone do not tell apart, and a segment of 12 values."""
    rng = np.random.default_rng([9, 1])
    truth = lmab.LatentBandit.bernoulli(np.full(4, 0.25), rng.uniform(0.1, 0.9, (4, 8)))
    weights = {f"v{i}": row for i, row in enumerate(rng.dirichlet(np.full(4, strength), 12))}
    prior = TypePrior.by_value("segment", weights)
    return simulate(truth, Uniform(8), n_sessions=n, horizon=2, type_prior=prior, rng=rng)


@pytest.mark.slow
def test_features_tell_how_many_types_there_are():
    log = short_log(0.4)
    found = fit(log, n_types="auto", rng=0)
    blind = Sessions.from_arrays(log.arms.reshape(-1, 2), log.rewards.reshape(-1, 2), n_arms=8)
    alone = fit(blind, n_types="auto", rng=0)
    assert found.curve.known
    assert found.n_types in (4, 5)  # one too many is harmless
    assert (alone.bandit.weights > 0.01).sum() < 4  # on some processors a fourth one is chosen, which nobody has
    assert (found.bandit.weights > 0.01).sum() >= 4
    assert not alone.curve.known
    assert "given the features" in found.message
    assert found.curve.log_likelihood[3] > alone.curve.log_likelihood.max()


@pytest.mark.parametrize(("strength", "known"), [(0.2, True), (1e6, False)])
def test_the_number_of_types_is_chosen_with_features_that_tell(strength, known, monkeypatch):
    monkeypatch.setattr(fit_module, "MAX_TYPES", 3)
    monkeypatch.setattr(fit_module, "_METHOD", EM(restarts=1, prior=1.0))
    log = observe(short_log(strength, n=1000))
    curve, alone = (choose(log, told=told, rng=np.random.default_rng(0)) for told in (True, False))
    assert curve.known is known
    assert ("given the features" in str(curve)) is known
    assert not alone.known
    if known:
        assert curve.log_likelihood.max() > alone.log_likelihood.max()
    assert curve.log_likelihood[0] == alone.log_likelihood[0]  # one type has no prior


@pytest.mark.parametrize("together", [True, False])
def test_what_features_tell_of_sessions_held_out(together):
    log = short_log(0.4)
    encoded = observe(log)
    seen, held = encoded.subset(np.arange(1000, 4000)), encoded.subset(np.arange(1000))
    plain = EM(restarts=2, prior=1.0).fit(seen, n_types=4, rng=np.random.default_rng(0))
    prior = plain.arm_prior if together else None
    gains = type_priors.feature_gains(seen, held, plain.bandit, prior, rng=np.random.default_rng(0), passes=SERIAL)
    assert gains.shape == (1000,)
    assert gains.mean() > 2 * gains.std() / np.sqrt(1000)
    one = EM(restarts=1, prior=1.0).fit(seen, n_types=1, rng=np.random.default_rng(0)).bandit
    assert not type_priors.feature_gains(seen, held, one, prior, rng=np.random.default_rng(0), passes=SERIAL).any()


def test_another_ridge_keeps_what_was_computed_of_the_rows(rng):
    columns = {"age": rng.normal(size=200), "land": rng.choice(["de", "fr", "it"], 200)}
    features = Features.of(columns, 200)
    terms, _ = make_columns(features)
    design = type_priors.Design.of(terms, features, 200, ridge=5.0)
    curvature, bound, ridge = design.curvature, design.bound, 2 * design.ridge
    other, fresh = design.with_ridge(ridge), replace(design, ridge=ridge)
    assert other.curvature is curvature
    np.testing.assert_array_equal(other.ridge, ridge)
    np.testing.assert_array_equal(other.bound, fresh.bound)
    assert not np.array_equal(other.bound, bound)


def test_means_of_levels_explain_what_indicators_do(rng):
    levels = rng.integers(6, size=300)
    target = rng.normal(size=300) + levels % 3
    indicators = np.eye(6)[levels]
    assert type_priors._explained(levels, target) == pytest.approx(type_priors._explained(indicators, target))


@pytest.mark.parametrize("missing", [0, 5])
def test_a_column_of_text_made_of_rewards_is_suspected(missing):
    _, log = two_types(400, type_prior=None)
    sums = np.add.reduceat(log.rewards, log.offsets[:-1])
    text = [None if i < missing else f"{total:g} clicks" for i, total in enumerate(sums.tolist())]
    with pytest.warns(LmabWarning, match="column 'total' explains (9[89]|100)% of the rewards"):
        fit(with_features(log, {"total": text}), n_types=2, method=EM(restarts=2, threads=1), rng=1)
