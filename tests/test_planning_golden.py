"""The search finds what it found before: bounds after 1, 2 and 4 batches and first arms of six plans."""

from __future__ import annotations

import golden_plans
import pytest

GOLDEN = golden_plans.load()


def test_there_are_six():
    assert len(GOLDEN) == 6


@pytest.mark.parametrize("name", GOLDEN)
def test_a_plan_is_the_golden_one(name):
    """Where the search was changed on purpose, `python tests/golden_plans.py` makes the files anew."""
    expected, found = GOLDEN[name]["result"], golden_plans.solve(GOLDEN[name]["configuration"])
    assert found["status"] == expected["status"]
    assert found["first_arms"] == expected["first_arms"]
    for n_batches, bounds in expected["bounds"].items():
        assert found["bounds"][n_batches] == pytest.approx(bounds, rel=1e-9)


@pytest.mark.parametrize("name", GOLDEN)
def test_bounds_of_golden_plans_only_improve(name):
    bounds = [GOLDEN[name]["result"]["bounds"][str(n)] for n in golden_plans.BATCHES]
    assert all(lower <= upper * (1 + 1e-12) for lower, upper in bounds)
    assert bounds == sorted(bounds, key=lambda pair: (pair[0], -pair[1]))
