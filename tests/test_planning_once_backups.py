"""Backups without repeats: every plan and every quick lookahead against enumeration of what may follow."""

from __future__ import annotations

import numpy as np
import pytest
from seeds import generator

import lmab
from lmab.planning.backups import best_columns
from lmab.planning.no_repeats.backups import NoRepeatRounds, NoRepeatVectors, backup
from lmab.planning.problem import Problem

STEPS = 3


def case(seed: int) -> tuple[Problem, NoRepeatVectors, np.ndarray, np.ndarray]:
    """Five arms with two or three values, four plans for two steps, and beliefs after one arm was played."""
    rng = generator(seed)
    n_values = 2 + seed % 2
    probabilities = rng.dirichlet(np.ones(n_values), (3, 5))
    bandit = lmab.LatentBandit.categorical(rng.dirichlet(np.ones(3)), probabilities, np.arange(n_values) - 0.5)
    problem = Problem.of(bandit, 4)
    used = np.zeros((4, 5), bool)
    for row in used:
        row[rng.choice(5, 2, replace=False)] = True
    later = NoRepeatVectors(rng.normal(1.5, 1.0, (4, 3)), used.argmax(axis=1), used)
    beliefs = rng.dirichlet(np.ones(3), 6)
    played = np.eye(5, dtype=bool)[rng.integers(5, size=6)]
    return problem, later, beliefs, played


def follows(problem: Problem, later: NoRepeatVectors, child: np.ndarray, gone: set[int], steps: int) -> float:
    """The best of the plans that use none of the arms that are gone, and of the fixed lists of the arms left."""
    left = [arm for arm in range(problem.n_arms) if arm not in gone]
    found = [sum(sorted((float(child @ problem.means[arm]) for arm in left), reverse=True)[:steps])]
    for vector, used in zip(later.vectors, later.used, strict=True):
        if not gone & set(np.flatnonzero(used).tolist()):
            found.append(float(child @ vector))
    return max(found)


def worth(problem: Problem, later: NoRepeatVectors, belief: np.ndarray, gone: set[int], arm: int, steps: int) -> float:
    codes = range(arm * problem.n_values, (arm + 1) * problem.n_values)
    after = sum(follows(problem, later, belief * problem.table[code], gone | {arm}, steps - 1) for code in codes)
    return float(belief @ problem.means[arm]) + after


@pytest.mark.parametrize("seed", range(8))
def test_a_backup_is_the_best_plan_whose_arms_are_left(seed):
    problem, later, beliefs, played = case(seed)
    none, kept = NoRepeatVectors.none(problem), 0
    for belief, seen in zip(beliefs, played, strict=True):
        gone = set(np.flatnonzero(seen).tolist())
        candidates = np.flatnonzero(~seen)[None, 1:4]
        best = max(worth(problem, later, belief, gone, int(arm), STEPS) for arm in candidates[0])
        found = backup(problem, belief[None], seen[None], candidates, later, none, STEPS, np.float64)
        if best <= follows(problem, none, belief, gone, STEPS) + 1e-12:
            assert len(found.arms) == 0  # a fixed list is as good
            continue
        kept += 1
        assert found.vectors[0] @ belief == pytest.approx(best, abs=1e-12)
        arm = int(found.arms[0])
        assert arm in candidates[0]
        assert worth(problem, later, belief, gone, arm, STEPS) == pytest.approx(best)
        assert found.used[0, arm]
        assert not (found.used[0] & seen).any()
        again = backup(problem, belief[None], seen[None], candidates, later, found, STEPS, np.float64)
        assert len(again.arms) == 0  # what is known is not found again
    assert kept > 0


@pytest.mark.parametrize("seed", range(4))
def test_plans_keep_their_promise_in_every_type(seed):
    """A vector is what the plan earns in each type: the plan of its own belief, followed at another one."""
    problem, later, beliefs, played = case(seed)
    candidates = np.array([np.flatnonzero(~seen) for seen in played])
    found = backup(problem, beliefs, played, candidates, later, NoRepeatVectors.none(problem), STEPS, np.float64)
    for vector, arm, used in zip(found.vectors, found.arms, found.used, strict=True):
        gone = set(np.flatnonzero(~used).tolist())
        for belief in np.eye(3):
            assert vector @ belief <= worth(problem, later, belief, gone - {int(arm)}, int(arm), STEPS) + 1e-9


@pytest.mark.parametrize("seed", range(6))
def test_candidates_are_the_plans_own_arm_the_lookaheads_and_the_greedy_one(seed):
    problem, _, beliefs, played = case(seed)
    rounds = NoRepeatRounds(problem, generator(seed), lambda: False)
    none = NoRepeatVectors.none(problem)
    found = rounds.candidates(beliefs, played, STEPS, none)
    gains = np.where(played, -np.inf, beliefs @ problem.means.T)
    for row, (belief, seen) in enumerate(zip(beliefs, played, strict=True)):
        gone = set(np.flatnonzero(seen).tolist())
        ahead = {int(arm): worth(problem, none, belief, gone, int(arm), STEPS) for arm in np.flatnonzero(~seen)}
        assert ahead[int(found[row, 1])] == pytest.approx(max(ahead.values()), abs=1e-5)
        assert found[row, 2] == found[row, 0] == gains[row].argmax()
        assert not seen[found[row]].any()
    plans = NoRepeatVectors(np.full((1, 3), 99.0), np.array([4]), np.eye(5, dtype=bool)[[4]])
    own = rounds.candidates(beliefs, played, STEPS, plans)[:, 0]
    assert (own == np.where(played[:, 4], gains.argmax(axis=1), 4)).all()  # the plan needs arm 4


def test_the_best_columns_come_in_their_order():
    values = np.array([[3.0, 1.0, 2.0, 5.0], [0.0, -np.inf, 7.0, 1.0]])
    assert best_columns(values, 3).tolist() == [[3, 0, 2], [2, 3, 0]]
