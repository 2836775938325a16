"""What learners reach on random spherical instances: the claims of docs/learning.md, on instances of any seed."""

from __future__ import annotations

import pytest
from seeds import SEED

from benchmarks.study_learning import CASES, NUMBERS, fractions

CHOSEN = range(SEED * len(NUMBERS), (SEED + 1) * len(NUMBERS))


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case, least in CASES.items() if least is not None])
def test_fraction_of_the_genie(case):
    assert fractions(*case, CHOSEN).mean() >= CASES[case]


@pytest.mark.slow
@pytest.mark.parametrize(("decomposition", "margin"), [("Tensor", 0.05), ("Tensor on pairs", 0.02)])
def test_maximum_likelihood_beats_decomposition_where_the_rank_is_low(decomposition, margin):
    setting = (7, 50, 7, 100_000)
    assert (fractions(*setting, "EDMLE", CHOSEN) - fractions(*setting, decomposition, CHOSEN)).mean() > margin


@pytest.mark.slow
def test_optimistic_play_keeps_up():
    setting = (7, 50, 7, 100_000)
    assert (fractions(*setting, "DirectMLE", CHOSEN) - fractions(*setting, "LUCRL", CHOSEN)).mean() < 0.03


@pytest.mark.slow
def test_fifteen_times_fewer_sessions_than_the_literal_recipe():
    few, literal = (5, 50, 7, 4_000, "DirectMLE"), (5, 50, 7, 60_000, "EDMLE literal")
    assert fractions(*few, CHOSEN).mean() >= 0.97 > fractions(*literal, CHOSEN).mean()
