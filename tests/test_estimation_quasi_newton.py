"""L-BFGS on functions whose maxima are known, and on likelihoods at which EM is slow."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import lmab
from lmab.estimation import climb as climb_module
from lmab.estimation.climb import Likelihood, climb
from lmab.estimation.families import observe
from lmab.estimation.quasi_newton import maximise
from lmab.parallel import SERIAL


class Function:
    """A function of the entries of a model, which are its coordinates."""

    def __init__(self, value, gradient, longest=1.0):
        self.value, self.gradient, self.largest, self.n_calls = value, gradient, longest, 0

    def place(self, model):
        return model[0]

    def model(self, place):
        return place[None]

    def evaluate(self, model):
        self.n_calls += 1
        return float(self.value(model[0])), self.gradient(model[0])

    def longest(self, direction):
        return self.largest


def rosenbrock():
    def value(x):
        return -((1 - x[0]) ** 2) - 100 * (x[1] - x[0] ** 2) ** 2

    def gradient(x):
        return np.array([2 * (1 - x[0]) + 400 * x[0] * (x[1] - x[0] ** 2), -200 * (x[1] - x[0] ** 2)])

    return Function(value, gradient)


def test_the_maximum_of_rosenbrocks_function_is_found():
    found = maximise(rosenbrock(), np.array([[-1.2, 1.0]]), left=1e-12, max_evaluations=200)
    assert found.converged
    assert found.model[0] == pytest.approx([1.0, 1.0], abs=1e-5)
    assert found.remains <= 1e-12
    assert all(after >= before for before, after in pairwise(found.trace))


def test_a_quadratic_function_of_ten_coordinates_needs_few_evaluations(rng):
    """Curvatures differ by a factor of 1,000; steepest ascent would need thousands of steps."""
    basis = np.linalg.qr(rng.normal(size=(10, 10)))[0]
    matrix = basis @ np.diag(np.geomspace(1, 1000, 10)) @ basis.T
    quadratic = Function(lambda x: -0.5 * x @ matrix @ x, lambda x: -matrix @ x)
    found = maximise(quadratic, rng.normal(size=(1, 10)), left=1e-9, max_evaluations=200)
    assert found.converged
    assert -found.objective <= 1e-9
    assert quadratic.n_calls == len(found.trace) < 80


def test_the_budget_and_the_observer_end_the_ascent():
    start = np.array([[-1.2, 1.0]])
    function = rosenbrock()
    found = maximise(function, start, left=0.0, max_evaluations=9)
    assert (function.n_calls, len(found.trace), found.converged, found.stopped) == (9, 9, False, False)
    heard = []

    def watch(n_evaluations, value):
        heard.append((n_evaluations, value))
        return n_evaluations > 5

    found = maximise(rosenbrock(), start, left=0.0, max_evaluations=99, observer=watch)
    assert found.stopped
    assert heard[-1] == (len(found.trace), found.objective)


def test_values_that_are_not_finite_shorten_the_step():
    """The logarithm is undefined at the first points that the slope suggests."""
    with np.errstate(invalid="ignore", divide="ignore"):
        function = Function(lambda x: float(np.log(1 - x[0]) + x[0] * 0.99), lambda x: -1 / (1 - x) + 0.99, longest=0.0)
        found = maximise(function, np.array([[-30.0]]), left=1e-10, max_evaluations=200)
    assert found.converged
    assert found.model[0, 0] == pytest.approx(1 - 1 / 0.99, abs=1e-3)


def made(rng, kind):
    """A log, its encoding and a prior, with types that are hard to tell apart."""
    bandit = lmab.random_bandit(3, 4, rng=rng)
    if kind == "letters":
        bandit = replace(bandit, leaving=np.broadcast_to(rng.uniform(0.05, 0.4, (3, 4, 1)), (3, 4, 2)))
    log = observe(lmab.simulate(bandit, lmab.Uniform(4), n_sessions=600, horizon=4, rng=rng))
    if kind == "letters":
        log = log.with_letters()
    return log, log.prior(0.0 if kind == "maximum likelihood" else 1.5)


@pytest.mark.parametrize("kind", ["maximum likelihood", "prior", "letters"])
def test_gradients_are_those_of_finite_differences(kind, rng):
    log, prior = made(rng, kind)
    task = Likelihood(log, 3, prior, SERIAL)
    model = log.random_models(1, 3, rng)[0]
    smooth = task.smooth(model)
    place = smooth.place(model)
    np.testing.assert_allclose(smooth.model(place), model, atol=1e-12)
    value, gradient = smooth.evaluate(model)
    assert value == pytest.approx(float(task.map(model[None])[0][0]), rel=1e-13)
    steps = np.eye(len(place)) * 1e-3
    differences = [
        smooth.evaluate(smooth.model(place + e))[0] - smooth.evaluate(smooth.model(place - e))[0] for e in steps
    ]
    np.testing.assert_allclose(gradient, np.array(differences) / 2e-3, rtol=1e-5, atol=1e-5)
    n_free = 3 + 3 * log.n_cells + (3 * log.n_cells if kind == "letters" else 0)
    assert len(place) == n_free


def test_probabilities_at_the_edge_stay_there(rng):
    log, prior = made(rng, "maximum likelihood")
    model = log.random_models(1, 3, rng)[0]
    model[1:3, 0] = [0.0, 1.0]
    smooth = Likelihood(log, 3, prior, SERIAL).smooth(model)
    moved = smooth.model(smooth.place(model) + rng.normal(size=len(smooth.place(model))))
    assert moved[1:3, 0].tolist() == [0.0, 1.0]
    assert moved[0, :3].sum() == pytest.approx(1.0)
    assert abs(moved[3:, :3] - model[3:, :3]).max() > 0.01


@pytest.mark.parametrize("kind", ["maximum likelihood", "prior", "letters"])
def test_slow_climbs_are_continued_and_reach_what_they_report(kind, rng, monkeypatch):
    """After `_SLOW` maps L-BFGS goes on, never falls, and no longer run finds much more than remains by its report."""
    monkeypatch.setattr(climb_module, "_SLOW", 20)
    log, prior = made(rng, kind)
    task = Likelihood(log, 3, prior, SERIAL)
    models = log.random_models(2, 3, rng)
    found = climb(task, models, left=1e-4, max_maps=2000, accelerate=True, smooth=task.smooth)
    assert found.converged.all()
    assert (found.n_maps > 20).all()
    for trace, n_maps, objective in zip(found.traces, found.n_maps, found.objectives, strict=True):
        assert len(trace) == n_maps
        assert trace[-1] == objective
        assert all(after >= before - 1e-9 for before, after in pairwise(trace))
    longer = climb(task, found.models, left=1e-10, max_maps=5000, accelerate=True, smooth=task.smooth)
    np.testing.assert_array_less(longer.objectives - found.objectives, 1e-3)
    slow = climb(task, found.models, left=1e-10, max_maps=5000, accelerate=True)
    np.testing.assert_allclose(slow.objectives, longer.objectives, atol=1e-3)


def test_few_maps_and_plain_em_need_no_coordinates(rng):
    log, prior = made(rng, "prior")
    task = Likelihood(log, 3, prior, SERIAL)
    models = log.random_models(1, 3, rng)

    def never(model):
        raise AssertionError

    for max_maps in (climb_module._SLOW, climb_module._SLOW - 1):
        found = climb(task, models, left=0.0, max_maps=max_maps, accelerate=True, smooth=never)
        assert found.n_maps.tolist() == [max_maps]
    fit = lmab.EM(accelerate=False, restarts=1, prior=1.5, max_iterations=150).fit(log, n_types=3, rng=rng)
    assert len(fit.trace) == 150


def test_an_observer_stops_all_climbs(rng, monkeypatch):
    monkeypatch.setattr(climb_module, "_SLOW", 20)
    log, prior = made(rng, "maximum likelihood")
    task = Likelihood(log, 3, prior, SERIAL)
    heard = []

    def observer(maps, best):
        heard.append((maps, best))
        return maps > 25

    models = log.random_models(2, 3, rng)
    found = climb(task, models, left=0.0, max_maps=500, accelerate=True, observer=observer, smooth=task.smooth)
    assert found.stopped
    assert found.n_maps[0] > 25 > found.n_maps[1]
    assert [best for _, best in heard] == sorted(best for _, best in heard)
