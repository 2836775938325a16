"""Logs as they are: equal times, missing rewards, events without sessions, first steps only."""

from __future__ import annotations

import warnings
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmab import Sessions
from lmab.errors import InvalidArgument, InvalidData, LmabWarning

COLUMNS: dict[str, Any] = {"session": "e", "arm": "a", "reward": "r", "step": "t"}
EVENTS: dict[str, Any] = {"person": "p", "time": "t", "arm": "a", "reward": "r"}


def test_equal_steps_keep_the_order_of_the_rows():
    data = {"e": [2, 1, 1, 2, 2, 1], "t": [5, 3, 3, 5, 4, 1], "a": list(range(6)), "r": np.arange(6.0)}
    with pytest.warns(LmabWarning, match="^2 rows have the same 't' as the row before in the same session") as caught:
        log = Sessions.from_frame(pa.table(data), **COLUMNS)
    assert len(caught) == 1
    assert log.arms.tolist() == [5, 1, 2, 4, 0, 3]
    assert log.offsets.tolist() == [0, 3, 6]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40))
def test_rows_are_sorted_by_session_and_step_and_equal_ones_keep_their_order(rows):
    sessions, steps = np.array(rows).T
    data = pa.table({"e": sessions, "t": steps, "a": np.arange(len(rows)), "r": np.zeros(len(rows))})
    order = sorted(range(len(rows)), key=lambda k: rows[k])
    ties = sum(rows[i] == rows[j] for i, j in pairwise(order))
    if ties:
        with pytest.warns(LmabWarning, match=f"^{ties} rows? ha"):
            log = Sessions.from_frame(data, **COLUMNS)
    else:
        log = Sessions.from_frame(data, **COLUMNS)
    assert log.arms.tolist() == order


def test_one_equal_step_is_one_row():
    data = pa.table({"e": [1, 1], "t": [0, 0], "a": [0, 1], "r": [0.0, 1.0]})
    with pytest.warns(LmabWarning, match="^1 row has the same 't'"):
        Sessions.from_frame(data, **COLUMNS)


MISSING = {
    "e": [1, 1, 1, 2, 3, 3],
    "t": [0, 1, 2, 0, 0, 1],
    "a": [0, 1, 2, 0, 1, 0],
    "r": [1.0, None, 3.0, None, 5.0, 6.0],
}


@pytest.mark.parametrize("make", [pa.table, pd.DataFrame, pl.DataFrame])
def test_missing_rewards_stop_by_default_and_the_message_has_the_remedy(make):
    with pytest.raises(
        InvalidData,
        match=r"missing value in row 1 \(2 in all\): leave such steps out \(missing='drop', --missing drop\) or",
    ):
        Sessions.from_frame(make(MISSING), **COLUMNS)


@pytest.mark.parametrize("make", [pa.table, pd.DataFrame, pl.DataFrame])
def test_missing_rewards_can_be_dropped_or_be_zero(make):
    with pytest.warns(LmabWarning, match="^2 steps have no reward in column 'r': 2 steps are left out"):
        dropped = Sessions.from_frame(make(MISSING), **COLUMNS, missing="drop")
    assert (dropped.rewards.tolist(), dropped.offsets.tolist()) == ([1.0, 3.0, 5.0, 6.0], [0, 2, 4])
    assert dropped.arms.tolist() == [0, 2, 1, 0]
    with pytest.warns(LmabWarning, match="a reward of 0 is assumed"):
        zero = Sessions.from_frame(make(MISSING), **COLUMNS, missing="zero")
    assert (zero.rewards.tolist(), zero.offsets.tolist()) == ([1.0, 0.0, 3.0, 0.0, 5.0, 6.0], [0, 3, 4, 6])


def test_a_step_without_a_reward_counts_as_a_step():
    with pytest.warns(LmabWarning, match="2 steps are left out"):
        first = Sessions.from_frame(pa.table(MISSING), **COLUMNS, missing="drop", at_most=2)
    assert first.rewards.tolist() == [1.0, 5.0, 6.0]  # not 1 and 3: the second step of session 1 has no reward


def test_weights_need_every_step_so_sessions_with_propensities_end_at_a_missing_reward():
    data = pa.table({**MISSING, "p": [0.5] * 6})
    with pytest.warns(LmabWarning, match="^2 steps have no reward in column 'r': 3 steps are left out"):
        log = Sessions.from_frame(data, **COLUMNS, propensity="p", missing="drop")
    assert log.rewards.tolist() == [1.0, 5.0, 6.0]
    assert log.offsets.tolist() == [0, 1, 3]


