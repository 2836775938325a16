"""The test that may be looked at every night: its sums by hand, its bound solved, and its errors in simulated loops."""

from __future__ import annotations

import numpy as np
import pytest
from seeds import generator

from lmab.evaluation.sequential import (
    ALPHA,
    HARM,
    StratifiedEvidence,
    Stratum,
    bets_for,
    bounds,
    reach,
    sessions_needed,
)


def test_the_sums_of_two_nights_by_hand():
    nights = [([1.0, 3.0], [0.0, 0.0, 2.0, 2.0]), ([5.0, 5.0, 8.0], [4.0])]
    seen = StratifiedEvidence()
    for new, old in nights:
        seen = seen.add(Stratum.of(new, old))
    weights = [2 * 4 / 6, 3 * 1 / 4]
    assert seen.total == pytest.approx(weights[0] * (2 - 1) + weights[1] * (6 - 4))
    assert seen.information == pytest.approx(sum(weights))
    assert (seen.spread_new, seen.spread_old) == (pytest.approx(2 + 6), pytest.approx(4))
    assert (seen.freedom_new, seen.freedom_old) == (3, 3)
    larger, smaller = 8 / 3, 4 / 3  # few sessions of the new policy: it has the larger variance of the two
    w2 = [weight**2 for weight in weights]
    assert seen.variance == pytest.approx(larger * (w2[0] / 2 + w2[1] / 3) + smaller * (w2[0] / 4 + w2[1] / 1))


def test_a_night_with_one_policy_alone_says_nothing_of_the_difference():
    seen = StratifiedEvidence().add(Stratum.of([1.0, 0.0], [])).add(Stratum.of([], [1.0]))
    assert (seen.total, seen.information) == (0.0, 0.0)
    assert seen.n_new == 2


def test_weekdays_and_shares_cancel():
    """Sunday pays twice as much, and the share of the new policy rises on it: the pooled means would differ by far."""
    seen = StratifiedEvidence().add(Stratum.of([1.0] * 10, [1.0] * 90)).add(Stratum.of([2.0] * 50, [2.0] * 50))
    assert seen.total == 0.0


@pytest.mark.parametrize("variance", [0.0, 1.0, 1e4])
@pytest.mark.parametrize("alpha", [0.05, 0.1])
def test_the_reach_solves_its_equation(variance, alpha):
    bets = bets_for(0.4, 0.2)
    u = float(reach(variance, bets, alpha))
    assert np.exp(bets * u - bets**2 * variance / 2).mean() == pytest.approx(1 / alpha)


def test_loops_at_once_are_loops_one_by_one():
    rng = generator(3)
    counts = rng.integers(5, 50, (3, 4, 2))
    many = StratifiedEvidence()
    for night in range(4):
        n1, n0 = counts[:, night].T
        many = many.add(Stratum(n1, n1 * 0.5, n1 * 0.5, n0, n0 * 0.4, n0 * 0.4))
    found = bounds(many, np.full(3, 0.4), np.full(3, 0.24))
    for loop in range(3):
        one = StratifiedEvidence()
        for n1, n0 in counts[loop]:
            one = one.add(Stratum(n1, n1 * 0.5, n1 * 0.5, n0, n0 * 0.4, n0 * 0.4))
        alone = bounds(one, 0.4, 0.24)
        np.testing.assert_allclose([row[loop] for row in found], alone)


def test_the_bounds_err_as_seldom_as_they_say_over_forty_looks():
    """2,000 loops in which both earn the same: ever above 0, ever below 0."""
    rng, loops, mean = generator(11), 2000, 0.3
    seen, above, below = StratifiedEvidence(), np.zeros(loops, bool), np.zeros(loops, bool)
    for _ in range(40):
        n1, n0 = rng.binomial(400, 0.2, loops), rng.binomial(400, 0.8, loops)
        s1, s0 = rng.binomial(n1, mean), rng.binomial(n0, mean)
        seen = seen.add(Stratum(n1, s1, s1, n0, s0, s0))
        found = bounds(seen, np.full(loops, mean), np.full(loops, mean * (1 - mean)))
        above |= found.low > 0
        below |= found.high < 0
    assert above.mean() <= ALPHA
    assert below.mean() <= HARM
    assert below.mean() > 0  # the test is not empty


def test_a_gain_is_seen_after_the_sessions_that_were_forecast():
    rng, loops, mean, gain = generator(12), 400, 0.3, 0.06
    needed = sessions_needed(gain, mean, mean * (1 - mean), share=0.5, power=0.5)
    per_night = int(needed / 50)
    seen, first = StratifiedEvidence(), np.full(loops, 200)
    for night in range(150):
        n1 = rng.binomial(per_night, 0.5, loops)
        n0 = per_night - n1
        s1, s0 = rng.binomial(n1, mean + gain), rng.binomial(n0, mean)
        seen = seen.add(Stratum(n1, s1, s1, n0, s0, s0))
        low = bounds(seen, np.full(loops, mean), np.full(loops, mean * (1 - mean))).low
        first = np.where((low > 0) & (first == 200), night + 1, first)
    assert np.median(first) == pytest.approx(50, rel=0.25)
    assert sessions_needed(gain, mean, 0.21, power=0.9) > sessions_needed(gain, mean, 0.21, power=0.5)
    assert sessions_needed(gain, mean, 0.21, share=0.1) > sessions_needed(gain, mean, 0.21, share=0.5)
