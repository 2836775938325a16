"""Estimation of step effects: M step beside direct optimisation, selection on held-out sessions, and fits."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

import lmab
from lmab import LatentBandit, Sessions
from lmab.estimation.log import Prior
from lmab.estimation.step_effects import (
    Fitted,
    Gain,
    StepEffects,
    _Steps,
    first_steps,
    information,
    learn,
    newton,
    tilted,
    vardi,
)
from lmab.model import belief
from lmab.parallel import SERIAL

PLACES = np.array([0.0, 0.5, 1.0])


def drawn(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return expected counts (H, A, Z, M) and tables (A, Z, M)."""
    counts = rng.gamma(2.0, 3.0, (4, 3, 3, 2))
    return counts, np.moveaxis(rng.dirichlet(np.ones(3), (3, 2)), 1, 2)


def likelihood(counts: np.ndarray, tables: np.ndarray, delta: np.ndarray) -> float:
    return float((counts * np.log(tilted(tables, delta, PLACES))).sum())


def flat(log: Sessions) -> Prior:
    return Prior(np.full((log.n_arms, 2), 0.5), np.zeros(log.n_arms))


def plain(bandit: LatentBandit) -> LatentBandit:
    return LatentBandit(bandit.weights, bandit.rewards, leaving=bandit.leaving)


def falling(n_types: int = 2) -> LatentBandit:
    means = np.array([[0.8, 0.3, 0.5, 0.6], [0.3, 0.8, 0.4, 0.6]])[:n_types]
    return LatentBandit.bernoulli(np.ones(n_types) / n_types, means, step_effects=[0.0, -0.4, -0.7, -1.0, -1.2])


def test_newton_maximises_the_penalised_likelihood_of_delta(rng):
    counts, tables = drawn(rng)
    delta, precision = np.zeros(4), 30.0
    for _ in range(30):
        delta, _ = newton(counts, tables, delta, PLACES, precision)
    found = minimize(
        lambda x: -likelihood(counts, tables, x) + precision / 2 * (np.diff(x) ** 2).sum(), np.zeros(4), tol=1e-12
    )
    np.testing.assert_allclose(delta, found.x, atol=1e-4)


def test_vardi_never_lowers_the_likelihood_and_ends_at_its_maximum(rng):
    counts, tables = drawn(rng)
    delta = np.array([0.0, -1.0, 0.5, 1.0])
    before = likelihood(counts, tables, delta)
    for _ in range(400):
        tables = vardi(counts, tables, delta, PLACES)
        after = likelihood(counts, tables, delta)
        assert after >= before - 1e-9
        before = after
    logits = np.log(tables)
    best = minimize(lambda x: -likelihood(counts, np.exp(x.reshape(logits.shape)), delta), logits.ravel(), tol=1e-10)
    assert -best.fun == pytest.approx(before, abs=1e-4)


def test_without_effects_the_update_is_the_ratio_of_counts(rng):
    counts, tables = drawn(rng)
    ratio = counts.sum(axis=0) / counts.sum(axis=(0, 2))[:, None]
    np.testing.assert_allclose(vardi(counts, tables, np.zeros(4), PLACES), ratio, rtol=1e-12)


def test_an_arm_without_plays_keeps_its_table(rng):
    counts, tables = drawn(rng)
    counts[:, 1] = 0.0
    np.testing.assert_array_equal(vardi(counts, tables, np.zeros(4), PLACES)[1], tables[1])


def test_the_e_step_is_that_of_the_model(rng):
    truth = falling()
    log = lmab.simulate(truth, lmab.Uniform(4), n_sessions=200, horizon=5, rng=rng)
    steps = _Steps.of(log, plain(truth), None, flat(log))
    model = steps.start(plain(truth))
    model = type(model)(model.weights, model.tables, np.asarray(truth.step_effects), 1.0)
    shares, logs = steps.posterior(model)
    joint = belief.log_joint(truth, log)
    np.testing.assert_allclose(logs, np.logaddexp.reduce(joint, axis=1), rtol=1e-10)
    np.testing.assert_allclose(shares, belief.posterior(truth, log), atol=1e-10)
    counts = steps.counts(shares)
    assert counts.sum() == pytest.approx(log.n_steps, rel=1e-10)
    first = np.flatnonzero((log.steps == 2) & (log.arms == 1) & (log.rewards == 1))
    owner = np.repeat(np.arange(len(log)), log.lengths)
    np.testing.assert_allclose(counts[2, 1, 1], shares[owner[first]].sum(axis=0), rtol=1e-10)


