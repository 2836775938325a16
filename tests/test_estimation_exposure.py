"""Types that explain arms: the model against its definition, in memory, in files, and without repeats."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import gamma, poisson

import lmab
from lmab.components import exposure as module
from lmab.components.exposure import ExposureLog, FreeExposure, PreferenceExposure, States
from lmab.components.weights import Weights
from lmab.estimation import exposure as estimates
from lmab.estimation.exposure import sampler_of, with_exposure
from lmab.estimation.families import observe
from lmab.estimation.log import Beside, CodeBlock
from lmab.estimation.result import Selection
from lmab.parallel import SERIAL

TRUTH = lmab.LatentBandit.bernoulli([0.6, 0.4], [[0.9, 0.5, 0.2, 0.4], [0.1, 0.4, 0.8, 0.5]])
N_OWN = 8


def segments(rng, n=300, steps=4, strength=3.0, repeats=True, truth=TRUTH):
    """A log of a site that knows the type and shows what it likes."""
    types = rng.choice(truth.n_types, n, p=truth.weights)
    scores = strength * truth.means[types]
    if repeats:
        arms = (scores[:, None] + rng.gumbel(size=(n, steps, truth.n_arms))).argmax(axis=2)
    else:
        arms = np.argsort(-(scores + rng.gumbel(size=scores.shape)), axis=1)[:, :steps]
    rewards = truth.rewards.sample(np.repeat(types, steps), arms.ravel(), rng=rng).reshape(n, steps)
    return lmab.Sessions.from_arrays(arms, rewards, n_arms=truth.n_arms)


def favour(rng):
    return rng.gamma(4.0, 0.25, size=(4, 2))


def by_definition(site, sessions, u):
    """Sum over sessions of log sum_m w_m prod_steps p(arm | m, state) p(reward | arm, m), with the steps' own V."""
    chance = site.shares[:, :, None] * u
    chance /= chance.sum(axis=1, keepdims=True)
    total, step = 0.0, 0
    for one in sessions:
        mass = TRUTH.weights.copy()
        for arm, reward in zip(one.arms, one.rewards, strict=True):
            mean = TRUTH.means[:, arm]
            mass = mass * chance[site.states[step], arm] * np.where(reward > 0, mean, 1 - mean)
            step += 1
        total += np.log(mass.sum())
    return total


@pytest.mark.parametrize("repeats", [True, False])
def test_the_likelihood_is_that_of_arms_and_rewards(rng, repeats):
    sessions = segments(rng, repeats=repeats)
    site, u = ExposureLog.of(observe(sessions)), favour(rng)
    logs, _ = exposed(FreeExposure(site, 2, 0.0), 0.0).map(models_of(site, u))
    constant = np.log(site.shares[site.states, sessions.arms]).sum()
    assert logs[0] + constant == pytest.approx(by_definition(site, sessions, u), rel=1e-10)


def test_the_rows_of_tables_are_at_most_one(rng):
    site = ExposureLog.of(observe(segments(rng)))
    model = exposed(FreeExposure(site, 2, 0.0), 0.0)
    table = model.written(models_of(site, 50 * favour(rng)))[2]
    assert table.array[:, 1:].max() > 1.0
    model.e_step.expectation(table.array, SERIAL)
    assert table.array.max() <= 1.0


def test_what_a_site_does_in_a_part_of_the_calendar_is_drawn_to_the_average(rng):
    sessions = segments(rng, n=200)
    site = ExposureLog.of(observe(sessions))
    b = (np.bincount(sessions.arms, minlength=4) + 0.5) / (sessions.n_steps + 2)
    np.testing.assert_allclose(site.marginal, b)
    for part in range(4):
        own = np.bincount(sessions.arms[200 * part : 200 * (part + 1)], minlength=4)
        np.testing.assert_allclose(site.shares[part], (own + 10 * b) / 210)
    np.testing.assert_array_equal(site.states, np.repeat(np.arange(4), 200))


