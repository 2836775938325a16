"""Lookahead against plain recursion, and the bounds it proves."""

from __future__ import annotations

import numpy as np
import pytest

from lmab import LatentBandit
from lmab.planning.lookahead import OutOfTime, lookahead_values, root_bounds
from lmab.planning.problem import Problem
from lmab.testing.oracle import small_bandit


def by_recursion(problem: Problem, mass, remaining: int, depth: int, optimistic: bool) -> list[float]:
    """What each arm is worth at one unnormalised belief: rewards for `depth` steps, then one fixed arm for the rest.

    Optimistic: the rest as if the type were known; with a single step left there is nothing to be optimistic about.
    """
    depth, values = min(depth, remaining - 1), []
    for arm in range(problem.n_arms):
        value = float(problem.means[arm] @ mass)
        if depth == 0:
            value += (remaining - 1) * float(problem.means.max(axis=0) @ mass) * optimistic
        for code in range(arm * problem.n_values, (arm + 1) * problem.n_values) if depth else ():
            after = mass * problem.table[code]
            if depth > 1:
                value += max(by_recursion(problem, after, remaining - 1, depth - 1, optimistic))
            elif optimistic and remaining > 2:
                value += (remaining - 1) * float(problem.means.max(axis=0) @ after)
            else:
                value += (remaining - 1) * float((problem.means @ after).max())
        values.append(value)
    return values


@pytest.mark.parametrize("optimistic", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_values_are_those_of_plain_recursion(seed, optimistic, monkeypatch):
    monkeypatch.setattr("lmab.planning.lookahead._CHUNK", 40)  # several blocks
    bandit, _ = small_bandit(seed)
    problem = Problem.of(bandit, 4)
    masses = np.random.default_rng(seed).random((5, len(problem.weights)))
    for remaining in (1, 2, 3, 4):
        for depth in (0, 1, 2):
            found = lookahead_values(problem, masses, remaining, depth, optimistic=optimistic)
            expected = [by_recursion(problem, mass, remaining, depth, optimistic) for mass in masses]
            np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_deeper_lookaheads_prove_more_about_the_optimum(seed):
    bandit, _ = small_bandit(seed)
    problem = Problem.of(bandit, 4)
    lowers, uppers = np.array([root_bounds(problem, depth) for depth in (0, 1, 2, 3)]).T
    assert (np.diff(lowers) >= -1e-12).all()
    assert (np.diff(uppers) <= 1e-12).all()
    assert lowers[-1] == pytest.approx(uppers[-1])  # as deep as the session: the optimum
    assert lowers[0] == pytest.approx(bandit.best_fixed(4))
    assert uppers[0] == pytest.approx(bandit.known_type(4))


def test_one_step_pays_the_best_mean():
    problem = Problem.of(LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]]), 1)
    for depth in (0, 1, 2):
        assert root_bounds(problem, depth) == pytest.approx((0.55, 0.55))


def test_a_lookahead_that_is_told_to_stop_stops():
    problem = Problem.of(LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]]), 4)
    with pytest.raises(OutOfTime):
        lookahead_values(problem, problem.weights[None], 4, 2, stop=lambda: True)