def test_nothing_missing_is_nothing_to_tell():
    data = pa.table({"e": [1, 1], "t": [0, 1], "a": [0, 1], "r": [0.0, 1.0]})
    assert Sessions.from_frame(data, **COLUMNS, missing="drop") == Sessions.from_frame(data, **COLUMNS)


def test_no_reward_at_all():
    data = pa.table({"e": [1, 1], "t": [0, 1], "a": [0, 1], "r": pa.nulls(2)})
    with pytest.raises(InvalidData, match="'r' must hold a reward that can be used, got none"):
        Sessions.from_frame(data, **COLUMNS, missing="drop")


@pytest.mark.parametrize(("option", "value"), [("missing", "skip"), ("at_most", 0), ("at_most", 1.5)])
def test_options_are_checked(option, value):
    data = pa.table({"e": [1], "t": [0], "a": [0], "r": [0.0]})
    with pytest.raises(InvalidArgument, match=f"{option} must be .*, got {value!r}"):
        Sessions.from_frame(data, **COLUMNS, **{option: value})


def test_only_the_first_steps():
    data = pa.table({"e": [1] * 5 + [2], "t": range(6), "a": range(6), "r": np.zeros(6)})
    log = Sessions.from_frame(data, **COLUMNS, at_most=3)
    assert log.arms.tolist() == [0, 1, 2, 5]
    assert log.n_arms == 6


PEOPLE = {
    "p": ["bob", "ann", "ann", "bob", "ann", "bob"],
    "a": ["x", "y", "x", "y", "z", "x"],
    "r": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
}
SECONDS = [0, 10, 1809, 1800, 3700, 1801]  # pauses of bob: 1800, 1; of ann: 1799, 1891


def sessions(events: Any, **options: Any) -> list[list[float]]:
    log = Sessions.from_events(events, **EVENTS, **options)
    return [session.rewards.tolist() for session in log]


def test_a_pause_of_the_gap_ends_a_session():
    events = pa.table({**PEOPLE, "t": SECONDS})
    assert sessions(events) == [[2.0, 3.0], [5.0], [1.0], [4.0, 6.0]]
    assert sessions(events, gap="1h") == [[2.0, 3.0, 5.0], [1.0, 4.0, 6.0]]
    assert sessions(events, gap=1801) == [[2.0, 3.0], [5.0], [1.0, 4.0, 6.0]]
    assert sessions(events, gap="1s") == [[2.0], [3.0], [5.0], [1.0], [4.0], [6.0]]
    assert sessions(events, gap="1h", at_most=2) == [[2.0, 3.0], [1.0, 4.0]]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_have_their_own_unit(unit):
    start = datetime(2024, 3, 1)
    times = pa.array([start + timedelta(seconds=second) for second in SECONDS]).cast(pa.timestamp(unit))
    assert sessions(pa.table({**PEOPLE, "t": times})) == [[2.0, 3.0], [5.0], [1.0], [4.0, 6.0]]
    assert sessions(pa.table({**PEOPLE, "t": times}), gap=1800) == [[2.0, 3.0], [5.0], [1.0], [4.0, 6.0]]


def test_days():
    days = pa.array([datetime(2024, 3, day).date() for day in (1, 1, 2, 3, 9, 3)])
    with pytest.warns(LmabWarning, match="1 row has the same 't'"):
        assert sessions(pa.table({**PEOPLE, "t": days}), gap="2d") == [[2.0, 3.0], [5.0], [1.0], [4.0, 6.0]]


def test_large_numbers_are_milliseconds():
    times = [1_700_000_000_000 + 1000 * second for second in SECONDS]
    with pytest.warns(LmabWarning, match="column 't' are taken as milliseconds"):
        assert sessions(pa.table({**PEOPLE, "t": times})) == [[2.0, 3.0], [5.0], [1.0], [4.0, 6.0]]
    assert sessions(pa.table({**PEOPLE, "t": times}), gap=1_800_000) == [[2.0, 3.0], [5.0], [1.0], [4.0, 6.0]]


@pytest.mark.parametrize("gap", ["half an hour", "", "0m", "-3", "nan", "9" * 400, True])
def test_gaps_that_are_none(gap):
    with pytest.raises(InvalidArgument, match="gap must be a time such as '30m'"):
        Sessions.from_events(pa.table({**PEOPLE, "t": SECONDS}), **EVENTS, gap=gap)


