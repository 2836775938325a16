"""Metamorphic laws of all estimators and planners, in two tables.

A law changes the input in a way that has a known effect on an unknown result.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import lmab
from lmab import LatentBandit, Sessions
from lmab.errors import LmabWarning
from lmab.estimation import MomentMatching, TensorDecomposition
from lmab.planning import Lookahead, PointBased

# planners: a bandit is changed, and the bounds must change in the same way

HORIZON = 4
TYPES, ARMS = np.array([2, 0, 1]), np.array([3, 1, 0, 4, 2])
BANDIT = LatentBandit.bernoulli(
    [0.2, 0.5, 0.3],
    [[0.9, 0.1, 0.5, 0.3, 0.62], [0.2, 0.8, 0.4, 0.1, 0.61], [0.1, 0.2, 0.95, 0.6, 0.6]],
)


def valued(bandit: LatentBandit, values: list[float]) -> LatentBandit:
    return LatentBandit.categorical(bandit.weights, bandit.rewards.probabilities, values)


def with_arm(bandit: LatentBandit, mean: float) -> LatentBandit:
    """Return the bandit with one more arm whose mean is the same in all types."""
    column = np.full((bandit.n_types, 1), mean)
    return LatentBandit.bernoulli(bandit.weights, np.hstack([bandit.means, column]))


def with_type(bandit: LatentBandit) -> LatentBandit:
    """Return the bandit with one type split into two equal ones."""
    weights = np.append(bandit.weights, bandit.weights[-1] / 2)
    weights[-2] /= 2
    return LatentBandit.bernoulli(weights, np.vstack([bandit.means, bandit.means[-1:]]))


BANDITS: dict[str, tuple[Callable[[LatentBandit], LatentBandit], Callable[[float], float]]] = {
    "types have other numbers": (lambda b: b.relabel(types=TYPES), lambda v: v),
    "arms have other numbers": (lambda b: b.relabel(arms=ARMS), lambda v: v),
    "rewards are scaled": (lambda b: valued(b, [0.0, 3.0]), lambda v: 3 * v),
    "rewards are shifted": (lambda b: valued(b, [2.0, 3.0]), lambda v: v + 2 * HORIZON),
    "rewards are below zero": (lambda b: valued(b, [-5.0, -4.0]), lambda v: v - 5 * HORIZON),
    "an arm more is worse in every type": (lambda b: with_arm(b, 0.05), lambda v: v),
    "a type is two that are alike": (with_type, lambda v: v),
}
PLANNERS = {
    "Exact": lmab.Exact(),
    "Certified": lmab.Certified(gap=1e-9),
    "PointBased": PointBased(),
    "QMDP": lmab.QMDP(),
    "Lookahead": Lookahead(1),
}
EXACT = {"Exact", "Certified"}


@pytest.mark.parametrize("law", BANDITS)
@pytest.mark.parametrize("repeats", [True, False], ids=["repeats", "once"])
@pytest.mark.parametrize("name", PLANNERS)
def test_a_planner_answers_the_changed_question_accordingly(name, repeats, law):
    change, expected = BANDITS[law]
    changed = change(BANDIT)
    before, after = (lmab.plan(b, horizon=HORIZON, method=PLANNERS[name], repeats=repeats) for b in (BANDIT, changed))
    optimum = lmab.plan(BANDIT, horizon=HORIZON, method=lmab.Exact(), repeats=repeats).lower
    assert after.lower - 1e-7 <= expected(optimum) <= after.upper + 1e-7
    if name in EXACT:
        assert after.lower == pytest.approx(expected(before.lower), abs=1e-6)
        assert after.upper == pytest.approx(expected(before.upper), abs=1e-6)
    value = lmab.evaluate(after.policy, changed, horizon=HORIZON).mean
    assert after.lower - 1e-7 <= value <= expected(optimum) + 1e-7


def test_more_to_play_and_more_to_know_is_never_worth_less():
    values = {}
    for horizon in (1, 2, 3, 4):
        values[horizon] = lmab.plan(BANDIT, horizon=horizon, method=lmab.Exact()).lower
    assert all(values[h] <= values[h + 1] for h in (1, 2, 3))
    assert values[4] <= values[3] + BANDIT.means.max()
    better = with_arm(BANDIT, 0.9)
    assert lmab.plan(better, horizon=4, method=lmab.Exact()).lower >= max(values[4], 4 * 0.9)
    assert BANDIT.best_fixed(4) <= values[4] <= BANDIT.known_type(4)


# estimators: a log is changed, and the fit must change in the same way

N_SESSIONS = 400


@pytest.fixture(scope="module")
def log() -> Sessions:
    bandit = LatentBandit.bernoulli([0.4, 0.6], [[0.9, 0.2, 0.7, 0.1], [0.1, 0.8, 0.3, 0.6]])
    return lmab.simulate(bandit, lmab.Uniform(4), n_sessions=N_SESSIONS, horizon=6, rng=7)


def repaid(log: Sessions, values: list[float]) -> Sessions:
    return replace(log, rewards=np.where(log.rewards == 1, values[1], values[0]))


def shuffled(log: Sessions) -> Sessions:
    return log[np.random.default_rng(3).permutation(len(log))]


LOGS: dict[str, tuple[Callable[[Sessions], Sessions], Callable[[np.ndarray], np.ndarray]]] = {
    "sessions come in another order": (shuffled, lambda means: means),
    "arms have other numbers": (
        lambda s: replace(s, arms=np.array([2, 0, 3, 1])[s.arms]),
        lambda m: m[:, [1, 3, 0, 2]],
    ),
    "every session is there twice": (lambda s: s + s, lambda means: means),
    "the log is split and added again": (lambda s: s[: len(s) // 3] + s[len(s) // 3 :], lambda means: means),
    "there is an arm more that nobody played": (lambda s: replace(s, n_arms=5), lambda means: means),
    "rewards are scaled": (lambda s: repaid(s, [0.0, 3.0]), lambda means: 3 * means),
    "rewards are shifted below zero": (lambda s: repaid(s, [-2.0, -1.0]), lambda means: means - 2),
    "rewards are turned round": (lambda s: repaid(s, [1.0, 0.0]), lambda means: 1 - means),
}
ESTIMATORS = {
    "EM": (lmab.EM(restarts=5, prior=0.0), 1e-3),
    "EM with pseudo-plays": (lmab.EM(restarts=5, prior=1.0), 1e-3),
    "EM of a rank": (lmab.EM(restarts=5, prior=0.0, rank=1), 1e-3),
    "EM of normal rewards": (lmab.EM(restarts=5, prior=0.0), 1e-3),
    "EM with a learned prior": (lmab.EM(restarts=3, sweeps=10), 0.03),
    "EM of counts": (lmab.EM(restarts=5, prior=0.0), 1e-3),
    "MomentMatching": (MomentMatching(), 0.05),
    "TensorDecomposition": (TensorDecomposition(), 0.05),
}
#: Changes by a law beside the means: pseudo-plays have half the weight in a log of twice the size.
EXCEPT = {("EM with pseudo-plays", "every session is there twice"): 0.02}
#: Laws that a family has no word for: counts are whole numbers from 0 on.
OUTSIDE = {("EM of counts", law) for law in LOGS if law.startswith("rewards are ")}


FITS: dict[str, LatentBandit] = {}  # to the log as it is, by estimator
FAMILIES = {"EM of normal rewards": "gaussian", "EM of counts": "counts"}
LAWS = [(name, law) for name in ESTIMATORS for law in LOGS if (name, law) not in OUTSIDE]


@pytest.mark.parametrize(("name", "law"), LAWS)
def test_an_estimator_answers_the_changed_log_accordingly(log, name, law):
    change, expected = LOGS[law]
    method, within = ESTIMATORS[name]
    within = EXCEPT.get((name, law), within)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LmabWarning)  # moments of a short log are matched roughly
        how = {"n_types": 2, "method": method, "rewards": FAMILIES.get(name), "check": False, "rng": 0}
        if name not in FITS:
            FITS[name] = lmab.fit(log, **how).bandit
        before, after = FITS[name], lmab.fit(change(log), **how).bandit
    wanted = LatentBandit.gaussian(before.weights, expected(before.means))
    found = LatentBandit.gaussian(after.weights, after.means[:, : wanted.n_arms])
    scale = np.ptp(wanted.means)

    def difference(types: list[int]) -> float:  # types of a model of rank 1 may have the same means
        means, weights = found.means[types] - wanted.means, found.weights[types] - wanted.weights
        return float(np.abs(means).sum() / scale + np.abs(weights).sum())

    order = min(([0, 1], [1, 0]), key=difference)
    np.testing.assert_allclose(found.means[order], wanted.means, atol=within * scale)
    np.testing.assert_allclose(found.weights[order], wanted.weights, atol=within)


@pytest.mark.parametrize("law", LOGS)
def test_traits_answer_the_changed_log_accordingly(log, law):
    """Check means and posteriors, which must follow the log because the quadrature points are fixed."""
    change, expected = LOGS[law]
    changed, method = change(log), lmab.Traits(n_factors=1, n_points=15)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LmabWarning)  # sessions of two types differ by more than degrees
        before, after = (lmab.fit(each, method=method, rng=0, check=False) for each in (log, changed))
    average = expected((before.bandit.weights @ before.bandit.means)[None])[0]
    found = (after.bandit.weights @ after.bandit.means)[: len(average)]
    times = len(changed) / len(log)
    within = 0.02 if times == 1 else 0.05  # the law of arms weighs half as much in a log of twice the size
    np.testing.assert_allclose(found, average, atol=within * np.ptp(average))
    assert after.log_likelihood == pytest.approx(times * before.log_likelihood, rel=2e-3)


@pytest.mark.parametrize("prior", [0.0, 1.0, "learned"])
def test_the_likelihood_of_a_log_twice_is_twice_that_of_the_log(log, prior):
    method = lmab.EM(restarts=5, prior=prior)
    once, twice = (lmab.fit(each, n_types=2, method=method, rng=0, check=False) for each in (log, log + log))
    assert twice.log_likelihood == pytest.approx(2 * once.log_likelihood, rel=2e-3)
    assert twice.n_parameters == once.n_parameters