def test_em_never_lowers_its_objective(rng):
    truth = falling()
    log = lmab.simulate(truth, lmab.Uniform(4), n_sessions=500, horizon=5, rng=rng)
    steps = _Steps.of(log, plain(truth), None, Prior(np.full((4, 2), 0.5), np.full(4, 2.0)))
    model = steps.start(plain(truth))
    before = -np.inf
    for _ in range(30):
        precision = model.precision
        model, objective = steps.iterate(model, moves=True)
        model = type(model)(model.weights, model.tables, model.delta, precision)  # the prior that is maximised
        assert objective >= before - 1e-6
        before = objective


@pytest.mark.parametrize("n_types", [1, 2])
def test_effects_are_found_with_their_size(rng, n_types):
    truth = falling(n_types)
    log = lmab.simulate(truth, lmab.Uniform(4), n_sessions=4000, horizon=7, rng=rng)
    found = learn(log, plain(truth), None, flat(log), rng=rng)
    assert isinstance(found, Fitted)
    assert found.converged
    expected = np.append(truth.step_effects, [-1.2, -1.2])
    np.testing.assert_allclose(found.bandit.step_effects, expected, atol=0.25)
    np.testing.assert_allclose(found.bandit.means, truth.means, atol=0.08)
    assert found.component.gain.mean > 3 * found.component.gain.stderr


def test_no_effects_are_found_where_there_are_none(rng):
    truth = plain(falling())
    n_found = 0
    for _ in range(8):
        log = lmab.simulate(truth, lmab.Uniform(4), n_sessions=800, horizon=6, rng=rng)
        n_found += isinstance(learn(log, truth, None, flat(log), rng=rng), Fitted)
    assert n_found == 0


def test_a_policy_that_learns_is_no_step_effect(rng):
    truth = plain(falling())  # rewards rise with the step, because the policy learns the type
    log = lmab.simulate(truth, lmab.Thompson(truth), n_sessions=3000, horizon=6, rng=rng)
    by_step = [log.rewards[log.steps == step].mean() for step in (0, 5)]
    assert by_step[1] > by_step[0] + 0.05
    assert not isinstance(learn(log, truth, None, flat(log), rng=rng), Fitted)


def test_logs_of_one_step_and_continuous_rewards_have_no_comparison(rng):
    truth = plain(falling())
    log = lmab.simulate(truth, lmab.Uniform(4), n_sessions=50, horizon=1, rng=rng)
    assert learn(log, truth, None, flat(log), rng=rng) is None
    normal = LatentBandit.gaussian([1.0], [[0.0, 1.0]])
    other = lmab.simulate(normal, lmab.Uniform(2), n_sessions=50, horizon=3, rng=rng)
    assert learn(other, normal, None, flat(other), rng=rng) is None


def test_a_fit_selects_effects_and_keeps_them(rng, tmp_path):
    truth = falling()
    log = lmab.simulate(truth, lmab.Uniform(4), n_sessions=3000, horizon=5, rng=rng)
    estimate = lmab.fit(log, n_types=2, rng=0)
    assert isinstance(estimate.step, StepEffects)
    assert "Rewards depend on the step, and the model includes this" in estimate.message
    assert not estimate.assumptions["step"].fires
    assert "the model includes this" in estimate.assumptions["step"].sentence
    total = np.logaddexp.reduce(belief.log_joint(estimate.bandit, log), axis=1).sum()
    assert estimate.log_likelihood == pytest.approx(total, rel=1e-12)
    assert len(estimate.step.table) == 5
    assert estimate.step.table[4]["change"] == pytest.approx(estimate.step.changes[4])
    estimate.save(tmp_path / "estimate.lmab")
    again = lmab.load(tmp_path / "estimate.lmab")
    assert again.bandit == estimate.bandit
    assert again.step.summary == estimate.step.summary
    np.testing.assert_allclose(again.with_log(log).posterior(), estimate.posterior(), rtol=1e-12)