def test_text_is_no_time():
    events = pa.table({**PEOPLE, "t": ["1.3.24 10:00"] * 6})
    with pytest.raises(
        InvalidData, match=r"column 't' must hold times such as .*, got text \('1.3.24 10:00' in row 0\)"
    ):
        Sessions.from_events(events, **EVENTS)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20)), min_size=1, max_size=30),
    st.integers(1, 8),
)
def test_sessions_are_those_of_a_walk_over_the_events(events, gap):
    """A brute-force walk: each person's events in the order of time; a pause of the gap begins a session."""
    expected, order = [], sorted(range(len(events)), key=lambda k: events[k])
    for before, now in zip([None, *order], order, strict=False):
        same = before is not None and events[before][0] == events[now][0] and events[now][1] - events[before][1] < gap
        if same:
            expected[-1].append(now)
        else:
            expected.append([now])
    persons, times = np.array(events).T
    data = pa.table({"p": persons, "t": times, "a": np.arange(len(events)), "r": np.zeros(len(events))})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LmabWarning)  # it says how many rows tie, which other tests read
        log = Sessions.from_events(data, **EVENTS, gap=gap)
    assert [session.arms.tolist() for session in log] == expected


@pytest.mark.parametrize(
    ("per_second", "name"), [(10**3, "milliseconds"), (10**6, "microseconds"), (10**9, "nanoseconds")]
)
def test_large_numbers_have_the_unit_of_their_size(per_second, name):
    times = [(1_700_000_000 + second) * per_second for second in SECONDS]
    with pytest.warns(LmabWarning, match=f"are taken as {name}"):
        assert sessions(pa.table({**PEOPLE, "t": times})) == [[2.0, 3.0], [5.0], [1.0], [4.0, 6.0]]


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64()])
def test_days_of_either_width(kind):
    days = pa.array([datetime(2024, 3, day) for day in (1, 1, 2, 3, 9, 3)]).cast(kind)
    with pytest.warns(LmabWarning, match="1 row has the same 't'"):
        assert sessions(pa.table({**PEOPLE, "t": days}), gap="2d") == [[2.0, 3.0], [5.0], [1.0], [4.0, 6.0]]


@pytest.mark.parametrize(
    "ids",
    [[-(2**40), 5, -(2**40)], [2**40, 5, 2**40], [2**63 - 1, -(2**63), 2**63 - 1], [-(2**31) - 1, 7, -(2**31) - 1]],
)
def test_sessions_of_any_number_keep_their_order(ids):
    steps = [2**40, 0, -(2**40)]
    log = Sessions.from_frame(pa.table({"e": ids, "t": steps, "a": [0, 1, 2], "r": [0.0, 1.0, 2.0]}), **COLUMNS)
    order = sorted(range(3), key=lambda row: (ids[row], steps[row]))
    assert log.arms.tolist() == order
    assert len(log) == 2


def test_an_unknown_arm_is_told_with_its_row_and_the_arms_that_are_known():
    data = pa.table({"e": [1, 1, 2], "t": [0, 1, 0], "a": ["x", "z", "y"], "r": [0.0, 1.0, 1.0]})
    with pytest.raises(InvalidData, match=r"unknown arm, 'z', in row 1; 6 are known: 'x', 'y', 'a', 'b', 'c', \.\.\."):
        Sessions.from_frame(data, **COLUMNS, arm_labels=("x", "y", "a", "b", "c", "d"))
    with pytest.raises(InvalidData, match=r"in row 1; 2 are known: 'x', 'y'$"):
        Sessions.from_frame(data, **COLUMNS, arm_labels=("x", "y"))


def test_text_in_many_batches_is_one_dictionary(monkeypatch):
    monkeypatch.setattr("lmab.data.loading._ROWS", 2)
    names = ["q", "b", "q", "z", "a", "b", "c", "a", "z"]
    parts = [
        pa.table({"e": names[k : k + 2], "a": names[k : k + 2], "r": np.arange(k, min(k + 2, 9), dtype=float)})
        for k in range(0, 9, 2)
    ]
    whole = pa.Table.from_batches([batch for part in parts for batch in part.to_batches()])
    log = Sessions.from_frame(whole, session="e", arm="a", reward="r")
    order = sorted(range(9), key=lambda row: names[row])
    assert log.arm_labels is not None
    assert [log.arm_labels[arm] for arm in log.arms] == [names[row] for row in order]
    assert log.rewards.tolist() == order
    assert len(log) == 5


def test_rewards_beyond_the_precision_of_a_float_are_rounded():
    data = pa.table({"e": [1, 1], "t": [0, 1], "a": [0, 1], "r": [2**60 + 1, 3]})
    assert Sessions.from_frame(data, **COLUMNS).rewards.tolist() == [float(2**60), 3.0]
