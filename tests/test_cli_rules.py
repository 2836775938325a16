"""Small rules of the commands, each by itself: numbers of types, names of arms, what is typical, how many more."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from policies import always, of_any_arms

import lmab
from lmab import Sessions
from lmab.cli import evaluate, fit, options
from lmab.cli import plan as planning
from lmab.cli.options import Columns
from lmab.errors import InvalidArgument, InvalidData
from lmab.evaluation.diagnostics import Identifiability


def test_numbers_of_types():
    assert options.n_types("auto") == "auto"
    assert options.n_types("1") == 1
    assert options.n_types("12") == 12
    for wrong in ("0", "-1", "1.5", "two", "", "²"):
        with pytest.raises(InvalidArgument, match="--types must be a whole number of at least 1, or auto"):
            options.n_types(wrong)


def test_a_typical_session_is_the_median_one():
    log = Sessions.from_arrays([[0, 0, 0, 0, 0], [0, 0, -1, -1, -1], [0, 0, 0, -1, -1]], np.zeros((3, 5)))
    assert fit._median_length(log) == 3


def test_types_are_listed_by_frequency_with_their_best_arms():
    bandit = lmab.LatentBandit.bernoulli([0.2, 0.5, 0.3], [[0.1, 0.9, 0.5, 0.2], [0.8, 0.1, 0.3, 0.4], [0, 0, 1, 0]])
    rows = fit._type_rows(bandit)
    assert [row[:3] for row in rows] == [
        ["type 1", "50.0%", "0.400"],
        ["type 2", "30.0%", "0.250"],
        ["type 3", "20.0%", "0.425"],
    ]
    assert rows[0][3] == "arm 0 (0.80), arm 3 (0.40), arm 2 (0.30)"


@pytest.mark.parametrize(("regret", "sessions"), [(0.2, 0), (0.1, 0), (0.05, 300), (0.03, 1012)])
def test_more_sessions_by_the_square_of_the_regret(regret, sessions, monkeypatch):
    """A bound of 0.1 now, from 100 sessions: half of it takes four times as many."""
    monkeypatch.setattr(fit, "plan", lambda estimate, horizon: ("plan", horizon))
    monkeypatch.setattr(fit, "assess", lambda *arguments, rng: SimpleNamespace(regret=(0.0, 0.1)))
    estimate = SimpleNamespace(sessions=Sessions.from_arrays(np.zeros((100, 2), int), np.zeros((100, 2))))
    wanted = fit._sample_size(estimate, regret, None, None)
    assert (wanted.bound, wanted.sessions) == (0.1, sessions)
    for wrong in (0.0, -1.0):
        with pytest.raises(InvalidArgument, match="--regret must be above 0"):
            fit._sample_size(estimate, wrong, None, None)


def test_logs_without_types_are_refused_before_the_fit():
    single = Sessions.from_arrays([[0], [1]], [[0.0], [1.0]])
    with pytest.raises(InvalidData, match="column 'user' gives every session one step"):
        fit._require_types(single, "auto", None, Columns(session="user"))
    fit._require_types(single, 1, None, Columns())
    many = Sessions.from_arrays(np.zeros((33, 2), int), np.arange(66.0).reshape(33, 2))
    with pytest.raises(InvalidData, match="column 'paid' holds more than 32 distinct rewards"):
        fit._require_types(many, 2, None, Columns(reward="paid"))
    fit._require_types(many, 2, "gaussian", Columns())
    fit._require_types(many[:16], 2, None, Columns())  # 32 exactly


def test_the_horizon_is_the_one_asked_for_or_the_policys():
    assert evaluate._horizon(always(0, horizon=5), None) == 5
    assert evaluate._horizon(always(0, horizon=5), 3) == 3
    with pytest.raises(InvalidArgument, match="--horizon must be given"):
        evaluate._horizon(always(0), None)


def test_a_log_is_read_in_the_arms_of_the_policy(tmp_path):
    Sessions.from_arrays([[0, 2]], [[0.0, 1.0]]).write(tmp_path / "log.csv")
    columns = Columns()
    assert columns.read(tmp_path / "log.csv").arm_labels == (0, 2)
    assert columns.read(tmp_path / "log.csv", arms_of=lmab.Uniform(5)).n_arms == 5
    numbered = columns.read(tmp_path / "log.csv", arms_of=of_any_arms())
    assert (numbered.n_arms, numbered.arm_labels, numbered.arms.tolist()) == (3, None, [0, 2])
    with pytest.raises(InvalidData, match="unknown arm, 2"):
        columns.read(tmp_path / "log.csv", arms_of=lmab.Uniform(2))


def test_the_summary_of_a_plan_compares_with_what_is_allowed(tmp_path):
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.2, 0.4], [0.3, 0.8, 0.4]])
    for repeats in (True, False):
        made = lmab.plan(bandit, horizon=2, repeats=repeats)
        summary = planning._summary(made, bandit, tmp_path / "policy.lmab")
        assert summary["fixed"] == bandit.best_fixed(2, repeats)
        assert (summary["lower"], summary["upper"], summary["gap"]) == (made.lower, made.upper, made.gap)
        assert summary["first_arm"] == f"arm {made.policy.act_on([])}"


def test_numbers_of_a_budget():
    from lmab.paper.commands import budget

    assert budget._text(12_345) == "12,345"
    assert budget._text(12_345.678) == "1.23e+04"
    assert budget._text(math.inf) == "more than 1e308"


def identified(**changes):
    given = {
        "n_types": 1, "horizon": 5, "long_enough": 1.0, "rank": 1, "starts": "all agreed", "rare_arms": (0,),
        "core_arms": (), "arm_labels": None, "rarest": 0.1,
    }  # fmt: skip
    return Identifiability(**{**given, **changes})


def test_one_is_not_said_in_the_plural():
    assert "Numerical rank of the second moments of rewards: 1." in identified().sentences
    assert "Numerical rank of the second moments of rewards: 3." in identified(rank=3).sentences
    assert any(line.startswith("1 arm was") for line in identified().sentences)
    assert any(line.startswith("2 arms were") for line in identified(rare_arms=(0, 1)).sentences)


def test_arms_that_are_known_too_little_are_named_with_the_threshold():
    """Plays are counted in the rarest type: an arm with 190 plays is rare where a type has 2% of the sessions."""
    line = next(line for line in identified(rarest=0.02).sentences if line.startswith("1 arm"))
    assert line == ("1 arm was played fewer than 30 times in the rarest type (2.0% of the sessions): arm 0.")


def test_a_fixed_choice_is_read_with_the_arms_of_its_model():
    """The policy of a fixed choice knows no names: its plan's model does."""
    log = Sessions.from_arrays([[0, 1], [1, 0]] * 20, [[1.0, 0.0], [1.0, 1.0]] * 20)
    estimate = lmab.fit(replace(log, arm_labels=("tea", "cake")), n_types=1, rng=0, check=False)
    made = lmab.plan(estimate, horizon=2)
    fixed = replace(made, policy=always(0, horizon=2))
    assert options.arms_behind(fixed).bandit.arm_labels == ("tea", "cake")
    assert options.arms_behind(replace(fixed, source=None)) is fixed.policy
    assert options.arms_behind(fixed.policy) is fixed.policy
