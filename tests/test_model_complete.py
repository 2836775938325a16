"""A fitted bandit is the whole model: functions give equal results for an estimate and for its bandit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from seeds import generator

import lmab
from lmab import LatentBandit, TypePrior
from lmab.errors import InvalidArgument
from lmab.planning.problem import Problem

PRIOR = TypePrior.by_value("country", {"de": [0.9, 0.1], "fr": [0.2, 0.8]})
LEAVING = np.array([[[0.2, 0.05]] * 3, [[0.1, 0.1]] * 3])
TRUTH = LatentBandit.bernoulli([0.5, 0.5], [[0.8, 0.3, 0.5], [0.2, 0.7, 0.4]], leaving=LEAVING, step_effects=[0, -0.8])


@pytest.fixture(scope="module")
def estimate() -> lmab.estimation.Estimate:
    log = lmab.simulate(TRUTH.with_type_prior(PRIOR), lmab.Uniform(3), n_sessions=4000, horizon=4, rng=generator(5))
    found = lmab.fit(log, n_types=2, leaving="shown", rng=0, check=False)
    assert found.type_prior is not None
    assert found.bandit.leaving is not None
    assert found.step is not None
    return found


def numbers(evaluation: Any) -> Any:
    return evaluation.mean, evaluation.per_step.tolist()


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "plan": lambda it: (lambda p: (p.lower, p.upper, p.policy.act_on([(0, 1.0)])))(lmab.plan(it, horizon=4)),
    "plan without repeats": lambda it: (lambda p: (p.lower, p.upper))(lmab.plan(it, horizon=3, repeats=False)),
    "plan for one country": lambda it: lmab.plan(it, horizon=3).bounds({"country": "fr"})[1:],
    "simulate": lambda it: (lambda s: (s.rewards.tolist(), s.features["country"].tolist()))(
        lmab.simulate(it, lmab.Uniform(3), n_sessions=50, horizon=4, rng=1)
    ),
    "Simulator": lambda it: lmab.Simulator(it, horizon=3, rng=1).run(lmab.Uniform(3), 20).rewards.tolist(),
    "evaluate": lambda it: numbers(lmab.evaluate(lmab.Greedy(it), it, horizon=4)),
    "evaluate by simulation": lambda it: numbers(
        lmab.evaluate(lmab.Thompson(it), it, horizon=4, n_sessions=500, rng=1)
    ),
    "compare": lambda it: lmab.compare([lmab.Greedy(it), lmab.Thompson(it)], it, horizon=4, rng=1).interval,
    "Greedy": lambda it: lmab.Greedy(it).start(features={"country": "fr"}).memory.tolist(),
    "Problem": lambda it: Problem.of(it, 4).tables.tolist(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_estimate_and_its_bandit_give_equal_results(name, estimate):
    assert FUNCTIONS[name](estimate) == FUNCTIONS[name](estimate.bandit)


def test_the_weights_of_persons_change_values(estimate):
    without = estimate.bandit.with_type_prior(None)
    known, unknown = (lmab.plan(one, horizon=3, method=lmab.Certified(gap=1e-3)) for one in (estimate, without))
    assert known.lower > unknown.upper + 0.01  # the policy uses the country


def test_values_with_a_prior_are_means_over_its_values(estimate):
    bandit, total = estimate.bandit, 0.0
    people = bandit.type_prior.resolve_features()
    for country in ("de", "fr"):
        share = people.shares[people.features["country"] == country].sum()
        one = bandit.given({"country": country})
        total += share * lmab.evaluate(lmab.Greedy(one), one, horizon=4).mean
    assert lmab.evaluate(lmab.Greedy(bandit), bandit, horizon=4).mean == pytest.approx(total, rel=1e-9)


def test_given_features_sets_the_weights():
    bandit = TRUTH.with_type_prior(PRIOR)
    one = bandit.given({"country": "fr"})
    np.testing.assert_allclose(one.weights, [0.2, 0.8])
    assert one.type_prior is None
    assert one.step_effects.tolist() == [0, -0.8]
    assert bandit.given(None) == TRUTH
    with pytest.raises(InvalidArgument, match="type_prior"):
        TRUTH.given({"country": "fr"})
    with pytest.raises(InvalidArgument, match="one session"):
        bandit.given({"country": ["fr", "de"]})


def test_the_prior_is_kept_by_files_and_follows_the_types(tmp_path):
    bandit = TRUTH.with_type_prior(PRIOR)
    bandit.save(tmp_path / "bandit.lmab")
    assert lmab.load(tmp_path / "bandit.lmab") == bandit
    assert bandit != TRUTH
    np.testing.assert_allclose(bandit.relabel(types=[1, 0]).type_prior.weights({"country": "fr"}), [[0.8, 0.2]])
    assert bandit.only_arms([0, 1]).type_prior == PRIOR
    with pytest.raises(InvalidArgument, match="2 types"):
        TRUTH.with_type_prior(TypePrior.constant([0.2, 0.3, 0.5]))


def test_what_holds_no_bandit_is_refused():
    for call in (
        lambda: lmab.plan("bandit", horizon=2),
        lambda: lmab.Simulator("bandit", horizon=1, rng=0),
        lambda: lmab.Greedy("bandit"),
    ):
        with pytest.raises(InvalidArgument, match="LatentBandit"):
            call()
