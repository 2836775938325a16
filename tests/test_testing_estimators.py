"""check_estimator: every estimator of the package keeps the laws, and each law is broken by somebody on purpose."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

import lmab
from lmab.estimation import EM, Estimator, MomentMatching, TensorDecomposition, Traits, finish
from lmab.estimation.result import Capabilities
from lmab.testing import BrokenLaw, check_estimator
from lmab.testing.estimators import LAWS

ESTIMATORS = [
    EM(prior=0.0, restarts=2),
    EM(restarts=2, sweeps=4),
    MomentMatching(restarts=3),
    MomentMatching("core", restarts=3),
    TensorDecomposition(),
    Traits(n_points=4, n_factors=1, max_iterations=30),
]


@pytest.mark.parametrize("method", ESTIMATORS, ids=lambda one: f"{type(one).__name__}")
def test_estimators_of_the_package_keep_the_laws(method):
    report = check_estimator(method)
    assert set(report.kept) | set(report.not_checked) == set(LAWS)
    assert len(report.not_checked) <= 2


class Bare:
    """No subclass of anything: only `fit`, and none of the optional arguments."""

    def fit(self, log, *, n_types, rng, progress=None):
        return EM(prior=0.0, restarts=1).fit(log, n_types=n_types, rng=rng, progress=progress)


def test_any_object_with_fit_is_an_estimator():
    assert len(check_estimator(Bare()).kept) == len(LAWS)
    log = lmab.simulate(lmab.random_bandit(2, 4, rng=0), lmab.Uniform(4), n_sessions=300, horizon=4, rng=0)
    chosen = lmab.fit(log, n_types="auto", method=Bare(), rng=0)
    assert chosen.curve is not None
    assert chosen.n_types == chosen.curve.chosen


def fitted(request):
    return EM(prior=0.0, restarts=1).fit(request.log, n_types=request.n_types, rng=request.rng)


@dataclass(frozen=True)
class Broken(Estimator):
    """An estimator that breaks a law, changing an estimate that keeps them."""

    law: str

    def solve(self, request):
        estimate = fitted(request)
        return BREAKS[self.law](request, estimate)


def one_type_less(request, estimate):
    return fitted(replace(request, n_types=max(request.n_types - 1, 1)))


def relabelled(request, estimate):
    labels = tuple("wxyz"[: estimate.bandit.n_arms])
    return replace(estimate, bandit=replace(estimate.bandit, arm_labels=labels))


def by_global_state(request, estimate):
    weights = np.random.dirichlet(np.ones(request.n_types))  # noqa: NPY002
    return finish(request.log, replace(estimate.bandit, weights=weights))


def changing_the_log(request, estimate):
    request.log.sessions.rewards.setflags(write=True)
    request.log.sessions.rewards[0] = 1 - request.log.sessions.rewards[0]
    return estimate


def stopping_badly(request, estimate):
    if request.progress(lmab.estimation.Progress("all", 1, 1, 0.0)):
        raise KeyError("stopped")
    return estimate


def only_whole_sessions(request, estimate):
    request.log.sessions.rewards.reshape(len(request.log.sessions), -1)
    if len(set(request.log.sessions.lengths.tolist())) > 1:
        raise IndexError("sessions of one length")
    return estimate


def more_than_one_type(request, estimate):
    if request.n_types == 1:
        raise ZeroDivisionError
    return estimate


def only_values(request, estimate):
    if request.log.values is None:
        raise TypeError("values")
    return estimate


BREAKS = {
    "the estimate has the types and arms that were asked for": one_type_less,
    "the labels of arms are kept": relabelled,
    "the log-likelihood is that of the bandit": lambda _, one: replace(one, log_likelihood=one.log_likelihood + 1),
    "status, message and trace are true": lambda _, one: replace(one, trace=np.array([1.0, 0.0])),
    "randomness comes from the generator alone": by_global_state,
    "neither log nor method changes": changing_the_log,
    "it can be stopped": stopping_badly,
    "sessions of different lengths are fitted or refused": only_whole_sessions,
    "one type is fitted or refused": more_than_one_type,
    "normal rewards are fitted or refused": only_values,
}


@pytest.mark.parametrize("law", BREAKS)
def test_a_broken_law_is_reported(law):
    with pytest.raises(BrokenLaw) as caught:
        check_estimator(Broken(law))
    assert law in caught.value.laws


def test_an_estimate_that_depends_on_more_than_the_seed_is_reported():
    calls = []

    class Counting(Estimator):
        def solve(self, request):
            calls.append(1)
            return finish(request.log, lmab.random_bandit(request.n_types, request.log.n_arms, rng=len(calls)))

    with pytest.raises(BrokenLaw, match="two fits with the same seed have different"):
        check_estimator(Counting())


def test_all_broken_laws_are_reported_at_once():
    class Empty(Estimator):
        def solve(self, request):
            return None

    with pytest.raises(BrokenLaw, match=rf"Empty breaks {len(LAWS)} laws:\n- 'the estimate has the types") as caught:
        check_estimator(Empty())
    assert list(caught.value.laws) == list(LAWS)
    assert all("must return an Estimate" in seen for seen in caught.value.laws.values())


def test_capabilities_have_defaults_for_everybody():
    assert Broken("").capabilities == Capabilities()
    own = Traits(n_points=4, n_factors=1)
    assert own.capabilities.chooses_n_types
    log = lmab.simulate(lmab.random_bandit(2, 4, rng=0), lmab.Uniform(4), n_sessions=30, horizon=3, rng=0)
    with pytest.raises(lmab.errors.InvalidArgument, match="start must be None for the method Broken"):
        lmab.fit(log, n_types=2, method=Broken(""), start=lmab.random_bandit(2, 4, rng=0), rng=0)


def test_finish_takes_labels_and_a_status_as_text():
    log = lmab.Sessions.from_arrays([[0, 1], [1, 0]], [[0.0, 1.0], [1.0, 0.0]])
    log = replace(log, arm_labels=("x", "y"))
    encoded = lmab.fit(log, n_types=1, method=EM(prior=0.0), rng=0).require_log()
    found = finish(encoded, lmab.LatentBandit.bernoulli([1.0], [[0.5, 0.5]]), status="unmatched", trace=[1, 2])
    assert found.bandit.arm_labels == ("x", "y")
    assert (found.status, found.message) == (lmab.errors.Status.UNMATCHED, lmab.errors.Status.UNMATCHED.sentence)
    assert (found.trace.tolist(), str(found.starts)) == ([1.0, 2.0], "1 of 1 starts reached the best solution")
    assert found.log_likelihood == pytest.approx(4 * np.log(0.5))