def test_fits_with_features_and_attrition_include_effects(rng):
    prior = lmab.TypePrior.by_value("country", {"de": [0.9, 0.1], "fr": [0.1, 0.9]})
    leaving = np.array([[[0.3, 0.1]] * 4, [[0.1, 0.02]] * 4])
    truth = LatentBandit(np.array([0.5, 0.5]), falling().rewards, leaving=leaving, step_effects=falling().step_effects)
    log = lmab.simulate(truth, lmab.Uniform(4), n_sessions=4000, horizon=6, type_prior=prior, rng=rng)
    estimate = lmab.fit(log, n_types=2, rng=0, check=False)
    assert estimate.type_prior is not None
    assert estimate.step is not None
    assert estimate.bandit.leaving is not None
    np.testing.assert_allclose(estimate.bandit.step_effects[:4], truth.step_effects[:4], atol=0.35)


def test_fits_without_a_learned_prior_stay_as_they_were(rng):
    log = lmab.simulate(falling(), lmab.Uniform(4), n_sessions=1000, horizon=5, rng=rng)
    assert lmab.fit(log, n_types=2, method=lmab.EM(prior=1.0), rng=0).step is None


def test_the_gain_is_reported_where_effects_are_not_confirmed(rng):
    truth = plain(falling())
    outcomes = []
    for _ in range(30):
        log = lmab.simulate(truth, lmab.Uniform(4), n_sessions=200, horizon=6, rng=rng)
        outcomes.append(learn(log, truth, None, flat(log), rng=rng))
    assert {type(one) for one in outcomes} <= {type(None), Gain}
    assert sum(one is None for one in outcomes) >= 18  # nine of ten logs without effects need no comparison


def test_information_is_minus_the_second_derivative(rng):
    truth = falling()
    log = lmab.simulate(truth, lmab.Uniform(4), n_sessions=300, horizon=4, rng=rng)
    prior = flat(log)
    encoded = lmab.fit(log, n_types=2, method=lmab.EM(prior=1.0), rng=0).require_log()
    found = information(encoded, truth, prior, SERIAL)
    size = len(found.matrix)

    def value(move: np.ndarray) -> float:
        rewards = found.coordinates.moved(move[None])[0]
        weights = found.coordinates.moved_weights(move[None])[0]
        moved = LatentBandit(weights, rewards, step_effects=truth.step_effects)
        return float(np.logaddexp.reduce(belief.log_joint(moved, log), axis=1).sum())

    step, units = 1e-3, np.eye(size)
    for i in range(size):
        for j in range(i + 1):
            corners = [value(step * (a * units[i] + b * units[j])) * a * b for a in (1, -1) for b in (1, -1)]
            assert found.matrix[i, j] == pytest.approx(-sum(corners) / (4 * step**2), abs=0.02), (i, j)


def test_standard_errors_of_a_fit_with_effects_are_finite(rng):
    log = lmab.simulate(falling(), lmab.Uniform(4), n_sessions=3000, horizon=5, rng=rng)
    estimate = lmab.fit(log, n_types=2, rng=0, check=False)
    assert estimate.step is not None
    errors = estimate.standard_errors()
    assert np.isfinite(errors.means).all()
    assert (np.abs(estimate.bandit.means - falling().means[estimate.bandit.means[:, 0].argsort()[::-1]]).max()) < 0.15


def test_rewards_of_the_first_step_are_found_from_averages(rng):
    truth = falling()
    log = lmab.simulate(truth, lmab.Uniform(4), n_sessions=50, horizon=5, rng=rng)
    average = np.mean([truth.at(step).rewards.probabilities for step in range(5)], axis=0)
    found = first_steps(truth, log, [lmab.LatentBandit.categorical([0.5, 0.5], average, [0.0, 1.0]).rewards])[0]
    np.testing.assert_allclose(found.means, truth.means, atol=1e-6)
    assert first_steps(plain(truth), log, [truth.rewards]) == [truth.rewards]


def test_an_assessment_covers_the_value_under_step_effects(rng):
    truth = falling()
    log = lmab.simulate(truth, lmab.Uniform(4), n_sessions=3000, horizon=5, rng=rng)
    estimate = lmab.fit(log, n_types=2, rng=0)
    plan = lmab.plan(estimate, horizon=5, anyway=True)
    value = lmab.evaluate(plan, truth, horizon=5).mean
    found = lmab.assess(estimate, plan, log, n_draws=40, rng=1)
    low, high = found.value
    assert low < value < high < 1.25 * value  # without effects of the step the model predicts 1.4 times the value
    gain = value - truth.best_fixed(5)
    assert found.gain[0] < gain < found.gain[1]
