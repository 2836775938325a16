"""What was once promised and did not hold on logs as they are: long tails, sparse rewards, too few types chosen.

The instances are those of the studies (`benchmarks.study_coverage`, `benchmarks.study_direct_mle`), a few of each.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import lmab
from benchmarks import study_coverage
from benchmarks.study_direct_mle import Case, earned, genie, learned

few_or_many = pytest.mark.parametrize("number", [1, pytest.param(4, marks=pytest.mark.slow)])


@few_or_many
@pytest.mark.parametrize("cell", ["1/rank^1.5", pytest.param("1/rank", marks=pytest.mark.slow)])
def test_assessments_hold_where_most_arms_were_hardly_played(cell, number, monkeypatch):
    monkeypatch.setattr(study_coverage, "_BASELINE", 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lmab.errors.LmabWarning)  # thin logs warn, as they should
        rows = [study_coverage.run(cell, 1000 + log) for log in range(number)]
    for claim in ("value", "optimum", "regret", "gain"):
        assert sum(row[claim] for row in rows) >= number - number // 4, claim  # 0.1 held .2 to .67 of them


@pytest.mark.parametrize("number", [2, pytest.param(4, marks=pytest.mark.slow)])  # One is chance
def test_sparse_rewards_are_not_learned_worse_than_by_one_type(number):
    case = Case("sparse", 4, 20, 7, 2_000)
    shares = []
    for seed in range(100, 100 + number):
        bandit = case.draw(seed)
        learners = lmab.DirectMLE(4), lmab.DirectMLE(1)
        shares.append([earned(case, bandit, learner, seed) / genie(case, bandit) for learner in learners])
    ours, one = np.array(shares).T
    assert ours.mean() > one.mean() - 0.03
    assert ours.mean() > 0.88


@few_or_many
def test_a_number_of_types_that_is_chosen_costs_little_where_information_must_be_paid_for(number):
    case = Case("hard", 4, 20, 5, 500)
    shares = []
    for seed in range(100, 100 + number):
        bandit = case.draw(seed)
        values = [learned(case, bandit, lmab.DirectMLE(n), seed)[1] for n in ("auto", 4)]
        shares.append(np.array(values) / genie(case, bandit))
    auto, given = np.array(shares).T
    assert auto.mean() > given.mean() - 0.05  # 0.1 lost .13
