"""Counts of what came after each step, and chances to leave from them."""

from __future__ import annotations

import numpy as np
import pytest

import lmab
from lmab.estimation import leave_rates
from lmab.estimation.log import LETTERS, with_letters

LOG = lmab.Sessions.from_arrays(
    [[0, 1, 0], [1, 0, -1], [0, -1, -1], [1, 1, 1]],
    [[1.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 1.0]],
    ended=["unknown", "left", "left", "unknown"],
)
VALUES = np.array([0.0, 1.0])


def test_counts_are_those_of_a_loop_over_sessions():
    expected = np.zeros((LETTERS, 2, 2))
    for session, ended in zip(LOG, LOG.ended.tolist(), strict=True):
        last = {"left": leave_rates.LEFT, "went on": leave_rates.GOES_ON, "unknown": leave_rates.ANY_END}[ended]
        letters = [leave_rates.GOES_ON] * (len(session.arms) - 1) + [last]
        for arm, reward, letter in zip(session.arms, session.rewards, letters, strict=True):
            expected[letter, arm, int(reward)] += 1
    np.testing.assert_array_equal(leave_rates.letter_counts(LOG, VALUES), expected)


def test_a_log_that_does_not_say_how_sessions_ended_knows_no_last_step():
    codes = with_letters(np.array([0, 1, 1], np.uint8), np.array([0, 2, 3]), None, 2)
    assert codes.tolist() == [2, 1, 1]
    assert with_letters(np.zeros(1, np.uint8), np.array([0, 1]), np.array([0], np.uint8), 100).dtype == np.uint16


def test_shown_chances_are_shrunk_from_cell_to_value_to_all():
    counts = np.array([[[0.0, 0.0]] * 2, [[6.0, 9.0], [0.0, 0.0]], [[4.0, 1.0], [0.0, 0.0]]])
    overall = 5.5 / 21
    by_value = np.array([4 + 2 * overall, 1 + 2 * overall]) / [12, 12]
    expected = [[(4 + 2 * by_value[0]) / 12, (1 + 2 * by_value[1]) / 12], by_value]
    np.testing.assert_allclose(leave_rates.shown(counts), expected)


def test_arms_that_differ_by_chance_have_the_rate_of_the_reward():
    rng = np.random.default_rng(5)
    known = np.full((40, 1), 300.0)
    left = rng.binomial(300, 0.2, (40, 1)).astype(float)
    counts = np.stack([np.zeros_like(left), known - left, left])
    assert np.ptp(leave_rates.shown(counts)) < 0.3 * np.ptp(left / known)
    apart = rng.binomial(300, rng.beta(2.0, 8.0, (40, 1))).astype(float)
    assert leave_rates.strengths(apart, known)[0] == pytest.approx(10.0, rel=0.5)
    assert leave_rates.strengths(left, known)[0] > 100
    assert leave_rates.strengths(np.zeros((3, 1)), np.ones((3, 1)))[0] == 2.0
    assert leave_rates.strengths(np.array([[0.0], [90.0]]), np.full((2, 1), 90.0))[0] == 2.0


def test_types_multiply_the_shown_chances():
    """Counts that follow the product exactly are found again, up to the pseudo-counts."""
    base, ratio = np.array([[0.05, 0.2], [0.1, 0.3]]), np.array([[0.5, 1.5], [2.0, 0.8]])
    chances = base * ratio[:, None]  # (M, A, Z)
    known = 1e6 * np.array([[[1.0, 2.0], [3.0, 1.0]], [[2.0, 2.0], [1.0, 4.0]]])
    counts = np.stack([np.zeros_like(known), known * (1 - chances), known * chances])
    np.testing.assert_allclose(leave_rates.typed(np.moveaxis(counts, 1, 3)), chances, rtol=1e-3)


def test_one_type_alone_is_the_shown_chance_of_everybody():
    counts = np.random.default_rng(0).integers(200, 900, (3, 3, 2)).astype(float)
    np.testing.assert_allclose(leave_rates.typed(counts[..., None])[0], leave_rates.shown(counts), atol=0.01)


def test_nobody_leaves_for_certain():
    counts = np.zeros((3, 1, 2, 2))
    counts[leave_rates.LEFT] = 1e6
    assert leave_rates.typed(counts).max() == pytest.approx(0.999)


def test_free_chances_lie_between_the_counts_and_their_centre():
    found = leave_rates.free(np.array([30.0, 0.0]), np.array([10.0, 0.0]), np.array([0.2, 0.2]), 10.0)
    np.testing.assert_allclose(found, [32 / 50, 0.2])
    np.testing.assert_allclose(leave_rates.free(np.zeros(1), np.zeros(1), np.full(1, 0.4), 0.0), 0.4)


def test_drawn_chances_spread_as_the_steps_allow():
    rng = np.random.default_rng(1)
    few, many = (
        np.array([leave_rates.drawn(np.array([0.3]), np.array([n]), rng) for _ in range(4000)]) for n in (9.0, 99.0)
    )
    assert few.mean() == pytest.approx(0.3, abs=0.01)
    assert few.std() == pytest.approx(np.sqrt(0.21 / 10), rel=0.05)
    assert many.std() == pytest.approx(np.sqrt(0.21 / 100), rel=0.05)
    assert 0 < leave_rates.drawn(np.zeros(1), np.full(1, 1e3), rng)[0] < 0.01
