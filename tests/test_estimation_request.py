"""The way in for other methods of estimation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from seeds import generator

import lmab
from lmab.errors import Status
from lmab.estimation import Estimate, Estimator, Request, Starts, observe
from lmab.estimation.request import Progress, StopOnce


@dataclass(frozen=True)
class Middle(Estimator):
    """One type: every arm pays its average."""

    def solve(self, request: Request) -> Estimate:
        data = request.observations
        stop = request.progress(Progress("middle", 1, 1, 0.0))
        bandit = data.models.bandit(data.start_models.clustered(np.zeros(data.n_distinct, int), 1)[0], 1)
        likelihood = data.log_likelihood(bandit)
        return Estimate(
            bandit, likelihood, data.n_parameters(1), Status.INTERRUPTED if stop else Status.ITERATION_LIMIT,
            f"asked for {request.n_types}", np.array([likelihood]), Starts(1, 1, 1), 0.0, data,
        )  # fmt: skip


@pytest.fixture
def log(rng):
    bandit = lmab.LatentBandit.bernoulli([0.4, 0.6], [[0.9, 0.1], [0.2, 0.8]])
    return lmab.simulate(bandit, lmab.Uniform(2), n_sessions=100, horizon=3, rng=rng)


def test_a_method_of_ones_own(log):
    with pytest.warns(lmab.errors.LmabWarning, match="did not converge: asked for 2"):
        fit = lmab.fit(log, n_types=2, method=Middle(), rng=0)
    means = [log.rewards[log.arms == arm].mean() for arm in range(2)]
    np.testing.assert_allclose(fit.bandit.means[0], means)
    assert not fit.converged


def test_fit_warns_of_nothing_and_stopping_is_no_failure(log):
    assert Middle().fit(observe(log), n_types=2, rng=generator(0)).status == "iteration limit"
    assert lmab.fit(log, n_types=2, method=Middle(), rng=0, progress=lambda _: True).status == "interrupted"


def test_whoever_stops_stays_stopped():
    answers = [False, True, False]
    watch = StopOnce(lambda _: answers.pop(0))
    news = Progress("starts", 1, 2, 0.0)
    assert [watch(news) for _ in range(4)] == [False, True, True, True]
    assert answers == [False]  # not asked again
    assert not StopOnce()(news)


def test_all_methods_share_the_signature():
    for method in (lmab.EM, lmab.estimation.MomentMatching, lmab.estimation.TensorDecomposition):
        assert issubclass(method, Estimator)
        assert "fit" not in vars(method)