@pytest.mark.parametrize(("n_sessions", "n_parts"), [(60, 1), (120, 2), (2100, 40)])
def test_parts_of_the_calendar_have_at_least_50_sessions(rng, n_sessions, n_parts):
    assert len(ExposureLog.of(observe(segments(rng, n=n_sessions))).shares) == n_parts


def test_without_repeats_chances_are_over_the_arms_left(rng):
    sessions = segments(rng, n=200, repeats=False)
    site = ExposureLog.of(observe(sessions))
    for step in range(sessions.n_steps):
        first = sessions.offsets[step // 4]
        seen = sessions.arms[first:step]
        assert set(np.flatnonzero(site.shares[site.states[step]] == 0)) == set(seen)
    assert not module._never_repeats(segments(rng, n=200))
    assert not module._never_repeats(segments(rng, n=2, repeats=False))  # too few to tell


def test_an_arm_that_may_be_shown_again_depends_on_the_step_before_where_the_log_reacts():
    log = lmab.simulate(TRUTH, lmab.Greedy(TRUTH), n_sessions=400, horizon=4, rng=1)
    site = ExposureLog.of(observe(log), reacting=True)
    assert len(ExposureLog.of(observe(log)).shares) == 8
    assert len(site.shares) == 8 * (1 + N_OWN)
    codes = log.arms * 2 + log.rewards.astype(int)
    before = np.where(log.steps == 0, 0, np.concatenate([[0], codes[:-1] + 1]))
    parts = np.repeat(np.arange(400) * 8 // 400, 4)
    np.testing.assert_array_equal(site.states, parts * 9 + before)
    expected = site.shares / site.shares.sum(axis=1, keepdims=True)
    again = [expected[site.states[i], log.arms[i]] for i in np.flatnonzero(log.steps > 0)]
    assert np.mean(np.log(again)) > np.mean(np.log(site.marginal[log.arms[log.steps > 0]])) + 0.2


def test_states_follow_from_numbers_and_codes():
    states = States(10, 5, 4)
    codes, offsets = np.array([2, 0, 1, 2, 2]), np.array([0, 2, 5])
    assert states.of(codes, offsets, 3).tolist() == [1 * 4 + 0, 1 * 4 + 3, 2 * 4 + 0, 2 * 4 + 2, 2 * 4 + 3]
    some = states.subset(np.array([0, 9])).subset(np.array([1, 0]))
    assert some.of(codes, offsets, 0).tolist() == [4 * 4, 4 * 4 + 3, 0, 2, 3]
    assert states.n_states == 20
    assert States(10, 5).of(codes, offsets, 3).tolist() == [1, 1, 2, 2, 2]


@pytest.mark.parametrize("n_last", [1, 1 + N_OWN])
def test_states_of_a_packed_log_are_those_in_memory(rng, tmp_path, n_last):
    sessions = segments(rng, n=400)
    packed = lmab.pack(sessions, tmp_path / "packed")
    beside = Beside.of(CodeBlock("more", 4 * n_last, steps=States(400, 4, n_last)))
    held, filed = (type(log).encode(log.sessions, log.values, beside) for log in (observe(sessions), observe(packed)))
    model = np.zeros((1, held.n_sums, 8))
    model[:, :, :2] = rng.random((1, held.n_sums, 2))
    for one, other in zip(held.expectation(model, SERIAL), filed.expectation(model, SERIAL), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    np.testing.assert_array_equal(held.subset(np.arange(7, 90)).codes, filed.subset(np.arange(7, 90)).codes)
    filed = replace(filed, memory=None)
    part = filed.steps(100, 150)
    np.testing.assert_array_equal(np.sort(part.codes), np.sort(held.subset(np.arange(100, 150)).steps(0, 50).codes))


def test_a_site_over_the_whole_log_keeps_what_it_does(rng, monkeypatch):
    sessions = segments(rng, n=400)
    log = observe(sessions)
    whole, some = ExposureLog.of(log), ExposureLog.of(log, most=200)
    assert len(some.log.sessions) == 200
    assert whole.over(log) is whole
    over = some.over(log)
    assert len(over.log.sessions) == 400
    np.testing.assert_array_equal(over.shares, some.shares)
    assert over.log.beside.blocks[-1].steps.n_sessions == 400


def exposed(exposure, strength=1.0):
    return with_exposure(Weights(), exposure, exposure.log.log.prior(strength))


def ratios_of(exposure, model):
    return exposed(exposure).written(model)[1][-1][0]


def models_of(site, u, beta=None):
    model = site.log.pack(TRUTH)[:, : 1 + N_OWN]
    rows = np.ones((1, 4, 8))
    if beta is not None:
        return np.concatenate([model, rows, np.full((1, 1, 8), beta)], axis=1)
    rows[..., :2], rows[..., 2:] = u, 0.0
    return np.concatenate([model, rows], axis=1)


def test_the_step_of_newton_goes_where_the_likelihood_rises(rng):
    site = ExposureLog.of(observe(segments(rng, n=500)))
    exposure = PreferenceExposure(site, 2)
    ascent = exposed(exposure)

    def objective(beta):
        return ascent.map(models_of(site, None, beta))[0][0]

    slope = (objective(1.001) - objective(0.999)) / 0.002
    moved = ascent.map(models_of(site, None, 1.0))[1][0, -1, 0]
    assert slope > 0
    assert 1.0 < moved < 8.0
    fixed = exposed(replace(exposure, learns_beta=False)).map(models_of(site, None, 1.0))[1]
    assert fixed[0, -1, 0] == 1.0
    steep = ascent.repair(models_of(site, None, 50.0), models_of(site, None, 1.0))
    assert steep[0, -1, 0] == 8.0


def test_what_everybody_is_shown_of_an_arm_is_scaled_to_its_plays(rng):
    """Chances by liking times the shares of all types together would show arms on which types differ too often."""
    sessions = segments(rng, n=2000)
    site = ExposureLog.of(observe(sessions))
    exposure, model = PreferenceExposure(site, 2, learns_beta=False), models_of(site, None, 3.0)
    ascent = exposed(exposure)
    for _ in range(40):
        _, model = ascent.map(model)
    favour = ratios_of(exposure, model)
    chance = site.shares[:, :, None] * favour / (site.shares @ favour)[:, None]
    expected = np.einsum("sam,m->a", chance[site.states], model[0, 0, :2])
    np.testing.assert_allclose(expected, np.bincount(sessions.arms), rtol=0.05)
    far = ascent.repair(-model, model)
    np.testing.assert_allclose(far[0, 1 + N_OWN : -1], 0.02 * model[0, 1 + N_OWN : -1])


def test_likes_are_differences_from_everybody(rng):
    site = ExposureLog.of(observe(segments(rng)))
    found = site.preferences(site.log.pack(TRUTH), 2)[0]
    expected = (TRUTH.means - TRUTH.weights @ TRUTH.means).T
    np.testing.assert_allclose(found, expected)
    ratios = ratios_of(PreferenceExposure(site, 2), models_of(site, None, 2.0))
    np.testing.assert_allclose(ratios, np.exp(2 * expected))


def test_the_objective_of_free_never_falls(rng):
    site = ExposureLog.of(observe(segments(rng)))
    exposure = FreeExposure(site, 2, 64.0)
    ascent = exposed(exposure)
    model = ascent.repair(models_of(site, favour(rng)), models_of(site, np.ones((4, 2))))
    np.testing.assert_allclose(site.marginal @ ratios_of(exposure, model), 1.0)
    before, ahead = ascent.map(model)
    trace = [before[0]]
    for _ in range(25):
        value, ahead = ascent.map(ahead)
        trace.append(value[0])
    assert (np.diff(trace) > -1e-9).all()
    assert trace[-1] > trace[0] + 1
    np.testing.assert_allclose(site.marginal @ ratios_of(exposure, ahead), 1.0)


def test_free_at_a_large_concentration_favours_nothing(rng):
    site = ExposureLog.of(observe(segments(rng)))
    exposure, model = FreeExposure(site, 2, 1e9), models_of(site, np.ones((4, 2)))
    np.testing.assert_allclose(ratios_of(exposure, exposed(exposure).map(model)[1]), 1.0, atol=1e-5)


def test_the_evidence_is_an_integral_over_what_is_favoured():
    plays, waited, b = np.array([[7.0]]), np.array([[5.0]]), np.array([0.2])
    for place in (0, 3):
        shape = module.CONCENTRATIONS[place] * 0.2
        law = gamma(shape, scale=1 / shape)
        integral = quad(lambda u, law=law: poisson.pmf(7, 5 * u) * law.pdf(u), 0, 20)[0]
        constant = np.log(poisson.pmf(7, 5.0))
        infinite = module._evidence(plays, waited, b)[-1]
        assert module._evidence(plays, waited, b)[place] - infinite == pytest.approx(
            np.log(integral) - constant, abs=1e-5
        )


@pytest.mark.parametrize("steepness", [3.0, None])
def test_a_chain_stays_near_a_truth_that_explains_its_log(rng, steepness):
    sessions = segments(rng, n=1500)
    log = observe(sessions)
    site = ExposureLog.of(log)
    start = np.exp(3 * (TRUTH.means - TRUTH.weights @ TRUTH.means)).T
    chain = sampler_of(site, TRUTH, start, beta=steepness, concentration=np.inf if steepness else 64.0)
    drawn = []
    for _ in range(30):
        chain.sweep(rng)
        drawn.append(lmab.LatentBandit(chain.weights, chain.rewards))
    np.testing.assert_allclose(np.mean([one.means for one in drawn[10:]], axis=0), TRUTH.means, atol=0.12)
    np.testing.assert_allclose(np.mean([one.weights for one in drawn[10:]], axis=0), TRUTH.weights, atol=0.08)
    centre, inverse = chain.likely(rng)
    assert chain.prior(centre, 1 / inverse).centre.shape == (4, 2)
    if steepness is None:
        assert chain.model.components[-1].evidence.argmax() < len(module.CONCENTRATIONS) - 1


def test_the_information_of_one_type_told_apart_is_that_of_its_plays(rng):
    """Where arms tell the type for certain, nothing is missing; without that, information is less."""
    sessions = segments(rng, n=400, strength=0.0)
    log = observe(sessions)
    selection = Selection("free", np.ones((4, 2)), 0.0, 64.0, False, 20.0, 4.0, lmab.estimation.check.Gain(0.1, 0.01))
    plain = log.information(TRUTH, log.prior(1.0)).matrix
    same = estimates.information(log, TRUTH, selection, log.prior(1.0), SERIAL).matrix
    np.testing.assert_allclose(same, plain, rtol=1e-6, atol=1e-6)
    telling = replace(selection, favour=np.array([[2.0, 0.01], [0.01, 2.0], [2.0, 0.01], [0.01, 2.0]]))
    more = estimates.information(log, TRUTH, telling, log.prior(1.0), SERIAL).matrix
    assert np.linalg.slogdet(more[1:, 1:])[1] > np.linalg.slogdet(plain[1:, 1:])[1]


def test_a_selection_says_what_was_found():
    gain = lmab.estimation.check.Gain(0.02, 0.004)
    likes = Selection("likes", np.ones((4, 2)), 2.5, np.inf, False, 321.06, 77.7, gain)
    assert likes.n_parameters == 1
    assert replace(likes, kind="free").n_parameters == 6
    assert "likelihood ratio 321.1, log evidence 77.7" in likes.sentence
    assert "+0.0200 ± 0.0040 per session" in likes.sentence
