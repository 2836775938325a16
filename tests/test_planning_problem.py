"""The problem that planners see, and the clock they run against."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from policies import always

import lmab
from lmab import LatentBandit, Plan
from lmab.planning.problem import Clock, Problem


def test_types_without_weight_are_left_out():
    bandit = LatentBandit.bernoulli([0.5, 0.0, 0.5], [[0.9, 0.5], [0.3, 0.3], [0.1, 0.6]])
    problem = Problem.of(bandit, 3)
    assert problem.types.tolist() == [0, 2]
    np.testing.assert_allclose(problem.means, [[0.9, 0.1], [0.5, 0.6]])
    np.testing.assert_allclose(problem.table, [[0.1, 0.9], [0.9, 0.1], [0.5, 0.4], [0.5, 0.6]])
    np.testing.assert_array_equal(problem.spread(np.array([[1.0, 2.0]])), [[1.0, 0.0, 2.0]])
    assert problem.full_information == pytest.approx(3 * (0.5 * 0.9 + 0.5 * 0.6))
    assert problem.scale == pytest.approx(3 * 0.9)
    assert (problem.n_arms, problem.n_values, problem.binned, problem.bins) == (2, 2, False, 12)


def test_scale_is_an_absolute_value():
    bandit = LatentBandit.categorical([1.0], [[[0.5, 0.5]]], [-4.0, 1.0])
    assert Problem.of(bandit, 2).scale == pytest.approx(3.0)


@given(st.integers(0, 10**6))
def test_last_arms_are_those_no_other_arm_beats_everywhere(seed):
    rng = np.random.default_rng(seed)
    means = rng.integers(0, 4, size=(2, 6)) / 4
    problem = Problem.of(LatentBandit.bernoulli([0.5, 0.5], means), 2)
    columns = means.T.tolist()
    expected = [
        a
        for a, mine in enumerate(columns)
        if not any(
            (all(y >= x for x, y in zip(mine, other, strict=True)) and other != mine) or (other == mine and b < a)
            for b, other in enumerate(columns)
        )
    ]
    assert problem.last_arms.tolist() == expected
    everywhere = [a for a, mine in enumerate(columns) if (np.array(mine) >= means.max(axis=1)).all()]
    assert problem.best_everywhere() == (everywhere[0] if everywhere else None)


def test_last_arms_of_many_are_found_part_by_part(monkeypatch, rng):
    problem = Problem.of(LatentBandit.bernoulli([0.5, 0.5], rng.integers(0, 9, size=(2, 40)) / 9), 2)
    whole = problem.last_arms
    monkeypatch.setattr("lmab.planning.problem._CHUNK", 7)
    np.testing.assert_array_equal(problem.among(np.arange(40)).last_arms, whole)


def test_a_problem_among_some_arms_keeps_what_they_pay_and_tell(rng):
    problem = Problem.of(LatentBandit.gaussian([0.5, 0.5], rng.normal(size=(2, 5))), 3, bins=4)
    some = problem.among(np.array([4, 1]))
    np.testing.assert_array_equal(some.means, problem.means[[4, 1]])
    np.testing.assert_array_equal(some.table, problem.table[[16, 17, 18, 19, 4, 5, 6, 7]])
    np.testing.assert_array_equal(some.edges, problem.edges[[4, 1]])
    assert (some.n_arms, some.n_values, some.horizon) == (2, 4, 3)


def test_an_edge_belongs_to_the_bin_below():
    problem = Problem.of(LatentBandit.gaussian([1.0], [[0.0, 5.0]]), 2, bins=4)
    assert problem.edges is not None
    edges = problem.edges[1]
    arms = np.ones(5, int)
    rewards = np.array([edges[0] - 1e-9, edges[0], edges[0] + 1e-9, edges[2], 99.0])
    assert problem.codes(arms, rewards).tolist() == [4, 4, 5, 6, 7]
    assert (problem.binned, problem.bins) == (True, 4)


def test_the_bounds_on_a_clock_only_improve():
    told = []
    clock = Clock(1000.0, told.append)
    clock.record(1.0, 5.0)
    clock.record(0.5, 4.0)
    clock.record(2.0, 6.0)
    assert [bounds[1:] for bounds in clock.trace] == [(1.0, 5.0), (1.0, 4.0), (2.0, 4.0)]
    assert told == clock.trace
    assert not clock.expired
    assert Clock(0.0).expired
    assert (np.diff([bounds.seconds for bounds in clock.trace]) >= 0).all()


def test_the_gap_of_a_plan():
    def gap(lower: float, upper: float) -> float:
        return Plan(always(0), 1, lower, upper, "heuristic", "").gap

    assert gap(2.0, 3.0) == pytest.approx(0.5)
    assert gap(-2.0, -1.0) == pytest.approx(0.5)
    assert gap(3.0, 3.0) == 0.0
    assert gap(3.0, 2.9999) == 0.0  # bounds that cross by rounding
    assert gap(0.0, 0.0) == 0.0
    assert gap(0.0, 1.0) == np.inf


@pytest.mark.parametrize(("gap", "absolute", "expected"), [(0.1, 0.0, 0.5), (0.1, 0.7, 0.7), (0.0, 0.0, 1e-13 * 6)])
def test_the_tolerance_of_certified_is_the_largest_of_three(gap, absolute, expected):
    problem = Problem.of(LatentBandit.categorical([1.0], [[[0.5, 0.5]]], [-5.0, 1.0]), 3)
    assert lmab.Certified(gap=gap, absolute=absolute).tolerance(problem, -5.0) == pytest.approx(expected)


def test_defaults_of_certified():
    assert (lmab.Certified().gap, lmab.Certified().absolute, lmab.Certified().seed) == (0.01, 0.0, 0)
    for wrong in ({"gap": -0.1}, {"absolute": np.inf}, {"n_beliefs": 0}, {"seed": -1}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
            lmab.Certified(**wrong)


@pytest.mark.parametrize(("weights", "types"), [([0.2, 0.5, 0.3], [0, 1, 2]), ([0.4, 0.0, 0.6], [0, 2])])
def test_beliefs_are_those_of_the_types_with_weight(weights, types):
    problem = Problem.of(lmab.LatentBandit.bernoulli(weights, np.full((3, 2), 0.5)), 4)
    for memory in (np.arange(10.0).reshape(2, 5), np.arange(6.0).reshape(2, 3)):  # policies may keep more than beliefs
        found = problem.beliefs(memory)
        np.testing.assert_array_equal(found, memory[:, types])
        assert found.flags.c_contiguous
        found[:] = -1
        assert memory.min() == 0  # a copy
