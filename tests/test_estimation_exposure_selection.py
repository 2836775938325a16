"""When types explain arms: the rule, what it leaves alone, and what fits, assessments and files make of it."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from seeds import generator
from test_estimation_exposure import segments

import lmab
import lmab.estimation.fit as fit_module
import lmab.evaluation.assess as assess_module
from lmab.components.exposure import ExposureLog, FreeExposure
from lmab.components.features import Design, FeatureWeights
from lmab.components.weights import Weights
from lmab.errors import InvalidArgument, LmabWarning
from lmab.estimation import exposure_selection as module
from lmab.estimation.climb import climb
from lmab.estimation.exposure import with_exposure
from lmab.estimation.families import observe
from lmab.estimation.log import Beside
from lmab.evaluation import diagnostics
from lmab.model.type_prior import make_columns

METHOD = lmab.EM(restarts=4, tolerance=1e-6, sweeps=40, threads=1)


def truth(seed=0, n_types=2, n_arms=10):
    rng = generator(seed)
    return lmab.LatentBandit.bernoulli(np.full(n_types, 1 / n_types), rng.beta(1, 1.5, (n_types, n_arms)))


def order(found, bandit):
    """The types of an estimate in the order of those that they resemble."""
    cost = np.abs(bandit.means[:, None] - found.bandit.means[None]).sum(axis=2)
    return [0, 1] if np.trace(cost) <= np.trace(cost[:, ::-1]) else [1, 0]


def fit(log, rng=0, **more):
    return lmab.fit(log, n_types=2, method=METHOD, check=False, rng=rng, **more)


@pytest.fixture(scope="module")
def known():
    """A log of a site that knew the type, with three fits."""
    bandit = truth()
    log = segments(generator(1), n=1000, steps=4, truth=bandit)
    return bandit, log, {selected: fit(log, selected=selected) for selected in (False, "auto", True)}


def test_a_site_that_knew_is_found_out_and_promises_come_down(known):
    bandit, _, fits = known
    assert fits["auto"].selection is not None
    assert fits[False].selection is None
    over = {}
    for selected in (False, "auto"):
        plan = lmab.plan(fits[selected].bandit, horizon=4)
        over[selected] = plan.lower - lmab.evaluate(plan.policy, bandit, horizon=4).mean
    assert over["auto"] < over[False] - 0.1
    assert fits["auto"].bandit.distance(bandit) < fits[False].bandit.distance(bandit)


def test_what_was_found_is_said(known):
    found = known[2]["auto"]
    assert found.selection.sentence in found.message
    assert found.selection.sentence.startswith("selective exposure: the logged arms depend on the latent type")
    assert not any(sign.isdigit() for sign in found.selection.plain)
    checked = diagnostics.check(found, traits=False, n_folds=1, rng=1)
    without = diagnostics.check(replace(found, selection=None), traits=False, n_folds=1, rng=1)
    gained = found.selection.gain.mean  # held-out rewards are predicted better by types that explain arms
    assert checked.over_one_type.mean == pytest.approx(without.over_one_type.mean + gained)
    assert found.selection.ratio > module.RATIO
    assert found.selection.gain.mean > 0
    assert found.converged
    assert found.n_parameters == known[2][False].n_parameters + found.selection.n_parameters
    assert found.log_likelihood < known[2][False].log_likelihood
    assert found.assumptions["exposure"].fires
    assert (
        "the model includes this, and the intervals assume that it is right" in found.assumptions["exposure"].sentence
    )


def test_asking_for_it_gives_what_the_rule_takes(known):
    np.testing.assert_array_equal(known[2][True].bandit.means, known[2]["auto"].bandit.means)


def test_a_random_log_keeps_its_fit_to_the_bit():
    log = lmab.simulate(truth(), lmab.Uniform(10), n_sessions=600, horizon=4, rng=3)
    plain, auto = (fit(log, selected=selected) for selected in (False, "auto"))
    assert auto.selection is None
    assert (auto.bandit.means == plain.bandit.means).all()
    assert auto.message == plain.message
    forced = fit(log, selected=True)
    assert forced.selection is not None
    assert abs(forced.selection.steepness) < 1.5


def test_a_fit_that_stops_early_does_not_say_that_it_converged(known, monkeypatch):
    def stopped(*given, **more):
        found = explain(*given, **more)
        assert found.candidate is not None
        climb = replace(found.candidate.climb, converged=np.array([False]))
        return replace(found, candidate=replace(found.candidate, climb=climb))

    explain = module.explain
    monkeypatch.setattr(module, "explain", stopped)
    with pytest.warns(LmabWarning, match="did not converge: the fit with selective exposure stopped"):
        found = fit(known[1], selected=True)
    assert not found.converged
    assert "converged after" not in found.message


def test_the_generator_is_where_it_would_have_been():
    log = segments(generator(1), n=400, steps=4, truth=truth())
    numbers = []
    for selected in (False, "auto"):
        rng = np.random.default_rng(5)
        fit(log, rng=rng, selected=selected)
        numbers.append(rng.random())
    assert numbers[0] == numbers[1]


def test_a_site_that_reacts_keeps_its_fit():
    bandit = truth(3, n_arms=5)
    for policy in (lmab.policies.Exploring(lmab.Greedy(bandit), floor=0.2), lmab.Thompson(bandit)):
        log = lmab.simulate(bandit, policy, n_sessions=600, horizon=4, rng=4)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert fit(log).selection is None


def hidden(n=800, steps=5, seed=5):
    """A site whose segments have nothing to do with what people like."""
    rng, bandit = generator(seed), truth()
    types, groups = rng.integers(2, size=(2, n))
    chances = np.exp(1.5 * rng.normal(size=(2, 10)))
    chances /= chances.sum(axis=1, keepdims=True)
    arms = (np.cumsum(chances[groups], axis=1)[:, None] > rng.random((n, steps, 1))).argmax(axis=2)
    rewards = bandit.rewards.sample(np.repeat(types, steps), arms.ravel(), rng=rng).reshape(n, steps)
    return lmab.Sessions.from_arrays(arms, rewards, n_arms=10)


def test_segments_that_types_do_not_explain_are_warned_of_with_the_remedy():
    with pytest.warns(LmabWarning, match="but latent types do not explain this") as told:
        found = fit(hidden())
    assert found.selection is None
    text = str(told[0].message)
    assert "threshold 15" in text
    assert "threshold 3" in text
    assert "log the information that the site used, such as the segment, as a feature" in text


def test_a_log_without_repeats_is_normalised_over_the_arms_left():
    bandit = truth(3)
    log = segments(generator(3), n=800, steps=4, truth=bandit, repeats=False)
    found, plain = fit(log), fit(log, selected=False)
    assert found.selection is not None
    promised = [lmab.plan(one.bandit, horizon=4, repeats=False) for one in (found, plain)]
    over = [one.lower - lmab.evaluate(one.policy, bandit, horizon=4).mean for one in promised]
    assert over[0] < over[1] - 0.05
    popular = np.argsort(-(0.5 * np.arange(10) + generator(6).gumbel(size=(600, 10))), axis=1)[:, :4]
    types = generator(7).integers(2, size=600)
    rewards = bandit.rewards.sample(np.repeat(types, 4), popular.ravel(), rng=generator(8)).reshape(600, 4)
    assert fit(lmab.Sessions.from_arrays(popular, rewards, n_arms=10)).selection is None


def test_claims_rest_on_types_that_explain_arms(known, tmp_path):
    bandit, log, fits = known
    found = fits["auto"]
    plan = lmab.plan(found.bandit, horizon=4)
    assessment = lmab.assess(found, plan, log, n_draws=20, rng=1)
    earned = lmab.evaluate(plan.policy, bandit, horizon=4).mean
    assert assessment.value[0] <= earned <= assessment.value[1]
    assert assessment.assumptions["exposure"].fires
    assert "the intervals assume that it is right" in assessment.table["selective exposure"]
    assert "number of types" not in assessment.table
    other = lmab.plan(fits[False].bandit, horizon=4)
    assert lmab.assess(fits[False], other, log, n_draws=20, rng=1).value is None
    found.save(tmp_path / "estimate.lmab")
    loaded = lmab.load(tmp_path / "estimate.lmab")
    np.testing.assert_array_equal(loaded.selection.favour, found.selection.favour)
    assert loaded.selection.sentence == found.selection.sentence
    again = lmab.assess(loaded.with_log(log), plan, log, n_draws=20, rng=1)
    assert again.value == assessment.value


def test_a_packed_log_gives_the_same_types(known, tmp_path):
    _, log, fits = known
    packed = lmab.pack(log, tmp_path / "packed")
    found = fit(packed)
    np.testing.assert_allclose(found.bandit.means, fits["auto"].bandit.means, rtol=1e-9)


def test_a_large_log_is_decided_on_a_part_and_fitted_whole(known, monkeypatch, tmp_path):
    bandit, log, _ = known
    plain = ExposureLog.of
    monkeypatch.setattr(module.ExposureLog, "of", classmethod(lambda cls, log, **said: plain(log, most=400, **said)))
    fits = [fit(data, selected=True) for data in (log, lmab.pack(log, tmp_path / "packed"))]
    np.testing.assert_allclose(fits[0].bandit.means, fits[1].bandit.means, rtol=1e-9)
    monkeypatch.setattr(module.ExposureLog, "over", lambda self, log: self)
    part = fit(log, selected=True)
    error, more = (
        np.abs(found.bandit.relabel(types=order(found, bandit)).means - bandit.means).mean()
        for found in (fits[0], part)
    )
    assert error < more


def test_few_sessions_are_not_asked(known):
    log = known[1]
    assert module.may_depend_on_types(5.0, log, 20)
    assert not module.may_depend_on_types(5.0, log[:99], 20)
    assert not module.may_depend_on_types(
        0.9, lmab.simulate(truth(), lmab.Uniform(10), n_sessions=600, horizon=4, rng=3), 20
    )


def test_thousands_of_parameters_are_not_asked_about_with_few_steps_of_each(known, monkeypatch):
    log = known[1]
    most = log.n_steps // 8
    assert module.may_depend_on_types(5.0, log, most)
    assert not module.may_depend_on_types(5.0, log, most + 1)
    monkeypatch.setattr(module, "LOOKED_AT", len(log) // 2)  # then only these are looked at
    assert module.may_depend_on_types(5.0, log, most // 2 - 4)
    assert not module.may_depend_on_types(5.0, log, most // 2 + 4)


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ({"selected": "yes"}, "selected must be 'auto', True or False, got 'yes'"),
        ({"selected": True, "rewards": "gaussian"}, "where rewards are not on finitely many values"),
        ({"selected": True, "n_types": 1}, "where there are no two types"),
        (
            {"selected": True, "method": lmab.EM(prior=1.0, rank=1)},
            "for methods other than EM without a rank, got True",
        ),
    ],
)
def test_what_cannot_be_explained_is_refused(more, wanted):
    log = lmab.simulate(truth(), lmab.Uniform(10), n_sessions=60, horizon=3, rng=3)
    with pytest.raises(InvalidArgument, match=wanted):
        lmab.fit(log, **({"n_types": 2, "method": METHOD, "rng": 0} | more))


def test_what_else_tells_the_type_needs_no_explanation(known):
    found, reason = known[2][False], fit_module._unexplainable
    assert reason(found, METHOD) is None
    leaving = np.full((2, 10, 2), 0.1)
    alike, apart = (replace(found.bandit, leaving=one) for one in (leaving, leaving * [[[1]], [[2]]]))
    assert reason(replace(found, bandit=alike), METHOD) is None
    assert reason(replace(found, bandit=apart), METHOD) == "where who leaves depends on the type"


def test_rewards_are_predicted_from_arms_so_far_and_earlier_rewards(rng):
    bandit = truth()
    log = segments(rng, n=80, steps=3, truth=bandit)
    site = ExposureLog.of(observe(log))
    rows, u = np.arange(10, 30), rng.gamma(4.0, 0.25, size=(10, 2))
    exposure = FreeExposure(site, 2, 64.0)
    model = with_exposure(Weights(), exposure, site.log.prior(0.0))
    own = np.zeros((10, 8))
    own[:, :2] = u
    parameters = np.concatenate([site.log.pack(bandit)[0, :21], own])
    climbed = climb(model, parameters[None], left=0.0, max_maps=1, accelerate=False)
    fitted = module.Candidate("free", model, parameters, climbed)
    chance = site.shares[:, :, None] * u / (site.shares @ u)[:, None]
    for favour in (None, u):
        expected = []
        for row in rows:
            total, mass, one = 0.0, bandit.weights.copy(), log[int(row)]
            for step, (arm, reward) in enumerate(zip(one.arms, one.rewards, strict=True)):
                if favour is not None:
                    mass = mass * chance[site.states[log.offsets[row] + step], arm]
                paid = np.where(reward > 0, bandit.means[:, arm], 1 - bandit.means[:, arm])
                total += np.log((mass * paid).sum() / mass.sum())
                mass = mass * paid
            expected.append(total)
        found = module._rewards(fitted, site, rows, exposed=favour is not None)
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_pairs_are_compared_with_those_of_neighbouring_sessions():
    log = lmab.Sessions.from_arrays([[0, 0], [1, 1], [0, 0], [1, 1]], np.zeros((4, 2)))
    # Together (0, 0) and (1, 1) twice each; with the next session's second step (0, 1) and (1, 0) twice each.
    assert module.pairs(log) == pytest.approx((4 * 4 / 2 - 4) / np.sqrt(8))
    assert module.pairs(log[[0, 1]]) == pytest.approx((4 * 1 - 4) / np.sqrt(8))
    assert module.pairs(lmab.Sessions.from_arrays([[0], [1]], [[0.0], [1.0]])) == 0.0


def knowing_site_with_features(n=1500, steps=4, seed=6):
    """A log whose arms depend on the type, beyond a feature that predicts the type."""
    rng, bandit = generator(seed), truth(3)
    groups = rng.integers(2, size=n)
    types = (rng.random(n) < np.where(groups, 0.8, 0.25)).astype(int)
    arms = (3.0 * bandit.means[types][:, None] + rng.gumbel(size=(n, steps, 10))).argmax(axis=2)
    rewards = bandit.rewards.sample(np.repeat(types, steps), arms.ravel(), rng=rng).reshape(n, steps)
    features = {"group": groups.astype(str)}
    return bandit, lmab.Sessions.from_arrays(arms, rewards, n_arms=10, features=features)


def test_exposure_is_estimated_together_with_features():
    bandit, log = knowing_site_with_features()
    both, features = (fit(log, selected=selected) for selected in ("auto", False))
    assert both.selection is not None
    assert both.type_prior is not None
    assert both.type_prior.columns == ("group",)
    assert both.bandit.distance(bandit) < features.bandit.distance(bandit)
    weights = both.type_prior.weights(log.features.only(("group",)))
    np.testing.assert_allclose(weights.mean(axis=0), both.bandit.weights, atol=1e-6)
    groups = np.array([[0.75, 0.25], [0.2, 0.8]])[:, order(both, bandit)]
    found = [weights[log.features["group"] == label].mean(axis=0) for label in ("0", "1")]
    np.testing.assert_allclose(found, groups, atol=0.08)


def test_an_assessment_samples_the_weights_of_groups_and_the_exposure(monkeypatch):
    _, log = knowing_site_with_features(n=800)
    estimate = fit(log, selected=True)
    assert sorted(estimate.components) == ["exposure", "features"]
    samplers, make = [], assess_module.sampler_with_exposure

    def watched(*given):
        made = make(*given)

        def sampler():
            samplers.append(made())
            return samplers[-1]

        return sampler

    monkeypatch.setattr(assess_module, "sampler_with_exposure", watched)
    plan = lmab.plan(estimate, horizon=4, anyway=True)
    assessment = lmab.assess(estimate, plan, log, n_draws=40, rng=0)
    assert samplers
    assert {len(one.group_sums) for one in samplers} == {2}
    assert all(one.group_sums.sum() == 800 for one in samplers)
    assert assessment.value[0] < lmab.evaluate(plan, estimate, horizon=4).mean < assessment.value[1]


def test_the_likelihood_of_features_and_exposure_is_that_of_their_definition(rng):
    _, log = knowing_site_with_features(n=60)
    encoded, bandit = observe(log), truth(3)
    design = Design.of(make_columns(log.features)[0], log.features, 60, ridge=0.0)
    coefficients, u = rng.normal(size=(design.size, 2)), rng.gamma(4.0, 0.25, size=(10, 2))
    features = FeatureWeights(design, 2)
    site = ExposureLog.of(encoded.coded(log, Beside.of(features.group_codes)))
    model = with_exposure(features, FreeExposure(site, 2, 0.0), encoded.prior(0.0))
    parameters = np.zeros((1, design.size + encoded.n_own + 10, 8))
    parameters[0, : design.size, :2], parameters[0, -10:, :2] = coefficients, u
    parameters[0, design.size : -10] = encoded.pack(bandit)[0, 1:]
    found = model.map(parameters)[0][0]
    chance = site.shares[:, :, None] * u / (site.shares @ u)[:, None]
    weights, step = design.weights(coefficients)[design.groups], 0
    expected: Any = 0.0
    for one, own in zip(log, weights, strict=True):
        mass = own.copy()
        for arm, reward in zip(one.arms, one.rewards, strict=True):
            mass *= chance[site.states[step], arm] * np.where(
                reward > 0, bandit.means[:, arm], 1 - bandit.means[:, arm]
            )
            expected -= np.log(site.shares[site.states[step], arm])
            step += 1
        expected += np.log(mass.sum())
    assert found == pytest.approx(expected, rel=1e-10)
